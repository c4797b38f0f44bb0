"""The digest of a program: a fresh process takes and acks all tasks, then reads each table."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import peewee as pw

from tests.explore.homes import World

# Columns that differ between runs: tokens, sessions, processes, times of the machine's own clock.
VOLATILE = {"owner", "session", "uuid", "host", "pid", "program", "version"}
VOLATILE |= {"since", "since_us", "ends", "at_us", "opened", "done", "paused_us", "full_us", "served"}
TOKEN = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]{24,27}(/[0-9a-f.]+( \[\d+\])?)?")
KEYS = {"id", "k0", "p0"}  # columns with a task's key: a rolled-back transaction uses keys up
DATE = re.compile(r"20\d\d-\d\d-\d\d[ T][\d:.]+(\+00:00)?")
AT = re.compile(r'\\"at\\":1(7[5-9]|[89])\d{13,14}')
ITS_KEY = re.compile(r'(WHERE (?:\\"|`)id(?:\\"|`) =) (_utf8mb4 )?\S+')
MACHINE = 1_750_000_000  # seconds: a later time is of the machine's clock, by which databases put what ends set off
# Tables that the digest reads through counts, chains, the number of sessions, and doctor().
APART = {"xq_session", "xq_alive", "xq_object", "xq_queue", "xq_generation"}
DERIVED = ("heads", "dirty")  # tables that follow the tasks, at once or in a transaction of their own
LEAPS = (0, 10, 100, 1000)  # seconds, past delays and ttr
PAUSES_END, BURIED_ARE_DUG = 2, 3  # before which of these
MOST = 200  # rounds
HELD = "dependants that wait for a dead parent"  # which is right


def work_off(world: World, ledger: str, is_one: bool) -> dict[str, Any]:
    """Recover, take and ack all, and return the digest. What a single transaction leaves is read before that, too."""
    order, found = [], _stored(world, DERIVED) if is_one else {}
    world.reap()
    world.q.sweep()
    for at, leap in enumerate(LEAPS):
        world.clock.tick(leap)
        for pause in world.q.pauses() if at == PAUSES_END else ():
            order.append([pause.tube, pause.actor, pause.reason, pause.group])
            (world.q.group(pause.group) if pause.group else world.q).resume(*filter(None, [pause.tube]))
        if at == BURIED_ARE_DUG and "B" in world.q.machine.states:
            world.q.plow()
        order += _take_all(world, leap)
    world.reap()  # sessions that were kept for a while (session_ttr)
    left = {"found": found, "takes": order, **_stored(world), "sessions": len(world.q.sessions())}
    with open(ledger) as lines:
        notes = [(what, name) for what, *names in map(json.loads, lines) for name in names]
    left["hooks"] = sorted({note for note in notes if note[0].startswith("on_")})
    found_wrong = [found.what for found in world.q.doctor() if not found.what.startswith(HELD)]
    left["wrong"] = [*found_wrong, *_unheard(world, left, notes)]
    return left


def told(world: World, result: Any) -> Any:
    """Return the result of a call as JSON, None if it says nothing."""
    if result is world:
        return told(world, [task for task in world.t if isinstance(task, pw.Model)])
    if isinstance(result, pw.Model):
        return {name: value for name, value in result.__data__.items() if name not in VOLATILE | KEYS}
    if isinstance(result, (list, tuple)):
        return [told(world, each) for each in result] or None
    return (result or None) if isinstance(result, (int, str)) else None


def differences(reference: Any, digest: Any, where: str) -> Iterator[str]:
    """Yield a line for each value in which a digest differs from its reference."""
    if isinstance(reference, dict) and isinstance(digest, dict):
        for part in {**reference, **digest}:
            yield from differences(reference.get(part), digest.get(part), f"{where} {part}")
    elif reference != digest:
        yield f"  {where}: {digest}, not {reference}"


def closest(found: Any, allowed: Iterable[tuple[str, Any]]) -> list[str]:
    """Return the differences from the closest allowed reference: an empty list if one is equal."""
    least: list[str] | None = None
    for name, reference in allowed:
        lines = [*differences(reference, found, name)]
        if least is None or len(lines) < len(least):
            least = lines
        if not least:
            break
    return least or []


def _take_all(world: World, leap: int) -> Iterator[list[Any]]:
    for _ in range(MOST):
        moved = world.q.sweep()
        taken = [task for task in (world.q.take(), world.q.take()) if task]  # two at once, so that a limit shows
        for task in taken:
            world.note("had", task.name)
            yield [leap, task.name, getattr(task, "attempts", None)]
            world.q.ack(task)
        if not (taken or moved):
            return
    yield [leap, "it does not end"]


def _unheard(world: World, left: dict[str, Any], notes: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield contradictions between the ledger and the rows: undone takes, and acks without a take."""
    told = defaultdict[str, Counter[str]](Counter)
    for what, name in notes:
        told[what][name] += 1
    if not told:  # no ledger was kept
        return
    had, ended, takes, here = told["had"], told["returned"] + told["raised"], Counter[str](), Counter[str]()
    here.update(each[1] for each in left["takes"])
    for row in map(json.loads, left["tables"][world.table]):
        name, chain = world.named(row), left["chains"].get(row["id"], [])
        takes[name] += sum(move.split()[2] == "T" for move in chain)
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


def _stored(world: World, but: Sequence[str] = ()) -> dict[str, Any]:
    """Read the queue's tables, but those in whose names one of these words is."""
    stats, chains = world.q.stats(), _chains(world)
    apart = APART | {f"{world.table}_xq_{end}" for end in ("count", "history")}
    numbers = _numbers(world, *chains)
    tables = [table for table in sorted({*world.db.get_tables()} - apart) if not any(word in table for word in but)]
    return {
        "tables": {table: _rows(world, table, numbers) for table in tables},
        "chains": {numbers[key]: chain for key, chain in chains.items()},
        "transitions": dict(stats.transition),
        "events": stats.by_event,
        "counts": dict(stats.counts),
    }


def _key(key: Any) -> str:
    """Return a key as a text in the order of the keys: a UUID is written in two ways."""
    return str(key).replace("-", "").zfill(32)


def _numbers(world: World, *keys: str) -> dict[str, int]:
    """Return the tasks' numbers by key, in the order in which they were put."""
    there = (_key(key) for (key,) in world.db.execute_sql(f"SELECT id FROM {world.table}").fetchall())
    return {key: n for n, key in enumerate(sorted({*keys, *there}))}


def _rows(world: World, table: str, numbers: dict[str, int]) -> list[str]:
    """Return the rows of a table as JSON, without volatile columns, and with numbers for keys."""
    cursor = world.db.execute_sql(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row)) for row in cursor.fetchall()]
    for row in found:
        row |= {name: numbers.get(_key(row[name])) for name in KEYS & row.keys()}
        row |= {name: "now" for name, value in row.items() if isinstance(value, float) and value > MACHINE}
    rows = [{name: row[name] for name in names if name not in VOLATILE} for row in found]
    return sorted(_without_times(json.dumps(row, default=str)) for row in rows)


def _without_times(text: str) -> str:
    """Return a row's text without dates, tokens, the machine's times in signals, and the key of a stored signal."""
    return ITS_KEY.sub(r"\1 its key", AT.sub("at", DATE.sub("then", TOKEN.sub("token", text))))


def _chains(world: World) -> dict[str, list[str]]:
    """Return each task's transitions, by key."""
    chains: dict[str, list[str]] = defaultdict(list)
    if world.q.machine.settings.history is not None:
        for each in world.q.history():
            by = f" by {each.actor}: {each.reason}" if each.actor else ""
            chains[_key(each.key)].append(f"{each.source} {each.event} {each.target}{by}")
    return chains
