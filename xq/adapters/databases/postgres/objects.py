"""The objects that installing a queue creates on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import ClassVar

from xq.adapters.databases.groups import Groups
from xq.adapters.databases.objects import Object
from xq.adapters.databases.postgres.groups import PostgresGroups
from xq.adapters.databases.records import QUEUES
from xq.adapters.databases.server import Server
from xq.adapters.databases.session_connection import ALIVE
from xq.core.errors import ConfigurationError
from xq.core.ports import Connections

LIMITS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
SET_LIMITS = "SELECT set_config('lock_timeout', '{}', false), set_config('statement_timeout', '{}', false)"
# The columns of a primary key. information_schema hides them from a user that has SELECT alone.
KEY = """
SELECT attname FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indrelid
CROSS JOIN unnest(indkey) WITH ORDINALITY AS parts (number, place)
JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = number
WHERE indisprimary AND relname = %s AND relnamespace = COALESCE(%s, current_schema())::regnamespace ORDER BY place
"""


class PostgresObjects(Server):
    """Columns of the key in other tables have its types, by CREATE TABLE AS. An advisory lock admits one installer."""

    groups: PostgresGroups | None

    # installing

    @contextmanager
    def creating(self, store: Connections) -> Iterator[None]:
        # CREATE .. IF NOT EXISTS fails if another transaction creates the same object.
        within = store.in_transaction()
        with store.atomic():
            if not within:  # a snapshot of REPEATABLE READ would be older than the lock
                store.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            for schema in self.installed_in(store):
                store.execute(f"SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext({self.literal(schema)}))")
            yield

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        elsewhere = store.execute(
            "SELECT CAST(relnamespace::regnamespace AS text), current_schema() FROM pg_class WHERE oid = "
            f"{self._this_table} AND relnamespace::regnamespace <> "
            "to_regnamespace(quote_ident(current_schema()))"
        )
        if elsewhere and not self.source.schema:
            ((there, here),) = elsewhere
            raise ConfigurationError(
                f"{self.source.name} is in the schema {there}, and what belongs to it would come into {here}, "
                f"the first of search_path: say in the model where it is (class Meta: schema = {there!r})"
            )
        with self.creating(store):
            # Query a table: to_regclass alone may miss what others have dropped meanwhile.
            if store.execute(f"SELECT 1 FROM pg_class WHERE oid = to_regclass('{QUEUES}')"):
                self.one_at_a_time(store, within=True)  # before the table is locked, as puts do
            yield

    locks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "columns": ("ACCESS EXCLUSIVE: reads and writes wait",) * 2,
        "index": ("SHARE: writes wait", "SHARE UPDATE EXCLUSIVE: reads and writes go on"),
        "triggers": ("ACCESS EXCLUSIVE: reads and writes wait", "SHARE ROW EXCLUSIVE: writes wait"),
    }
    online_scans = 2

    @property
    def _this_table(self) -> str:
        return f"to_regclass({self.literal(self.table_in_schema)})"

    @property
    def estimate(self) -> str:
        return (
            f"SELECT GREATEST(reltuples, pg_stat_get_live_tuples(oid), 0) FROM pg_class WHERE oid = {self._this_table}"
        )

    @property
    def in_the_way(self) -> str:  # type: ignore[override]
        return (
            "WITH lock AS (SELECT pid, virtualtransaction FROM pg_locks WHERE granted AND relation = "
            f"{self._this_table}) SELECT who, CAST(extract(epoch FROM clock_timestamp() - since) AS float8) FROM ("
            "SELECT concat('process ', pid, ' of ', usename, ' (' || nullif(application_name, '') || ')') AS who, "
            "xact_start AS since, pid IN (SELECT pid FROM lock) AS locks FROM pg_stat_activity WHERE "
            "datname = current_database() AND pid <> pg_backend_pid() AND (coalesce(backend_xmin, backend_xid) IS NOT "
            "NULL OR pid IN (SELECT pid FROM lock)) UNION ALL SELECT concat('the two-phase commit ', gid, ' of ', "
            "owner), prepared, concat('-1/', transaction) IN (SELECT virtualtransaction FROM lock) FROM "
            "pg_prepared_xacts WHERE database = current_database()) AS found "
            "WHERE since < clock_timestamp() - make_interval(secs => :n) ORDER BY locks DESC, since"
        )

    def online(self, sql: str) -> str:
        return sql.replace("INDEX IF", "INDEX CONCURRENTLY IF", 1)

    @contextmanager
    def admitted(self, store: Connections) -> Iterator[bool]:
        # Not by a lock that waits: CREATE INDEX CONCURRENTLY would wait for the snapshot of the waiter.
        lock = f"(hashtext('xq online'), hashtext({self.literal(self.table_in_schema)}))"
        ((admitted,),) = store.execute(f"SELECT pg_try_advisory_lock{lock}")
        try:
            yield admitted
        finally:
            if admitted:
                store.execute(f"SELECT pg_advisory_unlock{lock}")

    @contextmanager
    def briefly(self, store: Connections, seconds: float, kind: str) -> Iterator[None]:
        if kind == "index":
            # CREATE INDEX CONCURRENTLY waits for older transactions, and blocks no writer meanwhile.
            ((locks, statements),) = store.execute(LIMITS)
            store.execute(SET_LIMITS.format(0, 0))
            try:
                yield
            finally:
                store.execute(SET_LIMITS.format(locks, statements))
            return
        with self.creating(store) if kind == "count" else self.installing(store):
            # In milliseconds. The rest of the time is for the step itself.
            limit = "statement_timeout = 0" if kind == "count" else f"lock_timeout = {ceil(seconds * 900)}"
            store.execute(f"SET LOCAL {limit}")
            yield

    # what is installed

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.object(name)}() CASCADE"  # also drops its triggers
        return super().drop(kind, name)

    def existing(self, store: Connections) -> dict[str, str]:
        shared = ", ".join(f"to_regclass({self.literal(item.name)})" for item in self.shared())
        mine = self._this_table
        found = store.execute(
            "SELECT relname, 'table' FROM pg_class WHERE relkind = 'r' AND "
            f"(oid IN ({shared}) OR (relname LIKE {self.like_mine} AND "
            f"relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = {mine}))) "
            "UNION ALL SELECT c.relname, 'index' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"WHERE i.indrelid = {mine} AND i.indisvalid "
            f"UNION ALL SELECT tgname, 'trigger' FROM pg_trigger WHERE tgrelid = {mine} AND NOT tgisinternal"
        )
        return {name: str(kind) for name, kind in found}

    def broken(self, store: Connections) -> dict[str, str]:
        found = store.execute(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            f"WHERE indrelid = {self._this_table} AND NOT indisvalid"
        )
        return {name: "index" for (name,) in found}

    @property
    def definitions(self) -> str:
        table = self.literal(self.table_in_schema)
        here = f"quote_ident(current_schema()) || '.{ALIVE if self.source.schema else ''}'"  # see Triggers
        return (
            f"SELECT relname, concat('CREATE ', CASE WHEN indisunique THEN 'UNIQUE ' END, 'INDEX ', relname, ' ON ', "
            f"{table}, regexp_replace(regexp_replace(pg_get_indexdef(indexrelid), '^.*? USING btree', ''), "
            """'::("[^"]+"|[a-z ]+)(\\([0-9,]+\\))?(\\[\\])?', '', 'g')) """
            f"FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = to_regclass({table}) "
            "UNION ALL SELECT tgname, CASE tgenabled WHEN 'D' THEN 'disabled' ELSE "
            f"replace(prosrc, {here}, '@here@.{ALIVE if self.source.schema else ''}') END FROM pg_trigger "
            f"JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgrelid = to_regclass({table}) AND NOT tgisinternal"
        )

    def table_columns(self, store: Connections) -> set[str]:
        return {*self.columns_of(store, self.source.name)} & {field.column for field in self.source.fields}

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        found = store.execute(
            "SELECT attname, attgenerated <> '' FROM pg_attribute "
            f"WHERE attrelid = to_regclass({self.literal(self.object(table))}) AND attnum > 0 AND NOT attisdropped"
        )
        return {name: bool(made) for name, made in found}

    tables_file = Path(__file__).parent / "tables.sql"

    def heads_values(self, utubes: Groups) -> dict[str, str]:
        pairs = zip(self.ordered, utubes.columns, strict=True)
        return {
            "utube": utubes.head(self.table),
            "ordered_as_columns": ", ".join(f"{mine} AS {column}" for mine, column in pairs),
            "order": self.order_by(utubes.columns),
            "is_open": utubes.is_open(),
        }

    def names_beside(self, suffix: str) -> dict[str, str]:
        return {f"name_{one}": self.quote(self.name(f"{suffix}_{one}")) for one in ("key", "open", "most", "xid")}

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.quote(self.name(suffix))} "
            f"ON {self.table_in_schema} ({columns}) WHERE {condition}",
        )
