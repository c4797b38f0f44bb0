"""Why a task is not running, and what is wrong with a queue, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final, NamedTuple

from xq.core.errors import NotFound, shown
from xq.core.machine import READY, TAKEN
from xq.core.ports import ErrorKind
from xq.core.values import Parts, named
from xq.core.words import lasting
from xq.operators.inspection import Inspection
from xq.sessions.process import process_name
from xq.sessions.session import owner_of

LONG: Final = 60.0  # seconds of a standstill, an open transaction or a due schedule, after which it is reported
HANGS: Final = 600.0  # seconds, or the ttr, after which a taken task is reported
LISTED: Final = 5  # keys that a message names
LIMIT: Final = "worker(kind='process', timeout=) limits an attempt"


def in_utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Owner(NamedTuple):
    """The session that has taken a task. `process` is "pid 4711 on host web-3 (xq worker)", or "" if it is unknown."""

    session: str
    since: float | None  # seconds since 1970; None if another program wrote the owner
    process: str
    gone: bool  # whether the process has ended


class Finding(NamedTuple):
    """A problem, and what to do: words, a command of the shell in which TARGET is this queue, or SQL that mends it."""

    what: str
    do: str


class Doctor(Inspection):
    """The reasons why a task is not running, and the problems of a queue."""

    def why(self, key: object, moment: Callable[[float], str] = in_utc) -> list[str]:
        """Return why a task is not running, in sentences; that it may be taken at any moment if nothing holds it.

        `moment` returns a time, in seconds since 1970, as text.
        """
        parts, row, _ = self._look(key)
        state, task, now = self.database.dialect.state(row), self.tasks.returned(tuple(row)), self.moment()
        if state is None:
            status = shown(self.tasks.in_role(task, "status"))
            return [f"its status {status} is not one of this queue's: no call moves it"]
        if state == TAKEN:
            return list(self._running(task, self.owner(key), now))
        if state != READY:
            return list(self._resting(state, task, now, moment))
        if held := list(self._held(task, parts, now)):
            return held
        tasks, _, still = self.ready()
        one = f"it is one of {tasks:,} ready tasks"
        if still is not None and still >= LONG:
            return [f"{one}, and none was taken for {lasting(still)}: see xq doctor"]
        return [f"nothing holds it: {one}, and a worker takes it in its turn"]

    def owner(self, key: object) -> Owner | None:
        """Return the session that has taken a task, its process, and since when; None if none has. Raises NotFound."""
        _, row, token = self._look(key)
        if not token or self.database.dialect.state(row) != TAKEN:
            return None
        session, since = owner_of(token)
        process = next((each for each in self.processes() if each.session == session), None)
        return Owner(session, since, process_name(*process[1:4]) if process else "", process is None or process.gone)

    def _look(self, key: object) -> tuple[Parts, list[Any], str | None]:
        """Return the key of a task, its row, and the token of its take. Raises NotFound."""
        parts, _ = self.tasks.identify(key)
        rows = self._run(self.database.dialect.look(), **named(parts))
        if not rows:
            raise NotFound(self.database.store.name, self.tasks.app_key(parts))
        *row, token = rows[0]
        return parts, row, token

    def _running(self, task: Any, owner: Owner | None, now: float) -> Iterator[str]:
        session, since, process, gone = owner or (None, None, "", False)
        by = f" by the session {session}" if session else ""
        for_ = "" if since is None else f" for {lasting(now - since)}"
        yield f"it is taken{by}{for_}{f': {process}' if process else ''}"
        if gone and self.machine.settings.reaped:
            yield "its process is gone: any process that takes from this queue releases the task within a second"
            yield from self._nobody()
        left = self._left(task, "runat", now)
        if session is None and left is None:
            unowned = self.database.bind().installation.end_of_unowned
            yield f"it has no owner, since another program wrote its status: it {unowned}"
        if left is not None:
            ends = f"its ttr ends in {lasting(left)}, unless its worker prolongs it"
            yield ends if left > 0 else "its ttr has passed: the next take releases it"
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

    def _held(self, task: Any, parts: Parts, now: float) -> Iterator[str]:
        dialect, key = self.database.dialect, named(parts)
        for column in ("runat", "deadline"):
            timer, left = self.machine.timer(READY, column), self._left(task, column, now)
            if timer is not None and left is not None and left <= 0:
                yield f"its {timer.option} has passed: the next take moves it"
        for tube in self.pauses.listed():
            if tube in (None, self.tasks.in_role(task, "tube")):
                its = "the queue" if tube is None else f"its tube {shown(tube)}"
                yield f"{its} is paused: {self._resume(tube)} ends that"
        guard, utube = self.machine.guard("utube"), self.tasks.in_role(task, "utube")
        if guard is not None and utube is not None:
            takers = self._run(dialect.takers, **key)
            if len(takers) >= guard.value:
                keys = ", ".join(shown(self.tasks.app_key(tuple(row))) for row in takers[:LISTED])
                yield f"its utube {shown(utube)} is busy with task{'s' * (len(takers) > 1)} {keys}"
        if self.machine.guard("rate") is not None:
            ((left_us,),) = self._run(dialect.bucket_left, **key) or [(None,)]
            if left_us is not None and left_us > 0:
                yield f"the limit of the feature rate is used up: it has a token in {lasting(left_us / 1_000_000)}"
        yield from self._nobody()

    def _nobody(self) -> Iterator[str]:
        if not self.takers():
            yield "no process takes from this queue: start a worker"

    @property
    def patience(self) -> float:
        """The seconds after which a taken task is reported."""
        timer = self.machine.timer(TAKEN, "runat")
        return max(HANGS, timer.default or 0.0) if timer else HANGS

    def _resume(self, tube: str | None) -> str:
        return f"xq resume {self.target}{'' if tube is None else f' --tube {quote(tube)}'}"

    def _left(self, task: Any, role: str, now: float) -> float | None:
        """Return the seconds until the time in a role; None if there is none."""
        at = self.tasks.in_role(task, role) if role in self.machine.roles else None
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        return None if at is None or math.isinf(at) else float(at) - now

    def findings(self) -> Iterator[Finding]:
        """Return what is wrong or slow, each with what to do. It reads the whole table."""
        binding = self.database.bind()
        if lacking := binding.installation.not_installed():
            yield Finding(str(lacking), f"xq install {self.target}")
            return
        for lines, remedy in self.database.unit(lambda: [*binding.installation.problems()]):
            yield from (Finding(line, remedy.replace("TARGET", self.target)) for line in lines)
        for name, ddl in binding.dialect.drifted(self.database.store).items():
            then = f"run this while no other program writes to the table, then xq recount {self.target}"
            yield Finding(f"the {name} is not the one that install() creates", f"{then}:\n{ddl.rstrip()}")
        yield from self._processes()
        yield from self._queue()
        yield from self._of_the_database()

    def _processes(self) -> Iterator[Finding]:
        processes = {each.session: each for each in self.processes()}
        (tasks, _, still), takers, now = self.ready(), self.takers(), self.moment()
        taken = [(now - since, key, session) for key, session, since in self.taken() if session and since is not None]
        owners = dict.fromkeys(session for *_, session in taken if self.machine.settings.reaped)
        if gone := [uuid for uuid in owners if uuid not in processes or processes[uuid].gone]:
            what = f"sessions that are gone and own tasks: {len(gone)} ({', '.join(gone[:LISTED])})"
            yield Finding(what, "start a worker: it releases the tasks within a second")
        if tasks and not takers:
            yield Finding(f"ready tasks: {tasks:,}, and no process takes", "start a worker")
        elif still is not None and still >= LONG:
            what = (
                f"ready tasks: {tasks:,}, and none was taken for {lasting(still)}: the processes that take ({takers})"
            )
            have = f"{len(taken):,} tasks, each for {lasting(taken[-1][0])} or longer" if taken else "no task"
            yield Finding(f"{what} have {have}", f"restart those that xq sessions {self.target} lists; {LIMIT}")
        if long := [each for each in taken if each[0] > self.patience]:
            names = {uuid: process.name for uuid, process in processes.items()}
            of = ", ".join(f"{shown(key)} of {names.get(uuid, f'session {uuid}')}" for _, key, uuid in long[:LISTED])
            what = f"tasks taken for longer than {lasting(self.patience)}: {len(long):,} ({of}), the first for "
            yield Finding(what + lasting(long[0][0]), f"if their functions hang, restart the worker; {LIMIT}")

    def _queue(self) -> Iterator[Finding]:
        remedy = "start a worker: each process that takes from this queue puts it"
        if self.room() == 0:
            remedy = "start more workers, kill tasks that are buried, or raise the limit"
            yield Finding("the queue is full: each put waits, or raises Full (feature limit)", remedy)
        dialect = self.database.dialect
        firings = self._run(dialect.next_firings)
        due = [(-left_us / 1e6, name) for of, name, left_us, _ in firings if of == dialect.source_name]
        if late := sorted((each for each in due if each[0] > LONG), reverse=True):
            names = ", ".join(shown(name) for _, name in late[:LISTED])
            what = f"schedules that are due and have put no task: {len(late)} ({names}), the first for "
            yield Finding(what + lasting(late[0][0]), remedy)
        for tube, _, actor, reason in self.pauses.all():
            by = f"{f' by {actor}' if actor else ''}{f': {reason}' if reason else ''}"
            which = "queue" if tube is None else f"tube {shown(tube)}"
            yield Finding(f"the {which} is paused{by}", self._resume(tube))
        if buried := self.counts().get("B", 0):
            do = f"xq list {self.target} state:buried shows them, xq dig {self.target} --all returns them to the queue"
            yield Finding(f"buried tasks: {buried:,}", f"{do}; kill deletes rows of {self.database.store.table}")

    def _of_the_database(self) -> Iterator[Finding]:
        sql, store = self.database.dialect.open_transactions, self.database.store
        try:
            found = self._run(sql, n=LONG) if sql else []
        except Exception as error:
            if store.classify(error) is not ErrorKind.DENIED:  # MariaDB shows them to users with the right PROCESS
                raise
            return
        for place, (who, seconds, ends) in enumerate(found):
            since = f"a transaction open for {lasting(float(seconds))}"
            oldest = "" if place else ", and holds the oldest snapshot"
            mended = f"end it ({ends}): rows that were deleted since cannot be reclaimed, and each take passes them"
            yield Finding(f"{who} has {since}{oldest}", mended)
