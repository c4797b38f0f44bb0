"""The child in which xq_worker works, where it starts anew when the code changes."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from tests.django.test_commands import project  # noqa: F401 (a fixture)
from tests.steps import STUCK, eventually

# A process that works holds a lock for as long as it lives.
JOBS = """
import fcntl, os, pathlib, time

def work(order):
    folder = pathlib.Path(__file__).parent
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        (folder / "begun").touch()
        while True:
            time.sleep(0.01)
"""


def is_free(path: Path) -> bool:
    """Whether no process holds the lock."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_worker_that_starts_anew_when_the_code_changes_ends_when_its_parent_is_killed(office, project):  # noqa: F811
    project.write(JOBS)
    office.Order.put({})
    lock = project.folder / "lock"
    with project.worker("--reload") as parent:
        eventually(project.begun.exists)
        child = int(lock.read_text())
        assert child != parent.pid
        parent.kill()
        parent.wait(STUCK)
        try:
            eventually(lambda: is_free(lock))
        finally:
            if not is_free(lock):
                os.kill(child, signal.SIGKILL)
