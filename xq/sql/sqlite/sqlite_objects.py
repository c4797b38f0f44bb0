"""The objects that installing a queue creates on SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from xq.core.kinds import INTEGERS, Field
from xq.core.machine import READY
from xq.sql.effects import IS_TRANSITION, TRANSITIONS, TRANSITIONS_OF_TUBES, Effect, fill, on_sqlite, written
from xq.sql.installer.objects import Object, Objects
from xq.sql.sqlite.event_context import ACTOR, AT, EVENT, REASON, read
from xq.sql.sqlite.sqlite_queries import MARK, SqliteQueries

MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
# What the triggers of these changes say in their WHEN: an effect need not ask again.
SAID = {"insert": "{surely_is}", "delete": "{surely_was}", "same": IS_TRANSITION}
ADD_UP = 1_000  # history rows that are added up at a time, and the most that `stats` reads
TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))


def microseconds(seconds: str) -> str:
    return f"CAST(ROUND({seconds} * 1000000.0) AS INTEGER)"


class SqliteObjects(Objects):
    """Side tables have no rowid, indexes are partial, and a trigger's statements have conditions."""

    @cached_property
    def queries(self) -> SqliteQueries:
        return SqliteQueries(self.terms.in_schema(""))  # a trigger names no schema

    def drop(self, kind: str, name: str) -> str:
        # Without a schema SQLite searches all attached ones, and might find another queue's index.
        return f"DROP {kind.upper()} IF EXISTS {self.terms.schema}.{self.terms.quote(name)}"

    tables_file = TABLES

    def names_beside(self, suffix: str) -> dict[str, str]:
        types = [*enumerate(map(type_of, self.terms.source.key))]
        return {
            "typed_parts": ", ".join(f"{self.terms.parts[i]} {kind}" for i, kind in types),
            "typed_parents": ", ".join(f"p{i} {kind}" for i, kind in types),
            "name_open": self.terms.object(self.terms.name(f"{suffix}_open")),
            "plain_name": self.terms.quote(self.terms.name(suffix)),  # an index has the schema before its own name
            "count": self.terms.side("count"),
            "is_mark": MARK,
        }

    def index_on(self, suffix: str) -> str:
        return f"{self.terms.side(suffix)} ON {self.terms.table}"

    def triggers(self) -> list[Object]:
        found, heads = [], self.terms.heads
        texts = dict.fromkeys(self._own, "own") | ({heads.trigger: "update_heads"} if heads else {})
        wanted = dict.fromkeys(["insert", "update", "update_task", *([heads.trigger] if heads else []), "delete"], True)
        wanted |= dict.fromkeys(self._own, True)
        wanted |= dict.fromkeys(("add_up", "noted", "pruned"), self.queries.history_counts)
        wanted["left"] = "emptied" in self.words()
        for text in (text for text, there in wanted.items() if there):
            known = {**self.in_triggers(), "name": self.terms.side(text)}
            own = self._own.get(text, ())
            known["when"] = " OR ".join(f"({fill(effect.when, known)})" for effect in own)
            columns = {**self.terms.roles, "key": ", ".join(self.terms.keys)}
            of = dict.fromkeys(columns[role] for effect in own for role in effect.of)
            known["of"] = f" OF {', '.join(of)}" if all(effect.of for effect in own) else ""
            more = {"effects": partial(self._effects, text, known), "heads": partial(self.in_heads, known)}
            dropped = self.drop("trigger", self.terms.name(text))
            sql = self.filled_in(TRIGGERS, texts.get(text, text), {**known, **more})
            found.append(self.made("trigger", text, dropped, sql))
        return found

    @cached_property
    def _own(self) -> dict[str, list[Effect]]:
        """The effects that have triggers of their own, by their suffixes."""
        own = [effect for effect in self.effects if effect.trigger]
        return {effect.trigger: [each for each in own if each.trigger == effect.trigger] for effect in own}

    def _effects(self, trigger: str, known: Mapping[str, str], change: str) -> str:
        """Return what a trigger does after a change."""
        effects = self._own.get(trigger) or [effect for effect in self.effects if not effect.trigger]
        if self.queries.history_counts and trigger != "update_task":
            effects = [effect for effect in effects if effect not in (*TRANSITIONS, *TRANSITIONS_OF_TUBES)]
        said = SAID.get(change)
        effects = [
            replace(effect, on={change: ""}, when="") if effect.on.get(change, "") + effect.when == said else effect
            for effect in effects
        ]
        return written(effects, change, known, self.terms, on_sqlite)

    def in_heads(self, known: Mapping[str, str], change: str) -> str:
        heads = self.terms.in_schema("").heads  # a trigger names no schema
        return heads.in_trigger(change, self.words(), known) if heads else ""

    def body(self, kind: str, name: str, create: str = "") -> str:
        return create.partition(self.terms.quote(name))[2] if kind in ("index", "trigger") else ""

    def in_triggers(self) -> dict[str, str]:
        """Return what the triggers' texts name, as SQL. A trigger names no schema, and means its own."""
        change = self.of_change()
        known = {
            **change,
            "table": self.terms.table,
            "status": self.terms.roles["status"],
            "identity": ", ".join(self.terms.keys),
            **{name: self.terms.quote(self.terms.name(name)) for name in self.written},
            "other_task": change["other_key"],
            "event_name": read(EVENT),
            # SQLite's own time has milliseconds, and is later where the statement waited for a lock. A test's time
            # is text, which is greater than any number; the column turns it into a number.
            "at_us": f"MAX(COALESCE(NULLIF({read(AT)}, '{AT}'), 0), {microseconds(MACHINE_TIME)})",
            "by_actor": f"NULLIF({read(ACTOR)}, '{ACTOR}')",
            "by_reason": f"NULLIF({read(REASON)}, '{REASON}')",
            "is_mark": MARK,
            "counted_up_to": self.queries.counted_up_to,
            "newest": self.queries.newest,
            "rows": str(ADD_UP),
        }
        if self.terms.heads:
            known["watched"] = ", ".join(dict.fromkeys(self.terms.heads.watched))
        if self.terms.tube_stats:
            known |= {
                "identity": f"{known['identity']}, {self.terms.roles['tube']}",
                "other_task": f"({change['other_key']} OR {change['other_tube']})",
                "counted_in_history": self.terms.counted("tube"),
            }
        return known

    def words(self) -> set[str]:
        return super().words() | ({"history_counts"} if self.queries.history_counts else set())

    def wanted_indexes(self) -> dict[str, tuple[str, str, bool]]:
        found = super().wanted_indexes()
        of_tube = f"oldest_{READY}_of_tube"
        if of_tube in found and self.terms.source.roles["tube"].null:  # else SQLite would not use the index
            columns, condition, unique = found[of_tube]
            found[of_tube] = columns, f"{condition} AND {self.terms.roles['tube']} IS NOT NULL", unique
        return found


def type_of(field: Field) -> str:
    """Return the type for a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
