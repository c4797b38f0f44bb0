"""`Page.xq.aio`: a queue's methods for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta, tzinfo
from functools import partial, wraps
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, Self, Unpack, overload

from xq.api import MISSING, Queue, wait_of_put
from xq.core.connections import Connections
from xq.core.errors import BadType, ConfigurationError, LeftOpen, NotInstalled, shown
from xq.core.kinds import R, T
from xq.core.options import Moves, PutOptions, Span, Times, count_of, touched_by
from xq.core.values import Taken
from xq.database.callers import Job, Runner
from xq.database.database import Database
from xq.database.sessions import Session
from xq.engine.named import LOCKED, Locked
from xq.operators.methods import CHUNK
from xq.runtime.group import Group
from xq.runtime.sleep import LOOK_NOW, Wait
from xq.runtime.turns import Call, CallKind, TakenBy, Turns, kind, resume, sleep

if TYPE_CHECKING:
    from xq.operators.inspection import Health
    from xq.operators.operations import Operation
    from xq.workers.program import Running

P = ParamSpec("P")
REVIEW = 5.0  # seconds until `run` looks again whether the queue is installed as this process defines it

_blocks: ContextVar[tuple[Block, ...]] = ContextVar("xq_blocks", default=())  # that the coroutine has entered


class Access(NamedTuple):
    """How coroutines call one database."""

    database: Database
    is_private: bool  # on the event loop: no other thread reaches it
    is_local: bool  # a file or memory, not a server


class Block:
    """A coroutine's open transaction: its calls run on one connection."""

    def __init__(self, database: object, run: Runner | None, afterwards: Runner) -> None:
        self.database = database
        self.is_open = True
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._run: Runner = run or self._jobs.put
        self._afterwards = afterwards

    def run(self, job: Job) -> None:
        (self._run if self.is_open else self._afterwards)(job)

    def serve(self, store: Connections) -> None:
        """Run the jobs in this thread until the block ends. Roll a transaction back that it left open."""
        # Where an event loop was closed within the block, nothing has ended its transaction.
        with suppress(LeftOpen), store.at_work():
            while (job := self._jobs.get()) is not None:
                job()

    def end(self) -> None:
        self.is_open = False
        self._jobs.put(None)


def twin(method: Callable[Concatenate[Queue[T], P], R]) -> Callable[Concatenate[Aio[T], P], Coroutine[Any, Any, R]]:
    """Return the asynchronous twin of a queue's method."""

    @wraps(method)
    async def call(self: Aio[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("on") is not None:
            return await self._joined(partial(method, self._queue, *args), kwargs)
        return await self._call(partial(method, self._queue, *args, **kwargs))

    return call


def takes_on(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Have a method take `on=`, the caller's transaction, in which the queue's method of that name runs."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("on") is None:
            kwargs.pop("on", None)
            return await method(*args, **kwargs)
        aio, *given = args
        return await aio._joined(partial(getattr(aio._queue, method.__name__), *given), kwargs)  # type: ignore

    return call


class Aio(Generic[T]):
    """A queue's methods for asyncio: `page = await Page.xq.aio.take()`.

    Arguments, results and errors are those of `Queue`'s methods. A call that waits occupies no thread. If a take's
    coroutine is cancelled, the task that it may have taken is released. The calls in one turn of the event
    loop share a transaction, and each returns after its commit.
    """

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue
        self._turns: Turns[T] = Turns(queue.parts.waiting, queue.parts.several, queue.put, self._run)
        self._known: Access | None = None
        self._flushing: asyncio.AbstractEventLoop | None = None  # the loop that will run its turn's calls
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself does not keep them alive

    def __repr__(self) -> str:
        return f"<asyncio of {self._queue!r}>"

    # producers and consumers

    @overload
    async def put(self, task: object = ..., *, wait: Span, **options: Unpack[PutOptions]) -> tuple[T, bool]: ...

    @overload
    async def put(self, task: object = ..., *, timeout: Span = ..., **options: Unpack[PutOptions]) -> T: ...

    @takes_on
    async def put(
        self, task: object = MISSING, *, wait: Span = MISSING, timeout: Span = MISSING, **options: Unpack[PutOptions]
    ) -> T | tuple[T, bool]:
        brought = {} if task is MISSING else task
        if not (wait is MISSING is timeout):
            return await self._wait(wait_of_put(self._turns.waiting, brought, wait, timeout, options))
        if not self._access().is_local and self._turns.waiting.machine.single is not None:
            # It may wait for another transaction, and the others in its turn with it.
            return await self._call(partial(self._queue.put, brought, **options))
        put: T = await self._soon(kind("put", options), brought)
        return put

    @takes_on
    async def take(self, timeout: Span = 0, *, tube: str | None = None, **options: Unpack[Times]) -> T | None:
        taken = await self._take(1, timeout, tube, options)
        return taken[0] if taken else None

    @takes_on
    async def take_many(
        self, n: int, timeout: Span = 0, *, tube: str | None = None, **options: Unpack[Times]
    ) -> list[T]:
        return await self._take(count_of(n), timeout, tube, options)

    async def _take(self, n: int, timeout: Span, tube: str | None, options: Mapping[str, Any]) -> list[T]:
        if tube is not None:
            tube = self._queue.parts.tasks.tube(tube)
        seconds = 0 if timeout == 0 and not isinstance(timeout, bool) else self._turns.waiting.seconds(timeout)
        alike = kind("take", options, tube)
        at_once = seconds == 0 or n == 0
        # Where a transaction may be open the call must first raise InTransaction.
        looks = at_once or (self._block() is None and not self._access().is_private)
        found = await self._look(alike, n) if looks else []
        if not at_once and not found:
            wait = self._turns.waiting.taking(tube, seconds, looked=looks)
            found = await self._wait(wait, partial(self._look, alike, n), self._turns.release)
        return [task for task, _ in found]

    def _look(self, alike: CallKind, n: int) -> Awaitable[list[TakenBy[T]]]:
        return self._soon(alike, n, self._turns.release)

    @takes_on
    async def ack(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Unpack[Times]) -> T:
        return await self._finish("ack", key, update, options)

    @takes_on
    async def release(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Unpack[Moves]) -> T:
        return await self._finish("release", key, update, options)

    @takes_on
    async def bury(self, key: object, *, update: Mapping[str, Any] | None = None, on: object = None) -> T:
        return await self._finish("bury", key, update, {})

    @takes_on
    async def touch(
        self,
        key: object,
        increment: float | timedelta | None = None,
        *,
        update: Mapping[str, Any] | None = None,
        on: object = None,
    ) -> T:
        return await self._finish("touch", key, update, touched_by(increment, update))

    async def _finish(self, event: str, key: object, update: Mapping[str, Any] | None, options: Mapping[str, Any]) -> T:
        alike, named = kind(event, options), self._turns.waiting.named
        if named.working:
            named.check_apart(event, named.tasks.identify(key)[0])
        try:
            moved: T = await self._soon(alike, (key, update))
            return moved
        except Exception as error:
            if self._block() is not None or not named.is_locked(error):
                raise
        taken = Taken(*named.tasks.identify(key))
        locked: Locked[T] = Locked(named, event, taken, partial(self._turns.one, alike, (key, update)))
        while (found := await self._call(locked.moved)) is None:
            await asyncio.sleep(LOCKED)  # a coroutine that is cancelled does not try again
        return found

    async def wait(self, key: object, timeout: Span = None) -> tuple[T, bool]:
        waiting = self._turns.waiting
        parts, _ = waiting.tasks.identify(key)
        return await self._wait(waiting.waiting_for(parts, waiting.seconds(timeout)))

    # Queue[T], as pyright would not know what a bare Queue's method returns.
    put_many = twin(Queue[T].put_many)
    ack_many = twin(Queue[T].ack_many)
    release_many = twin(Queue[T].release_many)
    bury_many = twin(Queue[T].bury_many)
    touch_many = twin(Queue[T].touch_many)
    transaction = twin(Queue[T].transaction)

    def group(
        self, name: str, *, then: object = None, failed: Literal["run"] | None = None, on: object = None
    ) -> AioGroup[T]:
        """Return a group: `async with Page.xq.aio.group("import 7", then={...}) as group: await group.put(...)`.

        As `Queue.group`; its methods are coroutines, also `done()`, `failed()` and `paused()`. The block is one of
        `atomic`; with `on` it is part of the caller's transaction.
        """
        return AioGroup(self, self._queue.group(name, then=then, failed=failed), on)

    groups = twin(Queue[T].groups)

    # operators

    dig = twin(Queue[T].dig)
    kick = dig
    signal = twin(Queue[T].signal)

    # These two in full, as any name may be an option: a type checker takes `self` for one.
    @takes_on
    async def call(self, event: str, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T:
        return await self._call(partial(self._queue.call, event, key, update=update, **options))

    async def every(
        self, spec: object, task: object, *, name: str | None = None, tz: str | tzinfo | None = None, **options: Any
    ) -> str:
        return await self._call(partial(self._queue.every, spec, task, name=name, tz=tz, **options))

    async def act(
        self,
        event: str,
        filter: str,
        *,
        actor: str | None = None,
        reason: str | None = None,
        chunk: int = CHUNK,
        **options: Any,
    ) -> AsyncIterator[Operation[T]]:
        """Run an operation, and yield it after each chunk: `async for operation in Page.xq.aio.act("dig", ""): ...`."""
        act = partial(self._queue.act, event, filter, actor=actor, reason=reason, chunk=chunk, **options)
        chunks = iter(await self._call(act))
        while operation := await self._call(partial(next, chunks, None)):
            yield operation

    async def run(
        self,
        *,
        until_empty: bool = False,
        workers: int | None = None,
        tubes: Sequence[str] | None = None,
        max_tasks: int | None = None,
    ) -> None:
        """Run the workers: each `async def` in this event loop, and other functions in threads.

        A cancellation ends them as the first signal ends `Queue.run`: their functions finish, and then CancelledError
        is raised. A second one releases the tasks. Signals are left to the program. Raises as `Queue.start`.

        A web process outlives a change to the definition in the database. So without `until_empty` and `max_tasks`
        NotInstalled ends the workers with an ERROR, and not this call: it looks every 5 seconds, and runs them again
        once the queue is installed as this process defines it. `health` returns "error" meanwhile.
        """
        from xq.workers.program import assignments_of, start_assignments

        loop = asyncio.get_running_loop()

        def start() -> Running:
            return start_assignments(assignments_of(self._queue, workers, tubes), until_empty, max_tasks, loop)

        while True:
            running = await self._call(start, lambda running: running.stop())
            try:
                return await running.joined()
            except NotInstalled:
                if until_empty or max_tasks is not None:
                    raise
            log = self._turns.waiting.named.log
            log.info("aio.run() waits until the queue is installed as this process defines it")
            await asyncio.sleep(REVIEW)
            while (await self.health()).state == "error":
                await asyncio.sleep(REVIEW)
            log.info("the workers go on")

    plow = twin(Queue[T].plow)
    snatch = twin(Queue[T].snatch)
    restart = twin(Queue[T].restart)
    reprioritise = twin(Queue[T].reprioritise)
    reprioritise_many = twin(Queue[T].reprioritise_many)
    switch = twin(Queue[T].switch)
    pauses = twin(Queue[T].pauses)
    set_limit = twin(Queue[T].set_limit)
    limits = twin(Queue[T].limits)
    kill = twin(Queue[T].kill)
    cancel = twin(Queue[T].cancel)
    kill_many = twin(Queue[T].kill_many)
    release_all = twin(Queue[T].release_all)
    truncate = twin(Queue[T].truncate)
    sweep = twin(Queue[T].sweep)
    pause = twin(Queue[T].pause)
    resume = twin(Queue[T].resume)
    paused = twin(Queue[T].paused)
    unschedule = twin(Queue[T].unschedule)
    run_schedule = twin(Queue[T].run_schedule)
    pause_schedule = twin(Queue[T].pause_schedule)
    resume_schedule = twin(Queue[T].resume_schedule)
    schedules = twin(Queue[T].schedules)

    # looking, installing

    peek = twin(Queue[T].peek)
    by_state = twin(Queue[T].by_state)
    count = twin(Queue[T].count)
    taken = twin(Queue[T].taken)
    waiting = twin(Queue[T].waiting)
    sessions = twin(Queue[T].sessions)
    processes = twin(Queue[T].processes)
    snapshot = twin(Queue[T].snapshot)
    stats = twin(Queue[T].stats)
    queue_stats = stats
    why = twin(Queue[T].why)
    doctor = twin(Queue[T].doctor)

    async def health(self, *, max_age: float | timedelta = 600, max_buried: int = 0) -> Health:
        """Return whether the queue does its tasks in time, as `Queue.health` does."""
        try:
            return await self._call(partial(self._queue.health, max_age=max_age, max_buried=max_buried))
        except Exception as error:  # `_call` connects before the look
            return self._queue.parts.doctor.health_of(error)

    find = twin(Queue[T].find)
    failures = twin(Queue[T].failures)
    timeline = twin(Queue[T].timeline)
    reset = twin(Queue[T].reset)
    history = twin(Queue[T].history)
    current_session = twin(Queue[T].current_session)
    configure = twin(Queue[T].configure)
    sql = twin(Queue[T].sql)
    install = twin(Queue[T].install)
    ddl = twin(Queue[T].ddl)
    check = twin(Queue[T].check)
    recount = twin(Queue[T].recount)
    uninstall = twin(Queue[T].uninstall)

    @asynccontextmanager
    async def session(self, uuid: object = None) -> AsyncIterator[Session]:
        """Enter a new session, or the open session with this uuid: `async with Page.xq.aio.session() as session:`.

        The block's calls take by it. Raises UnknownSession.
        """
        session = await self._call(partial(self._queue.session, uuid))
        await self._call(session.hold, lambda held: session.leave())
        session.note(joined=False)
        try:
            yield session
        finally:
            try:
                await self._call(session.__exit__, must=True)
            finally:
                session.forget()  # the call has done so for a copy of the coroutine's context

    @asynccontextmanager
    async def atomic(self) -> AsyncIterator[None]:
        """Open a transaction for the block: `async with Page.xq.aio.atomic():`. Within one, a savepoint.

        The block's calls run on one connection, which no other coroutine uses. `transaction(work)` runs your function
        there. Tasks that the block starts make their calls in it as well. Raises ConfigurationError where
        no other connection reaches the database.
        """
        outer = self._block()
        block = outer or await self._new_block()
        try:
            begin = partial(_begin, self._queue.parts.store)
            transaction = await self._call(begin, _roll_back, run=block.run)
            _blocks.set((*_blocks.get(), block))
            try:
                yield
            except BaseException as error:
                await self._call(
                    partial(transaction.__exit__, type(error), error, error.__traceback__), run=block.run, must=True
                )
                raise
            else:
                await self._call(partial(transaction.__exit__, None, None, None), run=block.run, must=True)
            finally:
                _blocks.set(_blocks.get()[:-1])
        finally:
            if not outer:
                block.end()

    async def _new_block(self) -> Block:
        access, store = self._access(), self._queue.parts.store
        if access.is_private:
            raise ConfigurationError(
                f"aio.atomic() needs a connection of its own, and coroutines share the one of {store.name}: "
                "use aio.transaction(work)"
            )
        # A test has opened a transaction already, as Django's test case: the block is a savepoint in it.
        if (rule := store.for_coroutine(lambda: None)) is not None:
            rule.close()
            if await self._call(store.in_transaction):
                return Block(access.database, self._run, self._run)
        block = Block(access.database, None, self._run)
        access.database.blocks.submit(store, partial(block.serve, store))
        return block

    # how calls run

    def _access(self) -> Access:
        store, known = self._queue.parts.store, self._known
        database = store.database
        if known is None or known.database is not database:
            here = self._turns.waiting.executor.database
            known = self._known = Access(here, store.is_private, here.sql.is_local)
        return known

    def _block(self) -> Block | None:
        """Return this coroutine's innermost open transaction on the database."""
        if not (blocks := _blocks.get()):
            return None
        database = self._queue.parts.store.database
        return next((block for block in reversed(blocks) if block.is_open and block.database is database), None)

    def _run(self, job: Job) -> None:
        """Run a job off the event loop, if another thread reaches the database."""
        access, store = self._access(), self._queue.parts.store
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # it has ended, and the coroutine with it
            loop = None
        if loop and (coroutine := store.for_coroutine(job)):
            task = loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif not access.is_private:
            access.database.callers.submit(store, job)
        elif loop:
            loop.call_soon(job)
        else:
            job()

    async def _call(
        self,
        work: Callable[[], R],
        undo: Callable[[R], object] | None = None,
        *,
        run: Runner | None = None,
        dropped: Callable[[], object] | None = None,
        must: bool = False,
    ) -> R:
        """Run work off the event loop. If the caller is cancelled, `undo` the result, or call `dropped`.

        `must`: run it also if the caller is cancelled before.
        """
        if run is None:
            block = self._block()
            run = self._run if block is None else block.run
        call: Call[R] = Call(undo, dropped)
        run(partial(call.perform, partial(self._connected, work), must))
        return await call.wait(run)

    async def _joined(self, work: Callable[..., R], options: Mapping[str, Any]) -> R:
        """Run work as part of the caller's transaction `on`, whose connection awaits in this event loop."""
        given, store = options["on"], self._queue.parts.store
        if not hasattr(given, "run_sync"):
            raise BadType(
                f"aio takes on=, an AsyncSession or an AsyncConnection: a call that is part of {shown(given)} is "
                f"that of the queue itself, as {store.name}'s put(task, on=...) without aio"
            )
        executor = self._queue.parts.inserts.executor  # which is bound for puts, even beside a newer definition
        if executor.bound is None:
            with suppress(NotInstalled):  # it may be installed by the same transaction
                await self._call(executor.open)

        def run(on: object) -> R:
            return work(**{**options, "on": on})

        done: R = await given.run_sync(run)
        return done

    def _connected(self, work: Callable[[], R]) -> R:
        store = self._queue.parts.store
        if store.in_use is None and store.has_threads:
            store.connect()
        return work()

    async def _soon(self, alike: CallKind, item: object, undo: Callable[[Any], object] | None = None) -> Any:
        """Run a short call with the others in this turn of the event loop."""
        if alike.options:
            try:
                hash(alike)
            except TypeError:  # for the call itself to refuse
                return await self._call(partial(self._turns.one, alike, item), undo)
        if self._block() is not None or not self._queue.parts.store.may_share:
            return await self._call(partial(self._turns.one, alike, item), undo)
        call: Call[Any] = Call(undo, None, alike, item)
        self._turns.add(call)
        if self._flushing is not call.loop:
            self._flushing = call.loop
            call.loop.call_soon(self._flush)
        return await call.wait(self._run)

    def _flush(self) -> None:
        self._flushing = None
        self._run(self._turns.run)

    async def _wait(
        self,
        wait: Wait[R],
        look: Callable[[], Awaitable[object]] | None = None,
        undo: Callable[[Any], None] = lambda result: None,
    ) -> R:
        """Run a call that waits. It sleeps on the event loop."""

        def undone(end: tuple[bool, Any]) -> None:
            has_ended, result = end
            if has_ended:
                undo(result)
            else:
                wait.close()

        def dropped() -> None:
            wait.close()
            if found:
                undo(found)

        answer: object = None
        found: Any = None  # by the last look, and not yet sent to the generator
        failed: Exception | None = None
        while True:
            try:
                has_ended, request = await self._call(partial(resume, wait, answer, failed), undone, dropped=dropped)
            except Exception:
                if found:
                    self._run(partial(undo, found))
                raise
            if has_ended:
                result: R = request
                return result
            try:
                answer, found, failed = None, None, None
                if request is LOOK_NOW and look is not None:
                    answer = found = await look()
                else:
                    answer = await sleep(*request)
            except Exception as error:
                failed = error
            except BaseException:
                self._run(wait.close)
                raise


def of_group(method: Callable[Concatenate[Group[T], P], R]) -> Callable[Concatenate[AioGroup[T], P], Awaitable[R]]:
    """Return the asynchronous twin of a group's method."""

    @wraps(method)
    async def call(self: AioGroup[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._call(partial(method, self._group, *args, **kwargs))

    return call


class AioGroup(Generic[T]):
    """A group, as `Page.xq.aio.group` returns it: its methods are those of `Group`, as coroutines."""

    name: str

    def __init__(self, aio: Aio[T], group: Group[T], on: object = None) -> None:
        self.name = group.name
        self._aio, self._group, self._on = aio, group, on
        self._block = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<asyncio of {self._group!r}>"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as block:
            if self._on is None:
                await block.enter_async_context(self._aio.atomic())
            await self._call(partial(self._group.begin, opens=False))
            self._block = block.pop_all()
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        async with self._block as block:
            try:
                await self._call(partial(self._group.end, kind, error, traceback))
            finally:
                self._on = None  # calls after the block are on their own
                if error is not None:
                    await block.pop_all().__aexit__(kind, error, traceback)

    async def _call(self, work: Callable[[], R]) -> R:
        if self._on is None:
            return await self._aio._call(work)
        return await self._aio._joined(partial(self._joined, work), {"on": self._on})

    def _joined(self, work: Callable[[], R], on: object) -> R:
        with self._aio._queue.parts.store.joining(on):
            return work()

    put, put_many = of_group(Group[T].put), of_group(Group[T].put_many)
    stats, dig, kill = of_group(Group[T].stats), of_group(Group[T].dig), of_group(Group[T].kill)
    graph, pause, resume = of_group(Group[T].graph), of_group(Group[T].pause), of_group(Group[T].resume)

    async def set_then(self, then: object) -> None:
        """Set another `then`, as `group.then = ...`."""
        await self._call(partial(setattr, self._group, "then", then))

    async def failed(self) -> int:
        return await self._call(lambda: self._group.failed)

    async def done(self) -> bool:
        return await self._call(lambda: self._group.done)

    async def paused(self) -> bool:
        return await self._call(lambda: self._group.paused)

    async def wait(self, timeout: Span = None) -> bool:
        if self._on is not None:  # in whose transaction no call may wait
            return await self._call(partial(self._group.wait, timeout))
        return await self._aio._wait(self._group.waiting(timeout))


def _begin(store: Connections) -> AbstractContextManager[object]:
    transaction = store.atomic()
    transaction.__enter__()
    return transaction


def _roll_back(transaction: AbstractContextManager[object]) -> None:
    error = asyncio.CancelledError()
    transaction.__exit__(type(error), error, None)


for _name, _method in vars(Aio).items():
    if _method.__doc__ is None and (_twin := getattr(Queue, _name, None)) is not None and not _name.startswith("_"):
        _method.__doc__ = _twin.__doc__
