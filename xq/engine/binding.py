"""A queue's definition, compiled for its model's current database."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

from xq.core.compile import Selector, Statement, change
from xq.core.connections import Connection, Store
from xq.core.kinds import Row, Table
from xq.core.machine import PLUS_ONE, Machine, Transition
from xq.core.options import Catalogue
from xq.core.words import Wording
from xq.database.database import Database
from xq.database.sessions import Sessions
from xq.sql.dialect import Dialect
from xq.sql.installer.installation import Installation

KEPT = 2_000  # cached compiled statements of one queue: a put has one for each number of tasks
KEPT_VALUES = 50_000  # values that all these puts send; each takes some 350 bytes of memory


@dataclass(frozen=True)
class Definition:
    """The arguments of `upgrade`, checked and compiled."""

    machine: Machine
    table: Table
    words: Mapping[str, str | int]  # letter -> value of the status field
    wording: Wording  # of messages
    tube_stats: tuple[str, ...]
    structure: Mapping[str, Any]  # must be equal in every process
    features: Mapping[str, Any]  # as given to `upgrade`
    catalogue: Callable[[], Catalogue]
    dialects: Mapping[str, type[Dialect]]
    schedules: object  # as given to `upgrade`

    @property
    def arguments(self) -> dict[str, Any]:
        """What `upgrade` needs to make this queue, without features that are off, and statuses that are letters."""
        return {
            "fields": {role: field.name for role, field in self.table.roles.items()},
            "features": {name: on for name, on in self.features.items() if on is not None and on is not False},
            "statuses": dict(self.words) if self.structure["statuses"] else {},
            "tube_stats": list(self.tube_stats),
        }

    def state_of(self, status: object) -> str | None:
        """Return the letter that a stored status stands for; None if this queue has no such status."""
        return next((letter for letter, word in self.words.items() if word == status), None)


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """One compiled statement: a transition of the selected tasks, a put, or a text of the dialect."""

    statement: Statement
    run: Callable[[Connection, dict[str, Any]], list[Row]]
    event: str = ""  # for observers; "" to notify none
    source: str = ""  # "" if the tasks leave several states: then each row holds its own
    target: str = ""
    may_be_refused: bool = False  # the values of the call may break a constraint


# The event, the rows that it moves, the state that they enter, and the names of the options and of the written fields.
# The rows are a Selector or, where a call looks up its statement, something that is made faster.
CompiledName = tuple[str, Hashable, str, tuple[str, ...], tuple[str, ...]]


class CompiledCache(dict[CompiledName | str, Compiled]):
    """The compiled statements of a binding, by their names; that of a text of the dialect by the text."""

    size = 0  # the values that their statements put: memory grows with these
    note = ""  # a comment at the end of each statement that moves tasks

    def renew(self, note: str) -> None:
        """Let the database plan all moves anew: forget the statements, and have other texts."""
        self.note, self.size = note, 0
        self.clear()

    def keep(self, name: CompiledName | str, compiled: Compiled, values: int = 0) -> Compiled:
        """Keep a compiled statement that puts so many values, and return it. If that is too much, forget all others."""
        self.size += values
        if len(self) >= KEPT or self.size > KEPT_VALUES:
            self.clear()
            self.size = values
        self[name] = compiled
        return compiled


@dataclass(frozen=True, eq=False)
class Binding:
    """A definition, compiled for one database."""

    database: ref[Any]
    dialect: Dialect
    installation: Installation
    sessions: Sessions  # of this process with that database
    may_fail_to_read: bool  # whether a row may hold what the application's fields cannot read
    connected: Callable[[Connection], bool]  # as that of `Connections`
    compiled: CompiledCache = field(default_factory=CompiledCache)  # compiled at first use

    def move(
        self, rows: Selector, row: Transition, given: frozenset[str] = frozenset(), update: tuple[str, ...] = ()
    ) -> Statement:
        """Compile the statement that moves the selected rows as `row` of the transition table says."""
        made, fields = change(self.dialect.machine, row, given, update), self.dialect.source.roles
        if "version" in fields and set(update).difference(field.name for field in fields.values()):
            made = replace(made, roles={**made.roles, "version": PLUS_ONE})
        moved = self.dialect.moves.move(rows, made)
        return replace(moved, sql=moved.sql + self.compiled.note) if self.compiled.note else moved

    def insert(self, row: Transition, given: frozenset[str], names: tuple[str, ...], count: int = 1) -> Statement:
        """Compile the statement that puts `count` tasks with values for the fields `names`."""
        return self.dialect.moves.insert(change(self.dialect.machine, row, given), names, count)

    def text(self, sql: str) -> Compiled:
        """Return the compiled text of the dialect."""
        if (compiled := self.compiled.get(sql)) is None:
            run = self.dialect.query(sql)
            compiled = self.compiled.keep(sql, Compiled(Statement(sql), run))
        return compiled

    def changes(self, store: Store[Any], statement: Statement, event: str = "") -> Compiled:
        """Compile a statement without rows: it returns one row, the number of rows that it changed."""

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return [(self.dialect.change(store, statement, values, event),)]

        return Compiled(statement, run)


def bound_to(
    store: Store[Any], database: Database, definition: Definition, values: Callable[[], dict[str, Any]]
) -> Binding:
    """Compile the definition for the store's current database."""
    kind = definition.dialects[database.known_product]
    dialect = kind(definition.table, definition.machine, definition.words, definition.tube_stats)
    here = ref(database)

    def connected(connection: Connection) -> bool:
        """Set a new connection up. Return False, and do nothing, if the model has another database by now."""
        if store.database is not here():
            return False
        dialect.connected(store, connection)
        return True

    return Binding(
        here,
        dialect,
        Installation(store, dialect, definition.structure, definition.wording, values),
        database.sessions,
        store.may_fail_to_read,
        connected,
    )
