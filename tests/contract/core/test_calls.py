"""What a call returns, what stands in the row, and what is counted: one table, for one task and for several at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.features import EXAMPLES, alone, own_fields
from tests.steps import bring, empty, is_exact, row, state, transitions

ALL = {"buried": True, "delayed": True, "ttl": 10, "ttr": 20}
QUEUES: dict[str, dict[str, Any]] = {
    "zombie": {"features": ALL | {"zombie": 30}, "roles": ("runat", "priority", "owner", "attempts")},
    "keep": {"features": {"buried": True, "delayed": True, "keep": True}, "roles": ("runat", "attempts")},
    "chain": {"features": {"buried": True, "delayed": True}, "roles": ("runat", "tube", "attempts")},
    "delete": {},
    "any": {"features": {"buried": "any", "delayed": True, "keep": True}},
    "forever": {"features": {"ttl": True, "ttr": True, "zombie": True}},
    "ttl": {"features": {"ttl": 10}},
    "own seconds": {"features": ALL, "roles": ("runat", "ttl", "ttr")},
    "lifetime": {
        "features": {"lifetime": 100, "delayed": True, "keep": True, "buried": True},
        "roles": ("runat", "deadline", "attempts"),
    },
}
OPERATORS = ("dig", "kill", "cancel", "snatch", "restart", "switch")  # whose events are for any session
NEW = {"name": "new", "size": 9}

# queue -> the state before (X: there is no task yet), the event, its options; the state after (X: the task is gone),
# the seconds until its timer, and fields that it then has
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "zombie": [
        ("X", "put", {}, "R", 10, {"owner": None, "attempts": 0}),
        ("X", "put", {"delay": 0.5}, "W", 0.5),
        ("X", "put", {"delay": 9e9}, "W", 9e9),
        ("X", "put", {"ttl": 3}, "R", 3),
        ("X", "put", {"ttl": math.inf}, "R", None),
        ("X", "put", {"delay": None, "ttl": None}, "R", 10),
        ("R", "take", {}, "T", 20, {"attempts": 1}),
        ("R", "take", {"ttr": 5}, "T", 5),
        ("R", "take", {"ttr": math.inf}, "T", None),
        ("T", "release", {}, "R", 10, {"owner": None, "attempts": 1}),
        ("T", "release", {"ttl": 4}, "R", 4),
        ("T", "release", {"delay": 5, "update": NEW}, "W", 5, {"owner": None, **NEW}),
        ("T", "bury", {}, "B", None, {"owner": None, "attempts": 1}),
        ("T", "ack", {"update": NEW}, "Z", 30, {"owner": None, **NEW}),
        ("T", "ack", {"delay": math.inf}, "Z", None),
        ("T", "touch", {"increment": 5}, "T", 25, {"attempts": 1}),
        ("T", "touch", {"increment": 0.5}, "T", 20.5),
        ("T", "touch", {"increment": 0}, "T", 20),
        ("B", "dig", {"ttl": 3, "update": NEW}, "R", 3, NEW),
        ("B", "kill", {}, "X", None),
        *((here, "cancel", {}, "X", None) for here in "RWT"),
        *((here, "cancel", {"to": "B"}, "B", None, {"owner": None}) for here in "RWT"),
        ("T", "cancel", {"to": "buried"}, "B", None, {"attempts": 1}),
        ("T", "snatch", {"delay": 5}, "W", 5, {"owner": None}),
        ("B", "switch", {"to": "R", "ttl": 7}, "R", 7),
    ],
    "keep": [
        ("T", "release", {"update": {}}, "R", None, {"name": "put"}),
        ("T", "bury", {"update": NEW}, "B", None, NEW),
        ("T", "ack", {"update": None}, "D", None, {"name": "put", "attempts": 1}),
        ("D", "restart", {"fresh": True}, "R", None, {"attempts": 0}),
    ],
    "chain": [
        ("T", "release", {"tube": "next", "update": NEW}, "R", None, {"tube": "next", "attempts": 1, **NEW}),
        ("T", "release", {"tube": "next", "attempts": 0, "delay": 5}, "W", 5, {"tube": "next", "attempts": 0}),
        ("T", "release", {"tube": None, "attempts": None}, "R", None, {"tube": None, "attempts": 1}),
        ("B", "dig", {"fresh": True, "delay": 5}, "W", 5, {"attempts": 0}),
        ("B", "plow", {"fresh": True, "update": NEW}, "R", None, {"attempts": 0, **NEW}),
    ],
    "delete": [
        ("T", "ack", {}, "X", None, {"name": "put"}),
        ("T", "ack", {"update": {"name": "new"}}, "X", None, {"name": "new", "size": 1}),
    ],
    "any": [*((here, "bury", {}, "B", None) for here in "WRTBD"), ("B", "bury", {"update": NEW}, "B", None, NEW)],
    "forever": [
        ("X", "put", {}, "R", None),
        ("X", "put", {"ttl": 5}, "R", 5),
        ("R", "take", {"ttr": 5}, "T", 5),
        ("T", "touch", {"increment": 5}, "T", 5),  # from now, where there was no time
        ("T", "ack", {}, "Z", None),
        ("T", "ack", {"delay": 0}, "Z", 0),
    ],
    "own seconds": [
        ("X", "put", {"delay": 5, "ttl": 3, "ttr": 7}, "W", 5, {"ttl": 3, "ttr": 7}),
        ("X", "put", {"task": {"ttl": 3, "ttr": 7}}, "R", 3, {"ttl": 3, "ttr": 7}),
        ("T", "release", {"delay": 5, "ttl": 3, "ttr": 7}, "W", 5, {"ttl": 3, "ttr": 7}),
        ("B", "dig", {"delay": 5, "ttl": 3}, "W", 5, {"ttl": 3}),
    ],
    "lifetime": [
        ("X", "put", {"delay": 5}, "W", 5, {"deadline": 105}),
        ("X", "put", {"delay": 5, "ttl": 50}, "W", 5, {"deadline": 55}),
        ("X", "put", {"delay": 5, "ttl": math.inf}, "W", 5, {"deadline": None}),
        ("T", "bury", {}, "B", None, {"deadline": 100}),
        ("T", "touch", {"increment": 5}, "T", None, {"deadline": 105}),
    ],
}

for _name, _example in EXAMPLES.items():
    if _example.calls:
        _features = alone(_name)
        _roles = ("runat", "deadline", "priority", "owner", *own_fields(_features))
        QUEUES[f"feature {_name}"] = {"features": _features, "roles": tuple(dict.fromkeys(_roles))}
        CALLS[f"feature {_name}"] = [*_example.calls]

WRONG = (xq.BadType, xq.BadValue)
# queue -> the state before (X: nothing has the key), the event, its options; the error, and what it says or carries
REFUSED: dict[str, list[tuple[Any, ...]]] = {
    "zombie": [
        ("R", "ack", {}, xq.WrongState, {"state": "R", "allowed": ("T",)}),
        *(("X", event, {}, xq.NotFound, {}) for event in ("ack", "release", "bury", "kill", "cancel", "dig", "peek")),
        *((here, "cancel", {}, xq.WrongState, {"state": here, "allowed": ("R", "T", "W")}) for here in "BZ"),
        *(("T", "cancel", {"to": to}, xq.BadValue, "to='B'") for to in ("R", "X", "", 5)),
        *(("T", "ack", {"update": {own: 1}}, xq.BadValue, own) for own in QUEUES["zombie"]["roles"]),
        *(("T", "ack", {"update": {key: 1}}, xq.BadValue, str(key)) for key in ("status", "id", "nonsense", 1)),
        ("T", "ack", {"update": 5}, xq.BadType, "update"),
        *(("T", "touch", {"increment": n}, WRONG, "") for n in (-1, math.inf, math.nan, "5", None)),
        *(("X", "put", {"delay": n}, WRONG, "delay") for n in (-1, math.nan, math.inf, 1e11, "1", True)),
        *(("X", "put", {"ttl": n}, WRONG, "ttl") for n in (-1, math.nan, "1", True)),
        *(("T", event, {"delay": math.inf}, xq.BadValue, "delay") for event in ("release", "snatch")),
        *((here, event, {"delay": math.inf}, xq.BadValue, "delay") for here, event in (("B", "dig"), ("Z", "restart"))),
        ("R", "switch", {"to": "W", "delay": math.inf}, xq.BadValue, "delay"),
        *((here, "switch", {"to": "W"}, xq.BadValue, "delay") for here in "RB"),
        *(("R", "switch", {"to": to}, xq.BadValue, "R, W, B, Z|switch") for to in ("D", "T", "X", None, ["R"])),
        *(("R", "switch", {"to": to, name: 5}, WRONG, name) for to, name in (("B", "delay"), ("Z", "ttl"))),
        ("X", "put", {"delay": 5, "ttl": 3}, xq.FeatureOff, {"role": "ttl"}),
        ("T", "release", {"delay": 5, "ttl": 3}, xq.FeatureOff, {"role": "ttl"}),
        ("B", "dig", {"delay": 5, "ttl": 3}, xq.FeatureOff, {"role": "ttl"}),
        ("X", "put", {"ttr": 3}, xq.FeatureOff, {"role": "ttr"}),
        ("T", "release", {"ttr": 3}, xq.FeatureOff, {"role": "ttr"}),
        *(("R", "take_many", {"n": n}, WRONG, "") for n in (-1, True, 1.0, "1", None)),
        *(("B", "plow", {"n": n}, WRONG, "") for n in (-1, True, 1.5, "2")),
        *(("R", call, {"state": at}, xq.BadValue, "") for call in ("by_state", "count") for at in ("D", "X", "?", 5)),
    ],
    "keep": [
        ("T", "touch", {"increment": 5}, xq.FeatureOff, "ttr"),
        ("T", "release", {"tube": "next"}, xq.FeatureOff, {"role": "tube"}),
    ],
    "chain": [
        *(("T", "release", {"tube": tube}, xq.BadType, "named by text") for tube in (5, True, b"next")),
        *(("T", "release", {"attempts": n}, WRONG, "attempts is an integer") for n in (-1, True, "1", 2**31)),
        ("T", "release", {"update": {"tube": "next"}}, xq.BadValue, "tube=...\\) moves it"),
        ("T", "ack", {"tube": "next"}, xq.BadType, "no option 'tube'"),
        ("B", "dig", {"fresh": 1}, xq.BadType, "fresh is True or False"),
    ],
    "delete": [
        *((here, "cancel", {"to": "B"}, xq.FeatureOff, "buried") for here in "RT"),
        ("T", "release", {"attempts": 0}, xq.FeatureOff, {"role": "attempts"}),
        ("T", "dig", {"fresh": True}, xq.FeatureOff, "buried"),
    ],
    "ttl": [("T", "touch", {"increment": 5}, xq.WrongState, {"state": "T", "allowed": ("R",)})],
    "own seconds": [
        *(("X", "put", {"task": {own: 5}, own: 5}, xq.BadValue, own) for own in ("ttl", "ttr")),
        *(("X", "put", {"ttr": n}, WRONG, "ttr") for n in (-1, math.nan, "1", True)),
    ],
}  # fmt: skip
KEYLESS = ("put", "take", "take_many", "plow", "by_state", "count")


def name_of(line: tuple[Any, ...]) -> str:
    """How a line of a table is called where it fails."""
    return f"{line[0]} {line[1]}({', '.join(f'{name}={value!r}' for name, value in line[2].items())})"


def ways(Task: Any, event: str, keys: list[Any], options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """How a call is made, of the last of these tasks alone or of them all, and what makes it and returns a list."""
    many: Any = getattr(Task.xq, f"{event}_many", None)
    if event in ("put", "take"):
        rest = {name: value for name, value in options.items() if name != "task"}
        brought = ([options.get("task", {})] * 2,) if event == "put" else (2,)
        yield "one", lambda: [getattr(Task.xq, event)(**options)]
        yield "many", lambda: many(*brought, **rest)
    elif event in KEYLESS:
        yield "one", lambda: getattr(Task.xq, event)(**options)
    else:
        yield "one", lambda: [getattr(Task.xq, event)(keys[-1], **options)]
        if many:
            yield "many", lambda: many(keys[::-1], **options)[::-1]


def anyone(Task: Any, queue: str, event: str) -> Any:
    """Another session than that which took, for what needs no owner."""
    return Task.xq.session() if event in OPERATORS or (queue, event) == ("any", "bury") else nullcontext()


@pytest.mark.parametrize("queue", CALLS)
def test_a_call_returns_writes_and_counts_what_its_line_says(make, queue, subtests):
    Task = make(**QUEUES[queue])
    for here, event, options, there, seconds, *more in CALLS[queue]:
        for i, way in enumerate(("one", "many")):
            line = f"{way}: {name_of((here, event, options))}"
            with subtests.test(line):
                empty(Task)
                n = 1 if here == "X" and not i else 2 if event in ("put", "take") and i else 1 + i
                held = [] if here == "X" else [bring(Task, here, task(name="put", size=1)) for _ in range(n)]
                call = dict(ways(Task, event, held, options)).get(way)
                if call is None:
                    continue
                before, seen, now = [dict(each.__data__) for each in held], transitions(Task), Task.xq.clock.now
                keyed = held if event not in KEYLESS else []
                with anyone(Task, queue, event):
                    returned = call()
                assert len(returned) == n, line
                assert [each.id for each in returned][: len(held)] == [each.id for each in held], line
                assert [each.__data__ for each in held] == before, f"{line}: the objects stay as they are"
                assert not any(new is old for new, old in zip(returned, keyed, strict=False)), line
                wanted = {"status": here if there == "X" else there} | (more[0] if more else {})
                wanted |= {} if there == "X" else {"runat": seconds}
                for each in returned:
                    found = {name: getattr(each, name) for name in wanted}
                    for timer in {"runat", "deadline"} & found.keys():
                        found[timer] = found[timer] and found[timer] - now
                    assert found == wanted, line
                    after = row(Task, each)
                    assert after is None if there == "X" else after.__data__ == each.__data__, line
                assert transitions(Task) - seen == ({} if here == there else {f"{here}-{there}": n}), line
                assert is_exact(Task), line


@pytest.mark.parametrize("queue", REFUSED)
def test_a_call_that_is_refused_says_why_and_moves_none_of_its_tasks(make, queue, subtests):
    Task = make(**QUEUES[queue])
    sources = Task.xq.machine.sources
    for here, event, options, error, says in REFUSED[queue]:
        line = name_of((here, event, options))
        with subtests.test(line):
            empty(Task)
            keys: list[Any] = [999_999 if here in "XR" else bring(Task, here)]
            if event not in KEYLESS and event != "peek":
                good = here if here in sources(event) else (sources(event) or "T")[0]
                keys[:0] = [bring(Task, good) for _ in range(2)]
            if here == "R":  # the last to be put, or it would be taken
                keys[-1] = bring(Task, here)
            before, counted = [each.__data__ for each in Task.select()], Task.xq.stats()
            for way, call in ways(Task, event, keys, options):
                with pytest.raises(error, match=says if isinstance(says, str) and says else None) as refused:
                    call()
                if isinstance(says, dict):
                    carried = {name: getattr(refused.value, name) for name in says}
                    assert carried == says, (way, line)
                if error in (xq.WrongState, xq.NotFound):
                    assert refused.value.key == getattr(keys[-1], "id", keys[-1]), (way, line)
                assert [each.__data__ for each in Task.select()] == before, (way, line)
                assert Task.xq.stats() == counted, (way, line)


def test_to_bury_what_is_buried_is_no_move_but_for_an_update(make):
    Task = make({"buried": "any", "events": True, "history": True})
    there = bring(Task, "B")
    told: list[tuple[str, ...]] = []
    Task.xq.on_change(lambda task, *what: told.append(what))
    before = Task.stats()
    assert Task.bury(there.id).status == Task.xq.bury_many([there.id])[0].status == "B"
    assert (told, Task.stats(), len(Task.xq.history())) == ([], before, 3)
    assert Task.bury(there.id, update={"name": "new"}).name == "new"
    assert Task.xq.bury_many([there.id], update={"name": "newer"})[0].name == "newer"
    assert told == [("bury", "B", "B")] * 2
    assert Task.stats().by_event["bury"] == {"T-B": 1, "B-B": 2}


def test_an_update_is_converted_as_the_fields_say(make):
    class Words(pw.TextField):
        def db_value(self, value):
            return " ".join(value)

        def python_value(self, value):
            return None if value is None else value.split()

    Task = make({"keep": True}, attributes={"words": Words(null=True), "flag": pw.BooleanField(default=False)})
    done = bring(Task, "T").ack(update={"words": ["a", "b"], "flag": True, "name": None})
    assert (done.words, done.flag, done.name) == (["a", "b"], True, None)
    assert row(Task, done).__data__ == done.__data__


def test_an_update_that_the_database_refuses_leaves_all_tasks_as_they_were(make):
    Task = make({"keep": True}, attributes={"code": pw.IntegerField(unique=True, null=True)})
    Task.put({"code": 1, "priority": 9})
    held = [bring(Task, "T") for _ in range(3)]
    for call in (lambda: held[0].ack(update={"code": 1}), lambda: Task.xq.ack_many(held, update={"code": 2})):
        with pytest.raises(pw.IntegrityError):
            call()
        assert [row(Task, each).__data__ for each in held] == [each.__data__ for each in held]
    assert held[0].ack(update={"code": 2}).code == 2


# those that name no task


@pytest.fixture
def queue(make):
    return make(**QUEUES["zombie"])


def buried(Task: Any, n: int) -> list[int]:
    """The keys of so many buried tasks."""
    Task.xq.put_many(tasks(n))
    return [each.id for each in Task.xq.bury_many(Task.xq.take_many(n))]


def test_dig_takes_a_key_or_a_number_and_a_number_alone_is_the_key(queue):
    first, second = buried(queue, 2)
    for call in (queue.dig, queue.kick):
        for arguments in ({}, {"key": first, "n": 2}):
            with pytest.raises(xq.BadType):
                call(**arguments)
    assert queue.kick(second).id == second
    assert state(queue, first) == "B"


def test_any_number_of_tasks_may_be_asked_for(queue):
    huge = 10**5000  # so long that Python refuses to write it down
    queue.xq.put_many(tasks(2))
    assert len(queue.xq.take_many(huge)) == 2
    assert queue.dig(n=huge) == []
    assert len(queue.xq.by_state("T", huge)) == 2


def test_to_look_at_tasks_changes_nothing(queue):
    there = {here: bring(queue, here) for here in "BZWT"}
    names = [("b", 1), ("c", 2), ("a", None)]
    queue.xq.put_many([task(name=name, priority=priority) for name, priority in names])
    seen = queue.stats()
    for here, found in there.items():
        for named in (found.id, found, {"id": found.id}):
            assert queue.xq.peek(named).__data__ == found.__data__
        assert [each.id for each in queue.xq.by_state(here)] == [found.id]
    assert [each.name for each in queue.xq.by_state("R")] == ["a", "b", "c"]
    assert [queue.xq.count(here) for here in ("B", "Z", "W", "T", "R", None)] == [1, 1, 1, 1, 3, 7]
    assert queue.stats() == seen


def test_each_call_that_moves_tasks_shows_the_statements_that_it_runs(make):
    queue = make({"buried": True, "delayed": True, "keep": True}, roles=("runat", "tube")).xq
    for event in ("put", "take", "ack", "release", "bury", "dig", "kill"):
        assert "task" in queue.sql(event), event
    assert "INSERT" in queue.sql("put", "delay", n=3)
    assert "name" in queue.sql("ack", update=["name"])
    assert ":tube" in queue.sql("take", "timeout", "tube")
    assert queue.sql("kill").count("DELETE") == len("RTWBD")


def test_a_state_of_the_users_own_is_a_state(make):
    park = xq.Feature(
        "park",
        needs=("runat",),
        transitions=(
            xq.Transition("T", "park", "P", fenced=True),
            xq.Transition("P", "drive", "R"),
            xq.Transition("P", "post", "P", follows=False, sets="tube"),
        ),
        timers=(xq.Timer("P", "tow", "X", option="rest", default=100),),
    )
    why = xq.Feature("why", columns=(xq.Column("error", at={"P": "parked"}, otherwise=None),))
    fields = {"status": "status", "runat": "runat", "error": "name", "tube": "tube"}
    Task = make({"park": park, "why": why}, fields=fields)
    now = Task.xq.clock.now
    parked = Task.xq.call("park", bring(Task, "T", {}))
    assert (parked.status, parked.runat, parked.name) == ("P", now + 100, "parked")
    assert [each.id for each in Task.xq.by_state("P")] == [parked.id]
    posted = Task.xq.call("post", parked.id, tube="here")
    assert (posted.status, posted.runat, posted.tube) == ("P", now + 100, "here")
    with pytest.raises(xq.BadType, match="it takes tube"):
        Task.xq.call("post", parked.id, size=5)
    assert Task.xq.call("drive", parked.id).name is None
    assert Task.xq.call("park", Task.take(), rest=5).runat == now + 5
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    assert transitions(Task)["P-X"] == 1
    assert is_exact(Task)
