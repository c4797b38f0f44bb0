"""The classic tubes: what those who know tarantool/queue expect of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import peewee as pw
import pytest

from xq.testing import Clock
from xq.tubes import PRESETS, Tube, Tubes

SUBQUEUES = ["utube", "utubettl"]
_numbers = itertools.count(1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(db: pw.Database, clock: Clock) -> Tubes:
    """The tubes of a fresh database, whose clock is in the test's hand."""
    return Tubes(db, clock=clock)


@pytest.fixture
def shared(shared_db: pw.Database) -> Any:
    """Those of a database that other processes can open, by its own clock."""
    return Tubes(shared_db)


@pytest.fixture(params=PRESETS)
def tube(request: pytest.FixtureRequest, queue: Tubes) -> Any:
    """A tube of each type in turn."""
    return queue.create_tube("tube", request.param)


@pytest.fixture(params=SUBQUEUES)
def subqueues(request: pytest.FixtureRequest, queue: Tubes) -> Any:
    return queue.create_tube("subqueues", request.param)


def anew(db: Any) -> pw.Database:
    """The same database, as a program that has just begun opens it."""
    found: pw.Database = type(db)(db.database, **db.connect_params)
    return found


def put(tube: Tube, *data: Any, **options: Any) -> list[int]:
    """Tasks, each in a sub-queue of its own where there are any; their ids."""
    found = []
    for one in data:
        own = {"utube": next(_numbers)} if "utube" in tube.type and "utube" not in options else {}
        task = tube.put(one, **own, **options)
        assert task is not None
        found.append(task.id)
    return found


def heard(tube: Tube) -> list[str]:
    """What the tube tells from now on: the id, the state and the event of each change."""
    found: list[str] = []
    tube.on_task_change(lambda task, event: found.append(f"{task.id}{task.state} {event}"))
    return found


def left_of_tubes(queue: Tubes) -> list[Any]:
    """What the database has of the tables of tubes."""
    tables = [name for name in queue.database.get_tables() if name.startswith("xq_tube_")]
    known = queue.database.execute_sql("SELECT name FROM xq_queue").fetchall()
    return tables + [name for (name,) in known if name.startswith("xq_tube_")]


class Rows:
    """A driver as an application may write one: a plain table, and no queue of xq's."""

    def __init__(self, model: Any, on_task_change: Any, options: dict[str, Any]) -> None:
        self.model, self.changed, self.options = model, on_task_change, options
        self.started = self.stopped = False

    @staticmethod
    def create_space(db: pw.Database, name: str, options: dict[str, Any]) -> Any:
        meta = type("Meta", (), {"database": db, "table_name": name})
        fields = {"state": pw.CharField(default="r"), "text": pw.TextField()}
        model = type("Row", (pw.Model,), {**fields, "Meta": meta})
        db.create_tables([model])
        return model

    @classmethod
    def new(cls, model: Any, on_task_change: Any, options: dict[str, Any]) -> Rows:
        return cls(model, on_task_change, options)

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True

    def normalize_task(self, row: Any) -> tuple[int, str, str]:
        return row.id, row.state, row.text

    def _moved(self, row: Any, state: str, event: str) -> Any:
        row.state = state
        if state == "-":
            row.delete_instance()
        else:
            row.save()
        self.changed(row, event)
        return row

    def put(self, data: Any, options: dict[str, Any]) -> Any:
        row = self.model.create(text=options.get("prefix", "") + data)
        self.changed(row, "put")
        return row

    def take(self) -> Any:
        row = self.model.select().where(self.model.state == "r").order_by(self.model.id).first()
        return row and self._moved(row, "t", "take")

    def peek(self, id: int) -> Any:
        return self.model.get_or_none(id=id)

    def delete(self, id: int) -> Any:
        return self._moved(self.peek(id), "-", "delete")

    def release(self, id: int, options: dict[str, Any]) -> Any:
        return self._moved(self.peek(id), "r", "release")

    def bury(self, id: int) -> Any:
        return self._moved(self.peek(id), "!", "bury")

    def touch(self, id: int, increment: float) -> Any:
        return self._moved(self.peek(id), "t", "touch")

    def kick(self, count: int) -> int:
        rows = list(self.tasks_by_state("!"))[:count]
        return len([self._moved(row, "r", "kick") for row in rows])

    def truncate(self) -> None:
        self.model.delete().execute()

    def tasks_by_state(self, state: str) -> Any:
        return self.model.select().where(self.model.state == state).order_by(self.model.id)


# other processes


@contextmanager
def opened(db: pw.Database) -> Iterator[Any]:
    """The tubes, as another program opens them."""
    database = anew(db)
    try:
        yield Tubes(database)
    finally:
        database.close()
