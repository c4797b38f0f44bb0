"""The maintenance thread of a process for a database, and its duties.

A process that only puts has none.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, ref

from xq.core.errors import NotInstalled
from xq.core.ports import FAULTS, ErrorKind, Notifier, keep
from xq.engine.pauses import read_all
from xq.engine.unit import REVIEW
from xq.sessions.session import Sessions

if TYPE_CHECKING:
    from xq.runtime.queue_maintenance import QueueMaintenance

R = TypeVar("R")

log = logging.getLogger("xq")

# Seconds until the next run of a duty, unless an event makes it due earlier:
FALLBACK = 0.9  # wake waiters and expire timers, in case a notification was lost or a clock was set
LOOK, ALONE = 0.4, 0.8  # reap: while sessions of other processes are registered, and while none is
PAUSES = 0.4  # read the pauses
RETRY = 0.5  # resolve in-doubt takes, and retry after a failure
RETRY_MOST = 5.0  # retry: the pause doubles up to this, which is how late waiters are woken after an outage
WRITABLE = 0.8  # check whether the database is writable
ROLL_UP = 1.0  # roll up counters, after a change
BUCKETS = 60.0  # delete the full buckets of the feature rate
EARLY = 0.2  # a duty runs up to so much earlier, with another one that is due: each wake-up costs more than most duties
# Seconds of pause after a run of duties: half of the time that a due task may be late, and less if callers wait.
PAUSE, WAITED_FOR = 0.02, 0.002
count: Callable[[str], None] | None = None  # called with "sweep" and "wakeup", if a program shows how often they happen
IN_VAIN = 16  # notifications in a row that woke no waiter of this process, after which the pause grows


class Duty:
    """A call that the maintenance thread repeats, and the time of its next run."""

    def __init__(self, name: str, run: Callable[[], float]) -> None:
        self.name = name
        self.run = run  # returns the seconds until its next run
        self.next_at = 0.0  # the monotonic time of its next run

    def within(self, seconds: float) -> None:
        """Run it in `seconds` at the latest."""
        self.next_at = min(self.next_at, time.monotonic() + seconds)

    def __repr__(self) -> str:
        return f"<duty {self.name!r} in {self.next_at - time.monotonic():.3f} s>"


class MaintenanceThread:
    """The maintenance thread of one database: it waits for a notification or the next duty, and runs what is due."""

    def __init__(
        self,
        database: object,
        notifier: Notifier,
        queues_of_database: Callable[[], list[QueueMaintenance]],
        sessions: Sessions,
    ) -> None:
        self._database = ref(database)
        self._notifier = notifier
        self._queues_of_database = queues_of_database
        self._sessions = sessions
        self._queues: list[QueueMaintenance] = []  # of this cycle; empty between two cycles
        self._next_at = 0.0  # the monotonic time of the next cycle, without a notification
        self._connection: Any = None  # the driver's; keeps the garbage collector from freeing an open one
        self._notified = False  # whether the notifier reported a commit before this cycle
        self._recheck = FALLBACK  # seconds until the next look for a commit that was not reported
        self._in_vain = 0  # notifications in a row that woke no waiter of this process
        self._to_roll_up: WeakSet[QueueMaintenance] = WeakSet()  # those that had many counters at the last look
        self._only_reads = False
        self.paused = False  # whether the database was read-only, and not all duties have run since
        self._backoff = 0.0  # seconds of pause after the last cycle, if that failed
        self._warned = False  # of the failures since the last cycle that did not fail
        self._failing = set[tuple[str, str]]()  # the queues that fail in a duty, so that each is logged once
        self._ended = False
        self._hurry = threading.Event()
        self.working = threading.RLock()
        # In this order: the first two may leave no queue for the others.
        self.review = Duty("review the installation", self._review)
        self.ask_to_write = Duty("ask whether the database may be written", self._ask_to_write)
        self.read_pauses = Duty("read the pauses", self._read_pauses)
        self.resolve = Duty("resolve in-doubt takes", self._resolve)
        self.wake_waiters = Duty("wake waiters", self._wake_waiters)
        self.reap = Duty("reap orphaned tasks", self._reap)
        self.fire = Duty("fire schedules", self._fire)
        self.expire = Duty("expire timers", self._expire)
        self.roll_up = Duty("roll up counters", self._roll_up)
        self.drop_buckets = Duty("delete full buckets", self._drop_buckets)
        self.duties = [each for each in vars(self).values() if isinstance(each, Duty)]
        self.thread = threading.Thread(target=self._run, name="xq", daemon=True)

    # called by other threads

    def end(self) -> None:
        self._ended = True
        self._hurry.set()
        self._notifier.wake()

    def disown(self) -> None:
        """End it in a forked child, which has no such thread. Keep the parent's notifier and connection intact."""
        self._ended = True
        keep(self._connection)
        self._notifier.close()

    def expect(self) -> None:
        """Be notified of commits from now on, since a caller begins to wait."""
        self._hurry.set()
        self._notifier.expect()

    @property
    def reports_own(self) -> bool:
        """Whether the notifier also reports the commits of this process."""
        return self._notifier.reports_own

    def call_for(self, *duties: Duty) -> None:
        """Wake the thread to run these duties now."""
        for duty in duties:
            duty.next_at = 0.0
        self._notifier.wake()

    # the loop

    def _run(self) -> None:
        try:
            while self._wait_and_work():
                pass
        finally:
            self._notifier.close()
            self._disconnect()

    def _wait_and_work(self) -> bool:
        """Wait for a notification or the next duty, and run the due duties. Return False when the thread must end."""
        try:
            waited_for = any(queue.waiting.anybody for queue in self._attended())
            self._notified = self._notifier.wait(max(0.0, self._next_at - time.monotonic()), waited_for)
            if self._is_over:
                return False
            with self.working:
                pause = self._cycle()
            self._recovered()
        except Exception as error:
            if self._is_over:
                return False
            self._complain(error)
            self._all_at_once()
            self.paused = self._only_reads  # a duty that fails must not make `is_paused` reject calls
            with self.working:
                self._disconnect()
            self._next_at = 0.0
            pause = self._backoff = min(2 * self._backoff or RETRY, RETRY_MOST)
        self._hurry.wait(pause)
        self._hurry.clear()
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._ended or self._database() is None

    @property
    def _allowed(self) -> list[Duty]:
        return [self.review, self.ask_to_write] if self._only_reads else self.duties

    def _all_at_once(self) -> None:
        for duty in self.duties:
            duty.next_at = 0.0

    def _cycle(self) -> float:
        """Run the due duties. Return the seconds of pause after it, which leave a busy database to others."""
        try:
            self._run_duties()
            self._next_at = time.monotonic() + FALLBACK
            if self._queues:
                self._next_at = min(self._next_at, *(duty.next_at for duty in self._allowed))
            return self._rest()
        finally:
            self._hold_connection()
            self._queues = []  # they refer to the database object, which the application may drop

    def _run_duties(self) -> None:
        if self._notifier.replaced():
            self._disconnect()  # else the connection would stay on the old file
            self.reap.next_at = 0.0
        self._queues = self._attended()
        if self._notified:
            self.wake_waiters.next_at = 0.0
        for queue in self._queues:
            queue.database.observers.count()  # the notifier may have begun or ceased to report own commits
        due = any(time.monotonic() >= duty.next_at for duty in self._allowed)
        early = EARLY if due and not self._notified else 0.0  # notifications may come at any rate
        for duty in self.duties:
            if self._queues and duty in self._allowed and time.monotonic() >= duty.next_at - early:
                duty.next_at = math.inf  # before the run: another thread may call for it meanwhile
                duty.within(duty.run())
        self.paused = self.paused and self._only_reads and bool(self._queues)

    def _rest(self) -> float:
        # The pause grows from WAITED_FOR to PAUSE if the last notifications woke no waiter of this process.
        if not any(queue.waiting.anybody for queue in self._queues):
            return PAUSE
        return min(PAUSE, WAITED_FOR * 2.0 ** max(0, min(self._in_vain, 64) - IN_VAIN))

    def _complain(self, error: Exception) -> None:
        ending = not threading.main_thread().is_alive()  # then no thread can be started
        expected = ending or isinstance(error, NotInstalled)  # the queue was uninstalled, or has other features
        level = logging.DEBUG if expected or self._warned else logging.WARNING  # warn once
        log.log(level, "the maintenance thread failed, and retries: %s", error)
        self._warned = self._warned or not expected

    def _recovered(self) -> None:
        if self._warned:
            log.info("the maintenance thread works again")
        self._backoff, self._warned = 0.0, False

    def _attended(self) -> list[QueueMaintenance]:
        # Without a check of the installation, which would fail while the database cannot be opened.
        return [queue for queue in self._queues_of_database() if queue.maintained]

    def _hold_connection(self) -> None:
        for queue in self._attended()[:1]:
            self._connection = queue.database.store.own_connection

    def _disconnect(self) -> None:
        queues, connection = self._attended(), self._connection
        self._connection, self.review.next_at = None, 0.0
        try:
            if queues:
                queues[0].database.store.disconnect()
            elif connection is not None:  # the ORM's database object is gone
                connection.close()
        except Exception as error:
            log.debug("a connection could not be closed: %s", error)

    def _each(
        self, duty: Duty, call: Callable[[QueueMaintenance], R], queues: Iterable[QueueMaintenance]
    ) -> dict[QueueMaintenance, R]:
        """Return what a call returns for each of these queues. One that the database refuses is logged and left out.

        Any other error ends the cycle, as that of a lost connection.
        """
        found = {}
        for queue in queues:
            try:
                found[queue] = call(queue)
                self._failing.discard((queue.name, duty.name))
            except Exception as error:
                if queue.database.store.classify(error) not in (*FAULTS, ErrorKind.DENIED):
                    raise
                level = logging.DEBUG if (queue.name, duty.name) in self._failing else logging.WARNING
                log.log(level, "%s cannot %s, and tries again: %s", queue.name, duty.name, error)
                self._failing.add((queue.name, duty.name))
        return found

    # the duties; each returns the seconds until its next run

    def _review(self) -> float:
        """Stop maintaining queues that are no longer installed, until they are used again."""
        liveness, store = self._sessions.liveness, self._queues[0].database.store
        there = liveness is None or liveness.there()  # a connection would create an empty database
        if there:
            store.connect_unpooled()
            self._hold_connection()  # now: below, the last queue may be dropped

        def review(queue: QueueMaintenance) -> None:
            try:
                if there:
                    queue.database.review()
                    return
            except NotInstalled as error:
                log.debug("%s", error)
            queue.maintained = None
            queue.waiting.wake_all()

        self._each(self.review, review, self._queues)
        self._queues = [queue for queue in self._queues if queue.maintained]
        return REVIEW

    def _ask_to_write(self) -> float:
        """Pause the other duties while the database is read-only, even if this process could write to it."""
        only_reads = self._queues[0].database.only_reads()
        if only_reads != self._only_reads:
            may = "only be read" if only_reads else "be written again"
            log.info("the database of %s may %s", self._queues[0].name, may)
            self._all_at_once()
        self._only_reads = only_reads
        if only_reads:
            self.paused = True
            for queue in self._queues:
                queue.waiting.wake_all()  # each caller checks the database itself
            self._disconnect()  # after a failover only a new connection may be writable
        return WRITABLE

    def _read_pauses(self) -> float:
        """Read the pauses of all queues, and wake the waiters of resumed ones."""
        database = self._queues[0].database
        read_all([queue.takes.pauses for queue in self._queues], lambda: database.execute(database.dialect.pauses))
        return PAUSES

    def _resolve(self) -> float:
        self._each(self.resolve, lambda queue: queue.takes.in_doubt.resolve(), self._queues)
        return RETRY

    def _wake_waiters(self) -> float:
        """Wake the waiters that may find something, if another process has committed."""
        changed = self._notifier.has_changed(self._queues[0].database.store, self._notified)
        if count is not None and self._notified:
            count("wakeup")
        woken = False
        if changed or not (self._notified or self._recheck < FALLBACK):
            found = self._each(self.wake_waiters, lambda queue: queue.waiting.committed_elsewhere(), self._queues)
            woken = any(found.values())
        if changed:
            self.expire.next_at = 0.0
            self.roll_up.within(ROLL_UP)
        self._in_vain = 0 if woken or not self._notified else self._in_vain + 1
        # A second commit may not be visible yet, for example on a slow disk: look again soon.
        self._recheck = min(self._notifier.unseen if self._notified else 2 * self._recheck, FALLBACK)
        return self._recheck

    def _reap(self) -> float:
        others = any(queue.maintains for queue in self._queues) and self._sessions.reaper.reap()
        if others and self._sessions.reaper.more:
            return 0.0  # the other duties come first
        return LOOK if others else ALONE

    def _fire(self) -> float:
        """Put the tasks of the due schedules of each queue."""
        queues = {queue.name: queue for queue in self._queues if queue.maintains}
        if not queues:
            return FALLBACK
        database, seconds = self._queues[0].database, FALLBACK
        for name, schedule, left, now in database.execute(database.dialect.next_firings):
            if name not in queues:
                continue
            if queues[name].schedules.reset(now):
                return 0.0
            if left <= 0:
                # At once again, since the next firing may be soon; later if the task could not be put.
                left = 0 if queues[name].schedules.fire(schedule) else RETRY * 1_000_000
            seconds = min(seconds, left / 1_000_000)
        return seconds

    def _expire(self) -> float:
        """Move a batch of the due tasks of each queue."""
        queues = [queue for queue in self._queues if queue.maintains]
        if count is not None and queues:
            count("sweep")
        found = [*self._each(self.expire, lambda queue: queue.expire(), queues).values()]
        found += [others.expire() for others in self._sessions.reaper.others] if queues else []
        return max(0.0, min([FALLBACK, *(each for each in found if each is not None)]))

    def _roll_up(self) -> float:
        """Roll up a batch of counters of each queue that has many. Batches keep the other duties from waiting."""
        many = self._to_roll_up

        def some(queue: QueueMaintenance) -> bool:
            return queue.database.roll_up_some() if queue in many else queue.database.roll_up_if_many()

        self._to_roll_up = WeakSet(q for q, more in self._each(self.roll_up, some, self._queues).items() if more)
        return 0.0 if self._to_roll_up else math.inf

    def _drop_buckets(self) -> float:
        maintained = [queue for queue in self._queues if queue.maintains]
        self._each(self.drop_buckets, lambda queue: queue.takes.steps.drop_full_buckets(), maintained)
        return BUCKETS
