"""Lives of workers, as calls: a worker does its tasks one after the other, by how each one's function ends.

A new life is a line of LIVES. What it may leave is what the product leaves that is killed between two of its own calls:
each life passes points, and its references are the runs that are killed at one of them, or give a task back there.
The ledger has each call of a function, and how it ended.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import xq
import xq.workers.program
from tests.explore.calls import CALLS, Call
from tests.explore.gate import GATE
from tests.explore.homes import World
from tests.explore.orms import ON_ORMS, sessions, there
from tests.explore.zygote import STUCK
from xq.workers import attempt, child
from xq.workers.attempts import Attempts
from xq.workers.concurrency import Slots
from xq.workers.failed import FailedAttempts
from xq.workers.processes import Child

SOON = 0.2  # seconds of a timeout


class Points:
    """Counts what a process passes, and ends it at the `last`. The take of number `gives` is given back at once."""

    def __init__(self) -> None:
        self.n, self.last, self.takes, self.gives = 0, 0, 0, 0
        self.lock = threading.Lock()

    def passed(self) -> None:
        with self.lock:
            self.n += 1
            if self.n == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def before(self, kind: type, name: str) -> None:
        own = getattr(kind, name)

        @wraps(own)
        def call(*args: Any, **options: Any) -> Any:
            self.passed()
            return own(*args, **options)

        setattr(kind, name, call)


def _fail(error: BaseException) -> Callable[..., None]:
    def end(*_: Any) -> None:
        raise error

    return end


def _put(w: World, task: Any) -> None:
    w.q.put({"name": f"after {task.name}"}, delay=5)


def _in_turn(w: World, task: Any) -> None:
    with w.db.atomic():
        _put(w, task)
        w.q.ack(task)


# How a function ends, by the word in its life.
ENDS: dict[str, Callable[[World, Any], Any]] = {
    "returns": lambda w, task: None,
    "raises": _fail(ValueError("no")),
    "retries": _fail(xq.Retry(5)),
    "buries": _fail(xq.Bury("no")),
    "goes on": _fail(xq.Next("b", update={"size": 7}, delay=5)),
    "discards": _fail(xq.Discard()),
    "exits": _fail(SystemExit(2)),
    "dies": lambda w, task: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda w, task: task,
    "acks": lambda w, task: w.q.ack(task, update={"size": 7}),
    "releases": lambda w, task: w.q.release(task, delay=5),
    "puts": _put,
    "acks with": _in_turn,
}


CALL = {"acks", "releases", "puts", "acks with"}  # the queue: where such a call fails, the function has raised


@dataclass(frozen=True)
class Worker:
    """What a life runs: how the function ends for each task, hooks, and the worker's options."""

    ends: tuple[str, ...]
    hooks: tuple[str, ...]
    cut: str  # in which process: of a worker of processes the "child" that is the first, or the "parent"
    session: bool  # whether the function has one of SQLAlchemy's, in which it saves a row
    options: dict[str, Any]

    def __call__(self, w: World, last: int = 0, gives: int = 0, raises: str = "") -> None:
        multiprocessing.set_start_method("fork", force=True)  # the gate is in the drivers of this process
        points, attempt.AGAIN = Points(), 0.01
        if self.options.get("kind") == "process":
            ended = self._cut_in(w, points, (last, gives))
        else:
            points.last, points.gives, ended = last, gives, lambda: None
        self._watch(points)
        function, options = self._function(w, points, raises), {"backoff": [5], **self.options}
        if self.session:
            function, options["session"] = self._in_a_session(w, function)
        worker = w.q.worker(function, **options)
        for name in self.hooks:
            event, _, inside = name.partition(", ")
            hook = partial(self._hook, w, points, event, (inside and raises) or inside)
            getattr(worker, event)(hook, in_transaction=bool(inside))
        worker.run(until_empty=True)
        ended()

    def _watch(self, points: Points) -> None:
        begin = Attempts.begin

        def begins(attempts: Any, tasks: Any) -> Any:
            if not tasks:
                return []
            points.passed()
            jobs, points.takes = begin(attempts, tasks), points.takes + 1
            if points.takes != points.gives:
                return jobs
            for job in jobs:
                attempts.give_back(job)
            return []

        setattr(Attempts, "begin", begins)  # noqa: B010
        points.before(Attempts, "drop")
        points.before(Slots, "_take")
        points.before(FailedAttempts, "failed")
        points.before(Child, "settle")
        points.before(Child, "_settle")

    def _function(self, w: World, points: Points, raises: str) -> Any:
        def act(task: Any) -> None:
            end = self.ends[int(task.name.split()[-1])]
            if end in CALL:  # if it raises, the call may have been made
                w.note("returned", task.name)
            if raises == "before":
                raise ValueError("no")
            ENDS[end](w, task)
            if raises == "after":
                raise ValueError("no")

        def function(found: Any) -> None:
            points.passed()
            for task in found if isinstance(found, list) else [found]:
                w.note("had", task.name)
                try:
                    act(task)
                except BaseException:
                    w.note("raised", task.name)
                    raise
                w.note("returned", task.name)
            points.passed()
            if "hangs" in self.ends and self.options["kind"] == "process":
                threading.Event().wait(STUCK)

        async def coroutine(task: Any) -> None:
            function(task)
            await asyncio.sleep(STUCK * self.ends.count("hangs"))

        return coroutine if self.options.get("kind") == "asyncio" else function

    def _in_a_session(self, w: World, function: Any) -> tuple[Any, Any]:
        in_a_loop = self.options.get("kind") == "asyncio"
        maker, Paid = sessions(w, in_a_loop)

        def saves(task: Any, session: Any) -> None:
            session.add(Paid(name=task.name))
            xq.after_commit(w.note, "after the commit", task.name)
            session.flush()
            function(task)

        async def saves_in_a_loop(task: Any, session: Any) -> None:
            session.add(Paid(name=task.name))
            await session.flush()
            await function(task)

        return saves_in_a_loop if in_a_loop else saves, maker

    @staticmethod
    def _hook(w: World, points: Points, event: str, inside: str, task: Any, error: BaseException) -> None:
        w.note(event, task.name)
        if inside == "hook":
            raise ValueError("no")
        if inside:
            w.q.put({"name": f"{event} {task.name}"}, delay=5)
        else:
            points.passed()

    def _cut_in(self, w: World, points: Points, stop: tuple[int, int]) -> Callable[[], None]:
        """Have one process cut: the first child, whose statements are noted in a file, or its parent."""
        first, cut, file = multiprocessing.get_context("fork").Lock(), GATE.cut, Path(f"{w.ledger}-sent")
        file.write_text("")
        w.db.close()

        def begun() -> None:
            mine = self.cut == "child" and first.acquire(block=False)
            GATE.disarm()
            points.n, points.takes, (points.last, points.gives) = 0, 0, stop if mine else (0, 0)
            if mine:
                GATE.arm(cut, Noted(file))

        def ended() -> None:
            GATE.arm(None, [json.loads(line) for line in file.read_text().splitlines()])

        child.WHEN_FORKED.append(begun)
        if self.cut == "parent":
            points.last, points.gives = stop
            return lambda: None
        GATE.disarm()
        return ended


class Noted(list[str]):
    """Statements that are noted in a file, for another process."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND)

    def append(self, sql: str) -> None:
        super().append(sql)
        os.write(self._file, f"{json.dumps(sql)}\n".encode())


class Life(Call):
    """A call that works on by itself after most cuts: what it leaves then is what one of its references does."""


def life(name: str, *ends: str, hooks: tuple[str, ...] = (), cut: str = "", points: int = 1, **options: Any) -> Life:
    """A life by its name, and by how the function ends for each of its tasks. It passes so many `points` more."""
    n, session = len(ends), options.pop("session", False)
    worker = Worker(ends, hooks, cut, session, options)
    passed = {"": 5 * n + len(hooks) + points, "child": 5 * n, "parent": 4 + n + len(hooks)}[cut]
    killed = [partial(worker, last=at) for at in range(1, passed + 1)]
    given = [partial(worker, gives=at) for at in range(1, n + 1)]
    raised = [partial(worker, raises=when) for when in ("before", "after") if session or CALL.intersection(ends)]
    raised += [partial(worker, raises="hook") for name in hooks[:1]]
    before = (lambda w: there(w, n)) if session else (lambda w: w.put(n))
    return Life(f"worker {name}", before, worker, between=(*killed, *given, *raised))


SMTP = xq.Concurrency("smtp", 1)
HOOKS = ("on_failure", "on_failure, in", "on_buried", "on_buried, in")
_threads = [
    *(life(f"{end} in a thread", end) for end in ENDS if end not in ("exits", "dies", "hangs")),
    life("in a thread, two tasks", "returns", "raises", "returns"),
    life("in a thread, two attempts", "raises", max_attempts=2, backoff=[0], points=5),
    life("in a thread, hooks", "raises", hooks=HOOKS),
    life("in a thread, hooks of a burial", "raises", hooks=HOOKS, max_attempts=1),
    life("in a thread, batch", "returns", "returns", batch=2),
    life("in a thread, batch raises", "returns", "raises", batch=2),
    life("in a thread, concurrency", "returns", "raises", concurrency=SMTP, points=4),
    life("coroutine", "returns", "raises", kind="asyncio"),
    life("in a session", "returns", "raises", session=True),
    life("in a session, goes on", "goes on", session=True),
    life("in a session of a loop", "returns", "raises", kind="asyncio", session=True),
    life("coroutine, timeout", "hangs", kind="asyncio", timeout=SOON),
]
# What is told of the function and of the worker, how the function ends for its tasks, and options.
IN_PROCESSES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    *((f"{end} in a process", (end,), {}) for end in ("returns", "raises", "exits", "dies", "goes on", "acks")),
    ("in a process, two tasks", ("returns", "raises"), {}),
    ("in a process, timeout", ("hangs",), {"timeout": SOON}),
    ("in a process, hooks", ("dies",), {"hooks": HOOKS}),
    ("in a process, hooks of a burial", ("dies",), {"hooks": HOOKS, "max_attempts": 1}),
    ("in a process, batch", ("returns", "returns"), {"batch": 2}),
]
_processes = [
    life(f"{told}, {where}", *ends, kind="process", cut=where, **options)
    for where in ("child", "parent")
    for told, ends, options in IN_PROCESSES
]
LIVES = {call.name: call for call in (*_threads, *_processes)}
PROGRAMS = {**CALLS, **LIVES, **ON_ORMS}
