"""Installing on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.errors import ConfigurationError
from xq.core.kinds import NUMBERED, REFUSALS
from xq.core.machine import TAKEN
from xq.sql.installer.installer import VIEW
from xq.sql.installer.server import ServerInstaller
from xq.sql.postgres.postgres_objects import PostgresObjects
from xq.sql.shared import QUEUES

OTHERS = "cockroach|redshift|-yb-|dsql|materialize|risingwave|cratedb|questdb"  # in what their version() returns
LIMITS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
SET_LIMITS = "SELECT set_config('lock_timeout', '{}', false), set_config('statement_timeout', '{}', false)"


class PostgresInstaller(ServerInstaller):
    """An advisory lock admits one installer."""

    objects_kind = PostgresObjects

    @property
    def this_table(self) -> str:
        return f"to_regclass({self.terms.literal(self.terms.table_in_schema)})"

    @property
    def no_table(self) -> str:
        return f"SELECT '{VIEW}' FROM pg_class WHERE relkind IN ('v', 'm') AND oid = {self.this_table}"

    others = (
        "SELECT nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace "
        f"WHERE relname = '{QUEUES}' AND relkind = 'r' AND relpersistence <> 't' "
        f"AND c.oid IS DISTINCT FROM to_regclass('{QUEUES}') "
        "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') ORDER BY nspname"
    )
    from_there = "connect with a search_path that begins with"

    def checks(self, store: Connections) -> Iterable[Sequence[str]]:
        table, status = self.this_table, self.terms.source.roles["status"].column
        return store.execute(
            "SELECT 'CONSTRAINT ' || quote_ident(conname) || ' CHECK', pg_get_expr(conbin, conrelid) "
            f"FROM pg_constraint WHERE contype = 'c' AND conrelid = {table} UNION ALL "
            "SELECT format_type(atttypid, atttypmod), format('char_length(%I) <= %s', attname, atttypmod - 4) "
            f"FROM pg_attribute WHERE attrelid = {table} AND attname = {self.terms.literal(status)} "
            "AND atttypmod > 4 AND atttypid IN ('varchar'::regtype, 'bpchar'::regtype)"
        )

    def refuse(self, store: Connections) -> None:
        ((here, may, version, other),) = store.execute(
            "SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), version(), "
            f"version() ~* '{OTHERS}' OR NOT EXISTS (SELECT 1 FROM pg_language WHERE lanname = 'plpgsql')"
        )
        if other:
            raise ConfigurationError(
                f"{store.name} cannot be installed: this server speaks PostgreSQL's protocol, but lacks its triggers "
                f"in PL/pgSQL or its LISTEN ({version}): take PostgreSQL"
            )
        super().refuse(store)
        if not may and not self.existing(store).keys() >= {item.name for item in self.objects.shared()}:
            raise ConfigurationError(
                f"{store.name} cannot be installed: the tables that all queues share belong into the first schema of "
                f"search_path ({here}), where this user may not create any: connect with "
                f'options="-c search_path={self.terms.source.schema or "app"}", or GRANT CREATE ON SCHEMA'
            )

    def unfit(self, store: Connections) -> str | None:
        found = store.execute(
            "SELECT relkind = 'p' OR relispartition FROM pg_class WHERE "
            "(relkind = 'p' OR relispartition OR relpersistence = 'u') "
            f"AND oid = {self.this_table}"
        )
        if found:
            return (
                "it is partitioned, or a partition: a row that moves to another one would be uncounted"
                if found[0][0]
                else f"it is UNLOGGED, so a crash would empty it: ALTER TABLE {self.terms.table_in_schema} SET LOGGED"
            )
        enum = store.execute(
            "SELECT format_type(t.oid, NULL) FROM pg_attribute JOIN pg_type AS t ON t.oid = atttypid "
            f"WHERE typtype = 'e' AND attrelid = {self.this_table} "
            f"AND attname = {self.terms.literal(self.terms.source.roles['status'].column)}"
        )
        if enum:
            return (
                f"its status is of the type {enum[0][0]}, an enum, to which PostgreSQL converts no text by itself: "
                f"ALTER TABLE {self.terms.table_in_schema} ALTER COLUMN {self.terms.roles['status']} DROP DEFAULT, "
                f"ALTER COLUMN {self.terms.roles['status']} TYPE text; a CHECK may list its values"
            )
        return super().unfit(store)

    def taken_at_last(self, store: Connections) -> int:
        try:
            with store.atomic():
                # It locks the table and reads its present state, even in a transaction with an older snapshot.
                store.execute(
                    f"ALTER TABLE {self.terms.table_in_schema} ADD CHECK (NOT ({self.terms.is_state(TAKEN)}))"
                )
        except Exception as error:
            if store.classify(error) not in REFUSALS:
                raise
            return self.taken_now(store) or 1
        return 0

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        elsewhere = store.execute(
            "SELECT CAST(relnamespace::regnamespace AS text), current_schema() FROM pg_class WHERE oid = "
            f"{self.this_table} AND relnamespace::regnamespace <> "
            "to_regnamespace(quote_ident(current_schema()))"
        )
        if elsewhere and not self.terms.source.schema:
            ((there, here),) = elsewhere
            raise ConfigurationError(
                f"{self.terms.source.name} is in the schema {there}, and what belongs to it would come into {here}, "
                f"the first of search_path: say in the model where it is (class Meta: schema = {there!r})"
            )
        with self.creating(store):
            # Query a table: to_regclass alone may miss what others have dropped meanwhile.
            if store.execute(f"SELECT 1 FROM pg_class WHERE oid = to_regclass('{QUEUES}')"):
                self.terms.one_at_a_time(store, within=True)  # before the table is locked, as puts do
            yield

    @property
    def keep_others_out(self) -> str:  # type: ignore[override]
        # The strongest lock at once, which indexes need when they go: a transaction may have read, and write next.
        return f"LOCK TABLE {self.terms.table_in_schema} IN ACCESS EXCLUSIVE MODE"

    locks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "columns": ("ACCESS EXCLUSIVE: reads and writes wait",) * 2,
        "index": ("SHARE: writes wait", "SHARE UPDATE EXCLUSIVE: reads and writes go on"),
        "triggers": ("ACCESS EXCLUSIVE: reads and writes wait", "SHARE ROW EXCLUSIVE: writes wait"),
    }

    online_scans = 2

    @property
    def estimate(self) -> str:
        rows = "GREATEST(reltuples, pg_stat_get_live_tuples(oid), 0)"
        return f"SELECT {rows} FROM pg_class WHERE oid = {self.this_table}"

    @property
    def in_the_way(self) -> str:
        return (
            "WITH lock AS (SELECT pid, virtualtransaction FROM pg_locks WHERE granted AND relation = "
            f"{self.this_table}) SELECT who, CAST(extract(epoch FROM clock_timestamp() - since) AS float8) FROM ("
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
        # Not by a lock that waits: CREATE INDEX CONCURRENTLY would wait for the waiter's snapshot.
        lock = f"(hashtext('xq online'), hashtext({self.terms.literal(self.terms.table_in_schema)}))"
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
            # In milliseconds. The remaining time is for the step itself.
            limit = "statement_timeout = 0" if kind == "count" else f"lock_timeout = {ceil(seconds * 900)}"
            store.execute(f"SET LOCAL {limit}")
            yield

    @property
    def continuing(self) -> Sequence[str]:  # type: ignore[override]
        numbered = ["history"] * self.terms.has_history + [*(self.terms.heads.numbered if self.terms.heads else ())]
        sides = [self.terms.side(each) for each in numbered]
        found = {
            f"pg_get_serial_sequence({self.terms.literal(side)}, 'id')": f"SELECT MAX(id) AS n FROM {side}"
            for side in sides
        }
        if key := self._numbered:
            keys = f"SELECT MAX({self.terms.keys[0]}) AS n FROM {self.terms.table_in_schema}"
            if self.terms.has_history:  # the keys of tasks that are gone are not given again
                numbers = f"FROM {self.terms.side('history')} WHERE key ~ '^[0-9]{{1,18}}$'"
                keys += f" UNION ALL SELECT MAX(CAST(key AS bigint)) {numbers}"
            found[self._sequence(key)] = keys
        return [
            # Only the owner may set it, and others count as well.
            f"SELECT setval({of}, MAX(n)) FROM ({numbers}) AS found "
            f"HAVING CASE WHEN has_sequence_privilege({of}, 'UPDATE') THEN MAX(n) > {_given(of)} END"
            for of, numbers in found.items()
        ]

    @property
    def behind(self) -> str:  # type: ignore[override]
        if not (key := self._numbered):
            return ""
        of, greatest = self._sequence(key), f"MAX({self.terms.keys[0]})"
        return (
            f"SELECT {of}, {_given(of)}, {greatest} FROM {self.terms.table_in_schema} "
            f"HAVING CASE WHEN has_sequence_privilege({of}, 'SELECT') THEN {greatest} > {_given(of)} END"
        )

    @property
    def _numbered(self) -> str:
        """The column of the key, if the database numbers the tasks; else ""."""
        key = self.terms.source.key[0]
        return key.column if key.kind in NUMBERED and "key" not in self.terms.machine.fill else ""

    def _sequence(self, column: str) -> str:
        table = self.terms.literal(self.terms.table_in_schema)
        return f"pg_get_serial_sequence({table}, {self.terms.literal(column)})"

    def go_on(self, n: int) -> str:
        return f"SELECT setval({self._sequence(self.terms.source.key[0].column)}, {n})"

    def existing(self, store: Connections) -> dict[str, str]:
        shared = ", ".join(f"to_regclass({self.terms.literal(name)})" for name in self.objects.shared_names)
        mine = self.this_table
        found = store.execute(
            "SELECT relname, CASE relkind WHEN 'v' THEN 'view' ELSE 'table' END FROM pg_class "
            "WHERE relkind IN ('r', 'v') AND "
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
            f"WHERE indrelid = {self.this_table} AND NOT indisvalid"
        )
        return {name: "index" for (name,) in found}

    @property
    def definitions(self) -> str:
        # A hash must hold after a dump and its restore, which moves a list's casts: `(ARRAY['R'::varchar])::text[]`
        # comes back as `ARRAY[('R'::varchar)::text]`. So an index is compared without its casts and parentheses.
        casts = """'::("[^"]+"|[a-z ]+)(\\([0-9,]+\\))?'"""
        index = f"translate(regexp_replace(pg_get_indexdef(indexrelid), {casts}, '', 'g'), '()[] ', '')"
        # Without the function's name, which the search path shortens.
        trigger = "tgenabled, split_part(pg_get_triggerdef(pg_trigger.oid), ' EXECUTE ', 1), prosrc"
        return (
            f"SELECT relname AS name, {index} AS shown, '' AS body, '' AS here "
            f"FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = {self.this_table} "
            f"UNION ALL SELECT tgname, concat({trigger}), prosrc, quote_ident(current_schema()) FROM pg_trigger "
            f"JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgrelid = {self.this_table} AND NOT tgisinternal "
            f"UNION ALL SELECT relname, pg_get_viewdef(oid), '', '' FROM pg_class WHERE relkind = 'v' AND relname LIKE "
            f"{self.like_mine} AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = {self.this_table})"
        )

    @staticmethod
    def hashed(made: str, shown: str) -> str:
        return f"encode(sha256(convert_to(concat({made}, {shown}), 'UTF8')), 'hex')"

    def table_columns(self, store: Connections) -> set[str]:
        return {*self.columns_of(store, self.terms.source.name)} & {field.column for field in self.terms.source.fields}

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        this = f"to_regclass({self.terms.literal(self.terms.object(table))})"
        found = store.execute(
            f"SELECT attname, attgenerated <> '' FROM pg_attribute WHERE attrelid = {this} AND attnum > 0 "
            "AND NOT attisdropped"
        )
        return {name: bool(made) for name, made in found}


def _given(sequence: str) -> str:
    """Return the last number that a sequence has given."""
    return f"COALESCE(pg_sequence_last_value(CAST({sequence} AS regclass)), 0)"
