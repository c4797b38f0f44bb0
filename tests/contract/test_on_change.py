"""on_change: called after the commit, in the process that made the change, with what happened and nothing else."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

from tests.factories import task, tasks
from tests.steps import bring, in_threads, writing
from xq import WrongState

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "ttl": 100}


class Heard(list[str]):
    """A callback that writes down what it hears, as "1 R-T take"."""

    def __call__(self, told: Any, event: str, source: str, target: str) -> None:
        self.append(f"{told.id} {source}-{target} {event}")


@pytest.fixture
def Task(make):
    return make(FEATURES)


@pytest.fixture
def heard(Task):
    return Task.xq.on_change(Heard())


def test_every_move_is_told(Task, heard):
    found = bring(Task, "B")
    Task.dig(found, delay=5)
    Task.xq.restart(found)
    Task.xq.snatch(Task.take())
    Task.take().release()
    Task.take().ack()
    Task.xq.switch(found, "B")
    Task.kick(found)
    Task.kill(found)
    assert ", ".join(heard) == (
        "1 X-R put, 1 R-T take, 1 T-B bury, 1 B-W dig, 1 W-R restart, 1 R-T take, 1 T-R snatch, "
        "1 R-T take, 1 T-R release, 1 R-T take, 1 T-D ack, 1 D-B switch, 1 B-R dig, 1 R-X kill"
    )


def test_the_task_is_as_the_method_returns_it(Task):
    seen = []
    Task.xq.on_change(lambda told, *_: seen.append((type(told) is Task.xq.model, told.name, told.status)))
    Task.put({"name": "a"})
    Task.take().ack(update={"name": "b"})
    assert seen == [(True, "a", "R"), (True, "a", "T"), (True, "b", "D")]


def test_touch_is_not_told_and_neither_is_what_moved_nothing_or_what_others_write(Task, heard):
    held = bring(Task, "T")
    heard.clear()
    held.touch(5)
    assert Task.take() is None
    with pytest.raises(WrongState):
        Task.xq.dig(held)
    with pytest.raises(WrongState):
        Task.xq.ack_many([held, bring(Task, "R")])
    assert heard == ["2 X-R put"]
    with pytest.raises(pw.IntegrityError):
        Task.put({"id": held.id})
    Task.create()
    Task.update(status="B").execute()
    assert heard == ["2 X-R put"]


def test_threads_tell_what_they_do(make_live):
    Task = make_live(FEATURES)
    heard = Task.xq.on_change(Heard())

    def work(n: int) -> None:
        for _ in range(10):
            with writing(make_live.db) as transaction:
                Task.put(task())
                if n == 0:
                    transaction.rollback()

    in_threads(make_live.db, *(lambda n=n: work(n) for n in range(3)))
    assert sorted(heard) == sorted(f"{found.id} X-R put" for found in Task.select())
    assert len(heard) == 20


def test_within_a_transaction_it_is_told_after_the_commit(Task, heard):
    found: list[Any] = []
    Task.xq.on_change(lambda *told: found.append((Task._meta.database.in_transaction(), Task.select().count())))
    with Task._meta.database.atomic():
        put = Task.put(task())
        with Task._meta.database.atomic():
            Task.take().bury()
        assert heard == []
    assert heard == ["1 X-R put", "1 R-T take", "1 T-B bury"]
    assert found == [(False, 1)] * 3
    Task.dig(put)
    assert len(heard) == 4


def test_what_is_rolled_back_as_a_whole_is_not_told(Task, heard):
    db = Task._meta.database
    with db.atomic() as transaction:
        with db.atomic():
            Task.put({"id": 1})
        transaction.rollback()
    with suppress(ZeroDivisionError), db.atomic():
        Task.put({"id": 2})
        raise ZeroDivisionError
    assert heard == []


def test_in_a_transaction_that_the_program_commits_itself_it_is_told_at_the_next_call(Task, heard):
    db = Task._meta.database
    with db.manual_commit():
        db.begin()
        Task.put({"id": 1})
        db.commit()
    db.execute_sql("BEGIN")
    Task.put({"id": 2})
    db.execute_sql("COMMIT")
    assert heard == []
    Task.xq.count()
    assert heard == ["1 X-R put", "2 X-R put"]


def test_what_a_call_undoes_itself_is_not_told(Task, heard):
    held = [bring(Task, "T"), bring(Task, "T")]
    heard.clear()
    with suppress(WrongState):
        Task.xq.ack_many([*held, Task.put({"id": 8})])
    assert heard == ["8 X-R put"]
    Task.xq.ack_many(held)
    assert heard == ["8 X-R put", *(f"{each.id} T-D ack" for each in held)]


def test_an_exception_is_logged_and_harms_nothing(Task, caplog):
    def fails(*told: object) -> None:
        raise ZeroDivisionError("in the callback")

    Task.xq.on_change(fails)
    heard = Task.xq.on_change(Heard())
    with caplog.at_level(logging.ERROR):
        Task.xq.put_many(tasks(2))
        assert Task.take().release().status == "R"
    assert heard == ["1 X-R put", "2 X-R put", "1 R-T take", "1 T-R release"]
    assert "in the callback" in caplog.text


def test_a_callback_may_use_the_queue(Task, heard):
    @Task.xq.on_change
    def follow(told: Any, event: str, source: str, target: str) -> None:
        if event == "put" and told.size == 0:
            Task.put({"size": 1})

    Task.put({"size": 0})
    with Task._meta.database.atomic():
        Task.put({"size": 0})
    assert heard == [f"{i} X-R put" for i in (1, 2, 3, 4)]


def test_it_may_stand_as_a_decorator_and_be_taken_away(Task):
    seen = []

    @Task.xq.on_change
    def noted(told: Any, event: str, source: str, target: str) -> None:
        seen.append(event)

    Task.xq.on_change(noted)  # once is enough
    Task.put(task())
    Task.xq.off_change(noted)
    Task.xq.off_change(noted)
    Task.take()
    assert seen == ["put"]
