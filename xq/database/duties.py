"""The duties of a process for a database, and the thread that runs them. A process that only puts has none."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any, cast
from weakref import WeakSet, ref

from xq.core import time
from xq.core.connections import Notifier, Runs, keep
from xq.core.counters import MANY
from xq.core.errors import NotInstalled, in_line
from xq.core.kinds import OUTCOME_UNKNOWN, PERMANENT, ErrorKind, R, Row
from xq.core.machine import ANY_READY
from xq.database.base import BaseDatabase
from xq.database.members import Awaited, Member
from xq.database.reaper import Reaper
from xq.database.records import rows_of
from xq.database.sessions import Sessions

log = logging.getLogger("xq")

# Seconds until the next run of a duty, unless an event makes it due earlier:
FALLBACK = 0.9  # wake waiters and expire timers, in case a notification was lost or a clock was set
REAP_EVERY, ALONE = 0.4, 0.9  # reap: while sessions of other processes are registered, and while none is
RECORDS = 0.9  # read what other processes may have changed: installations, pauses, schedules, whether it may be written
SEEN = 2 * RECORDS  # by then each process has read them, and its takes from before are seen
RETRY = 0.5  # resolve in-doubt takes, and retry after a failure
RETRY_MOST = 5.0  # retry: the pause doubles up to this, which is how late waiters are woken after an outage
REST = 10.0  # any of these but the look for a commit, while the files of the database are at rest
ROLL_UP = 1.0  # roll up counters, after a change
FLOORS = 0.5  # raise the floors of takes: each passes over what was taken since
TIDY = 60.0  # delete what says as much when it is gone
EARLY = 0.2  # a duty runs up to so much earlier, with another one that is due: each wake-up costs more than most duties
# Seconds of pause after a run of duties: half of the time that a due task may be late, and less if callers wait.
PAUSE, WAITED_FOR = 0.02, 0.002
count: Callable[[str], None] | None = None  # called with "sweep" and "wakeup", if a program shows how often they happen
FORKS = 5.0  # seconds that a fork waits for the thread to close its connection to a file, at most
IN_VAIN = 16  # notifications in a row that woke no waiter of this process, after which the pause grows


class Duty:
    """A call that the maintenance thread repeats, and the time of its next run."""

    def __init__(self, name: str, run: Callable[[], float]) -> None:
        self.name = name
        self.run = run  # returns the seconds until its next run
        self.next_at = 0.0  # the monotonic time of its next run
        self._lock = threading.Lock()

    def within(self, seconds: float) -> None:
        """Run it in `seconds` at the latest. Another thread may call this, and neither call undoes the other."""
        with self._lock:
            self.next_at = min(self.next_at, time.monotonic() + seconds)


class Duties:
    """The duties for one database. Their thread waits for a notification or the next duty, and runs what is due."""

    def __init__(self, database: BaseDatabase, sessions: Sessions, reaper: Reaper, notifier: Notifier) -> None:
        self._database = ref(database)
        self._sessions, self._reaper = sessions, reaper
        self._notifier = notifier
        self._members: list[Member] = []  # attended in this cycle; empty between two cycles
        self._awaited: dict[Member, Awaited] = {}  # what callers wait for in these, as last asked
        self._reported_own: bool | None = None  # whether the notifier reported own commits in the last cycle
        self._next_at = 0.0  # the monotonic time of the next cycle, without a notification
        self._brief: Any = None  # the one that waits for a lock only briefly
        self._connection: Any = None  # the driver's; keeps the garbage collector from freeing an open one
        self._notified = False  # whether the notifier reported a commit before this cycle
        self._recheck = FALLBACK  # seconds until the next look for a commit that was not reported
        self._in_vain = 0  # notifications in a row that woke no waiter of this process
        self._since: list[list[float]] = []  # when its waiters came, at the last one
        self._to_roll_up: WeakSet[Member] = WeakSet()  # those that had many counters at the last look
        self._rests = False  # whether nothing can change but by a commit, or at a time that is known
        self.paused = False  # whether the database was read-only, and not all duties have run since
        self._backoff = 0.0  # seconds of pause after the last cycle, if that failed
        self._warned = False  # whether it has warned since the last cycle without a failure
        self._failing = set[tuple[str, str]]()  # the queues that fail in a duty, so that each is logged once
        self._ended = False
        self._hurry = threading.Event()
        self.forks = False  # whether this process is about to fork
        self.working = threading.RLock()
        # The order counts: after the first no member may be left, and `look` calls for `expire`.
        self.read_records = Duty("read the records, and fire schedules", self._read_records)
        self.resolve = Duty("resolve in-doubt takes", self._resolve)
        self.look = Duty("look for commits, and wake waiters", self._look)
        self.expire = Duty("expire timers", self._expire)
        self.reap = Duty("reap orphaned tasks", self._reap)
        self.roll_up = Duty("roll up counters", self._roll_up)
        self.raise_floors = Duty("raise the floors of takes", self._raise_floors)
        self.tidy = Duty("delete what is over", self._tidy)
        self.duties = [each for each in vars(self).values() if isinstance(each, Duty)]
        self._allowed = self.duties  # while the database is read-only, the first
        self.thread = threading.Thread(target=self._run, name="xq", daemon=True)

    # called by other threads

    def end(self) -> None:
        self._ended = True
        self._hurry.set()
        self._notifier.wake()

    def fork(self, forks: bool) -> None:
        """Have no connection while this process forks: in a child that inherits one of a file, SQLite locks nothing."""
        self.forks, until = forks, time.monotonic() + FORKS
        self._hurry.set()
        self._notifier.wake()
        mine = threading.current_thread() is self.thread
        while forks and not mine and not self._is_apart() and time.monotonic() < until:
            time.sleep(0.001)

    def _is_apart(self) -> bool:
        """Return whether the thread has no connection and is between two cycles: one that has begun may connect."""
        if between := self.working.acquire(blocking=False):
            between = self._connection is None
            self.working.release()
        return between

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

    def call_for(self, duty: Duty) -> None:
        """Wake the thread to run this duty now."""
        duty.within(0.0)
        self._notifier.wake()

    # the loop

    def _run(self) -> None:
        try:
            while self._wait_and_work():
                pass
        finally:
            self._notifier.close()
            with self.working:
                self._disconnect()

    def _wait_and_work(self) -> bool:
        """Wait for a notification or the next duty, and run the due duties. Return False when the thread must end."""
        try:
            self._notified = self._wait(max(0.0, self._next_at - time.monotonic()))
            if self._is_over:
                return False
            with self.working:
                if self.forks:
                    self._disconnect()
                pause = RETRY if self.forks else self._cycle()
            if self._warned:
                log.info("the maintenance thread works again")
            self._backoff, self._warned = 0.0, False
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

    def _wait(self, seconds: float) -> bool:
        conditions = [awaited.condition for member in self._answering(self._attended()) if (awaited := member.awaited)]
        return self._notifier.wait(seconds, bool(conditions), conditions if all(conditions) else ())

    @property
    def _is_over(self) -> bool:
        return self._ended or self._database() is None

    @property
    def _only_reads(self) -> bool:
        return self._allowed is not self.duties

    @property
    def _first_at(self) -> float:
        """The monotonic time of the first duty."""
        return min([duty.next_at for duty in self._allowed])

    def _all_at_once(self) -> None:
        for duty in self.duties:
            duty.next_at = 0.0

    def _cycle(self) -> float:
        """Run the due duties. Return the seconds of pause after it, which leave a busy database to others."""
        try:
            self._run_duties()
            self._next_at = time.monotonic() + self._at_most(FALLBACK)
            if self._members:
                self._next_at = min(self._next_at, self._first_at)
            return self._rest()
        finally:
            self._hold_connection()
            self._members, self._awaited = [], {}  # they refer to the database object, which the application may drop

    def _run_duties(self) -> None:
        if self._notifier.replaced() and not self._only_reads:  # then each read of the records connects anew
            self._disconnect()  # else the connection would stay on the old file
            self.reap.next_at = 0.0
        reports_own = self._notifier.reports_own  # first: a member that is attended from now on counts by itself
        self._members = self._attended()
        if self._notified:
            self.look.next_at = 0.0
        self._awaited = self._ask()
        self._rests = self._notifier.at_rest and not any(awaited.a_token for awaited in self._awaited.values())
        for member in self._members if reports_own != self._reported_own else ():
            member.count_observers()
        self._reported_own = reports_own
        self._wait_briefly()
        if not self._only_reads and self.database.look_at_locked():
            self.expire.next_at = 0.0
        due = time.monotonic() >= self._first_at
        early = EARLY if due and not self._notified else 0.0  # notifications may come at any rate
        for duty in self.duties:
            if time.monotonic() >= duty.next_at - early and duty in self._allowed and self._members:
                duty.next_at = math.inf  # before the run: another thread may call for it meanwhile
                duty.within(duty.run())
        self.paused = self.paused and self._only_reads and bool(self._members)

    def _at_most(self, seconds: float) -> float:
        return REST if self._rests else seconds

    def _rest(self) -> float:
        # The pause grows from WAITED_FOR to PAUSE if the last notifications woke no waiter of this process.
        if not self._awaited:
            return PAUSE
        return min(PAUSE, WAITED_FOR * 2.0 ** max(0, min(self._in_vain, 64) - IN_VAIN))

    def _complain(self, error: Exception) -> None:
        ending = not threading.main_thread().is_alive()  # then no thread can be started
        expected = ending or isinstance(error, NotInstalled)  # the queue was uninstalled, or has other features
        level = logging.DEBUG if expected or self._warned else logging.WARNING  # warn once
        log.log(level, "the maintenance thread failed, and retries: %s", in_line(error))
        self._warned = self._warned or not expected

    def _attended(self) -> list[Member]:
        # Without a check of the installation, which would fail while the database cannot be opened.
        database = self._database()
        attended = [] if database is None else [member for member in database.members if member.maintained]
        return [member for member in attended if member.database is database]

    def _ask(self) -> dict[Member, Awaited]:
        return {member: awaited for member in self._members if (awaited := member.awaited)}

    @property
    def _queues(self) -> list[Any]:
        return self._answering([member for member in self._members if member.executor is not None])

    def _answering(self, members: Iterable[Member]) -> list[Member]:
        return [] if (database := self._database()) is None else database.answering(members)

    @property
    def database(self) -> BaseDatabase:
        """The database, within a cycle. Not kept: the application may drop it."""
        return cast(BaseDatabase, self._database())

    def _hold_connection(self) -> None:
        if self._members:
            self._connection = self.database.store.in_use

    def _wait_briefly(self) -> None:
        """Have the thread's connection, also a new one in place of a lost one, wait for a lock for a second at most."""
        store = self.database.store
        if self._connection is not None and store.has_threads:
            store.ready()
            if (connection := store.in_use) is not self._brief:
                self.database.sql.wait_briefly(store, connection)
                self._brief = connection

    def _disconnect(self) -> None:
        database, connection = self._database(), self._connection
        self._connection, self.read_records.next_at = None, 0.0
        try:
            if database is not None:
                database.store.disconnect()
            elif connection is not None:  # the ORM's database object is gone
                connection.close()
        except Exception as error:
            log.debug("a connection could not be closed: %s", error)

    def _each(self, duty: Duty, call: Callable[[Member], R], among: Iterable[Member] | None = None) -> dict[Member, R]:
        """Return what a call returns for each member, or those among them. One that the database refuses is left out.

        Any other error ends the cycle, as that of a lost connection.
        """
        found = {}
        for member in self._answering(self._members if among is None else among):
            try:
                found[member] = call(member)
                if self._failing:
                    self._failing.discard((member.source_name, duty.name))
            except Exception as error:
                self._failed(duty, member, error)
        return found

    def _failed(self, duty: Duty, member: Member, error: Exception) -> None:
        kind = self.database.store.classify(error)
        if kind is ErrorKind.LOCKED and member.executor is not None:
            self.database.leave_out([member], error)
            return
        if kind not in (*PERMANENT, ErrorKind.DENIED, ErrorKind.LOCKED):
            raise error
        failing, name = (member.source_name, duty.name), member.source_name or self.database.store.name
        level = logging.DEBUG if failing in self._failing else logging.WARNING
        log.log(level, "%s cannot %s, and tries again: %s", name, duty.name, in_line(error))
        self._failing.add(failing)

    def _rows_of(self, duty: Duty, query: Callable[[Sequence[Any]], str]) -> list[Row]:
        """Return the rows of a query of all queues, each after its queue. If it fails, each queue is asked alone."""
        queues = self._queues

        def ask(part: Sequence[Any]) -> list[Row]:
            runs: Runs = self.database if len(part) > 1 else part[0].executor  # alone, a queue that was dropped says so
            return runs.run(asked) if (asked := query(part)) else []

        def failed(part: Sequence[Any], error: Exception) -> None:
            if (kind := self.database.store.classify(error)) is ErrorKind.LOCKED:
                self.database.leave_out(part, error)
            elif len(queues) == 1 or (len(part) > 1 and kind in OUTCOME_UNKNOWN):
                raise error
            elif len(part) == 1:
                self._failed(duty, part[0], error)

        return rows_of(queues, ask, failed, self._answering)

    # the duties; each returns the seconds until its next run

    def _read_records(self) -> float:
        """Read by one query what other processes may have changed of all queues, and fire the due schedules."""
        database, liveness = self.database, self.database.liveness
        begun = {member: member.begin_read() for member in self._members}
        found, failed = defaultdict[str, list[Row]](list), None
        there = liveness is None or liveness.there()  # a connection would create an empty database
        if there:
            database.store.connect_unpooled()
            self._hold_connection()  # now: below, the last member may be dropped
            self._wait_briefly()
            try:
                dialects = [queue.executor.dialect for queue in self._queues]
                for kind, *row in database.run(database.sql.records_of(dialects)):
                    found[kind].append(row)
            except Exception as error:  # the tables are gone, or one of the queues
                failed = error
        self._review(there, None if failed else found["queue"])
        if failed and self._members:
            raise failed
        if not self._members or self._may_only_read(bool(found["read only"])):
            return RECORDS
        paused = defaultdict[str, list[tuple[str, int]]](list)
        for name, tube, _, whole in found["pause"]:
            paused[name].append((tube, whole))
        cancelled = {name for _, name, *_ in found["cancelled"]}
        self._each(self.read_records, lambda each: each.end_read(begun[each], paused[each.source_name], cancelled))
        return self._fire(found["schedule"])

    def _review(self, there: bool, records: list[Row] | None) -> None:
        """Stop maintaining what is no longer installed, until it is used again."""

        known: dict[str, list[Row]] = {name: [tuple(record)] for name, *record, _ in records or ()}
        schemas = dict[str, Any]()

        def review(member: Member) -> None:
            try:
                if there and member.executor is None and records is None:
                    self.database.run(self.database.sql.queues)  # the tables may be gone
                if there:
                    member.review(None if records is None else known.get(member.source_name, []), schemas)
                    return
            except NotInstalled as error:
                log.debug("%s", error)
            member.maintained = None
            member.wake_all()

        self._each(self.read_records, review)
        self._members = [member for member in self._members if member.maintained]

    def _may_only_read(self, only_reads: bool) -> bool:
        """Pause the other duties while the database is read-only, even if this process could write to it."""
        database = self.database
        only_reads = only_reads or (not database.sql.read_only and database.sql.only_reads(database.store))
        if only_reads != self._only_reads:
            may = "only be read" if only_reads else "be written again"
            log.info("the database of %s may %s", self._members[0].source_name or database.store.name, may)
            self._all_at_once()
            self._allowed = [self.read_records] if only_reads else self.duties
        if only_reads:
            self.paused = True
            for member in self._members:
                member.wake_all()  # each caller checks the database itself
            self._disconnect()  # after a failover only a new connection may be writable
            self.read_records.next_at = math.inf  # which a new connection calls for: not before RECORDS
        return only_reads

    def _fire(self, schedules: list[Row]) -> float:
        seconds = self._at_most(RECORDS)
        queues = {queue.source_name: queue for queue in self._queues if queue.maintains} if schedules else {}
        for name, schedule, _, left in schedules:
            if name not in queues:
                continue
            if left <= 0:
                # At once again, since the next firing may be soon; later if the task could not be put.
                queue, fire = queues[name], methodcaller("fire", schedule)
                left = 0 if self._each(self.read_records, fire, [queue]).get(queue) else RETRY * 1_000_000
            seconds = min(seconds, left / 1_000_000)
        return seconds

    def _resolve(self) -> float:
        pending = self._each(self.resolve, lambda member: member.resolve())
        return RETRY if any(pending.values()) or len(pending) < len(self._members) else FALLBACK

    def _look(self) -> float:
        """Call for the duties that read the database, if another process has committed."""
        changed = self._notifier.has_changed(self.database.store, self._notified)
        if count is not None and self._notified:
            count("wakeup")
        self._in_vain = self._in_vain + 1 if self._notified else 0
        if changed:
            self.expire.next_at = 0.0
            self.roll_up.within(ROLL_UP)
            for rested in (self.read_records, self.reap):
                rested.within(RECORDS)
        # A second commit may not be visible yet, for example on a slow disk: look again soon.
        self._recheck = min(self._notifier.unseen if self._notified else 4 * self._recheck, FALLBACK)
        return self._at_most(self._recheck)

    def _expire(self) -> float:
        """Wake the waiters that may find something, and move a batch of the due tasks of each member."""
        maintaining = [member for member in self._members if member.maintains]
        self._awaited = awaited = self._ask()  # after `look`: a caller may have come before that commit
        if count is not None and maintaining:
            count("sweep")

        def due_and_ready(queues: Sequence[Any]) -> str:
            return self.database.sql.upkeep_of(
                [
                    (of.executor.dialect, of in maintaining, of in awaited and awaited[of].a_task, of.executor.window)
                    for of in queues
                ]
            )

        rows = self._rows_of(self.expire, due_and_ready)
        left, ready = defaultdict[Member, dict[str, float]](dict), set[Member]()
        for queue, duty, seconds in rows:
            if duty == ANY_READY:
                ready.add(queue)
            elif seconds is not None:
                left[queue][duty] = float(seconds)
        left |= {member: {} for member in maintaining if member.executor is None}  # it looks by itself
        woken = self._each(self.look, lambda member: member.wake(member in ready), awaited)
        since = [each.since for each in awaited.values()]
        if since != self._since or any(woken[queue] for queue in woken.keys() - ready):
            self._in_vain = 0  # else there are tasks, but not for these callers: in paused tubes, say
        self._since = since
        found = self._each(self.expire, lambda member: member.expire(left[member]), left).values()
        return max(0.0, min([self._at_most(FALLBACK), *found]))

    def _reap(self) -> float:
        database = self.database
        if database.supervised:
            if (liveness := database.liveness) is not None:
                self._sessions.renew(liveness)
            return ALONE
        others = any(member.maintains for member in self._members) and self._reaper.reap()
        if others and self._reaper.more:
            return 0.0  # the other duties come first
        return REAP_EVERY if others else self._at_most(ALONE)

    def _roll_up(self) -> float:
        """Roll up a batch of counters of each queue that has many. Batches keep the other duties from waiting."""
        if self.database.supervised:
            return math.inf
        many = [queue for queue in self._queues if queue in self._to_roll_up]
        many = many or [queue for queue, *_ in self._rows_of(self.roll_up, self._many_counters)]
        rolled = self._each(self.roll_up, lambda queue: queue.roll_up(), many)
        self._to_roll_up = WeakSet(queue for queue, more in rolled.items() if more)
        return 0.0 if self._to_roll_up else math.inf

    def _raise_floors(self) -> float:
        maintaining = [queue for queue in self._queues if queue.maintains]
        any_floors = self._each(self.raise_floors, lambda queue: queue.raise_floors(), maintaining)
        return FLOORS if any(any_floors.values()) else self._at_most(FLOORS)

    def _tidy(self) -> float:
        maintaining = [queue for queue in self._queues if queue.maintains]
        self._each(self.tidy, lambda queue: queue.tidy(), maintaining)
        return TIDY

    def _many_counters(self, queues: Sequence[Any]) -> str:
        return self.database.sql.many_counters_of([queue.executor.dialect for queue in queues], MANY)
