"""PostgreSQL 13 and later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from xq.adapters.databases.extracts import PostgresExtract
from xq.adapters.databases.links import ALIVE, Words
from xq.adapters.databases.postgres_triggers import (
    CHANNEL,
    SERVER_TIME,
    TEXT_OF_TIME,
    Triggers,
    part,
    unless_silenced,
)
from xq.adapters.databases.postgres_utubes import PostgresUtubes
from xq.adapters.databases.servers import BYTES, ROLL_UP, Server
from xq.adapters.databases.sql import QUEUES, SESSIONS, SETTINGS, Object
from xq.adapters.databases.utube_news import NEWS
from xq.compile import Rows, Statement
from xq.errors import BadValue, ConfigurationError, shown
from xq.machine import TAKEN, Guard
from xq.store import HISTORY, INTEGERS, TIMES, Field, Kind, Store

LONG = 60  # seconds after which an open transaction is told of: takes beside it are slower already
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"


class Postgres(Server):
    """Rows are chosen and locked by one statement, which skips what others have locked."""

    now = f"COALESCE(CAST(:now AS float8), {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS bigint)"
    never = "CAST('Infinity' AS float8)"
    # A savepoint in which something was changed has a number, and a lock on it. Any connection knows what became of it:
    # behind a pooler, it is another one that is asked after the commit.
    savepoints = ""
    savepoint_noted = (
        "SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - MIN(age(transactionid)) FROM pg_locks "
        "WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock'"
    )
    savepoint_kept = "SELECT 1 WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed'"
    no_limit = None
    most_values = 65_535
    create_view = "CREATE OR REPLACE VIEW"
    utubes_kind = PostgresUtubes
    extracts = PostgresExtract
    utubes: PostgresUtubes | None
    longest_name = 63
    telling = f"set_config('xq.told', :told || {TEXT_OF_TIME}, true) <> ''"
    list_kinds: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(INTEGERS, "bigint"),
        "text": "text",
        "uuid": "uuid",
    }
    # A number to tell by what is settled: all rows whose xid is less than pg_snapshot_xmin(pg_current_snapshot()).
    told: ClassVar[Mapping[str, Kind]] = {**HISTORY, "xid": "bigint"}

    read_only = "pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean)"
    locking = "UPDATE"
    in_turn = "version"
    first_schema = "current_schema()"
    others = (
        "SELECT nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace "
        f"WHERE relname = '{QUEUES}' AND relkind = 'r' AND relpersistence <> 't' "
        f"AND c.oid IS DISTINCT FROM to_regclass('{QUEUES}') "
        "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') ORDER BY nspname"
    )
    from_there = "connect with a search_path that begins with"

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
        made=f"SELECT 1 WHERE to_regclass('{ALIVE}') IS NOT NULL",
        number="SELECT pg_backend_pid()",
        listen=(
            f"INSERT INTO {ALIVE} (uuid, process) VALUES ('', :process)",
            f"LISTEN {CHANNEL}",
        ),
        # Asked again and again, and written only where it is news.
        expect=f"WITH may AS (SELECT {unless_silenced(SETTINGS)} AS tell), "
        f"wanted AS (INSERT INTO {ALIVE} (uuid, process, waits) SELECT '', :process, tell AND :waits FROM may "
        f"WHERE NOT EXISTS (SELECT 1 FROM {ALIVE} WHERE uuid = '' AND process = :process AND waits = (tell AND :waits))"
        " ON CONFLICT (uuid, process) DO UPDATE SET waits = excluded.waits) SELECT 1 FROM may WHERE tell",
        tell=f"SELECT pg_notify('{CHANNEL}', '')",
        lock="SELECT pg_try_advisory_lock(:lock)",
        unlock="SELECT pg_advisory_unlock(:lock)",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE NOT pg_try_advisory_xact_lock_shared(process)",
        forget=f"DELETE FROM {ALIVE} WHERE uuid = '' AND process <> :process "
        "AND pg_try_advisory_xact_lock_shared(process)",
        time=SERVER_TIME,
        unless_there=" ON CONFLICT DO NOTHING",
        apart="",  # no transaction locks what is not there yet
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
        return f"CAST(extract(epoch FROM {column}) AS float8)" if kind in TIMES else column

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

    def where(self, rows: Rows) -> str:
        if not rows.fence or "owner" in self.roles:
            return super().where(rows)
        # The row, then the owner beside it: what another transaction does to both it does in this order, too. A mere
        # look at the owner would be a look into the past, where the row had to be waited for.
        keys = ", ".join(self.keys)
        locked = f"SELECT {keys} FROM {self.table_in_schema} WHERE {self.named(rows)}{self.lock}"
        theirs = ", ".join(f"o.{key}" for key in self.keys)
        mine = f"{self.same_key('o', 'locked')}{self.fence(rows, 'o.owner')}"
        held = f"SELECT {theirs} FROM {self.owners} AS o, locked WHERE {mine}{self.lock} OF o"
        return (
            f"{self.key} IN (WITH locked AS MATERIALIZED ({locked}), held AS MATERIALIZED ({held}) SELECT * FROM held)"
        )

    def pick(self, columns: str, rows: Rows) -> str:
        if self.utubes and self.picked_from(rows):
            return self.utubes.picked(columns, rows)
        beside = rows.way == "held" and "owner" not in self.roles
        query = self._pick_beside(rows) if beside else super().pick(columns, rows)
        locked = f"{query}{self.lock} SKIP LOCKED"
        # Materialized: a query that locks must not run twice.
        return locked if rows.way == "first" else f"WITH picked AS MATERIALIZED ({locked}) SELECT * FROM picked"

    def _pick_beside(self, rows: Rows) -> str:
        """A query of the rows of a session, of which the side table knows."""
        keys = ", ".join(f"t.{key}" for key in self.keys)
        taken = self.is_state(rows.state, f"t.{self.roles['status']}")
        theirs = self.of_session('o.owner COLLATE "C"')
        return (
            f"SELECT {keys} FROM {self.table_in_schema} AS t, {self.owners} AS o "
            f"WHERE {self.same_key('o', 't')} AND {taken} AND {theirs} LIMIT :n"
        )

    # what changes

    def remembering(self, rows: Rows, statement: Statement) -> Statement:
        keys = ", ".join(self.keys)
        remembered = (
            f"INSERT INTO {self.owners} ({keys}, owner) SELECT {keys}, :owner FROM moved "
            f"ON CONFLICT ({keys}) DO UPDATE SET owner = excluded.owner"
        )
        sql = f"WITH moved AS ({statement.sql}), remembered AS ({remembered}) SELECT * FROM moved"
        return replace(statement, sql=sql)

    def roll_up(self, store: Store[Any]) -> bool:
        count = self.side("count")
        # Those that another process adds up are passed by.
        some = f"SELECT ctid FROM {count} LIMIT {ROLL_UP}{self.lock} SKIP LOCKED"
        ((found,),) = store.execute(
            f"WITH old AS (DELETE FROM {count} WHERE ctid = ANY(ARRAY({some})) RETURNING *), "
            f"added AS (INSERT INTO {count} (tube, source, target, n) "
            "SELECT tube, source, target, SUM(n) FROM old GROUP BY 1, 2, 3) SELECT COUNT(*) FROM old"
        )
        return bool(found >= ROLL_UP)

    def tuned(self, store: Store[Any]) -> list[str]:
        # What is partitioned has no rows of its own, and takes no such settings.
        table = f"to_regclass({self.literal(self.table_in_schema)})"
        leaves = store.execute(f"SELECT CAST(relid AS text) FROM pg_partition_tree({table}) WHERE isleaf ORDER BY 1")
        tables = [
            *([leaf for (leaf,) in leaves] or [self.table_in_schema]),
            *(self.object(t.name) for t in self.side_tables() if t.name != self.name("count")),
        ]
        return [f"ALTER TABLE {table} SET ({BUSY})" for table in tables]

    def unlogged(self, store: Store[Any]) -> list[str]:
        # All of them: a counter must not survive its tasks.
        tables = [self.table_in_schema, *(self.object(item.name) for item in self.side_tables())]
        made = [f"ALTER TABLE {table} SET UNLOGGED" for table in tables]
        ((numbers,),) = store.execute(
            f"SELECT pg_get_serial_sequence({self.literal(self.table_in_schema)}, "
            f"{self.literal(self.source.key[0].column)}) WHERE current_setting('server_version_num')::int >= 150000 "
            "UNION ALL SELECT NULL LIMIT 1"
        )
        # From PostgreSQL 15 on it goes with its table, and begins anew: but no key may come again.
        return [*made, *([f"ALTER SEQUENCE {numbers} SET LOGGED"] if numbers else [])]

    def trouble(self, store: Store[Any]) -> str | None:
        oldest = store.execute(
            "SELECT pid, usename, application_name, "
            "CAST(extract(epoch FROM statement_timestamp() - xact_start) AS int) FROM pg_stat_activity "
            # One that has written has no snapshot between its statements, but a number that all snapshots wait for.
            "WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND datname = current_database() "
            f"AND pid <> pg_backend_pid() AND xact_start < statement_timestamp() - interval '{LONG} seconds' "
            "ORDER BY xact_start LIMIT 1"
        )
        for pid, user, application, seconds in oldest:
            return (
                f"the server's process {pid} (user {user!r}, application_name {application!r}) has had a transaction "
                f"open for {seconds} seconds: rows that are deleted meanwhile stay in the indexes, and each take "
                f"passes them by, more and more slowly until that transaction ends; SELECT pg_terminate_backend({pid}) "
                "ends it"
            )
        return None

    def untuned(self, store: Store[Any]) -> list[str]:
        settings = [setting.split(" = ") for setting in BUSY.split(", ")]
        held = ", ".join(self.literal("=".join(setting)) for setting in settings)
        found = store.execute(
            "SELECT CAST(c.oid::regclass AS text), string_agg(split_part(option, '=', 1), ', ' ORDER BY option) "
            f"FROM (SELECT to_regclass({self.literal(self.table_in_schema)}) AS mine) AS here, "
            "pg_class AS c, unnest(c.reloptions) AS option "
            "WHERE (c.oid = mine OR c.oid IN (SELECT relid FROM pg_partition_tree(mine))) "
            f"AND option IN ({held}) GROUP BY c.oid ORDER BY 1"
        )
        return [f"ALTER TABLE {table} RESET ({options})" for table, options in found]

    @property
    def hold(self) -> str:
        # As the UPDATE locks it: FOR UPDATE would be kept off by who writes rows that refer to this one.
        keys = f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.by_key()}"
        free = f"WITH free AS MATERIALIZED ({keys} FOR NO KEY UPDATE SKIP LOCKED) SELECT * FROM free"
        # Written: that a row was merely locked would not be noticed under REPEATABLE READ.
        status = self.roles["status"]
        return f"UPDATE {self.table_in_schema} SET {status} = {status} WHERE {self.key} IN ({free}) RETURNING 1"

    def hold_all(self, states: Iterable[str]) -> str:
        held = f"SELECT 1 FROM {self.table_in_schema} WHERE {self.in_states(states)}{self.lock}"
        return f"SELECT COUNT(*) FROM ({held}) AS held"

    @property
    def session_listed(self) -> str:
        # Not left to ON CONFLICT: a row that the transaction of this very thread has changed, since it joined the
        # session, would be waited for.
        there = f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = mine.queue"
        return (
            f"INSERT INTO {SESSIONS} (uuid, queue, since, ends) SELECT :uuid, queue, {self.now}, {self.now} + :lease "
            f"FROM (VALUES (''), ({self.literal(self.source_name)})) AS mine (queue) WHERE NOT EXISTS ({there})"
            f"{self.on_conflict('uuid, queue')}"
        )

    @contextmanager
    def creating(self, store: Store[Any]) -> Iterator[None]:
        # CREATE .. IF NOT EXISTS fails where another transaction creates the same.
        with store.atomic():
            for schema in self.installed_in(store):
                store.execute(f"SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext({self.literal(schema)}))")
            yield

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
            with self.creating(store):
                if store.execute(f"SELECT 1 WHERE to_regclass('{QUEUES}') IS NOT NULL"):
                    self.one_at_a_time(store, within=True)  # before the table is locked, as puts do
                yield
        except Exception as error:
            unique = self.machine.guard("unique") and store.is_failure(error) and not store.is_refusal(error)
            if not unique or not store.execute(self.is_partitioned):
                raise
            raise ConfigurationError(
                f"{self.source.name} is partitioned, where PostgreSQL keeps unique only what the partitions are chosen "
                f"by ({error}): partition it by the role 'unique' alone, or leave the feature 'unique' away"
            ) from error

    def taken_at_last(self, store: Store[Any]) -> int:
        try:
            with store.atomic():
                # It locks the table, and looks at what there is now, also from within a transaction that sees the past.
                store.execute(f"ALTER TABLE {self.table_in_schema} ADD CHECK (NOT ({self.is_state(TAKEN)}))")
        except Exception as error:
            if not store.is_refusal(error):
                raise
            return self.taken_now(store) or 1
        return 0

    # rights

    def grantee(self, user: str) -> str:
        if len(user.encode()) > 63:  # it would be cut off, and be another one
            raise BadValue(f"PostgreSQL has no user whose name is longer than 63 bytes: {shown(user)}")
        if user == "public":  # quoted or not
            raise BadValue("public is everybody on PostgreSQL, and no user")
        return self.quote(user)

    def where_granted(self, store: Store[Any], to: str) -> list[str]:
        return [f"GRANT USAGE ON SCHEMA {self.quote(schema)} TO {to}" for schema in self.installed_in(store)]

    def more_grants(self, store: Store[Any], to: str) -> list[str]:
        # Of an identity nobody asks for a right.
        numbers = store.execute(
            "SELECT DISTINCT CAST(c.oid::regclass AS text) FROM pg_attrdef AS a "
            "JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid "
            "JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.relkind = 'S' "
            f"WHERE a.adrelid = to_regclass({self.literal(self.table_in_schema)}) ORDER BY 1"
        )
        triggers = [f"{self.object(item.name)}()" for item in self.triggers()]
        return [
            *(f"GRANT USAGE ON SEQUENCE {sequence} TO {to}" for (sequence,) in numbers),
            # What triggers write nobody else may: they do so as their owner. No operator or function of another schema
            # may stand in the place of one that they mean, nor may a trigger of another's call them.
            *(f"ALTER FUNCTION {one} SECURITY DEFINER SET search_path = pg_catalog, pg_temp" for one in triggers),
            *(f"REVOKE EXECUTE ON FUNCTION {one} FROM PUBLIC" for one in triggers),
        ]

    def may_move(self, store: Store[Any]) -> bool:
        ((may,),) = store.execute(
            f"SELECT has_table_privilege(to_regclass({self.literal(self.table_in_schema)}), 'UPDATE')"
        )
        return bool(may)

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
        found = store.execute(
            "SELECT relname, 'table' FROM pg_class WHERE relkind IN ('r', 'p') AND "
            f"(oid IN ({shared}) OR (relname LIKE {self.like_mine} AND "
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

    def side_tables(self) -> list[Object]:
        keys, parts = ", ".join(self.keys), ", ".join(self._parts())
        nothing = f"FROM {self.table_in_schema} WITH NO DATA"
        # In the types of the key, whatever they are.
        tables = {
            "count": ("(tube text, source text, target text, n bigint NOT NULL)", ""),
            "wait": (
                f"AS SELECT {self.keys_as_parts}, CAST('' AS text) AS waiter, CAST('' AS text) AS session, "
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
        utubes = self.utubes
        if utubes:
            mine = ", ".join(f"{column} AS {name}" for name, column in zip(utubes.columns, utubes.ordered, strict=True))
            tables[utubes.suffix] = (
                f"AS SELECT {utubes.head(self.table)} AS utube, CAST(0 AS bigint) AS taken, {mine} {nothing}",
                "utube",
            )
            tables[NEWS] = (f"AS SELECT {utubes.head(self.table)} AS utube {nothing}", "")
        found = []
        for suffix, (body, key) in tables.items():
            more, table = [], self.side(suffix)
            if key:
                unique = self.quote(self.name(f"{suffix}_key"))
                more.append(f"CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {table} ({key})")
            if utubes and suffix == utubes.suffix:
                order, most = utubes.order(utubes.columns, ""), self.quote(self.name(f"{suffix}_most"))
                more += [
                    f"CREATE INDEX IF NOT EXISTS {self.quote(self.name(f'{suffix}_open'))} ON {table} ({order}) "
                    f"WHERE {utubes.is_open()}",
                    f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {most}",
                    f"ALTER TABLE {table} ADD CONSTRAINT {most} CHECK (taken <= {utubes.most})",
                    f"ALTER TABLE {table} ALTER COLUMN taken SET NOT NULL",
                ]
                more.append(f"ALTER TABLE {table} SET ({BUSY}, fillfactor = 50)")  # with room for other versions
            if suffix == "history":  # read on from a number; of some bytes for a hundred pages, and as good as free
                name = self.quote(self.name(f"{suffix}_xid"))
                more.append(f"CREATE INDEX IF NOT EXISTS {name} ON {table} USING brin (xid) WITH (autosummarize = on)")
            if suffix == NEWS:
                more.append(
                    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                    "ADD COLUMN IF NOT EXISTS teller xid8"
                )
            if suffix in ("count", NEWS):  # rewritten all the time
                more.append(f"ALTER TABLE {table} SET ({BUSY})")
            found.append(self.side_table(suffix, body, *more))
        return found

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.quote(self.name(suffix))} "
            f"ON {self.table_in_schema} ({columns}) WHERE {condition}",
        )

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
    if field.kind in (*INTEGERS, "decimal") and not alone:
        return part
    if field.type.upper() in BYTES:
        return f"UPPER(encode({part}, 'hex'))"
    if field.kind == "uuid":  # the application's, too, which is written without dashes
        part = f"CAST({part} AS uuid)"
    return f"CAST({part} AS text)"
