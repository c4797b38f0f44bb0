"""Look at a queue as an operator does: who has taken what, how long tasks wait, and whether that is in time."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any, Final, NamedTuple

from xq.core.compile import Selector
from xq.core.machine import READY, TAKEN, Machine
from xq.core.ports import PASSING
from xq.core.values import Tasks
from xq.core.words import lasting
from xq.engine.history import History
from xq.engine.pauses import Pauses
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.sessions.process import process_name
from xq.sessions.session import owner_of

LAST: Final = 20_000  # transitions whose durations are read
WINDOWS: Final = (10_000, 100_000)  # the last transitions, in which the entries of the ready tasks are searched
MARKS: Final = 4_096  # of the number of tasks that have become ready


class Process(NamedTuple):
    """The process of an open session, and the tasks of this queue that the session has taken."""

    session: str
    host: str | None  # None, as the next two are, if an earlier version of xq registered the session
    pid: int | None
    program: str | None
    since: float  # when the session began, in seconds since 1970
    tasks: int
    oldest: float | None  # the time of the first take of these
    gone: bool  # whether the process has ended

    @property
    def name(self) -> str:
        """The text "pid 4711 on host web-3 (xq worker)", or the session if the process is unknown."""
        return process_name(self.host, self.pid, self.program) or f"session {self.session}"


class Age(NamedTuple):
    """For how many seconds a task has been in its state, or was; at least, if that is not `exact`."""

    seconds: float
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{lasting(self.seconds)}"


class Ready(NamedTuple):
    """The number of ready tasks, the age of the oldest one, and for how many seconds none was taken. None: unknown."""

    tasks: int
    oldest: Age | None
    standstill: float | None


class Health(NamedTuple):
    """The state of a queue, which is healthy, late, failing or unreachable, and a sentence about it."""

    state: str
    sentence: str


class Inspection:
    """What operators ask of one queue."""

    target = "TARGET"  # in the commands that a text advises: the name of the queue on the command line

    def __init__(
        self, database: Database, tasks: Tasks[Any], machine: Machine, pauses: Pauses, history: History
    ) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.pauses = pauses
        self.history = history
        self._lock = threading.Lock()
        self._marks = deque[tuple[float, int]](maxlen=MARKS)  # (time, number of tasks that had entered by then)
        self._still = (0.0, -1)  # since when tasks are ready and none was taken, and the number of takes by then

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self.database.execute(sql, values)

    def moment(self) -> float:
        """Return the time of the database, in seconds since 1970; that of the test if it sets the clock."""
        return self.database.time_us() / 1_000_000

    # tasks

    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state."""
        return stats(self.database.counters(), self.machine.states).counts

    def room(self) -> int | None:
        """Return how many tasks may be put before the queue is full; None without the feature limit."""
        if (guard := self.machine.guard("limit")) is None:
            return None
        counts, states = self.counts(), self.database.dialect.guarded_states(guard)
        return max(0, int(guard.value) - sum(counts[state] for state in states))

    def taken(self) -> list[tuple[Any, str | None, float | None]]:
        """Return key, session and time of the taken tasks, the longest first; those of another program, last."""
        rows = [(tuple(key), owner_of(token or "")) for *key, token in self._run(self.database.dialect.taken)]
        found = [(self.tasks.app_key(key), session or None, since) for key, (session, since) in rows]
        return sorted(found, key=lambda each: (each[2] is None, each[2] or 0.0))

    # processes

    def processes(self) -> list[Process]:
        """Return the open sessions of the database with their processes, and what each has taken of this queue."""
        online, takes = self.online(), defaultdict[str | None, list[float | None]](list)
        for _, session, since in self.taken():
            takes[session].append(since)
        return [
            Process(uuid, host, pid, program, since, len(of := takes[uuid]), of[0] if of else None, uuid not in online)
            for uuid, since, host, pid, program in self._run(self.database.dialect.processes)
        ]

    def takers(self) -> int:
        """Return the number of open sessions that take from this queue, without those whose process is gone."""
        return sum(self.database.dialect.source_name in queues for queues in self.online().values())

    def online(self) -> dict[str, set[str]]:
        """Return the open sessions of this database whose process lives, each with the queues from which it takes.

        A process that takes ends the others within a second. Until then their tasks are taken.
        """
        queues, left = defaultdict[str, set[str]](set), dict[str, float | None]()
        for uuid, queue, seconds, *_ in self._run(self.database.dialect.sessions_listed):
            queues[uuid].add(queue)
            left[uuid] = seconds
        gone = set(self.database.gone([uuid for uuid, seconds in left.items() if seconds is None]))
        return {uuid: queues[uuid] for uuid, n in left.items() if uuid not in gone and (n is None or n > 0)}

    # what happens

    def newest(self) -> int:
        """Return the id of the newest transition; 0 if there is none. Raises FeatureOff without the history."""
        self.history.check()
        ((newest,),) = self._run(self.database.dialect.newest_transition)
        return int(newest)

    def last(self, n: int, key: object, before: int | None = None) -> list[Any]:
        """Return the last `n` transitions of a task (`key` None: of all), in order: those before an id.

        Those of all tasks lack the time in a state that began more than LAST transitions earlier.
        """
        end = self.newest() + 1 if before is None else before
        return self.history.read(key, None, None, None if key is not None else end - 1 - n - LAST, end)[-n:]

    def after(self, id: int, n: int) -> list[Any]:
        """Return the first `n` transitions after the one with this id, as instances of `Queue.History`."""
        instance = self.history.reader.instance
        return [instance(row) for row in self.rows_after(id, n)]

    def rows_after(self, id: int, n: int) -> list[dict[str, Any]]:
        """Return the first `n` transitions after the one with this id, by the names of `Queue.History`."""
        dialect = self.database.dialect
        rows = self._run(dialect.transitions_after, since=id, n=n)
        return [dict(zip(dialect.history_columns, row, strict=True)) for row in rows]

    def times(self) -> dict[str, dict[int, Age]]:
        """Return the percentiles (50, 99) of the seconds that tasks were in each state, of the last transitions.

        Of a task that came into its state before these transitions only a bound is known.
        """
        found, bounds = defaultdict[str, list[float]](list), set[str]()
        for state, microseconds, longer in self._run(self.database.dialect.durations, since=self.newest() - LAST):
            found[state].append(int(microseconds) / 1_000_000)
            bounds |= {state} if longer else set()
        ranked = {state: sorted(values) for state, values in found.items()}  # by the nearest rank, as a report has them
        return {
            state: {at: Age(of[-(-len(of) * at // 100) - 1], state not in bounds) for at in (50, 99)}
            for state, of in ranked.items()
        }

    # how long tasks wait

    # The history has the last transition of each task. If as many tasks as are ready became so within the transitions
    # that are read, their first entry is exact; else the oldest one has been ready since before. Without the history
    # the counters tell a process that looks repeatedly: if m tasks have left the state, one of the first m + 1 that
    # entered it is still there.

    def ready(self) -> Ready:
        found = self._by_counters() if self.machine.settings.history is None else self._by_history()
        return found if found.standstill is None or self._may_take() else found._replace(standstill=None)

    def _may_take(self) -> bool:
        """Return whether a take may find a task: no pause, no limit of a rate and no busy utube is in its way."""
        dialect, paused = self.database.dialect, self.pauses.listed()
        if None in paused:
            return False
        skipped = {f"skip{place}": tube for place, tube in enumerate(paused)} if "tube" in dialect.roles else {}
        query = dialect.any_ready if dialect.groups else dialect.ready(Selector("first", READY, skips=len(skipped)))
        return bool(self._run(query, **skipped))

    def _by_history(self) -> Ready:
        for n in WINDOWS:
            ((now, tasks, entered, oldest, taken, first),) = self._run(self.database.dialect.ready_since, n=n)
            if (exact := entered >= tasks) or first is None:
                break
        if tasks <= 0 or first is None:
            return Ready(int(tasks), None if tasks > 0 else Age(0.0, True), None)
        seconds, still = (max(0, int(now) - int(at)) / 1_000_000 for at in (oldest if exact else first, taken or first))
        return Ready(int(tasks), Age(seconds, exact), min(seconds, still))

    def _by_counters(self) -> Ready:
        numbers, now = stats(self.database.counters(), self.machine.states), self.moment()
        tasks = numbers.counts[READY]
        left = sum(n for name, n in numbers.transition.items() if name.startswith(f"{READY}-"))
        takes = numbers.transition.get(f"{READY}-{TAKEN}", 0)
        is_first = tasks > 0 and self._still[1] < 0  # then the newest take of a task that is still taken must do
        taken = [since for *_, since in self.taken() if since is not None] if is_first else []
        with self._lock:
            if takes != self._still[1] or tasks <= 0:
                self._still = max(taken, default=now), takes
            age, still = self._counted(now, left + tasks, tasks), max(0.0, now - self._still[0])
        return Ready(tasks, age, still) if tasks > 0 else Ready(0, Age(0.0, True), None)

    def _counted(self, now: float, entered: int, tasks: int) -> Age | None:
        """Return the time since the first known moment by which the next task to leave had entered."""
        marks, is_first = self._marks, not self._marks
        if marks and entered < marks[-1][1]:
            marks.clear()  # the counters were reset
        if not marks or entered > marks[-1][1]:
            marks.append((now, entered))
        while len(marks) > 1 and marks[0][1] <= entered - tasks:
            marks.popleft()
        return None if is_first else Age(max(now - marks[0][0], 0.0), False)

    def health(self, max_age: float | None, max_buried: int) -> Health:
        """Return the worst of what holds. `max_age` is in seconds; None: tasks may wait for any time."""
        try:
            (tasks, oldest, still), takers = self.ready(), self.takers()
            buried, paused = self.counts().get("B", 0), self.pauses.listed()
        except Exception as error:
            if self.database.store.classify(error) not in PASSING:
                raise
            return Health("unreachable", f"the database does not answer: {error}")
        exact, late, told = bool(oldest and oldest.exact), False, f"ready tasks: {tasks:,}"
        if tasks:
            age = f"the oldest for {oldest}" if oldest else "for how long is unknown"
            told += f", {age}" if exact else f", {age}; processes that take: {takers}"
        if tasks and max_age is not None:
            # A bound of the history is no proof of health. Without the history, a process that takes must do.
            unknown = not exact and (self.machine.settings.history is not None or not takers)
            late = unknown or bool(oldest and oldest.seconds > max_age)
            if still is not None and still > max_age:
                late, told = True, f"{told}; none was taken for {lasting(still)}"
        told += f"; buried tasks: {buried:,}"
        told += "".join(f"; the {'queue' if tube is None else f'tube {tube}'} is paused" for tube in paused)
        return Health("failing" if buried > max_buried else "late" if late else "healthy", told)
