"""Bind a queue to its model's current database, and run its units of work there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import ref

from xq.core.clock import Clock
from xq.core.compile import Statement, Statements
from xq.core.errors import BadValue, ConfigurationError, NotInstalled, shown
from xq.core.machine import Machine
from xq.core.ports import REFUSALS, UNANSWERED, Connection, ErrorKind, Row, Store, Table, Values
from xq.core.values import Catalogue, Seconds
from xq.core.words import Wording
from xq.engine.install import Installation
from xq.engine.observers import Observers
from xq.sessions import process
from xq.sessions import session as sessions
from xq.sessions.session import Session, Sessions

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect


R = TypeVar("R")

MANY = 1_000  # rows of counters above which they are rolled up
# Longest pauses in seconds before the retries after a conflict, half a minute in all. Under SERIALIZABLE, PostgreSQL
# treats most transactions on a small table as conflicts: with eight processes, one failed eleven times in a row.
PAUSES: Final = tuple(min(0.001 * 2**tried, 0.512) for tried in range(60))
REVIEW: Final = 1.0  # seconds between two checks of the installation


@dataclass(frozen=True)
class Definition:
    """The arguments of `upgrade`, checked and compiled."""

    machine: Machine
    table: Table
    words: Mapping[str, str | int]  # letter -> value of the status field
    wording: Wording  # of messages
    tube_stats: tuple[str, ...]
    structure: Mapping[str, Any]  # must be equal in every process
    features: Mapping[str, Any]  # as given to `upgrade`
    catalogue: Callable[[], Catalogue]
    dialects: Mapping[str, type[Dialect]]
    schedules: object  # as given to `upgrade`


@dataclass(frozen=True, eq=False)
class Binding:
    """A definition, compiled for one database."""

    database: ref[Any]
    dialect: Dialect
    statements: Statements
    installation: Installation
    sessions: Sessions  # of this process with that database
    steps: StepCache = field(default_factory=lambda: StepCache())  # compiled at first use


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One compiled statement of a plan: a transition of the selected tasks, or a put."""

    statement: Statement
    run: Callable[[Connection, dict[str, Any]], list[Row]]
    guarded: Callable[[Connection, dict[str, Any]], list[Row]]  # `run` within the application's transaction
    event: str  # for observers; "" to notify none
    source: str  # "" if the tasks leave several states: then each row holds its own
    target: str


class StepCache(dict[object, Step]):
    """The compiled steps of a binding."""

    size = 0  # the values that their statements put: memory grows with these


def unit_of_work(store: Store[Any], work: Callable[[], R]) -> R:
    """Run `work` and return its result. Outside of a transaction, retry it after a conflict (a deadlock)."""
    within = store.in_transaction()  # before `work`: on MariaDB a deadlock ends the transaction
    try:
        return work()
    except Exception as error:
        if within:
            raise
        return _retried(store, work, error)


def _retried(store: Store[Any], again: Callable[[], R], error: BaseException) -> R:
    """Retry after the conflict `error`: call `again`, up to 60 times. Raise the last conflict, or any other error."""
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
    """A queue's access to the model's current database: its binding, its clock and its units of work."""

    def __init__(
        self, store: Store[Any], definition: Definition, clock: Clock | None, observers: Observers[Any]
    ) -> None:
        self.store = store
        self.observers = observers
        self.definition = definition
        self.clock = clock
        self.binding: Binding | None = None  # of the last `open`; `bound` checks that it is current
        self._review_at = 0.0  # the monotonic time of the next check of the installation

    # binding

    def bind(self) -> Binding:
        """Compile the definition for the model's current database, whether or not the queue is installed there.

        From now on each new connection is set up for this database.
        """
        if (bound := self.bound) is not None:
            return bound
        definition, database = self.definition, self.store.database
        kind = definition.dialects[self.store.engine]
        dialect = kind(definition.table, definition.machine, definition.words, definition.tube_stats)
        here = ref(database)

        def connected(connection: Connection) -> bool:
            """Set a new connection up. Return False, and do nothing, if the model has another database by now."""
            if self.store.database is not here():
                return False
            dialect.connected(self.store, connection)
            return True

        self.store.connected = connected
        return Binding(
            here,
            dialect,
            Statements(definition.machine, dialect),
            Installation(self.store, dialect, definition.structure, definition.wording, self.values),
            sessions.of(database),
        )

    @property
    def bound(self) -> Binding | None:
        """Returns the binding of the last `open`; None if the model has another database since."""
        binding = self.binding
        return binding if binding is not None and binding.database() is self.store.database else None

    def open(self) -> Binding:
        """Return the binding. The first call checks the installation, and raises NotInstalled."""
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
        """Bind the queue, and return the connection for a call that changes tasks.

        The first call locks for writing and checks the installation. Raises NotInstalled.
        """
        connection, binding = self.store.ready(), self.binding
        if binding is None or binding.database() is not connection.of():
            self.begin_writing()
            self.open()
            connection = self.store.ready()
        return connection

    def review(self, records: list[Row] | None = None) -> None:
        """Check, at most once a second, that the installation is unchanged. Raises NotInstalled.

        Another process may uninstall the queue, or install other features. `records`: those of the queue, just read.
        """
        fresh = self.bound is None
        self.begin_writing()
        binding = self.open()
        if fresh or (records is None and time.monotonic() <= self._review_at):
            return
        within = self.store.in_transaction()
        try:
            # On PostgreSQL a failed statement aborts the transaction: use a savepoint.
            with self.store.atomic() if within else nullcontext():
                as_it_was = binding.installation.is_recorded(records)
        except Exception as error:
            kind = self.store.classify(error)
            undone = within and kind is ErrorKind.CONFLICT  # the whole transaction: raise this to its owner
            if undone or kind in UNANSWERED:
                raise
            as_it_was = False  # the table of records is gone
        if not as_it_was and (lacking := binding.installation.not_installed()):
            self.close()
            raise lacking
        self._review_at = time.monotonic() + REVIEW

    def is_installed(self) -> bool:
        """Return whether the queue is installed in the model's current database."""
        if self.bound is None:
            try:
                binding = self.bind()
            except ConfigurationError:  # it does not fit this database: only its own calls raise this
                return False
            if binding.installation.missing():
                return False
            self.binding = binding
        return True

    def begin_writing(self) -> None:
        """Within the application's transaction, lock for writing before the first read.

        On SQLite a transaction that has read fails at once, without a wait, if there is another writer when it writes.
        """
        if self.store.in_transaction():
            binding = self.bind()
            try:
                if binding.dialect.begin_writing:
                    with self.store.bookkeeping():
                        self.store.change(binding.dialect.begin_writing)
            except Exception as error:
                self._explain(binding, error)
                raise

    def close(self) -> None:
        """Drop the binding: the next call checks the installation and registers the sessions anew."""
        self.binding = None
        if self.sessions is not None:
            self.sessions.forget_listed()

    @property
    def dialect(self) -> Dialect:
        return self.open().dialect

    # units of work

    def unit(self, work: Callable[[], R], *, transaction: bool = False, own: bool = True, caught: bool = False) -> R:
        """Run `work` as a unit of work and return its result. With `transaction`, run it in one transaction.

        Of xq's `own` work the statements have no savepoints, so it catches no error of one. `caught`: the caller goes
        on after an error, see `Connection.joins`.

        Outside of a transaction, retry it after a conflict (a deadlock). Within the application's, raise: the database
        has rolled that back as a whole. If the unit is interrupted, roll back a transaction that xq left open.
        """
        # Before `work`: on MariaDB a deadlock ends the transaction.
        within = self.store.in_transaction()
        transaction = transaction and not (within and own and not caught and self.store.ready().joins)

        def attempt() -> R:
            with self.store.atomic(own):
                return work()

        run = attempt if transaction else work
        try:
            try:
                return run()
            except BaseException as error:
                return self._retried(run, error, within)
        except Exception as error:
            if transaction and self.store.classify(error) is not ErrorKind.NOT_DATABASE:
                self._explain(self.bind(), error)  # not earlier: a failed transaction allows no query
            raise

    def perform(self, step: Step, connection: Connection, values: dict[str, Any], caught: bool = False) -> list[Row]:
        """Run a step as a unit of work, notify observers, and return its rows.

        `caught`: the caller goes on after an error, see `Connection.joins`. Raises NotInstalled if it fails because
        something installed is missing.
        """
        within = connection.in_transaction
        try:
            rows = (step.guarded if within and (caught or not connection.joins) else step.run)(connection, values)
        except BaseException as error:
            rows = self._performed(step, values, error, within)
        if self.observers.anybody and step.event and rows:
            self._notify(step, rows)
        return rows

    def _performed(self, step: Step, values: dict[str, Any], error: BaseException, within: bool) -> list[Row]:
        """Retry a step after a conflict, or raise the reason why it failed."""
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
            self.observers.notify(dialect, step.event, source, step.target, found)

    def values(self, seconds: Seconds | None = None) -> dict[str, Any]:
        """Return the named values that every statement may use: the time, and the options of a call in seconds."""
        values: dict[str, Any] = {"now": None if self.clock is None else self.clock.now}
        if seconds:
            forever = self.dialect.forever
            for option, value in seconds.items():
                values[option] = value
                values[f"own_{option}"] = forever if value is None else value
        return values

    def execute(self, sql: str, values: Values | None = None) -> list[Row]:
        """Run SQL of the dialect, with named values, as a unit of work, and return the rows."""
        binding = self.open()
        named = {**self.values(), **(values or {})}
        return self._explained(binding, lambda: binding.dialect.execute(self.store.ready(), sql, named))

    def now_us(self) -> int:
        """Return the time as `time_us`, for a transaction that writes by it."""
        self.begin_writing()
        return self.time_us()

    def time_us(self) -> int:
        """Return the time of the database, or of a test's clock, in microseconds since 1970."""
        ((now,),) = self.execute(self.dialect.time_us)
        return int(now)

    def change(self, binding: Binding, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement as a unit of work, and return the number of changed rows. Raises as `perform`."""
        return self._explained(binding, lambda: binding.dialect.change(self.store, statement, values, event))

    def _explained(self, binding: Binding, work: Callable[[], R]) -> R:
        try:
            return self.unit(work)
        except Exception as error:
            self._explain(binding, error)
            raise

    def only_reads(self) -> bool:
        """Return whether the database allows this thread's connection to read only."""
        return self.bind().dialect.only_reads(self.store)

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose process has ended. It ends none, and returns none if it cannot tell."""
        binding = self.bind()
        try:
            return self.unit(lambda: binding.dialect.gone(self.store, uuids))
        except Exception as error:
            if self.store.classify(error) is ErrorKind.DENIED:
                return []
            raise

    def counters(self) -> list[Any]:
        """Return the counters. If they have become many rows, roll those up."""
        found = self.execute(self.dialect.counters)
        if sum(rows for *_, rows in found) > MANY and not self.store.in_transaction():
            self.roll_up_some()
        return [tuple(row[:4]) for row in found]

    def room(self, counts: Mapping[str, int]) -> int | None:
        """Return how many tasks may be put beside these numbers by state; None without the feature limit."""
        if (limit := self.definition.machine.guard("limit")) is None:
            return None
        return max(0, int(limit.value) - sum(counts[state] for state in self.dialect.guarded_states(limit)))

    def roll_up_some(self) -> bool:
        """Roll up some of the counters that no other process is rolling up. Return whether there may be more."""
        dialect = self.dialect
        try:
            return self.unit(lambda: dialect.roll_up(self.store))
        except Exception as error:
            # Ignore others: a standby cannot write, nor a user that may only look.
            if self.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            return False

    # errors

    def _explain(self, binding: Binding, error: Exception) -> None:
        """Raise NotInstalled if that is the reason for an error of the database."""
        # After these a check would wait for the same lock again, or query in a transaction that was rolled back.
        if self.store.classify(error) not in (ErrorKind.LOCKED, ErrorKind.CONFLICT, *REFUSALS, *UNANSWERED):
            lacking = self._not_installed(binding)
            if lacking:
                self.close()
                raise lacking from error

    def _name_the_field(self, binding: Binding, statement: Statement, values: Values, error: BadValue) -> None:
        """If a field holds a zero byte, which PostgreSQL rejects, raise the same error with the name of the field."""
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
            return None  # the database fails: the first error says why

    # sessions

    @property
    def sessions(self) -> Sessions | None:
        """Returns the sessions of this process in the model's current database; None if the model has none."""
        database = self.store.database
        return None if database is None else sessions.of(database)

    @property
    def session(self) -> Session:
        return self.open().sessions.current()

    def register_session(self, binding: Binding, session: Session) -> None:
        """Register a session in the database as a possible owner of tasks of this queue."""
        name = binding.dialect.source_name
        if name not in session.registered_in:
            binding.sessions.use_liveness(lambda: binding.dialect.liveness(self.store))
            session.acquire()
            self._check_tables(binding)
            sql, lease = binding.dialect.session_listed, binding.sessions.lease
            values = {"uuid": session.uuid, "lease": lease, **process.this_process()}
            # On the session connection if possible: other threads would wait for the application's transaction.
            listed = binding.sessions.on_own_connection(sql, {**self.values(), **values}) is not None
            if listed:
                binding.sessions.announce()
            else:
                with self.store.bookkeeping():
                    self.execute(sql, values)
                self.store.after_commit(binding.sessions.announce)
            if listed or not self.store.in_transaction():
                session.registered_in.add(name)

    def _check_tables(self, binding: Binding) -> None:
        """Raise ConfigurationError if the session connection finds other tables than the application's connection."""
        if not (there := binding.sessions.on_own_connection(binding.dialect.found_tables, {})):
            return
        here = self.execute(binding.dialect.found_tables)
        # A table that this transaction has made is not there yet.
        if any(other not in (None, mine) for other, mine in zip(there[0], here[0], strict=True)):
            raise ConfigurationError(
                f"this connection finds {self.store.name} in another schema or database than a new connection does, so "
                "other processes would take its tasks again, or never: choose the schema in the options of the "
                "database's connections (search_path), or in the model (class Meta: schema), not by SET or USE"
            )

    def token(self, binding: Binding, session: Session) -> str:
        """Return a new token of a session. Its first token registers the session in the database."""
        if binding.dialect.source_name not in session.registered_in and not session.closed:
            self.register_session(binding, session)
        return session.new_token(binding.sessions.now if self.clock is None else self.clock.now)
