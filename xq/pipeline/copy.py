"""Copy a queue into another database: rows, counters, history, pauses, limits and schedules, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from xq.core import time
from xq.core.acting import LONGEST_REASON
from xq.core.errors import BadValue, ConfigurationError, Error
from xq.core.kinds import HISTORY, INTEGERS, PERMANENT, Row
from xq.core.values import chunks
from xq.database.duties import SEEN
from xq.database.transactions import retried
from xq.engine.executor import Executor
from xq.pipeline.frames import as_stored
from xq.pipeline.scan import Extract
from xq.pipeline.sql.copies import Copied, Copies

BATCH: Final = 500  # rows in one statement
TRIES: Final = 10  # while the source changes meanwhile
LOOK: Final = 0.2  # seconds between two looks at the taken tasks, and between two tries
BEFORE: Final = "; it was paused before: "  # stands in the source's reason before that of an earlier pause
WHOLE: Final = ["", 1]  # tube and `whole` in a whole queue's pause


class Moved(NamedTuple):
    """How much the target has of a queue that has moved."""

    tasks: int
    history: int
    schedules: int


class _Changed(Exception):
    """The source is not as it was read."""


class Side:
    """The source or the target."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.store, self.dialect = executor, executor.store, executor.installation.dialect
        self.installation, self.queue = executor.installation, self.dialect.source_name
        self.copies = Copies(self.dialect)

    def rows(self, of: Copied) -> list[list[Any]]:
        return [list(row) for row in self.store.execute(of.select)]

    def count(self, of: Copied) -> int:
        ((n,),) = self.store.execute(of.count)
        return int(n)

    def pause(self) -> list[Any] | None:
        """Return the whole queue's pause."""
        return next((row for row in self.rows(self.copies.pauses) if row[1:3] == WHOLE), None)

    def write(self, to: Copied, rows: Sequence[Sequence[Any]], replaces: bool = False) -> None:
        """Write rows as a whole or not at all; with `replaces` in place of those with their keys."""
        n = len(rows)
        values = {f"v{i}_{place}": value for place, row in enumerate(rows) for i, value in enumerate(row)}
        with self.store.atomic():
            for sql in ([to.delete(n)] if replaces else []) + [to.insert(n)] if n else ():
                self.dialect.execute(self.store, sql, values)

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

    The target has all or nothing of it, by one transaction. There its triggers count each row that is written, and note
    it in the history: what the source has takes the place of both.
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

    def run(self, timeout: float) -> Moved:
        """Copy the queue. Raises as `Pipeline.copy_to`."""
        self._check()
        try:
            self._pause_source()
            time.sleep(SEEN)  # until then a process that has not seen the pause may take tasks
            for _ in range(TRIES):
                self._wait(timeout)
                retried(self.target.store, self.target.installation.install)
                with suppress(_Changed):
                    return retried(self.target.store, self._load)
                time.sleep(LOOK)
            raise Error(f"{self.source.store.name} changes all the time: stop the programs that write to it")
        except ConfigurationError:
            raise
        except Exception as error:
            name = self.source.store.name
            raise Error(
                f"{_reason(error)}. {name} stays paused, and so do its schedules: call again, or resume them"
            ) from error
        finally:
            self.target.executor.close()

    def _check(self) -> None:
        source, target = self.source, self.target
        for side in (source, target):
            if side.store.in_transaction():
                raise ConfigurationError("xq copy uses transactions of its own: call it outside of one")
        if unlike := target.installation.differences(json.loads(source.installation.fingerprint)):
            raise ConfigurationError(f"the queue at {self.where} is another one: {'; '.join(unlike)}")
        for what, sql in source.copies.unfinished.items():
            if source.store.execute(sql):
                raise ConfigurationError(
                    f"{source.store.name} has {what}, which are not copied: pause the programs that put, have the "
                    "workers finish these, and call again"
                )
        self._check_empty()

    def _check_empty(self) -> None:
        source, target = self.source, self.target
        rows = target.count(self.table)  # before the counters: another call may commit both meanwhile
        # One that an earlier definition has installed, without a history, is looked at once it is installed anew.
        read = ["count", *["history"] * target.dialect.has_history]
        is_installed = target.installation.existing().keys() >= {*map(target.dialect.name, read)}
        has = {tuple(name): n for *name, n in target.counters()} if is_installed else {}
        if not (has or rows):
            return
        # After a copy none of its counters is ever below the source's.
        paused = self._is_marked(source.pause())
        if paused and all(has.get((*name,), 0) >= n for *name, n in source.counters()):
            raise ConfigurationError(
                f"{source.store.name} has {self.mark} before: nothing is left to do. Do not resume it, or its tasks "
                "are done in both; put what programs have put there since again at the target"
            )
        raise ConfigurationError(
            f"{target.store.table} at {self.where} has rows, or has counted some: copy to an empty one (uninstall() "
            f"forgets the counters){f'. {source.store.name} stays paused, and so do its schedules' * paused}"
        )

    def _pause_source(self) -> None:
        source, now_us = self.source, self.source.executor.time_us()
        pause, mine = source.pause(), [source.queue, *WHOLE, now_us, None, self.mark]
        if not self._is_marked(pause):
            earlier = pause and [*pause[:-1], f"{self.mark}{BEFORE}{pause[-1] or ''}"[:LONGEST_REASON]]
            source.write(source.copies.pauses, [earlier or mine], replaces=True)
        for plan in source.rows(source.copies.schedules):
            if not plan[6]:
                source.write(source.copies.schedules, [[*plan[:6], 1, now_us, None, self.mark]], replaces=True)
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

    def _load(self) -> Moved:
        """Write all into the target. Raises _Changed if the source has changed meanwhile."""
        source, target = self.source, self.target
        before, plans = source.counters(), self._plans()
        tasks = noted = digest = 0
        with target.store.atomic():
            target.dialect.one_at_a_time(target.store, within=False)  # a second call waits here
            self._check_empty()
            for rows in self._tasks():
                digest += _sum(rows)
                columns = zip(self.fields, zip(*rows, strict=True), strict=True)
                stored = [as_stored(target.store.name, field, column) for field, column in columns]
                self._write(self.table, [*zip(*stored, strict=True)])
                tasks += len(rows)
                self._see(stored[0])
            if self.history:
                target.store.execute(self.noted.delete())
            for rows in self._history():
                digest += _sum(rows)
                self._write(self.noted, rows)
                noted += len(rows)
                self._see([row[2] for row in rows])
            if self.history and (counted := target.dialect.queries.add_up_history):
                target.store.execute(counted)
            target.add(target.counters(), -1)
            target.add(before, 1)
            target.write(target.copies.schedules, plans, replaces=True)
            target.write(target.copies.pauses, [*self._pauses()], replaces=True)
            self._limit()
            if self._has_changed(before, digest):
                raise _Changed
            if target.count(self.table) != tasks:
                raise Error(f"programs put tasks at {self.where} before the copy was complete: stop them")
            installer = target.installation.installer
            goes_on = installer.go_on(self.greatest) if self.greatest > 0 else ""
            for sql in [goes_on] * bool(goes_on and installer.transactional_ddl) + [*installer.continuing]:
                target.store.execute(sql)
        if goes_on and not installer.transactional_ddl:  # until then it goes on above the keys in the table
            target.store.execute(goes_on)
        return Moved(tasks, noted, len(plans))

    def _limit(self) -> None:
        """Write the limits that were set at the source, by the keys that the target's kind of database gives values."""
        limits, dialect = self.target.copies.limits, self.target.dialect
        if limits is None or dialect.limits is None or self.source.copies.limits is None:
            return
        rows = self.source.rows(self.source.copies.limits)
        keyed = ([row[0], dialect.limits.key_of(row[3]), *row[2:]] for row in rows)
        for some in chunks(keyed, BATCH):
            self.target.write(limits, some, replaces=True)
        if dialect.heads:
            dialect.heads.relimit(self.target.store, "")

    def _has_changed(self, counters: list[Any], digest: int) -> bool:
        source = self.source
        now = sum(map(_sum, self._tasks())) + sum(map(_sum, self._history()))
        return (now, source.counters(), source.installation.installer.taken_now(source.store)) != (digest, counters, 0)

    def _tasks(self) -> Iterator[list[Row]]:
        return chunks(self.tasks.read(self.names), BATCH)

    def _history(self) -> Iterator[list[Row]]:
        return chunks(self.history.read([*HISTORY]) if self.history else (), BATCH)

    def _see(self, keys: Sequence[Any]) -> None:
        if self.numbered:
            self.greatest = max(self.greatest, *map(int, keys))

    def _write(self, to: Copied, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows. Raises BadValue, with the key, for one that the target refuses."""
        try:
            self.target.write(to, rows)
        except Exception as error:
            if not isinstance(error, BadValue) and self.target.store.classify(error) not in PERMANENT:
                raise
            if len(rows) == 1:
                key = ", ".join(map(str, rows[0][: to.keys]))
                raise BadValue(f"{to.table} at {self.where} refuses the row {key}: {_reason(error)}") from error
            for row in rows:
                self._write(to, [row])


def _sum(rows: Sequence[Row]) -> int:
    """Return a digest of rows in any order: they are read in none."""
    return sum(hash(repr(row)) for row in rows)


def _reason(error: Exception) -> str:
    """Return what an error says, in one line."""
    # MariaDB has a number before the reason, PostgreSQL the row behind it.
    return str(error.args[-1] if error.args else error).partition("\n")[0]
