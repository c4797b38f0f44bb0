"""A group: tasks under a name, whose last end puts another task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, Unpack

from xq.core.acting import By, log_act
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import Row, T
from xq.core.machine import ENDED
from xq.core.options import PutManyOptions, PutOptions, Span
from xq.core.values import Key, chunks
from xq.engine.statements import PER_MOVE
from xq.runtime.graph import Graph
from xq.runtime.sleep import Wait, run_wait

if TYPE_CHECKING:
    from xq.parts import Parts

LONGEST_GROUP = 255  # characters in a name


class Stored(NamedTuple):
    """A group as the database has it."""

    sealed: int
    done: float | None  # seconds since 1970
    runs: int  # whether a buried member has ended
    then: str | None  # the SQL that the last end runs; "" if it was skipped
    total: int
    killed: int
    opened: float


class Groups(Protocol):
    """What the feature does for the groups of a queue."""

    def begin(self, name: str, runs: bool, then: str | None) -> None: ...
    def seal(self, name: str, n: int) -> None: ...
    def add(self, name: str, n: int) -> None: ...
    def grow(self, name: str, n: int) -> None: ...
    def follow(self, name: str, then: str | None) -> None: ...
    def forget(self, which: str) -> None: ...
    def of(self, row: Row) -> Any: ...
    def run(self, text: str) -> list[Row]: ...
    def stored(self, name: str) -> Stored: ...
    def states(self, name: str) -> dict[str, int]: ...
    def found(self, name: str, states: Collection[str]) -> list[tuple[Key, str]]: ...
    def graph(self, name: str) -> Graph: ...
    def stats_later(self, name: str) -> str: ...


class Group(Generic[T]):
    """A group of a queue's tasks: `Page.xq.group("import 7", then={"url": "report:7"})`.

    As a `with` block it begins the group, in one transaction: an error undoes all. The group is done when the block
    has ended and each member has: by an ack, a kill, an expiry or a deletion, in whatever program. The last end
    puts `then`, once: in its transaction on PostgreSQL and SQLite, and right after it on MariaDB. After a statement
    that is not xq's, on SQLite and MariaDB, the maintenance puts it within a second. A buried member keeps the
    group open, unless failed="run". Without a block it is a handle to a group that was begun. Put members by the
    group's own `put`: a task that is put otherwise with its name is one, too, but is missing in `total` when it has
    ended, and is not refused when the group is done. With `on` the block is part of a caller's transaction, and so
    is each call of a handle; calls after the block are on their own. A group is forgotten 30 days after it is done.
    Methods raise NotFound for an unknown name.
    """

    name: str

    def __init__(
        self,
        parts: Parts[T],
        name: str,
        then: object = None,
        failed: str | None = None,
        on: object = None,
    ) -> None:
        if not isinstance(name, str):
            raise BadType(f"a group is named by text, not by {shown(name)}")
        if not 0 < len(name) <= LONGEST_GROUP or "\0" in name:
            raise BadValue(f"a group has a name of 1 to {LONGEST_GROUP} characters, not {shown(name)}")
        if failed not in (None, "run"):
            raise BadValue(f"failed is 'run' (a buried member has ended) or left out, not {shown(failed)}")
        self.name = name
        self._parts, self._runs, self._on = parts, failed == "run", on
        self._then = None if then is None else self._target(then)
        self._groups: Groups = parts.groups
        self._put_in_block: int | None = None  # how many members the open block has put; None without one
        self._block = ExitStack()

    def __repr__(self) -> str:
        return f"<group {self.name!r} of {self._parts.store.name}>"

    # its members

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(kind, error, traceback)

    def begin(self, opens: bool = True) -> None:
        """Begin the block; without `opens` in the transaction that is open."""
        if self._put_in_block is not None:
            raise BadValue(f"the block of {self!r} has begun already")
        with ExitStack() as block:
            block.enter_context(self._joining())
            then = self._later()  # first: on MariaDB the locks of a trial would stay until the block ends
            if opens:
                self._parts.executor.begin(locks=True)
                block.enter_context(self._parts.store.atomic())
            self._groups.begin(self.name, self._runs, then)
            self._put_in_block, self._block = 0, block.pop_all()

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """End the block: seal the group, or with an error undo all. What is called later is no part of `on`."""
        put, self._put_in_block, self._on = self._put_in_block, None, None
        with self._block as block:
            if error is None:
                self._groups.seal(self.name, put or 0)
            else:
                block.pop_all().__exit__(kind, error, traceback)

    def _later(self) -> str | None:
        """Return the SQL that puts `then`. Raises as a put, and BadValue for a queue in another database."""
        if self._then is None:
            return None
        target, task, signal = self._then
        if target.executor.database is not self._parts.executor.database:
            raise BadValue(f"then goes to {target.store.name}, which is in another database than {self!r}")
        if signal is not None:
            text: str = target.brought_by("signal").later(task, signal, self._groups.stats_later(self.name))
            return text
        try:
            target.tasks.brought(task)
        except BadType as error:
            mine = self._parts.store.name
            raise BadType(f"then is a task of {mine}, or (Report, {{...}}) with another model: {error}") from None
        return target.inserts.later(task)

    def _target(self, then: Any) -> tuple[Parts[Any], object, str | None]:
        """Return the queue to which a `then` goes, the task, and for one that is there already the signal."""
        is_pair = isinstance(then, tuple) and len(then) == 2
        parts = getattr(getattr(then[0], "xq", then[0]), "parts", None) if is_pair else None
        if not parts:
            return self._parts, then, None
        return (parts, then[0], then[1]) if isinstance(then[1], str) else (parts, then[1], None)

    def _joining(self) -> AbstractContextManager[None]:
        is_joined = self._put_in_block is not None  # by the block, in its thread
        return nullcontext() if self._on is None or is_joined else self._parts.store.joining(self._on)

    def put(self, task: object, **options: Unpack[PutOptions]) -> T:
        """Put a member, as `Queue.put`: in the block, or into a group that is open."""
        return self.put_many([task], **options)[0]

    def put_many(self, tasks: Iterable[object], **options: Unpack[PutManyOptions]) -> list[T]:
        """Put members, as `Queue.put_many`: in the block, or into an open group. Raises NotFound and BadValue.

        Raises BadValue in another thread than the open block's.
        """
        if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):
            raise BadType(f"put_many takes tasks, not {type(tasks).__name__}: {shown(tasks)}")
        mine = [self._as_member(task) for task in tasks]
        skips = options.get("on_conflict") == "skip"

        def put() -> tuple[list[T], int]:
            found: list[Row] = []
            those = self._parts.inserts.put_many(mine, options, found)
            return those, sum(skips or self._groups.of(row) == self.name for row in found)

        if self._put_in_block is not None:
            if not self._parts.store.in_transaction():
                raise BadValue(
                    f"the block of {self!r} is another thread's, whose transaction this put is no part of: put from "
                    "that thread, or end the block first"
                )
            those, old = put()
            self._put_in_block += len(those) - old
            return those

        def add() -> list[T]:
            self._groups.add(self.name, len(mine))
            those, old = put()
            if old:
                self._groups.grow(self.name, -old)
            return those

        with self._joining():
            return self._parts.executor.transaction(add)

    @property
    def then(self) -> str | None:
        """The SQL that puts `then`; "" if it was skipped, None without one.

        Set another task, as in `Queue.group`, or None, for an open group. Raises BadValue if it is done.
        """
        with self._joining(), self._parts.store.bookkeeping():
            return self._groups.stored(self.name).then

    @then.setter
    def then(self, then: object) -> None:
        self._then = None if then is None else self._target(then)
        with self._joining():
            later = self._later()
            self._parts.executor.transaction(partial(self._groups.follow, self.name, later))

    def _as_member(self, task: object) -> object:
        store, field = self._parts.store, self._parts.tasks.table.roles["group"].name
        if store.data(task) is not None:
            setattr(task, field, self.name)
            return task
        return {**self._parts.tasks.brought(task), field: self.name}

    # how it stands

    def stats(self) -> dict[str, int]:
        """Return how many members are in each state that is no end, and how many are "done", "failed", in "total".

        Failed are the buried ones, and those that went otherwise than by an ack. They are those of its last use.
        "done" is a number of members: the property `done` says whether the group is done. With "skipped": 1 its `then`
        was left out: another task had its unique value, or the task to be signalled had ended.
        """
        with self._joining(), self._parts.store.bookkeeping():
            group, states = self._groups.stored(self.name), self._groups.states(self.name)
        left = group.killed + sum(states.values())
        total = max(group.total, left)  # a member that was put otherwise is not in the group's own number
        failed, skipped = group.killed + states.get("B", 0), {"skipped": 1} if group.then == "" else {}
        return {**states, "done": total - left, "failed": failed, "total": total, **skipped}

    @property
    def failed(self) -> int:
        """How many members are buried, or were killed, dropped or deleted."""
        return self.stats()["failed"]

    @property
    def done(self) -> bool:
        """Whether the group is done: no member is left, and its `then` is put, or was skipped as `stats` says."""
        with self._joining(), self._parts.store.bookkeeping():
            return self._groups.stored(self.name).done is not None

    def graph(self) -> str:
        """Return the members and what they wait for as Mermaid's text, "graph TD": at most 500 tasks.

        An arrow leads from a parent to its dependant, until that is released.
        """
        with self._joining():
            self._groups.stored(self.name)
            return self._groups.graph(self.name).mermaid(self._parts.tasks)

    def wait(self, timeout: Span = None) -> bool:
        """Wait until the group is done, up to `timeout` seconds (None: without limit). Return whether it is.

        Raises InTransaction.
        """
        with self._joining():
            return run_wait(self.waiting(timeout))

    def waiting(self, timeout: Span = None) -> Wait[bool]:
        """Return the generator of `wait`."""
        waiting = self._parts.waiting
        return waiting.until("wait", waiting.seconds(timeout), lambda: self.done)

    # what operators do

    def pause(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """Have takes skip the ready members, also of the name's next use, until `resume` or the group is forgotten."""
        self._pause("pause", By.of(actor, reason))

    def resume(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """End a pause, and wake the callers that wait. Does nothing if the group is not paused."""
        self._pause("resume", By.of(actor, reason))

    def _pause(self, event: str, by: By) -> None:
        with self._joining():
            self._groups.stored(self.name)
            self._parts.pauses.change(event, None, by, self.name)
            if by:
                log_act(self._parts.store, by, f"{event} the group {self.name}")

    @property
    def paused(self) -> bool:
        """Whether takes skip its ready members."""
        with self._joining():
            return any(pause.group == self.name for pause in self._parts.pauses.all())

    def dig(self) -> int:
        """Dig the buried members, in chunks, and return their number."""
        with self._joining():
            return self._act("dig", ("B",))

    def kill(self) -> int:
        """Kill the members that have not ended, in chunks, and return their number. The last one puts `then`."""
        states = [state for state in self._parts.definition.machine.states if state not in ENDED]
        with self._joining():
            return self._act("kill", states)

    def _act(self, event: str, states: Sequence[str]) -> int:
        executor, several = self._parts.executor, self._parts.several
        executor.begin(locks=True)
        self._groups.stored(self.name)
        several.checked(event, {})  # raises FeatureOff
        batches = chunks(self._groups.found(self.name, states), PER_MOVE)
        return sum(executor.transaction(partial(several.those, event, batch, states, {})) for batch in batches)
