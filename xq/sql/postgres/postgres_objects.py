"""The objects that installing a queue creates on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from xq.core.acting import PART
from xq.core.compile import Selector
from xq.core.compile import change as compiled
from xq.core.kinds import TIMES
from xq.core.machine import ABSENT, ELSEWHERE, READY
from xq.sql.effects import fill, on_postgres, on_postgres_rows, written
from xq.sql.groups import FEW, SKIPPED
from xq.sql.installer.objects import WRITTEN, Object, Objects
from xq.sql.links import ENDED, LEAVES, MAY_END
from xq.sql.named import filled
from xq.sql.postgres.postgres_moves import PostgresMoves
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
        if group := named.get(self.terms.name("group")):
            named[group.name] = replace(group, create=(*group.create, Triggers(self).settle))
        return [*named.values()]

    def triggers(self) -> list[Object]:
        return Triggers(self).all()


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

    def _words(self) -> set[str]:
        words = {"limited": self.limited, "blocking": self.blocking, "timers": any(self.terms.machine.timers.values())}
        words["counts_events"] = self.terms.machine.settings.counts_events
        words["room"] = self.limited or self.blocking
        return super()._words() | {word for word, there in words.items() if there}

    def all(self) -> list[Object]:
        new, old = self._of_rows("changed", "new", "is"), self._of_rows("changed", "old", "was")
        found = [self._created("insert", new | old)]
        for event, rows in (("delete", "changed"), ("truncate", f"{self.known['table']} AS changed")):
            known = self.known | old
            left = self.filled_in(TRIGGERS, "links_left", known) if self.links and event == "truncate" else ""
            left += self.in_heads(known, event)
            if self.terms.groups:
                left += f" {self.filled_in(TRIGGERS, f'members_left_by_{event}', known)}"
            found.append(self._created(event, new | old | {"rows": rows, "left": left.lstrip()}, body="delete_body"))
        change = self.of_change() | {
            "watched_differ": " OR ".join(map(self.differ, self.watched())),
            "new_timer_is_soon": " OR ".join(
                f"({self.differ(self.terms.roles[column])} AND {self._is_soon('NEW', column)})"
                for column in self.terms.timed_columns
            ),
        }
        found.append(self._created("update", change))
        if self.links:
            found += self._settling(change)
        if heads := self.terms.heads:
            both = self._of_rows("was", "old", "was") | self._of_rows("became", "new", "is")
            found.append(self._created(heads.trigger, both, "update_heads_body", "update_heads"))
        return found

    def _settling(self, change: Mapping[str, str]) -> list[Object]:
        """Return the triggers for the dependants of tasks that end."""
        assert self.links
        terms, links, machine = self.terms, self.links, self.terms.machine
        moves, waiting = PostgresMoves(terms), Selector("key", "W", column="after")
        named = {f"k{i}": f"xq_child.{part}" for i, part in enumerate(terms.parts)}
        named |= {"now": "xq_now", "delay": "CAST(split_part(xq_how, ' ', 2) AS float8)"}

        def moved(event: str, *given: str) -> str:
            row = machine.choose("W", event, given)
            assert row
            changed = compiled(machine, row, frozenset(given))
            if row.target == ABSENT:
                sql = f"DELETE FROM {known['table']} WHERE {terms.sets_context} AND {moves.where(waiting)}"
            else:
                sql = f"UPDATE {known['table']} SET {moves.sets(waiting, changed)} WHERE {moves.where(waiting)}"
            return filled(sql, **named, context=f"'{event}' || xq_context")

        texts = {"leaves": LEAVES, "may_end": MAY_END, "ended": ENDED}
        known = self.known | {name: fill(text, change) for name, text in texts.items()}
        ours, keys = (
            self._ours,
            {of: ", ".join(f"{of}.{key} AS p{i}" for i, key in enumerate(terms.keys)) for of in ("OLD", "changed")},
        )
        gone = self._of_rows("changed", "old", "was")
        how = f"CASE WHEN {gone['was_taken']} AND {known['event']} = 'ack' THEN 'D' ELSE 'X' END"
        leaves = f"changed.{links.role} IS NOT NULL"
        update = f"SELECT {keys['OLD']}, {known['ended']} AS ended, {known['leaves']} AS leaves"
        delete = f"SELECT {keys['changed']}, {how} AS ended, {leaves} AS leaves FROM changed WHERE {gone['was']}"
        known |= {
            "context": f"'{PART}' || {terms.literal(terms.source_name)} || '{PART * 3}' || "
            f"CASE WHEN {ours} THEN {part(5)} ELSE '' END || '{PART}'",
            "time": f"CASE WHEN {ours} AND {part(5)} <> '' THEN CAST({part(5)} AS float8) END",
            "is_parent": links.same(links.parents, links.parents, "xq_l.", "xq_e."),
            "is_child": links.same(links.children, links.parents, "xq_l.", "xq_e."),
            "its_link": links.same(links.children, links.children, other="xq_child."),
            "from_far": ", ".join(f"{each} DESC" for each in links.parents),
            "parts": ", ".join(links.children),
            "role": links.role,
            "waits": filled(moves.where(waiting), **named),
            "lock": terms.lock,
            "elsewhere": ELSEWHERE,
            "kill": moved("kill"),
            "release": moved("after"),
        }
        if "delayed" in self._words():
            known["release_late"] = moved("after", "delay")
        return [
            self._created("after_update", known | {"ends": update}, body="after_body"),
            self._created("after_delete", known | {"ends": delete}, body="after_body"),
        ]

    def _created(self, suffix: str, values: Mapping[str, str], body: str = "", text: str = "") -> Object:
        """Return a trigger and its function, whose texts are `text` and `body` if they are not its own."""
        terms, values = self.plain.terms, {**self.known, **values}
        name, table = terms.quote(terms.name(suffix)), terms.table_in_schema
        mine = {"name": name, "table": table, "function": f"{terms.object(terms.name(suffix))}()"}
        more = {"effects": partial(self._effects, values), "heads": partial(self.in_heads, values)}
        lines = self.filled_in(TRIGGERS, body or f"{suffix}_body", {**values, **more}).lstrip()
        lines = f"#variable_conflict use_variable\n{lines}"
        function = self.filled_in(TRIGGERS, "create_function", mine | {"body": dollars(lines)})
        trigger = self.filled_in(TRIGGERS, text or suffix, values | mine)
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

    @property
    def settle(self) -> str:
        """SQL that creates the function which ends a group."""
        groups = self.terms.groups
        assert groups
        known = self.known | {
            "of_name": groups.of("xq_name"),
            "live": self.terms.in_states(groups.live),
            "keys_down": ", ".join(f"{key} DESC" for key in self.terms.keys),
            "few": str(FEW),
            "has_ended": groups.has_ended("xq_name", "xq_row.runs"),
            "now": SERVER_TIME,
            "skipped": self.terms.literal(SKIPPED),
        }
        known["body"] = dollars(f"#variable_conflict use_variable\n{self.filled_in(TRIGGERS, 'settle_body', known)}")
        function = self.plain.terms.literal(self.filled_in(TRIGGERS, "settle", known))
        here = self.plain.terms.literal(self.here)
        return f"DO {dollars(f'BEGIN EXECUTE replace({function}, {here}, quote_ident(current_schema())); END')}"

    # what the texts name

    @property
    def _ours(self) -> str:
        """The condition that the event context is that of this statement."""
        return f"{part(2)} = {self.terms.literal(self.terms.source_name)} AND {part(6)} = {TEXT_OF_TIME}"

    def _known(self) -> dict[str, str]:
        terms, ours = self.terms, self._ours
        event = f"CASE WHEN {ours} THEN {part(1)} ELSE 'write' END"
        return {
            "table": terms.table_in_schema,
            **{name: terms.side(name) for name in WRITTEN},
            "settle": terms.side("settle"),
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

    def _of_rows(self, version: str, old: str, was: str) -> dict[str, str]:
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
