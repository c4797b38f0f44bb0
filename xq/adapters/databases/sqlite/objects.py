"""The objects that installing a queue creates on SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xq.adapters.databases.installer.objects import Object, Objects
from xq.adapters.databases.sqlite.event_context import ACTOR, AT, EVENT, REASON, read
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.adapters.databases.sqlite.looks import MARK
from xq.core.machine import ELSEWHERE, READY
from xq.core.ports import INTEGERS, Field

if TYPE_CHECKING:
    from xq.adapters.databases.sqlite.dialect import Sqlite

MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
ADD_UP = 1_000  # rows of the history that are added up at a time, and the most that `stats` reads
TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))


def microseconds(seconds: str) -> str:
    return f"CAST(ROUND({seconds} * 1000000.0) AS INTEGER)"


class SqliteObjects(Objects):
    """Side tables have no rowid, indexes are partial, and the statements of a trigger have conditions."""

    of: Sqlite

    def drop(self, kind: str, name: str) -> str:
        # Without a schema SQLite searches all attached ones, and might find the index of another queue.
        return f"DROP {kind.upper()} IF EXISTS {self.of.schema}.{self.of.quote(name)}"

    def side_tables(self) -> list[Object]:
        kinds = list(map(_type, self.of.source.key))
        values = {
            "keys": ", ".join(self.of.keys),
            "typed_keys": ", ".join(f"{key} {kind}" for key, kind in zip(self.of.keys, kinds, strict=True)),
            "parts": ", ".join(self.of._parts()),
            "typed_parts": ", ".join(f"{part} {kind}" for part, kind in zip(self.of._parts(), kinds, strict=True)),
        }
        wanted = {"count": True, "wait": True, "history": self.of.has_history}
        texts = {"history": ("history", "mark")} if self.of.looks.history_counts else {"count": ("count", "no_mark")}
        made = [self._side_table(name, values, *texts.get(name, (name,))) for name, there in wanted.items() if there]
        return [*made, self._heads(self.of.groups)] if self.of.groups else made

    def _side_table(self, suffix: str, values: Mapping[str, str], *texts: str) -> Object:
        known = {"name": self.of.side(suffix), "count": self.of.side("count"), "is_mark": MARK, **values}
        return self.made("table", suffix, *(self.filled_in(TABLES, text, known) for text in texts))

    def _heads(self, utubes: SqliteGroups) -> Object:
        fields = [self.of.source.roles[role] for role in ("utube", *self.of.source.ordered_by)]
        types = map(_type, [*fields, *self.of.source.key])
        names = ["utube", *utubes.columns]
        values = {
            "typed_heads": ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True)),
            "most": str(utubes.most),
            "columns": ", ".join(utubes.columns),
            "is_open": utubes.is_open(),
            "open": self.of.object(self.of.name(f"{utubes.suffix}_open")),
            "heads": self.of.quote(self.of.name(utubes.suffix)),
        }
        return self._side_table(utubes.suffix, values, "heads", "heads_open")

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.of.side(suffix)} "
            f"ON {self.of.table} ({columns}) WHERE {condition}",
        )

    def triggers(self) -> list[Object]:
        groups = self.of.in_schema("").groups  # a trigger names no schema
        found = []
        wanted = {"insert": True, "update": True, "update_task": True, "update_utube": bool(groups), "delete": True}
        wanted |= dict.fromkeys(("add_up", "noted", "pruned"), self.of.looks.history_counts)
        for text in (text for text, there in wanted.items() if there):
            known = {**self._in_triggers, "name": self.of.side(text)}
            if groups:
                changes = groups.changes_of(text.partition("_")[0])
                known["groups"] = " ".join(sql for change in changes for sql in groups.on_change(change))
            dropped = self.drop("trigger", self.of.name(text))
            found.append(self.made("trigger", text, dropped, self.filled_in(TRIGGERS, text, known)))
        return found

    @property
    def _in_triggers(self) -> dict[str, str]:
        """Returns what the triggers' texts name, as SQL. A trigger names no schema, and means its own."""
        status, alone = self.of.roles["status"], self.of.in_schema("")
        known = {
            "table": self.of.table,
            "status": status,
            "identity": ", ".join(self.of.keys),
            **{name: self.of.quote(self.of.name(name)) for name in ("count", "wait", "history")},
            "other_status": self.of.differ(f"OLD.{status}", f"NEW.{status}"),
            "other_key": self.moved_key,
            "other_task": self.moved_key,
            "its_wait": self.of.same_wait("", "OLD"),
            "event": read(EVENT),
            "at": self._at,
            "noted": self.noted,
            "by_actor": f"NULLIF({read(ACTOR)}, '{ACTOR}')",
            "by_reason": f"NULLIF({read(REASON)}, '{REASON}')",
            "is_mark": MARK,
            "counted_up_to": alone.looks.counted_up_to,
            "newest": alone.looks.newest,
            "rows": str(ADD_UP),
        }
        known |= self.of_version("OLD", "old", "was") | self.of_version("NEW", "new", "is")
        if self.of.groups:
            known["watched"] = ", ".join(dict.fromkeys([self.of.groups.role, *self.of.groups.watched]))
        if self.of.tube_stats:
            tube = self.of.roles["tube"]
            other_tube = self.of.differ(f"OLD.{tube}", f"NEW.{tube}")
            known |= {
                "tube": tube,
                "identity": f"{known['identity']}, {tube}",
                "other_tube": other_tube,
                "other_task": f"{self.moved_key} OR {other_tube}",
                "elsewhere": ELSEWHERE,
                "counted_in_history": self.of.counted("tube"),
            }
        return known

    def _words(self) -> set[str]:
        words = super()._words()
        if self.of.looks.history_counts:
            return words | {"history_counts"}
        return words | {"counters"} | ({"counters_of_tubes"} if self.of.tube_stats else set())

    @property
    def _at(self) -> str:
        """Returns SQL of the time of a transition, in microseconds since 1970."""
        # SQLite's own time has milliseconds, and is later where the statement waited for a lock. The time of a test's
        # clock is text, which is greater than any number; the column makes a number of it.
        return f"MAX(COALESCE(NULLIF({read(AT)}, '{AT}'), 0), {microseconds(MACHINE_TIME)})"

    def wanted_indexes(self) -> dict[str, tuple[str, str, bool]]:
        found = super().wanted_indexes()
        of_tube = f"oldest_{READY}_of_tube"
        if of_tube in found and self.of.source.roles["tube"].null:  # else SQLite would not use the index
            columns, condition, unique = found[of_tube]
            found[of_tube] = columns, f"{condition} AND {self.of.roles['tube']} IS NOT NULL", unique
        return found


def _type(field: Field) -> str:
    """Return the type of a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
