"""A queue in the database that its model has now: bind it there, and run its units of work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import ref

from xq.core.clock import Clock
from xq.core.compile import Statement, Statements
from xq.core.errors import BadValue, ConfigurationError, NotInstalled, shown
from xq.core.machine import Machine
from xq.core.ports import REFUSALS, UNANSWERED, Connection, ErrorKind, Notifier, Row, Store, Table, Values
from xq.core.values import Catalogue, Seconds
from xq.core.words import Wording
from xq.engine.install import Installation
from xq.engine.observers import Observers
from xq.sessions import session as sessions
from xq.sessions.session import Session, Sessions

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect


R = TypeVar("R")

MANY = 1_000  # rows of counters that are worth adding up
# Seconds, at most, between two tries in conflicts: half a minute of them, since under SERIALIZABLE PostgreSQL takes
# most transactions on a small table for conflicts, and eight processes were in each other's way eleven times in a row.
PAUSES: Final = tuple(min(0.001 * 2**tried, 0.512) for tried in range(60))
ASK: Final = 5.0  # seconds after which the database is asked again whether a user has been granted more
REVIEW: Final = 1.0  # seconds between two looks of the maintenance thread at what is installed


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


@dataclass(frozen=True, eq=False)
class Binding:
    """A definition, compiled for one database."""

    database: ref[Any]
    dialect: Dialect
    statements: Statements
    installation: Installation
    sessions: Sessions  # of this process with that database
    steps: dict[object, Step] = field(default_factory=dict)  # compiled when a call first needs them


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement of a plan, compiled: the transition of the tasks that a selector means, or a put."""

    statement: Statement
    run: Callable[[Connection, dict[str, Any]], list[Row]]
    guarded: Callable[[Connection, dict[str, Any]], list[Row]]  # in the application's transaction
    event: str  # that observers are notified of; "" for none
    source: str  # "" where the tasks leave several states, or where the rows themselves say which
    target: str


def unit_of_work(store: Store[Any], work: Callable[[], R]) -> R:
    """Return what `work` returns. Outside of a transaction, retry it while there is a conflict (a deadlock)."""
    within = store.in_transaction()  # asked before: a deadlock ends a transaction of MariaDB's, and then there is none
    try:
        return work()
    except Exception as error:
        if within:
            raise
        return _retried(store, work, error)


def _retried(store: Store[Any], again: Callable[[], R], error: BaseException) -> R:
    """Return what `again` returns, tried until there is no conflict. Raise any other error."""
    for pause in PAUSES:
        if not isinstance(error, Exception) or store.classify(error) is not ErrorKind.CONFLICT:
            break
        time.sleep(random.uniform(0, pause))
        try:
            return again()
        except BaseException as another:
            error = another
    raise error


class Database:
    """Where the units of work of a queue run, under its clock."""

    def __init__(
        self, store: Store[Any], definition: Definition, clock: Clock | None, observers: Observers[Any]
    ) -> None:
        self.store = store
        self.observers = observers
        self.definition = definition
        self.clock = clock
        self.binding: Binding | None = None  # what `open` returned last; `bound` says whether it still holds
        self._review_at = 0.0  # the monotonic time at which to look whether it is installed as it was
        self._may_move: tuple[Binding | None, bool, float] = (None, True, 0.0)  # and until when no is the answer
        self.gives_way = False  # whether this process itself installs it otherwise

    # binding

    def bind(self) -> Binding:
        """Compile the definition for the database that the model has now, whether or not the queue is installed there.

        From now on each new connection is set up as this database wants it.
        """
        if (bound := self.bound) is not None:
            return bound
        definition, database = self.definition, self.store.database
        kind = definition.dialects[self.store.engine]
        dialect = kind(definition.table, definition.machine, definition.words, definition.tube_stats)
        here = ref(database)

        def connected(connection: Connection) -> bool:
            """Set a new connection up, unless the model has another database by now. Return whether it was."""
            if self.store.database is not here():
                return False
            dialect.connected(self.store, connection)
            return True

        self.store.connected = connected
        return Binding(
            here,
            dialect,
            Statements(definition.machine, dialect),
            Installation(self.store, dialect, definition.structure, definition.wording),
            sessions.of(database),
        )

    @property
    def bound(self) -> Binding | None:
        """What `open` returned last, unless the model has another database since."""
        binding = self.binding
        return binding if binding is not None and binding.database() is self.store.database else None

    def open(self) -> Binding:
        """As `bind`, where the queue is installed, which the first call looks at. Raises NotInstalled."""
        binding = self.bound
        if binding is None:
            binding = self.bind()
            lacking = binding.installation.not_installed()
            if lacking:
                self.close()
                raise lacking
            self.binding = binding
        return binding

    def begin(self) -> Connection:
        """Return the connection for a call that changes tasks, the queue being bound to its database.

        Raises NotInstalled. The first call looks at what is installed, with the lock that writes need.
        """
        connection, binding = self.store.ready(), self.binding
        if binding is None or binding.database() is not connection.of():
            self.begin_writing()
            self.open()
            connection = self.store.ready()
        return connection

    def review(self) -> None:
        """As `open`, but look each second whether the queue is still installed so: another process may change that."""
        fresh = self.bound is None
        self.begin_writing()
        binding = self.open()
        if fresh or time.monotonic() <= self._review_at or self.gives_way:
            return
        within = self.store.in_transaction()
        try:
            # PostgreSQL ends a transaction in which anything fails.
            with self.store.atomic() if within else nullcontext():
                as_it_was = binding.installation.is_recorded()
        except Exception as error:
            kind = self.store.classify(error)
            undone = within and kind is ErrorKind.CONFLICT  # the whole transaction: its owner must learn of that
            if undone or kind in UNANSWERED:
                raise
            as_it_was = False  # even the records are gone
        if not as_it_was and (lacking := binding.installation.not_installed()) and not self.gives_way:
            self.close()
            raise lacking
        self._review_at = time.monotonic() + REVIEW

    def is_installed(self) -> bool:
        """Whether `open` would find the queue."""
        if self.bound is None:
            try:
                binding = self.bind()
            except ConfigurationError:  # it does not fit this database: its own calls say so, those of others do not
                return False
            if binding.installation.missing():
                return False
            self.binding = binding
        return True

    def begin_writing(self) -> None:
        """Within the application's transaction, take the lock that writes need before anything is read.

        A transaction of SQLite that reads first and finds another writer when it wants to write is refused at once.
        """
        if self.store.in_transaction():
            binding = self.bind()
            try:
                if binding.dialect.begin_writing:
                    self.store.change(binding.dialect.begin_writing)
            except Exception as error:
                self._explain(binding, error)
                raise

    def close(self) -> None:
        """Look again, at the next call, whether the queue is installed, and register the sessions anew."""
        self.binding = None
        if self.sessions is not None:
            self.sessions.forget_listed()

    @property
    def dialect(self) -> Dialect:
        return self.open().dialect

    # units of work

    def unit(self, work: Callable[[], R], *, transaction: bool = False) -> R:
        """Return what `work` returns: a unit of work, and with `transaction` one transaction.

        Outside of a transaction it is retried while the database undoes it for another's sake (a deadlock); within the
        application's that one was undone as a whole, and the application must begin it anew. There, `transaction` is a
        savepoint. If the unit is interrupted, what is left open of a transaction of xq's is undone.
        """
        # Asked before: a deadlock ends a transaction of MariaDB's, and then there is none.
        within = self.store.in_transaction()

        def attempt() -> R:
            with self.store.atomic():
                return work()

        run = attempt if transaction else work
        try:
            try:
                return run()
            except BaseException as error:
                return self._retried(run, error, within)
        except Exception as error:
            if transaction and self.store.classify(error) is not ErrorKind.NOT_DATABASE:
                self._explain(self.bind(), error)  # within the transaction that failed no look was possible
            raise

    def perform(self, step: Step, connection: Connection, values: dict[str, Any]) -> list[Row]:
        """Run a step as a unit of work, notify observers, and return its rows.

        Raises NotInstalled if it fails because something installed is missing.
        """
        within = connection.in_transaction
        try:
            rows = (step.guarded if within else step.run)(connection, values)
        except BaseException as error:
            rows = self._performed(step, values, error, within)
        if self.observers.anybody and step.event and rows:
            self._notify(step, rows)
        return rows

    def _performed(self, step: Step, values: dict[str, Any], error: BaseException, within: bool) -> list[Row]:
        """Run a step that has failed again, or raise why it fails."""
        try:
            return self._retried(lambda: step.run(self.store.ready(), values), error, within)
        except Exception as last:
            binding = self.bind()
            self._explain(binding, last)
            if isinstance(last, BadValue):
                self._name_the_field(binding, step.statement, values, last)
            raise

    def _retried(self, again: Callable[[], R], error: BaseException, within: bool) -> R:
        if within:
            raise error
        try:
            return _retried(self.store, again, error)
        except BaseException as last:
            if self.store.classify(last) is ErrorKind.NOT_DATABASE:
                self.store.undo_interrupted()
            raise

    def _notify(self, step: Step, rows: list[Row]) -> None:
        dialect = self.open().dialect
        sources: dict[str, list[Row]] = {step.source: rows} if step.source else {}
        for row in () if step.source else rows:
            sources.setdefault(dialect.state(row) or "", []).append(row)
        for source, found in sources.items():
            self.observers.hear(dialect, step.event, source, step.target, found)

    def values(self, seconds: Seconds | None = None) -> dict[str, Any]:
        """Return the named values that every statement may use: the time, and the options of a call."""
        values: dict[str, Any] = {"now": None if self.clock is None else self.clock.now}
        if seconds:
            forever = self.dialect.forever
            for option, value in seconds.items():
                values[option] = value
                values[f"own_{option}"] = forever if value is None else value
        return values

    def execute(self, sql: str, values: Values | None = None) -> list[Row]:
        """Run a text of the dialect, with named values, as a unit of work."""
        binding = self.open()
        named = {**self.values(), **(values or {})}
        return self._explained(binding, lambda: binding.dialect.execute(self.store.ready(), sql, named))

    def change(self, binding: Binding, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement without rows as a unit of work, and return how many it changed. Raises as `perform`."""
        return self._explained(binding, lambda: binding.dialect.change(self.store, statement, values, event))

    def _explained(self, binding: Binding, work: Callable[[], R]) -> R:
        try:
            return self.unit(work)
        except Exception as error:
            self._explain(binding, error)
            raise

    def only_reads(self) -> bool:
        """Whether the database says that it may not be written on this thread's connection."""
        return self.bind().dialect.only_reads(self.store)

    def counters(self) -> list[Any]:
        """Return the counters; if they have become many rows, add those up for the next time."""
        found = self.execute(self.dialect.counters)
        if sum(rows for *_, rows in found) > MANY and not self.store.in_transaction():
            self.add_up()
        return [tuple(row[:4]) for row in found]

    @property
    def may_move(self) -> bool:
        """Whether this user of the database may move tasks: a producer expires nothing for others."""
        binding, (known, may, until) = self.open(), self._may_move
        if known is not binding or (not may and time.monotonic() > until):
            may = self._explained(binding, lambda: binding.dialect.may_move(self.store))
            self._may_move = (binding, may, time.monotonic() + ASK)
        return may

    def add_up(self) -> bool:
        """Add some of the counters up, as far as no other process does. Returns whether there may be more."""
        dialect = self.dialect
        try:
            return self.may_move and self.unit(lambda: dialect.roll_up(self.store))
        except Exception as error:
            if self.store.classify(error) is ErrorKind.NOT_DATABASE:  # a standby cannot
                raise
            return False

    def add_up_if_many(self) -> bool:
        """As `add_up`, if the counters have become many rows."""
        found = self.execute(self.dialect.counters)
        return sum(rows for *_, rows in found) > MANY and self.add_up()

    # errors

    def _explain(self, binding: Binding, error: Exception) -> None:
        """Raise NotInstalled if that is the reason for an error of the database."""
        # A look would wait for the same lock once more, or would be made where a transaction was undone.
        if self.store.classify(error) not in (ErrorKind.LOCKED, ErrorKind.CONFLICT, *REFUSALS, *UNANSWERED):
            lacking = self._not_installed(binding)
            if lacking:
                self.close()
                raise lacking from error

    def _name_the_field(self, binding: Binding, statement: Statement, values: Values, error: BadValue) -> None:
        """Raise the same with the name of the field that has a zero byte, which PostgreSQL refuses, if one has."""
        brought = {name: values[name] for name in statement.names if name in values}
        brought.update(zip(statement.names, (value for row in values.get("rows", ()) for value in row), strict=False))
        for name, value in brought.items():
            if isinstance(value, str) and "\0" in value:
                of = binding.dialect.field_of(name)
                raise BadValue(f"{of.name!r} of {self.store.name} is {shown(value)}: {error}") from error

    def _not_installed(self, binding: Binding) -> NotInstalled | None:
        try:
            return binding.installation.not_installed()
        except Exception as error:
            if self.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            return None  # the database itself is in trouble, which the first error tells

    # sessions

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of this process with the database that the model has now, if it has one."""
        database = self.store.database
        return None if database is None else sessions.of(database)

    @property
    def session(self) -> Session:
        """The current session."""
        return self.open().sessions.current()

    def list_session(self, binding: Binding, session: Session) -> None:
        """Register a session in the database, and that it may own tasks of this queue."""
        name = binding.dialect.source_name
        if name not in session.listed:
            binding.sessions.use_liveness(lambda: binding.dialect.liveness(self.store))
            session.acquire()
            sql, values = binding.dialect.session_listed, {"uuid": session.uuid, "lease": binding.sessions.lease}
            # Not within the application's transaction, where that can be: other threads would wait for its end.
            apart = binding.sessions.apart(sql, {**self.values(), **values}) is not None
            if apart:
                binding.sessions.announce()
            else:
                self.execute(sql, values)
                self.store.after_commit(binding.sessions.announce)
            if apart or not self.store.in_transaction():
                session.listed.add(name)

    def token(self, binding: Binding, session: Session) -> str:
        """Return a new token of a session, which is registered in the database at its first one."""
        if binding.dialect.source_name not in session.listed and not session.closed:
            self.list_session(binding, session)
        return session.new_token(binding.sessions.now if self.clock is None else self.clock.now)

    def notifier(self) -> Notifier | None:
        """Return what notifies that another process may have written; None where nothing can."""
        return self.dialect.notifier(self.store)
