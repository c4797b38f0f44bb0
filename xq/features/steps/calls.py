"""The calls within a worker's function: `xq.step`, `xq.sleep` and `xq.wait_for`."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any, Final, ParamSpec, TypeVar

from xq.core import time
from xq.core.errors import BadType, BadValue, ConfigurationError, FeatureOff, NotFound, NotOwner, WrongState
from xq.core.options import moment_of, seconds_of
from xq.core.words import lasting
from xq.engine.named import Unmet
from xq.features.steps.lines import MOST, SIGNAL, dumped, mark, named, read
from xq.features.steps.signals import DIGITS
from xq.runtime.lease import current
from xq.workers.outcomes import Bury, Suspended

P = ParamSpec("P")
R = TypeVar("R")

AWAITS: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
US: Final = 1_000_000
_within: ContextVar[str] = ContextVar("xq_step", default="")  # the step that runs in this thread, or coroutine


def step(name: str, call: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call `call` once for the running task, in all its attempts, and return its value; from then on the recorded one.

    It is for the function of a worker of a queue with the feature steps, which every attempt calls from its top. In an
    `async def` it is awaited, and `call` may be one. The value is what JSON gives back, in the first attempt too. The
    record is found by its name, and is part of the open transaction, or ends that of the worker's `session=`. An
    exception records nothing, and the attempt fails as ever. Raises NotOwner if another take has the task, BadValue for
    a name that this attempt has used, and within another step, xq.Bury for a value that JSON cannot hold or beyond
    32,768 octets of the task's records, and ConfigurationError outside of a worker's function.
    """
    if _is_awaited(sys._getframe(1)):
        return _astep(name, call, args, kwargs)
    progress = _progress("step")
    if progress.has(name):
        return progress.values[name]
    with progress.inside(name):
        value = call(*args, **kwargs)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise BadType(f"the step {name!r} calls an async def: await xq.step in an async def")
        return progress.record(name, value)


async def _astep(name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    progress = _progress("step")
    if progress.has(name):
        return progress.values[name]
    async with progress.turn():
        with progress.inside(name):
            value = call(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            return await progress.arecord(name, value)


def sleep(name: str, delay: float | timedelta | None = None, *, at: datetime | None = None) -> Any:
    """Let the task wait for `delay` seconds, or until `at`, without a worker: the attempt ends, and the next goes on.

    It raises a BaseException, which the function must let pass, and the task is Waiting. What has passed is over at
    once. In an `async def` it is awaited. Raises as `step`, and BadValue in a coroutine's subtask.
    """
    awaited = _is_awaited(sys._getframe(1))
    progress = _progress("sleep", suspends=True)
    return _returned(awaited, progress, progress.sleep(name, delay, at))


def wait_for(name: str, timeout: float | timedelta | None = None) -> Any:
    """Return the value of a signal, `Queue.signal`; until it comes, or for `timeout` seconds, the task waits.

    As `sleep` it ends the attempt, and no worker is held. Raises TimeoutError when the time has passed: that is
    recorded, and a later signal changes nothing. In an `async def` it is awaited. Raises as `sleep`.
    """
    awaited = _is_awaited(sys._getframe(1))
    progress = _progress("wait_for", suspends=True)
    return _returned(awaited, progress, progress.wait_for(name, timeout))


Calls = Iterator[Callable[[], Any]]


class Progress:
    """What is known of the running attempt: its task's records, and those that it has made and used."""

    def __init__(self, job: Any) -> None:
        self.job, self.attempt = job, job.taken[0]
        self._calls = job.made_by.calls
        self.moves = moves = self._calls.moves
        self.store, self.clock = moves.store, moves.executor.clock
        self.used = set[str]()  # steps and sleeps
        self.awaited = set[str]()  # signals
        self._open = set[str]()  # steps that are recorded in a transaction which may be rolled back
        self._turn = asyncio.Lock()  # of the steps in an asynchronous session
        self._octets = 0
        self._read(job.recorded)

    def _read(self, text: str | None) -> None:
        self.values, self.slept, self.signals = dict[str, Any](), set[str](), dict[str, Any]()
        self.deadlines, self.late = dict[str, int | None](), set[str]()
        for line in read(text):
            is_again = line.kind == "wait" and line.name in self.deadlines  # by a restart, which no function limits
            self._octets += 0 if line.kind == SIGNAL or is_again else len(line.text)
            if line.kind == "step":
                self.values[line.name] = line.fields["value"]
            elif line.kind == "sleep":
                self.slept.add(line.name)
            elif line.kind == "wait":
                self.deadlines.setdefault(line.name, line.until)
            elif line.kind == "timeout":
                self.late.add(line.name)
            elif line.kind == SIGNAL:
                self.signals.setdefault(line.name, line.fields["value"])

    @property
    def unused(self) -> list[str]:
        """The names of steps and sleeps that the attempt has not reached."""
        return [name for name in (*self.values, *self.slept) if name not in self.used]

    def returned(self) -> None:
        """Log the records that the attempt has not reached: the function returned without them."""
        if unused := self.unused:
            told = "task %s has ended without steps that are recorded: %s"
            self.moves.log.warning(told, self._calls.key(self.attempt.taken), ", ".join(map(repr, unused)))
            self.used.update(unused)  # said once

    # steps

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let the steps of a session run one after the other: a commit is of all that it has."""
        if self.job.commit is None:
            yield
            return
        async with self._turn:
            if self.job.commit is None:
                raise ConfigurationError("the worker's function has ended, and this step with its session")
            yield

    def has(self, name: object) -> bool:
        """Return whether a step is recorded. Raises BadValue."""
        name = named("step", name)
        if name in self._open and mark("step", name) not in (self._look() or ""):  # it was rolled back
            self._open.discard(name)
            self.used.discard(name)
            self.values.pop(name, None)
        self._use(name, self.slept)
        return name in self.values

    def _use(self, name: str, others: Any) -> None:
        if name in self.used:
            raise BadValue(f"this attempt has a step {name!r} already: each has a name of its own, as f'mail {{n}}'")
        if name in others:
            raise BadValue(f"{name!r} is recorded, as a step or as a sleep: the two share their names")
        if name in self.values or name in self.slept:
            self.used.add(name)

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        token = _within.set(name)
        self.used.add(name)
        try:
            yield
        except BaseException as error:
            self.used.discard(name)
            error.add_note(f"in the step {name!r}")
            raise
        finally:
            _within.reset(token)

    def _written(self, name: str, value: Any) -> tuple[str, Callable[[], bool]]:
        """Return a step's value as JSON, and what records it. Raises Bury."""
        try:
            text = dumped(value)
        except BadValue as error:
            self.used.discard(name)
            raise Bury(f"the value of the step {name!r} cannot be recorded. {error}") from error
        begins = mark("step", name)
        write = self._record("step", begins, f',"value":{text}}}', begins, f"the step {name!r}")

        def written() -> bool:
            done = write()
            if self.job.commit is None:
                self._note(name)
            return done

        return text, written

    def _made(self, name: str, text: str) -> Any:
        """Note a record, and return its value."""
        self.values[name] = json.loads(text)
        if self.job.commit is not None:
            self._committed(name)
        return self.values[name]

    def _note(self, name: str) -> None:
        """Note in the thread that has written a record whether a rollback may undo it."""
        if not self.store.in_transaction():
            self._committed(name)
            return
        self._open.add(name)
        self.store.after_commit(partial(self._committed, name))
        if self._calls.alone:  # the transaction of a test is not committed
            self._begin_anew()

    def _committed(self, name: str) -> None:
        self._open.discard(name)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.attempt.number = min(self.attempt.number, 1)

    def record(self, name: str, value: Any) -> Any:
        text, write = self._written(name, value)
        self._run(write)
        return self._made(name, text)

    async def arecord(self, name: str, value: Any) -> Any:
        text, write = self._written(name, value)
        await self._arun(write)
        return self._made(name, text)

    def _record(self, event: str, begins: str, rest: str, unless: str, what: str, **brings: Any) -> Callable[[], bool]:
        """Return what adds a line `unless` the task has one that begins so. Raises Bury, and NotOwner when run."""
        brings |= self._line(begins, rest, what) | {"step_mark": unless}
        taken = self.attempt.taken

        def write() -> bool:
            try:
                self.moves.one(event, taken, brings=brings)
            except Unmet:
                return False  # of a step: a try has recorded it whose answer was lost
            except (NotFound, WrongState) as lost:
                error = NotOwner(event, self.moves.tasks.app_key(taken.parts), None, self.moves.tasks.wording)
                error.args = (f"{lost}. Its take is over, and nothing is recorded",)
                raise error from lost
            return True

        return write

    def _line(self, begins: str, rest: str, what: str, counts: bool = True) -> dict[str, str]:
        digits = DIGITS if self.clock is None else len(str(round(self.clock.now * US)))
        size = len(begins) + len('"at":') + digits + len(rest)
        if self._octets + size > MOST and counts:
            raise Bury(
                f"{what} has {size:,} octets as a line, and with the task's other records {self._octets + size:,}, of "
                f"at most {MOST:,}: what is large is a row of its own, whose key the step returns"
            )
        self._octets += size * counts
        return {"step_line": f'{begins}"at":', "step_rest": rest}

    def _run(self, write: Callable[[], R]) -> R:
        """Run what adds a record, in the transaction that is open, or by the session of the function."""
        if self.job.commit is None:
            return self._retried(write)
        if inspect.iscoroutinefunction(self.job.commit):
            raise ConfigurationError("the session of the worker's function is awaited: call its steps in an async def")
        done: R = self.job.commit(write)
        return done

    def _retried(self, write: Callable[[], R]) -> R:
        lost = list[NotOwner]()

        def tried() -> R | None:
            try:
                return write()
            except NotOwner as error:
                lost.append(error)
                return None

        done: R = self._calls.finish(tried, repeats=not self.store.in_transaction())
        if lost:
            raise lost[-1]
        return done

    async def _arun(self, write: Callable[[], R]) -> R:
        done: R
        if self.job.commit is not None:
            done = self.job.commit(write)
            return await done if inspect.isawaitable(done) else done
        if (elsewhere := self.store.for_coroutine(lambda: None)) is not None:
            elsewhere.close()  # `aio` makes such a coroutine for the call
        elif self._calls.alone or self.store.in_transaction():  # as the function's own transaction is this thread's
            return self._retried(write)
        aio = self.job.made_by.worker.queue.aio
        done = await aio._call(partial(self._retried, write))
        return done

    # waits

    def sleep(self, name: object, delay: Any, at: Any) -> Calls:
        """Yield what is to be run before the sleep is over. Raises Suspended if it is not."""
        name = named("sleep", name)
        if (delay is None) == (at is None):
            raise BadValue("xq.sleep takes a delay (seconds) or at= (a datetime), one of them")
        self._use(name, self.values)
        if name in self.slept:
            return
        now = time.time() if self.clock is None else self.clock.now
        span = None if delay is None else seconds_of("the delay of xq.sleep", delay, ends=True)
        seconds = moment_of(at) - now if span is None else span
        begins = mark("sleep", name)
        self.used.add(name)
        if seconds > 0:
            how, rest = {"delay": seconds} if at is None else {"at": at}, f',"for":{round(seconds * US)}}}'
            self._suspend("sleep", how, begins, rest, begins, f"sleeps, {name!r}, for {lasting(seconds)}")
        yield self._record("elapse", begins, "}", begins, f"the sleep {name!r}", until=0)
        self.slept.add(name)

    def wait_for(self, name: object, timeout: Any) -> Generator[Callable[[], Any], Any, Any]:
        """Yield what is to be run before it is known; then return the value. Raises Suspended and TimeoutError."""
        name = named(SIGNAL, name)
        span = None if timeout is None else seconds_of("the timeout of xq.wait_for", timeout)
        if name in self.awaited:
            raise BadValue(f"this attempt has waited for {name!r} already: another wait has a name of its own")
        self.awaited.add(name)
        if name in self.signals:
            return self.signals[name]
        begins, unless, told = mark("wait", name), mark(SIGNAL, name), f"waits for the signal {name!r}"
        until = self.deadlines.get(name)
        if name not in self.late and (until is not None or span == 0):
            late = mark("timeout", name)
            if (yield self._record("elapse", late, "}", unless, f"the timeout of {name!r}", until=until or 0)):
                self.late.add(name)
            else:
                self._octets = 0
                self._read((yield self._look))
                if name in self.signals:
                    return self.signals[name]
        if name in self.late:
            raise TimeoutError(f"no signal {name!r} has come in time")
        how: dict[str, Any] = {}
        if until is not None:
            how = {"at": datetime.fromtimestamp(until // US, UTC) + timedelta(microseconds=until % US)}
        elif span is not None and name not in self.deadlines:
            how = {"delay": span}
        rest = f',"for":{round(how["delay"] * US)}}}' if "delay" in how else "}"
        self._suspend("wait", how, begins, rest, unless, told, step_signal=name)

    def _look(self) -> str | None:
        row, _ = self.moves.look(self.attempt.taken.parts, self.moves.afresh)
        table = self.moves.tasks.table
        text: str | None = row[table.fields.index(table.roles["steps"])]
        return text

    def _suspend(
        self, event: str, how: dict[str, Any], begins: str, rest: str, unless: str, told: str, **brings: Any
    ) -> None:
        is_first = event == "sleep" or brings["step_signal"] not in self.deadlines
        brings |= self._line(begins, rest, told, counts=is_first) | {"step_mark": unless}
        self.job.suspended = Suspended(event, how, brings, told)
        raise self.job.suspended


def _returned(awaited: bool, progress: Progress, calls: Any) -> Any:
    """Run a generator of calls to the database, here or awaited, and return its result."""
    return _awaited(progress, calls) if awaited else _done(calls, progress._run)


def _done(calls: Any, run: Callable[[Any], Any]) -> Any:
    answer = None
    try:
        while True:
            answer = run(calls.send(answer))
    except StopIteration as ended:
        return ended.value


async def _awaited(progress: Progress, calls: Any) -> Any:
    _check_own_task(progress.job)  # gather() has made a subtask of it since
    answer = None
    try:
        while True:
            answer = await progress._arun(calls.send(answer))
    except StopIteration as ended:
        return ended.value


def _is_awaited(frame: FrameType | None) -> bool:
    """Return whether the function that calls is an `async def`; a comprehension, or a lambda, is part of its own."""
    while frame is not None and frame.f_code.co_name in (
        "<listcomp>",
        "<genexpr>",
        "<setcomp>",
        "<dictcomp>",
        "<lambda>",
    ):
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & AWAITS)


def _progress(what: str, suspends: bool = False) -> Progress:
    """Return what is known of the running attempt. Raises ConfigurationError, BadValue, FeatureOff and Suspended."""
    job: Any = _lease(what)
    if job.thread != threading.get_ident():
        raise ConfigurationError(f"xq.{what} is called in another thread than the worker's function: call it there")
    if job.suspended is not None:
        raise job.suspended
    if inner := _within.get():
        raise BadValue(f"xq.{what} is called within the step {inner!r}: a step has none of its own, and cannot wait")
    if suspends:
        _check_own_task(job)
    if job.progress is None:
        job.progress = Progress(job)
    progress: Progress = job.progress
    return progress


def _check_own_task(job: Any) -> None:
    if job.coroutine is not None and asyncio.current_task() is not job.coroutine:
        raise BadValue("a wait ends the attempt: await it in the worker's function itself, not in a subtask")


def _lease(what: str) -> Any:
    try:
        job: Any = current()
    except ConfigurationError:
        job = None
    if job is None or getattr(job, "made_by", None) is None:
        raise ConfigurationError(
            f"xq.{what} is for a worker's function: call it there. A test runs that by xq.testing.run_pending, or by "
            "worker.run(until_empty=True)"
        )
    worker = job.made_by.worker
    if worker.options.batch:
        raise ConfigurationError(f"xq.{what} needs a worker of one task: leave batch= out")
    if "steps" not in (feature.name for feature in worker.moves.machine.features):
        lacks = worker.moves.tasks.wording.lacks(worker.queue.name, f"xq.{what}", "", ("steps",))
        raise FeatureOff(lacks, feature="steps")
    return job
