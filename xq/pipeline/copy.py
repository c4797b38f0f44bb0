"""Copy a queue into another database: rows, counters, history, pauses and schedules, by a call that may be repeated."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from xq.adapters.databases.shared import PAUSES
from xq.core import time
from xq.core.acting import LONGEST_REASON
from xq.core.errors import BadValue, ConfigurationError, Error
from xq.core.kinds import HISTORY, INTEGERS, PERMANENT, ErrorKind
from xq.core.values import chunks
from xq.database.duties import SEEN
from xq.database.transactions import retried
from xq.engine.executor import Executor
from xq.pipeline.frames import as_stored
from xq.pipeline.scan import Extract
from xq.pipeline.sql.copies import Copied, Copies

BATCH: Final = 500  # rows in one transaction
PASSES: Final = 10  # over a source that changes meanwhile
LOOK: Final = 0.2  # seconds between two looks at the taken tasks
HALF: Final = "xq copy is not complete: call it again"  # why the target is paused; after it the token of a call
BEFORE: Final = "; it was paused before: "  # stands in the source's reason before that of an earlier pause
WHOLE: Final = ["", 1]  # tube and `whole` in a whole queue's pause


class Moved(NamedTuple):
    """How much the target has of a queue that has moved."""

    tasks: int
    history: int
    schedules: int


class _InstalledMeanwhile(Exception):
    """Another program has made the target's triggers in this transaction."""


class Side:
    """The source or the target."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.store, self.dialect = executor, executor.store, executor.installation.dialect
        self.installation, self.queue = executor.installation, self.dialect.source_name
        self.copies = Copies(self.dialect)

    def rows(self, of: Copied) -> list[list[Any]]:
        return [list(row) for row in self.store.execute(of.select())]

    def count(self, of: Copied) -> int:
        ((n,),) = self.store.execute(of.count)
        return int(n)

    def pause(self) -> list[Any] | None:
        """Return the whole queue's pause."""
        return next((row for row in self.rows(self.copies.pauses) if row[1:3] == WHOLE), None)

    def write(self, to: Copied, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows in place of those with their keys, unless they are there as they are."""
        n = len(rows)
        values = {f"v{i}_{place}": value for place, row in enumerate(rows) for i, value in enumerate(row)}
        there = self.dialect.execute(self.store, to.select(n), values) if n else []
        if sorted(map(repr, map(tuple, there))) != sorted(map(repr, map(tuple, rows))):
            with self.store.atomic():
                self.dialect.execute(self.store, to.delete(n), values)
                self.dialect.execute(self.store, to.insert(n), values)

    def counters(self) -> list[Any]:
        found: dict[Any, int] = {}
        for *name, n, _ in self.store.execute(self.dialect.queries.counters):
            found[tuple(name)] = found.get(tuple(name), 0) + int(n)
        return sorted((*name, n) for name, n in found.items() if n)

    def add(self, counters: Sequence[Any], sign: int) -> None:
        for tube, source, target, n in counters:
            self.installation.add_counter(tube, source, target, sign * n)


class Copy:
    """One queue's way to `where`, a name for people.

    The target's table has no triggers until the end: so no row counts or is noted twice, and no process that begins
    uses the queue. Its pause says that it is not complete, and has the token of the last call: each transaction of
    another call fails there. Once that pause is gone, the source is history.
    """

    def __init__(self, source: Side, target: Side, tasks: Extract, history: Extract | None, where: str) -> None:
        self.source, self.target, self.where, self.mark = source, target, where, f"moved to {where}"
        self.tasks, self.history = replace(tasks, rows=""), history  # also rows that are no tasks
        theirs = {field.column.lower(): field for field in source.dialect.source.fields if not field.computed}
        mine = {field.column.lower(): field for field in target.dialect.source.fields if not field.computed}
        if lost := sorted(theirs.keys() - mine.keys()):
            raise ConfigurationError(f"the table {target.store.table} at {where} has no column {', '.join(lost)}")
        key = [field.column.lower() for field in source.dialect.source.key]
        columns = [*key, *(column for column in theirs if column not in key)]
        self.names, self.fields = [theirs[c].name for c in columns], [mine[c] for c in columns]
        self.table = target.copies.tasks([field.column for field in self.fields])
        self.noted = target.copies.history
        self.numbered = len(key) == 1 and self.fields[0].kind in INTEGERS
        self.greatest = 0  # key
        self.digest = 0  # of what the last pass has read
        self.token = secrets.token_hex(4)  # "" once another call has replaced it

    def run(self, timeout: float) -> Moved:
        """Copy what the target lacks. Raises as `Pipeline.copy_to`."""
        target = self.target
        self._check()
        retried(target.store, self._enter)
        target.executor.close()
        try:
            self._pause_source()
            return self._move(timeout)
        except Exception as error:
            if not self.token:
                raise
            raise Error(
                f"{_reason(error)}. {self.source.store.name} stays paused, and so do its schedules: call again, or "
                "resume them"
            ) from error

    def _move(self, timeout: float) -> Moved:
        source, target, seen_at, last = self.source, self.target, time.monotonic() + SEEN, None
        for _ in range(PASSES):
            self._wait(timeout)
            before = source.counters()
            found = self._pass()
            now = self.digest, before
            if (
                now == last
                and source.counters() == before
                and not source.installation.installer.taken_now(source.store)
            ):
                break
            last = now
            time.sleep(max(0, seen_at - time.monotonic()))  # a process that has not seen the pause takes tasks
        else:
            raise Error(f"{source.store.name} changes all the time: stop the programs that write to it")
        self._own()
        retried(target.store, target.installation.install)
        if self.greatest > 0 and (sql := target.installation.installer.go_on(self.greatest)):
            target.store.execute(sql)
        plans = self._plans()
        with target.store.atomic():
            self._own(alone=False)
            target.add([row for row in target.counters() if not row[1]], -1)
            target.add(before, 1)
            target.write(target.copies.schedules, plans)
            target.dialect.execute(target.store, target.dialect.records.resume, {"tube": "", "whole": 1})
            target.write(target.copies.pauses, [*self._pauses()])
        target.executor.close()
        return Moved(*found, len(plans))

    def _enter(self) -> None:
        """Make the copy this call's, and the target's table one without triggers."""
        target = self.target
        with target.installation.installer.installing(target.store):  # a second call waits here
            pause = target.pause() if PAUSES in target.installation.existing() else None
            if pause and str(pause[-1]).startswith(HALF):
                self._check_alone()
            else:
                target.installation.install()
                self._begin()
            reason = f"{HALF} ({self.token})"
            target.write(target.copies.pauses, [[target.queue, *WHOLE, self.source.executor.time_us(), None, reason]])
            self._drop_triggers()

    def _drop_triggers(self) -> None:
        target = self.target
        for item in target.installation.installer.objects.mine():
            if item.kind == "trigger":
                target.store.execute(item.drop)
        target.store.execute(target.dialect.records.forget)

    def _change(self, work: Callable[[], object]) -> None:
        """Change the target in one transaction, without triggers, and only while the copy is this call's."""
        store = self.target.store
        for tried in range(PASSES):
            if tried or store.execute(self.target.copies.installed):  # by a program that begins
                with self.target.installation.installer.installing(store):
                    self._own()
                    self._drop_triggers()
            with suppress(_InstalledMeanwhile), store.atomic():
                self._own()
                work()
                if not self._others():
                    return
                raise _InstalledMeanwhile  # undo this: what counts then is not the copy's
        raise Error(f"programs install the queue at {self.where} all the time: stop them")

    def _own(self, alone: bool = True) -> None:
        """Lock the target's pause until the transaction ends. Raises Error if the copy is no longer this call's."""
        target = self.target
        if target.store.change(target.copies.own(f"{HALF} ({self.token})")) != 1:
            self.token = ""
            raise Error(f"another xq copy of this queue to {self.where} goes on, or has completed: this one has ended")
        if alone:
            self._check_alone()

    def _check_alone(self) -> None:
        """Raise Error if tasks were moved at the target, which is not complete: without triggers nothing counts."""
        if others := self._others():
            raise Error(
                f"programs have installed the queue at {self.where} and put tasks there ({others} transitions) before "
                "the copy was complete. Stop them, and save what they have put. Then empty the table there "
                f"(after uninstall(), before install()), resume {self.source.store.name}, and call again"
            )

    def _check(self) -> None:
        source, target = self.source, self.target
        for side in (source, target):
            if side.store.in_transaction():
                raise ConfigurationError("xq copy uses many transactions: call it outside of a transaction")
        if unlike := target.installation.differences(json.loads(source.installation.fingerprint)):
            raise ConfigurationError(f"the queue at {self.where} is another one: {'; '.join(unlike)}")
        for what, sql in source.copies.unfinished.items():
            if source.store.execute(sql):
                raise ConfigurationError(
                    f"{source.store.name} has {what}, which are not copied: pause the programs that put, have the "
                    "workers finish these, and call again"
                )

    def _others(self) -> int:
        """Return how many transitions the target's triggers have counted."""
        return sum(row[-1] for row in self.target.counters() if row[1])

    def _begin(self) -> None:
        source, target = self.source, self.target
        if self._is_marked(source.pause()):
            raise ConfigurationError(
                f"{source.store.name} has {self.mark} before: nothing is left to do. Do not resume it, or its tasks "
                "are done in both; put what programs have put there since again at the target"
            )
        if target.count(self.table) or (self.history and target.count(self.noted)):
            raise ConfigurationError(
                f"{target.store.table} at {self.where} has rows or a history: copy to an empty one"
            )
        target.add(target.counters(), -1)

    def _pause_source(self) -> None:
        source, now_us = self.source, self.source.executor.time_us()
        if not (pause := source.pause()):
            source.write(source.copies.pauses, [[source.queue, *WHOLE, now_us, None, self.mark]])
        elif not self._is_marked(pause):
            reason = f"{self.mark}{BEFORE}{pause[-1] or ''}"[:LONGEST_REASON]
            source.write(source.copies.pauses, [[*pause[:-1], reason]])
        for plan in source.rows(source.copies.schedules):
            if not plan[6]:
                source.write(source.copies.schedules, [[*plan[:6], 1, now_us, None, self.mark]])
        source.executor.close()  # this process's takes read the pause anew

    def _is_marked(self, pause: list[Any] | None) -> bool:
        reason = str(pause[-1]) if pause else ""
        return reason == self.mark or reason.startswith(self.mark + BEFORE)

    def _pauses(self) -> Iterator[list[Any]]:
        """Yield the target's pauses: the source's, as they were."""
        for _, tube, whole, since, actor, reason in self.source.rows(self.source.copies.pauses):
            own = reason if [tube, whole] != WHOLE else reason.removeprefix(self.mark)
            if own or [tube, whole] != WHOLE:
                yield [self.target.queue, tube, whole, since, actor, (own or "").removeprefix(BEFORE) or None]

    def _plans(self) -> list[list[Any]]:
        """Return the target's schedules: the source's, as they were."""
        rows = self.source.rows(self.source.copies.schedules)
        return [[self.target.queue, *row[1:6], *([None] * 4 if row[-1] == self.mark else row[6:])] for row in rows]

    def _wait(self, timeout: float) -> None:
        """Wait until no task is taken. Raises Error."""
        end = time.monotonic() + timeout
        while taken := self.source.installation.installer.taken_now(self.source.store):
            if time.monotonic() >= end:
                raise Error(
                    f"{taken} tasks of {self.source.store.name} are still taken after {timeout:g} s: wait until their "
                    "workers finish, or snatch() them"
                )
            time.sleep(LOOK)

    def _pass(self) -> tuple[int, int]:
        """Copy tasks and history as they are now. Return how many."""
        target, noted = self.target, 0
        try:
            tasks = self._copy_tasks()
        except BadValue as error:
            cause = error.__cause__ or error
            if target.store.classify(cause) is not ErrorKind.DUPLICATE or not target.count(self.table):
                raise
            tasks = -1  # a task that an earlier call has copied had the value of a unique column before
        if target.count(self.table) != tasks:  # or is gone
            retried(target.store, partial(self._change, lambda: target.store.execute(self.table.delete())))
            tasks = self._copy_tasks()
        for rows in chunks(self.history.read([*HISTORY]) if self.history else (), BATCH):
            self._write(self.noted, rows, rows)
            noted += len(rows)
            self._see([row[2] for row in rows])
        return tasks, noted

    def _copy_tasks(self) -> int:
        tasks = self.digest = 0
        for batch in chunks(self.tasks.read(self.names), BATCH):
            columns = zip(self.fields, zip(*batch, strict=True), strict=True)
            stored = [as_stored(self.target.store.name, field, column) for field, column in columns]
            self._write(self.table, [*zip(*stored, strict=True)], batch)
            tasks += len(batch)
            self._see(stored[0])
        return tasks

    def _write(self, to: Copied, rows: Sequence[Sequence[Any]], read: Sequence[Any] = ()) -> None:
        """Write rows, which were `read` so. Raises BadValue, with the key, for one that the target refuses."""
        # A sum, since rows are read in no order. What the target has may differ, as a moment without fractions.
        self.digest += sum(hash(repr(row)) for row in read)
        store = self.target.store
        try:
            retried(store, partial(self._change, partial(self._replace, to, rows)))
        except Exception as error:
            if not isinstance(error, BadValue) and store.classify(error) not in PERMANENT:
                raise
            if len(rows) == 1:
                key = ", ".join(map(str, rows[0][: to.keys]))
                raise BadValue(f"{to.table} at {self.where} refuses the row {key}: {_reason(error)}") from error
            for row in rows:
                self._write(to, [row])

    def _replace(self, to: Copied, rows: Sequence[Sequence[Any]]) -> None:
        target = self.target
        target.write(to, rows)
        if to is self.noted and (counted := target.dialect.queries.add_up_history):
            target.store.execute(counted)  # these rows are no transitions of the target: see _others

    def _see(self, keys: Sequence[Any]) -> None:
        if self.numbered:
            self.greatest = max(self.greatest, *map(int, keys))


def _reason(error: Exception) -> str:
    """Return what an error says, in one line."""
    # MariaDB has a number before the reason, PostgreSQL the row behind it.
    return str(error.args[-1] if error.args else error).partition("\n")[0]
