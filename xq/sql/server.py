"""What PostgreSQL and MariaDB share: many concurrent writers, and row locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from xq.core.acting import BLOCKS, NO_ACTOR, PART, By, actor_of
from xq.core.compile import Statement
from xq.core.connections import Connection, Connections, Notifier, Run, ServerDriver
from xq.core.kinds import Row, Values
from xq.core.machine import GUARDED, Guard
from xq.sql.dialect import Dialect
from xq.sql.language import Form, Language
from xq.sql.moves import TaskMoves
from xq.sql.server_notifier import ServerNotifier
from xq.sql.session_connection import SessionConnection, SessionSql
from xq.sql.shared import LEASES, QUEUES


class ServerLanguage(Language):
    """A server's language. It ties a process's sessions to a connection."""

    is_local = False
    placeholder = "%s"
    lock = " FOR UPDATE"
    skip = f"{lock} SKIP LOCKED"
    whole = Form("CAST({} AS BIGINT)")
    session_sql: ClassVar[SessionSql]  # what the session connection runs

    def to_lock(self, store: Connections, schema: str) -> list[str]:
        """Return the first schema and this one, sorted to avoid deadlocks."""
        ((first,),) = store.execute(f"SELECT {self.first_schema}")
        return sorted(filter(None, {first, schema}))

    def wait_briefly(self, store: Connections, connection: Any) -> None:
        ((number,),) = store.execute(self.session_sql.number)
        driver = cast(ServerDriver, store.driver)
        if number == driver.number(connection):
            store.execute(self.session_sql.briefly)
        elif self.briefly:  # a pooler lends it to others, too
            driver.brief[connection] = f"SELECT 1 WHERE TRUE{self.briefly}"

    def liveness(self, store: Connections) -> SessionConnection:
        return SessionConnection(store.connector(), self.session_sql)

    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        if not uuids or self.only_reads(store):  # a standby does not have the locks of its server
            return []
        living = {uuid for (uuid,) in store.execute(self.session_sql.living)}
        return [uuid for uuid in uuids if uuid not in living]

    def notifier(self, store: Connections, liveness: Any) -> Notifier | None:
        return None if liveness is None else ServerNotifier(liveness)

    def only_reads(self, store: Connections) -> bool:
        ((found,),) = store.execute(f"SELECT {self.read_only}")
        return bool(found)


class Server(ServerLanguage, Dialect):
    """A server's dialect: it locks rows, appends to counters, and ties sessions to a connection."""

    turn = "version = version"  # what one put at a time writes to the queue's row

    token_text: ClassVar[Form]  # the role owner, compared with the tokens in xq's own tables

    @property
    def not_held(self) -> str:  # type: ignore[override]
        owner = self.token_text(self.roles["owner"])
        return f" AND COALESCE({owner}, '') NOT IN (SELECT token FROM {LEASES} WHERE ends > {self.now})"

    @property
    def in_turn(self) -> str:
        return f"UPDATE {QUEUES} SET {self.turn} WHERE name = {self.literal(self.source_name)}"

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        store.change(self.in_turn)

    def in_context(self, run: Run, event: str) -> Run:
        plain, is_acted = self._context(event, {}, NO_ACTOR), self.is_acted(event)

        def with_context(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if values["now"] is None and not BLOCKS.get():
                values["context"] = plain
            else:
                by = actor_of(connection) if is_acted else NO_ACTOR
                values["context"] = self._context(event, values, by)
            return run(connection, values)

        return with_context

    def stored_context(self, event: str) -> str:
        return self._context(event, {}, NO_ACTOR)

    def _context(self, event: str, values: Values, by: By) -> str:
        """Return the event context. Its time comes from a test's clock: the statement adds its own."""
        now = values.get("now")
        time = "" if now is None else repr(float(now))
        return PART.join((event or "write", self.source_name, by.actor or "", by.reason or "", time, ""))

    @property
    def lists_keys(self) -> bool:  # type: ignore[override]
        return all(field.kind in self.list_kinds for field in self.source.key)


class ServerMoves(TaskMoves):
    """Passes the event to the triggers where it matters, and puts into a limited queue one at a time."""

    terms: Server

    def entered(self, state: str, left: Sequence[str] = ()) -> str:
        word = super().entered(state)
        # The history needs the event; so do the waiters for a task's end, and the guard.
        is_guarded = not set(GUARDED).isdisjoint(left)
        has_effect = self.terms.has_history or is_guarded or state not in self.terms.machine.pending
        return f"CASE WHEN {self.terms.sets_context} THEN {word} END" if has_effect else word

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        return f"VALUES {rows}", self.has_room(guard)

    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        run = self.run_alone(statement, width)
        if statement.admitted:
            run = self._admitted(run, statement, width)
        reads_context = statement.charge or ":context" in statement.sql
        return self.terms.in_context(run, event) if reads_context else run

    def run_alone(self, statement: Statement, width: int = 0) -> Run:
        """Return a function that runs a statement. Its values have the event context."""
        return self.terms.query(statement.sql, statement.names, width)

    def _admitted(self, run: Run, statement: Statement, width: int) -> Run:
        """Return `run`, restricted to a queue that has room. Puts run one at a time."""
        look = self.terms.query(statement.admitted)
        parts = [self.terms.filled(sql) for sql in (self.terms.in_turn, statement.admitted)]
        parts.append(self.terms.filled(statement.sql, statement.names, width))

        def admitting(connection: Connection, values: dict[str, Any]) -> list[Row]:
            within = connection.in_transaction
            if connection.begins and connection.pipelines:
                return connection.admitted(*((sql, values_of(values)) for sql, values_of in parts))

            def in_turn(connection: Connection, values: dict[str, Any]) -> list[Row]:
                self.terms.one_at_a_time(connection, within)
                return run(connection, values) if look(connection, values) else []

            return connection.atomically(values, in_turn)

        return admitting
