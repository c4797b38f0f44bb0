"""What tasks are to Django: its own django.tasks, from 6.0 on; before, the package django-tasks, which is the same.

Where both are, Django's own. A `task` of the package makes tasks of that, too, since the backend says of which class.
"""

from __future__ import annotations

from xq.core.errors import ConfigurationError

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import DEFAULT_TASK_QUEUE_NAME, Task, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    NAME = "django.tasks"
except ModuleNotFoundError:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import DEFAULT_TASK_QUEUE_NAME, Task, TaskError
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "xq.adapters.django.tasks needs Django 6, or the package django-tasks: pip install django-tasks"
        ) from error

    NAME = "django_tasks"

# Releases of django-tasks name this class differently. The handler has it under one name in all of them, and in Django.
InvalidTaskBackend: type[Exception] = task_backends.exception_class

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "NAME",
    "BaseTaskBackend",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
