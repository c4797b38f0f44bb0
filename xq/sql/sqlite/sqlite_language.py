"""SQLite's language, and how its connections are set up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from xq.core.connections import Connection, Connections, Liveness, Notifier
from xq.core.kinds import TIMES, Kind
from xq.sql.file_liveness import FileLocks
from xq.sql.file_notifier import FileNotifier
from xq.sql.language import Form, Language
from xq.sql.shared import SESSIONS, SharedSql
from xq.sql.sqlite.event_context import context_of
from xq.sql.sqlite.sqlite_objects import MACHINE_TIME, microseconds


class SqliteLanguage(Language):
    """SQLite's language. The database is a file, or in memory."""

    database = family = "sqlite"
    is_local = True
    layout = "20"

    # julianday is precise to the millisecond, and constant within a statement.
    now = f"COALESCE(:now, {MACHINE_TIME})"

    now_us = microseconds(now)
    elapsed = Form("MAX(0, at_us - {})")  # a row's time is exact, or cut to milliseconds: see SqliteObjects
    instant = Form("strftime('%Y-%m-%dT%H:%M:%S', ({0}) / 1000000, 'unixepoch') || printf('.%06dZ', ({0}) % 1000000)")
    moments: ClassVar[Mapping[Kind, Form]] = {
        **dict.fromkeys(TIMES, Form("strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')")),
        "bigint": Form("CAST({} + 0.999 AS INTEGER)"),  # rounded up, so that no task is due too early
    }
    times: ClassVar[Mapping[Kind, Form]] = dict.fromkeys(TIMES, Form("(julianday({}) - 2440587.5) * 86400.0"))
    differ = Form("{} IS NOT {} COLLATE BINARY")
    # With outdated statistics the planner may expect most rows in one state, and read the whole table.
    hint = Form(" INDEXED BY {}")
    never = "9e999"
    # quote() writes infinity as a name, and ends a text at a zero byte.
    as_literal = Form(
        "CASE WHEN {0} = 9e999 THEN '9e999' WHEN {0} = -9e999 THEN '-9e999' WHEN typeof({0}) = 'text' "
        "AND instr({0}, char(0)) THEN 'CAST(X''' || hex({0}) || ''' AS TEXT)' ELSE quote({0}) END"
    )
    begin_writing = f"UPDATE {SESSIONS} SET since = since WHERE FALSE"
    double = "REAL"
    greatest = Form("MAX({}, {})")
    dashed = Form(
        "CASE length({0}) WHEN 32 THEN substr({0}, 1, 8) || '-' || substr({0}, 9, 4) || '-' || substr({0}, 13, 4) "
        "|| '-' || substr({0}, 17, 4) || '-' || substr({0}, 21, 12) ELSE {0} END"
    )
    most_values = 32_766
    placeholder = "?"
    commits = "PRAGMA data_version"  # does not change with this connection's own commits

    def connected(self, store: Connections, connection: Connection) -> None:
        connection.context = context_of(store)

    def only_reads(self, store: Connections) -> bool:
        ((refused,),) = store.execute("PRAGMA query_only")
        # No pragma shows whether a file was opened read-only. But then SQLite's program for BEGIN IMMEDIATE, not run
        # here, begins a read transaction. 0 is the main file.
        begun = {row[2]: row[3] for row in store.execute("EXPLAIN BEGIN IMMEDIATE") if row[1] == "Transaction"}
        if refused or not begun.get(0, True):
            return True
        # The file may have become read-only after the connection was opened.
        return any(os.path.exists(file) and not os.access(file, os.W_OK) for file in self._files(store)[:1])

    def file(self, store: Connections) -> str | None:
        return next(iter(self._files(store)), None)

    def _files(self, store: Connections) -> list[str]:
        """Return the schemas' files; none if one is in memory."""
        wanted = [schema.lower() for schema in self.schemas]
        with store.bookkeeping():
            found = {name.lower(): file for _, name, file in store.execute("PRAGMA database_list")}
        files = [found[name] for name in dict.fromkeys(wanted) if name in found]
        return files if all(files) and store.has_threads else []

    def liveness(self, store: Connections) -> Liveness | None:
        files = self._files(store)
        return FileLocks.of(files[0]) if files else None

    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        files = self._files(store)
        return FileLocks.of(files[0]).unheld(uuids) if files and uuids else []

    def notifier(self, store: Connections, liveness: Liveness | None) -> Notifier | None:
        files = self._files(store)
        versions = [f"PRAGMA {self.quote(schema)}.data_version" for schema in dict.fromkeys(self.schemas)]
        return FileNotifier(files, versions) if files else None


class SqliteShared(SharedSql, SqliteLanguage):
    """The SQL for what the queues in a file share."""
