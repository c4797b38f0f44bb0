"""The app `xq.adapters.django.tasks`."""

from __future__ import annotations

from django.apps import AppConfig


class XqTasksConfig(AppConfig):
    """The app with the table of django.tasks, which is a queue."""

    name = "xq.adapters.django.tasks"
    label = "xq_tasks"
    verbose_name = "Tasks"

    def ready(self) -> None:
        from xq.adapters.django.tasks import worker  # noqa: F401 - `xq_worker xq_tasks.Task` runs it
