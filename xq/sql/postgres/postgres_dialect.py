"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.kinds import BYTES, HISTORY, INTEGERS, Field, Kind, Row
from xq.sql.floors import XID, Floors
from xq.sql.postgres.postgres_installer import PostgresInstaller
from xq.sql.postgres.postgres_language import PostgresLanguage, PostgresShared
from xq.sql.postgres.postgres_moves import PostgresMoves
from xq.sql.postgres.postgres_queries import PostgresQueries
from xq.sql.server import Server
from xq.sql.shared import SESSIONS

HIDDEN = (
    "row-level security hides rows of it from ROLE, and xq's own connections, which lack the application's settings, "
    "would release no task: give the role of workers BYPASSRLS, or CREATE POLICY workers ON TABLE TO ROLE USING (true)"
)
# The locks that an UPDATE waits for, held or waited for, on the table and those beside it; and what those that wait
# wait for.
LOCKED_BY = (
    "WITH locks AS (SELECT pid, granted FROM pg_locks WHERE relation IN (SELECT mine.oid FROM pg_class AS mine "
    "JOIN pg_class AS task ON task.oid = to_regclass(:name) AND task.relnamespace = mine.relnamespace "
    "WHERE mine.oid = task.oid OR starts_with(mine.relname, :beside)) AND pid <> pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) "
    "SELECT concat('process ', pid, ' of ', coalesce(usename, backend_type), ' (' || nullif(application_name, '') || "
    "')'), CAST(extract(epoch FROM clock_timestamp() - xact_start) AS float8), "
    "concat('SELECT pg_terminate_backend(', pid, ')') FROM pg_stat_activity WHERE pid IN (SELECT pid FROM locks "
    "UNION SELECT unnest(pg_blocking_pids(pid)) FROM locks WHERE NOT granted) ORDER BY xact_start LIMIT 3"
)


class Postgres(PostgresLanguage, Server):
    """PostgreSQL's dialect. One statement chooses and locks rows, and skips locked ones."""

    no_limit = None
    shared_kind = PostgresShared
    moves_kind = PostgresMoves
    queries_kind = PostgresQueries
    installer_kind = PostgresInstaller
    # For the watermark: rows with xid < pg_snapshot_xmin(pg_current_snapshot()) are complete.
    history_columns: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}
    history_order = ("xid", "id")
    position = f"CASE WHEN xid < (SELECT {XID.format('pg_snapshot_xmin(pg_current_snapshot())')}) THEN xid END"

    @cached_property
    def floors(self) -> Floors | None:
        by_key = len(self.source.key) == 1 and self.source.key[0].kind in INTEGERS and not self.source.ordered_by
        return Floors(self) if by_key and not (self.machine.turns or self.takeable) else None

    @property
    def found_tables(self) -> str:  # type: ignore[override]
        mine, sessions = (f"to_regclass({self.literal(name)})" for name in (self.table_in_schema, SESSIONS))
        # A policy without a condition, for this role, shows all rows, unless a restrictive one hides some.
        shown = "polpermissive AND polcmd = '*' AND pg_get_expr(polqual, polrelid) = 'true'"
        hidden = (
            f"row_security_active({mine}) AND COALESCE((SELECT NOT (bool_or({shown}) AND bool_and(polpermissive)) FROM "
            f"pg_policy WHERE polrelid = {mine} AND EXISTS (SELECT FROM unnest(polroles) AS r "
            "WHERE r = 0 OR pg_has_role(r, 'USAGE'))), TRUE)"
        )
        message = self.literal(HIDDEN.replace("TABLE", self.table_in_schema))
        named = f"replace({message}, 'ROLE', quote_ident(current_user))"
        return f"SELECT CAST({mine} AS oid), CAST({sessions} AS oid), CASE WHEN {hidden} THEN {named} END"

    def locked_by(self, store: Connections) -> list[Row]:
        return self.execute(store, LOCKED_BY, {"name": self.table_in_schema, "beside": self.name("")})

    ways = " NULLS FIRST", " DESC NULLS LAST"

    def sorted_alone(self, rows: str, condition: str) -> str:
        # OFFSET 0: else the planner, which goes by statistics, could read the whole table along its key.
        return f"(SELECT * FROM {rows} WHERE {condition} OFFSET 0) AS {self.table}"

    @property
    def owner_for_range(self) -> str:
        return f'({self.roles["owner"]} COLLATE "C")'  # for a range of bytes

    def rows_listed(self, columns: int, wide: int) -> str:
        kinds = [*(self.list_kinds[field.kind] for field in self.source.key), "text"][:columns]
        values = [f"CAST(listed ->> {i} AS {kind})" for i, kind in enumerate(kinds)]
        if wide == 1:
            values = [f"CAST(listed AS {kinds[0]})"]
        elements = f"json_array_elements{'_text' * (wide == 1)}"
        return f"SELECT {', '.join(values)} FROM {elements}(CAST(:keys AS json)) AS listed"

    def in_list(self, columns: Sequence[str], exact: Sequence[str], wide: int) -> str:
        # Without statistics, the planner compares each row with the whole list. It finds an array's by the key's index.
        first = f"{columns[0]} = ANY(ARRAY({self.rows_listed(1, wide)}))"
        alone = len(columns) == 1 and columns == exact
        return first if alone else f"({first} AND {super().in_list(columns, exact, wide)})"

    def in_history(self, field: Field, part: str, alone: bool) -> str:
        if field.kind in (*INTEGERS, "decimal") and not alone:
            return part
        if field.type.upper() in BYTES:
            return f"UPPER(encode({part}, 'hex'))"
        if field.kind == "uuid":  # also the application's own, which it may write without dashes
            part = f"CAST({part} AS uuid)"
        return f"CAST({part} AS text)"
