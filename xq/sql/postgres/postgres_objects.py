"""The objects that installing a queue creates on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from xq.core.acting import PART
from xq.core.kinds import TIMES
from xq.core.machine import ABSENT, READY
from xq.sql.effects import on_postgres, on_postgres_rows, written
from xq.sql.installer.objects import Object, Objects
from xq.sql.shared import ALIVE

TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))
CHANNEL = "xq"
SERVER_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS float8)"  # changes within a transaction, and is stable
TEXT_OF_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS text)"  # for this statement and no other
SOON = 1.0  # seconds; later timers need no notification, as the maintenance thread looks once a second

# A primary key's columns. information_schema hides them from a user that has SELECT alone.
KEY = """
SELECT attname FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indrelid
CROSS JOIN unnest(indkey) WITH ORDINALITY AS parts (number, place)
JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = number
WHERE indisprimary AND relname = %s AND relnamespace = COALESCE(%s, current_schema())::regnamespace ORDER BY place
"""


def part(n: int | str) -> str:
    """Return SQL for one part of the event context."""
    return f"split_part(current_setting('xq.context', true), '{PART}', {n})"


def dollars(text: str) -> str:
    """Return text in dollar quotes that it does not contain."""
    tag = "$xq$"
    while tag in text:
        tag = f"{tag[:-1]}x$"
    return f"{tag} {text} {tag}"


class PostgresObjects(Objects):
    """Columns of the key in other tables have its types, by CREATE TABLE AS."""

    def drop(self, kind: str, name: str) -> str:
        if kind == "trigger":
            return f"DROP FUNCTION IF EXISTS {self.terms.object(name)}() CASCADE"  # also drops its triggers
        # Of the groups also the function that returns one.
        return super().drop(kind, name) + " CASCADE" * (kind == "table" and name == self.terms.name("group"))

    tables_file = TABLES

    def names_beside(self, suffix: str) -> dict[str, str]:
        names = {
            f"name_{one}": self.terms.quote(self.terms.name(f"{suffix}_{one}"))
            for one in ("key", "open", "most", "xid")
        }
        sides = {one: self.terms.side(one) for one in ("back", "high", "count")}
        known = sides | {f"literal_{one}": self.terms.literal(side) for one, side in sides.items()}
        return names | {"make_high": dollars(self.filled_in(TABLES, "high", known))}

    def watched(self) -> list[str]:
        # A task that changes its tube comes to another floor.
        tube = [self.terms.roles["tube"]] if self.terms.floors and "tube" in self.terms.roles else []
        return list(dict.fromkeys([*super().watched(), *tube]))

    def side_tables(self) -> list[Object]:
        named = {table.name: table for table in super().side_tables()}
        for program in Triggers(self).programs:
            for suffix, sql in program.functions.items():
                table = named[self.terms.name(suffix)]
                named[table.name] = replace(table, create=(*table.create, sql))
        return [*named.values()]

    def triggers(self) -> list[Object]:
        return Triggers(self).all()


class Program:
    """What a slice has PostgreSQL's triggers do beside effects: PL/pgSQL, in the slice's file."""

    words: Collection[str] = ()  # for parts of texts: "programs" if it does something within the trigger of updates

    def __init__(self, objects: Triggers, slice: Any) -> None:
        self.objects, self.terms, self.slice, self.file = objects, objects.terms, slice, slice.file

    def within(self, change: str, known: Mapping[str, str]) -> str:
        """Return what the trigger does after an update, delete or truncate; "" for nothing."""
        return ""

    def triggers(self, change: Mapping[str, str]) -> list[Object]:
        """Return its own triggers; `change` has what texts name of an update, as `Objects.of_change`."""
        return []

    @property
    def functions(self) -> Mapping[str, str]:
        """SQL that creates its functions, by the suffix of the table after which it runs."""
        return {}


class Triggers(PostgresObjects):
    """A queue's triggers, as SQL. A DO block creates each, and replaces `here` by the current schema."""

    def __init__(self, plain: PostgresObjects) -> None:
        self.plain, mine, source = plain, plain.terms, plain.terms.source
        known = [source.name, *mine.words.values(), *mine.tube_stats, *(each.column for each in source.fields)]
        here = "@here@"
        while any(here in str(word) for word in known):
            here += "@"
        self.here = mine.quote(here)
        super().__init__(mine.in_schema(source.schema or here))
        machine, limit = mine.machine, mine.machine.room
        self.limited = mine.guarded_states(limit) if limit else []  # the states that the feature limit counts
        # The states whose tasks may block others: a take finds another task after one has left such a state.
        self.blocking = [state for state in machine.states if machine.frees(state, ABSENT)]
        self.known = self._known()

    def words(self) -> set[str]:
        words = {"limited": self.limited, "blocking": self.blocking, "timers": any(self.terms.machine.timers.values())}
        words["counts_events"] = self.terms.machine.settings.counts_events
        words["room"] = self.limited or self.blocking
        brought = {word for each in self.programs for word in each.words}
        return super().words() | brought | {word for word, there in words.items() if there}

    def all(self) -> list[Object]:
        new, old = self.of_rows("changed", "new", "is"), self.of_rows("changed", "old", "was")
        found = [self.created("insert", new | old)]
        for event, rows in (("delete", "changed"), ("truncate", f"{self.known['table']} AS changed")):
            left = f"{self.in_heads(self.known | old, event)} {self._within(self.known | old, event)}"
            values = new | old | {"rows": rows, "left": left.strip()}
            found.append(self.created(event, values, body="delete_body"))
        change = self.of_change() | {
            "watched_differ": " OR ".join(map(self.differ, self.watched())),
            "new_timer_is_soon": " OR ".join(
                f"({self.differ(self.terms.roles[column])} AND {self._is_soon('NEW', column)})"
                for column in self.terms.timed_columns
            ),
        }
        found.append(self.created("update", change))
        found += [made for each in self.programs for made in each.triggers(change)]
        if heads := self.terms.heads:
            both = self.of_rows("was", "old", "was") | self.of_rows("became", "new", "is")
            found.append(self.created(heads.trigger, both, "update_heads_body", "update_heads"))
        return found

    @cached_property
    def programs(self) -> list[Program]:
        """What slices have the triggers do beside effects."""
        return [slice.program(self, slice) for slice in self.terms.slices if slice.program]

    def _within(self, known: Mapping[str, str], change: str) -> str:
        return " ".join(filter(None, (each.within(change, known) for each in self.programs)))

    def function(self, file: Path, text: str, known: Mapping[str, str]) -> str:
        """Return SQL that creates a function by the texts `text` and, of its body, `{text}_body` in the file."""
        body = dollars(f"#variable_conflict use_variable\n{self.filled_in(file, f'{text}_body', known)}")
        function = self.plain.terms.literal(self.filled_in(file, text, {**known, "body": body}))
        here = self.plain.terms.literal(self.here)
        return f"DO {dollars(f'BEGIN EXECUTE replace({function}, {here}, quote_ident(current_schema())); END')}"

    def created(
        self, suffix: str, values: Mapping[str, str], body: str = "", text: str = "", file: Path = TRIGGERS
    ) -> Object:
        """Return a trigger and its function, whose texts in the file are `text` and `body` if not its own."""
        terms, values = self.plain.terms, {**self.known, **values}
        name, table = terms.quote(terms.name(suffix)), terms.table_in_schema
        mine = {"name": name, "table": table, "function": f"{terms.object(terms.name(suffix))}()"}
        more = {
            "effects": partial(self._effects, values),
            "heads": partial(self.in_heads, values),
            "programs": partial(self._within, values),
        }
        lines = self.filled_in(file, body or f"{suffix}_body", {**values, **more}).lstrip()
        lines = f"#variable_conflict use_variable\n{lines}"
        function = self.filled_in(TRIGGERS, "create_function", mine | {"body": dollars(lines)})
        trigger = self.filled_in(file, text or suffix, values | mine)
        creating = {
            "create_function": terms.literal(function),
            "here": terms.literal(self.here),
            "create_trigger": trigger,
        }
        made = self.filled_in(TRIGGERS, "create", creating)
        dropped = self.filled_in(TRIGGERS, "drop", mine)
        created = self.plain.made("trigger", suffix, dropped, f"DO {dollars(f'BEGIN {made} END')}")
        return replace(created, body=tuple(f"{lines} ".split(self.here)))

    def _effects(self, known: Mapping[str, str], change: str) -> str:
        """Return what a trigger does after a change. It has declared variables."""
        own = {name: name for name in ("at_us", "by_actor", "by_reason")} | {"wait": f"{known['wait']} AS xq_w"}
        if change == "update":
            return written(self.effects, change, {**known, **own}, self.terms, on_postgres)
        each = {"rows": "changed", "n": "COUNT(*)"}
        return written(self.effects, change, {**each, **known, **own}, self.terms, on_postgres_rows)

    # what the texts name

    @property
    def ours(self) -> str:
        """The condition that the event context is that of this statement."""
        return f"{part(2)} = {self.terms.literal(self.terms.source_name)} AND {part(6)} = {TEXT_OF_TIME}"

    def _known(self) -> dict[str, str]:
        terms, ours = self.terms, self.ours
        event = f"CASE WHEN {ours} THEN {part(1)} ELSE 'write' END"
        return {
            "table": terms.table_in_schema,
            **{name: terms.side(name) for name in self.written},
            "alive": f"{self.here}.{ALIVE}",
            "event": event,
            "event_name": "event_name" if terms.has_history else event,
            "back": terms.side("back"),
            "high": f"pg_sequence_last_value(CAST({dollars(terms.side('high'))} AS regclass))",
            "notify": f"PERFORM pg_notify('{CHANNEL}', '');",
            "at": f"CASE WHEN {ours} AND {part(5)} <> '' THEN CAST({part(5)} AS float8) "
            f"ELSE {SERVER_TIME} END * 1000000",
            "by_actor": f"NULLIF({part(3)}, '')",
            "by_reason": f"NULLIF({part(4)}, '')",
        }

    def of_version(self, version: str, old: str, was: str) -> dict[str, str]:
        terms, status = self.terms, f"{version}.{self.terms.roles['status']}"
        return super().of_version(version, old, was) | {
            f"{was}_ready": terms.is_state(READY, status),
            f"{was}_limited": terms.in_states(self.limited, status),
            f"{was}_blocking": terms.in_states(self.blocking, status),
            f"{was}_in_the_way": terms.in_states(dict.fromkeys([*self.limited, *self.blocking]), status),
            f"{was}_soon": self._soon(version),
            f"{old}_place": f"{version}.{terms.keys[0]}",
        }

    def of_rows(self, version: str, old: str, was: str) -> dict[str, str]:
        """Return what the texts name for a statement's rows, as `of_version` does."""
        return self.of_version(version, old, was) | {
            "its_wait": f"{self.terms.same_wait('xq_w', version)} AND xq_w.event IS NULL"
        }

    def _soon(self, version: str) -> str:
        """Return the condition that a task's timer passes before any process looks again."""
        status = f"{version}.{self.terms.roles['status']}"
        listened = f"EXISTS (SELECT 1 FROM {self.here}.{ALIVE} WHERE uuid = '')"
        return " OR ".join(
            f"({self.terms.is_state(state, status)} AND {self._is_soon(version, timer.column)} AND {listened})"
            for state, timers in self.terms.machine.timers.items()
            for timer in timers
        )

    def _is_soon(self, version: str, role: str) -> str:
        kind, soon = self.terms.kind(role), f"({SERVER_TIME} + {SOON})"
        return f"{version}.{self.terms.roles[role]} < {self.terms.moment(kind, soon) if kind in TIMES else soon}"
