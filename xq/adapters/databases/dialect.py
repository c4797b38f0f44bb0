"""The base of the dialects: the SQL of one queue, and how to run it."""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from xq.adapters.databases.dirty_groups import Runs
from xq.adapters.databases.due_times import DueTimes
from xq.adapters.databases.groups import Groups
from xq.adapters.databases.inspections import Inspections
from xq.adapters.databases.jobs import Jobs
from xq.adapters.databases.named import by_position, filled, in_order
from xq.adapters.databases.records import Records
from xq.adapters.databases.rollup_table import CheckpointTable, RollupTable
from xq.adapters.databases.searches import Searches
from xq.adapters.databases.waits import Waits
from xq.adapters.databases.writes import Writes
from xq.core.compile import Selector, Statement
from xq.core.generated import arguments
from xq.core.machine import TAKEN, Guard
from xq.core.ports import Address, Connection, Connections, Notifier, Row, Run, Values
from xq.core.schema import OWN
from xq.sessions.liveness import Liveness

if TYPE_CHECKING:
    from xq.adapters.databases.scans import Scans
    from xq.pipeline.scan import Extract, What


STALE = {  # suffixes of the objects that depend on the configuration of a queue
    "table": re.compile("owner|wait|history|utube_news|dirty_groups|utube_[0-9]+(_key)?|job|stage_[0-9a-f]{8}"),
    "index": re.compile("taken|runat|deadline|unique|utube|oldest_.(_of_tube)?"),
    "trigger": re.compile("insert|update|update_task|update_utube|delete|truncate|add_up|noted|pruned"),
}

InOrder = Callable[[Mapping[str, Any]], Sequence[Any]]

_savepoints = itertools.count(1)  # numbers of the noted savepoints of this process


# What databases write in other ways, or leave out, when they show their SQL.
NOISE = re.compile(r"IF NOT EXISTS|CAST\(|AS text\)|ANY|ARRAY|\bIN\b|=(?= ANY)|[^\w<>=]")


def bare(sql: str) -> str:
    """Return the words of SQL, without quotes, parentheses and types."""
    return NOISE.sub("", sql)


class Dialect(Writes, DueTimes, Waits, Records, Searches, Inspections):
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
    the records of xq
        uuid, queue, lease   a session, a queue in which it may own tasks, and seconds until it expires
        host, pid, program   the process that registers the session
        waiter               a caller that waits for the end of a task
        source, target, count, event   a transition, its number, and its event
        name, value          a setting
        whole                1 for a pause of the whole queue, 0 for that of a tube
        name, spec, task, next_us   a schedule: when it fires, what it puts, and the time of its next firing
        savepoint            the number of a savepoint in which a change was noted
        sink, stream, batch  the checkpoint of a sink: the last batch of a stream
        slot, most           the number of a slot of xq.Concurrency, and of the last one
        unit, bucket         a span of time, and the second at which it begins

    Four names are not values: `filled` replaces them by SQL when the number of rows is known. `listed`, `takes` and
    `rows` become lists of values, and `chosen` a condition.
    """

    # the SQL of the other parts of a queue

    groups_kind: type[Groups]
    scans_kind: type[Scans]

    @cached_property
    def groups(self) -> Groups | None:  # type: ignore[override]
        guard = self.machine.guard("utube")
        return self.groups_kind(self, guard) if guard else None

    @property
    def jobs(self) -> Jobs:
        """Returns the SQL of bulk puts."""
        return Jobs(self)

    @cached_property
    def checkpoints(self) -> CheckpointTable:
        """Returns the SQL of the checkpoints of streams in this database."""
        return CheckpointTable(self)

    def rollup(self, table: str) -> RollupTable:
        """Return the SQL of an application's table that counts transitions."""
        return RollupTable(self, table)

    def extract(self, what: What, name: str, address: Address, states: str) -> Extract:
        """Return what another program needs to read the model `name` at `address`; of the tasks, those in `states`.

        Raises BadValue, ConfigurationError.
        """
        return self.scans_kind(self).of(what, name, address, states)

    def after(self, checkpoint: Sequence[int]) -> str:
        order = self.scans_kind.order
        if not checkpoint:
            return "1 = 1"
        if len(order) == 1:
            return f"{order[0]} > {checkpoint[0]}"
        # The first comparison is for the index.
        row, place = ", ".join(order), ", ".join(map(str, checkpoint[: len(order)]))
        return f"{order[0]} >= {checkpoint[0]} AND ({row}) > ({place})"

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
        sql, names = by_position(statement.sql, self.placeholder)
        return store.change(sql, [values[name] for name in names])

    @abstractmethod
    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        """Return a function that runs all parts of a statement on a connection. `event` is for the triggers.

        A put has `width` values for each task. They are in the value `rows`, one tuple per task, not under their names.
        """

    def in_a_script(self, sql: str) -> str:
        """Return a statement as part of a script, in which each statement ends with a ; at the end of a line."""
        return filled(sql, now="NULL")

    @property
    @abstractmethod
    def definitions(self) -> str:
        """Returns a query of (name, a part of the SQL that creates it) of the indexes and triggers of the table."""

    def drifted(self, store: Connections) -> dict[str, str]:
        """Return the indexes and triggers that are not as installing creates them, and SQL that creates them so."""
        there = {name: bare(sql) for name, sql in store.execute(self.definitions)}
        found = {}
        for item in (*self.indexes(), *self.triggers()):
            here, alike = there.get(item.name, ""), str.endswith if item.kind == "index" else str.__contains__
            if not any(alike(bare(sql), here) for sql in item.create):
                script = map(self.in_a_script, (item.drop, *item.create))
                found[f"{item.kind} {item.name}"] = ";\n".join([*script, ""])
        return found

    @abstractmethod
    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        """Return whether the message of a database error names the unique index of a guard."""

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        """Lock the queue until the transaction ends: callers of this method run one at a time.

        The caller sees what the previous one has committed. If the application's transaction (`within`) has an older
        snapshot, this raises a conflict.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    found_tables = ""  # a query whose result differs if other tables are found by the names of the queue's

    # what was committed

    commits = ""  # a query whose result changes with each commit of another connection; "" if there is none
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

    # liveness and notifications

    @abstractmethod
    def liveness(self, store: Connections) -> Liveness | None:
        """Return the liveness locks of sessions; None if no other process can reach the database."""

    @abstractmethod
    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose process has ended. It ends none, and returns none if it cannot tell."""

    @abstractmethod
    def notifier(self, store: Connections) -> Notifier | None:
        """Return the notifier of commits of other processes; None if no other process can write."""

    # upkeep

    @cached_property
    def has_dirty_groups(self) -> bool:
        """Whether groups may be dirty, so that a take must refresh them to find all tasks."""
        return self.groups is not None and bool(self.groups.any_dirty)

    @cached_property
    def may_pass_by(self) -> bool:
        """Whether a take may skip a ready task because another statement has locked its row or its group."""
        return self.has_dirty_groups

    def ready(self, rows: Selector) -> str:
        """Return a query, without locks, that finds a row if there is one of these tasks, or a dirty group."""
        return self.groups.ready(rows) if self.groups else super().select("1", rows)  # that of MariaDB locks

    def behind_due(self, rows: Selector) -> str:
        """Return a query that finds a row if such a task, of an open group, may be behind due ones; else ""."""
        return self.groups.behind_due(rows) if self.groups else ""

    def refresh_groups(self, database: Runs, mine: bool) -> int:
        """Refresh the dirty groups, as `ServerGroups.refresh`. Returns how many rows were refreshed."""
        return 0

    def roll_up(self, store: Connections) -> bool:
        """Merge some of the appended rows of the counters. Returns whether there may be more."""
        return False

    def add_up_history(self, store: Connections) -> None:
        """Add to the counters the transitions that only rows of the history count, if there is an installation."""

    # installing

    @abstractmethod
    def connected(self, store: Connections, connection: Connection) -> None:
        """Set up a new connection of a store."""

    @abstractmethod
    def prepare(self, store: Connections) -> None:
        """Set up the database for queues, as far as a transaction cannot do that.

        Raises ConfigurationError if it is unfit.
        """

    def refuse(self, store: Connections) -> None:
        """Raise ConfigurationError if nothing may be installed. `prepare` calls it, and later calls repeat it."""

    @abstractmethod
    def unfit(self, store: Connections) -> str | None:
        """Return a message if the database or the table is not as `prepare` requires or leaves it, else None."""

    @abstractmethod
    def only_reads(self, store: Connections) -> bool:
        """Return whether the database reports this connection as read-only. Some users may write all the same."""

    def may_move(self, store: Connections) -> bool:
        """Return whether the database user of this connection may move tasks."""
        return True

    @abstractmethod
    def existing(self, store: Connections) -> dict[str, str]:
        """Return the kinds, by name, of the objects in the schema of the queue and of those that queues share."""

    def table_columns(self, store: Connections) -> set[str]:
        """Return the columns that the application's table and the model have in common; none without a table."""
        present = {name.lower() for name in self.columns_of(store, self.source.name)}
        return {field.column for field in self.source.fields if field.column.lower() in present}

    @abstractmethod
    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        """Return the columns of a table in the schema of the queue, and whether the database computes each of them."""

    @contextmanager
    def creating(self, store: Connections) -> Iterator[None]:
        """Create the application's table in this block; other connections cannot create objects of that name."""
        yield

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        """Change the installed objects in this block, one process at a time; in one transaction if the database can."""
        with store.atomic():
            yield

    # installing beside writers, which SQLite has not: one writer at a time

    transactional_ddl: ClassVar[bool] = True  # whether a transaction may change tables
    locks: ClassVar[Mapping[str, tuple[str, str]]]  # by kind of step, what it locks: without and with online
    online_scans: ClassVar[int] = 1  # how often an index that is built online reads the table
    in_the_way = ""  # a query of (who, seconds) of the open transactions of others that a change of the table waits for

    def not_online(self, store: Connections) -> str:
        """Return why this queue cannot be installed beside writers, or ""."""
        return ""

    @contextmanager
    def admitted(self, store: Connections) -> Iterator[bool]:
        """Yield whether no other process installs this table beside writers, nor can in this block."""
        yield True

    @property
    def estimate(self) -> str:
        """Returns a query of about how many rows the table has."""
        return f"SELECT COUNT(*) FROM {self.table_in_schema}"

    def online(self, sql: str) -> str:
        """Return SQL of an index or a column that blocks writers for a moment only."""
        return sql

    @contextmanager
    def briefly(self, store: Connections, seconds: float, kind: str) -> Iterator[None]:
        """Run a step of this kind, whose locks wait for so many seconds at most."""
        with self.installing(store):
            yield

    @contextmanager
    def closing(self, store: Connections) -> Iterator[int]:
        """Keep other connections from moving tasks while the table is dropped. Yields how many tasks are taken.

        Waits for the transactions that move tasks. If no task is taken and the database cannot lock the table for
        longer, this drops it before it yields.
        """
        with self.installing(store):
            yield self.taken_at_last(store)

    def taken_at_last(self, store: Connections) -> int:
        """Return how many tasks are taken, and block further takes until the transaction ends."""
        self.one_at_a_time(store, within=True)
        return self.taken_now(store)

    def taken_now(self, store: Connections) -> int:
        ((taken,),) = store.execute(f"SELECT COUNT(*) FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return int(taken)

    def add_own(self, store: Connections) -> list[str]:
        """Return SQL that adds xq's own columns to the table."""
        return [f"ALTER TABLE {self.table_in_schema} ADD COLUMN IF NOT EXISTS {column}" for column in self.own.values()]

    def drop_own(self, store: Connections) -> list[str]:
        """Return SQL that drops these columns, as far as they are there."""
        there = map(self.quote, self.own.keys() & self.table_columns(store))
        return [f"ALTER TABLE {self.table_in_schema} DROP COLUMN {column}" for column in there]

    @property
    def own(self) -> dict[str, str]:
        """Returns the definitions of the columns that xq brings, by name."""
        types = {"text": self.long_text, "double": self.double, "integer": "INTEGER"}
        own = {field.column: OWN[role] for role, field in self.source.own.items()}
        return {
            column: f"{self.quote(column)} {types[kind] if length is None else self.varying(length)}"
            for column, (kind, length) in own.items()
        }

    def widening(self, store: Connections) -> list[str]:
        """Return SQL that adds the columns which the tables of an earlier layout lack.

        Only SQLite needs it: it has no ADD COLUMN IF NOT EXISTS, which the texts of the other databases use.
        """
        return []

    def broken(self, store: Connections) -> dict[str, str]:
        """Return the kinds, by name, of what an interrupted installation has left, which `existing` leaves out."""
        return {}

    def stale(self, store: Connections) -> list[str]:
        """Return SQL that drops the objects of an earlier configuration of this queue that this one does not have."""
        wanted = {item.name for item in [*self.objects(), self.jobs.table]}
        prefix = self.name("")
        return [
            self.drop(kind, name)
            for name, kind in {**self.existing(store), **self.broken(store)}.items()
            if name not in wanted and name.startswith(prefix) and kind in STALE
            if STALE[kind].fullmatch(name[len(prefix) :])
        ]
