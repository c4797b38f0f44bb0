"""A worker's function in a session of its own, in which its task is acked; and what other functions leave undone."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NoReturn
from weakref import ref

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.util import greenlet_spawn

from xq.adapters.sqlalchemy.connections import watch
from xq.adapters.sqlalchemy.writes import Writes, noting
from xq.core.errors import ConfigurationError, LeftOpen, NotFound, WrongState, shown
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.runtime.lease import current
from xq.workers.attempt import Batch, WorkerJob
from xq.workers.outcomes import Next
from xq.workers.worker import Worker, check_returned, is_async

ENDS: Final = ("commit", "rollback", "close", "reset", "invalidate", "prepare")  # methods that end its transaction
AFTER = "a call of xq.after_commit() has failed; the task is finished all the same"


def run_in(store: Any, worker: Worker[Any]) -> Callable[[Any], Any]:
    """Return what calls a worker's function. Raises ConfigurationError for an unfit session."""
    function, maker, awaits = worker.function, worker.options.session, is_async(worker.function)
    what = f"the engine of {store.name}"
    if maker is not None:
        wanted: type[Any] = async_sessionmaker if awaits else sessionmaker
        if not isinstance(maker, wanted):
            of = "an async def" if awaits else "a function that is no async def"
            raise ConfigurationError(f"session= of {of} is made by {wanted.__name__}(engine), not {shown(maker)}")
        engine = maker.kw.get("bind")
        if isinstance(engine := engine.sync_engine if isinstance(engine, AsyncEngine) else engine, sa.Engine):
            watch(engine)
            _forget_in_child(engine)
        made = InSession(store, worker, maker, what)
        return made.acall if awaits else made.call

    def call(task: Any) -> None:
        with noting() as writes:
            check_returned(function(task))
            _check(writes, what)

    async def acall(task: Any) -> None:
        with noting() as writes:
            await function(task)
            if writes.open or writes.lost:
                await greenlet_spawn(_check, writes, what)

    return acall if awaits else call


class InSession:
    """A worker's function, called with its task and a session."""

    def __init__(self, store: Any, worker: Worker[Any], maker: Any, what: str) -> None:
        self._store, self._queue, self._function = store, worker.queue, worker.function
        self._log, self._maker, self._what = worker.moves.log, maker, what
        self._counts = "attempts" in worker.moves.tasks.table.roles

    def call(self, task: Any) -> None:
        ended = None
        with self._maker() as session, self._open(session, task) as (job, mine, writes):
            try:
                check_returned(self._function(mine, session))
            except Next as error:  # no failure: its step is done
                ended = error
            self._end(session, job, writes, ended)
        for call in job.calls or ():
            try:
                check_returned(call())
            except Exception:
                self._log.exception(AFTER)
        if ended is not None:
            raise ended

    async def acall(self, task: Any) -> None:
        ended = None
        async with self._maker() as session:
            with self._open(session.sync_session, task) as (job, mine, writes):
                try:
                    await self._function(mine, session)
                except Next as error:
                    ended = error
                await session.run_sync(self._end, job, writes, ended)
        for call in job.calls or ():
            try:
                if inspect.isawaitable(result := call()):
                    await result
            except (Exception, asyncio.CancelledError):  # by its timeout, for example
                self._log.exception(AFTER)
        if ended is not None:
            raise ended

    @contextmanager
    def _open(self, session: Session, task: Any) -> Iterator[tuple[WorkerJob, Any, Writes]]:
        """Begin the session's transaction, which only xq ends. Yield the job, what is given, and what is written."""
        job: Any = current()
        job.calls = []
        session.begin()
        for name in ENDS:
            setattr(session, name, partial(self._refuse, name))
        try:
            with noting() as writes:
                yield job, self._merged(session, task), writes
        finally:
            for name in ENDS:
                delattr(session, name)

    def _refuse(self, name: str, *_: object, **options: object) -> NoReturn:
        raise ConfigurationError(
            f"the worker's function calls {name}() of its session: xq commits it with the ack when the function has "
            "returned, and rolls it back if it raises. For a part that may fail say `with session.begin_nested():`"
        )

    def _merged(self, session: Session, task: Any) -> Any:
        """Return a task, or what a batch has, as the session's, without a query."""
        if isinstance(task, Batch):
            task.give([self._merged(session, each) for each in task])
            return task
        merged = session.merge(task, load=False)
        setattr(merged, TOKEN_ATTRIBUTE, getattr(task, TOKEN_ATTRIBUTE, None))
        return merged

    def _end(self, session: Session, job: WorkerJob, writes: Writes, ended: Next | None) -> None:
        """Finish the tasks of a function that has returned, and commit."""
        own = session.connection(**self._store._of_the_model)
        _check(writes, self._what, own)
        session.flush()
        name, options = "ack", dict[str, Any]()
        if ended is not None:
            name, options = "release", {**ended.options, "update": ended.update}
            options |= {"attempts": 0} if self._counts else {}
        mine = [each for each in job.done if not each.finished]
        for each in [each for each in job.done if each.finished]:
            with suppress(NotFound, WrongState):  # it did so itself, unless its savepoint was rolled back
                getattr(self._queue, name)(each.taken, on=session, **options)
        if len(mine) == 1:
            getattr(self._queue, name)(mine[0].taken, on=session, **options)
        elif mine:
            getattr(self._queue, f"{name}_many")([each.taken for each in mine], on=session, **options)
        try:
            type(session).commit(session)
        except Exception:
            with suppress(Exception):  # SQLite leaves it open, and SQLAlchemy takes it for ended
                own.connection.rollback()
            raise
        for each in job.done:
            each.in_doubt = False


def _check(writes: Writes, what: str, own: sa.Connection | None = None) -> None:
    """Raise LeftOpen for what a function has written and not committed, but on its `own` connection."""
    is_open = writes.open - {own}
    for connection in is_open:
        connection.close()  # the pool rolls it back
    if is_open or writes.lost:
        raise LeftOpen(what, lost=not is_open)


def _forget_in_child(engine: sa.Engine) -> None:
    """Have forked children make connections of their own for the engine of sessions."""
    if not vars(engine).get("_xq_forks"):
        vars(engine)["_xq_forks"], found = True, ref(engine)

        def forget() -> None:
            if (left := found()) is not None:
                left.dispose(close=False)

        os.register_at_fork(after_in_child=forget)
