"""The application's own transactions: what xq does within one is part of it."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SERVERS, live
from tests.factories import task, tasks
from tests.steps import (
    Work,
    another_process,
    bring,
    in_threads,
    is_exact,
    isolate,
    refused,
    row,
    transitions,
    until_one_waits_for_a_lock,
    writing,
)

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttr": 20}


@pytest.fixture(params=[(), ("owner",)], ids=["side table", "role"])
def queue(make, request):
    return make(FEATURES, roles=("runat", "priority", "attempts", *request.param))


def everything(Task):
    """All that a transaction could have changed."""
    return (
        [each.__data__ for each in Task.select()],
        Task.stats(),
        Task.xq.taken(),
    )


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


def test_a_task_taken_in_a_transaction_that_was_rolled_back_is_nobodys(queue):
    queue.put(task())
    with queue._meta.database.atomic() as transaction:
        stale = queue.take()
        transaction.rollback()
    with pytest.raises(xq.WrongState):
        stale.ack()
    fresh = queue.take()
    with pytest.raises(xq.NotOwner):
        stale.ack()
    assert fresh.ack().status == "D"


BIG = 2**70  # no integer of any database
ERRORS: dict[str, tuple[type[Exception], Any]] = {
    "no task": (xq.NotFound, lambda Task: Task.ack(999)),
    "wrong state": (xq.WrongState, lambda Task: Task.ack(101)),
    "bad value": (xq.BadValue, lambda Task: Task.put({"nonsense": 1})),
    "feature off": (xq.FeatureOff, lambda Task: Task.put({}, ttl=5)),
    "duplicate": (xq.Duplicate, lambda Task: Task.put({"job": "a"})),
    "full": (xq.Full, lambda Task: Task.xq.put_many(tasks(9))),
    "all or none": (xq.NotFound, lambda Task: Task.xq.kill_many([101, 999])),
    "a taken key": (pw.IntegrityError, lambda Task: Task.put({"id": 101})),
    "a taken key among many": (pw.IntegrityError, lambda Task: Task.xq.put_many([*tasks(3), {"id": 101}])),
    "a bad task among many": (xq.BadValue, lambda Task: Task.xq.put_many([{}, {"nonsense": 1}])),
    "what the database refuses": (pw.IntegrityError, lambda Task: Task.take().ack(update={"code": 7})),
    "put, too big": (xq.BadValue, lambda Task: Task.put({"size": BIG})),
    "put_many, too big": (xq.BadValue, lambda Task: Task.xq.put_many([{}, {"size": BIG}])),
    "replace, too big": (xq.BadValue, lambda Task: Task.put({"job": "a", "size": BIG}, on_conflict="replace")),
    "ack, too big": (xq.BadValue, lambda Task: Task.take().ack(update={"size": BIG})),
    "bury_many, too big": (xq.BadValue, lambda Task: Task.xq.bury_many(Task.xq.take_many(2), update={"size": BIG})),
    "a key too big": (xq.BadValue, lambda Task: Task.ack(BIG)),
    "a move to where its value is": (xq.Duplicate, lambda Task: Task.dig(Task.get(Task.status == "B").id)),
    "a number as a moment": (xq.BadType, lambda Task: Task.put({"moment": 5})),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_leaves_the_transaction_usable(make, error):
    if error == "a number as a moment" and not isinstance(make.db, pw.PostgresqlDatabase):
        return  # others take it for one, or for a value that is none
    raised, call = ERRORS[error]
    # Keys that no database gives by itself to the tasks without one.
    attributes: dict[str, pw.Field] = {"code": pw.IntegerField(unique=True, null=True)}
    if "moment" in error:  # a field that may be impossible to read has a savepoint in any case
        attributes["moment"] = pw.DateTimeField(null=True)
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


@pytest.mark.parametrize("db", ["sqlite", "memory", "postgres"], indirect=True)  # MariaDB's is closed for it
def test_a_call_that_is_interrupted_as_it_releases_its_savepoint_has_changed_nothing(queue, monkeypatch):
    def interrupted(self: Any, begin: bool = True) -> None:
        raise KeyboardInterrupt

    queue.xq.put_many(tasks(2))
    with queue._meta.database.atomic():
        taken = queue.xq.take_many(2)
        before = everything(queue)
        with monkeypatch.context() as patch:
            patch.setattr(pw._savepoint, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.xq.ack_many(taken)
        assert everything(queue) == before
        taken[0].ack()
    assert queue.stats().counts == {"R": 0, "W": 0, "T": 1, "B": 0, "D": 1}
    assert is_exact(queue)


def test_a_made_key_that_is_taken_leaves_the_transaction_usable(make):
    keys = iter([1, 1, 2])
    Task = make({"id": lambda task: next(keys)})
    with make.db.atomic():
        Task.put(task())
        assert Task.put(task()).id == 2
    assert Task.xq.count() == 2


def test_transactions_of_the_applications_own_hand_work_as_well(queue):
    db = queue._meta.database
    queue.put(task())
    before = everything(queue)
    with db.manual_commit():
        db.begin()
        queue.put(task())
        queue.take().ack()
        db.rollback()
    assert everything(queue) == before
    with db.manual_commit():
        db.begin()
        queue.put(task())
        queue.xq.put_many(tasks(3))
        queue.xq.kill_many([each.id for each in queue.xq.take_many(2)])
        db.commit()
    assert queue.xq.count("R") == 3
    assert is_exact(queue)


def test_where_the_application_has_begun_nothing_by_hand_each_call_is_whole(queue):
    with queue._meta.database.manual_commit():
        queue.xq.put_many(tasks(4))
        one = queue.take()
        two, three = queue.xq.take_many(2)
        one.ack()
        with pytest.raises(xq.WrongState):
            queue.xq.ack_many([two, one])
        queue.xq.release_many([two, three])
        assert queue.xq.take(timeout=1).ack() is not None
    assert queue.xq.count("R") == 2
    assert is_exact(queue)


def test_sessions_may_come_and_go_within_a_transaction(make_shared):
    Task = make_shared(FEATURES)
    Task.xq.put_many(tasks(3))
    with make_shared.db.atomic():
        with pytest.raises(xq.UnknownSession):
            Task.xq.session(uuid.UUID(int=0))
        with Task.xq.session():
            assert Task.take()
        mine = Task.take()
        with Task.xq.session():
            assert Task.take()
    assert Task.xq.count("T") == 1
    assert mine.ack().status == "D"
    assert is_exact(Task)


def test_a_session_may_be_joined_within_a_transaction_and_take_there(make_live):
    Task = make_live(FEATURES)
    Task.xq.put_many(tasks(2))

    def joins():
        uuid = yield
        with writing(make_live.db), Task.xq.session(uuid):
            yield Task.take().id
        yield None

    with another_process(make_live.db, joins) as other, Task.xq.session() as session:
        next(other)
        assert Task.take().id == 1
        assert other.send(session.uuid) == 2


@pytest.mark.parametrize("kind", SERVERS)
def test_a_first_take_in_an_open_transaction_keeps_nobody_waiting(kind, tmp_path):
    with DATABASES[kind](tmp_path) as db:
        isolate(db, "READ COMMITTED")  # by default, MariaDB locks more than the row
        Task = live(db)(FEATURES)
        Task.xq.put_many(tasks(3))

        def take_and_put():
            return Task.take().id, Task.put(task()).id

        def script():
            yield "ready"
            yield take_and_put()

        with another_process(db, script) as other:
            next(other)
            with db.atomic():
                mine = Task.take()
                assert Work(db, take_and_put).result() == (2, 4)
                assert next(other) == (3, 5)
        assert mine.ack().status == "D"
        assert is_exact(Task)


MEANWHILE: dict[
    str, tuple[list[str], Any, Any]
] = {  # what another process does, what is called then in a transaction that had looked before, what it does
    "kill of one taken": (["take"], lambda Task, held: Task.kill(1).id, 1),
    "kill of many, one taken": (["take"], lambda Task, held: len(Task.xq.kill_many([1, 2])), 2),
    "switch of one buried": (["take", "bury"], lambda Task, held: Task.xq.switch(1, "R").status, "R"),
    "ack of one killed": (["kill"], lambda Task, held: held.ack(), "there is no task 1"),
    "ack of one snatched": (["snatch"], lambda Task, held: held.ack(), "it is ready"),
    "ack of one taken again": (["snatch", "take"], lambda Task, held: held.ack(), "by another take of this one"),
}
BY_ANOTHER = {
    "put": lambda Task: Task.put(task()),
    "take": lambda Task: Task.take(),
    "ack": lambda Task: Task.ack(1),
    "bury": lambda Task: Task.bury(1),
    "kill": lambda Task: Task.kill(1),
    "snatch": lambda Task: Task.xq.snatch(1),
}
SEEN_AFRESH = {"postgres": "READ COMMITTED", "mariadb": "REPEATABLE READ"}  # PostgreSQL's other levels refuse


@pytest.mark.parametrize("roles", [(), ("owner",)], ids=["side table", "role"])
@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("kind", SERVERS)
def test_what_another_process_did_since_a_transaction_looked_is_known_to_its_calls(kind, what, roles, tmp_path):
    others, call, expected = MEANWHILE[what]
    with DATABASES[kind](tmp_path) as db:
        isolate(db, SEEN_AFRESH[kind])
        Task = live(db)(FEATURES, roles=("runat", *roles))

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


@pytest.mark.parametrize("db_kind", SERVERS)
def test_truncate_counts_what_it_deletes_where_others_put_meanwhile(db_kind, tmp_path):
    with DATABASES[db_kind](tmp_path) as db:
        isolate(db, "READ COMMITTED")  # where a second look may find what was put since the first
        Task = live(db)({"events": True})
        Task.xq.put_many(tasks(5))
        deleted: list[int] = []

        def put() -> None:
            for _ in range(20):
                Task.put(task())

        def truncate() -> None:
            deleted.append(sum(Task.xq.truncate() for _ in range(10)))

        in_threads(db, put, put, truncate)
        assert Task.stats().by_event["kill"] == {"R-X": deleted[0]}
        assert Task.select().count() == 45 - deleted[0]
        assert is_exact(Task)


MOVED = {
    "take": ("R", "T", lambda Task, key: Task.take()),
    "release": ("T", "R", lambda Task, key: Task.release(key)),
    "bury": ("T", "B", lambda Task, key: Task.bury(key)),
}


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed and counted"])
@pytest.mark.parametrize("event", MOVED)
def test_truncate_deletes_what_another_transaction_moves_meanwhile(make_live, event, observed):
    Task = make_live({**FEATURES, "history": True, "events": observed}, roles=("runat", "owner"))
    source, target, move = MOVED[event]
    heard: list[tuple[int, str]] = []
    if observed:
        Task.xq.on_change(lambda task, event, source, target: heard.append((task.id, f"{source}-{target} {event}")))
    other, held = bring(Task, "B"), bring(Task, source)
    Task.xq.reset()
    heard.clear()
    with writing(make_live.db):
        move(Task, held)
        truncated = Work(make_live.db, Task.xq.truncate)
        until_one_waits_for_a_lock(make_live.db)
    assert truncated.result() == 2
    assert Task.select().count() == 0
    assert is_exact(Task)
    moved = transitions(Task)
    assert [moved[f"{source}-{target}"], moved[f"{target}-X"]] == [1, 2 if target == "B" else 1]
    killed = {"B-X": 2} if target == "B" else {"B-X": 1, f"{target}-X": 1}
    assert Task.stats().by_event.get("kill") == (killed if observed else None)
    told = [(each.source, each.target, each.event) for each in Task.xq.history(held.id)]
    assert told[-2:] == [(source, target, event), (target, "X", "kill")]
    if observed:
        assert sorted(heard) == sorted(
            [(held.id, f"{source}-{target} {event}"), (held.id, f"{target}-X kill"), (other.id, "B-X kill")]
        )


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
