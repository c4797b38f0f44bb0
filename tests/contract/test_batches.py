"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, exact_collation, is_exact, row, transitions
from tests.support.calls import BATCHES, TARGETS

PAIR = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
KEYS: dict[str, dict[str, Any]] = {
    "auto_increment": {},
    "uuid": {"id": pw.UUIDField(primary_key=True)},
    "text": {"id": pw.CharField(max_length=36, primary_key=True)},
    "composite": PAIR,
}


def taken(Task, n):
    """So many taken tasks."""
    Task.xq.put_many(tasks(n))
    return Task.xq.take_many(n)


def of_keys(make, kind, n):
    """A queue with keys of a kind, and so many new tasks."""
    Task = make(BATCHES, model=make.model(**copy.deepcopy(KEYS[kind])))
    return Task, [task(site="ab"[i % 2], page=i) for i in range(n)] if kind == "composite" else tasks(n)


@pytest.fixture
def queue(make):
    return make(BATCHES, roles=("runat", "priority", "attempts"))


@pytest.mark.parametrize("kind", KEYS)
def test_tasks_of_every_kind_of_key_may_be_named_in_any_way_and_come_back_in_that_order(make, kind):
    Task, brought = of_keys(make, kind, 7)
    for many, there in TARGETS.items():
        Task.xq.truncate()
        Task.xq.put_many(brought)
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


@pytest.mark.parametrize("kind", KEYS)
def test_thousands_are_moved_at_once(make, kind):
    Task, brought = of_keys(make, kind, 1500)
    Task.xq.put_many(brought)
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


@pytest.mark.parametrize(("many", "n"), [*((many, 4) for many in TARGETS), ("ack_many", 2500)])
def test_one_that_is_missing_or_named_twice_stops_them_all(queue, many, n):
    held = taken(queue, n)
    keys, before = [each.id for each in held], transitions(queue)
    for place in (0, 2, n):
        with pytest.raises(xq.NotFound) as missing:
            getattr(queue.xq, many)([*keys[:place], 9999, *keys[place:]])
        assert missing.value.key == 9999
    for named in ([*held, held[0]], [keys[0], held[0]], [keys[0]] * 2):
        with pytest.raises(xq.BadValue, match="twice"):
            getattr(queue.xq, many)(named)
    assert transitions(queue) == before
    assert queue.xq.count("T") == len(queue.xq.taken()) == n
    assert is_exact(queue)


def test_one_of_another_session_or_of_an_earlier_take_stops_them_all(queue):
    with queue.xq.session():
        theirs = taken(queue, 1)
        with queue.xq.session():
            stale, *rest = taken(queue, 3)
            queue.release(stale)
            queue.take()
            for many, one in product(("ack_many", "release_many", "bury_many"), (theirs[0].id, stale)):
                with pytest.raises(xq.NotOwner) as refused:
                    getattr(queue.xq, many)([*rest, one])
                assert refused.value.key == getattr(one, "id", one)
            assert queue.xq.count("T") == 4
            assert len(queue.xq.ack_many(rest)) == 2


@pytest.mark.parametrize("kind", KEYS)
def test_of_tasks_of_several_takes_each_needs_its_own(make, kind):
    Task, new = of_keys(make, kind, 5)
    Task.xq.put_many(new)
    stale, *held = [Task.take() for _ in range(5)]
    Task.xq.release(stale)
    again = Task.take()
    for many in ("ack_many", "release_many", "bury_many"):
        with pytest.raises(xq.NotOwner) as refused:
            getattr(Task.xq, many)([held[0], stale, *held[1:]])
        assert refused.value.key == stale.get_id()
    assert Task.xq.count("T") == 5
    mine = [held[3], again, held[1]]
    keys = [each.get_id() for each in mine]
    mixed = [mine[0], keys[1], mine[2]]  # what has no token is this session's
    assert [each.get_id() for each in Task.xq.release_many(mixed)] == keys
    Task.xq.ack_many([held[2], held[0]])
    assert [Task.xq.count(state) for state in "RTD"] == [3, 0, 2]
    assert is_exact(Task)


def test_tasks_of_several_states_come_back_in_their_order(make):
    Task = make({**BATCHES, "buried": "any"})
    named = buried, held, ready = [bring(Task, state) for state in "BTR"]
    assert [buried.status, held.status, ready.status] == ["B", "T", "R"]
    assert [(each.id, each.status) for each in Task.xq.bury_many(named)] == [(each.id, "B") for each in named]
    with pytest.raises(xq.NotFound):
        Task.xq.kill_many([*named, 9999])
    assert [each.id for each in Task.xq.kill_many(named)] == [each.id for each in named]
    assert is_exact(Task)


def test_keys_are_matched_exactly(make):
    # MariaDB takes "a" and "A" for one key, unless the column is declared otherwise.
    collation = exact_collation(make.db)
    Task = make(BATCHES | {"id": "required"}, key=pw.CharField(primary_key=True, collation=collation))
    odd = ["1", "01", " 1", "1.0", "é", "e\u0301", "🦆", 'a"b', "a'b", "\\", "null", "[1]", "A", "a"]
    Task.xq.put_many([task(id=key) for key in odd])
    assert len(Task.xq.take_many(len(odd))) == len(odd)
    assert [each.id for each in Task.xq.ack_many(odd)] == odd


@pytest.mark.parametrize("another", ["A", "á", "a ", "a\t"])
def test_a_key_that_a_collation_takes_for_the_same_is_another(make, another):
    Task = make(BATCHES | {"id": "required"}, key=pw.CharField(primary_key=True))
    Task.put(task(id="a"))
    Task.take()
    for call in (Task.xq.peek, Task.ack, lambda key: Task.xq.ack_many([key, "b"])):
        with pytest.raises(xq.NotFound):
            call(another)
    assert Task.xq.count("T") == 1


@pytest.mark.parametrize("kind", KEYS)
def test_each_task_is_given_fields_of_its_own(make, kind):
    Task, brought = of_keys(make, kind, 123)
    Task.xq.put_many(brought)
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
    Task = make(BATCHES, roles=("runat", "error"), attributes={"error": pw.TextField(null=True)})
    held = taken(Task, 3)
    for bad in (["one"], [5], 5):
        with pytest.raises((xq.BadType, xq.BadValue)):
            Task.xq.bury_many(held[:2], error=bad)
    Task.xq.bury_many(held[:2], error=["too small", None], update={"size": 1})
    Task.xq.bury_many(held[2:], error="too large")
    found = [(each.status, each.error, each.size) for each in Task.select().order_by(Task.id)]
    assert found == [("B", "too small", 1), ("B", None, 1), ("B", "too large", held[2].size)]


def test_many_tasks_are_touched_at_once_or_none(queue):
    held = taken(queue, 3)
    touched = queue.xq.touch_many(held, 30)
    assert [after.runat - before.runat for before, after in zip(held, touched, strict=True)] == [30, 30, 30]
    sizes = [{"size": 5}, {}, {"size": 7}]
    assert [each.size for each in queue.xq.touch_many(held, update=sizes)] == [5, held[1].size, 7]
    queue.xq.release(held[2])
    with pytest.raises(xq.WrongState):
        queue.xq.touch_many(held, 30, update={"size": 9})
    assert row(queue, held[0]).size == 5
    assert row(queue, held[0]).runat == touched[0].runat
