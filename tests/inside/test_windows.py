"""`dur_us` of a part of the history: exact, and without reading the whole history, on every database."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from tests.support.extract import rows, unpickled
from xq.adapters.databases import readers
from xq.adapters.databases.named import by_position
from xq.pipeline.scan import Condition, Part

AT = 1_700_000_000_000_000
COLUMNS = ("id", "at_us", "key", "source", "target", "event")
Rows = list[tuple[Any, ...]]


def fill(Task: Any, found: Rows) -> None:
    History = Task.xq.History
    with Task._meta.database.atomic():
        several = iter(found)
        while some := [*islice(several, 1_000)]:
            History.insert_many(some, [getattr(History, name) for name in COLUMNS]).execute()


def flow(tasks: int, backlog: int) -> Rows:
    """So many tasks that are put, taken and acked, as many as `backlog` of them at a time."""
    moves: list[tuple[int, str, str, str, str]] = []
    for n in range(tasks):
        moves.append((n, f"{n}", "X", "R", "put"))
        if n >= backlog:
            moves += [(n, f"{n - backlog}", "R", "T", "take"), (n, f"{n - backlog}", "T", "D", "ack")]
    return [(i, AT + at * 1_000 + i, *move) for i, (at, *move) in enumerate(moves, 1)]


def spent(found: Rows) -> dict[int, int | None]:
    """The time in the state that each row left, by the id of the row."""
    last: dict[str, int] = {}
    told: dict[int, int | None] = {}
    for id_, at_us, key, source, *_ in found:
        told[id_] = at_us - last[key] if key in last and source != "X" else None
        last[key] = at_us
    return told


def a_history(chance: random.Random) -> Rows:
    """Any transitions of some tasks, the first of which are not the first of their tasks, with gaps in the ids."""
    state: dict[str, str] = {}
    found, id_, at_us = [], 0, AT
    for _ in range(400):
        id_, at_us, key = id_ + chance.choice([1, 1, 2, 9]), at_us + chance.randrange(1_000), str(chance.randrange(60))
        source = state.get(key, chance.choice("XRT"))
        state[key] = chance.choice("XRTDB")
        found.append((id_, at_us, key, source, state[key], "event"))
    return found


def parts(found: Rows, chance: random.Random) -> Iterator[tuple[Part, Callable[[tuple[Any, ...]], bool]]]:
    low, high = sorted(chance.choice(found)[0] for _ in range(2))
    at_us, key = chance.choice(found)[1], chance.choice(found)[2]
    between = (Condition("id", ">=", low), Condition("id", "<=", high))
    yield Part(), lambda row: True
    yield Part(between), lambda row: low <= row[0] <= high
    yield Part((Condition("id", ">", high),)), lambda row: row[0] > high
    yield Part((Condition("at_us", ">=", at_us),)), lambda row: row[1] >= at_us
    yield Part((Condition("key", "=", key),)), lambda row: row[2] == key
    yield Part((*between, Condition("source", "in", ["R", "T"]))), lambda row: low <= row[0] <= high and row[3] in "RT"
    yield Part((Condition("id", ">", found[-1][0]),)), lambda row: False


@pytest.mark.parametrize("seed", range(2))
def test_any_part_of_a_history_has_the_times_of_all_of_it(make_shared, monkeypatch, seed):
    monkeypatch.setattr(readers, "NEAR", 3)
    monkeypatch.setattr(readers, "WIDER", 2)
    Task, chance = make_shared({"history": True, "keep": True}), random.Random(seed)
    found = a_history(chance)
    fill(Task, found)
    told, extract = spent(found), unpickled(Task, "history")
    for part, has in parts(found, chance):
        expected = {row[0]: told[row[0]] for row in found if has(row)}
        assert dict(extract.read(["id", "dur_us"], part)) == expected
        long = part._replace(conditions=(*part.conditions, Condition("dur_us", ">", 20_000)))
        longer = {id_ for id_, dur_us in expected.items() if dur_us is not None and dur_us > 20_000}
        assert {id_ for (id_,) in extract.read(["id"], long)} == longer
    assert {row.id: row.dur_us for row in Task.xq.history()} == told


def test_a_key_that_is_used_again_has_no_time_between_its_lives(make_shared):
    Task = make_shared({"history": True})
    fill(Task, [(1, AT, "1", "X", "R", "put"), (2, AT + 5, "1", "R", "X", "kill"), (3, AT + 9, "1", "X", "R", "put")])
    assert rows(unpickled(Task, "history"), "id", "dur_us") == [(1, None), (2, 5), (3, None)]


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_the_last_rows_of_a_long_history_are_timed_without_reading_all_of_it(make_shared, monkeypatch):
    Task, asked = make_shared({"history": True, "keep": True}), []
    db, table = Task._meta.database, "task_xq_history"
    found = flow(tasks=10_000, backlog=50)
    fill(Task, found)
    extract = unpickled(Task, "history")
    kind: Any = type(extract)
    ask, prepare = kind._asked, kind._prepared

    def noted(self, connection, sql, values):
        text, order = by_position(sql, self.placeholder_of_driver)
        asked.append((text, [values[name] for name in order]))
        return ask(self, connection, sql, values)

    def prepared(self, *of):
        asked.append(prepare(self, *of))
        return asked[-1]

    monkeypatch.setattr(readers, "NEAR", 100)
    monkeypatch.setattr(kind, "_asked", noted)
    monkeypatch.setattr(kind, "_prepared", prepared)
    last = Part((Condition("id", ">", len(found) - 20),))
    told = spent(found)
    assert dict(extract.read(["id", "dur_us"], last)) == {row[0]: told[row[0]] for row in found[-20:]}
    assert len(asked) == 4, "it looks for the ends of the part, looks back twice, and reads"
    plans = [
        line for sql, values in asked for *_, line in db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    ]
    assert not [line for line in plans if line.startswith(f"SCAN {table}")]
