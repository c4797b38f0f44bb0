"""What other processes can do with a queue, without its model: `Page.xq.pipeline`."""

from __future__ import annotations

from typing import Literal

from xq.core.errors import BadValue
from xq.engine.history import History
from xq.engine.statements import Statements
from xq.pipeline.archive import Archive
from xq.pipeline.bulk import EVERY, Bulk, Recorded, bulk
from xq.pipeline.copy import Copy, Moved, Side
from xq.pipeline.rollup import Rollup
from xq.pipeline.scan import Extract, What
from xq.pipeline.sql import SCANS
from xq.pipeline.sql.tables import jobs


class Pipeline:
    """How Spark and other programs read a queue and write to it.

    `archive` deletes the done tasks and the old history that an archive has, and puts tasks back.
    """

    def __init__(self, history: History, statements: Statements) -> None:
        self.archive = Archive(statements)
        self._history, self._executor, self._tasks = history, history.executor, history.tasks

    def bulk(self, *, on_conflict: Literal["raise", "skip"] = "raise") -> Bulk:
        """Return what other processes put tasks by, in partitions: see `Bulk.begin`. It may be pickled.

        With the feature unique and "skip", tasks that conflict with others are left out. Raises BadValue, FeatureOff,
        and ConfigurationError where no other process can reach the database.
        """
        return bulk(self._executor, self._tasks, on_conflict)

    def job(self, name: str) -> Recorded | None:
        """Return the record of a named bulk put, by Spark too; None if none of its partitions was put."""
        executor = self._executor
        if executor.dialect.name("put") not in executor.installation.existing():
            return None
        return Recorded.of(name, executor.run(jobs(executor.dialect).rows, {"job": name, "below": EVERY}))

    def extract(self, what: What = "tasks", states: str = "") -> Extract:
        """Return what other programs read "tasks", "history" or "stats" by. It may be pickled.

        - tasks: the fields, those that xq brings too, and `xq_state` ("Ready", "Taken", ...), also as `state` unless
          a field is called so. Rows whose status means no state are left out, and with `states` (letters, "RTW") rows
          in other states. A read that names `xq_key` has it as well: the key as text, as the history has it.
        - history: the columns of `History`, `at` (a timestamp), and `dur_us` if asked for.
        - stats: tube ("" for all), source, target, n. Tasks that were there before counting began have the source "".

        Raises FeatureOff, BadValue, and ConfigurationError where no other process can reach the database.
        """
        self._history.check(what)
        store = self._executor.store
        return SCANS[store.engine](self._executor.dialect).of(what, store.name, store.address(), states)

    def copy_to(self, other: Pipeline, where: str, timeout: float = 60) -> Moved:
        """Move this queue into another, empty one, in any database: rows, counters, history, pauses and schedules.

        The other queue has the same definition; `where` is its name for people. This one is paused first, with the
        reason "moved to WHERE", and so are its schedules. Its taken tasks have up to `timeout` seconds to end. All is
        written in one transaction: after a call that was killed, or raised Error, call again.

        Raises Error if tasks are still taken, for a value that the other table refuses, and for tasks that programs
        put there meanwhile; ConfigurationError if the queues differ, for columns that one of them
        lacks, for open groups and dependants, and for an other queue that is not empty; NotInstalled without its table.
        """
        self.archive.check_columns()
        if self.archive.identity == other.archive.identity:
            raise BadValue(f"{where} is the queue itself: copy it into another database")
        history = self.extract("history") if self._executor.dialect.has_history else None
        sides = Side(self._executor), Side(other._executor)
        return Copy(*sides, self.extract("tasks"), history, where).run(timeout)

    def rollup(self, table: str) -> Rollup:
        """Return a table in this database, where streams count transitions; its `install` creates it."""
        return Rollup(self._executor, table)
