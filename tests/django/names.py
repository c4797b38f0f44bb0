"""The names of django.tasks: Django's own, from Django 6 on, or else those of the package django-tasks."""

from __future__ import annotations

from xq.adapters.django.tasks.interface import NAME

if NAME == "django.tasks":
    from django.tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.exceptions import InvalidTask as InvalidTaskError
    from django.tasks.exceptions import InvalidTaskBackend as InvalidTaskBackendError
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    APPS: tuple[str, ...] = ()
else:
    from django_tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.exceptions import (
        InvalidTaskBackendError,
        InvalidTaskError,
        TaskException,
        TaskResultDoesNotExist,
    )
    from django_tasks.signals import task_enqueued, task_finished, task_started

    APPS = ("django_tasks",)

__all__ = [
    "APPS",
    "NAME",
    "InvalidTaskBackendError",
    "InvalidTaskError",
    "TaskContext",
    "TaskException",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "default_task_backend",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
