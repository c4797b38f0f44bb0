"""What becomes of a task whose function has failed: it is released for another attempt, buried or killed."""

from __future__ import annotations

import logging
import math
import random
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic

from xq.core import time
from xq.core.acting import By, block
from xq.core.kinds import ErrorKind, T
from xq.core.machine import ABSENT
from xq.core.options import NONE
from xq.core.values import Key
from xq.core.words import lasting, never_finished, taken_too_often
from xq.database.transactions import PAUSES
from xq.engine.named import LOCKED
from xq.runtime.lease import LOST
from xq.workers.attempt import Attempt, RetriedCalls, line_of, path_of, text_of
from xq.workers.outcomes import Bury, Discard, ProcessDied, Retry
from xq.workers.worker import Hook, Worker

LONGEST_ERROR = 10_000  # characters: a TEXT of MariaDB holds 65,535 bytes
LEFT_OUT = " [...] "
TRIES = 10  # to lock the row of a task whose process has ended
DEATHS = 10  # of processes that worked on a task, after which it is tried no more


class FailedAttempts(Generic[T]):
    """Ends the failed attempts at one worker's tasks."""

    def __init__(self, worker: Worker[T], calls: RetriedCalls[T]) -> None:
        self._worker = worker
        self._calls, self._moves, self._log = calls, calls.moves, calls.log
        self._most = worker.options.max_attempts
        self._conflicts = deque[Key](maxlen=1_000)  # the keys of the tasks whose sessions met the last ones
        self._lines = calls.lines
        self.may_delay = "delay" in self._moves.machine.options("release")
        self._buries = bool(self._moves.machine.sources("bury"))
        self.tried = set[Key]()  # the keys of tasks that failed, where nothing delays their next attempt
        self.uncounted = False  # whether the tasks that ran when the program was to end have an attempt less

    def failed(self, attempt: Attempt, error: BaseException, ends: bool = False) -> None:
        """Log why an attempt failed, and release, bury or kill its task. `ends`: it was the last one."""
        if isinstance(error, Discard):
            self._calls.finish_or_leave(attempt.taken, partial(self._moves.kill_if_taken_by, attempt.taken))
            return
        key = attempt.taken.parts
        # The database has undone the transaction of the call's session for another one: that is no attempt.
        is_undone = self._worker.options.session is not None and self._moves.store.classify(error) is ErrorKind.CONFLICT
        if is_undone and (n := self._conflicts.count(key)) < len(PAUSES):
            self._conflicts.append(key)
            self._log.debug("task %s is tried again after a conflict", self._calls.key(attempt.taken), exc_info=error)
            self._calls.stop.wait(random.uniform(0, PAUSES[n]))
            attempt.undone, attempt.number = True, attempt.number - 1
            self._retry(attempt, Retry(0))
            return
        if not isinstance(error, (Retry, Bury)):
            self._call_hooks(self._worker.hooks["on_failure", False], attempt, error)
        ends = self._buries and (ends or isinstance(error, Bury))
        if ends or (self._most and attempt.number >= self._most):
            self._bury(attempt, error)
        else:
            self._retry(attempt, error)

    def died(self, attempt: Attempt, cause: str) -> None:
        """Fail an attempt whose process died by a cause like "killed by SIGSEGV" or "ended with exit code 3".

        With the feature max_takes that decides how many it may be. Else, without max_attempts, a task is buried after
        DEATHS of them, or the takes of this process pass it over.
        """
        machine = self._moves.machine
        key, at = attempt.taken.parts, f" at attempt {attempt.number}" if attempt.number else ""
        self._worker.deaths.append(key)
        ends = not self._most and self._worker.deaths.count(key) >= DEATHS
        last = f", the last of {DEATHS} deaths" if ends else ""
        if row := machine.last_take:
            attempt.lost = int(self._moves.tasks.in_role(attempt.task, "lost") or 0) + 1
            ends = attempt.lost >= row.loses
            last = f": it was {never_finished(row.loses)}" if ends else ""
        why = f"the worker process {'was ' * cause.startswith('killed')}{cause}{at}{last}"
        if ends and row and row.target == ABSENT:
            self._log.error("task %s is deleted: %s", self._calls.key(attempt.taken), why)
            self.failed(attempt, Discard())
            return
        if ends and not self._buries:
            self._worker.waiting.takes.unmovable.pass_over(key)
            self._log.error("takes pass over task %s from now on: %s", self._calls.key(attempt.taken), why)
        attempt.why = why
        self.failed(attempt, ProcessDied(why), ends)

    def told(
        self, attempt: Attempt, then: str = "", ends: bool = False, error: BaseException | None = None
    ) -> tuple[str, str]:
        """Return what a line calls a task, and which attempt this is: ("7", " (attempt 2 of 5; in the step 'charge')").

        `ends`: it is the last one, even if there might be more.
        """
        key, number = self._calls.key(attempt.taken), attempt.number
        path, most = attempt.task.xq_about() if hasattr(attempt.task, "xq_about") else ("", self._most)
        of = f" of {most}" if most and not (ends and number < most) else ""
        counted = [f"attempt {number}{of}"] * (0 < number <= (most or number))
        told = "; ".join(filter(None, [*counted, place_of(error), then]))
        tube = self._moves.tasks.in_role(attempt.task, "tube") if path else None
        return f"{key} ({path}{f' in {tube}' if tube else ''})" if path else key, f" ({told})" if told else ""

    def may_be_tried_once_more(self, attempt: Attempt) -> bool:
        """Return whether a task whose workers died in all attempts was dug, and may be tried. Bury it if not."""
        was_dug = partial(self._was_dug, attempt.task)
        once_more = self._calls.finish(was_dug, partial(self.failed, attempt))
        if once_more is False:  # None: the task was lost, or has failed
            attempt.number -= 1  # this take is none
            self._bury(attempt, Bury(taken_too_often(attempt.number)))
        return bool(once_more)

    def _was_dug(self, task: T) -> bool:
        """Return whether the taken task was buried before and dug out: then its role error is set. Clear it."""
        moves = self._moves
        if not moves.tasks.in_role(task, "error"):
            return False
        role = moves.tasks.table.roles["error"]
        moves.write(task, {role.name: None if role.null else ""})
        return True

    def _retry(self, attempt: Attempt, error: BaseException) -> None:
        task, number = attempt.taken, attempt.number
        pause = error.delay if isinstance(error, Retry) else None
        if pause is None:
            pause = self._worker.backoff.pause(self._worker.given(attempt.task), number, error, self._log)
        if attempt.why and not self.may_delay:  # its process cannot wait any more
            pause = 0.0
        extra = self._calls.extra(attempt, "release")
        name, when = self.told(attempt, f"next in {lasting(pause)}", error=error)
        if isinstance(error, Retry):
            level = self._lines.level("tasks are retried", ran=path_of(attempt.task))
            self._log.log(level, "task %s is retried%s", name, when, extra=extra)
        else:
            self._log.debug("task %s failed", name, exc_info=error)
            what = f"attempts failed: {type(error).__name__}"
            level = self._lines.level(what, logging.WARNING, path_of(attempt.task))
            self._log.log(level, "task %s failed%s: %s", name, when, line_of(error), extra=extra)
        options = {"delay": pause} if pause and self.may_delay else {}
        if not self.may_delay and self._calls.alone:
            self.tried.add(task.parts)
        elif not self.may_delay:
            self._calls.stop.wait(pause)  # else it would be ready at once
        hooks = [] if attempt.undone or isinstance(error, (Retry, Bury)) else self._worker.hooks["on_failure", True]
        counted = self._counted(attempt, **({"lost": attempt.lost} if attempt.lost else {}))
        noted = {} if isinstance(error, Retry) else self._worker.noted(self._worker.given(attempt.task), error)
        if noted:
            counted = {"update": {**(counted["update"] or {}), **noted}, "sets": (*counted["sets"], "error")}
        self._end(attempt, error, hooks, partial(self._move, attempt, "release", options, **counted))

    def _end(self, attempt: Attempt, error: BaseException, hooks: Sequence[Hook], move: Callable[[], Any]) -> Any:
        """Release or bury a task, with `hooks` in the same transaction. Return the task; None if it did not move.

        If a hook fails, it is all undone: the task is released with one attempt more, and all comes again.
        """
        if not hooks:
            return self._calls.finish_or_leave(attempt.taken, move)
        moves, given = self._moves, self._worker.given(attempt.task)

        def move_and_call() -> Any:
            moved = move()
            for hook in hooks if moved is not None else ():
                try:
                    hook(given, error)
                except Exception as failure:
                    if moves.store.classify(failure) is ErrorKind.CONFLICT:
                        raise  # the transaction is run again
                    raise RuntimeError(f"a function in the transaction has failed: {line_of(failure)}") from failure
            return moved

        def undone(failure: Exception) -> None:
            told = "the end of the attempt at task %s is undone, and it is tried again: %s"
            self._log.error(told, self._calls.key(attempt.taken), failure, exc_info=failure)
            attempt.undone, attempt.number = True, min(attempt.number, (self._most or attempt.number + 1) - 1)
            self._retry(attempt, error)

        return self._calls.finish(partial(moves.executor.transaction, move_and_call, own=False), undone)

    def _move(self, attempt: Attempt, event: str, options: Mapping[str, Any] = NONE, **fields: Any) -> T | None:
        """Move the task. If its process has ended, the history says why, and a row that stays locked is left as it is.

        The end of its session then releases it.
        """
        moves, moved = self._moves, list[T]()
        # If the answer to a burial was lost, the next try finds the task buried, and must not bury it again.
        move = partial(moves.one, event, attempt.taken, options, taken=True, **fields)
        if not attempt.why:
            return move()

        def noted() -> None:
            with block(moves.store.database, By(None, attempt.why)):
                moved.append(move())

        for _ in range(TRIES):
            if moves.if_free(attempt.taken, noted):
                break
            time.sleep(LOCKED)
        return moved[-1] if moved else None

    def _bury(self, attempt: Attempt, by: BaseException) -> None:
        asked, name, text = isinstance(by, Bury), type(by).__name__, text_of(by)
        why = (text or name) if asked else f"{name}: {text}"
        error = None if asked or isinstance(by, ProcessDied) else by
        trace = place_of(by) if error is None else f"\n{traceback_of(error)}".removesuffix(f"\n{why}").lstrip()
        bury = partial(self._bury_with_error, attempt, why, trace)
        hooks = [*(() if asked else self._worker.hooks["on_failure", True]), *self._worker.hooks["on_buried", True]]
        if self._end(attempt, by, hooks, bury) is not None or self.found(attempt, "B") is not None:
            extra = self._calls.extra(attempt, "bury")
            level = self._lines.level(f"tasks are buried: {name}", logging.ERROR, path_of(attempt.task))
            told = *self.told(attempt, ends=True, error=by), why
            self._log.log(level, "task %s is buried%s: %s", *told, exc_info=error, extra=extra)
            self._call_hooks(self._worker.hooks["on_buried", False], attempt, by)

    def found(self, attempt: Attempt, states: str) -> T | None:
        """Return a task that a try, whose answer was lost, has moved to one of these states; None if it is in none."""
        found = self._calls.finish(partial(self._moves.look, attempt.taken.parts), lambda _: None)
        return self._moves.tasks.returned(found[0]) if found is not None and found[1] in states else None

    def _bury_with_error(self, attempt: Attempt, why: str, trace: str) -> T | None:
        """Bury a task with the reason and the traceback in its role error. The reason comes first, to group reports."""
        moves, task = self._moves, attempt.taken
        role: Any = moves.tasks.table.roles.get("error")
        for encoding in ("utf-8", "ascii") if role else ():  # ASCII if the column's encoding lacks a character
            most = min(LONGEST_ERROR, role.max_length or LONGEST_ERROR)
            text = storable(why, most, encoding)
            if trace and len(text) + 1 < most:
                text = f"{text}\n{storable(trace, most - len(text) - 1, encoding)}"
            try:
                return self._move(attempt, "bury", **self._counted(attempt, error=text))
            except Exception as refused:
                if isinstance(refused, LOST) or moves.store.may_pass(refused):
                    raise
                if encoding == "ascii":  # for example a unique index
                    told = "%r of task %s cannot hold its error: %s"
                    self._log.warning(told, role.name, self._calls.key(task), refused)
        # Without an error no take sees that the task was dug out: leave it one more attempt.
        left = {"attempts": min(attempt.number, self._most - 1)} if self._most else {}
        return self._move(attempt, "bury", **self._counted(attempt, **left))

    def _counted(self, attempt: Attempt, **roles: Any) -> dict[str, Any]:
        """Return the fields to write to a task whose function has failed, and which roles they set."""
        known = self._moves.tasks.table.roles
        if "attempts" in known and (self.uncounted or attempt.undone or attempt.number >= (self._most or math.inf)):
            roles = {"attempts": attempt.number, **roles}
        return {"update": {known[role].name: value for role, value in roles.items()} or None, "sets": tuple(roles)}

    def _call_hooks(self, hooks: Sequence[Hook], attempt: Attempt, error: BaseException) -> None:
        for hook in hooks:
            try:
                hook(self._worker.given(attempt.task), error)
            except Exception:
                self._log.exception("a function that the worker calls after a failure has failed itself")


def place_of(error: BaseException | None) -> str:
    """Return "in the step 'charge'" for an error that a step has raised, from its note; else ""."""
    notes = (str(note) for note in reversed(getattr(error, "__notes__", None) or ()))
    return next((note for note in notes if note.startswith("in the step ")), "")


def traceback_of(error: BaseException) -> str:
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
