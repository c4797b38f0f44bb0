"""The transactions of callers, which calls join by `on=`, and what waits for their ends."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session, SessionTransaction

from xq.adapters.sqlalchemy import writes
from xq.adapters.sqlalchemy.asynchronous import driver_of
from xq.adapters.sqlalchemy.engines import place_of
from xq.adapters.sqlalchemy.lent import set_up
from xq.core.errors import BadType, ConfigurationError, shown
from xq.drivers.stores import JoinedConnection

# A connection's entries in `info`: calls before and after COMMIT, and the error by which its server has undone all.
WAITING, COMMITTED, UNDONE = "xq_waiting", "xq_committed", "xq_undone"
DEADLOCK = 1213  # MariaDB rolls back the whole transaction, with its savepoints
# What runs when the session of this thread or coroutine has ended that has just committed.
_ending: ContextVar[list[Callable[[], None]] | None] = ContextVar("xq_ending", default=None)


class Joined(JoinedConnection):
    """The connection of a caller's session."""

    __slots__ = ("outer",)

    outer: sa.Connection

    def prepare(self) -> None:
        set_up(self, self.outer.info)

    def interrupted(self) -> None:
        with suppress(Exception):
            if self.driver.batching == "transaction":  # SQLite: rows that are not read keep the lock, also when closed
                self.raw.rollback()
        self.outer.invalidate()  # as SQLAlchemy does: the coroutine was cancelled, and a statement may still run

    def lost_by(self, error: Any) -> bool:
        """Have SQLAlchemy know of an error of the driver's. Return whether it has ended the connection."""
        _note_undone(self.outer, error)
        lost = self.outer.dialect.is_disconnect(error, self.raw, None)
        if lost:
            self.outer.invalidate(error)
        return lost


def check_schema(name: str, on: Any) -> None:
    """Raise ConfigurationError for an engine or a connection that has another schema in place of the table's."""
    if on.get_execution_options().get("schema_translate_map"):
        raise ConfigurationError(
            f"the engine or the session's connection of {name} has a schema_translate_map, which xq's statements do "
            "not read: name the schema in __table_args__ = {'schema': ...}, or use a search_path that has it"
        )


def join(store: Any, on: Any) -> Joined:
    """Return the connection of a caller's transaction, which is begun if necessary."""
    if hasattr(on, "run_sync"):
        raise BadType(f"{type(on).__name__} is for the methods of aio: await orders.aio.put(order, on=session), say")
    if not isinstance(on, (Session, sa.Connection)):
        raise BadType(f"on is a Session or a Connection of SQLAlchemy, not {shown(on)}")
    outer = on.connection(**store._of_the_model) if isinstance(on, Session) else on
    check_schema(store.name, outer)
    mine = store.known_engine
    if outer.dialect is not mine.dialect and place_of(outer.engine) != place_of(mine):
        raise ConfigurationError(f"{store.name} is on {mine.url}, and on= is on {outer.engine.url}")
    if not outer.in_transaction():
        outer.begin()
    if isinstance(outer.get_transaction(), sa.TwoPhaseTransaction):
        raise ConfigurationError(
            f"on= has a transaction in two phases, of whose end xq learns nothing: give {store.name} a session with "
            "twophase=False"
        )
    if (undone := outer.info.get(UNDONE)) is not None:
        base: Any = outer.dialect.loaded_dbapi
        raise exc.DBAPIError.instance("", None, undone, base.Error, dialect=outer.dialect)
    writes.wrote(outer)
    driver, raw = driver_of(outer.dialect), outer.connection.dbapi_connection
    if (product := driver.check(raw)) != (database := store.database).product:
        database.is_served_by(product)
    if writes.autocommits(outer):
        raise ConfigurationError(
            f"on= is in AUTOCOMMIT mode, where no rollback would take a call of {store.name} back: give a session "
            "of an engine with another isolation_level"
        )
    watch(outer.engine, EVENTS.keys())
    joined = Joined(store, driver, raw, database, outer.info.setdefault(WAITING, []).append)
    joined.outer = outer
    if outer is on:
        vars(outer)["close"] = partial(_close, outer)
    return joined


def _close(connection: sa.Connection) -> None:
    """Close a connection, and then run what waits for its commit, so that the calls find it in the pool."""
    calls: list[Callable[[], None]] = []
    token = _ending.set(calls)
    try:
        type(connection).close(connection)
    finally:
        _ending.reset(token)
    for call in calls:
        call()


def _note_undone(connection: sa.Connection, error: Any) -> None:
    if error.args[:1] == (DEADLOCK,) and connection.dialect.name in ("mysql", "mariadb"):
        connection.info[UNDONE] = error


def _committing(connection: sa.Connection) -> None:
    writes.ended(connection, committed=True)
    if calls := connection.info.pop(WAITING, None):
        connection.info[COMMITTED] = calls


def _rolled_back(connection: sa.Connection) -> None:
    writes.ended(connection, committed=False)
    if not connection.invalidated:  # else the pool has forgotten it
        for name in (WAITING, COMMITTED, UNDONE):
            connection.info.pop(name, None)


def _begun(connection: sa.Connection) -> None:
    writes.began(connection)
    _over(None, connection)


def _over(raw: object, of: Any) -> None:
    """Run what waits for a commit, when the connection goes back to its pool or begins anew.

    SQLAlchemy has no event after a commit of a connection. A session has one after it has given its connection back,
    and a connection is closed by `_close`: then, so that the calls find a connection in the pool.
    """
    of.info.pop(WAITING, None), of.info.pop(UNDONE, None)
    calls, ending = of.info.pop(COMMITTED, ()), _ending.get()
    if ending is not None:
        ending.extend(calls)
        return
    for call in calls:
        call()


def _session_commits(session: Session) -> None:
    if not session.in_nested_transaction():
        _ending.set([])


def _session_ends(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None and (calls := _ending.get()) is not None:
        _ending.set(None)
        for call in calls:
            call()


sa.event.listen(Session, "after_commit", _session_commits)
sa.event.listen(Session, "after_transaction_end", _session_ends)


def _savepoint(connection: sa.Connection, name: str) -> None:
    """Begin a transaction of SQLite before its first savepoint, whose release would be its commit."""
    if connection.dialect.name != "sqlite":
        return
    driver, raw = driver_of(connection.dialect), cast(Any, connection.connection.dbapi_connection)
    if not driver.in_transaction(raw):
        driver.execute(raw.cursor(), "BEGIN", ())


def _failed(context: sa.ExceptionContext) -> None:
    if context.connection is not None:
        _note_undone(context.connection, context.original_exception)


EVENTS = dict[str, Callable[..., None]](begin=_begun, commit=_committing, rollback=_rolled_back, checkin=_over)
EVENTS |= {"after_cursor_execute": writes.executed, "reset": writes.reset, "savepoint": _savepoint}
EVENTS["handle_error"] = _failed
OF_WRITES = {*EVENTS} - {"checkin"}


def watch(engine: sa.Engine, names: Set[str] = OF_WRITES) -> None:
    """Learn of the ends of the application's transactions on an engine."""
    known: set[str] = vars(engine.dialect).setdefault("_xq_watches", set())
    for name in names - known:
        known.add(name)
        sa.event.listen(engine, name, EVENTS[name])
