"""The triggers of one queue on PostgreSQL: what triggers.sql names, and how they are created."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xq.adapters.databases.installer.objects import Object
from xq.adapters.databases.session_connection import ALIVE
from xq.core.machine import ABSENT, ELSEWHERE, READY
from xq.core.ports import PART, TIMES

if TYPE_CHECKING:
    from xq.adapters.databases.postgres.dialect import Postgres

TRIGGERS = Path(__file__).parent / "triggers.sql"
CHANNEL = "xq"
SERVER_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS float8)"  # changes within a transaction, and is stable
TEXT_OF_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS text)"  # of this statement and no other
SOON = 1.0  # seconds; later timers need no notification, as the maintenance thread looks once a second


def part(n: int | str) -> str:
    """Return SQL of a part of the event context."""
    return f"split_part(current_setting('xq.context', true), '{PART}', {n})"


def dollars(text: str) -> str:
    """Return text in dollar quotes that it does not contain."""
    tag = "$xq$"
    while tag in text:
        tag = f"{tag[:-1]}x$"
    return f"{tag} {text} {tag}"


class Triggers:
    """The triggers of a queue, as SQL. A DO block creates each, and replaces `here` by the current schema."""

    def __init__(self, of: Postgres) -> None:
        known = [of.source.name, *of.words.values(), *of.tube_stats, *(field.column for field in of.source.fields)]
        here = "@here@"
        while any(here in str(word) for word in known):
            here += "@"
        self.here = of.quote(here)
        self.made_for = of
        self.of = of.in_schema(of.source.schema or here)
        self.objects = self.of.installer.objects
        self.status = of.roles["status"]
        limit = of.machine.guard("limit")
        self.limited = of.guarded_states(limit) if limit else []  # the states of the feature limit
        # The states whose tasks may block others, so that a take finds one after they have left it.
        self.blocking = [state for state in of.machine.states if of.machine.frees(state, ABSENT)]
        words = {
            "limited": self.limited,
            "blocking": self.blocking,
            "room": self.limited or self.blocking,
            "timers": any(of.machine.timers.values()),
        }
        self.has = [word for word, there in words.items() if there]
        self.known = self._known()

    def all(self) -> list[Object]:
        new, old = self._of_version("changed", "new", "is"), self._of_version("changed", "old", "was")
        found = [self._object("insert", self._created("insert", new | old))]
        for event, rows in (("delete", "changed"), ("truncate", f"{self.known['table']} AS changed")):
            gone = new | old | {"rows": rows}
            if self.of.groups:
                gone["groups_left"] = self._text(f"groups_left_by_{event}", self.known | old)
            found.append(self._object(event, self._created(event, gone, body="delete_body")))
        change = self._of_version("OLD", "old", "was") | self._of_version("NEW", "new", "is") | self._of_change()
        found.append(self._object("update", self._created("update", self.known | change)))
        if self.of.groups:
            both = self._of_version("was", "old", "was") | self._of_version("became", "new", "is")
            found.append(self._object("update_utube", self._created("update_utube", both)))
        return found

    # making

    def _object(self, suffix: str, made: str) -> Object:
        of = self.made_for
        dropped = self._text("drop", {"name": of.quote(of.name(suffix)), "table": of.table_in_schema})
        return of.installer.objects.made("trigger", suffix, dropped, f"DO {dollars(f'BEGIN {made} END')}")

    def _created(self, suffix: str, values: Mapping[str, str], body: str = "") -> str:
        """Return the SQL that creates a trigger and its function, whose text is `body` if it is not its own."""
        of = self.made_for
        function, name = f"{of.object(of.name(suffix))}()", of.quote(of.name(suffix))
        lines = f"#variable_conflict use_variable\n{self._text(body or f'{suffix}_body', {**self.known, **values})}"
        made = self._text("create_function", {"function": function, "body": dollars(lines)})
        mine = {"name": name, "table": of.table_in_schema, "function": function}
        trigger = self._text(suffix, {**values, **mine})
        creating = {"create_function": of.literal(made), "here": of.literal(self.here), "create_trigger": trigger}
        return self._text("create", creating)

    def _text(self, text: str, values: Mapping[str, str]) -> str:
        return self.objects.filled_in(TRIGGERS, text, values, *self.has)

    # what the texts name

    def _known(self) -> dict[str, str]:
        of, utubes = self.of, self.of.groups
        known = {
            "table": of.table_in_schema,
            **{name: of.side(name) for name in ("count", "wait", "history")},
            "alive": f"{self.here}.{ALIVE}",
            "event": self.objects.event,
            "notify": f"PERFORM pg_notify('{CHANNEL}', '');",
            "at": f"CASE WHEN {self.objects.ours} AND {part(5)} <> '' THEN CAST({part(5)} AS float8) "
            f"ELSE {SERVER_TIME} END * 1000000",
            "noted": self.objects.noted,
            "by_actor": f"NULLIF({part(3)}, '')",
            "by_reason": f"NULLIF({part(4)}, '')",
        }
        if utubes:
            known |= {
                "heads": utubes.heads,
                "head": utubes.name,
                "dirty_groups": utubes.dirty_groups,
                "no_first_task": utubes.no_first_task,
                "dirties": utubes.dirties("taken"),
                "group_columns": utubes.columns_of_change,
            }
            known["write_groups"] = self._text("write_groups", known)
        return known

    def _of_version(self, version: str, old: str, was: str) -> dict[str, str]:
        """Return the values of a version of a row for the texts, as `old`, and its conditions, as `was`."""
        of, status = self.of, f"{version}.{self.status}"
        known = self.objects.of_version(version, old, was) | {
            "its_wait": of.same_wait("w", version),
            f"{was}_ready": of.is_state(READY, status),
            f"{was}_limited": of.in_states(self.limited, status),
            f"{was}_blocking": of.in_states(self.blocking, status),
            f"{was}_in_the_way": of.in_states(dict.fromkeys([*self.limited, *self.blocking]), status),
            f"{was}_soon": self._soon(version),
        }
        if of.groups:
            known |= {f"{old}_utube": of.groups.head(version), f"{was}_in_group": of.groups.in_group(version)}
        return known

    def _of_change(self) -> dict[str, str]:
        """Return the conditions of an update from OLD to NEW for the texts."""
        of = self.of
        known = {
            "other_status": self._differ(self.status),
            "other_key": self.objects.moved_key,
            "its_wait": of.same_wait("", "OLD"),
            "watched_differ": " OR ".join(map(self._differ, self.objects.watched())),
            "new_timer_is_soon": self._new_timer(),
        }
        if of.tube_stats:
            known |= {"other_tube": self._differ(of.roles["tube"]), "elsewhere": ELSEWHERE}
        return known

    def _differ(self, column: str) -> str:
        return self.of.differ(f"OLD.{column}", f"NEW.{column}")

    def _soon(self, version: str) -> str:
        """Return the condition that a task has a timer that passes before any process looks again."""
        listened = f"EXISTS (SELECT 1 FROM {self.here}.{ALIVE} WHERE uuid = '')"
        return " OR ".join(
            f"({self.of.is_state(state, f'{version}.{self.status}')} AND {self._before_a_look(version, timer.column)} "
            f"AND {listened})"
            for state, timers in self.of.machine.timers.items()
            for timer in timers
        )

    def _new_timer(self) -> str:
        """Return the condition that a timer has changed, and passes before any process looks again."""
        columns = dict.fromkeys(timer.column for timers in self.of.machine.timers.values() for timer in timers)
        return " OR ".join(
            f"({self._differ(self.of.roles[column])} AND {self._before_a_look('NEW', column)})" for column in columns
        )

    def _before_a_look(self, version: str, role: str) -> str:
        kind, soon = self.of.kind(role), f"({SERVER_TIME} + {SOON})"
        return f"{version}.{self.of.roles[role]} < {self.of.moment(kind, soon) if kind in TIMES else soon}"
