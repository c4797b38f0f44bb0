"""Coroutines' calls on their way to the database and back.

The calls in one turn of an event loop share a transaction. A call that is alone in its turn runs plainly. Equal calls
become one statement. If that fails, its calls run one by one, and each raises its own error.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, Generic, NamedTuple

from xq.core.acting import BLOCKS
from xq.core.errors import Error, NotInstalled, in_line
from xq.core.kinds import OUTCOME_UNKNOWN, ErrorKind, R, T
from xq.core.values import Taken
from xq.database.callers import Runner
from xq.database.sessions import entered
from xq.engine.several import SeveralMoves
from xq.runtime.sleep import Awake
from xq.runtime.waiting import Waiting

TakenBy = tuple[T, str | None]  # a taken task and its token

PER_TRANSACTION: Final = 64  # calls in a transaction

log = logging.getLogger("xq")
_ending = threading.Lock()  # a thread ends a call, or its coroutine leaves it: one comes first


@dataclass(slots=True, eq=False, repr=False)
class Call(Generic[R]):
    """A call that a coroutine awaits and another thread may run.

    If the coroutine is cancelled, `undo` gets the result of a call that had begun. A call not yet begun is dropped.
    """

    undo: Callable[[R], object] | None = None
    dropped: Callable[[], object] | None = None
    kind: Any = None  # a CallKind for a call that may share a statement
    item: Any = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    context: Context = field(default_factory=copy_context)
    future: asyncio.Future[R] = field(init=False)
    gone: bool = False
    begun: bool = False  # whether a thread runs it, with others in its turn
    ended: bool = False
    result: Any = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    async def wait(self, run: Runner) -> R:
        """Await the result. If the coroutine is cancelled when there is one already, `run` undoes it.

        A call that finishes a task ends first, if it has begun: it waits for the task's row for a second at most.
        The coroutine's transaction may have locked that row, and must keep the lock until then.
        """
        try:
            return await self.future
        except BaseException:
            with _ending:
                self.gone = True
                late, runs = self.ended, self.begun and not self.ended
            if runs and finishes(self):
                self.future = self.loop.create_future()
                with suppress(Exception):
                    await self.future
            if late and self.error is None and self.undo is not None:
                run(partial(self._undone, self.undo))
            if self.future.done() and not self.future.cancelled():
                self.future.exception()  # asyncio logs an exception that was not retrieved
            raise

    def perform(self, work: Callable[[], R], must: bool = False) -> None:
        """Run the work in the coroutine's context, and deliver its result. Raises no error from the work."""
        if self.gone and not must:
            if self.dropped is not None:
                self.dropped()
            return
        try:
            result, error = self.context.run(work), None
        except BaseException as raised:
            result, error = None, raised
        record_ends([(self, result, error)])
        deliver([self])

    def _undone(self, undo: Callable[[R], object]) -> None:
        try:
            self.context.run(undo, self.result)
        except Exception as error:
            log.warning("the result of a cancelled call could not be undone: %s", in_line(error))

    def deliver(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def finishes(call: Call[Any]) -> bool:
    return call.kind is not None and call.kind.event not in ("put", "take")


def record_ends(ends: Sequence[tuple[Call[Any], Any, BaseException | None]]) -> None:
    """Record how calls ended: the result of each, or its error. Undo the results whose coroutines are gone."""
    gone = []
    with _ending:
        for call, result, error in ends:
            if isinstance(error, StopIteration):  # a future cannot raise it
                error = RuntimeError(f"the call raised {error!r}")
            call.result, call.error, call.ended = result, error, True
            if call.gone:
                gone.append(call)
    for call in gone:
        if call.error is None and call.undo is not None:
            call._undone(call.undo)


def deliver(calls: Sequence[Call[Any]]) -> None:
    """Wake the coroutines of calls that have ended, on their event loops."""
    loops: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = {}
    for call in calls:
        loops.setdefault(call.loop, []).append(call)
    for loop, ended in loops.items():
        soon(loop, partial(_deliver_all, ended))


def _deliver_all(calls: Sequence[Call[Any]]) -> None:
    for call in calls:
        call.deliver()


def soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> bool:
    """Run a call on a loop, from any thread. Return False, and do nothing, if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return False
    return True


async def sleep(awake: Awake, seconds: float) -> bool:
    """Sleep until an event is set, and clear it. Return False if it was not set within `seconds`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    awake.call = partial(soon, loop, wake)
    timer = loop.call_later(max(0.0, seconds), wake)
    try:
        if not awake.is_set():
            await future
    finally:
        timer.cancel()
        awake.call = None
    woken = awake.is_set()
    awake.clear()
    return woken


class CallKind(NamedTuple):
    """What calls must have in common to become one statement."""

    event: str
    options: tuple[tuple[str, Hashable], ...]
    tube: str | None
    context: Hashable  # the sessions that the coroutine has entered, and who acts in its blocks


@cache
def _usual(event: str) -> CallKind:
    return CallKind(event, (), None, ())


def kind(event: str, options: Mapping[str, Any], tube: str | None = None) -> CallKind:
    sessions, acting = entered(), BLOCKS.get()
    if options or tube is not None or sessions or acting:
        return CallKind(event, tuple(options.items()), tube, (sessions, *acting.items()))
    return _usual(event)


class Turns(Generic[T]):
    """One queue's calls that may share transactions.

    A put's item is the task, a take's the number of tasks, any other event's a key and the `update`.
    """

    def __init__(self, waiting: Waiting[T], several: SeveralMoves[T], put: Callable[..., T], runner: Runner) -> None:
        self.waiting = waiting
        self._several = several
        self._put = put
        self._runner = runner
        self._calls: deque[Call[Any]] = deque()

    def add(self, call: Call[Any]) -> None:
        self._calls.append(call)

    def _next(self) -> list[Call[Any]]:
        """Remove and return up to PER_TRANSACTION calls. Leave out calls whose coroutines are gone."""
        calls: list[Call[Any]] = []
        try:
            while len(calls) < PER_TRANSACTION:
                call = self._calls.popleft()
                with _ending:
                    call.begun = not call.gone and not call.loop.is_closed()
                if call.begun:
                    calls.append(call)
        except IndexError:
            pass
        return calls

    def run(self) -> None:
        """Run all the calls. Other threads may help."""
        calls, store = self._next(), self.waiting.executor.store
        if self._calls:
            self._runner(self.run)
        if not calls:
            return
        try:
            if store.in_use is None and store.has_threads:
                store.connect()
            self._run(calls)
        except BaseException as error:
            for call in calls:
                if not call.ended:
                    record_ends([(call, None, error)])
        deliver(calls)

    def _run(self, calls: list[Call[Any]]) -> None:
        store, locked = self.waiting.executor.store, None
        if len(calls) > 1:
            tokens: list[str | None] = []
            groups = list(_alike(calls))
            connection = store.ready()
            try:
                connection.briefly = True
                with nullcontext() if len(groups) == 1 and self._become_one(groups[0]) else store.atomic():
                    ends = [end for alike in groups for end in self._together(alike, tokens)]
            except BaseException as error:
                self.waiting.takes.in_doubt.add(tokens, error)
                locked = error if self.waiting.named.is_locked(error) and any(map(finishes, calls)) else None
                if store.classify(error) in OF_ALL and not isinstance(error, Error) and not locked:
                    raise  # for all the calls
                # It was rolled back, for example by a deadlock: each call runs by itself.
            else:
                record_ends(ends)
                return
            finally:
                connection.briefly = False
        for call in calls:  # a coroutine whose task's row is locked tries again by itself
            record_ends([(call, None, locked) if locked and finishes(call) else (call, *self._end(call))])

    def _together(self, calls: list[Call[Any]], tokens: list[str | None]) -> Iterable[tuple[Call[Any], Any, Any]]:
        """Run alike calls within a transaction, and return each with its result and its error."""
        kind = calls[0].kind
        if self._become_one(calls):
            try:
                results = calls[0].context.run(self._many, kind, [call.item for call in calls], tokens)
                return [(call, result, None) for call, result in zip(calls, results, strict=True)]
            except Exception as error:
                self._check_transaction(error)
        ends = []
        for call in calls:
            result, error_of_it = self._end(call, tokens)
            if error_of_it is not None:
                self._check_transaction(error_of_it)
            ends.append((call, result, error_of_it))
        return ends

    def _become_one(self, calls: list[Call[Any]]) -> bool:
        """Return whether alike calls become one call with several tasks, which is a transaction of its own."""
        # With an observer each put has its coroutine's context.
        each = calls[0].kind.event == "put" and self.waiting.executor.observers.around_put is not None
        return len(calls) > 1 and not each

    def _check_transaction(self, error: BaseException) -> None:
        """Raise an error that has ended the transaction, or may have, or is not for one call alone."""
        store = self.waiting.executor.store
        if isinstance(error, NotInstalled) or store.classify(error) in ENDING or not store.in_transaction():
            raise error

    def _end(self, call: Call[Any], tokens: list[str | None] | None = None) -> tuple[Any, BaseException | None]:
        try:
            return call.context.run(self.one, call.kind, call.item, tokens), None
        except Exception as error:
            return None, error

    def one(self, kind: CallKind, item: Any, tokens: list[str | None] | None = None) -> Any:
        if kind.event == "put":
            options: Mapping[str, Any] = dict(kind.options)
            return self._put(item, **options)
        if kind.event == "take":
            return self._take(kind, item, [] if tokens is None else tokens)
        key, update = item
        return self.waiting.named.one(kind.event, key, dict(kind.options), update, waits=False)

    def _many(self, kind: CallKind, items: list[Any], tokens: list[str | None]) -> list[Any]:
        if kind.event == "put":
            return self.waiting.inserts.put_many(items, dict(kind.options))
        if kind.event == "take":
            found = iter(self._take(kind, sum(items), tokens))
            return [[held for _, held in zip(range(n), found, strict=False)] for n in items]
        keys, updates = zip(*items, strict=True)
        return self._several.many(kind.event, keys, dict(kind.options), None if not any(updates) else updates)

    def _take(self, kind: CallKind, n: int, tokens: list[str | None]) -> list[TakenBy[T]]:
        token: list[str | None] = []
        found = self.waiting.takes.oldest("take", n, dict(kind.options), tube=kind.tube, then=token.append)
        tokens.extend(token)
        return [(task, token[0]) for task in found]

    def release(self, held: Iterable[TakenBy[T]]) -> None:
        """Release tasks whose taker is gone. What it cannot release now is released later."""
        for task, token in held:
            parts, _ = self.waiting.tasks.identify(task)
            try:
                self.waiting.named.one("release", Taken(parts, token), undone=True)
            except Error as error:  # it is taken no more
                log.debug("a task of a cancelled take was not released: %s", error)
            except Exception as error:
                log.warning("a task of a cancelled take is released later: %s", in_line(error))
                self.waiting.takes.in_doubt.add([token], InterruptedError())


# After these the calls are not run again: they might be applied twice, or wait as long once more.
OF_ALL: Final = frozenset({*OUTCOME_UNKNOWN, ErrorKind.TRANSIENT, ErrorKind.LOCKED, ErrorKind.READ_ONLY})
# After these the transaction is over, or a statement in it would fail as well.
ENDING: Final = frozenset({ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.READ_ONLY, ErrorKind.LOST})


def _alike(calls: list[Call[Any]]) -> Iterable[list[Call[Any]]]:
    """Return the calls in groups that may become one statement: what frees tasks first, takes last."""
    groups: dict[CallKind, list[Call[Any]]] = {}
    for call in calls:
        groups.setdefault(call.kind, []).append(call)
    order = {"put": 1, "take": 2}
    return sorted(groups.values(), key=lambda group: order.get(group[0].kind.event, 0))


def resume(wait: Any, answer: object, failed: Exception | None) -> tuple[bool, Any]:
    """Run a call that waits up to its next request. Return whether it has ended, and its result or the request."""
    try:
        return False, wait.send(answer) if failed is None else wait.throw(failed)
    except StopIteration as end:
        return True, end.value
