"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from xq.adapters.databases.links import Words
from xq.adapters.databases.postgres_triggers import (
    CHANNEL,
    NOTIFY,
    SERVER_TIME,
    TEXT_OF_TIME,
    Triggers,
    part,
)
from xq.adapters.databases.servers import ALIVE, BYTES, INTEGERS, ROLL_UP, Server
from xq.adapters.databases.sql import SESSIONS, SETTINGS, Object
from xq.compile import Change, Rows, Statement
from xq.errors import ConfigurationError
from xq.machine import TAKEN, Guard
from xq.store import HISTORY, Field, Kind, Store

LONG = 60  # seconds after which an open transaction is told of: takes beside it are slower already
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"


class Postgres(Server):
    """Rows are chosen and locked by one statement, which skips what others have locked."""

    now = f"COALESCE(CAST(:now AS float8), {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS bigint)"
    never = "CAST('Infinity' AS float8)"
    numbers = "CREATE TEMP TABLE IF NOT EXISTS xq_change (number bigint PRIMARY KEY)"
    add_number = "INSERT INTO pg_temp.xq_change (number) VALUES (:number)"
    take_number = "DELETE FROM pg_temp.xq_change WHERE number = :number RETURNING number"
    no_limit = None
    most_values = 65_535
    longest_name = 63
    telling = f"set_config('xq.told', :told || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(INTEGERS, "bigint"),
        "text": "text",
        "uuid": "uuid",
    }
    heard = f"IF FOUND THEN {NOTIFY} END IF;"
    # A number to tell by what is settled: all rows whose xid is less than pg_snapshot_xmin(pg_current_snapshot()).
    told: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}

    link = Words(
        connected=(
            # Whatever the application's is: single statements on tables of xq's own, which nobody tries again.
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) "
            "IS NOT NULL",  # since PostgreSQL 14
            # Of a machine that is gone nobody hears but by these; in seconds.
            "SET tcp_keepalives_idle = 2",
            "SET tcp_keepalives_interval = 2",
            "SET tcp_keepalives_count = 3",
            "SET tcp_user_timeout = 3000",  # milliseconds: keepalives rest while an answer is on its way
        ),
        number="SELECT pg_backend_pid()",
        listen=(
            f"INSERT INTO {ALIVE} (uuid, process) VALUES ('', :process)",
            f"LISTEN {CHANNEL}",
        ),
        expect=f"INSERT INTO {ALIVE} (uuid, process, waits) SELECT '', :process, :waits "
        f"WHERE NOT EXISTS (SELECT 1 FROM {SETTINGS} WHERE name = 'notify' AND value = 0) "
        "ON CONFLICT (uuid, process) DO UPDATE SET waits = excluded.waits RETURNING 1",
        tell=f"SELECT pg_notify('{CHANNEL}', '')",
        lock="SELECT pg_try_advisory_lock(:lock)",
        unlock="SELECT pg_advisory_unlock(:lock)",
        join=f"INSERT INTO {ALIVE} (uuid, process) VALUES (:uuid, :process) ON CONFLICT DO NOTHING",
        part=f"DELETE FROM {ALIVE} WHERE uuid = :uuid AND process = :process",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE NOT pg_try_advisory_xact_lock_shared(process)",
        bury=f"DELETE FROM {ALIVE} WHERE uuid = :uuid",
        forget=f"DELETE FROM {ALIVE} WHERE uuid = '' AND process <> :process "
        "AND pg_try_advisory_xact_lock_shared(process)",
        renew=f"UPDATE {SESSIONS} SET ends = {SERVER_TIME} + :lease WHERE uuid = :uuid AND ends > {SERVER_TIME}",
        apart="",  # no transaction locks what is not there yet
        there=f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > {SERVER_TIME})",
    )

    # words

    def moment(self, kind: Kind, seconds: str) -> str:
        if kind == "datetime":
            return f"(to_timestamp({seconds}) AT TIME ZONE 'UTC')"
        if kind == "timestamptz":
            return f"to_timestamp({seconds})"
        if kind == "bigint":
            return f"CAST(ceil({seconds}) AS bigint)"  # rounded up: nothing falls due too early
        return seconds

    def seconds(self, kind: Kind, column: str) -> str:
        timed = kind in ("datetime", "timestamptz")
        return f"CAST(extract(epoch FROM {column}) AS float8)" if timed else column

    def bound(self, kind: Kind) -> str:
        return self.moment(kind, self.now) if kind in ("datetime", "timestamptz") else self.now

    def amount(self, value: Any) -> str:
        return f"CAST({super().amount(value)} AS float8)"

    def differ(self, one: str, other: str) -> str:
        return f"{one} IS DISTINCT FROM {other}"

    @property
    def order(self) -> str:
        priority = self.roles.get("priority")
        return ", ".join([*([f"{priority} NULLS FIRST"] if priority else []), *self.keys])

    @property
    def held_by(self) -> str:
        return f'({self.roles["owner"]} COLLATE "C")'  # a range of bytes

    @property
    def keys_at_once(self) -> str:
        kind = self.list_kinds[self.source.key[0].kind]
        return f"SELECT CAST(listed AS {kind}) FROM json_array_elements_text(CAST(:keys AS json)) AS listed"

    def told_key(self, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return _told(self.source.key[0], parts[0])
        told = [_told(field, part, alone=False) for field, part in zip(self.source.key, parts, strict=True)]
        return f"CAST(json_build_array({', '.join(told)}) AS text)"

    # which rows

    def pick(self, columns: str, chosen: str, index: str = "", one: bool = False) -> str:
        locked = f"{super().pick(columns, chosen, index, one)}{self.lock} SKIP LOCKED"
        # Materialized: a query that locks must not run twice.
        return locked if one else f"WITH picked AS MATERIALIZED ({locked}) SELECT * FROM picked"

    def fenced(self, rows: Rows, chosen: str, state: str) -> str:
        if not rows.fence or "owner" in self.roles:
            return super().fenced(rows, chosen, state)
        # The row, then the owner beside it: what another transaction does to both it does in this order, too. A mere
        # look at the owner would be a look into the past, where the row had to be waited for.
        fence = {"session": "substr(o.owner, 1, 37) = :session", "take": "o.owner = :mark"}[rows.fence]
        keys = ", ".join(self.keys)
        locked = f"SELECT {keys} FROM {self.table_in_schema} WHERE {chosen} AND {state}{self.lock}"
        theirs = ", ".join(f"o.{key}" for key in self.keys)
        same = " AND ".join(f"o.{key} = locked.{key}" for key in self.keys)
        held = f"SELECT {theirs} FROM {self.owners} AS o, locked WHERE {same} AND {fence}{self.lock} OF o"
        return (
            f"{self.key} IN (WITH locked AS MATERIALIZED ({locked}), held AS MATERIALIZED ({held}) SELECT * FROM held)"
        )

    def picked(self, chosen: str, index: str = "", one: bool = False) -> str:
        if chosen.endswith(self.held) and "owner" not in self.roles:
            return self._picked_of_session()
        return super().picked(chosen, index, one)

    def _picked_of_session(self) -> str:
        keys = ", ".join(f"t.{key}" for key in self.keys)
        same = " AND ".join(f"o.{key} = t.{key}" for key in self.keys)
        taken = self.is_state(TAKEN, f"t.{self.roles['status']}")
        theirs = 'o.owner COLLATE "C" >= :session AND o.owner COLLATE "C" < :session_end'
        return (
            f"{self.key} IN (WITH picked AS MATERIALIZED (SELECT {keys} FROM {self.table_in_schema} AS t, "
            f"{self.owners} AS o WHERE {same} AND {taken} AND {theirs} LIMIT :n{self.lock} SKIP LOCKED) "
            "SELECT * FROM picked)"
        )

    # what changes

    def move(self, rows: Rows, change: Change) -> Statement:
        found = super().move(rows, change)
        sql = found.sql
        if not found.then:
            return Statement(sql, names=found.names)
        keys = ", ".join(self.keys)
        remembered = (
            f"INSERT INTO {self.owners} ({keys}, owner) SELECT {keys}, :owner FROM moved "
            f"ON CONFLICT ({keys}) DO UPDATE SET owner = excluded.owner"
        )
        return Statement(f"WITH moved AS ({sql}), remembered AS ({remembered}) SELECT * FROM moved", names=found.names)

    def remember_owner(self) -> str:
        return "by the statement itself"

    remember_owners = remember_owner

    def roll_up(self, store: Store[Any]) -> None:
        count = self.object(self.name("count"))
        # Those that another process adds up are passed by.
        some = f"SELECT ctid FROM {count} LIMIT {ROLL_UP}{self.lock} SKIP LOCKED"
        store.execute(
            f"WITH old AS (DELETE FROM {count} WHERE ctid = ANY(ARRAY({some})) RETURNING *) "
            f"INSERT INTO {count} (tube, source, target, n) "
            "SELECT tube, source, target, SUM(n) FROM old GROUP BY 1, 2, 3"
        )

    def tuned(self, store: Store[Any]) -> list[str]:
        # What is partitioned has no rows of its own, and takes no such settings.
        table = f"to_regclass({self.literal(self.table_in_schema)})"
        leaves = store.execute(f"SELECT CAST(relid AS text) FROM pg_partition_tree({table}) WHERE isleaf ORDER BY 1")
        tables = [
            *([leaf for (leaf,) in leaves] or [self.table_in_schema]),
            *(self.object(t.name) for t in self.side_tables() if t.name != self.name("count")),
        ]
        return [f"ALTER TABLE {table} SET ({BUSY})" for table in tables]

    def trouble(self, store: Store[Any]) -> str | None:
        oldest = store.execute(
            "SELECT pid, CAST(extract(epoch FROM statement_timestamp() - xact_start) AS int) FROM pg_stat_activity "
            "WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid() "
            f"AND xact_start < statement_timestamp() - interval '{LONG} seconds' ORDER BY 2 DESC LIMIT 1"
        )
        return "".join(
            f"process {pid} has had a transaction open for {seconds} seconds: rows that are deleted meanwhile stay in "
            "the indexes, and each take passes them by, more and more slowly until that transaction ends"
            for pid, seconds in oldest
        )

    def hold(self) -> str:
        # Written: that a row was merely locked would not be noticed under REPEATABLE READ.
        status = self.roles["status"]
        return f"UPDATE {self.table_in_schema} SET {status} = {status} WHERE {self.by_key()}"

    @contextmanager
    def installing(self, store: Store[Any]) -> Iterator[None]:
        elsewhere = store.execute(
            "SELECT CAST(relnamespace::regnamespace AS text), current_schema() FROM pg_class WHERE oid = "
            f"to_regclass({self.literal(self.table_in_schema)}) AND relnamespace::regnamespace <> "
            "to_regnamespace(quote_ident(current_schema()))"
        )
        if elsewhere and not self.source.schema:
            ((there, here),) = elsewhere
            raise ConfigurationError(
                f"{self.source.name} is in the schema {there}, and what belongs to it would come into {here}, "
                f"the first of search_path: say in the model where it is (class Meta: schema = {there!r})"
            )
        try:
            with store.atomic():
                # CREATE .. IF NOT EXISTS fails where another transaction creates the same.
                store.execute("SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext(current_schema()))")
                yield
        except Exception as error:
            unique = self.machine.guard("unique") and store.is_failure(error) and not store.is_refusal(error)
            if not unique or not store.execute(self.is_partitioned):
                raise
            raise ConfigurationError(
                f"{self.source.name} is partitioned, where PostgreSQL keeps unique only what the partitions are chosen "
                f"by ({error}): partition it by the role 'unique' alone, or leave the feature 'unique' away"
            ) from error

    @property
    def is_partitioned(self) -> str:
        """A query that finds a row where the table is partitioned."""
        return f"SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass({self.literal(self.table_in_schema)})"

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        return f'"{self.name(guard.name)}"' in refusal

    # what is installed

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.object(name)}() CASCADE"  # and with it its triggers
        return super().drop(kind, name)

    def existing(self, store: Store[Any]) -> dict[str, str]:
        shared = ", ".join(f"to_regclass({self.literal(item.name)})" for item in self.shared())
        mine = f"to_regclass({self.literal(self.table_in_schema)})"
        beside = self.literal(self.name("").replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%")
        found = store.execute(
            "SELECT relname, 'table' FROM pg_class WHERE relkind IN ('r', 'p') AND "
            f"(oid IN ({shared}) OR (relname LIKE {beside} AND "
            f"relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = {mine}))) "
            "UNION ALL SELECT c.relname, 'index' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"WHERE i.indrelid = {mine} AND i.indisvalid "
            f"UNION ALL SELECT tgname, 'trigger' FROM pg_trigger WHERE tgrelid = {mine} AND NOT tgisinternal"
        )
        return {name: str(kind) for name, kind in found}

    def table_columns(self, store: Store[Any]) -> set[str]:
        found = store.execute(
            f"SELECT attname FROM pg_attribute WHERE attrelid = to_regclass({self.literal(self.table_in_schema)}) "
            "AND attnum > 0 AND NOT attisdropped"
        )
        return {name for (name,) in found} & {field.column for field in self.source.fields}

    def objects(self) -> list[Object]:
        return [*self.side_tables(), *self.indexes(), *self.triggers()]

    def side_tables(self) -> list[Object]:
        keys, parts = ", ".join(self.keys), ", ".join(self._parts())
        as_parts = ", ".join(f"{key} AS {part}" for key, part in zip(self.keys, self._parts(), strict=True))
        nothing = f"FROM {self.table_in_schema} WITH NO DATA"
        # In the types of the key, whatever they are.
        tables = {
            "count": ("(tube text, source text, target text, n bigint NOT NULL)", ""),
            "wait": (
                f"AS SELECT {as_parts}, CAST('' AS text) AS waiter, CAST('' AS text) AS session, "
                f"CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target {nothing}",
                f"{parts}, waiter",
            ),
        }
        if "owner" not in self.roles:
            tables["owner"] = (f"AS SELECT {keys}, CAST('' AS text) AS owner {nothing}", keys)
        if self.has_history:
            types = {
                "bigauto": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
                "bigint": "bigint",
                "text": "text",
            }
            columns = ", ".join(f'"{column}" {types[kind]}' for column, kind in HISTORY.items())
            xid = "xid bigint DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
            tables["history"] = (f"({columns}, {xid})", "")
        found = []
        for suffix, (body, key) in tables.items():
            name = self.name(suffix)
            create = [f"CREATE TABLE IF NOT EXISTS {self.object(name)} {body}"]
            if key:
                unique = self.quote(self.name(f"{suffix}_key"))
                create.append(f"CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {self.object(name)} ({key})")
            if suffix == "count":  # rewritten all the time
                create.append(f"ALTER TABLE {self.object(name)} SET ({BUSY})")
            found.append(Object("table", name, tuple(create), self.drop("table", name)))
        return found

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        name = self.name(suffix)
        create = (
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.quote(name)} "
            f"ON {self.table_in_schema} ({columns}) WHERE {condition}"
        )
        return Object("index", name, (create,), self.drop("index", name))

    def triggers(self) -> list[Object]:
        return Triggers(self).all()

    @property
    def ours(self) -> str:
        """That what is told is of this statement, and of this queue."""
        return f"{part(2)} = {self.literal(self.source_name)} AND {part(4)} = {TEXT_OF_TIME}"

    @property
    def event(self) -> str:
        return f"CASE WHEN {self.ours} THEN {part(1)} ELSE 'write' END"


def _told(field: Field, part: str, alone: bool = True) -> str:
    """A part of a key as the history tells it."""
    if field.kind in ("auto", "bigauto", "integer", "bigint", "decimal") and not alone:
        return part
    if field.type.upper() in BYTES:
        return f"UPPER(encode({part}, 'hex'))"
    if field.kind == "uuid":  # the application's, too, which is written without dashes
        part = f"CAST({part} AS uuid)"
    return f"CAST({part} AS text)"
