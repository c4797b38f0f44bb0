"""Put tasks: keys, uniqueness, limits, batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from xq.core.compile import Selector
from xq.core.errors import BadValue, ConfigurationError, Duplicate, Error, Full, WrongState
from xq.core.machine import ABSENT, REMEMBERED, TAKEN, Transition
from xq.core.ports import REFUSALS, Connection, Row
from xq.core.values import New, Parts, Seconds, Tasks, named
from xq.engine.steps import Steps

T = TypeVar("T")

PER_INSERT = 200  # tasks per INSERT: preparing a longer one costs more than it saves
# Values per INSERT. A driver keeps a hundred prepared statements for each connection, which take 140 bytes a value.
VALUES = 1_000
TRIES = 20  # attempts, if a generated key is in use or the holder of a unique value disappears
NONE: Final[Mapping[str, Any]] = {}


class Inserts(Generic[T]):
    """Put tasks into one queue."""

    def __init__(self, tasks: Tasks[T], steps: Steps) -> None:
        self.database = steps.database
        self.tasks = tasks
        self.steps = steps
        self.machine = steps.machine
        self.name = self.database.store.name
        self._unique = self.machine.guard("unique")
        # If not, the database makes the missing keys.
        self._makes_keys = "key" in self.machine.fill or self.machine.settings.id == "required"
        self._usual: Transition | None = None  # the transition of a put without options

    def put(self, tasks: Sequence[object], options: Mapping[str, Any] = NONE) -> list[T]:
        """Put all of the tasks or none, and return them in the same order.

        Raises BadType, BadValue, FeatureOff, Full, Duplicate, and WrongState if a taken task would be replaced.
        """
        around = self.database.observers.around_put
        if around is None:
            return self._put(tasks, options)
        put: list[T] = around(lambda trace: self._put(tasks, options, trace), len(tasks))
        return put

    def _put(self, tasks: Sequence[object], options: Mapping[str, Any], trace: str | None = None) -> list[T]:
        conflict, seconds, transition = "raise", NONE, self._usual
        if options or transition is None:
            options = dict(options)
            conflict = self.tasks.on_conflict(options)
            seconds = self.tasks.options("put", options)
            transition = self.tasks.choose(ABSENT, "put", seconds)
            if not seconds:
                self._usual = transition
        singly = len(tasks) == 1 or self._unique
        brought = list(map(self.tasks.new, tasks)) if singly else self.tasks.new_many(tasks)
        if trace is not None and "trace" in self.tasks.table.roles:
            name = self.tasks.table.roles["trace"].name
            brought = [new.with_default(name, trace) for new in brought]
        for new in brought if seconds else ():
            self._check_own(new, seconds)
        if self._unique:  # the first statement reads: it looks for the holder of the value
            self.database.begin_writing()
        connection = self.database.begin()
        if not singly:
            binding = self.database.binding or self.database.open()
            brought = list(_for_statements(brought, min(VALUES, binding.dialect.most_values)))
        if len(brought) == 1:
            if not self._unique and not self.database.store.may_fail_to_read:
                return self._insert(transition, brought[0], seconds, connection)
            return self._put_one(transition, brought[0], seconds, conflict)

        return self.database.unit(partial(self._put_all, transition, brought, seconds, conflict), transaction=True)

    def _put_all(self, transition: Transition, brought: list[New], seconds: Seconds, conflict: str) -> list[T]:
        if self._unique:
            return [task for new in brought for task in self._put_one(transition, new, seconds, conflict)]
        return [task for new in brought for task in self._insert(transition, new, seconds)]

    def _check_own(self, new: New, seconds: Seconds) -> None:
        for option in seconds:
            if option in new.own and self.tasks.table.roles[option].name in new.brought:
                raise BadValue(f"{option} stands both in the task and in the option: give one of them")

    def _put_one(self, transition: Transition, new: New, seconds: Seconds, conflict: str) -> list[T]:
        unique = self._unique
        (value,) = new.values(self.tasks.table.roles[unique.role].name) if unique else (None,)
        if unique is None or value is None:
            # Reading the row back may raise: then undo the put.
            return self.database.unit(partial(self._insert, transition, new, seconds), transaction=True)

        def put() -> list[T]:
            found = self.database.execute(self.database.dialect.holder(unique), {"unique": value})
            if not found:
                return self._insert(transition, new, seconds)
            if conflict == "raise":
                key = self.tasks.app_key(self.tasks.key_of(found[0]))
                raise Duplicate(self.name, value, key, ": put(on_conflict='skip') returns it, 'replace' updates it")
            if conflict == "skip":
                return [self.tasks.returned(found[0])]
            return [self._replace(transition, found[0], new, {**new.own, **seconds})]

        for _ in range(TRIES):
            try:
                return self.database.unit(put, transaction=True)
            except Duplicate as error:
                if error.key is not None:
                    raise
        raise Duplicate(self.name, value)  # each time another process had put and finished a task with it meanwhile

    def _replace(self, transition: Transition, found: Row, new: New, seconds: Seconds) -> T:
        """Update a task in place, as if it were put anew. Raises WrongState if it is taken."""
        parts, state = self.tasks.key_of(found), self.database.dialect.state(found) or ""
        if state == TAKEN:
            others = [s for s in self.machine.states if s != TAKEN]
            raise WrongState("replace", self.tasks.app_key(parts), state, others, self.tasks.wording)
        keys = [field.name for field in self.tasks.table.key]
        # Clear what the earlier put stored, unless this put has a value for it.
        forgotten = {f.name: None for role, f in self.tasks.table.roles.items() if role in REMEMBERED}
        update = forgotten | {
            name: value
            for name, value in zip(new.names, new.rows[0], strict=True)
            if name in new.brought and name not in keys
        }
        connection, binding = self.database.begin(), self.database.open()
        step = self.steps.move(
            binding, transition.event, Selector("key", state), transition, tuple(seconds), tuple(update)
        )
        values = self.database.values(seconds) | named(parts)
        values.update(zip(step.statement.names, update.values(), strict=True))
        return self.tasks.returned(self.database.perform(step, connection, values)[0])

    def _insert(
        self, transition: Transition, new: New, seconds: Seconds, connection: Connection | None = None
    ) -> list[T]:
        """Put tasks by one statement. If a generated key is in use, generate another."""
        database, store = self.database, self.database.store
        connection = connection or store.ready()
        binding = database.binding or database.open()
        if new.own:
            seconds = {**new.own, **seconds}
        n = len(new.rows)
        for _ in range(TRIES):
            complete = self.tasks.with_keys(new) if self._makes_keys else new
            step = self.steps.insert(binding, transition, tuple(seconds), complete.names, n)
            clock = database.clock
            values = {"now": None if clock is None else clock.now, "rows": complete.rows, "adding": n}
            if seconds:
                values |= database.values(seconds)
            try:
                rows = database.perform(step, connection, values, caught=complete.made_keys)
            except Exception as error:
                if store.classify(error) in REFUSALS:
                    if complete.made_keys and any(map(self._is_there, self._keys_in(complete))):
                        continue
                    if self._unique and binding.dialect.is_duplicate(self._unique, str(error)):
                        raise Duplicate(self.name) from error
                raise
            if len(rows) < n:
                self._refuse(complete)
            if len(rows) == 1:
                returned = self.tasks.returned
                return [returned(rows[0])]
            return self.tasks.returned_all(self._as_put(rows, complete))
        raise ConfigurationError(f"{self.name}: the strategy of the feature id makes keys that are taken already")

    def _refuse(self, new: New) -> None:
        limit = self.machine.guard("limit")
        if limit is not None and not self._is_held(new):
            raise Full(self.name, limit.value, len(new.rows))
        if self._unique:
            raise Duplicate(self.name)
        raise Error(f"the database added no row to {self.name}, without an error: is there a trigger that ignores it?")

    def _is_held(self, new: New) -> bool:
        """Return whether another task has the unique value of one of these."""
        name = self.tasks.table.roles["unique"].name if self._unique else ""
        if self._unique is None or name not in new.names:
            return False
        holder = self.database.dialect.holder(self._unique)
        return any(self.database.execute(holder, {"unique": value}) for value in new.values(name) if value is not None)

    def _keys_in(self, new: New) -> list[Parts]:
        return list(zip(*(new.values(field.name) for field in self.tasks.table.key), strict=True))

    def _is_there(self, parts: Parts) -> bool:
        return bool(self.database.execute(self.database.dialect.look(), named(parts)))

    def _as_put(self, rows: list[Row], new: New) -> list[Row]:
        """Return the rows in the order of their tasks: by their keys, else in ascending order of the keys."""
        if any(field.name not in new.names for field in self.tasks.table.key):  # the database makes keys in this order
            return sorted(rows, key=self.tasks.app_key_of)
        by_key = {self.tasks.app_key_of(row): row for row in rows}
        found = [by_key.get(key) for key in self.tasks.app_keys(self._keys_in(new))]
        return [row for row in found if row is not None] if None not in found else rows


def _for_statements(together: list[New], most: int) -> Iterator[New]:
    """Yield the same tasks for one statement each, which has at most `most` values."""
    for new in together:
        size = max(1, min(PER_INSERT, most // (len(new.names) + 1)))
        if len(new.rows) <= size:
            yield new
            continue
        tasks = new.tasks if len(new.tasks) == len(new.rows) else []
        for place in range(0, len(new.rows), size):
            part = slice(place, place + size)
            yield replace(new, tasks=tasks[part], rows=new.rows[part])
