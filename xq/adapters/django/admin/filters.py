"""The filters of a list of tasks: by state, and by error. Neither counts the rows of a table."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q
from django.db.models.functions import Left
from django.utils.text import Truncator

import xq
from xq.adapters.django.admin.words import LINE
from xq.operators.failures import failure_of

LOOKED: Final = 10_000  # tasks whose errors the filter reads
SHOWN: Final = 20  # groups of errors that it shows
READ: Final = 500  # characters of an error that tell its group


class StateFilter(admin.SimpleListFilter):
    """A filter by state. Its numbers are those of the queue's own counters."""

    title = "state (with the number of tasks)"
    parameter_name = "xq_state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        self.queue = model_admin.queue
        try:
            counts = self.queue.stats().counts
        except xq.Error as error:
            counts = {}
            if request.method == "GET":  # a POST redirects to a GET
                messages.error(request, str(error))
        words = model_admin.words.items()
        return [(letter, f"{word} ({counts[letter]:,})" if counts else word) for letter, word in words]

    def queryset(self, request: Any, queryset: Any) -> Any:
        letter = self.value()
        if letter is None:
            return queryset
        if letter not in self.queue.statuses:
            raise IncorrectLookupParameters(f"{letter!r} is no state of {self.queue.name}")
        return queryset.filter(**{self.queue.roles["status"]: self.queue.statuses[letter]})


class ErrorFilter(admin.SimpleListFilter):
    """A filter by groups of errors, those of `xq.Queue.failures`, the largest first.

    It is about the tasks in the chosen state; without one about the buried tasks, or if there are none, about all rows.
    """

    title = "error"
    parameter_name = "xq_error"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        queue, field = model_admin.queue, model_admin.error_field
        letter = request.GET.get(StateFilter.parameter_name, "B")
        word = model_admin.words.get(letter)
        tasks = Q(**{queue.roles["status"]: queue.statuses[letter]}) if word else Q()
        rows = model_admin.get_queryset(request).filter(tasks).order_by().values_list("pk", Left(field, READ))[:LOOKED]
        some = f"{LOOKED:,} " if len(rows) == LOOKED else ""
        self.title = f"error (of {some}{word} tasks)" if word else f"error (of {some}rows)"
        self.groups: dict[str, list[Any]] = {}  # the keys of the tasks, by the id of their failure
        titles: dict[str, str] = {}
        for key, error in rows:
            if error:
                failure = failure_of(error)
                titles[failure.id] = ": ".join(filter(None, [failure.error, failure.message]))
                self.groups.setdefault(failure.id, []).append(key)
        largest = sorted(self.groups, key=lambda id: -len(self.groups[id]))[:SHOWN]
        shown = dict.fromkeys(filter(None, [*largest, self.value()]))
        return [(id, f"{Truncator(titles.get(id, id)).chars(LINE)} ({len(self.groups.get(id, ()))})") for id in shown]

    def queryset(self, request: Any, queryset: Any) -> Any:
        chosen = self.value()
        return queryset.filter(pk__in=self.groups.get(chosen, ())) if chosen else queryset
