"""The table for the tasks of django.tasks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.utils import timezone
from django.utils.module_loading import import_string

from xq.adapters.django import upgrade
from xq.adapters.django.lookup import alias_of
from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.fields import JSONTextField
from xq.adapters.django.tasks.options import WAITING, asked, option_of
from xq.adapters.django.tasks.schedules import declared
from xq.core.machine import KEEP, ONE_LESS, Column, Feature, Sql, Timer
from xq.core.tokens import owner_of
from xq.core.words import NAMES, PLAIN, Wording

MOST_SERIES: Final = 1_000  # in the metrics: Prometheus keeps each in memory
STATUSES = {"W": "WAITING", "R": "READY", "T": "RUNNING", "Z": "SUCCESSFUL", "B": "FAILED"}
# As zombie for done tasks: a failed task stays for bury(delay=) seconds, or forever.
FORGET = Feature("forget", needs=("runat",), timers=(Timer("B", "forget", "X", option="delay"),))

# How `worker_ids` end while a task sleeps in its function or waits for a signal: the take that goes on is no attempt.
ASLEEP: Final = ', ""]'
LAST_IDS: Final = f"substr({{worker_ids}}, length({{worker_ids}}) - {len(ASLEEP) - 1})"

# What a take records. `attempts` begins anew after a success, when someone restarted the task.
BEGUN: Final[dict[str, Sql | None]] = {
    "attempts": Sql(
        ("CASE WHEN {finished_at} IS NULL OR {exception_class_path} <> '' THEN {attempts} + 1 ELSE 1 END",)
    ),
    "started_at": Sql(("CASE WHEN {started_at} IS NULL THEN :moment ELSE {started_at} END",)),
    "last_attempted_at": Sql((f"CASE {LAST_IDS} WHEN '{ASLEEP}' THEN {{last_attempted_at}} ELSE :moment END",)),
    "worker_ids": Sql(  # a list in JSON, with one more at its end
        (
            "substr({worker_ids}, 1, length({worker_ids}) - 1)",
            "CASE {worker_ids} WHEN '[]' THEN '\"' ELSE ', \"' END",
            ":worker",
            "'\"]'",
        )
    ),
    "unique": Sql((f"CASE substr({{unique}}, 1, {len(WAITING)}) WHEN '{WAITING}' THEN NULL ELSE {{unique}} END",)),
    "finished_at": None,  # the last: on MariaDB the others would see this value
}
UNDONE: Final = {  # by a release of a task whose function was not called
    "attempts": ONE_LESS,
    "worker_ids": Sql(
        (
            "substr({worker_ids}, 1, length({worker_ids}) - length(:worker) - "
            "CASE length({worker_ids}) WHEN length(:worker) + 4 THEN 3 ELSE 5 END)",
            "']'",
        )
    ),
}
BEGIN = Feature(
    "begin",
    columns=tuple(Column(name, at={"T": value}, undone=UNDONE.get(name, KEEP)) for name, value in BEGUN.items()),
    brings={
        "moment": lambda token: Task.xq.parts.tasks.table.roles["started_at"].to_database(timezone.now()),
        "worker": lambda token: json.dumps(Task.worker_id or owner_of(token)[0])[1:-1],
    },
)


class TaskWording(Wording):
    """The words of django.tasks. Those of xq select tasks as well."""

    spelled = {**NAMES, **{letter: word.title() for letter, word in STATUSES.items()}}
    names = {**Wording.names, **spelled}

    def lacks(self, queue: str, event: str, option: str, features: Sequence[str]) -> str:
        told = super().lacks(queue, event, option, features)
        advice = ': write "steps": True into OPTIONS of a backend in TASKS, and migrate'
        return told + advice * ("steps" in features)

    def letter(self, named: object, letters: Collection[str]) -> str | None:
        return super().letter(named, letters) or PLAIN.letter(named, letters)


class Task(models.Model):
    """A task of django.tasks, and its result."""

    xq_wording = TaskWording()
    xq_function = "task_path"  # failures are grouped by it
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
    error = models.TextField(null=True, help_text="The last attempt's: what it raised, and the traceback.")
    errors = JSONTextField(null=True, help_text="One for each failed attempt, the newest last.")
    unique_key = models.CharField(max_length=255, null=True, help_text="Of unfinished tasks each has another one.")
    group_key = models.CharField(max_length=255, null=True, help_text="Those with the same one run one by one.")
    member_of = models.CharField(
        max_length=255, null=True, help_text="When all with the same one have ended, a task follows."
    )
    enqueued_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    worker_ids = JSONTextField(default=list)
    attempts = models.IntegerField(default=0)
    owner = models.CharField(max_length=64, null=True)
    runat = models.FloatField(null=True)
    xq_steps = models.TextField(null=True, help_text="What is recorded of its steps, a line for each.")
    xq_awaits = models.CharField(max_length=255, null=True, help_text="The signal that it waits for.")

    worker_id = ""  # this process's, in place of its session's uuid
    worked_on_by = ""  # the kind of this process's worker

    class Meta:
        app_label = "xq_tasks"

    def __str__(self) -> str:
        return f"{self.task_path} {self.pk}"

    @cached_property
    def task(self) -> Any:
        """The enqueued task. Raises ImportError if its function is gone, SuspiciousOperation if that is not a task."""
        aliases = interface.task_backends[self.backend].option("ALIASES")
        found = import_string(aliases.get(self.task_path, self.task_path))
        if not isinstance(found, interface.Task):
            raise SuspiciousOperation(f"{self.task_path}, which the task {self.pk} names, is no task")
        options = {"queue_name": self.queue_name, "run_after": self.run_after, "backend": self.backend}
        return found.using(priority=-self.rank, **options)

    def xq_about(self) -> tuple[str, int | None]:
        """Return what this task runs, and how many attempts it has, for its worker's log and metrics."""
        try:
            return self.task_path, self.option("max_attempts")
        except Exception:  # the function is gone, or the setting TASKS has no such backend any more
            return self.task_path, None

    @classmethod
    def xq_pending(cls) -> Iterator[tuple[str, str, str, int]]:
        """Yield how many unfinished tasks there are by queue ("": TASKS does not name it), function and status."""
        known = {name for each in settings.TASKS.values() for name in each.get("QUEUES", ["default"])}
        rows = cls.objects.using(alias_of(cls.xq)).filter(status__in=[STATUSES[letter] for letter in "WRT"])
        by = rows.values_list("queue_name", "task_path", "status")
        for name, path, status, n in by.annotate(n=models.Count("pk")).order_by("-n")[:MOST_SERIES]:
            yield name if name in known else "", path, status, n

    @classmethod
    def xq_keeps(cls) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Yield for how many seconds OPTIONS keep results: the state, the seconds, and the fields of such rows."""
        for alias in settings.TASKS:
            backend: Any = interface.task_backends[alias]
            for state, name in (("Z", "keep"), ("B", "keep_failed")):
                if backend.options.get(name) is not None:
                    yield state, float(backend.options[name]), {"backend": alias}

    def xq_timeout(self) -> float | None:
        """Return for how many seconds its function may run in a worker process."""
        try:
            timeout: float | None = self.option("timeout")
        except Exception:  # as above: its worker says so
            return None
        return timeout

    def option(self, name: str) -> Any:
        """Return an option of its task, or else of its backend. Raises as `task`."""
        return option_of(self.task, interface.task_backends[self.backend], name)

    def result(self, task: Any = None) -> Any:
        """Return this row's TaskResult. Raises as `task` unless that is given."""
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
            errors=[interface.TaskError(**error) for error in self.errors or ()],
            worker_ids=self.xq_workers(),
        )
        object.__setattr__(result, "_return_value", self.return_value)
        return result

    def xq_workers(self) -> list[str]:
        """Return the id of a worker for each attempt: of the one that has run it last."""
        ids = self.worker_ids[: -1 if self.worker_ids[-1:] == [""] else None]
        return [each for each, then in zip_longest(ids, ids[1:]) if each and then != ""]

    @property
    def goes_on(self) -> bool:
        """Whether its take goes on with an attempt that has slept, or waited."""
        return self.worker_ids[-2:-1] == [""]

    def was_dug(self) -> bool:
        """Return whether this task has failed before, and was dug, which is one more attempt. Note that it begins."""
        mine = type(self).objects.using(self._state.db).filter(owner=self.owner, pk=self.pk)
        dug, self.exception_class_path = bool(self.exception_class_path), ""
        return dug and bool(mine.update(exception_class_path=""))


def definition() -> dict[str, Any]:
    """Return the queue of the tasks, as `upgrade` takes it. What is dear is there if the setting TASKS asks for it."""
    grouped, followed, steps = asked("groups"), asked("then"), asked("steps")
    return {
        "fields": {
            "status": "status",
            "priority": "rank",
            "tube": "queue_name",
            "owner": "owner",
            "runat": "runat",
            "error": "error",
            "unique": "unique_key",
            **{name: name for name in BEGUN if name != "unique"},
            **({"utube": "group_key"} if grouped else {}),
            **({"group": "member_of"} if followed else {}),
            **({"steps": "xq_steps", "awaits": "xq_awaits"} if steps else {}),
        },
        "features": {
            "delayed": True,
            "zombie": True,
            "buried": True,
            "unique": True,
            "forget": FORGET,
            "begin": BEGIN,
            **({"utube": True} if grouped else {}),
            **({"groups": True} if followed else {}),
            **({"steps": True} if steps else {}),
        },
        "statuses": STATUSES,
        "methods": False,
        "schedules": declared,
    }


upgrade(Task, **definition())
