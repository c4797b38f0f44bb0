"""Tubes whose tasks a class of the application's own keeps: its methods, with waiting and owners added."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from xq.adapters import tubes as tables
from xq.adapters.tubes import Record
from xq.errors import BadType, BadValue, ConfigurationError, NotOwner, TubeBusy, WrongState, shown
from xq.state import State
from xq.tube import CALLS, LETTERS, NAMES, STATES, OnChange, Task, task_id
from xq.wait import ALONE, Deadline

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


def lacking(found: object, wanted: tuple[str, ...]) -> list[str]:
    return [name for name in wanted if not callable(getattr(found, name, None))]


class Driven:
    """A tube of a class: the same methods as those of any tube, by way of the object that the class makes.

    Who has taken a task is known to this process, and forgotten with it, and so are the statistics. What must be kept
    beyond that the class keeps itself: best by upgrading the model that it makes.
    """

    def __init__(
        self,
        record: Record,
        driver: Any,
        database: Any,
        running: State,
        session: Callable[[], str],
        forget: Callable[[], None],
    ) -> None:
        self.name = record.name
        self.type = record.type
        self.options = MappingProxyType(dict(record.options))
        self.model = driver.create_space(database, record.table, dict(record.options))
        self._running = running
        self._session = session
        self._forget = forget
        self._owners: dict[Any, str] = {}  # the uuid of the session that has taken a task
        self._calls: Counter[str] = Counter()
        self._waiting = 0
        self._changes = threading.Condition()
        self._on_change: OnChange | None = None
        self._object = driver.new(self.model, self._changed, dict(record.options))
        if missing := lacking(self._object, METHODS):
            raise ConfigurationError(f"the driver {record.type!r} makes tubes that lack {', '.join(missing)}")
        self._call("start")

    def __repr__(self) -> str:
        return f"<xq tube {self.name} ({self.type})>"

    @property
    def is_awaited(self) -> bool:
        """Whether a call of this process waits in it for a task."""
        return self._waiting > 0

    def _call(self, name: str) -> None:
        """Call a method that there may be."""
        getattr(self._object, name, lambda: None)()

    def _told(self, task: Any) -> Task | None:
        return None if task is None else Task(*self._object.normalize_task(task))

    def _changed(self, task: Any, event: str) -> None:
        """What the object calls for each change."""
        told = self._told(task)
        if told is None:
            return
        with self._changes:
            if event != "touch":
                self._owners.pop(told.id, None)
            self._calls[event] += 1
            if told.state == "r":
                self._changes.notify()
        if self._on_change is not None:
            try:
                self._on_change(told, event)
            except Exception:  # the change is true already
                logging.getLogger("xq").exception("on_task_change: %r failed for %s", self._on_change, event)

    def _check_owner(self, what: str, id: Any) -> None:
        owner = self._owners.get(id)
        if owner is None:
            task = self._told(self._object.peek(id))
            state = "" if task is None else LETTERS.get(task.state, task.state)
            raise WrongState(what, id, state, ["T"])
        if owner != self._session():
            raise NotOwner(what, id, owner)

    def put(self, data: Any, **options: Any) -> Task | None:
        """Put a task, with the options that the class takes."""
        with self._running:
            return self._told(self._object.put(data, options))

    def take(self, timeout: float | None = None) -> Task | None:
        """Take a task. Waits `timeout` seconds for one; None: for ever. None when there is none."""
        with self._running:
            if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
                raise BadType(f"timeout is a number of seconds, not {shown(timeout)}")
            if timeout is not None and not timeout >= 0:
                raise BadValue(f"timeout is a number of seconds from 0 on, not {shown(timeout)}")
            session, deadline = self._session(), Deadline(timeout)
            with self._changes:
                self._waiting += 1
            try:
                while (task := self._told(self._object.take())) is None and deadline.left > 0:
                    with self._changes:
                        self._changes.wait(min(LOOKS, deadline.left))
                    self._running.check()
            finally:
                with self._changes:
                    self._waiting -= 1
            if task is not None:
                self._owners[task.id] = session
            return task

    def ack(self, id: object) -> Task | None:
        """Say that a task, taken by this session, is done. Raises WrongState, NotOwner."""
        with self._running:
            key = task_id(id)
            self._check_owner("ack", key)
            done = self._told(self._object.delete(key))
            with self._changes:
                self._calls.update({"ack": 1, "delete": -1})
            return done

    def release(self, id: object, **options: Any) -> Task | None:
        """Give a task, taken by this session, back. Raises WrongState, NotOwner."""
        with self._running:
            key = task_id(id)
            self._check_owner("release", key)
            return self._told(self._object.release(key, options))

    def touch(self, id: object, increment: float) -> Task | None:
        """Let a task, taken by this session, be taken `increment` seconds longer. Raises WrongState, NotOwner."""
        with self._running:
            key = task_id(id)
            self._check_owner("touch", key)
            return self._told(self._object.touch(key, increment))

    def peek(self, id: object) -> Task | None:
        """The task, unchanged."""
        with self._running:
            return self._told(self._object.peek(task_id(id)))

    def bury(self, id: object) -> Task | None:
        """Put a task aside until it is kicked."""
        with self._running:
            return self._told(self._object.bury(task_id(id)))

    def kick(self, count: int = 1) -> Any:
        """Have so many buried tasks be ready. Returns what the class does: how many there were."""
        with self._running:
            return self._object.kick(count)

    def delete(self, id: object) -> Task | None:
        """Delete a task."""
        with self._running:
            return self._told(self._object.delete(task_id(id)))

    def release_all(self) -> int:
        """Give every taken task back, whoever has taken it. Returns how many."""
        with self._running:
            taken = self.tasks_by_state("t")
            for task in taken:
                self._object.release(task.id, {})
            return len(taken)

    def truncate(self) -> Any:
        """Delete every task."""
        with self._running:
            with self._changes:
                self._owners.clear()
            return self._object.truncate()

    def drop(self) -> bool:
        """Delete the tube with its tasks. Returns True. Raises TubeBusy while tasks are taken, or calls wait here."""
        with self._running:
            if self._owners or self._waiting:
                raise TubeBusy(self.name, len(self._owners))
            self._call("stop")
            self._forget()
            tables.drop(self.model)
            return True

    def tasks_by_state(self, state: str) -> list[Task]:
        """The tasks in a state, in the order that the class gives them."""
        with self._running:
            return self._in_state(state)

    def _in_state(self, state: str) -> list[Task]:
        return [Task(*self._object.normalize_task(task)) for task in self._object.tasks_by_state(state)]

    def statistics(self) -> dict[str, dict[str, int]]:
        """The tasks in each state, and the calls in this process since it opened the tube."""
        tasks = {name: len(self._in_state(STATES[letter])) for name, letter in NAMES.items()}
        calls = {name: self._calls[name] for name in CALLS}
        done = calls["ack"] + calls["delete"]
        return {"tasks": {**tasks, "done": done, "total": sum(tasks.values())}, "calls": calls}

    def on_task_change(self, call: OnChange | None = None) -> OnChange | None:
        """Have this called with (task, event) after each change that the class tells of. Returns what was so far."""
        if call is not None and not callable(call):
            raise BadType(f"on_task_change takes a function, not {shown(call)}")
        former, self._on_change = self._on_change, call
        return former
