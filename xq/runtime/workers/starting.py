"""How a worker process starts. (To be replaced at the merge by that of the branch `start`.)"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from xq.runtime.workers.child import SharedMemory
from xq.runtime.workers.pool import Assignment

log = logging.getLogger("xq")


class Launch:
    def __init__(self, part: Assignment, until_empty: bool, max_tasks: Any, run: Callable[..., None]) -> None:
        self.part, self._given = part, (run, part, until_empty, max_tasks)
        self.context: Any = multiprocessing.get_context("fork")

    def process(self, shared: SharedMemory) -> BaseProcess:
        process: BaseProcess = self.context.Process(target=_run, args=(*self._given, shared))
        return process


def _run(run: Callable[..., None], *given: Any) -> None:
    try:
        run(*given)
    except Exception:
        log.debug("a worker process ends", exc_info=True)  # the worker has logged the error
        os._exit(1)
