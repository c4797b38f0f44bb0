"""The feature history: each transition a row that tells its event, written with the change, pruned by the sweep."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import (
    STUCK,
    Bytes,
    Work,
    another_program,
    bring,
    install_after_the_statements,
    install_anew,
    is_exact,
    make_impatient,
)
from tests.support.calls import HISTORY, RETRY

HELD = ("X-R put", "R-T take")


def transitions(Task: Any, key: Any = None) -> list[str]:
    """The transitions, as "R-T take"."""
    return [f"{row.source}-{row.target} {row.event}" for row in Task.xq.history(key)]


# what is told of it, the features, what is done
STORIES: list[tuple[tuple[str, ...], dict[str, Any], Any]] = [
    ((*HELD, "T-X ack"), {"history": True}, lambda Task: Task.xq.ack(bring(Task, "T"))),
    (
        (*HELD, *("T-B bury", "B-R dig", "R-T take") * 2, "T-B bury", "B-R dig"),
        HISTORY,
        lambda Task: (
            *(Task.kick(bring(Task, "B")), Task.take().bury()),
            *(Task.kick(n=1), Task.take().bury(), Task.plow()),
        ),
    ),
    (
        (*["X-R put"] * 3, *["R-T take"] * 3, *["T-D ack"] * 3),
        HISTORY,
        lambda Task: (Task.xq.put_many(tasks(3)), Task.xq.ack_many(Task.xq.take_many(3))),
    ),
    (
        (*HELD, "T-R release", "R-T take", "T-R release", "R-T take", "T-R snatch", "R-X kill"),
        HISTORY,
        lambda Task: (
            *(bring(Task, "T"), Task.xq.session(Task.xq.taken()[0][1]).close()),
            *(Task.take(), Task.xq.release_all(), Task.xq.snatch(Task.take()), Task.xq.truncate()),
        ),
    ),
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
        HISTORY,
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
        HISTORY,
        lambda Task: (
            (Task.create(), Task.take()),
            *[Task.update(status=status).execute() for status in ("B", "B", "elsewhere", "R")],
            Task.delete().execute(),
        ),
    ),
    # rows that are not the queue's, and other columns
    (
        (),
        HISTORY,
        lambda Task: (Task.create(status="draft"), Task.update(status="other").execute(), Task.delete().execute()),
    ),
    (("X-R put",), HISTORY, lambda Task: (Task.put(task()), Task.update(name="x", job="y", runat=None).execute())),
    # a key that changes ends one task and begins another
    (("X-R put", "R-X write", "X-R write"), HISTORY, lambda Task: (Task.put(task()), Task.update(id=7).execute())),
    # what take finds due
    ((*HELD, "T-R ttr", "R-T take"), HISTORY, lambda Task: (bring(Task, "T"), Task.xq.clock.tick(60), Task.take())),
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


def test_a_refused_call_leaves_no_word_behind(make):
    Task = make(HISTORY)
    found = bring(Task, "T")
    with pytest.raises(pw.IntegrityError):
        Task.put({"id": found.id})
    Task.create()
    assert transitions(Task)[-1] == "X-R write"


def test_what_another_program_writes_is_a_write_and_all_is_told_by_the_time_of_the_machine(make_live):
    Task = make_live(HISTORY)
    before = time.time()
    Task.put(task())
    another_program(make_live.db, "UPDATE task SET status = 'T'")
    another_program(make_live.db, "DELETE FROM task")
    assert transitions(Task) == ["X-R put", "R-T write", "T-X write"]
    assert all(before - STUCK < row.at_us / 1e6 < time.time() + STUCK for row in Task.xq.history())


def test_the_history_is_rolled_back_with_the_change(make):
    Task = make(HISTORY)
    if make.db.database != ":memory:":
        make.db.close()
    with make.db.atomic() as transaction:  # and with the first calls on a connection
        Task.put(task())
        Task.create()
        assert transitions(Task) == ["X-R put", "X-R write"]
        transaction.rollback()
    assert transitions(Task) == []


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_nobody_waits_for_a_transaction_that_has_inserted_a_task(make_live):
    make_impatient(make_live.db, STUCK // 2)
    Task = make_live({"history": 60, "keep": True})
    Task.xq.put_many(tasks(3))
    with make_live.db.atomic():
        Task.create()
        Task.put(task())
        others = Work(make_live.db, lambda: [Task.take().ack().id, Task.take().release().id, Task.kill(Task.take()).id])
        assert others.result() == [1, 2, 2]
    assert is_exact(Task)


# what a row tells


def test_a_row_tells_task_tube_owner_and_attempt(make):
    Task = make(HISTORY, roles=("runat", "tube", "owner", "attempts"))
    Task.put(task(tube="news"))
    token = Task.take().owner
    Task.xq.release_all()
    Task.create(status="T", owner="somebody")
    assert [(row.key, row.tube, row.owner, row.attempt) for row in Task.xq.history()] == [
        ("1", "news", None, 0),
        ("1", "news", token, 1),
        ("1", "news", token, 1),
        ("2", None, "somebody", 0),
    ]


def test_the_owner_is_told_without_a_role_for_it(make):
    Task = make(HISTORY)
    held = bring(Task, "T")
    (_, session, _) = Task.xq.taken()[0]
    held.ack()
    Task.xq.restart(held)
    Task.kill(Task.take())
    owners = [row.owner and row.owner[:36] for row in Task.xq.history()]
    assert owners == [None, session, session, None, session, session]


def test_a_key_of_several_parts_is_a_json_array(make):
    model = make.model(host=pw.CharField(), part=Bytes(), meta={"primary_key": pw.CompositeKey("host", "part")})
    Task = make(HISTORY, model=model)
    Task.put({"host": 'a"b', "part": b"\xff"})
    Task.put({"host": 'a"b', "part": b"\0"})
    assert [json.loads(row.key) for row in Task.xq.history(('a"b', b"\xff"))] == [['a"b', "FF"]]
    assert transitions(Task, Task.take()) == ["X-R put", "R-T take"]


@pytest.mark.parametrize(
    ("field", "key", "told"),
    [
        (pw.UUIDField, uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (pw.CharField, "größe\n'", "größe\n'"),
        (Bytes, b"\0\xff", "00FF"),
        (pw.DoubleField, 0.5, "0.5"),
        (pw.DateTimeField, datetime(2030, 1, 2, 3, 4, 5), "2030-01-02 03:04:05"),
    ],
)
def test_a_key_is_told_as_the_application_writes_it(make, field, key, told):
    Task = make({"id": "required", "history": True}, key=field(primary_key=True))
    found = [row.key for row in Task.xq.history(Task.put({"id": key}).id)]
    assert [each.removesuffix(".000000") for each in found] == [told]  # with which SQLAlchemy writes a moment in SQLite


# time


def test_a_row_tells_its_moment_and_the_time_spent_in_the_state_left(make):
    Task = make(HISTORY)
    clock = Task.xq.clock
    clock.now = 1_700_000_000.25
    first = Task.put(task())
    clock.tick(1)
    Task.put(task())
    clock.tick(2.000001)
    Task.take()
    clock.tick(4)
    Task.ack(first)
    moments = [row.at_us - 1_700_000_000_000_000 for row in Task.xq.history()]
    assert moments == [250_000, 1_250_000, 3_250_001, 7_250_001]
    assert [row.dur_us for row in Task.xq.history()] == [None, None, 3_000_001, 4_000_000]
    assert [row.dur_us for row in Task.xq.history(first)] == [None, 3_000_001, 4_000_000]
    assert [row.dur_us for row in Task.xq.history(since=clock.now)] == [4_000_000]


def test_history_is_asked_from_one_moment_until_another(make):
    Task = make(HISTORY)
    start = Task.xq.clock.now
    for _ in range(4):
        Task.put(task())
        Task.xq.clock.tick(10)

    def keys(**when: Any) -> str:
        return "".join(row.key for row in Task.xq.history(**when))

    utc = datetime.fromtimestamp(start + 20, UTC)
    assert keys(since=start + 10) == "234"
    assert keys(until=start + 10) == "1"
    assert keys(since=start + 10, until=start + 30) == "23"
    for moment in (utc, utc.replace(tzinfo=None), utc.astimezone(timezone(timedelta(hours=5)))):
        assert keys(since=moment) == "34"
    assert keys(since=datetime.min, until=datetime.max) == "1234"
    assert keys(since=utc.date(), until=utc.date() + timedelta(2)) == "1234"
    assert keys(since=utc.date() + timedelta(2)) == keys(until=date.min) == ""
    with pytest.raises(xq.BadType):
        Task.xq.history("seven")


# pruning


def test_the_sweep_forgets_what_is_older_than_the_seconds(make):
    Task = make({**HISTORY, "history": 10})
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
    (count,) = make.db.execute_sql("SELECT count(*) FROM task_xq_history").fetchone()
    assert count == 1, "rows that are too old are not only left out: one sweep deletes all"


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_history_is_forgotten_beside_a_transaction_that_has_put_a_task(make_live):
    make_impatient(make_live.db, STUCK // 2)
    Task = make_live({"history": 10})
    Task.xq.put_many(tasks(4))
    make_live.db.execute_sql("UPDATE task_xq_history SET at_us = at_us - 12000000 WHERE id < 4")
    with make_live.db.atomic():
        Task.put(task())
        Work(make_live.db, Task.xq.sweep).result()
    (count,) = make_live.db.execute_sql("SELECT count(*) FROM task_xq_history").fetchone()
    assert count == 2


def test_other_features_later_turn_the_history_on_and_off(make):
    Task = make({"zombie": True, "history": True})
    bring(Task, "Z")
    install_after_the_statements(Task, {"keep": True, "history": 60})
    assert transitions(Task)[-2:] == ["T-Z ack", "Z-X write"]
    assert Task.xq.check() == []
    install_anew(Task, {"keep": True}, drop_history=True)
    with pytest.raises(xq.FeatureOff):
        Task.xq.history()
    assert not make.db.table_exists("task_xq_history")
    bring(Task, "D")
    install_anew(Task, {"keep": True, "history": True}, downgrade=True)
    bring(Task, "D")
    assert transitions(Task) == ["X-R put", "R-T take", "T-D ack"]
    assert Task.xq.check() == []


def test_an_event_that_leaves_a_task_as_it_is_is_in_the_history_and_its_times_go_on(make):
    mark = xq.Feature("mark", transitions=(xq.Transition("R", "mark", "R", follows=False),))
    Task = make({"history": True, "events": True, "ttl": 60, "own": mark}, roles=("deadline",))
    before = Task.put(task())
    Task.xq.clock.tick(5)
    with Task.xq.acting("ann"):
        marked = Task.xq.call("mark", 1, update={"name": "m"})
    assert (marked.deadline, marked.name) == (before.deadline, "m")
    last = [*Task.xq.history()][-1]
    assert (last.source, last.event, last.target, last.actor) == ("R", "mark", "R", "ann")
    assert (Task.stats().by_event["mark"], is_exact(Task)) == ({"R-R": 1}, True)
