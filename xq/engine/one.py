"""Move one task that the caller names: ack, release, bury, dig, kill, touch ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol

from xq.core.compile import Fence, Selector, Way
from xq.core.errors import Error, NotFound, NotOwner, SessionLost, WrongState
from xq.core.machine import TAKEN, Transition
from xq.core.options import NONE, Spans
from xq.core.ports import Row, T
from xq.core.values import Parts, Taken, Tasks, named
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.run import Begun
from xq.engine.steps import Steps
from xq.engine.take import check_open
from xq.sessions.session import owner_of

NO_TAKE: Final = "/"  # in the place of a token: that of no take
MOVE_TRIES = 20  # attempts, if other processes move the task between the look and the move


@dataclass(slots=True, eq=False)  # not a NamedTuple, which takes four times as long to make
class Asked:
    """A checked call: its event, options, fields to write, and target state if the caller names one."""

    event: str
    seconds: Spans
    fields: Mapping[str, Any]
    to: str | None = None


class Work(Protocol):
    """A taken task that a function works on, and may finish by a call of its own."""

    taken: Taken
    finished: str  # the event by which a call of this process has finished the task
    in_doubt: bool  # within a transaction, which may be rolled back


class One(Generic[T]):
    """The moves of one named task of a queue."""

    def __init__(self, tasks: Tasks[T], steps: Steps, in_doubt: InDoubtTakes) -> None:
        self.database = steps.database
        self.store = steps.store
        self.tasks = tasks
        self.machine = steps.machine
        self.steps = steps
        self.in_doubt = in_doubt
        self.working: dict[Parts, Work] = {}  # by key: the tasks that workers of this process have taken
        sources = {event: self.machine.sources(event) for event in self.machine.events}
        self._only = {event: states[0] for event, states in sources.items() if len(states) == 1}
        self._plain = {event: Asked(event, NONE, NONE) for event in self._only}  # the calls without options and fields
        self._fenced = frozenset(row.event for row in self.machine.rows if row.fenced)

    def one(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any] = NONE,
        update: Mapping[str, Any] | None = None,
        to: str | None = None,
        sets: tuple[str, ...] = (),
    ) -> T:
        """Move one task by `event` and return it. The state of the task selects the transition.

        `bury` returns a buried task unchanged. `update` may also set the roles that `sets` names.
        Raises NotFound, WrongState and NotOwner, and SessionLost if the session of the task was lost.
        """
        asked = self._asked(event, options, update, to, sets)
        parts, token = self.tasks.identify(key)
        state = self._only.get(event) or self._only_source(asked)
        if state is None:
            self.database.begin(locks=True)
            state = self._find(asked, parts, token)
        usual = None if asked.seconds or to else self.tasks.options.usual.get(event)
        for _ in range(MOVE_TRIES):
            transition = usual or self.tasks.options.choose(state, event, asked.seconds, to)
            if transition.stays and not asked.fields:
                return self.tasks.returned(self.look(parts)[0])
            if moved := self._moved(asked, transition, parts, token):
                return moved[0]
            state = self._find(asked, parts, token)
        raise WrongState(event, self.tasks.app_key(parts), state, self.machine.sources(event), self.tasks.wording)

    def _moved(self, asked: Asked, transition: Transition, parts: Parts, token: str | None) -> list[T]:
        """Move one task and return it in a list; [] if it is not in the source state, or does not pass the fence."""
        begun, session, taken_by = self.database.begin(), None, None
        _, binding = begun
        try:
            if transition.target == TAKEN and transition.enters:  # by an event that a feature adds
                session = binding.sessions.to_take()
                taken_by = binding.sessions.token(session, self.database, binding.dialect.source_name)
            if binding.may_fail_to_read:  # reading the row back may raise: then undo the move
                again = partial(self._read, None, asked, transition, parts, token, taken_by)
                moved = self.database.transaction(again, locks=False)
            else:
                moved = self._read(begun, asked, transition, parts, token, taken_by)
            if session is not None and moved:
                check_open(session)
        except BaseException as failure:
            self.in_doubt.add([taken_by], failure)
            raise
        if moved and self.working and transition.target != TAKEN:
            self._note_finished(asked.event, parts, token)
        return moved

    def _note_finished(self, event: str, parts: Parts, token: str | None) -> None:
        """Note in the work on a task, if this process works on it, that the task is taken no more."""
        work = self.working.get(parts)
        if work is None or token not in (None, work.taken.token):
            return
        if work.taken.token is None and event == "release":
            # If another thread takes it again, it looks like an undone release, so no later look decides.
            self.store.after_commit(lambda: setattr(work, "finished", event))
        else:
            work.finished, work.in_doubt = event, self.store.in_transaction()

    def _read(
        self,
        begun: Begun | None,
        asked: Asked,
        transition: Transition,
        parts: Parts,
        token: str | None,
        taken_by: str | None,
    ) -> list[T]:
        owner, which = taken_by or token, named(parts)
        which["owner"] = owner
        rows = self._move(begun or self.database.begin(), asked, "key", transition, token, which)
        return [self.tasks.returned(rows[0], owner if transition.target == TAKEN else None)] if rows else []

    def _asked(
        self,
        event: str,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None,
        to: str | None = None,
        sets: tuple[str, ...] = (),
    ) -> Asked:
        if not options and update is None and to is None and event in self._plain:
            return self._plain[event]
        seconds: Spans = self.tasks.options.check(event, options) if options or event not in self._only else NONE
        return Asked(event, seconds, NONE if update is None else self.tasks.updates(update, sets), to)

    def _only_source(self, asked: Asked) -> str | None:
        """Return the only state that the event leaves; None if the task must be looked up. Raises for unfit options."""
        refused = []
        for state in self.machine.sources(asked.event):
            try:
                self.tasks.options.choose(state, asked.event, asked.seconds, asked.to)
                return None
            except Error as error:
                refused.append(error)
        raise refused[0]  # the options fit none of the states

    def _move(
        self,
        begun: Begun,
        asked: Asked,
        way: Way,
        transition: Transition,
        token: str | None,
        which: dict[str, Any],
        fence: Fence = "",
    ) -> list[Row]:
        """Move the tasks of a key or a list of keys, if they are in the source state and pass the fence."""
        event, seconds, fields = asked.event, asked.seconds, asked.fields
        connection, binding = begun
        if transition.fenced and not fence:
            prefix = binding.sessions.current().prefix
            fence = "session" if token is None else "take"
            # A token of another session must match no row.
            which["session"], which["token"] = prefix, token if token and token.startswith(prefix) else NO_TAKE
        name = event, (way, fence, transition.source), transition.target, (*seconds,), (*fields,)
        step = binding.steps.get(name)
        if step is None:
            step = self.steps.compile(binding, name, Selector(way, transition.source, fence), transition)
        if seconds:
            which |= self.database.values(seconds)
        else:
            which["now"] = None if self.database.clock is None else self.database.clock.now
        if fields:
            which.update(zip(step.statement.names, fields.values(), strict=True))
        return self.database.run(step, which, connection)

    def _find(self, asked: Asked, parts: Parts, token: str | None) -> str:
        """Return the state of a task that the call may move. Raises NotFound, WrongState and NotOwner, in this order.

        SessionLost comes first: other sessions may have moved the task since the session was lost.
        """
        if asked.event in self._fenced:
            self._check_not_lost(asked, parts, token)
        return self._check(asked, parts, token, *self.look(parts, self._afresh))

    @property
    def _afresh(self) -> str:
        # The snapshot of the application's transaction may be older than the row that an UPDATE finds.
        return self.database.dialect.afresh if self.store.in_transaction() else ""

    def _check(self, asked: Asked, parts: Parts, token: str | None, row: Row, state: str) -> str:
        """Return the state of a task if the call may move it. Raises WrongState and NotOwner."""
        sources = self.machine.sources(asked.event)
        if state not in sources:
            raise WrongState(asked.event, self.tasks.app_key(parts), state, sources, self.tasks.wording, row[-1])
        if self.tasks.options.choose(state, asked.event, asked.seconds, asked.to).fenced:
            owner = row[-1]
            if not (owner or "").startswith(self.database.session.prefix) or (token is not None and owner != token):
                raise NotOwner(asked.event, self.tasks.app_key(parts), owner, self.tasks.wording)
        return state

    def _check_not_lost(self, asked: Asked, parts: Parts, token: str | None) -> None:
        sessions = self.database.open().sessions
        session = sessions.current().uuid if token is None else owner_of(token)[0]
        if sessions.open.notice_loss(session):
            raise SessionLost(asked.event, self.tasks.app_key(parts), token or session)

    def look(self, parts: Parts, afresh: str = "") -> tuple[Row, str]:
        """Return the row of a task, with its owner as the last column, and its state. Raises NotFound."""
        rows = self.database.run(self.database.dialect.looks.look(afresh), named(parts))
        if not rows:
            raise NotFound(self.store.name, self.tasks.app_key(parts))
        state = self.database.dialect.state(rows[0])
        if state is None:
            raise NotFound(self.store.name, self.tasks.app_key(parts), ": its row has a status that is not the queue's")
        return rows[0], state
