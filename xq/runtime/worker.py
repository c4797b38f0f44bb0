"""Workers: threads that take tasks, call a function with each, and ack a task when the function returns."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from xq.core.errors import ConfigurationError, Error, NotFound, Undone, WrongState, shown
from xq.core.machine import LONGEST, Machine
from xq.core.ports import REFUSALS, ErrorKind
from xq.core.values import Taken
from xq.engine.finish import Finish
from xq.runtime.lease import LOST, Heartbeat, Lease, leased, ttr_of

T = TypeVar("T")

LISTEN = 0.5  # seconds after which a waiting worker checks whether it must stop
LONGEST_ERROR = 10_000  # characters: a TEXT of MariaDB holds 65,535 bytes
LONGEST_LINE = 500  # characters of an error in a line of the log
LEFT_OUT = " [...] "
BACKOFF, LONGEST_BACKOFF = 1.0, 3600.0  # seconds until a failed task is retried: the first time, and at most


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """The function of a worker, its number of threads, and the attempts before a task is buried (None: no limit)."""

    function: Callable[..., object]
    workers: int = 1
    max_attempts: int | None = None
    finishes: bool = False  # whether the function also gets `finish`
    timeout: float | None = None  # seconds after which a running function has failed


def work(
    name: str,
    machine: Machine,
    function: object,
    workers: object,
    max_attempts: object = None,
    finishes: bool = False,
    timeout: object = None,
) -> Work[Any]:
    """Return the checked work of the queue of this name. Raises ConfigurationError for a wrong argument."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"a worker of {name} is a function of a task, not {shown(function)}")
    for argument, number in (("workers", workers), ("max_attempts", 1 if max_attempts is None else max_attempts)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigurationError(f"{argument} is a number from 1 on, not {shown(number)}")
    if max_attempts and ("attempts" not in machine.roles or not machine.sources("bury")):
        raise ConfigurationError(
            f"max_attempts of {name} needs the role 'attempts' (map it to an integer field), which counts, and the "
            "feature 'buried' (features={'buried': True})"
        )
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST
    ):
        raise ConfigurationError(f"timeout is a number of seconds above 0, not {shown(timeout)}")
    return Work(function, workers, max_attempts, finishes, timeout)  # type: ignore[arg-type]


class Workers(Generic[T]):
    """The running workers of one queue. Each call of `takes` gets as many threads as the work says.

    The threads take by the session of the process.
    """

    def __init__(
        self,
        takes: Sequence[Callable[[float], T | None]],
        moves: Callable[[], Finish[T]],  # called for each move: `reconfigure` replaces it
        work: Work[T],
        until_empty: bool = False,
    ) -> None:
        self._takes = takes
        self._moves = moves
        self._work = work
        self._until_empty = until_empty
        self._stop = threading.Event()
        self._leases: dict[Lease, tuple[threading.Thread, Callable[[float], T | None]]] = {}  # whose thread takes so
        self._heart = Heartbeat(moves().store, self._touch, self._overdue)
        self._threads: list[threading.Thread] = []
        self._replaced: set[threading.Thread] = set()  # those whose function is overdue
        self._error: BaseException | None = None
        self._store = moves().store
        self._log = moves().log

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, or with `until_empty` until no task is ready.

        A second signal releases the tasks. Raises the error that ended a worker. Errors of the function, of a task, and
        of a lost connection end none.
        """
        takes = [take for take in self._takes for _ in range(self._work.workers)]
        with self._signals():
            self._log.info("working on %s with threads=%d", self._store.name, len(takes))
            for take in takes:
                self._start(take)
            for thread in self._threads:  # it grows while threads are replaced
                while thread.is_alive() and thread not in self._replaced:
                    thread.join(LISTEN)  # a join without a timeout would block the signal handlers
        self._heart.end()
        if self._error is not None:
            raise self._error

    def _start(self, take: Callable[[float], T | None], overdue: Lease | None = None) -> None:
        thread = threading.Thread(target=self._loop, args=(take, overdue), daemon=True)
        self._threads.append(thread)
        thread.start()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, frame: object) -> None:
            if self._stop.is_set():
                self._release()
                raise SystemExit(128 + number)
            self._stop.set()
            name = signal.Signals(number).name
            self._log.info("%s: the workers finish their tasks and end; a second signal releases the tasks", name)

        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can handle signals
            return
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _release(self) -> None:
        for lease in list(self._leases):
            self._log.warning("released task %s, which was being worked on", self._key(lease.taken))
            self._give_back(lease.taken)

    def _give_back(self, task: Taken) -> None:
        self._finish(partial(self._move, "release", task), partial(self._leave, task))

    def _loop(self, take: Callable[[float], T | None], overdue: Lease | None) -> None:
        try:
            if overdue is not None:
                self._fail_overdue(overdue)
            while not self._stop.is_set() and threading.current_thread() not in self._replaced:
                try:
                    self._store.connect()
                    task = take(0 if self._until_empty else LISTEN)
                except Exception as error:
                    self._wait_for_the_database(error)
                    continue
                if task is not None and self._stop.is_set():  # it waited for a task when the signal came
                    self._give_back(self._moves().tasks.taken(task))
                elif task is not None:
                    self._do(task, take)
                elif self._until_empty:
                    break
        except BaseException as error:
            # The message of an Error needs no traceback, for example of a queue that is not installed.
            known = isinstance(error, Error)
            self._log.error(
                "a worker ends, and the others with it%s", f": {error}" if known else "", exc_info=not known
            )
            self._error = error
            self._stop.set()
        finally:
            self._store.disconnect()

    def _do(self, task: T, take: Callable[[float], T | None]) -> None:
        tasks, machine = self._moves().tasks, self._moves().machine
        taken = tasks.taken(task)  # the function may change the key of the task
        attempts = int(tasks.in_role(task, "attempts") or 0)
        ttr = ttr_of(machine, partial(tasks.in_role, task))
        lease = Lease(self._heart, task, taken, ttr, attempts, self._work.timeout)
        self._leases[lease] = threading.current_thread(), take
        self._heart.add(lease)
        try:
            failed = partial(self._failed, taken, attempts)
            if not self._may_be_tried(task, taken, attempts):
                return
            try:
                with self._store.at_work(), leased(lease):
                    finished = self._call(task, taken)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # such as CancelledError or GeneratorExit
                failed(error)
                return
            if finished is None:
                self._finish(partial(self._move, "ack", taken), failed, expected=(NotFound, WrongState))
            elif finished.in_doubt:
                self._finish(partial(self._check_finished, taken), failed, expected=LOST)
        finally:
            self._heart.remove(lease)
            del self._leases[lease]

    def _overdue(self, lease: Lease) -> None:
        """Replace the thread of a function that runs for too long, which cannot be stopped. The new one fails the task.

        The old thread ends when the function returns.
        """
        running = self._leases.get(lease)
        if running is not None:  # else the function has just returned
            thread, take = running
            self._start(take, lease)
            self._replaced.add(thread)

    def _fail_overdue(self, lease: Lease) -> None:
        try:
            raise TimeoutError(f"the function runs for longer than {self._work.timeout:g} s")
        except TimeoutError as error:
            self._failed(lease.taken, lease.attempt, error)

    def _touch(self, leases: Collection[Lease], seconds: float) -> Iterator[Lease]:
        for lease in leases:
            try:
                # A row that is locked is not waited for: the function's own transaction may have changed it.
                if self._moves().touch_if_free(lease.taken, seconds):
                    yield lease
            except LOST as error:
                self._log.debug("%s", error)  # the handler may have finished it; else the ack reports the loss
                lease.lost.set()

    def _call(self, task: T, taken: Taken) -> _Finished | None:
        """Call the function. Return how it has finished the task by `finish`, or None if it has not."""
        if not self._work.finishes:
            self._work.function(task)
            return None
        finished: _Finished | None = None

        def finish(event: str = "ack", *, update: Mapping[str, Any] | None = None, **options: Any) -> T | None:
            nonlocal finished
            within = self._store.in_transaction()
            move = partial(self._moves().one, event, taken, options, update)
            moved: T | None = self._finish(move, _raise, repeats=not within)
            # Without a token, a released task that another thread has taken again looks like an undone release.
            in_doubt = within and moved is not None and (taken.token is not None or event != "release")
            finished = _Finished(in_doubt)
            return moved

        self._work.function(task, finish)
        return finished

    def _check_finished(self, taken: Taken) -> None:
        if self._moves().is_taken_by(taken):
            raise Undone(self._store.name, self._moves().tasks.app_key(taken.parts))

    def _may_be_tried(self, task: T, taken: Taken, attempts: int) -> bool:
        """Return whether to call the function. If workers died in all attempts, bury the task and return False.

        A buried task that was dug out is tried once more.
        """
        if not self._work.max_attempts or attempts <= self._work.max_attempts:
            return True
        once_more = self._finish(partial(self._may_try_once_more, task), partial(self._failed, taken, attempts))
        if once_more is False:  # None: the task was lost, or has failed
            self._bury(taken, f"it was taken {attempts - 1} times and never finished")
        return bool(once_more)

    def _failed(self, task: Taken, attempts: int, error: BaseException) -> None:
        """Log the error of a task, and release or bury it. Call it within the handler of that error."""
        most = self._work.max_attempts
        if most and attempts >= most:
            self._bury(task, f"{type(error).__name__}: {_text(error)}", error)
            return
        self._log.debug("task %s failed", self._key(task), exc_info=error)
        leave = partial(self._leave, task)
        delay = min(LONGEST_BACKOFF, BACKOFF * 2.0 ** min(attempts - 1, 20)) if attempts > 1 else BACKOFF
        attempt = f"attempt {attempts}{f' of {most}' if most else ''}; " if attempts else ""
        self._log.warning("task %s failed (%snext in %g s): %s", self._key(task), attempt, delay, _line(error))
        if "delay" in self._moves().machine.options("release"):
            self._finish(partial(self._move, "release", task, delay=delay), leave)
        else:
            self._stop.wait(delay)  # else it would be ready at once
            self._finish(partial(self._move, "release", task), leave)

    def _leave(self, task: Taken, error: Exception) -> None:
        """Log a task that cannot be released either. It stays taken, and the worker goes on."""
        self._log.exception("task %s can be neither finished nor given back, and stays taken", self._key(task))

    def _bury(self, task: Taken, why: str, error: BaseException | None = None) -> None:
        give_up = partial(self._give_up, task, why, "" if error is None else _traceback(error))
        if self._finish(give_up, partial(self._leave, task)) is not None:
            self._log.error("task %s is buried: %s", self._key(task), why, exc_info=error)

    def _key(self, taken: Taken) -> str:
        return shown(self._moves().tasks.app_key(taken.parts))

    def _move(self, event: str, task: Taken, **options: float) -> T:
        return self._moves().one(event, task, options)

    def _may_try_once_more(self, task: T) -> bool:
        """Return whether the taken task was buried before and dug out: then its role error is set. Clear it."""
        moves = self._moves()
        if not moves.tasks.in_role(task, "error"):
            return False
        role = moves.tasks.table.roles["error"]
        moves.write(task, {role.name: None if role.null else ""})
        return True

    def _give_up(self, task: Taken, why: str, trace: str) -> T:
        """Bury a task with the reason and the traceback in its role error. The reason comes first, to group reports."""
        moves = self._moves()
        role = moves.tasks.table.roles.get("error")
        if role is None:
            return moves.one("bury", task, {})
        most = min(LONGEST_ERROR, role.max_length or LONGEST_ERROR)
        text = storable(why, most)
        if trace and len(text) + 1 < most:
            text = f"{text}\n{storable(trace, most - len(text) - 1)}"
        try:
            return moves.one("bury", task, {}, {role.name: text}, sets_error=True)
        except Exception as refused:  # for example characters that the column cannot hold, or a unique index
            if isinstance(refused, LOST) or self._store.may_pass(refused):
                raise
            self._log.warning("%r of task %s cannot hold its error: %s", role.name, self._key(task), refused)
            return moves.one("bury", task, {})

    def _finish(
        self,
        move: Callable[[], Any],
        otherwise: Callable[[Exception], None],
        expected: tuple[type[Error], ...] = (),
        repeats: bool = True,
    ) -> Any:
        """Run `move`, retried while the database fails, and return its result, or None.

        None means one of two things. The task was lost, which is logged: as a debug message if the error is
        `expected`. Or a retry is useless: then `otherwise` is called within the handler of the error. Without `repeats`
        (within a transaction, which a failure ends) no error is retried.
        """
        while True:
            try:
                self._store.connect()  # the function may have closed it
                return move()
            except LOST as error:
                self._log.log(logging.DEBUG if isinstance(error, expected) else logging.INFO, "%s", error)
                return None
            except Exception as error:
                if not repeats or not self._store.may_pass(error):
                    otherwise(error)
                    return None
                if self._stop.is_set():
                    raise
                self._wait_for_the_database(error)

    def _wait_for_the_database(self, error: Exception) -> None:
        """Wait BACKOFF seconds after an error of the database. Raise any other error, and those of a rejected row."""
        if self._store.classify(error) in (ErrorKind.NOT_DATABASE, *REFUSALS):
            raise error
        self._log.warning("the database fails, and is asked again: %s", error)
        self._stop.wait(BACKOFF)


@dataclass(frozen=True, slots=True)
class _Finished:
    """The function has finished its task by `finish`."""

    in_doubt: bool  # within a transaction, which may be rolled back


def _raise(error: Exception) -> None:
    raise error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def _line(error: BaseException) -> str:
    """Return an error as one line for the log."""
    return next(iter(f"{type(error).__name__}: {_text(error)}".splitlines()))[:LONGEST_LINE]


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # the error's own __str__ may raise
        return ""


def storable(text: str, most: int) -> str:
    """Return a text that a field of `most` characters can store in any database. The middle of a longer one is cut."""
    text = text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
    if len(text) <= most:
        return text
    half = (most - len(LEFT_OUT)) // 2
    return f"{text[:half]}{LEFT_OUT}{text[-half:]}" if half > 0 else text[:most]
