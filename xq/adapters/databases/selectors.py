"""SQL of selectors."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from xq.adapters.databases.named import filled
from xq.adapters.databases.token_buckets import TokenBuckets
from xq.core.compile import Selector
from xq.core.machine import READY, Guard
from xq.core.ports import fits_a_column
from xq.sessions.session import UUID_LENGTH

if TYPE_CHECKING:
    from xq.adapters.databases.groups import Groups
    from xq.adapters.databases.installer.installer import Installer
    from xq.adapters.databases.looks import Looks


class Selectors(TokenBuckets):
    """Selectors as conditions: tasks by key, the oldest tasks, tasks that are due, all tasks."""

    groups: Groups | None  # the SQL of the group heads; None without the feature utube
    looks: Looks
    installer: Installer

    begin_writing: str  # a write that changes nothing: it acquires the lock of a writer before the first read

    lists_keys = True  # whether one value can hold a list of keys

    @abstractmethod
    def rows_listed(self, columns: int, wide: int) -> str:
        """Return SQL of the first columns of the list `:keys`, whose rows have `wide` values."""

    def in_list(self, columns: Sequence[str], exact: Sequence[str], wide: int) -> str:
        """Return the condition that columns are in the list `:keys`, also in their form for an exact test."""
        test = f"IN ({self.rows_listed(len(columns), wide)})"
        found, exactly = (f"{self.tuple_of(each)} {test}" for each in (columns, exact))
        return found if found == exactly else f"({found} AND {exactly})"

    def keys_listed(self, of: str = "", wide: int = 0) -> str:
        """Return the condition that a key is in the list `:keys`; `of` as in `by_key`, `wide` as in `rows_listed`."""
        columns = [f"{of}{key}" for key in self.keys]
        exact = [self.exact(column, field.kind) for column, field in zip(columns, self.source.key, strict=True)]
        return self.in_list(columns, exact, wide or len(columns))

    # selectors

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
        """The columns of the order of a take: of the roles that order tasks, then of the key."""
        return [*(self.roles[role] for role in self.source.ordered_by), *self.keys]

    @property
    def order(self) -> str:
        return self.order_by(self.ordered)

    def order_by(self, columns: Iterable[str], of: str = "") -> str:
        """Return the order of a take by columns that correspond to `ordered`; `of` as in `by_key`."""
        return ", ".join(of + column for column in columns)

    def where(self, rows: Selector) -> str:
        """Return the condition of a statement that moves rows."""
        if rows.way in ("key", "keys"):
            return f"{self.named(rows)}{self.fence(rows)}"
        if rows.way in ("all", "each"):
            return self.in_states((rows.state, *rows.more)) if rows.more else self.is_state(rows.state)
        return f"{self.key} {'=' if rows.way == 'first' else 'IN'} ({self.select(', '.join(self.keys), rows)})"

    def named(self, rows: Selector, of: str = "", by_key: bool = False) -> str:
        """Return the condition of the row of a key, or of a list of keys, in the state; `of` as in `by_key`.

        With `by_key` no index that begins with the status can find it.
        """
        # A list is found by key: an index that begins with the status would read all taken tasks.
        status = self.not_by_index(self.roles["status"]) if by_key or rows.way == "keys" else ""
        state = self.is_state(rows.state, status)
        if rows.way == "key":
            due = f" AND {self.fell_due(rows.column, of)}" if rows.column else ""
            return f"{self.by_key(of)} AND {state}{due}"
        return f"{self.keys_listed(of, len(self.keys) + (rows.fence == 'takes'))} AND {state}"

    def fence(self, rows: Selector, owner: str = "") -> str:
        """Return the fence: a condition that only rows of this session, or with their token, are meant."""
        owner = owner or self.roles["owner"]
        if rows.fence == "takes":  # found by key, as above: a take may have many tasks
            columns = [*self.keys, self.not_by_index(owner)]
            return f" AND {self.in_list(columns, columns, len(columns))}"
        return {
            "": "",
            "session": f" AND substr({owner}, 1, {UUID_LENGTH + 1}) = :session",
            "take": f" AND {owner} = :token",
        }[rows.fence]

    def heads_for(self, rows: Selector) -> Groups | None:
        """Return the group heads if these rows are selected by them, else None."""
        return self.groups if rows.state == READY and rows.way in ("first", "oldest") else None

    def select(self, columns: str, rows: Selector) -> str:
        """Return a query of rows without their keys, which locks them: the first one, or the first `n`."""
        if utubes := self.heads_for(rows):
            return utubes.select(columns, rows)
        by, chosen = self.choice(rows)
        # A take waits for no other, so it skips what others have locked.
        return f"SELECT {columns} FROM {self.table_in_schema}{by} WHERE {chosen} LIMIT {self.limit(rows)}{self.skip}"

    @staticmethod
    def limit(rows: Selector) -> str:
        return "1" if rows.way == "first" else ":n"

    def choice(self, rows: Selector) -> tuple[str, str]:
        """Return an index hint for such rows, and their condition with its order."""
        state = f"{self.keys_there()}{self.is_state(rows.state)}"
        if rows.way == "owned":
            owner = self.owner_for_range
            ranges = [f"{owner} >= :first{i} AND {owner} < :end{i}" for i in range(rows.ranges)]
            if len(ranges) == 1:
                return "", f"{state} AND {ranges[0]}"
            # Read all taken tasks: the planner could take so many ranges for most of the table.
            return self.by_index(self.name(self.index_of_taken)), f"{state} AND ({' OR '.join(ranges)})"
        if rows.way == "due":
            due = f"{state} AND {self.fell_due(rows.column)} ORDER BY {self.roles[rows.column]}"
            return self.by_index(self.name(rows.column)), due
        tube = f" AND {self.in_tube}" if rows.tube else self.skipped(rows)
        index = self.name(f"oldest_{rows.state}{'_of_tube' * rows.tube}")
        within_rate = self.within_rate if rows.state == READY else ""
        return self.by_index(index), f"{state}{tube}{self.not_due(rows.state)}{within_rate} ORDER BY {self.order}"

    def skipped(self, rows: Selector, of: str = "") -> str:
        """Return a condition that excludes the tubes `:skip0`, `:skip1` ...; `of` as in `by_key`."""
        if not rows.skips:
            return ""
        tube, names = f"{of}{self.roles['tube']}", ", ".join(f":skip{i}" for i in range(rows.skips))
        return f" AND ({tube} IS NULL OR {self.exact(tube, self.kind('tube'))} NOT IN ({names}))"

    def fell_due(self, role: str, of: str = "") -> str:
        return f"{of}{self.roles[role]} <= {self.bound(self.kind(role))}"

    @property
    def index_of_taken(self) -> str:
        """The suffix of the index that has all taken tasks."""
        # Their own index would cost a fifth of the throughput, so the index of runat also has tasks without a ttr.
        return "runat" if "runat" in self.timed_columns else "taken"

    @property
    def timed_columns(self) -> list[str]:
        """The roles that hold the times of timers."""
        return list(dict.fromkeys(timer.column for timers in self.machine.timers.values() for timer in timers))

    @property
    def owner_for_range(self) -> str:
        """SQL of the role owner, for a comparison with a range."""
        return self.roles["owner"]

    def listed(self, keys: Sequence[Sequence[Any]], tokens: Sequence[str] = ()) -> str | None:
        """Return keys, each with its token if given, as the value `:keys`, in JSON; None if that is not possible."""
        columns = [*zip(*keys, strict=True)]
        if not self.lists_keys or not all(map(_is_listed, columns)):
            return None
        columns += [tuple(tokens)] * bool(tokens)
        return json.dumps([*zip(*columns, strict=True)] if len(columns) > 1 else columns[0], default=str)

    # queries

    afresh = ""  # a locking clause that makes a SELECT read the last committed rows, not the transaction's snapshot

    def listing(self, rows: Selector) -> str:
        """Return a query of the keys of these rows."""
        return f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.where(rows)}"

    @property
    def lock_task(self) -> str:
        """SQL that locks the task of a key against moves until the transaction ends.

        With row locks it does not wait, and returns a row if it has locked the task.
        """
        return self.begin_writing

    def lock_all(self, states: Iterable[str]) -> str:
        """Return SQL that locks the tasks in some states against moves until the transaction ends."""
        return self.begin_writing

    def holders(self, guard: Guard, n: int) -> str:
        """Return a query of the tasks that have the unique values `:unique0`, `:unique1` ..., each with its number."""
        column, value = self.unique_column(guard)
        values = [filled(value, unique=f":unique{i}") for i in range(n)]
        number = f"CASE {column} {' '.join(f'WHEN {value} THEN {i}' for i, value in enumerate(values))} END"
        held = f"{column} IN ({', '.join(values)}) AND {self.in_states(self.guarded_states(guard))}"
        by = self.by_index(self.name(guard.name))
        return f"SELECT {self.columns}, {number} FROM {self.table_in_schema}{by} WHERE {held}{self.lock}"

    def unique_column(self, guard: Guard) -> tuple[str, str]:
        """Return the column in which unique values are compared, and `:unique` as a value of it."""
        return self.roles[guard.role], ":unique"


def _is_listed(parts: Sequence[Any]) -> bool:
    """Return whether JSON holds these values of a column exactly, as a database reads them."""
    types = {*map(type, parts)}
    if types == {int}:
        return fits_a_column(min(parts)) and fits_a_column(max(parts))
    return types == {UUID} or (types == {str} and all(map(fits_a_column, parts)))
