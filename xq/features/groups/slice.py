"""The SQL of the feature groups: a group is a row in a table of its own, and tasks are its members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from xq.core.errors import shown
from xq.core.machine import ENDED
from xq.features.groups.postgres import GroupsProgram
from xq.sql.effects import UPDATED
from xq.sql.rows import Rows
from xq.sql.slice import Effect, Slice
from xq.sql.sql_file import filled_in, texts

KEPT = 30 * 24 * 3600  # seconds for which a group is kept after it is done
ITS_GROUP = "name = {old_group}"
IS_KILLED = "{was_unfinished} AND {new} = 'X' AND {event_name} <> 'ack'"
KILLED = Effect("group", {**UPDATED, "delete": ""}, IS_KILLED, {"killed": "killed + 1"}, ITS_GROUP)
# A member that leaves its group has not ended.
LEFT = Effect(
    "group",
    UPDATED,
    "{was_unfinished} AND {other_group}",
    {"total": "total - 1"},
    ITS_GROUP,
    trigger="update_group",
    of=["group"],
)


class GroupsSlice(Slice):
    """One queue's groups: the conditions on members, and the texts of groups.sql by their names."""

    terms: Rows
    folder = Path(__file__).parent
    tables = ("group",)
    program = GroupsProgram

    def __init__(self, terms: Rows) -> None:
        super().__init__(terms)
        self.table, self.role = terms.side("group"), terms.roles["group"]
        self.states = [state for state in terms.machine.states if state not in ENDED]  # of unfinished members
        self.live = [state for state in self.states if state != "B"]
        unfinished = f"{self.unfinished()} AND {self.role} IS NOT NULL"
        self.watched, self.indexes = [self.role], {"members": (", ".join([self.role, *terms.keys]), unfinished, False)}

    def of(self, name: str) -> str:
        """Return the condition that a task belongs to the group with this name, as SQL."""
        return self.terms.exactly(self.role, f"= {name}")

    def unfinished(self, status: str = "") -> str:
        return self.terms.in_states(self.states, status)

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

    @cached_property
    def texts(self) -> Mapping[str, str]:
        terms = self.terms
        links = (slice.links_among(self.of(":group")) for slice in terms.slices)
        holes = {
            **terms.shared.holes,
            "queue": terms.literal(terms.source_name),
            "tasks": terms.table_in_schema,
            "links": next(filter(None, links), ""),
            "state": terms.letter(terms.roles["status"]),
            "group_table": self.table,
            "group": self.role,
            "members": terms.read_by("members"),
            "settle": terms.side("settle"),
            "of_group": self.of(":group"),
            "unfinished": self.unfinished(),
            "live": terms.in_states(self.live),
            "afresh": terms.afresh,
            "has_ended": self.has_ended(":group", "runs"),
            "its_members_ended": self.has_ended("xq_g.name", "xq_g.runs"),
            "its_others_ended": self.has_ended("xq_g.name", "1"),
            "status": terms.roles["status"],
            "keys": ", ".join(terms.keys),
            "kept": str(KEPT),
        }
        return {name: filled_in(text, (), holes) for name, text in texts(self.folder / "groups.sql").items()}

    def stats(self, group: str) -> str:
        """Return as SQL the text of what `Group.stats` returns of a group with this name, as SQL, that is done."""
        terms, its = self.terms, f"FROM {self.table} WHERE name = {group}"
        of_it = f"SELECT COUNT(*) FROM {terms.table_in_schema} WHERE {self.of(group)}"
        buried = f"({of_it} AND {terms.is_state('B')})" if "B" in self.states else "0"
        failed = f"((SELECT killed {its}) + {buried})"
        total = terms.greatest(f"(SELECT total {its})", failed)
        none = "".join(f'"{state}":0,' for state in self.states if state != "B")
        parts = [f"'{{{none}\"B\":'", buried] if "B" in self.states else [f"'{{{none[:-1]}'"]
        parts += ["',\"done\":'", f"({total} - {failed})", "',\"failed\":'", failed, "',\"total\":'", total, "'}'"]
        return terms.joined(parts)

    @property
    def pending(self) -> str:  # type: ignore[override]
        return f"SELECT 0 AS at FROM {self.table} WHERE done IS NULL AND sealed = 1 LIMIT 1"

    @property
    def effects(self) -> Sequence[Effect]:  # type: ignore[override]
        return (KILLED, LEFT) if self.terms.settles else (LEFT,)  # else the function that ends a group counts

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        status, group = (f"{version}.{column}" for column in (self.terms.roles["status"], self.role))
        is_unfinished = f"{group} IS NOT NULL AND {self.unfinished(status)}"
        is_live = f"{group} IS NOT NULL AND {self.terms.in_states(self.live, status)}"
        return {f"{was}_unfinished": f"COALESCE({is_unfinished}, FALSE)", f"{was}_live": f"COALESCE({is_live}, FALSE)"}

    def held(self, run: Callable[..., list[Any]]) -> Iterator[tuple[str, str, str]]:
        for (name,) in run(self.texts["held_groups"]):
            yield f"the group {shown(name)} is open: buried members alone are left of it", "group", name
