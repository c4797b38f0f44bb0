"""How a worker process starts. (To be replaced at the merge by that of the branch `start`.)"""

from __future__ import annotations

import multiprocessing
from typing import Any, NamedTuple

from xq.runtime.workers.child import SharedMemory
from xq.runtime.workers.pool import Assignment


class Launch(NamedTuple):
    """What a worker process is started with."""

    part: Assignment
    until_empty: bool
    max_tasks: Any
    context: Any = multiprocessing.get_context("fork")

    def process(self, shared: SharedMemory) -> Any:
        from xq.runtime.workers.program import run_child

        return self.context.Process(target=run_child, args=(self.part, self.until_empty, self.max_tasks, shared))
