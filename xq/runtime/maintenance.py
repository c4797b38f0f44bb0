"""What a process does for a database beside its calls: one thread that hears of writes, and keeps time.

It moves what falls due, armed for the next time that something does and not polling; ends the sessions of processes
that are gone; and calls those who wait. A process that only puts has none.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from xq.core.errors import NotInstalled, UnknownSession
from xq.core.ports import Row, Writes, keep
from xq.engine.finish import Finish
from xq.engine.take import Takes
from xq.engine.timers import Swept
from xq.engine.unit import Database
from xq.runtime.waiters import Alarm, Waiting
from xq.sessions import session as sessions
from xq.sessions.interrupts import to_the_end
from xq.sessions.session import ProofOfLife, Session, Sessions

log = logging.getLogger("xq")

FALLBACK = 0.9  # seconds after which a signal that was lost is made up for
LOOK = 0.4  # seconds between two looks at who lives, while other sessions may hold tasks
LONGEST = 86_400.0  # seconds that the timer is set for at most
ROLL_UP = 1.0  # seconds between two times that counters are added up, while there is anything to count
ASK = 60.0  # seconds between two questions whether something makes the queues slow
REST = 0.8  # seconds between two questions whether the database may be written, less than between two rounds
ABSENT = 5.0  # seconds for which a queue that is not installed is not looked for
LEAVING = 60.0  # seconds to wait for the thread of a database that is left, which may be in the middle of something
RETRY = 0.5  # seconds after which what failed is tried again
# Seconds from one look to the next, however much is written: half of what a due time may be late, and for waiters
# little enough not to be noticed.
PAUSE, WAITED_FOR = 0.02, 0.002
IN_VAIN = 16  # looks after which those who wait are taken to have no interest in what is written


class QueueKeeper:
    """What one queue needs beside the calls of its users. What is done for sessions, any queue does for all."""

    def __init__(self, database: Database, takes: Takes[Any], finish: Finish[Any], waiting: Waiting[Any]) -> None:
        self.database = database
        self.takes = takes
        self.finish = finish
        self.timers = takes.timers
        self.machine = takes.machine
        self.waiting = waiting
        self._sweeper: Sweeper | None = None
        self._absent: tuple[ref[object] | None, float] = (None, 0.0)  # where it was not, until which monotonic time
        waiting.listen = self.listen
        takes.attend = self.attend
        sessions.keepers.add(self)

    @property
    def attended(self) -> object:
        """The binding for which a thread is there, or where there can be none."""
        return self.takes.attended

    @attended.setter
    def attended(self, binding: object) -> None:
        self.takes.attended = binding

    def retire(self) -> None:
        """Another definition of the queue has taken over."""
        self.attended = None
        sessions.keepers.discard(self)
        self.database.close()
        self.waiting.alarm()

    def leave(self) -> None:
        """Know nothing of the database any more."""
        self.attended = self._sweeper = None
        self.database.observers.count()
        self.database.close()

    def attend(self) -> bool:
        """Have a thread that looks after the queue. False where there can be none."""
        opened = self.database.open()
        if self not in sessions.keepers:
            return False
        if self.attended is not opened:
            self._sweeper = _sweeper_of(self)
            self.attended = opened
            self.database.observers.count()
            if self._sweeper is not None:
                self._sweeper.ring()  # only now, since a round leaves out who is not attended
        return self._sweeper is not None

    @property
    def is_attended(self) -> bool:
        """Whether the queue, in the database that it has now, is looked after, as far as can be."""
        return self.attended is not None and self.attended is self.database.bound

    @property
    def anybody(self) -> bool:
        """Whether the thread must be told what this process itself makes due, since the database does not tell it."""
        return self._sweeper is not None and not self._sweeper.tells

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """This process moved tasks, and has committed since."""
        if target in self.machine.timers and self._sweeper is not None:
            self._sweeper.call()

    def listen(self) -> bool:
        """Have the thread listen now, since somebody waits. False where there can be none."""
        there = self.attend()
        if self._sweeper is not None:
            self._sweeper.expect()
            self.database.observers.count()
        return there

    def more_have_died(self, than: int) -> bool:
        """Whether tasks may have come back from more processes than so many. Looks at most every LOOK seconds."""
        self.reap(unless_since=time.monotonic() - LOOK)
        return self.deaths > than

    def reap(self, unless_since: float = math.inf) -> None:
        """Have orphaned tasks come back, unless that was done since this monotonic time. Not within a transaction."""
        mine = self.sessions
        if mine and self.database.clock is None and not self.database.store.in_transaction():
            mine.end_the_dead(unless_since)

    @property
    def deaths(self) -> int:
        """How many sessions of others this process has ended."""
        mine = self.sessions
        return mine.deaths if mine else 0

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

    def move_due(self) -> float | None:
        """Move a batch of what is due. Returns in how many seconds more is; None for never, or where others move it."""
        if not self.database.may_move:
            return None
        swept, seconds = self.timers.sweep_if_any(), self.timers.seconds()
        in_vain = swept.due and not (swept.moved or swept.forgotten or swept.news)
        return RETRY if in_vain and seconds is not None and seconds <= 0 else seconds

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

    def proof_of_life(self) -> ProofOfLife | None:
        return self.database.dialect.proof_of_life(self.database.store)

    def rejoin(self, uuid: str) -> bool:
        dialect, sessions = self.database.dialect, self.database.sessions
        lease = sessions.lease if sessions else None
        return self._whole(dialect.session_goes_on, dialect.session_went_on, uuid=uuid, lease=lease)

    def is_there(self, uuid: str) -> bool:
        opened = self.database.open()
        sql, values = opened.dialect.session_is_there, {**self.database.values(), "uuid": uuid}
        rows = opened.sessions.apart(sql, values)
        return bool(self.database.execute(sql, values) if rows is None else rows)

    def postpone(self, uuid: str) -> bool:
        return self._whole(self.database.dialect.session_postponed, self.database.dialect.session_ends, uuid=uuid)

    def over(self, uuid: str) -> bool:
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

    def strike(self, uuid: str) -> None:
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


class Sweeper:
    """The thread of one database."""

    def __init__(self, database: object, writes: Writes, mine: Sessions) -> None:
        self._database = ref(database)
        self._writes = writes
        self._sessions = mine
        self._connection: Any = None  # the driver's, of this thread: kept so that no garbage collector frees it open
        self._armed = float("inf")  # the monotonic time for which the timer is set
        self._roll_up_at = 0.0  # the monotonic time at which to add the counters up
        self._written = False  # whether there was a change since counters were last added up
        self._piled_up: list[QueueKeeper] = []  # the queues of which there are counters left to add up
        self._ask_at = time.monotonic() + ASK  # the monotonic time at which to ask what is in the way
        self._rang = True
        self._look_within = FALLBACK  # seconds after which to look without being told
        self._complaint = ""
        self._in_vain = 0  # how many looks in a row had nothing for those who wait
        self._stuck_until = 0.0  # the monotonic time at which to try again what was due and could not be moved
        self._look_at = 0.0  # the monotonic time at which to look who lives
        self._ask_to_write_at = 0.0  # the monotonic time at which to ask whether the database may be written
        self._only_reads = False
        self.rests = False  # whether it was not, and what fell due since is yet to be moved
        self._over = False
        self._hurry = Alarm()
        self.working = threading.RLock()
        self.thread = threading.Thread(target=self._attend, name="xq", daemon=True)

    def end(self) -> None:
        self._over = True
        self.hurry()
        self._writes.call()

    def disown(self) -> None:
        """In a child, which has no such thread: what it listened to is the parent's, and so is its connection."""
        self._over = True
        keep(self._connection)
        self._writes.close()

    def expect(self) -> None:
        """Listen: somebody begins to wait."""
        self.hurry()
        self._writes.expect()

    @property
    def tells(self) -> bool:
        """Whether it hears by itself of what this process writes."""
        return self._writes.tells

    def call(self) -> None:
        """Something may fall due earlier than what was known."""
        self._writes.call()

    def hurry(self) -> None:
        self._hurry.set()

    def look_again(self) -> None:
        """The database may be written again."""
        self._ask_to_write_at = 0.0
        self._writes.call()

    def ring(self) -> None:
        """Something is due."""
        self._rang = True
        self._writes.call()

    def _attend(self) -> None:
        try:
            self._go_on()
        finally:
            self._writes.close()
            self._give_up_connection()

    def _go_on(self) -> None:
        pause, seconds = 0.0, 0.0
        while not self._over:
            self._hurry.wait(pause)
            try:
                told = self._writes.wait(seconds, any(keeper.waiting.anybody for keeper in self._keepers()))
                if self._over or self._database() is None:
                    break
                with self.working:
                    try:
                        pause, seconds = self._round(told)
                    finally:
                        self._hold_connection()
            except Exception as error:
                if self._over or self._database() is None:
                    break
                self._complain(error)
                pause, seconds = RETRY, 0.0
                self._rang = True
                self._ask_to_write_at = 0.0
                self.rests = self._only_reads  # it has begun, and what fails is to be no reason to refuse all calls
                with self.working:
                    self._give_up_connection()

    def _complain(self, error: Exception) -> None:
        ending = not threading.main_thread().is_alive()  # then nothing can be started any more
        expected = ending or isinstance(error, NotInstalled)  # the queue was taken away, or is by now another
        level = logging.DEBUG if expected or str(error) == self._complaint else logging.WARNING  # once is enough
        log.log(level, "looking after a database failed, and is tried again: %s", error)
        self._complaint = str(error)

    def _keepers(self) -> list[QueueKeeper]:
        # None is asked whether it is installed: where the database cannot be opened, that could not be told.
        known = [keeper for keeper in sessions.held_by(sessions.keepers) if isinstance(keeper, QueueKeeper)]
        return [keeper for keeper in known if keeper.attended and keeper.sessions is self._sessions]

    def _installed(self) -> list[QueueKeeper]:
        """The queues to look after. One that is gone is let alone until it is used again."""
        keepers = self._keepers()
        if not keepers:  # then none could close the connection that finding the proof opens
            return []
        proof = self._sessions.proof
        there = proof is None or proof.there()  # to connect would make an empty database
        if there:
            keepers[0].database.store.connect_apart()
            self._hold_connection()  # now: below, it may be found that no queue is there to close it
        for keeper in keepers:
            try:
                if there:
                    keeper.database.review()
                    continue
            except NotInstalled as error:
                log.debug("%s", error)
            keeper.attended = None
            keeper.waiting.alarm()
        return [keeper for keeper in keepers if keeper.attended]

    def _round(self, told: bool) -> tuple[float, float]:
        """Do what is to be done. Returns for how many seconds to listen to nobody, and then to wait for a signal.

        The first is the rest that a busy database gets (PAUSE; WAITED_FOR while somebody waits), the second at most
        FALLBACK, when all signals came; less, while a write may be on its way, or others' lives are to be looked at.
        """
        if self._writes.replaced():
            self._give_up_connection()  # else it would see the old file for ever
            self._look_at = 0.0
        keepers = self._installed()
        if not keepers:
            self.rests = False
            return PAUSE, FALLBACK
        if self._may_not_write(keepers):
            return PAUSE, FALLBACK
        for keeper in keepers:
            keeper.database.observers.count()  # whether the server notifies may be another by now
            keeper.takes.in_doubt.resolve()
        changed = self._writes.has_changed(keepers[0].database.store, told and not self._rang)
        called = False
        if changed or not (told or self._look_within < FALLBACK):
            called = sum(keeper.waiting.heard() for keeper in keepers) > 0
        timed = [keeper for keeper in keepers if keeper.database.clock is None and keeper.database.may_move]
        if changed:
            self._look_at = min(self._look_at, time.monotonic() + LOOK)
        if timed:
            self._bury_the_dead()
            if changed or self._rang or not told:  # nobody tells of a clock that was set
                self._keep_time(timed)
        # A batch in each round, so that nothing else has to wait for many.
        self._piled_up = [keeper for keeper in keepers if keeper in self._piled_up and keeper.database.add_up()]
        self._written |= changed
        if self._written and time.monotonic() >= self._roll_up_at and not self._piled_up:
            self._piled_up = [keeper for keeper in keepers if keeper.database.add_up_if_many()]
            self._written, self._roll_up_at = False, time.monotonic() + ROLL_UP
        if time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + ASK
            trouble = keepers[0].database.dialect.trouble(keepers[0].database.store)
            if trouble:
                log.warning("%s", trouble)
        # What is written again and again may be of no interest to those who wait.
        self._in_vain = 0 if called or not told else self._in_vain + 1
        waited_for = any(keeper.waiting.anybody for keeper in keepers)
        pause = min(PAUSE, WAITED_FOR * 2.0 ** max(0, min(self._in_vain, 64) - IN_VAIN)) if waited_for else PAUSE
        # What was told of may have been two writes: one that was seen, and one on its way to the disk, which is slow.
        self._look_within = min(self._writes.unseen if told else 2 * self._look_within, FALLBACK)
        self.rests = False
        looks = [self._look_at - time.monotonic()]
        if changed:
            looks += [others.rest for others in self._sessions.others]
        seconds = 0.0 if self._piled_up else min(self._look_within, *looks)
        return pause, max(0.0, seconds)

    def _may_not_write(self, keepers: list[QueueKeeper]) -> bool:
        """Whether the database may only be read now: then nothing is swept, and who waits is called to see for himself.

        Even where this process had the privilege to write all the same.
        """
        if time.monotonic() < self._ask_to_write_at:
            return self._only_reads
        only_reads = keepers[0].database.only_reads()
        if only_reads != self._only_reads:
            log.info("the database of %s may %s", keepers[0].name, "only be read" if only_reads else "be written again")
        self._only_reads = only_reads
        if only_reads:
            self.rests = True
            for keeper in keepers:
                keeper.waiting.alarm()
            self._give_up_connection()  # it might not be told, which one that is made later is
        elif self.rests:
            self._rang, self._look_at = True, 0.0
        self._ask_to_write_at = time.monotonic() + REST
        return only_reads

    def _bury_the_dead(self) -> None:
        """End the sessions of which no process is left, when it is time to look for them."""
        if time.monotonic() >= self._look_at or self._sessions.left:
            self._sessions.left = False
            others = self._sessions.end_the_dead()
            # Where nobody tells of writes, a session may be new at any time. Of a take nobody tells anywhere: one whose
            # transaction was open still when its session ended is found by no more than its task, once it is committed.
            self._look_at = time.monotonic() + (LOOK if others or not self._writes.tells else sessions.ORPHANS)

    def _keep_time(self, keepers: list[QueueKeeper]) -> None:
        """Move what is due, and set the timer for what is next."""
        begun = time.monotonic()
        swept: list[Swept] = []
        if self._rang or begun >= self._armed:
            self._rang, self._armed = False, float("inf")
            swept = [found for keeper in keepers if (found := keeper.timers.sweep_if_any()).due]
        due = [seconds for keeper in keepers if (seconds := keeper.timers.seconds()) is not None]
        due += [seconds for others in self._sessions.others if (seconds := others.keep_time()) is not None]
        if due:
            # Others may write for as long as a batch took.
            now = time.monotonic()
            in_vain = swept and not any(found.moved or found.forgotten or found.news for found in swept)
            if min(due) <= 0 and in_vain:  # not moved by others either: another row refers to it
                self._stuck_until = begun + RETRY
            self._arm(min(due) if min(due) > 0 else max(now - begun, self._stuck_until - now))

    def _arm(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        if at < self._armed - 0.001:
            self._armed = at
            _timer().add_job(
                self.ring,
                "date",
                run_date=datetime.now(UTC) + timedelta(seconds=min(seconds, LONGEST)),
                id=str(id(self)),
                replace_existing=True,
                misfire_grace_time=None,  # however late the machine is
            )

    def _hold_connection(self) -> None:
        for keeper in self._keepers()[:1]:
            self._connection = keeper.database.store.own_connection

    def _give_up_connection(self) -> None:
        keepers, connection = self._keepers(), self._connection
        self._connection = None
        try:
            if keepers:
                keepers[0].database.store.disconnect()
            elif connection is not None:  # the ORM's database object is gone, and cannot close it
                connection.close()
        except Exception as error:
            log.debug("a connection could not be closed: %s", error)


# all that this process has

_sweepers: WeakKeyDictionary[Any, Sweeper] = WeakKeyDictionary()
_scheduler: BackgroundScheduler | None = None
_starting = threading.RLock()
_kept_out: list[Sweeper] = []  # of the database, while this process forks


def _sweeper_of(keeper: QueueKeeper) -> Sweeper | None:
    """The thread of this process for the database of a queue; None where there can be none."""
    database = keeper.database.store.database
    with _starting:
        sweeper = _sweepers.get(database)
        if sweeper is None or not sweeper.thread.is_alive():
            mine = keeper.database.open().sessions
            try:
                writes = keeper.database.writes()
            except OSError as error:
                log.warning("no thread can look after %s: %s", keeper.name, error)
                return None
            if writes is None or database is None:
                return None
            sweeper = Sweeper(database, writes, mine)
            try:
                to_the_end(sweeper.thread.start)
                finalize(database, sweeper.end).atexit = False
                _sweepers[database] = sweeper
            except BaseException:
                _sweepers.pop(database, None)
                sweeper.end()  # if it has begun, or is about to
                writes.close()
                raise
    return sweeper


def rests(database: object) -> bool:
    """Whether the thread of this process for a database has let it alone since that could not be written.

    It is told that it may go on.
    """
    sweeper = _sweepers.get(database)
    if sweeper is None or not sweeper.rests or not sweeper.thread.is_alive():
        return False
    sweeper.look_again()
    return True


def leave(database: object) -> None:
    """End what this process has with a database: sessions, its thread, their connections. The next call begins anew."""
    mine = sessions.of(database)
    proof = mine.proof
    try:
        mine.exit()
    except Exception as error:
        log.debug("a session could not be ended: %s", error)
    with _starting:
        sweeper = _sweepers.pop(database, None)
    if sweeper is not None:
        sweeper.end()
        sweeper.thread.join(LEAVING)
    for keeper in sessions.held_by(sessions.keepers):
        if isinstance(keeper, QueueKeeper) and keeper.sessions is mine:
            keeper.leave()
    if proof is not None:
        proof.close()


class _InItsThread(DebugExecutor):  # type: ignore[misc]
    """Runs what is due in the scheduler's own thread, and logs under a name of its own."""

    def start(self, scheduler: BackgroundScheduler, alias: str) -> None:
        super().start(scheduler, "xq")


def _timer() -> BackgroundScheduler:
    """The scheduler of this process, which does no more than ring."""
    global _scheduler
    with _starting:
        if _scheduler is None:
            own = logging.getLogger("xq.timer")
            for logger in (own, logging.getLogger("apscheduler.executors.xq")):
                logger.setLevel(logging.WARNING)  # else they tell of each job
            _scheduler = BackgroundScheduler(timezone=UTC, executors={"default": _InItsThread()}, logger=own)
            _scheduler.start()
        return _scheduler


def _before_exit() -> None:
    """End the maintenance threads, so that none dies in the middle of a statement or leaves its connection open.

    A process that ended may have left its session to one of them.
    """
    ending = sessions.held_by(_sweepers.values())
    for sweeper in ending:
        sweeper.end()
    for sweeper in ending:
        sweeper.thread.join(RETRY)


sessions.before_exit.append(_before_exit)


def _before_fork() -> None:
    """No thread of ours shall be within the database, or hold a lock, when the process is copied without it."""
    # In this order, as the thread itself: it works, and then may have to start the timer.
    there = sessions.held_by(_sweepers.values())
    _kept_out.extend(sweeper for sweeper in there if sweeper.working.acquire(timeout=RETRY))
    _starting.acquire()


def _after_fork_in_parent() -> None:
    _starting.release()
    while _kept_out:
        _kept_out.pop().working.release()


def _after_fork_in_child() -> None:
    global _scheduler, _starting, _sweepers
    _kept_out.clear()
    for sweeper in sessions.held_by(_sweepers.values()):
        sweeper.disown()
    _scheduler, _starting, _sweepers = None, threading.RLock(), WeakKeyDictionary()
    for keeper in sessions.held_by(sessions.keepers):
        if isinstance(keeper, QueueKeeper):
            keeper.attended = None
            keeper.waiting.forget()
            keeper.database.observers.forked()
            keeper.database.store.forked()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
