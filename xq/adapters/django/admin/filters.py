"""The filter above a list of tasks."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters

import xq


class StateFilter(admin.SimpleListFilter):
    """A filter by state. Its numbers come from the queue's own counters."""

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
