"""act: an operation on all tasks that a filter shows, in chunks that survive a kill -9, from any process."""

from __future__ import annotations

import logging
import tracemalloc
import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import Bytes, another_process, bring, eventually, is_exact, state

FULL = {"buried": "any", "delayed": True, "keep": True, "history": True}


def buried(Task, n):
    """Put so many tasks and bury them. Return their keys."""
    there = Task.xq.put_many(tasks(n))
    Task.xq.bury_many(there)
    return [each.id for each in there]


def ascribed(Task, event):
    """The keys, actors and reasons of the transitions by an event."""
    return [(row.key, row.actor, row.reason) for row in Task.xq.history() if row.event == event]


def numbers(operation):
    return operation.state, operation.done, operation.skipped, operation.looked


# one process


def test_act_moves_all_tasks_that_the_filter_shows_and_says_who_and_why(make):
    Task = make(FULL)
    keys = buried(Task, 7)
    Task.xq.put_many(tasks(3))
    made = Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy", chunk=3)
    assert (numbers(made), Task.xq.count("B")) == (("running", 0, 0, 0), 7)
    assert made.run() is made
    assert (made.state, made.done, made.skipped) == ("done", 7, 0)
    assert Task.stats().counts == {"R": 10, "W": 0, "T": 0, "B": 0, "D": 0}
    assert ascribed(Task, "dig") == [(str(key), "ann", "bad deploy") for key in keys]
    assert {row.actor for row in Task.xq.history() if row.event != "dig"} == {None}
    assert is_exact(Task)


def test_neither_a_preview_nor_an_operation_has_all_rows_in_memory_at_once(make):
    Task, large = make(FULL), 60_000
    for _ in range(10):
        Task.xq.put_many(tasks(30, name="x" * large))
    for filter in ("state:ready", "name:x -name:y"):
        operation = Task.xq.act("bury" if "name" in filter else "kill", filter, dry_run=True)
        tracemalloc.start()
        assert operation.preview.n == 300
        Task.xq.act("bury", "state:ready").run()
        Task.xq.act("dig", "state:buried").run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 150 * large, "of 50 tasks at once, and of those before, not of 300"


@pytest.mark.parametrize(
    ("event", "states", "options", "after"),
    {
        "dig": ("dig", "B", {}, "R"),
        "dig for later": ("dig", "B", {"delay": 5}, "W"),
        "kill": ("kill", "RWTBD", {}, "X"),
        "release": ("release", "T", {}, "R"),
        "snatch": ("snatch", "T", {"delay": 5}, "W"),
        "restart": ("restart", "WD", {}, "R"),
        "bury": ("bury", "RWTD", {}, "B"),
    }.values(),
    ids=str,
)
def test_the_event_moves_the_tasks_of_its_states_and_skips_the_others(make, event, states, options, after):
    Task = make(FULL)
    there = {each: bring(Task, each) for each in "TBDWR"}
    with Task.xq.session():  # another one than that of the take
        done = Task.xq.act(event, "", **options).run()
    assert (done.done, done.skipped) == (len(states), 0)
    found = {each: state(Task, there[each]) for each in there}
    assert found == {each: after if each in states else each for each in there}
    assert is_exact(Task)


KEYS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "composite": (
        {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}},
        [{"site": "é'\\", "page": n} for n in range(3)],
    ),
    "bytes": ({"key": Bytes(primary_key=True)}, [{"id": bytes([0, 255, n])} for n in range(3)]),
    "a binary uuid": ({"key": pw.BinaryUUIDField(primary_key=True)}, [{"id": uuid.UUID(int=n)} for n in range(3)]),
    "a time": ({"key": pw.DateTimeField(primary_key=True)}, [{"id": datetime(2026, 1, 1, n, 0, 1)} for n in range(3)]),
    "a decimal": (
        {"key": pw.DecimalField(12, 3, primary_key=True)},
        [{"id": Decimal(f"{n}.250")} for n in range(3)],
    ),
    "uuid": ({"key": pw.UUIDField(primary_key=True)}, [{"id": uuid.UUID(int=n)} for n in range(3)]),
    "text": ({"key": pw.CharField(primary_key=True)}, [{"id": f"a'\\é{n}"} for n in range(3)]),
}


@pytest.mark.parametrize("retval", ["model", "dict", "tuple"])
@pytest.mark.parametrize(("model", "brought"), KEYS.values(), ids=KEYS)
def test_keys_of_each_kind_are_moved_and_ascribed(make, model, brought, retval):
    Task = make(FULL | {"id": "required", "retval": retval}, model=make.model(**model), roles=("runat",))
    Task.xq.put_many(brought)
    Task.xq.act("bury", "", actor="ann", chunk=2).run()
    with Task.xq.acting("ben"):
        Task.dig(n=2)
    assert [actor for _, actor, _ in ascribed(Task, "bury")] == ["ann"] * 3
    assert [actor for _, actor, _ in ascribed(Task, "dig")] == ["ben"] * 2
    assert Task.xq.act("kill", "", chunk=2).run().done == 3
    assert is_exact(Task)


def test_the_next_operation_deletes_those_that_ended_thirty_days_ago(make):
    Task = make(FULL)
    ended, cancelled, running = (Task.xq.act("dig", "state:buried") for _ in range(3))
    ended.run()
    cancelled.cancel()
    Task.xq.pause(actor="ann", reason="deploy")
    Task.xq.clock.tick(30 * 86_400)
    young = Task.xq.act("kill", "state:buried").run()
    assert [each.id for each in Task.xq.operations() if each.chunk] == [young.id, running.id]
    ((tube, _, actor, reason),) = Task.xq.pauses()
    assert (tube, actor, reason) == (None, "ann", "deploy")


STATUSES = {"R": "new", "W": "later", "T": "busy", "B": "failed", "D": "sent"}


def test_tasks_with_statuses_of_the_application_are_moved(make):
    Task = make(FULL, model=make.model(status=pw.CharField(default="new")), statuses=STATUSES)
    there = [bring(Task, each) for each in "TBDW"]
    assert Task.xq.act("restart", "state:sent,later", actor="ann").run().done == 2
    assert [state(Task, each) for each in there] == ["busy", "failed", "new", "new"]
    assert Task.xq.act("dig", "state:buried", dry_run=True).preview.n == 1


def test_an_operation_ends_although_its_event_moves_tasks_along_an_index(make):
    Task = make(FULL)
    for n in range(5):
        Task.put(task(), delay=50 + n)
    done = Task.xq.act("restart", "state:W", delay=100, chunk=2).run()
    assert (done.done, Task.xq.count("W")) == (5, 5)
    assert {each.runat for each in Task.xq.by_state("W")} == {Task.xq.clock.now + 100}


def test_an_operation_is_stored_and_any_handle_reads_it(make):
    Task = make(FULL)
    buried(Task, 5)
    first = Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy", chunk=2, delay=3)
    other = Task.xq.act("kill", "state:B")
    assert [each.id for each in Task.xq.operations()] == [other.id, first.id]
    assert [each.id for each in Task.xq.operations(1)] == [other.id]
    again = Task.xq.operation(first.id)
    told = again.as_dict()
    assert told.pop("created") == told.pop("updated") == pytest.approx(Task.xq.clock.now)
    assert told == {
        "id": first.id,
        "event": "dig",
        "filter": "state:B",
        "options": {"delay": 3.0},
        "actor": "ann",
        "reason": "bad deploy",
        "chunk": 2,
        "done": 0,
        "skipped": 0,
        "looked": 0,
        "state": "running",
    }
    assert again.step()
    assert (again.done, first.refresh().done) == (2, 2)
    assert [each.done for each in again] == [4, 5]
    assert (again.state, first.step(), first.done) == ("done", False, 5)
    assert Task.stats().counts["W"] == 5


def test_a_task_that_moved_meanwhile_is_skipped_and_counted(make):
    Task = make(FULL)
    keys = buried(Task, 4)
    made = Task.xq.act("kill", "", actor="ann", chunk=2)
    made.step()
    Task.kill(keys[2])
    made.run()
    assert (made.state, made.done, made.skipped) == ("done", 3, 0)
    assert is_exact(Task)


def test_a_task_that_the_database_rejects_stops_no_other(make):
    Task = make({"buried": True, "unique": True, "history": True}, roles=("unique",))
    there = Task.xq.put_many([{"name": name, "job": name} for name in "abc"])
    Task.xq.bury_many(Task.xq.take_many(3))
    Task.put({"name": "b", "job": "b"})
    made = Task.xq.act("dig", "state:B", actor="ann").run()
    assert (made.state, made.done, made.skipped) == ("done", 2, 1)
    assert Task.xq.peek(there[1]).status == "B"
    assert ascribed(Task, "dig") == [(str(there[0].id), "ann", None), (str(there[2].id), "ann", None)]
    assert is_exact(Task)


def test_a_cancelled_operation_moves_nothing_more(make):
    Task = make(FULL)
    buried(Task, 5)
    made = Task.xq.act("dig", "state:B", chunk=2)
    made.step()
    assert Task.xq.operation(made.id).cancel()
    assert not made.step()
    assert (made.state, made.done, made.cancel()) == ("cancelled", 2, False)
    assert Task.xq.count("B") == 3


def test_a_dry_run_shows_what_would_move_and_stores_nothing(make):
    Task = make(FULL)
    keys = buried(Task, 30)
    Task.xq.put_many(tasks(2))
    shown = Task.xq.act("dig", "state:B", dry_run=True).preview
    assert ([each.id for each in shown.tasks], *shown[1:]) == (keys[:20], 30, True, 0)
    everything = Task.xq.act("dig", "", dry_run=True)
    assert everything.preview[1:] == (30, True, 0)
    assert Task.xq.act("kill", f"key:{keys[3]}", dry_run=True).preview[1:3] == (1, True)
    with pytest.raises(xq.BadValue, match="a dry run moves nothing"):
        everything.run()
    assert (Task.xq.operations(), Task.xq.count("B")) == ([], 30)


def test_a_chunk_is_part_of_the_application_s_transaction(make):
    Task = make(FULL)
    buried(Task, 3)
    made = Task.xq.act("dig", "state:B", actor="ann", chunk=2)
    with make.db.atomic() as transaction:
        made.step()
        transaction.rollback()
    assert (made.refresh().done, Task.xq.count("B"), ascribed(Task, "dig")) == (0, 3, [])
    assert made.run().done == 3


def test_without_a_history_the_log_names_who_moved_which_task(make, caplog):
    Task = make({"buried": "any"})
    keys = buried(Task, 2)
    with caplog.at_level(logging.INFO, f"xq.{Task.__name__}"):
        made = Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy").run()
    assert [record.getMessage() for record in caplog.records] == [
        f"ann: operation {made.id} begins: dig state:B: bad deploy",
        *(f"ann: dig {key}: bad deploy" for key in keys),
        f"operation {made.id} is done: 2 tasks moved, 0 skipped",
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("ack", ""), {}, xq.BadValue, "act does one of dig, kill, snatch, restart, bury, release"),
        ((7, ""), {}, xq.BadValue, "act does one of"),
        (("dig", None), {}, xq.BadType, "a filter is text"),
        (("dig", "state:Q"), {}, xq.BadValue, "has the states"),
        (("dig", ""), {"chunk": 0}, xq.BadValue, "chunk is a number of tasks from 1 to 1,000"),
        (("dig", ""), {"chunk": "2"}, xq.BadType, "chunk is a number of tasks"),
        (("dig", ""), {"actor": ""}, xq.BadValue, "actor is a text"),
        (("dig", ""), {"reason": 7}, xq.BadType, "reason is text"),
        (("dig", ""), {"delay": -1}, xq.BadValue, "delay"),
        (("dig", ""), {"speed": 1}, xq.BadType, "no option 'speed'"),
        (("kill", ""), {"delay": 1}, xq.BadType, "no option 'delay'"),
    ],
    ids=str,
)
def test_a_wrong_call_of_act_stores_nothing(make, arguments, options, error, words):
    Task = make(FULL)
    with pytest.raises(error, match=words):
        Task.xq.act(*arguments, **options)
    assert Task.xq.operations() == []


def test_act_needs_the_feature_of_its_event(make):
    Task = make({"buried": True})
    with pytest.raises(xq.FeatureOff, match="buried='any'"):
        Task.xq.act("bury", "")
    with pytest.raises(xq.NotFound, match="no operation of this number"):
        Task.xq.operation(7)
    with pytest.raises(xq.BadType, match="named by its number"):
        Task.xq.operation("7")


def test_uninstalling_a_queue_forgets_its_operations_only(make):
    Task, Other = make(FULL), make(FULL, model=make.model(table_name="other"))
    kept = Other.xq.act("dig", "")
    mine = Task.xq.act("dig", "")
    with pytest.raises(xq.NotFound):
        Task.xq.operation(kept.id)
    Task.xq.uninstall()
    Task.xq.install()
    assert (Task.xq.operations(), [each.id for each in Other.xq.operations()]) == ([], [kept.id])
    with pytest.raises(xq.NotFound, match="no operation of this number"):
        mine.run()


# the queue as a whole


def test_a_pause_tells_who_paused_since_when_and_why(make, caplog):
    Task = make({"history": True}, roles=("tube",))
    Task.xq.pause("mail")
    with caplog.at_level(logging.INFO, f"xq.{Task.__name__}"):
        Task.xq.pause(actor="ann", reason="maintenance")
        Task.xq.pause(actor="ben")
    now = pytest.approx(Task.xq.clock.now)
    assert Task.xq.pauses() == [(None, now, "ann", "maintenance"), ("mail", None, None, None)]
    assert Task.xq.paused() == [None, "mail"]
    assert [record.getMessage() for record in caplog.records] == ["ann: pause: maintenance"]
    Task.xq.resume("mail", actor="ann")
    Task.xq.resume(actor="ann")
    Task.xq.pause("mail", actor="ben")
    assert Task.xq.pauses() == [("mail", now, "ben", None)]
    events = [(each.event, each.options["tube"], each.actor, each.state) for each in reversed(Task.xq.operations())]
    assert events == [
        ("pause", None, "ann", "done"),
        ("resume", "mail", "ann", "done"),
        ("resume", None, "ann", "done"),
        ("pause", "mail", "ben", "done"),
    ]
    assert Task.xq.operations()[0].run().state == "done"


def test_who_deleted_a_schedule_is_stored(make):
    Task = make()
    Task.xq.every(60, task(), name="hourly")
    assert Task.xq.unschedule("hourly", actor="ann", reason="no longer")
    assert not Task.xq.unschedule("hourly", actor="ann")
    assert [(each.event, each.options, each.reason) for each in Task.xq.operations()] == [
        ("unschedule", {"name": "hourly"}, "no longer")
    ]


# several processes


MANY, CHUNK = 240, 2


def script(Task, id_):
    """Another process: it moves a chunk, and runs the operation to its end when it is asked again."""

    def run():
        operation = Task.xq.operation(id_)
        operation.step()
        yield operation.done
        yield operation.run().done

    return run


def begun(make_live):
    """A queue of buried tasks, their keys, and an operation that digs them."""
    Task = make_live(FULL)
    keys = buried(Task, MANY)
    return Task, keys, Task.xq.act("dig", "state:B", actor="ann", chunk=CHUNK)


def test_a_killed_process_loses_nothing_and_the_next_one_goes_on(make_live):
    Task, keys, made = begun(make_live)
    with another_process(make_live.db, script(Task, made.id)) as other:
        assert next(other) == CHUNK
        other.post(None)
        eventually(lambda: made.refresh().done > CHUNK)
        other.kill()
        assert made.refresh().done == Task.xq.count("R")
    assert made.run().state == "done"
    assert (made.done, made.skipped) == (MANY, 0)
    assert sorted(int(key) for key, _, _ in ascribed(Task, "dig")) == keys
    assert {actor for _, actor, _ in ascribed(Task, "dig")} == {"ann"}
    assert is_exact(Task)


def test_two_processes_that_run_one_operation_move_each_task_once(make_live):
    Task, keys, made = begun(make_live)
    with another_process(make_live.db, script(Task, made.id)) as other:
        next(other)
        other.post(None)
        made.run()
        other.hear()
    assert (made.refresh().state, made.done, made.skipped) == ("done", MANY, 0)
    assert sorted(int(key) for key, _, _ in ascribed(Task, "dig")) == keys
    assert is_exact(Task)


def test_another_process_ends_a_running_operation_by_cancelling_it(make_live):
    Task, _, made = begun(make_live)
    with another_process(make_live.db, script(Task, made.id)) as other:
        next(other)
        assert made.cancel()
        assert next(other) == CHUNK
    assert (made.refresh().state, made.done, Task.xq.count("B")) == ("cancelled", CHUNK, MANY - CHUNK)
    assert is_exact(Task)
