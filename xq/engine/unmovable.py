"""Ready tasks that cannot be taken: their rows cannot be read, or the database refuses the move.

A take looks for them after such an error only. It buries one that cannot be read, with the reason. Without the feature
buried, and if the database refuses the move, the takes of this process pass the task over for some seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from xq.core.compile import Selector
from xq.core.errors import BadValue, Duplicate
from xq.core.machine import READY, TAKEN
from xq.core.options import NONE
from xq.core.ports import Row
from xq.core.values import Parts, named, numbered
from xq.engine.timers import Batches

MOST: Final = 1_000  # tasks that are passed over at a time
AGAIN, AGAIN_MOST = 5.0, 60.0  # seconds until such a task is tried again, at first and at most
LONGEST_ERROR = 10_000  # characters, as of a worker's errors


class _WorkedError(Exception):
    """Undoes a take that was made to see whether it works."""


class _IgnoredError(Exception):
    """The database ignored the take of a task."""


class Fault(NamedTuple):
    """A task that cannot be taken, and why."""

    parts: Parts
    error: Exception
    is_read: bool  # False: its row cannot be read


class Unmovable:
    """The ready tasks of one queue that cannot be taken."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.database, self.tasks = batches, batches.database, batches.tasks
        # By key: the monotonic time until which a task is passed over, and for how many seconds.
        self._passed: dict[Parts, tuple[float, float]] = {}

    @property
    def passed(self) -> list[Parts]:
        """The keys of the tasks that a take passes over now."""
        now = time.monotonic() if self._passed else 0.0
        return [parts for parts, (until, _) in list(self._passed.items()) if until > now]

    def may_explain(self, error: Exception) -> bool:
        """Return whether one task may be the reason for an error of a take: no lost connection, no lock, no right."""
        return isinstance(error, Duplicate) or self.batches.is_refused(error)

    def put_aside(self, which: Selector, values: Mapping[str, Any]) -> bool:
        """Bury or pass over the task that made the take of `which` fail. Return False if it can be taken alone."""
        token = values["owner"]
        # The take is committed if it is the driver that cannot read its rows.
        self.batches.give_back_except_rejected(token, f"{token}!", "release", "take")
        if (fault := self._find(which, values, token)) is None:
            return False
        key, error = self.tasks.app_key(fault.parts), fault.error
        if not fault.is_read and self._bury(fault, token):
            self.batches.log.error("task %r is buried: %s", key, error)
            return True
        _, seconds = self._passed.pop(fault.parts, (0.0, 0.0))
        level = logging.DEBUG if seconds else logging.ERROR
        self.batches.log.log(level, "takes pass over task %r, which cannot be taken: %s", key, error)
        seconds = min(2 * seconds, AGAIN_MOST) or AGAIN
        self._passed[fault.parts] = time.monotonic() + seconds, seconds
        if len(self._passed) > MOST:
            self._passed.pop(next(iter(self._passed)), None)
        return True

    def first(self, n: int) -> list[Fault]:
        """Return up to `n` of these tasks, up to the first one in the order of a take that can be taken."""
        found = list[Fault]()
        while len(found) < n:
            passed = [fault.parts for fault in found]
            fault = self._find(Selector("first", READY, passed=len(passed)), numbered(passed), "/")
            if fault is None:
                break
            found.append(fault)
        return found

    def _find(self, which: Selector, values: Mapping[str, Any], token: str) -> Fault | None:
        """Take the first of the tasks alone, and undo that. Return the task if it cannot be taken."""
        for query in self.database.dialect.looks.first(which):
            parts, is_read = Parts(), True

            def attempt(query: str = query) -> None:
                nonlocal parts, is_read
                for parts in map(tuple, self.database.run(query, {**values})):
                    rows = self._move("take", READY, parts, token)
                    if not rows:
                        raise _IgnoredError("the database ignores its UPDATE: look for a trigger or a rule")
                    is_read = False
                    self.tasks.check_read(rows)
                    self.tasks.read(rows[0])
                    raise _WorkedError

            try:
                self.database.transaction(attempt, caught=True)
            except _WorkedError:
                continue
            except Exception as error:
                if not parts or not (isinstance(error, _IgnoredError) or self.may_explain(error)):
                    raise
                return Fault(parts, error, is_read or not isinstance(error, BadValue))
        return None

    def _bury(self, fault: Fault, token: str) -> bool:
        """Bury a task that cannot be read. Return False if the queue cannot bury, or the database refuses it."""
        role, update = self.tasks.table.roles.get("error"), {}
        if role is not None:
            text = str(fault.error).encode("ascii", "backslashreplace").decode()
            update[role.name] = text[: min(role.max_length or LONGEST_ERROR, LONGEST_ERROR)]

        def move() -> bool:
            self._move("take", READY, fault.parts, token)
            return bool(self._move("bury", TAKEN, fault.parts, token, update))

        try:
            is_offered = TAKEN in self.batches.machine.sources("bury")
            return is_offered and self.database.transaction(move, caught=True)
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
        return self.database.run(step, values, connection)
