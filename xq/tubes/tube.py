"""One tube of `xq.Tubes`. Its methods call its queue's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from xq.api import Queue
from xq.core.errors import BadType, BadValue, FeatureOff, Full, NotInstalled, TubeBusy, TubeDropped, is_number, shown
from xq.core.kinds import OUTCOME_UNKNOWN, ErrorKind, fits_a_column
from xq.core.machine import EXPIRIES
from xq.core.tokens import OUTAGE, owner_of
from xq.core.words import Wording, called
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.tubes.arguments import by_name
from xq.tubes.state import State
from xq.tubes.tables import Record, TubeRecords
from xq.tubes.types import lacks
from xq.tubes.types import pri as checked_pri
from xq.workers.options import Options
from xq.workers.program import add_worker

STATES: Final[Mapping[str, str]] = {"R": "r", "T": "t", "W": "~", "B": "!"}
LETTERS: Final = {state: letter for letter, state in STATES.items()}
GONE: Final = "-"
ENDS: Final = "DZX"  # done and kept, kept for a while, or deleted: tubes show all of these as "-"
NAMES: Final = {"ready": "R", "taken": "T", "delayed": "W", "buried": "B"}  # the states' names in the statistics

LONGEST_UTUBE: Final = 500  # characters: an index of PostgreSQL holds at most 2,700 bytes of text
CALLS: Final = ("ack", "bury", "delay", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr")

# Event names where a tube's differs from its queue's; "" reports nothing.
REPORTED_AS: Final[Mapping[str, str]] = {
    "died": "release",
    OUTAGE: "release",
    "max_takes": "bury",
    "snatch": "release",
    "dig": "kick",
    "kill": "delete",
    "ack": "delete",
    "truncate": "",
}


class Task(NamedTuple):
    """A task in a tube. Its state is "r" ready, "t" taken, "~" delayed, "!" buried, or "-" done or deleted."""

    id: int
    state: str
    data: Any


OnChange = Callable[[Task, str], object]


def stored(data: object) -> dict[str, Any]:
    """Return the columns that store the data: JSON in one, or bytes in the other. Raises BadType and BadValue."""
    try:
        if isinstance(data, (bytes, bytearray, memoryview)):
            return {"raw": bytes(data)}
        _check_keys(data)
        return {} if data is None else {"data": json.dumps(data, allow_nan=False, separators=(",", ":"))}
    except TypeError as error:
        raise BadType(f"{shown(data)} is neither a JSON value nor bytes: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{shown(data)} is neither a JSON value nor bytes: {error}") from error


def _check_keys(data: object) -> None:
    """Raise TypeError for a key that is not text: JSON would convert it, and so change the data."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is not text")
            _check_keys(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            _check_keys(value)


def read(row: Any) -> Any:
    """Return a row's data. Text that is not JSON was written by another program and is returned unchanged."""
    if row.raw is not None:
        return bytes(row.raw)
    try:
        return None if row.data is None else json.loads(row.data)
    except ValueError:
        return row.data


@dataclass(frozen=True)
class TubeWording(Wording):
    """The words in a tube's messages: tube states and calls, and types in place of features."""

    type: str = ""
    types: Mapping[str, Any] = field(default_factory=dict)  # the registered types: presets, and classes

    names: ClassVar = {letter: name for name, letter in NAMES.items()} | dict.fromkeys(ENDS, "done")
    signs: ClassVar = {**STATES, **dict.fromkeys(ENDS, GONE)}

    def owner(self, token: str | None) -> str:
        if token is None:
            return "an unknown owner (plain SQL?); release_all() releases every taken task"
        uuid, _ = owner_of(token)
        return f"another session ({uuid}), which identify({uuid!r}) joins"

    def lacks(self, queue: str, event: str, option: str, features: Sequence[str]) -> str:
        return lacks(called(REPORTED_AS.get(event, event), option), features, self.type, self.types)


@dataclass(frozen=True)
class Host:
    """What a tube needs from the database that it belongs to."""

    running: State
    records: TubeRecords
    session: Callable[[], str]  # returns the current session's uuid, after registering it
    forget: Callable[[], bool]  # deletes the tube's record; returns whether it existed
    wording: TubeWording


class Calls:
    """A context around each call to a tube. Raises NotRunning, and TubeDropped for a dropped tube's errors."""

    def __init__(self, tube: Tube, running: State | None) -> None:
        self._tube = tube
        self._running = running  # None for calls that only read

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
    """One tube: `Tubes.create_tube` and `queue.tube["name"]` return it.

    Its methods return tasks as (id, state, data), in the state after the call. Methods accept an id, or a returned
    task. Times are seconds; math.inf means never.

    Every method may raise FeatureOff for what the tube's type lacks, BadType, BadValue, NotFound, WrongState,
    NotOwner, and TubeDropped. While the database is read-only every method but statistics() raises NotRunning.

    `name`, `type` and `options` are those of `create_tube`. `model` is its table's model, and `model.xq` the
    queue: `waiting()`, `taken()` and `sessions()` show the waiters, the owners and the open sessions.
    """

    def __init__(self, record: Record, model: Any, host: Host, features: Collection[str] = ()) -> None:
        self.name = record.name
        self.type = record.type
        self.options = MappingProxyType(dict(record.options))
        self.model = model
        self._host = host
        self._features = frozenset(features)
        self._calls = Calls(self, host.running)
        self._reads = Calls(self, None)
        self._on_change: OnChange | None = None

    def __repr__(self) -> str:
        return f"<xq tube {self.name} ({self.type})>"

    @property
    def _queue(self) -> Queue[Any]:
        found: Queue[Any] = self.model.xq
        return found

    @property
    def maintenance(self) -> QueueMaintenance:
        """The part of the maintenance thread that belongs to this tube."""
        return self._queue.parts.maintenance

    @property
    def is_awaited(self) -> bool:
        """Whether a call in this process waits for a task, or for room."""
        return self._queue.parts.waiters.anybody

    def create(self) -> None:
        """Create the tube's table and objects in the database."""
        self.model.create_table()

    def stop(self) -> None:
        """Stop using the tube in this process."""

    def is_gone(self, error: BaseException) -> bool:
        """Return whether the tube was dropped, which may have caused an error."""
        store = self._host.records.database.store
        if not isinstance(error, NotInstalled) and store.classify(error) in OUTCOME_UNKNOWN:
            return False
        try:
            return not self.model.table_exists()
        except Exception as another:
            if store.classify(another) is ErrorKind.NOT_DATABASE:
                raise
            return False  # in PostgreSQL an error ends the transaction, and no further query can run in it

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
        """Put a task with this data: a JSON value, or bytes. It is ready, or delayed for `delay` seconds.

        - `pri`: a lower number is taken first.
        - `ttl`: the seconds that the task lives, from the end of its delay.
        - `ttr`: the seconds for which a worker may hold it.
        - `utube`: the name of its sub-queue, stored as text; "nil" by default.
        - `timeout`: the seconds to wait for room in a tube with a capacity (None: do not wait).

        Returns the task, or None if the tube has no room.
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
        if timeout is not None or "limit" in self._features:  # which else the queue refuses
            options["timeout"] = 0 if timeout is None else timeout
        try:
            return self._task_of(self._queue.put(task, **options))
        except Full:
            return None

    def _needs(self, feature: str, option: str) -> None:
        if feature not in self._features:
            raise FeatureOff(self._host.wording.lacks(self.name, "put", option, [feature]), feature=feature)

    def _delayed(self, options: Mapping[str, Any], delay: float | None) -> dict[str, Any]:
        """Return the options that a call gave, with the delay. A delay of 0 is left out."""
        given = {name: value for name, value in options.items() if value is not None}
        if delay is not None and not ("delayed" in self._features and is_zero(delay)):
            given["delay"] = delay
        return given

    @by_name
    def take(self, timeout: float | None = None) -> Task | None:
        """Take the first ready task, by lowest pri and then lowest id. Returns None if there is none.

        Waits up to `timeout` seconds for a task (None: without limit). A sub-queue with a taken task is skipped.
        """
        found = self._queue.take(timeout)
        return None if found is None else self._task_of(found)

    @by_name
    def take_many(self, n: int, timeout: float | None = None) -> list[Task]:
        """Take up to `n` ready tasks in `take`'s order. Waits, as `take` does, until there is at least one."""
        return [self._task_of(row) for row in self._queue.take_many(n, timeout)]

    @by_name
    def ack(self, id: object) -> Task:
        """Finish a task that this session has taken: it is deleted."""
        return self._task_of(self._queue.ack(task_id(id)), GONE)

    @by_name
    def ack_many(self, ids: Iterable[object]) -> list[Task]:
        """Ack all of the tasks or none, in one transaction."""
        if isinstance(ids, (Task, str, bytes, Mapping)) or not isinstance(ids, Iterable):
            raise BadType(f"ack_many takes tasks, or their ids, not {shown(ids)}")
        return [self._task_of(row, GONE) for row in self._queue.ack_many([task_id(id) for id in ids])]

    @by_name
    def release(self, id: object, *, delay: float | None = None) -> Task:
        """Release a task that this session has taken: it is ready, or delayed for `delay` seconds.

        A delay prolongs its ttl.
        """
        return self._task_of(self._queue.release(task_id(id), **self._delayed({}, delay)))

    @by_name
    def touch(self, id: object, increment: float) -> Task:
        """Prolong a task's ttr and ttl by `increment` seconds. This session must have taken the task.

        0 changes nothing and counts no touch. A task without a time limit stays without one. Raises BadValue for a
        negative number.
        """
        if is_zero(increment) and self._queue.machine.options("touch"):
            return self.peek(id)
        return self._task_of(self._queue.touch(task_id(id), increment))

    def worker(self, function: Any = None, **options: Any) -> Any:
        """Make `run` call this function with each Task: `@tube.worker(workers=4)`. The options are `Queue.worker`'s."""
        return add_worker(self._queue, function, Options(**options), self._task_of)

    @by_name
    def run(self, *, until_empty: bool = False, workers: int | None = None) -> None:
        """Run the worker until SIGTERM or SIGINT, or with `until_empty` until the tube is empty; as `Queue.run`."""
        self._queue.run(until_empty=until_empty, workers=workers)

    @by_name
    def peek(self, id: object) -> Task:
        """Return the task, unchanged. Raises NotFound."""
        return self._task_of(self._queue.peek(task_id(id)))

    @by_name
    def bury(self, id: object) -> Task:
        """Bury a task, whatever its state and its owner: it stays aside until it is kicked.

        A buried task stays unchanged, and on_task_change is not called.
        """
        return self._task_of(self._queue.bury(task_id(id)))

    @by_name
    def kick(self, count: int = 1) -> int:
        """Make up to `count` buried tasks ready, in the order of a take. Returns how many."""
        if count is None:  # which means all for a queue
            raise BadType("a number of tasks is an integer, not None")
        return len(self._queue.dig(n=count))

    @by_name
    def delete(self, id: object) -> Task:
        """Delete a task, whatever its state and its owner."""
        return self._task_of(self._queue.kill(task_id(id)), GONE)

    @by_name
    def release_all(self) -> int:
        """Release every taken task, whichever session has taken it. Returns how many."""
        return self._queue.release_all()

    @by_name
    def truncate(self) -> int:
        """Delete every task. Returns how many. Calls no on_task_change and counts no call."""
        return self._queue.truncate("truncate")

    @by_name
    def drop(self) -> bool:
        """Drop the tube with its tasks and return True.

        Raises TubeBusy while tasks are taken, or calls wait in the tube.

        The drop is atomic: it waits for transactions that put or move tasks, and other processes' calls meanwhile
        wait and then raise TubeDropped. Outside a transaction it reaps orphaned tasks first. MariaDB does not allow it
        within a transaction.
        """
        if (awaited := self.is_awaited) or (taken := self._drop()):
            raise TubeBusy(self.name, 0 if awaited else taken)
        return True

    def _drop(self) -> int:
        """Drop the table and forget the tube unless tasks are taken. Returns the number of taken tasks."""
        try:
            return self._queue.parts.maintenance.drop(self.erase)
        except Exception as error:
            # On MariaDB a killed process may have dropped the table and left the record.
            if not self.is_gone(error) or not self.erase():
                raise
            return 0

    def erase(self) -> bool:
        """Delete the tube's record, and as far as they exist its table and objects. Returns whether the record existed.

        `drop` is the public method; this one also removes a tube's remains.
        """
        known = self._host.forget()  # first: a table without a record does less harm than a record without a table
        self._queue.uninstall()  # Peewee drops nothing of a missing table
        self.model.drop_table()
        return known

    @by_name
    def tasks_by_state(self, state: str) -> list[Task]:
        """Return the tasks in a state ("r", "t", "~", "!", or "-" if they are kept), in the order of a take.

        Raises BadValue.
        """
        if not isinstance(state, str) or (state not in LETTERS and state != GONE):
            raise BadValue(f"a task is in one of the states {' '.join([*LETTERS, GONE])}, not {shown(state)}")
        return self._in_state(state)

    def _in_state(self, state: str) -> list[Task]:
        letters = [letter for letter in LETTERS.get(state, ENDS) if letter in self._queue.machine.states]
        return [self._task_of(row) for letter in letters for row in self._queue.by_state(letter)]

    def statistics(self) -> dict[str, dict[str, int]]:
        """Return the tasks in each state, and all processes' calls since the tube was created.

        The numbers are exact at each commit. `done` counts the tasks that were acked, deleted, or dropped by their ttl.
        """
        with self._reads:
            found = self._queue.stats()
        events = Counter(found.events)

        def ended_by(*names: str) -> int:
            """Return how many tasks ended, without counting kept tasks a second time."""
            moves = [move for name in names for move in found.by_event.get(name, {}).items()]
            return sum(n for move, n in moves if move[0] in LETTERS.values() and move[-1] in ENDS)

        # a deadline releases a taken task and deletes others, both as the event lifetime
        expired = ended_by(*EXPIRIES)
        calls = {name: events[name] for name in CALLS} | {
            "delete": events["kill"],
            "bury": events["bury"] + events["max_takes"],
            "kick": events["dig"],
            "release": events["release"] + events["died"] + events[OUTAGE] + events["snatch"],
            "ttl": expired,
            "ttr": events["ttr"] + sum(events[name] for name in EXPIRIES) - expired,
        }
        tasks = {name: found.counts.get(letter, 0) for name, letter in NAMES.items()}
        done = ended_by("ack", "kill") + expired
        return {"tasks": {**tasks, "done": done, "total": sum(found.counts.values())}, "calls": calls}

    def on_task_change(self, call: OnChange | None = None) -> OnChange | None:
        """Call `call` with (task, event) after each change that this process makes, once it is committed.

        The events are put, take, touch, release, bury, kick, delete (also for an ack), ttl, ttr and delay. Returns the
        previous callback; None removes it. The callback's exceptions are logged. It belongs to this process only.
        """
        if call is not None and not callable(call):
            raise BadType(f"on_task_change takes a function, not {shown(call)}")
        former, self._on_change = self._on_change, call
        self._observe(call is not None)
        return former

    def _observe(self, wanted: bool) -> None:
        (self._queue.on_change if wanted else self._queue.off_change)(self._observed)

    def _observed(self, row: Any, event: str, source: str, target: str) -> None:
        if event == "lifetime":
            event = "ttl" if target == "X" else "ttr"
        reported = REPORTED_AS.get(event, event)
        call = self._on_change
        if call is not None and reported:
            call(self._task_of(row, GONE if target in ENDS else ""), reported)

    def _task_of(self, row: Any, state: str = "") -> Task:
        return Task(row.id, state or (GONE if row.status in ENDS else STATES.get(row.status, row.status)), read(row))


def is_zero(seconds: object) -> bool:
    return is_number(seconds) and seconds == 0


def task_id(task: object) -> object:
    """Return a Task's id, or the argument itself."""
    return task.id if isinstance(task, Task) else task


def is_text(text: str) -> bool:
    """Return whether every database can hold the text unchanged.

    It cannot hold a zero byte or half of a surrogate pair.
    """
    return fits_a_column(text) and text.encode(errors="replace").decode() == text


def _name_of_utube(utube: object) -> str:
    if isinstance(utube, bool):
        return "true" if utube else "false"
    if not isinstance(utube, (str, int, float)):
        raise BadType(f"a utube is named by text, or by a number, not by {shown(utube)}")
    try:
        name = str(utube)
    except ValueError:  # Python refuses to convert thousands of digits
        name = ""
    if not (name or utube == "") or len(name) > LONGEST_UTUBE or not is_text(name):
        raise BadValue(f"a utube is named by text of at most {LONGEST_UTUBE} characters, not by {shown(utube)}")
    return name
