"""The groups of one queue, whose members are its tasks: how they begin, grow and end."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from xq.core import time
from xq.core.compile import Statement
from xq.core.errors import BadValue, Duplicate, NotFound, shown
from xq.core.kinds import REFUSALS, Row
from xq.core.values import Key
from xq.engine.executor import Begun
from xq.engine.pauses import Pauses
from xq.engine.settle import Settler
from xq.engine.statements import PER_MOVE, Statements
from xq.features.groups.postgres import SKIPPED
from xq.features.groups.slice import GroupsSlice
from xq.runtime.graph import MOST, Graph, graph_of
from xq.runtime.group import Stored

FORGET_EVERY: Final = 3600.0  # seconds between two looks for groups that have been done for long
FAILED: Final = "the then of the group %r fails, and is tried again (has a taken task its unique value?): %s"
THENS: Final = {"INSERT": "put", "UPDATE": "signal"}  # the event of a `then`, by its first word
OPEN: Final = ": take another name, or add to it by group(name).put_many()"


class Groups(Settler):
    """One queue's groups. Triggers end them on PostgreSQL, and this on other databases, as a settler."""

    def __init__(self, statements: Statements, pauses: Pauses) -> None:
        self.pauses = pauses
        self.executor = statements.executor
        self.tasks = statements.tasks
        self.settling = statements.settling
        self.log = logging.getLogger(f"xq.{statements.store.name}")
        self._place = self.tasks.table.fields.index(self.tasks.table.roles["group"])
        self._looked_at = ""  # the name of the last group in the last look
        self._forget_at = 0.0
        self._failing: dict[str, str] = {}  # why the `then` of groups could not be put, as logged

    def run(self, text: str, begun: Begun | None = None, /, **values: Any) -> list[Row]:
        """Run a text of groups.sql."""
        begun = begun or self.executor.begin_look()
        slice: GroupsSlice = begun[1].dialect.slice_of[GroupsSlice]
        return self.executor.run(slice.texts[text], values, begun)

    def stored(self, name: str, *, locked: bool = False) -> Stored:
        """Return a group; `locked` until the transaction ends. Raises NotFound."""
        if not (found := self.run("lock_group" if locked else "group", group=name)):
            raise NotFound(self.tasks.store.name, name, what="group")
        return Stored(*found[0])

    def of(self, row: Row) -> Any:
        """Return the name of a task's group, by its row. None if it has none."""
        return row[self._place]

    def states(self, name: str) -> dict[str, int]:
        """Return how many unfinished members a group has, by the states of the queue."""
        dialect, found = self.executor.dialect, self.run("states_of_group", group=name)
        slice: GroupsSlice = dialect.slice_of[GroupsSlice]
        return dict.fromkeys(slice.states, 0) | {dialect.letters[status]: int(n) for status, n in found}

    def found(self, name: str, states: Collection[str]) -> list[tuple[Key, str]]:
        """Return the keys of a group's unfinished members in these states, each with its state."""
        dialect, found = self.executor.dialect, dict[Key, str]()
        # The application's transaction may see an old snapshot. A locking read, by an index on states, would miss those
        # alone that move meanwhile to a state that it has read.
        afresh = dialect.afresh if self.executor.store.in_transaction() else ""
        slice: GroupsSlice = dialect.slice_of[GroupsSlice]
        for text in dict.fromkeys(slice.texts["members_of_group"] + how for how in ("", afresh)):
            rows = self.executor.run(text, {"group": name})
            found |= {tuple(parts): dialect.letters[status] for *parts, status in rows}
        return [(parts, state) for parts, state in found.items() if state in states]

    def graph(self, name: str) -> Graph:
        """Return the graph of a group's first members, by their keys."""
        slice: GroupsSlice = self.executor.dialect.slice_of[GroupsSlice]
        rows = self.run("first_members", group=name, n=MOST + 1)
        return graph_of(self.tasks, rows, self.run("links", group=name, n=10 * MOST) if slice.texts["links"] else ())

    def stats_later(self, name: str) -> str:
        """Return as SQL, to be stored, the text of a group's statistics when it is done."""
        dialect = self.executor.dialect.in_full(self.executor.store)
        slice: GroupsSlice = dialect.slice_of[GroupsSlice]
        return slice.stats(dialect.in_any_mode(name))

    def forget(self, which: str) -> None:
        """Delete groups by the text `which` of groups.sql, and end the pauses of those that are gone."""
        self.run(which)
        self.run("drop_group_pauses")  # also one that another process has just made, which this one does not know yet
        self.executor.store.after_commit(self.pauses.read_after_commit)

    # how a group begins and grows, in an open transaction

    def begin(self, name: str, runs: bool, then: str | None) -> None:
        """Begin a group, or one that is done anew. Raises Duplicate if it is open."""
        values = {"group": name, "runs": int(runs), "then": then}
        is_open = Duplicate(self.tasks.store.name, name, advice=OPEN, what="group")
        if not self.run("group", group=name):  # without a lock: on MariaDB it would lock a gap
            try:
                self.run("open_group", **values)
            except Exception as error:
                if self.executor.store.classify(error) in REFUSALS:
                    raise is_open from error
                raise
            return
        if self.stored(name, locked=True).done is None:
            raise is_open
        self.run("leave_group", group=name)  # buried ones that have ended by failed="run", and those dug since
        self.run("open_group_anew", **values)

    def add(self, name: str, n: int) -> None:
        """Count `n` new members of an open group, and keep it open until the commit. Raises NotFound and BadValue."""
        if self.stored(name, locked=True).done is not None:
            raise BadValue(f"the group {shown(name)} of {self.tasks.store.name} is done: begin it anew in a with block")

        self.grow(name, n)

    def follow(self, name: str, then: str | None) -> None:
        """Have other SQL, or none, follow the last end of an open group. Raises NotFound and BadValue."""
        self.add(name, 0)  # locks it
        self.run("follow_group", group=name, then=then)

    def grow(self, name: str, n: int) -> None:
        self.run("grow_group", group=name, adding=n)

    def seal(self, name: str, n: int) -> None:
        """End the block that began a group, and put `n` members: from now on their last end is the group's."""
        self.grow(name, n)
        self.run("seal_group", group=name)
        if not n:
            self._settle(name, within=True)

    # how it ends

    def ended(self, begun: Begun, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        """End the groups of these tasks, if they were the last."""
        for name in sorted({name for row in rows if (name := self.of(row)) is not None}):
            if self.run("may_end_group", begun, group=name):
                self._settle(name, within=begun[1].dialect.is_local)

    def look(self, within: bool) -> int:
        """End open groups whose last end no call has seen, of up to PER_MOVE. Forget those that were done long ago."""
        found = self.run("open_groups", group=self._looked_at, n=PER_MOVE)
        self._looked_at = found[-1][0] if len(found) == PER_MOVE else ""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY
            self.forget("forget_groups")
        ended = [name for name, has_ended in found if has_ended]
        if within:  # the snapshot of an open transaction may lack members that were added since
            ended = [name for name in ended if not self.run("left_of_group", group=name)]
        return sum(self._settle(name, within) for name in ended)

    def _settle(self, name: str, within: bool = False) -> bool:
        """End a group if none of its members is left, and put its `then`. Return whether it has ended.

        `within`: the open transaction has no old snapshot. If `then` cannot be put, the group stays open.
        """
        if not within and self.executor.store.in_transaction():
            return False
        try:
            done, error = self.executor.transaction(partial(self._end, name), caught=True)
        except Exception as raised:
            if not self.settling.may_wait(raised):
                raise
            done, error = None, str(raised)
        if done is not None:
            self.executor.store.after_commit(self._wake)
        if self._failing.pop(name, None) != error and error is not None:
            self.log.warning(FAILED if done is None else "the then of the group %r was left out: %s", name, error)
        if error is not None and done is None:
            self._failing[name] = error
        return done is not None

    def _end(self, name: str) -> tuple[float | None, str | None]:
        """Return when the group was done, if it is, and why its `then` was not put, if it is known."""
        _, binding = begun = self.executor.begin()
        if not binding.dialect.settles:
            ((done, error),) = self.run("settle_group", begun, group=name)
            if done is not None or error != SKIPPED:
                return done, error if done is None else None
        found = self.run("lock_group", begun, group=name)  # first: what is read then is no older
        if not found or not self.run("may_end_group", begun, group=name):
            return None, None
        self.run("end_group", begun, group=name)
        if (then := Stored(*found[0]).then) is not None:
            put = binding.changes(self.executor.store, Statement(then), THENS[then.partition(" ")[0]])
            if self.executor.run(put, begun=begun) == [(0,)]:
                self.run("follow_group", begun, group=name, then="")
                return 0.0, SKIPPED
        return 0.0, None

    def _wake(self) -> None:
        """Wake those who wait for tasks in this process: a `then` may be for any queue of the database."""
        for member in self.executor.database.members:
            with suppress(Exception):  # what was put is committed
                if member.maintained:
                    member.wake(ready=True)
