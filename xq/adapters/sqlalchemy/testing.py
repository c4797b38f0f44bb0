"""Tests that roll back: the calls of queues, and the sessions of workers, on the connection of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import await_only, greenlet_spawn

from xq.adapters.sqlalchemy.engines import place_of
from xq.core.errors import ConfigurationError, shown

made: WeakSet[Any] = WeakSet()  # the queues of this process
_bind: ContextVar[Any] = ContextVar("xq_bind_of_test", default=None)  # of the test's session: a Connection, maybe async


def _inner(bind: Any) -> Any:
    """Return the Connection or Engine in an asynchronous one."""
    return getattr(bind, "sync_connection", None) or getattr(bind, "sync_engine", bind)


def _is_on(store: Any, bind: Any) -> bool:
    mine, other = store._find(), _inner(bind).engine
    if mine is None or mine.dialect is other.dialect:
        return mine is not None
    # To say where an engine is may need a connection: not for those of other tests.
    return mine.url.database == other.url.database and place_of(mine) == place_of(other)


@contextmanager
def in_session(given: Any) -> Iterator[list[Any]]:
    """Have calls in this context use the connection of a test's session within the block. Yield that database's queues.

    In coroutines that are those of `run_pending_async`, and those with on=. Raises ConfigurationError.
    """
    session = given() if isinstance(given, scoped_session) else given
    bind = getattr(session, "bind", None)
    if not isinstance(_inner(bind), sa.Connection):
        raise ConfigurationError(
            "xq_session takes a session on the connection whose transaction the test rolls back, as made by "
            f"Session(bind=connection, join_transaction_mode='create_savepoint'), not {shown(given)}"
        )
    queues = [queue for queue in made if _is_on(queue.parts.store, bind)]
    ends: list[Callable[[], object]] = [lambda: _bind.set(None)]  # the end of a fixture may have another context
    _bind.set(bind)
    try:
        for queue in queues if isinstance(session, Session) else ():
            ends.append(queue.parts.store.join(bind))
        yield queues
    finally:
        for end in ends:
            end()


async def in_this_loop(run: Callable[[Callable[[Any], object]], int]) -> int:
    """Call what runs workers with a function that awaits theirs: its own statements await their driver as well."""
    calls: int = await greenlet_spawn(run, await_only)
    return calls


@contextmanager
def under_test(store: Any, maker: Any) -> Iterator[None]:
    """Run a queue's calls, and a worker's sessions by its sessionmaker, on the test's connection within the block.

    Raises ConfigurationError if the sessions would be on another database.
    """
    bind, before = _bind.get(), {} if maker is None else {**maker.kw}
    if (own := before.get("bind")) is not None and not _is_on(store, own):
        raise ConfigurationError(
            f"the worker's sessions are on {_inner(own).engine.url}, and {store.name} on {store.known_engine.url}: "
            "bind both to the database of the test, as by Session.configure(bind=engine)"
        )
    if bind is None or not _is_on(store, bind):
        yield
        return
    try:
        if maker is not None:
            used = bind if isinstance(maker, async_sessionmaker) else _inner(bind)
            maker.configure(bind=used, join_transaction_mode="create_savepoint")
        with store.joining(_inner(bind)):
            yield
    finally:
        if maker is not None:
            maker.kw = before
