"""SQL for the links of dependants to their parents, for the feature after.

A dependant in W has a row for each parent that had not ended when it was put. The `state` of a link is '' until the
parent ends, then D (well), B (buried) or X (killed, expired or deleted). D and X stay: a later task with the parent's
key is another one. Triggers write it, and delete a link when its dependant no longer waits, or is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from xq.sql.rows import Rows

OPEN, FAILED = "('')", "('B', 'X')"
# For triggers, as effects.py has such texts: whether the task, now itself, waits no more, or may have ended, and how.
LEAVES = "({old_after} IS NOT NULL AND ({new_after} IS NULL OR {other_key}))"
MAY_END = "({other_key} OR ({other_status} AND ({new} IN ('D', 'Z', 'B', 'X') OR {old} = 'B')))"
WELL = "CASE WHEN {new} IN ('D', 'Z') THEN 'D' WHEN {new} IN ('B', 'X') THEN {new} ELSE '' END"
ENDED = f"CASE WHEN {{other_key}} THEN 'X' ELSE {WELL} END"


class Links:
    """A queue's links, as SQL."""

    def __init__(self, terms: Rows) -> None:
        self.terms, self.table = terms, terms.side("after")
        self.children = terms.parts
        self.parents = [f"p{i}" for i in range(len(terms.keys))]
        self.role = terms.roles["after"]

    @staticmethod
    def same(these: Sequence[str], those: Sequence[str], of: str = "", other: str = "") -> str:
        """Return the condition that a key in these columns is the one in those."""
        return " AND ".join(f"{of}{this} = {other}{that}" for this, that in zip(these, those, strict=True))

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

    def of_tasks(self, which: str) -> str:
        """Return a query as `listing` for the dependants among the tasks that a condition chooses."""
        chosen = f"SELECT {', '.join(self.terms.keys)} FROM {self.terms.table_in_schema} WHERE {which}"
        return self.listing(f"{self.terms.tuple_of([f'xq_l.{each}' for each in self.children])} IN ({chosen})")

    @property
    def any(self) -> str:
        """A query that finds a row, `at`, if a task waits for others."""
        return f"SELECT 0 AS at FROM {self.table} LIMIT 1"
