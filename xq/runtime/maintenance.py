"""The maintenance thread of a process for a database, and its duties.

A process that only puts has none.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from xq.core.errors import NotInstalled, UnknownSession
from xq.core.ports import Notifier, Row, keep
from xq.engine.finish import Finish
from xq.engine.take import Takes
from xq.engine.unit import REVIEW, Database
from xq.runtime.waiters import Waiting
from xq.sessions import session as sessions
from xq.sessions.forking import at_fork
from xq.sessions.liveness import Liveness, held_by
from xq.sessions.session import Session, Sessions

log = logging.getLogger("xq")

# Seconds until the next run of a duty, unless an event makes it due earlier:
FALLBACK = 0.9  # wake waiters and expire timers, in case a notification was lost or a clock was set
LOOK, ALONE = 0.4, 0.8  # reap: while sessions of other processes are registered, and while none is
RETRY = 0.5  # resolve in-doubt takes, and retry after a failure
RETRY_MOST = 5.0  # retry: the pause doubles up to this, which is how late waiters are woken after an outage
WRITABLE = 0.8  # check whether the database is writable
ROLL_UP = 1.0  # roll up counters, after a change
# Seconds of pause after a run of duties: half of the time that a due task may be late, and less if callers wait.
PAUSE, WAITED_FOR = 0.02, 0.002
IN_VAIN = 16  # notifications in a row that woke no waiter of this process, after which the pause grows
ABSENT = 5.0  # seconds between two checks of a queue that is not installed
LEAVING = 60.0  # seconds that `leave` waits for the thread to end


_queues: WeakSet[QueueMaintenance] = WeakSet()  # of this process


class QueueMaintenance:
    """The maintenance of one queue. For sessions, any queue of a database acts for all of its queues."""

    def __init__(self, database: Database, takes: Takes[Any], finish: Finish[Any], waiting: Waiting[Any]) -> None:
        self.database = database
        self.takes = takes
        self.finish = finish
        self.timers = takes.timers
        self.machine = takes.machine
        self.waiting = waiting
        self._thread: MaintenanceThread | None = None
        self._expire_at = 0.0  # the monotonic time of the next move of due tasks
        self._absent: tuple[ref[object] | None, float] = (None, 0.0)  # database without it, and next check
        waiting.listen = self.listen
        takes.attend = self.attend
        _queues.add(self)
        sessions.queues.add(self)

    @property
    def attended(self) -> object:
        """Returns the binding that has a maintenance thread or cannot have one; None before that is known."""
        return self.takes.attended

    @attended.setter
    def attended(self, binding: object) -> None:
        self.takes.attended = binding

    def stop_maintenance(self) -> None:
        """End the maintenance by this object: `reconfigure` has replaced it, or the program only installs the queue."""
        self.attended = None
        _queues.discard(self)
        sessions.queues.discard(self)
        self.database.close()
        self.waiting.wake_all()

    def leave(self) -> None:
        """Drop the thread and the binding."""
        self.attended = self._thread = None
        self.database.observers.count()
        self.database.close()

    def forked(self) -> None:
        """Reset in a forked child, which has neither the threads nor the connections of its parent."""
        self.attended = None
        self.waiting.forget()
        self.database.observers.forked()
        self.database.store.forked()

    def attend(self) -> bool:
        """Start the maintenance thread if necessary. Return False if there can be none. Raises NotInstalled."""
        opened = self.database.open()
        if self not in _queues:
            return False
        if self.attended is not opened:
            self._thread = _thread_of(self)
            self.attended = opened
            self.database.observers.count()
            if self._thread is not None:
                self._thread.call_for(self._thread.expire)  # not earlier: a cycle skips queues that are not attended
        return self._thread is not None

    @property
    def is_attended(self) -> bool:
        """Whether `attend` was called for the model's current database."""
        return self.attended is not None and self.attended is self.database.bound

    @property
    def anybody(self) -> bool:
        """Whether to notify the thread of this process's own changes, because the notifier does not report them."""
        return self._thread is not None and not self._thread.reports_own

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake the thread if this process has committed a transition into a state with a timer."""
        if target in self.machine.timers and self._thread is not None:
            self._thread.call_for(self._thread.expire)

    def listen(self) -> bool:
        """Start the thread, and notifications for a caller that waits. Return False if there can be no thread."""
        there = self.attend()
        if self._thread is not None:
            self._thread.expect()
            self.database.observers.count()
        return there

    def more_have_died(self, than: int) -> bool:
        """Reap, at most every LOOK seconds, and return whether more than `than` sessions were reaped so far."""
        self.reap(unless_since=time.monotonic() - LOOK)
        return self.reaped > than

    def reap(self, unless_since: float = math.inf) -> None:
        """Reap orphaned tasks, unless that was done since this monotonic time. Does nothing within a transaction."""
        mine = self.sessions
        if mine and self.database.clock is None and not self.database.store.in_transaction():
            mine.reaper.reap(unless_since)

    @property
    def reaped(self) -> int:
        """The number of sessions of other processes that this process has ended."""
        mine = self.sessions
        return mine.reaper.reaped if mine else 0

    @property
    def installed(self) -> bool:
        """Whether the queue is installed in its database. If it is not, that is checked every ABSENT seconds."""
        absent, until = self._absent
        database = self.database.store.database
        if absent is not None and absent() is database and time.monotonic() < until:
            return self.database.bound is not None
        there = self.database.is_installed()
        self._absent = (None, 0.0) if there or database is None else (ref(database), time.monotonic() + ABSENT)
        return there

    @property
    def maintains(self) -> bool:
        """Whether this process expires and reaps: not under a test's clock, nor as a user that may only put."""
        return self.database.clock is None and self.database.may_move

    def expire(self) -> float | None:
        """Move a batch of due tasks. Return the seconds until the next one; None if there is none, or no right to."""
        if not self.database.may_move:
            return None
        seconds, now = self.timers.seconds(), time.monotonic()
        if seconds is None or seconds > 0:
            return seconds
        if now >= self._expire_at:
            swept = self.timers.sweep_if_any()
            # A constraint may reject every move. After a batch, other writers get as much time as it took.
            in_vain = swept.due and not (swept.moved or swept.forgotten or swept.refreshed)
            then = time.monotonic()
            self._expire_at = now + RETRY if in_vain else 2 * then - now
            seconds, now = self.timers.seconds(), then
        return seconds if seconds is None or seconds > 0 else self._expire_at - now

    # sessions

    @property
    def name(self) -> str:
        """The name of the queue in its database."""
        return self.database.bind().dialect.source_name

    @property
    def sessions(self) -> Sessions | None:
        """Returns the sessions of this process in the model's current database; None if the model has none."""
        return self.database.sessions

    def briefly_connected(self) -> AbstractContextManager[object]:
        """Open a connection of this thread for the block, and close it after, unless it was open before."""
        return self.database.store.briefly_connected()

    def session(self, name: str | None) -> Session:
        """Return a new session, or join the one of this uuid. Raises UnknownSession if it has ended."""
        mine = self.database.open().sessions
        session = mine.new() if name is None else mine.named(name)
        if name is None:
            self.database.list_session(self.database.open(), session)
        elif not mine.rejoin(session):
            raise UnknownSession(name)
        return session

    def current_session(self) -> Session:
        """Register the current session in the database, and return it."""
        self.database.begin()
        opened = self.database.open()
        session = opened.sessions.to_take()
        self.database.list_session(opened, session)
        return session

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self.database.execute(sql, values)

    def orphans(self) -> list[str]:
        """Return the sessions that own tasks of this queue and are not registered."""
        return [uuid for (uuid,) in self._run(self.database.dialect.orphans)]

    def listed(self) -> list[tuple[str, str, float | None]]:
        """Return the sessions of the database: uuid, a queue in which it may own tasks, seconds until it expires.

        A session has a row per queue. The seconds are None while it lives.
        """
        return [(uuid, queue, ends) for uuid, queue, ends in self._run(self.database.dialect.sessions_listed)]

    def liveness(self) -> Liveness | None:
        """Return the liveness locks of the database; None if no other process can access it."""
        return self.database.dialect.liveness(self.database.store)

    def rejoin(self, uuid: str) -> bool:
        """Keep an expiring session alive. Return False if no session of this uuid is registered."""
        dialect, sessions = self.database.dialect, self.database.sessions
        lease = sessions.lease if sessions else None
        return self._whole(dialect.rejoin_session, dialect.session_rejoined, uuid=uuid, lease=lease)

    def is_there(self, uuid: str) -> bool:
        """Return whether a session is registered and has not ended."""
        opened = self.database.open()
        sql, values = opened.dialect.session_is_there, {**self.database.values(), "uuid": uuid}
        rows = opened.sessions.apart(sql, values)
        return bool(self.database.execute(sql, values) if rows is None else rows)

    def expire_later(self, uuid: str) -> bool:
        """Let a session expire after session_ttr seconds. Return False if it must end at once."""
        return self._whole(self.database.dialect.expire_session_later, self.database.dialect.session_ends, uuid=uuid)

    def has_expired(self, uuid: str) -> bool:
        """Return whether a session has expired. Lock it: no process can rejoin it before the commit."""
        return self._whole(self.database.dialect.session_over, uuid=uuid)

    def _whole(self, *texts: str, **values: Any) -> bool:
        """Run these statements in one transaction that writes. Return whether the last one returns rows."""

        def run() -> bool:
            self.database.begin_writing()
            return bool([self._run(sql, **values) for sql in texts][-1])

        return self.database.unit(run, transaction=True)

    def forget_waits(self, uuid: str) -> None:
        """Delete the waits that the process of this session has registered."""
        if self.database.may_move:  # else a process with the right does, when it reaps the session
            self._run(self.database.dialect.forget_waits, uuid=uuid)

    def session_closed(self) -> None:
        """Wake the callers that wait to take for a closed session of this process."""
        self.waiting.takers.wake_closed()

    def session_lost(self) -> None:
        """Wait anew for the ends of tasks: the registered waits are gone with the process's own session."""
        self.waiting.session_lost()

    def deregister(self, uuid: str) -> None:
        """Delete a session from the database. It cannot be joined any more."""
        self._run(self.database.dialect.deregister_session, uuid=uuid, queue="")

    def give_back(self, uuid: str, event: str) -> None:
        """Release the tasks of a session, recorded as `event`, and deregister it from this queue."""
        if not self.database.may_move:
            return  # the session stays registered for this queue, and a process with the right reaps it

        def over(work: Callable[[str, str], None] | None = None) -> None:
            self.database.begin_writing()
            if work:
                work(uuid, event)
            if event == "died":
                self.forget_waits(uuid)
            dialect = self.database.dialect
            self._run(dialect.deregister_session, uuid=uuid, queue=dialect.source_name)

        reaped = self.machine.settings.reaped
        try:
            self.database.unit(partial(over, self.finish.give_back if reaped else None), transaction=True)
        except Exception as error:
            if not reaped or not self.finish.batches.is_refused(error):
                raise
            # The reaper finds the rejected tasks later: their session is not registered any more.
            self.finish.give_back_what_goes(uuid, event)
            self.database.unit(over, transaction=True)
        self.waiting.committed_elsewhere()  # notifications before the commit woke waiters that could not see the change


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

    def __init__(self, database: object, notifier: Notifier, mine: Sessions) -> None:
        self._database = ref(database)
        self._notifier = notifier
        self._sessions = mine
        self._queues: list[QueueMaintenance] = []  # of this cycle; empty between two cycles
        self._next_at = 0.0  # the monotonic time of the next cycle, without a notification
        self._connection: Any = None  # the driver's; keeps the garbage collector from freeing an open one
        self._notified = False  # whether the notifier reported a commit before this cycle
        self._recheck = FALLBACK  # seconds until the next look for a commit that was not reported
        self._in_vain = 0  # notifications in a row that woke no waiter of this process
        self._armed = math.inf  # the monotonic time for which the timer is set
        self._to_roll_up: WeakSet[QueueMaintenance] = WeakSet()  # those that had many counters at the last look
        self._only_reads = False
        self.paused = False  # whether the database was read-only, and not all duties have run since
        self._backoff = 0.0  # seconds of pause after the last cycle, if that failed
        self._warned = False  # of the failures since the last cycle that did not fail
        self._ended = False
        self._hurry = threading.Event()
        self.working = threading.RLock()
        # In this order: the first two may leave no queue for the others.
        self.review = Duty("review the installation", self._review)
        self.ask_to_write = Duty("ask whether the database may be written", self._ask_to_write)
        self.resolve = Duty("resolve in-doubt takes", self._resolve)
        self.wake_waiters = Duty("wake waiters", self._wake_waiters)
        self.reap = Duty("reap orphaned tasks", self._reap)
        self.expire = Duty("expire timers", self._expire)
        self.roll_up = Duty("roll up counters", self._roll_up)
        self.duties = [
            self.review,
            self.ask_to_write,
            self.resolve,
            self.wake_waiters,
            self.reap,
            self.expire,
            self.roll_up,
        ]
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
        for duty in self.duties:
            if self._queues and duty in self._allowed and time.monotonic() >= duty.next_at:
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
        expected = ending or isinstance(error, NotInstalled)  # the queue was uninstalled or reconfigured
        level = logging.DEBUG if expected or self._warned else logging.WARNING  # warn once
        log.log(level, "the maintenance thread failed, and retries: %s", error)
        self._warned = self._warned or not expected

    def _recovered(self) -> None:
        if self._warned:
            log.info("the maintenance thread works again")
        self._backoff, self._warned = 0.0, False

    def _attended(self) -> list[QueueMaintenance]:
        # Without a check of the installation, which would fail while the database cannot be opened.
        return [queue for queue in _queues_of(self._sessions) if queue.attended]

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

    # the duties; each returns the seconds until its next run

    def _review(self) -> float:
        """Stop maintaining queues that are no longer installed, until they are used again."""
        liveness, store = self._sessions.liveness, self._queues[0].database.store
        there = liveness is None or liveness.there()  # a connection would create an empty database
        if there:
            store.connect_apart()
            self._hold_connection()  # now: below, the last queue may be dropped
        for queue in self._queues:
            try:
                if there:
                    queue.database.review()
                    continue
            except NotInstalled as error:
                log.debug("%s", error)
            queue.attended = None
            queue.waiting.wake_all()
        self._queues = [queue for queue in self._queues if queue.attended]
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

    def _resolve(self) -> float:
        for queue in self._queues:
            queue.takes.in_doubt.resolve()
        return RETRY

    def _wake_waiters(self) -> float:
        """Wake the waiters that may find something, if another process has committed."""
        changed = self._notifier.has_changed(self._queues[0].database.store, self._notified)
        woken = False
        if changed or not (self._notified or self._recheck < FALLBACK):
            woken = sum(queue.waiting.committed_elsewhere() for queue in self._queues) > 0
        if changed:
            self.expire.next_at = 0.0
            self.roll_up.within(ROLL_UP)
        self._in_vain = 0 if woken or not self._notified else self._in_vain + 1
        # A second commit may not be visible yet, for example on a slow disk: look again soon.
        self._recheck = min(self._notifier.unseen if self._notified else 2 * self._recheck, FALLBACK)
        return self._recheck

    def _reap(self) -> float:
        others = any(queue.maintains for queue in self._queues) and self._sessions.reaper.reap()
        return LOOK if others else ALONE

    def _expire(self) -> float:
        """Move a batch of the due tasks of each queue."""
        queues = [queue for queue in self._queues if queue.maintains]
        found = [queue.expire() for queue in queues]
        found += [others.expire() for others in self._sessions.reaper.others] if queues else []
        seconds = min((each for each in found if each is not None), default=math.inf)
        if 0 < seconds < math.inf:
            self._arm(seconds)
        return FALLBACK if seconds > 0 else 0.0

    def _arm(self, seconds: float) -> None:
        """Set the timer that runs `expire` in `seconds`, unless it is set to an earlier time."""
        at = time.monotonic() + seconds
        if at < self._armed - 0.001:
            self._armed = at
            run_date = datetime.now(UTC) + timedelta(seconds=seconds)
            options = {"id": str(id(self)), "replace_existing": True, "misfire_grace_time": None, "executor": "xq"}
            _timer().add_job(self._ring, "date", run_date=run_date, **options)

    def _ring(self) -> None:
        self._armed = math.inf
        self.call_for(self.expire)

    def _roll_up(self) -> float:
        """Roll up a batch of counters of each queue that has many. Batches keep the other duties from waiting."""
        self._to_roll_up = WeakSet(
            queue
            for queue in self._queues
            if (queue.database.add_up() if queue in self._to_roll_up else queue.database.add_up_if_many())
        )
        return 0.0 if self._to_roll_up else math.inf


# the threads of this process

_threads: WeakKeyDictionary[Any, MaintenanceThread] = WeakKeyDictionary()  # by database
_scheduler: BackgroundScheduler | None = None
_starting = threading.RLock()
_kept_out: list[MaintenanceThread] = []  # stopped between two cycles while this process forks


def _queues_of(mine: Sessions) -> list[QueueMaintenance]:
    return [queue for queue in held_by(_queues) if queue.sessions is mine]


def _thread_of(queue: QueueMaintenance) -> MaintenanceThread | None:
    """Return the maintenance thread for the database of a queue, started if necessary; None if there can be none."""
    database = queue.database.store.database
    with _starting:
        thread = _threads.get(database)
        if thread is None or not thread.thread.is_alive():
            mine = queue.database.open().sessions
            try:
                notifier = queue.database.notifier()
            except OSError as error:
                log.warning("no thread can maintain %s: %s", queue.name, error)
                return None
            if notifier is None or database is None:
                return None
            thread = _threads[database] = MaintenanceThread(database, notifier, mine)
            finalize(database, thread.end).atexit = False
            thread.thread.start()
    return thread


def threads() -> dict[Any, MaintenanceThread]:
    """Return the maintenance threads of this process, by database."""
    return dict(held_by(_threads.items()))


def is_paused(database: object) -> bool:
    """Return whether the thread of a database has paused because that is read-only. If so, wake it to check again."""
    thread = _threads.get(database)
    if thread is None or not thread.paused or not thread.thread.is_alive():
        return False
    thread.call_for(thread.ask_to_write)
    return True


def leave(database: object) -> None:
    """End the sessions, the thread and their connections of this process for a database. The next call begins anew."""
    mine = sessions.of(database)
    liveness = mine.liveness
    try:
        mine.exit()
    except Exception as error:
        log.debug("a session could not be ended: %s", error)
    with _starting:
        thread = _threads.pop(database, None)
    if thread is not None:
        thread.end()
        thread.thread.join(LEAVING)
    for queue in _queues_of(mine):
        queue.leave()
    if liveness is not None:
        liveness.close()


def _timer() -> BackgroundScheduler:
    """Return the timer of this process. Its own thread only wakes the maintenance threads."""
    global _scheduler
    with _starting:
        if _scheduler is None:
            own = logging.getLogger("xq.timer")
            for logger in (own, logging.getLogger("apscheduler.executors.xq")):
                logger.setLevel(logging.WARNING)  # else they log each job
            _scheduler = BackgroundScheduler(timezone=UTC, executors={"xq": DebugExecutor()}, logger=own)
            _scheduler.start()
        return _scheduler


def _before_exit() -> None:
    """End the maintenance threads, so that none dies in the middle of a statement or leaves its connection open."""
    ending = held_by(_threads.values())
    for thread in ending:
        thread.end()
    for thread in ending:
        thread.thread.join(RETRY)


sessions.before_exit.append(_before_exit)


def _before_fork() -> None:
    """Stop the maintenance threads between two cycles, so that none uses the database or holds a lock in the fork."""
    # In the order of the thread itself, which holds `working` when it starts the timer.
    _kept_out.extend(thread for thread in held_by(_threads.values()) if thread.working.acquire(timeout=RETRY))
    _starting.acquire()


def _after_fork_in_parent() -> None:
    _starting.release()
    while _kept_out:
        _kept_out.pop().working.release()


def _after_fork_in_child() -> None:
    global _scheduler, _starting, _threads
    _kept_out.clear()
    for thread in held_by(_threads.values()):
        thread.disown()
    _scheduler, _starting, _threads = None, threading.RLock(), WeakKeyDictionary()
    for queue in held_by(_queues):
        queue.forked()


at_fork("threads", _after_fork_in_child, before=_before_fork, in_parent=_after_fork_in_parent)
