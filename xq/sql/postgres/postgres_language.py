"""PostgreSQL's language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.kinds import INTEGERS, TIMES, Kind
from xq.sql.language import AS_IT_IS, Form
from xq.sql.postgres.postgres_objects import CHANNEL, SERVER_TIME, TEXT_OF_TIME
from xq.sql.server import ServerLanguage
from xq.sql.session_connection import SessionSql
from xq.sql.shared import ALIVE, SharedSql


class PostgresLanguage(ServerLanguage):
    """PostgreSQL's language."""

    database = family = "postgres"
    shared_file = Path(__file__).parent / "shared.sql"
    layout = "22"
    # As UPDATE locks: FOR UPDATE would conflict with inserts of rows that refer to this one.
    lock = " FOR NO KEY UPDATE"
    skip = f"{lock} SKIP LOCKED"
    now = f"COALESCE(CAST(:now AS float8), {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS bigint)"
    server_start = "CAST(extract(epoch FROM pg_postmaster_start_time()) AS float8)"
    in_seconds = Form("({}) / CAST(1e6 AS float8)")
    instant = Form("TIMESTAMPTZ '1970-01-01 00:00:00+00' + ({}) * INTERVAL '1 microsecond'")
    never = "CAST('Infinity' AS float8)"
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
    # As an expression: else the condition would imply the one on the partial index for taken tasks.
    number_alone, text_alone = Form("0 + {}"), Form("'' || {}")
    most_values = 65_535
    create_view = "CREATE OR REPLACE VIEW"
    longest_name = 63
    first_schema = "current_schema()"
    settles = ""
    token_text = Form('CAST({} AS text) COLLATE "default"')
    briefly = " AND set_config('lock_timeout', '1s', true) <> ''"  # until its transaction ends
    sets_context = f"set_config('xq.context', :context || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {**dict.fromkeys(INTEGERS, "bigint"), "text": "text", "uuid": "uuid"}
    dashed, undashed = Form("CAST({0} AS text)"), Form("CAST({} AS uuid)")
    as_literal = Form("quote_literal(CAST(CAST({0} AS {1}) AS text))")
    # Without their lengths, to which a cast would cut the value, also those of a domain.
    column_types = (
        "SELECT attname, format_type(COALESCE(NULLIF(typbasetype, 0), atttypid), -1) FROM pg_attribute "
        "JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped"
    )
    place_in_text = "strpos"
    lacks = Form("strpos({}, {}) = 0")
    commits = "SELECT CAST(pg_current_snapshot() AS text)"
    read_only = "pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean)"

    overriding = " OVERRIDING SYSTEM VALUE"
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
        is_installed=f"SELECT 1 WHERE to_regclass('{ALIVE}') IS NOT NULL",
        number="SELECT pg_backend_pid()",
        listen=(f"INSERT INTO {ALIVE} (uuid, process) VALUES ('', :process)", f"LISTEN {CHANNEL}"),
        expect=f"INSERT INTO {ALIVE} (uuid, process, waits) VALUES ('', :process, :waits) "
        "ON CONFLICT (uuid, process) DO UPDATE SET waits = excluded.waits",
        notify=f"SELECT pg_notify('{CHANNEL}', '')",
        lock="pg_try_advisory_lock(:lock)",
        unlock="pg_advisory_unlock(:lock)",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE NOT pg_try_advisory_xact_lock_shared(process)",
        forget=f"DELETE FROM {ALIVE} WHERE uuid = '' AND process <> :process "
        "AND pg_try_advisory_xact_lock_shared(process)",
        time=SERVER_TIME,
        unless_there=" ON CONFLICT DO NOTHING",
        briefly="SET lock_timeout = '1s'",
        nowait=AS_IT_IS,  # PostgreSQL has no gap locks, so the statement does not wait
    )

    @contextmanager
    def creating(self, store: Connections, schema: str = "") -> Iterator[None]:
        # CREATE .. IF NOT EXISTS fails if another transaction creates the same object.
        within = store.in_transaction()
        with store.atomic():
            if not within:  # a snapshot of REPEATABLE READ would be older than the lock
                store.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            for name in self.to_lock(store, schema):
                store.execute(f"SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext({self.literal(name)}))")
            yield


class PostgresShared(SharedSql, PostgresLanguage):
    """The SQL for what the queues in a PostgreSQL schema share."""
