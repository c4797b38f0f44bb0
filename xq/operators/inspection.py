"""Look at a queue as an operator does: who has taken what, which processes there are, and what happens now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from xq.core.machine import Machine
from xq.core.values import Tasks
from xq.engine.history import History
from xq.engine.pauses import Pauses
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.sessions.process import process_name
from xq.sessions.session import owner_of

LAST = 20_000  # transitions whose durations are read

Taken = tuple[Any, str | None, float | None]  # a key, the session, and since when, in seconds since 1970


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

    def taken(self) -> list[Taken]:
        """Return the taken tasks, the longest first; those that another program has taken, without a time, last."""
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

    def times(self) -> dict[str, dict[int, float]]:
        """Return the percentiles (50, 99) of the seconds that tasks were in each state, of the last transitions."""
        return {state: percentiles(values) for state, values in self.durations().items()}

    def durations(self) -> dict[str, list[float]]:
        """Return the seconds that tasks were in each state, of the last transitions."""
        found: dict[str, list[float]] = defaultdict(list)
        for state, microseconds in self._run(self.database.dialect.durations, since=self.newest() - LAST):
            found[state].append(microseconds / 1_000_000)
        return found


def percentiles(values: Sequence[float]) -> dict[int, float]:
    """Return the percentiles 50 and 99 of values by the nearest rank, as a report has them."""
    ordered = sorted(values)
    return {at: ordered[-(-len(ordered) * at // 100) - 1] for at in (50, 99)}
