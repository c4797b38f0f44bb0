"""The SQL of the feature after: the links of dependants to their parents.

A dependant in W has a row for each parent that had not ended when it was put. The `state` of a link is '' until the
parent ends, then D (well), B (buried) or X (killed, expired or deleted). D and X stay: a later task with the parent's
key is another one. Triggers write it, and delete a link when its dependant no longer waits, or is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from xq.features.after.postgres import AfterProgram
from xq.sql.effects import UPDATED
from xq.sql.rows import Rows
from xq.sql.slice import Effect, Hidden, Slice

PARENTS = 10  # of a dependant, that `why` names
CHAIN = 20  # steps from parent to parent that it follows
OPEN, FAILED = "('')", "('B', 'X')"
# For triggers, as effects.py has such texts: whether the task, now itself, waits no more, or may have ended, and how.
LEAVES = "({old_after} IS NOT NULL AND ({new_after} IS NULL OR {other_key}))"
MAY_END = "({other_key} OR ({other_status} AND ({new} IN ('D', 'Z', 'B', 'X') OR {old} = 'B')))"
WELL = "CASE WHEN {new} IN ('D', 'Z') THEN 'D' WHEN {new} IN ('B', 'X') THEN {new} ELSE '' END"
ENDED = f"CASE WHEN {{other_key}} THEN 'X' ELSE {WELL} END"
HAVE_NOT_ENDED = "{old_is_parent} AND state IN ('', 'B')"
BY_DELETE = "CASE WHEN {was_taken} AND {event_name} = 'ack' THEN 'D' ELSE 'X' END"
OWN: Mapping[str, Any] = {"trigger": "after_update", "of": ("status", "after", "key")}
EFFECTS = (
    Effect("after", UPDATED, LEAVES, where="{old_is_child}", **OWN),
    Effect("after", UPDATED, MAY_END, {"state": ENDED}, HAVE_NOT_ENDED, **OWN),
    Effect("after", {"delete": ""}, "{old_after} IS NOT NULL", where="{old_is_child}"),
    Effect("after", {"delete": ""}, "{surely_was}", {"state": BY_DELETE}, HAVE_NOT_ENDED),
)


class AfterSlice(Slice):
    """One queue's links."""

    terms: Rows
    folder = Path(__file__).parent
    tables = ("after",)
    program = AfterProgram
    conditions: ClassVar[Mapping[str, str]] = {"leaves": LEAVES, "may_end": MAY_END, "ended": ENDED}

    def __init__(self, terms: Rows) -> None:
        super().__init__(terms)
        self.table, self.role, self.children = terms.side("after"), terms.roles["after"], terms.parts
        self.parents = [f"p{i}" for i in range(len(terms.keys))]

    @staticmethod
    def same(these: Sequence[str], those: Sequence[str], of: str = "", other: str = "") -> str:
        """Return the condition that a key in these columns is the one in those."""
        return " AND ".join(f"{of}{this} = {other}{that}" for this, that in zip(these, those, strict=True))

    def parents_locked(self, listed: bool) -> str:
        """Return SQL that finds parents, by a key or a list, and their tokens. None ends unseen before the transaction.

        Where triggers settle, it writes the rows. If it locked them alone, an end at REPEATABLE READ that began before
        would wait for the put, go on, and not see the links: the dependant would wait for ever.
        """
        terms, status = self.terms, self.terms.roles["status"]
        table, columns = terms.table_in_schema, f"{terms.columns}, {terms.roles['owner']}"
        which = terms.keys_listed() if listed else terms.by_key()
        if not terms.settles:
            return f"UPDATE {table} SET {status} = {status} WHERE {which} RETURNING {columns}"
        return f"SELECT {columns} FROM {table}{terms.by_primary * listed} WHERE {which}{terms.lock}"

    def insert(self, count: int) -> str:
        """Return the statement that links `count` dependants, each with a parent and its state."""
        keys = [f":{name}{i}" for name in "pk" for i in range(len(self.parents))]
        values = ", ".join(f"({', '.join([*(f'{key}_{n}' for key in keys), f':v{n}'])})" for n in range(count))
        names = ", ".join([*self.parents, *self.children])
        # On MariaDB TRUNCATE by SQL leaves links, and new tasks get the same keys.
        again = self.terms.on_conflict(names, f"state = {self.terms.new_value('state')}")
        return f"INSERT INTO {self.table} ({names}, state) VALUES {values}{again}"

    @cached_property
    def queries(self) -> dict[str, str]:
        """The queries for dependants: of a parent that has ended, by a key; of those listed; the first `:n`, and those
        beyond the key `:p0`, `:p1` .. Each finds (key, role after, whether a parent has not ended, whether one has
        failed) by key. The role is NULL for a task that waits no more: another program has written its status.
        """
        found = {}
        for name, columns, more in (("parent", self.parents, " AND state <> ''"), ("child", self.children, "")):
            found[name] = f"WHERE {self._are(columns, 'k')}{more}"
            if self.terms.lists_keys:
                found[f"{name} listed"] = f"WHERE {self.terms.in_list(columns, columns, len(columns))}{more}"
        found["first"] = f"ORDER BY {', '.join(self.children)} LIMIT :n"
        found["beyond"] = f"WHERE {self.terms.beyond(self.children, '>')} {found['first']}"
        return {name: self._dependants(which) for name, which in found.items()}

    def _are(self, columns: Sequence[str], name: str) -> str:
        return " AND ".join(f"{column} = :{name}{i}" for i, column in enumerate(columns))

    def _dependants(self, which: str) -> str:
        terms, keys, status = self.terms, [f"xq_l.{part}" for part in self.children], self.terms.roles["status"]
        there = f"{self.same(terms.keys, self.children, 'xq_t.', 'xq_l.')} AND {terms.is_state('W', f'xq_t.{status}')}"
        same = self.same(self.children, self.children, "xq_b.", "xq_l.")
        # From the far end of the index: on a server the near one is full of entries of links whose parents have ended.
        order = ", ".join(f"xq_b.{each} DESC" for each in self.parents)
        # MariaDB names the index of the dependants after its first column, and would read the key for this order.
        hint = "" if terms.is_local else terms.hint(terms.quote(self.children[0]))

        def any_in(states: str) -> str:
            there = f"{same} AND xq_b.state IN {states} ORDER BY {order} LIMIT 1"
            return f"COALESCE((SELECT 1 FROM {self.table} AS xq_b{hint} WHERE {there}), 0)"

        return (
            f"SELECT {', '.join(keys)}, xq_t.{self.role}, {any_in(OPEN)}, {any_in(FAILED)} "
            f"FROM (SELECT DISTINCT {', '.join(self.children)} FROM {self.table} {which}) AS xq_l "
            f"LEFT JOIN {terms.table_in_schema} AS xq_t ON {there} ORDER BY {', '.join(keys)}"
        )

    def listing(self, which: str) -> str:
        """Return a query for up to `:n` (parent, dependant, the link's state, the parent's) of the links `xq_l` that a
        condition chooses: failed ones first. X is a parent that is gone.
        """
        terms, keys = self.terms, [f"xq_l.{each}" for each in [*self.parents, *self.children]]
        letter = terms.letter(f"xq_t.{terms.roles['status']}")
        there = f"{self.same(terms.keys, self.parents, 'xq_t.', 'xq_l.')} AND xq_l.state <> 'X'"
        return (
            f"SELECT {', '.join(keys)}, xq_l.state, {letter} FROM {self.table} AS xq_l "
            f"LEFT JOIN {terms.table_in_schema} AS xq_t ON {there} WHERE {which} "
            f"ORDER BY xq_l.state DESC, {', '.join(keys)} LIMIT :n"
        )

    @property
    def of_one(self) -> str:
        """A query as `listing` for the parents of the dependant with a key that have not ended well."""
        return self.listing(f"{self._are([f'xq_l.{each}' for each in self.children], 'k')} AND xq_l.state <> 'D'")

    def links_among(self, which: str) -> str:
        chosen = f"SELECT {', '.join(self.terms.keys)} FROM {self.terms.table_in_schema} WHERE {which}"
        return self.listing(f"{self.terms.tuple_of([f'xq_l.{each}' for each in self.children])} IN ({chosen})")

    @property
    def failed(self) -> str:  # type: ignore[override]
        terms, child = self.terms, self.same(self.terms.keys, self.children, "xq_c.", "xq_l.")
        waits = terms.is_state("W", f"xq_c.{terms.roles['status']}")
        there = f"SELECT 1 FROM {terms.table_in_schema} AS xq_c WHERE {child} AND {waits}"
        return self.listing(f"xq_l.state IN {FAILED} AND EXISTS ({there} AND substr(xq_c.{self.role}, 1, 4) = 'hold')")

    @property
    def pending(self) -> str:  # type: ignore[override]
        return f"SELECT 0 AS at FROM {self.table} LIMIT 1"

    @property
    def effects(self) -> Sequence[Effect]:  # type: ignore[override]
        return EFFECTS if self.terms.settles else ()  # else a function notes the ends, and settles the dependants

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        of = {"parent": self.parents, "child": self.children}
        return {f"{old}_is_{one}": self.same(mine, self.terms.keys, other=f"{version}.") for one, mine in of.items()}

    def waits(self, task: Hidden) -> Iterator[str] | None:
        return self._parents(task) if task.state == "W" and task.role("after") else None

    def _parents(self, task: Hidden) -> Iterator[str]:
        """Yield the parents of a dependant that have not ended well, the failed ones first, and a chain's first."""
        of_one, size = self.of_one, len(task.key)
        rows = task.run(of_one, **task.key, n=PARENTS)
        for *keys, link, letter in rows:
            key = task.named(keys[:size])
            if link == "X":
                yield f"its parent {key} is gone: killed, expired or deleted; restart releases the task all the same"
            elif link == "B":
                yield f"its parent {key} is {task.word('B')}: dig it, or restart releases the task all the same"
            else:
                yield f"it waits for its parent {key}, which is {task.word(letter)}"
        waiting = row = next((row for row in rows if (row[-2], row[-1]) == ("", "W")), None)
        steps = 0
        while row and row[-1] == "W" and steps < CHAIN:
            above = task.run(of_one, **dict(zip(task.key, row, strict=False)), n=1)
            if not above:
                break  # its own delay
            row, steps = above[0], steps + 1
        if waiting and row and steps:
            what = "gone: killed, expired or deleted" if row[-2] == "X" else task.word(row[-1])
            dependant, key = task.named(waiting[:size]), task.named(row[:size])
            yield f"task {dependant} waits, in the end, for task {key}, which is {what}"
