"""psycopg 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from xq.core import time
from xq.core.connections import Batching, Sent
from xq.core.errors import ConfigurationError
from xq.core.kinds import RETRYABLE, ErrorKind, Row, UnreadRow
from xq.drivers.base import BaseDriver, is_gone, is_remote, kind_by_class, kinds, of_another

OLDEST = 130_000  # the oldest supported server
PLANNED = 1.0  # seconds after which PostgreSQL plans prepared statements again
PORT = "5432"
OUTDATED = -math.inf  # when it planned, if the prepared statements cannot run any more
SHORT = 4_000  # characters; longer statements differ from call to call, so preparing them does not pay

# Parameters of xq's own connections, by which they notice within 10 s that a server has vanished.
LIMITS = {"keepalives_idle": 2, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 5000}
LIMITS["connect_timeout"] = 3

KINDS = kinds(
    {
        ErrorKind.CONFLICT: ("40001", "40P01"),  # serialization failure, deadlock
        ErrorKind.LOCKED: ("55P03",),  # lock not available
        ErrorKind.DUPLICATE: ("23505",),
        ErrorKind.CHECK: ("23514", "22001"),
        ErrorKind.READ_ONLY: ("25006",),
        ErrorKind.DENIED: ("42501",),
        # No such operator, a type mismatch, a type that cannot be determined, no such cast.
        ErrorKind.BAD_TYPE: ("42883", "42804", "42P18", "42846"),
        # Not readable as the type, outside its range or encoding, or too long for an index.
        ErrorKind.BAD_VALUE: ("22P02", "22P03", "22P05", "22003", "22007", "22008", "22021", "54000", "0A000"),
        ErrorKind.PERMANENT: ("55000",),  # object not in prerequisite state, which triggers often raise
    }
)
# These states are of their kind only if a PostgreSQL function with such a name has raised them. A row
# security policy also raises 42501, but for one row. 0A000 (not supported) counts for NaN as an integer only.
RAISED_BY: Mapping[str, str] = {"42501": "aclcheck_error", "0A000": "numeric_"}


class Psycopg(BaseDriver):
    """psycopg 3, in autocommit."""

    begin = "BEGIN"
    errors_end_transactions = True
    retryable = RETRYABLE

    @cached_property
    def batching(self) -> Batching:
        from psycopg import Pipeline

        return "pipeline" if Pipeline.is_supported() else ""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str], tuple[str, str]] = {}  # by several hosts and their ports, one of each
        self._planned: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # the monotonic time, by connection

    def check(self, connection: Any, advice: str = "") -> str:
        info: Any = getattr(connection, "info", None)
        if not hasattr(connection, "pgconn"):
            raise of_another("PostgreSQL", "psycopg 3", connection, advice)
        if connection.closed:  # it is lost: psycopg would raise, and the caller replaces it
            return "postgres"
        if other := info.parameter_status("crdb_version"):
            raise ConfigurationError(f"xq speaks PostgreSQL, this is {other}")
        if 0 < info.server_version < OLDEST:  # 0 if it is lost just now
            raise ConfigurationError(f"xq needs PostgreSQL {OLDEST // 10_000} or later, this is {info.server_version}")
        return "postgres"

    def in_transaction(self, connection: Any) -> bool:
        return connection.pgconn.transaction_status in (2, 3)  # INTRANS, INERROR

    def is_broken(self, connection: Any) -> bool:
        return connection is None or bool(connection.closed) or is_gone(connection.fileno())

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        connection: Any = cursor.connection
        prepare = True if values and len(sql) < SHORT else None
        try:
            self._plan_anew(connection)
            try:
                with self._in_pipeline(connection) if connection in self.brief else nullcontext():
                    cursor.execute(sql, values or None, prepare=prepare)
            except Exception as error:
                if not self._is_outdated(error):
                    raise
                self._planned[connection] = OUTDATED
                if not self._plan_anew(connection):  # within a transaction, which the error has ended
                    raise
                cursor.execute(sql, values or None, prepare=prepare)
        except BaseException as error:
            self.close_if_unfinished(connection, error)
            raise

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        if connection.pgconn.transaction_status == 1:  # ACTIVE: the statement still runs
            connection.close()

    def pipelined(self, cursor: Callable[[], Any], statements: Sequence[Sent]) -> list[list[Row]]:
        made = [cursor() for _ in statements]
        connection = made[0].connection
        self._plan_anew(connection)
        try:
            with self._in_pipeline(connection):
                for each, (sql, values) in zip(made, statements, strict=True):
                    each.execute(sql, values or None, prepare=True if values and len(sql) < SHORT else None)
        except BaseException as error:
            if self._is_outdated(error):
                self._planned[connection] = OUTDATED  # for the next statement
            if connection.pgconn.pipeline_status:
                connection.close()
            self.close_if_unfinished(connection, error)
            raise
        return [self.rows(each) for each in made]

    @contextmanager
    def _in_pipeline(self, connection: Any) -> Iterator[None]:
        """Send the statements of the block together: as one transaction, if none is open and they begin none."""
        with connection.pipeline():
            if connection in self.brief and connection.pgconn.transaction_status == 0:
                connection.execute(self.brief[connection])
            yield

    def admitted(self, cursor: Callable[[], Any], turn: Sent, look: Sent, then: Sent) -> list[Row]:
        # Not an INSERT with a condition: PostgreSQL infers the values' types only in an INSERT of VALUES.
        *_, room = self.pipelined(cursor, [(self.begin, ()), turn, look])
        if not room:  # not in a pipeline: there psycopg forgets, too late, statements that it prepared after it
            self.execute(cursor(), "ROLLBACK", ())
            return []
        found, *_ = self.pipelined(cursor, [then, ("COMMIT", ())])
        return found

    def _plan_anew(self, connection: Any) -> bool:
        """Discard the plans for prepared statements once per PLANNED seconds. Returns whether it did.

        A plan made for a table that was empty at its last VACUUM reads and sorts the whole table. After a burst of
        100,000 puts a take would need 85 ms instead of 0.15 ms until the next autovacuum
        (`make bench DB=postgres ARGS=burst`).
        """
        if connection.prepare_threshold is None:  # applications turn preparing off behind a pooler such as PgBouncer
            return False
        now = time.monotonic()
        planned = self._planned.setdefault(connection, now)
        if now <= planned + PLANNED or connection.pgconn.transaction_status not in (0, 2):
            return False
        if planned == OUTDATED:
            with connection.transaction(force_rollback=True):
                pass  # a rollback makes psycopg forget its prepared statements
        else:
            connection.execute("DISCARD PLANS", prepare=False)
        self._planned[connection] = now
        return True

    @staticmethod
    def _is_outdated(error: BaseException) -> bool:
        """Return whether a statement failed because a returned column's type changed since it was prepared."""
        state: Any = getattr(error, "sqlstate", None)
        return bool(state == "0A000" and error.diag.source_function == "RevalidateCachedQuery")  # type: ignore[attr-defined]

    def rows(self, cursor: Any) -> list[Row]:
        # Not cursor.description, which is slow to compute.
        if cursor.pgresult is None or not cursor.pgresult.nfields:
            return []
        try:
            rows: list[Row] = cursor.fetchall()
        except (cursor.connection.DataError, ValueError):  # Python has no such date, and the statement has run
            rows = _as_far_as_readable(cursor)
        return rows

    def classify(self, error: BaseException) -> ErrorKind:
        if "cannot contain NUL" in str(error) or isinstance(error, (OverflowError, ValueError)):
            return ErrorKind.BAD_VALUE
        if "cannot adapt type" in str(error) or "cannot dump" in str(error):
            return ErrorKind.BAD_TYPE
        state: Any = getattr(error, "sqlstate", None)
        kind = KINDS.get(state)
        if kind is None:
            return kind_by_class(error)
        context, function = self._told(error)
        # An error with a context was raised while the statement ran, for example by the application's own trigger.
        otherwise = kind in (ErrorKind.BAD_TYPE, ErrorKind.DENIED) and context
        if otherwise or not str(function).startswith(RAISED_BY.get(state, "")):
            return kind_by_class(error)
        return kind

    def _told(self, error: BaseException) -> tuple[str | None, str | None]:
        """Return the context in which the server raised an error, and the function of PostgreSQL that did."""
        raised: Any = getattr(error, "diag", None)  # of an AsyncSession's driver it has none
        return (raised.context, raised.source_function) if raised else (None, None)

    def autocommit(self, connection: Any, value: Any) -> Any:
        before = connection.autocommit
        if before is not value:
            connection.autocommit = value
        return before

    def number(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    def fileno(self, connection: Any) -> int:
        return -1 if connection.closed else int(connection.fileno())

    def on_notification(self, connection: Any, call: Callable[[], None]) -> None:
        connection.add_notify_handler(lambda _: call())

    def receive(self, connection: Any) -> bool:
        server, received = connection.pgconn, False
        try:
            gone = is_gone(connection.fileno())  # checked before reading, so that its last notifications are read
            server.consume_input()
            while server.notifies():
                received = True
        except connection.Error:  # an exception from a signal handler passes through
            gone = True
        if gone:
            connection.close()
        return received

    def lacks(self, connection: Any) -> Collection[str]:
        named = {each.keyword.decode() for each in connection.pgconn.info if each.val is not None}
        return LIMITS.keys() - named if is_remote(connection.fileno()) else ()

    def limited(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        from psycopg.pq import Conninfo

        if "service" in parameters:  # its file says all
            return {**parameters}
        named = {each.keyword.decode() for each in Conninfo.get_defaults() if each.val is not None}
        made = {**{name: value for name, value in LIMITS.items() if name not in named}, **parameters}
        if first := self.answered.get(_place(made)):
            hosts, ports = (of.split(",") for of in _place(made))
            ports = [port or PORT for port in ports] * (len(hosts) if len(ports) == 1 else 1)
            pairs = sorted(zip(hosts, ports, strict=True), key=lambda pair: pair != first)  # the others as they were
            made["host"], made["port"] = (",".join(each) for each in zip(*pairs, strict=True))
        return made

    def reach(self, connect: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
        made = connect(**self.limited(parameters))
        if "," in _place(parameters)[0] and "hostaddr" not in parameters:
            self.answered[_place(parameters)] = made.info.host, str(made.info.port)
        return made

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        import psycopg

        return self.reach(partial(psycopg.connect, autocommit=True), parameters)


def _place(parameters: Mapping[str, Any]) -> tuple[str, str]:
    return str(parameters.get("host") or ""), str(parameters.get("port") or PORT)


def _as_far_as_readable(cursor: Any) -> list[Row]:
    """Return a statement's rows, with values that psycopg cannot read as their texts."""
    from psycopg.adapt import Transformer

    result, rows, adapt = cursor.pgresult, list[Row](), Transformer.from_context(cursor)
    loads = [adapt.get_loader(result.ftype(i), result.fformat(i)).load for i in range(result.nfields)]
    for n in range(result.ntuples):
        values, places = [result.get_value(n, i) for i in range(result.nfields)], []
        for place, value in enumerate(values):
            try:
                values[place] = None if value is None else loads[place](value)
            except Exception:
                values[place], places = bytes(value).decode(errors="backslashreplace"), [place]
        rows.append(row := UnreadRow(values) if places else tuple(values))
        if isinstance(row, UnreadRow):
            row.place = places[0]
    return rows
