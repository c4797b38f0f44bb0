"""The base of the dialects: the SQL of one queue, and how to run it."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xq.adapters.databases.groups import Groups
from xq.adapters.databases.inspections import Inspections
from xq.adapters.databases.installer.installation import Installation
from xq.adapters.databases.installer.installer import Installer
from xq.adapters.databases.looks import Looks
from xq.adapters.databases.named import by_position, in_order
from xq.adapters.databases.pipeline_tables import CheckpointTable, Jobs, RollupTable
from xq.adapters.databases.records import TEXTS, Records
from xq.adapters.databases.searches import Searches
from xq.adapters.databases.writes import Writes
from xq.core import dialect as interface
from xq.core.compile import Statement
from xq.core.generated import arguments
from xq.core.ports import Address, Connection, Connections, Row, Run, Store, Values
from xq.core.words import PLAIN, Wording

if TYPE_CHECKING:
    from xq.adapters.databases.scans import Scans
    from xq.pipeline.scan import Extract, What


InOrder = Callable[[Mapping[str, Any]], Sequence[Any]]

_savepoints = itertools.count(1)  # numbers of the noted savepoints of this process


class Dialect(Writes, Searches, Inspections, interface.Dialect):
    """The SQL for one queue in one database.

    Statuses are literals, never parameters: a planner that does not see the value cannot use a partial index. The
    values of a call are named parameters:

    any statement
        now                  the clock of a test, in seconds since 1970; NULL for the clock of the database
        context              the event context of a server's triggers: the event, the queue, and `now`
    selectors
        k0, k1 ...           the parts of a key; with the index of the row if there are several (k0_3)
        keys                 a list of keys, each with its token if the fence wants it, in JSON
        session, token       a fence: the session, which the token begins with; the whole token
        session_end          the end of the range of tokens that begin with `session`
        tube                 the tube of a take, of a counter, or of a pause
        skip0, skip1 ...     the paused tubes that a take skips
        unique0, unique1 ... values of the role unique
        n, many              the maximum number of rows; the number of locked rows
        since, until         microseconds since 1970 (the history)
        p0, p1 ...           the position of a row in the order of an index (the search)
        v0, v1 ...           the values of a filter
        look                 the maximum number of rows that the search examines
    new values
        f3, f3_0, f3_1 ...   the application's fields, by their index in the table; then the index of the row
        ttl, increment ...   the options of a call, in seconds, by their names
        own_ttl ...          the value of an option that a role stores; `forever` for never
        owner                the token of a take
        adding               the number of tasks that a put adds to a limited queue
    counters; records.sql and pipeline_tables.py name the values of their own texts
        source, target, count, event   a transition, its number, and its event
        savepoint            the number of a savepoint in which a change was noted

    Four names are not values: `filled` replaces them by SQL when the number of rows is known. `listed`, `takes` and
    `rows` become lists of values, and `chosen` a condition.
    """

    # the SQL of the other parts of a queue

    groups_kind: type[Groups]
    scans_kind: type[Scans]
    looks_kind: type[Looks]
    installer_kind: type[Installer]
    records_file: ClassVar[Path] = TEXTS  # the texts of records.sql that the database writes in its own way

    @cached_property
    def records(self) -> Records:
        return Records(self)

    @cached_property
    def groups(self) -> Groups | None:  # type: ignore[override]
        guard = self.machine.guard("utube")
        return self.groups_kind(self, guard) if guard else None

    @cached_property
    def looks(self) -> Looks:  # type: ignore[override]
        return self.looks_kind(self)

    @cached_property
    def installer(self) -> Installer:  # type: ignore[override]
        return self.installer_kind(self)

    @property
    def jobs(self) -> Jobs:
        return Jobs(self)

    @cached_property
    def checkpoints(self) -> CheckpointTable:
        return CheckpointTable(self)

    def rollup(self, table: str) -> RollupTable:
        """Return the SQL of an application's table that counts transitions."""
        return RollupTable(self, table)

    def extract(self, what: What, name: str, address: Address, states: str) -> Extract:
        """Return what another program needs to read the model `name` at `address`; of the tasks, those in `states`.

        Raises BadValue, ConfigurationError.
        """
        return self.scans_kind(self).of(what, name, address, states)

    def installation(
        self,
        store: Store[Any],
        structure: Mapping[str, Any],
        wording: Wording = PLAIN,
        values: Callable[[], Mapping[str, Any]] = lambda: {"now": None},
    ) -> Installation:
        """Return the installation of the queue in the database of a store. The arguments are those of its class."""
        return Installation(store, self, structure, wording, values)

    # running statements

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        """Return a function that runs SQL with named values; `brought` names the values in `rows`, as in `runner`."""
        text, values_of = self.filled(sql, brought, width)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return connection.execute(text, values_of(values))

        return run

    def filled(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> tuple[str, InOrder]:
        """Return SQL with the driver's placeholders, and a function that lists their values in this order."""
        text, names = by_position(sql, self.placeholder)
        return text, arguments(names, brought, width) if width else in_order(names)

    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]:
        """Run SQL with named values."""
        text, names = by_position(sql, self.placeholder)
        return store.execute(text, [values[name] for name in names])

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement without rows and return how many it changed. `event` is for the triggers."""
        text, values_of = self.filled(statement.sql)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return [(connection.change(text, values_of(values)),)]

        ((changed,),) = self.in_context(run, event)(store.ready(), {**values})
        return int(changed)

    @abstractmethod
    def in_context(self, run: Run, event: str) -> Run:
        """Return `run` with the event context of this event."""

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        """Lock the queue until the transaction ends: callers of this method run one at a time.

        The caller sees what the previous one has committed. If the application's transaction (`within`) has an older
        snapshot, this raises a conflict.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    found_tables = ""  # a query whose result differs if other tables are found by the names of the queue's

    # what was committed

    # Creates a temporary table of savepoint numbers, if the database needs one. A rollback removes the number that was
    # noted in it, so a number that is still there was committed.
    savepoints: str
    savepoint_noted: ClassVar[str] = "INSERT INTO xq_savepoint (number) VALUES (:savepoint) RETURNING number"
    savepoint_kept: ClassVar[str] = "DELETE FROM xq_savepoint WHERE number = :savepoint RETURNING number"

    def note_savepoint(self, store: Connections) -> int:
        """Note the innermost savepoint, or the transaction, and return its number for `was_committed`."""
        ((number,),) = self._of_savepoints(store, self.savepoint_noted, next(_savepoints))
        return int(number)

    def was_committed(self, store: Connections, savepoint: int) -> bool:
        """Return whether a noted savepoint was committed. Call it after the end of the transaction."""
        return bool(self._of_savepoints(store, self.savepoint_kept, savepoint))

    def _of_savepoints(self, store: Connections, sql: str, savepoint: int) -> list[Row]:
        if self.savepoints:
            store.execute(self.savepoints)  # each time: rolling back the savepoint that created the table removes it
        return self.execute(store, sql, {"savepoint": savepoint})

    # Whether the database has one writer at a time.
    is_local: ClassVar[bool] = False

    def file(self, store: Connections) -> str | None:
        """Return the file that the database is; None if it is in memory or on a server."""
        return None

    @cached_property
    def has_dirty_groups(self) -> bool:
        """Whether groups may be dirty, so that a take must refresh them to find all tasks."""
        return self.groups is not None and bool(self.groups.any_dirty)

    @cached_property
    def may_pass_by(self) -> bool:
        """Whether a take may skip a ready task because another statement has locked its row or its group."""
        return self.has_dirty_groups

    def connected(self, store: Connections, connection: Connection) -> None:
        """Do nothing: a server knows all that a connection needs."""
