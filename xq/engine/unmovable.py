"""Ready tasks that cannot be taken: their rows cannot be read, or the database refuses the move.

A take looks for them only after such an error. It buries one that cannot be read, with the reason. Without the feature
buried, and if the database refuses the move, the takes of this process pass the task over for some seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from xq.core.compile import Selector
from xq.core.errors import BadValue, Duplicate
from xq.core.machine import READY, TAKEN
from xq.core.options import NONE
from xq.core.ports import Row
from xq.core.values import Parts, named, numbered
from xq.engine.run import retried
from xq.engine.timers import Batches

MOST: Final = 1_000  # tasks that are passed over at a time
AGAIN, AGAIN_MOST = 5.0, 60.0  # seconds until such a task is tried again, at first and at most
LONGEST_ERROR = 10_000  # characters


class _UndoneError(Exception):
    """Undoes a take that was made to see whether it works."""


class Fault(NamedTuple):
    """A task that cannot be taken, and why."""

    parts: Parts
    error: Exception
    is_read: bool  # False: its row cannot be read


class Unmovable:
    """The ready tasks of one queue that cannot be taken."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.database, self.tasks = batches, batches.database, batches.tasks
        # By key: the monotonic time until which a task is passed over, and for how many seconds that is.
        self._passed: dict[Parts, tuple[float, float]] = {}

    @property
    def passed(self) -> list[Parts]:
        """The keys of the tasks that a take passes over now."""
        now = time.monotonic() if self._passed else 0.0
        return [parts for parts, (until, _) in list(self._passed.items()) if until > now]

    def may_explain(self, error: Exception) -> bool:
        """Return whether one task may be the reason of an error: not of a lost connection, a lock or a missing right."""
        return isinstance(error, Duplicate) or self.batches.is_refused(error)

    def put_aside(self, which: Selector, values: Mapping[str, Any]) -> bool:
        """Bury or pass over the first tasks of a failed take that cannot be taken alone. Return whether there are any."""
        token, found = values["owner"], False
        # If it is the driver that cannot read a row, the take is committed.
        self.batches.give_back_except_rejected(token, f"{token}!", "release", "take")
        for fault in islice(self.faults(which, values, token, self.passed), MOST):
            found, key = True, self.tasks.app_key(fault.parts)
            if not fault.is_read and self._bury(fault, token):
                self.batches.log.error("task %r is buried: %s", key, fault.error)
                continue
            _, seconds = self._passed.pop(fault.parts, (0.0, 0.0))
            level = logging.DEBUG if seconds else logging.ERROR
            self.batches.log.log(level, "takes pass over task %r, which cannot be taken: %s", key, fault.error)
            seconds = min(2 * seconds, AGAIN_MOST) or AGAIN
            self._passed[fault.parts] = time.monotonic() + seconds, seconds
            if len(self._passed) > MOST:
                self._passed.pop(next(iter(self._passed)), None)
        return found

    def faults(
        self, which: Selector, values: Mapping[str, Any], token: str, passed: Sequence[Parts] = ()
    ) -> Iterator[Fault]:
        """Yield the tasks that cannot be taken, up to the first one of a take that can. It takes none."""
        passed = [*passed]
        while fault := self._first(which._replace(passed=len(passed)), {**values, **numbered(passed)}, token):
            passed.append(fault.parts)
            yield fault

    def _first(self, which: Selector, values: Mapping[str, Any], token: str) -> Fault | None:
        """Take the first task alone, and undo that. Return the task if it cannot be taken."""
        store = self.database.store
        for query in self.database.dialect.looks.first(which):
            parts, is_read = Parts(), True

            def attempt(query: str = query) -> None:
                nonlocal parts, is_read
                with store.atomic():
                    for parts in map(tuple, self.database.run(query, {**values})):
                        if not (rows := self._move("take", READY, parts, token)):
                            raise BadValue("the database ignores its UPDATE: look for a trigger or a rule")
                        is_read = False
                        self.tasks.check_read(rows)
                        self.tasks.read(rows[0])
                        raise _UndoneError

            try:
                retried(store, attempt)
            except _UndoneError:
                continue
            except Exception as error:
                if not (parts and self.may_explain(error)):
                    raise
                return Fault(parts, error, is_read)
        return None

    def _bury(self, fault: Fault, token: str) -> bool:
        """Bury a task that cannot be read. Return False if the queue cannot bury, or the database refuses it."""
        role, update = self.tasks.table.roles.get("error"), {}
        if role is not None:
            text = str(fault.error).encode("ascii", "backslashreplace").decode()
            update[role.name] = text[: min(role.max_length or LONGEST_ERROR, LONGEST_ERROR)]

        def move() -> bool:
            with self.database.store.atomic():
                self._move("take", READY, fault.parts, token)
                return bool(self._move("bury", TAKEN, fault.parts, token, update))

        try:
            return TAKEN in self.batches.machine.sources("bury") and retried(self.database.store, move)
        except Exception as error:
            if not self.may_explain(error):
                raise
            return False

    def _move(
        self, event: str, state: str, parts: Parts, token: str, update: Mapping[str, Any] = NONE
    ) -> Sequence[Row]:
        connection, binding = self.database.begin()
        transition = self.tasks.options.choose(state, event, NONE)
        step = self.batches.steps.move(binding, event, Selector("key", state), transition, (), (*update,))
        values = {**self.database.values(), **named(parts), "owner": token}
        values.update(zip(step.statement.names, update.values(), strict=True))
        # Not by Database.run: it would look, after each refusal, whether the queue is installed.
        rows = step.run(connection, values)
        if event == "bury" and self.database.observers.anybody:
            self.database.observers.notify(binding.dialect, event, state, transition.target, rows)
        return rows
