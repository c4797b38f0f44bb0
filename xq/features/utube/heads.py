"""Group heads: all tasks in one utube are a group. Its head holds how many are taken, and the next task.

A take reads the open heads in order, so it skips any number of tasks that must wait. Triggers count the taken tasks,
whichever program writes, and the table's CHECK rejects one too many. `n` is the group's limit, from the table of
limits, `most` what the CHECK allows: the limit, or the taken tasks while a lowered limit is below them.

SQLite has one writer at a time: its triggers also write the first task into the head (sqlite.py). On a server a
trigger sees the database as it was when its transaction began: it makes the group dirty, and a take refreshes it
(server.py).

With `fair` the head of a utube that has become empty stays, and with it when that was served. The maintenance thread
deletes it after each utube with tasks has been served since: then one without a head comes first as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from xq.core.compile import Selector
from xq.core.connections import Runs
from xq.core.machine import READY, TAKEN
from xq.sql.heads import Heads, Index
from xq.sql.limits import Limits
from xq.sql.rows import Rows

FIRST = "xq_first."  # the table's alias in a query for the first task; in triggers, old and new are other rows
COUNTED = (READY, TAKEN)  # the states that a head counts
EMPTY = "taken = 0 AND k0 IS NULL"  # the condition that a head has no tasks, unless it is dirty
UNLIMITED = 2**62  # how many of the tasks without a utube may be taken at a time
TURNS = 100_000  # empty heads that are kept at most
FORGOTTEN = 10_000  # heads to delete at once


class HeadChange(NamedTuple):
    """How a row, before or after a write, changes its group, as SQL: `when` holds for the row, `taken` is added."""

    utube: str
    taken: str
    when: str
    came: bool  # whether the group gets a row; a group that had it already may have lost it


class UtubeHeads(Heads):
    """The SQL for one queue's group heads."""

    name = "utube"
    trigger = "update_utube"
    join = "JOIN"  # joins the heads to their tasks

    def __init__(self, terms: Rows) -> None:
        self.terms, self.limits, guard = terms, Limits(terms), terms.machine.turns
        assert guard
        self.file = Path(__file__).parent / f"{terms.family}.sql"
        self.fair: bool = guard.value
        self.role = terms.roles[guard.role]
        # With `fair` the tasks without a utube are a group, too.
        self.may_be_none = terms.source.roles[guard.role].null and not self.fair
        # Its columns are the order's: each combination has its table.
        self.suffix = f"heads{'_fair' * self.fair}{terms.ordered_as}"
        self.table = terms.side(self.suffix)
        self.tables = {self.suffix: "heads"}
        self.words = {"fair"} if self.fair else set()
        # A utube's first task: the columns in its head, and the corresponding columns in the table.
        self.columns = [*terms.source.ordered_by, *terms.parts]
        self.mine = [f"{terms.table}.{column}" for column in terms.ordered]
        self.wanted = ", ".join(FIRST + column for column in terms.ordered)

    # what differs between databases

    @abstractmethod
    def called(self, column: str) -> str:
        """Return the head's key, as SQL, for a row with its utube in `column`. Utubes compare byte by byte.

        With `fair` it is a text, "" without a utube, so that no utube can have that key.
        """

    def key_of_limit(self, utube: str) -> str:
        """Return the key of a group's limit, as SQL, from its head's key."""
        return self.terms.as_text(utube) if self.fair else self.terms.of_limit(self.terms.value_of("utube", utube))

    def limit(self, utube: str) -> str:
        """Return how many tasks of a group may be taken by the table of limits, as SQL."""
        limit = self.limits.of("utube", self.key_of_limit(utube))
        return f"CASE {utube} WHEN '' THEN {UNLIMITED} ELSE {limit} END" if self.fair else limit

    def limits_of(self, utube: str) -> dict[str, str]:
        """Return what a head has of the table of limits, as SQL by column."""
        return {"n": self.limit(utube)}

    is_limited = ""  # what follows a condition on the head xq_h: that it has its limit from the latest limits

    def most_after(self, added: str, of: str = "") -> str:
        """Return `most` for a head after so many tasks were added, as SQL."""
        fewer = self.terms.greatest(f"{of}n", f"{of}taken + {added}")
        return f"CASE WHEN {added} < 0 THEN {fewer} ELSE {of}most END"

    @property
    def meant(self) -> str:
        """The condition for the heads of the groups with the key `:value`."""
        return f"(:value = '' OR {self.key_of_limit('utube')} = :value)"

    now_served = ""  # with `fair`: the moment or number, as SQL, that a head has which is served now

    @property
    @abstractmethod
    def first_known(self) -> str:
        """SQL that initializes the first task in every head."""

    def head(self, version: str) -> str:
        """Return the head's key for a row's version, as SQL."""
        return self.called(f"{version}.{self.role}")

    def of_utube(self, utube: str, of: str) -> str:
        """Return the condition, for an index, that a row (of the table or the alias `of`) belongs to a head."""
        return f"{self.some(of)}{self.called(of + self.role)} = {utube}"

    def some(self, of: str = "") -> str:
        """Return the start of a condition on rows in groups: that they have a utube, unless all rows are in one."""
        return "" if self.fair else f"{of}{self.role} IS NOT NULL AND "

    @property
    def of_none(self) -> str:
        """The condition that a table row has no utube."""
        return f"{self.terms.table}.{self.role} IS NULL"

    def is_open(self, of: str = "") -> str:
        """Return the condition, for an index, that a head's first task may be taken."""
        return f"{self.has_room(of)} AND {of}k0 IS NOT NULL"

    def has_room(self, of: str = "", taken: str = "") -> str:
        """Return the condition that a head, with so many tasks taken, has room for another."""
        return f"{taken or f'{of}taken'} < {of}most"

    def in_turn(self, of: str = "") -> str:
        """Return the order in which takes go through heads. With `fair` the one served longest ago is the first."""
        return f"{f'{of}served, ' * self.fair}{self.terms.order_by(self.columns, of)}"

    def for_others(self, condition: str) -> str:
        return f"{condition} AND {self.role} IS NULL"

    @property
    def index(self) -> Index:
        """The index that finds a utube's first task."""
        ready = self.terms.is_state(READY) + ("" if self.fair else f" AND {self.role} IS NOT NULL")
        return ", ".join([self.called(self.role), self.terms.order]), ready, False

    by_key = ""  # an index hint: read rows by their keys
    by_open = ""  # an index hint: read the heads by the index of open ones

    def index_of_none(self, suffix: str) -> str:
        """Return the suffix for the index that finds the tasks without a utube."""
        return suffix

    def set_first(self, utube: str, and_so: str = "") -> str:
        """Return the assignments after SET that write a utube's first task, or none unless `and_so` holds."""
        return f"({', '.join(self.columns)}) = ({self.first(self.wanted, utube, and_so)})"

    def unless_dirty(self, utube: str) -> str:
        """Return what follows a condition on a group: that it is not dirty."""
        return ""

    # which task is the next

    def candidates(self, columns: Sequence[str], rows: Selector) -> list[str]:
        return [self.of_heads(columns, rows), *([self.of_others(columns, rows)] if self.may_be_none else [])]

    def ready(self, rows: Selector) -> str:
        return f"({self.any_dirty}) UNION ALL ({self.of_heads(['0'], rows)})"

    def behind_due(self, rows: Selector) -> str:
        group = f"SELECT 1 FROM {self.table} AS xq_h WHERE {self.of_utube('xq_h.utube', f'{self.terms.table}.')}"
        tasks = f"SELECT 0 FROM {self.terms.table_in_schema} WHERE {self.takeable(rows)}"
        return f"{tasks} AND EXISTS ({group} AND {self.has_room('xq_h.')}) LIMIT 1"

    def of_heads(self, columns: Sequence[str], rows: Selector) -> str:
        terms = self.terms
        return (
            f"SELECT {', '.join(columns)} FROM {self.table} AS xq_h{self.by_open} {self.join} "
            f"{terms.table_in_schema}{self.by_key} ON {terms.same_wait('xq_h', terms.table)} "
            f"WHERE {self.is_open('xq_h.')} AND {self.takeable(rows)} "
            f"ORDER BY {self.in_turn('xq_h.')} LIMIT {terms.limit(rows)}"
        )

    def of_others(self, columns: Sequence[str], rows: Selector) -> str:
        terms, table = self.terms, f"{self.terms.table}."
        index = terms.name(self.index_of_none(f"oldest_{READY}{'_of_tube' * rows.tube}"))
        return (
            f"SELECT {', '.join(columns)} FROM {terms.table_in_schema}{terms.by_index(index)} "
            f"WHERE {self.of_none} AND {terms.keys_there(table)}{self.takeable(rows)} "
            f"ORDER BY {self.terms.order_by(self.terms.ordered, table)} LIMIT {terms.limit(rows)}"
        )

    def takeable(self, rows: Selector) -> str:
        """Return the condition that a table row is ready, and in a tube within the selector."""
        terms, table = self.terms, f"{self.terms.table}."
        tube = f" AND {terms.is_in_tube(table + terms.roles['tube'])}" if rows.tube else ""
        due, skipped = terms.not_due(READY, table), terms.skipped(rows, table)
        return f"{self._ready(table)}{due}{tube}{skipped}{terms.takeable}"

    def first(self, wanted: str, utube: str, and_so: str = "") -> str:
        """Return a query for a utube's first task."""
        terms = self.terms
        return (
            f"SELECT {wanted} FROM {terms.table_in_schema} AS {FIRST[:-1]}{terms.by_index(terms.name('utube'))} "
            f"WHERE {self.of_utube(utube, FIRST)} AND {terms.keys_there(FIRST)}{self._ready(FIRST)}{and_so} "
            f"ORDER BY {self.terms.order_by(self.terms.ordered, FIRST)} LIMIT 1"
        )

    def _ready(self, of: str) -> str:
        return self.terms.is_state(READY, of + self.terms.roles["status"])

    # how a change from OLD to NEW affects groups

    def change_of(self, version: str, came: bool) -> HeadChange:
        """Return how a row affects its group when it is inserted (`came`) or deleted."""
        taken = self._taken(version)
        return HeadChange(self.head(version), taken if came else f"-{taken}", self.is_in(version), came)

    def changes_of(self, event: str) -> list[HeadChange]:
        """Return how groups change when NEW is inserted, OLD is deleted, or OLD is updated to NEW."""
        if event == "insert":
            return [self.change_of("NEW", came=True)]
        if event == "delete":
            return [self.change_of("OLD", came=False)]
        moved = self.terms.differ(f"OLD.{self.role}", f"NEW.{self.role}")
        changed = " OR ".join(self.terms.differ(f"OLD.{column}", f"NEW.{column}") for column in self._placed_by)
        was = self.is_in("OLD")
        stays = f"(CASE WHEN {moved} THEN 0 ELSE {self._taken('NEW')} END)"
        came = f"(({moved}) OR ({changed}) AND NOT {was})"
        return [
            HeadChange(
                self.head("OLD"), f"{stays} - {self._taken('OLD')}", f"(({moved}) OR {changed}) AND {was}", False
            ),
            HeadChange(self.head("NEW"), self._taken("NEW"), f"{came} AND {self.is_in('NEW')}", True),
        ]

    @property
    def _placed_by(self) -> list[str]:
        """The columns that decide a task's place in its group."""
        return [self.terms.roles["status"], *self.terms.ordered]

    @property
    def watched(self) -> list[str]:  # type: ignore[override]
        return [self.role, *self._placed_by]

    def _status(self, version: str) -> str:
        return f"{version}.{self.terms.roles['status']}"

    def is_in(self, version: str, states: Iterable[str] = COUNTED) -> str:
        """Return the condition that a row's version has a utube and one state in `states`."""
        in_states = self.terms.in_states(states, self._status(version))
        return f"({self.some(f'{version}.')}COALESCE({in_states}, FALSE))"

    def _taken(self, version: str) -> str:
        taken = self.terms.is_state(TAKEN, self._status(version))
        return f"(CASE WHEN {taken} THEN 1 ELSE 0 END)"

    # writing heads

    @property
    def itself(self) -> str:
        """The head table's name, for use within a statement on it."""
        return self.terms.quote(self.terms.name(self.suffix))

    @property
    def adding(self) -> str:
        """The ON CONFLICT clause that adds to existing heads."""
        return self.terms.on_conflict("utube", f"taken = {self.itself}.taken + excluded.taken")

    # turns

    @property
    def turns_over(self) -> str:
        """A query for empty heads whose turn need not be kept: each utube with tasks has been served since.

        The oldest beyond TURNS are among them, for some utubes may not be served at all, in a pause for example.
        """
        empty = f"{EMPTY}{self.unless_dirty('utube')}"
        since = f"SELECT MIN(served) FROM {self.table} WHERE NOT ({empty})"
        beyond = f"SELECT served FROM {self.table} WHERE {empty} ORDER BY served DESC LIMIT 1 OFFSET {TURNS}"
        is_over = f"served < COALESCE(({since}), {UNLIMITED}) OR served <= COALESCE(({beyond}), 0)"
        return f"SELECT utube FROM {self.table} AS xq_h WHERE {empty} AND ({is_over}) LIMIT {FORGOTTEN}"

    def forget(self, executor: Runs) -> None:
        while self.fair and self.forget_some(executor) == FORGOTTEN:
            pass

    def forget_some(self, executor: Runs) -> int:
        """Delete up to FORGOTTEN of them. Return their number."""
        return len(executor.run(f"DELETE FROM {self.table} WHERE utube IN ({self.turns_over}) RETURNING 1"))

    # building and checking all heads

    @property
    def built(self) -> list[str]:
        return self._built(self.terms.greatest("xq_n", self.limit("xq_u")))

    @property
    def built_first(self) -> list[str]:
        return self._built(self.limit("xq_u"))

    def _built(self, most: str) -> list[str]:
        table = self.terms.table
        each = f"SELECT {self.head(table)} AS xq_u, SUM({self._taken(table)}) AS xq_n"
        each += f" FROM {self.terms.table_in_schema} WHERE {self.is_in(table)} GROUP BY 1"
        limits = self.limits_of("xq_u")
        counted = f"SELECT xq_u, xq_n, {most}, {', '.join(limits.values())} FROM ({each}) AS xq_e WHERE TRUE ORDER BY 1"
        return [
            f"DELETE FROM {self.table}",
            f"INSERT INTO {self.table} (utube, taken, most, {', '.join(limits)}) {counted}{self.adding}",
            self.first_known,
        ]

    @property
    def wrong(self) -> str:
        terms, table = self.terms, self.terms.table
        utube, rows = self.head(table), f"FROM {terms.table_in_schema} WHERE {self.is_in(table)}"
        differ = " OR ".join(
            terms.differ(f"xq_h.{column}", f"({self.first(FIRST + mine, 'xq_t.utube')})")
            for column, mine in zip(self.columns, self.terms.ordered, strict=True)
        )
        most = self.terms.greatest("xq_t.taken", self.limit("xq_t.utube"))
        other = f"xq_h.most <> {most}{self.is_limited}"
        differs = f"xq_h.utube IS NULL OR {other} OR (xq_t.taken < xq_h.most AND ({differ}))"
        first = f"(({differs}){self.unless_dirty('xq_t.utube')})"
        unexpected = f"NOT ({EMPTY})" if self.fair else "TRUE"
        each = f"SELECT {utube} AS utube, SUM({self._taken(table)}) AS taken {rows} GROUP BY 1"
        return (
            f"SELECT (SELECT COUNT(*) FROM ({each}) AS xq_t LEFT JOIN {self.table} AS xq_h "
            f"ON xq_h.utube = xq_t.utube WHERE COALESCE(xq_h.taken, 0) <> xq_t.taken OR {first}) + "
            f"(SELECT COUNT(*) FROM (SELECT utube FROM {self.table} AS xq_h WHERE {unexpected}"
            f"{self.unless_dirty('xq_h.utube')} EXCEPT SELECT {utube} {rows}) AS xq_e)"
        )
