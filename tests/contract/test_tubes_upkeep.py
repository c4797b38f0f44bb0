"""What a process does for the tubes of its database that it has not taken from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.steps import another_process, eventually


@contextmanager
def opened(db: Any) -> Iterator[xq.Tubes]:
    """The tubes of the same database, as a program that has just begun opens it."""
    with closing(type(db)(db.database, **db.connect_params)) as another:
        yield xq.Tubes(another)


def has(queue: xq.Tubes, name: str, **wanted: int) -> bool:
    """Whether a tube has so many tasks in these states, and no others, as any process sees it that only looks."""
    found = queue.statistics(name)["tasks"].items()
    return {state: n for state, n in found if n and state != "total"} == wanted


def taking(db: pw.Database) -> Any:
    """A process that takes from the tube a, and from no other."""

    def take() -> Any:
        with opened(db) as queue:
            yield queue.create_tube("a", "fifo").take(0)
            yield None

    return take


def test_a_process_that_takes_from_one_tube_expires_what_is_due_in_another(shared_db):
    queue = xq.Tubes(shared_db)
    before = queue.create_tube("before", "fifottl")
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        later = queue.create_tube("later", "fifottl")
        for tube in (before, later):
            tube.put("delayed", delay=0.3)
            tube.put("lives", ttl=0.3)
        for name in ("before", "later"):
            eventually(partial(has, queue, name, ready=1, done=1))


def test_a_process_that_takes_from_one_tube_reaps_the_orphaned_tasks_of_another(shared_db):
    queue = xq.Tubes(shared_db)
    names = ["before", "later"]

    def owner() -> Any:
        with opened(shared_db) as mine:
            for name in names:
                assert mine.tube[name].take(0)
            yield "taken"
            yield None

    queue.create_tube("before", "fifo").put(1)
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        queue.create_tube("later", "utubettl").put(1)
        with another_process(shared_db, owner) as dying:
            assert next(dying) == "taken"
            dying.kill()
            for name in names:
                eventually(partial(has, queue, name, ready=1))


def test_a_tube_that_cannot_be_looked_at_keeps_no_other_from_being_maintained(shared_db):
    queue = xq.Tubes(shared_db)
    broken, whole = (queue.create_tube(name, "fifottl") for name in ("broken", "whole"))
    shared_db.execute_sql(f"DROP TABLE {broken.model._meta.table_name}")
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        whole.put("delayed", delay=0.2)
        eventually(partial(has, queue, "whole", ready=1))


def test_a_tube_is_dropped_by_a_process_that_only_looks_when_the_owner_of_its_tasks_is_dead(shared_db):
    queue = xq.Tubes(shared_db)
    tube = queue.create_tube("tube", "fifo")
    tube.put(1)

    def owner() -> Any:
        with opened(shared_db) as mine:
            yield mine.tube.tube.take(0)
            yield None

    def drops() -> bool:
        try:
            return tube.drop()
        except xq.TubeBusy:
            return False

    with another_process(shared_db, owner) as dying:
        assert next(dying)
        with pytest.raises(xq.TubeBusy, match="release_all"):
            tube.drop()
        dying.kill()
        eventually(drops)
    assert queue.tube() == []
