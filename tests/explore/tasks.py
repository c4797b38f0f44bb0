"""django.tasks: calls that enqueue, and the lives of the workers that `manage.py xq_worker` runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from django.test import modify_settings, override_settings

from tests.django.names import task
from tests.django.on_tasks import APPS, BACKEND
from tests.explore.calls import Call, by_name
from tests.explore.homes import World, nothing
from tests.explore.lives import SOON, Points, Worker, life
from tests.explore.orms import on_django
from xq.adapters.django import enqueue_many, upgrade
from xq.adapters.django.tasks import group, interface
from xq.adapters.django.tasks.models import Task, definition
from xq.adapters.django.tasks.worker import backoff, perform, run, set_up

OPTIONS = {"max_attempts": 2, "backoff": [5], "groups": True, "then": True}
CUT = ("child", "parent")
POINTS = 9  # which a life passes, beside those of `life`
FUNCTION: list[Callable[[Any], Any]] = []  # of this process's worker


@task
def job(name: str) -> None:
    FUNCTION[0](SimpleNamespace(name=name))


@task
async def coroutine(name: str) -> None:
    await FUNCTION[0](SimpleNamespace(name=name))


def on_tasks(w: World, **options: Any) -> None:
    """Replace the world's queue by that of django.tasks. Its tasks have their first argument as a name."""
    override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": OPTIONS | options}}).enable()
    modify_settings(INSTALLED_APPS={"append": [*APPS]}).enable()
    database, w.table = on_django(w), Task._meta.db_table
    if w.table not in w.db.get_tables():
        database.create(Task)
    del Task.xq
    Task.name, w.named = property(lambda row: row.args[0]), lambda row: json.loads(row["args"])[0]
    known = definition()
    w.q = upgrade(Task, **{**known, "features": {**known["features"], "history": True}}, clock=w.clock)
    set_up(w.q.worker(perform, backoff=backoff))


def enqueued(w: World, n: int, function: Any = job) -> list[str]:
    """Enqueue tasks with unique names. Return how they stand."""
    found = enqueue_many(function, [((w.row()["name"],), {}) for _ in range(n)])
    return [str(each.status) for each in found]


def grouped(w: World) -> None:
    with group("g", then=(job, [w.row()["name"]], {})) as found:
        for _ in range(2):
            found.enqueue(job, w.row()["name"])


class OnTasks(Worker):
    """A worker of `manage.py xq_worker`. The signal task_finished is its hook."""

    def _run(self, w: World, points: Points, raises: str) -> None:
        FUNCTION.append(self._function(w, points, raises, None))
        interface.task_finished.connect(partial(self._finished, w, points), weak=False)
        kind = self.options["kind"]
        run(until_empty=True, **({"coroutines": 1} if kind == "asyncio" else {"kind": kind}))

    def _finished(self, w: World, points: Points, task_result: Any, **_: Any) -> None:
        ended = SimpleNamespace(name=task_result.args[0])
        self._hook(w, points, f"on_{task_result.status}", "", ended)


def life_of_task(end: str, kind: str, cut: str = "", **options: Any) -> Any:
    name = f"django.tasks {end} in {kind}{cut and ', '}{cut}"
    function = coroutine if kind == "asyncio" else job
    lived: Any = life(name, end, "returns", cut=cut, of=OnTasks, points=POINTS, kind=kind)
    # A signal may be missing though the next task is taken.
    joined = [partial(lived.call, last=at, joins=True) for at in range(1, 10 + POINTS)] * (cut != "parent")
    between, before = (*(lived.between or ()), *joined), partial(enqueued, n=2, function=function)
    return replace(lived, name=name, before=before, between=between, opens=partial(on_tasks, **options))


ON_TASKS = by_name(
    Call("django.tasks enqueue", nothing, lambda w: enqueued(w, 1), opens=on_tasks),
    Call("django.tasks enqueue_many", nothing, lambda w: enqueued(w, 3), opens=on_tasks),
    Call("django.tasks group", nothing, grouped, opens=on_tasks, block=True),
    *(life_of_task(end, "thread") for end in ("returns", "raises", "retries", "buries", "discards")),
    *(life_of_task(end, "asyncio") for end in ("returns", "raises")),
    life_of_task("hangs", "asyncio", timeout=SOON),
    *(life_of_task(end, "process", cut) for cut in CUT for end in ("returns", "raises", "exits", "dies")),
    *(life_of_task("hangs", "process", cut, timeout=SOON) for cut in CUT),
)
