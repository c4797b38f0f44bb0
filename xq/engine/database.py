"""One queue in the database that its model has now: its dialect, its statements, and running them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import ref

from xq.core.clock import Clock
from xq.core.compile import Statement, Statements
from xq.core.errors import BadValue, ConfigurationError, NotInstalled, shown
from xq.core.machine import Machine
from xq.core.ports import Row, Store, Table, Writes
from xq.core.values import Catalogue, Seconds
from xq.core.words import Wording
from xq.engine.install import Installation
from xq.engine.observers import Observers
from xq.sessions import session as sessions
from xq.sessions.session import Session, Sessions

if TYPE_CHECKING:
    from xq.adapters.databases.sql import Dialect


R = TypeVar("R")

MANY = 1_000  # rows of counters that are worth adding up
# Seconds, at most, between two tries in conflicts: half a minute of them, since under SERIALIZABLE PostgreSQL takes
# most transactions on a small table for conflicts, and eight processes were in each other's way eleven times in a row.
PAUSES: Final = tuple(min(0.001 * 2**tried, 0.512) for tried in range(60))
ASK: Final = 5.0  # seconds after which it is asked again whether a user has been granted more
REVIEW: Final = 1.0  # seconds after which a process looks again whether the queue is installed as it defines it


@dataclass(frozen=True)
class Definition:
    """What `upgrade` made of its arguments. Replaced as a whole by `reconfigure`."""

    machine: Machine
    table: Table
    words: Mapping[str, str | int]  # letter -> what the status field holds
    wording: Wording  # of messages
    tube_stats: tuple[str, ...]
    structure: Mapping[str, Any]  # what must be the same in every process
    features: Mapping[str, Any]  # as they were given
    catalogue: Callable[[], Catalogue]
    dialects: Mapping[str, type[Dialect]]
    redefine: Callable[[Mapping[str, Any]], Definition]


@dataclass(frozen=True)
class Opened:
    """A definition, compiled for one database."""

    database: ref[Any]
    dialect: Dialect
    statements: Statements
    installation: Installation
    sessions: Sessions  # of this process with that database


def until_nobody_conflicts(store: Store[Any], work: Callable[[], R]) -> R:
    """Return what `work` returns. Outside of a transaction, repeat it while the database undoes it for another's sake.

    Whether there is a transaction is asked before: in a deadlock MariaDB undoes all of it, and then there is none.
    """
    return work() if store.in_transaction() else _repeated(store, work)


def _repeated(store: Store[Any], work: Callable[[], R]) -> R:
    for pause in PAUSES:
        try:
            return work()
        except Exception as error:
            if not store.is_conflict(error):
                raise
        time.sleep(random.uniform(0, pause))
    return work()


class Database:
    """Where the statements of a queue run, under its clock, as the current session."""

    def __init__(
        self, store: Store[Any], definition: Definition, clock: Clock | None, observers: Observers[Any]
    ) -> None:
        self.store = store
        self.observers = observers
        self.definition = definition
        self.clock = clock
        self._opened: Opened | None = None
        self._review_at = 0.0  # the monotonic time at which to look whether it is installed as it was
        self._may_move: tuple[Opened | None, bool, float] = (None, True, 0.0)  # and until when no is the answer
        self.gives_way = False  # whether this process itself installs it otherwise

    def compile(self) -> Opened:
        """The definition, compiled for the database that its model has now, be the queue installed there or not.

        From now on each new connection is set up as this database wants it.
        """
        database = self.store.database
        if self._opened is not None and self._opened.database() is database:
            return self._opened
        definition = self.definition
        kind = definition.dialects[self.store.engine]
        dialect = kind(definition.table, definition.machine, definition.words, definition.tube_stats)
        self.store.connected = lambda: dialect.connected(self.store)
        return Opened(
            ref(database),
            dialect,
            Statements(definition.machine, dialect),
            Installation(self.store, dialect, definition.structure, definition.wording),
            sessions.of(database),
        )

    def open(self, to_write: bool = False) -> Opened:
        """As `compile`, where the queue is installed: looked at on the first call. Raises NotInstalled.

        `to_write` for a call whose first statement writes: it may look only with the lock that writes need. Such a call
        looks again now and then, since another process may install the queue otherwise.
        """
        opened = self._opened
        if opened is None or opened.database() is not self.store.database:
            if to_write:
                self.begin_writing()
            opened = self.compile()
            lacking = opened.installation.not_installed()
            if lacking:
                self.close()
                raise lacking
            self._opened = opened
        elif to_write and time.monotonic() > self._review_at and not self.gives_way:
            self.begin_writing()
            self._review(opened)
        return opened

    def _review(self, opened: Opened) -> None:
        within = self.store.in_transaction()
        try:
            # PostgreSQL ends a transaction in which anything fails.
            with self.store.atomic() if within else nullcontext():
                as_it_was = opened.installation.is_recorded()
        except Exception as error:
            undone = within and self.store.is_conflict(error)  # all of the transaction: who began it must hear of that
            if undone or not self.store.is_failure(error) or self.store.is_loss(error):
                raise
            as_it_was = False  # where even the records are gone
        if not as_it_was and (lacking := opened.installation.not_installed()) and not self.gives_way:
            self.close()
            raise lacking
        self._review_at = time.monotonic() + REVIEW

    def is_installed(self) -> bool:
        """Whether `open` would find the queue."""
        if self.opened is None:
            try:
                opened = self.compile()
            except ConfigurationError:  # it does not fit this database: its own calls say so, those of others do not
                return False
            if opened.installation.missing():
                return False
            self._opened = opened
        return True

    @property
    def opened(self) -> Opened | None:
        """What `open` returned last, unless the model has another database since."""
        opened = self._opened
        return opened if opened is not None and opened.database() is self.store.database else None

    def begin_writing(self) -> None:
        """Within the application's transaction, take the lock that writes need before anything is read.

        A transaction of SQLite that reads first and finds another writer when it wants to write is refused at once.
        """
        if self.store.in_transaction():
            opened = self.compile()
            try:
                if opened.dialect.begin_writing:
                    self.store.change(opened.dialect.begin_writing)
            except Exception as error:
                self._explain(opened, error)
                raise

    def close(self) -> None:
        """Look again, at the next call, whether the queue is installed, and tell the database anew who has sessions."""
        self._opened = None
        if self.sessions is not None:
            self.sessions.forget_listed()

    @property
    def dialect(self) -> Dialect:
        return self.open().dialect

    def values(self, seconds: Seconds | None = None) -> dict[str, Any]:
        """The named values that every statement may use: the time, and the options of a call."""
        values: dict[str, Any] = {"now": None if self.clock is None else self.clock.now}
        for option, value in seconds.items() if seconds else ():
            values[option] = value
            values[f"own_{option}"] = self.dialect.forever if value is None else value
        return values

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a text of the dialect."""
        return self.run(self.open(), Statement(sql), {**self.values(), **(values or {})})

    def run(
        self,
        opened: Opened,
        statement: Statement,
        values: Mapping[str, Any],
        event: str = "",
        source: str = "",
        target: str = "",
    ) -> list[Row]:
        """Run a statement and return its rows; of one that moves tasks the triggers are told the event, and observers.

        No event is no transition: a look, or a state that is prolonged. Without a source the rows tell it, as they were
        before they were deleted. Raises NotInstalled when it fails for want of something installed.
        """
        self.store.settle()
        try:
            rows: list[Row] = self.again(lambda: opened.dialect.run(self.store, statement, values, event))
        except Exception as error:
            self._explain(opened, error)
            if isinstance(error, BadValue):
                self._name_the_field(opened, statement, values, error)
            raise
        if event and self.observers.anybody:
            sources: dict[str, list[Row]] = {source: rows} if source and rows else {}
            for row in () if source else rows:
                sources.setdefault(opened.dialect.state(row) or "", []).append(row)
            for left, found in sources.items():
                self.observers.hear(opened.dialect, event, left, target, found)
        return rows

    def change(self, opened: Opened, statement: Statement, values: Mapping[str, Any], event: str = "") -> int:
        """Run a statement that returns no rows, and tell how many it changed. Raises as `run`."""
        self.store.settle()
        try:
            return self.again(lambda: opened.dialect.change(self.store, statement, values, event))
        except Exception as error:
            self._explain(opened, error)
            raise

    def only_reads(self) -> bool:
        """Whether the database says that it may not be written on this thread's connection."""
        return self.compile().dialect.only_reads(self.store)

    def counters(self) -> list[Any]:
        """The counters, as they are; where they have become many rows, those are added up for the next time."""
        found = self.execute(self.dialect.counters)
        if sum(rows for *_, rows in found) > MANY and not self.store.in_transaction():
            self.add_up()
        return [tuple(row[:4]) for row in found]

    @property
    def may_move(self) -> bool:
        """Whether this user of the database may move tasks: whoever only puts them sweeps nothing for others."""
        opened, (known, may, until) = self.open(), self._may_move
        if known is not opened or (not may and time.monotonic() > until):
            try:
                may = self.again(lambda: opened.dialect.may_move(self.store))
            except Exception as error:
                self._explain(opened, error)
                raise
            self._may_move = (opened, may, time.monotonic() + ASK)
        return may

    def add_up(self) -> bool:
        """Add some of the counters up, as far as nobody else does. Returns whether it may be worth to go on."""
        dialect = self.dialect
        try:
            return self.may_move and self.again(lambda: dialect.roll_up(self.store))
        except Exception as error:
            if not self.store.is_failure(error):  # a standby cannot
                raise
            return False

    def add_up_if_many(self) -> bool:
        """As `add_up`, where the counters have become many rows."""
        found = self.execute(self.dialect.counters)
        return sum(rows for *_, rows in found) > MANY and self.add_up()

    def again(self, work: Callable[[], R]) -> R:
        """What `work` returns, which is done again when the database undid it for another's sake (a deadlock).

        But not within a transaction: then all of that was undone, and whoever began it must begin it anew. Where `work`
        is interrupted as a transaction of xq's begins or ends, what is left open of that is undone.
        """
        within = self.store.in_transaction()
        try:
            return work() if within else _repeated(self.store, work)
        except BaseException as error:
            if not within and not self.store.is_failure(error):
                self.store.undo_interrupted()
            raise

    def whole(self, work: Callable[[], R]) -> R:
        """What `work` returns, as one transaction, or a part of the application's. Conflicts as in `again`."""

        def transaction() -> R:
            with self.store.atomic():
                return work()

        try:
            return self.again(transaction)
        except Exception as error:
            if self.store.is_failure(error):
                self._explain(self.compile(), error)  # within the transaction that failed nobody could look
            raise

    def readably(self, work: Callable[[], R]) -> R:
        """What `work` returns: rows that it writes must also be read, and where that may fail, both are undone."""
        return self.whole(work) if self.store.may_fail_to_read else work()

    def guarded(self, work: Callable[[], R]) -> R:
        """What `work` returns, which may be refused: within a transaction only this is undone then."""
        if self.store.driver.errors_end_transactions and self.store.in_transaction():
            return self.whole(work)
        return work()

    def _explain(self, opened: Opened, error: Exception) -> None:
        """Raise NotInstalled when that is what is behind an error of the database."""
        store = self.store
        # Who has waited for others in vain would wait once more to look, or would look where a transaction was undone.
        otherwise = any(of(error) for of in (store.is_refusal, store.is_loss, store.is_locked, store.is_conflict))
        if store.is_failure(error) and not otherwise:
            lacking = self._not_installed(opened)
            if lacking:
                self.close()
                raise lacking from error

    def _name_the_field(self, opened: Opened, statement: Statement, values: Mapping[str, Any], error: BadValue) -> None:
        """Raise the same with the name of the field that has a zero byte, which PostgreSQL refuses, if one has."""
        for name in statement.names:
            if isinstance(values[name], str) and "\0" in values[name]:
                field = opened.dialect.field_of(name)
                raise BadValue(f"{field.name!r} of {self.store.name} is {shown(values[name])}: {error}") from error

    def _not_installed(self, opened: Opened) -> NotInstalled | None:
        try:
            return opened.installation.not_installed()
        except Exception as error:
            if not self.store.is_failure(error):
                raise
            return None  # the database itself is in trouble, and the first error tells of it

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of this process with the database that the model has now, if it has one."""
        database = self.store.database
        return None if database is None else sessions.of(database)

    @property
    def session(self) -> Session:
        """The current session."""
        return self.open().sessions.current()

    def list_session(self, opened: Opened, session: Session) -> None:
        """Have the database know that there is a session, and that it may hold tasks of this queue."""
        name = opened.dialect.source_name
        if name not in session.listed:
            opened.sessions.prove_by(lambda: opened.dialect.proof_of_life(self.store))
            session.hold()
            sql, values = opened.dialect.session_listed, {"uuid": session.uuid, "lease": opened.sessions.lease}
            # Not within the application's transaction, where that can be: other threads would wait for its end.
            apart = opened.sessions.apart(sql, {**self.values(), **values}) is not None
            if apart:
                opened.sessions.announce()
            else:
                self.execute(sql, values)
                self.store.after_commit(opened.sessions.announce)
            if apart or not self.store.in_transaction():
                session.listed.add(name)

    def mark(self, opened: Opened, session: Session) -> str:
        """The mark of a take by a session, which is made known to the database at its first one."""
        if not session.closed:  # which no mark is made for
            self.list_session(opened, session)
        return session.mark(opened.sessions.now if self.clock is None else self.clock.now)

    def writes(self) -> Writes | None:
        """What tells that another process may have written; None where none can."""
        return self.dialect.writes(self.store)
