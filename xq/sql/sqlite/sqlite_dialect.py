"""SQLite 3.35 and later."""

from __future__ import annotations

from collections.abc import Iterable

from xq.core.connections import Run
from xq.core.kinds import NUMBERED, Field
from xq.core.tokens import UUID_LENGTH
from xq.sql.dialect import Dialect
from xq.sql.sqlite.event_context import EVENT, with_context
from xq.sql.sqlite.sqlite_installer import SqliteInstaller
from xq.sql.sqlite.sqlite_language import SqliteLanguage, SqliteShared
from xq.sql.sqlite.sqlite_moves import SqliteMoves
from xq.sql.sqlite.sqlite_queries import SqliteQueries


class Sqlite(SqliteLanguage, Dialect):
    """SQLite's dialect. The database is a file, or in memory."""

    no_limit = -1
    shared_kind = SqliteShared
    moves_kind = SqliteMoves
    queries_kind = SqliteQueries
    installer_kind = SqliteInstaller

    @property
    def not_held(self) -> str:  # type: ignore[override]
        # No SQL finds the heartbeats' locks. At `:asked` the sessions `:expired` had none.
        asked = f"{self.roles['runat']} <= {self.moment(self.kind('runat'), ':asked')}"
        return f" AND {asked} AND {self.session_of_owner} IN (SELECT value FROM json_each(:expired))"

    @property
    def session_of_owner(self) -> str:  # type: ignore[override]
        return f"substr(COALESCE({self.roles['owner']}, ''), 1, {UUID_LENGTH})"

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        if not column.startswith(("OLD.", "NEW.")):
            return super().in_states(states, column)
        # For IN with more than two values SQLite builds a table each time a trigger runs: a tenth of a task's time.
        return f"({' OR '.join(self.is_state(state, column) for state in states)})"

    def rows_listed(self, columns: int, wide: int) -> str:
        values = [f"json_extract(value, '$[{i}]')" for i in range(columns)] if wide > 1 else ["value"]
        return f"SELECT {', '.join(values)} FROM json_each(:keys)"

    def keys_there(self, of: str = "") -> str:
        # SQLite allows NULL keys. Such a row equals no key, and must not block the others.
        return "".join(
            f"{of}{key} IS NOT NULL AND "
            for key, field in zip(self.keys, self.source.key, strict=True)
            if field.kind not in NUMBERED
        )

    def in_history(self, field: Field, part: str, alone: bool) -> str:
        if field.kind in NUMBERED:
            return part
        if field.kind == "decimal":
            return f"CAST({part} AS NUMERIC)"  # a column turns it into a number, and a parameter is the text
        if field.kind == "uuid":
            return self.dashed(part)
        return f"CASE typeof({part}) WHEN 'blob' THEN hex({part}) ELSE {part} END"  # JSON cannot hold bytes

    def in_context(self, run: Run, event: str) -> Run:
        return with_context(event or EVENT, run, self.has_history, self.is_acted(event))

    @property
    def schemas(self) -> list[str]:  # type: ignore[override]
        return ["main", self.source.schema or "main"]

    @property
    def schema_version(self) -> str:  # type: ignore[override]
        return f"PRAGMA {self.schema}.schema_version"
