"""Tubes whose tasks a class of the application's own keeps: its methods, with waiting and owners added."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from xq.adapters import tubes as tables
from xq.adapters.tubes import Record
from xq.core.errors import (
    BadType,
    BadValue,
    ConfigurationError,
    FeatureOff,
    InTransaction,
    NotFound,
    NotOwner,
    WrongState,
    shown,
)
from xq.core.ports import fits_a_column
from xq.runtime.waiters import ALONE, Deadline
from xq.sessions import session as sessions
from xq.tubes.arguments import by_name
from xq.tubes.tube import CALLS, GONE, LETTERS, NAMES, STATES, Host, Task, Tube, is_nothing, is_text, task_id

MAKES: Final = ("create_space", "new")
METHODS: Final = (
    "normalize_task",
    "put",
    "take",
    "delete",
    "release",
    "bury",
    "kick",
    "peek",
    "touch",
    "truncate",
    "tasks_by_state",
)
LOOKS: Final = ALONE  # seconds between two looks for what another process has put

log = logging.getLogger("xq")


def lacking(found: object, wanted: tuple[str, ...]) -> list[str]:
    return [name for name in wanted if not callable(getattr(found, name, None))]


@dataclass
class Hold:
    """That a session has taken a task. Where the transaction is rolled back, what was before holds again."""

    session: str
    before: Hold | None
    within: object  # the transaction, until it is committed

    def keep(self) -> None:
        self.before = self.within = None


class Driven(Tube):
    """A tube of a class: the same methods as those of any tube, by way of the object that the class makes.

    Who has taken a task is known to this process: who else has taken it may not finish it here. The end of a session
    gives back what it has taken in this process; what a process that was killed had taken stays so until it is
    released by release_all. Statistics are this process's. What must be known beyond that the class keeps itself: best
    by upgrading the model that it makes.
    """

    def __init__(self, record: Record, driver: Any, database: Any, host: Host) -> None:
        super().__init__(record, driver.create_space(database, record.table, dict(record.options)), host)
        self._holds: dict[Any, Hold] = {}  # who has taken a task, by its id
        self._counted: Counter[str] = Counter()
        self._waiting = 0
        self._changes = threading.Condition()
        self._object = driver.new(self.model, self._changed, dict(record.options))
        if missing := lacking(self._object, METHODS):
            raise ConfigurationError(f"the driver {record.type!r} makes tubes that lack {', '.join(missing)}")
        self._call("start")
        sessions.of(database).holders.add(self)

    @property
    def is_awaited(self) -> bool:
        """Whether a call of this process waits in it for a task."""
        return self._waiting > 0

    def create(self) -> None:
        """The class has made the table."""

    def _call(self, name: str) -> None:
        """Call a method that there may be."""
        getattr(self._object, name, lambda: None)()

    def _told(self, row: Any, state: str = "") -> Task:
        return Task(*self._object.normalize_task(row))

    def _changed(self, row: Any, event: str) -> None:
        """What the object calls for each change."""
        if row is not None:
            task = self._told(row)
            held = self._holds.get(task.id) if event != "touch" else None
            self._host.records.adapter.after_commit(lambda: self._committed(task, event, held))

    def _committed(self, task: Task, event: str, held: Hold | None) -> None:
        self._forget(task.id, held)
        with self._changes:
            self._counted[event] += 1
            if task.state == "r":
                self._changes.notify()
        if self._on_change is not None:
            try:
                self._on_change(task, event)
            except Exception:  # the change is true already
                log.exception("on_task_change: %r failed for %s", self._on_change, event)

    def _forget(self, id: Any, held: Hold | None) -> None:
        """A task is not held so any more; it may be held anew."""
        if held is not None and self._holds.get(id) is held:
            self._holds.pop(id, None)

    def _forget_all(self, holds: Mapping[Any, Hold]) -> None:
        for id, held in holds.items():
            self._forget(id, held)

    def _owner(self, id: Any) -> str | None:
        """The uuid of the session that has taken a task."""
        held, now = self._holds.get(id), tables.transaction(self.model)
        while held is not None and held.within not in (None, now):
            held = held.before
        return held.session if held else None

    def _named(self, id: object) -> tuple[Any, Task]:
        """The id of a task that is there, and the task. Raises NotFound, BadType, BadValue."""
        id = task_id(id)
        if isinstance(id, bool) or not isinstance(id, tables.key_types(self.model)):
            raise BadType(f"a task is named by its id, not by {shown(id)}")
        if not (fits_a_column(id) if isinstance(id, int) else not isinstance(id, str) or is_text(id)):
            raise BadValue(f"no task has the id {shown(id)}")
        try:
            row = self._object.peek(id)
        except (TypeError, ValueError) as error:
            raise BadValue(f"no task has the id {shown(id)}: {error}") from error
        if row is None:
            raise NotFound(self.name, id)
        return id, self._told(row)

    def _mine(self, what: str, id: object) -> Any:
        """The id of a task that the current session has taken. Raises NotFound, WrongState, NotOwner."""
        id, task = self._named(id)
        if task.state != STATES["T"]:
            raise WrongState(what, id, LETTERS.get(task.state, task.state), ["T"], self._host.wording)
        owner = self._owner(id)
        if owner != self._host.session():
            raise NotOwner(what, id, owner, self._host.wording)
        return id

    @by_name
    def put(self, data: Any, **options: Any) -> Task | None:
        """Put a task, with the options that the class takes."""
        with self._calls:
            row = self._object.put(data, options)
            return None if row is None else self._told(row)

    @by_name
    def take(self, timeout: float | None = None) -> Task | None:
        """Take a task. Waits `timeout` seconds for one; None: for ever. None when there is none."""
        with self._calls:
            if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
                raise BadType(f"timeout is a number of seconds, not {shown(timeout)}")
            if timeout is not None and not timeout >= 0:
                raise BadValue(f"timeout is a number of seconds from 0 on, not {shown(timeout)}")
            if timeout != 0 and self._host.records.adapter.store.in_transaction():
                raise InTransaction("take", ", or say timeout=0")
            session, deadline = self._host.session(), Deadline(timeout)
            with self._changes:
                self._waiting += 1
            try:
                while (row := self._object.take()) is None and deadline.left > 0:
                    with self._changes:
                        self._changes.wait(min(LOOKS, deadline.left))
                    self._host.running.check()
            finally:
                with self._changes:
                    self._waiting -= 1
            if row is None:
                return None
            task = self._told(row)
            held = self._holds[task.id] = Hold(session, self._holds.get(task.id), tables.transaction(self.model))
            self._host.records.adapter.after_commit(held.keep)
            return task

    @by_name
    def take_many(self, n: int, timeout: float | None = None) -> list[Task]:
        """Take up to `n` tasks, as soon as there is one: each by a call of its own.

        If the driver fails after the first one, the error is logged, and those that were taken are returned; within a
        transaction the error is raised.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise BadType(f"a number of tasks is an integer, not {shown(n)}")
        if n < 0:
            raise BadValue(f"a number of tasks is not negative: {shown(n)}")
        found: list[Task] = []
        while len(found) < n:
            try:
                task = self.take(0 if found else timeout)
            except Exception as error:
                if not found or self._host.records.adapter.store.in_transaction():  # which the error may have undone
                    raise
                log.warning("take_many of %s ends with %d of %d tasks: %s", self.name, len(found), n, error)
                break
            if task is None:
                break
            found.append(task)
        return found

    @by_name
    def ack_many(self, ids: Iterable[object]) -> list[Task]:
        """ack, one after the other: what comes before the one that raises is done."""
        if isinstance(ids, (Task, str, bytes, Mapping)) or not isinstance(ids, Iterable):
            raise BadType(f"ack_many takes tasks, or their ids, not {shown(ids)}")
        return [self.ack(id) for id in ids]

    def worker(self, function: Any = None, **options: Any) -> Any:
        """Raises FeatureOff: workers are those of a queue."""
        raise FeatureOff(f"worker is of tubes that xq keeps, and {self.type} is a class of your own: call take and ack")

    def run(self, *, until_empty: bool = False, workers: int | None = None) -> None:
        """Raises FeatureOff, as `worker`."""
        self.worker()

    @by_name
    def ack(self, id: object) -> Task:
        """Say that a task, taken by this session, is done. Raises NotFound, WrongState, NotOwner."""
        with self._calls:
            done = self._told(self._object.delete(self._mine("ack", id)))
            self._host.records.adapter.after_commit(self._acked)
            return done

    def _acked(self) -> None:
        """What the object told as a delete was an ack."""
        with self._changes:
            self._counted.update({"ack": 1, "delete": -1})

    @by_name
    def release(self, id: object, **options: Any) -> Task:
        """Give a task, taken by this session, back. Raises NotFound, WrongState, NotOwner."""
        with self._calls:
            return self._told(self._object.release(self._mine("release", id), options))

    @by_name
    def touch(self, id: object, increment: float) -> Task:
        """Let a task, taken by this session, be taken `increment` seconds longer. Raises as `release`."""
        with self._calls:
            if is_nothing(increment):
                return self.peek(id)
            if isinstance(increment, bool) or not isinstance(increment, (int, float)):
                raise BadType(f"increment is a number of seconds, not {shown(increment)}")
            if not 0 < increment < float("inf"):
                raise BadValue(f"increment is a number of seconds from 0 on, not {shown(increment)}")
            return self._told(self._object.touch(self._mine("touch", id), increment))

    @by_name
    def peek(self, id: object) -> Task:
        """The task, unchanged. Raises NotFound."""
        with self._calls:
            return self._named(id)[1]

    @by_name
    def bury(self, id: object) -> Task:
        """Put a task aside until it is kicked. One that is buried stays so."""
        with self._calls:
            key, task = self._named(id)
            return task if task.state == STATES["B"] else self._told(self._object.bury(key))

    @by_name
    def kick(self, count: int = 1) -> Any:
        """Have so many buried tasks be ready. Returns what the class does: how many there were."""
        with self._calls:
            if isinstance(count, bool) or not isinstance(count, int):
                raise BadType(f"a number of tasks is an integer, not {shown(count)}")
            if not 0 <= count < 2**63:
                raise BadValue(f"a number of tasks is not negative: {shown(count)}")
            return self._object.kick(count)

    @by_name
    def delete(self, id: object) -> Task:
        """Delete a task."""
        with self._calls:
            return self._told(self._object.delete(self._named(id)[0]))

    def release_all(self) -> int:
        """Give every taken task back, whoever has taken it. Returns how many."""
        with self._calls:
            taken = self._in_state(STATES["T"])
            for task in taken:
                self._object.release(task.id, {})
            return len(taken)

    def give_back(self, session: str) -> None:
        """A session has ended: release what it has taken in this process."""
        for id, held in list(self._holds.items()):
            if self._owner(id) != session:
                continue
            try:
                row = self._object.peek(id)
                if row is not None and self._told(row).state == STATES["T"]:
                    self._object.release(id, {})
            except Exception:  # that of the class: the other tasks, and tubes, shall not suffer from it
                log.exception("task %r of the tube %s was not released at the end of its session", id, self.name)
            self._host.records.adapter.after_commit(partial(self._forget, id, held))

    def truncate(self) -> Any:
        """Delete every task."""
        with self._calls:
            holds = dict(self._holds)
            found = self._object.truncate()
            self._host.records.adapter.after_commit(partial(self._forget_all, holds))
            return found

    def _drop(self) -> int:
        if not (taken := len(self._in_state(STATES["T"]))):
            self.erase()
        return taken

    def stop(self) -> None:
        """As the class likes it."""
        self._call("stop")

    def erase(self) -> bool:
        """Forget the tube, and drop the table. Whether it was known."""
        self.stop()
        known = self._host.forget()
        tables.drop(self.model)
        return known

    def grant(self, user: str, role: str, *, run: bool = True) -> list[str]:
        """Raises FeatureOff: what rights a class needs xq does not know."""
        raise FeatureOff(f"grant is of tubes that xq keeps, and {self.type} is a class of your own: grant by plain SQL")

    def _in_state(self, state: str) -> list[Task]:
        return [] if state == GONE else [self._told(row) for row in self._object.tasks_by_state(state)]

    def statistics(self) -> dict[str, dict[str, int]]:
        """The tasks in each state, and the calls in this process since it opened the tube."""
        with self._looks:
            tasks = {name: len(self._in_state(STATES[letter])) for name, letter in NAMES.items()}
            calls = {name: self._counted[name] for name in CALLS}
            done = calls["ack"] + calls["delete"]
            return {"tasks": {**tasks, "done": done, "total": sum(tasks.values())}, "calls": calls}

    def _observe(self, anybody: bool) -> None:
        """The object tells of all that it changes."""
