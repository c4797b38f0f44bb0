"""The tasks of django.tasks in the admin."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin

from xq.adapters.django.admin import QueueAdmin
from xq.adapters.django.tasks.models import STATUSES, Task

NEWEST: Final = 10_000  # tasks whose values a filter offers


def newest(title: str, field: str, **among: str) -> type[admin.SimpleListFilter]:
    """Return a filter by a field. It offers the values of the newest tasks: to find all would read the whole table."""

    class FieldFilter(admin.SimpleListFilter):
        def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
            rows = model_admin.get_queryset(request).filter(**among).order_by("-pk")
            found = {*rows.values_list(field, flat=True)[:NEWEST], self.value()}
            return [(value, value) for value in sorted(filter(None, found))]

        def queryset(self, request: Any, queryset: Any) -> Any:
            return queryset.filter(**{field: self.value()}) if self.value() else queryset

    FieldFilter.title, FieldFilter.parameter_name = title, field
    return FieldFilter


@admin.register(Task)
class TaskAdmin(QueueAdmin, admin.ModelAdmin):
    """The admin for tasks: users may look at them and move them, but not edit them."""

    state_words = STATUSES
    xq_actions = ["restart", "cancel", "kill"]
    list_display = ["task_path", "xq_state", "xq_failure", "queue_name", "attempts", "enqueued_at", "finished_at"]
    list_filter = [
        newest("queue", "queue_name"),
        newest("task", "task_path"),
        newest("exception", "exception_class_path", status=STATUSES["B"]),
    ]
    search_fields = ["task_path", "=id", "error"]
    xq_deferred = ["args", "kwargs", "return_value", "errors"]
    show_full_result_count = False  # one count less
    ordering = ["-pk"]  # newest first: keys have the order of enqueueing

    def has_add_permission(self, request: Any) -> bool:
        return False

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return [field.name for field in self.opts.fields]
