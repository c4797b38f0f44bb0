"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import is_exact, row, transitions
from tests.support.batches import FEATURES, TARGETS, taken

KEYS: dict[str, Callable[[Any], Any]] = {
    "auto_increment": lambda make: {},
    "time64": lambda make: {"key": pw.BigIntegerField(primary_key=True)},
    "uuid": lambda make: {"key": pw.UUIDField(primary_key=True)},
    "text": lambda make: {"key": pw.CharField(max_length=36, primary_key=True)},
    "composite": lambda make: {
        "model": make.model(
            site=pw.CharField(),
            page=pw.IntegerField(),
            meta={"primary_key": pw.CompositeKey("site", "page")},
        )
    },
}


def brought(kind, n):
    """So many new tasks for a queue with keys of a kind."""
    if kind == "composite":
        return [task(site="ab"[i % 2], page=i) for i in range(n)]
    return tasks(n)


@pytest.fixture(params=[(), ("owner",)], ids=["side table", "role"])
def queue(make, request):
    return make(FEATURES, roles=("runat", "priority", "attempts", *request.param))


@pytest.mark.parametrize("kind", KEYS)
def test_tasks_of_every_kind_of_key_may_be_named_in_any_way_and_come_back_in_that_order(make, kind):
    Task = make(FEATURES, **KEYS[kind](make))
    for many, there in TARGETS.items():
        Task.xq.truncate()
        Task.xq.put_many(brought(kind, 7))
        held = Task.xq.take_many(4) + [Task.take() for _ in range(3)]
        order = [held[i] for i in (3, 0, 5, 1, 6, 4, 2)]
        named = [each if i % 2 else each.get_id() for i, each in enumerate(order)]
        if kind != "composite":
            named[2] = {"id": order[2].id}
        moved = getattr(Task.xq, many)(each for each in named)
        assert [each.get_id() for each in moved] == [each.get_id() for each in order], many
        assert {each.status for each in moved} == {"T" if there == "X" else there}, many
        assert Task.xq.taken() == getattr(Task.xq, many)([]) == []
    assert is_exact(Task)


def test_a_key_that_equals_none_in_the_database_is_refused_and_nothing_moves(make):
    Task = make(key=pw.DoubleField(primary_key=True))
    Task.xq.put_many([{"id": 1.0}, {"id": 2.0}])
    Task.xq.take_many(2)
    with pytest.raises(xq.Error):
        Task.xq.ack_many([1.0, float("nan")])
    assert Task.xq.count("T") == 2


@pytest.mark.parametrize("kind", ["auto_increment", "text", "uuid", "composite"])
def test_thousands_are_moved_at_once(make, kind):
    Task = make(FEATURES, **KEYS[kind](make))
    Task.xq.put_many(brought(kind, 1500))
    for many, left in [("release_many", "R"), ("bury_many", "B")]:
        held = Task.xq.take_many(1500)
        with pytest.raises(xq.BadValue, match="twice"):
            getattr(Task.xq, many)([*held, held[0].get_id()])
        assert len(getattr(Task.xq, many)(held)) == 1500
        assert Task.xq.count(left) == 1500
        if many == "bury_many":
            assert [each.get_id() for each in Task.plow()] == [each.get_id() for each in held]
    held = Task.xq.take_many(1500)
    assert Task.xq.release_all() == len(held) == 1500
    assert len(Task.xq.kill_many([each.get_id() for each in Task.select()][:900])) == 900
    assert Task.xq.truncate() == 600
    assert is_exact(Task)


# all or none


@pytest.mark.parametrize("many", TARGETS)
def test_one_that_is_missing_stops_them_all(queue, many):
    held = taken(queue, 4)
    before = transitions(queue)
    for place in (0, 2, 4):
        named = [each.id for each in held]
        named.insert(place, 999)
        with pytest.raises(xq.NotFound) as missing:
            getattr(queue.xq, many)(named)
        assert missing.value.key == 999
    assert transitions(queue) == before
    assert queue.xq.count("T") == 4
    assert len(queue.xq.taken()) == 4


@pytest.mark.parametrize("many", ["ack_many", "release_many", "bury_many"])
def test_one_of_another_session_stops_them_all(queue, many):
    with queue.xq.session():
        theirs = taken(queue, 1)
        with queue.xq.session():
            mine = taken(queue, 3)
            with pytest.raises(xq.NotOwner) as refused:
                getattr(queue.xq, many)([*mine, theirs[0].id])
            assert refused.value.key == theirs[0].id
            assert queue.xq.count("T") == 4
            assert len(getattr(queue.xq, many)(mine)) == 3


def test_one_of_an_earlier_take_stops_them_all(queue):
    stale, *rest = taken(queue, 3)
    queue.release(stale)
    queue.take()
    with pytest.raises(xq.NotOwner):
        queue.xq.ack_many([*rest, stale])
    assert queue.xq.count("T") == 3


def test_thousands_are_moved_all_or_none(make):
    Task = make(FEATURES)
    held = taken(Task, 2500)
    with pytest.raises(xq.NotFound):
        Task.xq.ack_many([*(each.id for each in held), 99999])
    assert Task.xq.count("T") == 2500
    assert is_exact(Task)


@pytest.mark.parametrize("many", TARGETS)
def test_a_task_must_not_be_named_twice(queue, many):
    one, two = taken(queue, 2)
    for named in ([one, two, one], [one.id, one], [one.id, one.id]):
        with pytest.raises(xq.BadValue, match="twice"):
            getattr(queue.xq, many)(named)
    assert queue.xq.count("T") == 2


def test_one_that_is_no_key_stops_them_all(queue):
    held = taken(queue, 2)
    for bad in [None, 1.5, "x", True, object()]:
        with pytest.raises((xq.BadType, xq.BadValue)):
            queue.xq.ack_many([*held, bad])
    assert queue.xq.count("T") == 2


def test_keys_are_matched_exactly(make):
    # MariaDB takes "a" and "A" for one key, unless the column is declared otherwise.
    collation = "utf8mb4_nopad_bin" if isinstance(make.db, pw.MySQLDatabase) else None
    Task = make(FEATURES | {"id": "required"}, key=pw.CharField(primary_key=True, collation=collation))
    odd = ["1", "01", " 1", "1.0", "é", "e\u0301", "🦆", 'a"b', "a'b", "\\", "null", "[1]", "A", "a"]
    for key in odd:
        Task.put(task(id=key))
    held = Task.xq.take_many(len(odd))
    assert [each.id for each in Task.xq.ack_many(odd)] == odd
    assert len(held) == len(odd)


@pytest.mark.parametrize("another", ["A", "á", "a ", "a\t"])
def test_a_key_that_a_collation_takes_for_the_same_is_another(make, another):
    Task = make(FEATURES | {"id": "required"}, key=pw.CharField(primary_key=True))
    Task.put(task(id="a"))
    with pytest.raises(xq.NotFound):
        Task.xq.peek(another)
    Task.take()
    with pytest.raises(xq.NotFound):
        Task.ack(another)
    with pytest.raises(xq.NotFound):
        Task.xq.ack_many([another, "b"])
    assert Task.xq.count("T") == 1


def test_large_keys_are_matched_exactly(make):
    Task = make(FEATURES | {"id": "required"}, key=pw.BigIntegerField(primary_key=True))
    large = [2**63 - 1, 2**63 - 2, 2**53 + 1, 2**53, -(2**63), 0]
    Task.xq.put_many([task(id=key) for key in large])
    Task.xq.take_many(len(large))
    assert [each.id for each in Task.xq.ack_many(large)] == large


@pytest.mark.parametrize("kind", KEYS)
def test_each_task_is_given_fields_of_its_own(make, kind):
    Task = make(FEATURES, **KEYS[kind](make))
    Task.xq.put_many(brought(kind, 123))
    held = Task.xq.take_many(123)
    updates: list[dict[str, Any]] = [{"name": f"done {i}", "size": -i} for i in range(123)]
    updates[5], updates[7], updates[9] = {}, {"name": None}, {"size": 7}
    done = Task.xq.ack_many(held, update=updates)
    wanted = [(before.name, before.size) for before in held]
    wanted = [(u.get("name", name), u.get("size", size)) for u, (name, size) in zip(updates, wanted, strict=True)]
    assert [(each.name, each.size) for each in done] == wanted
    assert [(each.name, each.size, each.status) for each in (row(Task, found) for found in held)] == [
        (name, size, "D") for name, size in wanted
    ]
    assert is_exact(Task)


def test_fields_of_their_own_are_written_all_or_none(queue):
    held = taken(queue, 3)
    queue.xq.release(held[1])
    with pytest.raises(xq.WrongState):
        queue.xq.ack_many(held, update=[{"name": "written"}] * 3)
    for bad in ([{"name": "one"}], [{}, {}, {"nothing": 1}], [{}, {}, {"status": "R"}], [{}, {}, 5], 5, "abc"):
        with pytest.raises((xq.BadType, xq.BadValue)):
            queue.xq.ack_many(held, update=bad)
    assert not [found for found in queue.select() if found.name in ("written", "one")]
    assert queue.xq.count("T") == 2


def test_why_tasks_were_buried_is_written_into_the_role_error(make):
    Task = make(FEATURES, roles=("runat", "error"), attributes={"error": pw.TextField(null=True)})
    held = taken(Task, 4)
    Task.xq.bury_many(held[:2], error=["too small", None], update={"size": 1})
    Task.xq.bury_many(held[2:], error="too large")
    assert [(each.status, each.error, each.size) for each in Task.select().order_by(Task.id)] == [
        ("B", "too small", 1),
        ("B", None, 1),
        ("B", "too large", held[2].size),
        ("B", "too large", held[3].size),
    ]
    for bad in (["one"], [5], 5):
        with pytest.raises((xq.BadType, xq.BadValue)):
            Task.xq.bury_many(held[:2], error=bad)


def test_an_error_needs_a_role_for_it(queue):
    with pytest.raises(xq.FeatureOff, match="role 'error'"):
        queue.xq.bury_many(taken(queue, 1), error="why")
    assert queue.xq.count("T") == 1


def test_many_tasks_are_touched_at_once(queue):
    held = taken(queue, 5)
    touched = queue.xq.touch_many(held[:3], 30)
    assert [after.runat - before.runat for before, after in zip(held, touched, strict=False)] == [30, 30, 30]
    queue.xq.release(held[4])
    with pytest.raises(xq.WrongState):
        queue.xq.touch_many(held[3:], 30)
    assert row(queue, held[3]).runat == held[3].runat
    with pytest.raises(xq.BadValue):
        queue.xq.touch_many(held[:3], -1)
