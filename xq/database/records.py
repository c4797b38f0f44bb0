"""What one database says of the sessions of all processes; `sessions.py` is what this process knows of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar
from weakref import ref

from xq.core.connections import Liveness, Runs
from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.kinds import R, Row, S
from xq.database.base import BaseDatabase
from xq.database.process import process_name, this_process
from xq.database.transactions import RunsQueue
from xq.sql.shared import SharedSql

Q = TypeVar("Q")

AT_ONCE = 20  # queues of a query: SQLite allows 500 parts, and the planning time of PostgreSQL grows with them


def of_sessions(runs: Runs, texts: SharedSql, sql: str, uuids: Sequence[str], **values: Any) -> list[Row]:
    """Run one of these texts for some sessions."""
    text, names = texts.of_sessions(sql, uuids) if uuids else (sql, {})
    return runs.run(text, {**names, **values})


def rows_of(
    queues: Sequence[Q],
    ask: Callable[[Sequence[Q]], list[Row]],
    failed: Callable[[Sequence[Q], Exception], None],
    answering: Callable[[Sequence[Q]], Sequence[Q]] = list,
) -> list[Row]:
    """Return the rows that `ask` finds for many queues, AT_ONCE at a time, with the queue in place of its index.

    `failed` raises an error that does not concern single queues. After another one, each queue is asked alone.
    `answering` returns those that are not left out by then.
    """
    found: list[Row] = []
    for part in [queues[at : at + AT_ONCE] for at in range(0, len(queues), AT_ONCE)]:
        part = answering(part)
        try:
            found += [(part[place], *row) for place, *row in (ask(part) if part else ())]
        except Exception as error:  # of one that was dropped just now, say
            failed(part, error)
            for queue in part if len(part) > 1 else ():
                found += rows_of([queue], ask, failed, answering)
    return found


class SessionRecords:
    """The records of the sessions of one database. If nothing is installed there, each method says what it returns."""

    def __init__(self, database: BaseDatabase) -> None:
        self.database = ref(database)

    @property
    def liveness(self) -> Liveness | None:
        """The liveness locks of this process, found if necessary."""
        return None if (database := self.database()) is None else database.find_liveness()

    def alone(self, uuids: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Yield those of these sessions whose locks no process holds. None can acquire one within the block."""
        return nullcontext(uuids) if self.liveness is None else self.liveness.alone(uuids)

    def _if_installed(self, work: Callable[[BaseDatabase], R], otherwise: S) -> R | S:
        if (database := self.database()) is not None and database.is_installed:
            with suppress(NotInstalled):  # its tables were dropped just now
                return work(database)
        return otherwise

    def _on_own_connection(self, sql: str, values: dict[str, Any]) -> list[Row] | None:
        """Run a statement outside of the application's transaction and its snapshot. None if that is not possible."""
        return None if self.liveness is None else self.liveness.on_own_connection(sql, values)

    def _announce(self) -> None:
        if self.liveness is not None:
            self.liveness.announce()

    def _registered(self, uuid: str) -> dict[str, Any]:
        """Return the values of the row of a session that this process registers."""
        return {"uuid": uuid, "lease": self.liveness and self.liveness.lease, **this_process()}

    def register(self, uuid: str, database: BaseDatabase, queue: RunsQueue | None) -> bool:
        """Register a session as a possible owner of tasks, if of a queue, there. Return whether that is committed."""
        if queue is not None:
            self._check_tables(queue)
        runs: Runs = queue or database
        sql, name = database.sql.session_listed, queue.dialect.source_name if queue else ""
        values = {**runs.values(), **self._registered(uuid), "queue": name}
        # On the session connection if possible: other threads would wait for the application's transaction.
        if self._on_own_connection(sql, values) is not None:
            self._announce()
            return True
        with runs.store.bookkeeping():
            runs.run(sql, values)
        runs.store.after_commit(self._announce)
        return not runs.store.in_transaction()

    def _check_tables(self, queue: RunsQueue) -> None:
        """Raise ConfigurationError if the session connection finds other tables or rows than the application's."""
        if not (sql := queue.dialect.found_tables):
            return
        (here,) = queue.run(sql)
        (there,) = self._on_own_connection(sql, {}) or [here]
        if hidden := here[-1] or there[-1]:
            raise ConfigurationError(f"{queue.store.name} cannot be taken from: {hidden}")
        # A table that this transaction has made is not there yet.
        if any(other not in (None, mine) for other, mine in zip(there, here, strict=True)):
            raise ConfigurationError(
                f"this connection finds {queue.store.name} in another schema or database than a new connection "
                "does, so other processes would take its tasks again, or never: choose the schema in the options of "
                "the database's connections (search_path), or in the model (class Meta: schema), not by SET or USE"
            )

    def listed(self) -> list[tuple[str, str, float | None, str]] | None:
        """Return the sessions: uuid, a queue in which it may own tasks, seconds until it expires.

        A session has a row per queue. The seconds are None while it lives. The last column is its process, as "pid 4711
        on host web-3 (xq worker)"; "" if its row has none. Return None if nothing is installed.
        """
        rows = self._if_installed(lambda database: database.run(database.sql.sessions_listed), None)
        return None if rows is None else [(uuid, queue, ends, process_name(*of)) for uuid, queue, ends, *of in rows]

    def queues_of(self, uuids: Sequence[str]) -> set[str]:
        """Return the queues in which sessions are registered; "" is the list of all sessions."""

        def look(database: BaseDatabase) -> set[str]:
            return {queue for (queue,) in of_sessions(database, database.sql, database.sql.session_queues, uuids)}

        return self._if_installed(look, set())

    def is_there(self, uuid: str) -> bool:
        """Return whether a session is registered and has not ended; True if nothing is installed."""

        def look(database: BaseDatabase) -> list[Row]:
            sql, values = database.sql.session_is_there, {**database.values(), "uuid": uuid}
            rows = self._on_own_connection(sql, values)
            return database.run(sql, values) if rows is None else rows

        return bool(self._if_installed(look, True))

    def rejoin(self, uuid: str) -> bool:
        """Keep an expiring session alive. Return False if no session of this uuid is registered."""
        # On MariaDB a write to a row that is not there would lock the gap, and block the session connection.
        of_uuid = self._registered(uuid)
        return self.is_there(uuid) and bool(self._whole(lambda of: (of.rejoin_session, of.session_rejoined), **of_uuid))

    def describe(self, uuid: str, program: str) -> None:
        """Write the program of a session, for operators."""
        self._whole(lambda of: (of.describe_session, of.session_is_there), uuid=uuid, program=program)

    def expire_later(self, uuids: Sequence[str]) -> set[str]:
        """Make sessions expire after session_ttr seconds. Return them without those that must end at once."""
        found = self._whole(lambda of: (of.expire_session_later, of.session_ends), uuids)
        return {*uuids} if found is None else found

    def older(self, uuids: Sequence[str]) -> set[str]:
        """Return those of these sessions that were registered before the server was started."""
        look = lambda database: of_sessions(database, database.sql, database.sql.older_sessions, uuids)  # noqa: E731
        return {uuid for (uuid,) in self._if_installed(look, [])}

    def over(self, uuids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have expired. Lock them: no process can rejoin one before the commit."""
        return self._whole(lambda of: (of.session_over,), uuids) or set()

    def _whole(
        self, texts: Callable[[SharedSql], Sequence[str]], uuids: Sequence[str] = (), **values: Any
    ) -> set[Any] | None:
        """Run texts in one transaction. Return the first column of the last one; None if nothing is installed."""

        def run(database: BaseDatabase) -> set[Any]:
            *_, rows = [of_sessions(database, database.sql, sql, uuids, **values) for sql in texts(database.sql)]
            return {row[0] for row in rows}

        return self._if_installed(lambda database: database.transaction(lambda: run(database)), None)

    def deregister(self, uuids: Sequence[str]) -> None:
        """Delete sessions from the database. They cannot be joined any more."""

        def delete(database: BaseDatabase) -> None:
            of_sessions(database, database.sql, database.sql.deregister_session, uuids, queue="")

        self._if_installed(delete, None)
