"""on_change: called after the commit, in the process that made the change, with what happened and nothing else."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import another_process, bring, in_threads, writing
from xq import BadType, BadValue, WrongState

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


# what is told


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
    assert heard == [
        "1 X-R put",
        "1 R-T take",
        "1 T-B bury",
        "1 B-W dig",
        "1 W-R restart",
        "1 R-T take",
        "1 T-R snatch",
        "1 R-T take",
        "1 T-R release",
        "1 R-T take",
        "1 T-D ack",
        "1 D-B switch",
        "1 B-R dig",
        "1 R-X kill",
    ]


def test_the_task_is_as_the_method_returns_it(Task):
    seen = []
    Task.xq.on_change(lambda *told: seen.append(told))
    Task.put({"name": "a"})
    Task.take().ack(update={"name": "b"})
    assert [(type(told), told.name, told.status) for told, *_ in seen] == [
        (Task, "a", "R"),
        (Task, "a", "T"),
        (Task, "b", "D"),
    ]


@pytest.mark.parametrize(("retval", "kind"), [("dict", dict), ("tuple", tuple)])
def test_the_task_has_the_shape_of_the_feature_retval(make, retval, kind):
    Task = make({"retval": retval})
    seen = []
    Task.xq.on_change(lambda *told: seen.append(told))
    Task.put(task())
    assert isinstance(seen[0][0], kind)


def test_of_a_batch_each_task_is_told(Task, heard):
    Task.xq.put_many(tasks(3))
    Task.xq.bury_many(Task.xq.take_many(2))
    Task.plow()
    assert heard == [
        *(f"{i} X-R put" for i in (1, 2, 3)),
        *(f"{i} R-T take" for i in (1, 2)),
        *(f"{i} T-B bury" for i in (1, 2)),
        *(f"{i} B-R dig" for i in (1, 2)),
    ]


def test_release_all_and_truncate_tell_each_task(Task, heard):
    Task.xq.put_many(tasks(3))
    Task.xq.take_many(2)
    heard.clear()
    assert Task.xq.release_all() == 2
    assert sorted(heard) == ["1 T-R release", "2 T-R release"]
    heard.clear()
    assert Task.xq.truncate() == 3
    assert sorted(heard) == [f"{i} R-X kill" for i in (1, 2, 3)]


def test_a_sweep_tells_what_it_moved(Task, heard):
    bring(Task, "T")
    Task.put(task(), delay=5)
    heard.clear()
    Task.xq.clock.tick(60)
    Task.xq.sweep()
    assert heard == ["1 T-R ttr", "2 W-R delay"]
    Task.xq.clock.tick(100)
    Task.xq.sweep()
    assert sorted(heard[2:]) == ["1 R-X ttl", "2 R-X ttl"]


def test_the_end_of_a_session_tells_what_it_gave_back(Task, heard):
    with Task.xq.session():
        bring(Task, "T")
    assert heard == ["1 X-R put", "1 R-T take", "1 T-R release"]


def test_what_is_put_over_another_is_told_and_what_is_skipped_is_not(make):
    Task = make({"unique": True, "delayed": True}, roles=("runat", "unique"))
    heard = Task.xq.on_change(Heard())
    Task.put({"job": "a"})
    Task.put({"job": "a"}, on_conflict="skip")
    Task.put({"job": "a"}, on_conflict="replace", delay=5)
    assert heard == ["1 X-R put", "1 R-W put"]


def test_an_event_of_a_feature_of_ones_own_is_told(make):
    retry = xq.Feature("retry", transitions=(xq.Transition("T", "retry", "R", fenced=True),))
    Task = make({"retry": retry})
    heard = Task.xq.on_change(Heard())
    Task.xq.call("retry", bring(Task, "T"))
    assert heard[-1] == "1 T-R retry"


def test_touch_is_not_told_and_neither_is_what_moved_nothing(Task, heard):
    held = bring(Task, "T")
    heard.clear()
    held.touch(5)
    assert Task.take() is None
    with pytest.raises(WrongState):
        Task.dig(held)
    with pytest.raises(pw.IntegrityError):
        Task.put({"id": held.id})
    assert heard == []


def test_what_others_write_is_not_told(Task, heard):
    Task.create()
    Task.update(status="B").execute()
    assert heard == []


def test_another_process_tells_its_own_changes_only(make_live):
    Task = make_live(FEATURES)
    heard = Task.xq.on_change(Heard())

    def other() -> Any:
        Task.put(task())
        yield list(heard)

    with another_process(make_live.db, other) as process:
        assert next(process) == ["1 X-R put"]
    assert heard == []
    Task.take()
    assert heard == ["1 R-T take"]


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


# after the commit


def test_within_a_transaction_it_is_told_after_the_commit(Task, heard):
    with Task._meta.database.atomic():
        found = Task.put(task())
        with Task._meta.database.atomic():
            Task.take().bury()
        assert heard == []
    assert heard == ["1 X-R put", "1 R-T take", "1 T-B bury"]
    Task.dig(found)
    assert len(heard) == 4


def test_the_callback_finds_the_change_committed(Task):
    seen = []
    Task.xq.on_change(lambda *told: seen.append((Task._meta.database.in_transaction(), Task.select().count())))
    with Task._meta.database.atomic():
        Task.xq.put_many(tasks(2))
    assert seen == [(False, 2)] * 2


def test_what_is_rolled_back_is_not_told(Task, heard):
    with Task._meta.database.atomic() as transaction:
        Task.put({"id": 1})
        transaction.rollback()
    with suppress(ZeroDivisionError), Task._meta.database.atomic():
        Task.put({"id": 2})
        raise ZeroDivisionError
    assert heard == []
    with Task._meta.database.atomic():
        Task.put({"id": 3})
    assert heard == ["3 X-R put"]


def test_what_is_rolled_back_to_a_savepoint_is_not_told(Task, heard):
    db = Task._meta.database
    with db.atomic():
        with db.atomic() as savepoint:  # the first change of this connection goes, and what notes it as well
            Task.put({"id": 1})
            savepoint.rollback()
        Task.put({"id": 2})
        with suppress(ZeroDivisionError), db.savepoint():
            Task.put({"id": 3})
            raise ZeroDivisionError
        with db.savepoint():
            Task.put({"id": 4})
        db.execute_sql("SAVEPOINT own")
        Task.put({"id": 5})
        db.execute_sql("ROLLBACK TO own")
        db.execute_sql("RELEASE SAVEPOINT own")
    assert heard == ["2 X-R put", "4 X-R put"]


def test_a_commit_within_the_block_tells_what_it_commits(Task, heard):
    with Task._meta.database.atomic() as transaction:
        Task.put(task())
        transaction.commit()
        assert heard == ["1 X-R put"]
        Task.put(task())
        transaction.rollback()
    assert heard == ["1 X-R put"]


def test_a_call_that_fails_half_way_tells_nothing(Task, heard):
    Task.xq.put_many(tasks(2))
    one, two = Task.xq.take_many(2)
    two.ack()
    heard.clear()
    with pytest.raises(WrongState):
        Task.xq.ack_many([one, two])
    assert heard == []


def test_where_the_application_commits_by_itself_the_next_call_tells(Task, heard):
    db = Task._meta.database
    with db.manual_commit():
        Task.put({"id": 1})
        assert heard == ["1 X-R put"]
        db.begin()
        Task.put({"id": 2})
        db.rollback()
        db.begin()
        Task.put({"id": 3})
        assert heard == ["1 X-R put"]
        db.commit()
        assert Task.xq.count() == 2
    assert heard == ["1 X-R put", "3 X-R put"]


def test_a_transaction_begun_by_plain_sql_is_one_like_others(Task, heard):
    db = Task._meta.database
    for end in ("ROLLBACK", "COMMIT"):
        db.execute_sql("BEGIN")
        Task.xq.put_many([{"id": 1}, {"id": 2}])
        Task.take()
        db.execute_sql(end)
    assert heard == []
    assert Task.xq.count() == 2
    assert heard == ["1 X-R put", "2 X-R put", "1 R-T take"]


# the callbacks


def test_an_exception_is_logged_and_harms_nothing(Task, heard, caplog):
    def fails(*told: object) -> None:
        raise ZeroDivisionError("in the callback")

    Task.xq.off_change(heard)
    Task.xq.on_change(fails)
    Task.xq.on_change(heard)
    with caplog.at_level(logging.ERROR):
        Task.xq.put_many(tasks(2))
        assert Task.take().release().status == "R"
    assert heard == ["1 X-R put", "2 X-R put", "1 R-T take", "1 T-R release"]
    # The threads of earlier tests, which log under another name, may tell that their databases were dropped.
    assert len([record for record in caplog.records if record.name == "xq.Task"]) == 4
    assert "in the callback" in caplog.text


def test_a_callback_may_use_the_queue(Task):
    heard = Task.xq.on_change(Heard())

    @Task.xq.on_change
    def follow(told: Any, event: str, source: str, target: str) -> None:
        if event == "put" and told.size == 0:
            Task.put({"size": 1})

    Task.put({"size": 0})
    assert heard == ["1 X-R put", "2 X-R put"]
    with Task._meta.database.atomic():
        Task.put({"size": 0})
    assert heard[2:] == ["3 X-R put", "4 X-R put"]


def test_what_a_callback_writes_itself_is_a_write(make):
    Task = make({**FEATURES, "history": True})
    Task.xq.on_change(lambda told, event, source, target: Task.create(status="D") if event == "take" else None)
    bring(Task, "T")
    assert [row.event for row in Task.xq.history()] == ["put", "take", "write"]


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


@pytest.mark.parametrize("callback", [None, 5, "print", []])
def test_a_callback_that_cannot_be_called_is_refused(Task, callback):
    with pytest.raises(BadType, match="on_change takes a function"):
        Task.xq.on_change(callback)
    Task.put(task())


def test_it_goes_on_after_reconfigure(Task, heard):
    Task.xq.reconfigure({"zombie": True})
    bring(Task, "Z")
    assert heard == ["1 X-R put", "1 R-T take", "1 T-Z ack"]


def test_a_task_that_cannot_be_read_stops_nothing(make, caplog):
    class Picky(pw.TextField):
        def python_value(self, value: Any) -> Any:
            if value == "bad":
                raise BadValue("bad")
            return value

    Task = make({**FEATURES, "ttl": 5}, model=make.model(name=Picky(null=True)))
    heard = Task.xq.on_change(Heard())
    Task.create(name="good")
    Task.insert({"name": "x", "runat": 1.0}).execute()
    Task.update(runat=1.0).execute()
    make.db.execute_sql("UPDATE task SET name = 'bad' WHERE id = 1")
    assert Task.xq.sweep() == 2
    assert heard == ["2 R-X ttl"]
    assert len([row for row in caplog.records if row.name == "xq.Task"]) == 1
