"""What a change of a row writes beside it, whoever makes it. The triggers of each database are made from one list.

An effect is data. Its texts have holes, as those of triggers.sql do: `{old}` and `{new}` are the states of the row
before and after, 'X' where it is no task. One effect serves several kinds of changes: a task comes by an insert, and by
an update of its key. Four functions write effects as SQL: for SQLite, for InnoDB (MariaDB and MySQL), and two for
PostgreSQL, whose triggers see each row of an update, but the rows of an insert or a delete at once.

A feature's own effects stand in its slice. What needs a program, or one database alone needs, stands in triggers.sql.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from xq.core.machine import ELSEWHERE
from xq.sql.language import Language
from xq.sql.sql_file import VALUE

Holes = Mapping[str, str]


# The kinds of changes that have an effect, each with a condition that it adds: insert, update and delete. SQLite has a
# trigger of its own for an update by which key and tube stay the `same`.
def comes(by: str) -> Holes:
    return {"insert": "", "update": f"{{other_{by}}} AND "}


def goes(by: str) -> Holes:
    return {"update": f"{{other_{by}}} AND ", "delete": ""}


def stays(by: str) -> Holes:
    return {"same": "", "update": f"NOT {{other_{by}}} AND "}


UPDATED: Final = {"same": "", "update": ""}


@dataclass(frozen=True, slots=True)
class Effect:
    """A new row in a side table; with `where` a change of rows there, which are deleted if there are no values."""

    table: str  # its suffix
    on: Holes  # the kinds of changes, as above
    when: str  # the condition on the row that changes
    values: Mapping[str, str] = field(default_factory=dict)  # by column
    where: str = ""
    wakes: bool = False  # whether who waits for this change is woken; where nobody waits, the side table is empty
    trigger: str = ""  # the suffix of SQLite's trigger for it, if that sees updates of other columns than the others
    of: Sequence[str] = ()  # the roles of these columns, and "key"; without any it sees each update
    refuses: str = ""  # why there shall be no such change; nothing is written

    def filled(self, change: str, holes: Holes, language: Language) -> Effect:
        """Return this effect of such a change as SQL."""
        values = {language.quote(column): fill(value, holes) for column, value in self.values.items()}
        when, where = fill(self.on[change] + self.when, holes), fill(self.where, holes)
        refuses = language.literal(self.refuses) if self.refuses else ""
        table = self.table and holes[self.table]
        return replace(self, table=table, when=when, values=values, where=where, refuses=refuses)

    @property
    def into(self) -> str:
        return f"INSERT INTO {self.table} ({', '.join(self.values)})"

    @property
    def sources(self) -> str:
        return ", ".join(self.values.values())

    @property
    def changed(self) -> str:
        sets = ", ".join(f"{column} = {value}" for column, value in self.values.items())
        return f"UPDATE {self.table} SET {sets}" if sets else f"DELETE FROM {self.table}"


def fill(text: str, holes: Holes) -> str:
    # Once: braces in what fills a hole belong to names.
    return VALUE.sub(lambda found: holes[found[1]], text)


# the core's effects


def counter(on: Holes, when: str, tube: str, source: str, target: str) -> Effect:
    return Effect("count", on, when, {"tube": tube, "source": source, "target": target, "n": "{n}"})


# A statement of xq that writes a status is a transition, even if the status stays the same.
IS_TRANSITION: Final = "({surely_was} OR {surely_is}) AND ({other_status} OR {event_name} <> 'write')"
# Another program takes a task out of taken, or out of a finished state into another one. The counter is that of
# xq.core.counters.counter_of.
IS_STALE: Final = "{is_stale} AND {event_name} = 'write'"
STALE: Final = counter(UPDATED, IS_STALE, "{old_to_new}", f"'{ELSEWHERE}'", f"'{ELSEWHERE}'")
TRANSITIONS: Final = (counter({"insert": "", **UPDATED, "delete": ""}, "{old} <> {new}", "''", "{old}", "{new}"),)
TRANSITIONS_OF_TUBES: Final = (
    counter(stays("tube"), "{is_counted} AND {old} <> {new}", "{new_tube}", "{old}", "{new}"),
    # A task that changes its tube leaves one and enters the other.
    counter(goes("tube"), "{was_counted} AND {surely_was}", "{old_tube}", "{old}", "{left_for}"),
    counter(comes("tube"), "{is_counted} AND {surely_is}", "{new_tube}", "{came_from}", "{new}"),
)
WAITS: Final = Effect(
    "wait",
    {
        "same": "({is_pending}) IS NOT TRUE AND ",
        "update": "(({is_pending}) IS NOT TRUE OR {other_key}) AND ",
        "delete": "",
    },
    "{was_pending}",
    {"event": "{event_name}", "target": "{ended_as}"},
    where="{its_wait}",
    wakes=True,
)

# the statements of a trigger

Writer = Callable[[Effect, Holes], str]


def written(effects: Iterable[Effect], change: str, holes: Holes, language: Language, writer: Writer) -> str:
    """Return what a trigger does after such a change."""
    holes = {"n": "1", **holes, **_states(holes, change, language)}
    return " ".join(writer(effect.filled(change, holes, language), holes) for effect in effects if change in effect.on)


def _states(holes: Holes, change: str, language: Language) -> Holes:
    """Return what depends on the kind of change: no row is there before an insert, and none after a delete."""
    if change == "insert":
        return {"old": "'X'", "came_from": "'X'"}
    if change == "delete":
        return {"new": "'X'", "left_for": "'X'", "ended_as": "'X'"}
    another = f"CASE WHEN {holes['other_key']} THEN 'X' ELSE {holes['new']} END"
    return {
        "old_to_new": language.joined([holes["old"], "'-'", holes["new"], "' write'"]),
        "came_from": f"CASE WHEN {holes['surely_was']} THEN '{ELSEWHERE}' ELSE 'X' END",
        "left_for": f"CASE WHEN {holes['surely_is']} THEN '{ELSEWHERE}' ELSE 'X' END",
        "ended_as": holes["new"] if change == "same" else another,
    }


def on_sqlite(effect: Effect, holes: Holes) -> str:
    if effect.refuses:
        return f"SELECT RAISE(ABORT, {effect.refuses}) WHERE {effect.when};"
    if effect.where:
        return f"{effect.changed} WHERE {' AND '.join(filter(None, [effect.where, effect.when]))};"
    adding = " ON CONFLICT DO UPDATE SET n = n + 1" * (effect.table == holes["count"])
    rows = f"SELECT {effect.sources} WHERE {effect.when}" if effect.when else f"VALUES ({effect.sources})"
    return f"{effect.into} {rows}{adding};"


def on_innodb(effect: Effect, holes: Holes) -> str:
    return _for_row(effect, f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = {effect.refuses}")


def on_postgres(effect: Effect, holes: Holes) -> str:
    error = f"USING ERRCODE = 'integrity_constraint_violation', MESSAGE = {effect.refuses}"
    return _for_row(effect, f"RAISE EXCEPTION {error}", _waking(effect, holes))


def on_postgres_rows(effect: Effect, holes: Holes) -> str:
    rows = holes["rows"]
    if effect.where:
        changed = f"{effect.changed} FROM {rows} WHERE {effect.where} AND {effect.when};{_waking(effect, holes)}"
        return f"IF (EXISTS (SELECT 1 FROM {effect.table})) THEN {changed} END IF;"
    counted = " GROUP BY 1, 2, 3" * (effect.table == holes["count"])
    return f"{effect.into} SELECT {effect.sources} FROM {rows} WHERE {effect.when}{counted};"


def _for_row(effect: Effect, refusing: str, waking: str = "") -> str:
    # On a server a change that finds no row costs more than a look, and may lock a gap.
    there = f" AND EXISTS (SELECT 1 FROM {effect.table})" * effect.wakes
    writing = f"{effect.changed} WHERE {effect.where}" if effect.where else f"{effect.into} VALUES ({effect.sources})"
    return f"IF ({effect.when}{there}) THEN {refusing if effect.refuses else writing};{waking} END IF;"


def _waking(effect: Effect, holes: Holes) -> str:
    return f" IF FOUND THEN {holes['notify']} END IF;" * effect.wakes
