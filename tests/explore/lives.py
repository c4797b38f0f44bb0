"""Lives of workers, as calls: a worker runs tasks one after the other, and its function ends each in a given way.

A new life is a line of LIVES. A life passes points. Its references are the runs that the product makes if it is killed
at a point, or releases a task there. The ledger has each call of a function, and how it ended.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import xq
import xq.workers.program
from tests.explore.calls import Call, by_name
from tests.explore.gate import GATE
from tests.explore.homes import World
from tests.explore.orms import sessions
from tests.explore.zygote import STUCK
from xq.workers import attempt, child, threads
from xq.workers.attempts import Attempts
from xq.workers.concurrency import Slots
from xq.workers.failed import FailedAttempts
from xq.workers.processes import Child

SOON = 0.2  # seconds of a timeout
# A clock that stands still: one thread prefetches, and none acks or releases beside it.
STILL = SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep)
# A worker passes a point before each of these methods, and at each take and function call.
POINTS: tuple[tuple[type, str], ...] = (
    (Attempts, "drop"),
    (Attempts, "_give_back"),
    (Slots, "_take"),
    (FailedAttempts, "failed"),
    (Child, "__init__"),
    (Child, "clean_up"),
    (Child, "_clean_up"),
)


class Points:
    """Counts the points of a process, and kills it at the `last`.

    Task `nth` (None: all) of take number `gives` is released at once. When worker process number `fails` has died, its
    parent cannot connect.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arm()

    def arm(self, last: int = 0, gives: int = 0, nth: int | None = None, fails: int = 0, joins: bool = False) -> None:
        self.n, self.takes, self.last, self.gives, self.nth, self.fails = 0, 0, last, gives, nth, fails
        self.joins = joins or not last  # whether an ack and the next take are one transaction

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
            self.fails -= name == "_clean_up"
            if name == "_clean_up" and not self.fails:
                raise OSError("no connection")
            return own(*args, **options)

        setattr(kind, name, call)


def _hold(*_: Any) -> None:
    """Run for so long that what was prefetched with the task is released."""
    STILL.monotonic = lambda: 2 * threads.HELD
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and not all(job.begun for job in [*xq.current()._heart.leases]):
        time.sleep(0.001)


# How a function ends, by the word in its life: what it raises, or does.
ENDS: dict[str, Any] = {
    "returns": lambda w, task: None,
    "raises": ValueError("no"),
    "retries": xq.Retry(5),
    "buries": xq.Bury("no"),
    "goes on": xq.Next("b", update={"size": 7}, delay=5),
    "discards": xq.Discard(),
    "exits": SystemExit(2),
    "dies": lambda w, task: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda w, task: None,
    "holds": _hold,
    "acks": lambda w, task: w.q.ack(task, update={"size": 7}),
    "releases": lambda w, task: w.q.release(task, delay=5),
    "puts": lambda w, task: w.q.put({"name": f"after {task.name}"}, delay=5),
    "acks with": lambda w, task: w.q.transaction(lambda: (ENDS["puts"](w, task), w.q.ack(task))),
}
CALL = {"acks", "releases", "puts", "acks with"}  # ends that call the queue: if the call fails, the function raises


@dataclass(frozen=True)
class Worker:
    """One run of a worker: the end of its function for each task, its hooks and options."""

    ends: tuple[str, ...]
    hooks: tuple[str, ...]
    cut: str  # the process that is cut: with kind="process" the first "child", or the "parent"
    options: dict[str, Any]  # session=True: the function saves a row in SQLAlchemy's session

    def __call__(self, w: World, raises: str = "", **at: Any) -> None:
        multiprocessing.set_start_method("fork", force=True)  # the gate is in the drivers of this process
        points, attempt.AGAIN = Points(), 0.01
        setattr(threads, "time", STILL)  # noqa: B010
        if self.cut:
            self._in_processes(w, points, at)
        if self.cut != "child":
            points.arm(**at)
        self._watch(points)
        self._run(w, points, raises)

    def _run(self, w: World, points: Points, raises: str) -> None:
        options, Paid = {"backoff": [5], **self.options}, None
        if "session" in options:
            options["session"], Paid = sessions(w, options.get("kind") == "asyncio")
        worker = w.q.worker(self._function(w, points, raises, Paid), **options)
        for name in self.hooks:
            event, _, inside = name.partition(", ")
            hook = partial(self._hook, w, points, event, (inside and raises) or inside)
            getattr(worker, event)(hook, in_transaction=bool(inside))
        worker.run(until_empty=True)

    def _watch(self, points: Points) -> None:
        begin = Attempts.begin

        def begins(attempts: Any, tasks: Any) -> Any:
            if not tasks:
                return []
            points.passed()
            jobs, points.takes = begin(attempts, tasks), points.takes + 1
            given = [job for nth, job in enumerate(jobs) if points.takes == points.gives and points.nth in (None, nth)]
            for job in given:
                attempts.give_back(job)
            return [job for job in jobs if job not in given]

        setattr(Attempts, "begin", begins)  # noqa: B010
        joins = Attempts._joins
        setattr(Attempts, "_joins", lambda *given: points.joins and joins(*given))  # noqa: B010
        for kind, name in POINTS:
            points.before(kind, name)

    def _function(self, w: World, points: Points, raises: str, Paid: Any) -> Any:
        def act(task: Any) -> None:
            end = self.ends[int(task.name.split()[-1])]
            if end in CALL:  # if it raises, the call may have been made
                w.note("returned", task.name)
            if raises == "before" or isinstance(ENDS[end], BaseException):
                raise (ENDS["raises"] if raises else ENDS[end]).with_traceback(None)  # not that of the task before
            ENDS[end](w, task)
            if raises == "after":
                raise ENDS["raises"].with_traceback(None)

        def function(found: Any, session: Any = None) -> None:
            points.passed()
            if session is not None:
                session.add(Paid(name=found.name))
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

        async def coroutine(task: Any, session: Any = None) -> None:
            function(task, session)
            await asyncio.sleep(STUCK * self.ends.count("hangs"))

        return coroutine if self.options.get("kind") == "asyncio" else function

    @staticmethod
    def _hook(w: World, points: Points, event: str, inside: str, task: Any, *_: Any) -> None:
        if inside == "hook":
            raise ENDS["raises"]
        if inside:
            w.q.put({"name": f"{event} {task.name}"}, delay=5)
        else:
            points.passed()
            w.note(event, task.name)
            points.passed()

    def _in_processes(self, w: World, points: Points, at: dict[str, Any]) -> None:
        """Cut the first child only, or the parent only."""
        first, cut, path = multiprocessing.get_context("fork").Lock(), GATE.cut, GATE.path
        w.db.close()

        def begun() -> None:
            GATE.disarm()
            points.arm()
            if self.cut == "child" and first.acquire(block=False):
                GATE.arm(cut, path)
                points.arm(**at)

        child.WHEN_FORKED.append(begun)
        if self.cut == "child":
            GATE.disarm()


class Life(Call):
    """A call that continues after most cuts. It must then leave the digest of one of its references."""


def life(
    name: str,
    *ends: str,
    hooks: tuple[str, ...] = (),
    cut: str = "",
    points: int = 1,
    of: type[Worker] = Worker,
    **options: Any,
) -> Life:
    """Return a life: its name, and the end of the function for each task. `points`: how many more it passes."""
    n = len(ends)
    worker = of(ends, hooks, cut, options)
    passed = {"": 5 * n + len(hooks) + points, "child": 5 * n + points - 1, "parent": 4 + 3 * n + len(hooks)}[cut]
    killed = [partial(worker, last=at) for at in range(1, passed + 1)]
    each = (None, *range(options.get("prefetch", 0)))
    given = [partial(worker, gives=at, nth=nth) for at in range(1, n + 1) for nth in each]
    given += [partial(worker, fails=at) for at in range(1, n + 1)] * (cut == "parent")
    whens = [*("before", "after")] * ("session" in options or not CALL.isdisjoint(ends)) + ["hook"] * bool(hooks)
    raised = [partial(worker, raises=when) for when in whens]
    return Life(f"worker {name}", lambda w: w.put(n), worker, between=(*killed, *given, *raised))


SMTP = xq.Concurrency("smtp", 1)
HOOKS = ("on_failure", "on_failure, in", "on_buried", "on_buried, in")
_threads = [
    *(life(f"{end} in a thread", end) for end in ENDS if end not in ("exits", "dies", "hangs", "holds")),
    life("in a thread, two tasks", "returns", "raises", "returns"),
    life("in a thread, two attempts", "raises", max_attempts=2, backoff=[0], points=5),
    life("in a thread, hooks", "raises", hooks=HOOKS),
    life("in a thread, hooks of a burial", "raises", hooks=HOOKS, max_attempts=1),
    life("in a thread, batch", "returns", "returns", batch=2),
    life("in a thread, batch raises", "returns", "raises", batch=2),
    life("in a thread, concurrency", "returns", "raises", concurrency=SMTP, points=4),
    life("in a thread, prefetch", "returns", "raises", "returns", prefetch=2),
    life("in a thread, prefetch is held", "holds", "returns", prefetch=2),
    life("in a thread, last attempts", "raises", "raises", prefetch=2, max_attempts=2, backoff=[0], points=9),
    life("coroutine", "returns", "raises", kind="asyncio"),
    life("in a session", "returns", "raises", session=True),
    life("in a session, goes on", "goes on", session=True),
    life("in a session of a loop", "returns", "raises", kind="asyncio", session=True),
    life("coroutine, timeout", "hangs", kind="asyncio", timeout=SOON),
]
# Name, the function's end for each task, options.
IN_PROCESSES: list[tuple[str, list[str], dict[str, Any]]] = [
    *((f"{end} in a process", [end], {}) for end in ("returns", "raises", "exits", "dies", "goes on", "acks")),
    ("in a process, two tasks", ["returns", "raises"], {}),
    ("in a process, timeout", ["hangs"], {"timeout": SOON}),
    ("in a process, hooks", ["dies"], {"hooks": HOOKS}),
    ("in a process, hooks of a burial", ["dies"], {"hooks": HOOKS, "max_attempts": 1}),
    ("in a process, batch", ["returns", "returns"], {"batch": 2}),
    *((f"in a process, prefetch, {end}", [end, "returns"], {"prefetch": 2}) for end in ("dies", "exits")),
]
_processes = [
    life(f"{name}, {where}", *ends, kind="process", cut=where, **options)
    for where in ("child", "parent")
    for name, ends, options in IN_PROCESSES
]
LIVES = by_name(*_threads, *_processes)
