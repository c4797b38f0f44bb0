"""Whose tasks are whose while processes come and go: first use, fork, exit, kill -9, SIGSTOP, shared sessions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator
from typing import Any

from tests.steps import PATIENCE, eventually, transitions, writing
from xq.adapters.peewee.connections import database_of
from xq.database import database
from xq.database.duties import Duties
from xq.database.members import copied

FEATURES = {"buried": True, "delayed": True}
LATE = 3600  # seconds


def threads() -> list[Duties]:
    """The duties of each database that has some."""
    return [each.duties for each in copied(database._databases) if each.duties is not None]


def end_threads() -> None:
    """End the maintenance threads. Else each tries to connect until its database object is collected."""
    for duties in threads():
        duties.end()
        duties.thread.join(PATIENCE)


def watch(Task: Any) -> None:
    """Have this process look after the queue, as any does that has taken."""
    assert Task.take() is None


def takes(*queues: Any, n: int = 1) -> Callable[[], Generator[Any, Any, None]]:
    """A script that takes tasks of each queue and tells its session, and then does with all of them what it is told."""

    def script() -> Generator[Any, Any, None]:
        held = [task for Task in queues for task in Task.xq.take_many(n)]
        what = yield database_of(queues[0]._meta.database).sessions.current().uuid
        while True:
            what = yield [getattr(task, what)().id for task in held]

    return script


def die(queue: Any, n: int) -> None:
    """Leave what `n` killed processes leave: their registered sessions, each with a taken task."""
    queue.put_many([{}] * n)
    db, dead = queue.model._meta.database, [str(uuid.uuid4()) for _ in queue.take_many(n)]
    owner = queue.parts.executor.open(installed=False).dialect.roles["owner"]
    if path := getattr(database_of(db).liveness, "path", None):
        os.utime(path, (0, 0))  # beside a new lock file nobody is taken for dead
    with writing(db):
        for task, name in zip(queue.by_state("T", n), dead, strict=True):
            db.execute_sql(f"UPDATE {queue.parts.store.table} SET {owner} = '{name}/1' WHERE id = {task.id}")
            for where in "", queue.parts.executor.dialect.source_name:
                db.execute_sql(f"INSERT INTO xq_session (uuid, queue, since) VALUES ('{name}', '{where}', 0)")


def seen(Task: Any, transition: str, n: int = 1) -> Any:
    """Have a transition come about, while this thread does nothing but look."""
    return eventually(lambda: transitions(Task)[transition] == n)
