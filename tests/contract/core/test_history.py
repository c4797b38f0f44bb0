"""The feature history: each transition a row that tells its event, written with the change, pruned by the sweep."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SERVERS, live
from tests.factories import task, tasks
from tests.steps import (
    STUCK,
    Bytes,
    another_process,
    another_program,
    begun_anew,
    bring,
    in_threads,
    is_exact,
    make_impatient,
    run_script,
)
from tests.support.history import ALL, last, transitions
from xq import BadType, FeatureOff
from xq.testing import Clock

FULL = ("runat", "deadline", "priority", "tube", "owner", "attempts")


def of_its_kind(db: pw.Database, there: Mapping[type[pw.Database], Any], elsewhere: Any) -> Any:
    """What holds on this kind of database, where it differs from the others."""
    return next((found for kind, found in there.items() if isinstance(db, kind)), elsewhere)


# the events


RETRY = xq.Feature("retry", transitions=(xq.Transition("T", "retry", "R", fenced=True),))
HELD = ("X-R put", "R-T take")


def in_a_session(Task: Any) -> None:
    with Task.xq.session():
        bring(Task, "T")


# what is told of it, the features, what is done
STORIES: list[tuple[tuple[str, ...], dict[str, Any], Any]] = [
    ((*HELD, "T-X ack"), {"history": True}, lambda Task: Task.xq.ack(bring(Task, "T"))),
    ((*HELD, "T-D ack"), ALL, lambda Task: bring(Task, "D")),
    ((*HELD, "T-Z ack"), {"zombie": True, "history": True}, lambda Task: bring(Task, "Z")),
    (
        (*HELD, *("T-B bury", "B-R dig", "R-T take") * 2, "T-B bury", "B-R dig"),
        ALL,
        lambda Task: (
            Task.kick(bring(Task, "B")),
            Task.take().bury(),
            Task.kick(n=1),
            Task.take().bury(),
            Task.plow(),
        ),
    ),
    (
        (*["X-R put"] * 3, *["R-T take"] * 3, *["T-D ack"] * 3),
        ALL,
        lambda Task: (Task.xq.put_many(tasks(3)), Task.xq.ack_many(Task.xq.take_many(3))),
    ),
    ((*HELD, "T-R release"), ALL, lambda Task: (bring(Task, "T"), Task.xq.release_all())),
    ((*HELD, "T-R release"), ALL, in_a_session),
    ((*HELD, "T-X kill"), ALL, lambda Task: (bring(Task, "T"), Task.xq.truncate())),
    (
        (*HELD, "T-R retry", "R-T take", "T-W retry"),
        {"retry": RETRY, "delayed": True, "history": True},
        lambda Task: (Task.xq.call("retry", bring(Task, "T")), Task.xq.call("retry", Task.take(), delay=5)),
    ),
    # what is put over another task
    (
        ("X-R put", "R-R put", "R-W put"),
        {"unique": True, "delayed": True, "history": True},
        lambda Task: (
            Task.put({"job": "a"}),
            Task.put({"job": "a"}, on_conflict="skip"),
            Task.put({"job": "a"}, on_conflict="replace"),
            Task.put({"job": "a"}, on_conflict="replace", delay=5),
        ),
    ),
    # a state that is entered anew has a row, touch has none
    (
        ("X-W put", "W-W restart", "W-B switch", "B-B switch", "B-R dig", "R-T take"),
        ALL,
        lambda Task: (
            Task.xq.restart(Task.put(task(), delay=5), delay=9),
            Task.xq.switch(Task.xq.switch(1, "B"), "B"),
            Task.touch(Task.dig(1), 5),
            Task.touch(Task.take(), 5),
        ),
    ),
    # what the application writes itself
    (
        ("X-R write", "R-T take", "T-B write", "B-X write", "X-R write", "R-X write"),
        ALL,
        lambda Task: (
            (Task.create(), Task.take()),
            *[Task.update(status=status).execute() for status in ("B", "B", "elsewhere", "R")],
            Task.delete().execute(),
        ),
    ),
    # rows that are not the queue's, and other columns
    (
        (),
        ALL,
        lambda Task: (
            Task.create(status="draft"),
            Task.update(status="other").execute(),
            Task.update(name="x").execute(),
            Task.delete().execute(),
        ),
    ),
    (("X-R put",), ALL, lambda Task: (Task.put(task()), Task.update(name="x", job="y", runat=None).execute())),
    # a key that changes ends one task and begins another
    (
        ("X-R put", "R-X write", "X-R write"),
        ALL,
        lambda Task: (Task.put(task()), Task.update(id=7).execute()),
    ),
    # what take finds due
    (
        (*HELD, "T-R ttr", "R-T take"),
        ALL,
        lambda Task: (bring(Task, "T"), Task.xq.clock.tick(60), Task.take()),
    ),
    (
        (*HELD, "T-R lifetime", "R-X lifetime"),
        {"lifetime": 10, "history": True},
        lambda Task: (bring(Task, "T"), Task.xq.clock.tick(11), Task.xq.sweep()),
    ),
    # time
    *(
        ((*told, last), {**features, "history": True}, lambda Task, told=told: due(Task, told))
        for told, last, features in (
            (("X-R put",), "R-X ttl", {"ttl": 10}),
            (HELD, "T-R ttr", {"ttr": 10}),
            (("X-W put",), "W-R delay", {"delayed": True}),
            ((*HELD, "T-Z ack"), "Z-X zombie", {"zombie": 10}),
            (("X-R put",), "R-X lifetime", {"lifetime": 10}),
            ((*HELD, "T-B bury"), "B-X lifetime", {"lifetime": 10, "buried": True}),
        )
    ),
]


def due(Task: Any, told: tuple[str, ...]) -> None:
    """Bring a task to the end of what is told, and let time pass."""
    bring(Task, told[-1][2])
    Task.xq.clock.tick(11)
    assert Task.xq.sweep() == 1


def test_what_is_done_is_told_by_the_name_of_its_event(make, subtests):
    for told, features, done in STORIES:
        with subtests.test(" ".join(told)):
            Task = make(features, roles=("runat", "deadline", "priority", "unique"))
            done(Task)
            rows = Task.xq.history()
            assert tuple(f"{row.source}-{row.target} {row.event}" for row in rows) == told
            Task.drop_table()


@pytest.mark.parametrize("options", [{}, {"delay": 5}])
def test_what_a_call_does_is_told_by_its_name(make, options):
    Task = make(ALL)
    target = "W" if options else "R"
    found = Task.put(task(), **options)
    Task.xq.switch(found, "R")
    found = Task.xq.switch(Task.take().release(**options), "B")
    Task.xq.switch(Task.dig(found, **options), "R")
    Task.xq.switch(Task.xq.snatch(Task.take(), **options), "D")
    Task.kill(Task.xq.restart(found, **options))
    assert transitions(Task) == [
        *(f"X-{target} put", f"{target}-R switch", "R-T take", f"T-{target} release", f"{target}-B switch"),
        *(f"B-{target} dig", f"{target}-R switch", "R-T take", f"T-{target} snatch", f"{target}-D switch"),
        *(f"D-{target} restart", f"{target}-X kill"),
    ]


def test_what_another_program_writes_is_a_write_and_all_is_told_by_the_time_of_the_machine(make_live):
    Task = make_live(ALL)
    before = time.time_ns() // 1000
    Task.put(task())

    def plain() -> Any:
        for sql in ("UPDATE task SET status = 'T'", "UPDATE task SET status = 'T'", "DELETE FROM task"):
            another_program(Task._meta.database, sql)
        yield

    with another_process(Task._meta.database, plain) as other:
        next(other)
    assert transitions(Task) == ["X-R put", "R-T write", "T-X write"]
    for row in Task.xq.history():
        assert before - 60_000_000 < row.at_us < time.time_ns() // 1000 + 60_000_000
        assert row.owner is None


def test_a_refused_call_leaves_no_word_behind(make):
    Task = make(ALL)
    found = bring(Task, "T")
    with pytest.raises(pw.IntegrityError):
        Task.put({"id": found.id})
    Task.create()
    assert last(Task) == "X-R write"


# the same transaction


def test_the_history_is_rolled_back_with_the_change(make):
    Task = make(ALL)
    if make.db.database != ":memory:":
        make.db.close()
    with Task._meta.database.atomic() as transaction:  # and with the first calls on a connection
        Task.put(task())
        Task.create()
        assert transitions(Task) == ["X-R put", "X-R write"]
        transaction.rollback()
    assert transitions(Task) == []
    with Task._meta.database.atomic():
        Task.put(task())
        with Task._meta.database.atomic() as savepoint:
            Task.take()
            savepoint.rollback()
    assert transitions(Task) == ["X-R put"]


def test_threads_tell_each_their_own_events(make_live):
    Task = make_live(ALL)
    Task.xq.put_many(tasks(40))

    def work() -> None:
        while found := Task.take():
            begun_anew(Task, lambda: Task.create(status="D"))
            found.bury()

    in_threads(make_live.db, work, work, work)
    rows = transitions(Task)
    assert {row: rows.count(row) for row in rows} == {
        "X-R put": 40,
        "R-T take": 40,
        "X-D write": 40,
        "T-B bury": 40,
    }


# what a row tells


def test_a_row_tells_task_tube_owner_and_attempt(make):
    Task = make(ALL, roles=FULL)
    Task.put(task(tube="news"))
    token = Task.take().owner
    Task.xq.release_all()
    Task.create(status="T", owner="somebody")
    rows = [(row.key, row.tube, row.owner, row.attempt) for row in Task.xq.history()]
    assert rows[:3] == [("1", "news", None, 0), ("1", "news", token, 1), ("1", "news", token, 1)]
    assert rows[3] == ("2", None, "somebody", 0)


def test_the_owner_is_told_without_a_role_for_it(make):
    Task = make(ALL)
    held = bring(Task, "T")
    (_, session, _) = Task.xq.taken()[0]
    held.ack()
    Task.xq.restart(held)
    Task.kill(Task.take())
    owners = [row.owner and row.owner[:36] for row in Task.xq.history()]
    assert owners == [None, session, session, None, session, session]


def test_a_key_of_several_parts_is_a_json_array(make):
    model = make.model(host=pw.CharField(), part=Bytes(), meta={"primary_key": pw.CompositeKey("host", "part")})
    Task = make(ALL, model=model)
    Task.put({"host": 'a"b', "part": b"\xff"})
    Task.put({"host": 'a"b', "part": b"\0"})
    assert [json.loads(row.key) for row in Task.xq.history(('a"b', b"\xff"))] == [['a"b', "FF"]]
    assert transitions(Task, Task.take()) == ["X-R put", "R-T take"]


WITH_SCALE = {pw.PostgresqlDatabase: "1.50000", pw.MySQLDatabase: "1.50000"}  # that of the column
SECONDS = {pw.MySQLDatabase: "2030-01-02 03:04:05"}  # all that a DATETIME of it holds


@pytest.mark.parametrize(
    ("field", "key", "stored", "there"),
    [
        (pw.UUIDField, uuid.UUID(int=5), str(uuid.UUID(int=5)), {}),
        (pw.CharField, "größe\n'", "größe\n'", {}),
        (pw.BigIntegerField, 2**62, str(2**62), {}),
        (Bytes, b"\0\xff", "00FF", {}),
        (pw.DoubleField, 0.5, "0.5", {}),
        (pw.DecimalField, Decimal("1.50"), "1.5", WITH_SCALE),
        (pw.DateTimeField, datetime(2030, 1, 2, 3, 4, 5, 6), "2030-01-02 03:04:05.000006", SECONDS),
    ],
)
def test_a_key_is_told_as_the_application_writes_it(make, field, key, stored, there):
    Task = make({"id": "required", "history": True}, key=field(primary_key=True))
    key = Task.put({"id": key}).id
    assert [row.key for row in Task.xq.history(key)] == [of_its_kind(make.db, there, stored)]


def test_the_letters_are_told_whatever_is_stored(make):
    model = make.model(status=pw.IntegerField(default=10))
    Task = make({"keep": True, "history": True}, model=model, statuses={"R": 10, "T": 20, "D": 30})
    bring(Task, "D")
    Task.update(status=99).execute()
    assert transitions(Task) == ["X-R put", "R-T take", "T-D ack", "D-X write"]


# time


def test_the_time_of_a_row_is_that_of_the_tests_clock(make):
    Task = make(ALL)
    Task.xq.clock.now = 1_700_000_000.25
    Task.put(task())
    Task.xq.clock.tick(0.000001)
    Task.take()
    assert [row.at_us for row in Task.xq.history()] == [1_700_000_000_250_000, 1_700_000_000_250_001]


def test_dur_us_is_the_time_spent_in_the_state_left(make):
    Task = make(ALL)
    clock = Task.xq.clock
    first = Task.put(task())
    clock.tick(1)
    Task.put(task())
    clock.tick(2)
    Task.take()
    clock.tick(4)
    Task.ack(first)
    assert [row.dur_us for row in Task.xq.history()] == [None, None, 3_000_000, 4_000_000]
    assert [row.dur_us for row in Task.xq.history(first)] == [None, 3_000_000, 4_000_000]
    assert [row.dur_us for row in Task.xq.history(since=clock.now)] == [4_000_000]


def test_history_is_asked_from_one_moment_until_another(make):
    Task = make(ALL)
    clock = Task.xq.clock
    start = clock.now
    for _ in range(4):
        Task.put(task())
        clock.tick(10)

    def keys(**when: Any) -> list[str]:
        return [row.key for row in Task.xq.history(**when)]

    with pytest.raises(BadType):
        Task.xq.history("seven")
    assert Task.xq.history(7) == []
    assert keys(since=start + 10) == ["2", "3", "4"]
    assert keys(until=start + 10) == ["1"]
    assert keys(since=start + 10, until=start + 30) == ["2", "3"]
    naive = datetime(1970, 1, 1) + timedelta(seconds=start + 20)
    assert keys(since=naive) == keys(since=naive.replace(tzinfo=UTC)) == ["3", "4"]
    assert keys(since=naive.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=5)))) == ["3", "4"]
    assert keys(since=datetime.min, until=datetime.max) == ["1", "2", "3", "4"]
    day = datetime.fromtimestamp(start, UTC).date()
    assert keys(since=day, until=day + timedelta(2)) == ["1", "2", "3", "4"]
    assert keys(since=day + timedelta(2)) == keys(until=day) == keys(until=date.min) == []


# pruning


def test_the_sweep_forgets_what_is_older_than_the_seconds(make):
    Task = make({**ALL, "history": 10})
    clock = Task.xq.clock
    found = Task.put(task())
    clock.tick(6)
    Task.take()
    clock.tick(4)
    assert Task.xq.sweep() == 0
    assert transitions(Task) == ["X-R put", "R-T take"]
    clock.tick(1)
    assert Task.xq.sweep() == 0
    assert transitions(Task) == ["R-T take"]
    assert Task.xq.history(found)[0].dur_us is None
    clock.tick(10)
    Task.xq.sweep()
    Task.put(task())
    assert [(row.id, row.event) for row in Task.xq.history()] == [(3, "put")]


def test_many_rows_are_forgotten_at_once(make):
    Task = make({"history": 10})
    Task.xq.put_many(tasks(2500))
    Task.xq.clock.tick(11)
    Task.put(task())
    Task.xq.sweep()
    assert transitions(Task) == ["X-R put"]
    assert Task.xq.History.select().count() == 1, "rows that are too old are not only left out: one sweep deletes all"


# the model


def test_the_model_follows_a_database_that_is_bound_later(make, another_database):
    proxy = pw.DatabaseProxy()
    Task = make.model()
    Task._meta.set_database(proxy)
    roles = {"status": "status", "runat": "runat"}
    xq.upgrade(Task, roles, {**ALL}, clock=Clock())
    History = Task.xq.History  # what all databases tell
    proxy.initialize(make.db)
    make.db.create_tables([Task])
    Task.put(task())
    assert ("xid" in Task.xq.History._meta.fields) == isinstance(make.db, pw.PostgresqlDatabase)
    assert [row.event for row in Task.xq.History.select()] == ["put"]
    assert History.get(History.event == "put").target == "R"
    assert isinstance(Task.xq.history()[0], Task.xq.History)
    assert Task.xq.history()[0].is_dirty() is False
    with another_database() as other, other.bind_ctx([Task]):
        other.create_tables([Task])
        assert History.select().count() == 0
        Task.xq.put_many(tasks(2))
        assert History.select().count() == 2
    assert History.select().count() == 1


# installing


def test_a_table_with_rows_gets_a_history_that_begins_there(make):
    Task = make.model()
    make.db.create_tables([Task])
    Task.create()
    Task = make(ALL, model=Task)
    assert transitions(Task) == []
    Task.take()
    assert transitions(Task) == ["R-T take"]
    assert Task.xq.check() == []


def test_the_text_of_the_installation_may_run_twice_and_keeps_the_history(make):
    Task = make(ALL)
    bring(Task, "T")
    for _ in range(2):
        run_script(make.db, Task.xq.ddl())
    Task.xq.install()
    Task.xq.release_all()
    assert transitions(Task) == ["X-R put", "R-T take", "T-R release"]


def test_other_features_later_turn_the_history_on_and_off(make):
    Task = make({"zombie": True, "history": True})
    bring(Task, "Z")
    Task.xq.reconfigure({"keep": True, "history": 60}, move={"Z": "D"})
    assert transitions(Task)[-2:] == ["T-Z ack", "Z-D reconfigure"]
    assert Task.xq.check() == []
    Task.xq.reconfigure({"keep": True})
    with pytest.raises(FeatureOff):
        Task.xq.history()
    assert not make.db.table_exists("task_xq_history")
    bring(Task, "D")
    Task.xq.reconfigure({"keep": True, "history": True})
    bring(Task, "D")
    assert transitions(Task) == ["X-R put", "R-T take", "T-D ack"]
    assert Task.xq.check() == []


@pytest.mark.parametrize("call", ["put", "another program"])
@pytest.mark.parametrize("kind", SERVERS)
def test_nobody_waits_for_a_transaction_that_has_inserted_a_task(kind, call, tmp_path):
    with DATABASES[kind](tmp_path) as db:
        make_impatient(db, STUCK // 2)
        Task = live(db)({"history": 60, "keep": True})
        Task.xq.put_many(tasks(3))

        def takes():
            yield "ready"
            yield [Task.take().ack().id, Task.take().release().id, Task.kill(Task.take()).id]

        with another_process(db, takes) as other:
            next(other)
            with db.atomic():
                Task.put(task()) if call == "put" else Task.create()
                assert next(other) == [1, 2, 2]
        owners = [row.owner is not None for row in Task.xq.history() if "T" in (row.source, row.target)]
        assert owners == [True] * 6
        assert is_exact(Task)
