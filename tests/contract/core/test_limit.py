"""The feature limit: a queue that is full says so."""

from __future__ import annotations

import threading

import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import PATIENCE, begun_anew, bring, in_threads, is_exact, isolate

FULL = {"limit": 1, "delayed": True, "buried": True}


@pytest.mark.parametrize(
    ("here", "features", "is_full"),
    [
        *((here, FULL, True) for here in "WRTB"),
        *((here, {"limit": 1, how: True}, False) for here, how in (("D", "keep"), ("Z", "zombie"))),
    ],
)
def test_tasks_count_until_they_are_finished(make, here, features, is_full):
    words = {letter: letter for letter in "TWBDZ" if letter not in "DZ" or here == letter}
    Task = make(features, statuses={**words, "R": "new"})
    there = bring(Task, here)
    if is_full:
        for options in ({}, {"delay": 5}):
            with pytest.raises(xq.Full, match="1") as full:
                Task.put(task(), **options)
            assert full.value.limit == 1
        assert Task.xq.put_many([]) == []
        Task.kill(there)
    assert Task.put(task()).status == "new"


def test_rows_of_other_writers_count_and_are_not_refused(make):
    model = make.model()
    make.db.create_tables([model])
    model.create()
    Task = make({"limit": 2}, model=model)
    for status in ("R", "R", "archived"):
        Task.create(status=status)
    with pytest.raises(xq.Full):
        Task.put(task())
    Task.delete().where(Task.status == "R").execute()
    assert len(Task.xq.put_many(tasks(2))) == 2, "rows that are not the queue's do not count"


def test_put_many_puts_all_or_none(make):
    Task = make({"limit": 500})
    Task.xq.put_many(tasks(100))
    with pytest.raises(xq.Full):
        Task.xq.put_many(tasks(401))
    assert Task.stats().transition == {"X-R": 100}
    assert len(Task.xq.put_many(tasks(400))) == 400
    with pytest.raises(xq.Full):
        Task.put(task())
    assert is_exact(Task)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_transactions_that_looked_before_they_put_keep_the_limit_together(make_live, level):
    isolate(make_live.db, level)
    Task = make_live({"limit": 4})
    Task.xq.put_many(tasks(2))
    looked = threading.Barrier(2)

    def look_and_put():
        """As an application does it: a transaction that the server undoes is begun anew."""
        first = iter([True])

        def transaction() -> int:
            with make_live.db.atomic():
                assert Task.select().count() >= 2
                if next(first, False):
                    looked.wait(PATIENCE)
                Task.put(task())
                Task.put(task())
            return 2

        try:
            return begun_anew(Task, transaction)
        except xq.Full:
            return 0

    assert sorted(in_threads(make_live.db, look_and_put, look_and_put)) == [0, 2]
    assert is_exact(Task)
    Task.delete().execute()
    with make_live.db.atomic():
        assert Task.select().count() == 0
        Task.xq.put_many(tasks(4))  # without another put meanwhile
        with pytest.raises(xq.Full):
            Task.put(task())
