"""A feature's part of the SQL of its queue. The dialect and the engine loop over slices, and know none by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from xq.core.compile import Charge as Charge
from xq.sql.effects import Effect as Effect
from xq.sql.heads import Heads, Index
from xq.sql.terms import Terms


class Hidden(NamedTuple):
    """A task of which operators ask, for `Slice.why` if it is ready, `Slice.waits` and `Slice.tells`."""

    run: Callable[..., list[Any]]  # runs a query with values by name
    key: Mapping[str, Any]  # the values that `terms.by_key()` names
    role: Callable[[str], Any]  # returns what the application's field for a role holds; None without such a field
    named: Callable[[Sequence[Any]], str]  # returns a key, as a row's first columns, as messages show it
    state: str  # its letter
    word: Callable[[str], str]  # returns a state's word, as messages show it
    at: float | None  # when its timer moves it, in seconds since 1970
    moment: Callable[[float], str]  # returns such a time as text


class Slice:
    """One feature's SQL for one queue, written with its `terms`: names, literals, times, states and keys.

    Each hook is SQL, "" for none. It has no named values, and names columns of tasks as `terms.its(role)` does: the
    table may be joined.
    """

    guard: ClassVar[str] = ""  # the name of the guard that it keeps
    charges: ClassVar[bool] = False  # whether takes are charged. One feature of a queue may do so

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.file = self.folder / f"{terms.family}.sql" if self.folder else None

    @classmethod
    def hides(cls) -> bool:
        """Return whether it may hide ready tasks from takes."""
        return cls.takeable is not Slice.takeable

    @property
    def takeable(self) -> str:
        """What follows the condition on a ready task that a take may find: " AND ...". Other tasks are hidden."""
        return ""

    @property
    def opens(self) -> str:
        """A query of the microseconds until a take may find what is hidden now; NULL for never.

        Without one, nothing wakes a take that waits.
        """
        return ""

    @property
    def tidy(self) -> str:
        """What the maintenance runs each minute."""
        return ""

    def charge(self, task: str) -> Charge:
        """Return what the take of the task that this condition finds charges."""
        raise NotImplementedError

    def relimited(self, before: int, now: int) -> str:
        """Return SQL that runs when the limit with the key `:value` was changed; '' is the queue's."""
        return ""

    # Of the installed objects, by the suffixes of their names:
    folder: ClassVar[Path | None] = None  # with its texts for each database: sqlite.sql, innodb.sql, postgres.sql
    tables: Sequence[str] = ()  # side tables, whose texts have these names there, or in each database's tables.sql
    indexes: Mapping[str, Index] = MappingProxyType({})
    watched: Sequence[str] = ()  # the columns whose changes triggers must see, beside the status, the key and the tube

    program: ClassVar[type[Any] | None] = None  # what PostgreSQL's triggers do: a `Program` of postgres_objects.py
    heads: Heads | None = None  # through which takes find tasks; one feature of a queue may have some
    pending = ""  # a query that finds a row if the end of a task may still set off something

    effects: Sequence[Effect] = ()  # what changes of rows write beside them

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        """Return what its effects name of a row's version, as `Objects.of_version` does."""
        return {}

    def links_among(self, which: str) -> str:
        """Return a query for up to `:n` links of dependants among the tasks that a condition chooses.

        It finds the keys of parent and dependant, the link's state, and the parent's state.
        """
        return ""

    failed = ""  # a query, as `links_among` has them, of dependants that failed parents hold up for good

    # what operators are told

    reason = "a feature hides it now"  # what `why` says of a ready task that it hides

    def why(self, task: Hidden) -> Iterator[str]:
        """Yield in sentences why this hides a ready task."""
        terms = self.terms
        its = f"SELECT 1 FROM {terms.table_in_schema} WHERE {terms.by_key()}"
        if self.takeable and not task.run(f"{its}{self.takeable}", **task.key):
            yield self.reason

    def waits(self, task: Hidden) -> Iterator[str] | None:
        """Return in sentences what else than its timer a task waits for that is not ready; None for nothing."""
        return None

    def tells(self, task: Hidden) -> Iterator[str]:
        """Yield in sentences what else `why` says of a task, in any state."""
        yield from ()

    def held(self, run: Callable[..., list[Any]]) -> Iterator[tuple[str, str, str]]:
        """Yield in words what buried tasks alone hold up, and the role and its value by which they are found."""
        yield from ()
