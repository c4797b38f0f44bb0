"""The table for the tasks of django.tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.utils import timezone
from django.utils.module_loading import import_string

from xq.adapters.django import upgrade
from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.fields import JSONTextField
from xq.core.machine import Feature, Timer
from xq.core.tokens import owner_of

STATUSES = {"W": "WAITING", "R": "READY", "T": "RUNNING", "Z": "SUCCESSFUL", "B": "FAILED"}
# As zombie for done tasks: a failed task stays for bury(delay=) seconds, or forever.
FORGET = Feature("forget", needs=("runat",), timers=(Timer("B", "forget", "X", option="delay"),))


class Task(models.Model):
    """A task of django.tasks, and its result."""

    only_xq_writes = True  # so every row can be read, and calls need no transaction for unreadable ones

    # Without a default: xq makes keys in the order of enqueueing.
    id = models.UUIDField(primary_key=True, editable=False)
    status = models.CharField(
        max_length=10, default="READY", choices=[(word, word.title()) for word in STATUSES.values()]
    )
    # In django.tasks the higher priority comes first, in a queue the lower.
    rank = models.SmallIntegerField(default=0, help_text="The priority, negated: the lowest is taken first.")
    queue_name = models.CharField(max_length=255, default=interface.DEFAULT_TASK_QUEUE_NAME)
    backend = models.CharField(max_length=255)
    task_path = models.TextField()
    args = JSONTextField(default=list)
    kwargs = JSONTextField(default=dict)
    run_after = models.DateTimeField(null=True)
    return_value = JSONTextField(null=True)
    exception_class_path = models.TextField(default="")
    traceback = models.TextField(default="")
    enqueued_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    worker_ids = JSONTextField(default=list)
    attempts = models.IntegerField(default=0)
    owner = models.CharField(max_length=64, null=True)
    runat = models.FloatField(null=True)

    worker_id = ""  # this process's, in place of its session's uuid

    class Meta:
        app_label = "xq_tasks"

    def __str__(self) -> str:
        return f"{self.task_path} {self.pk}"

    @property
    def task(self) -> Any:
        """The enqueued task. Raises ImportError if its function is gone, SuspiciousOperation if that is not a task."""
        found = import_string(self.task_path)
        if not isinstance(found, interface.Task):
            raise SuspiciousOperation(f"{self.task_path}, which the task {self.pk} names, is no task")
        options = {"queue_name": self.queue_name, "run_after": self.run_after, "backend": self.backend}
        return found.using(priority=-self.rank, **options)

    def xq_about(self) -> tuple[str, int | None]:
        """Return what this task runs, and how many attempts it has, for its worker's log and metrics."""
        try:
            return self.task_path, interface.task_backends[self.backend].option("max_attempts")
        except Exception:  # the setting TASKS has no such backend any more
            return self.task_path, None

    def result(self, task: Any = None) -> Any:
        """Return this row's TaskResult. Raises as `task` unless that is given."""
        failed = self.status == STATUSES["B"]
        error = interface.TaskError(exception_class_path=self.exception_class_path, traceback=self.traceback)
        result = interface.TaskResult(
            task=task or self.task,
            id=str(self.pk),
            status=interface.TaskResultStatus(STATUSES["R"] if self.status == STATUSES["W"] else self.status),
            enqueued_at=self.enqueued_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            last_attempted_at=self.last_attempted_at,
            args=self.args,
            kwargs=self.kwargs,
            backend=self.backend,
            errors=[error] if failed else [],
            worker_ids=list(self.worker_ids),
        )
        object.__setattr__(result, "_return_value", self.return_value)
        return result

    def begin(self) -> bool:
        """Record the worker of this attempt. Returns whether the task is still taken by it.

        `attempts` counts since the task's last end, after which someone restarted it.
        """
        now: datetime = timezone.now()
        noted = {
            "worker_ids": [*self.worker_ids, self.worker_id or owner_of(self.owner or "")[0]],
            "started_at": self.started_at or now,
            "last_attempted_at": now,
            "attempts": self.attempts if self.finished_at is None else 1,
            "finished_at": None,
            "return_value": None,
            "exception_class_path": "",
            "traceback": "",
        }
        for name, value in noted.items():
            setattr(self, name, value)
        taken = type(self).objects.using(self._state.db).filter(pk=self.pk, owner=self.owner)
        return bool(taken.update(**noted))


QUEUE: Final[dict[str, Any]] = {
    "fields": {
        "status": "status",
        "priority": "rank",
        "tube": "queue_name",
        "owner": "owner",
        "attempts": "attempts",
        "runat": "runat",
    },
    "features": {"delayed": True, "zombie": True, "buried": True, "forget": FORGET},
    "statuses": STATUSES,
    "methods": False,
}
upgrade(Task, **QUEUE)
