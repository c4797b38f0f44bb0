"""The tasks of django.tasks in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from xq.adapters.django.admin import QueueAdmin
from xq.adapters.django.tasks.models import STATUSES, Task


@admin.register(Task)
class TaskAdmin(QueueAdmin, admin.ModelAdmin):
    """The admin for tasks: users may look at them and move them, but not edit them."""

    state_words = STATUSES
    error_field = "exception_class_path"
    list_display = ["task_path", "xq_state", "queue_name", "attempts", "enqueued_at", "finished_at"]
    search_fields = ["task_path", "=id"]
    ordering = ["-pk"]  # newest first: keys have the order of enqueueing

    def has_add_permission(self, request: Any) -> bool:
        return False

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return [field.name for field in self.opts.fields]
