"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from xq.adapters.databases.postgres.groups import PostgresGroups
from xq.adapters.databases.postgres.installer import PostgresInstaller
from xq.adapters.databases.postgres.looks import PostgresLooks
from xq.adapters.databases.postgres.moves import PostgresMoves
from xq.adapters.databases.postgres.objects import CHANNEL, SERVER_TIME, TEXT_OF_TIME
from xq.adapters.databases.postgres.scans import PostgresScans
from xq.adapters.databases.records import SESSIONS
from xq.adapters.databases.server import Server
from xq.adapters.databases.session_connection import ALIVE, SessionSql
from xq.adapters.databases.terms import Form
from xq.core.ports import BYTES, HISTORY, INTEGERS, TIMES, Field, Kind

HIDDEN = (
    "row-level security hides rows of it from ROLE, and xq's own connections, which lack the application's settings, "
    "would release no task: give the role of workers BYPASSRLS, or CREATE POLICY workers ON TABLE TO ROLE USING (true)"
)


class Postgres(Server):
    """The dialect of PostgreSQL. One statement chooses and locks rows, and skips locked ones."""

    layout = "15"
    # As UPDATE locks: FOR UPDATE would conflict with inserts of rows that refer to this one.
    lock = " FOR NO KEY UPDATE"
    skip = f"{lock} SKIP LOCKED"
    now = f"COALESCE(CAST(:now AS float8), {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS bigint)"
    never = "CAST('Infinity' AS float8)"
    # A savepoint that has written has a transaction id, and a lock on it. Any connection can look up its outcome;
    # behind a pooler, another connection does so after the commit.
    savepoints = ""
    savepoint_noted = (
        "SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - COALESCE(MIN(age(transactionid)), 0) "
        "FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock'"
    )
    savepoint_kept = "SELECT 1 WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed'"
    moments: ClassVar[Mapping[Kind, Form]] = {
        "datetime": Form("(to_timestamp({}) AT TIME ZONE 'UTC')"),
        "timestamptz": Form("to_timestamp({})"),
        "bigint": Form("CAST(ceil({}) AS bigint)"),  # rounded up, so that no task is due too early
    }
    times: ClassVar[Mapping[Kind, Form]] = dict.fromkeys(TIMES, Form("CAST(extract(epoch FROM {}) AS float8)"))
    json_array = Form("CAST(json_build_array({}) AS text)")
    differ = Form("{} IS DISTINCT FROM {}")
    as_text = Form('CAST({} AS text) COLLATE "default"')  # as xq's own tables, whatever the column's collation
    folded = Form('lower(CAST({} AS text) COLLATE "C")')
    # As an expression: else the condition would imply that of the partial index of taken tasks.
    number_alone, text_alone = Form("0 + {}"), Form("'' || {}")
    no_limit = None
    most_values = 65_535
    create_view = "CREATE OR REPLACE VIEW"
    groups_kind = PostgresGroups
    moves_kind = PostgresMoves
    looks_kind = PostgresLooks
    installer_kind = PostgresInstaller
    scans_kind = PostgresScans
    records_file = Path(__file__).parent / "records.sql"
    longest_name = 63
    token_text = Form('CAST({} AS text) COLLATE "default"')
    briefly = " AND set_config('lock_timeout', '1s', true) <> ''"  # until its transaction ends
    sets_context = f"set_config('xq.context', :context || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {**dict.fromkeys(INTEGERS, "bigint"), "text": "text", "uuid": "uuid"}
    # For the watermark: rows with xid < pg_snapshot_xmin(pg_current_snapshot()) are complete.
    history_columns: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}
    history_order = ("xid", "id")

    read_only = "pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean)"

    open_transactions = (
        "SELECT who, CAST(extract(epoch FROM now() - since) AS float8), ends FROM (SELECT concat('process ', pid, "
        "' of ', coalesce(usename, backend_type), ' (' || nullif(application_name, '') || ')') AS who, "
        "xact_start AS since, concat('SELECT pg_terminate_backend(', pid, ')') AS ends FROM pg_stat_activity WHERE "
        "datname = current_database() AND pid <> pg_backend_pid() AND coalesce(backend_xmin, backend_xid) IS NOT NULL "
        "UNION ALL SELECT concat('the two-phase commit ', gid, ' of ', owner), prepared, "
        "concat('ROLLBACK PREPARED ', quote_literal(gid)) FROM pg_prepared_xacts WHERE database = current_database()) "
        "AS held WHERE since < now() - make_interval(secs => :n) ORDER BY since"
    )

    session_sql = SessionSql(
        connected=(
            # Not the application's isolation level: these single statements are not retried after a conflict.
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) "
            "IS NOT NULL",  # since PostgreSQL 14
            # In seconds. Nothing else detects that the other machine is gone.
            "SET tcp_keepalives_idle = 2",
            "SET tcp_keepalives_interval = 2",
            "SET tcp_keepalives_count = 3",
            "SET tcp_user_timeout = 3000",  # milliseconds; no keepalives are sent while data is unacknowledged
        ),
        made=f"SELECT 1 WHERE to_regclass('{ALIVE}') IS NOT NULL",
        number="SELECT pg_backend_pid()",
        listen=(f"INSERT INTO {ALIVE} (uuid, process) VALUES ('', :process)", f"LISTEN {CHANNEL}"),
        expect=f"INSERT INTO {ALIVE} (uuid, process, waits) VALUES ('', :process, :waits) "
        "ON CONFLICT (uuid, process) DO UPDATE SET waits = excluded.waits",
        tell=f"SELECT pg_notify('{CHANNEL}', '')",
        lock="pg_try_advisory_lock(:lock)",
        unlock="pg_advisory_unlock(:lock)",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE NOT pg_try_advisory_xact_lock_shared(process)",
        forget=f"DELETE FROM {ALIVE} WHERE uuid = '' AND process <> :process "
        "AND pg_try_advisory_xact_lock_shared(process)",
        time=SERVER_TIME,
        unless_there=" ON CONFLICT DO NOTHING",
        nowait="",  # PostgreSQL has no gap locks, so the statement does not wait
    )

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

    def order_by(self, columns: Iterable[str], of: str = "") -> str:
        roles = len(self.source.ordered_by)
        return ", ".join(f"{of}{column}{' NULLS FIRST' * (i < roles)}" for i, column in enumerate(columns))

    def sorted_alone(self, rows: str, condition: str) -> str:
        # OFFSET 0: else the planner, which goes by statistics, could read the whole table along its key.
        return f"(SELECT * FROM {rows} WHERE {condition} OFFSET 0) AS {self.table}"

    place_in_text = "strpos"

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

    def in_history(self, field: Field, part: str, alone: bool) -> str:
        if field.kind in (*INTEGERS, "decimal") and not alone:
            return part
        if field.type.upper() in BYTES:
            return f"UPPER(encode({part}, 'hex'))"
        if field.kind == "uuid":  # also the application's own, which it may write without dashes
            part = f"CAST({part} AS uuid)"
        return f"CAST({part} AS text)"
