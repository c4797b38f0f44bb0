"""An installation's steps as data: the plan prints them, and an installation beside writers runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from xq.core import time
from xq.core.kinds import OUTCOME_UNKNOWN, ErrorKind
from xq.core.words import lasting
from xq.sql.installer.findings import Findings
from xq.sql.installer.objects import Object

log = logging.getLogger("xq")

MANY: Final = 1_000_000  # rows, from which on install() warns that writers wait
LONGEST: Final = 10  # the longest pause between two attempts, in lock timeouts
SHORTEST: Final = 0.001  # seconds, as a lock timeout of 0 waits without end on PostgreSQL
LASTS: Final = 1e6  # seconds: PostgreSQL counts milliseconds in 31 bits
NONE: Final = ("reads and writes go on",) * 2  # the locks for a step that takes none
LATER: Final = frozenset({ErrorKind.LOCKED, ErrorKind.CONFLICT})  # errors after which a step is attempted again


@dataclass(frozen=True)
class Stage:
    """A step in an installation: one transaction, where the database can change tables in one."""

    kind: str  # tables, columns, index, triggers or count
    what: str
    sql: tuple[str, ...]
    scans: int = 0  # how often it reads the whole table
    undo: str = ""  # SQL that removes what a refused step leaves behind
    makes: tuple[Object, ...] = ()  # the indexes and triggers


class Installing:
    """The work that an installation has left."""

    def __init__(self, findings: Findings, online: bool, finish: Callable[[], None]) -> None:
        self.findings, self.store, self.dialect = findings, findings.store, findings.dialect
        self.installer, self.queries, self.finish = self.dialect.installer, self.dialect.queries, finish
        self.online = online

    def left(self) -> Iterator[Stage]:
        """Yield the steps that are left: what is missing, and what is not as this definition makes and leaves it."""
        installer, store = self.installer, self.store
        with self.findings.one_look():
            existing, objects, changed = self.findings.existing(), installer.objects.all(), self.findings.changed()
        there = existing.keys() | installer.broken(store).keys()
        tables = [item for item in objects if item.kind == "table"]
        if any(item.name not in existing for item in tables):
            yield Stage("tables", "create the tables beside it", tuple(sql for item in tables for sql in item.create))
        if store.adds_columns and self.findings.missing_own():
            added = map(self.beside, installer.add_own(store))
            yield Stage("columns", f"add its columns {', '.join(installer.own)}", tuple(added))
        changes = list[Stage]()
        for item in objects:
            if item.kind == "table" or (item.name in existing and item.name not in changed):
                continue
            if item.kind == "index":
                sql = tuple(map(self.beside, ((item.drop,) if item.name in there else ()) + item.create))
                scans = installer.online_scans if self.online else 1
                yield Stage("index", f"build the index {item.name}", sql, scans, self.beside(item.drop), (item,))
            elif item.kind == "view":
                yield Stage("views", f"make the view {item.name}", item.create, makes=(item,))
            else:
                what = f"count each write, by the trigger {item.name}"
                # Where each statement is a transaction, what creates a trigger leaves no moment without one.
                sql = (item.drop, *item.create[-1:]) if installer.transactional_ddl else item.create
                changes.append(Stage("triggers", what, sql, makes=(item,)))
        if stale := self.findings.stale():
            changes.append(Stage("triggers", "remove what an earlier definition had", tuple(stale)))
        if changes and installer.transactional_ddl:
            sql = tuple(sql for step in changes for sql in step.sql)
            made = tuple(item for step in changes for item in step.makes)
            changes = [Stage("triggers", "count each write, by triggers", sql, makes=made)]
        yield from changes
        scans = 2 if self.dialect.heads else 1
        yield Stage(
            "count", "count the tasks that are there, and record the installation", (self.queries.audit,), scans
        )

    def beside(self, sql: str) -> str:
        """Return SQL that changes the table as it is run: beside writers if `online`."""
        return self.installer.online(sql) if self.online else sql

    # the plan

    def plan(self) -> str:
        """Return the steps as text. Changes nothing."""
        table, rows = self.dialect.source.name, self.rows()
        called = f"install({'online=True' * self.online})"
        if self.findings.is_whole():
            return f"{called}: {table} is installed, and nothing is left to do"
        kept = "each step keeps its lock until it ends"
        if self.installer.transactional_ddl and not self.online:
            kept = "writers wait from the first lock to the last step"
        lines = [f"{called} of {table}, with about {rows:,} rows; {kept}:"]
        for number, step in enumerate(self.left(), 1):
            read = f"; reads about {rows:,} rows{' twice' * (step.scans == 2)}" if step.scans else ""
            lines.append(f"{number}. {step.what}: {self.installer.locks.get(step.kind, NONE)[self.online]}{read}")
            if step.kind in ("columns", "index"):
                lines += [f"   {sql}" for sql in step.sql]
        return "\n".join([*lines, *(f"It waits for {who}" for who in self.waited_for())])

    def rows(self) -> int:
        """Return about how many rows the table has."""
        ((rows,),) = self.store.execute(self.installer.estimate)
        return int(rows or 0)

    def waited_for(self, longer_than: float = -1) -> list[str]:
        """Return the others' transactions that are in the way, if they are open for so many seconds."""
        sql = self.installer.in_the_way
        try:
            found = self.dialect.execute(self.store, sql, {"n": longer_than}) if sql else []
        except Exception as error:
            if self.store.classify(error) is ErrorKind.DENIED:
                return ["the transactions that use the table, which this user may not see"]
            raise
        return [f"{who}, in a transaction for {lasting(max(float(since or 0), 0))}" for who, since, *_ in found]

    # beside writers

    def run(self, lock_timeout: float) -> None:
        """Run the steps that are left, each as often as it takes to get its lock, with growing pauses.

        One process at a time does: two would drop the indexes that the other builds.
        """
        lock_timeout = min(max(lock_timeout, SHORTEST), LASTS)
        pauses = self._pauses(lock_timeout)
        while True:
            with self.installer.admitted(self.store) as admitted:
                if admitted:
                    self._run_all(lock_timeout)
                    return
            self._wait("begin", ["another process, which installs it"], next(pauses))

    def _run_all(self, lock_timeout: float) -> None:
        done, pauses = set[str](), self._pauses(lock_timeout)
        # Ask again what is left before each attempt, as another process may have done it by install().
        while not self.findings.is_whole():
            step = next((each for each in self.left() if each.what not in done), None)
            if step is None:  # another process has undone one by uninstall()
                done.clear()
                continue
            log.info("the queue %s: %s", self.store.name, step.what)
            if step.scans == 2 and step.kind == "index" and (older := self.waited_for(lock_timeout)):
                self._wait(step.what, older)  # without a lock timeout
            try:
                self._run(step, lock_timeout)
            except Exception as error:
                if (kind := self.store.classify(error)) not in LATER:
                    if step.undo and kind not in OUTCOME_UNKNOWN:
                        self.store.execute(step.undo)  # else an invalid index goes on to refuse rows
                    raise
                self._wait(step.what, [*self.waited_for(), "others"], next(pauses))
            else:
                done.add(step.what)
                pauses = self._pauses(lock_timeout)

    def _run(self, step: Stage, lock_timeout: float) -> None:
        with self.installer.briefly(self.store, lock_timeout, step.kind):
            self.findings.refuse_change()  # installed since by another process
            for sql in step.sql if step.kind != "count" else ():
                self.store.execute(sql)
            for sql in self.installer.noting(step.makes) if step.makes else ():  # else the next call makes it anew
                self.store.execute(sql)
            if step.kind == "count" and not self.findings.lacking():
                # The triggers count each write since they are there: one snapshot has that and the rows before it.
                self.finish()

    def _wait(self, what: str, whom: list[str], pause: float = 0) -> None:
        log.warning("the queue %s: to %s waits for %s", self.store.name, what, whom[0])
        time.sleep(pause)

    def _pauses(self, lock_timeout: float) -> Iterator[float]:
        return (min(2**tried, LONGEST) * lock_timeout for tried in count())
