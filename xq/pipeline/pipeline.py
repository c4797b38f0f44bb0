"""What other processes can do with a queue, without its model: `Page.xq.pipeline`."""

from __future__ import annotations

from typing import Literal

from xq.engine.history import History
from xq.engine.steps import Steps
from xq.pipeline.archive import Archive
from xq.pipeline.bulk import Bulk, bulk
from xq.pipeline.rollup import Rollup
from xq.pipeline.scan import Extract, What
from xq.pipeline.sql import SCANS


class Pipeline:
    """How Spark and other programs read a queue and write to it.

    `archive` deletes the done tasks and the old history that an archive has, and puts tasks back.
    """

    def __init__(self, history: History, steps: Steps) -> None:
        self.archive = Archive(steps)
        self._history, self._executor, self._tasks = history, history.executor, history.tasks

    def bulk(self, *, on_conflict: Literal["raise", "skip"] = "raise") -> Bulk:
        """Return what other processes put tasks by, in partitions: see `Bulk.begin`. It may be pickled.

        With the feature unique and "skip", tasks that conflict with others are left out. Raises BadValue, FeatureOff,
        and ConfigurationError where no other process can reach the database.
        """
        return bulk(self._executor, self._tasks, on_conflict)

    def extract(self, what: What = "tasks", states: str = "") -> Extract:
        """Return what other programs read "tasks", "history" or "stats" by. It may be pickled.

        - tasks: the fields, and `state` ("Ready", "Taken", ...; `xq_state` if a field is called so). Rows whose
          status means no state are left out, and with `states` (letters, "RTW") rows in other states. A read that
          names `xq_key` has it as well: the key as text, as the history has it.
        - history: the columns of `History`, `at` (a timestamp), and `dur_us` if asked for.
        - stats: tube ("" for all), source, target, n. Tasks that were there before counting began have the source "".

        Raises FeatureOff, BadValue, and ConfigurationError where no other process can reach the database.
        """
        self._history.check(what)
        store = self._executor.store
        return SCANS[store.engine](self._executor.dialect).of(what, store.name, store.address(), states)

    def rollup(self, table: str) -> Rollup:
        """Return a table in this database, where streams count transitions; its `install` creates it."""
        return Rollup(self._executor, table)
