"""Take or dig the oldest tasks: transitions that select their tasks themselves."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from xq.core.compile import Selector, Way
from xq.core.errors import BadType, BadValue, Error, UnknownSession
from xq.core.machine import READY, TAKEN, Transition
from xq.core.ports import Connection, ErrorKind, Row
from xq.core.values import Seconds, Tasks
from xq.engine.binding import Step
from xq.engine.pauses import Pauses
from xq.engine.steps import PER_MOVE, Steps
from xq.engine.timers import SWEEP_AFTER, Batches, Swept, Timers
from xq.sessions.session import Session

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

T = TypeVar("T")

TRIES: Final = 20  # how often a take is tried again whose process's own session was lost meanwhile
# seconds to wait, one after the other, for due tasks that another connection is moving at this moment
BEING_MOVED: Final = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
LASTS = 10.0  # seconds within which a server has done, or forgotten, what a lost connection told it to do
NONE: Final[Mapping[str, Any]] = {}


class Prepared(NamedTuple):
    """What was done before a take looks for a task."""

    swept: Swept | None = None
    only_own_heads: bool = False  # the heads of other groups may be stale


UNPREPARED: Final = Prepared()


class Takes(Generic[T]):
    """The takes of one queue."""

    def __init__(self, tasks: Tasks[T], steps: Steps, timers: Timers, in_doubt: InDoubtTakes, pauses: Pauses) -> None:
        self.database = steps.database
        self.store = steps.database.store
        self.tasks = tasks
        self.machine = steps.machine
        self.steps = steps
        self.timers = timers
        self.in_doubt = in_doubt
        self.pauses = pauses
        self._usual: dict[str, Transition] = {}  # event -> the transition of a call without options
        # The binding that has a maintenance thread, or cannot have one; and the call that starts the thread.
        self.maintained: object = None
        self.maintain: Callable[[], object] = lambda: None

    def oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any] = NONE,
        update: Mapping[str, Any] | None = None,
        tube: str | None = None,
        then: Callable[[str | None], None] | None = None,
        but: tuple[str, ...] = (),
    ) -> list[T]:
        """Move the `n` oldest tasks (None: all) by `event`, and return them in order.

        Without `tube` they are of any tube that is not in `but`. If there are any, `then` is called with their token as
        the last action.
        """
        seconds: Seconds = self.tasks.options(event, options) if options else NONE
        fields = self.tasks.updates(update) if update is not None else NONE
        transition = self._transition(event, seconds) if seconds else self._usual.get(event)
        if transition is None:
            transition = self._usual[event] = self._transition(event, seconds)
        if n == 0:
            return []
        for tried in itertools.count():
            try:
                return self._once(event, n, transition, seconds, fields, tube, then, but)
            except UnknownSession as error:
                # If the session of the process was lost meanwhile, its tasks are released and a new session takes.
                if tried == TRIES or self.database.open().sessions.is_registered(error.uuid):
                    raise
        return []

    def _once(
        self,
        event: str,
        n: int | None,
        transition: Transition,
        seconds: Seconds,
        fields: Mapping[str, Any],
        tube: str | None,
        then: Callable[[str | None], None] | None,
        but: tuple[str, ...],
    ) -> list[T]:
        database, takes, token = self.database, transition.target == TAKEN, None
        connection = database.begin()
        binding = database.binding or database.open()
        clock, dialect = database.clock, binding.dialect
        if takes and clock is None and self.maintained is not binding:
            database.begin_writing()
            self.maintain()  # before the take: if this fails, no task is taken
            connection = self.store.ready()
        skipped = but
        if takes:
            paused = self.pauses.paused
            if self.pauses.binding is not binding or self.pauses.uncommitted:
                database.begin_writing()
                paused = self.pauses.look()
                connection = self.store.ready()
            if paused is not None:
                if paused.stops(tube):
                    return []
                if tube is None:
                    skipped = tuple(sorted({*paused.tubes, *but})) if but else paused.tubes
        session = binding.sessions.to_take() if takes else None
        try:
            if session is not None:
                token = session.token(database, binding.dialect.source_name)
            now = None if clock is None else clock.now
            values = {"now": now, "n": dialect.no_limit if n is None else n, "owner": token, "tube": tube}
            if seconds:
                values |= database.values(seconds)
            name: tuple[object, ...] = event, n == 1, tube is None
            if seconds or fields or skipped:
                name = *name, len(skipped), *seconds, None, *fields
                values |= {f"skip{i}": each for i, each in enumerate(skipped)}
            step = binding.steps.get(name)
            if step is None:
                way: Way = "first" if n == 1 or (takes and self.steps.rates) else "oldest"
                which = Selector(way, transition.source, tube=tube is not None, skips=len(skipped))
                step = self.steps.move(binding, event, which, transition, tuple(seconds), tuple(fields), name)
            if fields:
                values.update(zip(step.statement.names, fields.values(), strict=True))
            look = UNPREPARED
            time_to_sweep = clock is not None or time.monotonic() - self.timers.swept_at > SWEEP_AFTER
            if time_to_sweep or dialect.has_dirty_groups or self.in_doubt.pending:
                look = self._prepare(connection, dialect, transition, time_to_sweep)
                connection = self.store.ready()
            if self.store.may_fail_to_read:  # reading the rows back may raise: then undo the take
                tasks = database.unit(partial(self._taken, step, values, token, look), transaction=True)
            elif rows := database.perform(step, connection, values):
                returned = self.tasks.returned
                tasks = [returned(rows[0], token)] if len(rows) == 1 else self._in_order(rows, token)
            else:
                tasks = self._in_order(self._found_late(step, values, look), token)
            if session is not None and session.closed:
                check_open(session)
            if tasks and then is not None:
                then(token)
            return tasks
        except BaseException as error:
            self.in_doubt.add([token], error)
            raise

    def _prepare(
        self, connection: Connection, dialect: Dialect, transition: Transition, time_to_sweep: bool
    ) -> Prepared:
        """Move due tasks, refresh group heads and resolve in-doubt takes, before the take looks for a task."""
        swept: Swept | None = None
        # The application's transaction may see an old snapshot: refresh only the heads that it made dirty.
        only_own_heads = connection.in_transaction and dialect.has_dirty_groups
        if self.database.clock is not None:
            self.database.review()  # no maintenance thread does, under a test's clock
        if time_to_sweep:
            self.database.begin_writing()
            swept = self.timers.sweep_if_any()
        elif dialect.has_dirty_groups and transition.source == READY:
            self.timers.refresh_groups(mine=only_own_heads)
        if self.in_doubt.pending:
            self.in_doubt.resolve()
        return Prepared(swept, only_own_heads)

    def _transition(self, event: str, seconds: Seconds) -> Transition:
        self.tasks.options(event, NONE)  # raises FeatureOff for an event that this queue lacks
        (source,) = self.machine.sources(event)
        return self.tasks.choose(source, event, seconds)

    def _taken(self, step: Step, values: dict[str, Any], token: str | None, look: Prepared) -> list[T]:
        rows = self.database.perform(step, self.store.ready(), values)
        return self._in_order(rows or self._found_late(step, values, look), token)

    def _in_order(self, rows: list[Row], token: str | None) -> list[T]:
        self.tasks.sort(rows)
        return self.tasks.returned_all(rows, token)

    def _found_late(self, step: Step, values: dict[str, Any], look: Prepared) -> list[Row]:
        """Sweep a batch, if that was not done, and take again while more tasks become ready, or are passed by.

        The other due tasks are left to the maintenance thread. All are moved if there is none, or if they hide a task.
        """
        swept, only_own_heads = look
        dialect, alone = self.database.dialect, self.database.clock is not None or not self.store.has_threads
        pauses, rows = iter(BEING_MOVED), list[Row]()
        while not rows:
            is_passed_by = False
            if swept is None:
                swept = self.timers.sweep_if_any()
            elif swept.moved and (alone or (swept.moved >= PER_MOVE and self._finds(dialect.behind_due, values))):
                swept = Swept(True, self.timers.sweep())
            elif swept.readied or (swept.refreshed and not only_own_heads):
                swept = self.timers.ready_batch(only_groups=not swept.readied)
            else:
                # Another connection may be moving the due tasks, and a take skips the rows that it has locked.
                skips = swept.due and not swept.refused and dialect.lock
                if skips and not self.timers.any_to_ready():
                    swept = Swept(False)  # it has moved them by now: look once more
                elif skips or (is_passed_by := dialect.may_pass_by and self._finds(dialect.ready, values)):
                    if (pause := next(pauses, None)) is None:
                        break
                    time.sleep(pause)
                    swept = self.timers.ready_batch()
                else:
                    break
            # A query comes first, but not in a transaction, which may see an old snapshot. Without timers, none is new.
            sure = is_passed_by or swept.readied or values["owner"] is None or self.store.in_transaction()
            if sure or (dialect.next_due and self.any_ready()):
                rows = self.database.perform(step, self.store.ready(), values)
        return rows

    def _finds(self, query: Callable[[Selector], str], values: dict[str, Any]) -> bool:
        """Return whether a query finds a task that this take may take."""
        if values["owner"] is None or self.store.in_transaction():  # which may see an old snapshot
            return False
        skips = sum(name.startswith("skip") for name in values)
        sql = query(Selector("first", READY, tube=values["tube"] is not None, skips=skips))
        return bool(sql and self.database.execute(sql, values))

    def any_ready(self) -> bool:
        """Return whether a take would find a task."""
        return bool(self.database.execute(self.database.dialect.any_ready))


def check_open(session: Session) -> None:
    """If another thread closed the session during a take, release its tasks and raise UnknownSession."""
    if session.closed:
        session.close()
        raise UnknownSession(session.uuid)


class InDoubtTakes:
    """Tokens of takes of one queue whose result did not arrive: the connection was lost, or the call interrupted.

    The tasks may or may not have been taken, so they are released.
    """

    def __init__(self, batches: Batches) -> None:
        self.store = batches.store
        self.batches = batches
        self.pending: dict[str, float] = {}  # token -> the monotonic time by which the take was applied or discarded
        self._look_at = 0.0  # the monotonic time of the next attempt to release
        # Held by the thread that resolves: another would skip the rows that this one has locked, and drop their tokens.
        self._looking = threading.Lock()

    def add(self, tokens: Sequence[str | None], error: BaseException) -> None:
        """Add these tokens, unless the error shows that they took nothing.

        Call it in the `except` block: a context manager is left by several calls, and a signal may come between them.
        """
        if not self.excluded_by(error):
            self.pending.update({token: time.monotonic() + LASTS for token in tokens if token})

    def excluded_by(self, error: BaseException) -> bool:
        """Return whether this error shows that the take was not applied."""
        kind = self.store.classify(error)
        if kind is not ErrorKind.NOT_DATABASE:
            return kind is not ErrorKind.LOST
        # A signal handler may have raised any other error, BadType and BadValue included, at any point of the call.
        return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))

    def resolve(self) -> None:
        """Release the tasks of the tokens. Each is retried for LASTS seconds: the server may not have finished."""
        if not self.pending or time.monotonic() < self._look_at or not self._looking.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            self._look_at = now + LASTS / 20
            for token, until in list(self.pending.items()):
                # The tokens from `token` to `token!` are this one alone: no longer one continues with ! or less.
                refused = self.batches.give_back_except_rejected(token, f"{token}!", "release", "take")
                if now > until and not refused:
                    self.pending.pop(token, None)
        finally:
            self._looking.release()
