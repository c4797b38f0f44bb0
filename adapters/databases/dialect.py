"""What every database offers: the SQL of one queue, and how it is run."""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from xq.adapters.databases.changes import Changes
from xq.adapters.databases.checkpoints import Checkpoints, RollupTable
from xq.adapters.databases.dirty_groups import RunUnit
from xq.adapters.databases.groups import Groups
from xq.adapters.databases.named import by_position, picked
from xq.adapters.databases.objects import Objects
from xq.adapters.databases.records import Records
from xq.adapters.databases.staging import Staging
from xq.adapters.databases.timers import Timers
from xq.adapters.databases.waits import Waits
from xq.core.compile import Statement
from xq.core.errors import ConfigurationError
from xq.core.generated import arguments
from xq.core.machine import TAKEN, Guard
from xq.core.ports import Address, Connection, Connections, Notifier, Row, Values
from xq.sessions.liveness import Liveness

if TYPE_CHECKING:
    from xq.adapters.databases.exports import Exports
    from xq.adapters.databases.scans import Scans
    from xq.pipeline.scan import Extract, What


STALE = {  # the ends of names that a configuration of a queue may have, and another not
    "table": re.compile("owner|wait|history|utube_news|utube_[0-9]+|stage_[0-9a-f]{8}"),
    "index": re.compile("taken|runat|deadline|unique|utube|oldest_.(_of_tube)?"),
    "trigger": re.compile("insert|update|delete|truncate"),
}

Run = Callable[[Connection, dict[str, Any]], list[Row]]
Pick = Callable[[Mapping[str, Any]], Sequence[Any]]

_savepoints = itertools.count(1)  # in which something was changed, in this process


class Dialect(Changes, Timers, Waits, Records, Objects):
    """The SQL for one queue in one database.

    Statuses are literals in it, never parameters: a planner that does not see the value cannot use a partial index.
    All that comes with a call is a named value:

    any statement
        now                  the clock of a test, in seconds since 1970; NULL for that of the database
        told                 what a server's triggers are told: the event, of which queue, and `now`
    which rows
        k0, k1 ...           the parts of a key; of several rows with the place of the row (k0_3)
        keys                 the keys of a list, in JSON
        session, mark        a fence: how the owner begins, which is the session; the whole owner, which is one take
        session_end          the end of a range of owners that `session` begins
        tube                 the tube of a take, or of a counter
        unique               a value of the role unique
        n, many              how many rows, at most; so many as were locked
        since, until         microseconds since 1970 (the history)
    what is written
        f3, f3_0, f3_1 ...   the application's fields, by their place in the table; of several rows with that of the row
        ttl, increment ...   the options of a call, in seconds, by their names
        own_ttl ...          what is remembered of them in a role, `forever` for never
        owner                the mark of a take
        adding               how many tasks a put adds, where their number is limited
    the records of xq
        uuid, queue, lease   a session, the queue in which it may hold tasks, and for how many seconds it goes on
        waiter               who waits for the end of a task
        source, target, count, event   a transition, how often it was seen, and what it was of
        name, value          a setting
        savepoint            one in which something was changed
        sink, stream, batch  the number of the batch of a stream that was written there last
        unit, bucket         a span of time, and the second at which one begins

    Three names are none of values: `filled` puts SQL in their places, when it is known of how many rows a statement is.
    `listed` and `rows` become values beside one another, and `chosen` a condition.
    """

    # what a queue has beside these statements

    groups_kind: type[Groups]
    exports_kind: type[Exports]
    scans_kind: type[Scans]

    @cached_property
    def groups(self) -> Groups | None:
        """What the feature utube needs."""
        guard = self.machine.guard("utube")
        return self.groups_kind(self, guard) if guard else None

    @cached_property
    def exports(self) -> Exports:
        """What leaves the table for an archive, and what comes back."""
        return self.exports_kind(self)

    @property
    def staging(self) -> Staging:
        """What bulk puts need."""
        return Staging(self)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Which batches of streams were written into this database."""
        return Checkpoints(self)

    def rollup(self, table: str) -> RollupTable:
        """A table of the application's that counts transitions."""
        return RollupTable(self, table)

    def extract(self, what: What, name: str, address: Address, snapshot: str) -> Extract:
        """What another program reads of a model of this name, at this address. Raises BadValue, ConfigurationError."""
        return self.scans_kind(self).of(what, name, address, snapshot)

    # running statements

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        """Return what runs SQL with named values; `brought` names those that stand in `rows`, as in `runner`."""
        text, pick = self.filled(sql, brought, width)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return connection.execute(text, pick(values))

        return run

    def filled(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> tuple[str, Pick]:
        """Return SQL with the driver's marks, and what picks their values, of `query`."""
        text, names = by_position(sql, self.mark)
        return text, arguments(names, brought, width) if width else picked(names)

    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]:
        """Run SQL with named values."""
        text, names = by_position(sql, self.mark)
        return store.execute(text, [values[name] for name in names])

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement that returns no rows, and tell how many it changed. The triggers are told the event."""
        sql, names = by_position(statement.sql, self.mark)
        return store.change(sql, [values[name] for name in names])

    @abstractmethod
    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        """Return what runs a statement with all its parts on a connection. The triggers are told the event.

        One that puts tasks brings `width` values of each: those stand in `rows`, a tuple for each, not by their names.
        """

    def loading(self, table: str, columns: Sequence[str]) -> str:
        """What the driver loads many rows by."""
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([self.mark] * len(columns))})"

    told_once = ""  # what is true, and has the triggers of a statement that writes many rows know its event

    def in_a_script(self, sql: str) -> str:
        """A statement as it stands in a text with others, each of which ends with a ; and its line."""
        return sql

    @abstractmethod
    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        """Whether the words of a refusal tell of a value that a guard keeps unique."""

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        """Have those who do this in one queue wait for each other, and see what each has done.

        `within` the application's transaction it fails as a conflict where that has looked before another did this.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    # what was committed

    commits = ""  # a query that returns something else as soon as another connection has committed a write; "" for none
    # What makes a table of the connection with numbers, which are rolled back with all else, where one is needed; a
    # query for the number of what is open now, innermost; and one for a row where that was committed.
    savepoints: str
    savepoint_noted: ClassVar[str] = "INSERT INTO xq_savepoint (number) VALUES (:savepoint) RETURNING number"
    savepoint_kept: ClassVar[str] = "DELETE FROM xq_savepoint WHERE number = :savepoint RETURNING number"

    def note_savepoint(self, store: Connections) -> int:
        """The number of the innermost savepoint, or of the transaction, within which something was just changed."""
        ((number,),) = self._of_savepoints(store, self.savepoint_noted, next(_savepoints))
        return int(number)

    def was_committed(self, store: Connections, savepoint: int) -> bool:
        """Whether what was changed within it was, after the end of the transaction."""
        return bool(self._of_savepoints(store, self.savepoint_kept, savepoint))

    def _of_savepoints(self, store: Connections, sql: str, savepoint: int) -> list[Row]:
        if self.savepoints:
            store.execute(self.savepoints)  # each time: the table itself goes with the savepoint that made it
        return self.execute(store, sql, {"savepoint": savepoint})

    # who lives, and who writes

    @abstractmethod
    def liveness(self, store: Connections) -> Liveness | None:
        """What proves to other processes that a session lives; None where none can see the database."""

    @abstractmethod
    def notifier(self, store: Connections) -> Notifier | None:
        """What tells that another process may have written; None where none can."""

    # upkeep

    @cached_property
    def has_dirty_groups(self) -> bool:
        """Whether groups may be dirty, so that a take must refresh them to find all tasks."""
        return self.groups is not None and bool(self.groups.any_dirty)

    def refresh_groups(self, store: Connections, unit: RunUnit, transaction: RunUnit, mine: bool) -> int:
        """Refresh the dirty groups, so that takes find their first tasks: `ServerGroups.refresh`."""
        return 0

    def roll_up(self, store: Connections) -> bool:
        """Add up some of what was appended to the counters, where they are. Returns whether there may be more."""
        return False

    def trouble(self, store: Connections) -> str | None:
        """What somebody else does that makes the calls of this queue slower and slower, in words."""
        return None

    def tuned(self, store: Connections) -> list[str]:
        """SQL that has the database keep up with a table whose rows change all the time."""
        return []

    def unlogged(self, store: Connections) -> list[str]:
        """SQL that has a crash of the server take the tasks away, with all that belongs to them: writing is faster."""
        return []

    def untuned(self, store: Connections) -> list[str]:
        """SQL that takes away what `tuned` set and nobody has changed since, from what stays without the queue."""
        return []

    # installing

    @abstractmethod
    def connected(self, store: Connections, connection: Connection) -> None:
        """Set a new connection of a store up."""

    @abstractmethod
    def prepare(self, store: Connections) -> None:
        """Set the database up for queues, where that cannot be done within a transaction, or refuse what is unfit."""

    def refuse(self, store: Connections) -> None:
        """Raise a ConfigurationError where nothing may be installed; `prepare` does, and it is asked again later."""
        return

    @abstractmethod
    def unfit(self, store: Connections) -> str | None:
        """What about the database or the table is not as `prepare` leaves it or wants it, in words."""

    @abstractmethod
    def only_reads(self, store: Connections) -> bool:
        """Whether the database says that it may not be written on this connection, whoever may do so all the same."""

    def grants(self, store: Connections, user: str, role: str) -> list[str]:
        """SQL that gives a user of the database the rights that a role needs. Raises BadValue, ConfigurationError."""
        raise ConfigurationError("SQLite has no users: the system's rights to the file say who may read and write it")

    def may_move(self, store: Connections) -> bool:
        """Whether this user of the database may move tasks."""
        return True

    @abstractmethod
    def existing(self, store: Connections) -> dict[str, str]:
        """The objects in the schema of the queue, and those that queues share: name -> kind."""

    @abstractmethod
    def table_columns(self, store: Connections) -> set[str]:
        """The columns of the application's table that the model has as well; none when there is no table."""

    @abstractmethod
    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        """The columns of a table in the schema of the queue, and which of them the database makes of others."""

    @contextmanager
    def creating(self, store: Connections) -> Iterator[None]:
        """Create the table, with what the application has on it, and nobody else what would be called the same."""
        yield

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        """Change what is installed, as one transaction where the database can, and nobody else meanwhile."""
        with store.atomic():
            yield

    @contextmanager
    def closing(self, store: Connections) -> Iterator[int]:
        """Before the table is dropped: wait for who moves tasks, and have nobody do so until it is, or this is over.

        How many tasks are taken. Where that is none, and a database cannot keep others away for longer, the table is
        gone within.
        """
        with self.installing(store):
            yield self.taken_at_last(store)

    def taken_at_last(self, store: Connections) -> int:
        """How many tasks are taken, when nobody can take another before the transaction ends."""
        self.one_at_a_time(store, within=True)
        return self.taken_now(store)

    def taken_now(self, store: Connections) -> int:
        ((taken,),) = store.execute(f"SELECT COUNT(*) FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return int(taken)

    def stale(self, existing: Mapping[str, str]) -> list[str]:
        """SQL that drops what an earlier configuration of this queue installed and this one does not have."""
        wanted = {item.name for item in [*self.objects(), *self.staging.tables]}
        prefix = self.name("")
        return [
            self.drop(kind, name)
            for name, kind in existing.items()
            if name not in wanted and name.startswith(prefix) and kind in STALE
            if STALE[kind].fullmatch(name[len(prefix) :])
        ]
