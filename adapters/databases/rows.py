"""Which rows a statement means, and queries that only read them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xq.adapters.databases.terms import Terms
from xq.core.compile import Selector
from xq.core.machine import READY, TAKEN, Guard
from xq.core.ports import fits_a_column
from xq.sessions.session import UUID_LENGTH

if TYPE_CHECKING:
    from xq.adapters.databases.groups import Groups


class Rows(Terms):
    """Selectors as conditions: tasks by key, the oldest tasks, tasks that are due, all tasks."""

    @property
    @abstractmethod
    def groups(self) -> Groups | None:
        """What the feature utube needs."""

    # keys

    begin_writing: str  # a write that changes nothing: takes the lock that writes need, where a read would be too early

    @property
    @abstractmethod
    def keys_at_once(self) -> str:
        """The rows of a list of keys, `:keys`; as SQL."""

    @property
    def lists_keys(self) -> bool:
        """Whether keys may come as one list."""
        return len(self.keys) == 1

    # selectors

    def not_due(self, state: str, of: str = "") -> str:
        """What is due was not moved yet, but must not be handed out any more; `of` as in `by_key`."""
        timers = self.machine.timers.get(state, ())
        return "".join(
            f" AND ({of}{self.roles[t.column]} IS NULL OR "
            f"{of}{self.roles[t.column]} > {self.bound(self.kind(t.column))})"
            for t in timers
        )

    @property
    def order(self) -> str:
        """Lower priority first, then the key."""
        return ", ".join(filter(None, [self.roles.get("priority"), *self.keys]))

    def where(self, rows: Selector) -> str:
        """The condition of a statement that moves these rows."""
        if rows.way in ("key", "keys"):
            return f"{self.named(rows)}{self.fence(rows, self.owner)}"
        if rows.way in ("all", "each"):
            return self.in_states((rows.state, *rows.more)) if rows.more else self.is_state(rows.state)
        return f"{self.key} {'=' if rows.way == 'first' else 'IN'} ({self.pick(', '.join(self.keys), rows)})"

    def named(self, rows: Selector, of: str = "") -> str:
        """The row of the key, or those of the list of keys, in their state; `of` as in `by_key`."""
        if rows.way == "key":
            due = f" AND {self.fell_due(rows.column, of)}" if rows.column else ""
            return f"{self.by_key(of)} AND {self.is_state(rows.state)}{due}"
        # By the key: an index that leads with the status would read all that are taken.
        state = self.is_state(rows.state, self.not_by_index(self.roles["status"]))
        listed = self.holds(f"{of}{self.keys[0]}", f"IN ({self.keys_at_once})", self.source.key[0].kind)
        return f"{listed} AND {state}"

    def fence(self, rows: Selector, owner: str) -> str:
        """What follows a condition on rows of which only those in the right hand are meant."""
        return {
            "": "",
            "session": f" AND substr({owner}, 1, {UUID_LENGTH + 1}) = :session",
            "take": f" AND {owner} = :mark",
        }[rows.fence]

    def picked_from(self, rows: Selector) -> Groups | None:
        """The heads by which these rows are picked, if they are."""
        return self.groups if rows.state == READY and rows.way in ("first", "oldest") else None

    def pick(self, columns: str, rows: Selector) -> str:
        """A query of those rows that nobody names: the first `n`, or the first one."""
        by, chosen = self.choice(rows)
        limit = "1" if rows.way == "first" else ":n"
        return f"SELECT {columns} FROM {self.table_in_schema}{by} WHERE {chosen} LIMIT {limit}"

    def choice(self, rows: Selector) -> tuple[str, str]:
        """How such rows are found: what has the index used that is made for it, and the condition with its order."""
        state = self.is_state(rows.state)
        if rows.way == "held":
            return "", f"{state} AND {self.held}"
        if rows.way == "due":
            due = f"{state} AND {self.fell_due(rows.column)} ORDER BY {self.roles[rows.column]}"
            return self.by_index(self.name(rows.column)), due
        tube = f" AND {self.in_tube}" if rows.tube else ""
        index = self.name(f"oldest_{rows.state}{'_of_tube' * rows.tube}")
        return self.by_index(index), f"{state}{tube}{self.not_due(rows.state)} ORDER BY {self.order}"

    def fell_due(self, role: str, of: str = "") -> str:
        return f"{of}{self.roles[role]} <= {self.bound(self.kind(role))}"

    @property
    def held_by(self) -> str:
        """The role owner, as it is compared with a range."""
        return self.roles["owner"]

    @property
    def held(self) -> str:
        """The owner begins with the session."""
        if "owner" in self.roles:
            return self.of_session(self.held_by)
        return f"{self.key} IN (SELECT {', '.join(self.keys)} FROM {self.owners} WHERE {self.of_session('owner')})"

    @staticmethod
    def of_session(owner: str) -> str:
        """An owner begins with the session: said as a range, which an index can look up."""
        return f"{owner} >= :session AND {owner} < :session_end"

    def listed(self, keys: Sequence[Sequence[Any]]) -> str | None:
        """Keys as the one value `:keys`, in JSON; None where that cannot be."""
        if not self.lists_keys or not all(fits_a_column(part) for (part,) in keys):
            return None
        return json.dumps([part for (part,) in keys])

    # queries

    afresh = ""  # what has a SELECT see what others have committed since its transaction began to read

    def look(self, afresh: str = "") -> str:
        """One row by its key, whatever its state, and whoever holds it."""
        return f"SELECT {self.columns}, {self.owner} FROM {self.table_in_schema} WHERE {self.by_key()}{afresh}"

    def look_for_owner(self, afresh: str) -> str:
        """Whoever holds the task of a key, where no role tells it: `afresh` does not reach there from the row."""
        return f"SELECT owner FROM {self.owners} WHERE {self.by_key()}{afresh}"

    def listing(self, rows: Selector) -> str:
        """The keys of these rows."""
        return f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.where(rows)}"

    @property
    def hold(self) -> str:
        """Has whoever would move the task of a key wait for the end of this transaction.

        Where rows are locked it waits for nobody itself, and tells with a row that it could.
        """
        return self.begin_writing

    def hold_all(self, states: Iterable[str]) -> str:
        """Has whoever would move a task in one of these states wait for the end of this transaction."""
        return self.begin_writing

    def holder(self, guard: Guard) -> str:
        """The row that holds a unique value."""
        return f"SELECT {self.columns} FROM {self.table_in_schema} WHERE {self.held_by_one(guard)}{self.lock}"

    def held_by_one(self, guard: Guard, of: str = "") -> str:
        """That a row holds the value `:unique`; `of` as in `by_key`."""
        states = self.in_states(self.holding(guard), f"{of}{self.roles['status']}")
        return f"{of}{self.roles[guard.role]} = :unique AND {states}"

    def held_too_often(self, guard: Guard, states: Sequence[str]) -> str:
        """A value that more tasks in these states hold than may, if there is one."""
        role, most = self.roles[guard.role], guard.value or 1
        value = self.exact(role, self.kind(guard.role))
        of = f"{self.table_in_schema} WHERE {self.in_states(states)} AND {role} IS NOT NULL"
        return f"SELECT {value} FROM {of} GROUP BY {value} HAVING COUNT(*) > {most} LIMIT 1"

    def by_state(self, state: str) -> str:
        """The tasks in a state, oldest first."""
        return (
            f"SELECT {self.columns} FROM {self.table_in_schema} WHERE {self.is_state(state)} "
            f"ORDER BY {self.order} LIMIT :n"
        )

    @property
    def taken(self) -> str:
        """Keys and owners of the taken tasks."""
        return f"SELECT {', '.join(self.keys)}, {self.owner} FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)}"

    @property
    def statuses_in_use(self) -> str:
        """How many rows hold each status, of the queue or not: reads the whole table."""
        status = self.exact(self.roles["status"], self.kind("status"))
        return f"SELECT {status}, COUNT(*) FROM {self.table_in_schema} GROUP BY 1"

    @property
    def statuses_alike(self) -> str:
        """The places, among the states, of the first and the last whose statuses compare as equal in the column."""
        column = self.exact(self.roles["status"], self.kind("status"))
        words = [self.literal(self.words[state]) for state in self.machine.states]
        # The column first: what is compared has its type and its collation.
        found = f"SELECT -1 AS place, {column} AS word FROM {self.table_in_schema} WHERE FALSE"
        listed = " UNION ALL ".join([found, *(f"SELECT {place}, {word}" for place, word in enumerate(words))])
        return f"SELECT MIN(place), MAX(place) FROM ({listed}) AS listed GROUP BY word HAVING COUNT(*) > 1"

    @cached_property
    def any_ready(self) -> str:
        """Whether take would find something: a look that takes no lock."""
        if self.groups:
            picks = self.groups.picks(["1"], Selector("first", READY))
            found = [f"EXISTS ({look})" for look in [*picks, *filter(None, [self.groups.any_dirty])]]
            return f"SELECT 1{self.absent_rows} WHERE {' OR '.join(found)}"
        by = self.by_index(self.name(f"oldest_{READY}"))
        ready = f"{self.is_state(READY)}{self.not_due(READY)}"
        return f"SELECT 1 FROM {self.table_in_schema}{by} WHERE {ready} LIMIT 1"
