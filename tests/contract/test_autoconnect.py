"""A database with autoconnect=False, whose connections the application opens and closes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import peewee as pw
import pytest

from tests.factories import task
from tests.steps import PATIENCE, another_process


def test_a_call_on_a_closed_connection_raises_and_opens_none(make_shared):
    db, Task = make_shared.db, make_shared({"ttr": 60})
    put = Task.put(task())
    db.close()
    db.autoconnect = False
    calls = {
        "take": Task.take,
        "take(timeout)": lambda: Task.take(timeout=PATIENCE),
        "put": lambda: Task.put(task()),
        "wait": lambda: Task.wait(put.id, timeout=PATIENCE),
        "stats": Task.stats,
        "install": Task.xq.install,
        "check": Task.xq.check,
    }
    for name, call in calls.items():
        with pytest.raises(pw.InterfaceError, match="autoconnect=False"):
            call()
        assert db.is_closed(), name
    with db.connection_context():
        assert Task.take().id == put.id
        db.connection().close()  # as when a server cuts it: the application has not closed it
        assert Task.xq.count("T") == 1
        assert Task.xq.check() == []


def test_a_worker_opens_the_connection_of_its_thread(make_shared):
    db, Task = make_shared.db, make_shared({"keep": True})
    Task.xq.put_many([task(), task()])

    @Task.xq.worker
    def work(found: Any) -> None:
        db.close()

    db.close()
    db.autoconnect = False
    with db.connection_context():
        Task.xq.run(until_empty=True)
        assert Task.xq.count("D") == 2


def test_a_process_that_ends_gives_its_tasks_back(make_live):
    db, Task = make_live.db, make_live({"history": True})
    db.autoconnect = False
    with db.connection_context():
        put = Task.put(task())

    def child() -> Generator[int, Any, None]:
        with db.connection_context():
            taken = Task.take().id
        yield taken

    with another_process(db, child) as other:
        assert next(other) == put.id
    with db.connection_context():
        assert [row.event for row in Task.xq.history(put.id)] == ["put", "take", "release"]
