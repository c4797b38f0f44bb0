"""What a program leaves, as one digest: a fresh process works all off, and then reads each table."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.explore.homes import World

# Columns that differ from one run to the next: tokens, sessions, processes, moments of the machine's own clock.
VOLATILE = {"owner", "session", "uuid", "host", "pid", "program", "version"}
VOLATILE |= {"since", "since_us", "ends", "at_us", "opened", "done", "paused_us", "full_us"}
TOKEN = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(/[0-9a-f.]+( \[\d+\])?)?")  # and the key
KEYS = {"id", "k0", "p0"}  # columns with a task's key, which a transaction that was undone uses up
# Tables that are compared otherwise (by counts, chains, the number of sessions and doctor()).
APART = {"xq_session", "xq_alive", "xq_object", "xq_queue", "xq_generation", "task_xq_count", "task_xq_history"}
LEAPS = (0, 10, 100, 1000)  # seconds, past delays and ttr
PAUSES_END, BURIED_ARE_DUG = 2, 3  # before which of these
MOST = 200  # rounds


def work_off(world: World, ledger: str) -> dict[str, Any]:
    """Recover, take and ack all, and return the digest."""
    order: list[Any] = []
    world.q.sweep()
    found = _rows(world, "task")
    for at, leap in enumerate(LEAPS):
        world.clock.tick(leap)
        for pause in world.q.pauses() if at == PAUSES_END else ():
            order.append([pause.tube, pause.actor, pause.reason, pause.group])
            (world.q.group(pause.group) if pause.group else world.q).resume(*filter(None, [pause.tube]))
        if at == BURIED_ARE_DUG and "B" in world.q.machine.states:
            world.q.plow()
        order += _take_all(world, leap)
    left = {"found": found, "takes": order, **_digest(world)}
    left["wrong"] += _unheard(left, ledger)
    return left


def differences(reference: Any, digest: Any, where: str) -> Iterator[str]:
    """Yield lines with what a digest has, and what the reference has in its place."""
    if isinstance(reference, dict) and isinstance(digest, dict):
        for part in {**reference, **digest}:
            yield from differences(reference.get(part), digest.get(part), f"{where} {part}")
    elif reference != digest:
        yield f"  {where}: {digest}, not {reference}"


def _take_all(world: World, leap: int) -> Iterator[list[Any]]:
    for _ in range(MOST):
        moved, taken = world.q.sweep(), world.q.take()
        if taken is not None:
            world.note("had", taken.name)
            yield [leap, taken.name, taken.attempts]
            world.q.ack(taken)
        elif not moved:
            return
    yield [leap, "it does not end"]


def _unheard(left: dict[str, Any], ledger: str) -> Iterator[str]:
    """Yield where rows say otherwise than what programs wrote down: takes that are undone, acks of nothing taken."""
    told = defaultdict[str, Counter[str]](Counter)
    with open(ledger) as lines:
        for what, *names in map(json.loads, lines):
            told[what].update(names)
    had, ended, takes, here = told["had"], told["returned"] + told["raised"], Counter[str](), Counter[str]()
    here.update(each[1] for each in left["takes"])
    for row in map(json.loads, left["tables"]["task"]):
        name, chain = row["name"], left["chains"].get(row["id"], [])
        takes[name] += sum(move.endswith("T") for move in chain)
        acks, burials = (sum(f" {event} " in move for move in chain) for event in ("ack", "bury"))
        if acks and not had[name]:
            yield f"{name} was acked, and no program had it"
        if name in ended and acks > told["returned"][name] + here[name]:
            yield f"{name} was acked, and its function had not returned"
        if name in ended and burials > had[name] - here[name]:
            yield f"{name} was buried {burials} times, and its function was called {had[name] - here[name]} times"
    for name in takes:
        if had[name] > takes[name]:
            yield f"{name} was taken {had[name]} times by programs, and {takes[name]} times in the history"


def _digest(world: World) -> dict[str, Any]:
    """Read all that is stored of the queue."""
    stats, chains = world.q.stats(), _chains(world)
    numbers = _numbers(world, *chains)
    tables = sorted({*world.db.get_tables()} - APART)
    return {
        "tables": {table: _rows(world, table, numbers) for table in tables},
        "chains": {numbers[key]: chain for key, chain in chains.items()},
        "transitions": dict(stats.transition),
        "counts": dict(stats.counts),
        "sessions": len(world.q.sessions()),
        "wrong": [found.what for found in world.q.doctor()],
    }


def _numbers(world: World, *keys: int) -> dict[int, int]:
    """Return the tasks' numbers by key, in the order in which they were put."""
    there = (key for (key,) in world.db.execute_sql("SELECT id FROM task").fetchall())
    return {key: n for n, key in enumerate(sorted({*keys, *there}))}


def _rows(world: World, table: str, numbers: dict[int, int] | None = None) -> list[str]:
    """Return the rows of a table as JSON, without what is volatile, and with numbers for keys."""
    numbers, cursor = numbers or _numbers(world), world.db.execute_sql(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row)) for row in cursor.fetchall()]
    for row in found:
        row |= {name: numbers.get(row[name]) for name in KEYS & row.keys()}
    rows = [{name: row[name] for name in names if name not in VOLATILE} for row in found]
    return sorted(TOKEN.sub("token", json.dumps(row, default=str)) for row in rows)


def _chains(world: World) -> dict[int, list[str]]:
    """Return each task's transitions, by key."""
    chains: dict[int, list[str]] = defaultdict(list)
    if world.q.machine.settings.history is not None:
        for each in world.q.history():
            chains[int(each.key)].append(f"{each.source} {each.event} {each.target}")
    return chains
