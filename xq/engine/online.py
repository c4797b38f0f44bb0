"""The steps of an installation as data: the plan prints them, and an installation beside writers runs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xq.core.errors import ConfigurationError
from xq.core.ports import REFUSALS, ErrorKind
from xq.core.words import lasting

if TYPE_CHECKING:
    from xq.engine.install import Installation

log = logging.getLogger("xq")

MANY: Final = 1_000_000  # rows, from which on install() warns that writers wait
LONGEST: Final = 10  # the longest pause between two attempts, in lock timeouts
SHORTEST: Final = 0.001  # seconds, as a lock timeout of 0 waits without end on PostgreSQL
NONE: Final = ("reads and writes go on",) * 2  # the locks of a step that takes none
LATER: Final = frozenset({ErrorKind.LOCKED, ErrorKind.CONFLICT})  # errors after which a step is attempted again


@dataclass(frozen=True)
class Step:
    """A step of an installation: one transaction, where the database has such of changes of tables."""

    kind: str  # tables, columns, index, triggers or count
    what: str
    sql: tuple[str, ...]
    scans: int = 0  # how often it reads the whole table
    undo: str = ""  # SQL that removes what a refused step leaves behind


class Steps:
    """What is left to do of an installation."""

    def __init__(self, installation: Installation, online: bool) -> None:
        self.installation, self.store, self.dialect = installation, installation.store, installation.dialect
        self.online = online

    def left(self) -> Iterator[Step]:
        """Yield the steps that are left. Without `online`, indexes and triggers that are there are made anew."""
        dialect, store = self.dialect, self.store
        existing, objects = dialect.existing(store), [*dialect.shared(), *dialect.objects()]
        there = {name for name, _ in store.execute(dialect.definitions)}  # also invalid indexes
        tables = [item for item in objects if item.kind == "table"]
        if any(item.name not in existing for item in tables):
            made = [*dialect.widening(store), *(sql for item in tables for sql in item.create)]
            yield Step("tables", "create the tables beside it", tuple(made))
        if store.adds_columns and self.installation.missing_own():
            added = map(self.beside, dialect.add_own(store))
            yield Step("columns", f"add its columns {', '.join(dialect.own)}", tuple(added))
        wrong = dialect.drifted(store) if self.online else {f"{item.kind} {item.name}" for item in objects}
        changes = [("remove what an earlier definition had", tuple(made))] if (made := dialect.stale(existing)) else []
        for item in objects:
            if item.kind == "table" or (item.name in existing and f"{item.kind} {item.name}" not in wrong):
                continue
            dropped = (item.drop,) if item.name in there else ()
            if item.kind == "index":
                sql = tuple(map(self.beside, dropped + item.create))
                scans = dialect.online_scans if self.online else 1
                yield Step("index", f"build the index {item.name}", sql, scans, self.beside(item.drop))
            else:
                changes.append((f"count each write, by the trigger {item.name}", dropped + item.create[-1:]))
        if changes and dialect.transactional_ddl:
            changes = [("count each write, by triggers", tuple(sql for _, many in changes for sql in many))]
        for what, many in changes:
            yield Step("triggers", what, many)
        scans = 2 if dialect.groups else 1
        yield Step("count", "count the tasks that are there, and record the installation", (dialect.audit,), scans)

    def beside(self, sql: str) -> str:
        """Return SQL that changes the table as it is run: beside writers if `online`."""
        return self.dialect.online(sql) if self.online else sql

    # the plan

    def plan(self) -> str:
        """Return the steps as text. Changes nothing."""
        table, rows = self.dialect.source.name, self.rows()
        called = f"install({'online=True' * self.online})"
        if not self.installation.missing():
            return f"{called}: {table} is installed, and nothing is left to do"
        kept = "each step keeps its lock until it ends"
        if self.dialect.transactional_ddl and not self.online:
            kept = "writers wait from the first lock to the last step"
        lines = [f"{called} of {table}, with about {rows:,} rows; {kept}:"]
        for number, step in enumerate(self.left(), 1):
            read = f"; reads about {rows:,} rows{' twice' * (step.scans == 2)}" if step.scans else ""
            lines.append(f"{number}. {step.what}: {self.dialect.locks.get(step.kind, NONE)[self.online]}{read}")
            if step.kind in ("columns", "index"):
                lines += [f"   {sql}" for sql in step.sql]
        refused = self.dialect.not_online if self.online else ""
        waited = [f"It waits for {who}" for who in self.waited_for()]
        return "\n".join([*lines, *waited, *([f"It is refused: {refused}"] if refused else [])])

    def rows(self) -> int:
        """Return about how many rows the table has."""
        ((rows,),) = self.store.execute(self.dialect.estimate)
        return int(rows or 0)

    def waited_for(self) -> list[str]:
        """Return the open transactions of others for which a lock on the table waits."""
        sql = self.dialect.in_the_way
        try:
            found = self.dialect.execute(self.store, sql, {"n": -1}) if sql else []
        except Exception as error:
            if self.store.classify(error) is ErrorKind.DENIED:
                return ["the transactions that use the table, which this user may not see"]
            raise
        return [f"{who}, in a transaction for {lasting(max(float(since or 0), 0))}" for who, since, *_ in found]

    # beside writers

    def run(self, lock_timeout: float) -> None:
        """Run the steps that are left, each as often as it takes to get its lock, with growing pauses."""
        if self.dialect.not_online:
            raise ConfigurationError(f"{self.store.name} cannot be installed online: {self.dialect.not_online}")
        done, lock_timeout = set[str](), max(lock_timeout, SHORTEST)
        pause = lock_timeout
        # What is left is asked for again before each attempt, as another process may have done it.
        while step := next((each for each in self.left() if each.what not in done), None):
            log.info("the queue %s: %s", self.store.name, step.what)
            try:
                self._run(step, lock_timeout)
            except Exception as error:
                if (kind := self.store.classify(error)) not in LATER:
                    if kind in REFUSALS and step.undo:
                        self.store.execute(step.undo)  # else an invalid index goes on to refuse rows
                    raise
                (oldest, *_) = [*self.waited_for(), "others"]
                log.warning("the queue %s: to %s waits for %s", self.store.name, step.what, oldest)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST * lock_timeout)
            else:
                done.add(step.what)
                pause = lock_timeout

    def _run(self, step: Step, lock_timeout: float) -> None:
        if step.kind == "count":
            # No step counted the rows that were there, and the triggers count each write since: one snapshot has both.
            with self.dialect.creating(self.store):
                self.installation.count_and_record()
            return
        with self.dialect.briefly(self.store, lock_timeout, step.kind == "index"):
            for sql in step.sql:
                self.store.execute(sql)
