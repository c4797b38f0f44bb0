"""What a dialect and its parts offer: a dialect writes the SQL for one queue in one database.

The dialects in xq/adapters/databases implement it, and say there what a name means. Most are SQL with named values; ""
is nothing to run. A method for several queues is given their dialects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

from xq.core.clock import Clock
from xq.core.compile import Change, Selector, Statement
from xq.core.errors import NotInstalled
from xq.core.machine import Guard, Machine
from xq.core.ports import (
    Connection,
    Connections,
    Field,
    Kind,
    Liveness,
    Notifier,
    R,
    Row,
    Run,
    Store,
    Table,
    Values,
)
from xq.core.words import PLAIN, Wording


class Moves(Protocol):
    """Puts and moves of tasks."""

    @property
    def has_dirty_groups(self) -> bool: ...
    @property
    def may_pass_by(self) -> bool: ...
    @property
    def lock_task(self) -> str: ...
    def insert(self, change: Change, names: Sequence[str], count: int, guarded: bool = True) -> Statement: ...
    def move(self, rows: Selector, change: Change) -> Statement: ...
    def write_many(self, names: Sequence[str], count: int) -> Statement: ...
    def lock_all(self, states: Iterable[str]) -> str: ...
    def listing(self, rows: Selector) -> str: ...
    def listed(self, keys: Sequence[Sequence[Any]], tokens: Sequence[str] = ()) -> str | None: ...
    def holders(self, guard: Guard, n: int) -> str: ...
    def has_room(self, guard: Guard) -> str: ...
    def unless_duplicate(self, guard: Guard) -> str: ...

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        """Return whether the message of a database error names the unique index of a guard."""

    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        """Return a function that runs all parts of a statement on a connection. `event` is for the triggers.

        A put has `width` values for each task. They are in the value `rows`, one tuple per task, not under their names.
        """


class Connected(Protocol):
    """How statements run on a connection, and what is known of it: the liveness of processes, what was committed."""

    begin_writing: str
    commits: str
    is_local: ClassVar[bool]  # whether the database has one writer at a time, so that no statement locks rows
    read_only: str
    schemas: Collection[str]

    def creating(self, store: Connections, schema: str = "") -> AbstractContextManager[None]: ...
    def query(self, sql: str) -> Run: ...
    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]: ...

    def connected(self, store: Connections, connection: Connection) -> None:
        """Set up a new connection of a store."""

    def liveness(self, store: Connections) -> Liveness | None:
        """Return new liveness locks of sessions; None if no other process can reach the database."""

    def notifier(self, store: Connections, liveness: Liveness | None) -> Notifier | None:
        """Return the notifier of commits of other processes; None if no other process can write."""

    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose process has ended. It ends none, and returns none if it cannot tell."""

    def only_reads(self, store: Connections) -> bool:
        """Return whether the database reports this connection as read-only. Some users may write all the same."""


class Looks(Protocol):
    """Queries of tasks, of the times of duties, of the counters and of the history."""

    @property
    def any_ready(self) -> str: ...
    @property
    def anything(self) -> str: ...
    @property
    def highest_key(self) -> str: ...
    @property
    def next_due(self) -> str: ...
    @property
    def next_to_ready(self) -> str: ...
    @property
    def any_untimed(self) -> str: ...
    @property
    def counters(self) -> str: ...
    @property
    def forget_history(self) -> str: ...
    @property
    def next_bucket(self) -> str: ...
    @property
    def taken(self) -> str: ...
    @property
    def expired(self) -> str: ...
    @property
    def times_unowned(self) -> str: ...
    def look(self, afresh: str = "") -> str: ...
    def look_at_all(self, afresh: str = "") -> str: ...
    def by_state(self, state: str) -> str: ...
    def ready(self, rows: Selector) -> str: ...
    def first(self, rows: Selector) -> list[str]: ...
    def behind_due(self, rows: Selector) -> str: ...
    def refresh_groups(self, database: RunsQueue, mine: bool) -> int: ...
    def history(self, of: Iterable[str]) -> str: ...
    def done_again(self, checkpoint: Sequence[int]) -> str: ...
    def forget_rows(self, ids: Sequence[int]) -> Statement: ...
    def roll_up(self, store: Connections) -> bool: ...


class Sql(cached_property[str]):
    """The SQL of a text for one queue, under the name of the text; `text` of the object that has it fills it in."""

    def __init__(self) -> None:
        super().__init__(lambda part: part.text(self.attrname))


class SharedTexts(ABC):
    """The texts of shared.sql by their names, and queries of many queues at once."""

    @abstractmethod
    def text(self, name: str) -> str:
        """Return a text with its holes filled in."""

    definitions = Sql()
    queues = Sql()
    time_us = Sql()
    set_setting = Sql()

    sessions = Sql()
    sessions_listed = Sql()
    session_queues = Sql()
    session_listed = Sql()
    session_is_there = Sql()
    session_rejoined = Sql()
    rejoin_session = Sql()
    describe_session = Sql()
    expire_session_later = Sql()
    session_ends = Sql()
    session_over = Sql()
    deregister_session = Sql()

    add_slot = Sql()
    free_slots = Sql()
    take_slot = Sql()
    leave_slot = Sql()
    hold_task = Sql()
    forget_held = Sql()
    forget_cancelled = Sql()

    @abstractmethod
    def records_of(self, queues: Sequence[Any]) -> str: ...
    @abstractmethod
    def orphans_of(self, queues: Sequence[Any]) -> str: ...
    @abstractmethod
    def of_sessions(self, sql: str, uuids: Sequence[str]) -> tuple[str, dict[str, Any]]: ...
    @abstractmethod
    def upkeep_of(self, queues: Sequence[tuple[Any, bool, bool]]) -> str: ...
    @abstractmethod
    def next_due_of(self, queues: Sequence[Any]) -> str: ...
    @abstractmethod
    def many_counters_of(self, queues: Sequence[Any], many: int) -> str: ...


class SharedSql(SharedTexts, Connected):
    """The SQL of one kind of database about what all its queues share. It names no queue."""

    table: ClassVar[str]

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, str]:
        """The tables that all queues share: by name, the SQL that creates each unless it is there."""


class Records(SharedTexts):
    """The texts of records.sql for one queue, by their names."""

    installed = Sql()
    generations = Sql()
    objects = Sql()
    forget_noted = Sql()
    note_installed = Sql()
    note_schedules = Sql()
    forget_schedules = Sql()
    forget = Sql()

    pauses = Sql()
    pause = Sql()
    resume = Sql()

    schedules = Sql()
    declared_schedules = Sql()
    next_firings = Sql()
    add_schedule = Sql()
    schedule = Sql()
    due_schedule = Sql()
    set_schedule = Sql()
    fired_schedule = Sql()
    pause_schedule = Sql()
    resume_schedule = Sql()
    drop_schedule = Sql()

    drop_full_buckets = Sql()

    begin_wait = Sql()
    end_wait = Sql()
    ends = Sql()
    waiting = Sql()
    taken_and_awaited = Sql()
    forget_waits = Sql()


class Installation(Protocol):
    """What is installed of one queue in one database."""

    fingerprint: str

    @property
    def dialect(self) -> Dialect: ...
    @property
    def remedy(self) -> str: ...
    @property
    def end_of_unowned(self) -> str: ...
    def untimed(self) -> list[str]: ...
    def ddl(self, stale: Sequence[str] = ()) -> list[str]: ...
    def ddl_to_uninstall(self) -> list[str]: ...
    def install(
        self,
        drop_history: bool = False,
        online: bool = False,
        lock_timeout: float = 1,
        downgrade: bool = False,
    ) -> None: ...
    def plan(self, online: bool) -> str: ...
    def refuse(self) -> None: ...
    def refuse_if_reached(self) -> list[str]: ...
    def make_jobs(self, create: str) -> None: ...
    def missing(self) -> list[str]: ...
    def missing_columns(self) -> list[str]: ...
    def older(self) -> str: ...
    def not_installed(self) -> NotInstalled | None: ...
    def changed(self) -> dict[str, str]: ...
    def is_unchanged(self, records: list[Row] | None = None, schemas: dict[str, Any] | None = None) -> bool: ...
    def refused_words(self) -> list[str]: ...
    def check(self) -> list[str]: ...
    def problems(self) -> Iterator[tuple[list[str], str]]: ...
    def add_counter(self, tube: str, source: str, target: str, n: int) -> None: ...
    def forget_generations(self) -> None: ...
    def recount(self) -> None: ...
    def reset(self, within: bool) -> None: ...
    def drop(self, drop: Callable[[], object]) -> int: ...
    def uninstall(self, keep_columns: bool = False) -> None: ...


class Installer(Protocol):
    """How a database creates objects, and what it has."""

    def creating(self, store: Connections) -> AbstractContextManager[None]: ...
    def columns_of(self, store: Connections, table: str) -> dict[str, bool]: ...


class Dialect(Connected, Protocol):
    """The SQL of one queue in one database."""

    afresh: str
    forever: float
    found_tables: str
    history_columns: ClassVar[Mapping[str, Kind]]
    lock: str
    machine: Machine
    most_values: int
    no_limit: int | None
    open_transactions: str
    roles: dict[str, str]
    source: Table
    source_name: str
    words: Mapping[str, str | int]

    @property
    def installer(self) -> Installer: ...
    @property
    def looks(self) -> Looks: ...
    @property
    def moves(self) -> Moves: ...
    @property
    def records(self) -> Records: ...
    @property
    def shared(self) -> SharedSql: ...

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None: ...
    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int: ...
    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None: ...
    def of_table(self, name: str) -> Self: ...
    def name(self, suffix: str) -> str: ...
    def by_key(self, of: str = "", row: str = "") -> str: ...
    def field_of(self, name: str) -> Field: ...
    def guarded_states(self, guard: Guard) -> list[str]: ...
    def state(self, row: Row) -> str | None: ...
    def installation(
        self,
        store: Store[Any],
        structure: Mapping[str, Any],
        wording: Wording = PLAIN,
        values: Callable[[], Mapping[str, Any]] = ...,
    ) -> Installation: ...


class Runs(Protocol):
    """How SQL runs, and is repeated after a conflict: a `Database`, or the `Executor` of a queue."""

    @property
    def clock(self) -> Clock | None: ...
    @property
    def store(self) -> Connections: ...
    def values(self) -> dict[str, Any]: ...
    def run(self, step: str, /, values: dict[str, Any] | None = None) -> list[Row]: ...
    def transaction(self, work: Callable[[], R], *, locks: bool = True, caught: bool = False) -> R: ...


class RunsQueue(Runs, Protocol):
    """The same of a queue: its `Executor`."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def bound(self) -> object | None:
        """What it has found installed in the model's current database; None if it has not looked."""
