"""The application's own transactions: what xq does within one is part of it."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SERVERS, live
from tests.factories import task, tasks
from tests.steps import another_process, bring, elsewhere, fail_for, fail_no_more, is_exact, isolate, refused, row

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttr": 20}


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=("runat", "priority", "attempts"))


def everything(Task):
    """All that a transaction could have changed."""
    return [each.__data__ for each in Task.select()], Task.stats(), Task.xq.taken()


CALLS = {
    "put": lambda Task, held: Task.put(task()),
    "put_many": lambda Task, held: Task.xq.put_many(tasks(300)),
    "take": lambda Task, held: Task.take(),
    "take_many": lambda Task, held: Task.xq.take_many(5),
    "ack": lambda Task, held: held[0].ack(update={"name": "new"}),
    "ack_many": lambda Task, held: Task.xq.ack_many(held),
    "release": lambda Task, held: held[0].release(),
    "delay": lambda Task, held: held[0].release(delay=5),
    "bury": lambda Task, held: held[0].bury(),
    "touch": lambda Task, held: held[0].touch(5),
    "dig": lambda Task, held: held[0].bury().dig(),
    "kill": lambda Task, held: held[0].kill(),
    "kill_many": lambda Task, held: Task.xq.kill_many(held),
    "snatch": lambda Task, held: Task.xq.snatch(held[0]),
    "switch": lambda Task, held: Task.xq.switch(Task.get(Task.status == "R"), "B"),
    "release_all": lambda Task, held: Task.xq.release_all(),
    "truncate": lambda Task, held: Task.xq.truncate(),
    "sweep": lambda Task, held: Task.xq.clock.tick(30) or Task.xq.sweep(),
}


def test_what_a_call_did_is_committed_and_rolled_back_with_the_transaction_and_the_savepoint(queue, subtests):
    db = queue._meta.database
    for name, call in CALLS.items():
        with subtests.test(name):
            queue.xq.truncate()
            queue.xq.put_many(tasks(4))
            held = queue.xq.take_many(2)
            before = everything(queue)
            with db.atomic() as transaction:
                call(queue, held)
                assert everything(queue) != before
                transaction.rollback()
            assert everything(queue) == before
            with db.atomic():
                kept = queue.put(task())
                before = everything(queue)
                with db.atomic() as savepoint:
                    call(queue, held)
                    savepoint.rollback()
                assert everything(queue) == before
            assert row(queue, kept) is not None
            with db.atomic():
                call(queue, held)
                done = everything(queue)
            assert everything(queue) == done
            assert is_exact(queue)


BIG = 2**70  # no integer of any database
ERRORS: dict[str, tuple[type[Exception], Any]] = {
    "no task": (xq.NotFound, lambda Task: Task.ack(999)),
    "wrong state": (xq.WrongState, lambda Task: Task.ack(101)),
    "feature off": (xq.FeatureOff, lambda Task: Task.put({}, ttl=5)),
    "duplicate": (xq.Duplicate, lambda Task: Task.put({"job": "a"})),
    "full": (xq.Full, lambda Task: Task.xq.put_many(tasks(9))),
    "a taken key": (pw.IntegrityError, lambda Task: Task.put({"id": 101})),
    "a taken key among many": (pw.IntegrityError, lambda Task: Task.xq.put_many([*tasks(3), {"id": 101}])),
    "what the database refuses": (pw.IntegrityError, lambda Task: Task.take().ack(update={"code": 7})),
    "put_many, too big": (xq.BadValue, lambda Task: Task.xq.put_many([{}, {"size": BIG}])),
    "replace, too big": (xq.BadValue, lambda Task: Task.put({"job": "a", "size": BIG}, on_conflict="replace")),
    "ack, too big": (xq.BadValue, lambda Task: Task.take().ack(update={"size": BIG})),
    "a key too big": (xq.BadValue, lambda Task: Task.ack(BIG)),
    "a move to where its value is": (xq.Duplicate, lambda Task: Task.dig(Task.get(Task.status == "B").id)),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_leaves_the_transaction_usable(make, error):
    raised, call = ERRORS[error]
    # Keys that no database gives by itself to the tasks without one.
    attributes: dict[str, pw.Field] = {"code": pw.IntegerField(unique=True, null=True)}
    roles = ("runat", "priority", "unique")
    Task = make({**FEATURES, "unique": True, "limit": 8}, roles=roles, attributes=attributes)
    bring(Task, "B", task(id=109, job="a"))
    with make.db.atomic():
        Task.put(task(id=101, job="a"))
        Task.put(task(id=102, code=7, priority=9))
        with pytest.raises(raised), nullcontext() if issubclass(raised, xq.Error) else refused(make.db):
            call(Task)
        Task.put(task(id=103, priority=9))
    assert [each.id for each in Task.select(Task.id).order_by(Task.id)] == [101, 102, 103, 109]
    assert is_exact(Task)


def test_work_of_the_application_in_one_transaction_may_go_on_after_an_error(make):
    Task = make({**FEATURES, "unique": True}, roles=("runat", "priority", "unique"))
    Task.put(task(job="a"))

    def work() -> None:
        held = Task.take()
        for call in (partial(Task.ack, held, update={"size": BIG}), partial(Task.put, task(job="a"))):
            with pytest.raises((xq.BadValue, xq.Duplicate)):
                call()
        Task.ack(held)
        Task.put(task(job="a"))

    Task.xq.transaction(work)
    assert [Task.xq.count(state) for state in "RTD"] == [1, 0, 1]
    assert is_exact(Task)


@pytest.mark.parametrize("call", ["put", "take", "ack", "bury"])
def test_an_error_outside_of_a_transaction_leaves_none_open_and_locks_nothing(make_shared, call):
    Task = make_shared({**FEATURES, "limit": 9}, roles=("runat",), attributes={"code": pw.IntegerField(unique=True)})
    put, taken = Task.put({"code": 1}), Task.put({"code": 2}) and Task.take()
    calls = {
        "put": lambda: Task.put({"code": 2}),
        "take": lambda: Task.take(),
        "ack": lambda: taken.ack(update={"code": 2}),
        "bury": lambda: Task.bury(taken.id, update={"code": 2}),
    }
    with make_shared.db.connection_context():
        if call == "take":
            fail_for(Task, "NEW.status = 'T'")
        with nullcontext() if call == "take" else pytest.raises(pw.DatabaseError):
            assert calls[call]() is None
        if call == "take":
            fail_no_more(Task)
        assert elsewhere(make_shared.db, lambda: Task.xq.kill_many([put.id, 2])) is not None
    assert Task.xq.count() == 0
    assert is_exact(Task)


def test_a_made_key_that_is_taken_leaves_the_transaction_usable(make):
    keys = iter([1, 1, 2])
    Task = make({"id": lambda task: next(keys)})
    with make.db.atomic():
        Task.put(task())
        assert Task.put(task()).id == 2
    assert Task.xq.count() == 2


def test_transactions_of_the_applications_own_hand_work_as_well_and_without_one_each_call_is_whole(queue):
    db = queue._meta.database
    queue.put(task())
    before = everything(queue)
    with db.manual_commit():
        db.begin()
        queue.put(task())
        queue.take().ack()
        db.rollback()
        assert everything(queue) == before
        db.begin()
        queue.xq.put_many(tasks(4))
        queue.xq.kill_many([each.id for each in queue.xq.take_many(2)])
        db.commit()
        one, two, three = queue.xq.take_many(3)
        one.ack()
        with pytest.raises(xq.WrongState):
            queue.xq.ack_many([two, one])
        queue.xq.release_many([two, three])
        assert queue.xq.take(timeout=1).ack() is not None
    assert queue.xq.count("R") == 1
    assert is_exact(queue)


# what another process does, what is called then in a transaction that had looked before, what it does
MEANWHILE: dict[str, tuple[list[str], Any, Any]] = {
    "kill of one taken": (["take"], lambda Task, held: Task.kill(1).id, 1),
    "kill of many, one taken": (["take"], lambda Task, held: len(Task.xq.kill_many([1, 2])), 2),
    "switch of one buried": (["take", "bury"], lambda Task, held: Task.xq.switch(1, "R").status, "R"),
    "ack of one killed": (["kill"], lambda Task, held: held.ack(), "there is no task 1"),
    "ack of one snatched": (["snatch"], lambda Task, held: held.ack(), "it is ready"),
    "ack of one taken again": (["snatch", "take"], lambda Task, held: held.ack(), "by another take of this one"),
}
BY_ANOTHER = {
    "take": lambda Task: Task.take(),
    "bury": lambda Task: Task.bury(1),
    "kill": lambda Task: Task.kill(1),
    "snatch": lambda Task: Task.xq.snatch(1),
}
SEEN_AFRESH = {
    "postgres": "READ COMMITTED",
    "mariadb": "REPEATABLE READ",
    "mysql": "REPEATABLE READ",
}  # PostgreSQL's other levels refuse


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("kind", SERVERS)
def test_what_another_process_did_since_a_transaction_looked_is_known_to_its_calls(kind, what, tmp_path):
    others, call, expected = MEANWHILE[what]
    with DATABASES[kind](tmp_path) as db:
        isolate(db, SEEN_AFRESH[kind])
        Task = live(db)(FEATURES, roles=("runat",))

        def another():
            yield "ready"
            yield [BY_ANOTHER[each](Task).id for each in others]

        with another_process(db, another) as other:
            next(other)
            Task.xq.put_many(tasks(2))
            held = Task.take() if what.startswith("ack") else None
            with db.atomic():
                assert Task.select().count() == 2
                next(other)
                if held is None:
                    assert call(Task, held) == expected
                else:
                    with pytest.raises(xq.Error, match=expected):
                        call(Task, held)
        assert is_exact(Task)


@pytest.mark.of_peewee("Peewee writes within a transaction of the queue's")
def test_what_a_transaction_writes_is_written_as_a_whole(queue):
    queue.xq.put_many(tasks(2))
    held = queue.xq.take_many(2)

    def work(fails: bool) -> str:
        queue.xq.ack(held[0])
        queue.insert(name="of the application's own", status="X").execute()
        if fails:
            raise ZeroDivisionError
        return "done"

    with pytest.raises(ZeroDivisionError):
        queue.xq.transaction(lambda: work(fails=True))
    assert queue.xq.count("T") == 2
    assert queue.select().count() == 2
    assert queue.xq.transaction(lambda: work(fails=False)) == "done"
    assert queue.xq.count("T") == 1
    assert queue.select().where(queue.status == "X").count() == 1
    assert is_exact(queue)
