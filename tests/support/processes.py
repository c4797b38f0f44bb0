"""Processes that do anything and are killed at any moment, and threads: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import peewee as pw

from tests.conftest import live
from tests.steps import PATIENCE, begun_anew

FEATURES = {"buried": True, "delayed": True}
ROLES: dict[str, tuple[str, ...]] = {"side table": ("runat",), "role": ("runat", "owner", "attempts", "priority")}
WORKERS = 4

spawn = multiprocessing.get_context("spawn")


def models(db: pw.Database, roles: tuple[str, ...], create: bool = False) -> tuple[Any, Any]:
    """The queue and the log of what was done to its tasks, which every process makes for itself."""
    Task = live(db)(FEATURES, roles=roles)
    fields = {"task": pw.IntegerField(), "what": pw.TextField(), "session": pw.TextField()}
    Log = type("Log", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": db})})
    if create:
        db.create_tables([Log])
    return Task, Log


def again(db: pw.Database) -> tuple[Any, ...]:
    """What another process needs to open the same database."""
    return type(db), db.database, db.connect_params


@contextmanager
def started(db: pw.Database, function: Any, *args: Any) -> Iterator[list[Any]]:
    """Processes that are killed at the end, if they have not ended: call it with the number of each to start more."""
    running: list[Any] = []

    def start(number: int) -> Any:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=function, args=(theirs, number, again(db), *args))
        process.start()
        theirs.close()
        running.append(process)
        return process, ours

    try:
        yield [start(number) for number in range(WORKERS)] + [start]
    finally:
        for process in running:
            process.kill()
            process.join(PATIENCE)


# a storm


def log(Log: Any, who: str, what: str, *tasks: Any) -> None:
    Log.insert_many([{"task": task.id, "what": what, "session": who} for task in tasks]).execute()


def do_anything(Task: Any, Log: Any, rng: random.Random, who: str, mine: list[Any]) -> None:
    """One call of any kind, and a note of what it moved; `mine` are the tasks that this one has taken."""
    what = rng.choice(("put", "put_many", "take", "take", "take_many", "ack", "ack", "release", "bury", "dig"))
    if what == "put":
        log(Log, who, "X-R", Task.put({"name": who}))
    elif what == "put_many":
        log(Log, who, "X-R", *Task.xq.put_many([{}, {"priority": rng.randrange(3)}, {}]))
    elif what == "take":
        task = Task.take()
        if task is not None:
            log(Log, who, "R-T", task)
            mine.append(task)
    elif what == "take_many":
        taken = Task.xq.take_many(3)
        if taken:
            log(Log, who, "R-T", *taken)
            mine.extend(taken)
    elif what == "dig":
        dug = Task.dig(n=2)
        if dug:
            log(Log, who, "B-R", *dug)
    elif mine:
        task = mine.pop(rng.randrange(len(mine)))
        getattr(task, what)()
        log(Log, who, {"ack": "T-X", "release": "T-R", "bury": "T-B"}[what], task)


def give_back(Log: Any, who: str, mine: list[Any]) -> None:
    for task in mine:
        task.release()
        log(Log, who, "T-R", task)


def whole(Task: Any, work: Callable[[list[Any]], object], mine: list[Any]) -> None:
    """One transaction of the application, which it begins anew when the server undid it for another's sake."""

    def transaction() -> list[Any]:
        held = list(mine)
        with Task._meta.database.atomic():
            work(held)
        return held

    mine[:] = begun_anew(Task, transaction)


def holds_what_was_logged(Task: Any, Log: Any, dead: Collection[str] = ()) -> None:
    """The table, the counters and the log, which was written in the same transactions, tell one story.

    What a killed process held was given back by another, which logged nothing: it must be so, once for each.
    """
    state: dict[int, str] = {}
    holder: dict[int, str] = {}
    moves: Counter[str] = Counter()

    def give_back(task: int) -> None:
        del holder[task]
        state[task] = "R"
        moves["T-R"] += 1

    for entry in Log.select().order_by(Log.id):
        source, target = entry.what.split("-")
        if source == "R" and holder.get(entry.task) in dead:
            give_back(entry.task)
        assert state.get(entry.task, "X") == source, f"task {entry.task}: {entry.what} in {state.get(entry.task)}"
        if source == "T":
            assert holder.pop(entry.task) == entry.session
        if target == "T":
            holder[entry.task] = entry.session
        state[entry.task] = target
        moves[entry.what] += 1
    for task in [task for task, session in holder.items() if session in dead]:
        give_back(task)
    rows = {task.id: task.status for task in Task.select()}
    assert rows == {key: letter for key, letter in state.items() if letter != "X"}
    stats = Task.xq.stats()
    held = Counter(rows.values())
    assert stats.counts == {letter: held[letter] for letter in stats.counts}
    assert stats.transition == moves
    assert moves["R-T"] > 20
    assert Task.xq.check() == []
