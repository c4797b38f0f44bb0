"""What PostgreSQL and MariaDB share: many concurrent writers, and row locks."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from xq.adapters.databases.counters import Counters
from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.dirty_groups import DIRTY, Runs, ServerGroups
from xq.adapters.databases.groups import Groups
from xq.adapters.databases.objects import Object
from xq.adapters.databases.records import QUEUES
from xq.adapters.databases.session_connection import ALIVE, ServerNotifier, SessionConnection, SessionSql
from xq.core.acting import NO_ACTOR, By, actor_of
from xq.core.compile import Statement
from xq.core.errors import ConfigurationError
from xq.core.machine import Guard
from xq.core.ports import PART, UNANSWERED, Connection, Connections, Notifier, Row, Run, Values
from xq.sessions.liveness import Liveness
from xq.sessions.session import UUID_LENGTH

ROLL_UP = 10_000  # rows of counters that are merged at once


class Server(Dialect):
    """The dialect of a server: it locks rows, appends to counters, and ties sessions to a connection."""

    begin_writing = ""
    placeholder = "%s"
    lock = " FOR UPDATE"
    session_sql: ClassVar[SessionSql]  # what the session connection runs
    first_schema: ClassVar[str]  # SQL of the connection's schema, where xq has its records
    others: ClassVar[str]  # a query of the other schemas that have records of xq
    groups: ServerGroups | None
    from_there: ClassVar[str]  # advice how to use the records of another schema; the name follows

    sets_context: ClassVar[str]  # a true SQL condition that passes `:context` to the triggers of the statement

    @property
    def sets_context_first(self) -> str:
        return f"{self.sets_context} AND "

    def entered(self, state: str) -> str:
        word = super().entered(state)
        # The history needs the event, and so do the waiters for the end of a task.
        has_effect = self.has_history or state not in self.machine.pending
        return f"CASE WHEN {self.sets_context} THEN {word} END" if has_effect else word

    # putting

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        return f"VALUES {rows}", self.has_room(guard)

    turn = "version = version"  # what one put at a time writes to the row of the queue

    @property
    def in_turn(self) -> str:
        return f"UPDATE {QUEUES} SET {self.turn} WHERE name = {self.literal(self.source_name)}"

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        store.change(self.in_turn)

    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        run = self.run_alone(statement, width)
        if statement.admitted:
            run = self._admitted(run, statement, width)
        plain, is_acted = self._context(event, {}, NO_ACTOR), self.is_acted(event)

        def in_context(connection: Connection, values: dict[str, Any]) -> list[Row]:
            by = actor_of(connection) if is_acted else NO_ACTOR
            values["context"] = plain if values["now"] is None and not by else self._context(event, values, by)
            return run(connection, values)

        return in_context

    def run_alone(self, statement: Statement, width: int = 0) -> Run:
        """Return a function that runs a statement whose values have the event context."""
        return self.query(statement.sql, statement.names, width)

    def _admitted(self, run: Run, statement: Statement, width: int) -> Run:
        """Return `run`, restricted to a queue that has room. Puts run one at a time."""
        look = self.query(statement.admitted)
        parts = [self.filled(sql) for sql in (self.in_turn, statement.admitted)]
        parts.append(self.filled(statement.sql, statement.names, width))

        def admitting(connection: Connection, values: dict[str, Any]) -> list[Row]:
            within = connection.in_transaction
            if connection.begins and connection.pipelines:
                return connection.admitted(*((sql, values_of(values)) for sql, values_of in parts))

            def in_turn(connection: Connection, values: dict[str, Any]) -> list[Row]:
                self.one_at_a_time(connection, within)
                return run(connection, values) if look(connection, values) else []

            return connection.atomically(values, in_turn)

        return admitting

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        by = actor_of(store.ready()) if self.is_acted(event) else NO_ACTOR
        values = {**values, "context": self._context(event, values, by)}
        return super().change(store, statement, values)

    def _context(self, event: str, values: Values, by: By) -> str:
        """Return the event context: event, queue, actor, reason, and the time of a test's clock.

        The statement adds its own time.
        """
        now = values.get("now")
        time = "" if now is None else repr(float(now))
        return PART.join((event or "write", self.source_name, by.actor or "", by.reason or "", time, ""))

    # keys

    @property
    def lists_keys(self) -> bool:  # type: ignore[override]
        return all(field.kind in self.list_kinds for field in self.source.key)

    list_kinds: ClassVar[Mapping[str, str]]  # the type of a list's members, by the kind of the key

    # counters: triggers append rows, so that no transaction waits for another; the maintenance thread merges them

    @property
    def counters(self) -> str:
        return (
            f"SELECT tube, source, target, {self.whole('SUM(n)')} AS n, COUNT(*) "
            f"FROM {self.side('count')} GROUP BY tube, source, target"
        )

    def many_counters_of(self, queues: Sequence[Counters], many: int) -> str:
        return " UNION ALL ".join(
            f"SELECT {place} FROM (SELECT 1 AS one FROM {queue.side('count')} LIMIT 1 OFFSET {many}) AS counters"
            for place, queue in enumerate(queues)
        )

    def whole(self, number: str) -> str:
        return f"CAST({number} AS BIGINT)"

    @property
    def add_counter(self) -> str:
        return f"INSERT INTO {self.side('count')} (tube, source, target, n) VALUES (:tube, :source, :target, :count)"

    # installation

    @property
    def like_mine(self) -> str:
        """Returns the LIKE pattern, as SQL, of the names of this queue's objects."""
        escaped = re.sub("[|%_]", r"|\g<0>", self.name(""))  # | has no other meaning in SQL or re
        return f"{self.literal(escaped + '%')} ESCAPE '|'"

    tables_file: ClassVar[Path]  # the SQL that creates the side tables

    @abstractmethod
    def heads_values(self, utubes: Groups) -> dict[str, str]:
        """Return the values for the text of the table of group heads."""

    @abstractmethod
    def names_beside(self, suffix: str) -> dict[str, str]:
        """Return the types, or the names of indexes and constraints, that the text of a side table has."""

    def side_tables(self) -> list[Object]:
        wanted = {"count": True, "wait": True, "history": self.has_history}
        made = [self._side_table(suffix, suffix) for suffix, there in wanted.items() if there]
        if utubes := self.groups:
            values = {"most": str(utubes.most), **self.heads_values(utubes)}
            made += [self._side_table(utubes.suffix, "heads", **values), self._side_table(DIRTY, DIRTY, **values)]
        return made

    def _side_table(self, suffix: str, text: str, **values: str) -> Object:
        return self.made("table", suffix, *self._creating(suffix, text, **values))

    def _creating(self, suffix: str, text: str, **values: str) -> tuple[str, ...]:
        """Return the statements of a text that creates a side table."""
        known = {
            "engine": self.engine,
            "table": self.table_in_schema,
            "keys": ", ".join(self.keys),
            "parts": ", ".join(self._parts()),
            "keys_as_parts": ", ".join(f"{k} AS {part}" for k, part in zip(self.keys, self._parts(), strict=True)),
            "name": self.side(suffix),
            **self.names_beside(suffix),
        }
        return self.statements(self.tables_file, text, known | values)

    def not_online(self, store: Connections) -> str:
        # Its heads are counted by the triggers, and must not change until they are built.
        return "the heads of its utubes are built while no row changes: call install()" if self.groups else ""

    # sessions

    def adding(self, table: str) -> Sequence[str]:
        adding = ", ".join(f"ADD COLUMN {column}" for column in self.later[table])
        last = self.later[table][-1].partition(" ")[0]
        return [self.filled_in(self.tables_file, "later_columns", {"name": table, "adding": adding, "last": last})]

    def more_shared(self) -> dict[str, str]:
        # A row with an empty uuid registers a process that is notified of commits.
        uuid, waits = self.varying(UUID_LENGTH), "waits BOOLEAN NOT NULL DEFAULT FALSE"
        return {ALIVE: f"uuid {uuid} NOT NULL, process BIGINT NOT NULL, {waits}, PRIMARY KEY (uuid, process)"}

    def _session_connection(self, store: Connections) -> SessionConnection | None:
        database = store.database
        return None if database is None else SessionConnection.of(database, store, self.session_sql)

    def liveness(self, store: Connections) -> Liveness | None:
        return self._session_connection(store)

    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        if not uuids or self.only_reads(store):  # a standby does not have the locks of its server
            return []
        living = {uuid for (uuid,) in store.execute(self.session_sql.living)}
        return [uuid for uuid in uuids if uuid not in living]

    def notifier(self, store: Connections) -> Notifier | None:
        connection = self._session_connection(store)
        return None if connection is None else ServerNotifier(connection)

    def prepare(self, store: Connections) -> None:
        self.refuse(store)

    def refuse(self, store: Connections) -> None:
        if unfit := self.unfit(store):
            raise ConfigurationError(f"{store.name} cannot be installed: {unfit}")

    def _schemas(self, store: Connections) -> tuple[str, str]:
        """Return the schema of the table, and the schema of xq's records."""
        ((first,),) = store.execute(f"SELECT {self.first_schema}")
        return self.source.schema or first, first

    def installed_in(self, store: Connections) -> list[str]:
        """Return the schemas to lock while installing, sorted to avoid deadlocks."""
        return sorted(filter(None, set(self._schemas(store))))

    def only_reads(self, store: Connections) -> bool:
        ((found,),) = store.execute(f"SELECT {self.read_only}")
        return bool(found)

    def unfit(self, store: Connections) -> str | None:
        here, _ = self._schemas(store)
        for (other,) in store.execute(self.others):
            # A process whose first schema has the table records it without the schema.
            names = [f"{here}.{self.source.name}", *([self.source.name] if other == here else [])]
            listed, records = ", ".join(map(self.literal, names)), f"{self.quote(other)}.{QUEUES}"
            try:
                found = store.execute(f"SELECT name FROM {records} WHERE name IN ({listed})")
            except Exception as error:
                if store.classify(error) in UNANSWERED:
                    raise
                continue  # no right to read it; PostgreSQL's query omits those, since an error ends a transaction
            for (name,) in found:
                return (
                    f"{records} names its table as {name}, so other processes use it from there, and neither would "
                    f"see which of the others live: {self.from_there} {other} as they do, or, if none of them is "
                    f"left, DELETE FROM {records} WHERE name = {self.literal(name)}"
                )
        return None

    def connected(self, store: Connections, connection: Connection) -> None:
        pass

    # triggers

    @property
    @abstractmethod
    def event(self) -> str:
        """Returns SQL of the event of the statement; without an event context (another program) it is a write."""

    def refresh_groups(self, database: Runs, mine: bool) -> int:
        return self.groups.refresh(database, mine) if self.groups else 0
