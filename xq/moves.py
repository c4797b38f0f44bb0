"""From a call to the database and back: choose a row of the table, run its statement, return the tasks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, TypeVar
from weakref import ref

from xq import sessions
from xq.clock import Clock
from xq.compile import Fence, Rows, Statement, Statements
from xq.errors import (
    BadType,
    BadValue,
    ConfigurationError,
    Duplicate,
    Full,
    NotFound,
    NotInstalled,
    NotOwner,
    WrongState,
)
from xq.install import Installation
from xq.machine import ABSENT, TAKEN, Machine, Transition
from xq.store import Row, Store, Table
from xq.tasks import Catalogue, New, Tasks

T = TypeVar("T")
Parts = tuple[Any, ...]  # of a key, as the database holds them
Seconds = Mapping[str, float | None]  # what a call brings, by option; None is never

BATCH = 1_000  # rows that one statement moves or looks up
PUT_BATCH = 200  # rows that one INSERT puts: longer texts take longer to prepare than they save
TRIES = 20  # how often a task that others keep moving is tried again
SWEEP_AFTER = 0.05  # seconds: a process that takes without end looks this often for what fell due


@dataclass(frozen=True)
class Definition:
    """What `upgrade` made of its arguments. Replaced as a whole by `reconfigure`."""

    machine: Machine
    table: Table
    words: Mapping[str, str | int]  # letter -> what the status field holds
    tube_stats: tuple[str, ...]
    structure: Mapping[str, Any]  # what must be the same in every process
    catalogue: Catalogue
    dialects: Mapping[str, Callable[..., Any]]
    redefine: Callable[[Mapping[str, Any]], Definition]


@dataclass(frozen=True)
class Opened:
    """A definition on the database that the model has now."""

    database: ref[Any]
    dialect: Any
    statements: Statements
    installation: Installation
    sessions: sessions.Sessions


class Moves(Generic[T]):
    """The moves of tasks between the states of one queue."""

    def __init__(self, store: Store[T], definition: Definition, clock: Clock | None) -> None:
        self.store = store
        self.definition = definition
        self.machine = definition.machine
        self.tasks = Tasks(store, definition.table, definition.machine, definition.catalogue)
        self.log = logging.getLogger(f"xq.{store.name}")
        self._clock = clock
        self._unfenced = bool(self.machine.settings.get("unfenced"))
        self._unique = next((guard for guard in self.machine.guards if guard.role), None)
        self._opened: Opened | None = None
        self._swept = 0.0

    # the database

    def connect(self) -> Opened:
        """The definition, compiled for the database that the model has now."""
        database = self.store.database
        opened = self._opened
        if opened is None or opened.database() is not database:
            definition = self.definition
            kind = definition.dialects[self.store.engine]
            dialect = kind(definition.table, definition.machine, definition.words, definition.tube_stats)
            opened = Opened(
                ref(database),
                dialect,
                Statements(definition.machine, dialect),
                Installation(self.store, dialect, definition.structure),
                sessions.of(database),
            )
        return opened

    def open(self) -> Opened:
        """As `connect`, on a database where the queue is installed. Raises NotInstalled."""
        opened = self._opened
        if opened is None or opened.database() is not self.store.database:
            opened = self.connect()
            missing = opened.installation.missing()
            if missing:
                raise NotInstalled(self.store.name, missing)
            opened.sessions.queues.add(self)
            self._opened = opened
        return opened

    def close(self) -> None:
        """Look again whether the queue is installed, at the next call."""
        self._opened = None

    def values(self, seconds: Seconds = {}) -> dict[str, Any]:  # noqa: B006 (never changed)
        """The named values that every statement may use, and the options of a call."""
        values: dict[str, Any] = {"now": None if self._clock is None else self._clock.now, **seconds}
        for option, value in seconds.items():
            values[f"own_{option}"] = float("inf") if value is None else value
        return values

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a text of the dialect. Raises NotInstalled when it fails for want of something installed."""
        return self._run(Statement(sql), self.values() | dict(values or {}))

    def _run(self, statement: Statement, values: Mapping[str, Any]) -> list[Row]:
        opened = self.open()
        try:
            rows: list[Row] = opened.dialect.run(self.store, statement, values)
        except Exception as error:
            if self.store.is_failure(error) and not self.store.is_refusal(error):
                missing = self._missing(opened)
                if missing:
                    self.close()
                    raise NotInstalled(self.store.name, missing) from error
            raise
        return rows

    def _missing(self, opened: Opened) -> list[str]:
        try:
            return opened.installation.missing()
        except Exception as error:
            if not self.store.is_failure(error):
                raise
            return []  # the database itself is in trouble, and the first error tells of it

    # sessions

    @property
    def session(self) -> sessions.Session:
        """The current session with this database."""
        return self.open().sessions.current()

    def _mark(self) -> str:
        """The mark of a take by the current session, which is made known to the database at its first one."""
        session = self.session
        if not session.known:
            self.execute(self.open().dialect.session_opened, {"uuid": session.uuid})
            session.known = not self.store.in_transaction()
        return session.mark(time.time() if self._clock is None else self._clock.now)

    def give_back(self, session: sessions.Session) -> None:
        """Release what a session that was closed still holds, and forget it."""
        if self.connect().sessions is not session.sessions:
            return  # the model is bound to another database now
        held = {"session": session.prefix, "session_end": session.end}
        self._batches(Rows("held", TAKEN), self.tasks.choose(TAKEN, "release", {}), held)
        self.execute(self.open().dialect.session_closed, {"uuid": session.uuid})

    # putting

    def put(self, tasks: list[object], options: dict[str, Any]) -> list[T]:
        """Put all of the tasks or none, and return them in the same order."""
        words = self.tasks.words("put", options)
        seconds = self.tasks.options("put", options)
        row = self.tasks.choose(ABSENT, "put", seconds)
        brought = [self.tasks.put(task) for task in tasks]
        for new in brought:
            both = sorted(seconds.keys() & new.own.keys())
            if both:
                raise BadValue(f"{both[0]} stands both in the task and in the option: give one of them")
        if len(brought) == 1:
            return [self._put_one(row, brought[0], seconds, words)]
        with self.store.atomic():
            if self._unique:
                return [self._put_one(row, new, seconds, words) for new in brought]
            return [task for batch in _batches(brought) for task in self._insert(row, batch, seconds)]

    def _put_one(self, row: Transition, new: New, seconds: Seconds, words: Mapping[str, str]) -> T:
        unique = self._unique
        value = new.values.get(self.definition.table.roles[unique.role].name) if unique else None
        if unique is None or value is None:
            return self._insert(row, [new], seconds)[0]
        with self.store.atomic():
            found = self.execute(self.open().dialect.holder(unique), {"unique": value})
            if not found:
                return self._insert(row, [new], seconds)[0]
            if words["on_conflict"] == "raise":
                raise Duplicate(self.store.name, value, _single(self.tasks.key_of(found[0])))
            if words["on_conflict"] == "skip":
                return self.tasks.returned(found[0])
            return self._replace(row, found[0], new, {**seconds, **new.own})

    def _replace(self, row: Transition, found: Row, new: New, seconds: Seconds) -> T:
        """Update a task in place, as if it were put anew."""
        parts, state = self.tasks.key_of(found), self.open().dialect.state(found)
        if state == TAKEN:
            raise WrongState("replace", _single(parts), state, [s for s in self.machine.states if s != TAKEN])
        keys = [field.name for field in self.definition.table.key]
        update = {name: value for name, value in new.values.items() if name not in keys}
        statement = self.open().statements.move(Rows("key", state), row, frozenset(seconds), tuple(update))
        values = self.values(seconds) | self.open().dialect.values(update) | _named(parts)
        return self.tasks.returned(self._run(statement, values)[0])

    def _insert(self, row: Transition, tasks: Sequence[New], seconds: Seconds) -> list[T]:
        """Put tasks that bring the same fields with one statement. A key made here that is taken is made again."""
        seconds = {**seconds, **tasks[0].own}
        for _ in range(TRIES):
            complete = [self.tasks.complete(new.values) for new in tasks]
            names = tuple(complete[0].values)
            values = self.values(seconds) | {"adding": len(tasks)}
            for i, new in enumerate(complete):
                values |= self.open().dialect.values(new.values, i)
            statement = self.open().statements.insert(row, frozenset(seconds), names, len(tasks))
            try:
                rows = self._run(statement, values)
            except Exception as error:
                if self.store.is_refusal(error) and any(new.made_key and self._is_there(new) for new in complete):
                    continue
                raise
            if len(rows) < len(tasks):
                self._refuse(len(tasks))
            return [self.tasks.returned(found) for found in self._as_put(rows, complete)]
        raise ConfigurationError(f"{self.store.name}: the strategy of the feature id makes keys that are taken already")

    def _refuse(self, adding: int) -> None:
        limit = next((guard for guard in self.machine.guards if guard.name == "limit"), None)
        if limit is not None:
            raise Full(self.store.name, limit.value, adding)
        raise Duplicate(self.store.name, "of a task put by another transaction meanwhile")

    def _key_in(self, new: New) -> Parts:
        return tuple(new.values.get(field.name) for field in self.definition.table.key)

    def _is_there(self, new: New) -> bool:
        return bool(self.execute(self.open().dialect.look(), _named(self._key_in(new))))

    def _as_put(self, rows: list[Row], tasks: Sequence[New]) -> list[Row]:
        """Rows in the order of the tasks they came from: by key where that was known, else as keys were made."""
        by_key = {self.tasks.key_of(row): row for row in rows}
        keys = [self._key_in(new) for new in tasks]
        return (
            [by_key[key] for key in keys if key in by_key] if keys[0] in by_key else [by_key[k] for k in sorted(by_key)]
        )

    # moving

    def one(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
        to: str | None = None,
    ) -> T:
        """Move one task out of whatever state it is in, as the table says."""
        seconds = self.tasks.options(event, options)
        fields = self.tasks.updates(update)
        parts, mark = self.tasks.identify(key)
        sources = self.machine.sources(event)
        if len(sources) == 1:
            state = sources[0]
            self.tasks.choose(state, event, seconds, to)
        else:
            state = self._find(event, parts, mark, seconds, to)
        for _ in range(TRIES):
            rows = self._by_key(state, event, parts, mark, seconds, fields, to)
            if rows:
                return self.tasks.returned(rows[0], mark if self.machine.keeps_hold(state, event) else None)
            state = self._find(event, parts, mark, seconds, to)
        raise WrongState(event, _single(parts), state, sources)

    def _by_key(
        self,
        state: str,
        event: str,
        parts: Parts,
        mark: str | None,
        seconds: Seconds,
        fields: Mapping[str, Any],
        to: str | None = None,
    ) -> list[Row]:
        row = self.tasks.choose(state, event, seconds, to)
        fence, holder = self._fence(row, mark)
        statement = self.open().statements.move(Rows("key", state, fence), row, frozenset(seconds), tuple(fields))
        values = self.values(seconds) | self.open().dialect.values(fields) | _named(parts) | holder
        with self._telling_duplicates():
            return self._run(statement, values)

    def _find(self, event: str, parts: Parts, mark: str | None, seconds: Seconds, to: str | None = None) -> str:
        """The state of a task that `event` moves. Raises NotFound, WrongState and NotOwner, in this order."""
        row, state = self.look(parts)
        sources = self.machine.sources(event)
        if state not in sources:
            raise WrongState(event, _single(parts), state, sources)
        if self.tasks.choose(state, event, seconds, to).fenced and not self._unfenced:
            owner = row[-1]
            if not (owner or "").startswith(self.session.prefix) or (mark is not None and owner != mark):
                raise NotOwner(event, _single(parts), owner)
        return state

    def look(self, parts: Parts) -> tuple[Row, str]:
        """A task's row, followed by its owner, and its state. Raises NotFound."""
        rows = self.execute(self.open().dialect.look(), _named(parts))
        if not rows:
            raise NotFound(self.store.name, _single(parts))
        state = self.open().dialect.state(rows[0])
        if state is None:
            raise NotFound(self.store.name, _single(parts), ": its row has a status that is not the queue's")
        return rows[0], state

    def _fence(self, row: Transition, mark: str | None) -> tuple[Fence, dict[str, str]]:
        """Which fence a row of the table needs, and the value that opens it."""
        if not row.fenced or self._unfenced:
            return "", {}
        prefix = self.session.prefix
        if mark is None:
            return "session", {"session": prefix}
        # The mark of another session opens nothing here, whoever carries the object.
        return "take", {"owner": mark if mark.startswith(prefix) else ""}

    def oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
        tube: str | None = None,
    ) -> list[T]:
        """Move the `n` oldest tasks that `event` may choose itself (None: all), and return them in order."""
        seconds = self.tasks.options(event, options)
        fields = self.tasks.updates(update)
        (source,) = self.machine.sources(event)
        row = self.tasks.choose(source, event, seconds)
        if n == 0:
            return []
        rows = Rows("oldest", source, tube=tube is not None)
        statement = self.open().statements.move(rows, row, frozenset(seconds), tuple(fields))
        mark = self._mark() if row.target == TAKEN else None
        values = self.values(seconds) | self.open().dialect.values(fields)
        values |= {"n": -1 if n is None else n, "owner": mark, "tube": tube}
        swept = self._just_swept()
        if not swept:
            self.sweep()
        with self._telling_duplicates():
            moved = self._run(statement, values)
            if not moved and swept and self.sweep():
                moved = self._run(statement, values)
        return [self.tasks.returned(row, mark) for row in sorted(moved, key=self.tasks.in_order)]

    def many(
        self, event: str, keys: object, options: Mapping[str, Any], update: Mapping[str, Any] | None = None
    ) -> list[T]:
        """Move all of the tasks or none: those in one state and one hand with one statement."""
        if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
            raise BadType(f"{event}_many takes keys or tasks, not {type(keys).__name__}: {keys!r}")
        seconds = self.tasks.options(event, options)
        fields = self.tasks.updates(update)
        named = [self.tasks.identify(key) for key in keys]
        if len({parts for parts, _ in named}) < len(named):
            raise BadValue(f"{event}_many: a task is named twice")
        moved: dict[Parts, Row] = {}
        with self.store.atomic():
            for (state, mark), group in self._in_one_hand(event, named, seconds).items():
                for batch in _chunks(group, BATCH):
                    for row in self._by_keys(state, event, batch, mark, seconds, fields):
                        moved[self.tasks.key_of(row)] = row
        return [self.tasks.returned(moved[parts]) for parts, _ in named]

    def _in_one_hand(
        self, event: str, named: Iterable[tuple[Parts, str | None]], seconds: Seconds
    ) -> dict[tuple[str, str | None], list[Parts]]:
        sources = self.machine.sources(event)
        groups: dict[tuple[str, str | None], list[Parts]] = {}
        for parts, mark in named:
            state = sources[0] if len(sources) == 1 else self._find(event, parts, mark, seconds)
            groups.setdefault((state, mark), []).append(parts)
        return groups

    def _by_keys(
        self,
        state: str,
        event: str,
        keys: list[Parts],
        mark: str | None,
        seconds: Seconds,
        fields: Mapping[str, Any],
    ) -> list[Row]:
        """Move all of these tasks. Raises what is wrong with the first that does not move."""
        if len(keys) == 1 or any(not isinstance(part, (int, str)) for part in keys[0]) or len(keys[0]) > 1:
            rows = [row for parts in keys for row in self._by_key(state, event, parts, mark, seconds, fields)]
        else:
            row = self.tasks.choose(state, event, seconds)
            fence, holder = self._fence(row, mark)
            statement = self.open().statements.move(Rows("keys", state, fence), row, frozenset(seconds), tuple(fields))
            listed = {"keys": json.dumps([part for (part,) in keys])}
            with self._telling_duplicates():
                rows = self._run(statement, self.values(seconds) | self.open().dialect.values(fields) | listed | holder)
        if len(rows) < len(keys):
            moved = {self.tasks.key_of(row) for row in rows}
            missed = next(parts for parts in keys if parts not in moved)
            raise WrongState(event, _single(missed), self._find(event, missed, mark, seconds), [state])
        return rows

    def all(self, event: str, state: str) -> int:
        """Move every task in a state, whoever holds it. Returns how many."""
        with self.store.atomic():
            return self._batches(Rows("all", state), self.tasks.choose(state, event, {}))

    def _batches(self, rows: Rows, row: Transition, values: Mapping[str, Any] | None = None) -> int:
        """Move rows, a batch at a time, until there are none left. Returns how many."""
        statement = self.open().statements.move(rows, row)
        moved = 0
        while batch := self._run(statement, self.values() | {"n": BATCH} | dict(values or {})):
            moved += len(batch)
        return moved

    # time

    def _just_swept(self) -> bool:
        """Whether what fell due was moved a moment ago. Under a test's clock any time may have passed."""
        return self._clock is None and time.monotonic() - self._swept < SWEEP_AFTER

    def sweep(self) -> int:
        """Move what is due until nothing is. Returns how many moves that were."""
        moves = 0
        while moved := sum(self._sweep_batch(row) for row in self.machine.due):
            moves += moved
        self._swept = time.monotonic()
        return moves

    def _sweep_batch(self, row: Transition) -> int:
        statement = self.open().statements.move(Rows("due", row.source, column=row.due), row)
        moved = len(self._run(statement, self.values() | {"n": BATCH}))
        if moved:
            self.log.debug("%s: %d tasks %s-%s", row.event, moved, row.source, row.target)
        return moved

    @contextmanager
    def _telling_duplicates(self) -> Iterator[None]:
        """A move back into the states of the feature unique may meet another task with the same value."""
        try:
            yield
        except Exception as error:
            if self._unique and self.store.is_refusal(error):
                column = self.definition.table.roles[self._unique.role].column
                if column in str(error):
                    raise Duplicate(self.store.name, f"of {column}") from error
            raise


def _named(parts: Parts) -> dict[str, Any]:
    return {f"k{i}": part for i, part in enumerate(parts)}


def _single(parts: Parts) -> Any:
    """A key as the caller writes it."""
    return parts[0] if len(parts) == 1 else parts


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _batches(tasks: list[New]) -> Iterator[list[New]]:
    """Runs of tasks that one statement can put: they bring the same fields and the same seconds."""
    for _, alike in groupby(tasks, key=lambda new: (tuple(n for n, v in new.values.items() if v is not None), new.own)):
        yield from _chunks(list(alike), PUT_BATCH)
