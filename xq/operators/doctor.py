"""What is wrong with a queue, or slow, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xq.core.errors import shown
from xq.core.machine import TAKEN
from xq.core.ports import INTEGERS, ErrorKind
from xq.core.words import lasting
from xq.operators.inspection import percentiles
from xq.operators.why import LISTED, LONG, Why

ENOUGH = 100  # durations, from which a p99 is compared with the ttr
FEW = 1_000  # rows below which dead ones cost nothing
LIMIT = "worker(kind='process', timeout=) limits an attempt"


class Finding(NamedTuple):
    """A problem, and what to do: words, a command of the shell in which TARGET is this queue, or SQL that mends it."""

    what: str
    do: str


class Doctor(Why):
    """The problems of a queue."""

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
        yield from self._full_and_overdue()
        yield from self._paused_and_buried()
        yield from self._ttr()
        yield from self._key()
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

    def _full_and_overdue(self) -> Iterator[Finding]:
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

    def _paused_and_buried(self) -> Iterator[Finding]:
        for tube in self.pauses.listed():
            yield Finding(f"the {'queue' if tube is None else f'tube {shown(tube)}'} is paused", self._resume(tube))
        if buried := self.counts().get("B", 0):
            do = f"xq list {self.target} state:buried shows them, xq dig {self.target} --all returns them to the queue"
            yield Finding(f"buried tasks: {buried:,}", f"{do}; kill deletes rows of {self.database.store.table}")

    def _ttr(self) -> Iterator[Finding]:
        timer = self.machine.timer(TAKEN, "runat")
        if timer is None or timer.default is None or self.machine.settings.history is None:
            return
        taken = self.durations().get(TAKEN, [])
        if len(taken) >= ENOUGH and (p99 := percentiles(taken)[99]) > timer.default:
            what = f"one task in a hundred is taken for longer than {lasting(p99)}, and its ttr is "
            do = "raise the ttr, or let a worker of xq run the function, which touches its task"
            yield Finding(f"{what}{lasting(timer.default)}: without a heartbeat it is done twice", do)

    def _key(self) -> Iterator[Finding]:
        key, dialect = self.tasks.table.key, self.database.dialect
        asked = dialect.key_range if len(key) == 1 and key[0].kind in INTEGERS else ""
        for used, most, widened in self._run(asked) if asked else ():
            if used and most and used > most / 2:
                yield Finding(
                    f"the key {key[0].name!r} has used {int(used):,} of {int(most):,} numbers, and then each put fails",
                    f"while no program uses the queue: xq uninstall {self.target} --keep-columns, the SQL below, "
                    f"BigAutoField in the model, xq install {self.target} (the history and the counts of transitions "
                    f"are lost). Columns that refer to the key need the type as well:\n{widened}",
                )

    def _of_the_database(self) -> Iterator[Finding]:
        dialect = self.database.dialect
        for place, (who, seconds, ends) in enumerate(self._open_transactions()):
            since = "an old snapshot" if seconds is None else f"a transaction open for {lasting(float(seconds))}"
            oldest = "" if place or seconds is None else ", and holds the oldest snapshot"
            mended = f"end it ({ends}): rows that were deleted since cannot be reclaimed, and each take passes them"
            yield Finding(f"{who} has {since}{oldest}", mended)
        for live, dead in self._run(dialect.dead_rows) if dialect.dead_rows else ():
            if dead > max(FEW, (live + dead) / 2):
                what = f"{dead:,} of {live + dead:,} rows of the table are dead"
                yield Finding(what, "lower autovacuum_vacuum_scale_factor of this table")

    def _open_transactions(self) -> list[Any]:
        sql, store = self.database.dialect.open_transactions, self.database.store
        try:
            return self._run(sql, n=LONG) if sql else []
        except Exception as error:
            if store.classify(error) is ErrorKind.DENIED:  # MariaDB shows them to users with the right PROCESS
                return []
            raise
