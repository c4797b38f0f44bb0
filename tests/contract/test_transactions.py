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
    state,
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


def test_what_a_call_did_is_rolled_back_with_the_transaction(queue, subtests):
    for name, call in CALLS.items():
        with subtests.test(name):
            queue.xq.truncate()
            queue.xq.put_many(tasks(4))
            held = queue.xq.take_many(2)
            before = everything(queue)
            with queue._meta.database.atomic() as transaction:
                call(queue, held)
                assert everything(queue) != before
                transaction.rollback()
            assert everything(queue) == before
            assert is_exact(queue)


def test_what_a_call_did_is_rolled_back_with_the_savepoint(queue, subtests):
    db = queue._meta.database
    for name, call in CALLS.items():
        with subtests.test(name):
            queue.xq.truncate()
            queue.xq.put_many(tasks(3))
            held = queue.xq.take_many(2)
            with db.atomic():
                kept = queue.put(task())
                before = everything(queue)
                with db.atomic() as savepoint:
                    call(queue, held)
                    savepoint.rollback()
                assert everything(queue) == before
            assert row(queue, kept) is not None
            assert is_exact(queue)


def test_what_a_call_did_is_committed_with_the_transaction(queue, subtests):
    for name, call in CALLS.items():
        with subtests.test(name):
            queue.xq.truncate()
            queue.xq.put_many(tasks(4))
            held = queue.xq.take_many(2)
            with queue._meta.database.atomic():
                call(queue, held)
                done = everything(queue)
            assert everything(queue) == done
            assert is_exact(queue)


def test_rows_of_the_application_are_written_with_the_task(make):
    class Order(pw.Model):
        total = pw.IntegerField()

        class Meta:
            database = make.db

    make.db.create_tables([Order])
    Task = make(FEATURES)
    with make.db.atomic():
        Order.create(total=5)
        Task.put(task())
    assert (Order.select().count(), Task.xq.count()) == (1, 1)
    taken = Task.take()
    with make.db.atomic() as transaction:
        Order.create(total=6)
        taken.ack()
        transaction.rollback()
    assert (Order.select().count(), Task.xq.count("T")) == (1, 1)
    assert taken.ack().status == "D"


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


def test_a_session_first_used_in_a_transaction_that_was_rolled_back_is_known_later(queue):
    queue.put(task())
    with queue._meta.database.atomic() as transaction:
        queue.take()
        transaction.rollback()
    assert queue.xq.taken() == []
    queue.take()
    ((_, uuid, _),) = queue.xq.taken()
    assert [known for known, _ in queue.xq.sessions()] == [uuid]
    assert queue.xq.session(uuid).uuid == uuid


ERRORS = {
    "NotFound": (xq.NotFound, lambda Task: Task.ack(999)),
    "WrongState": (xq.WrongState, lambda Task: Task.ack(1)),
    "BadValue": (xq.BadValue, lambda Task: Task.put({"nonsense": 1})),
    "FeatureOff": (xq.FeatureOff, lambda Task: Task.put({}, ttl=5)),
    "all or none": (xq.NotFound, lambda Task: Task.xq.kill_many([1, 999])),
    "a taken key": (pw.IntegrityError, lambda Task: Task.put({"id": 1})),
    "a taken key among many": (pw.IntegrityError, lambda Task: Task.xq.put_many([*tasks(300), {"id": 1}])),
    "a bad task among many": (xq.BadValue, lambda Task: Task.xq.put_many([{}, {"nonsense": 1}])),
    "what the database refuses": (pw.IntegrityError, lambda Task: Task.take().ack(update={"code": 7})),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_leaves_the_transaction_usable(make, error):
    raised, call = ERRORS[error]
    Task = make(FEATURES, attributes={"code": pw.IntegerField(unique=True, null=True)})
    with make.db.atomic():
        Task.put(task(id=1))
        Task.put(task(id=2, code=7, priority=9))
        with pytest.raises(raised), nullcontext() if issubclass(raised, xq.Error) else refused(make.db):
            call(Task)
        Task.put(task(id=3, priority=9))
    assert [each.id for each in Task.select(Task.id).order_by(Task.id)] == [1, 2, 3]
    assert is_exact(Task)


def test_a_full_queue_or_a_duplicate_leaves_the_transaction_usable(make):
    Task = make({"limit": 2, "unique": True}, roles=("unique",))
    with make.db.atomic():
        Task.put({"job": "a"})
        with pytest.raises(xq.Duplicate):
            Task.put({"job": "a"})
        with pytest.raises(xq.Full):
            Task.xq.put_many([{"job": "b"}, {"job": "c"}])
        Task.put({"job": "b"})
    assert [each.job for each in Task.select()] == ["a", "b"]
    assert is_exact(Task)


WHOLE = 2**70  # no integer of any database
FAULTS = {
    "put": (xq.BadValue, lambda Task: Task.put({"size": WHOLE})),
    "put_many": (xq.BadValue, lambda Task: Task.xq.put_many([{}, {"size": WHOLE}])),
    "put in place of another": (xq.BadValue, lambda Task: Task.put({"job": "a", "size": WHOLE}, on_conflict="replace")),
    "ack": (xq.BadValue, lambda Task: Task.take().ack(update={"size": WHOLE})),
    "bury_many": (xq.BadValue, lambda Task: Task.xq.bury_many(Task.xq.take_many(2), update={"size": WHOLE})),
    "a key": (xq.BadValue, lambda Task: Task.ack(WHOLE)),
    "a number as a moment": (xq.BadType, lambda Task: Task.put({"moment": 5})),
    "a move to where its value is": (xq.Duplicate, lambda Task: Task.dig(Task.get(Task.status == "B").id)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_only_the_database_finds_fault_with_leaves_the_transaction_usable(make, fault):
    if fault == "a number as a moment" and not isinstance(make.db, pw.PostgresqlDatabase):
        return  # others take it for one, or for a value that is none
    raised, call = FAULTS[fault]
    features = {"unique": True, "buried": True, "keep": True}
    # A field that may be impossible to read has a savepoint in any case.
    moment = {"moment": pw.DateTimeField(null=True)} if "moment" in fault else {}
    Task = make(features, roles=("unique",), attributes=moment)
    bring(Task, "B", task(job="a"))
    with make.db.atomic():
        Task.xq.put_many([task(job="a", name="first"), task()])
        with pytest.raises(raised):
            call(Task)
        Task.put(task(name="last"))
    assert [each.name for each in Task.select().where(Task.name.in_(("first", "last")))] == ["first", "last"]
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


def test_a_transaction_and_a_savepoint_by_name_work_as_well(queue):
    db = queue._meta.database
    with db.transaction() as transaction:
        queue.put(task())
        with db.savepoint() as savepoint:
            queue.put(task())
            savepoint.rollback()
        queue.take()
        transaction.commit()
        queue.put(task())
        transaction.rollback()
    assert transitions(queue) == {"X-R": 1, "R-T": 1}
    assert is_exact(queue)


def test_a_function_in_atomic_works_as_well(queue):
    @queue._meta.database.atomic()
    def work():
        queue.put(task())
        queue.take().bury()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert queue.select().count() == 0


def test_time_passes_within_a_transaction(queue):
    with queue._meta.database.atomic():
        queue.put(task(), delay=5)
        queue.xq.clock.tick(5)
        assert queue.take().status == "T"


def test_a_session_left_in_a_transaction_gives_its_tasks_back_in_it(queue):
    there = queue.put(task())
    with queue._meta.database.atomic():
        with queue.xq.session():
            queue.take()
        assert state(queue, there) == "R"
    assert state(queue, there) == "R"
    assert is_exact(queue)


def test_others_see_a_task_after_the_commit_and_not_before(make_live):
    Task = make_live(FEATURES)

    def script():
        yield "ready"
        yield Task.select().count(), Task.xq.count(), Task.stats().transition
        yield Task.take().name

    with another_process(make_live.db, script) as other:
        assert next(other) == "ready"
        with make_live.db.atomic():
            Task.put(task(name="a"))
            assert next(other) == (0, 0, {})
        assert next(other) == "a"


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
    "kill of one put": (["put"], lambda Task, held: Task.kill(3).id, 3),
    "kill of many, one taken": (["take"], lambda Task, held: len(Task.xq.kill_many([1, 2])), 2),
    "switch of one buried": (["take", "bury"], lambda Task, held: Task.xq.switch(1, "R").status, "R"),
    "restart of one done": (["take", "ack"], lambda Task, held: Task.xq.restart(1).status, "R"),
    "dig of one buried": (["take", "bury"], lambda Task, held: Task.dig(1).status, "R"),
    "ack of one killed": (["kill"], lambda Task, held: held.ack(), "there is no task 1"),
    "ack of one snatched": (["snatch"], lambda Task, held: held.ack(), "it is ready"),
    "ack of one taken again": (["snatch", "take"], lambda Task, held: held.ack(), "by another take of this one"),
    "ack by its key of one taken again": (
        ["snatch", "take"],
        lambda Task, held: Task.ack(1),
        "by another take of this one",
    ),
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


def test_reconfigure_refuses_and_moves_within_one_transaction(queue):
    bring(queue, "D")
    bring(queue, "B")
    before = everything(queue)
    with pytest.raises(xq.ConfigurationError):
        queue.xq.reconfigure({"delayed": True}, move={"D": "X"})
    assert everything(queue) == before


@pytest.mark.parametrize("db_kind", SERVERS)
def test_a_take_passes_by_what_an_open_transaction_has_taken(db_kind, tmp_path):
    with DATABASES[db_kind](tmp_path) as db:
        if db_kind == "mariadb":  # where its default would lock the gaps beside the row
            isolate(db, "READ COMMITTED")
        Task = live(db)(FEATURES)
        Task.xq.put_many(tasks(4))
        with db.atomic():
            first = Task.take().id
            assert first == 1
            assert Work(db, lambda: Task.take().id).result() == 2
            assert Work(db, lambda: [found.id for found in Task.xq.take_many(2)]).result() == [3, 4]
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
    "delay": ("T", "W", lambda Task, key: Task.release(key, delay=99)),
    "bury": ("T", "B", lambda Task, key: Task.bury(key)),
    "ack": ("T", "D", lambda Task, key: Task.ack(key)),
}


@pytest.mark.parametrize("counted", [False, True], ids=["", "counted"])
@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
@pytest.mark.parametrize("event", MOVED)
def test_truncate_deletes_what_another_transaction_moves_meanwhile(make_live, event, observed, counted):
    Task = make_live({**FEATURES, "history": True, "events": counted}, roles=("runat", "owner"))
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
    assert Task.stats().by_event.get("kill") == (killed if counted else None)
    told = [(each.source, each.target, each.event) for each in Task.xq.history(held.id)]
    assert told[-2:] == [(source, target, event if event != "delay" else "release"), (target, "X", "kill")]
    if observed:
        mine = f"{source}-{target} {'release' if event == 'delay' else event}"
        assert sorted(heard) == sorted([(held.id, mine), (held.id, f"{target}-X kill"), (other.id, "B-X kill")])


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
