"""A thread's connection to an engine: the pool lends it one of its own while a call runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import exc

from xq.core.connections import Driver
from xq.core.errors import ConfigurationError
from xq.drivers.stores import Connection
from xq.sql.migrated import WAL
from xq.sql.sqlite.event_context import AT_REST

F = TypeVar("F", bound=Callable[..., Any])

# Entries in the `info` of a connection of the pool: its mode, the event context that it is set up with, and the same if
# it was set up to be lent, which a transaction does not do: that sets a file to WAL as well.
MODE, CONTEXT, SET_UP = "xq_mode", "xq_context", "xq_set_up"
SHARING = (sa.StaticPool, sa.pool.SingletonThreadPool)  # pools whose connections several have at once

_asks = threading.local()  # has True in `me` while it is xq that asks the pool


def set_up(connection: Any, info: dict[str, Any]) -> bool:
    """Set a connection of the pool up, unless a call of whatever queue has done so. Return whether it is.

    Its `info` says so, which is emptied when it is closed. No rollback undoes what it is set up by.
    """
    if (known := info.get(CONTEXT)) is not None:
        connection.context, connection.set_up = known, True
        return True
    connection.store._set_up(connection)
    if connection.set_up is False:  # the queue is not bound to this database yet
        return False
    info[CONTEXT] = connection.context
    return True


def _lending(method: F) -> F:
    """Return a method with a connection of the pool while it runs."""

    def run(self: Lent, *given: Any) -> Any:
        if self.held:
            return method(self, *given)
        self._borrow()  # as `with self`, in fewer steps
        self.held = 1
        try:
            found = method(self, *given)
        except BaseException:
            self._give_back(failed=True)
            raise
        self._give_back()
        return found

    return cast(F, run)


class Lent(Connection):
    """A thread's connection, for all queues on an engine: it has one of the pool's only within `with` blocks."""

    __slots__ = ("_asked", "_engine", "_fairy", "_known", "_mode", "_shares", "_soon", "calls", "held", "last", "later")

    store: Any  # of the queue that had it last

    def __init__(self, store: Any, driver: Driver, database: object) -> None:
        super().__init__(store, driver, None, None, database)  # type: ignore[arg-type]
        self._engine = engine = store.known_engine
        self._shares = isinstance(engine.pool, SHARING)
        # Whether the mode is restored when a connection is given back: on SQLite that costs less than a listener.
        self._soon = self._shares or engine.dialect.name == "sqlite"
        self.held = 0  # the number of these blocks
        self.last: Any = None  # the driver's connection that was lent last
        self._known: dict[str, Any] | None = None  # its event context, if it is set up
        self.calls: list[Callable[[], None]] | None = None  # after the commit of the open block of xq's own
        self.later: Callable[[], object] | None = None  # begins the open block that no call has used yet
        self._fairy: Any = None  # the pool's connection
        self._asked = self.context = {**AT_REST}  # what a statement writes that borrows a connection when it runs

    execute = _lending(Connection.execute)
    change = _lending(Connection.change)
    insert = _lending(Connection.insert)
    atomically = _lending(Connection.atomically)
    as_one = _lending(Connection.as_one)
    admitted = _lending(Connection.admitted)

    def __enter__(self) -> None:
        if not self.held:
            self._borrow()
        self.held += 1

    def __exit__(self, failed: object = None, *_: object) -> None:
        self.held -= 1
        if self.held < 1:
            self._give_back(failed is not None)

    def _borrow(self, beside: sa.Pool | None = None) -> None:
        driver, pool, _asks.me = self.driver, beside or self._engine.pool, True
        try:
            fairy: Any = self._shared(pool) if self._shares else pool.connect()
            while driver.transaction(raw := fairy.dbapi_connection) is not False:
                fairy.invalidate()  # the server has closed it, or SQLite has refused a COMMIT, and it was left open
                fairy = pool.connect()
            self._mode = driver.autocommit(raw, True)
            if not (self._soon or self._mode is True):
                fairy.info[MODE] = driver, self._mode
        except Exception as error:
            raise self.store._wrapped(error)  # noqa: B904
        finally:
            _asks.me = False
        self._fairy, self.raw, self.cursor = fairy, raw, raw.cursor
        if raw is not self.last:
            self.last, self._known = raw, fairy.info.get(SET_UP)
            if not (database := self.store.database).product:
                database.is_served_by(driver.check(raw))
        if (context := self._known) is not None:
            context.update(self._asked)
            self.context, self.set_up = context, True
            return
        self.set_up, self.held = False, 1  # what sets it up runs on it
        try:
            self.store.database.is_served_by(driver.check(raw))
            if self._engine.dialect.name == "sqlite":  # as install() sets it, which no transaction of a migration can
                with suppress(exc.SQLAlchemyError):
                    self.execute(WAL)
            self.prepare()
        except BaseException:
            self._give_back(failed=True)
            raise
        self.held = 0

    def _shared(self, pool: Any) -> Any:
        """Return the connection that sessions have as well. Raises ConfigurationError in their transactions."""
        is_static = isinstance(pool, sa.StaticPool)  # which would roll it back when it is given back
        found = pool.connection if is_static else pool.connect()
        if self.driver.transaction(found.dbapi_connection):
            if not is_static:
                found.close()
            raise ConfigurationError(
                f"{self.store.name}'s calls and its sessions share one connection ({type(pool).__name__}), on which a "
                "transaction is open: make the call part of it, as in put(order, on=session)"
            )
        return pool.connect() if is_static else found

    def prepare(self) -> None:
        """Set the connection up that is lent."""
        if set_up(self, self._fairy.info):
            self._known = self._fairy.info[SET_UP] = self.context
            self.context.update(self._asked)

    def _give_back(self, failed: bool = False) -> None:
        """Give the connection back to the pool. It stays in autocommit mode until the application has it."""
        fairy, raw, driver = self._fairy, self.raw, self.driver
        self.context.update(AT_REST)
        self._fairy = self.raw = self.cursor = None  # type: ignore[assignment]
        self.context, self.held, self.in_transaction, self.open_block = self._asked, 0, False, ""
        if failed and (within := driver.transaction(raw)) is not False:
            if within is None:
                fairy.invalidate()
                return
            raw.rollback()  # an interrupt left it
        fairy.rollback = lambda: None  # for the pool: no transaction is open, and MariaDB's driver would ask the server
        if self._soon:
            driver.autocommit(raw, self._mode)
        fairy.close()

    def keep_own(self, store: Any) -> None:
        """Have a connection beside the pool, whose own are not used up by xq's, until the end of a block."""
        if not self.held:
            self.store = store
            self._borrow(self._engine.pool.recreate())
            self._fairy.detach()
            self.held = 1


def restored(raw: Any, record: Any, _: object) -> None:
    """Have the application get a connection in the mode that its transactions need. An event of a pool."""
    if not getattr(_asks, "me", False) and (found := record.info.pop(MODE, None)) is not None:
        driver, mode = found
        try:
            driver.autocommit(raw, mode)
        except Exception as error:
            raise exc.DisconnectionError from error  # then the pool opens another one
