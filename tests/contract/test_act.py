"""act: an operation on all tasks that a filter shows, in chunks; acting: who did it, and why."""

from __future__ import annotations

import html
import logging
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import Bytes, another_process, bring, eventually, is_exact, state
from tests.support.console import SAME, visitor
from xq import serve

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FULL = {"buried": "any", "delayed": True, "keep": True, "history": True}
KEYS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "two parts": (
        {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}},
        [{"site": "é'\\", "page": n} for n in range(3)],
    ),
    "bytes and a number": (
        {"id": Bytes(), "n": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("id", "n")}},
        [{"id": b"\x00\xff'\"", "n": n} for n in range(3)],
    ),
    "bytes": ({"key": Bytes(primary_key=True)}, [{"id": bytes([0, 255, n])} for n in range(3)]),
    "a binary uuid": ({"key": pw.BinaryUUIDField(primary_key=True)}, [{"id": uuid.UUID(int=n)} for n in range(3)]),
    "a uuid": ({"key": pw.UUIDField(primary_key=True)}, [{"id": uuid.UUID(int=n)} for n in range(3)]),
    "a time": ({"key": pw.DateTimeField(primary_key=True)}, [{"id": datetime(2026, 1, 1, n, 0, 1)} for n in range(3)]),
    "a decimal": ({"key": pw.DecimalField(12, 3, primary_key=True)}, [{"id": Decimal(f"{n}.250")} for n in range(3)]),
    "a text": ({"key": pw.CharField(primary_key=True)}, [{"id": f"a'\\é{n}"} for n in range(3)]),
}


def buried(Task, n):
    """Put so many tasks and bury them. Return their keys."""
    there = Task.xq.put_many(tasks(n))
    Task.xq.bury_many(there)
    return [each.id for each in there]


def ascribed(Task, event):
    """The keys, actors and reasons of the transitions by an event."""
    return [(row.key, row.actor, row.reason) for row in Task.xq.history() if row.event == event]


def actors(Task):
    """The events and actors of all transitions."""
    return [(row.event, row.actor) for row in Task.xq.history()]


def logged(Task, caplog, *calls):
    """What the queue's log has of these calls."""
    with caplog.at_level(logging.INFO, f"xq.{Task.__name__}"):
        for call in calls:
            call()
    return [record.getMessage() for record in caplog.records]


def numbers(operation):
    return operation.state, operation.done, operation.skipped


# act


def test_an_operation_moves_the_tasks_of_a_filter_chunk_by_chunk(make):
    Task = make(FULL)
    keys = buried(Task, 5)
    Task.xq.put_many(tasks(3))
    made = Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy", chunk=2, delay=3)
    assert (numbers(made), Task.xq.count("B")) == (("new", 0, 0), 5)
    by = {"actor": "ann", "reason": "bad deploy"}
    counted = {"done": 0, "skipped": 0, "looked": 0, "state": "new"}
    what = {"event": "dig", "filter": "state:B", "options": {"delay": 3.0}, "chunk": 2}
    assert made.as_dict() == what | by | counted
    assert [numbers(each) for each in made] == [("running", 2, 0), ("running", 4, 0), ("done", 5, 0)]
    assert [*made] == []
    assert Task.stats().counts == {"R": 3, "W": 5, "T": 0, "B": 0, "D": 0}
    assert sorted(ascribed(Task, "dig")) == [(str(key), "ann", "bad deploy") for key in keys]
    assert {actor for event, actor in actors(Task) if event != "dig"} == {None}
    assert is_exact(Task)


@pytest.mark.parametrize(
    ("event", "states", "options", "after"),
    [
        ("dig", "B", {}, "R"),
        ("dig", "B", {"delay": 5}, "W"),
        ("kill", "RWTBD", {}, "X"),
        ("cancel", "RWT", {}, "X"),
        ("release", "T", {}, "R"),
        ("release", "T", {"delay": 5}, "W"),
        ("restart", "WD", {}, "R"),
        ("restart", "WD", {"delay": 100}, "W"),
        ("bury", "RWTD", {}, "B"),
    ],
)
def test_the_event_moves_each_task_of_its_states_once_and_leaves_the_others(make, event, states, options, after):
    Task = make(FULL)
    there = {each: bring(Task, each) for each in "TBDWR"}
    with Task.xq.session():  # another one than that of the take
        done = Task.xq.act(event, "", chunk=1, **options).run()
    assert numbers(done) == ("done", len(states), 0)
    assert {each: state(Task, there[each]) for each in there} == {
        each: after if each in states else each for each in there
    }
    assert is_exact(Task)


@pytest.mark.parametrize("retval", ["model", "dict", "tuple"])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_each_kind_are_moved_and_ascribed(make, kind, retval):
    model, brought = KEYS[kind]
    Task = make(FULL | {"id": "required", "retval": retval}, model=make.model(**model), roles=("runat",))
    Task.xq.put_many(brought)
    Task.xq.act("bury", "", actor="ann", chunk=2).run()
    with Task.xq.acting("ben"):
        Task.dig(n=2)
    assert actors(Task)[3:] == [("bury", "ann")] * 3 + [("dig", "ben")] * 2
    assert Task.xq.act("kill", "", chunk=2).run().done == 3
    assert is_exact(Task)


@pytest.mark.parametrize("kind", KEYS)
def test_a_person_names_a_task_by_the_text_of_its_key_in_console_filter_and_operation(make_shared, kind):
    model, brought = KEYS[kind]
    Task = make_shared(FULL | {"id": "required"}, model=make_shared.model(**model), roles=("runat",))
    Task.xq.put_many(brought)
    one, two, _ = [each.key for each in Task.xq.history()]
    here = visitor(serve.app([Task]))
    (address, *_) = re.findall(r'href="(/q/Task/task\?key=[^"]+)"', here.get("/q/Task").text)
    assert here.get(html.unescape(address)).status_code == 200
    assert here.get("/q/Task/task", params={"key": one}).status_code == 200
    of_values = (400, 404) if kind in ("a uuid", "a time", "a decimal") else (404,)  # a database may know its values
    assert here.get("/q/Task/task", params={"key": "no key"}).status_code in of_values
    form = {"verb": "kill", "scope": "selected", "keys": [one]}
    assert here.post("/q/Task/act", data=form, headers=SAME).status_code == 200
    assert Task.xq.count() == 2
    named = "key:'{}'".format(two.replace("\\", "\\\\").replace("'", "\\'"))
    assert len(Task.xq.find(named).tasks) == 1
    assert Task.xq.act("kill", named).run().done == 1
    assert Task.xq.count() == 1


def test_what_moved_meanwhile_or_is_rejected_by_the_database_stops_no_other(make):
    Task = make(FULL | {"unique": True}, roles=("unique", "runat"))
    there = Task.xq.put_many([{"name": name, "job": name} for name in "abcd"])
    Task.xq.bury_many(there)
    Task.put({"name": "b", "job": "b"})
    made = Task.xq.act("dig", "state:B", actor="ann", chunk=3)
    next(iter(made))
    Task.kill(there[3])
    assert numbers(made.run()) == ("done", 2, 1)
    assert state(Task, there[1]) == "B"
    assert ascribed(Task, "dig") == [(str(there[0].id), "ann", None), (str(there[2].id), "ann", None)]
    assert is_exact(Task)


def test_an_operation_that_another_thread_cancels_ends_after_its_chunk(make):
    Task = make(FULL)
    buried(Task, 5)
    made = Task.xq.act("dig", "state:B", chunk=2)
    next(iter(made))
    with ThreadPoolExecutor(1) as other:
        other.submit(made.cancel).result()
    assert (*numbers(made.run()), Task.xq.count("B")) == ("cancelled", 2, 0, 3)
    again = Task.xq.act("dig", "state:B").run()
    again.cancel()
    assert numbers(again) == ("done", 3, 0)


def test_an_operation_that_an_error_has_ended_goes_on_behind_its_last_chunk(make):
    Task = make(FULL)
    buried(Task, 5)
    made = Task.xq.act("dig", "state:B", chunk=2)
    next(iter(made))
    Task.xq.uninstall(keep_columns=True)
    with pytest.raises(xq.NotInstalled):
        made.run()
    Task.xq.install()
    assert numbers(made.run()) == ("done", 5, 0)


def test_a_preview_shows_what_would_move_and_moves_nothing(make):
    Task = make(FULL)
    keys = buried(Task, 30)
    Task.xq.put_many(tasks(2))
    shown = Task.xq.act("dig", "").preview
    assert ([each.id for each in shown.tasks], *shown[1:4]) == (keys[::-1][:20], 30, True, 0)
    assert Task.xq.act("kill", f"key:{keys[3]}").preview[1:3] == (1, True)
    assert Task.xq.count("B") == 30


MANY, CHUNK = 240, 2


def test_what_a_killed_process_left_is_moved_by_the_same_filter_and_no_task_is_moved_twice(make_live):
    Task = make_live(FULL)
    keys = buried(Task, MANY)

    def script():
        chunks = iter(Task.xq.act("dig", "state:B", actor="ann", chunk=CHUNK))
        yield next(chunks).done
        yield sum(1 for _ in chunks)

    with another_process(make_live.db, script) as other:
        assert next(other) == CHUNK
        other.post(None)
        eventually(lambda: Task.xq.count("R") > CHUNK)
        other.kill()
    moved = Task.xq.count("R")
    assert numbers(Task.xq.act("dig", "state:B", actor="ben").run()) == ("done", MANY - moved, 0)
    assert sorted(int(key) for key, _, _ in ascribed(Task, "dig")) == keys
    assert [actor for _, actor, _ in ascribed(Task, "dig")] == ["ann"] * moved + ["ben"] * (MANY - moved)
    assert is_exact(Task)


# the queue as a whole


def test_a_pause_has_its_actor_and_the_log_those_of_each_act(make, caplog):
    Task = make({"history": True}, roles=("tube",))
    now = pytest.approx(Task.xq.clock.now)
    Task.xq.pause("mail")
    Task.xq.every(60, task(), name="hourly")
    calls = (
        lambda: Task.xq.pause(actor="ann", reason="maintenance"),
        lambda: Task.xq.unschedule("hourly", actor="ann", reason="no longer"),
        lambda: Task.xq.unschedule("hourly", actor="ann"),
        lambda: Task.xq.resume("mail", actor="ben"),
    )
    told = ["ann: pause: maintenance", "ann: drop the schedule hourly: no longer", "ben: resume mail"]
    assert (Task.xq.pauses(), logged(Task, caplog, *calls)) == ([("mail", now, None, None)], told)
    Task.xq.clock.tick(5)
    Task.xq.pause(actor="ben")
    assert Task.xq.pauses() == [(None, now, "ann", "maintenance")], "it was paused already"


# acting


ACTS: dict[str, tuple[Any, list[str]]] = {
    "the oldest": (lambda Task: Task.dig(n=2), ["dig"] * 2),
    "all": (lambda Task: Task.xq.truncate(), ["kill"] * 3),
    "one twice, and a put": (lambda Task: (Task.dig(1), Task.kill(1), Task.put(task())), ["dig", "kill", "put"]),
    "a take and its ack": (lambda Task: (Task.dig(1), Task.take().ack()), ["dig", "take", "ack"]),
}


@pytest.mark.parametrize("act", ACTS)
def test_each_method_of_the_queue_is_ascribed_to_the_actor_of_its_block_alone(make, act):
    Task, (call, events) = make(FULL), ACTS[act]
    buried(Task, 3)
    with Task.xq.acting("ann", reason="bad deploy"):
        call(Task)
    Task.put(task())
    expected = [("put", None)] * 3 + [("bury", None)] * 3 + [(event, "ann") for event in events] + [("put", None)]
    assert actors(Task) == expected
    assert {row.reason for row in Task.xq.history() if row.actor} == {"bad deploy"}
    assert is_exact(Task)


def test_a_block_is_part_of_the_application_s_transaction_and_of_blocks_the_inner_one_counts(make):
    Task = make(FULL)
    there = Task.put(task())
    with make.db.atomic() as transaction:
        with Task.xq.acting("ann"):
            with Task.xq.acting("ben"):
                Task.bury(there)
            with suppress(xq.NotFound):  # a failure that is caught leaves the rest
                Task.bury(99)
            Task.dig(there)
        assert actors(Task)[1:] == [("bury", "ben"), ("dig", "ann")]
        transaction.rollback()
    with pytest.raises(xq.NotFound), Task.xq.acting("ann"):
        Task.xq.transaction(lambda: (Task.bury(there), Task.bury(99)))
    Task.bury(there)
    assert actors(Task) == [("put", None), ("bury", None)]


def test_an_operation_is_part_of_an_application_s_transaction_that_has_written_nothing_yet(make, caplog):
    Task = make({"buried": "any"})
    buried(Task, 2)

    def acts():
        with make.db.atomic():
            assert Task.xq.act("dig", "").run().done == 2

    assert logged(Task, caplog, acts)[-1] == "an operator: dig  is done: 2 tasks moved, 0 skipped"


@pytest.mark.of_peewee("Peewee writes within a transaction of the queue's")
def test_what_the_application_writes_what_falls_due_and_what_follows_a_block_has_no_actor(make):
    Task, Other = make(FULL), make(FULL, model=make.model(table_name="other"))
    Task.put(task(), delay=5)
    other, last = Task.xq.put_many(tasks(2))
    Task.xq.clock.tick(5)
    reason = "it's 'so'\\n%s :now $1 {é}"
    with Task.xq.acting("ann", reason=reason):
        Task.update(status="D").where(Task.id == other.id).execute()
        Task.bury(Task.take(), update={"name": "x"})
        Other.put(task())
    with suppress(xq.NotFound), Task.xq.acting("ann"):
        Task.bury(99)
    Task.bury(last)
    acts = [(row.event, row.actor, row.reason) for row in Task.xq.history()][3:]
    mine = ("ann", reason)
    assert sorted(acts[:2]) == [("delay", None, None), ("write", None, None)]
    assert acts[2:] == [("take", *mine), ("bury", *mine), ("bury", None, None)]
    assert actors(Other) == [("put", "ann")], "a block is of all queues of its transaction"


def test_the_log_has_the_begin_and_the_end_of_an_operation_and_without_a_history_each_block(make, caplog):
    Task = make({"buried": "any"})
    keys = buried(Task, 2)

    def kills():
        with Task.xq.acting("ann", reason="bad deploy"):
            Task.kill(keys[0])
        with pytest.raises(xq.NotFound), Task.xq.acting("ben"):
            Task.kill(99)

    assert logged(Task, caplog, Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy").run, kills) == [
        "ann: dig state:B begins: bad deploy",
        "ann: dig state:B is done: 2 tasks moved, 0 skipped: bad deploy",
        "ann: acted: bad deploy",
    ]
