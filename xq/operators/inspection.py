"""Look at a queue as an operator does: why a task is not running, what is wrong or slow, and what happens now."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from xq.core.errors import NotFound, shown
from xq.core.machine import READY, TAKEN, Machine
from xq.core.ports import INTEGERS, ErrorKind
from xq.core.values import Parts, Tasks, named
from xq.core.words import lasting
from xq.engine.history import History
from xq.engine.pauses import Pauses
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.sessions.process import process_name
from xq.sessions.session import owner_of

LAST = 20_000  # transitions whose durations are read
FAR = 2_000_000  # transitions among which the last one of a task is searched
LONG = 60.0  # seconds after which a transaction that is still open, or a schedule that is due, is reported
HANGS = 10  # times the p99 of Taken, after which a taken task is reported
UNKNOWN = 600.0  # seconds after which it is, where no p99 is known
DEAD = 0.5  # of the rows of a table, above which its dead rows are reported
ENOUGH = 100  # durations, from which a p99 is compared with the ttr
SOME = 20  # durations, from which a p99 is computed where ten times as much is meant
FEW = 1_000  # rows below which dead ones cost nothing
LISTED = 5  # keys that a message names


def in_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Finding(NamedTuple):
    """One problem that the doctor has found, what to do about it, and the SQL that mends it, if SQL does."""

    what: str
    do: str


class Owner(NamedTuple):
    """The session that has taken a task. `process` is "pid 4711 on host web-3 (xq worker)", or "" if it is unknown."""

    session: str
    since: float | None  # seconds since 1970; None if another program wrote the owner
    process: str


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

    # one task

    def why(self, key: object, moment: Callable[[float], str] = in_utc) -> list[str]:
        """Return why a task is not running, in sentences; that it may be taken at any moment if nothing holds it.

        `moment` returns a time, in seconds since 1970, as text.
        """
        parts, row, token = self._look(key)
        state = self.database.dialect.state(row)
        task = self.tasks.returned(tuple(row))
        if state is None:
            return [
                f"its status {shown(self.tasks.in_role(task, 'status'))} is not one of this queue's: no call moves it"
            ]
        if state == TAKEN:
            return list(self._running(task, token))
        if state == READY:
            found = list(self._held(task, parts))
            return found or [self._free()]
        return list(self._resting(state, task, moment))

    def owner(self, key: object) -> Owner | None:
        """Return the session that has taken a task, its process, and since when; None if none has. Raises NotFound."""
        _, row, token = self._look(key)
        return self._owner(token) if token and self.database.dialect.state(row) == TAKEN else None

    def _owner(self, token: str) -> Owner:
        session, since = owner_of(token)
        rows = self._run(self.database.dialect.process, uuid=session)
        return Owner(session, since, process_name(*rows[0]) if rows else "")

    def _look(self, key: object) -> tuple[Parts, list[Any], str | None]:
        """Return the key of a task, its row, and the token of its take. Raises NotFound."""
        parts, _ = self.tasks.identify(key)
        rows = self._run(self.database.dialect.look(), **named(parts))
        if not rows:
            raise NotFound(self.database.store.name, self.tasks.app_key(parts))
        *row, token = rows[0]
        return parts, row, token

    def _running(self, task: Any, token: str | None) -> Iterator[str]:
        session, since, process = self._owner(token) if token else (None, None, "")
        now = self._now()
        by = f" by the session {session}" if session else ""
        for_ = "" if since is None else f" for {lasting(now - since)}"
        yield f"it is taken{by}{for_}{f': {process}' if process else ''}"
        if session and self.machine.settings.reaped and session not in self._living():
            yield "its process is gone: any process that takes from this queue releases the task within a second"
            yield from self._nobody()
        left = self._left(task, "runat")
        if token is None and left is None:
            ends = self.database.bind().installation.end_of_unowned
            yield f"it has no owner, since another program wrote its status: it {ends}"
        if left is not None:
            yield f"its ttr ends in {lasting(left)}" if left > 0 else "its ttr has passed: the next take releases it"
        if since is not None and now - since > self._patience():
            yield "that is long for this queue: if its function hangs, restart the worker; a heartbeat prolongs the ttr"

    def _resting(self, state: str, task: Any, moment: Callable[[float], str]) -> Iterator[str]:
        timer, left = self.machine.timer(state, "runat"), self._left(task, "runat")
        word = self.tasks.wording.state(state)
        if timer is not None and left is not None:
            when = f"in {lasting(left)}" if left > 0 else "now: the next take does it"
            to = self.tasks.wording.state(timer.target) if timer.target in self.machine.states else "deleted"
            yield f"it is {word} until {moment(self._now() + left)}, and becomes {to} {when}"
        elif "B" in self.machine.states and state == "B":
            error = str(self.tasks.in_role(task, "error") or "").partition("\n")[0]
            yield f"it is {word}{f': {error}' if error else ''}"
            yield f"dig returns it to the queue{self._attempts_used(task)}"
        else:
            yield f"it is {word}: nothing moves it but a call"

    def _attempts_used(self, task: Any) -> str:
        role = self.tasks.table.roles.get("attempts")
        n = int(self.tasks.in_role(task, "attempts") or 0) if role else 0
        if role is None or n == 0:
            return ""
        return f". Its attempts ({n}) count on: set {role.name} to 0 before, and a worker's max_attempts begins anew"

    def _held(self, task: Any, parts: tuple[Any, ...]) -> Iterator[str]:
        dialect, key = self.database.dialect, named(parts)
        for column in ("runat", "deadline"):
            timer, left = self.machine.timer(READY, column), self._left(task, column)
            if timer is not None and left is not None and left <= 0:
                yield f"its {timer.option} has passed: the next take moves it"
        paused, tube = self.pauses.listed(), self.tasks.in_role(task, "tube")
        if None in paused:
            yield "the queue is paused: resume() ends that"
        if tube is not None and tube in paused:
            yield f"its tube {shown(tube)} is paused: resume({shown(tube)}) ends that"
        guard, utube = self.machine.guard("utube"), self.tasks.in_role(task, "utube")
        if guard is not None and utube is not None:
            takers = self._run(dialect.takers, **key)
            first = self._run(dialect.next_of_utube, **key)
            if len(takers) >= guard.value:
                yield f"its utube {shown(utube)} is busy with {self._keys(takers)}"
            elif first and tuple(first[0]) != tuple(parts):
                yield f"{self._keys(first)} comes first in its utube {shown(utube)}"
        if self.machine.guard("rate") is not None:
            ((left_us,),) = self._run(dialect.bucket_left, **key) or [(None,)]
            if left_us is not None and left_us > 0:
                yield f"the limit of the feature rate is used up: it has a token in {lasting(left_us / 1_000_000)}"
        yield from self._nobody()

    def _nobody(self) -> Iterator[str]:
        if not self.takers():
            yield "no process takes from this queue: start a worker"

    def _free(self) -> str:
        n, spans = self._counts()[READY], self._taken_for()
        if spans and (shortest := spans[-1][0]) > self._patience():
            return (
                f"it is one of {n:,} ready tasks, and perhaps no worker is free: each of the {len(spans):,} taken "
                f"tasks is taken for {lasting(shortest)} or longer"
            )
        return f"nothing holds it: it is one of {n:,} ready tasks, and a worker takes it in its turn"

    def _taken_for(self) -> list[tuple[float, Any, str]]:
        """Return (seconds, key, session) of the taken tasks whose take is known, the longest first."""
        now, found = self._now(), []
        for *parts, token in self._run(self.database.dialect.taken):
            session, since = owner_of(token) if token else (None, None)
            if session is not None and since is not None:
                found.append((now - since, self.tasks.app_key(tuple(parts)), session))
        return sorted(found, key=lambda each: -each[0])

    def _patience(self) -> float:
        """Return after how many seconds a task is taken for unusually long."""
        timer = self.machine.timer(TAKEN, "runat")
        ttr = 0.0 if timer is None or timer.default is None else timer.default
        if self.machine.settings.history is None:
            return max(UNKNOWN, ttr)
        taken = self.durations().get(TAKEN, [])
        usual = percentiles(taken)[99] if len(taken) >= SOME else UNKNOWN / HANGS
        return max(LONG, ttr, HANGS * usual)

    def _keys(self, rows: Sequence[Any]) -> str:
        keys = [shown(self.tasks.app_key(tuple(row))) for row in rows[:LISTED]]
        more = f" and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
        return f"task{'s' * (len(rows) > 1)} {', '.join(keys)}{more}"

    def _now(self) -> float:
        """Return the time in seconds since 1970, by the clock of the database: those of tasks are by that clock."""
        ((now_us,),) = self._run(self.database.dialect.time_us)
        return int(now_us) / 1e6

    def _left(self, task: Any, role: str) -> float | None:
        """Return the seconds until the time in a role; None if there is none."""
        at = self.tasks.in_role(task, role) if role in self.machine.roles else None
        if at is None:
            return None
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        return None if math.isinf(at) else float(at) - self._now()

    # the queue

    def findings(self) -> Iterator[Finding]:
        """Return what is wrong or slow, each with what to do. It reads the whole table."""
        binding = self.database.bind()
        if lacking := binding.installation.not_installed():
            yield Finding(str(lacking), "run install()")
            return
        for lines, remedy in self.database.unit(lambda: [*binding.installation.problems()]):
            yield from (Finding(line, remedy) for line in lines)
        for name, ddl in binding.dialect.drifted(self.database.store).items():
            mended = f"run this while no other program writes to the table, then recount():\n{ddl.rstrip()}"
            yield Finding(f"the {name} is not the one that install() creates", mended)
        yield from self._sessions()
        yield from self._overdue()
        yield from self._paused_and_buried()
        yield from self._ttr()
        yield from self._hanging()
        yield from self._key()
        yield from self._of_the_database()

    def _sessions(self) -> Iterator[Finding]:
        if orphans := list(dict.fromkeys([*self._unregistered(), *self._owners_gone()])):
            yield Finding(
                f"sessions that are gone and own tasks: {len(orphans)} ({', '.join(orphans[:LISTED])})",
                "a process that takes from this queue releases the tasks within a second: start a worker",
            )
        if not self.takers() and self._counts()[READY]:
            yield Finding(f"ready tasks: {self._counts()[READY]:,}, and no process takes", "start a worker")

    def _unregistered(self) -> list[str]:
        """Return the sessions that own tasks and are not registered. A task that another program took has none."""
        return [uuid for (uuid,) in self._run(self.database.dialect.orphans) if uuid]

    def _owners_gone(self) -> list[str]:
        """Return the registered sessions whose process is gone, and that own tasks of this queue."""
        gone = self.gone() if self.machine.settings.reaped else ()
        owners = (owner_of(token)[0] for *_, token in self._run(self.database.dialect.taken) if token) if gone else ()
        return [uuid for uuid in dict.fromkeys(owners) if uuid in gone]

    def _overdue(self) -> Iterator[Finding]:
        late = {
            name: -left_us / 1e6
            for queue, name, left_us, _ in self._run(self.database.dialect.next_firings)
            if queue == self.database.dialect.source_name and left_us < -LONG * 1e6
        }
        if late:
            names = ", ".join(shown(name) for name in sorted(late, key=late.__getitem__, reverse=True)[:LISTED])
            yield Finding(
                f"schedules that are due and have put no task: {len(late)} ({names}), the first for "
                f"{lasting(max(late.values()))}",
                "a process that takes from this queue puts it: start a worker",
            )

    def _paused_and_buried(self) -> Iterator[Finding]:
        for tube in self.pauses.listed():
            which = "the queue" if tube is None else f"the tube {shown(tube)}"
            yield Finding(f"{which} is paused", f"resume({'' if tube is None else shown(tube)}) ends that")
        if buried := self._counts().get("B", 0):
            rows = f"rows of the table {self.database.store.table}"
            yield Finding(f"buried tasks: {buried:,}", f"look at their errors, then dig them; kill deletes {rows}")

    def _ttr(self) -> Iterator[Finding]:
        timer = self.machine.timer(TAKEN, "runat")
        if timer is None or timer.default is None or self.machine.settings.history is None:
            return
        taken = self.durations().get(TAKEN, [])
        if len(taken) < ENOUGH:
            return
        p99 = percentiles(taken)[99]
        if p99 > timer.default:
            yield Finding(
                f"one task in a hundred is taken for longer than {lasting(p99)}, and its ttr is "
                f"{lasting(timer.default)}: without a heartbeat it is done twice",
                "raise the ttr, or let a worker of xq run the function, which touches its task",
            )

    def _hanging(self) -> Iterator[Finding]:
        patience = self._patience()
        if long := [each for each in self._taken_for() if each[0] > patience]:
            names = {each.session: each.name for each in self.processes()}
            of = ", ".join(f"{shown(key)} of {names.get(uuid, f'session {uuid}')}" for _, key, uuid in long[:LISTED])
            yield Finding(
                f"tasks taken for longer than {lasting(patience)}: {len(long):,} ({of}), the first for "
                f"{lasting(long[0][0])}",
                "if their functions hang, restart the worker; worker(kind='process', timeout=) limits an attempt",
            )

    def _key(self) -> Iterator[Finding]:
        key, dialect = self.tasks.table.key, self.database.dialect
        asked = dialect.key_range if len(key) == 1 and key[0].kind in INTEGERS else ""
        for used, most, widened in self._run(asked) if asked else ():
            if used and most and used > most / 2:
                yield Finding(
                    f"the key {key[0].name!r} has used {int(used):,} of {int(most):,} numbers, and then each put fails",
                    "while no program uses the queue: uninstall(keep_columns=True), the SQL below, BigAutoField in the "
                    "model, install() (the history and the counts of transitions are lost). Columns that refer to the "
                    f"key need the type as well:\n{widened}",
                )

    def _of_the_database(self) -> Iterator[Finding]:
        dialect = self.database.dialect
        for place, (who, seconds, ends) in enumerate(self._open_transactions()):
            since = "an old snapshot" if seconds is None else f"a transaction open for {lasting(float(seconds))}"
            oldest = "" if place or seconds is None else ", and holds the oldest snapshot"
            mended = f"end it ({ends}): rows that were deleted since cannot be reclaimed, and each take passes them"
            yield Finding(f"{who} has {since}{oldest}", mended)
        for live, dead in self._run(dialect.dead_rows) if dialect.dead_rows else ():
            if dead > max(FEW, DEAD * (live + dead)):
                yield Finding(
                    f"{dead:,} of {live + dead:,} rows of the table are dead",
                    "lower autovacuum_vacuum_scale_factor of this table",
                )

    def _open_transactions(self) -> list[Any]:
        sql, store = self.database.dialect.open_transactions, self.database.store
        try:
            return self._run(sql, n=LONG) if sql else []
        except Exception as error:
            if store.classify(error) is ErrorKind.DENIED:  # MariaDB shows them to users with the right PROCESS
                return []
            raise

    def _counts(self) -> dict[str, int]:
        return stats(self.database.counters(), self.machine.states).counts

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

    def time_since(self, state: str, key: object) -> float | None:
        """Return how many seconds ago a task last entered a state; None if the last transitions do not tell."""
        newest, (parts, _) = self.newest(), self.tasks.identify(key)
        for since in (newest - LAST, newest - FAR):
            ((at_us,),) = self._run(self.database.dialect.last_entered, since=since, state=state, **named(parts))
            if at_us is not None:
                return self.moment() - int(at_us) / 1_000_000
        return None

    def takers(self) -> int:
        """Return the number of open sessions that take from this queue, without those whose process is gone."""
        return sum(self.database.dialect.source_name in queues for queues in self._living().values())

    def processes(self) -> list[Process]:
        """Return the open sessions of the database with their processes, and what each has taken of this queue."""
        gone, takes = self.gone(), defaultdict[str, list[float | None]](list)
        for *_, token in self._run(self.database.dialect.taken):
            if token:
                session, since = owner_of(token)
                takes[session].append(since)
        found = []
        for uuid, since, host, pid, program in self._run(self.database.dialect.processes):
            oldest = min((at for at in takes[uuid] if at is not None), default=None)
            found.append(Process(uuid, host, pid, program, since, len(takes[uuid]), oldest, uuid in gone))
        return found

    def gone(self) -> set[str]:
        """Return the sessions that are registered in this database, and whose process is gone.

        A process that takes ends them within a second. Until then their tasks are taken.
        """
        return self._sessions_here()[1]

    def online(self) -> set[str]:
        """Return the open sessions of this database whose process lives."""
        return set(self._living())

    def _living(self) -> dict[str, set[str]]:
        """Return the open sessions whose process lives, each with its queues."""
        found, gone = self._sessions_here()
        return {uuid: queues for uuid, queues in found.items() if uuid not in gone}

    def _sessions_here(self) -> tuple[dict[str, set[str]], set[str]]:
        found, expired = defaultdict[str, set[str]](set), set[str]()
        unlimited = dict[str, None]()
        for uuid, queue, seconds, *_ in self._run(self.database.dialect.sessions_listed):
            found[uuid].add(queue)
            if seconds is None:
                unlimited[uuid] = None
            elif seconds <= 0:
                expired.add(uuid)
        return found, {*self.database.gone(list(unlimited)), *expired}

    def moment(self) -> float:
        """Return the time of the database, in seconds since 1970; that of the test if it sets the clock."""
        ((now_us,),) = self._run(self.database.dialect.time_us)
        return float(now_us) / 1_000_000

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
