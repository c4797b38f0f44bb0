"""One tube, of those that `xq.Tubes` makes: its methods, over a queue."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from xq.adapters import tubes as tables
from xq.adapters.tubes import Record
from xq.core.errors import BadType, BadValue, FeatureOff, Full, NotInstalled, TubeBusy, TubeDropped, shown
from xq.core.ports import UNANSWERED, ErrorKind, fits_a_column
from xq.core.words import Wording, called
from xq.queue import Queue
from xq.runtime.maintenance import QueueMaintenance
from xq.sessions.session import owner_of
from xq.tubes.arguments import by_name
from xq.tubes.state import State
from xq.tubes.types import lacks
from xq.tubes.types import pri as checked_pri

STATES: Final[Mapping[str, str]] = {"R": "r", "T": "t", "W": "~", "B": "!"}
LETTERS: Final = {state: letter for letter, state in STATES.items()}
GONE: Final = "-"
ENDS: Final = "DZX"  # done and kept, kept for a while, or gone: all one to whoever speaks of tubes
NAMES: Final = {"ready": "R", "taken": "T", "delayed": "W", "buried": "B"}  # in the statistics

LONGEST_UTUBE: Final = 500  # characters: an index of PostgreSQL holds no text above 2,700 bytes
CALLS: Final = ("ack", "bury", "delay", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr")

# What the callback of a tube is told of an event; nothing, of truncate.
TOLD: Final[Mapping[str, str]] = {
    "died": "release",
    "snatch": "release",
    "dig": "kick",
    "kill": "delete",
    "ack": "delete",
    "truncate": "",
}


class Task(NamedTuple):
    """A task of a tube, as it then is: "r" ready, "t" taken, "~" delayed, "!" buried, "-" gone, or done and kept."""

    id: int
    state: str
    data: Any


OnChange = Callable[[Task, str], object]


def stored(data: object) -> dict[str, Any]:
    """The columns that hold data: JSON in one, or bytes in the other. Raises BadType and BadValue."""
    try:
        if isinstance(data, (bytes, bytearray, memoryview)):
            return {"raw": bytes(data)}
        _check_keys(data)
        return {} if data is None else {"data": json.dumps(data, allow_nan=False, separators=(",", ":"))}
    except TypeError as error:
        raise BadType(f"{shown(data)} is no value of JSON, and no bytes: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{shown(data)} is no value of JSON, and no bytes: {error}") from error


def _check_keys(data: object) -> None:
    """JSON would make text of a key that is none, and so another value of the data."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is not text")
            _check_keys(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            _check_keys(value)


def read(row: Any) -> Any:
    """The data that a row of the model holds. Text that is no JSON, which another program wrote, is what it is."""
    if row.raw is not None:
        return bytes(row.raw)
    try:
        return None if row.data is None else json.loads(row.data)
    except ValueError:
        return row.data


@dataclass(frozen=True)
class TubeWording(Wording):
    """What the messages of a tube name: the states and the calls of tubes, and their types instead of features."""

    type: str = ""
    types: Mapping[str, Any] = field(default_factory=dict)  # those that are registered: presets, and classes

    names: ClassVar = {letter: name for name, letter in NAMES.items()} | dict.fromkeys(ENDS, "done")
    signs: ClassVar = {**STATES, **dict.fromkeys(ENDS, GONE)}

    def owner(self, token: str | None) -> str:
        if token is None:
            return "nobody known (plain SQL?); release_all() gives every taken task back"
        uuid, _ = owner_of(token)
        return f"another session ({uuid}), which identify({uuid!r}) joins"

    def lacks(self, queue: str, event: str, option: str, features: Sequence[str]) -> str:
        return lacks(called(TOLD.get(event, event), option), features, self.type, self.types)


@dataclass(frozen=True)
class Host:
    """What a tube knows of the database that it is in."""

    running: State
    records: Queue[Any]  # without tasks, by which what all queues share is there
    session: Callable[[], str]  # the uuid of the current one, which the database knows
    forget: Callable[[], bool]  # that there is the tube; whether there was
    wording: TubeWording


class Calls:
    """`with calls:` around each call of a tube: raises NotRunning, and TubeDropped for what came of that."""

    def __init__(self, tube: Tube, running: State | None) -> None:
        self._tube = tube
        self._running = running  # None for what only looks

    def __enter__(self) -> None:
        if self._running is not None:
            self._running.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if self._tube.is_gone(error):
            raise TubeDropped(self._tube.name) from error
        if self._running is not None:
            self._running.explain(error)


class Tube:
    """One tube: what `Tubes.create_tube` returns, and `queue.tube["name"]`.

    Its methods return tasks as they then are: (id, state, data). A task is named by its id, or is one that a method
    returned. Times are seconds, math.inf is never. Beside what is said of each, they raise what those of a queue do:
    FeatureOff for what the type of the tube lacks, BadType, BadValue; NotFound, WrongState, NotOwner; TubeDropped;
    NotRunning, all but statistics(), while the database may only be read.
    `model` is the model of its table, and `model.xq` the queue: who waits, who has taken what and which sessions are
    open is told there (`waiting()`, `taken()`, `sessions()`).
    """

    def __init__(self, record: Record, model: Any, host: Host, features: Collection[str] = ()) -> None:
        self.name = record.name
        self.type = record.type
        self.options = MappingProxyType(dict(record.options))
        self.model = model
        self._host = host
        self._features = frozenset(features)
        self._calls = Calls(self, host.running)
        self._looks = Calls(self, None)
        self._on_change: OnChange | None = None

    def __repr__(self) -> str:
        return f"<xq tube {self.name} ({self.type})>"

    @property
    def _queue(self) -> Queue[Any]:
        found: Queue[Any] = self.model.xq
        return found

    @property
    def maintenance(self) -> QueueMaintenance:
        """What the maintenance thread does for the tube."""
        return self._queue.adapter.maintenance

    @property
    def is_awaited(self) -> bool:
        """Whether a call of this process waits in it, for a task or for room."""
        return self._queue.adapter.is_awaited

    def create(self) -> None:
        """Make what the tube needs in the database, where creating its model has not done so."""
        self.model.create_table()
        if self.options.get("temporary"):
            self._queue.adapter.installation.set_unlogged()

    def stop(self) -> None:
        """It is used no more in this process."""

    def is_gone(self, error: BaseException) -> bool:
        """Whether an error came of it that the tube was dropped."""
        store = self._host.records.adapter.store
        if not isinstance(error, NotInstalled) and store.classify(error) in UNANSWERED:
            return False
        try:
            return not tables.is_there(self.model)
        except Exception as another:
            if store.classify(another) is ErrorKind.NOT_DATABASE:
                raise
            return False  # in a transaction of PostgreSQL, which an error ends, nobody can look

    # producers

    @by_name
    def put(
        self,
        data: Any,
        *,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        utube: str | float | None = None,
        timeout: float | None = None,
    ) -> Task | None:
        """Put a task with this data: a value of JSON, or bytes. Ready, or delayed for `delay` seconds.

        `pri`: lower is taken first. `ttl`: how long it lives, after its delay. `ttr`: how long it may be taken.
        `utube`: its sub-queue, kept as text, else the one called "nil". Where the tube has a capacity, waits for room
        up to `timeout` seconds (None: not at all), and returns None when there was none.
        """
        task = stored(data)
        pri = self.options.get("pri") if pri is None else pri
        if pri is not None:
            self._needs("priority", "pri")
            task["priority"] = checked_pri(pri)
        if utube is not None:
            self._needs("utube", "utube")
            task["utube"] = _name_of_utube(utube)
        options = self._delayed({"ttl": ttl, "ttr": ttr}, delay)
        with self._calls:
            if "limit" in self._features:
                try:
                    return self._told(self._queue.put(task, timeout=0 if timeout is None else timeout, **options))
                except Full:
                    return None
            if timeout is not None:
                options["timeout"] = timeout  # which is refused
            return self._told(self._queue.put(task, **options))

    def _needs(self, feature: str, option: str) -> None:
        if feature not in self._features:
            raise FeatureOff(self._host.wording.lacks(self.name, "put", option, [feature]), feature=feature)

    def _delayed(self, options: Mapping[str, Any], delay: float | None) -> dict[str, Any]:
        """Options of a call that may be delayed; a delay of 0 is none."""
        given = {name: value for name, value in options.items() if value is not None}
        if delay is not None and not ("delayed" in self._features and is_nothing(delay)):
            given["delay"] = delay
        return given

    # consumers

    @by_name
    def take(self, timeout: float | None = None) -> Task | None:
        """Take the first ready task, of lowest pri and then id. Waits `timeout` seconds for one; None: for ever.

        None when there is none. Of a sub-queue nothing is taken while a task of it is taken.
        """
        with self._calls:
            found = self._queue.take(timeout)
            return None if found is None else self._told(found)

    @by_name
    def take_many(self, n: int, timeout: float | None = None) -> list[Task]:
        """Take up to `n` ready tasks, in the order of `take`, as soon as there is one. Waits as `take` does."""
        with self._calls:
            return [self._told(row) for row in self._queue.take_many(n, timeout)]

    @by_name
    def ack(self, id: object) -> Task:
        """Say that a task, taken by this session, is done: it is gone."""
        with self._calls:
            return self._told(self._queue.ack(task_id(id)), GONE)

    @by_name
    def ack_many(self, ids: Iterable[object]) -> list[Task]:
        """ack, for all of the tasks or none: one transaction."""
        if isinstance(ids, (Task, str, bytes, Mapping)) or not isinstance(ids, Iterable):
            raise BadType(f"ack_many takes tasks, or their ids, not {shown(ids)}")
        with self._calls:
            return [self._told(row, GONE) for row in self._queue.ack_many([task_id(id) for id in ids])]

    @by_name
    def release(self, id: object, *, delay: float | None = None) -> Task:
        """Give a task, taken by this session, back: ready, or delayed for `delay` seconds, by which it lives longer."""
        with self._calls:
            return self._told(self._queue.release(task_id(id), **self._delayed({}, delay)))

    @by_name
    def touch(self, id: object, increment: float) -> Task:
        """Let a task, taken by this session, be taken, and live, for `increment` seconds more.

        0 changes nothing, and is no touch. What never ends goes on so. Raises BadValue for a number that is negative.
        """
        with self._calls:
            if is_nothing(increment) and self._queue.machine.sources("touch"):
                return self.peek(id)
            return self._told(self._queue.touch(task_id(id), increment))

    # workers

    def worker(self, function: Any = None, **options: Any) -> Any:
        """Have `run` call this function with each Task: `@tube.worker(workers=4)`. Options as `Queue.worker` has them.

        With `finishes=True` the function is called with the task and `finish`, which returns the Task as it then is.
        """
        if function is None:
            return lambda given: self.worker(given, **options)
        self._queue.worker(self._with_tasks(function), **options)
        return function

    def run(self, *, until_empty: bool = False, workers: int | None = None) -> None:
        """Work until SIGTERM or SIGINT, or with `until_empty` until there is nothing to take; as `Queue.run`."""
        with self._calls:
            self._queue.run(until_empty=until_empty, workers=workers)

    def _with_tasks(self, function: Any) -> Any:
        """A function of a Task, as a function of the row that the queue takes."""
        if not callable(function) or inspect.iscoroutinefunction(function):
            return function  # which the queue refuses, in its own words

        def work(row: Any, *finish: Callable[..., Any]) -> object:
            return function(self._told(row), *(self._finishing(each) for each in finish))

        return work

    def _finishing(self, finish: Callable[..., Any]) -> Callable[..., Task | None]:
        def finished(event: str = "ack", **options: Any) -> Task | None:
            row = finish(event, **options)
            return None if row is None else self._told(row, GONE if event == "ack" else "")

        return finished

    # operators

    @by_name
    def peek(self, id: object) -> Task:
        """The task, unchanged. Raises NotFound."""
        with self._calls:
            return self._told(self._queue.peek(task_id(id)))

    @by_name
    def bury(self, id: object) -> Task:
        """Put a task aside until it is kicked, whatever its state and whoever has taken it.

        One that is buried stays so, and nobody is told.
        """
        with self._calls:
            return self._told(self._queue.bury(task_id(id)))

    @by_name
    def kick(self, count: int = 1) -> int:
        """Have so many buried tasks be ready, in the order of a take. Returns how many there were."""
        with self._calls:
            if count is None:  # all, for a queue
                raise BadType("a number of tasks is an integer, not None")
            return len(self._queue.dig(n=count))

    @by_name
    def delete(self, id: object) -> Task:
        """Delete a task, whatever its state and whoever has taken it."""
        with self._calls:
            return self._told(self._queue.kill(task_id(id)), GONE)

    def release_all(self) -> int:
        """Give every taken task back, whoever has taken it. Returns how many."""
        with self._calls:
            return self._queue.release_all()

    def truncate(self) -> int:
        """Delete every task. Nobody is told, and the statistics count no call. Returns how many there were."""
        with self._calls:
            return self._queue.truncate("truncate")

    def drop(self) -> bool:
        """Delete the tube with its tasks. Returns True. Raises TubeBusy while tasks are taken, or calls wait here.

        As one step: it waits for transactions in which tasks are put or moved, and whoever calls meanwhile, of
        whatever process, waits and raises TubeDropped in the end. Orphaned tasks are reaped first, unless it is within
        a transaction; on MariaDB it is refused there.
        """
        with self._calls:
            if (awaited := self.is_awaited) or (taken := self._drop()):
                raise TubeBusy(self.name, 0 if awaited else taken)
            return True

    def _drop(self) -> int:
        """Drop the table, and forget the tube, unless tasks are taken. Returns how many are."""
        try:
            return self._queue.adapter.drop(self.erase)
        except Exception as error:
            # On MariaDB a process that is killed may have dropped the table, and not forgotten the tube.
            if not self.is_gone(error) or not self.erase():
                raise
            return 0

    def erase(self) -> bool:
        """Forget the tube, and drop the table with what belongs to it, as far as it is there. Whether it was known.

        `drop` is for whoever has a tube; this is for what is left of one.
        """
        known = self._host.forget()  # first: to be known without a table is worse than a table that nobody knows
        self._queue.uninstall()  # of a table that is gone already Peewee drops nothing
        tables.drop(self.model)
        return known

    def grant(self, user: str, role: str, *, run: bool = True) -> list[str]:
        """Give a user of the database the rights of a "reader", "producer", "consumer" or "operator" of this tube.

        As the `grant` of a queue; and the right to find the tubes of the database. Returns the SQL.
        """
        with self._calls:
            return [*self._queue.grant(user, role, run=run), *self._host.records.grant(user, "reader", run=run)]

    # looking

    def tasks_by_state(self, state: str) -> list[Task]:
        """The tasks in a state, in the order of a take: "r", "t", "~", "!"; "-" where kept. Raises BadValue."""
        with self._calls:
            if not isinstance(state, str) or (state not in LETTERS and state != GONE):
                raise BadValue(f"a task is in one of the states {' '.join([*LETTERS, GONE])}, not {shown(state)}")
            return self._in_state(state)

    def _in_state(self, state: str) -> list[Task]:
        letters = [letter for letter in LETTERS.get(state, ENDS) if letter in self._queue.machine.states]
        return [self._told(row) for letter in letters for row in self._queue.by_state(letter)]

    def statistics(self) -> dict[str, dict[str, int]]:
        """The tasks in each state, and the calls, by all processes since the tube was created; exact at each commit.

        `done` are those that were acked, deleted, or whose ttl passed.
        """
        with self._looks:
            found = self._queue.stats()
        events = Counter(found.events)

        def ended_by(*names: str) -> int:
            """How many tasks; not those that were kept when they had ended already."""
            moves = [move for name in names for move in found.by_event.get(name, {}).items()]
            return sum(n for move, n in moves if move[0] in LETTERS.values() and move[-1] in ENDS)

        expired = ended_by("ttl", "lifetime")  # a deadline gives a taken task back and deletes others, as one event
        calls = {name: events[name] for name in CALLS} | {
            "delete": events["kill"],
            "kick": events["dig"],
            "release": events["release"] + events["died"] + events["snatch"],
            "ttl": expired,
            "ttr": events["ttr"] + events["ttl"] + events["lifetime"] - expired,
        }
        tasks = {name: found.counts.get(letter, 0) for name, letter in NAMES.items()}
        done = ended_by("ack", "kill") + expired
        return {"tasks": {**tasks, "done": done, "total": sum(found.counts.values())}, "calls": calls}

    # observing

    def on_task_change(self, call: OnChange | None = None) -> OnChange | None:
        """Have this called with (task, event) after each change that this process makes, when it is committed.

        The events: put, take, touch, release, bury, kick, delete (of an ack as well), ttl, ttr, delay. Returns what was
        called so far; None ends it. An exception is logged. It is not stored, and of this process.
        """
        if call is not None and not callable(call):
            raise BadType(f"on_task_change takes a function, not {shown(call)}")
        former, self._on_change = self._on_change, call
        self._observe(call is not None)
        return former

    def _observe(self, anybody: bool) -> None:
        (self._queue.on_change if anybody else self._queue.off_change)(self._heard)

    def _heard(self, row: Any, event: str, source: str, target: str) -> None:
        if event == "lifetime":
            event = "ttl" if target == "X" else "ttr"
        told = TOLD.get(event, event)
        call = self._on_change
        if call is not None and told:
            call(self._told(row, GONE if target in ENDS else ""), told)

    def _told(self, row: Any, state: str = "") -> Task:
        return Task(row.id, state or (GONE if row.status in ENDS else STATES.get(row.status, row.status)), read(row))


def is_nothing(seconds: object) -> bool:
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds == 0


def task_id(task: object) -> object:
    """The id of a task that is named by it, or by itself."""
    return task.id if isinstance(task, Task) else task


def is_text(text: str) -> bool:
    """Whether every database holds it as it is: half of a surrogate pair is no text."""
    return fits_a_column(text) and text.encode(errors="replace").decode() == text


def _name_of_utube(utube: object) -> str:
    if isinstance(utube, bool):
        return "true" if utube else "false"
    if not isinstance(utube, (str, int, float)):
        raise BadType(f"a utube is named by text, or by a number, not by {shown(utube)}")
    try:
        name = str(utube)
    except ValueError:  # thousands of digits
        name = ""
    if not (name or utube == "") or len(name) > LONGEST_UTUBE or not is_text(name):
        raise BadValue(f"a utube is named by text of at most {LONGEST_UTUBE} characters, not by {shown(utube)}")
    return name
