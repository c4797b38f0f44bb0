"""The filters of a list of tasks: by state, and by error. Neither counts the rows of a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q
from django.db.models.functions import Left
from django.utils.html import format_html

import xq
from xq.adapters.django.admin.words import chip

LOOKED: Final = 10_000  # tasks whose errors the filter reads
SHOWN: Final = 20  # classes of errors that it shows
CLASS: Final = 80  # characters of the class of an error


class CountedFilter(admin.SimpleListFilter):
    """A filter whose choices have numbers, in place of those of Django (facets), which count rows."""

    counts: Mapping[str | None, int] = {}  # None: all

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        for value, word in [(None, "All"), *self.lookup_choices]:
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": format_html('{} <span class="xq-count">{}</span>', word, self.counts.get(value, "")),
            }


class StateFilter(CountedFilter):
    """A filter by state. Its numbers are those of the queue's own counters."""

    title = "state (with the number of tasks)"
    parameter_name = "xq_state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        self.queue = model_admin.queue
        try:
            counts = self.queue.stats().counts
            self.counts = {**counts, None: sum(counts.values())}
        except xq.Error as error:
            if request.method == "GET":  # a POST redirects to a GET
                messages.error(request, str(error))
        return [(letter, chip(letter, word)) for letter, word in model_admin.words.items()]

    def queryset(self, request: Any, queryset: Any) -> Any:
        letter = self.value()
        if letter is None:
            return queryset
        if letter not in self.queue.statuses:
            raise IncorrectLookupParameters(f"{letter!r} is no state of {self.queue.name}")
        return queryset.filter(**{self.queue.roles["status"]: self.queue.statuses[letter]})


class ErrorFilter(CountedFilter):
    """A filter by the class of the error: the part of its first line before a colon.

    It is about the tasks in the chosen state; without one about the buried tasks, or if there are none, about all rows.
    """

    title = "error"
    parameter_name = "xq_error"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        queue, self.field = model_admin.queue, model_admin.error_field
        letter = request.GET.get(StateFilter.parameter_name, "B")
        word = model_admin.words.get(letter)
        self.tasks = Q(**{queue.roles["status"]: queue.statuses[letter]}) if word else Q()
        rows = model_admin.get_queryset(request).filter(self.tasks).order_by()
        errors = list(rows.values_list(Left(self.field, CLASS), flat=True)[:LOOKED])
        some = f"{LOOKED:,} " if len(errors) == LOOKED else ""
        self.title = f"error (of {some}{word} tasks)" if word else f"error (of {some}rows)"
        classes = Counter(re.split(r"[:\r\n]", error, maxsplit=1)[0] for error in errors if error)
        self.counts = dict(classes.most_common(SHOWN))
        return [(error, error) for error in dict.fromkeys(filter(None, [*self.counts, self.value()]))]

    def queryset(self, request: Any, queryset: Any) -> Any:
        error = self.value()
        if not error:
            return queryset
        if "\0" in error or len(error) > CLASS:
            raise IncorrectLookupParameters(f"{error[:CLASS]!r} is no class of an error")
        ends = (":", "\r", "\n") if len(error) < CLASS else ("",)  # a longer class was cut
        beginnings = [Q(**{f"{self.field}__startswith": error + end}) for end in ends]
        return queryset.filter(self.tasks & Q(Q(**{self.field: error}), *beginnings, _connector=Q.OR))
