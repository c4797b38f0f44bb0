"""The feature limit: a queue that is full says so."""

from __future__ import annotations

import threading

import pytest

import xq
from tests.conftest import DATABASES, SERVERS, live
from tests.factories import task, tasks
from tests.steps import PATIENCE, begun_anew, bring, in_threads, is_exact, isolate, transitions


def test_put_into_a_full_queue_is_refused(make):
    Task = make({"limit": 2})
    Task.xq.put_many(tasks(2))
    with pytest.raises(xq.Full, match="2") as full:
        Task.put(task())
    assert full.value.limit == 2
    assert Task.stats().transition == {"X-R": 2}
    assert Task.select().count() == 2


FULL = {"limit": 1, "delayed": True, "buried": True}


@pytest.mark.parametrize(
    ("here", "features", "is_full"),
    [
        *((here, FULL, True) for here in "WRTB"),
        ("T", {"limit": 1}, True),
        *((here, {"limit": 1, how: True}, False) for here, how in (("D", "keep"), ("Z", "zombie"))),
    ],
)
def test_tasks_count_until_they_are_finished(make, here, features, is_full):
    Task = make(features, statuses={"R": "new", "T": "busy"})
    there = bring(Task, here)
    if is_full:
        for options in ({}, {"delay": 5}) if "delayed" in features else ({},):
            with pytest.raises(xq.Full):
                Task.put(task(), **options)
        assert Task.xq.put_many([]) == []
        Task.kill(there)
    assert Task.put(task()).status == "new"


def test_rows_of_other_writers_count_and_are_not_refused(make):
    Task = make({"limit": 2})
    for status in ("R", "R", "R", "archived"):
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


def test_tasks_of_tubes_that_are_counted_count_once(make):
    Task = make({"limit": 2}, roles=("tube",), tube_stats=["a"])
    Task.xq.put_many(tasks(2, tube="a"))
    with pytest.raises(xq.Full):
        Task.put(task(tube="a"))
    Task.kill(Task.take())
    assert Task.put(task(tube="a")).status == "R"


def test_rows_that_were_there_before_count(make):
    model = make.model()
    make.db.create_tables([model])
    for _ in range(3):
        model.create()
    Task = make({"limit": 3}, model=model)
    with pytest.raises(xq.Full):
        Task.put(task())
    Task.take().ack()
    assert Task.put(task()).status == "R"


def test_what_is_there_already_can_be_returned_to_a_full_queue(make):
    Task = make({"limit": 2, "buried": True, "keep": True})
    done = bring(Task, "D")
    there = bring(Task, "B")
    Task.put(task())
    assert there.dig().status == "R"
    assert Task.xq.restart(done).status == "R"
    assert Task.xq.count("R") == 3


def test_a_full_queue_still_skips_and_replaces(make):
    Task = make({"limit": 1, "unique": True}, roles=("unique",))
    there = Task.put({"job": "a"})
    assert Task.put({"job": "a"}, on_conflict="skip").id == there.id
    assert Task.put({"job": "a", "name": "b"}, on_conflict="replace").name == "b"
    with pytest.raises(xq.Duplicate):
        Task.put({"job": "a"})
    with pytest.raises(xq.Full):
        Task.put({"job": "b"})


def attempts(Task, n):
    """A work that puts `n` tasks, and returns how many it could."""

    def work():
        put = 0
        for _ in range(n):
            try:
                Task.put(task())
                put += 1
            except xq.Full:
                pass
        return put

    return work


def test_threads_together_put_no_more_than_the_limit(make_live):
    Task = make_live({"limit": 25})
    assert sum(in_threads(make_live.db, *[attempts(Task, 10)] * 4)) == 25
    assert transitions(Task) == {"X-R": 25}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("kind", SERVERS)
def test_transactions_that_looked_before_they_put_keep_the_limit_together(kind, level, tmp_path):
    with DATABASES[kind](tmp_path) as db:
        isolate(db, level)
        Task = live(db)({"limit": 4})
        Task.xq.put_many(tasks(2))
        looked = threading.Barrier(2)

        def look_and_put():
            """As an application does it: a transaction that the server undoes is begun anew."""
            first = iter([True])

            def transaction() -> int:
                with db.atomic():
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

        assert sorted(in_threads(db, look_and_put, look_and_put)) == [0, 2]
        assert Task.select().count() == 4
        assert is_exact(Task)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_transaction_may_put_until_the_queue_is_full_while_nobody_else_puts(kind, tmp_path):
    with DATABASES[kind](tmp_path) as db:
        isolate(db, "REPEATABLE READ")
        Task = live(db)({"limit": 4})
        with db.atomic():
            assert Task.select().count() == 0
            Task.put(task())
            Task.xq.put_many(tasks(2))
            Task.put(task())
            with pytest.raises(xq.Full):
                Task.put(task())
        assert Task.xq.count() == 4
