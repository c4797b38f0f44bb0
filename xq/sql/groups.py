"""Groups, and the tasks that are their members, as SQL. A group is a row in a table of its own."""

from __future__ import annotations

from xq.core.machine import ENDED
from xq.sql.terms import Terms

FEW = 32  # members: if more are left, an end does not lock the group's row
SKIPPED = "another task has its unique value"  # what PostgreSQL's function raises if it has not put `then`
KEPT = 30 * 24 * 3600  # seconds for which a group is kept after it is done


class Groups:
    """The conditions on members, and the names that texts of groups have, for one queue with the feature groups."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.table = terms.side("group")
        self.role = terms.roles["group"]
        self.states = [state for state in terms.machine.states if state not in ENDED]  # of unfinished members
        self.live = [state for state in self.states if state != "B"]

    def of(self, name: str) -> str:
        """Return the condition that a task belongs to the group with this name, as SQL."""
        return self.terms.exactly(self.role, f"= {name}")

    def unfinished(self, status: str = "") -> str:
        return self.terms.in_states(self.states, status)

    @property
    def index(self) -> tuple[str, str, bool]:
        """The index of unfinished members, as `Objects.wanted_indexes` returns one."""
        return ", ".join([self.role, *self.terms.keys]), f"{self.unfinished()} AND {self.role} IS NOT NULL", False

    def has_ended(self, name: str, runs: str) -> str:
        """Return the condition that a group has no unfinished members; `runs` is SQL: whether buried ones have ended.

        It reads the index from its far end: tasks end in the order of their keys, and what has ended lies before.
        """
        last = ", ".join(f"{key} DESC" for key in self.terms.keys)

        def none(states: list[str]) -> str:
            found = f"SELECT 1 FROM {self.terms.read_by('members')} WHERE {self.of(name)}"
            together = [states] if self.terms.partial_indexes else [[state] for state in states]
            if self.terms.partial_indexes:  # SQLite uses one only where its own condition stands
                found = f"{found} AND {self.unfinished()}"
            of_each = (f"{found} AND {self.terms.in_states(each)} ORDER BY {last} LIMIT 1" for each in together)
            return " AND ".join(f"({query}) IS NULL" for query in of_each)

        buried = f" AND ({runs} = 1 OR {none(['B'])})" if "B" in self.states else ""
        return f"{none(self.live)}{buried}"

    @property
    def any_open(self) -> str:
        """A query that finds a row if a group is open."""
        return f"SELECT 0 AS at FROM {self.table} WHERE done IS NULL AND sealed = 1 LIMIT 1"

    @property
    def holes(self) -> dict[str, str]:
        """What the texts of groups name: in records.sql, and in the triggers of each database."""
        return {
            "group_table": self.table,
            "group": self.role,
            "members": self.terms.read_by("members"),
            "settle": self.terms.side("settle"),
            "of_group": self.of(":group"),
            "unfinished": self.unfinished(),
            "live": self.terms.in_states(self.live),
            "afresh": self.terms.afresh,
            "has_ended": self.has_ended(":group", "runs"),
            "its_members_ended": self.has_ended("xq_g.name", "xq_g.runs"),
            "its_others_ended": self.has_ended("xq_g.name", "1"),
            "status": self.terms.roles["status"],
            "keys": ", ".join(self.terms.keys),
            "kept": str(KEPT),
        }
