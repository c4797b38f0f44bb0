"""Look at a queue as an operator does: who has taken what, how long tasks wait, and whether that is in time."""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from xq.core import time
from xq.core.compile import Selector
from xq.core.errors import Error, NotInstalled, in_line, shown
from xq.core.kinds import RETRYABLE, ErrorKind
from xq.core.machine import READY, TAKEN
from xq.core.tokens import owner_of
from xq.core.words import counted, lasting
from xq.database.process import ENDING, process_name
from xq.database.transactions import retried
from xq.engine.history import History
from xq.engine.pauses import Pause, Paused, Pauses, Skips
from xq.engine.stats import Stats, counters, room, stats
from xq.operators.questions import Questions

LAST: Final = 20_000  # transitions whose durations are read
WINDOWS: Final = (10_000, 100_000)  # the last transitions, in which it searches the ready tasks' entries
MARKS: Final = 4_096  # each with how many tasks have become ready
LISTED: Final = 5  # keys that a message names
HELD: Final = 1_000  # dependants of dead parents that are counted
LOOK: Final = 1.0  # seconds between two looks at processes that have taken no task


class Process(NamedTuple):
    """An open session's process, and how many tasks the session has taken from this queue."""

    session: str
    host: str
    pid: int
    program: str
    since: float  # when the session began, in seconds since 1970
    tasks: int
    oldest: float | None  # when it first took one of these
    gone: bool  # whether the process has ended

    @property
    def name(self) -> str:
        """The text "pid 4711 on host web-3 (xq worker)"."""
        return process_name(self.host, self.pid, self.program)


class Age(NamedTuple):
    """For how many seconds a task has been in its state, or was; at least, if that is not `exact`."""

    seconds: float
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{lasting(self.seconds)}"


class TimelineEntry(NamedTuple):
    """One transition, and the time that the task then spent in `target`.

    `open` says that it is still there: then `seconds` is the time up to now. Times are seconds since 1970.
    """

    at: float
    event: str
    source: str
    target: str
    seconds: float | None
    open: bool
    session: str | None
    attempt: int | None
    tube: str | None
    actor: str | None
    reason: str | None


class Snapshot(NamedTuple):
    """A queue's numbers at one moment. Health, the doctor, the metrics and the console judge the queue by them."""

    stats: Stats
    pauses: list[Pause]
    room: int | None  # how many tasks may be put before the queue is full; None without the feature limit
    oldest: Age | None  # among the ready tasks; None if nothing is known yet
    standstill: float  # for how many seconds, at least, tasks have been ready and none was taken; 0 if that is not so


class Locked(Error):
    """Other connections lock a queue's table, and puts and takes wait for them."""

    def __init__(self, table: str, by: Sequence[Sequence[Any]]) -> None:
        holders = [f"{who}{f' for {lasting(float(seconds))}' if seconds else ''}" for who, seconds, _ in by]
        super().__init__(f"the table {table} is locked by {' and '.join(holders)}")
        self.seconds = max(float(seconds or LOOK) for _, seconds, _ in by)
        self.remedy = f"wait for its end{f', or end it: {by[0][2]}' if by[0][2] else ''}"


class Health(NamedTuple):
    """A queue's state: healthy, unknown, late, failing, unreachable or error; and a sentence about it."""

    state: str
    sentence: str

    @property
    def usable(self) -> bool:
        """Whether the queue can be used, for a probe that takes a process out of its load balancer.

        Another state than unreachable or error is for people: a buried task needs a look at it, and no restart.
        """
        return self.state not in ("unreachable", "error")


class Inspection:
    """What operators ask about one queue."""

    def __init__(self, pauses: Pauses, history: History) -> None:
        self.executor, self.tasks, self.machine = history.executor, history.tasks, history.machine
        self.pauses, self.history, self.command = pauses, history, history.executor.store.command
        self._lock = threading.Lock()
        # (when a look was, how many tasks had entered by then, when the look before was)
        self._marks = deque[tuple[float, int, float]](maxlen=MARKS)
        self._still: tuple[float | None, int] = None, -1  # since when tasks are ready and none was taken, takes by then
        self._looked: float | None = None  # when it last looked at the counters
        self._at_most = 0.0  # the age that the oldest ready task then had at most, if it became ready between two looks

    @property
    def questions(self) -> Questions:
        return Questions(self.executor.dialect)

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self.executor.run(sql, values)

    def moment(self) -> float:
        """Return the database's time, in seconds since 1970; the test's if it sets the clock."""
        return self.executor.time_us() / 1_000_000

    # tasks

    def stats(self) -> Stats:
        usual = self.machine.usual_event if self.machine.settings.counts_events else None
        return stats(counters(self.executor), self.machine.states, self.executor.definition.tube_stats, usual)

    def by_state(self, state: str, n: int | None) -> list[Any]:
        dialect = self.executor.dialect
        rows = self._run(dialect.queries.by_state(state), n=dialect.no_limit if n is None else n)
        return [self.tasks.returned(row) for row in rows]

    def taken(self) -> list[tuple[Any, str | None, float | None]]:
        rows = [(tuple(key), owner_of(token or "")) for *key, token in self._run(self.executor.dialect.queries.taken)]
        found = [(self.tasks.app_key(key), session or None, since) for key, (session, since) in rows]
        return sorted(found, key=lambda each: (each[2] is None, each[2] or 0.0))

    def held(self, now: Stats) -> dict[str, str]:
        """Return the keys of dependants that wait for a dead parent, HELD at most, each with that parent in words.

        It reads all links of dependants, if tasks are waiting.
        """
        size, found = len(self.tasks.table.key), dict[str, str]()
        for slice in self.executor.dialect.slices if now.counts.get("W") else ():
            for *keys, link, _ in self._run(slice.failed, n=HELD) if slice.failed else ():
                parent, dependant = (shown(self.tasks.app_key(tuple(part))) for part in (keys[:size], keys[size:]))
                found[dependant] = f"{parent}, {'which is gone' if link == 'X' else self.tasks.wording.state('B')}"
        return found

    def schedules(self) -> list[Any]:
        """Return the rows of `records.schedules`."""
        return self._run(self.executor.dialect.records.schedules)

    # processes

    def sessions(self) -> list[tuple[str, float]]:
        return [(uuid, since) for uuid, since, *_ in self._run(self.executor.dialect.shared.sessions)]

    def processes(self) -> list[Process]:
        online, takes = self.online(), defaultdict[str | None, list[float | None]](list)
        for _, session, since in self.taken():
            takes[session].append(since)
        return [
            Process(uuid, host, pid, program, since, len(of := takes[uuid]), of[0] if of else None, uuid not in online)
            for uuid, since, host, pid, program in self._run(self.executor.dialect.shared.sessions)
        ]

    def takers(self) -> int:
        """Return how many open sessions with a live process take from this queue."""
        dialect, online = self.executor.dialect, self.online()
        ending = {uuid for uuid, *_, program in self._run(dialect.shared.sessions) if str(program).endswith(ENDING)}
        return sum(dialect.source_name in queues for uuid, queues in online.items() if uuid not in ending)

    def online(self) -> dict[str, set[str]]:
        """Return the open sessions with a live process, each with the queues from which it takes.

        A process that takes ends the others within a second. Until then their tasks are taken.
        """
        queues, left = defaultdict[str, set[str]](set), dict[str, float | None]()
        for uuid, queue, seconds, *_ in self._run(self.executor.dialect.shared.sessions_listed):
            queues[uuid].add(queue)
            left[uuid] = seconds
        gone = set(self._gone([uuid for uuid, seconds in left.items() if seconds is None]))
        return {uuid: queues[uuid] for uuid, n in left.items() if uuid not in gone and (n is None or n > 0)}

    def _gone(self, uuids: Sequence[str]) -> list[str]:
        """Return the sessions whose process has ended. It ends none, and returns none if denied the query."""
        store, dialect = self.executor.store, self.executor.open(installed=False).dialect
        try:
            return retried(store, lambda: dialect.gone(store, uuids))
        except Exception as error:
            if store.classify(error) is ErrorKind.DENIED:
                return []
            raise

    # what happens

    def newest(self) -> int:
        """Return the newest transition's id; 0 if there is none. Raises FeatureOff without the history."""
        self.history.check()
        ((newest,),) = self._run(self.questions.newest_transition)
        return int(newest)

    def last(self, n: int, key: object, before: int | None = None) -> list[Any]:
        """Return a task's last `n` transitions (`key` None: all tasks'), in order: those before an id.

        With `key` None, a transition has no time in a state that began more than LAST transitions earlier.
        """
        end = self.newest() + 1 if before is None else before
        return self.history.read(key, None, None, None if key is not None else end - 1 - n - LAST, end)[-n:]

    def timeline(self, key: object) -> list[TimelineEntry]:
        rows, found = [row for row in self.history.read(key, None, None) if row.source != row.target], []
        for row, until_us in zip(rows, [*(row.at_us for row in rows[1:]), self.executor.time_us()]):
            there = row.target in self.machine.states
            seconds = (until_us - row.at_us) / 1_000_000 if there else None
            session = owner_of(row.owner)[0] if row.owner else None
            move = (row.at_us / 1_000_000, row.event, row.source, row.target, seconds, there and row is rows[-1])
            found.append(TimelineEntry(*move, session, row.attempt, row.tube, row.actor, row.reason))
        return found

    def after(self, id: int, n: int) -> list[Any]:
        """Return the first `n` transitions after the one with this id, as tuples with the names in `Queue.History`."""
        row = namedtuple("row", self.executor.dialect.history_columns)  # type: ignore[misc]
        return [row(*each) for each in self._run(self.questions.transitions_after, since=id, n=n)]

    def times(self) -> dict[str, dict[int, Age]]:
        """Return the percentiles (50, 99) of the seconds that tasks were in each state, by the last transitions.

        For a task that came into its state earlier, only a bound is known.
        """
        found = defaultdict[str, list[Age]](list)
        for state, microseconds, longer in self._run(self.questions.durations, since=self.newest() - LAST):
            found[state].append(Age(int(microseconds) / 1_000_000, not longer))
        return {  # by the nearest rank, as a report has them
            state: {
                at: Age(sorted(of)[-(-len(of) * at // 100) - 1].seconds, all(n.exact for n in of)) for at in (50, 99)
            }
            for state, of in found.items()
        }

    # the queue as a whole

    def check_lock(self, until: float = 0.0) -> None:
        """Raise Locked if the table has not answered for LOOK seconds: any other look would wait for the lock.

        `until`: the monotonic time at which several looks together have waited for long enough.
        """
        dialect, end = self.executor.open(installed=False).dialect, until or time.monotonic() + LOOK
        while found := dialect.locked_by(self.executor.store):
            if time.monotonic() > end:
                raise Locked(dialect.source.name, found)
            time.sleep(LOOK / 20)

    def snapshot(self) -> Snapshot:
        numbers, pauses = self.stats(), self.pauses.all()
        by_history = self.machine.settings.history is not None
        oldest, standstill = self._by_history() if by_history else self._by_counters(numbers)
        may_take = standstill > 0 and self._may_take(self.pauses.of(pause.row for pause in pauses))
        return Snapshot(numbers, pauses, room(self.executor, numbers.counts), oldest, standstill if may_take else 0.0)

    def _may_take(self, paused: Paused | None) -> bool:
        """Return whether a take may find a task: no pause, rate limit or busy utube is in its way."""
        if paused and paused.queue:
            return False
        looks = self.executor.dialect.queries
        skipped = Skips(paused.tubes, paused.groups) if paused else Skips((), ())
        query = (
            looks.any_ready()
            if self.machine.turns
            else looks.ready(Selector("first", READY, skips=tuple(map(len, skipped))))
        )
        return bool(self._run(query, **skipped.values))

    def _by_history(self) -> tuple[Age | None, float]:
        """Return the oldest ready task's age, and the standstill.

        The history has each task's last transition. If as many tasks as are ready became so within the transitions
        read here, their first entry is exact; else the oldest one has been ready since before.
        """
        for n in WINDOWS:
            ((now, tasks, entered, oldest, taken, first),) = self._run(self.questions.ready_since, n=n)
            if (exact := entered >= tasks) or first is None:
                break
        if tasks <= 0 or first is None:
            return None if tasks > 0 else Age(0.0, True), 0.0
        seconds, still = (max(0, int(now) - int(at)) / 1_000_000 for at in (oldest if exact else first, taken or first))
        return Age(seconds, exact), min(seconds, still)

    def _by_counters(self, numbers: Stats) -> tuple[Age | None, float]:
        """Return bounds for the oldest ready task's age, and for the standstill, as this process has seen them.

        If m tasks have left the state, one of the first m + 1 to enter it is still there. The first look knows no age,
        and counts the standstill from the newest take among taken tasks.
        """
        ready, now = numbers.counts[READY], self.moment()
        takes = numbers.transition.get(f"{READY}-{TAKEN}", 0)
        entered = ready + sum(n for name, n in numbers.transition.items() if name.startswith(f"{READY}-"))
        with self._lock:
            (since, seen), marks = self._still, self._marks
            if since is None or takes != seen:
                taken = [at for *_, at in self.taken() if at is not None] if seen < 0 else []
                since = max(taken, default=now)
            self._still = since if ready else None, takes
            if marks and entered < marks[-1][1]:
                marks.clear()  # the counters were reset
            is_first = not marks
            if is_first or entered > marks[-1][1]:
                marks.append((now, entered, now if self._looked is None else self._looked))
            while len(marks) > 1 and marks[0][1] <= entered - ready:
                marks.popleft()
            oldest = None if is_first else Age(max(0.0, now - marks[0][0]), exact=False)
            self._looked, self._at_most = now, now - marks[0][2]
        return (oldest, max(0.0, now - since)) if ready else (Age(0.0, exact=True), 0.0)

    def health(self, max_age: float | None, max_buried: int) -> Health:
        """Return the worst state that holds. `max_age` is in seconds; None: tasks may wait for any time."""
        by_history, store = self.machine.settings.history is not None, self.executor.store
        is_first = self._looked is None and max_age is not None and not by_history
        try:
            self.check_lock()
            now, takers = self.snapshot(), self.takers()
            held = self.held(now.stats)
            is_first = is_first and not store.in_transaction()  # which may see an old snapshot
            if is_first and takers and now.stats.counts[READY] and not now.stats.counts[TAKEN]:
                time.sleep(LOOK)  # workers whose threads hang with tasks that were cancelled take none meanwhile
                now = self.snapshot()
        except Exception as error:
            return self.health_of(error)
        ready, buried = now.stats.counts[READY], now.stats.counts.get("B", 0)
        limit = math.inf if max_age is None else max_age
        waits = max(now.oldest.seconds if now.oldest else 0.0, now.standstill)
        # A bound does not prove health. The first look without the history, which knows less, goes by the takes.
        stands = is_first and now.standstill > 0 and not now.stats.counts[TAKEN]
        known_by_takes = self._at_most <= limit and not stands
        is_known = now.oldest is not None and now.oldest.exact if by_history else known_by_takes
        is_late, is_judged = waits > limit or not takers, ready and limit < math.inf
        said = [f"ready tasks: {ready:,}"]
        if ready:
            said[0] += f", the oldest for {now.oldest}" if now.oldest else ", for how long is unknown"
            said.append(f"processes that take: {takers}" if takers else "no process takes")
            said += [f"none was taken for {lasting(now.standstill)}"] * (now.standstill > limit or stands)
        said += [f"buried tasks: {buried:,}", *(f"{place(pause)} is paused" for pause in now.pauses)]
        said += [dead_parents(held)] * bool(held)
        state = "healthy" if not is_judged else "late" if is_late else "healthy" if is_known else "unknown"
        return Health("failing" if buried > max_buried or held else state, "; ".join(said))

    def health_of(self, error: Exception) -> Health:
        """Return the state that an error of a look shows. Raises an error that shows none."""
        if isinstance(error, Locked):
            return Health("late", str(error))
        if isinstance(error, NotInstalled):
            return Health("error", str(error))
        if self.executor.store.classify(error) not in RETRYABLE:
            raise error
        return Health("unreachable", f"the database does not answer: {in_line(error)}")


def dead_parents(held: Mapping[str, str]) -> str:
    """Return how many dependants wait for dead parents, and the first ones."""
    some = "; ".join(f"{dependant} for {parent}" for dependant, parent in list(held.items())[:LISTED])
    return f"dependants that wait for a dead parent: {counted(len(held), len(held) < HELD)} ({some})"


def place(pause: Pause) -> str:
    if pause.group is not None:
        return f"the group {shown(pause.group)}"
    return "the queue" if pause.tube is None else f"the tube {shown(pause.tube)}"
