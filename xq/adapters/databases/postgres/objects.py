"""The objects that installing a queue creates on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xq.adapters.databases.groups import Groups
from xq.adapters.databases.installer.objects import Object
from xq.adapters.databases.installer.server import ServerObjects
from xq.adapters.databases.postgres.triggers import TEXT_OF_TIME, Triggers, part

if TYPE_CHECKING:
    from xq.adapters.databases.postgres.dialect import Postgres

# The columns of a primary key. information_schema hides them from a user that has SELECT alone.
KEY = """
SELECT attname FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indrelid
CROSS JOIN unnest(indkey) WITH ORDINALITY AS parts (number, place)
JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = number
WHERE indisprimary AND relname = %s AND relnamespace = COALESCE(%s, current_schema())::regnamespace ORDER BY place
"""


class PostgresObjects(ServerObjects):
    """Columns of the key in other tables have its types, by CREATE TABLE AS."""

    of: Postgres

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.of.object(name)}() CASCADE"  # also drops its triggers
        return super().drop(kind, name)

    tables_file = Path(__file__).parent / "tables.sql"

    def heads_values(self, utubes: Groups) -> dict[str, str]:
        pairs = zip(self.of.ordered, utubes.columns, strict=True)
        return {
            "utube": utubes.head(self.of.table),
            "ordered_as_columns": ", ".join(f"{mine} AS {column}" for mine, column in pairs),
            "order": self.of.order_by(utubes.columns),
            "is_open": utubes.is_open(),
        }

    def names_beside(self, suffix: str) -> dict[str, str]:
        return {f"name_{one}": self.of.quote(self.of.name(f"{suffix}_{one}")) for one in ("key", "open", "most", "xid")}

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.of.quote(self.of.name(suffix))} "
            f"ON {self.of.table_in_schema} ({columns}) WHERE {condition}",
        )

    def triggers(self) -> list[Object]:
        return Triggers(self.of).all()

    @property
    def ours(self) -> str:
        """Return the condition that the event context is of this statement and this queue."""
        return f"{part(2)} = {self.of.literal(self.of.source_name)} AND {part(6)} = {TEXT_OF_TIME}"

    @property
    def event(self) -> str:
        return f"CASE WHEN {self.ours} THEN {part(1)} ELSE 'write' END"
