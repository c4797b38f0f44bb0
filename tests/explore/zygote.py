"""A process that has imported all modules and opened no connection. It forks a child for each job."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.timing import in_sequence

STUCK = 60  # seconds after which a job is killed
ROOT = Path(__file__).resolve().parents[2]


@in_sequence
class Zygote:
    """Runs jobs by name, one at a time, each in a process of its own."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-m", "tests.explore.jobs"], subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(self, job: str, **given: Any) -> Any:
        """Return the result of a job, None if it was killed. Raises AssertionError if it has failed or was stuck."""
        pipe: Any = self._process
        print(json.dumps([job, given]), file=pipe.stdin, flush=True)
        result, ended = json.loads(pipe.stdout.readline())
        assert ended in (0, signal.SIGKILL), f"{job} ended by signal {ended} (14: it was stuck): {given}"
        assert not (isinstance(result, dict) and "failed" in result), f"{job} {given}\n{result['failed']}"
        return result

    def close(self) -> None:
        self._process.communicate()


def serve(jobs: dict[str, Callable[..., Any]], prepare: Callable[..., None]) -> None:
    """Run jobs until stdin ends. `prepare` makes what a job begins with."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a job may print: the answers have the other descriptor
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        name, given = json.loads(line)
        prepare(name, **given)
        reader, writer = os.pipe()
        if not (pid := os.fork()):
            signal.alarm(STUCK)
            try:
                text = json.dumps(jobs[name](**given))
            except BaseException:
                text = json.dumps({"failed": traceback.format_exc()})
            os.write(writer, text.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([json.loads(text or "null"), max(0, -ended)]), file=out, flush=True)
