"""The queue: what `upgrade` returns, and `Model.xq`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from xq.core.clock import Clock
from xq.core.errors import BadType, BadValue, ConfigurationError, FeatureOff, InTransaction, NotInstalled, shown
from xq.core.machine import ABSENT, TAKEN, Machine
from xq.core.ports import Store, fits_a_column
from xq.core.values import Tasks
from xq.engine.finish import Finish, Update
from xq.engine.history import History
from xq.engine.insert import Inserts
from xq.engine.install import Installation
from xq.engine.observers import Callback, Observers
from xq.engine.plans import Plan, plan
from xq.engine.reconfigure import reconfigure
from xq.engine.stats import Stats, stats
from xq.engine.steps import Steps
from xq.engine.take import InDoubtTakes, Takes
from xq.engine.timers import Batches, Timers
from xq.engine.unit import Database, Definition
from xq.pipeline.archives import Archives
from xq.pipeline.bulk import Bulk, bulk
from xq.pipeline.checkpoints import Sinks, Tally
from xq.pipeline.scan import Extract, What
from xq.runtime.maintenance import QueueKeeper
from xq.runtime.waiters import Waiting
from xq.runtime.worker import Work, Workers, work
from xq.sessions import session as sessions
from xq.sessions.session import Session

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class _Missing:
    def __repr__(self) -> str:
        return "<not given>"


MISSING: Any = _Missing()
LONGEST_EVENT = 64  # characters


class Queue(Generic[T]):
    """A model that is a queue: what `upgrade` returns, and `Model.xq`.

    `key` in a method is a key (a tuple for a composite one), a mapping that has it, or a task that a method
    returned. A method that changes a task returns it as it then is; a deleted one as it last was. Each is one
    transaction, or part of the application's own. Options are seconds: delay, ttl, ttr.

    Raises, before anything is changed: FeatureOff, BadValue, BadType; NotFound, WrongState, NotOwner, in this
    order; NotInstalled. What the database itself refuses passes as the ORM's error.

    `model` is what was upgraded, `store` how its rows are read and written (`xq.core.ports.Store`). `archives` moves
    done tasks and old history out of the database, and tasks back (`xq.pipeline.archives.Archives`, for
    `xq.spark.archive`).
    """

    def __init__(self, store: Store[T], definition: Definition, clock: Clock | None = None) -> None:
        self.store = store
        self.model = store.model
        self._clock = clock
        self._work: Work[T] | None = None
        self.while_waiting: Callable[[], None] = lambda: None  # whenever a call that waits was woken: raises to end it
        self._observers: Observers[T] = Observers(store)
        self._define(definition)

    def _define(self, definition: Definition) -> None:
        self._database = Database(self.store, definition, self._clock, self._observers)
        self._machine = definition.machine
        self._tasks: Tasks[T] = Tasks(
            self.store, definition.table, definition.machine, definition.catalogue, definition.wording
        )
        self._history = History(self._database, self._tasks, definition.machine)
        self._observers.read = self._tasks.returned
        steps = self._steps = Steps(self._database, self._tasks, definition.machine)
        batches = Batches(steps)
        in_doubt = InDoubtTakes(batches)
        self._inserts = Inserts(self._tasks, steps)
        self._takes = Takes(self._tasks, steps, Timers(batches), in_doubt)
        self._finish = Finish(self._tasks, steps, batches, in_doubt)
        self.archives = Archives(steps)  # done tasks on their way out, and back: see xq.spark
        self._waiting = Waiting(self._database, self._tasks, self._inserts, self._takes, self._finish)
        self._waiting.woken = lambda: self.while_waiting()
        self._keeper = QueueKeeper(self._database, self._takes, self._finish, self._waiting)
        self._observers.listeners = (self._waiting, self._keeper)
        self._observers.count()

    @property
    def machine(self) -> Machine:
        """The transition table; print it."""
        return self._machine

    @property
    def roles(self) -> Mapping[str, str]:
        """Returns which field of the model holds what, by role: {"status": "status", "tube": "mailbox"}."""
        return {role: field.name for role, field in self._tasks.table.roles.items()}

    @property
    def statuses(self) -> Mapping[str, str | int]:
        """Returns what the field of the role status holds, by state: {"R": "new", "T": "packing", "B": "failed"}."""
        return self._database.definition.words

    @property
    def definition(self) -> dict[str, Any]:
        """What the queue is now, as `upgrade` would be given it: fields, features, statuses and tube_stats.

        Without features that are off, and words that are the letters themselves. The features are those of the last
        `reconfigure`, where there was one.
        """
        definition = self._database.definition
        return {
            "fields": dict(self.roles),
            "features": {name: on for name, on in definition.features.items() if on is not None and on is not False},
            "statuses": dict(definition.structure["statuses"]),
            "tube_stats": list(definition.tube_stats),
        }

    @property
    def installation(self) -> Installation:
        """What is to be in the database, of which `install` is the usual way (`xq.engine.install.Installation`)."""
        return self._database.bind().installation

    @property
    def clock(self) -> Clock | None:
        """The clock of a test; None for that of the database."""
        return self._clock

    @property
    def maintenance(self) -> QueueKeeper:
        """What the maintenance thread does for the queue."""
        return self._keeper

    def retire(self) -> None:
        """Have nobody look after the queue from here on: for who only installs it."""
        self._keeper.retire()

    def plan(self, event: str, *options: str, update: Sequence[str] = (), n: int = 1) -> Plan:
        """Return what a call of `event` does, step by step and with its SQL: `print(Page.xq.plan("take"))`.

        `options` are the names of the options that the call brings, `update` those of the fields that it writes, and
        `n` is the number of tasks. Raises BadValue, FeatureOff, NotInstalled.
        """
        return plan(self._database, self._tasks, self._steps, event, options, update, _count(n))

    def __repr__(self) -> str:
        return f"<xq queue {self.store.name}: {' '.join(self.machine.states)}>"

    # workers

    @overload
    def worker(self, function: F, *, workers: int = ..., max_attempts: int | None = ..., finishes: bool = ...) -> F: ...

    @overload
    def worker(
        self, *, workers: int = ..., max_attempts: int | None = ..., finishes: bool = ...
    ) -> Callable[[F], F]: ...

    def worker(
        self, function: Any = None, *, workers: int = 1, max_attempts: int | None = None, finishes: bool = False
    ) -> Any:
        """Have `run` call this function with each task, in so many threads: `@Page.xq.worker(workers=4)`.

        A task is acked when the function returns. When it raises, or the ack is refused, the task is released, with a
        delay of a second where the queue has delays, which doubles each time where the role attempts is mapped; after
        `max_attempts` takes (role attempts, feature buried) it is buried, with the error in the role error, where that
        is mapped (`Type: message`, then the traceback); so is, when it is taken once more, one that never came to an
        end in as many, since its worker died. The function may finish the task itself. The log warns of each attempt
        that is followed by another, in a line, and has an error with the traceback when the task is buried.

        With `finishes` the function is called with the task and `finish(event="ack", update=None, **options)`, which
        moves the task by ack, release or bury as soon as the database lets it, and returns it as it then is; None,
        where it was lost meanwhile. It raises what is wrong with the call, and what the database refuses; within a
        transaction of the function whatever fails, and where that transaction is rolled back behind it, the task has
        failed with Undone. Where the function does not call it, or it raised and the function returns, it is as ever.
        """
        if function is None:
            return lambda given: self.worker(given, workers=workers, max_attempts=max_attempts, finishes=finishes)
        self._work = work(self.store.name, self.machine, function, workers, max_attempts, finishes)
        return function

    @property
    def work(self) -> Work[T] | None:
        """What `run` does: the function, in how many threads, and how often it is tried; None where none was given."""
        return self._work

    def run(self, *, until_empty: bool = False, workers: int | None = None, tubes: Sequence[str] | None = None) -> None:
        """Work until SIGTERM or SIGINT, which let what is in hand be finished (a second one releases it).

        With `until_empty`, until there is nothing to take. In so many threads; None: as many as the worker was given.
        With `tubes`, take from these only, in so many threads for each. Raises InTransaction within a transaction, and
        ConfigurationError where threads share one connection and there would be several.
        """
        given = self._work
        if given is None:
            raise ConfigurationError(
                f"{self.store.name} has no worker: upgrade(..., worker=f), or @{self.store.name}.xq.worker()"
            )
        if self.store.in_transaction():
            raise InTransaction("run", ": its threads see nothing of it")
        if isinstance(tubes, str):
            raise BadType(f"tubes is a list of names of tubes, not {shown(tubes)}")
        takes = [self.take] if tubes is None else [partial(self.take, tube=self._tube(tube)) for tube in tubes]
        threads = given.workers if workers is None else workers
        chosen: Work[T] = work(
            self.store.name, self.machine, given.function, threads, given.max_attempts, given.finishes
        )
        if not self.store.has_threads and chosen.workers * len(takes) > 1:
            raise ConfigurationError(
                f"{chosen.workers * len(takes)} threads of {self.store.name} cannot work on one connection "
                "(thread_safe=False): let one work, or give each a connection of its own (thread_safe=True)"
            )
        Workers(takes, lambda: self._finish, chosen, until_empty).run()

    # producers

    @overload
    def put(self, task: object = ..., *, wait: float | None, **options: Any) -> tuple[T, bool]: ...

    @overload
    def put(self, task: object = ..., *, timeout: float | None = ..., **options: Any) -> T: ...

    def put(
        self, task: object = MISSING, *, wait: float | None = MISSING, timeout: float | None = MISSING, **options: Any
    ) -> T | tuple[T, bool]:
        """Put a task: into R, or into W when `delay` is given.

        `task` is a mapping of field names to values, an instance, or a sequence of values in the order of the
        fields. Options: delay, ttl, ttr (seconds); on_conflict with the feature unique. Raises Duplicate, Full.
        With `wait`, waits so many seconds (None: for ever) for the task's end, and returns as `wait` does. With
        `timeout` and the feature limit, waits so long for room in a full queue.
        """
        brought = {} if task is MISSING else task
        if timeout is not MISSING:
            if wait is not MISSING:
                raise BadValue("put waits for room (timeout=) or for the end of the task (wait=), not for both")
            return self._waiting.put(brought, options, self._timeout(timeout))
        if wait is not MISSING:
            return self._waiting.put_and_wait(brought, options, self._timeout(wait, "wait"))
        return self._put([brought], options)[0]

    def _timeout(self, value: float | None, name: str = "timeout") -> float | None:
        return None if value is None else self._tasks.seconds(name, value)

    def put_many(self, tasks: Iterable[object], **options: Any) -> list[T]:
        """Put all of the tasks or none, in one transaction, and return them in the same order."""
        if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):
            raise BadType(f"put_many takes tasks, not {type(tasks).__name__}: {shown(tasks)}")
        return self._put(list(tasks), options)

    def _put(self, tasks: list[object], options: Mapping[str, Any]) -> list[T]:
        while True:
            puts = self._inserts
            try:
                return puts.put(tasks, options)
            except NotInstalled:
                if puts is self._inserts:
                    raise  # else another thread has reconfigured the queue meanwhile

    def bulk(self, *, on_conflict: Literal["raise", "skip"] = "raise") -> Bulk:
        """What other processes put tasks by, millions in one transaction, without this model: see `Bulk.begin`.

        With the feature unique and "skip", those that are in the way of others are left out. Raises BadValue,
        FeatureOff, and ConfigurationError where no other process reaches the database.
        """
        return bulk(self._database, self._tasks, on_conflict)

    # consumers

    def take(self, timeout: float | None = 0, *, tube: str | None = None, **options: Any) -> T | None:
        """Take the oldest ready task, of lowest priority first: to T. None when there is none.

        Waits up to `timeout` seconds for one (None: for ever). Options: ttr (seconds), tube.
        """
        taken = self._take(1, timeout, tube, options)
        return taken[0] if taken else None

    def take_many(self, n: int, timeout: float | None = 0, *, tube: str | None = None, **options: Any) -> list[T]:
        """Take up to `n` ready tasks, in order, as soon as there is one."""
        return self._take(_count(n), timeout, tube, options)

    def _take(self, n: int, timeout: float | None, tube: str | None, options: Mapping[str, Any]) -> list[T]:
        if tube is not None:
            self._tube(tube)
        binding = self._database.binding
        reaped = 0 if binding is None else binding.sessions.deaths
        if timeout == 0 and not isinstance(timeout, bool):
            found = self._takes.oldest("take", n, options, tube=tube)
        else:
            seconds = self._timeout(timeout)
            found = self._waiting.take(n, options, tube, seconds if n else 0)
        if not found and n and self._keeper.more_have_died(than=reaped):
            found = self._takes.oldest("take", n, options, tube=tube)
        return found

    def wait(self, key: object, timeout: float | None = None) -> tuple[T, bool]:
        """Wait for the end of a task, up to `timeout` seconds (None: for ever).

        Returns the task, as it then is, and whether it was processed: True when it was acked; False when it was
        buried, killed or dropped, or the time ran out. Of a task whose row is gone, returns what this process saw
        last. Raises NotFound when it is gone already, or goes in a transaction that had locked it before;
        InTransaction; ConfigurationError while another thread waits on the same connection (thread_safe=False).
        """
        seconds = self._timeout(timeout)
        parts, _ = self._tasks.identify(key)
        return self._waiting.wait(parts, seconds)

    def _tube(self, tube: object) -> str | None:
        if tube is not None and "tube" not in self.machine.roles:
            raise FeatureOff("take(tube=) needs the role 'tube': map it to a field", role="tube")
        if tube is not None and not isinstance(tube, str):
            raise BadType(f"a tube is named by text, not by {shown(tube)}")
        return tube

    def ack(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Say that a taken task is done: it is deleted, or stays as D (keep) or Z (zombie, for `delay` seconds)."""
        return self._finish.one("ack", key, options, update)

    def release(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Give a taken task back: to R, or to W when `delay` is given. Options: delay, ttl, ttr."""
        return self._finish.one("release", key, options, update)

    def bury(self, key: object, *, update: Mapping[str, Any] | None = None) -> T:
        """Put a taken task aside until it is dug out: to B. With buried="any" a task in any state, whoever holds it.

        Then one that is in B stays as it is, which is no move, unless there is an `update`.
        """
        return self._finish.one("bury", key, {}, update)

    def touch(self, key: object, increment: float) -> T:
        """Push the time at which the task's state ends on by `increment` seconds, and its deadline with it."""
        self._tasks.seconds("increment", increment, ends=True)  # None is not left out here
        return self._finish.one("touch", key, {"increment": increment})

    def touch_many(self, keys: Iterable[object], increment: float) -> list[T]:
        """touch, for all of the tasks or none."""
        self._tasks.seconds("increment", increment, ends=True)
        return self._finish.many("touch", keys, {"increment": increment})

    def ack_many(self, keys: Iterable[object], *, update: Update = None, **options: Any) -> list[T]:
        """ack, for all of the tasks or none. `update` is for all of them, or a list with one for each."""
        return self._finish.many("ack", keys, options, update)

    def release_many(self, keys: Iterable[object], *, update: Update = None, **options: Any) -> list[T]:
        """release, for all of the tasks or none. `update` is for all of them, or a list with one for each."""
        return self._finish.many("release", keys, options, update)

    def bury_many(
        self,
        keys: Iterable[object],
        *,
        update: Update = None,
        error: str | Sequence[str | None] | None = None,
    ) -> list[T]:
        """bury, for all of the tasks or none. `update` is for all of them, or a list with one for each.

        So is `error`, which says why, in the role error.
        """
        return self._finish.many("bury", keys, {}, update, error)

    def transaction(self, work: Callable[[], R]) -> R:
        """What `work` returns, all of whose writes on this thread's connection are one transaction.

        Those of the application count as those of the queue. It is called again when the database undid them for
        another's sake (a deadlock), so it should do nothing but write to the database. Within a transaction of the
        application it is a part of that, and not called again.
        """
        return self._database.unit(work, transaction=True)

    def once(self, sink: str, stream: str, batch: int, work: Callable[[], object]) -> bool:
        """Call `work` unless it was for this batch before, and note that in the transaction of what it writes.

        `sink` names what is written, `stream` whose batches they are, which are numbered from 0 on. Returns whether it
        was called; as in `transaction`. Raises BadValue where the sink has batches of another stream, and within a
        transaction.
        """
        return Sinks(self._database).once(sink, stream, batch, work)

    def tally(self, table: str) -> Tally:
        """Returns a table of this database in which streams count transitions; `install` makes it."""
        return Tally(self._database, table)

    # operators

    @overload
    def dig(self, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T: ...

    @overload
    def dig(self, *, n: int | None, update: Mapping[str, Any] | None = None, **options: Any) -> list[T]: ...

    def dig(
        self, key: object = MISSING, *, n: int | None = MISSING, update: Mapping[str, Any] | None = None, **options: Any
    ) -> T | list[T]:
        """Dig a buried task out: to R, or to W when `delay` is given. With n=, the list of the n oldest (None: all)."""
        if (key is MISSING) == (n is MISSING):
            raise BadType("dig takes a key, or n= (a number of tasks, None for all)")
        if n is MISSING:
            return self._finish.one("dig", key, options, update)
        return self._takes.oldest("dig", None if n is None else _count(n), options, update)

    kick = dig  # its older name; a number is a key here too

    def plow(self, n: int | None = None, **options: Any) -> list[T]:
        """dig the `n` oldest buried tasks out (None: all)."""
        found: list[T] = self.dig(n=n, **options)
        return found

    def kill(self, key: object) -> T:
        """Delete a task, whatever its state and whoever holds it."""
        return self._finish.one("kill", key, {})

    def kill_many(self, keys: Iterable[object]) -> list[T]:
        """kill, for all of the tasks or none."""
        return self._finish.many("kill", keys, {}, None)

    def snatch(self, key: object, **options: Any) -> T:
        """Take a task away from whoever holds it: to R, or to W when `delay` is given."""
        return self._finish.one("snatch", key, options)

    def restart(self, key: object, **options: Any) -> T:
        """Do a waiting or finished task again: to R, or to W when `delay` is given."""
        return self._finish.one("restart", key, options)

    def switch(self, key: object, to: str, **options: Any) -> T:
        """Move a task that nobody holds to another state of this queue: R, W (with delay), B, D or Z."""
        targets = tuple(dict.fromkeys(row.target for row in self.machine.rows if row.named))
        if not isinstance(to, str) or to not in targets:
            known = self._tasks.wording.states(targets)
            raise BadValue(f"switch moves tasks of {self.store.name} to one of {known}, not to {shown(to)}")
        return self._finish.one("switch", key, options, to=to)

    def call(self, event: str, key: object, *, update: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Run an event that a feature of your own brings."""
        if not isinstance(event, str):
            raise BadType(f"an event is named by text, not by {shown(event)}")
        if ABSENT in self.machine.sources(event) or any(row.named for row in self.machine.rows if row.event == event):
            raise BadValue(f"{event} is not run by a key alone: use the method {event}()")
        return self._finish.one(event, key, options, update)

    def release_all(self) -> int:
        """Give every taken task back, whoever holds it. Returns how many."""
        return self._finish.all("release", [TAKEN])

    def truncate(self, event: str = "kill") -> int:
        """Delete every task of the queue, as the event `event`. Returns how many."""
        if not isinstance(event, str):
            raise BadType(f"an event is named by text, not by {shown(event)}")
        if not event.isidentifier() or len(event) > LONGEST_EVENT:
            raise BadValue(f"an event is named as a method is, in up to {LONGEST_EVENT} letters, not {shown(event)}")
        return self._finish.all("kill", self.machine.states, event)

    def sweep(self) -> int:
        """Move what is due until nothing is. Returns how many moves that were."""
        return self._takes.timers.sweep()

    # looking

    def _state(self, state: object) -> str:
        if not isinstance(state, str) or state not in self.machine.states:
            known = self._tasks.wording.states(self.machine.states)
            raise BadValue(f"{self.store.name} has the states {known}, not {shown(state)}")
        return state

    def peek(self, key: object) -> T:
        """The task, unchanged. Raises NotFound."""
        parts, _ = self._tasks.identify(key)
        return self._tasks.returned(self._finish.look(parts)[0])

    def by_state(self, state: str, n: int | None = None) -> list[T]:
        """The tasks in a state, oldest first; at most `n` of them."""
        letter = self._state(state)
        statement = self._database.dialect.by_state(letter)
        limit = self._database.dialect.no_limit if n is None else _count(n)
        return [self._tasks.returned(row) for row in self._database.execute(statement, {"n": limit})]

    def count(self, state: str | None = None) -> int:
        """How many tasks are in a state, or in the queue. Read from the counters: ten or ten million, as fast."""
        letter = None if state is None else self._state(state)
        counts = self.stats().counts
        return sum(counts.values()) if letter is None else counts[letter]

    def taken(self) -> list[tuple[Any, str | None, float | None]]:
        """Who holds what: (key, uuid of the session, since when, in seconds since 1970), for each taken task."""
        found = []
        for *key, mark in self._database.execute(self._database.dialect.taken):
            session, since = sessions.owner_of(mark) if mark else (None, None)
            found.append((self._tasks.app_key(tuple(key)), session, since))
        return found

    def waiting(self) -> list[tuple[Any, str, float]]:
        """Who waits: (key, uuid of the session, since when, in seconds since 1970), for each `wait` for a task.

        The key is None for those of this process that wait in `take`.
        """
        return self._waiting.waited_for()

    @property
    def is_awaited(self) -> bool:
        """Returns whether calls of this process wait here: for a task, for room, or for the end of one."""
        return self._waiting.anybody

    def only_reads(self) -> bool:
        """Returns whether the database says that it may not be written on this thread's connection."""
        return self._database.only_reads()

    def sessions(self) -> list[tuple[str, float]]:
        """The open sessions of the database: (uuid, since when, in seconds since 1970)."""
        return [(uuid, since) for uuid, since in self._database.execute(self._database.dialect.sessions)]

    def stats(self, pretty: bool = False) -> Stats:
        """Counts per state and transitions, exact at the last commit, whoever wrote. `pretty` spells the states."""
        usual = self.machine.usual_event if self.machine.settings.counts_events else None
        found = stats(self._database.counters(), self.machine.states, self._database.definition.tube_stats, usual)
        return found.spelled() if pretty else found

    queue_stats = stats

    def reset(self) -> None:
        """Forget the transitions seen so far, and keep the counts."""
        self._database.begin_writing()
        within = self.store.in_transaction()
        self._database.unit(lambda: self._database.open().installation.reset(within), transaction=True)

    # observing

    @property
    def History(self) -> type[Any]:
        """The model of the table of transitions, to be read. Raises FeatureOff."""
        return self._history.reader.model

    def history(
        self, key: object = None, since: float | date | None = None, until: float | date | None = None
    ) -> list[Any]:
        """The transitions of one task, or of all, in order: instances of `History`.

        From `since` on and before `until`: seconds since 1970, a datetime (UTC where it names no zone) or a date. Each
        has `dur_us`, the microseconds that the task had been in the state it left; None where that is not known.
        """
        return self._history.read(key, since, until)

    def extract(self, what: What = "tasks", snapshot: str = "") -> Extract:
        """What other programs read without this model: "tasks", "history", "stats", "live" or "buried".

        It may be pickled.
        tasks: the fields, and `state` ("Ready", "Taken" ...; `xq_state` where a field is called so); not the rows whose
        status is not the queue's. history: the columns of `History`, `at` (a timestamp), and where it is asked for
        `dur_us`. stats: tube ("" for all), source, target, n; what was there before counting began has the source "".
        live: the tasks in R, T and W, as the history tells them: key (text), tube, state (a letter).
        buried: those in B: key, and the role error (NULL where it is not mapped).
        `snapshot`: one of PostgreSQL that is open, as which all is read. Raises FeatureOff, BadValue, and
        ConfigurationError where no other process can reach the database.
        """
        self._history.check(what)
        return self._database.dialect.extract(what, self.store.name, self.store.address(), snapshot)

    def on_change(self, callback: Callback[T]) -> Callback[T]:
        """Call this with (task, event, source, target) after each transition that this process made is committed.

        The task is as the method returned it. A touch is no transition, and told with the feature events alone. An
        exception is logged. Returns the callback, so this may stand as a decorator; `off_change` removes it. Where the
        application commits by plain SQL, the next call tells.
        """
        if not callable(callback):
            raise BadType(f"on_change takes a function, not {shown(callback)}")
        self._observers.add(callback)
        return callback

    def off_change(self, callback: Callback[T]) -> None:
        """Call this no longer. Does nothing where it is not called."""
        self._observers.remove(callback)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this once what was last written on this thread's connection is committed, if it is. At once outside of a
        transaction.
        """
        self._observers.once_committed(self._database.dialect, call)

    # sessions

    def session(self, uuid: object = None) -> Session:
        """Another session, or the one of this uuid. Raises UnknownSession when none of that uuid is open."""
        return self._keeper.session(None if uuid is None else sessions.checked(uuid))

    def current_session(self) -> Session:
        """The session by which this thread, or asyncio task, takes: from now on others can join it by its uuid."""
        if self._clock is None and not self._keeper.is_attended:
            self._keeper.attend()  # what it takes must come back, also of what is no queue
        return self._keeper.current_session()

    def configure(self, *, session_ttr: float | None = MISSING, notify: bool = MISSING) -> None:
        """Set what holds for all queues of this database, and is stored in it.

        `session_ttr`: keep the tasks of a session that is lost or closed for so many seconds (None: not at all), in
        which `session(uuid)` can come back to them. `notify`: whether PostgreSQL tells waiting processes of new tasks
        (NOTIFY); without it they look, each 2 to 20 ms. Elsewhere it means nothing.
        """
        if session_ttr is not MISSING:
            seconds = None if session_ttr is None else self._tasks.seconds("session_ttr", session_ttr, ends=True)
            self._set("session_ttr", seconds or 0.0)
        if notify is not MISSING:
            if not isinstance(notify, bool):
                raise BadType(f"notify is True or False, not {shown(notify)}")
            self._set("notify", float(notify))

    def _set(self, name: str, value: float) -> None:
        self._database.execute(self._database.dialect.set_setting, {"name": name, "value": value})

    # installing

    def install(self) -> None:
        """Bring what the queue needs into the database; does nothing where it is there. Sets SQLite files to WAL."""
        self._database.unit(self._database.bind().installation.install)
        self._database.close()

    def create_by(self, create: Callable[[], None]) -> None:
        """Have the ORM create the table, and install; as `create_tables` does, in any number of processes at once."""
        self.ddl()  # what the database cannot have is refused before the table is there, and in words
        with self._database.bind().dialect.creating(self.store):
            create()
        self.install()

    def ddl(self) -> str:
        """The SQL that `install` runs, as text for migrations of your own. It may be run twice."""
        return self._database.bind().installation.ddl()

    def check(self, *, advise: bool = False) -> list[str]:
        """What is missing or uncounted, in words; empty when all is well. Reads the whole table.

        With `advise` also what would be cheaper, in lines that begin with "advice:".
        """
        installation = self._database.bind().installation
        return [*installation.check(), *(installation.advice() if advise else [])]

    def tune(self) -> list[str]:
        """Have the database keep up with a table whose rows change all the time. Returns the SQL that was run.

        On PostgreSQL autovacuum comes soon, and works without pauses; elsewhere there is nothing to set.
        """
        return self._database.open().installation.tune()

    def grant(self, user: str, role: str, *, run: bool = True) -> list[str]:
        """Give a user of the database exactly the rights that he needs. Returns the SQL that was run.

        A "reader" looks; a "producer" can put as well; a "consumer" take, finish and sweep; an "operator" can do all
        but install. Nothing is taken away from anybody. `user` is named as the database knows him, on MariaDB as
        "name@host", or by the name alone for any host, or for a role. Without `run` the SQL is only returned. To be
        done again when the queue was installed otherwise. Raises ConfigurationError on SQLite, BadType, BadValue.
        """
        for what, value in {"user": user, "role": role}.items():
            if not isinstance(value, str):
                raise BadType(f"{what} is a name, not {shown(value)}")
        if not isinstance(run, bool):
            raise BadType(f"run is True or False, not {shown(run)}")
        if not user or not fits_a_column(user) or user.encode(errors="replace").decode() != user:
            raise BadValue(f"no user is named {shown(user)}")
        installation = self._database.open().installation
        return self._database.unit(lambda: installation.grant(user, role, run))

    def forgo_safety(self) -> list[str]:
        """Have the database not keep the tasks, with all that belongs to them, through a crash. Returns the SQL run.

        On PostgreSQL the tables become unlogged, and writing is faster; elsewhere there is nothing to set.
        """
        return self._database.open().installation.forgo_safety()

    def recount(self) -> None:
        """Set the counts to what the table holds, where writers passed by the triggers (see `check`)."""
        self._database.unit(self._database.open().installation.recount)

    def uninstall(self) -> None:
        """Take away all that was installed, and leave the plain table."""
        self._database.unit(self._database.bind().installation.uninstall)
        self._database.close()

    def drop(self, drop: Callable[[], object]) -> int:
        """Have `drop` drop the table, with what it likes beside that, unless tasks are taken. Returns how many are.

        As one step: calls that move tasks, of whatever process, are waited for, and those that come meanwhile wait, and
        raise NotInstalled when the table is gone. Orphaned tasks are reaped first. On MariaDB not within a transaction.
        """
        taken = self.count(TAKEN)  # where there are any, nobody need be locked out to know
        if taken:
            self._keeper.reap()
            taken = self.count(TAKEN)
        return taken or self._database.unit(lambda: self._database.open().installation.drop(drop))

    def reconfigure(self, features: Mapping[str, Any], move: Mapping[str, str] | None = None) -> None:
        """Give the queue other features, in the database and in this process.

        Refused with a ConfigurationError, which counts them, while tasks are in a state that the new features do
        not have, unless `move` says where they go: {"Z": "D"}.
        """
        self._database.gives_way = True  # what other threads have begun with this definition they end with it
        try:
            definition = self._database.unit(lambda: reconfigure(self._database, features, move or {}))
        except BaseException:
            self._database.gives_way = False
            raise
        before, keeper = self._takes, self._keeper
        self._define(definition)
        keeper.retire()  # only now: who finds the old definition gone shall find the new one
        self._takes.in_doubt.go_on_from(before.in_doubt)


def _count(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int):
        raise BadType(f"a number of tasks is an integer, not {shown(n)}")
    if n < 0:
        raise BadValue(f"a number of tasks is not negative: {shown(n)}")
    return min(int(n), 2**62)  # a plain one: some drivers know no other
