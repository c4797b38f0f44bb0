"""What a process does for a database beside its calls: the maintenance thread and its duties.

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

# Seconds between two runs of a duty that nothing makes due earlier:
FALLBACK = 0.9  # wake waiters and expire timers, which makes up for a lost notification and a clock that was set
LOOK = 0.4  # reap
RETRY = 0.5  # resolve in-doubt takes, and try again what failed
WRITABLE = 0.8  # ask whether the database may be written
ROLL_UP = 1.0  # roll up counters, after a change
ASK = 60.0  # look for trouble
# Seconds that the thread rests after a run of duties: half of what a due task may be late, and less beside waiters.
PAUSE, WAITED_FOR = 0.02, 0.002
IN_VAIN = 16  # notifications in a row that were for no waiter of this process, after which the rest becomes longer
ABSENT = 5.0  # seconds between two looks for a queue that is not installed
LEAVING = 60.0  # seconds to wait for the end of the thread of a database that is left


_queues: WeakSet[QueueMaintenance] = WeakSet()  # of this process


class QueueMaintenance:
    """The maintenance of one queue. What is done for sessions, any queue does for all."""

    def __init__(self, database: Database, takes: Takes[Any], finish: Finish[Any], waiting: Waiting[Any]) -> None:
        self.database = database
        self.takes = takes
        self.finish = finish
        self.timers = takes.timers
        self.machine = takes.machine
        self.waiting = waiting
        self._thread: MaintenanceThread | None = None
        self._expire_at = 0.0  # the monotonic time before which due tasks are not moved
        self._absent: tuple[ref[object] | None, float] = (None, 0.0)  # where it was not, until which monotonic time
        waiting.listen = self.listen
        takes.attend = self.attend
        _queues.add(self)
        sessions.queues.add(self)

    @property
    def attended(self) -> object:
        """The binding for which a thread is there, or where there can be none."""
        return self.takes.attended

    @attended.setter
    def attended(self, binding: object) -> None:
        self.takes.attended = binding

    def stop_maintenance(self) -> None:
        """Another definition of the queue has taken over."""
        self.attended = None
        _queues.discard(self)
        sessions.queues.discard(self)
        self.database.close()
        self.waiting.alarm()

    def leave(self) -> None:
        """Know nothing of the database any more."""
        self.attended = self._thread = None
        self.database.observers.count()
        self.database.close()

    def forked(self) -> None:
        """In a child, which has neither the threads nor the connections of its parent."""
        self.attended = None
        self.waiting.forget()
        self.database.observers.forked()
        self.database.store.forked()

    def attend(self) -> bool:
        """Have a thread that maintains the queue. False where there can be none."""
        opened = self.database.open()
        if self not in _queues:
            return False
        if self.attended is not opened:
            self._thread = _thread_of(self)
            self.attended = opened
            self.database.observers.count()
            if self._thread is not None:
                self._thread.call_for(self._thread.expire)  # only now: a cycle leaves out queues that are not attended
        return self._thread is not None

    @property
    def is_attended(self) -> bool:
        """Whether the queue, in the database that it has now, is looked after, as far as can be."""
        return self.attended is not None and self.attended is self.database.bound

    @property
    def anybody(self) -> bool:
        """Whether the thread must be told what this process itself makes due, since the database does not tell it."""
        return self._thread is not None and not self._thread.reports_own

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """This process moved tasks, and has committed since."""
        if target in self.machine.timers and self._thread is not None:
            self._thread.call_for(self._thread.expire)

    def listen(self) -> bool:
        """Have the thread listen now, since somebody waits. False where there can be none."""
        there = self.attend()
        if self._thread is not None:
            self._thread.expect()
            self.database.observers.count()
        return there

    def more_have_died(self, than: int) -> bool:
        """Whether tasks may have come back from more processes than so many. Looks at most every LOOK seconds."""
        self.reap(unless_since=time.monotonic() - LOOK)
        return self.reaped > than

    def reap(self, unless_since: float = math.inf) -> None:
        """Have orphaned tasks come back, unless that was done since this monotonic time. Not within a transaction."""
        mine = self.sessions
        if mine and self.database.clock is None and not self.database.store.in_transaction():
            mine.reaper.reap(unless_since)

    @property
    def reaped(self) -> int:
        """How many sessions of others this process has ended."""
        mine = self.sessions
        return mine.reaper.reaped if mine else 0

    @property
    def installed(self) -> bool:
        """Whether the queue is in its database. Where it is not, that is looked for every ABSENT seconds."""
        absent, until = self._absent
        database = self.database.store.database
        if absent is not None and absent() is database and time.monotonic() < until:
            return self.database.bound is not None
        there = self.database.is_installed()
        self._absent = (None, 0.0) if there or database is None else (ref(database), time.monotonic() + ABSENT)
        return there

    @property
    def maintains(self) -> bool:
        """Whether this process may expire and reap: not under a test's clock, nor as a user who only puts."""
        return self.database.clock is None and self.database.may_move

    def expire(self) -> float | None:
        """Move a batch of the due tasks. Returns the seconds until the next; None for never, or if others move them."""
        if not self.database.may_move:
            return None
        seconds, now = self.timers.seconds(), time.monotonic()
        if seconds is None or seconds > 0:
            return seconds
        if now >= self._expire_at:
            swept = self.timers.sweep_if_any()
            # A row that refers to a task may keep it where it is. Other programs may write for as long as a batch took.
            in_vain = swept.due and not (swept.moved or swept.forgotten or swept.refreshed)
            then = time.monotonic()
            self._expire_at = now + RETRY if in_vain else 2 * then - now
            seconds, now = self.timers.seconds(), then
        return seconds if seconds is None or seconds > 0 else self._expire_at - now

    # sessions

    @property
    def name(self) -> str:
        """Of the queue, in its database."""
        return self.database.bind().dialect.source_name

    @property
    def sessions(self) -> Sessions | None:
        return self.database.sessions

    def briefly_connected(self) -> AbstractContextManager[object]:
        return self.database.store.briefly_connected()

    def session(self, name: str | None) -> Session:
        """Another session, or the one of this uuid. Raises UnknownSession when it has ended."""
        mine = self.database.open().sessions
        session = mine.new() if name is None else mine.named(name)
        if name is None:
            self.database.list_session(self.database.open(), session)
        elif not mine.rejoin(session):
            raise UnknownSession(name)
        return session

    def current_session(self) -> Session:
        """The current session, which is made known to the database."""
        self.database.begin()
        opened = self.database.open()
        session = opened.sessions.to_take()
        self.database.list_session(opened, session)
        return session

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self.database.execute(sql, values)

    def orphans(self) -> list[str]:
        return [uuid for (uuid,) in self._run(self.database.dialect.orphans)]

    def listed(self) -> list[tuple[str, str, float | None]]:
        """Every session of the database, a queue in which it may hold tasks, and when it ends (None: it lives)."""
        return [(uuid, queue, ends) for uuid, queue, ends in self._run(self.database.dialect.sessions_listed)]

    def liveness(self) -> Liveness | None:
        return self.database.dialect.liveness(self.database.store)

    def rejoin(self, uuid: str) -> bool:
        dialect, sessions = self.database.dialect, self.database.sessions
        lease = sessions.lease if sessions else None
        return self._whole(dialect.session_goes_on, dialect.session_went_on, uuid=uuid, lease=lease)

    def is_there(self, uuid: str) -> bool:
        opened = self.database.open()
        sql, values = opened.dialect.session_is_there, {**self.database.values(), "uuid": uuid}
        rows = opened.sessions.apart(sql, values)
        return bool(self.database.execute(sql, values) if rows is None else rows)

    def expire_later(self, uuid: str) -> bool:
        return self._whole(self.database.dialect.session_postponed, self.database.dialect.session_ends, uuid=uuid)

    def has_expired(self, uuid: str) -> bool:
        return self._whole(self.database.dialect.session_over, uuid=uuid)

    def _whole(self, *texts: str, **values: Any) -> bool:
        """Whether the last of these statements finds something; all of them as one transaction, which writes."""

        def run() -> bool:
            self.database.begin_writing()
            return bool([self._run(sql, **values) for sql in texts][-1])

        return self.database.unit(run, transaction=True)

    def forget_waits(self, uuid: str) -> None:
        if self.database.may_move:  # else others do, who find the session gone
            self._run(self.database.dialect.forget_waits, uuid=uuid)

    def session_closed(self) -> None:
        self.waiting.takers.call_closed()

    def session_lost(self) -> None:
        self.waiting.session_lost()

    def deregister(self, uuid: str) -> None:
        self._run(self.database.dialect.session_struck, uuid=uuid, queue="")

    def give_back(self, uuid: str, event: str) -> None:
        if not self.database.may_move:
            return  # the session stays listed for this queue, and whoever may finds it gone

        def over(work: Callable[[str, str], None] | None = None) -> None:
            self.database.begin_writing()
            if work:
                work(uuid, event)
            if event == "died":
                self.forget_waits(uuid)
            dialect = self.database.dialect
            self._run(dialect.session_struck, uuid=uuid, queue=dialect.source_name)

        reaped = self.machine.settings.reaped
        try:
            self.database.unit(partial(over, self.finish.give_back if reaped else None), transaction=True)
        except Exception as error:
            if not reaped or not self.finish.batches.is_refused(error):
                raise
            # What stays is found by whoever looks for tasks of sessions that nobody lists.
            self.finish.give_back_what_goes(uuid, event)
            self.database.unit(over, transaction=True)
        self.waiting.heard()  # signals given within the transaction were of what nobody could see yet


class Duty:
    """Something that the maintenance thread does now and then."""

    def __init__(self, name: str, run: Callable[[], float]) -> None:
        self.name = name
        self.run = run  # returns the seconds until its next run
        self.next_at = 0.0  # the monotonic time of its next run

    def within(self, seconds: float) -> None:
        """Run it in so many seconds, or earlier."""
        self.next_at = min(self.next_at, time.monotonic() + seconds)

    def __repr__(self) -> str:
        return f"<duty {self.name!r} in {self.next_at - time.monotonic():.3f} s>"


class MaintenanceThread:
    """The maintenance thread of one database: it waits for a notification or the next duty, and runs what is due."""

    def __init__(self, database: object, notifier: Notifier, mine: Sessions) -> None:
        self._database = ref(database)
        self._notifier = notifier
        self._sessions = mine
        self._queues: list[QueueMaintenance] = []  # those that the duties of this cycle are for; none between two
        self._next_at = 0.0  # the monotonic time of the next cycle, without a notification
        self._connection: Any = None  # the driver's, of this thread: kept so that no garbage collector frees it open
        self._notified = False  # whether the notifier reported a commit before this cycle
        self._recheck = FALLBACK  # seconds until a commit is looked for that was not reported
        self._in_vain = 0  # notifications in a row that were for no waiter of this process
        self._armed = math.inf  # the monotonic time for which the timer is set
        self._to_roll_up: WeakSet[QueueMaintenance] = WeakSet()  # those whose counters were many at the last look
        self._only_reads = False
        self.paused = False  # whether the database could only be read, and no run of all duties has ended since
        self._complaint = ""
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
        self.find_trouble = Duty("look for trouble", self._find_trouble)
        self.find_trouble.next_at = time.monotonic() + ASK
        self.duties = [
            self.review,
            self.ask_to_write,
            self.resolve,
            self.wake_waiters,
            self.reap,
            self.expire,
            self.roll_up,
            self.find_trouble,
        ]
        self.thread = threading.Thread(target=self._run, name="xq", daemon=True)

    # called by other threads

    def end(self) -> None:
        self._ended = True
        self._hurry.set()
        self._notifier.wake()

    def disown(self) -> None:
        """In a child, which has no such thread: its notifier and its connection are the parent's."""
        self._ended = True
        keep(self._connection)
        self._notifier.close()

    def expect(self) -> None:
        """A caller begins to wait: be notified of commits from now on."""
        self._hurry.set()
        self._notifier.expect()

    @property
    def reports_own(self) -> bool:
        """Whether the notifier also reports the commits of this process."""
        return self._notifier.reports_own

    def call_for(self, *duties: Duty) -> None:
        """Run these duties now."""
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
        """Wait for a notification or the next duty, and run what is due. False when the thread shall end."""
        try:
            waited_for = any(queue.waiting.anybody for queue in self._attended())
            self._notified = self._notifier.wait(max(0.0, self._next_at - time.monotonic()), waited_for)
            if self._is_over:
                return False
            with self.working:
                pause = self._cycle()
        except Exception as error:
            if self._is_over:
                return False
            self._complain(error)
            self._all_at_once()
            self.paused = self._only_reads  # it has begun, and what fails is to be no reason to refuse all calls
            with self.working:
                self._disconnect()
            self._next_at, pause = 0.0, RETRY
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
            if duty is not self.find_trouble:
                duty.next_at = 0.0

    def _cycle(self) -> float:
        """Run the duties that are due. Returns for how many seconds to leave a busy database alone then."""
        try:
            self._run_duties()
            self._next_at = time.monotonic() + FALLBACK
            if self._queues:
                self._next_at = min(self._next_at, *(duty.next_at for duty in self._allowed))
            return self._rest()
        finally:
            self._hold_connection()
            self._queues = []  # which know the database: it shall be forgotten with the application's last reference

    def _run_duties(self) -> None:
        if self._notifier.replaced():
            self._disconnect()  # else it would see the old file for ever
            self.reap.next_at = 0.0
        self._queues = self._attended()
        if self._notified:
            self.wake_waiters.next_at = 0.0
        for queue in self._queues:
            queue.database.observers.count()  # whether the server notifies may have changed
        for duty in self.duties:
            if self._queues and duty in self._allowed and time.monotonic() >= duty.next_at:
                duty.next_at = math.inf  # first: another thread may call for it while it runs
                duty.within(duty.run())
        self.paused = self.paused and self._only_reads and bool(self._queues)

    def _rest(self) -> float:
        # More than WAITED_FOR, up to PAUSE, if the last notifications were for no waiter of this process.
        if not any(queue.waiting.anybody for queue in self._queues):
            return PAUSE
        return min(PAUSE, WAITED_FOR * 2.0 ** max(0, min(self._in_vain, 64) - IN_VAIN))

    def _complain(self, error: Exception) -> None:
        ending = not threading.main_thread().is_alive()  # then nothing can be started any more
        expected = ending or isinstance(error, NotInstalled)  # the queue was taken away, or is by now another
        level = logging.DEBUG if expected or str(error) == self._complaint else logging.WARNING  # once is enough
        log.log(level, "looking after a database failed, and is tried again: %s", error)
        self._complaint = str(error)

    def _attended(self) -> list[QueueMaintenance]:
        # None is asked whether it is installed: where the database cannot be opened, that could not be told.
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
            elif connection is not None:  # the ORM's database object is gone, and cannot close it
                connection.close()
        except Exception as error:
            log.debug("a connection could not be closed: %s", error)

    # the duties, each of which returns the seconds until its next run

    def _review(self) -> float:
        """Leave out queues that are no longer installed, until they are used again."""
        liveness, store = self._sessions.liveness, self._queues[0].database.store
        there = liveness is None or liveness.there()  # to connect would make an empty database
        if there:
            store.connect_apart()
            self._hold_connection()  # now: below, no queue may be left to close it
        for queue in self._queues:
            try:
                if there:
                    queue.database.review()
                    continue
            except NotInstalled as error:
                log.debug("%s", error)
            queue.attended = None
            queue.waiting.alarm()
        self._queues = [queue for queue in self._queues if queue.attended]
        return REVIEW

    def _ask_to_write(self) -> float:
        """Pause the other duties while the database may only be read, even if it lets this process write."""
        only_reads = self._queues[0].database.only_reads()
        if only_reads != self._only_reads:
            may = "only be read" if only_reads else "be written again"
            log.info("the database of %s may %s", self._queues[0].name, may)
            self._all_at_once()
        self._only_reads = only_reads
        if only_reads:
            self.paused = True
            for queue in self._queues:
                queue.waiting.alarm()  # each waiter looks for itself
            self._disconnect()  # a database that may be written again may be so on a new connection only
        return WRITABLE

    def _resolve(self) -> float:
        for queue in self._queues:
            queue.takes.in_doubt.resolve()
        return RETRY

    def _wake_waiters(self) -> float:
        """Wake the waiters who may find something, if another process has committed."""
        changed = self._notifier.has_changed(self._queues[0].database.store, self._notified)
        woken = False
        if changed or not (self._notified or self._recheck < FALLBACK):
            woken = sum(queue.waiting.heard() for queue in self._queues) > 0
        if changed:
            self.expire.next_at = 0.0
            self.roll_up.within(ROLL_UP)
        self._in_vain = 0 if woken or not self._notified else self._in_vain + 1
        # There may have been two commits: one that was seen, and one on its way to a slow disk.
        self._recheck = min(self._notifier.unseen if self._notified else 2 * self._recheck, FALLBACK)
        return self._recheck

    def _reap(self) -> float:
        if any(queue.maintains for queue in self._queues):
            self._sessions.reaper.reap()
        return LOOK

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
        """Set the timer, which runs `expire` at that time, unless it is set to an earlier one."""
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
        """Roll up a batch of counters of each queue that has many; the other duties need not wait for all of them."""
        self._to_roll_up = WeakSet(
            queue
            for queue in self._queues
            if (queue.database.add_up() if queue in self._to_roll_up else queue.database.add_up_if_many())
        )
        return 0.0 if self._to_roll_up else math.inf

    def _find_trouble(self) -> float:
        """Log what makes the queues slow."""
        store = self._queues[0].database.store
        trouble = self._queues[0].database.dialect.trouble(store)
        if trouble:
            log.warning("%s", trouble)
        return ASK


# those of this process

_threads: WeakKeyDictionary[Any, MaintenanceThread] = WeakKeyDictionary()  # by database
_scheduler: BackgroundScheduler | None = None
_starting = threading.RLock()
_kept_out: list[MaintenanceThread] = []  # of the database, while this process forks


def _queues_of(mine: Sessions) -> list[QueueMaintenance]:
    return [queue for queue in held_by(_queues) if queue.sessions is mine]


def _thread_of(queue: QueueMaintenance) -> MaintenanceThread | None:
    """The thread of this process for the database of a queue; None where there can be none."""
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


def thread_of(database: object) -> MaintenanceThread | None:
    """The maintenance thread of this process for a database, if it has one."""
    return _threads.get(database)


def is_paused(database: object) -> bool:
    """Whether the thread of a database has paused since that could not be written. It is asked to go on."""
    thread = _threads.get(database)
    if thread is None or not thread.paused or not thread.thread.is_alive():
        return False
    thread.call_for(thread.ask_to_write)
    return True


def leave(database: object) -> None:
    """End what this process has with a database: sessions, its thread, their connections. The next call begins anew."""
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
    """The timer of this process, which does no more than wake its maintenance threads, from a thread of its own."""
    global _scheduler
    with _starting:
        if _scheduler is None:
            own = logging.getLogger("xq.timer")
            for logger in (own, logging.getLogger("apscheduler.executors.xq")):
                logger.setLevel(logging.WARNING)  # else they tell of each job
            _scheduler = BackgroundScheduler(timezone=UTC, executors={"xq": DebugExecutor()}, logger=own)
            _scheduler.start()
        return _scheduler


def _before_exit() -> None:
    """End the maintenance threads, so that none dies in the middle of a statement or leaves its connection open.

    A process that ended may have left its session to one of them.
    """
    ending = held_by(_threads.values())
    for thread in ending:
        thread.end()
    for thread in ending:
        thread.thread.join(RETRY)


sessions.before_exit.append(_before_exit)


def _before_fork() -> None:
    """No thread of ours shall be within the database, or hold a lock, when the process is copied without it."""
    # In this order, as the thread itself: it works, and then may have to start the timer.
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
