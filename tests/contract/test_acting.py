"""acting: the transitions of a block have an actor and a reason in the history, or a line in the log without one."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import is_exact

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FULL = {"buried": "any", "delayed": True, "keep": True, "history": True}


def ascribed(Task, key=None):
    """The transitions of a task, or of all: event, actor, reason."""
    return [(row.event, row.actor, row.reason) for row in Task.xq.history(key)]


def test_the_transitions_of_a_block_have_their_actor_and_their_reason(make):
    Task = make(FULL)
    first, other = Task.xq.put_many(tasks(2))
    first.bury()
    with Task.xq.acting("ann", reason="bad deploy"):
        Task.dig(first)
    other.kill()
    assert ascribed(Task, first.id) == [("put", None, None), ("bury", None, None), ("dig", "ann", "bad deploy")]
    assert ascribed(Task, other.id) == [("put", None, None), ("kill", None, None)]
    row = Task.xq.History.select().where(Task.xq.History.actor == "ann").get()
    assert (row.event, row.key, row.reason) == ("dig", str(first.id), "bad deploy")
    assert is_exact(Task)


@pytest.mark.parametrize(
    ("act", "events"),
    {
        "several at once": (lambda Task: Task.xq.kill_many([1, 2, 3]), ["kill"] * 3),
        "the oldest": (lambda Task: Task.dig(n=2), ["dig"] * 2),
        "all": (lambda Task: Task.xq.truncate(), ["kill"] * 3),
        "one twice": (lambda Task: (Task.dig(1), Task.kill(1)), ["dig", "kill"]),
        "a put": (lambda Task: Task.put(task()), ["put"]),
        "a take and its ack": (lambda Task: (Task.dig(1), Task.take().ack()), ["dig", "take", "ack"]),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_method_of_the_queue_is_ascribed(make, act, events):
    Task = make(FULL)
    for each in Task.xq.put_many(tasks(3)):
        each.bury()
    with Task.xq.acting("ann"):
        act(Task)
    assert [event for event, actor, _ in ascribed(Task) if actor == "ann"] == events
    assert {actor for _, actor, _ in ascribed(Task)[:6]} == {None}
    assert is_exact(Task)


def test_more_tasks_than_one_statement_names_are_ascribed(make):
    Task = make({"history": True})
    keys = [each.id for each in Task.xq.put_many(tasks(1_203))]
    with Task.xq.acting("ann", "all of them"):
        Task.xq.kill_many(keys)
    assert [row.actor for row in Task.xq.history()] == [None] * 1_203 + ["ann"] * 1_203


def test_an_exception_rolls_the_block_back_and_leaves_no_actor(make):
    Task = make(FULL)
    there = Task.put(task())
    with pytest.raises(xq.NotFound), Task.xq.acting("ann"):
        Task.xq.transaction(lambda: (Task.bury(there), Task.bury(99)))
    assert (Task.xq.peek(there).status, ascribed(Task)) == ("R", [("put", None, None)])
    Task.bury(there)
    assert ascribed(Task)[-1] == ("bury", None, None)


def test_a_block_is_part_of_the_application_s_transaction_and_of_blocks_the_inner_one_counts(make):
    Task = make(FULL)
    there = Task.put(task())
    with make.db.atomic() as transaction:
        with Task.xq.acting("ann"):
            with Task.xq.acting("ben", "he knows"):
                Task.bury(there)
            with suppress(xq.NotFound):  # a failure that is caught leaves the rest
                Task.bury(99)
            Task.dig(there)
        assert ascribed(Task)[1:] == [("bury", "ben", "he knows"), ("dig", "ann", None)]
        transaction.rollback()
    assert ascribed(Task) == [("put", None, None)]


def test_without_a_history_the_log_has_a_line_for_each_task(make, caplog):
    Task = make({"buried": True})
    first, other = Task.xq.put_many(tasks(2))
    with caplog.at_level(logging.INFO, f"xq.{Task.__name__}"):
        with Task.xq.acting("ann", reason="bad deploy"):
            Task.kill(first)
        with pytest.raises(xq.NotFound), Task.xq.acting("ann"):
            Task.xq.transaction(lambda: (Task.kill(other), Task.kill(99)))
        other.kill()
    assert [record.getMessage() for record in caplog.records] == [f"ann: kill {first.id}: bad deploy"]


@pytest.mark.parametrize("actor", ["", "  ", "a" * 256, "a\0b", 7, b"ann"])
def test_an_actor_is_a_text_that_every_database_holds(make, actor):
    Task = make({"history": True})
    with pytest.raises((xq.BadType, xq.BadValue), match="actor is"):
        Task.xq.acting(actor)
