"""Ready tasks that cannot be taken: their rows cannot be read, or the database refuses the move.

A take looks for them only after such an error. It buries one that cannot be read, with the reason. Without the feature
buried, and if the database refuses the move, this process's takes pass the task over for some seconds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from xq.core import time
from xq.core.compile import Selector
from xq.core.errors import BadValue, Duplicate
from xq.core.kinds import Row
from xq.core.machine import READY, TAKEN
from xq.core.options import NONE
from xq.core.values import Key, named, numbered
from xq.database.transactions import retried
from xq.engine.timers import UnattendedMoves

MOST: Final = 1_000  # tasks that are passed over at a time
AGAIN: Final = 10.0  # seconds until such a task is tried again
LONGEST_ERROR: Final = 10_000  # characters


class _WorkedError(Exception):
    """Undoes a take that was made to see whether it works."""


class Unmovable:
    """One queue's ready tasks that cannot be taken."""

    def __init__(self, unattended: UnattendedMoves) -> None:
        self.unattended, self.executor, self.tasks = unattended, unattended.executor, unattended.tasks
        self.until: dict[Key, float] = {}  # key -> the monotonic time until which it is passed over

    @property
    def passed(self) -> list[Key]:
        """The keys of the tasks that a take passes over now."""
        now = time.monotonic()
        return [parts for parts, until in list(self.until.items()) if until > now]

    def may_explain(self, error: Exception) -> bool:
        """Return whether one task may have caused an error: a lost connection, a lock or a lacking right did not."""
        return isinstance(error, Duplicate) or self.unattended.is_refused(error)

    def put_aside(self, which: Selector, values: Mapping[str, Any]) -> bool:
        """Bury or pass over the first tasks that a failed take cannot take. Return whether there are any."""
        if (token := values["owner"]) is None:  # it failed before it could take
            return False
        # If it is the driver that cannot read a row, the take is committed.
        self.unattended.undo_take(token)
        log, passed, n = self.unattended.log, self.passed, 0
        while len(passed) < MOST and (fault := self.first(which, {**values, **numbered(passed)}, len(passed), token)):
            n, (parts, error, is_buried) = n + 1, fault
            key = self.tasks.app_key(parts)
            if is_buried:
                log.error("task %r is buried: %s", key, error)
                continue
            passed.append(parts)
            level = logging.DEBUG if self.until.pop(parts, None) else logging.ERROR
            log.log(level, "takes pass over task %r, which cannot be taken: %s", key, error)
            self.pass_over(parts, time.monotonic() + AGAIN)
        return n > 0

    def pass_over(self, parts: Key, until: float = math.inf) -> None:
        """Leave a task out of this process's takes up to a monotonic time; infinity: as long as it runs."""
        self.until[parts] = until
        if len(self.until) > MOST:  # forget the oldest, whose time has mostly passed
            self.until.pop(next(iter(self.until)), None)

    def first(
        self, which: Selector, values: Mapping[str, Any], passed: int = 0, token: str = ""
    ) -> tuple[Key, Exception, bool] | None:
        """Take the first task alone, and undo that. If it fails, return the key, the error, and whether it is buried.

        With a take's token it buries a task that cannot be read.
        """
        store, parts = self.executor.store, Key()

        def attempt(query: str) -> BadValue | None:
            nonlocal parts
            with store.atomic():
                for parts in map(tuple, self.executor.run(query, {**values})):
                    if not (rows := self._move("take", READY, parts, token or "/")):
                        raise BadValue("the database ignores the change: look for a trigger or a rule")
                    try:
                        store.read(rows[0])
                    except BadValue as error:
                        if not token or TAKEN not in self.unattended.machine.sources("bury"):
                            raise
                        self._move("bury", TAKEN, parts, token, error)
                        return error
                    raise _WorkedError
            return None

        for query in self.executor.dialect.queries.first(which._replace(passed=passed)):
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

    def _move(self, event: str, state: str, parts: Key, token: str, why: BadValue | None = None) -> Sequence[Row]:
        connection, binding = begun = self.executor.begin()
        update = dict[str, str]()
        if why and (role := self.tasks.table.roles.get("error")):
            text = str(why).encode("ascii", "backslashreplace").decode()  # which each column can hold
            update[role.name] = text[: min(role.max_length or LONGEST_ERROR, LONGEST_ERROR)]
        transition = self.tasks.options.choose(state, event, NONE)
        compiled = self.unattended.statements.move(binding, event, Selector("key", state), transition, (), (*update,))
        brought = {} if why else self.unattended.machine.brought(token)
        values = {**self.executor.values(), **named(parts), "owner": token, **brought}
        values.update(zip(compiled.statement.names, update.values(), strict=True))
        # Executor.run notifies the observers, and looks after each refusal for what is installed.
        return self.executor.run(compiled, values, begun) if why else compiled.run(connection, values)
