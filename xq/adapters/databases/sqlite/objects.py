"""The objects that installing a queue creates on SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.objects import Object
from xq.adapters.databases.sqlite.event_context import ACTOR, AT, EVENT, REASON, read
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.core.machine import ELSEWHERE, READY
from xq.core.ports import INTEGERS, Connections, Field

MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
MARK = "tube = '' AND source = '' AND target = ''"  # the counter whose number is the id up to which others are sums
ADD_UP = 1_000  # rows of the history that are added up at a time, and the most that `stats` reads
ADDED = ("actor", "reason")  # columns that the history of an earlier layout lacks
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
        tables = ", ".join(map(self.literal, [self.source.name, self.name("count"), self.name("history")]))
        mine = f"tbl_name COLLATE NOCASE IN ({tables})"
        listed = (
            f"SELECT name, type FROM {self.quote(schema)}.sqlite_master WHERE {mine} OR (type = 'table' AND ({chosen}))"
            for schema in dict.fromkeys(["main", self.source.schema or "main"])
        )
        return {name: str(kind) for sql in listed for name, kind in store.execute(sql)}

    @property
    def definitions(self) -> str:
        mine = f"tbl_name = {self.literal(self.source.name)} COLLATE NOCASE"
        return f"SELECT name, sql FROM {self._schema}.sqlite_master WHERE type <> 'table' AND {mine} AND sql <> ''"

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        listed = "SELECT name, hidden <> 0 FROM pragma_table_xinfo(:name, :schema)"
        values = {"name": table, "schema": self.source.schema or "main"}
        return {name: bool(made) for name, made in self.execute(store, listed, values)}

    locks = dict.fromkeys(("tables", "columns", "index", "triggers", "count"), ("the write lock of the file",) * 2)

    def add_own(self, store: Connections) -> list[str]:
        there = self.columns_of(store, self.source.name)
        added = [definition for column, definition in self.own.items() if column not in there]
        return [f"ALTER TABLE {self.table_in_schema} ADD COLUMN {definition}" for definition in added]

    def widening(self, store: Connections) -> list[str]:
        of_history = [f"{column} TEXT" for column in ADDED if self.has_history]
        wanted = {table: (self.in_schema("").columns_of(store, table), lacked) for table, lacked in self.later.items()}
        wanted[self.side("history")] = (self.columns_of(store, self.name("history")), of_history)
        return [
            f"ALTER TABLE {table} ADD COLUMN {column}"
            for table, (there, columns) in wanted.items()
            for column in columns
            if there and column.partition(" ")[0] not in there
        ]

    def side_tables(self) -> list[Object]:
        kinds = list(map(_type, self.source.key))
        values = {
            "keys": ", ".join(self.keys),
            "typed_keys": ", ".join(f"{key} {kind}" for key, kind in zip(self.keys, kinds, strict=True)),
            "parts": ", ".join(self._parts()),
            "typed_parts": ", ".join(f"{part} {kind}" for part, kind in zip(self._parts(), kinds, strict=True)),
        }
        wanted = {"count": True, "wait": True, "history": self.has_history}
        texts = {"history": ("history", "mark")} if self.history_counts else {"count": ("count", "no_mark")}
        made = [self._side_table(name, values, *texts.get(name, (name,))) for name, there in wanted.items() if there]
        return [*made, self._heads(self.groups)] if self.groups else made

    def _side_table(self, suffix: str, values: Mapping[str, str], *texts: str) -> Object:
        known = {"name": self.side(suffix), "count": self.side("count"), "is_mark": MARK, **values}
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

    def _indexes(self) -> dict[str, tuple[str, str, bool]]:
        found = super()._indexes()
        of_tube = f"oldest_{READY}_of_tube"
        if of_tube in found and self.source.roles["tube"].null:  # else SQLite would not use the index
            columns, condition, unique = found[of_tube]
            found[of_tube] = columns, f"{condition} AND {self.roles['tube']} IS NOT NULL", unique
        return found

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
        wanted = {"insert": True, "update": True, "update_task": True, "update_utube": bool(groups), "delete": True}
        wanted |= dict.fromkeys(("add_up", "noted", "pruned"), self.history_counts)
        for text in (text for text, there in wanted.items() if there):
            known = {**self._in_triggers, "name": self.side(text)}
            if groups:
                changes = groups.changes_of(text.partition("_")[0])
                known["groups"] = " ".join(sql for change in changes for sql in groups.on_change(change))
            dropped = self.drop("trigger", self.name(text))
            found.append(self.made("trigger", text, dropped, self.filled_in(TRIGGERS, text, known)))
        return found

    @property
    def _in_triggers(self) -> dict[str, str]:
        """Returns what the triggers' texts name, as SQL. A trigger names no schema, and means its own."""
        status, alone = self.roles["status"], self.in_schema("")
        known = {
            "table": self.table,
            "status": status,
            "identity": ", ".join(self.keys),
            **{name: self.quote(self.name(name)) for name in ("count", "wait", "history")},
            "other_status": self.differ(f"OLD.{status}", f"NEW.{status}"),
            "other_key": self.moved_key,
            "other_task": self.moved_key,
            "its_wait": self.same_wait("", "OLD"),
            "event": read(EVENT),
            "at": self._at,
            "noted": self.noted,
            "by_actor": f"NULLIF({read(ACTOR)}, '{ACTOR}')",
            "by_reason": f"NULLIF({read(REASON)}, '{REASON}')",
            "is_mark": MARK,
            "counted_up_to": alone.counted_up_to,
            "newest": alone.newest,
            "rows": str(ADD_UP),
        }
        known |= self.of_version("OLD", "old", "was") | self.of_version("NEW", "new", "is")
        if self.groups:
            known["watched"] = ", ".join(dict.fromkeys([self.groups.role, *self.groups.watched]))
        if self.tube_stats:
            tube = self.roles["tube"]
            other_tube = self.differ(f"OLD.{tube}", f"NEW.{tube}")
            known |= {
                "tube": tube,
                "identity": f"{known['identity']}, {tube}",
                "other_tube": other_tube,
                "other_task": f"{self.moved_key} OR {other_tube}",
                "elsewhere": ELSEWHERE,
                "counted_in_history": self.counted("tube"),
            }
        return known

    # the history as the counters

    @property
    def history_counts(self) -> bool:
        """Whether the rows of the history are the counters. With a limit each put reads those, so they are added up."""
        return self.has_history and not self.machine.guard("limit")

    def _words(self) -> set[str]:
        words = super()._words()
        if self.history_counts:
            return words | {"history_counts"}
        return words | {"counters"} | ({"counters_of_tubes"} if self.tube_stats else set())

    @property
    def counted_up_to(self) -> str:
        """Returns the id up to which the counters have the rows of the history."""
        return f"(SELECT n FROM {self.side('count')} WHERE {MARK})"

    @property
    def newest(self) -> str:
        """Returns the id of the newest row of the history."""
        return f"(SELECT COALESCE(MAX(id), 0) FROM {self.side('history')})"

    @property
    def counters(self) -> str:
        if not self.history_counts:
            return super().counters
        noted = f"FROM {self.side('history')} WHERE id > {self.counted_up_to} AND source <> target"
        found = [
            f"SELECT tube, source, target, n FROM {self.side('count')} WHERE NOT ({MARK})",
            f"SELECT '', source, target, 1 {noted}",
            *([f"SELECT tube, source, target, 1 {noted} AND {self.counted('tube')}"] if self.tube_stats else []),
        ]
        return f"SELECT tube, source, target, SUM(n) AS n, 1 FROM ({' UNION ALL '.join(found)}) GROUP BY 1, 2, 3"

    @property
    def begun(self) -> str:
        return f"{super().begun} WHERE NOT ({MARK})" if self.history_counts else super().begun

    def add_up_history(self, store: Connections) -> None:
        if all(self.columns_of(store, self.name(suffix)) for suffix in ("count", "history")):
            store.execute(f"UPDATE {self.side('count')} SET n = {self.newest} WHERE {MARK}")

    @property
    def _at(self) -> str:
        """Returns SQL of the time of a transition, in microseconds since 1970."""
        # SQLite's own time has milliseconds, and is later where the statement waited for a lock. The time of a test's
        # clock is text, which is greater than any number; the column makes a number of it.
        return f"MAX(COALESCE(NULLIF({read(AT)}, '{AT}'), 0), {microseconds(MACHINE_TIME)})"

    elapsed = "MAX(0, at_us - {})"  # the time of a row is exact, or cut to milliseconds: see _at


def _type(field: Field) -> str:
    """Return the type of a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
