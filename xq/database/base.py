"""What a database's parts see: its connections, the SQL for shared tables, its members, its liveness locks."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

from xq.core import time
from xq.core.clock import Clock
from xq.core.connections import Connection, Connections, Liveness
from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.kinds import OUTCOME_UNKNOWN, REFUSALS, ErrorKind, Row
from xq.database.members import Member, copied
from xq.database.transactions import Transactions, retried
from xq.sql.shared import ANY, SharedSql

LOCKED = 3.0  # seconds until another look at a queue whose table another connection has locked
ATTEMPT = 60.0  # seconds until another attempt to end sessions in a queue where the database has denied that

log = logging.getLogger("xq")


class BaseDatabase(Transactions):
    """A database as its sessions, reaper and duties see it, weakly: they import this, and `database.py` makes them."""

    def __init__(self, key: tuple[object, ...], store: Connections, kinds: Mapping[str, type[SharedSql]]) -> None:
        self.key = key  # what the ORM connects to
        self.store = store  # its connections, which must not keep the ORM's object alive
        self.product = ""  # the name in DIALECTS, once a connection has told it
        self.supervised = False  # whether the parent of this worker process maintains it
        self._kinds = kinds  # the SQL of each engine: the store may not know its own before it is used
        self.joined: WeakSet[Member] = WeakSet()  # `members`, even if used in another database next: see `join`
        # The queues in which this user of the database may not move tasks, and the monotonic time of the next attempt.
        self._denied: dict[str, float] = {}
        # The queues whose table did not answer, the monotonic time of the next look, and the level of the log's lines.
        self._locked: dict[str, tuple[float, int]] = {}

    @cached_property
    def sql(self) -> SharedSql:
        """The SQL for what its queues share. It names no queue."""
        return self._kinds[self.known_product]()

    @property
    def known_product(self) -> str:
        """`product`; if it may be one of several, a connection is opened to learn it."""
        if not self.product:
            named, *others = (name for name, kind in self._kinds.items() if kind.family == self.store.engine)
            if others:
                self.store.execute(ANY)
            else:
                self.product = named
        return self.product

    def is_served_by(self, product: str) -> None:
        """Learn the name of the database behind a new connection. Raises ConfigurationError if it is another by now."""
        if self.product not in ("", product):
            raise ConfigurationError(
                f"the server was {self.product} when this program began, and is {product} now: start it anew, after "
                "install(), or connect to the server of before"
            )
        self.product = product

    # This process's liveness locks, if `find_liveness` has found some: each take looks here, and must not query.
    liveness: Liveness | None = None

    @abstractmethod
    def find_liveness(self) -> Liveness | None:
        """Return `liveness`, which the first call finds. None if no other process can reach the database."""

    # its members

    @property
    def members(self) -> list[Member]:
        """Its members, installed or not, the queues first."""
        return sorted(copied(self.joined), key=lambda member: member.executor is None)

    @property
    def queues(self) -> list[Member]:
        return [member for member in self.members if member.executor is not None]

    @property
    def installed(self) -> list[Member]:
        return [member for member in self.members if member.installed_in(self)]

    @property
    def is_installed(self) -> bool:
        """Whether this process has a member that is installed in it, and so the tables that all share."""
        return any(member.installed_in(self) for member in self.members)

    @property
    def clock(self) -> Clock | None:
        """A test's clock, if each queue that is in use has one."""
        clocks = [queue.executor.clock for queue in self.queues if queue.executor and queue.executor.bound]
        return clocks[0] if clocks and None not in clocks else None

    def give_back(self, uuids: Sequence[str], event: str, queues: Collection[str]) -> None:
        """Have these queues (and with "" what is none) release the tasks that ended sessions own, recorded as `event`.

        The sessions stay registered in a queue that is left out.
        """
        for member in [member for member in self.installed if member.source_name in queues]:
            self.unless_denied(member, partial(member.give_back, uuids, event))

    def is_skipped(self, queue: str) -> bool:
        """Return whether the database denied this user moves in a queue lately, or its table is locked."""
        at, _ = self._locked.get(queue, (-LOCKED, 0))  # which a process without the thread does not look at again
        return time.monotonic() < max(self._denied.get(queue, 0.0), at + LOCKED)

    def unless_denied(self, member: Member, work: Callable[[], object]) -> None:
        """Call `work` in a queue. Skip one that was dropped just now, or in which this user may not move tasks.

        A process whose user may do so reaps the sessions there.
        """
        if self.is_skipped(member.source_name):
            return
        try:
            work()
        except NotInstalled:
            pass
        except Exception as error:
            kind = self.store.classify(error)
            if member.executor is None or kind not in (ErrorKind.DENIED, ErrorKind.LOCKED):
                raise
            if kind is ErrorKind.LOCKED:
                self.leave_out([member], error)
                return
            name = member.executor.store.name
            level = logging.DEBUG if member.source_name in self._denied else logging.WARNING
            log.log(level, "%s: other processes reap its sessions, as this one may not: %s", name, error)
            self._denied[member.source_name] = time.monotonic() + ATTEMPT

    # queues whose table another connection has locked: what goes over all queues leaves them out

    def answering(self, members: Iterable[Member]) -> list[Member]:
        """Return these without those that are left out."""
        return [member for member in members if not self._locked or member.source_name not in self._locked]

    def leave_out(self, members: Sequence[Member], error: object) -> None:
        """Leave out a queue, or after a look at several all whose table is locked: the look has waited for too long."""
        for member in members if len(members) == 1 else self.installed:
            if (queue := member.executor) and ((by := queue.dialect.locked_by(self.store)) or len(members) == 1):
                name, level = member.source_name, logging.WARNING if by else logging.DEBUG  # a row's lock is usual
                why = f"locked by {' and '.join(who for who, *_ in by)}" if by else error
                log.log(level, "%s does not answer, and other queues do not wait for it: %s", name, why)
                self._locked[name] = time.monotonic() + LOCKED, level

    def look_at_locked(self) -> bool:
        """Look at the queues that were left out, each by itself and without a wait. Return whether one answers."""
        due = {name: level for name, (at, level) in [*self._locked.items()] if time.monotonic() >= at}
        for member in [member for member in self.installed if member.source_name in due] if due else ():
            if (queue := member.executor) and queue.dialect.locked_by(self.store):
                self._locked[member.source_name] = time.monotonic() + LOCKED, due.pop(member.source_name)
        for name, level in due.items():
            del self._locked[name]
            log.log(min(level, logging.INFO), "%s answers again", name)
        return bool(due)

    # running SQL

    def install(self, create: Callable[[], object]) -> None:
        """Create the tables that all queues share, and by `create` one that needs them; in any number of processes."""

        def make() -> None:
            with self.sql.creating(self.store):
                for sql in self.sql.tables.values():
                    self.store.execute(sql)
                create()

        retried(self.store, make)

    def values(self) -> dict[str, Any]:
        """Return the named values that every text may use: a test's time, or None."""
        return {"now": None if (clock := self.clock) is None else clock.now}

    def run(self, sql: str, values: dict[str, Any] | None = None) -> list[Row]:
        """Run a text of `sql`, with the values of `values()` beside its own, and return the rows.

        Outside of a transaction, retry it after a conflict (a deadlock). Raises NotInstalled if the tables are gone.
        """
        connection, given = self.store.ready(), {**self.values(), **(values or {})}

        def run(on: Connection) -> list[Row]:
            return self.sql.execute(on, sql, given)

        return self.explained(lambda: run(connection), lambda: run(self.store.ready()), connection.in_transaction)

    @property
    def begin_writing(self) -> str:
        return self.sql.begin_writing

    def explain(self, error: Exception) -> None:
        # After these a look would wait for the same lock again, or query within a transaction that cannot.
        known = (ErrorKind.LOCKED, ErrorKind.CONFLICT, *REFUSALS, *OUTCOME_UNKNOWN, ErrorKind.DENIED)
        aborted = self.store.driver.errors_end_transactions and self.store.in_transaction()
        if aborted or self.store.classify(error) in known:
            return
        try:
            with self.store.bookkeeping():
                self.store.execute(self.sql.queues)
        except Exception as another:
            if self.store.classify(another) is ErrorKind.NOT_DATABASE:
                raise
            if self.store.classify(another) is ErrorKind.PERMANENT:
                missing = [f"there is no table {self.sql.table}"]
                raise NotInstalled(self.store.name, missing, "install() a queue in it") from error
