"""The records of the sessions of one database, and what may own tasks there.

Any queue that is installed in the database runs their SQL: the records are those of all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from xq.core.dialect import Runs
from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.ports import ErrorKind, Liveness, Row
from xq.sessions.process import process_name, this_process

Q = TypeVar("Q")
R = TypeVar("R")
S = TypeVar("S")

AT_ONCE = 20  # queues of a query: SQLite allows 500 parts, and the planning time of PostgreSQL grows with them


class Owner(Protocol):
    """What may own tasks of sessions: a queue, the tubes that this process has not opened, or a custom tube."""

    database: Runs | None = None  # of a queue

    @property
    def source_name(self) -> str:
        """The name of the queue in the database; "" if it is none."""
        return ""

    @property
    def home(self) -> object:
        """The object that sessions belong to, of the database that has its tasks now; None if it has none."""

    @property
    def installed(self) -> bool:
        """Whether it is installed there. If not, only `session_closed` may be called."""
        return True

    def names(self, among: Collection[str]) -> set[str]:
        """Return those of these queues that it maintains without being one."""
        return set()

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks of sessions, recorded as `event`. Raises NotInstalled."""
        return

    def session_closed(self, own_lost: bool) -> None:
        """Notice that a session of this process has ended; `own_lost` if it is the one that waits, and was lost."""
        return


def of_sessions(database: Runs, sql: str, uuids: Sequence[str], **values: Any) -> list[Row]:
    """Run a statement of the dialect for these sessions."""
    text, names = database.dialect.records.of_sessions(sql, uuids) if uuids else (sql, {})
    return database.run(text, {**names, **values})


def forget_waits(database: Runs, uuids: Sequence[str]) -> None:
    """Delete the waits in a queue that the processes of these sessions have registered."""
    of_sessions(database, database.dialect.records.forget_waits, uuids)


def rows_of(
    queues: Sequence[Q], ask: Callable[[Sequence[Q]], list[Row]], failed: Callable[[Sequence[Q], Exception], None]
) -> list[Row]:
    """Return the rows that `ask` finds for many queues, AT_ONCE at a time, with the queue in place of its index.

    `failed` raises an error that does not concern single queues. After another one, each queue is asked alone.
    """
    found: list[Row] = []
    for part in [queues[at : at + AT_ONCE] for at in range(0, len(queues), AT_ONCE)]:
        try:
            found += [(part[place], *row) for place, *row in ask(part)]
        except Exception as error:  # of one that was dropped just now, say
            failed(part, error)
            for queue in part if len(part) > 1 else ():
                found += rows_of([queue], ask, failed)
    return found


def orphans_of(databases: Sequence[Runs]) -> set[str]:
    """Return the sessions that own tasks of these queues and are not registered."""

    def ask(part: Sequence[Runs]) -> list[Row]:
        dialects = [database.dialect for database in part]
        return part[0].run(dialects[0].records.orphans_of(dialects))

    def failed(part: Sequence[Runs], error: Exception) -> None:
        kind = part[0].store.classify(error)
        alone = len(part) == 1 and not isinstance(error, NotInstalled) and kind is not ErrorKind.DENIED
        if alone or kind is ErrorKind.LOST:
            raise error

    return {uuid for _, uuid in rows_of(databases, ask, failed)}


class Records:
    """The records of the sessions of one database. If it has no queue that is installed, each method says so."""

    def __init__(self, databases: Callable[[], Iterator[Runs]], liveness: Callable[[], Liveness | None]) -> None:
        self._databases = databases  # of the queues that are installed: held by them, and not here
        self._liveness = liveness

    def _by_any(self, work: Callable[[Runs], R], otherwise: S) -> R | S:
        """Return the result of `work` for any of the queues."""
        for database in self._databases():
            with suppress(NotInstalled):  # its table was dropped just now
                return work(database)
        return otherwise

    def _on_own_connection(self, sql: str, values: dict[str, Any]) -> list[Row] | None:
        """Run a statement on the session connection and return its rows; None if there is none.

        It is independent of the application's transaction and its snapshot.
        """
        liveness = self._liveness()
        return None if liveness is None else liveness.on_own_connection(sql, values)

    def _announce(self) -> None:
        if (liveness := self._liveness()) is not None:
            liveness.announce()

    @property
    def _lease(self) -> float | None:
        liveness = self._liveness()
        return None if liveness is None else liveness.lease

    def register(self, uuid: str, database: Runs) -> bool:
        """Register a session as a possible owner of tasks of a queue. Return whether that is committed."""
        self._check_tables(database)
        sql = database.dialect.records.session_listed
        values = {**database.values(), "uuid": uuid, "lease": self._lease, **this_process()}
        # On the session connection if possible: other threads would wait for the application's transaction.
        if self._on_own_connection(sql, values) is not None:
            self._announce()
            return True
        with database.store.bookkeeping():
            database.run(sql, values)
        database.store.after_commit(self._announce)
        return not database.store.in_transaction()

    def _check_tables(self, database: Runs) -> None:
        """Raise ConfigurationError if the session connection finds other tables than the application's connection."""
        if not (there := self._on_own_connection(database.dialect.found_tables, {})):
            return
        here = database.run(database.dialect.found_tables)
        # A table that this transaction has made is not there yet.
        if any(other not in (None, mine) for other, mine in zip(there[0], here[0], strict=True)):
            raise ConfigurationError(
                f"this connection finds {database.store.name} in another schema or database than a new connection "
                "does, so other processes would take its tasks again, or never: choose the schema in the options of "
                "the database's connections (search_path), or in the model (class Meta: schema), not by SET or USE"
            )

    def listed(self) -> list[tuple[str, str, float | None, str]] | None:
        """Return the sessions: uuid, a queue in which it may own tasks, seconds until it expires. None without a queue.

        A session has a row per queue. The seconds are None while it lives. The last column is its process, as "pid 4711
        on host web-3 (xq worker)"; "" if its row has none.
        """
        rows = self._by_any(lambda database: database.run(database.dialect.records.sessions_listed), None)
        return None if rows is None else [(uuid, queue, ends, process_name(*of)) for uuid, queue, ends, *of in rows]

    def is_there(self, uuid: str) -> bool:
        """Return whether a session is registered and has not ended; True without a queue."""

        def ask(database: Runs) -> list[Row]:
            sql, values = database.dialect.records.session_is_there, {**database.values(), "uuid": uuid}
            rows = self._on_own_connection(sql, values)
            return database.run(sql, values) if rows is None else rows

        return bool(self._by_any(ask, True))

    def rejoin(self, uuid: str) -> bool:
        """Keep an expiring session alive. Return False if no session of this uuid is registered."""
        values: dict[str, Any] = {"uuid": uuid, "lease": self._lease, **this_process()}
        return bool(self._whole(lambda of: (of.rejoin_session, of.session_rejoined), **values))

    def expire_later(self, uuids: Sequence[str]) -> set[str]:
        """Make sessions expire after session_ttr seconds. Return them without those that must end at once."""
        found = self._whole(lambda of: (of.expire_session_later, of.session_ends), uuids)
        return {*uuids} if found is None else found

    def over(self, uuids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have expired. Lock them: no process can rejoin one before the commit."""
        return self._whole(lambda of: (of.session_over,), uuids) or set()

    def _whole(
        self, texts: Callable[[Any], Sequence[str]], uuids: Sequence[str] = (), **values: Any
    ) -> set[Any] | None:
        """Run texts of a dialect in one transaction. Return the first column of the last one; None without a queue."""

        def run(database: Runs) -> set[Any]:
            *_, rows = [of_sessions(database, sql, uuids, **values) for sql in texts(database.dialect.records)]
            return {row[0] for row in rows}

        return self._by_any(lambda database: database.transaction(lambda: run(database)), None)

    def deregister(self, uuids: Sequence[str]) -> None:
        """Delete sessions from the database. They cannot be joined any more."""
        self._by_any(
            lambda database: of_sessions(database, database.dialect.records.deregister_session, uuids, queue=""), None
        )
