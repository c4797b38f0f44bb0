"""Moving the tasks that a caller means: find the row of the table, run it, say why when nothing moved."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final, Generic, TypeVar

from xq.core.compile import Fence, Rows, Way
from xq.core.errors import (
    BadType,
    BadValue,
    Error,
    FeatureOff,
    NotFound,
    NotOwner,
    SessionLost,
    UnknownSession,
    WrongState,
    shown,
)
from xq.core.machine import ABSENT, READY, TAKEN, Transition
from xq.core.ports import Row
from xq.core.values import Held, Parts, Tasks, chunks, named
from xq.engine.batches import Batches
from xq.engine.database import Opened
from xq.engine.doubts import Doubts
from xq.engine.due import Due, Swept
from xq.engine.transitions import BATCH, Call, Transitions
from xq.sessions import session as sessions_of
from xq.sessions.session import Session

T = TypeVar("T")

Update = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None  # for all of several tasks, or one for each

STAYS: Final = {"bury": "B"}  # event -> the state in which it finds nothing to do, but for an update
WRITTEN = 50  # tasks, each with fields of its own, that one statement writes: it looks each up among so many
TRIES = 20  # how often a task that others keep moving is tried again
BEING_MOVED = (0.002, 0.004, 0.008)  # seconds to wait for what is due, and which another moves at this moment


class Moves(Generic[T]):
    """The moves of tasks between the states of one queue, and out of it."""

    def __init__(self, tasks: Tasks[T], transitions: Transitions) -> None:
        self.database = transitions.database
        self.store = transitions.store
        self.tasks = tasks
        self.machine = transitions.machine
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self.transitions = transitions
        self.batches = Batches(transitions)
        self.due = Due(self.batches)
        self.doubts = Doubts(self.batches)

    # one task

    def one(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
        to: str | None = None,
        sets_error: bool = False,
    ) -> T:
        """Move one task out of whatever state it is in, as the table says, or leave it where it stays.

        With `sets_error`, `update` may set the role error, too.
        """
        call = self._call(event, options, update, to, sets_error)
        parts, mark = self.tasks.identify(key)
        state = self._only_source(call)
        if state is None:
            self.database.begin_writing()
            state = self._find(call, parts, mark)
        for _ in range(TRIES):
            if self._stays(state, call):
                return self.tasks.returned(self.look(parts)[0])
            transition = self.transitions.choose(state, call)
            opened = self.database.open(to_write=True)
            session = opened.sessions.to_take() if transition.target == TAKEN and transition.enters else None
            held = self.database.mark(opened, session) if session else mark
            try:
                moved = self.database.readably(partial(self._move_one, opened, call, transition, parts, mark, held))
                if moved:
                    if session:
                        self._check_open(session)
                    return moved[0]
            except BaseException as failure:
                self.doubts.add([held] if session else [], failure)
                raise
            state = self._find(call, parts, mark)
        raise WrongState(event, self.tasks.app_key(parts), state, self.machine.sources(event), self.tasks.wording)

    def write(self, task: T, fields: Mapping[str, Any]) -> None:
        """Write fields of a task that a take returned, and leave it taken. Raises as `one`."""
        parts, mark = self.tasks.identify(task)
        stays = Transition(TAKEN, "", TAKEN, fenced=self.machine.settings.fenced, enters=False)  # no event
        if not self._move(self.database.open(), Call("", fields=fields), "key", stays, mark, named(parts)):
            self._find(Call("ack", fields=fields), parts, mark)  # whoever may write is whoever may ack

    def is_in_hand(self, task: Held) -> bool:
        """Whether a task is still in that take. Raises NotFound."""
        row, state = self.look(task.parts)
        owner = row[-1] or ""
        mine = owner.startswith(self.database.session.prefix) if task.mark is None else owner == task.mark
        return state == TAKEN and mine

    def _move_one(
        self, opened: Opened, call: Call, transition: Transition, parts: Parts, mark: str | None, held: str | None
    ) -> list[T]:
        rows = self._move(opened, call, "key", transition, mark, {**named(parts), "owner": held})
        return [self.tasks.returned(row, held if transition.target == TAKEN else None) for row in rows]

    @staticmethod
    def _check_open(session: Session) -> None:
        """A take and the end of its session, in another thread, may have passed each other."""
        if session.closed:
            session.close()
            raise UnknownSession(session.uuid)

    def _call(
        self,
        event: str,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None,
        to: str | None = None,
        sets_error: bool = False,
    ) -> Call:
        return Call(event, self.tasks.options(event, options), self.tasks.updates(update, sets_error), to)

    def _only_source(self, call: Call) -> str | None:
        """The state that the event leaves, when there is one only: then nothing needs to be looked up first."""
        sources = self.machine.sources(call.event)
        if len(sources) == 1:
            return sources[0]
        refused = []
        for state in sources:
            try:
                self.transitions.choose(state, call)
                return None
            except Error as error:
                refused.append(error)
        raise refused[0]  # no state takes these options

    @staticmethod
    def _stays(state: str, call: Call) -> bool:
        """Whether a task in this state is left as it is, since it is where the event leads."""
        return not call.fields and STAYS.get(call.event) == state

    def _move(
        self,
        opened: Opened,
        call: Call,
        way: Way,
        transition: Transition,
        mark: str | None,
        values: Mapping[str, Any],
    ) -> list[Row]:
        """Move the rows that a key, or a list of them, names, if they are in this state and in the right hand."""
        fence: Fence = ""
        if transition.fenced:
            prefix = opened.sessions.current().prefix
            # The mark of another session opens nothing here, whoever carries the object.
            opens = mark if mark and mark.startswith(prefix) else ""
            values = {**values, "session": prefix, "mark": opens}
            fence = "session" if mark is None else "take"
        return self.transitions.run(opened, call, Rows(way, transition.source, fence), transition, values)

    def _find(self, call: Call, parts: Parts, mark: str | None) -> str:
        """The state of a task that a call moves. Raises NotFound, WrongState and NotOwner, in this order.

        SessionLost comes before all of them: what became of a task since then is not this caller's.
        """
        if any(transition.fenced for transition in self.machine.rows if transition.event == call.event):
            self._check_not_lost(call, parts, mark)
        # What the application's transaction saw before is not what a move meets.
        afresh = self.database.dialect.afresh if self.store.in_transaction() else ""
        row, state = self.look(parts, afresh)
        sources = self.machine.sources(call.event)
        if state not in sources:
            raise WrongState(call.event, self.tasks.app_key(parts), state, sources, self.tasks.wording)
        if self.transitions.choose(state, call).fenced:
            owner = row[-1]
            if afresh and "owner" not in self.tasks.table.roles:
                found = self.database.execute(self.database.dialect.look_for_owner(afresh), named(parts))
                owner = found[0][0] if found else None
            if not (owner or "").startswith(self.database.session.prefix) or (mark is not None and owner != mark):
                raise NotOwner(call.event, self.tasks.app_key(parts), owner, self.tasks.wording)
        return state

    def _check_not_lost(self, call: Call, parts: Parts, mark: str | None) -> None:
        sessions = self.database.open().sessions
        session = sessions.current().uuid if mark is None else sessions_of.owner_of(mark)[0]
        if sessions.notice_loss(session):
            raise SessionLost(call.event, self.tasks.app_key(parts), mark or session)

    def look(self, parts: Parts, afresh: str = "") -> tuple[Row, str]:
        """A task's row, followed by its owner, and its state. Raises NotFound."""
        rows = self.database.execute(self.database.dialect.look(afresh), named(parts))
        if not rows:
            raise NotFound(self.store.name, self.tasks.app_key(parts))
        state = self.database.dialect.state(rows[0])
        if state is None:
            raise NotFound(self.store.name, self.tasks.app_key(parts), ": its row has a status that is not the queue's")
        return rows[0], state

    # several

    def oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
        tube: str | None = None,
        then: Callable[[str | None], None] = lambda mark: None,
    ) -> list[T]:
        """Move the `n` oldest tasks that `event` may choose itself (None: all), and return them in order.

        When there are any, `then` is called with the mark by which they are taken, before anything can come in between.
        """
        for _ in range(TRIES):
            try:
                return self._oldest(event, n, options, update, tube, then)
            except UnknownSession as error:
                # The process's own session was lost meanwhile: what it took is given back, and the next one takes.
                if self.database.open().sessions.is_entered(error.uuid):
                    raise
        return self._oldest(event, n, options, update, tube, then)

    def _oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None,
        tube: str | None,
        then: Callable[[str | None], None],
    ) -> list[T]:
        call = self._call(event, options, update)
        (source,) = self.machine.sources(event)
        transition = self.transitions.choose(source, call)
        if n == 0:
            return []
        opened = self.database.open(to_write=True)
        session = opened.sessions.to_take() if transition.target == TAKEN else None
        mark = self.database.mark(opened, session) if session else None
        values = {"n": opened.dialect.no_limit if n is None else n, "owner": mark, "tube": tube}
        which = Rows("first" if n == 1 else "oldest", source, tube=tube is not None)
        before: Swept | None = None
        # Within the application's transaction, which may see the past, news are guessed at once.
        within = opened.dialect.hears and self.store.in_transaction()
        if not self.due.just_swept:
            self.database.begin_writing()
            before = self.due.sweep_if_any()
        elif source == READY and opened.dialect.hears:
            self.due.hear_news(mine=within)

        def move() -> list[T]:
            # Nothing is there when nothing is found after a look that found nothing due.
            swept, pauses = before, iter(BEING_MOVED)
            while not (rows := self.transitions.run(opened, call, which, transition, values)):
                if swept is not None and not swept.moved and (within or not swept.news):
                    # Another may be moving what is due, and a take passes by what that one has locked.
                    passed_by = swept.due and not swept.refused and opened.dialect.lock
                    pause = next(pauses, None) if passed_by else None
                    if pause is None:
                        return []
                    time.sleep(pause)
                swept = self.due.sweep_if_any()
            if len(rows) > 1:
                self.tasks.sort(rows)
            return [self.tasks.returned(row, mark) for row in rows]

        self.doubts.settle()
        try:
            tasks = self.database.readably(move)
            if session:
                self._check_open(session)
            if tasks:
                then(mark)
            return tasks
        except BaseException as error:
            self.doubts.add([mark], error)
            raise

    def many(
        self,
        event: str,
        keys: object,
        options: Mapping[str, Any],
        update: Update = None,
        error: str | Sequence[str | None] | None = None,
    ) -> list[T]:
        """Move all of the tasks or none: those in one state and one hand with one statement.

        `update` and `error`, of which the latter goes into the role error, are for all, or a list with one for each.
        """
        if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
            raise BadType(f"{event}_many takes keys or tasks, not {type(keys).__name__}: {shown(keys)}")
        alike = update is None or isinstance(update, Mapping)
        call = self._call(event, options, update if alike else None)  # type: ignore[arg-type]
        identified = [self.tasks.identify(key) for key in keys]
        if len({parts for parts, _ in identified}) < len(identified):
            raise BadValue(f"{event}_many: a task is named twice")
        own = self._one_for_each("update", {} if alike else update, len(identified))
        own = self._with_errors(own, error)
        written = [
            (parts, fields)
            for (parts, _), each in zip(identified, own, strict=True)
            if (fields := self.tasks.updates(each, sets_error=error is not None))
        ]
        self.database.begin_writing()

        def move() -> list[T]:
            moved: dict[Any, Row] = {}
            self._write_many(written)  # what is then not this caller's to move is undone with all else
            only = self._only_source(call)
            if only:
                self.transitions.choose(only, call)
            groups: dict[tuple[str, str | None], list[Parts]] = {}
            for parts, mark in identified:
                groups.setdefault((only or self._find(call, parts, mark), mark), []).append(parts)
            for (state, mark), group in groups.items():
                if self._stays(state, call):
                    moved |= {self.tasks.app_key(parts): self.look(parts)[0] for parts in group}
                    continue
                for batch in chunks(group, BATCH):
                    moved |= self._batch(call, state, mark, batch)
            return [self.tasks.returned(moved[self.tasks.app_key(parts)]) for parts, _ in identified]

        return self.database.whole(move)

    @staticmethod
    def _one_for_each(name: str, given: object, n: int) -> list[Any]:
        """What is given for all, as a list with one for each. Raises BadType and BadValue."""
        if given is None or isinstance(given, (str, Mapping)):
            return [given] * n
        if not isinstance(given, Sequence):
            raise BadType(f"{name} is one for all of the tasks, or a list with one for each, not {shown(given)}")
        if len(given) != n:
            raise BadValue(f"{name} has {len(given)} for {n} tasks: give one for each, in their order")
        return list(given)

    def _with_errors(self, updates: list[Any], error: object) -> list[Any]:
        """Updates, which also say what is wrong with their tasks, where that is given."""
        if error is None:
            return updates
        role = self.tasks.table.roles.get("error")
        if role is None:
            raise FeatureOff("bury_many(error=) needs the role 'error': map it to a field of text", role="error")
        errors = self._one_for_each("error", error, len(updates))
        for each in errors:
            if not isinstance(each, (str, NoneType)):
                raise BadType(f"an error is told by text, not by {shown(each)}")
        return [{**(update or {}), role.name: each} for update, each in zip(updates, errors, strict=True)]

    def _write_many(self, written: list[tuple[Parts, dict[str, Any]]]) -> None:
        """Write fields of the application's: for each task its own, whosever it is."""
        by_names: dict[tuple[str, ...], list[tuple[Parts, dict[str, Any]]]] = {}
        for one in written:
            by_names.setdefault(tuple(one[1]), []).append(one)
        for names, alike in by_names.items():
            opened = self.database.open(to_write=True)
            values_of_one = len(self.tasks.table.key) * (len(names) + 1) + len(names)
            for batch in chunks(alike, max(1, min(WRITTEN, opened.dialect.most_values // values_of_one))):
                values = self.database.values()
                statement = opened.dialect.write_many(names, len(batch))
                fields = (value for _, own in batch for value in own.values())
                values.update(zip(statement.names, fields, strict=True))
                for place, (parts, _) in enumerate(batch):
                    values.update({f"{name}_{place}": part for name, part in named(parts).items()})
                self.database.change(opened, statement, values)

    def _batch(self, call: Call, state: str, mark: str | None, keys: list[Parts]) -> dict[Any, Row]:
        """Move all of these tasks, and return their rows by key. Raises what is wrong with the first that stays."""
        transition = self.transitions.choose(state, call)
        opened = self.database.open()
        move = partial(self._move, opened, call)
        keys_listed = opened.dialect.listed(keys) if len(keys) > 1 else None
        if keys_listed:
            rows = move("keys", transition, mark, {"keys": keys_listed})
        else:
            rows = [row for parts in keys for row in move("key", transition, mark, named(parts))]
        moved = {self.tasks.app_key_of(row): row for row in rows}
        for parts in keys if len(moved) < len(keys) else ():
            if self.tasks.app_key(parts) not in moved:
                found = self._find(call, parts, mark)
                raise WrongState(call.event, self.tasks.app_key(parts), found, [state], self.tasks.wording)
        return moved

    def all(self, event: str, states: Sequence[str], as_event: str = "") -> int:
        """Move every task in these states, whoever holds it, by its own event or as another. Returns how many.

        Those that are deleted as one step, which finds a task wherever another process moves it meanwhile.
        """
        chosen = [self.transitions.choose(state, Call(event)) for state in states]
        gone = [transition for transition in chosen if transition.target == ABSENT]
        together = [*([other] for other in chosen if other not in gone), *([gone] if gone else [])]

        def move() -> int:
            self.database.begin_writing()
            return sum(self._all(Call(as_event or event), *alike) for alike in together)

        return self.database.whole(move)

    def _all(self, call: Call, transition: Transition, *alike: Transition) -> int:
        """Move every task in the states from which these lead, which do the same."""
        opened, more = self.database.open(), tuple(other.source for other in alike)
        if self.database.observers.anybody:
            which = Rows("each", transition.source, more=more)
            return len(self.transitions.run(opened, call, which, transition, {}))
        if more and self.transitions.counts_apart(call.event, transition, *alike):
            # How many leave each state must be known, so one after the other: what is held stays where it is.
            self.database.execute(opened.dialect.hold_all((transition.source, *more)))
            return sum(self._all(call, each) for each in (transition, *alike))
        statement = opened.statements.move(Rows("all", transition.source, more=more), transition)
        moved = self.database.change(opened, statement, self.database.values(), call.event)
        self.transitions.count(opened, call.event, transition.source, transition.target, moved)
        return moved

    def give_back(self, session: str, event: str) -> None:
        """Release what a session that has ended still holds, as the event `event`: all, or it raises."""
        self.batches.give_back(*sessions_of.marks_of(session), event)

    def give_back_what_goes(self, session: str, event: str) -> None:
        """The same, but for what the database does not let go."""
        self.batches.give_back_what_goes(*sessions_of.marks_of(session), event, "session")

    def any_ready(self) -> bool:
        """Whether a take would find something."""
        return bool(self.database.execute(self.database.dialect.any_ready))
