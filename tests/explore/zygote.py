"""A process that has imported all and opened no connection. It forks for each job, which may be killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.timing import in_sequence

STUCK = 60  # seconds after which a job is killed
ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """How a job ended: what it returned before that, and the signal that ended it, 0 if none did."""

    result: Any
    signal: int


@in_sequence
class Zygote:
    """Jobs by name, each in a process of its own, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.explore.jobs"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(self, job: str, **given: Any) -> Ended:
        """Return how a job ended. Raises AssertionError if it has failed or was stuck."""
        pipe: Any = self._process
        print(json.dumps([job, given]), file=pipe.stdin, flush=True)
        ended = Ended(*json.loads(pipe.stdout.readline()))
        assert ended.signal != signal.SIGALRM, f"{job} is stuck: {given}"
        assert ended.signal in (0, signal.SIGKILL), f"{job} ended by signal {ended.signal}: {given}"
        if isinstance(ended.result, dict) and "failed" in ended.result:
            raise AssertionError(f"{job} {given}\n{ended.result['failed']}")
        return ended

    def close(self) -> None:
        self._process.communicate()


def serve(jobs: dict[str, Callable[..., Any]]) -> None:
    """Do jobs until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints is no answer
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        name, given = json.loads(line)
        reader, writer = os.pipe()
        if not (pid := os.fork()):
            os.close(reader)
            _do(jobs[name], given, writer)
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([json.loads(text or "null"), max(0, -ended)]), file=out, flush=True)


def _do(job: Callable[..., Any], given: dict[str, Any], writer: int) -> None:
    signal.alarm(STUCK)
    try:
        try:
            result = job(**given)
        except BaseException:
            result = {"failed": traceback.format_exc()}
        with suppress(BrokenPipeError):
            os.write(writer, json.dumps(result).encode())
    finally:
        os._exit(0)
