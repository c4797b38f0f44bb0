"""Processes that do anything and are killed at any moment, and threads: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conformance.steps import PATIENCE, another_process, begun_anew, eventually, in_threads
from tests.conftest import Maker
from xq import sessions

FEATURES = {"buried": True, "delayed": True}
ROLES: dict[str, tuple[str, ...]] = {"side table": ("runat",), "role": ("runat", "owner", "attempts", "priority")}
WORKERS = 4
STEPS = 500  # of all workers together
KILLS = 5

spawn = multiprocessing.get_context("spawn")


def models(db: pw.Database, roles: tuple[str, ...], create: bool = False) -> tuple[Any, Any]:
    """The queue and the log of what was done to its tasks, which every process makes for itself."""
    Task = Maker(db, None)(FEATURES, roles=roles)
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


def ready(pipes: list[Any]) -> list[Any]:
    """Those that have something to tell."""
    found = wait(pipes, PATIENCE)
    assert found, "the other processes are stuck"
    return found


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


def worker(pipe: Connection, seed: int, database: Any, roles: tuple[str, ...]) -> None:
    """Does anything to any task, and tells after each step that it is alive, until it is told to end or is killed."""
    kind, name, params = database
    db = kind(name, **params)
    Task, Log = models(db, roles)
    rng = random.Random(seed)
    me = sessions.of(db).current().uuid
    mine: list[Any] = []

    pipe.send(me)
    while not pipe.poll():
        whole(Task, lambda held: do_anything(Task, Log, rng, me, held), mine)
        pipe.send(None)
    pipe.recv()
    whole(Task, lambda held: give_back(Log, me, held), mine)
    db.close()


@pytest.mark.parametrize("where", ROLES)
def test_killed_processes_lose_nothing_and_take_nothing_twice(shared_db, where):
    Task, Log = models(shared_db, ROLES[where], create=True)
    rng = random.Random(where)
    dead: set[str] = set()
    kills = sorted(rng.sample(range(STEPS // 8, STEPS), KILLS))
    shared_db.close()
    with started(shared_db, worker, ROLES[where]) as (*workers, start):
        alive = {pipe: process for process, pipe in workers}
        names: dict[Any, str] = {}
        for done in range(STEPS):
            for pipe in ready(list(alive)):
                told = pipe.recv()
                names.setdefault(pipe, told)
            if done in kills:
                pipe = rng.choice([pipe for pipe in alive if pipe in names])
                victim = alive.pop(pipe)
                os.kill(victim.pid, signal.SIGKILL)
                victim.join(PATIENCE)
                dead.add(names[pipe])
                eventually(lambda: not {session for _, session, _ in Task.xq.taken()} & dead)
                process, pipe = start(done)
                alive[pipe] = process
        for pipe in alive:
            pipe.send(None)
        for pipe, process in alive.items():
            with suppress(EOFError):
                while ready([pipe]):
                    pipe.recv()
            process.join(PATIENCE)
            assert process.exitcode == 0
    holds_what_was_logged(Task, Log, dead)


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


# sweeps


def sweeper(pipe: Connection, number: int, database: Any, roles: tuple[str, ...]) -> None:
    kind, name, params = database
    db = kind(name, **params)
    Task, _ = models(db, roles)
    Task.xq.count()
    pipe.send(None)
    pipe.recv()
    pipe.send(Task.xq.sweep())
    db.close()


def test_processes_that_sweep_at_once_move_each_due_row_once(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(3_500)], delay=0)
    shared_db.close()
    with started(shared_db, sweeper, ROLES["side table"]) as (*workers, _):
        for _, pipe in workers:
            assert pipe.poll(PATIENCE)
            pipe.recv()
        for _, pipe in workers:
            pipe.send(None)
        moves = []
        for process, pipe in workers:
            assert pipe.poll(PATIENCE)
            moves.append(pipe.recv())
            process.join(PATIENCE)
            assert process.exitcode == 0
    assert sum(moves) == 3_500
    assert Task.xq.stats().transition == {"X-W": 3_500, "W-R": 3_500}
    assert Task.xq.check() == []


# threads


def test_threads_that_do_anything_at_once_lose_nothing_and_take_nothing_twice(shared_db):
    Task, Log = models(shared_db, ROLES["role"], create=True)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Any] = []
        for _ in range(80):
            whole(Task, lambda held: do_anything(Task, Log, rng, str(seed), held), mine)

    shared_db.close()
    in_threads(shared_db, *(lambda seed=seed: work(seed) for seed in range(6)))
    holds_what_was_logged(Task, Log)


def test_threads_that_take_without_a_transaction_never_share_a_task(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(300)])
    shared_db.close()

    def work() -> list[int]:
        found = []
        while (task := Task.take()) is not None:
            found.append(task.id)
            task.ack()
        return found

    taken = in_threads(shared_db, *[work] * 6)
    assert sorted(key for keys in taken for key in keys) == list(range(1, 301))
    assert Task.xq.stats().transition == {"X-R": 300, "R-T": 300, "T-X": 300}


def test_threads_that_sweep_at_once_move_each_due_row_once(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{} for _ in range(2_500)], delay=0)
    shared_db.close()
    assert sum(in_threads(shared_db, *[Task.xq.sweep] * 6)) == 2_500
    assert Task.xq.stats().transition == {"X-W": 2_500, "W-R": 2_500}


# fork


def test_a_fork_after_use_has_a_session_of_its_own(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.xq.put_many([{}, {}])
    ours = Task.take()
    me = sessions.of(shared_db).current().uuid

    def child() -> Any:
        theirs = Task.take()
        holders = {key: session for key, session, _ in Task.xq.taken()}
        refused = []
        for named in (ours, ours.id):
            try:
                Task.ack(named)
            except xq.NotOwner:
                refused.append(True)
        yield holders[ours.id] == me, holders[theirs.id] == me, refused

    with another_process(shared_db, child) as other:
        assert next(other) == (True, False, [True, True])
    assert Task.xq.peek(ours.id).status == "T"
    assert ours.ack().id == ours.id


def test_a_fork_in_a_session_gives_nothing_of_the_parents_back(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.put({})

    def child() -> Any:
        yield Task.xq.count("T")

    with Task.xq.session():
        ours = Task.take()
        with another_process(shared_db, child) as other:
            assert next(other) == 1
        assert Task.xq.peek(ours.id).status == "T"
        ours.ack()


def test_takes_of_two_processes_in_one_session_are_told_apart(shared_db):
    Task, _ = models(shared_db, ROLES["side table"], create=True)
    Task.put({})
    with Task.xq.session() as session:
        first = Task.take()
        first.release()

        def child() -> Any:
            with Task.xq.session(session.uuid):
                yield Task.take().id
                yield None

        with another_process(shared_db, child) as other:
            assert next(other) == first.id
            with pytest.raises(xq.NotOwner):
                first.ack()
            assert Task.ack(first.id).id == first.id  # the session holds it, and a key is checked by session
            next(other)
