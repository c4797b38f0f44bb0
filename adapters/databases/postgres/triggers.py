"""The triggers of one queue on PostgreSQL, in PL/pgSQL.

A change of many rows is counted at once where the rows are new or gone; a change of a row on its own, since what was
and what is can be told from one another only then, be its key another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xq.adapters.databases.objects import Object
from xq.adapters.databases.records import SETTINGS
from xq.adapters.databases.server import PART
from xq.adapters.databases.session_connection import ALIVE
from xq.core.machine import ABSENT, TAKEN
from xq.core.ports import TIMES

if TYPE_CHECKING:
    from xq.adapters.databases.postgres.dialect import Postgres

CHANNEL = "xq"
SERVER_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS float8)"  # changes within a transaction, and is stable
TEXT_OF_TIME = "CAST(extract(epoch FROM statement_timestamp()) AS text)"  # of this statement and no other
BOTH = "REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT"
SOON = 1.0  # seconds; later timers need no notification, as the maintenance thread looks once a second


def unless_silenced(settings: str) -> str:
    """Return the condition that notifications are not switched off."""
    return f"NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'notify' AND value = 0)"


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
    """The triggers of a queue, as SQL. A DO block creates each, and replaces `here` by the current schema.

    A trigger names its tables in full, because setting its search_path for each call costs a tenth of a put.
    """

    def __init__(self, of: Postgres) -> None:
        known = [of.source.name, *of.words.values(), *of.tube_stats, *(field.column for field in of.source.fields)]
        here = "@here@"
        while any(here in str(word) for word in known):
            here += "@"
        self.here = of.quote(here)
        self.made_for = of
        self.of = of.in_schema(of.source.schema or here)
        self.status = of.roles["status"]
        # Commits with notifications run one at a time, so a trigger notifies only if a process needs it.
        self.waited_for = f"EXISTS (SELECT 1 FROM {self.here}.{ALIVE} WHERE uuid = '' AND waits)"
        self.listened_to = f"EXISTS (SELECT 1 FROM {self.here}.{ALIVE} WHERE uuid = '')"
        # Checked each time: a waiting process notices later that notifications are switched off.
        self.notify = f"PERFORM pg_notify('{CHANNEL}', '') WHERE {unless_silenced(f'{self.here}.{SETTINGS}')};"
        self.of.notify_waiters = f"IF FOUND THEN {self.notify} END IF;"
        limit = of.machine.guard("limit")
        self.limited = of.guarded_states(limit) if limit else []  # the states of the feature limit
        # The states whose tasks a move may release from a wait for room.
        self.in_the_way = [state for state in of.machine.states if of.machine.frees(state, ABSENT)]

    def all(self) -> list[Object]:
        each, table = "FOR EACH STATEMENT", f"{self.of.table_in_schema} AS changed"
        return [
            self._trigger("insert", "AFTER INSERT", f"REFERENCING NEW TABLE AS changed {each}", self._came()),
            self._trigger("delete", "AFTER DELETE", f"REFERENCING OLD TABLE AS changed {each}", self._went()),
            self._trigger("truncate", "BEFORE TRUNCATE", each, self._went(table)),
            self._update_trigger(),
            *self._groups_trigger(),
        ]

    # many rows at once, of `rows`

    def _came(self) -> list[str]:
        ready = self.of.is_state("R", f"changed.{self.status}")
        # Read the rows once, and look for listeners once at most.
        called = [f"({ready} AND {self.waited_for})", *self._soon("changed")]
        notify = self.of.if_(f"EXISTS (SELECT 1 FROM changed WHERE {' OR '.join(called)})", self.notify)
        return [*self._count_and_note("changed", came=True), *self._group_changes(came=True), notify]

    def _went(self, rows: str = "changed") -> list[str]:
        of, status = self.of, f"changed.{self.status}"
        pending = of.in_states(of.machine.pending, status)
        body = self._count_and_note(rows, came=False)
        if "owner" not in of.roles:
            theirs = f"{of.same_key('o', 'changed')} AND {of.is_state(TAKEN, status)}"
            body.append(f"DELETE FROM {of.owners} AS o USING (SELECT * FROM {rows}) AS changed WHERE {theirs};")
        word = f"UPDATE {of.waits} AS w SET event = {of.event}, target = '{ABSENT}' FROM {rows}"
        mine = f"{of.same_wait('w', 'changed')} AND w.event IS NULL AND {pending}"
        body.append(of.if_(f"EXISTS (SELECT 1 FROM {of.waits})", f"{word} WHERE {mine};", of.notify_waiters))
        if self.limited or self.in_the_way:
            states = dict.fromkeys([*self.limited, *self.in_the_way])
            left = f"{self.waited_for} AND EXISTS (SELECT 1 FROM {rows} WHERE {of.in_states(states, status)})"
            body.append(of.if_(left, self.notify))
        if rows == "changed":
            body += self._group_changes(came=False)
        elif of.groups:
            body += [f"DELETE FROM {of.groups.heads};", f"DELETE FROM {of.groups.dirty_groups};"]
        return body

    def _group_changes(self, came: bool) -> list[str]:
        """Return what a trigger does for the groups of all inserted or deleted rows."""
        utubes = self.of.groups
        return [utubes.on_change([("changed", utubes.change_of("changed", came))])] if utubes else []

    def _count_and_note(self, rows: str, came: bool) -> list[str]:
        of = self.of
        numbers = of.numbers_of("changed", came)
        body = [
            f"INSERT INTO {of.side('count')} (tube, source, target, n) "
            f"SELECT {n.tube}, {n.source}, {n.target}, COUNT(*) FROM {rows} WHERE {n.when} GROUP BY 1, 2, 3;"
            for n in numbers
        ]
        if of.has_history:
            _, source, target, when = numbers[0]
            body.append(of.note("changed", source, target, f"FROM {rows} WHERE {when}"))
        return body

    # one row

    def _update_trigger(self) -> Object:
        """Return the trigger after an update: for each row; for a partitioned table, for all rows of a statement.

        A row that moves to another partition is deleted here and inserted there, of which a trigger of the update of
        rows does not see it, and neither do those of statements that delete and insert.
        """
        of = self.of
        watched = " OR ".join(
            [*(of.differ(f"OLD.{column}", f"NEW.{column}") for column in of.watched()), *self._timed()]
        )
        if of.has_history:  # a statement of xq that writes a status is a transition, even to the same status
            watched += " OR COALESCE(current_setting('xq.context', true), '') <> ''"
        body = [*of.row_changed(), of.if_(self._calls(), self.notify)]
        of_row = self._made("update", "AFTER UPDATE", f"FOR EACH ROW WHEN ({watched})", body)
        kind = of.table_in_schema
        same = " AND ".join(f"was.{key} = became.{key}" for key in of.keys)
        both = ", ".join(f"CAST({rows}.* AS {kind}) AS {rows}" for rows in ("was", "became"))
        each = [
            f"FOR pair IN SELECT {both} FROM was FULL JOIN became ON {same} LOOP old := pair.was; new := pair.became;",
            f"CONTINUE WHEN ({watched}) IS NOT TRUE;",
            *body,
            "END LOOP;",
        ]
        of_all = self._made("update", "AFTER UPDATE", BOTH, each, f"pair record; old {kind}; new {kind}; ")
        partitioned = self.made_for.is_partitioned
        return self._object("update", f"IF EXISTS ({partitioned}) THEN {of_all} ELSE {of_row} END IF;")

    def _groups_trigger(self) -> list[Object]:
        """Return the trigger for the groups of all rows of an update.

        Row by row, each change of a head would leave a version of it that the next one must step over.
        """
        utubes = self.of.groups
        if utubes is None:
            return []
        left = utubes.changed("was", "became"), utubes.change_of("was", came=False)
        joined = utubes.changed("became", "was"), utubes.change_of("became", came=True)
        return [self._trigger("update_utube", "AFTER UPDATE", BOTH, [utubes.on_change([left, joined])])]

    def _soon(self, version: str) -> list[str]:
        """Return the condition that a task has a timer that passes before any process looks again."""
        return [
            f"({self.of.is_state(state, f'{version}.{self.status}')} AND {self._before_a_look(version, timer.column)} "
            f"AND {self.listened_to})"
            for state, timers in self.of.machine.timers.items()
            for timer in timers
        ]

    def _timed(self) -> list[str]:
        """Return the condition that another program has set such a timer."""
        columns = dict.fromkeys(timer.column for timers in self.of.machine.timers.values() for timer in timers)
        changed = {column: self.of.roles[column] for column in columns}
        return [
            f"({self.of.differ(f'OLD.{role}', f'NEW.{role}')} AND {self._before_a_look('NEW', column)})"
            for column, role in changed.items()
        ]

    def _before_a_look(self, version: str, role: str) -> str:
        kind, soon = self.of.kind(role), f"({SERVER_TIME} + {SOON})"
        return f"{version}.{self.of.roles[role]} < {self.of.moment(kind, soon) if kind in TIMES else soon}"

    def _calls(self) -> str:
        """Return the condition to notify of a change: a task is ready, a timer is set, or a limited queue has room."""
        called = [self.of.is_state("R", f"NEW.{self.status}")]
        if self.limited:
            left = [self.of.in_states(self.limited, f"{version}.{self.status}") for version in ("OLD", "NEW")]
            called.append(f"({left[0]} AND NOT {left[1]})")
        if self.in_the_way:
            was = self.of.in_states(self.in_the_way, f"OLD.{self.status}")
            called.append(f"({was} AND NOT {self.of.is_state(TAKEN, f'NEW.{self.status}')})")
        return " OR ".join([f"(({' OR '.join(called)}) AND {self.waited_for})", *self._soon("NEW")])

    # making

    def _trigger(self, suffix: str, event: str, how: str, body: Sequence[str]) -> Object:
        return self._object(suffix, self._made(suffix, event, how, body))

    def _object(self, suffix: str, made: str) -> Object:
        of, name = self.made_for, self.made_for.name(suffix)
        return of.made(
            "trigger",
            suffix,
            f"DROP TRIGGER IF EXISTS {of.quote(name)} ON {of.table_in_schema}",
            f"DO {dollars(f'BEGIN {made} END')}",
        )

    def _made(self, suffix: str, event: str, how: str, body: Sequence[str], variables: str = "") -> str:
        """Return the SQL that creates a trigger and its function."""
        of, name = self.made_for, self.made_for.name(suffix)
        function = f"{of.object(name)}()"
        if of.has_history:
            given = f"{of.ours} AND {part(3)} <> ''"
            at = f"CASE WHEN {given} THEN CAST({part(3)} AS float8) ELSE {SERVER_TIME} END * 1000000"
            variables += f"event_name text := {of.event}; at_us bigint := {at}; "
        declared = f"DECLARE {variables}" if variables else ""
        text = dollars(f"#variable_conflict use_variable\n{declared}BEGIN {' '.join(body)} RETURN NULL; END")
        made = of.literal(f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS {text}")
        return (
            f"EXECUTE replace({made}, {of.literal(self.here)}, quote_ident(current_schema())); "
            f"CREATE TRIGGER {of.quote(name)} {event} ON {of.table_in_schema} {how} EXECUTE FUNCTION {function};"
        )
