"""SQLite 3.35 and later."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.file_liveness import FileLocks
from xq.adapters.databases.file_notifier import FileNotifier
from xq.adapters.databases.records import SESSIONS
from xq.adapters.databases.sqlite.event_context import EVENT, context_of, with_context
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.adapters.databases.sqlite.installer import SqliteInstaller
from xq.adapters.databases.sqlite.looks import SqliteLooks
from xq.adapters.databases.sqlite.moves import SqliteMoves
from xq.adapters.databases.sqlite.objects import MACHINE_TIME, microseconds
from xq.adapters.databases.sqlite.scans import SqliteScans
from xq.adapters.databases.terms import Form
from xq.core.ports import TIMES, Connection, Connections, Field, Kind, Liveness, Notifier, Run
from xq.sessions.session import UUID_LENGTH


class Sqlite(Dialect):
    """The dialect of SQLite, which is a file, or in memory."""

    layout = "15"

    # julianday is precise to the millisecond, and constant within a statement.
    now = f"COALESCE(:now, {MACHINE_TIME})"

    now_us = microseconds(now)
    moments: ClassVar[Mapping[Kind, Form]] = {
        **dict.fromkeys(TIMES, Form("strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')")),
        "bigint": Form("CAST({} + 0.999 AS INTEGER)"),  # rounded up, so that no task is due too early
    }
    times: ClassVar[Mapping[Kind, Form]] = dict.fromkeys(TIMES, Form("(julianday({}) - 2440587.5) * 86400.0"))
    differ = Form("{} IS NOT {} COLLATE BINARY")
    # With outdated statistics the planner may expect most rows in one state, and read the whole table.
    hint = Form(" INDEXED BY {}")
    never = "9e999"
    begin_writing = f"UPDATE {SESSIONS} SET since = since WHERE FALSE"
    savepoints = "CREATE TEMP TABLE IF NOT EXISTS xq_savepoint (number INTEGER PRIMARY KEY)"
    no_limit = -1
    double = "REAL"
    dashed = Form(
        "CASE length({0}) WHEN 32 THEN substr({0}, 1, 8) || '-' || substr({0}, 9, 4) || '-' || substr({0}, 13, 4) "
        "|| '-' || substr({0}, 17, 4) || '-' || substr({0}, 21, 12) ELSE {0} END"
    )
    most_values = 32_766
    placeholder = "?"
    groups_kind = SqliteGroups
    moves_kind = SqliteMoves
    looks_kind = SqliteLooks
    installer_kind = SqliteInstaller
    scans_kind = SqliteScans

    @property
    def not_held(self) -> str:  # type: ignore[override]
        # No SQL finds the locks of heartbeats. At `:asked` the sessions `:expired` had none.
        asked = f"{self.roles['runat']} <= {self.moment(self.kind('runat'), ':asked')}"
        return f" AND {asked} AND {self.session_of_owner} IN (SELECT value FROM json_each(:expired))"

    @property
    def session_of_owner(self) -> str:  # type: ignore[override]
        return f"substr(COALESCE({self.roles['owner']}, ''), 1, {UUID_LENGTH})"

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        if not column.startswith(("OLD.", "NEW.")):
            return super().in_states(states, column)
        # For IN with more than two values SQLite builds a table at each run of a trigger: a tenth of a task's time.
        return f"({' OR '.join(self.is_state(state, column) for state in states)})"

    def rows_listed(self, columns: int, wide: int) -> str:
        values = [f"json_extract(value, '$[{i}]')" for i in range(columns)] if wide > 1 else ["value"]
        return f"SELECT {', '.join(values)} FROM json_each(:keys)"

    def keys_there(self, of: str = "") -> str:
        # SQLite allows NULL keys. Such a row equals no key, and must not block the others.
        return "".join(
            f"{of}{key} IS NOT NULL AND "
            for key, field in zip(self.keys, self.source.key, strict=True)
            if field.kind not in ("auto", "bigauto")
        )

    def in_history(self, field: Field, part: str, alone: bool) -> str:
        if field.kind in ("auto", "bigauto"):
            return part
        if field.kind == "decimal":
            return f"CAST({part} AS NUMERIC)"  # a column makes a number of it, and a parameter is the text
        if field.kind == "uuid":
            return self.dashed(part)
        return f"CASE typeof({part}) WHEN 'blob' THEN hex({part}) ELSE {part} END"  # JSON cannot hold bytes

    def in_context(self, run: Run, event: str) -> Run:
        return with_context(event or EVENT, run, self.has_history, self.is_acted(event))

    def connected(self, store: Connections, connection: Connection) -> None:
        connection.context = context_of(store)

    def only_reads(self, store: Connections) -> bool:
        ((refused,),) = store.execute("PRAGMA query_only")
        # No pragma shows whether a file was opened read-only. But then the program of BEGIN IMMEDIATE, which is not
        # run here, begins a read transaction. 0 is the main file.
        begun = {row[2]: row[3] for row in store.execute("EXPLAIN BEGIN IMMEDIATE") if row[1] == "Transaction"}
        if refused or not begun.get(0, True):
            return True
        # The file may have become read-only after the connection was opened.
        return any(os.path.exists(file) and not os.access(file, os.W_OK) for file in self._files(store)[:1])

    def file(self, store: Connections) -> str | None:
        return next(iter(self._files(store)), None)

    def _files(self, store: Connections) -> list[str]:
        """Return the files of the table and of xq's records; none if one is in memory."""
        wanted = ("main", (self.source.schema or "main").lower())
        with store.bookkeeping():
            found = {name.lower(): file for _, name, file in store.execute("PRAGMA database_list")}
        files = [found[name] for name in dict.fromkeys(wanted) if name in found]
        return files if all(files) and store.has_threads else []

    is_local = True

    @property
    def schema_version(self) -> str:  # type: ignore[override]
        return f"PRAGMA {self.schema}.schema_version"

    def liveness(self, store: Connections) -> Liveness | None:
        files = self._files(store)
        return FileLocks.of(files[0]) if files else None

    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        files = self._files(store)
        return FileLocks.of(files[0]).unheld(uuids) if files and uuids else []

    def notifier(self, store: Connections) -> Notifier | None:
        files = self._files(store)
        schemas = dict.fromkeys(["main", self.source.schema or "main"])
        versions = [f"PRAGMA {self.quote(schema)}.data_version" for schema in schemas]
        return FileNotifier(files, versions) if files else None
