"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from xq.adapters.databases.objects import Object
from xq.adapters.databases.postgres.groups import PostgresGroups
from xq.adapters.databases.postgres.objects import PostgresObjects
from xq.adapters.databases.postgres.scans import PostgresScans
from xq.adapters.databases.postgres.triggers import CHANNEL, SERVER_TIME, TEXT_OF_TIME, Triggers, part
from xq.adapters.databases.records import QUEUES, SESSION_COLUMNS, SESSIONS
from xq.adapters.databases.server import ROLL_UP
from xq.adapters.databases.session_connection import ALIVE, SessionSql
from xq.core.compile import Change, Selector, Statement
from xq.core.machine import TAKEN, Guard
from xq.core.ports import BYTES, HISTORY, INTEGERS, REFUSALS, TIMES, Connections, Field, Kind


class Postgres(PostgresObjects):
    """The dialect of PostgreSQL. One statement chooses and locks rows, and skips locked ones."""

    layout = "13"  # 5, of xq 0.1, counted the groups of updated rows one by one, and takes by counters alone
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
    commits = "SELECT CAST(pg_current_snapshot() AS text)"
    no_limit = None
    most_values = 65_535
    create_view = "CREATE OR REPLACE VIEW"
    groups_kind = PostgresGroups
    scans_kind = PostgresScans
    longest_name = 63
    sets_context = f"set_config('xq.context', :context || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {**dict.fromkeys(INTEGERS, "bigint"), "text": "text", "uuid": "uuid"}
    # For the watermark: rows with xid < pg_snapshot_xmin(pg_current_snapshot()) are complete.
    history_columns: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}

    read_only = "pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean)"
    first_schema = "current_schema()"
    others = (
        "SELECT nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace "
        f"WHERE relname = '{QUEUES}' AND relkind = 'r' AND relpersistence <> 't' "
        f"AND c.oid IS DISTINCT FROM to_regclass('{QUEUES}') "
        "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') ORDER BY nspname"
    )
    from_there = "connect with a search_path that begins with"

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
            # In seconds. Only these detect that the other machine is gone.
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

    def checks(self, store: Connections) -> Iterable[Sequence[str]]:
        table, status = self._this_table, self.source.roles["status"].column
        return store.execute(
            "SELECT 'CONSTRAINT ' || quote_ident(conname) || ' CHECK', pg_get_expr(conbin, conrelid) "
            f"FROM pg_constraint WHERE contype = 'c' AND conrelid = {table} UNION ALL "
            "SELECT format_type(atttypid, atttypmod), format('char_length(%I) <= %s', attname, atttypmod - 4) "
            f"FROM pg_attribute WHERE attrelid = {table} AND attname = {self.literal(status)} "
            "AND atttypmod > 4 AND atttypid IN ('varchar'::regtype, 'bpchar'::regtype)"
        )

    def unfit(self, store: Connections) -> str | None:
        found = store.execute(
            "SELECT relkind = 'p' OR relispartition FROM pg_class WHERE "
            "(relkind = 'p' OR relispartition OR relpersistence = 'u') "
            f"AND oid = {self._this_table}"
        )
        if found:
            return (
                "it is partitioned, or a partition: a row that moves to another one would be uncounted"
                if found[0][0]
                else f"it is UNLOGGED, so a crash would empty it: ALTER TABLE {self.table_in_schema} SET LOGGED"
            )
        enum = store.execute(
            "SELECT format_type(t.oid, NULL) FROM pg_attribute JOIN pg_type AS t ON t.oid = atttypid "
            f"WHERE typtype = 'e' AND attrelid = {self._this_table} "
            f"AND attname = {self.literal(self.source.roles['status'].column)}"
        )
        if enum:
            return (
                f"its status is of the type {enum[0][0]}, an enum, to which PostgreSQL converts no text by itself: "
                f"ALTER TABLE {self.table_in_schema} ALTER COLUMN {self.roles['status']} DROP DEFAULT, "
                f"ALTER COLUMN {self.roles['status']} TYPE text; a CHECK may list its values"
            )
        return super().unfit(store)

    @property
    def found_tables(self) -> str:  # type: ignore[override]
        names = map(self.literal, (self.table_in_schema, SESSIONS))
        return f"SELECT {', '.join(f'CAST(to_regclass({name}) AS oid)' for name in names)}"

    # words

    def moment(self, kind: Kind, seconds: str) -> str:
        if kind == "datetime":
            return f"(to_timestamp({seconds}) AT TIME ZONE 'UTC')"
        if kind == "timestamptz":
            return f"to_timestamp({seconds})"
        if kind == "bigint":
            return f"CAST(ceil({seconds}) AS bigint)"  # rounded up, so that no task is due too early
        return seconds

    def seconds(self, kind: Kind, column: str) -> str:
        return f"CAST(extract(epoch FROM {column}) AS float8)" if kind in TIMES else column

    def amount(self, value: Any) -> str:
        return f"CAST({super().amount(value)} AS float8)"

    def as_text(self, column: str) -> str:
        return f'CAST({column} AS text) COLLATE "default"'  # as xq's own tables, whatever the column's collation

    def differ(self, one: str, other: str) -> str:
        return f"{one} IS DISTINCT FROM {other}"

    def order_by(self, columns: Iterable[str], of: str = "") -> str:
        roles = len(self.source.ordered_by)
        return ", ".join(f"{of}{column}{' NULLS FIRST' * (i < roles)}" for i, column in enumerate(columns))

    def sorted_alone(self, rows: str, condition: str) -> str:
        # OFFSET 0: else the planner, which goes by statistics, could read the whole table along its key.
        return f"(SELECT * FROM {rows} WHERE {condition} OFFSET 0) AS {self.table}"

    place_in_text = "strpos"

    def folded(self, text: str) -> str:
        return f'lower(CAST({text} AS text) COLLATE "C")'

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

    def key_in_history(self, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return _in_history(self.source.key[0], parts[0])
        stored = [_in_history(field, part, alone=False) for field, part in zip(self.source.key, parts, strict=True)]
        return f"CAST(json_build_array({', '.join(stored)}) AS text)"

    # which rows

    def not_by_index(self, column: str) -> str:
        # As an expression: else the condition would imply that of the partial index of taken tasks.
        number = column == self.roles["status"] and self.source.roles["status"].kind != "text"
        return f"0 + {column}" if number else f"'' || {column}"

    def select(self, columns: str, rows: Selector) -> str:
        if self.groups and self.heads_for(rows):
            return self.groups.select(columns, rows)
        locked = f"{super().select(columns, rows)}{self.lock} SKIP LOCKED"
        # MATERIALIZED, since a query that locks must run only once.
        return locked if rows.way == "first" else f"WITH picked AS MATERIALIZED ({locked}) SELECT * FROM picked"

    def update(self, rows: Selector, change: Change) -> Statement:
        if not self.is_charged(rows, change):
            return super().update(rows, change)
        # It charges the bucket before it takes the task. If the bucket has become empty, it returns a row of NULLs.
        here = f"{self.key} = (SELECT * FROM xq_task)"
        may = f"({self._bucket} IS NULL OR EXISTS (SELECT 1 FROM xq_charged))"
        return Statement(
            f"WITH xq_task AS MATERIALIZED ({self.select(', '.join(self.keys), rows)}), "
            f"xq_charged AS ({self.charging(here)} RETURNING 1), "
            f"xq_taken AS (UPDATE {self.table_in_schema} SET {self.sets(change)} WHERE {here} AND {may} "
            f"RETURNING {self.columns}) SELECT xq_taken.* FROM xq_task LEFT JOIN xq_taken ON TRUE",
            names=self.brings(change),
        )

    def roll_up(self, store: Connections) -> bool:
        count = self.side("count")
        # One process at a time, without row locks: each writes 56 bytes to the log, and DELETE returns a row only once.
        # Not TRUNCATE: a transaction or a standby with an older snapshot would see neither the rows nor their sums.
        alone = f"(SELECT pg_try_advisory_xact_lock(hashtext('xq'), hashtext({self.literal(count)})))"
        some = f"SELECT ctid FROM {count} WHERE {alone} LIMIT {ROLL_UP}"
        ((found,),) = store.execute(
            f"WITH old AS (DELETE FROM {count} WHERE ctid = ANY(ARRAY({some})) RETURNING *), "
            f"added AS (INSERT INTO {count} (tube, source, target, n) "
            "SELECT tube, source, target, SUM(n) FROM old GROUP BY 1, 2, 3) SELECT COUNT(*) FROM old"
        )
        return bool(found >= ROLL_UP)

    @property
    def lock_task(self) -> str:
        # Lock as UPDATE does: FOR UPDATE would conflict with inserts of rows that refer to this one.
        keys = f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.by_key()}"
        free = f"WITH free AS MATERIALIZED ({keys} FOR NO KEY UPDATE SKIP LOCKED) SELECT * FROM free"
        # Write the row: under REPEATABLE READ a lock alone causes no conflict.
        status = self.roles["status"]
        return f"UPDATE {self.table_in_schema} SET {status} = {status} WHERE {self.key} IN ({free}) RETURNING 1"

    def lock_all(self, states: Iterable[str]) -> str:
        rows = f"SELECT 1 FROM {self.table_in_schema} WHERE {self.in_states(states)}{self.lock}"
        return f"SELECT COUNT(*) FROM ({rows}) AS held"

    @property
    def session_listed(self) -> str:
        # Not ON CONFLICT: it would wait for the row if this thread's transaction has changed it.
        there = f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = mine.queue"
        return (
            f"INSERT INTO {SESSIONS} ({SESSION_COLUMNS}) "
            f"SELECT :uuid, queue, {self.now}, {self.now} + :lease, :host, :pid, :program "
            f"FROM (VALUES (''), ({self.literal(self.source_name)})) AS mine (queue) WHERE NOT EXISTS ({there})"
            f"{self.on_conflict('uuid, queue')}"
        )

    def taken_at_last(self, store: Connections) -> int:
        try:
            with store.atomic():
                # It locks the table and reads its present state, even in a transaction with an older snapshot.
                store.execute(f"ALTER TABLE {self.table_in_schema} ADD CHECK (NOT ({self.is_state(TAKEN)}))")
        except Exception as error:
            if store.classify(error) not in REFUSALS:
                raise
            return self.taken_now(store) or 1
        return 0

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        return f'"{self.name(guard.name)}"' in refusal

    def triggers(self) -> list[Object]:
        return Triggers(self).all()

    @property
    def ours(self) -> str:
        """Return the condition that the event context is of this statement and this queue."""
        return f"{part(2)} = {self.literal(self.source_name)} AND {part(6)} = {TEXT_OF_TIME}"

    @property
    def event(self) -> str:
        return f"CASE WHEN {self.ours} THEN {part(1)} ELSE 'write' END"


def _in_history(field: Field, part: str, alone: bool = True) -> str:
    """Return, as SQL, a part of a key as the history stores it."""
    if field.kind in (*INTEGERS, "decimal") and not alone:
        return part
    if field.type.upper() in BYTES:
        return f"UPPER(encode({part}, 'hex'))"
    if field.kind == "uuid":  # also the application's own, which it may write without dashes
        part = f"CAST({part} AS uuid)"
    return f"CAST({part} AS text)"
