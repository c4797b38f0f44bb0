"""The standard library's sqlite3."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from xq.core.connections import Batching
from xq.core.kinds import RETRYABLE, ErrorKind, Row
from xq.drivers.base import kind_by_class, kinds

KINDS = kinds(
    {
        ErrorKind.DUPLICATE: (
            sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
            sqlite3.SQLITE_CONSTRAINT_ROWID,
            sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        ),
        ErrorKind.CHECK: (sqlite3.SQLITE_CONSTRAINT_CHECK,),
        # In shared memory SQLite waits for no lock, and not where a transaction has read what has changed since.
        ErrorKind.CONFLICT: (sqlite3.SQLITE_LOCKED_SHAREDCACHE, sqlite3.SQLITE_BUSY_SNAPSHOT),
        # Faults in the statement or the application's triggers: an overflow, a missing table or column.
        ErrorKind.PERMANENT: (sqlite3.SQLITE_ERROR,),
    }
)


class Sqlite3:
    """The standard library's sqlite3."""

    # IMMEDIATE: else a transaction that reads first fails if another connection writes before it does.
    begin = "BEGIN IMMEDIATE"
    batching: Batching = "transaction"
    errors_end_transactions = False
    retryable = RETRYABLE

    def check(self, connection: Any, advice: str = "") -> str:
        return "sqlite"

    def in_transaction(self, connection: Any) -> bool:
        return bool(self.transaction(connection))

    def is_broken(self, connection: Any) -> bool:
        return connection is not None and self.transaction(connection) is None

    def transaction(self, connection: Any) -> bool | None:
        try:
            within: bool = connection.in_transaction
            return within
        except sqlite3.ProgrammingError:  # it was closed
            return None

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        cursor.execute(sql, values)

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        pass  # when a sqlite3 call ends, the statement is over

    def rows(self, cursor: Any) -> list[Row]:
        # SQLite ends and commits a statement with RETURNING only when all its rows are fetched.
        rows: list[Row] = cursor.fetchall()
        return rows

    def classify(self, error: BaseException) -> ErrorKind:
        if isinstance(error, (OverflowError, UnicodeError)):
            return ErrorKind.BAD_VALUE
        if "binding parameter" in str(error):
            return ErrorKind.BAD_TYPE
        if "Could not decode to UTF-8" in str(error):  # a text in the row
            return ErrorKind.PERMANENT
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF == sqlite3.SQLITE_READONLY:  # the higher bits give the reason
            return ErrorKind.READ_ONLY
        return KINDS.get(code) or kind_by_class(error)

    def autocommit(self, connection: Any, value: Any) -> Any:
        before = connection.isolation_level
        connection.isolation_level = None if value is True else value
        return before

    def receive(self, connection: Any) -> bool:
        return False

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        return sqlite3.connect(**parameters, isolation_level=None)
