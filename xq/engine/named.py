"""Move one task that the caller names (ack, release, bury, dig, kill, touch ...), and those of workers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, Generic
from weakref import WeakSet

from xq.core import time
from xq.core.compile import Fence, Mode, Selector
from xq.core.errors import Error, NotFound, NotOwner, SessionLost, WrongState, shown
from xq.core.kinds import ErrorKind, R, Row, T
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.core.options import NONE, Spans
from xq.core.tokens import lock_of, owner_of
from xq.core.values import Key, Taken, Tasks, chunks, named
from xq.engine.binding import Binding
from xq.engine.executor import Begun
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.statements import PER_MOVE, Statements
from xq.engine.take import check_open

Held = tuple[Key, str | None]  # the key of a task, and the token of its take

NO_TAKE: Final = "/"  # in the place of a token: that of no take
LOCKED: Final = 0.1  # seconds between two tries to move a task whose row another transaction has locked
WARNED: Final = 5.0  # seconds after which the log names it
CANCELLED = 60.0  # seconds for which it is noted that a taken task was cancelled
MOVE_TRIES = 20  # attempts, if other processes move the task between the look and the move


@dataclass(slots=True, eq=False)  # not a NamedTuple, which takes four times as long to make
class CheckedCall:
    """A checked call: its event, options, fields to write, and target state if the caller names one."""

    event: str
    seconds: Spans
    fields: Mapping[str, Any]
    to: str | None = None
    brings: Mapping[str, Any] | None = None  # values for the SQL of its transition


class Unmet(Exception):
    """A condition of the transition does not hold for the row: the task is as it was."""


ACK: Final = CheckedCall("ack", NONE, NONE)


class Locked(Generic[R]):
    """A move of a task whose row another transaction has locked. It is tried again, and waits for nothing itself."""

    def __init__(self, moves: NamedMoves[Any], event: str, task: Taken, move: Callable[[], R]) -> None:
        self._moves, self._event, self._task, self._move = moves, event, task, move
        self._warn_at = time.monotonic() + WARNED
        self.waits = False  # whether the row was locked at the last try

    def moved(self) -> R | None:
        """Return the result of the move; None if the row is still locked. Raises as the move."""
        self.waits = False
        if self._moves.executor.dialect.is_local:
            return self._move()
        found: dict[str, R] = {}
        try:
            if self._moves.if_free(self._task, lambda: found.update(moved=self._move())):
                return found["moved"]
        except Exception as error:
            if not self._moves.is_locked(error):
                raise
        self.waits = True
        if time.monotonic() > self._warn_at:
            self._warn_at = math.inf
            self._moves.warn_of_lock(self._event, self._task)
        return None

    def wait(self) -> R:
        """Return the result of the move, once the row is free."""
        while (moved := self.moved()) is None:
            time.sleep(LOCKED)
        return moved


def cancelled(task: Taken) -> str:
    """Return the name in the database of a cancelled task and its take."""
    parts = [bytes(part) if isinstance(part, memoryview) else part for part in task.parts]
    return f"cancelled:{task.token} {parts}"[:255]


class NamedMoves(Generic[T]):
    """Moves one task that a call names, and those of workers."""

    def __init__(self, tasks: Tasks[T], statements: Statements, in_doubt: InDoubtTakes) -> None:
        self.executor = statements.executor
        self.store = statements.store
        self.tasks = tasks
        self.machine = statements.machine
        self.log = logging.getLogger(f"xq.{statements.store.name}")
        self.statements = statements
        self.in_doubt = in_doubt
        self.working: dict[Key, Any] = {}  # by key: what workers of this process do with taken tasks
        self.workers: WeakSet[Any] = WeakSet()  # of this process: `see_cancelled` of each gets what was cancelled
        sources = {event: self.machine.sources(event) for event in self.machine.events}
        self._only = {event: states[0] for event, states in sources.items() if len(states) == 1}
        self._plain = {event: CheckedCall(event, NONE, NONE) for event in self._only}  # without options and fields
        self.fenced = self.machine.fenced

    def one(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any] = NONE,
        update: Mapping[str, Any] | None = None,
        to: str | None = None,
        sets: tuple[str, ...] = (),
        waits: bool = True,
        undone: bool = False,
        taken: bool = False,
        brings: Mapping[str, Any] = NONE,
    ) -> T:
        """Move one task by `event` and return it. The state of the task selects the transition.

        `bury` returns a buried task unchanged. `update` may also set the roles that `sets` names. Without `waits` it
        raises the database's error if the row has been locked for a second. `undone`: it is a release of a task
        that has not been worked on. `taken`: it moves the task only if this take has it. `brings`: values for the SQL
        of the transition. Raises NotFound, WrongState and NotOwner, SessionLost if the session of the task was lost,
        and Unmet if a condition of the transition does not hold.
        """
        is_plain = not (options or brings) and update is None and to is None and event in self._plain
        asked = self._plain[event] if is_plain else None
        if asked is None:
            asked = CheckedCall(event, *self.tasks.called(event, options, update, sets), to, brings)
        parts, token = self.tasks.identify(key)
        state = TAKEN if taken else self._only.get(event) or self.only_source(asked)
        if self.working:
            self.check_apart(event, parts)
        if state is None:
            self.executor.begin(locks=True)
            state = self.find(asked, parts, token)
        usual = self.machine.undone if undone else None if asked.seconds or to else self.tasks.options.usual.get(event)
        if taken and not usual:
            row = self.tasks.options.choose(TAKEN, event, asked.seconds, to)
            usual = replace(row, fenced=self.machine.settings.fenced)  # a caller may bury what it has not taken
        for _ in range(MOVE_TRIES):
            transition = usual or self.tasks.options.choose(state, event, asked.seconds, to)
            if transition.stays and not asked.fields:
                return self.tasks.returned(self.look(parts)[0])
            try:
                moved = self._moved(asked, transition, parts, token, key)
            except Exception as error:
                if not (waits and self.is_locked(error)):
                    raise
                again = partial(self._moved, asked, transition, parts, token, key)
                moved = Locked(self, event, Taken(parts, token), again).wait()
            if moved:
                return moved[0]
            state = self.find(asked, parts, token)
            if taken and state != TAKEN:
                break
            if transition.when and state == transition.source:
                raise Unmet
        raise WrongState(event, self.tasks.app_key(parts), state, self.machine.sources(event), self.tasks.wording)

    def rewriting(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None,
        rewrite: Mapping[str, Callable[[str | None], str | None]],
    ) -> T:
        """Move one task as `one`, and write into roles what `rewrite` makes of their texts, in one transaction."""
        if not rewrite:
            return self.one(event, key, options, update)
        parts, _ = self.tasks.identify(key)

        def move() -> T:
            row, state = self.look(parts, self.executor.dialect.lock)
            if state not in (sources := self.machine.sources(event)):
                raise WrongState(event, self.tasks.app_key(parts), state, sources, self.tasks.wording)
            place, roles = self.tasks.table.fields.index, self.tasks.table.roles
            made = {roles[role].name: make(row[place(roles[role])]) for role, make in rewrite.items()}
            return self.one(event, key, options, {**(update or {}), **made}, sets=tuple(rewrite))

        return self.executor.transaction(move)

    def check_apart(self, event: str, parts: Key) -> None:
        """Raise InTransaction if the task is one of a worker's, whose function has written and not committed."""
        if parts in self.working:
            self.store.check_apart(event)

    def is_locked(self, error: BaseException) -> bool:
        """Return whether a call, not within a transaction, failed since its row has been locked for a second."""
        local = self.executor.dialect.is_local
        return not local and self.store.classify(error) is ErrorKind.LOCKED and not self.store.in_transaction()

    def lock(self, parts: Key) -> bool:
        """Lock a task until the transaction ends. Do not wait: return False if another transaction has locked it."""
        sql = self.executor.dialect.moves.lock_task
        return not sql or bool(self.executor.run(sql, named(parts)))

    def if_free(self, task: Taken, move: Callable[[], object]) -> bool:
        """Run a move of a task, unless another transaction has locked its row. Return whether it did.

        Raises NotFound, WrongState and NotOwner as `one`, and none while the row is locked.
        """

        def run() -> bool:
            if not self.lock(task.parts):
                self.look(task.parts)  # raises NotFound
                return False
            move()
            return True

        return self.executor.transaction(run, locks=False)

    def _moved(
        self, asked: CheckedCall, transition: Transition, parts: Key, token: str | None, task: object = None
    ) -> list[T]:
        """Move one task and return it in a list; [] if it is not in the source state, or does not pass the fence.

        `task` is what the caller has of it.
        """
        begun = self.executor.begin(reviews=True)
        if transition.target == TAKEN or begun[1].may_fail_to_read:
            moved = self._moved_and_read(begun[1], asked, transition, parts, token)
        else:
            brought = self.machine.brought(token or self.executor.session.prefix) if transition.writes else {}
            unread = token is not None and begun[1].dialect.moves.deletes_unread
            row = self._as_left(asked, transition, task) if unread else None
            rows = self._move(begun, asked, "key", transition, token, named(parts) | brought, row=row)
            moved = [self.tasks.returned(rows[0])] if rows else []
        if moved and transition.target == ABSENT and (unit := self.store.unit):
            unit.gone(moved[0])
        if moved and self.working and transition.target != TAKEN:
            self.note_finished(asked.event, parts, token)
        return moved

    def _as_left(self, asked: CheckedCall, transition: Transition, task: object) -> Row | None:
        """Return the row of a task that a call deletes as its taker has it; None if it has to come from the database.

        That saves time where a deletion returns no rows, or only for more of it.
        """
        if not transition.fenced or transition.target != ABSENT or self.store.unit is not None:
            return None
        needs_all = self.executor.observers.callbacks or self.statements.settling.settlers
        if needs_all or self.statements.has_own_counter(asked.event, transition):
            return None
        return self.tasks.row_of(task, asked.fields)

    def _moved_and_read(
        self, binding: Binding, asked: CheckedCall, transition: Transition, parts: Key, token: str | None
    ) -> list[T]:
        """Move a task as `_moved`, with a token if it is taken afterwards. Undo the move if its row cannot be read."""
        session, taken_by = None, None

        def move() -> list[T]:
            owner = taken_by or token
            which = {**named(parts), "owner": owner} | (self.machine.brought(taken_by) if taken_by else {})
            rows = self._move(self.executor.begin(), asked, "key", transition, token, which)
            return [self.tasks.returned(rows[0], owner if transition.target == TAKEN else None)] if rows else []

        try:
            if transition.target == TAKEN and transition.follows:  # by an event that a feature adds
                session = binding.sessions.to_take()
                taken_by = binding.sessions.token(session, self.executor, binding.dialect.source_name)
            moved = self.executor.transaction(move, locks=False) if binding.may_fail_to_read else move()
            if session is not None and moved:
                check_open(session)
        except BaseException as failure:
            self.in_doubt.add([taken_by], failure)
            raise
        return moved

    def note_finished(self, event: str, parts: Key, token: str | None) -> None:
        """Note in the work on a task, if this process works on it, that the task is taken no more."""
        work = self.working.get(parts)
        if work is None or token not in (None, work.taken.token) or event == "snatch":
            return
        if work.taken.token is None and event == "release":
            # If another thread takes it again, it looks like an undone release, so no later look decides.
            self.store.after_commit(lambda: setattr(work, "finished", event))
        else:
            work.finished, work.in_doubt = event, self.store.in_transaction()

    def only_source(self, asked: CheckedCall) -> str | None:
        """Return the only state that the event leaves; None if the task must be looked up. Raises for unfit options."""
        if only := self._only.get(asked.event):
            return only
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
        asked: CheckedCall,
        mode: Mode,
        transition: Transition,
        token: str | None,
        which: dict[str, Any],
        fence: Fence = "",
        row: Row | None = None,
    ) -> list[Row]:
        """Move the tasks of a key or a list of keys, if they are in the source state and pass the fence.

        `row`: that of the only one, which the call deletes, so that nothing is read.
        """
        event, seconds, fields = asked.event, asked.seconds, asked.fields
        connection, binding = begun
        if transition.fenced and not fence:
            prefix = binding.sessions.current().prefix
            fence = "session" if token is None else "take"
            # A token of another session must match no row.
            which["session"], which["token"] = prefix, token if token and token.startswith(prefix) else NO_TAKE
        # Else it would hold up other calls, and be applied when another transaction with the row is rolled back.
        briefly = not binding.dialect.is_local and transition.source == TAKEN
        briefly = briefly and (connection.briefly or not connection.in_transaction)
        rows = mode, fence, transition.source, briefly, transition.writes, transition.when, row is None
        name = event, rows, transition.target, (*seconds,), (*fields,)
        compiled = binding.compiled.get(name)
        if compiled is None:
            which_rows = Selector(
                mode, transition.source, fence, briefly=briefly, when=transition.when, unread=row is not None
            )
            compiled = self.statements.compile(binding, name, which_rows, transition)
        if seconds:
            which |= self.executor.values(seconds)
        else:
            which["now"] = None if self.executor.clock is None else self.executor.clock.now
        if asked.brings:
            which.update(asked.brings)
        if fields:
            which.update(zip(compiled.statement.names, fields.values(), strict=True))
        which["left"] = row
        return self.executor.run(compiled, which, begun)

    def find(self, asked: CheckedCall, parts: Key, token: str | None) -> str:
        """Return the task's state if the call may move it. Raises NotFound, WrongState and NotOwner, in this order.

        SessionLost comes first: other sessions may have moved the task since the session was lost.
        """
        if asked.event in self.fenced:
            self.check_not_lost(asked, parts, token)
        return self.check(asked, parts, token, *self.look(parts, self.afresh))

    @property
    def afresh(self) -> str:
        # The snapshot of the application's transaction may be older than the row that an UPDATE finds.
        return self.executor.dialect.afresh if self.store.in_transaction() else ""

    def check(self, asked: CheckedCall, parts: Key, token: str | None, row: Row, state: str) -> str:
        """Return the task's state if the call may move it. Raises WrongState and NotOwner."""
        sources = self.machine.sources(asked.event)
        if state not in sources:
            error = WrongState(asked.event, self.tasks.app_key(parts), state, sources, self.tasks.wording)
            error.owner = row[-1]
            raise error
        if self.tasks.options.choose(state, asked.event, asked.seconds, asked.to).fenced:
            owner = row[-1]
            if not (owner or "").startswith(self.executor.session.prefix) or (token is not None and owner != token):
                raise NotOwner(asked.event, self.tasks.app_key(parts), owner, self.tasks.wording)
        return state

    def check_not_lost(self, asked: CheckedCall, parts: Key, token: str | None) -> None:
        sessions = self.executor.open().sessions
        session = sessions.current().uuid if token is None else owner_of(token)[0]
        if sessions.notice_loss(session):
            raise SessionLost(asked.event, self.tasks.app_key(parts), token or session)

    def warn_of_lock(self, event: str, task: Taken) -> None:
        """Log that a call waits for the row of a task, and the transactions that may have locked it."""
        try:
            rows = self.executor.run(self.executor.dialect.open_transactions, {"n": WARNED})
        except Exception:  # this user may not ask
            rows = []
        others = f" (open for as long: {', '.join(str(row[0]) for row in rows)})" if rows else ""
        key = shown(self.tasks.app_key(task.parts))
        self.log.warning(
            "%s of task %s waits: another transaction has had its row for %g s%s", event, key, WARNED, others
        )

    def look(self, parts: Key, afresh: str = "") -> tuple[Row, str]:
        """Return a task's row, with its owner as the last column, and its state. Raises NotFound."""
        rows = self.executor.run(self.executor.dialect.queries.look(afresh), named(parts))
        if not rows:
            raise NotFound(self.store.name, self.tasks.app_key(parts))
        state = self.executor.dialect.state(rows[0])
        if state is None:
            raise NotFound(self.store.name, self.tasks.app_key(parts), ": its row has a status that is not the queue's")
        return rows[0], state

    # the tasks of workers

    def write(self, task: T, fields: Mapping[str, Any]) -> None:
        """Write fields of a taken task and leave it taken. Raises the errors of `one`."""
        parts, token = self.tasks.identify(task)
        fenced = self.machine.settings.fenced
        stays = Transition(TAKEN, "", TAKEN, fenced=fenced, follows=False, counts=False)  # no event
        if not self._move(self.executor.begin(), CheckedCall("", NONE, fields), "key", stays, token, named(parts)):
            self.find(CheckedCall("ack", NONE, fields), parts, token)  # raises what an ack would raise

    def ack_those(
        self, taken: Sequence[tuple[Taken, CheckedCall]], take: Callable[[], R] | None = None
    ) -> tuple[list[Row], R | None]:
        """Ack the tasks that still belong to their takes, each as asked, and call `take` in the same transaction.

        Return the rows of the acks, and what `take` returned. If the database refuses an ack, it raises the error and
        acks none of that statement, and with `take` nothing.
        """
        connection, _ = begun = self.executor.begin()
        if take is None:
            return list(chain(*self._acks(taken, begun))), None
        observers = self.executor.observers
        if observers.anybody and not connection.pipelines:  # its callbacks after a commit need the ORM's transaction
            return self.executor.transaction(lambda: (self.ack_those(taken)[0], take()), locks=False, caught=True)
        acked, found = connection.as_one(partial(self._acks, taken, begun), take)
        if (rows := list(chain(*acked))) and connection.pipelines:  # there were none yet when each ack was sent
            target = self.tasks.options.choose(TAKEN, "ack", taken[0][1].seconds).target
            if observers.anybody:
                observers.notify("ack", TAKEN, target, rows)
            self.statements.settling.settle_later(rows, "ack", TAKEN, target)
        return rows, found

    def _acks(self, taken: Sequence[tuple[Taken, CheckedCall]], begun: Begun) -> list[list[Row]]:
        """Ack tasks. Return the rows by statement: the lists may be filled later, see `Connection.as_one`."""
        acked = list[list[Row]]()
        for asked, some in groupby(taken, itemgetter(1)):
            transition = self.tasks.options.choose(TAKEN, "ack", asked.seconds)
            for batch in chunks((held for held, _ in some), PER_MOVE):
                acked.extend(self.move_all(begun, asked, transition, batch))
        return acked

    def hold(self, task: Taken, seconds: float | None) -> None:
        """Keep the ttr from passing for so many seconds, since the task's row is locked. On a server."""
        shared, token = self.executor.dialect.shared, task.token or self.look(task.parts)[0][-1]
        self.executor.run(shared.hold_task, {"token": token, "ttr": seconds})
        self.executor.run(shared.forget_held)

    def hold_session(self, holds: bool) -> None:
        """Keep each ttr of the current session from passing, or do so no longer. On a file.

        There the heartbeat waits while another transaction writes: its function's own, for example.
        """
        liveness = self.executor.database.find_liveness()
        if self.executor.dialect.is_local and liveness is not None:
            (liveness.acquire if holds else liveness.release)(lock_of(self.executor.session.uuid))

    def kill_if_taken_by(self, task: Taken) -> None:
        fenced = replace(self.tasks.options.choose(TAKEN, "kill", NONE), fenced=True)
        self._moved(CheckedCall("kill", NONE, NONE), fenced, *task)

    def cancel(self, key: object, to: str | None = None) -> T:
        """End a task that is ready, waiting or taken, and note it for its owner. Raises NotFound and WrongState."""
        parts, _ = self.tasks.identify(key)
        cancel = partial(self.executor.transaction, partial(self._cancel, parts, to))
        if self.store.in_transaction():
            return cancel()
        return Locked(self, "cancel", Taken(parts, None), cancel).wait()

    def _cancel(self, parts: Key, to: str | None) -> T:
        executor, shared = self.executor, self.executor.dialect.shared
        row, state = self.look(parts, executor.dialect.lock)  # no other take gets it before the move
        moved = self.one("cancel", self.tasks.app_key(parts), to=to)
        if state == TAKEN:
            executor.run(shared.forget_cancelled)
            ends = executor.time_us() / 1e6 + CANCELLED
            executor.run(shared.set_setting, {"name": cancelled(Taken(parts, row[-1])), "value": ends})
        return moved

    def move_all(
        self, begun: Begun, asked: CheckedCall, transition: Transition, taken: Sequence[Held]
    ) -> Iterator[list[Row]]:
        """Move tasks by one statement (with a fence two) if the database can list them. Yield the rows of each."""
        (_, binding), by_fence = begun, [taken]
        if transition.fenced and len(taken) > 1:
            by_fence = [[held for held in taken if held[1]], [held for held in taken if not held[1]]]
        for some in filter(None, by_fence):
            keys, given = zip(*some, strict=True)
            tokens = list[str]()
            if transition.fenced and len({*given}) > 1:
                prefix = binding.sessions.current().prefix
                # a token of another session must match no row, as in `_move`
                tokens = [token if token and token.startswith(prefix) else NO_TAKE for token in given]
            mode, values = binding.dialect.moves.by_keys(keys, tokens)
            fence: Fence = "takes" if tokens and mode == "keys" else ""
            for token, which in zip(given, values, strict=False):  # a list has one fence, or one token
                yield self._move(begun, asked, mode, transition, token, which, fence)
