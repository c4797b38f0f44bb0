"""A worker's function in a session of its own, in which its task is acked; and what other functions leave undone."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import methodcaller
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import greenlet_spawn

from xq.adapters.sqlalchemy.joined import check_schema, watch
from xq.adapters.sqlalchemy.writes import Writes, is_ended_by_xq, noting
from xq.core.connections import keep
from xq.core.errors import ConfigurationError, LeftOpen, NotFound, WrongState, shown
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.runtime.lease import current
from xq.workers.attempt import Batch, WorkerJob
from xq.workers.child import WHEN_FORKED
from xq.workers.outcomes import Next
from xq.workers.worker import Worker, check_returned, is_async, returned

R = TypeVar("R")
AFTER = "a call of xq.after_commit() has failed; the task is finished all the same"


def run_in(store: Any, worker: Worker[Any]) -> Callable[[Any], Any]:
    """Return what calls a worker's function. Raises ConfigurationError for an unfit session."""
    function, maker, awaits = worker.function, worker.options.session, is_async(worker.function)
    what = f"the engine of {store.name}"
    if maker is not None:
        wanted: type[Any] = async_sessionmaker if awaits else sessionmaker
        scope: type[Any] = async_scoped_session if awaits else scoped_session
        if not isinstance(maker.session_factory if isinstance(maker, scope) else maker, wanted):
            of = "an async def" if awaits else "a function that is no async def"
            made_by = f"{wanted.__name__}(engine), or by a {scope.__name__} of one"
            raise ConfigurationError(f"session= of {of} is made by {made_by}, not {shown(maker)}")
        made = InSession(store, worker, what)
        if isinstance(maker, scope):
            return partial(made.acall_in_scope if awaits else made.call_in_scope, maker)
        if maker.kw.get("bind") is not None:
            prepare(store, maker)
        return made.acall if awaits else made.call

    def call(task: Any) -> None:
        with noting() as writes:
            try:
                returned(function(task))
            except BaseException:
                writes.undo()
                raise
            _check(writes, what)

    async def acall(task: Any) -> None:
        with noting() as writes:
            try:
                await function(task)
                returned()
            except BaseException:
                if writes.open or writes.sessions:
                    await greenlet_spawn(writes.undo)
                raise
            if writes.left() or writes.lost:
                await greenlet_spawn(_check, writes, what)

    return acall if awaits else call


def prepare(store: Any, maker: Any, around: bool = False) -> None:
    """Prepare the engine of a worker's sessions. Raises ConfigurationError if they have none for its tasks.

    If Flask finds its engine only within the context `around` an attempt, each attempt prepares it.
    """
    session = getattr(maker, "session_factory", maker)()
    try:
        bind = getattr(session, "sync_session", session).get_bind(**store._of_the_model["bind_arguments"])
    except exc.UnboundExecutionError as error:
        raise ConfigurationError(
            f"session= makes sessions without an engine for {store.name}: say sessionmaker(engine), or "
            "make_session.configure(bind=engine) before its workers start"
        ) from error
    except RuntimeError as error:  # of Flask, outside of its application's context
        if around:
            return
        raise ConfigurationError(
            f"session= finds no engine here ({str(error).splitlines()[0]}): say worker(session=db.session, "
            "around=lambda task: app.app_context())"
        ) from error
    check_schema(store.name, bind)
    watch(bind.engine)
    _engines.add(bind.engine)


class InSession:
    """A worker's function, called with its task and a session."""

    def __init__(self, store: Any, worker: Worker[Any], what: str) -> None:
        self._store, self._queue, self._function, self._what = store, worker.queue, worker.function, what
        self._log, self._maker = worker.moves.log, worker.options.session
        computed = (prop for prop in store.mapper.column_attrs if not isinstance(prop.columns[0], sa.Column))
        self._computed = [prop.key for prop in computed if not prop.deferred]  # what a coroutine cannot load later
        self._anew = {"attempts": 0} if "attempts" in worker.moves.tasks.table.roles else {}

    def call_in_scope(self, scope: Any, task: Any) -> None:
        """Call the function with the session that its scope has for this attempt, and then remove it there."""
        try:
            prepare(self._store, scope)
            self.call(task)
        finally:
            scope.remove()

    async def acall_in_scope(self, scope: Any, task: Any) -> None:
        try:
            prepare(self._store, scope)
            await self.acall(task)
        finally:
            await scope.remove()

    def call(self, task: Any) -> None:
        ended = None
        with self._maker() as session, self._open(session, task) as (job, mine, writes):
            job.commit = partial(self._go_on, session, job)
            try:
                returned(self._function(mine, session))
            except Next as error:  # no failure: its stage is done
                ended = error
            self._end(session, job, writes, ended)
        self._call_after(job)
        if ended is not None:
            raise ended

    async def acall(self, task: Any) -> None:
        ended, session = None, self._maker()
        try:
            with self._open(session.sync_session, task) as (job, mine, writes):
                job.commit = partial(self._ago_on, session, job)
                for each in (mine if isinstance(mine, Batch) else [mine]) if self._computed else ():
                    await session.refresh(each, self._computed)
                try:
                    await self._function(mine, session)
                    returned()
                except Next as error:
                    ended = error
                await session.run_sync(self._end, job, writes, ended)
        except BaseException:
            async with session:  # closes it, also in a coroutine that is cancelled
                raise
        await self._acall_after(job)
        if ended is not None:
            raise ended

    def _call_after(self, job: Any) -> None:
        """Make the calls that wait for the commit."""
        calls, job.calls = job.calls, []
        for call in calls:
            try:
                check_returned(call())
            except Exception:
                self._log.exception(AFTER)

    async def _acall_after(self, job: Any) -> None:
        calls, job.calls = job.calls, []
        for call in calls:
            try:
                if inspect.isawaitable(result := call()):
                    await result
            except (Exception, asyncio.CancelledError):  # by its timeout, for example
                self._log.exception(AFTER)

    def _go_on(self, session: Session, job: Any, write: Callable[[], R]) -> R:
        """End a step of the function: run `write` in its session and commit. No object expires: a coroutine could not
        load it again."""
        made = self._committed(session, write)
        self._call_after(job)
        return made

    async def _ago_on(self, session: Any, job: Any, write: Callable[[], R]) -> R:
        made: R = await session.run_sync(self._committed, write)
        await self._acall_after(job)
        return made

    def _committed(self, session: Session, write: Callable[[], R]) -> R:
        if session.in_nested_transaction():
            raise ConfigurationError("a step ends by a commit of the session: call it outside of begin_nested()")
        own, expires = session.connection(**self._store._of_the_model), session.expire_on_commit
        session.flush()
        with self._store.joining(own):
            made = write()
        session.expire_on_commit = False
        try:
            type(session).commit(session)
        finally:
            session.expire_on_commit = expires
        session.begin()
        is_ended_by_xq(session)
        return made

    @contextmanager
    def _open(self, session: Session, task: Any) -> Iterator[tuple[Any, Any, Writes]]:
        """Begin the session's transaction, which only xq ends. Yield the job, what is given, and what is written."""
        job: Any = current()
        job.calls = []
        if not session.in_transaction():  # what stands around the function may have used its scope's
            session.begin()
        vars(session).update(REFUSED)
        try:
            with noting() as writes:
                yield job, self._merged(session, task), writes
        finally:
            job.commit = None
            for name in REFUSED:
                delattr(session, name)

    def _merged(self, session: Session, task: Any) -> Any:
        """Return a task, or what a batch has, as the session's, without a query."""
        if isinstance(task, Batch):
            task.give([self._merged(session, each) for each in task])
            return task
        merged = session.merge(task, load=False)
        setattr(merged, TOKEN_ATTRIBUTE, getattr(task, TOKEN_ATTRIBUTE, None))
        return merged

    def _end(self, session: Session, job: WorkerJob, writes: Writes, ended: Next | None) -> None:
        """Finish the tasks of a function that has returned, commit, and close the session."""
        own = session.connection(**self._store._of_the_model)
        _check(writes, self._what, own)
        session.flush()
        name, options = "ack", dict[str, Any]()
        if ended is not None:
            name, options = "release", {**ended.options, **self._anew, "update": ended.update}
        left = [each.taken for each in job.done if not each.finished]
        with self._store.joining(own):  # not the session, which need not read the tasks again
            for each in [each for each in job.done if each.finished]:
                with suppress(NotFound, WrongState):  # it did so itself, unless its savepoint was rolled back
                    getattr(self._queue, name)(each.taken, **options)
            if len(left) == 1 and ended is not None:
                update, moves = options.pop("update"), self._queue.parts.named
                moves.rewriting(name, left[0], options, update, moves.machine.anew)
            elif left:
                getattr(self._queue, name + "_many" * (len(left) > 1))(left if len(left) > 1 else left[0], **options)
        try:
            type(session).commit(session)
        except Exception:
            with suppress(Exception):  # SQLite leaves it open, and SQLAlchemy takes it for ended
                own.connection.rollback()
            raise
        for each in job.done:
            each.in_doubt = False
        type(session).close(session)


def _refuse(name: str, *_: object, **options: object) -> NoReturn:
    raise ConfigurationError(
        f"the worker's function calls {name}() of its session: xq commits it with the ack when the function has "
        "returned, and rolls it back if it raises. For a part that may fail say `with session.begin_nested():`"
    )


REFUSED = {name: partial(_refuse, name) for name in ("commit", "rollback", "close", "reset", "invalidate", "prepare")}


def _check(writes: Writes, what: str, own: sa.Connection | None = None) -> None:
    """Raise LeftOpen for what a function has written and not committed, but on its `own` connection."""
    left, lost = writes.left(own), writes.lost
    if left:
        writes.undo(own)
    if left or lost:
        raise LeftOpen(what, lost=not left)


_engines: WeakSet[sa.Engine] = WeakSet()  # of sessions: a forked child makes connections of its own
os.register_at_fork(after_in_child=lambda: [*map(methodcaller("dispose", close=False), list(_engines))])


def _forget() -> None:
    """Use no connection in this process that its parent has opened, nor end one: of no engine, in no session."""
    found = gc.get_objects()
    for each in [each for each in found if issubclass(type(each), ConnectionPoolEntry)]:
        # A fork has copied what is in memory.
        if each.dbapi_connection is not None and not isinstance(each._ConnectionRecord__pool, IN_MEMORY):
            keep(each.dbapi_connection)
            each.dbapi_connection = None
    for each in [each for each in found if issubclass(type(each), Session)]:  # this thread may have a current one
        with suppress(Exception):  # another thread of the parent was within it
            each.invalidate()


IN_MEMORY = (sa.StaticPool, sa.SingletonThreadPool)
WHEN_FORKED.append(_forget)
