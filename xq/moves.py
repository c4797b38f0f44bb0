"""Moving tasks from state to state: choose a row of the table, run its statement, say why when nothing moved."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from xq import sessions as sessions_of
from xq.compile import Fence, Rows, Statement, Way
from xq.database import Database, Opened
from xq.errors import (
    BadType,
    BadValue,
    Duplicate,
    Error,
    NotFound,
    NotOwner,
    SessionLost,
    UnknownSession,
    WrongState,
    shown,
)
from xq.machine import ABSENT, READY, TAKEN, Machine, Transition
from xq.sessions import Session
from xq.stats import apart
from xq.store import Row
from xq.tasks import Parts, Seconds, Tasks, chunks, named

T = TypeVar("T")

BATCH = 1_000  # rows that one statement moves or looks up
DOUBT = 10.0  # seconds within which a server has done, or forgotten, what a lost connection told it to do
TRIES = 20  # how often a task that others keep moving is tried again
BEING_MOVED = (0.002, 0.004, 0.008)  # seconds to wait for what is due, and which another moves at this moment
SWEEP_AFTER = 0.05  # seconds: a process that takes without end looks this often for what fell due


class Call(NamedTuple):
    """What a caller asks for, checked: an event, its options, and fields of the application to write."""

    event: str
    seconds: Seconds
    fields: Mapping[str, Any]
    to: str | None = None  # the state, where the caller names one


class Swept(NamedTuple):
    """What a sweep has found to do."""

    due: bool  # whether anything was due
    moved: int  # tasks
    forgotten: int  # rows of the history
    refused: int = 0  # tasks that the database does not let go
    news: int = 0  # of tasks that have become ready


class Moves(Generic[T]):
    """The moves of tasks between the states of one queue, and out of it."""

    def __init__(self, database: Database, tasks: Tasks[T], machine: Machine) -> None:
        self.database = database
        self.store = database.store
        self.tasks = tasks
        self.machine = machine
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self._unfenced = bool(machine.settings.get("unfenced"))
        self._unique = machine.guard("unique")
        self._counts = bool(machine.settings.get("counts"))
        self._hears = machine.guard("utube") is not None
        self._forgets = machine.settings.get("history", math.inf) < math.inf
        self._swept = 0.0
        self._doubtful: dict[str, float] = {}  # marks of takes -> the monotonic time by which they were done, or never
        self._doubt_at = 0.0  # the monotonic time at which to look for them
        self._stuck: set[Any] = set()  # keys of tasks that could not be moved, and were told of

    # one task

    def one(
        self,
        event: str,
        key: object,
        options: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
        to: str | None = None,
        sets_error: bool = False,
        unless: str = "",
    ) -> T:
        """Move one task out of whatever state it is in, as the table says, but for `unless`, where it stays.

        With `sets_error`, `update` may set the role error, too.
        """
        call = self._call(event, options, update, to, sets_error)
        parts, mark = self.tasks.identify(key)
        state = self._only_source(call)
        if state is None:
            self.database.begin_writing()
            state = self._find(call, parts, mark)
        for _ in range(TRIES):
            if state == unless:
                return self.tasks.returned(self.look(parts)[0])
            row = self._row(state, call)
            opened = self.database.open(to_write=True)
            session = opened.sessions.to_take() if row.target == TAKEN and row.enters else None
            held = self.database.mark(opened, session) if session else mark
            try:
                moved = self.database.readably(partial(self._move_one, opened, call, row, parts, mark, held))
                if moved:
                    if session:
                        self._check_open(session)
                    return moved[0]
            except BaseException as failure:
                self.doubt([held] if session else [], failure)
                raise
            state = self._find(call, parts, mark)
        raise WrongState(event, self.tasks.as_told(parts), state, self.machine.sources(event))

    def write(self, task: T, fields: Mapping[str, Any]) -> None:
        """Write fields of a task that a take returned, and leave it taken. Raises as `one`."""
        parts, mark = self.tasks.identify(task)
        stays = Transition(TAKEN, "", TAKEN, fenced=True, enters=False)  # no event
        if not self._move(self.database.open(), Call("", {}, fields), "key", stays, mark, named(parts)):
            self._find(Call("ack", {}, fields), parts, mark)  # whoever may write is whoever may ack

    def _move_one(
        self, opened: Opened, call: Call, row: Transition, parts: Parts, mark: str | None, held: str | None
    ) -> list[T]:
        rows = self._move(opened, call, "key", row, mark, {**named(parts), "owner": held})
        return [self.tasks.returned(found, held if row.target == TAKEN else None) for found in rows]

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
                self._row(state, call)
                return None
            except Error as error:
                refused.append(error)
        raise refused[0]  # no state takes these options

    def _row(self, state: str, call: Call) -> Transition:
        return self.tasks.choose(state, call.event, call.seconds, call.to)

    def _move(
        self,
        opened: Opened,
        call: Call,
        way: Way,
        row: Transition,
        mark: str | None,
        values: Mapping[str, Any],
    ) -> list[Row]:
        """Move the rows that a key, or a list of them, names, if they are in this state and in the right hand."""
        fence: Fence = ""
        if row.fenced and not self._unfenced:
            prefix = opened.sessions.current().prefix
            # The mark of another session opens nothing here, whoever carries the object.
            opens = mark if mark and mark.startswith(prefix) else ""
            values = {**values, "session": prefix, "mark": opens}
            fence = "session" if mark is None else "take"
        return self._run(opened, call, Rows(way, row.source, fence), row, values)

    def _run(self, opened: Opened, call: Call, rows: Rows, row: Transition, values: Mapping[str, Any]) -> list[Row]:
        statement = opened.statements.move(rows, row, frozenset(call.seconds), tuple(call.fields))
        whole = {**self.database.values(call.seconds), **values}
        if call.fields:
            whole.update(zip(statement.names, call.fields.values(), strict=True))
        event = call.event if row.enters else ""
        source = "" if rows.more else row.source
        run = partial(self.database.run, opened, statement, whole, event, source, row.target)
        if self._counts and call.event and not self.machine.tells(call.event, row.source, row.target):
            run = partial(self.database.whole, partial(self._counted, opened, call, row, run))
        if self._unique is None:  # what an update brings only the database may find fault with
            return self.database.guarded(run) if call.fields else run()
        with self._telling_duplicates():
            return self.database.guarded(run)

    def _counted(self, opened: Opened, call: Call, row: Transition, run: Callable[[], list[Row]]) -> list[Row]:
        """As `run`, and counts an event that no transition tells. One that is none is told to observers as well."""
        rows = run()
        sources = Counter(opened.dialect.state(found) or "" for found in rows) if row.target == ABSENT else Counter()
        for source, n in (sources or {row.source: len(rows)}).items():
            if n and not self.machine.tells(call.event, source, row.target):
                opened.installation.add_counter(*apart(call.event, source, row.target), n)
        if rows and not row.enters:
            self.database.observers.hear(opened.dialect, call.event, row.source, row.target, rows)
        return rows

    @contextmanager
    def _telling_duplicates(self) -> Iterator[None]:
        """A move back into the states of the feature unique may meet another task with the same value."""
        try:
            yield
        except Exception as error:
            if self._unique and self.store.is_refusal(error):
                if self.database.dialect.is_duplicate(self._unique, str(error)):
                    raise Duplicate(self.store.name) from error
            raise

    def _find(self, call: Call, parts: Parts, mark: str | None) -> str:
        """The state of a task that a call moves. Raises NotFound, WrongState and NotOwner, in this order.

        SessionLost comes before all of them: what became of a task since then is not this caller's.
        """
        if any(row.fenced for row in self.machine.rows if row.event == call.event) and not self._unfenced:
            self._check_not_lost(call, parts, mark)
        # What the application's transaction saw before is not what a move meets.
        afresh = self.database.dialect.afresh if self.store.in_transaction() else ""
        row, state = self.look(parts, afresh)
        sources = self.machine.sources(call.event)
        if state not in sources:
            raise WrongState(call.event, self.tasks.as_told(parts), state, sources)
        if self._row(state, call).fenced and not self._unfenced:
            owner = row[-1]
            if afresh and "owner" not in self.tasks.table.roles:
                found = self.database.execute(self.database.dialect.look_for_owner(afresh), named(parts))
                owner = found[0][0] if found else None
            if not (owner or "").startswith(self.database.session.prefix) or (mark is not None and owner != mark):
                raise NotOwner(call.event, self.tasks.as_told(parts), owner)
        return state

    def _check_not_lost(self, call: Call, parts: Parts, mark: str | None) -> None:
        sessions = self.database.open().sessions
        session = sessions.current().uuid if mark is None else sessions_of.owner_of(mark)[0]
        if sessions.notice_loss(session):
            raise SessionLost(call.event, self.tasks.as_told(parts), mark or session)

    def look(self, parts: Parts, afresh: str = "") -> tuple[Row, str]:
        """A task's row, followed by its owner, and its state. Raises NotFound."""
        rows = self.database.execute(self.database.dialect.look(afresh), named(parts))
        if not rows:
            raise NotFound(self.store.name, self.tasks.as_told(parts))
        state = self.database.dialect.state(rows[0])
        if state is None:
            raise NotFound(self.store.name, self.tasks.as_told(parts), ": its row has a status that is not the queue's")
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
        transition = self._row(source, call)
        if n == 0:
            return []
        opened = self.database.open(to_write=True)
        session = opened.sessions.to_take() if transition.target == TAKEN else None
        mark = self.database.mark(opened, session) if session else None
        values = {"n": opened.dialect.no_limit if n is None else n, "owner": mark, "tube": tube}
        rows = Rows("first" if n == 1 else "oldest", source, tube=tube is not None)
        before: Swept | None = None
        # Within the application's transaction, which may see the past, news are guessed at once.
        within = self._hears and self.store.in_transaction()
        if not self._just_swept():
            self.database.begin_writing()
            before = self.sweep_what_is_due()
        elif source == READY:
            self._hear_news(mine=within)

        def move() -> list[T]:
            # Nothing is there when nothing is found after a look that found nothing due.
            swept, pauses = before, iter(BEING_MOVED)
            while not (moved := self._run(opened, call, rows, transition, values)):
                if swept is not None and not swept.moved and (within or not swept.news):
                    # Another may be moving what is due, and a take passes by what that one has locked.
                    passed_by = swept.due and not swept.refused and opened.dialect.lock
                    pause = next(pauses, None) if passed_by else None
                    if pause is None:
                        return []
                    time.sleep(pause)
                swept = self.sweep_what_is_due()
            if len(moved) > 1:
                self.tasks.sort(moved)
            return [self.tasks.returned(row, mark) for row in moved]

        self.settle_doubts()
        try:
            tasks = self.database.readably(move)
            if session:
                self._check_open(session)
            if tasks:
                then(mark)
            return tasks
        except BaseException as error:
            self.doubt([mark], error)
            raise

    def doubt(self, marks: Sequence[str | None], error: BaseException) -> None:
        """Have given back what these marks have taken, since whoever wanted it got an error in its place.

        To be called where the error is caught: a context manager would be left by calls, between which a signal may
        come, too.
        """
        if not self.tells(error):
            self._doubtful.update({mark: time.monotonic() + DOUBT for mark in marks if mark})

    def go_on_from(self, other: Moves[Any]) -> None:
        """Settle the doubts of another definition of the queue, too, which this one replaces."""
        self._doubtful = other._doubtful  # itself: a call of its may be under way still, and fail

    def tells(self, error: BaseException) -> bool:
        """Whether it is known from this error that nothing was done."""
        if self.store.is_failure(error):
            return not self.store.is_loss(error)
        # What neither the database nor xq has raised, the handler of a signal may have, at any place. An error of a
        # value may have been that one's, too.
        return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))

    def many(
        self, event: str, keys: object, options: Mapping[str, Any], update: Mapping[str, Any] | None = None
    ) -> list[T]:
        """Move all of the tasks or none: those in one state and one hand with one statement."""
        if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
            raise BadType(f"{event}_many takes keys or tasks, not {type(keys).__name__}: {shown(keys)}")
        call = self._call(event, options, update)
        identified = [self.tasks.identify(key) for key in keys]
        if len({parts for parts, _ in identified}) < len(identified):
            raise BadValue(f"{event}_many: a task is named twice")
        self.database.begin_writing()

        def move() -> list[T]:
            moved: dict[Any, Row] = {}
            only = self._only_source(call)
            if only:
                self._row(only, call)
            groups: dict[tuple[str, str | None], list[Parts]] = {}
            for parts, mark in identified:
                groups.setdefault((only or self._find(call, parts, mark), mark), []).append(parts)
            for (state, mark), group in groups.items():
                for batch in chunks(group, BATCH):
                    moved |= self._batch(call, state, mark, batch)
            return [self.tasks.returned(moved[self.tasks.as_told(parts)]) for parts, _ in identified]

        return self.database.whole(move)

    def _batch(self, call: Call, state: str, mark: str | None, keys: list[Parts]) -> dict[Any, Row]:
        """Move all of these tasks, and return their rows by key. Raises what is wrong with the first that stays."""
        transition = self._row(state, call)
        opened = self.database.open()
        move = partial(self._move, opened, call)
        keys_listed = opened.dialect.listed(keys) if len(keys) > 1 else None
        if keys_listed:
            rows = move("keys", transition, mark, {"keys": keys_listed})
        else:
            rows = [row for parts in keys for row in move("key", transition, mark, named(parts))]
        moved = {self.tasks.key_told(row): row for row in rows}
        for parts in keys if len(moved) < len(keys) else ():
            if self.tasks.as_told(parts) not in moved:
                raise WrongState(call.event, self.tasks.as_told(parts), self._find(call, parts, mark), [state])
        return moved

    def all(self, event: str, states: Sequence[str], told: str = "") -> int:
        """Move every task in these states, whoever holds it, which may be told as another event. Returns how many.

        Those that are deleted with one statement: it finds a task wherever another process moves it meanwhile.
        """
        self.database.begin_writing()
        rows = [self._row(state, Call(event, {}, {})) for state in states]
        gone = [row for row in rows if row.target == ABSENT]
        together = [*([row] for row in rows if row not in gone), *([gone] if gone else [])]
        return sum(self._all(Call(told or event, {}, {}), *alike) for alike in together)

    def _all(self, call: Call, row: Transition, *alike: Transition) -> int:
        """Move every task in the states from which these lead, which do the same."""
        opened, more = self.database.open(), tuple(other.source for other in alike)
        apart = self._counts and not all(self.machine.tells(call.event, r.source, r.target) for r in (row, *alike))
        if apart or self.database.observers.anybody:
            return len(self._run(opened, call, Rows("each", row.source, more=more), row, {}))
        statement = opened.statements.move(Rows("all", row.source, more=more), row)
        return self.database.change(opened, statement, self.database.values(), call.event)

    def give_back(self, session: str, event: str) -> None:
        """Release what a session that has ended still holds, as the event `event`."""
        self._give_back(*sessions_of.marks_of(session), event)

    def settle_doubts(self) -> None:
        """Give back what was taken by calls whose answer was lost: whether they took it nobody has been told.

        Again and again for a while, since the server may be at it still.
        """
        now = time.monotonic()
        if self._doubtful and now >= self._doubt_at:
            self._doubt_at = now + DOUBT / 20
            for mark, until in list(self._doubtful.items()):
                self._give_back(mark, f"{mark}!", "release")  # of this take alone: no mark goes on with a !, or less
                if now > until:
                    self._doubtful.pop(mark, None)  # another thread may have found so at the same time

    def _give_back(self, first: str, end: str, event: str) -> None:
        """Release what is held by marks from one on, and before another."""
        call = Call(event, {}, {})
        held = {"session": first, "session_end": end}
        row = self._row(TAKEN, Call("release", {}, {}))
        while self._run(self.database.open(), call, Rows("held", TAKEN), row, {"n": BATCH, **held}):
            pass

    # time

    def _just_swept(self) -> bool:
        """Whether what fell due was moved a moment ago. Under a test's clock any time may have passed."""
        return self.database.clock is None and time.monotonic() - self._swept < SWEEP_AFTER

    def due_in(self) -> float | None:
        """In how many seconds something falls due: less than none for what is late, None for never."""
        if not self.machine.due and not self._forgets and not (self._hears and self.database.dialect.hears):
            return None
        ((seconds,),) = self.database.execute(self.database.dialect.next_due)
        return None if seconds is None else float(seconds)

    def sweep_what_is_due(self) -> Swept:
        """Move a batch of what each timer makes due, and forget a batch of history, if anything is due."""
        due = self.due_in()
        is_due = due is not None and due <= 0 and self.database.may_move
        swept = self.sweep_batch() if is_due else Swept(False, 0, 0)
        self._swept = time.monotonic()
        return swept

    def sweep(self) -> int:
        """Move what is due until nothing is, and forget what is history. Returns how many moves that were."""
        moves = 0
        while (swept := self.sweep_batch()).moved or swept.news or swept.forgotten == BATCH:
            moves += swept.moved
        return moves

    def sweep_batch(self) -> Swept:
        """Move a batch of what each timer makes due, and forget a batch of history."""
        self.database.begin_writing()
        swept = [self._sweep_batch(row) for row in self.machine.due]
        moved, refused = (sum(numbers) for numbers in zip(*swept, strict=True)) if swept else (0, 0)
        return Swept(True, moved, self._forget(), refused, self._hear_news())

    def _hear_news(self, mine: bool = False) -> int:
        """Have takes find what has become the first of its utube, `mine` since the open transaction began.

        Returns for how many utubes.
        """
        database = self.database
        return database.open().dialect.hear(self.store, database.again, database.whole, mine) if self._hears else 0

    def any_ready(self, tube: str | None = None) -> bool:
        """Whether a take would find something."""
        return bool(self.database.execute(self.database.dialect.any_ready(tube is not None), {"tube": tube}))

    def _forget(self) -> int:
        """Delete a batch of the history that is older than the feature keeps it. Returns how many rows."""
        if not self._forgets:
            return 0
        opened = self.database.open()
        statement = Statement(opened.dialect.forget_history)
        return self.database.change(opened, statement, self.database.values() | {"n": BATCH})

    def _sweep_batch(self, row: Transition) -> tuple[int, int]:
        """Move a batch of what one timer makes due. Returns how many that were, and how many were refused."""
        rows, call = Rows("due", row.source, column=row.due), Call(row.event, {}, {})
        try:
            run = partial(self._run, self.database.open(), call, rows, row, {"n": BATCH})
            moved, refused = len(self.database.guarded(run)), 0
        except Exception as error:
            if not self.store.is_refusal(error):
                raise
            moved, refused = self._sweep_singly(call, rows, row)
        if moved:
            self.log.debug("%s: %d tasks %s-%s", row.event, moved, row.source, row.target)
        return moved, refused

    def _sweep_singly(self, call: Call, rows: Rows, row: Transition) -> tuple[int, int]:
        """Move what is due one by one: rows that the database keeps, since others refer to them, stop no others."""
        moved, refused, n = 0, 0, BATCH
        tried: set[Parts] = set()
        while True:
            due = [tuple(parts) for parts in self.database.execute(self.database.dialect.due(rows), {"n": n})]
            for parts in due:
                if parts in tried:
                    continue
                tried.add(parts)
                try:
                    run = partial(self._run, self.database.open(), call, Rows("key", row.source), row, named(parts))
                    moved += len(self.database.guarded(run))
                except Exception as error:
                    if not self.store.is_refusal(error):
                        raise
                    key = self.tasks.as_told(parts)
                    level = logging.DEBUG if key in self._stuck else logging.WARNING  # it is tried again and again
                    self.log.log(level, "%s cannot move task %r: %s", row.event, key, error)
                    self._stuck.add(key)
                    refused += 1
            if moved or len(due) < n:
                break
            n = 2 * n  # behind those that cannot be moved
        return moved, refused
