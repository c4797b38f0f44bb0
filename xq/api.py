"""The queue: what `upgrade` returns, and `Model.xq`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import date, timedelta, tzinfo
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Unpack, overload

from xq.core.acting import By, block, log_act
from xq.core.clock import Clock
from xq.core.connections import Store
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import R, S, T
from xq.core.machine import ABSENT, TAKEN, Machine
from xq.core.options import Moves, PutManyOptions, PutOptions, Span, Times, count_of, seconds_of, touched_by
from xq.core.tokens import checked
from xq.database.sessions import Session
from xq.engine.binding import Definition
from xq.engine.limits import Limit
from xq.engine.observers import Callback
from xq.engine.several import Update
from xq.engine.stats import Stats
from xq.operators.methods import Operators
from xq.parts import Parts
from xq.runtime.group import Group
from xq.runtime.schedules import Schedule
from xq.runtime.sleep import Wait, run_wait
from xq.runtime.waiting import Waiting

if TYPE_CHECKING:  # most programs do without them: a property or a method imports each
    from decimal import Decimal

    from xq.aio import Aio
    from xq.pipeline.pipeline import Pipeline
    from xq.workers.attempt import Batch
    from xq.workers.options import ForEach, WorkerOptions
    from xq.workers.program import Running
    from xq.workers.worker import Worker

P = ParamSpec("P")


class _Missing:
    def __repr__(self) -> str:
        return "<not given>"


MISSING: Any = _Missing()
LONGEST_EVENT = 64  # characters


def takes_on(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method take `on=`, the caller's transaction of which its changes are part."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if (on := kwargs.pop("on", None)) is None:
            return method(*args, **kwargs)
        with args[0].parts.store.joining(on):  # type: ignore[attr-defined]
            return method(*args, **kwargs)

    return call


class Queue(Operators[T]):
    """A model that is a queue: what `upgrade` returns, and `Model.xq`.

    A method's argument `key` is a key (a tuple for a composite one), a mapping with it, or a task that a method
    returned. A method that changes a task returns the task as it is after the call; a deleted one as it was
    before (on MariaDB and MySQL as its taker has it, who names it by the task). Each call is one transaction, or part
    of the application's. The options delay, ttl and ttr are seconds, or a timedelta. Where `delay` is an option, so is
    `at`: a datetime with a time zone, until which the task waits. A method that changes tasks takes `on=`, a caller's
    transaction of which the change is part: a Session or a Connection of SQLAlchemy, or a connection of the database's
    driver.

    A call raises FeatureOff, BadValue, BadType, NotFound, WrongState and NotOwner, in this order, and NotInstalled.
    Then it has changed nothing. What the database itself rejects is raised as the ORM's error.

    `model` is the upgraded model, and `aio` has the same methods for asyncio. `pipeline` is for other processes (Spark,
    bulk puts, archives), `parts` for ORM adapters and tubes.
    """

    def __init__(
        self,
        store: Store[T],
        definition: Definition,
        clock: Clock | None = None,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.parts: Parts[T] = Parts(store, definition, clock, woken)
        self.model = store.model
        self._handlers: dict[str | None, Worker[T]] = {}

    @property
    def name(self) -> str:
        """The name of the model in the application."""
        return self.parts.store.name

    @property
    def machine(self) -> Machine:
        """The transition table: `print(Page.xq.machine)`."""
        return self.parts.definition.machine

    @property
    def roles(self) -> Mapping[str, str]:
        """The names of the mapped fields, by role: `{"status": "status", "tube": "mailbox"}`."""
        return {role: field.name for role, field in self.parts.tasks.table.roles.items()}

    @property
    def statuses(self) -> Mapping[str, str | int]:
        """The values of the status field, by state: `{"R": "new", "T": "packing", "B": "failed"}`."""
        return self.parts.executor.definition.words

    @property
    def clock(self) -> Clock | None:
        """The clock of a test; None if the queue uses the clock of the database. A test may set it."""
        return self.parts.executor.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        self.parts.executor.clock = self.parts.inserts.executor.clock = clock

    @cached_property
    def aio(self) -> Aio[T]:
        """The methods for asyncio."""
        from xq.aio import Aio

        return Aio(self)

    @property
    def pipeline(self) -> Pipeline:
        """What other processes use: Spark, bulk puts and archives."""
        return self.parts.pipeline

    def __repr__(self) -> str:
        return f"<xq queue {self.parts.store.name}: {' '.join(self.machine.states)}>"

    # workers

    @overload
    def worker(
        self, function: Callable[..., Any], *, session: Any = ..., **options: Unpack[WorkerOptions]
    ) -> Worker[T]: ...

    @overload
    def worker(self, **options: Unpack[WorkerOptions]) -> Callable[[Callable[..., Any]], Worker[T]]: ...

    @overload
    def worker(
        self, *, session: Callable[..., S], **options: Unpack[ForEach]
    ) -> Callable[[Callable[[T, S], object]], Worker[T]]: ...

    @overload
    def worker(
        self, *, session: Callable[..., S], batch: int, **options: Unpack[ForEach]
    ) -> Callable[[Callable[[Batch[T], S], object]], Worker[T]]: ...

    def worker(self, function: Any = None, *, session: Any = None, **options: Unpack[WorkerOptions]) -> Any:
        """Make a function the queue's worker: `run` calls it with each task, `workers` at a time.

        `@Page.xq.worker(workers=4)`. Options: tube, workers (1), kind ("thread"), max_attempts, backoff, timeout,
        prefetch (1), batch, concurrency, around, session. With `tube` it gets this tube's tasks (role tube); a function
        without `tube` gets all other tubes' tasks. A second function for the same tasks is a ConfigurationError.

        `kind` is "thread", "process", or "asyncio" for an `async def`, which chooses it by itself. When the function
        returns, the task is acked; the function may also finish it itself. When it raises, or the database rejects the
        ack, the attempt has failed: the task is released, and tried again after a pause.

        `backoff` gives the pause in seconds: None (1 s, doubled by each attempt where the role attempts is mapped, at
        most an hour, up to a tenth more or less), a number for each time, a list of pauses, or a function of the task
        and the exception. The function may raise `xq.Retry(delay=)`, `xq.Next(tube)`, `xq.Bury(why)` and `xq.Discard`.
        After `max_attempts` takes (role attempts, feature buried) the task is buried. The role error, if mapped, then
        holds `Type: message` and the traceback. A task is also buried at its next take if its workers died that often.

        While the function runs, a heartbeat touches its task at each third of its ttr, and `xq.current()` returns the
        task's lease. An `async def` is cancelled when the lease is lost. A function that runs for longer than
        `timeout` seconds has failed: an `async def` is cancelled, and a process ends and is replaced. A thread cannot
        be stopped, so `timeout` is a ConfigurationError there.

        With `prefetch` a thread takes up to that many tasks at once, while it finishes them within 0.1 s, and acks
        together all ending within 5 ms. It gives back the tasks behind a slow function. With `batch`
        the function gets an `xq.Batch`, a list of up to that many tasks. When it returns, all are acked but those named
        by `batch.fail(task, error)`. When it raises, all have failed.

        With `concurrency=xq.Concurrency("smtp", 10)` all workers that use this name together have at most ten tasks
        taken at a time. The other tasks stay ready.

        `around=lambda task: app.app_context()` gives a context manager, or an asynchronous one for an `async def`, in
        which each attempt runs, with its session and that session's commit. An error in it fails the attempt.

        With `session`, a sessionmaker of SQLAlchemy (for an `async def` an async_sessionmaker), or a scoped_session,
        whose scope has it for the attempt, the function gets the task and a session that has it. What the function does
        there, the ack and the commit are one transaction, which xq ends: the function may open savepoints.
        `xq.after_commit(call)` comes after the commit.
        """
        from xq.workers.options import Options
        from xq.workers.program import add_worker

        return add_worker(self, function, Options(session=session, **options))

    @property
    def handlers(self) -> dict[str | None, Worker[T]]:
        """The workers by tube; by None the one for all other tubes, or for a queue without tubes.

        To give a queue another function, as in a test, remove the first: `Page.xq.handlers.clear()`.
        """
        return self._handlers

    def run(
        self,
        *,
        until_empty: bool = False,
        workers: int | None = None,
        tubes: Sequence[str] | None = None,
        max_tasks: int | None = None,
    ) -> None:
        """Run the workers until SIGTERM or SIGINT. They then finish their tasks; a second signal releases these.

        With `until_empty`, fire the due schedules, then run until no task is ready; with `max_tasks`, until that many
        are taken: by each process, if `kind="process"` is among the workers. `workers` replaces the number given to
        `worker`. With `tubes`, take from these tubes only; `workers` are for each. Raises InTransaction within
        a transaction, and ConfigurationError if several threads would have to share one connection.
        """
        from xq.workers.program import assignments_of, run_assignments

        run_assignments(assignments_of(self, workers, tubes), until_empty, max_tasks)

    def start(self, *, workers: int | None = None, tubes: Sequence[str] | None = None) -> Running:
        """Run the workers in threads beside the program's own, for example in a web process.

        Returns at once. The result's `stop()` ends them as the first signal ends `run`, and `join()` waits for that.
        When the process ends without it, their tasks are released. Raises as `run`, and ConfigurationError for workers
        with kind="process".
        """
        from xq.workers.program import assignments_of, start_assignments

        return start_assignments(assignments_of(self, workers, tubes))

    # producers

    @overload
    def put(self, task: object = ..., *, wait: Span, **options: Unpack[PutOptions]) -> tuple[T, bool]: ...

    @overload
    def put(self, task: object = ..., *, timeout: Span = ..., **options: Unpack[PutOptions]) -> T: ...

    @takes_on
    def put(
        self, task: object = MISSING, *, wait: Span = MISSING, timeout: Span = MISSING, **options: Unpack[PutOptions]
    ) -> T | tuple[T, bool]:
        """Put a task: into R, or into W with `delay`.

        `task` maps field names to values, or is an instance, or a sequence of values in the fields' order.
        Options: delay, ttl, ttr (seconds), and on_conflict with the feature unique. Raises Duplicate, Full.
        With the feature after, `after` is a parent (a task or its key) or a list of these: the task is in W until all
        have ended well, and its delay counts from then. A parent that is buried, killed, expired or deleted has failed:
        `on_failure="hold"` keeps the task waiting, "kill" kills it, and "run" lets it run. Raises NotFound for an
        unknown parent.

        With `wait` (seconds; None: without limit), wait for the task's end and return what `wait` does. With
        `timeout` and the feature limit, wait up to that many seconds until a full queue has room.
        """
        brought = {} if task is MISSING else task
        if wait is MISSING is timeout:
            return self.parts.inserts.put(brought, options)
        return run_wait(wait_of_put(self.parts.waiting, brought, wait, timeout, options))

    @takes_on
    def put_many(self, tasks: Iterable[object], **options: Unpack[PutManyOptions]) -> list[T]:
        """Put all of the tasks in one transaction, or none. Returns them in the same order.

        With the feature after, `chain=True` has each wait for the one before, and the first for `after`.
        """
        if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):
            raise BadType(f"put_many takes tasks, not {type(tasks).__name__}: {shown(tasks)}")
        return self.parts.inserts.put_many(list(tasks), options)

    def group(
        self, name: str, *, then: object = None, failed: Literal["run"] | None = None, on: object = None
    ) -> Group[T]:
        """Return a group of tasks: `with Page.xq.group("import 7", then={"url": "report:7"}) as group: group.put(...)`.

        The last end of its members puts `then`, a task of this queue as in `put`, or `(Mail, {...})` of another queue
        of the database, without options: it has no delay. Or `then=(order, "packed")` gives a task the signal "packed",
        with what `stats` of the group returns. A put is skipped if a task in a state of `unique` has its value, and
        waits for the end of a taken one; a signal is skipped if its task has ended. With failed="run" a buried member
        has ended, too. Without a block the result is a handle to a group that was begun, and nothing is read. With `on`
        the block, or each call of a handle, is part of a caller's transaction; calls after the block are on their own.
        Raises FeatureOff, BadType, BadValue, and Duplicate if a group of this name is open.
        """
        if not self.machine.settings.groups:
            self.parts.tasks.options.refuse_event("group")
        return Group(self.parts, name, then, failed, on)

    def groups(self) -> list[str]:
        """Return the names of the open groups, in order. Raises FeatureOff."""
        if not self.machine.settings.groups:
            self.parts.tasks.options.refuse_event("groups")
        with self.parts.store.bookkeeping():
            return [name for (name,) in self.parts.groups.run("names_of_open_groups")]

    # consumers

    @takes_on
    def take(self, timeout: Span = 0, *, tube: str | None = None, **options: Unpack[Times]) -> T | None:
        """Take the oldest ready task with the lowest priority: to T. Returns None when there is none.

        If the field of the priority is mapped with a minus, the highest comes first. Waits up to `timeout` seconds for
        a task (None: without limit). With `tube`, only that tube's tasks. Option:
        ttr (seconds).
        """
        if tube is not None:
            tube = self.parts.tasks.tube(tube)
        if timeout == 0 and timeout is not False:
            taken = self.parts.takes.oldest("take", 1, options, tube=tube, reaps=True)
        else:
            taken = self.parts.waiting.take(1, timeout, tube, options)
        return taken[0] if taken else None

    @takes_on
    def take_many(self, n: int, timeout: Span = 0, *, tube: str | None = None, **options: Unpack[Times]) -> list[T]:
        """Take up to `n` ready tasks, in order. Waits for the first one as `take` does, not for the others."""
        most = count_of(n)
        if tube is not None:
            tube = self.parts.tasks.tube(tube)
        return self.parts.waiting.take(most, timeout, tube, options)

    def wait(self, key: object, timeout: Span = None) -> tuple[T, bool]:
        """Wait for the end of a task, up to `timeout` seconds (None: without limit).

        Returns the task as it is then, and whether it was processed: True if it was acked; False if it was buried,
        killed or dropped, or the time has passed. If the row is deleted, the task is the last version that this process
        saw. Raises NotFound if the row was deleted before the call, or by a transaction that had locked it;
        InTransaction; ConfigurationError if another thread waits on the same connection (thread_safe=False).
        """
        seconds = self.parts.waiting.seconds(timeout)
        parts, _ = self.parts.tasks.identify(key)
        return run_wait(self.parts.waiting.waiting_for(parts, seconds))

    @takes_on
    def ack(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Unpack[Times]) -> T:
        """Finish a taken task: delete it, or keep it as D (keep) or Z (zombie, for `delay` seconds)."""
        return self.parts.named.one("ack", key, options, update)

    @takes_on
    def release(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Unpack[Moves]) -> T:
        """Release a taken task: to R, or to W with `delay`. Options: delay, ttl, ttr, tube, attempts.

        `tube` moves it to another tube. `attempts` sets the number of its takes so far, and empties the role error.
        """
        return self.parts.named.one("release", key, options, update)

    @takes_on
    def bury(self, key: object, *, update: Mapping[str, Any] | None = None, on: object = None) -> T:
        """Bury a taken task until it is dug: to B. With buried="any", a task in any state, of any owner.

        A task that is in B already stays as it is, and no transition is counted, unless there is an `update`.
        """
        return self.parts.named.one("bury", key, {}, update)

    @takes_on
    def touch(
        self,
        key: object,
        increment: float | timedelta | None = None,
        *,
        update: Mapping[str, Any] | None = None,
        on: object = None,
    ) -> T:
        """Extend a task's time in its state, and its deadline, by `increment` seconds, and write `update`.

        With `update` alone the ttr begins anew, unless more is left of it. A queue without a ttr writes the fields.
        """
        return self.parts.named.one("touch", key, touched_by(increment, update), update)

    @takes_on
    def touch_many(
        self,
        keys: Iterable[object],
        increment: float | timedelta | None = None,
        *,
        update: Update = None,
        on: object = None,
    ) -> list[T]:
        """Extend all of the tasks, or none, as `touch`. `update` is one for all, or a list with one for each."""
        return self.parts.several.many("touch", keys, touched_by(increment, update), update)

    @takes_on
    def ack_many(self, keys: Iterable[object], *, update: Update = None, **options: Unpack[Times]) -> list[T]:
        """Finish all of the tasks, or none, as `ack`. `update` is one for all, or a list with one for each."""
        return self.parts.several.many("ack", keys, options, update)

    @takes_on
    def release_many(self, keys: Iterable[object], *, update: Update = None, **options: Unpack[Moves]) -> list[T]:
        """Release all of the tasks, or none, as `release`. `update` is one for all, or a list with one for each."""
        return self.parts.several.many("release", keys, options, update)

    @takes_on
    def bury_many(
        self,
        keys: Iterable[object],
        *,
        update: Update = None,
        error: str | Sequence[str | None] | None = None,
        on: object = None,
    ) -> list[T]:
        """Bury all of the tasks, or none, as `bury`. `update` is one for all, or a list with one for each.

        `error` is the text for the role error: one for all, or a list with one for each.
        """
        return self.parts.several.many("bury", keys, {}, update, error)

    def transaction(self, work: Callable[[], R]) -> R:
        """Run `work` in one transaction of this thread's connection, and return its result.

        It covers the application's writes and the queue's. After a deadlock `work` is called again, so it should
        do nothing but write to the database. Within a transaction of the application it is part of that, and not called
        again.
        """
        return self.parts.executor.transaction(work, own=False)

    # operators

    @overload
    def dig(
        self, key: object, *, again: str | None = ..., update: Mapping[str, Any] | None = None, **options: Unpack[Moves]
    ) -> T: ...

    @overload
    def dig(self, *, n: int | None, update: Mapping[str, Any] | None = None, **options: Unpack[Moves]) -> list[T]: ...

    @takes_on
    def dig(
        self,
        key: object = MISSING,
        *,
        n: int | None = MISSING,
        again: str | None = None,
        update: Mapping[str, Any] | None = None,
        **options: Unpack[Moves],
    ) -> T | list[T]:
        """Dig a buried task: to R, or to W with `delay`. With n=, dig the n oldest (None: all) and return a list.

        With n= it passes over rows that other transactions have locked, as a take does. With `fresh` its attempts begin
        at 0, and the role error is emptied. `again` is a step of the worker's function: it and what is recorded after
        it, but no signals, are forgotten, and done again.
        """
        if (key is MISSING) == (n is MISSING):
            raise BadType("dig takes a key, or n= (a number of tasks, None for all)")
        if again is not None:
            if not any("again" in feature.options for feature in self.machine.features):
                self.parts.tasks.options.refuse_option("dig", "again")
            if key is MISSING:
                raise BadType("dig takes again= with a key")
            dug: T = self.parts.brought_by("signal").again(key, again, update, options)
            return dug
        if n is MISSING:
            return self.parts.named.one("dig", key, options, update)
        return self.parts.takes.oldest("dig", None if n is None else count_of(n), options, update)

    kick = dig  # its older name; a number is a key here too

    @takes_on
    def plow(
        self, n: int | None = None, *, update: Mapping[str, Any] | None = None, **options: Unpack[Moves]
    ) -> list[T]:
        """Dig the `n` oldest buried tasks (None: all) whose rows are not locked. Options: as `dig`."""
        return self.parts.takes.oldest("dig", None if n is None else count_of(n), options, update)

    @takes_on
    def signal(self, key: object, name: str, value: object = None, *, on: object = None) -> bool:
        """Give a task a signal, which `xq.wait_for` in its worker's function returns. Return whether it is the first.

        The first of a name counts, and after a timeout none. It is kept for a task that does not wait yet, ready,
        waiting, taken or buried. `value` is what JSON can hold, of at most 8,192 octets, and 32,768 for a task. Raises
        FeatureOff, BadValue, NotFound, and WrongState for a task that has ended.
        """
        return bool(self.parts.brought_by("signal").send(key, name, value))

    @takes_on
    def kill(self, key: object, *, on: object = None) -> T:
        """Delete a task in any state, of any owner."""
        return self.parts.named.one("kill", key, {})

    @takes_on
    def kill_many(self, keys: Iterable[object], *, on: object = None) -> list[T]:
        """Delete all of the tasks, or none."""
        return self.parts.several.many("kill", keys, {}, None)

    @takes_on
    def cancel(self, key: object, to: str | int | None = None, *, on: object = None) -> T:
        """End a task that is ready, waiting or taken, also by another process: delete it, or with `to="B"` bury it.

        The worker that has it learns it within a second: `xq.current().cancelled` is True, and `lost` is set. A
        coroutine is cancelled. Nothing is retried, and a later ack raises. Raises WrongState for a finished task, and
        FeatureOff for `to` without the feature buried.
        """
        letter = None if to is None else self.parts.tasks.wording.letter(to, ("B",))
        if to is not None and letter is None:
            raise BadValue(f"cancel buries a task with to='B', and deletes it without: {shown(to)} is neither")
        if letter is not None and letter not in self.machine.states:
            self.parts.tasks.options.refuse_option("cancel", "to")
        return self.parts.named.cancel(key, letter)

    @takes_on
    def snatch(self, key: object, **options: Unpack[Times]) -> T:
        """Take a task away from its owner: to R, or to W with `delay`."""
        return self.parts.named.one("snatch", key, options)

    @takes_on
    def restart(self, key: object, **options: Unpack[Moves]) -> T:
        """Put a waiting or finished task back: to R, or to W with `delay`. `fresh` is as in `dig`."""
        return self.parts.named.one("restart", key, options)

    @takes_on
    def reprioritise(self, key: object, priority: float | Decimal, *, on: object = None) -> T:
        """Give a ready or waiting task another priority. Its times go on. Needs the feature priority."""
        return self.parts.named.one("reprioritise", key, {"priority": priority})

    @takes_on
    def reprioritise_many(self, keys: Iterable[object], priority: float | Decimal, *, on: object = None) -> list[T]:
        """Give all of the tasks another priority, or none."""
        return self.parts.several.many("reprioritise", keys, {"priority": priority})

    @takes_on
    def switch(self, key: object, to: str | int, **options: Unpack[Times]) -> T:
        """Move a task that is not taken to another state of this queue: R, W (with delay), B, D or Z.

        The state is named as with `by_state`.
        """
        targets = tuple(dict.fromkeys(row.target for row in self.machine.rows if row.named))
        letter = self.parts.tasks.wording.letter(to, targets)
        if letter is None:
            known = self.parts.tasks.wording.states(targets)
            raise BadValue(f"switch moves tasks of {self.parts.store.name} to one of {known}, not to {shown(to)}")
        return self.parts.named.one("switch", key, options, to=letter)

    @takes_on
    def call(self, event: str, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Run an event of a feature of your own: `Page.xq.call("retry", page)`."""
        if not isinstance(event, str):
            raise BadType(f"an event is named by text, not by {shown(event)}")
        if event in (
            "cancel",
            "reprioritise",
            *(row.event for row in self.machine.rows if row.named or row.when or row.source == ABSENT),
        ):
            raise BadValue(f"{event} is not run by a key alone: use the method {event}()")
        return self.parts.named.one(event, key, options, update)

    @takes_on
    def release_all(self, *, on: object = None) -> int:
        """Release all taken tasks, of any owner. Returns their number."""
        return self.parts.several.all("release", [TAKEN])

    @takes_on
    def truncate(self, event: str = "kill", *, on: object = None) -> int:
        """Delete all tasks of the queue, counted as the event `event`. Returns their number. Open groups go, too."""
        if not isinstance(event, str):
            raise BadType(f"an event is named by text, not by {shown(event)}")
        if not event.isidentifier() or len(event) > LONGEST_EVENT:
            raise BadValue(f"an event has a name like a method, of up to {LONGEST_EVENT} letters, not {shown(event)}")
        all_of_them = partial(self.parts.several.all, "kill", self.machine.states, event)
        if not self.machine.settings.groups:
            return all_of_them()

        def all_with_groups() -> int:
            self.parts.groups.forget("drop_groups")
            return all_of_them()

        return self.parts.executor.transaction(all_with_groups)

    # pauses

    def pause(self, tube: str | None = None, *, actor: str | None = None, reason: str | None = None) -> None:
        """Stop all takes from the queue, or from one tube, until `resume`.

        Other processes see it within a second. Their takes then find nothing, or go on waiting. A take without `tube`
        skips a paused tube's tasks. All other calls, the timers and the schedules go on, and so does the work on
        tasks that are taken. Does nothing if it is paused. `actor` and `reason` stand in `pauses` and in the log.
        """
        self._pause("pause", tube, By.of(actor, reason))

    def resume(self, tube: str | None = None, *, actor: str | None = None, reason: str | None = None) -> None:
        """End a pause, and wake the callers that wait. Tubes that were paused by their names stay paused.

        Does nothing if it is not paused. `actor` and `reason` stand in the log.
        """
        self._pause("resume", tube, By.of(actor, reason))

    def _pause(self, event: str, tube: str | None, by: By) -> None:
        named = self.parts.tasks.tube(tube, f"{event}(tube)")
        self.parts.pauses.change(event, named, by)
        if by:
            log_act(self.parts.store, by, event if named is None else f"{event} {named}")

    def paused(self) -> list[str | None]:
        """Return the pauses: None for the whole queue, then the names of tubes."""
        return self.parts.pauses.listed()

    # limits

    def set_limit(
        self, feature: str, limit: Any, value: Any = None, *, actor: str | None = None, reason: str | None = None
    ) -> None:
        """Change a limit of the feature utube or rate for all processes, at once and until it is set again.

        `set_limit("utube", 10)` is the queue's, for each value without one of its own, and
        `set_limit("rate", "1000/m", value="acme")` that of one utube (or tube). `limit` is as in `features=`, whose
        numbers are the defaults; None removes what was set. A limit below what is taken takes nothing back: tasks of
        that value are taken again once fewer are. `actor` and `reason` stand in `limits` and in the log. Raises
        FeatureOff, and BadValue, also for a value of a rate that has no "by".
        """
        by = By.of(actor, reason)
        named = self.parts.limits.change(feature, limit, value, by)
        if by:
            what = "the default" if limit is None else limit
            log_act(self.parts.store, by, f"limit {feature} to {what}{'' if named is None else f' for {named}'}")

    def limits(self) -> list[Limit]:
        """Return the limits as (feature, value, limit, default, since, actor, reason); `value` None: the queue's.

        `since` is in seconds since 1970, and None where the default of `features=` applies, as the latest `install()`
        has stored it.
        """
        return self.parts.limits.all()

    # schedules

    def every(
        self, spec: object, task: object, *, name: str | None = None, tz: str | tzinfo | None = None, **options: Any
    ) -> str:
        """Put a task whenever `spec` fires, once for all processes. Returns the schedule's name.

        `spec` is a cron text ("*/5 * * * *", "@daily"), a number of seconds or a timedelta, a datetime
        (once), or APScheduler's CronTrigger, IntervalTrigger or DateTrigger. `tz` is the time zone for a cron text,
        or for a datetime that has none; else it is UTC. `task` and `options` are as in `put`, with values that JSON can
        hold. Without a `name` the schedule is named by its task.

        Each firing puts one task, however many processes run. What fell due while none ran is put once. To repeat a
        call changes nothing: another spec replaces the one with the same name, another task only the task. This process
        fires the queue's schedules, and each that takes or waits does. Raises BadType, BadValue and FeatureOff;
        BadValue also if the database refuses the task, for example because a required field is missing.
        """
        if self.clock is None:
            self.parts.maintenance.attend()
        named = self.parts.schedules.every(spec, task, name, tz, options)
        self.parts.store.after_commit(self.parts.maintenance.scheduled)
        return named

    def unschedule(self, name: str, *, actor: str | None = None, reason: str | None = None) -> bool:
        """Delete a schedule. Returns whether there was one. The tasks that it has put stay.

        `actor` and `reason` stand in the log.
        """
        return self._change_schedule("drop", name, By.of(actor, reason))

    def run_schedule(self, name: str, *, actor: str | None = None, reason: str | None = None) -> bool:
        """Put a schedule's task now, also if it is paused; the next firing stays.

        Returns whether there is such a schedule. `actor` and `reason` stand in the log, and in the history. Raises as
        `put`.
        """
        return self._change_schedule("run", name, By.of(actor, reason))

    def pause_schedule(self, name: str, *, actor: str | None = None, reason: str | None = None) -> bool:
        """Stop a schedule's firings until `resume_schedule`. Returns and logs as `run_schedule`."""
        return self._change_schedule("pause", name, By.of(actor, reason))

    def resume_schedule(self, name: str, *, actor: str | None = None, reason: str | None = None) -> bool:
        """End a schedule's pause: it fires at its next time from now on. Returns and logs as `run_schedule`."""
        return self._change_schedule("resume", name, By.of(actor, reason))

    def _change_schedule(self, event: str, name: str, by: By) -> bool:
        with block(self.parts.store.database, by) if by else nullcontext():
            changed = self.parts.schedules.change(event, name, by)
        if by and changed:
            log_act(self.parts.store, by, f"{event} the schedule {name}")
        self.parts.store.after_commit(self.parts.maintenance.scheduled)
        return changed

    def schedules(self) -> list[Schedule]:
        """Return the schedules, by name. `next` and `last` are datetimes in UTC: the next and the last firing.

        `overdue` is whether it has been due for a minute: no process fires it, or its task cannot be put; or whether it
        fires later than its spec says: the database's clock was set back. If this process cannot read a schedule,
        because its machine lacks the time zone, say, `next` is the reason, and `spec` the text in the database.
        """
        return self.parts.schedules.listed()

    # looking

    def _state(self, state: object) -> str:
        letter = self.parts.tasks.wording.letter(state, self.machine.states)
        if letter is None:
            known = self.parts.tasks.wording.states(self.machine.states)
            raise BadValue(f"{self.name} has the states {known}, not {shown(state)}")
        return letter

    def peek(self, key: object) -> T:
        """Return a task without changing it. Raises NotFound."""
        parts, _ = self.parts.tasks.identify(key)
        return self.parts.tasks.returned(self.parts.named.look(parts)[0])

    def by_state(self, state: str | int, n: int | None = None) -> list[T]:
        """Return the tasks in a state, the oldest first, at most `n` of them (None: all).

        The state is named by its word in `statuses=`, else by its letter, else by its name: "R" or "ready".
        """
        letter = self._state(state)
        return self.parts.doctor.by_state(letter, None if n is None else count_of(n))

    def count(self, state: str | int | None = None) -> int:
        """Return the number of tasks in a state (named as with `by_state`), or in the queue.

        It reads the counters, not the table.
        """
        letter = None if state is None else self._state(state)
        counts = self.stats().counts
        return sum(counts.values()) if letter is None else counts[letter]

    def taken(self) -> list[tuple[Any, str | None, float | None]]:
        """Return (key, uuid of the session, time in seconds since 1970) of each taken task, the longest first."""
        return self.parts.doctor.taken()

    def waiting(self) -> list[tuple[Any, str, float]]:
        """Return (key, uuid of the session, time in seconds since 1970) of each call of `wait`.

        It also lists the calls of `take` that wait in this process, with None as the key.
        """
        return self.parts.waiters.waited_for()

    def sessions(self) -> list[tuple[str, float]]:
        """Return the open sessions of the database: (uuid, time of the start in seconds since 1970)."""
        return self.parts.doctor.sessions()

    def stats(self, pretty: bool = False) -> Stats:
        """Return the number of tasks in each state, and the number of transitions.

        They are exact as of the last commit, and count the statements of any program. With `pretty` the states are
        spelled.
        """
        found = self.parts.doctor.stats()
        return found.spelled(self.parts.tasks.wording.spelled) if pretty else found

    queue_stats = stats

    # observing

    @property
    def History(self) -> type[Any]:
        """The model of the history's table, for queries. Raises FeatureOff."""
        return self.parts.history.reader.model

    def history(
        self, key: object = None, since: float | date | None = None, until: float | date | None = None
    ) -> list[Any]:
        """Return one task's transitions, or all tasks', in order: instances of `History`.

        `since` is inclusive and `until` exclusive: seconds since 1970, a datetime (UTC if it has no zone) or a date.
        Each has `dur_us`: for how many microseconds the task had been in the state that it left; None for a put, and if
        that is not known.
        """
        return self.parts.history.read(key, since, until)

    def on_change(self, callback: Callback[T]) -> Callback[T]:
        """Call `callback(task, event, source, target)` after the commit of each transition that this process made.

        The task is the one that the method returned. A touch is reported only with the feature events. Exceptions are
        logged. With Peewee, a change that was rolled back to a savepoint is reported, too. If the application ends its
        transaction by plain SQL or without autocommit, the callback runs at the next call, even after a rollback.
        Returns the callback, so that this may stand as a decorator; `off_change` removes it.
        """
        if not callable(callback):
            raise BadType(f"on_change takes a function, not {shown(callback)}")
        self.parts.observers.add(callback)
        return callback

    def off_change(self, callback: Callback[T]) -> None:
        """Remove a callback of `on_change`. Does nothing if it is not there."""
        self.parts.observers.remove(callback)

    # sessions

    def session(self, uuid: object = None) -> Session:
        """Return a new session, or the open session of this uuid. Raises UnknownSession if there is none."""
        return self.parts.maintenance.session(None if uuid is None else checked(uuid))

    def current_session(self) -> Session:
        """Return the session by which this thread, or asyncio task, takes; other processes can join it by its uuid."""
        return self.parts.maintenance.current_session()

    def configure(self, *, session_ttr: float | None) -> None:
        """Store a setting that all queues of this database share.

        `session_ttr`: for how many seconds a lost or closed session's tasks stay taken (None: 0). Until then
        `session(uuid)` can rejoin it.
        """
        seconds = None if session_ttr is None else seconds_of("session_ttr", session_ttr, ends=True)
        self.parts.maintenance.set_session_ttr(seconds or 0.0)


def wait_of_put(
    waiting: Waiting[T], task: object, wait: Span, timeout: Span, options: Mapping[str, Any]
) -> Wait[T | tuple[T, bool]]:
    """Return the generator of a put that waits. Raises BadType and BadValue."""
    if timeout is MISSING:
        return waiting.putting_and_waiting(task, options, waiting.seconds(wait, "wait"))
    if wait is not MISSING:
        raise BadValue("put waits for room (timeout=) or for the end of the task (wait=), not for both")
    return waiting.putting(task, options, waiting.seconds(timeout))


def queue_of(given: object) -> Queue[Any]:
    """Return the queue that a model, a tube or a queue's handle has. Raises BadType."""
    for found in (given, getattr(given, "xq", None), getattr(getattr(given, "model", None), "xq", None)):
        if isinstance(found, Queue):
            return found
    raise BadType(f"{shown(given)} is not a queue: give an upgraded model, its xq, or a tube")
