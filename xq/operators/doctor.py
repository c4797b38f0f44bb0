"""Why a task is not running, and what is wrong with a queue, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import Any, Final, NamedTuple

from xq.core.compile import Selector
from xq.core.errors import BadValue, NotFound, shown
from xq.core.kinds import ErrorKind
from xq.core.machine import READY, TAKEN
from xq.core.tokens import owner_of
from xq.core.values import Key, named, numbered
from xq.core.words import lasting, never_finished
from xq.database.transactions import retried
from xq.engine.history import History
from xq.engine.pauses import Pause, Pauses
from xq.engine.stats import counters, told_of, writes
from xq.engine.unmovable import Unmovable
from xq.operators.filters import quoted
from xq.operators.inspection import LAST, LISTED, Inspection, Locked, Snapshot, dead_parents, place
from xq.runtime.schedules import is_far
from xq.sql.slice import Hidden

LONG: Final = 60.0  # seconds after which a standstill, an open transaction or a due schedule is reported
HANGS: Final = 600.0  # seconds, or the ttr, after which a taken task is reported
PAUSED: Final = 86_400.0  # seconds for which a schedule is paused, after which it is reported
OFTEN: Final = 20  # takes after which an unfinished task is reported
WRITTEN: Final = (
    "{} shows them as the event write (feature history); the feature guard refuses such a write, often the "
    "save of a stale row; SQL that ends a task by its token is none (docs/howto/plain-sql.md); {} counts anew"
)
SHORT: Final = "a migration with lock_timeout gives up instead (docs/troubleshooting.md)"
UNTESTED: Final = "optional: run your own tests on it; docs/databases.md#mysql"
LIMITS: Final = "optional: set them where the application connects; docs/databases.md has values (silent servers)"
LIMIT: Final = "worker(kind='process', timeout=) limits an attempt"


def in_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Finding(NamedTuple):
    """A problem, and what to do: words, a shell command (TARGET is this queue), or SQL."""

    what: str
    do: str


class Doctor(Inspection):
    """The reasons why a task is not running, and a queue's problems."""

    def __init__(self, pauses: Pauses, history: History, unmovable: Unmovable) -> None:
        super().__init__(pauses, history)
        self.unmovable = unmovable

    def why(self, key: object, moment: Callable[[float], str] = in_utc) -> list[str]:
        """Return why a task is not running. `moment` returns a time, in seconds since 1970, as text."""
        parts, _ = self.tasks.identify(key)
        self.check_lock()
        rows = self._run(self.executor.dialect.queries.look(), **named(parts))
        if not rows:
            raise NotFound(self.executor.store.name, self.tasks.app_key(parts))
        *row, token = rows[0]
        state, task, now = self.executor.dialect.state(row), self.tasks.returned(tuple(row)), self.moment()
        if state is None:
            status = shown(self.tasks.in_role(task, "status"))
            return [f"its status {status} is not one of this queue's: it is no task, and no call moves it"]
        role, key = partial(self.tasks.in_role, task), lambda row: shown(self.tasks.app_key(tuple(row)))
        word, at, slices = self.tasks.wording.state, self._at(task, "runat"), self.executor.dialect.slices
        hidden = Hidden(self._run, named(parts), role, key, state, word, at, moment)
        told = [line for slice in slices for line in slice.tells(hidden)]
        if state == TAKEN:
            return [*self._running(task, token or "", now), *told]
        if state != READY:
            waits = (slice.waits(hidden) for slice in slices)
            return [*next(filter(None, waits), self._resting(state, task, now, moment)), *told]
        try:
            self.executor.store.read(rows[0])
        except BadValue as error:
            return [f"it cannot be taken: {error}"]
        refused = [f"it cannot be taken: {error}" for found, error in self._faults() if found == parts]
        return (refused or [*self._held(task, hidden, now)] or [self._in_line(task)]) + told

    def _running(self, task: Any, token: str, now: float) -> Iterator[str]:
        session, since = owner_of(token)
        process = next((each for each in self.processes() if each.session == session), None)
        by = f" by the session {session}" if session else ""
        for_ = "" if since is None else f" for {lasting(now - since)}"
        yield f"it is taken{by}{for_}{f': {process.name}' if process else ''}"
        if session and self.machine.settings.reaped and (process is None or process.gone):
            yield "its process is gone: any process that takes from this queue releases the task within a second"
            yield from self._no_taker()
        left = self._left(task, "runat", now)
        if left is not None:
            ends = f"its ttr ends in {lasting(left)}, unless its worker prolongs it"
            yield ends if left > 0 else "its ttr has passed: the next take releases it"
        elif not session:
            unowned = self.executor.installation.end_of_unowned
            yield f"it has no owner, since another program wrote its status: it {unowned}"
        if since is not None and now - since > self.patience:
            yield "that is long: if its function hangs, restart the worker; a heartbeat prolongs the ttr"

    def _resting(self, state: str, task: Any, now: float, moment: Callable[[float], str]) -> Iterator[str]:
        timer, left = self.machine.timer(state, "runat"), self._left(task, "runat", now)
        word = self.tasks.wording.state(state)
        if timer is not None and left is not None:
            when = f"in {lasting(left)}" if left > 0 else "now: the next take does it"
            to = self.tasks.wording.state(timer.target) if timer.target in self.machine.states else "deleted"
            yield f"it is {word} until {moment(now + left)}, and becomes {to} {when}"
        elif state == "B":
            error = str(self.tasks.in_role(task, "error") or "").partition("\n")[0]
            yield f"it is {word}{f': {error}' if error else ''}"
            yield "dig returns it to the queue"
        else:
            yield f"it is {word}: nothing moves it but a call"

    def _held(self, task: Any, hidden: Hidden, now: float) -> Iterator[str]:
        for column in ("runat", "deadline"):
            timer, left = self.machine.timer(READY, column), self._left(task, column, now)
            if timer is not None and left is not None and left <= 0:
                yield f"its {timer.option or column} has passed: the next take moves it"
        tube, group = self.tasks.tube_of(self.tasks.in_role(task, "tube")), self.tasks.in_role(task, "group")
        for pause in self.pauses.all():
            if (pause.tube, pause.group) in ((None, None), (tube, None), (None, group)):
                yield f"{place(pause)} is paused: {self._resume(pause)} ends that"
        for slice in self.executor.dialect.slices:
            yield from slice.why(hidden)
        yield from self._no_taker()

    def _in_line(self, task: Any) -> str:
        now = self.snapshot()
        one = f"it is one of {now.stats.counts[READY]:,} ready tasks"
        if now.standstill >= LONG:
            return f"{one}, and none was taken for {lasting(now.standstill)}: see {self.command('doctor')}"
        tube = self.tasks.tube_of(self.tasks.in_role(task, "tube"))
        ((taken, last_us),) = self._run(self.questions.takes_of_tube, tube=tube, n=LAST) if tube else ((1, None),)
        if taken or (last_us is not None and self.moment() - last_us / 1e6 < LONG):
            return f"nothing holds it: {one}, and a worker takes it in its turn"
        seen = "none of its tasks is taken" if last_us is None else f"the last take was at {in_utc(last_us / 1e6)}"
        return f"nothing holds it: {one}, but no worker of its tube {shown(tube)} was seen: {seen}"

    def _no_taker(self) -> Iterator[str]:
        if not self.takers():
            yield "no process takes from this queue: start a worker"

    @property
    def patience(self) -> float:
        """The seconds after which a taken task is reported."""
        timer = self.machine.timer(TAKEN, "runat")
        return max(HANGS, timer.default or 0.0) if timer else HANGS

    def _resume(self, pause: Pause) -> str:
        one = "" if pause.tube is None else f" --tube {quote(pause.tube)}"
        return f"{self.command('resume')}{one if pause.group is None else f' --group {quote(pause.group)}'}"

    def _left(self, task: Any, role: str, now: float) -> float | None:
        at = self._at(task, role)
        return None if at is None else at - now

    def _at(self, task: Any, role: str) -> float | None:
        at = self.tasks.in_role(task, role) if role in self.machine.roles else None
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        return None if at is None or isinstance(at, str) or math.isinf(at) else float(at)

    def findings(self) -> Iterator[Finding]:
        """Return each problem with its remedy. It reads the whole table."""
        binding = self.executor.open(installed=False)
        if lacking := binding.installation.not_installed():
            here, replaced = binding.installation, binding.installation.replaced()
            first = "mend the table, then " * bool(here.missing_columns())
            yield Finding(str(lacking), here.instead(replaced) if replaced else f"{first}{self.command('install')}")
            return
        try:
            self.check_lock()
        except Locked as locked:
            yield Finding(str(locked), f"{locked.remedy}; {SHORT}")
            return
        for lines, remedy in retried(self.executor.store, lambda: [*binding.installation.problems()]):
            yield from (Finding(line, remedy) for line in lines)
        for line in retried(self.executor.store, binding.installation.untimed):
            yield Finding(line, "run this statement, unless an ack with delay=math.inf keeps them")
        now = self.snapshot()
        yield from self._of_takers(now)
        often = self.questions.often_taken
        do = "read the log of its worker; worker(max_attempts=5) or the feature max_takes buries such a task, and "
        do += f"{self.command('failures')} shows why"
        for *key, n in self._run(often, least=OFTEN, n=LISTED) if often else ():
            yield Finding(f"task {shown(self.tasks.app_key(tuple(key)))} was {never_finished(n)}", do)
        yield from self._of_the_queue(now)
        do = "mend the row, or delete it, with plain SQL, or mend the trigger or index"
        for parts, why in self._faults():
            yield Finding(f"task {shown(self.tasks.app_key(parts))} cannot be taken: {why}", do)
        yield from self._of_the_database()
        yield from self.of_the_connection()

    def _faults(self) -> Iterator[tuple[Key, Exception]]:
        """Yield the first ready tasks, if they cannot be taken, and why."""
        store, found = self.executor.store, list[Key]()
        try:
            while len(found) < LISTED and (
                fault := self.unmovable.first(Selector("first", READY), numbered(found), len(found))
            ):
                found.append(fault[0])
                yield fault[0], fault[1]
        except Exception as error:
            if not (store.may_pass(error) or store.classify(error) is ErrorKind.DENIED):  # it may only read, say
                raise

    def _of_takers(self, now: Snapshot) -> Iterator[Finding]:
        ready = now.stats.counts[READY]
        at, takers, processes = self.moment(), self.takers(), {each.session: each for each in self.processes()}
        taken = [(at - since, key, session) for key, session, since in self.taken() if session and since is not None]
        owners = {session: processes.get(session) for *_, session in taken}
        gone = [session for session, process in owners.items() if process is None or process.gone]
        if gone and self.machine.settings.reaped:
            what = f"sessions that are gone and own tasks: {len(gone)} ({', '.join(gone[:LISTED])})"
            yield Finding(what, "start a worker: it releases the tasks within a second")
        if ready and not takers:
            yield Finding(f"ready tasks: {ready:,}, and no process takes", "start a worker")
        elif now.standstill >= LONG:
            what = f"ready tasks: {ready:,}, and none was taken for {lasting(now.standstill)}"
            have = f"{len(taken):,} tasks, each for {lasting(taken[-1][0])} or longer" if taken else "no task"
            do = f"restart those that {self.command('sessions')} lists; {LIMIT}"
            yield Finding(f"{what}: the processes that take ({takers}) have {have}", do)
        names = {session: process.name if process else f"session {session}" for session, process in owners.items()}
        named, do = [(for_, f"{shown(key)} of {names[uuid]}") for for_, key, uuid in taken], "if their functions hang, "
        what = f"tasks taken for longer than {lasting(self.patience)}"
        yield from _of(what, self.patience, named, f"{do}restart the worker; {LIMIT}")

    def _of_the_queue(self, now: Snapshot) -> Iterator[Finding]:
        remedy, dialect = "start a worker: each process that takes from this queue puts it", self.executor.dialect
        if now.room == 0:
            fills, remedy = now.stats.counts, ""
            remedy += "start more workers, " * bool(fills[READY] or fills[TAKEN])
            remedy += "kill tasks that are buried, " * bool(fills.get("B"))
            remedy += "or raise the limit" if remedy else "raise the limit"
            yield Finding("the queue is full: each put waits, or raises Full (feature limit)", remedy)
        firings = self._run(dialect.records.next_firings)
        due = [(-left / 1e6, shown(name)) for of, name, left in firings if of == dialect.source_name]
        yield from _of("schedules that are due and have put no task", LONG, sorted(due, reverse=True), remedy)
        for pause in now.pauses:
            has_moved = (pause.reason or "").startswith("moved to ")  # by xq copy
            remedy = "start the workers there, and do not resume this one" if has_moved else self._resume(pause)
            yield Finding(f"{place(pause)} is paused{_by(pause.actor, pause.reason)}", remedy)
        for name, spec, _, next_us, _, paused, at_us, since_us, actor, reason in self.schedules():
            if not paused and is_far(spec, next_us, at_us):
                what = f"the schedule {shown(name)} fires later than its spec says: the database's clock was set back"
                yield Finding(what, f"{self.command('schedule')} pause {quote(name)}, and then the same with resume")
            if paused and (since_us is None or at_us - since_us > PAUSED * 1e6):
                told = "" if since_us is None else f" for {lasting((at_us - since_us) / 1e6)}"
                what = f"the schedule {shown(name)} is paused{told}{_by(actor, reason)}"
                yield Finding(what, f"{self.command('schedule')} resume {quote(name)}")
        for what in told_of(writes(counters(self.executor))):
            yield Finding(what, WRITTEN.format(self.command("history"), self.command("reset")))
        if held := self.held(now.stats):
            do = "dig a buried parent; {} KEY releases the dependant of one that is gone, {} KEY deletes it"
            yield Finding(dead_parents(held), do.format(self.command("restart"), self.command("kill")))
        if buried := now.stats.counts.get("B", 0):
            grouped, command = "error" in self.tasks.table.roles, self.command
            shows = f"{command('failures')} shows why" if grouped else f"{command('list')} state:buried shows them"
            do = f"{shows}; {command('act')} dig FILTER --dry-run says what dig would return to the queue"
            yield Finding(f"buried tasks: {buried:,}", f"{do}; kill deletes rows of {self.executor.store.table}")
            for what, role, value in (each for slice in dialect.slices for each in slice.held(self._run)):
                of = quote(f"{role}:{quoted(value)} state:buried")
                yield Finding(what, f"{self.command('act')} dig {of}; or kill")

    def _of_the_database(self) -> Iterator[Finding]:
        sql, store = self.executor.dialect.open_transactions, self.executor.store
        try:
            found = self._run(sql, n=LONG) if sql else []
        except Exception as error:
            if store.classify(error) is not ErrorKind.DENIED:  # MariaDB shows them to users with the right PROCESS
                raise
            return
        for n, (who, seconds, ends) in enumerate(found):
            oldest = "" if n else ", and holds the oldest snapshot"
            mended = f"end it ({ends}): rows that were deleted since cannot be reclaimed, and each take passes them"
            yield Finding(f"{who} has a transaction open for {lasting(float(seconds))}{oldest}", mended)

    def of_the_connection(self) -> Iterator[Finding]:
        """Yield what the application has not set for its connections, and xq sets for its own; an untested server."""
        store = self.executor.store
        with store.on_one_connection():
            store.ready()
            driver: Any = store.driver
            lacks = driver.lacks(store.in_use) if hasattr(driver, "lacks") else ()  # a file lacks nothing
            untested = driver.untested(store.in_use) if hasattr(driver, "untested") else ""
        if untested:
            yield Finding(untested, UNTESTED)
        if lacks:
            what = "a connection may wait for minutes for a server that has vanished"
            yield Finding(f"{what}: it has no {', '.join(lacks)}", LIMITS)


def _by(actor: str | None, reason: str | None) -> str:
    return f"{f' by {actor}' if actor else ''}{f': {reason}' if reason else ''}"


def _of(what: str, longest: float, found: Iterable[tuple[float, str]], do: str) -> Iterator[Finding]:
    """Yield a finding if anything lasts too long. `found` has seconds and a name, the longest first."""
    if late := [each for each in found if each[0] > longest]:
        names = ", ".join(name for _, name in late[:LISTED])
        yield Finding(f"{what}: {len(late):,} ({names}), the first for {lasting(late[0][0])}", do)
