"""Put tasks: keys, uniqueness, limits, batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Generic, NoReturn

from xq.core.compile import After, Given, Own, Selector, Statement, change
from xq.core.errors import BadValue, ConfigurationError, Duplicate, Error, Full, WrongState
from xq.core.kinds import REFUSALS, ErrorKind, Field, Row, T
from xq.core.machine import ABSENT, MANAGED, REMEMBERED, ROLE_DEFAULTS, TAKEN, Guard, Marker, Sql, Transition
from xq.core.options import NONE, Spans, seconds_of
from xq.core.values import Key, New, Tasks, check_role, named
from xq.engine.executor import Begun, Puts
from xq.engine.statements import Statements
from xq.engine.stats import counts, room
from xq.sql.named import filled

PER_INSERT = 200  # tasks per INSERT: preparing a longer one costs more than it saves
# Values per INSERT: 200 tasks of 24 fields. A driver keeps 100 prepared statements a connection, of 140 bytes a value.
VALUES = 5_000
PUT_TRIES = 20  # attempts, if a generated key is in use or the holder of a unique value disappears


class _UndoneError(Exception):
    """Undoes a transaction."""


BY_SQL = (After, Given, Own, Marker, Sql)  # what a statement writes that the database computes


@dataclass(slots=True, eq=False)
class CheckedPut:
    """A checked call of put."""

    transition: Transition
    seconds: Spans
    conflict: str = "raise"
    roles: Sequence[tuple[str, Any]] = ()  # roles, and what they hold beside what the tasks bring
    found: list[Row] | None = None  # gets the rows that had the unique values: these tasks are no new rows


class Inserts(Generic[T]):
    """Put tasks into one queue."""

    def __init__(self, tasks: Tasks[T], statements: Statements) -> None:
        self.executor = Puts(statements.executor)
        self.tasks = tasks
        self.statements = statements
        self.machine = statements.machine
        self.name = self.executor.store.name
        self._unique = self.machine.single
        self._limit = self.machine.room
        self._unique_name = tasks.table.roles[self._unique.role].name if self._unique else ""
        # If not, the database makes the missing keys.
        self._makes_keys = "key" in self.machine.fill or self.machine.settings.id == "required"
        self.plain = CheckedPut(tasks.options.usual["put"], NONE)  # a call without options

    def put(self, task: object, options: Mapping[str, Any] = NONE) -> T:
        """Put one task, and return it. Raises as `put_many`."""
        executor = self.executor
        if "chain" in options:
            self.tasks.options.refuse_option("put", "chain")
        if options or executor.observers.around_put is not None:
            return self.put_many([task], options)[0]
        if executor.store.unit is not None:
            return self._put_asked(self.plain, None, [task])[0]
        new = self.tasks.new(task)
        _, binding = begun = self.executor.begin(reviews=True)
        if binding.may_fail_to_read:
            return self.executor.transaction(partial(self._put_part, self.plain, new), locks=False)[0]
        if self._has_unique(new):
            return self._put_part(self.plain, new)[0]
        rows, _ = self._insert(self.plain, new, begun)
        return self.tasks.read(rows[0]) if rows else self._refuse()

    def put_many(
        self, tasks: Sequence[object], options: Mapping[str, Any] = NONE, found: list[Row] | None = None
    ) -> list[T]:
        """Put all of the tasks or none, and return them in the same order.

        `found` gets the rows that were there, and were skipped or replaced.

        Raises BadType, BadValue, FeatureOff, Full, Duplicate, and WrongState if a taken task would be replaced.
        """
        if (around := self.executor.observers.around_put) is None:
            return self._put_many(tasks, options, found)
        return around(lambda trace: self._put_many(tasks, options, found, trace), len(tasks))

    def _put_many(
        self, tasks: Sequence[object], options: Mapping[str, Any], found: list[Row] | None, trace: str | None = None
    ) -> list[T]:
        asked = self.plain
        if options:
            options = dict(options)
            links = next(filter(None, (each.linking(options) for each in self.statements.settling.settlers)), None)
            asked = self._asked(options, found)
            if links:
                options.pop("delay", None)
                late = self._asked({**options, links.by: 0})
                late.seconds, late.roles = {**late.seconds, links.by: None}, [(links.by, links.how)]
                return links.put(tasks, *(partial(self._put_asked, each, trace) for each in (asked, late)))
        return self._put_asked(asked, trace, tasks)

    def _asked(self, options: dict[str, Any], found: list[Row] | None = None) -> CheckedPut:
        conflict = self.tasks.options.on_conflict(options)
        seconds = self.tasks.options.check("put", options)
        return CheckedPut(self.tasks.options.choose(ABSENT, "put", seconds), seconds, conflict, found=found)

    def _put_asked(self, asked: CheckedPut, trace: str | None, tasks: Sequence[object]) -> list[T]:
        if (unit := self.executor.store.unit) is not None:
            with suppress(Duplicate) if asked.conflict != "raise" else nullcontext():
                if (done := unit.put(tasks, asked, trace)) is not None:
                    return list(done)
        brought = self.tasks.new_many(tasks)
        for by, how in asked.roles:
            brought = [new.with_default(self.tasks.table.roles[by].name, how) for new in brought]
        if trace is not None and (role := self.tasks.table.roles.get("trace")):
            brought = [new.with_default(role.name, trace) for new in brought]
        for new, option in product(brought, asked.seconds):
            if option in new.own and self.tasks.table.roles[option].name in new.brought:
                raise BadValue(f"{option} stands both in the task and in the option: give one of them")
        _, binding = begun = self.executor.begin(reviews=True)
        parts = list(_for_statements(brought, min(VALUES, binding.dialect.most_values)))
        if len(parts) == 1 and not binding.may_fail_to_read and (len(tasks) == 1 or not self._has_unique(parts[0])):
            return self._put_part(asked, parts[0], begun)
        put = partial(self._put_part, asked)
        return self.executor.transaction(lambda: [task for part in map(put, parts) for task in part], locks=False)

    def _put_part(self, asked: CheckedPut, new: New, begun: Begun | None = None) -> list[T]:
        """Put the tasks of one statement."""
        return self._put_unique(asked, new) if self._has_unique(new) else self._as_put(*self._insert(asked, new, begun))

    def _has_unique(self, new: New) -> bool:
        return self._unique is not None and any(value is not None for value in new.values(self._unique_name))

    def _put_unique(self, asked: CheckedPut, new: New) -> list[T]:
        """Put tasks by one statement. If it refuses some, one query finds the tasks that have their values."""
        guard, tasks = self._unique, dict[int, T]()
        assert guard is not None
        values, tried = new.values(self._unique_name), 0
        while len(tasks) < len(values):
            # Of equal values only the first: by an error the database would refuse all of them.
            left = ((place, value) for place, value in reversed([*enumerate(values)]) if place not in tasks)
            places = sorted({(value, value is None and place): place for place, value in left}.values())
            part, rows, before = new.at(places), None, len(tasks)
            connection, binding = begun = self.executor.begin()
            # An INSERT that fails keeps a lock: transactions of applications, never retried, would deadlock.
            by_error = not binding.dialect.moves.unless_duplicate(guard)
            is_applications = connection.in_transaction and connection.open_block != "transaction"
            if tried or tasks or not (by_error and is_applications):
                with suppress(Duplicate):  # by an error the database refuses all of the tasks
                    rows, part = self._insert(asked, part, begun)
            if rows is None or len(rows) < len(places):
                put, holders = self._holders(guard, part, rows or [])
                if rows == [] and not holders:
                    free = room(self.executor, counts(self.executor))
                    if free is not None and len(places) > free:
                        self._refuse()
                for i, holder in holders.items():
                    if task := self._instead(asked, holder, part.at([i])):
                        tasks[places[i]] = task
                        if asked.found is not None:
                            asked.found.append(holder)
                part, places = part.at(put), [places[i] for i in put]
            tasks.update(zip(places, self._as_put(rows or [], part), strict=True))
            tried = tried + 1 if len(tasks) == before else 0
            if tried == PUT_TRIES:
                raise Duplicate(self.name)  # each time another process had put and finished a task with it meanwhile
        return [tasks[place] for place in range(len(values))]

    def _holders(self, unique: Guard, new: New, rows: list[Row]) -> tuple[list[int], dict[int, Row]]:
        """Return the places of the tasks with these rows, and the tasks in the database with the values of others."""
        values = new.values(self._unique_name)
        by_name = {f"unique{i}": value for i, value in enumerate(values)}
        found = self.executor.run(self.executor.dialect.moves.holders(unique, len(values)), by_name)
        by_value = {values[row[-1]]: row for row in found}
        added, put, holders = {self.tasks.key_of(row) for row in rows}, list[int](), dict[int, Row]()
        for place, value in enumerate(values):
            holder = by_value.get(value)
            key = self.tasks.key_of(holder) if holder else ()
            if key in added or (value is None and rows):
                put.append(place)
                added.discard(key)
            elif holder:
                holders[place] = holder
        if len(put) < len(rows):
            raise Duplicate(self.name)  # it is not known which, since the database changes the values
        return put, holders

    def _instead(self, asked: CheckedPut, holder: Row, new: New) -> T | None:
        """Return what a put does if another task has the unique value. None if that task has moved meanwhile."""
        if asked.conflict == "skip":
            return self.tasks.returned(holder)
        if asked.conflict == "replace":
            return self._replace(asked.transition, holder, new, {**new.own, **asked.seconds})
        (value,), key = new.values(self._unique_name), self.tasks.app_key(self.tasks.key_of(holder))
        raise Duplicate(self.name, value, key, ": put(on_conflict='skip') returns it, 'replace' updates it")

    def _replace(self, transition: Transition, found: Row, new: New, seconds: Spans) -> T | None:
        """Update a task in place, as if it were put anew. None if it has moved. Raises WrongState if it is taken."""
        parts, state = self.tasks.key_of(found), self.executor.dialect.state(found) or ""
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
        _, binding = begun = self.executor.begin()
        which = Selector("key", state)
        compiled = self.statements.move(binding, transition.event, which, transition, tuple(seconds), tuple(update))
        values = self.executor.values(seconds) | named(parts)
        values.update(zip(compiled.statement.names, update.values(), strict=True))
        rows = self.executor.run(compiled, values, begun)
        return self.tasks.returned(rows[0]) if rows else None

    def _insert(self, asked: CheckedPut, new: New, begun: Begun | None = None) -> tuple[list[Row], New]:
        """Put tasks by one statement, again if a generated key is in use. Return the rows put, and all with keys."""
        executor, store = self.executor, self.executor.store
        _, binding = begun = begun or executor.begin()
        transition, seconds = asked.transition, {**new.own, **asked.seconds} if new.own else asked.seconds
        n = len(new.rows)
        for _ in range(PUT_TRIES):
            complete = self.tasks.with_keys(new) if self._makes_keys else new
            name = "put", n, transition.target, (*seconds,), complete.names
            compiled = binding.compiled.get(name) or self.statements.insert(binding, name, n, transition)
            clock = executor.clock
            values = {"now": None if clock is None else clock.now, "rows": complete.rows, "adding": n}
            if seconds:
                values |= executor.values(seconds)
            try:
                rows = executor.run(compiled, values, begun, caught=complete.made_keys)
            except Exception as error:
                if complete.made_keys and store.classify(error) in REFUSALS:
                    look = binding.dialect.queries.look()
                    if any(executor.run(look, named(key)) for key in self._keys_in(complete)):
                        continue
                raise
            return rows, complete
        raise ConfigurationError(f"{self.name}: the strategy of the feature id makes keys that are taken already")

    def later(self, task: object) -> str:
        """Return SQL that puts a task, without options, when it runs, in whatever program. Raises as `put`.

        It skips a task whose unique value another one has then that is not taken. The limit of a queue does not hold
        it up. It is tried, and undone.
        """
        _, binding = self.executor.begin(reviews=True)
        dialect, store, new = binding.dialect, self.executor.store, self.tasks.new(task)
        new = self.tasks.with_keys(new) if self._makes_keys else new
        dialect = dialect.in_full(store)
        row = dict(zip(new.names, new.rows[0], strict=True))
        by_column = {field.column: row[field.name] for field in self.tasks.table.fields if field.name in row}
        literals = dialect.literals(store, dialect.table_in_schema, by_column)
        made = dialect.moves.put_later(
            change(self.machine, self.plain.transition, frozenset(new.own)),
            {dialect.quote(column): text for column, text in literals.items()},
        )
        values = {**self.executor.values(new.own), "now": None, "context": dialect.stored_context("put")}
        known = {name: dialect.literal(value) for name, value in values.items()}
        put, later, holder = (filled(text, **known) for text in made)

        def tried() -> NoReturn:
            if not holder or not dialect.execute(store, holder, {}):
                self.executor.run(binding.changes(store, Statement(put), "put"))
            raise _UndoneError

        try:
            self.executor.transaction(tried, caught=True)
        except Exception as error:
            # A unique value that another task has now may be free then.
            if not isinstance(error, (_UndoneError, Duplicate)) and store.classify(error) is not ErrorKind.DUPLICATE:
                raise
        return later

    # rows that an ORM inserts by itself

    def written(self, asked: CheckedPut, values: Mapping[str, Any]) -> dict[Field, Any]:
        """Return what put writes beside the values of a task that an ORM inserts, as the database has it.

        The call is part of the same transaction. Raises BadValue and BadType.
        """
        roles, seconds = self.tasks.table.roles, dict(asked.seconds)
        for role, field in roles.items():
            if (value := values.get(field.name)) is not None and role not in MANAGED:
                check_role(role, value, field.kind)
                if role in REMEMBERED:
                    seconds[role] = seconds_of(role, value)
        _, binding = self.executor.begin(reviews=True)
        if self._limit:
            binding.dialect.one_at_a_time(self.executor.store.ready(), within=True)
        row = change(self.machine, asked.transition, frozenset(seconds)).roles
        by_sql = {role: value for role, value in row.items() if role in roles and isinstance(value, BY_SQL)}
        found: Row = ()
        if by_sql:
            (found,) = self.executor.run(binding.dialect.moves.all_written(by_sql), self.executor.values(seconds))
        word = self.executor.definition.words[asked.transition.target]
        brought = {**row, **dict(zip(by_sql, found, strict=True)), **ROLE_DEFAULTS, "status": word}
        made = {roles[role]: value for role, value in brought.items() if role in roles}
        made |= {roles[role]: value for role, value in asked.roles}
        for role, make in self.machine.fill.items():
            field = self.tasks.table.key[0] if role == "key" else roles[role]
            if values.get(field.name) is None:
                made[field] = field.to_database(make(values))
        return made

    @property
    def looks_after(self) -> bool:
        """Whether `inserted` has something to do."""
        return self._limit is not None or self.executor.observers.anybody

    def inserted(self, parts: Key, state: str) -> None:
        """Raise Full if the queue had no room for a task that an ORM has inserted, else notify the observers."""
        executor, limit = self.executor, self._limit
        if limit and not executor.run(executor.dialect.moves.has_room(limit), {"adding": 0}):
            self._refuse()
        if executor.observers.anybody:
            rows = executor.run(executor.dialect.queries.look(), named(parts))
            executor.observers.notify("put", ABSENT, state, [row[:-1] for row in rows])

    def _refuse(self) -> NoReturn:
        if self._limit is not None:
            raise Full(self.name, self._limit.value)
        raise Error(f"the database added no row to {self.name}, without an error: is there a trigger that ignores it?")

    def _keys_in(self, new: New) -> list[Key]:
        return list(zip(*(new.values(field.name) for field in self.tasks.table.key), strict=True))

    def _as_put(self, rows: list[Row], new: New) -> list[T]:
        """Return the tasks of rows in the order of `new`: by their keys, else in ascending order of the keys.

        Raises Full if a task has no row.
        """
        if len(rows) < len(new.rows):
            self._refuse()
        if any(field.name not in new.names for field in self.tasks.table.key):  # the database makes keys in this order
            return self.tasks.read_all(sorted(rows, key=self.tasks.app_key_of))
        by_key = {self.tasks.app_key_of(row): row for row in rows}
        found = [by_key.get(key) for key in self.tasks.app_keys(self._keys_in(new))]
        return self.tasks.read_all([row for row in found if row is not None] if None not in found else rows)


def _for_statements(together: list[New], most: int) -> Iterator[New]:
    """Yield the same tasks for one statement each, which has at most `most` values."""
    for new in together:
        size = max(1, min(PER_INSERT, most // (len(new.names) + 1)))
        if len(new.rows) <= size:
            yield new
            continue
        for place in range(0, len(new.rows), size):
            yield new.at(range(len(new.rows))[place : place + size])
