"""The filters of a list of tasks: by state, and by error. Neither counts the rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q
from django.db.models.functions import Left
from django.utils.html import format_html

import xq
from xq.adapters.django.admin.labels import CLASS, chip, class_of, in_order

LOOKED: Final = 1_000  # tasks whose errors the filter reads
SHOWN: Final = 20  # classes of errors that it shows
BURIED: Final = "B"


class StateFilter(admin.SimpleListFilter):
    """A filter by state, with the number of tasks in each. The numbers come from counters, never from COUNT(*)."""

    title = "state (with the number of tasks)"
    parameter_name = "xq_state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        self.queue = model_admin.queue
        self.counts: Mapping[str, int] = {}
        try:
            self.counts = self.queue.stats().counts
        except xq.Error as error:
            if request.method == "GET":  # a POST redirects to a GET
                messages.error(request, str(error))
        return list(model_admin.words.items())

    def queryset(self, request: Any, queryset: Any) -> Any:
        letter = self.value()
        if letter is None:
            return queryset
        if letter not in self.queue.machine.states:
            raise IncorrectLookupParameters(f"{letter!r} is no state of {self.queue.name}")
        return queryset.filter(**{self.queue.roles["status"]: self.queue.statuses[letter]})

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        shown = {None: "All"} | {letter: chip(letter, word) for letter, word in self.lookup_choices}
        for letter, text in shown.items():
            n = sum(self.counts.values()) if letter is None else self.counts.get(letter)
            dropped = [self.parameter_name] if letter is None else [ErrorFilter.parameter_name]
            chosen = {} if letter is None else {self.parameter_name: letter}
            yield {
                "selected": self.value() == letter,
                "query_string": changelist.get_query_string(chosen, dropped),
                "display": format_html('{} <span class="xq-count">{}</span>', text, n if self.counts else "?"),
            }


class ErrorFilter(admin.SimpleListFilter):
    """A filter by the class of the error: the part of its first line before a colon.

    It offers the classes of the last buried tasks, with their numbers among these, and filters the buried tasks. A
    queue without the feature buried offers those of the newest rows, and filters all tasks.
    """

    title = "error"
    parameter_name = "xq_error"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        self.queue, self.field = model_admin.queue, model_admin.error_field
        errors = self._errors(model_admin.get_queryset(request))
        more = len(errors) > LOOKED
        found = Counter(filter(None, map(class_of, errors[:LOOKED])))
        self.counts = dict(found.most_common(SHOWN))
        what = f"{model_admin.words[BURIED]} tasks" if self._has_buried else "rows"
        self.title = f"error (of the {f'newest {LOOKED:,} ' if more else ''}{what})"
        chosen = self.value()
        return [(error, error) for error in {**self.counts, **({chosen: 0} if chosen else {})}]

    @property
    def _has_buried(self) -> bool:
        return BURIED in self.queue.machine.states

    def _failed(self, queryset: Any) -> Any:
        if not self._has_buried:
            return queryset
        return queryset.filter(**{self.queue.roles["status"]: self.queue.statuses[BURIED]})

    def _errors(self, queryset: Any) -> list[Any]:
        """Return the beginnings of the errors of the newest failed tasks."""
        order = in_order(self.queue, newest=True) if self._has_buried else ["-pk"]
        newest = self._failed(queryset).order_by(*order)
        return list(newest.values_list(Left(self.field, CLASS + 1), flat=True)[: LOOKED + 1])

    def queryset(self, request: Any, queryset: Any) -> Any:
        error = self.value()
        if not error:
            return queryset
        if "\0" in error or len(error) > CLASS:
            raise IncorrectLookupParameters(f"{error[:CLASS]!r} is no class of an error")
        if len(error) == CLASS:  # it was cut
            return self._failed(queryset).filter(**{f"{self.field}__startswith": error})
        ends = [Q(**{f"{self.field}__startswith": f"{error}{end}"}) for end in ":\r\n"]
        return self._failed(queryset).filter(Q(**{self.field: error}) | ends[0] | ends[1] | ends[2])

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        name, states = self.parameter_name, [StateFilter.parameter_name]
        yield {
            "selected": self.value() is None,
            "query_string": changelist.get_query_string(remove=[name]),
            "display": "All",
        }
        for error, _ in self.lookup_choices:
            n = self.counts.get(error, "")
            yield {
                "selected": self.value() == error,
                "query_string": changelist.get_query_string({name: error}, states),
                "display": format_html('{} <span class="xq-count">{}</span>', error, n),
            }
