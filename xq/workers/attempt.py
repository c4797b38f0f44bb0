"""What a worker knows while its function runs, how it calls the database, and which lines it logs."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple

from xq.core import time
from xq.core.errors import NotFound, WrongState, in_line, shown
from xq.core.kinds import PERMANENT, ErrorKind, T
from xq.core.values import Taken
from xq.engine.named import CheckedCall, Locked, NamedMoves
from xq.runtime.lease import LOST, Lease

AGAIN, AGAIN_MOST = 1.0, 60.0  # seconds until the database is asked again after it failed, and after many denials
STAYS = 30  # times that the same unknown error is retried, without a take between them
UNFINISHED = "the program ends while the database fails: its tasks stay taken until its session has ended: %s"
LONGEST_LINE = 500  # characters that a line shows of an error
PER_SECOND: Final = 20  # lines for each sum: a line costs a tenth of a fast worker's job
NAMED: Final = 5  # functions that a sum names
NONE_FAILED: Final[Mapping[int, BaseException]] = {}


class Ack(NamedTuple):
    """How a worker acks a task whose function has returned, with the next take, in place of an ack by the function."""

    call: Mapping[str, Any]  # the arguments of the move: options, update and sets
    asked: CheckedCall  # the same, checked
    then: Callable[
        [Any], object
    ]  # gets the task when it is acked; if the database refuses that, `Worker.ended` decides


@dataclass(slots=True, eq=False)  # not a NamedTuple, which takes four times as long to make
class Attempt:
    """One attempt at one task."""

    task: Any  # as the handler gets it
    taken: Taken  # what names the task, and this take, in a call
    number: int  # how often it was taken; 0 without the role attempts
    finished: str = ""  # the event by which the function itself has finished the task
    in_doubt: bool = False  # within a transaction, which may be rolled back
    late: float = 0.0  # seconds by which heartbeats have not touched it, as its row was locked
    locked: Locked[Any] | None = None  # the ack that waits for its row
    undone: bool = False  # by a conflict of its session, or its end by a failed function in that transaction
    may_be_taken: bool = False  # whether its ttr has passed since the last heartbeat, so that another take may have it
    why: str = ""  # how its process has ended; "" while it runs
    lost: int = 0  # how many takes of the task were lost, with this one, if its process died (max_takes)
    ack: Ack | None = None  # how to ack it when the function has returned, if the function says so
    error: BaseException | None = None  # by which its function has buried it

    @property
    def is_open(self) -> bool:
        """Whether the worker has to ack the task, as far as it is known."""
        return self.in_doubt or not self.finished

    def has_ended(self, error: Exception) -> bool:
        """Return whether an error means that the task has ended, without another take, and note how. Else it is lost.

        A fenced UPDATE in the function's own transaction proves its end by the token that it leaves, after a "-".
        """
        ended = ""
        if isinstance(error, WrongState):
            proof, token = error.owner or "", self.taken.token
            proven = proof == f"-{token}" if token else proof.startswith("-")
            if proven or not self.may_be_taken:
                ended = {"D": "ack", "Z": "ack", "B": "bury"}.get(error.state, "release" if proven else "")
        elif isinstance(error, NotFound) and not error.found and not self.may_be_taken:
            ended = "ack"
        if ended:
            self.finished, self.in_doubt = ended, False
        return bool(ended)


class Batch(list[T]):
    """The tasks that a handler of `worker(batch=)` gets. When it returns, all that have not failed are acked."""

    def __init__(self, tasks: Collection[T]) -> None:
        super().__init__(tasks)
        self._given = tuple(tasks)  # the function may change the list
        self.failed: dict[int, BaseException] = {}  # by the place at which the task was given

    def give(self, tasks: Sequence[T]) -> None:
        """Have these instances of the tasks in place of those that were given."""
        self[:], self._given = tasks, tuple(tasks)

    def fail(self, task: T, error: BaseException | str) -> None:
        """Mark one task as failed. It is released or buried, as if a handler of its own had raised the error."""
        place = next((place for place, each in enumerate(self._given) if each is task), None)
        if place is None:
            raise NotFound("this batch", task)
        self.failed[place] = error if isinstance(error, BaseException) else RuntimeError(error)


@dataclass(slots=True, eq=False, repr=False)
class WorkerJob(Lease):
    """One call of a worker's function. It leases one task, or a batch."""

    taken: list[Attempt]
    failed: Mapping[int, BaseException] = field(default_factory=dict)  # by place, what `Batch.fail` gets
    timeout: float = math.inf  # seconds after which the parent of its process kills that
    end: int = 0  # in the parent of its process: how its function has ended, as `SharedMemory.ends`

    @property
    def is_plain(self) -> bool:
        """Whether a plain ack of all its tasks is missing, and nothing else, when its function has returned."""
        open_ones = [attempt for attempt in self.taken if attempt.is_open]
        return bool(open_ones) and not self.failed and not any(attempt.ack for attempt in open_ones)

    @property
    def done(self) -> list[Attempt]:
        """The attempts that the function has not marked as failed."""
        failed = self.failed
        return [each for place, each in enumerate(self.taken) if place not in failed] if failed else self.taken


class Stop(threading.Event):
    """Set when the program is to end, which does not wait for a database that fails: one line says so."""

    def __init__(self) -> None:
        super().__init__()
        self.errors = dict[int, BaseException]()  # by id

    def note(self, log: logging.Logger, error: BaseException) -> None:
        if id(error) not in self.errors:
            self.errors[id(error)] = error
            if id(error) == next(iter(self.errors)):  # other threads note errors, too
                log.warning(UNFINISHED, line_of(error))


class RetriedCalls(Generic[T]):
    """The calls by which a worker finishes its tasks."""

    def __init__(self, moves: NamedMoves[T], stop: Stop, ends: bool = True, alone: bool = False) -> None:
        self.moves = moves
        self.stop = stop
        self.log = moves.log
        self._store = moves.store
        self._ends = ends  # whether the program ends by itself
        self.alone = alone  # whether all runs in the caller's thread
        self.lines = Lines(self.log)
        self.pause = AGAIN  # after the next denial; a take that finds a task sets it back
        self.failed = deque[str](maxlen=STAYS)  # the unknown errors since the last take

    def key(self, taken: Taken) -> str:
        return shown(self.moves.tasks.app_key(taken.parts))

    def extra(self, attempt: Attempt, event: str) -> Mapping[str, Any]:
        """Return the fields that a log record has beside its text."""
        key = self.moves.tasks.app_key(attempt.taken.parts)
        return {"queue": self._store.name, "key": key, "attempt": attempt.number, "event": event}

    def finish_or_leave(self, task: Taken, move: Callable[[], Any]) -> Any:
        """Finish a task as `finish`. If the database refuses that, log it: the task stays taken."""

        def leave(error: Exception) -> None:
            if self.stop.is_set() and self.moves.is_locked(error):
                self.stop.note(self.log, error)
            else:
                self.log.exception("task %s can be neither finished nor given back, and stays taken", self.key(task))

        return self.finish(move, leave)

    def finish(
        self,
        move: Callable[[], Any],
        otherwise: Callable[[Exception], object] | None = None,
        own: Attempt | None = None,
        repeats: bool = True,
    ) -> Any:
        """Run `move`, retried while the database fails, and return its result, or None.

        None: the task was lost, which is logged; or a retry is useless. Then `otherwise` gets the error while it is
        handled; without it, raise the error. If the function has finished its task itself, note that in the attempt
        `own` and return the error. Without `repeats` (in a transaction, which a failure ends) nothing is retried.
        """
        while True:
            try:
                self._store.connect()  # the function may have closed it
                return move()
            except LOST as error:
                if own is None:
                    self.log.info("%s", error)
                elif own.has_ended(error):
                    return error
                else:
                    self.log.warning("the function returned, but its task is lost: %s", error)
                return None
            except Exception as error:
                if not repeats or not self._store.may_pass(error) or (otherwise and self.moves.is_locked(error)):
                    if otherwise is None:
                        raise
                    otherwise(error)
                    return None
                if self.stop.is_set():  # the program does not wait for the database
                    self.stop.note(self.log, error)
                    raise
                self.wait_for_the_database(error)

    def wait_for_the_database(self, error: Exception) -> None:
        """Wait AGAIN seconds after the database failed, longer after each denial. Raise errors that stay.

        Such is any error within the caller's own transaction. For a program that ends by itself it is a denied
        privilege, a database that only reads, and an unknown error that has repeated itself STAYS times.
        """
        kind = self._store.classify(error)
        denied = kind is ErrorKind.DENIED
        if kind in (ErrorKind.NOT_DATABASE, *PERMANENT):
            raise error
        if kind is ErrorKind.TRANSIENT:
            self.failed.append(line_of(error))
        stays = denied or kind is ErrorKind.READ_ONLY or self.failed.count(line_of(error)) == STAYS
        if (self._ends and stays) or (self.alone and self._store.in_transaction()):
            raise error
        self.log.warning("the database fails, and is asked again: %s", in_line(error))
        self.stop.wait(self.pause if denied else AGAIN)
        self.pause = min(2 * self.pause, AGAIN_MOST) if denied else AGAIN

    def is_unfinished(self, error: BaseException) -> bool:
        """Return whether the database raised this error and the program ended instead of waiting."""
        return id(error) in self.stop.errors


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def line_of(error: BaseException) -> str:
    """Return an error as one line for the log."""
    return next(iter(f"{type(error).__name__}: {text_of(error)}".splitlines()))[:LONGEST_LINE]


class Lines:
    """Decides which ended attempts have a line of their own in a worker's log, and counts the others."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._lock = log, threading.RLock()
        # When the running second ends, by the monotonic clock, and how many attempts it has, by level and text.
        self._ends_at, self._n = 0.0, Counter[tuple[int, str]]()
        self._more = defaultdict[tuple[int, str], Counter[str]](Counter)  # those without a line, by what they ran

    def level(self, ended: str, usual: int = logging.INFO, ran: str = "") -> int:
        """Return the level to log one more attempt with. `ended` is what the sum says: "tasks are finished".

        `ran` is the function that it ran, if not all tasks have the same: the sum counts by these.
        """
        if not self._log.isEnabledFor(usual):
            return logging.DEBUG
        with self._lock:
            if (now := time.monotonic()) >= self._ends_at:
                self.sum_up()
                self._ends_at = now + 1
            self._n[usual, ended] = n = self._n[usual, ended] + 1
            if n > PER_SECOND and ran:
                self._more[usual, ended][ran] += 1
            return usual if n <= PER_SECOND else logging.DEBUG

    def sum_up(self) -> None:
        """Log how many attempts had no line of their own. Call it when no task is left, and at the end."""
        with self._lock:
            for (level, ended), n in self._n.items():
                if n > PER_SECOND:
                    by = ", ".join(f"{more:,} {ran}" for ran, more in self._more[level, ended].most_common(NAMED))
                    self._log.log(level, "%s more %s%s", f"{n - PER_SECOND:,}", ended, by and f" ({by})")
            self._n.clear()
            self._more.clear()


def path_of(task: Any) -> str:
    """Return what a task runs, for the log and the metrics; "" if all tasks of its queue run the same."""
    return str(task.xq_about()[0]) if hasattr(task, "xq_about") else ""
