"""Tests that roll back: the calls of queues, and the sessions of workers, on the connection of the test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import scoped_session
from sqlalchemy.util import await_only, greenlet_spawn

from xq.adapters.sqlalchemy.engines import place_of
from xq.adapters.sqlalchemy.joined import join
from xq.core.errors import ConfigurationError, shown

made: WeakSet[Any] = WeakSet()  # the queues of this process
_tests: list[OfTest] = []  # that run, the innermost last
_here: ContextVar[OfTest | None] = ContextVar("xq_test", default=None)


def _inner(bind: Any) -> Any:
    """Return the Connection or Engine in an asynchronous one."""
    return getattr(bind, "sync_connection", None) or getattr(bind, "sync_engine", bind)


def _is_on(store: Any, bind: Any) -> bool:
    mine, other = store._find(), _inner(bind).engine
    if mine is None or mine.dialect is other.dialect:
        return mine is not None
    # To say where an engine is may need a connection: not for those of other tests.
    return mine.url.database == other.url.database and place_of(mine) == place_of(other)


class OfTest:
    """A test, whose connection the calls of queues join that join nothing else."""

    def __init__(self, bind: Any) -> None:
        self.bind, self.connection, self.thread = bind, _inner(bind), get_ident()
        self.is_async = self.connection is not bind
        self.stores = ExitStack()

    def has(self, store: Any) -> bool:
        """Return whether a store is on the test's database. From now on its calls join."""
        if not _is_on(store, self.bind):
            return False
        self._join(store)
        self._join(store.database.store)
        return True

    def _join(self, store: Any) -> None:
        if not isinstance(before := store._joined, _Joining) or before.test is not self:
            store._joined = _Joining(self, store, before)
            self.stores.callback(setattr, store, "_joined", before)

    @property
    def is_here(self) -> bool:
        """Whether this thread, or this greenlet, may use the connection."""
        if not self.is_async:
            return self.thread == get_ident() or _here.get() is self
        from greenlet import getcurrent  # type: ignore[import-untyped]

        return getcurrent().parent is not None  # where SQLAlchemy awaits the driver


class _Joining:
    """In place of a store's context variable, which has what its calls join."""

    def __init__(self, test: OfTest, store: Any, before: Any) -> None:
        self.test, self._store, self._before = test, store, before
        self.set, self.reset = before.set, before.reset
        self._made: Any = None

    def get(self) -> Any:
        if (joined := self._before.get()) is not None:
            return joined
        if not self.test.is_here:
            if self._store.database.store is self._store:  # maintenance
                return None
            how = f"await {self._store.name}'s call of aio" if self.test.is_async else "call it in the test's thread"
            raise ConfigurationError(
                f"this call of {self._store.name} would be no part of the test, whose connection xq_session has: {how}"
            )
        if self._made is None:
            self._made = join(self._store, self.test.connection)
        return self._made


def bound(store: Any) -> None:
    """Have the calls of a queue that is bound to an engine while tests run join them."""
    for test in _tests:
        test.has(store)


def test_of(store: Any) -> OfTest | None:
    """Return the test whose connection the calls of a store join."""
    joined = store._joined
    return joined.test if isinstance(joined, _Joining) else None


@contextmanager
def in_session(given: Any) -> Iterator[list[Any]]:
    """Have calls use the connection of a test's session within the block. Yield the queues of that database.

    Raises ConfigurationError.
    """
    session = given() if isinstance(given, scoped_session) else given
    bind = getattr(session, "bind", None)
    if not isinstance(_inner(bind), sa.Connection):
        raise ConfigurationError(
            "xq_session takes a session on the connection whose transaction the test rolls back, as made by "
            f"Session(bind=connection, join_transaction_mode='create_savepoint'), not {shown(given)}"
        )
    test = OfTest(bind)
    with test.stores:
        queues = [queue for queue in made if test.has(queue.parts.store)]
        _tests.append(test)
        _here.set(test)
        try:
            yield queues
        finally:
            _tests.remove(test)
            _here.set(None)  # a reset would fail: the end of a fixture may have another context


async def in_this_loop(run: Callable[[Callable[[Any], object]], int]) -> int:
    """Call what runs workers with a function that awaits theirs: its own statements await their driver as well."""
    calls: int = await greenlet_spawn(run, await_only)
    return calls


def on_its_connection(store: Any, job: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
    """Return a coroutine that runs a job of a coroutine's on the test's connection, on this loop; None without one."""

    async def run() -> None:
        job()

    if (test := test_of(store)) is None:
        return None
    return greenlet_spawn(job) if test.is_async else run()


@contextmanager
def under_test(store: Any, maker: Any) -> Iterator[None]:
    """Run a queue's calls, and a worker's sessions by its sessionmaker, on the test's connection within the block.

    Raises ConfigurationError if the sessions would be on another database.
    """
    maker = getattr(maker, "session_factory", maker)
    test, before = test_of(store), {} if maker is None else {**maker.kw}
    if (own := before.get("bind")) is not None and not _is_on(store, own):
        raise ConfigurationError(
            f"the worker's sessions are on {_inner(own).engine.url}, and {store.name} on {store.known_engine.url}: "
            "bind both to the database of the test, as by Session.configure(bind=engine)"
        )
    if test is None or maker is None:
        yield
        return
    try:
        used = test.bind if isinstance(maker, async_sessionmaker) else test.connection
        maker.configure(bind=used, join_transaction_mode="create_savepoint")
        yield
    finally:
        maker.kw = before
