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
from xq import BadType, FeatureOff, NotInstalled
from xq.testing import Clock

FULL = ("runat", "deadline", "priority", "tube", "owner", "attempts")


def of_its_kind(db: pw.Database, there: Mapping[type[pw.Database], Any], elsewhere: Any) -> Any:
    """What holds on this kind of database, where it differs from the others."""
    return next((found for kind, found in there.items() if isinstance(db, kind)), elsewhere)


# the events


def test_put_take_and_ack_are_told(make):
    Task = make({"history": True})
    Task.xq.ack(bring(Task, "T"))
    assert transitions(Task) == ["X-R put", "R-T take", "T-X ack"]


def test_ack_into_d_and_into_z_is_an_ack(make):
    Task = make({"keep": True, "history": True})
    bring(Task, "D")
    assert last(Task) == "T-D ack"


@pytest.mark.parametrize("options", [{}, {"delay": 5}])
def test_what_a_call_does_is_told_by_its_name(make, options):
    Task = make(ALL)
    target = "W" if options else "R"
    found = Task.put(task(), **options)
    assert last(Task) == f"X-{target} put"
    found = Task.xq.switch(found, "R")
    found = Task.take().release(**options)
    assert last(Task) == f"T-{target} release"
    found = Task.xq.switch(found, "B")
    assert last(Task) == f"{target}-B switch"
    found = Task.dig(found, **options)
    assert last(Task) == f"B-{target} dig"
    Task.xq.switch(found, "R")
    found = Task.xq.snatch(Task.take(), **options)
    assert last(Task) == f"T-{target} snatch"
    Task.xq.switch(found, "D")
    found = Task.xq.restart(found, **options)
    assert last(Task) == f"D-{target} restart"
    Task.kill(found)
    assert last(Task) == f"{target}-X kill"


def test_bury_is_told_and_kick_and_plow_are_dig(make):
    Task = make(ALL)
    found = bring(Task, "B")
    assert last(Task) == "T-B bury"
    for dig in (lambda: Task.kick(found), lambda: Task.kick(n=1), lambda: Task.plow()):
        dig()
        assert last(Task) == "B-R dig"
        Task.take().bury()


@pytest.mark.parametrize(
    ("features", "state", "expected"),
    [
        ({"ttl": 10}, "R", "R-X ttl"),
        ({"ttr": 10}, "T", "T-R ttr"),
        ({"delayed": True}, "W", "W-R delay"),
        ({"zombie": 10}, "Z", "Z-X zombie"),
        ({"lifetime": 10}, "R", "R-X lifetime"),
        ({"lifetime": 10, "buried": True}, "B", "B-X lifetime"),
    ],
)
def test_what_time_brings_about_is_told_by_the_name_of_the_timer(make, features, state, expected):
    Task = make({**features, "history": True})
    bring(Task, state)
    Task.xq.clock.tick(11)
    assert Task.xq.sweep() == 1
    assert last(Task) == expected


def test_a_taken_task_past_its_lifetime_returns_and_is_dropped_by_it(make):
    Task = make({"lifetime": 10, "history": True})
    bring(Task, "T")
    Task.xq.clock.tick(11)
    Task.xq.sweep()
    assert transitions(Task) == ["X-R put", "R-T take", "T-R lifetime", "R-X lifetime"]


def test_what_take_finds_due_is_told_by_the_timer(make):
    Task = make(ALL)
    bring(Task, "T")
    Task.xq.clock.tick(60)
    Task.take()
    assert transitions(Task) == ["X-R put", "R-T take", "T-R ttr", "R-T take"]


def test_many_tasks_have_a_row_each(make):
    Task = make(ALL)
    Task.xq.put_many(tasks(3))
    Task.xq.ack_many(Task.xq.take_many(3))
    assert transitions(Task) == ["X-R put"] * 3 + ["R-T take"] * 3 + ["T-D ack"] * 3
    assert [row.key for row in Task.xq.history()] == ["1", "2", "3"] * 3


def test_release_all_and_truncate_are_release_and_kill(make):
    Task = make(ALL)
    bring(Task, "T")
    Task.put(task(), delay=5)
    Task.xq.release_all()
    assert last(Task) == "T-R release"
    Task.xq.truncate()
    assert sorted(transitions(Task)[-2:]) == ["R-X kill", "W-X kill"]


def test_the_end_of_a_session_is_a_release(make):
    Task = make(ALL)
    with Task.xq.session() as session:
        held = bring(Task, "T")
    assert last(Task) == "T-R release"
    assert Task.xq.history(held)[-1].owner.startswith(session.uuid)


def test_what_is_put_over_another_task_is_a_put(make):
    Task = make({"unique": True, "delayed": True, "history": True}, roles=("runat", "unique"))
    Task.put({"job": "a"})
    Task.put({"job": "a"}, on_conflict="skip")
    Task.put({"job": "a"}, on_conflict="replace")
    Task.put({"job": "a"}, on_conflict="replace", delay=5)
    assert transitions(Task) == ["X-R put", "R-R put", "R-W put"]


def test_a_state_that_is_entered_anew_has_a_row_and_touch_has_none(make):
    Task = make(ALL)
    found = Task.put(task(), delay=5)
    found = Task.xq.restart(found, delay=9)
    assert last(Task) == "W-W restart"
    Task.xq.switch(Task.xq.switch(found, "B"), "B")
    assert transitions(Task)[-2:] == ["W-B switch", "B-B switch"]
    Task.dig(found)
    rows = len(Task.xq.history())
    Task.touch(found, 5)
    Task.touch(Task.take(), 5)
    assert len(Task.xq.history()) == rows + 1


def test_an_event_of_a_feature_of_ones_own_is_told(make):
    retry = xq.Feature("retry", transitions=(xq.Transition("T", "retry", "R", fenced=True),))
    Task = make({"retry": retry, "delayed": True, "history": True})
    Task.xq.call("retry", bring(Task, "T"))
    assert last(Task) == "T-R retry"
    Task.xq.call("retry", Task.take(), delay=5)
    assert last(Task) == "T-W retry"


def test_what_the_application_writes_itself_is_a_write(make):
    Task = make(ALL)
    Task.create()
    Task.take()
    Task.update(status="B").execute()
    Task.update(status="B").execute()
    Task.update(status="elsewhere").execute()
    Task.update(status="R").execute()
    Task.delete().execute()
    assert transitions(Task) == ["X-R write", "R-T take", "T-B write", "B-X write", "X-R write", "R-X write"]


def test_what_another_program_writes_is_a_write_by_the_time_of_the_machine(make_live):
    Task = make_live(ALL)
    Task.put(task())

    def plain() -> Any:
        for sql in ("UPDATE task SET status = 'T'", "UPDATE task SET status = 'T'", "DELETE FROM task"):
            another_program(Task._meta.database, sql)
        yield

    before = time.time_ns() // 1000
    with another_process(Task._meta.database, plain) as other:
        next(other)
    assert transitions(Task) == ["X-R put", "R-T write", "T-X write"]
    for row in Task.xq.history():
        assert before - 60_000_000 < row.at_us < time.time_ns() // 1000 + 60_000_000
        assert row.owner is None


def test_a_row_that_is_not_the_queues_has_no_history(make):
    Task = make(ALL)
    Task.create(status="draft")
    Task.update(status="other").execute()
    Task.update(name="x").execute()
    Task.delete().execute()
    assert transitions(Task) == []


def test_an_update_of_other_columns_has_no_row(make):
    Task = make(ALL, roles=FULL)
    found = Task.put(task())
    Task.update(name="x", tube="y", runat=None).execute()
    assert transitions(Task, found) == ["X-R put"]


def test_a_key_that_changes_ends_one_task_and_begins_another(make):
    Task = make(ALL)
    Task.put(task())
    Task.update(id=7).execute()
    assert transitions(Task, 1) == ["X-R put", "R-X write"]
    assert transitions(Task, 7) == ["X-R write"]


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
    with Task._meta.database.atomic() as transaction:
        Task.put(task())
        assert transitions(Task) == ["X-R put"]
        transaction.rollback()
    assert transitions(Task) == []
    with Task._meta.database.atomic():
        Task.put(task())
        with Task._meta.database.atomic() as savepoint:
            Task.take()
            savepoint.rollback()
    assert transitions(Task) == ["X-R put"]


def test_the_first_call_on_a_connection_may_be_in_a_transaction(make):
    db = make.db
    Task = make(ALL)
    if db.database != ":memory:":
        db.close()
    with db.atomic():
        Task.put(task())
        Task.create()
        Task.take()
    Task.xq.release_all()
    assert transitions(Task) == ["X-R put", "X-R write", "R-T take", "T-R release"]


def test_a_reconnected_process_tells_its_events(make_shared):
    Task = make_shared(ALL)
    Task.put(task())
    for _ in range(3):
        make_shared.db.close()
        make_shared.db.connect()
        Task.take().release()
    assert transitions(Task) == ["X-R put", *["R-T take", "T-R release"] * 3]


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


def test_two_queues_of_a_connection_tell_their_events(make):
    Task = make(ALL)
    Other = make(ALL, model=make.model(table_name="other"))
    Task.put(task())
    Other.put(task())
    Other.take()
    assert (transitions(Task), transitions(Other)) == (["X-R put"], ["X-R put", "R-T take"])


# what a row tells


def test_a_row_tells_task_tube_owner_and_attempt(make):
    Task = make(ALL, roles=FULL)
    Task.put(task(tube="news"))
    token = Task.take().owner
    Task.xq.release_all()
    rows = [(row.key, row.tube, row.owner, row.attempt) for row in Task.xq.history()]
    assert rows == [("1", "news", None, 0), ("1", "news", token, 1), ("1", "news", token, 1)]


def test_the_owner_is_told_without_a_role_for_it(make):
    Task = make(ALL)
    held = bring(Task, "T")
    (_, session, _) = Task.xq.taken()[0]
    held.ack()
    Task.xq.restart(held)
    Task.kill(Task.take())
    owners = [row.owner and row.owner[:36] for row in Task.xq.history()]
    assert owners == [None, session, session, None, session, session]


def test_what_another_program_takes_has_no_owner_but_the_one_it_writes(make):
    Task = make(ALL)
    Task.create(status="T")
    assert Task.xq.history()[0].owner is None
    Owned = make(ALL, roles=FULL, model=make.model(table_name="owned"))
    Owned.create(status="T", owner="somebody")
    assert Owned.xq.history()[0].owner == "somebody"


def test_a_key_of_several_parts_is_a_json_array(make):
    model = make.model(
        host=pw.CharField(), number=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("host", "number")}
    )
    Task = make(ALL, model=model)
    Task.put({"host": 'a"b', "number": 7})
    Task.put({"host": 'a"b', "number": 8})
    assert [json.loads(row.key) for row in Task.xq.history(('a"b', 7))] == [['a"b', 7]]
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


def test_a_key_of_bytes_in_several_parts_stops_no_writer(make):
    model = make.model(a=Bytes(), b=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("a", "b")})
    Task = make(ALL, model=model)
    Task.put({"a": b"\xff", "b": 1})
    assert [json.loads(row.key) for row in Task.xq.history()] == [["FF", 1]]


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


def test_the_time_of_a_row_is_that_of_the_machine(make_live):
    Task = make_live(ALL)
    before = time.time_ns() // 1000
    Task.put(task())
    Task.create()
    after = time.time_ns() // 1000
    assert all(before <= row.at_us <= after for row in Task.xq.history())


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


def test_a_key_that_is_none_is_refused(make):
    Task = make(ALL)
    with pytest.raises(BadType):
        Task.xq.history("seven")
    assert Task.xq.history(7) == []


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


def test_a_history_without_seconds_is_kept(make):
    Task = make(ALL)
    Task.put(task())
    Task.xq.clock.tick(10**9)
    Task.xq.sweep()
    assert transitions(Task) == ["X-R put", "R-X ttl"]


# the model


def test_the_model_reads_the_table(make):
    Task = make(ALL)
    bring(Task, "T")
    History = Task.xq.History
    assert issubclass(History, pw.Model)
    assert [row.event for row in History.select().order_by(History.id)] == ["put", "take"]
    assert History.get(History.event == "take").target == "T"
    assert isinstance(Task.xq.history()[0], History)
    assert Task.xq.history()[0].is_dirty() is False


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
    assert History.select().count() == 1
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


def test_nothing_is_left_after_uninstall(make):
    Task = make(ALL)
    bring(Task, "T")
    Task.xq.uninstall()
    assert not [name for name in make.db.get_tables() if "xq" in name]
    Task.delete().execute()


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


def test_a_process_without_the_history_is_told_so_and_one_with_other_seconds_is_not(make):
    make({"history": True})
    again = make.model()
    xq.upgrade(again, {"status": "status", "runat": "runat", "deadline": "deadline", "priority": "priority"}, {})
    with pytest.raises(NotInstalled, match="history"):
        again.put(task())
    other = make.model()
    roles = {role: role for role in ("status", "runat", "deadline", "priority")}
    xq.upgrade(other, roles, {"history": 5})
    other.put(task())


def test_the_statistics_count_as_before(make):
    Task = make(ALL, roles=FULL, tube_stats=["a"])
    with Task.xq.session():
        bring(Task, "T", task(tube="a"))
    Task.create(tube="a")
    assert Task.stats().transition == {"X-R": 2, "R-T": 1, "T-R": 1}
    assert Task.stats().tube["a"].transition == {"X-R": 2, "R-T": 1, "T-R": 1}


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
