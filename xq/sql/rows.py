"""The rows of a queue's table as conditions: key lists, due tasks, and the order in which takes find tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from xq.core.compile import SKIPS, Selector
from xq.core.machine import READY, TAKEN
from xq.sql.floors import Floors
from xq.sql.heads import Heads
from xq.sql.limits import Limits
from xq.sql.slice import Slice
from xq.sql.terms import Terms


class Rows(Terms):
    """Conditions on rows and their orders, in one database's terms."""

    lists_keys = True  # whether one value can hold a list of keys

    @cached_property
    def slices(self) -> list[Slice]:
        """What the queue's features add to its SQL."""
        return [made(self) for made in self.machine.slices]

    @cached_property
    def slice_of(self) -> Mapping[type[Slice], Any]:
        """The slices by their classes."""
        return {type(slice): slice for slice in self.slices}

    @cached_property
    def charges(self) -> Slice | None:
        """The slice that charges takes."""
        return next((slice for slice in self.slices if slice.charges), None)

    @cached_property
    def heads(self) -> Heads | None:
        """The heads through which takes find tasks; None if they find them by an index alone."""
        return next((slice.heads for slice in self.slices if slice.heads), None)

    @cached_property
    def takeable(self) -> str:
        """What follows the condition on a ready row, in a take."""
        return "".join(slice.takeable for slice in self.slices)

    @property
    def opens(self) -> str:
        """A query of the microseconds until a take may find what slices hide now; NULL for never."""
        return " UNION ALL ".join(slice.opens for slice in self.slices if slice.opens)

    @cached_property
    def limits(self) -> Limits | None:
        """The SQL of the limits that may be changed while programs run; None without such a feature."""
        return Limits(self) if self.machine.limited else None

    @cached_property
    def floors(self) -> Floors | None:
        """The SQL of the keys at which takes begin to look; None if they always look from the first."""
        return None

    @abstractmethod
    def rows_listed(self, columns: int, wide: int) -> str:
        """Return SQL for the first columns in the list `:keys`, whose rows have `wide` values."""

    def in_list(self, columns: Sequence[str], exact: Sequence[str], wide: int) -> str:
        """Return the condition that columns are in the list `:keys`, also in their form for an exact test."""
        test = f"IN ({self.rows_listed(len(columns), wide)})"
        found, exactly = (f"{self.tuple_of(each)} {test}" for each in (columns, exact))
        return found if found == exactly else f"({found} AND {exactly})"

    def keys_listed(self, wide: int = 0) -> str:
        """Return the condition that a key is in the list `:keys`; `wide` as in `rows_listed`."""
        exact = [self.exact(key, field.kind) for key, field in zip(self.keys, self.source.key, strict=True)]
        return self.in_list(self.keys, exact, wide or len(self.keys))

    def not_due(self, state: str, of: str = "") -> str:
        """Return a condition without due tasks, which may not have been moved yet; `of` as in `by_key`."""
        timers = self.machine.timers.get(state, ())
        return "".join(
            f" AND ({of}{self.roles[t.column]} IS NULL OR "
            f"{of}{self.roles[t.column]} > {self.bound(self.kind(t.column))})"
            for t in timers
        )

    @cached_property
    def ordered(self) -> list[str]:
        """The columns by which takes order tasks: the roles', then the key's."""
        return [*(self.roles[role] for role in self.source.ordered_by), *self.keys]

    @property
    def ordered_as(self) -> str:
        """What the names of tables whose columns and index have a take's order end with."""
        return "_highest" * self.machine.settings.highest_first if self.source.ordered_by else "_key"

    @property
    def order(self) -> str:
        return self.order_by(self.ordered)

    def order_by(self, columns: Iterable[str], of: str = "") -> str:
        """Return a take's order by columns that correspond to `ordered`; `of` as in `by_key`."""
        roles = self.ways[self.machine.settings.highest_first] if self.source.ordered_by else ""
        return ", ".join(of + column + roles * (i < len(self.source.ordered_by)) for i, column in enumerate(columns))

    ways = "", " DESC"  # after a role in ORDER BY: the lowest value first, NULL before it, or the other way round

    @staticmethod
    def limit(rows: Selector) -> str:
        return "1" if rows.mode == "first" else ":n"

    def choice(self, rows: Selector) -> tuple[str, str]:
        """Return an index hint for such rows, and their condition with its order."""
        state = f"{self.keys_there()}{self.is_state(rows.state)}"
        if rows.mode == "owned":
            owner = self.owner_for_range
            ranges = [f"{owner} >= :first{i} AND {owner} < :end{i}" for i in range(rows.ranges)]
            if len(ranges) == 1:
                return "", f"{state} AND {ranges[0]}{self.lost(rows)}"
            # Read all taken tasks: the planner could expect so many ranges to have most rows.
            owned = f"{state} AND ({' OR '.join(ranges)}){self.lost(rows)}"
            return self.by_index(self.name(self.index_of_taken)), owned
        if rows.mode == "due":
            due = f"{state} AND {self.due(rows)}{self.lost(rows)} ORDER BY {self.roles[rows.column]}"
            return self.by_index(self.name(rows.column)), due
        tube = f"{f' AND {self.in_tube}' if rows.tube else ''}{self.skipped(rows)}"
        index = self.name(f"oldest_{rows.state}{'_of_tube' * rows.tube}")
        takeable = self.takeable if rows.state == READY else ""
        by, above = self.by_index(index), ""
        if self.floors and rows.floor:
            by, above = self.floors.in_order, self.floors.above
        return by, f"{state}{tube}{above}{self.not_due(rows.state)}{takeable} ORDER BY {self.order}"

    def skipped(self, rows: Selector, of: str = "") -> str:
        """Return a condition that excludes the values of SKIPS, and keys `:k0_0` ...; `of` as in `by_key`."""
        keys = ", ".join(self.tuple_of([f":k{i}_{n}" for i in range(len(self.keys))]) for n in range(rows.passed))
        passed = f" AND {self.tuple_of([of + key for key in self.keys])} NOT IN ({keys})" if keys else ""
        for (role, name), n in zip(SKIPS.items(), rows.skips):
            if n:
                column, names = f"{of}{self.roles[role]}", ", ".join(f":{name}{i}" for i in range(n))
                exact = self.exact(self.value_of(role, column), self.kind(role))
                passed = f" AND ({column} IS NULL OR {exact} NOT IN ({names})){passed}"
        return passed

    def lost(self, rows: Selector) -> str:
        """Return the condition that the task's take is, or is not yet, the last that may be lost; "" for any."""
        if not (rows.lost and (last := self.machine.last_take)):
            return ""
        return f" AND COALESCE({self.roles['lost']}, 0) {'>=' if rows.lost == 'last' else '<'} {last.loses - 1}"

    def due(self, rows: Selector) -> str:
        """Return the condition that a task is due; by a role that holds no time, that it has a value."""
        if rows.column not in self.timed_columns:
            return f"{self.roles[rows.column]} IS NOT NULL"
        held = self.not_held if (rows.state, rows.column) == (TAKEN, "runat") else ""
        return f"{self.roles[rows.column]} <= {self.bound(self.kind(rows.column))}{held}"

    @property
    def index_of_taken(self) -> str:
        """The suffix for the index that has all taken tasks."""
        # A separate index would cost a fifth of the throughput, so the index on runat also has tasks without a ttr.
        return "runat" if "runat" in self.timed_columns else "taken"

    @property
    def timed_columns(self) -> list[str]:
        """The roles that hold the timers' times."""
        return list(dict.fromkeys(timer.column for timers in self.machine.timers.values() for timer in timers))

    @property
    def owner_for_range(self) -> str:
        """SQL for the role owner, for a comparison with a range."""
        return self.roles["owner"]
