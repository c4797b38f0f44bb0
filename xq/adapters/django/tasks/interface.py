"""Import django.tasks, in Django 6.0 and later, or else the equivalent package django-tasks.

If both are present, Django's own is used. Then the package's `task` makes such tasks, too, since the backend decides
their class.
"""

# The other modules read these names here.
# ruff: noqa: F401
# mypy: implicit-reexport
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

# Releases of django-tasks name this class differently. The handler's attribute has the same name everywhere.
InvalidTaskBackend: type[Exception] = task_backends.exception_class
