"""The objects that installing a queue creates on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xq.adapters.databases.dirty_groups import DIRTY
from xq.adapters.databases.objects import Object
from xq.adapters.databases.postgres.groups import PostgresGroups
from xq.adapters.databases.records import QUEUES
from xq.adapters.databases.server import Server
from xq.core.errors import ConfigurationError
from xq.core.ports import HISTORY, REFUSALS, Connections, ErrorKind

BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"


class PostgresObjects(Server):
    """Columns of the key in other tables have its types, by CREATE TABLE AS. An advisory lock admits one installer."""

    groups: PostgresGroups | None

    # installing

    @contextmanager
    def creating(self, store: Connections) -> Iterator[None]:
        # CREATE .. IF NOT EXISTS fails if another transaction creates the same object.
        with store.atomic():
            for schema in self.installed_in(store):
                store.execute(f"SELECT pg_advisory_xact_lock(hashtext('xq'), hashtext({self.literal(schema)}))")
            yield

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
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
                # Query a table: to_regclass alone may miss what others have dropped meanwhile.
                if store.execute(f"SELECT 1 FROM pg_class WHERE oid = to_regclass('{QUEUES}')"):
                    self.one_at_a_time(store, within=True)  # before the table is locked, as puts do
                yield
        except Exception as error:
            unique = self.machine.guard("unique") and store.classify(error) not in (ErrorKind.NOT_DATABASE, *REFUSALS)
            if not unique or not store.execute(self.is_partitioned):
                raise
            raise ConfigurationError(
                f"{self.source.name} is partitioned, where PostgreSQL keeps unique only what the partitions are chosen "
                f"by ({error}): partition it by the role 'unique' alone, or leave the feature 'unique' away"
            ) from error

    @property
    def is_partitioned(self) -> str:
        """Return a query that finds a row if the table is partitioned."""
        return f"SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass({self.literal(self.table_in_schema)})"

    # what is installed

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.object(name)}() CASCADE"  # also drops its triggers
        return super().drop(kind, name)

    def existing(self, store: Connections) -> dict[str, str]:
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

    def table_columns(self, store: Connections) -> set[str]:
        return {*self.columns_of(store, self.source.name)} & {field.column for field in self.source.fields}

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        found = store.execute(
            "SELECT attname, attgenerated <> '' FROM pg_attribute "
            f"WHERE attrelid = to_regclass({self.literal(self.object(table))}) AND attnum > 0 AND NOT attisdropped"
        )
        return {name: bool(made) for name, made in found}

    def side_tables(self) -> list[Object]:
        keys, parts = ", ".join(self.keys), ", ".join(self._parts())
        nothing = f"FROM {self.table_in_schema} WITH NO DATA"
        # Use the types of the key's columns.
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
            types = {"bigauto": self.serial, "bigint": "bigint", "text": "text"}
            columns = ", ".join(f'"{column}" {types[kind]}' for column, kind in HISTORY.items())
            xid = "xid bigint DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
            tables["history"] = (f"({columns}, {xid})", "")
        utubes = self.groups
        if utubes:
            mine = ", ".join(f"{column} AS {name}" for name, column in zip(utubes.columns, self.ordered, strict=True))
            tables[utubes.suffix] = (
                f"AS SELECT {utubes.head(self.table)} AS utube, CAST(0 AS bigint) AS taken, {mine} {nothing}",
                "utube",
            )
            tables[DIRTY] = (f"AS SELECT {utubes.head(self.table)} AS utube {nothing}", "")
        found = []
        for suffix, (body, key) in tables.items():
            more, table = [], self.side(suffix)
            if key:
                unique = self.quote(self.name(f"{suffix}_key"))
                more.append(f"CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {table} ({key})")
            if utubes and suffix == utubes.suffix:
                order, most = self.order_by(utubes.columns), self.quote(self.name(f"{suffix}_most"))
                more += [
                    f"CREATE INDEX IF NOT EXISTS {self.quote(self.name(f'{suffix}_open'))} ON {table} ({order}) "
                    f"WHERE {utubes.is_open()}",
                    f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {most}",
                    f"ALTER TABLE {table} ADD CONSTRAINT {most} CHECK (taken <= {utubes.most})",
                    f"ALTER TABLE {table} ALTER COLUMN taken SET NOT NULL",
                ]
                more.append(f"ALTER TABLE {table} SET ({BUSY}, fillfactor = 50)")  # with room for other versions
            if suffix == "history":  # readers continue from a transaction number; a BRIN index costs almost nothing
                name = self.quote(self.name(f"{suffix}_xid"))
                more.append(f"CREATE INDEX IF NOT EXISTS {name} ON {table} USING brin (xid) WITH (autosummarize = on)")
            if suffix == DIRTY:
                more.append(
                    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                    "ADD COLUMN IF NOT EXISTS writer xid8"
                )
            if suffix in ("count", DIRTY):  # their rows are replaced all the time
                more.append(f"ALTER TABLE {table} SET ({BUSY})")
            found.append(self.side_table(suffix, body, *more))
        return found

    def stage_body(self, place: str, options: Sequence[str]) -> tuple[str, ...]:
        table = self.staging.stage
        columns = [f"CAST(0 AS bigint) AS {place}", self.columns, *(f"CAST(0 AS float8) AS {name}" for name in options)]
        unique = self.quote(self.name(f"{self.staging.suffix}_key"))
        return (
            f"AS SELECT {', '.join(columns)} FROM {self.table_in_schema} WITH NO DATA",
            f"CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {table} ({place})",
            # Unlogged, so writes take half the time. After a crash it is empty: rows are counted before they are put.
            f"ALTER TABLE {table} SET UNLOGGED",
        )

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.quote(self.name(suffix))} "
            f"ON {self.table_in_schema} ({columns}) WHERE {condition}",
        )
