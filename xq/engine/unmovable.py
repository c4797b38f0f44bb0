"""Ready tasks that cannot be taken: their rows cannot be read, or the database refuses the move.

A take looks for them only after such an error. It buries one that cannot be read, with the reason. Without the feature
buried, and if the database refuses the move, the takes of this process pass the task over for some seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from xq.core.compile import Selector
from xq.core.errors import BadValue, Duplicate
from xq.core.machine import READY, TAKEN
from xq.core.options import NONE
from xq.core.ports import Row
from xq.core.values import Parts, named, numbered
from xq.engine.run import retried
from xq.engine.timers import Batches

MOST: Final = 1_000  # tasks that are passed over at a time
AGAIN: Final = 10.0  # seconds until such a task is tried again
LONGEST_ERROR: Final = 10_000  # characters


class _WorkedError(Exception):
    """Undoes a take that was made to see whether it works."""


class Unmovable:
    """The ready tasks of one queue that cannot be taken."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.database, self.tasks = batches, batches.database, batches.tasks
        self._passed: dict[Parts, float] = {}  # key -> the monotonic time until which it is passed over

    @property
    def passed(self) -> list[Parts]:
        """The keys of the tasks that a take passes over now."""
        now = time.monotonic() if self._passed else 0.0
        return [parts for parts, until in list(self._passed.items()) if until > now]

    def may_explain(self, error: Exception) -> bool:
        """Return whether one task may be the reason of an error; of a lost connection, a lock, a right it is not."""
        return isinstance(error, Duplicate) or self.batches.is_refused(error)

    def put_aside(self, which: Selector, values: Mapping[str, Any]) -> bool:
        """Bury or pass over the first tasks of a failed take that cannot be taken. Return whether there are any."""
        token, found, log = values["owner"], False, self.batches.log
        if token is None:  # it failed before it could take
            return False
        # If it is the driver that cannot read a row, the take is committed.
        self.batches.give_back_except_rejected(token, f"{token}!", "release", "take")
        for parts, error, is_buried in islice(self.faults(which, values, self.passed, token), MOST):
            found, key = True, self.tasks.app_key(parts)
            if is_buried:
                log.error("task %r is buried: %s", key, error)
                continue
            level = logging.DEBUG if self._passed.pop(parts, None) else logging.ERROR
            log.log(level, "takes pass over task %r, which cannot be taken: %s", key, error)
            self._passed[parts] = time.monotonic() + AGAIN
            if len(self._passed) > MOST:
                self._passed.pop(next(iter(self._passed)), None)
        return found

    def faults(
        self, which: Selector, values: Mapping[str, Any], passed: Sequence[Parts] = (), token: str = ""
    ) -> Iterator[tuple[Parts, Exception, bool]]:
        """Yield the tasks that cannot be taken, why, and whether each was buried, up to the first one that can.

        With the token of a take it buries those that cannot be read. It changes nothing else.
        """
        passed = [*passed]
        while fault := self._first(which._replace(passed=len(passed)), {**values, **numbered(passed)}, token):
            passed.append(fault[0])
            yield fault

    def _first(self, which: Selector, values: Mapping[str, Any], token: str) -> tuple[Parts, Exception, bool] | None:
        store, parts = self.database.store, Parts()

        def attempt(query: str) -> BadValue | None:
            nonlocal parts
            with store.atomic():
                for parts in map(tuple, self.database.run(query, {**values})):
                    if not (rows := self._move("take", READY, parts, token or "/")):
                        raise BadValue("the database ignores the change: look for a trigger or a rule")
                    try:
                        self.tasks.check_read(rows)
                        self.tasks.read(rows[0])
                    except BadValue as error:
                        if not token or TAKEN not in self.batches.machine.sources("bury"):
                            raise
                        self._move("bury", TAKEN, parts, token, self._reason(error))
                        return error
                    raise _WorkedError
            return None

        for query in self.database.dialect.looks.first(which):
            try:
                if error := retried(store, partial(attempt, query)):
                    return parts, error, True
            except _WorkedError:
                parts = ()
            except Exception as error:
                if not (parts and self.may_explain(error)):
                    raise
                return parts, error, False
        return None

    def _reason(self, error: BadValue) -> dict[str, str]:
        if (role := self.tasks.table.roles.get("error")) is None:
            return {}
        text = str(error).encode("ascii", "backslashreplace").decode()
        return {role.name: text[: min(role.max_length or LONGEST_ERROR, LONGEST_ERROR)]}

    def _move(
        self, event: str, state: str, parts: Parts, token: str, update: Mapping[str, Any] = NONE
    ) -> Sequence[Row]:
        connection, binding = self.database.begin()
        transition = self.tasks.options.choose(state, event, NONE)
        step = self.batches.steps.move(binding, event, Selector("key", state), transition, (), (*update,))
        values = {**self.database.values(), **named(parts), "owner": token}
        values.update(zip(step.statement.names, update.values(), strict=True))
        # Database.run notifies the observers, and looks after each refusal for what is installed.
        return self.database.run(step, values, connection) if state == TAKEN else step.run(connection, values)
