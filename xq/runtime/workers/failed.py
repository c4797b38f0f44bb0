"""What becomes of a task whose function has failed: it is released for another attempt, buried or killed."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic

from xq.core.ports import T
from xq.core.values import Parts
from xq.core.words import lasting
from xq.runtime.lease import LOST
from xq.runtime.workers.attempt import Attempt, RetriedCalls, line_of, text_of
from xq.runtime.workers.outcomes import Bury, Discard, Retry
from xq.runtime.workers.worker import Hook, Worker

LONGEST_ERROR = 10_000  # characters: a TEXT of MariaDB holds 65,535 bytes
LEFT_OUT = " [...] "


class FailedAttempts(Generic[T]):
    """The failed attempts of one worker."""

    def __init__(self, worker: Worker[T], calls: RetriedCalls[T], alone: bool) -> None:
        self._worker = worker
        self._calls, self._moves, self._log = calls, calls.moves, calls.log
        self._most = worker.options.max_attempts
        self._alone = alone
        self.may_delay = "delay" in self._moves.machine.options("release")
        self.tried = set[Parts]()  # the keys of tasks that failed, where nothing delays their next attempt
        self.uncounted = False  # whether the tasks that ran when the program was to end have an attempt less

    def failed(self, attempt: Attempt, error: BaseException, waits: bool = True) -> None:
        """Log the error of a task, and release, bury or kill it. `waits`: this worker may pause before a release."""
        if isinstance(error, Discard):
            self._calls.finish_or_leave(attempt.taken, partial(self._moves.kill_if_taken_by, attempt.taken))
            return
        asks_to_bury = isinstance(error, Bury) and bool(self._moves.machine.sources("bury"))
        if not isinstance(error, (Retry, Bury)):
            self._call_hooks(self._worker.failure_hooks, attempt, error)
        if asks_to_bury:
            self._bury(attempt, text_of(error) or type(error).__name__, by=error)
        elif self._most and attempt.number >= self._most:
            self._bury(attempt, f"{type(error).__name__}: {text_of(error)}", error, by=error)
        else:
            self._retry(attempt, error, waits)

    def died(self, attempt: Attempt, cause: str) -> None:  # replaced at the merge
        self.failed(attempt, RuntimeError(cause), waits=False)

    def may_be_tried_once_more(self, attempt: Attempt) -> bool:
        """Return whether a task whose workers died in all attempts was dug, and may be tried. Bury it if not."""
        was_dug = partial(self._was_dug, attempt.task)
        once_more = self._calls.finish(was_dug, partial(self.failed, attempt))
        if once_more is False:  # None: the task was lost, or has failed
            why = f"it was taken {attempt.number - 1} times and never finished"
            self._bury(attempt, why, by=Bury(why))
        return bool(once_more)

    def _was_dug(self, task: T) -> bool:
        """Return whether the taken task was buried before and dug out: then its role error is set. Clear it."""
        moves = self._moves
        if not moves.tasks.in_role(task, "error"):
            return False
        role = moves.tasks.table.roles["error"]
        moves.write(task, {role.name: None if role.null else ""})
        return True

    def _retry(self, attempt: Attempt, error: BaseException, waits: bool) -> None:
        task, number, most = attempt.taken, attempt.number, self._most
        pause = error.delay if isinstance(error, Retry) else None
        if pause is None:
            pause = self._worker.backoff.pause(self._worker.given(attempt.task), number, error, self._log)
        if not waits and not self.may_delay:
            pause = 0.0
        extra = self._calls.extra(attempt, "release")
        counted = f"attempt {number}{f' of {most}' if most else ''}; " if number else ""
        key, when = self._calls.key(task), f"({counted}next in {lasting(pause)})"
        if isinstance(error, Retry):
            self._log.info("task %s is retried %s", key, when, extra=extra)
        else:
            self._log.debug("task %s failed", key, exc_info=error)
            self._log.warning("task %s failed %s: %s", key, when, line_of(error), extra=extra)
        options = {"delay": pause} if pause and self.may_delay else {}
        if not self.may_delay and self._alone:
            self.tried.add(task.parts)
        elif not self.may_delay:
            self._calls.stop.wait(pause)  # else it would be ready at once
        self._calls.finish_or_leave(task, lambda: self._moves.one("release", task, options, **self._counted(attempt)))

    def _bury(self, attempt: Attempt, why: str, error: BaseException | None = None, *, by: BaseException) -> None:
        task = attempt.taken
        trace = "" if error is None else f"\n{_traceback(error)}".removesuffix(f"\n{why}").lstrip()
        if self._calls.finish_or_leave(task, partial(self._bury_with_error, attempt, why, trace)) is not None:
            extra = self._calls.extra(attempt, "bury")
            self._log.error("task %s is buried: %s", self._calls.key(task), why, exc_info=error, extra=extra)
            self._call_hooks(self._worker.bury_hooks, attempt, by)

    def _bury_with_error(self, attempt: Attempt, why: str, trace: str) -> T:
        """Bury a task with the reason and the traceback in its role error. The reason comes first, to group reports."""
        moves, task = self._moves, attempt.taken
        role, attempts = map(moves.tasks.table.roles.get, ("error", "attempts"))
        for encoding in ("utf-8", "ascii"):  # ASCII if the column's encoding lacks a character
            if role is None:
                break
            most = min(LONGEST_ERROR, role.max_length or LONGEST_ERROR)
            text = storable(why, most, encoding)
            if trace and len(text) + 1 < most:
                text = f"{text}\n{storable(trace, most - len(text) - 1, encoding)}"
            try:
                return moves.one("bury", task, **self._counted(attempt, error=text))
            except Exception as refused:
                if isinstance(refused, LOST) or moves.store.may_pass(refused):
                    raise
                if encoding == "ascii":  # for example a unique index
                    told = "%r of task %s cannot hold its error: %s"
                    self._log.warning(told, role.name, self._calls.key(task), refused)
        # Without an error no take sees that the task was dug out: leave it one more attempt.
        if attempts and self._most:
            number = min(attempt.number, self._most - 1)
            return moves.one("bury", task, {}, {attempts.name: number}, sets=("attempts",))
        return moves.one("bury", task, **self._counted(attempt))

    def _counted(self, attempt: Attempt, **roles: str) -> dict[str, Any]:
        """Return the update of a task whose function has failed, and the roles set by it."""
        counted = {"attempts": attempt.number} if self.uncounted and attempt.number else {}
        known = self._moves.tasks.table.roles
        update = {known[role].name: value for role, value in {**roles, **counted}.items()}
        return {"update": update or None, "sets": (*roles, *counted)}

    def _call_hooks(self, hooks: Sequence[Hook], attempt: Attempt, error: BaseException) -> None:
        for hook in hooks:
            try:
                hook(self._worker.given(attempt.task), error)
            except Exception:
                self._log.exception("a function that the worker calls after a failure has failed itself")


def _traceback(error: BaseException) -> str:
    """Return the traceback from the first frame that is not one of xq; the whole one if all are."""
    first = error.__traceback__
    while first and first.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "xq":
        first = first.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, first or error.__traceback__)).rstrip()
    except Exception:  # the error's own __str__ may raise
        return ""


def storable(text: str, most: int, encoding: str = "utf-8") -> str:
    """Return a text that a field of `most` characters can store in any database. The middle of a longer one is cut."""
    text = text.replace("\0", "\\x00").encode(encoding, "backslashreplace").decode()
    if len(text) <= most:
        return text
    half = (most - len(LEFT_OUT)) // 2
    return f"{text[:half]}{LEFT_OUT}{text[-half:]}" if half > 0 else text[:most]
