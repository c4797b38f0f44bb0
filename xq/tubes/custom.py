"""Custom drivers: tubes whose tasks the application's class stores. xq adds waiting and owners."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

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
from xq.core.kinds import fits_a_column
from xq.core.options import count_of, seconds_of
from xq.database.database import Database
from xq.database.members import Member
from xq.runtime.sleep import UNATTENDED, Deadline
from xq.tubes import tables
from xq.tubes.arguments import by_name
from xq.tubes.tables import Record
from xq.tubes.tube import CALLS, GONE, LETTERS, NAMES, STATES, Host, Task, Tube, is_text, is_zero, task_id

FACTORY_METHODS: Final = ("create_space", "new")
METHODS: Final = (
    *("normalize_task", "put", "take", "delete", "release", "bury", "kick", "peek", "touch", "truncate"),
    "tasks_by_state",
)
POLL: Final = UNATTENDED  # seconds between two calls to the driver for tasks that another process has put

log = logging.getLogger("xq")


def missing_methods(found: object, wanted: tuple[str, ...]) -> list[str]:
    return [name for name in wanted if not callable(getattr(found, name, None))]


def _off(what: str) -> Callable[..., Any]:
    def off(self: CustomTube, *args: object, **options: object) -> NoReturn:
        raise FeatureOff(f"{what} needs a tube that xq stores; {self.type} is a custom driver: call take and ack")

    return off


class SessionTake(NamedTuple):
    """The session that has taken a task; each take has its own object."""

    session: str


class CustomTube(Tube, Member):
    """A tube of a custom driver, with the methods of every tube; it calls the object that the class makes.

    Only this process records which session has taken a task, and rejects the calls of other sessions. The end of a
    session releases the tasks that it took in this process. A killed process's tasks stay taken until release_all.
    A rollback does not change the owner. The statistics count this process only. It has no take_many, ack_many and
    workers. A class that needs more should upgrade its model.
    """

    def __init__(self, record: Record, driver: Any, database: Any, host: Host) -> None:
        super().__init__(record, driver.create_space(database, record.table, dict(record.options)), host)
        self._owners: dict[Any, SessionTake] = {}  # by a taken task's id
        self._counted: Counter[str] = Counter()
        self._waiting = 0
        self._changes = threading.Condition()
        self._object = driver.new(self.model, self._changed, dict(record.options))
        if missing := missing_methods(self._object, METHODS):
            raise ConfigurationError(f"the driver {record.type!r} makes tubes that lack {', '.join(missing)}")
        self._call_optional("start")
        self.database.join(self)

    @property
    def database(self) -> Database:
        return self._host.records.database

    @property
    def is_awaited(self) -> bool:
        """Whether a call in this process waits for a task in the tube."""
        return self._waiting > 0

    def create(self) -> None:
        """Do nothing: create_space has created the table."""

    def _call_optional(self, name: str) -> None:
        getattr(self._object, name, lambda: None)()

    def _task_of(self, row: Any, state: str = "") -> Task:
        return Task(*self._object.normalize_task(row))

    def _changed(self, row: Any, event: str) -> None:
        """Observe a change; the object calls this after each one."""
        if row is not None:
            task = self._task_of(row)
            owner = self._owners.get(task.id) if event != "touch" else None
            self.database.store.after_commit(lambda: self._committed(task, event, owner))

    def _committed(self, task: Task, event: str, owner: SessionTake | None) -> None:
        self._forget({task.id: owner})
        with self._changes:
            self._counted[event] += 1
            if task.state == "r":
                self._changes.notify()
        if self._on_change is not None:
            try:
                self._on_change(task, event)
            except Exception:  # the change is committed already
                log.exception("on_task_change: %r failed for %s", self._on_change, event)

    def _forget(self, owners: Mapping[Any, SessionTake | None]) -> None:
        """Forget these tasks' owners, unless they have been taken again since."""
        for id, owner in owners.items():
            if owner is not None and self._owners.get(id) is owner:
                self._owners.pop(id, None)

    def _existing(self, id: object) -> tuple[Any, Task]:
        """Return an existing task's id, and the task. Raises NotFound, BadType, BadValue."""
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
        return id, self._task_of(row)

    def _owned_id(self, what: str, id: object) -> Any:
        """Return the id of a task that the current session has taken. Raises NotFound, WrongState, NotOwner."""
        id, task = self._existing(id)
        if task.state != STATES["T"]:
            raise WrongState(what, id, LETTERS.get(task.state, task.state), ["T"], self._host.wording)
        owner = self._owners.get(id)
        if owner is None or owner.session != self._host.session():
            raise NotOwner(what, id, owner and owner.session, self._host.wording)
        return id

    @by_name
    def put(self, data: Any, **options: Any) -> Task | None:
        """Put a task with the options that the class supports."""
        row = self._object.put(data, options)
        return None if row is None else self._task_of(row)

    @by_name
    def take(self, timeout: float | None = None) -> Task | None:
        """Take a task, or return None if there is none within `timeout` seconds (None: wait without limit)."""
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        if timeout != 0 and self.database.store.in_transaction():
            raise InTransaction("take", ", or say timeout=0")
        session, deadline = self._host.session(), Deadline(seconds)
        with self._changes:
            self._waiting += 1
        try:
            while (row := self._object.take()) is None and deadline.left > 0:
                with self._changes:
                    self._changes.wait(min(POLL, deadline.left))
                self._host.running.check()
        finally:
            with self._changes:
                self._waiting -= 1
        if row is None:
            return None
        task = self._task_of(row)
        self._owners[task.id] = SessionTake(session)
        return task

    take_many, ack_many, worker, run = map(_off, ("take_many", "ack_many", "worker", "run"))

    @by_name
    def ack(self, id: object) -> Task:
        """Finish a task that this session has taken. Raises NotFound, WrongState, NotOwner."""
        done = self._task_of(self._object.delete(self._owned_id("ack", id)))
        self.database.store.after_commit(self._acked)
        return done

    def _acked(self) -> None:
        """Count an ack: the object has reported it as a delete."""
        with self._changes:
            self._counted.update({"ack": 1, "delete": -1})

    @by_name
    def release(self, id: object, **options: Any) -> Task:
        """Release a task that this session has taken. Raises NotFound, WrongState, NotOwner."""
        return self._task_of(self._object.release(self._owned_id("release", id), options))

    @by_name
    def touch(self, id: object, increment: float) -> Task:
        """Prolong, by `increment` seconds, how long a task may stay taken by this session. Raises as `release`."""
        if is_zero(increment):
            return self.peek(id)
        seconds = seconds_of("increment", increment, ends=True)
        return self._task_of(self._object.touch(self._owned_id("touch", id), seconds))

    @by_name
    def peek(self, id: object) -> Task:
        """Return the task, unchanged. Raises NotFound."""
        return self._existing(id)[1]

    @by_name
    def bury(self, id: object) -> Task:
        """Bury a task: it stays aside until it is kicked. A buried task stays unchanged."""
        key, task = self._existing(id)
        return task if task.state == STATES["B"] else self._task_of(self._object.bury(key))

    @by_name
    def kick(self, count: int = 1) -> Any:
        """Make up to `count` buried tasks ready. Returns what the class returns: the number of these tasks."""
        return self._object.kick(count_of(count))

    @by_name
    def delete(self, id: object) -> Task:
        """Delete a task, whatever its state."""
        return self._task_of(self._object.delete(self._existing(id)[0]))

    @by_name
    def release_all(self) -> int:
        """Release every taken task, whichever session has taken it. Returns how many."""
        taken = self._in_state(STATES["T"])
        for task in taken:
            self._object.release(task.id, {})
        return len(taken)

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release what ended sessions have taken in this process."""
        for id, owner in list(self._owners.items()):
            if owner.session not in uuids:
                continue
            try:
                row = self._object.peek(id)
                if row is not None and self._task_of(row).state == STATES["T"]:
                    self._object.release(id, {})
            except Exception:  # an error of the class must not stop the release of the other tasks and tubes
                log.exception("task %r of the tube %s was not released at the end of its session", id, self.name)
            self.database.store.after_commit(partial(self._forget, {id: owner}))

    @by_name
    def truncate(self) -> Any:
        """Delete every task."""
        owners = dict(self._owners)
        found = self._object.truncate()
        self.database.store.after_commit(partial(self._forget, owners))
        return found

    def _drop(self) -> int:
        if not (taken := len(self._in_state(STATES["T"]))):
            self.erase()
        return taken

    def stop(self) -> None:
        """Call the object's `stop`, if it has one."""
        self._call_optional("stop")

    def erase(self) -> bool:
        """Forget the tube and drop its table. Returns whether it was registered."""
        self.stop()
        known = self._host.forget()
        self.model.drop_table()
        return known

    def _in_state(self, state: str) -> list[Task]:
        return [] if state == GONE else [self._task_of(row) for row in self._object.tasks_by_state(state)]

    def statistics(self) -> dict[str, dict[str, int]]:
        """Return the tasks in each state, and this process's calls since it opened the tube."""
        with self._reads:
            tasks = {name: len(self._in_state(STATES[letter])) for name, letter in NAMES.items()}
            calls = {name: self._counted[name] for name in CALLS}
            done = calls["ack"] + calls["delete"]
            return {"tasks": {**tasks, "done": done, "total": sum(tasks.values())}, "calls": calls}

    def _observe(self, wanted: bool) -> None:
        """Do nothing: the object reports all its changes anyway."""
