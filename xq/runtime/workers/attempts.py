"""What becomes of the tasks that a worker has taken: each is acked, released, buried or killed."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from xq.core.errors import Error, NotFound, Undone, WrongState, shown
from xq.core.machine import TAKEN
from xq.core.ports import REFUSALS, ErrorKind
from xq.core.values import Taken
from xq.engine.finish import Finish
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of
from xq.runtime.workers.outcomes import Bury, Discard, Retry
from xq.runtime.workers.worker import Worker

T = TypeVar("T")
Hook = Callable[[Any, BaseException], object]

AGAIN = 1.0  # seconds until the database is asked again after it failed
LONGEST_ERROR = 10_000  # characters: a TEXT of MariaDB holds 65,535 bytes
LONGEST_LINE = 500  # characters of an error in a line of the log
LEFT_OUT = " [...] "


class Attempt(NamedTuple):
    """One attempt at one task."""

    task: Any  # as the handler gets it
    taken: Taken  # what names the task, and this take, in a call
    number: int  # of its takes; 0 without the role attempts


class Batch(list[T]):
    """The tasks that a handler of `worker(batch=)` gets. When it returns, those that have not failed are acked."""

    def __init__(self, tasks: Collection[T]) -> None:
        super().__init__(tasks)
        self.failed: dict[int, BaseException] = {}  # by the place of the task

    def fail(self, task: T, error: BaseException | str) -> None:
        """Say that one task has failed. It is released or buried, as if a handler of its own had raised the error."""
        place = next((place for place, each in enumerate(self) if each is task), None)
        if place is None:
            raise NotFound("this batch", task)
        self.failed[place] = error if isinstance(error, BaseException) else RuntimeError(error)


class Finished(NamedTuple):
    """The function has finished its task by `finish`."""

    in_doubt: bool  # within a transaction, which may be rolled back


class Attempts(Generic[T]):
    """The attempts of one worker, in any number of threads."""

    def __init__(
        self,
        worker: Worker[T],
        moves: Callable[[], Finish[T]],  # called for each move: `reconfigure` replaces it
        stop: threading.Event,
        overdue: Callable[[Lease], None] | None = None,
    ) -> None:
        self.worker = worker
        self.options = worker.options
        self.stop = stop
        self.store = moves().store
        self.log = moves().log
        self.leases: set[Lease] = set()
        self.alone = False  # whether it runs in the caller's thread: without heartbeat and timeout
        self.heart = Heartbeat(self.store, self._touch, overdue or (lambda lease: None))
        self._moves = moves

    @property
    def release_options(self) -> Collection[str]:
        """The options of a release, in seconds."""
        return self._moves().machine.options("release")

    # the course of an attempt

    def begin(self, tasks: Sequence[T]) -> Lease | None:
        """Lease taken tasks for one call of the function; None if none of them may be tried again."""
        tell, machine = self._moves().tasks, self._moves().machine
        attempts = [
            Attempt(task, tell.taken(task), int(tell.in_role(task, "attempts") or 0)) for task in tasks
        ]  # the function may change the key of the task
        if self.options.max_attempts:
            attempts = [each for each in attempts if self._may_be_tried(each)]
        if not attempts:
            return None
        handed = [self.worker.given(each.task) for each in attempts]
        ttr = None
        if machine.timers.get(TAKEN) and not self.alone:
            ttrs = [ttr_of(machine, partial(tell.in_role, each.task)) for each in attempts]
            ttr = min((ttr for ttr in ttrs if ttr is not None), default=None)
        own = self.options.kind == "asyncio" or self.alone  # asyncio has its own timeout
        timeout = None if own else self.options.timeout
        lease = Lease(
            self.heart, Batch(handed) if self.options.batch else handed[0], attempts, ttr, attempts[0].number, timeout
        )
        self.leases.add(lease)
        self.heart.add(lease)
        return lease

    def call(self, lease: Lease) -> Finished | None:
        """Call the function. Return how it has finished the task by `finish`, or None if it has not."""
        if not self.options.finishes:
            self.worker.call(lease.task)
            return None
        (attempt,) = lease.taken
        finished: Finished | None = None

        def finish(event: str = "ack", *, update: Mapping[str, Any] | None = None, **options: Any) -> T | None:
            nonlocal finished
            within, taken = self.store.in_transaction(), attempt.taken
            move = partial(self._moves().one, event, taken, options, update)
            moved: T | None = self._finish(move, _raise, repeats=not within)
            # Without a token, a released task that another thread has taken again looks like an undone release.
            in_doubt = within and moved is not None and (taken.token is not None or event != "release")
            finished = Finished(in_doubt)
            return moved

        self.worker.call(lease.task, self.worker.finishing(finish))
        return finished

    def end(self, lease: Lease, error: BaseException | None = None, finished: Finished | None = None) -> None:
        """Finish the tasks of a lease after the function has returned or raised. Call it within the handler of `error`.

        A lost lease needs nothing: its tasks belong to others by now.
        """
        try:
            if error is not None:
                for attempt in lease.taken:
                    self._failed(attempt, error)
            elif finished is None:
                self._ack_each(lease)
            elif finished.in_doubt:
                (attempt,) = lease.taken
                failed = partial(self._failed, attempt)
                self._finish(partial(self._check_finished, attempt.taken), failed, expected=LOST)
        finally:
            self.drop(lease)

    def ack(self, leases: Sequence[Lease]) -> None:
        """Ack the tasks of these leases together, whose functions have returned."""
        done = [attempt.taken for lease in leases for attempt in _done(lease)]
        if len(done) > 1:
            # If the database refuses one, all are acked one after the other.
            if self._finish(lambda: self._moves().many("ack", done, {}), lambda error: None) is not None:
                for lease in leases:
                    self._fail_named(lease)
                    self.drop(lease)
                return
        for lease in leases:
            self.end(lease)

    def ack_and_take(
        self, leases: Sequence[Lease], take: Callable[[Callable[[str | None], None]], list[T]]
    ) -> list[T] | None:
        """Ack the tasks of these leases, and take the next ones, in one transaction. Return those.

        None if nothing was done. On a server two statements cost less than a transaction. `take` passes the token of
        its take to its argument.
        """
        moves = self._moves()
        done = [attempt.taken for lease in leases for attempt in _done(lease)]
        if moves.database.dialect.lock or not done or any(_named(lease) for lease in leases):
            return None

        def both() -> list[T]:
            if len(done) == 1:
                moves.one("ack", done[0])
            else:
                moves.many("ack", done, {})
            return take(tokens.append)

        tokens = list[str | None]()
        try:
            connection = moves.database.begin()
            if moves.database.observers.anybody:
                found = moves.database.unit(both, transaction=True)
            else:  # without the ORM's transaction, which only its callbacks after a commit need
                found = connection.atomically({}, lambda *_: both())
        except BaseException as error:
            moves.in_doubt.add(tokens, error)
            if isinstance(error, Exception):
                return None  # all is rolled back: `ack` finds the reason
            raise
        for lease in leases:
            self.drop(lease)
        return found

    def drop(self, lease: Lease) -> None:
        self.heart.remove(lease)
        self.leases.discard(lease)

    def give_back(self, lease: Lease) -> None:
        """Release the tasks of a lease, whose function has not been called."""
        for attempt in lease.taken:
            self._release(attempt.taken, partial(self._leave, attempt.taken))
        self.drop(lease)

    def give_back_tasks(self, tasks: Sequence[T]) -> None:
        """Release tasks that were taken as the worker was to end."""
        for task in tasks:
            taken = self._moves().tasks.taken(task)
            self._release(taken, partial(self._leave, taken))

    def release_all(self) -> None:
        """Release the tasks of all running functions."""
        for lease in list(self.leases):
            for attempt in lease.taken:
                self.log.warning("released task %s, which was being worked on", self._key(attempt.taken))
                self._release(attempt.taken, partial(self._leave, attempt.taken))

    def fail_overdue(self, lease: Lease) -> None:
        """Release or bury the tasks of a function that runs for too long."""
        try:
            raise TimeoutError(f"the function runs for longer than {self.options.timeout:g} s")
        except TimeoutError as error:
            for attempt in lease.taken:
                self._failed(attempt, error)

    def wait_for_the_database(self, error: Exception) -> None:
        """Wait AGAIN seconds after an error of the database. Raise any other error, and those of a rejected row."""
        if self.store.classify(error) in (ErrorKind.NOT_DATABASE, *REFUSALS):
            raise error
        self.log.warning("the database fails, and is asked again: %s", error)
        self.stop.wait(AGAIN)

    # how an attempt ends

    def _ack_each(self, lease: Lease) -> None:
        for attempt in _done(lease):
            failed = partial(self._failed, attempt)
            self._finish(partial(self._move, "ack", attempt.taken), failed, expected=(NotFound, WrongState))
        self._fail_named(lease)

    def _fail_named(self, lease: Lease) -> None:
        for place, error in _named(lease).items():
            self._failed(lease.taken[place], error)

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        """Log the error of a task, and release, bury or kill it."""
        if isinstance(error, Discard):
            self._finish(partial(self._moves().kill_if_taken_by, attempt.taken), partial(self._leave, attempt.taken))
            return
        asks_to_bury = isinstance(error, Bury) and bool(self._moves().machine.sources("bury"))
        if not isinstance(error, (Retry, Bury)):
            self._call_hooks(self.worker.failure_hooks, attempt, error)
        most = self.options.max_attempts
        if asks_to_bury:
            self._bury(attempt, text_of(error))
            self._call_hooks(self.worker.bury_hooks, attempt, error)
        elif most and attempt.number >= most:
            self._bury(attempt, f"{type(error).__name__}: {text_of(error)}", error)
            self._call_hooks(self.worker.bury_hooks, attempt, error)
        else:
            self._retry(attempt, error)

    def _retry(self, attempt: Attempt, error: BaseException) -> None:
        task, number, most = attempt.taken, attempt.number, self.options.max_attempts
        pause = error.delay if isinstance(error, Retry) else None
        if pause is None:
            pause = self.worker.backoff.pause(self.worker.given(attempt.task), number, error, self.log)
        extra = self._extra(attempt, "release")
        counted = f"attempt {number}{f' of {most}' if most else ''}; " if number else ""
        if isinstance(error, Retry):
            self.log.info("task %s is retried (%snext in %.3g s)", self._key(task), counted, pause, extra=extra)
        else:
            self.log.debug("task %s failed", self._key(task), exc_info=error)
            line = _line(error)
            self.log.warning(
                "task %s failed (%snext in %.3g s): %s", self._key(task), counted, pause, line, extra=extra
            )
        leave = partial(self._leave, task)
        if "delay" in self.release_options:
            options = {"delay": pause} if pause else {}
            self._finish(partial(self._move, "release", task, **options), leave)
        else:
            self.stop.wait(pause)  # else it would be ready at once
            self._release(task, leave)

    def _bury(self, attempt: Attempt, why: str, error: BaseException | None = None) -> None:
        task = attempt.taken
        give_up = partial(self._give_up, task, why, "" if error is None else _traceback(error))
        if self._finish(give_up, partial(self._leave, task)) is not None:
            extra = self._extra(attempt, "bury")
            self.log.error("task %s is buried: %s", self._key(task), why, exc_info=error, extra=extra)

    def _call_hooks(self, hooks: Sequence[Hook], attempt: Attempt, error: BaseException) -> None:
        for hook in hooks:
            try:
                hook(self.worker.given(attempt.task), error)
            except Exception:
                self.log.exception("a function that the worker calls after a failure has failed itself")

    def _may_be_tried(self, attempt: Attempt) -> bool:
        """Return whether to call the function. If workers died in all attempts, bury the task and return False.

        A buried task that was dug out is tried once more.
        """
        if not self.options.max_attempts or attempt.number <= self.options.max_attempts:
            return True
        once_more = self._finish(partial(self._may_try_once_more, attempt.task), partial(self._failed, attempt))
        if once_more is False:  # None: the task was lost, or has failed
            why = f"it was taken {attempt.number - 1} times and never finished"
            self._bury(attempt, why)
            self._call_hooks(self.worker.bury_hooks, attempt, Bury(why))
        return bool(once_more)

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
            if isinstance(refused, LOST) or self.store.may_pass(refused):
                raise
            self.log.warning("%r of task %s cannot hold its error: %s", role.name, self._key(task), refused)
            return moves.one("bury", task, {})

    def _check_finished(self, taken: Taken) -> None:
        if self._moves().is_taken_by(taken):
            raise Undone(self.store.name, self._moves().tasks.app_key(taken.parts))

    def _touch(self, leases: Collection[Lease], seconds: float) -> Iterator[Lease]:
        for lease in leases:
            touched, lost = False, 0
            for attempt in lease.taken:
                try:
                    # A row that is locked is not waited for: the function's own transaction may have changed it.
                    touched |= self._moves().touch_if_free(attempt.taken, seconds)
                except LOST as error:
                    self.log.debug("%s", error)  # the handler may have finished it; else the ack reports the loss
                    lost += 1
            if lost == len(lease.taken):
                lease.lose()
            elif touched:
                yield lease

    # moves

    def _key(self, taken: Taken) -> str:
        return shown(self._moves().tasks.app_key(taken.parts))

    def _extra(self, attempt: Attempt, event: str) -> Mapping[str, Any]:
        """Return the fields of a record in the log."""
        key = self._moves().tasks.app_key(attempt.taken.parts)
        return {"queue": self.store.name, "key": key, "attempt": attempt.number, "event": event}

    def _move(self, event: str, task: Taken, **options: float) -> T:
        return self._moves().one(event, task, options)

    def _release(self, task: Taken, otherwise: Callable[[Exception], None]) -> None:
        self._finish(partial(self._move, "release", task), otherwise)

    def _leave(self, task: Taken, error: Exception) -> None:
        """Log a task that cannot be released either. It stays taken, and the worker goes on."""
        self.log.exception("task %s can be neither finished nor given back, and stays taken", self._key(task))

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
                self.store.connect()  # the function may have closed it
                return move()
            except LOST as error:
                self.log.log(logging.DEBUG if isinstance(error, expected) else logging.INFO, "%s", error)
                return None
            except Exception as error:
                if not repeats or not self.store.may_pass(error):
                    otherwise(error)
                    return None
                if self.stop.is_set():
                    raise
                self.wait_for_the_database(error)


def _named(lease: Lease) -> Mapping[int, BaseException]:
    """Return the errors of the tasks of a batch that its function has named, by their places."""
    return lease.task.failed if isinstance(lease.task, Batch) else {}


def _done(lease: Lease) -> list[Attempt]:
    failed = _named(lease)
    return [attempt for place, attempt in enumerate(lease.taken) if place not in failed]


def _raise(error: Exception) -> None:
    raise error


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def _line(error: BaseException) -> str:
    """Return an error as one line for the log."""
    return next(iter(f"{type(error).__name__}: {text_of(error)}".splitlines()))[:LONGEST_LINE]


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
