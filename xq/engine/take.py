"""Take the oldest tasks, or dig them: transitions that choose their tasks themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from xq.core.compile import Selector
from xq.core.errors import BadType, BadValue, Error, UnknownSession
from xq.core.machine import READY, TAKEN, Transition
from xq.core.ports import ErrorKind, Row
from xq.core.values import Seconds, Tasks
from xq.engine.steps import Steps
from xq.engine.timers import SWEEP_AFTER, Batches, Swept, Timers
from xq.engine.unit import Step
from xq.sessions.session import Session

T = TypeVar("T")

TRIES: Final = 20  # how often a take is tried again whose process's own session was lost meanwhile
# seconds to wait, one after the other, for due tasks that another connection is moving at this moment
BEING_MOVED: Final = (0.002, 0.004, 0.008, 0.016, 0.032)
LASTS = 10.0  # seconds within which a server has done, or forgotten, what a lost connection told it to do
NONE: Final[Mapping[str, Any]] = {}


class Takes(Generic[T]):
    """The takes of one queue."""

    def __init__(self, tasks: Tasks[T], steps: Steps, timers: Timers, in_doubt: InDoubtTakes) -> None:
        self.database = steps.database
        self.store = steps.database.store
        self.tasks = tasks
        self.machine = steps.machine
        self.steps = steps
        self.timers = timers
        self.in_doubt = in_doubt
        self._usual: dict[str, Transition] = {}  # event -> the transition of a call without options
        # The binding for which a maintenance thread runs, or where there can be none; and what sees to that.
        self.attended: object = None
        self.attend: Callable[[], object] = lambda: None

    def oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any] = NONE,
        update: Mapping[str, Any] | None = None,
        tube: str | None = None,
        then: Callable[[str | None], None] | None = None,
    ) -> list[T]:
        """Move the `n` oldest tasks that `event` may choose itself (None: all), and return them in order.

        If there are any, `then` is called with the token by which they are taken, before anything can come in between.
        """
        seconds: Seconds = self.tasks.options(event, options) if options else NONE
        fields = self.tasks.updates(update) if update is not None else NONE
        transition = self._transition(event, seconds) if seconds else self._usual.get(event)
        if transition is None:
            transition = self._usual[event] = self._transition(event, seconds)
        if n == 0:
            return []
        database, hydrate, takes = self.database, self.tasks.returned, transition.target == TAKEN
        tried, token = 0, None
        while True:
            connection = database.begin()
            binding = database.binding or database.open()
            clock, dialect = database.clock, binding.dialect
            if takes and clock is None and self.attended is not binding:
                database.begin_writing()
                self.attend()  # before the take, whose task would be nobody's if this failed
                connection = self.store.ready()
            session = binding.sessions.to_take() if takes else None
            try:
                if session is not None:
                    token = database.token(binding, session)
                now = None if clock is None else clock.now
                values = {"now": now, "n": dialect.no_limit if n is None else n, "owner": token, "tube": tube}
                if seconds:
                    values |= database.values(seconds)
                name = event, n == 1, tube is None, *seconds, None, *fields
                step = binding.steps.get(name)
                if step is None:
                    which = Selector("first" if n == 1 else "oldest", transition.source, tube=tube is not None)
                    step = self.steps.move(binding, event, which, transition, tuple(seconds), tuple(fields))
                    binding.steps[name] = step
                if fields:
                    values.update(zip(step.statement.names, fields.values(), strict=True))
                swept: Swept | None = None
                # Within the application's transaction, which may see the past, dirty heads are guessed at once.
                guesses = connection.in_transaction and dialect.has_dirty_groups
                if clock is not None:
                    database.review()  # no maintenance thread does under a test's clock
                if clock is not None or time.monotonic() - self.timers.swept_at > SWEEP_AFTER:
                    database.begin_writing()
                    swept = self.timers.sweep_if_any()
                    connection = self.store.ready()
                elif dialect.has_dirty_groups and transition.source == READY:
                    self.timers.refresh_groups(mine=guesses)
                    connection = self.store.ready()
                if self.in_doubt.pending:
                    self.in_doubt.resolve()
                    connection = self.store.ready()
                if self.store.may_fail_to_read:  # rows that cannot be read are not taken
                    again = partial(self._taken, step, values, token, swept, guesses)
                    tasks = database.unit(again, transaction=True)
                elif rows := database.perform(step, connection, values):
                    tasks = [hydrate(rows[0], token)] if len(rows) == 1 else self._in_order(rows, token)
                else:
                    tasks = self._in_order(self._found_late(step, values, swept, guesses), token)
                if session is not None and session.closed:
                    check_open(session)
                if tasks and then is not None:
                    then(token)
                return tasks
            except BaseException as error:
                self.in_doubt.add([token], error)
                # The process's own session was lost meanwhile: what it took is released, and the next one takes.
                tried += 1
                if not isinstance(error, UnknownSession) or tried > TRIES or binding.sessions.is_entered(error.uuid):
                    raise

    def _transition(self, event: str, seconds: Seconds) -> Transition:
        self.tasks.options(event, NONE)  # refuses an event that this queue does not have
        (source,) = self.machine.sources(event)
        return self.tasks.choose(source, event, seconds)

    def _taken(
        self, step: Step, values: dict[str, Any], token: str | None, swept: Swept | None, guesses: bool
    ) -> list[T]:
        rows = self.database.perform(step, self.store.ready(), values)
        return self._in_order(rows or self._found_late(step, values, swept, guesses), token)

    def _in_order(self, rows: list[Row], token: str | None) -> list[T]:
        hydrate = self.tasks.returned
        if len(rows) > 1:
            self.tasks.sort(rows)
        return [hydrate(row, token) for row in rows]

    def _found_late(self, step: Step, values: dict[str, Any], swept: Swept | None, guesses: bool) -> list[Row]:
        """Look again, until nothing was found after a look that found nothing due."""
        pauses, rows = iter(BEING_MOVED), list[Row]()
        while not rows:
            if swept is not None and not swept.moved and (guesses or not swept.refreshed):
                # Another may be moving what is due, and a take skips what that one has locked.
                skipped = swept.due and not swept.refused and self.database.dialect.lock
                pause = next(pauses, None) if skipped else None
                if pause is None:
                    break
                time.sleep(pause)
            swept = self.timers.sweep_if_any()
            rows = self.database.perform(step, self.store.ready(), values)
        return rows

    def any_ready(self) -> bool:
        """Whether a take would find something."""
        return bool(self.database.execute(self.database.dialect.any_ready))


def check_open(session: Session) -> None:
    """Raise UnknownSession if a session was closed, in another thread, while it took; give back what it took."""
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
        self.pending: dict[str, float] = {}  # token -> the monotonic time by which it was applied, or never
        self._look_at = 0.0  # the monotonic time of the next look
        # Held by the thread that looks: another one would not find the rows that this one has locked, and forget them.
        self._looking = threading.Lock()

    def add(self, tokens: Sequence[str | None], error: BaseException) -> None:
        """Release what these tokens have taken, unless the error excludes that they have.

        To be called where the error is caught: a context manager would be left by calls, between which a signal may
        come, too.
        """
        if not self.excluded_by(error):
            self.pending.update({token: time.monotonic() + LASTS for token in tokens if token})

    def excluded_by(self, error: BaseException) -> bool:
        """Whether this error shows that nothing was done."""
        kind = self.store.classify(error)
        if kind is not ErrorKind.NOT_DATABASE:
            return kind is not ErrorKind.LOST
        # What neither the database nor xq has raised, a signal handler may have, at any place. An error of a value may
        # have been that one's, too.
        return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))

    def go_on_from(self, other: InDoubtTakes) -> None:
        """Resolve those of another definition of the queue, too, which this one replaces."""
        self.pending = other.pending  # itself: a call of its may be under way still, and fail

    def resolve(self) -> None:
        """Release what they have taken: again and again for a while, since the server may not have finished."""
        if not self.pending or time.monotonic() < self._look_at or not self._looking.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            self._look_at = now + LASTS / 20
            for token, until in list(self.pending.items()):
                # Of this take alone: no token goes on with a !, or less.
                refused = self.batches.give_back_what_goes(token, f"{token}!", "release", "take")
                if now > until and not refused:
                    self.pending.pop(token, None)
        finally:
            self._looking.release()
