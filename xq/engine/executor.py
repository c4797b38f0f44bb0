"""Run SQL in the model's current database: one statement, or a transaction. The engine moves tasks in no other way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from xq.core import time
from xq.core.clock import Clock
from xq.core.compile import EVERYWHERE, Statement
from xq.core.connections import Connection, Store
from xq.core.errors import BadValue, ConfigurationError, Duplicate, NotInstalled, shown
from xq.core.kinds import OUTCOME_UNKNOWN, REFUSALS, ErrorKind, Row, Values
from xq.core.options import Spans
from xq.database.database import Database
from xq.database.members import Member
from xq.database.sessions import Session, Sessions
from xq.database.transactions import Transactions, in_parts, retried_after
from xq.engine.binding import Binding, Compiled, Definition, bound_to
from xq.engine.observers import Observers
from xq.sql.dialect import Dialect
from xq.sql.installer.installation import Installation

log = logging.getLogger("xq")

V = TypeVar("V")
Begun = tuple[Connection, Binding]  # what a call works with

REVIEW: Final = 1.0  # seconds between two checks of the installation


class Executor(Transactions):
    """A queue's access to the model's current database: its binding, its clock, and the two ways to run SQL."""

    only_puts = False  # whether only puts run by it

    def __init__(
        self, store: Store[Any], definition: Definition, clock: Clock | None, observers: Observers[Any]
    ) -> None:
        self.store: Store[Any] = store
        self.observers = observers
        self.definition = definition
        self.clock = clock
        self.binding: Binding | None = None  # of the last `open`; `bound` checks that it is current
        self._bindings: WeakKeyDictionary[Database, Binding] = WeakKeyDictionary()  # threads may be in several in turn
        self.window = EVERYWHERE  # where this process looks with that binding (floors.py)
        self.member: Member | None = None  # joins the database of each binding; None if none is to maintain the queue
        self.puts: Puts | None = None  # what the queue's puts are run by

    # binding

    @property
    def bound(self) -> Binding | None:
        """The binding of the last `open`; None if the model has another database since."""
        binding = self.binding
        return binding if binding is not None and binding.database() is self.store.database else None

    def open(self, *, installed: bool = True) -> Binding:
        """Return the binding for a look: `begin` is for a call that changes tasks.

        The first call checks the installation, and raises NotInstalled. What makes or examines the installation itself
        needs none (`installed=False`). From now on each new connection is set up for this database.
        """
        binding = self.binding
        if binding is None or binding.database() is not self.store.database:  # as `bound`, which each look would enter
            binding, lacking = self.bind(installed)
            if lacking:
                raise lacking
        return binding

    def bind(self, installed: bool = True) -> tuple[Binding, NotInstalled | None]:
        """Return a binding to the model's current database, which calls use from now on, or why they must not."""
        database = self.database
        binding = self._bindings.get(database) or bound_to(self.store, database, self.definition, self.values)
        self.store.connected = binding.connected
        if self.member is not None:
            database.join(self.member)
        if installed:
            if time.monotonic() > binding.installation.review_at:
                if lacking := binding.installation.not_installed():
                    self.close()
                    return binding, lacking
                binding.installation.review_at = time.monotonic() + REVIEW
            self._bindings[database] = binding
            self.binding, self.window = binding, EVERYWHERE
        return binding, None

    def begin_look(self) -> Begun:
        """As `begin`, for a call that changes no task."""
        connection, binding = self.store.ready(), self.binding
        if binding is None or binding.database() is not connection.database():
            binding = self.open()
            connection = self.store.ready()
        return connection, binding

    def begin(self, *, locks: bool = False, reviews: bool = False) -> Begun:
        """Bind the queue, and return the connection and the binding for a call that changes tasks: `open` is for looks.

        `locks`: the call reads before it writes, so within the application's transaction lock for writing first. The
        first call of all does so too, and checks the installation. `reviews`: review it, as no thread may do. Raises
        NotInstalled.
        """
        if reviews and (last := self.binding) is not None and time.monotonic() > last.installation.review_at:
            self.review()
        connection, binding = self.store.ready(), self.binding
        if binding is None or binding.database() is not connection.database():
            self.lock(connection)
            binding = self.open()
            connection = self.store.ready()
        elif locks:
            self.lock(connection)
        return connection, binding

    def review(self, records: list[Row] | None = None, schemas: dict[str, Any] | None = None) -> None:
        """Check, at most once a second, that the installation is unchanged. Raises NotInstalled.

        Another process may uninstall the queue, install other features, or make the table anew, without its triggers.
        `records`: those of the queue, just read. `schemas`: as for `Installation.is_unchanged`.
        """
        fresh = self.bound is None
        _, binding = self.begin(locks=True)
        installation = binding.installation
        if fresh or (records is None and time.monotonic() <= installation.review_at):
            return
        within = self.store.in_transaction()
        try:
            # On PostgreSQL a failed statement aborts the transaction: use a savepoint.
            saves = within and self.store.driver.errors_end_transactions
            with self.store.bookkeeping(), self.store.atomic() if saves else nullcontext():
                as_it_was = installation.is_unchanged(records, schemas, self.only_puts)
        except Exception as error:
            kind = self.store.classify(error)
            undone = within and kind is ErrorKind.CONFLICT  # the whole transaction: raise this to its owner
            if undone or kind in OUTCOME_UNKNOWN:
                raise
            as_it_was = False  # the table of records is gone
        if not as_it_was and (lacking := self.lacking(installation)):
            self.close()
            raise lacking
        installation.review_at = time.monotonic() + REVIEW

    def lacking(self, installation: Installation) -> NotInstalled | None:
        """Return why calls must not go on; None if the queue is installed as they need it."""
        return installation.not_installed()

    def is_installed(self) -> bool:
        """Return whether the queue is installed in the model's current database."""
        if self.bound is None:
            try:
                binding = self.open(installed=False)
            except ConfigurationError:  # it does not fit this database: only its own calls raise this
                return False
            if binding.installation.missing():
                return False
            self.binding = binding
        return True

    def close(self) -> None:
        """Drop the binding: the next call checks the installation and registers the sessions anew."""
        self.unbind()
        if self.puts:
            self.puts.unbind()
        if self.sessions is not None:
            self.sessions.forget_listed()

    def unbind(self) -> None:
        self.binding = None
        self._bindings.clear()

    @property
    def dialect(self) -> Dialect:
        return self.open().dialect

    @property
    def installation(self) -> Installation:
        """The tables, indexes and triggers that the queue needs in the database."""
        return self.open(installed=False).installation

    # the two ways to run SQL; counters, savepoints and the installer use the store itself

    def run(
        self,
        compiled: Compiled | str,
        /,
        values: dict[str, Any] | None = None,
        begun: Begun | None = None,
        *,
        caught: bool = False,
    ) -> list[Row]:
        """Run a compiled statement, or a text of the dialect. Notify observers, and return the rows.

        `begun`: the call's connection and binding, so that the ORM is not asked for them again.

        Outside of a transaction, retry it after a conflict (a deadlock). A text has the values of `values()` beside
        its own, a compiled statement in place of none. `caught`: the caller goes on after an error, see
        `Connection.open_block`. Raises NotInstalled if it fails because something installed is missing, and Duplicate
        if another task has its unique value.
        """
        if isinstance(compiled, str):
            begun = begun or self.begin_look()
            compiled, values = begun[1].text(compiled), {**self.values(), **(values or {})}
        elif values is None:
            values = self.values()
        connection = begun[0] if begun else self.store.ready()
        within = connection.in_transaction
        try:
            saves = within and (caught or (compiled.may_be_refused and not connection.open_block))
            if saves and self.store.driver.errors_end_transactions:
                with self.store.atomic(own=True):
                    rows = compiled.run(connection, values)
            else:
                rows = compiled.run(connection, values)
        except BaseException as error:
            rows = self._after(error, compiled, values, within)
        if self.observers.anybody and compiled.event and rows:
            self._notify(compiled, rows)
        return rows

    def _after(self, error: BaseException, compiled: Compiled, values: dict[str, Any], within: bool) -> list[Row]:
        """Retry a compiled statement after a conflict, or raise the reason why it failed."""
        try:
            return retried_after(error, self.store, lambda: compiled.run(self.store.ready(), values), within)
        except Exception as last:
            binding = self.open(installed=False)
            self.explain(last)
            if isinstance(last, BadValue):
                self._name_the_field(binding, compiled.statement, values, last)
            if self.store.classify(last) in REFUSALS and binding.dialect.moves.is_duplicate(str(last)):
                raise Duplicate(self.store.name) from last
            raise

    def in_parts(
        self, work: Callable[[Sequence[V]], int], rows: Sequence[V], is_refused: Callable[[Exception], bool]
    ) -> tuple[int, list[tuple[V, Exception]]]:
        """Do work as `transactions.in_parts`, each part in a transaction of its own."""
        return in_parts(lambda part: self.transaction(lambda: work(part), caught=True), rows, is_refused)

    @property
    def begin_writing(self) -> str:
        return self.open(installed=False).dialect.begin_writing

    def _notify(self, compiled: Compiled, rows: list[Row]) -> None:
        sources: dict[str, list[Row]] = {compiled.source: rows} if compiled.source else {}
        for row in () if compiled.source else rows:
            sources.setdefault(self.open().dialect.state(row) or "", []).append(row)
        for source, found in sources.items():
            self.observers.notify(compiled.event, source, compiled.target, found)

    def values(self, seconds: Spans | None = None) -> dict[str, Any]:
        """Return the named values that every statement may use: the time, and the options of a call in seconds."""
        values: dict[str, Any] = {"now": None if self.clock is None else self.clock.now}
        if seconds:
            forever = self.dialect.forever
            for option, value in seconds.items():
                values[option] = value
                values[f"own_{option}"] = forever if value is None else value
        return values

    def time_us(self) -> int:
        """Return the time of the database, or of a test's clock, in microseconds since 1970."""
        ((now,),) = self.run(self.dialect.shared.time_us)
        return int(now)

    def only_reads(self) -> bool:
        """Return whether the database allows this thread's connection to read only."""
        return self.open(installed=False).dialect.only_reads(self.store)

    # errors

    def explain(self, error: Exception) -> None:
        # After these a check would wait for the same lock again, or query within a rolled back transaction.
        if self.store.classify(error) not in (ErrorKind.LOCKED, ErrorKind.CONFLICT, *REFUSALS, *OUTCOME_UNKNOWN):
            try:
                lacking = self.lacking(self.installation)
            except Exception as another:
                if self.store.classify(another) is ErrorKind.NOT_DATABASE:
                    raise
                return  # the database fails: the first error says why
            if lacking:
                self.close()
                raise lacking from error

    def _name_the_field(self, binding: Binding, statement: Statement, values: Values, error: BadValue) -> None:
        """If a field holds a zero byte, which PostgreSQL rejects, raise the same error with the name of the field."""
        brought = {name: values[name] for name in statement.names if name in values}
        brought.update(zip(statement.names, (value for row in values.get("rows", ()) for value in row), strict=False))
        for name, value in brought.items():
            if isinstance(value, str) and "\0" in value:
                field = binding.dialect.field_of(name)
                raise BadValue(f"{field.name!r} of {self.store.name} is {shown(value)}: {error}") from error

    # its database

    @property
    def database(self) -> Database:
        """The model's current database. Raises ConfigurationError if it has none yet."""
        return Database.of(self.store)

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of this process in the model's current database; None if the model has none."""
        return None if self.store.database is None else self.database.sessions

    @property
    def session(self) -> Session:
        return self.open().sessions.current()


class Puts(Executor):
    """What a queue's puts are run by: they go on beside a newer definition, if its puts write the same."""

    only_puts = True

    def __init__(self, queue: Executor) -> None:
        super().__init__(queue.store, queue.definition, queue.clock, queue.observers)
        self.queue = queue
        queue.puts = self
        self._logged: list[Row] | None = None  # the record of the newer definition

    def open(self, *, installed: bool = True) -> Binding:
        binding = self.binding
        if binding is None or binding.database() is not self.store.database:
            binding, lacking = self.queue.bound, None
            if binding is None:
                binding, lacking = self.queue.bind(installed)
            if lacking and not self._go_on(binding.installation, lacking):
                raise lacking
            if installed:
                self.binding = binding
        return binding

    def lacking(self, installation: Installation) -> NotInstalled | None:
        lacking = installation.not_installed()
        return None if lacking and self._go_on(installation, lacking) else lacking

    def close(self) -> None:
        self.queue.close()

    def _go_on(self, installation: Installation, lacking: NotInstalled) -> bool:
        """Return whether puts go on, and other calls no longer by this binding. Log it once."""
        if installation.puts_beside is None:
            return False
        self.queue.unbind()
        if self._logged != installation.puts_beside:
            self._logged = installation.puts_beside
            log.warning("puts into %s go on beside another definition: %s", self.store.name, lacking)
        return True
