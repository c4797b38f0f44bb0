"""The objects that installing a queue creates on SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.objects import Object
from xq.adapters.databases.sqlite.event_context import CLOCK, EVENT, OWNER, SENT, read
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.core.machine import ELSEWHERE
from xq.core.ports import INTEGERS, Connections, Field

MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))


def microseconds(seconds: str) -> str:
    return f"CAST(ROUND({seconds} * 1000000.0) AS INTEGER)"


class SqliteObjects(Dialect):
    """Side tables have no rowid, indexes are partial, and the statements of a trigger have conditions."""

    groups: SqliteGroups | None

    @property
    def _schema(self) -> str:
        return self.quote(self.source.schema or "main")

    def drop(self, kind: str, name: str) -> str:
        # Without a schema SQLite searches all attached ones, and might find the index of another queue.
        return f"DROP {kind.upper()} IF EXISTS {self._schema}.{self.quote(name)}"

    def existing(self, store: Connections) -> dict[str, str]:
        # Filtered in SQL, since a file may have the objects of a thousand queues.
        shared, prefix = ", ".join(self.literal(item.name) for item in self.shared()), self.name("")
        chosen = f"name IN ({shared}) OR substr(name, 1, {len(prefix)}) = {self.literal(prefix)}"
        # Indexes and triggers of a table that was renamed belong to the renamed one.
        mine = f"tbl_name = {self.literal(self.source.name)} COLLATE NOCASE"
        listed = (
            f"SELECT name, type FROM {self.quote(schema)}.sqlite_master WHERE {mine} OR (type = 'table' AND ({chosen}))"
            for schema in dict.fromkeys(["main", self.source.schema or "main"])
        )
        return {name: str(kind) for sql in listed for name, kind in store.execute(sql)}

    def table_columns(self, store: Connections) -> set[str]:
        present = {name.lower() for name in self.columns_of(store, self.source.name)}
        return {field.column for field in self.source.fields if field.column.lower() in present}

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        listed = "SELECT name, hidden <> 0 FROM pragma_table_xinfo(:name, :schema)"
        values = {"name": table, "schema": self.source.schema or "main"}
        return {name: bool(made) for name, made in self.execute(store, listed, values)}

    def side_tables(self) -> list[Object]:
        kinds = list(map(_type, self.source.key))
        values = {
            "keys": ", ".join(self.keys),
            "typed_keys": ", ".join(f"{key} {kind}" for key, kind in zip(self.keys, kinds, strict=True)),
            "parts": ", ".join(self._parts()),
            "typed_parts": ", ".join(f"{part} {kind}" for part, kind in zip(self._parts(), kinds, strict=True)),
        }
        wanted = {"count": True, "wait": True, "owner": "owner" not in self.roles, "history": self.has_history}
        made = [self._side_table(name, values, name) for name, there in wanted.items() if there]
        return [*made, self._heads(self.groups)] if self.groups else made

    def _side_table(self, suffix: str, values: Mapping[str, str], *texts: str) -> Object:
        known = {"name": self.side(suffix), **values}
        return self.made("table", suffix, *(self.filled_in(TABLES, text, known) for text in texts))

    def _heads(self, utubes: SqliteGroups) -> Object:
        fields = [self.source.roles[role] for role in ("utube", *self.source.ordered_by)]
        types = map(_type, [*fields, *self.source.key])
        names = ["utube", *utubes.columns]
        values = {
            "typed_heads": ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True)),
            "most": str(utubes.most),
            "columns": ", ".join(utubes.columns),
            "is_open": utubes.is_open(),
            "open": self.object(self.name(f"{utubes.suffix}_open")),
            "heads": self.quote(self.name(utubes.suffix)),
        }
        return self._side_table(utubes.suffix, values, "heads", "heads_open")

    def stage_body(self, place: str, options: Sequence[str]) -> tuple[str, ...]:
        fields = [f"{self.quote(field.column)} {_type(field)}" for field in self.source.fields]
        return (f"({', '.join([f'{place} INTEGER PRIMARY KEY', *fields, *(f'{option} REAL' for option in options)])})",)

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.side(suffix)} "
            f"ON {self.table} ({columns}) WHERE {condition}",
        )

    def triggers(self) -> list[Object]:
        groups = self.in_schema("").groups  # a trigger names no schema
        found = []
        for event in ("insert", "update", "delete"):
            known = {**self._in_triggers, "name": self.side(event)}
            if groups:
                known["groups"] = " ".join(
                    sql for change in groups.changes_of(event) for sql in groups.on_change(change)
                )
            dropped = self.drop("trigger", self.name(event))
            found.append(self.made("trigger", event, dropped, self.filled_in(TRIGGERS, event, known)))
        return found

    @property
    def _in_triggers(self) -> dict[str, str]:
        """Returns what the triggers' texts name, as SQL. A trigger names no schema, and means its own."""
        status = self.roles["status"]
        known = {
            "table": self.table,
            "watched": ", ".join(self.watched()),
            **{name: self.quote(self.name(name)) for name in ("count", "wait", "owner", "history")},
            "other_status": self.differ(f"OLD.{status}", f"NEW.{status}"),
            "other_key": self.moved_key,
            "its_wait": self.same_wait("", "OLD"),
            "its_owner": self.same_key("", "OLD"),
            "event": read(EVENT),
            "at": self._at,
        }
        known |= self.of_version("OLD", "old", "was") | self.of_version("NEW", "new", "is")
        if self.tube_stats:
            tube = self.roles["tube"]
            known |= {
                "tube": tube,
                "other_tube": self.differ(f"OLD.{tube}", f"NEW.{tube}"),
                "elsewhere": ELSEWHERE,
            }
        return known

    @property
    def _at(self) -> str:
        """Returns SQL of the time of a transition, in microseconds since 1970."""
        # SQLite's own time has milliseconds, and is later where the statement waited for a lock.
        sent = f"MAX(COALESCE(NULLIF({read(SENT)}, '{SENT}'), 0), {microseconds(MACHINE_TIME)})"
        return f"COALESCE(NULLIF({read(CLOCK)}, '{CLOCK}'), {sent})"

    @property
    def since_before(self) -> str:
        return f"MAX(0, {super().since_before})"  # the time of a row is exact, or cut to milliseconds: see _at

    def owner_of(self, version: str) -> str:
        if "owner" in self.roles:
            return f"{version}.{self.roles['owner']}"
        if version == "NEW":
            return f"NULLIF({read(OWNER)}, '{OWNER}')"
        return f"(SELECT owner FROM {self.quote(self.name('owner'))} WHERE {self.same_key('', 'OLD')})"


def _type(field: Field) -> str:
    """Return the type of a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
