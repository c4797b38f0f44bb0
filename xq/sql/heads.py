"""Heads: rows beside the table, through which takes find their tasks, if a slice of the queue has some.

A head holds the next task of a group, and whether it may be taken. A take reads the open heads in order, so it skips
any number of tasks that must wait; the tasks of no group it finds by an index. Triggers keep the heads, or make them
dirty: then a take refreshes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from xq.core.compile import Selector
from xq.core.connections import Connections, Runs

Index = tuple[str, str, bool]  # columns, the condition on rows, and whether it is unique
ByKey = tuple[str, str, str]  # a query for keys, what follows it to read their rows, and their condition


class Heads(ABC):
    """The SQL for one queue's heads: what takes, limits, the maintenance and installing ask for."""

    name: ClassVar[str]  # of the feature, and the suffix of the index that finds a group's first task
    trigger: ClassVar[str]  # the suffix of the trigger that keeps them when rows change

    # takes

    @abstractmethod
    def select(self, columns: str, rows: Selector) -> str:
        """Return a query as `TaskMoves.select`, for the first tasks to take."""

    @abstractmethod
    def candidates(self, columns: Sequence[str], rows: Selector) -> list[str]:
        """Return queries for the first tasks to take: in open heads, and among the tasks of no group."""

    @abstractmethod
    def ready(self, rows: Selector) -> str:
        """Return a query, without locks, that finds a row if a head has such a task, or is dirty."""

    @abstractmethod
    def behind_due(self, rows: Selector) -> str:
        """Return a query, without locks, that finds a row if an open group has such a task, at any place."""

    def by_keys(self, keys: Sequence[str], table: str, rows: Selector) -> list[ByKey]:
        """Return `candidates` for a database that must read keys without locks; `table` joins rows to them."""
        raise NotImplementedError

    any_dirty = ""  # a query that finds a row if a head is dirty

    def refresh(self, executor: Runs, mine: bool = False) -> int:
        """Refresh a batch of dirty heads, with `mine` all that this transaction made. Return how many it refreshed."""
        return 0

    def last_change(self, store: Connections) -> int:
        """Return a number for `look_again`, before the transaction takes through heads."""
        return 0

    def look_again(self, store: Connections, last: int) -> int | None:
        """Write the first tasks of the groups from which this transaction has taken since the change `last`.

        Return the last change now; None if no group has room for another.
        """
        return last

    # limits, and the maintenance

    @abstractmethod
    def relimit(self, store: Connections, value: str) -> None:
        """Bring a changed limit to the heads that are there: of the group with the key `value`, or ("") all."""

    @abstractmethod
    def forget(self, executor: Runs) -> None:
        """Delete the heads that need not be kept, except the locked ones."""

    # installing

    file: Path  # the texts of its tables, and of what its triggers do
    words: Collection[str] = ()  # for parts of these texts
    tables: Mapping[str, str]  # their texts, by the suffixes of the tables' names
    numbered: Sequence[str] = ()  # the suffixes of those with ids that the database makes

    watched: Sequence[str]  # the columns whose changes its trigger must see

    @abstractmethod
    def of_tables(self, stored: Callable[..., str]) -> Mapping[str, str]:
        """Return what the tables' texts name. `stored` returns SQL for a stored column, where there are such."""

    def holes(self, version: str, old: str, was: str) -> Mapping[str, str]:
        """Return what the texts name of a row's version, as `Objects.of_version` does."""
        return {}

    @abstractmethod
    def in_trigger(self, change: str, words: Collection[str], known: Mapping[str, str]) -> str:
        """Return what a trigger does after an insert, update, delete or truncate, before a blank; `known` as SQL."""

    def stored(self, digest: Callable[[str, str], str]) -> tuple[str, str]:
        """Return a stored column for the index `name` and its value, for a database that indexes columns alone."""
        raise NotImplementedError

    def for_others(self, condition: str) -> str:
        """Restrict an index's condition to the tasks of no group, if the database has partial indexes."""
        return condition

    alone = ""  # SQL that locks the heads against other connections until the transaction ends

    @property
    @abstractmethod
    def built(self) -> list[str]:
        """SQL that rebuilds all heads from the table."""

    @property
    @abstractmethod
    def built_first(self) -> list[str]:
        """As `built`, for the first time: it refuses more taken tasks than the limits allow."""

    @property
    @abstractmethod
    def wrong(self) -> str:
        """A query that counts wrong heads. It reads all ready and taken tasks."""
