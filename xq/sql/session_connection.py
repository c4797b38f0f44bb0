"""The session connection from a process to a server: it holds the liveness lock, and receives notifications.

When the process ends, in any way, the server closes the connection and drops its lock. A process has one for each
database, opened at its first take or wait, besides the connections of its threads.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from xq.core import time
from xq.core.connections import Connector, keep
from xq.core.errors import ConfigurationError
from xq.core.kinds import ErrorKind, Row
from xq.sql.language import SHARED_TEXTS, Form
from xq.sql.liveness_locks import LivenessLocks
from xq.sql.named import by_position, filled, listed
from xq.sql.shared import ALIVE, SESSIONS
from xq.sql.sql_file import filled_in, texts

LEASE = 10.0  # seconds until a session expires if a pooler makes liveness locks impossible
RENEWED = LEASE / 5  # seconds between renewals of the lease
IDLE = 1.0  # seconds without a waiter after which the process turns notifications off


@dataclass(frozen=True)
class SessionSql:
    """The SQL that one kind of server runs on its session connections, with named values."""

    connected: tuple[str, ...]  # runs first on a new connection
    is_installed: str  # finds a row if ALIVE exists
    number: str  # the server's number of the connection
    listen: tuple[str, ...]  # registers the process `:process` for notifications; empty if the server has none
    expect: str  # stores whether the process has waiters (`:waits`)
    notify: str  # notifies the registered processes
    lock: str  # a call that acquires `:lock`, a number of 62 bits, until the connection ends; whether it succeeded
    unlock: str  # a call
    living: str  # the sessions of live processes
    forget: str  # deletes the registrations of dead processes, other than `:process`
    time: str  # an expression for the server's time in seconds since 1970
    unless_there: str  # the clause by which an INSERT skips an existing row
    briefly: str  # has a connection wait for a lock for a second at most
    nowait: Form  # a statement that fails in place of waiting for a lock
    # Returns SQL that returns a row once a condition is true, and none after some seconds; None if the server notifies.
    watch: Callable[[str], str] | None = None

    # Delete the entry by `:process` for the session `:uuid` (see `register`); all entries for several sessions.
    unregister: ClassVar[str] = f"DELETE FROM {ALIVE} WHERE uuid = :uuid AND process = :process"
    unregister_all: ClassVar[str] = f"DELETE FROM {ALIVE} WHERE uuid IN (:uuids)"

    @property
    def register(self) -> str:
        """SQL by which the process `:process` records its session `:uuid`."""
        return f"INSERT INTO {ALIVE} (uuid, process) VALUES (:uuid, :process){self.unless_there}"

    @property
    def renew(self) -> str:
        """SQL that extends the session `:uuid` to `:lease` seconds from now, unless it has expired."""
        return f"UPDATE {SESSIONS} SET ends = {self.time} + :lease WHERE uuid = :uuid AND ends > {self.time}"

    @property
    def there(self) -> str:
        """A query that finds a row if the session `:uuid` has not expired."""
        return filled_in(texts(SHARED_TEXTS)["session_is_there"], (), {"now": self.time})


class SessionConnection(LivenessLocks):
    """The session connection of a process to one database: its liveness locks and notifications."""

    def __init__(self, connector: Connector, sql: SessionSql) -> None:
        super().__init__()
        self.connector = connector
        self.sql = sql
        self._connection: Any = None
        self._process = 0  # the number of this process's liveness lock
        self._stays = True  # False behind a pooler, which may change the server's connection
        self._lost: list[str] = []
        self._kept: set[str] = set()  # sessions that were released while the server accepted no writes
        self._expects = False  # whether the server has recorded that this process has waiters
        self._expected_at = 0.0  # the monotonic time at which a waiter was last reported
        self.on_notification: Callable[[], None] = lambda: None  # called when a notification arrives with a result
        self._renewed = time.monotonic()
        self.skew = 0.0

    def forked(self) -> None:
        """Drop the inherited socket in a child process. Else the parent would seem to live as long as the child."""
        inherited, self._connection = self._connection, None
        keep(inherited)
        with suppress(Exception):  # it was closed already
            descriptor = self.connector.driver.fileno(inherited)
            nothing = os.open(os.devnull, os.O_RDWR)
            # The driver will close this number, which must not be another file's.
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)

    # the connection

    def open(self) -> None:
        """Connect, and acquire this process's lock. Raises the ORM's errors."""
        with self._lock:
            if self.is_open:
                return
            self.close()
            with self.connector.errors():
                connection = self._connection = self.connector.open()
                try:
                    self.connector.driver.check(connection)
                    ((number,),) = self._run(self.sql.number)
                    # A pooler between this process and the server reports its own number on connecting.
                    self._stays = number == self.connector.driver.number(connection)
                    asked = time.time()
                    ((there,),) = self._run(f"SELECT {self.sql.time}")
                    self.skew = float(there) - (asked + time.time()) / 2
                    self._process = secrets.randbits(62)
                    if self._stays:
                        for sql in self.sql.connected:
                            self._run(sql)
                    if not self._run(self.sql.is_installed):
                        raise ConfigurationError(
                            f"{ALIVE} is not there for the connection by which a process proves that it lives: "
                            "install() the queue, or take when the transaction that installs it is committed; set a "
                            "search_path in the options of the database's connections, not by SET"
                        )
                    if self._stays:
                        self._call(self.sql.lock, [self._process])
                        for sql in (self.sql.forget, *self.sql.listen) if self.sql.listen else ():
                            self._run(sql, process=self._process)
                        self.connector.driver.on_notification(connection, lambda: self.on_notification())
                    self._expects = False
                except BaseException:
                    self._connection = None
                    with suppress(Exception):
                        connection.close()
                    raise
            held, self._held = list(self._held), Counter()
            try:
                while held:
                    if not self._regained(held[-1]):
                        self._lost.append(held[-1])
                    held.pop()
            finally:
                self._lost.extend(held)  # not checked, because an error interrupted the loop

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self.connector.driver.is_broken(self._connection)

    @property
    def _leased(self) -> bool:
        """Whether the last renewal is so recent that no lease has expired."""
        return time.monotonic() - self._renewed < LEASE

    @property
    def intact(self) -> bool:
        return not self._held or self.is_open

    @property
    def listens(self) -> bool:
        """Whether the server reports commits now."""
        return self.is_open and self._stays and bool(self.sql.listen)

    def expect(self, waiting: bool) -> bool:
        """Record at the server whether this process has a waiter. Returns whether notifications begin now."""
        with self._lock:
            now = time.monotonic()
            if waiting:
                self._expected_at = now
            elif now <= self._expected_at + IDLE:
                return False
            if waiting == self._expects or not self._stays or not self.sql.listen:
                return False
            self.open()
            self._run(self.sql.expect, process=self._process, waits=waiting)
            self._expects = waiting
            return waiting

    def fileno(self) -> int:
        return self.connector.driver.fileno(self._connection)

    def receive(self) -> bool:
        """Return whether the server has notified since the last call, or the connection is lost."""
        with self._lock:
            if not self.is_open:
                return True
            with self.connector.errors():
                return self.connector.driver.receive(self._connection) or not self.is_open

    def close(self) -> None:
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self._connection.close()

    def _run(self, sql: str, **values: Any) -> list[Row]:
        with self._lock, self.connector.errors():
            return self._ask(sql, values)

    def _ask(self, sql: str, values: Mapping[str, object]) -> list[Row]:
        """Run a statement. An interrupt closes the connection, since the next statement might read this result."""
        text, names = by_position(sql, "%s")
        connection = self._connection
        try:
            cursor = connection.cursor()
            cursor.execute(text, [values[name] for name in names] or None)
            rows = list(cursor.fetchall()) if cursor.description else []
        except BaseException as error:
            self.connector.driver.close_if_unfinished(connection, error)
            raise
        # Notifications that came with the result are already read, so the socket does not become readable for them.
        if self.connector.driver.receive(connection):
            self.on_notification()
        return rows

    # liveness locks

    @property
    def lease(self) -> float | None:
        return None if self._stays else LEASE

    def _prepare(self) -> None:
        self.open()

    def _lock_session(self, uuid: str) -> bool:
        return uuid in self._held or self._joined(uuid)

    def _unlock_session(self, uuid: str) -> None:
        self._kept.discard(uuid)
        try:
            if self.is_open:
                self._run(self.sql.unregister, uuid=uuid, process=self._process)
        except self.connector.failures:
            if self.is_open:  # else the connection has dropped the lock
                self._kept.add(uuid)

    def _joined(self, uuid: str) -> bool:
        with self._gates([uuid]) as open_:
            if open_:
                self._run(self.sql.register, uuid=uuid, process=self._process)
                self._kept.discard(uuid)
            return bool(open_)

    def _regained(self, uuid: str) -> bool:
        """Rejoin a session after its connection was lost. Succeeds if another process has kept it alive."""
        if not self._stays:
            lives = bool(self._run(self.sql.there, uuid=uuid))
        else:
            lives = uuid not in self.gone([uuid])
        if lives and self._joined(uuid):
            self._held[uuid] += 1
        return uuid in self._held

    @contextmanager
    def _gates(self, uuids: Sequence[str]) -> Iterator[list[str]]:
        """Lock sessions within the block, so that no other process joins or closes them. Yields the locked ones."""
        locked = list(uuids)
        if not self._stays:
            yield locked  # a lock would belong to any connection of the pooler
            return
        numbers = {uuid: UUID(uuid).int % 2**62 for uuid in uuids}
        try:
            free = self._call(self.sql.lock, [*numbers.values()])
            locked = [uuid for uuid, is_free in zip(numbers, free, strict=True) if is_free]
            yield locked
        finally:
            if locked and self.is_open:
                self._call(self.sql.unlock, [numbers[uuid] for uuid in locked])

    def _call(self, function: str, locks: Sequence[int]) -> Row:
        """Return what a server function returns for each lock."""
        calls = ", ".join(filled(function, lock=f":lock{i}") for i in range(len(locks)))
        return self._run(f"SELECT {calls}", **{f"lock{i}": lock for i, lock in enumerate(locks)})[0]

    def gone(self, uuids: Sequence[str]) -> list[str]:
        if not uuids:
            return []
        self.open()
        with self._lock:
            for uuid in [*self._kept]:
                self._unlock_session(uuid)
        # A process does not see its own lock.
        living = {*self._held, *(uuid for (uuid,) in self._run(self.sql.living))}
        return [uuid for uuid in uuids if uuid not in living]

    def is_held(self, uuid: str) -> bool:
        if not self._stays:
            return self._leased and uuid in self._held
        try:
            return not self.gone([uuid])
        except self.connector.failures:
            return False  # the lock is lost if the server does not answer

    @contextmanager
    def alone(self, uuids: Sequence[str]) -> Iterator[list[str]]:
        with self._lock:
            self.open()
            free = [uuid for uuid in uuids if uuid not in self._held and uuid not in self._ending]
            self._ending.update(free)
        try:
            while free:
                with self._gates(free) as open_:
                    if alone := self.gone(open_):
                        sql, values = listed(self.sql.unregister_all, "uuids", alone)
                        self._run(sql, **values)
                        if self.sql.forget:
                            self._run(self.sql.forget, process=self._process)
                    if alone or not open_:
                        yield alone
                        return
                if not self.gone(open_):  # else its last process has just released it, so try again
                    break
            yield []
        finally:
            self._ending.difference_update(free)

    def renew(self) -> bool:
        with self._lock:
            self.open()
            if not self._stays and time.monotonic() - self._renewed > RENEWED:
                late = not self._leased
                self._renewed = time.monotonic()
                for uuid in list(self._held):
                    self._run(self.sql.renew, uuid=uuid, lease=LEASE)
                    if late and not self._run(self.sql.there, uuid=uuid):  # it has expired before it was renewed
                        del self._held[uuid]
                        self._unlock_session(uuid)
                        self._lost.append(uuid)
        return True

    def pop_lost(self) -> list[str]:
        with self._lock:
            lost, self._lost = self._lost, []
            return lost

    def on_own_connection(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        with self._lock, self.connector.errors():
            self.open()
            try:
                return self._ask(self.sql.nowait(sql), values)
            except Exception as error:
                # This thread's transaction may hold the lock, and would wait for itself: MariaDB also locks the
                # gaps beside a session's row.
                if self.connector.driver.classify(error) is not ErrorKind.LOCKED:
                    raise
                return None

    def announce(self) -> None:
        with self._lock:
            self.open()
            if self._stays and self.sql.notify:
                self._run(self.sql.notify)

    def there(self) -> bool:
        return True  # connecting does not create a database on a server
