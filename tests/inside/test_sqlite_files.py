"""What is SQLite's own: files, their journal, REPLACE, limits, attached schemas, and what stands in sqlite_master."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import ExitStack

from tests.factories import task
from tests.steps import PATIENCE, in_threads
from tests.support import sqlite_files as support
from xq.adapters.databases.file_liveness import FileLocks, FileNotifier, Inotify

path, make_file = support.path, support.make_file


# the thread that listens


def test_a_call_after_the_end_writes_into_no_file_that_was_opened_since(path):
    """Whoever is called late (a timer, the end of a process) has a number that another file may have got."""
    writes = FileNotifier([str(path)], [])
    writes.close()
    files = [(path.parent / str(n)).open("w+b", buffering=0) for n in range(8)]
    writes.wake()
    writes.close()
    assert [file.read() for file in files] == [b""] * 8
    for file in files:
        file.close()


def test_a_write_is_told_of_beyond_the_thousandth_file(make_file):
    Task = make_file()
    with ExitStack() as files:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 2000:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2000 if hard < 0 else min(2000, hard), hard))
            files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        writes = FileNotifier([str(make_file.db.database)], [])
        files.callback(writes.close)
        writes.wait(0, False)
        Task.put(task())
        assert writes.wait(PATIENCE, False)


def test_where_no_more_files_may_be_watched_the_thread_looks_by_itself(path, monkeypatch):
    monkeypatch.setattr(Inotify, "add", lambda self, path: False)
    writes = FileNotifier([str(path)], [])
    assert writes.wait(PATIENCE, eagerly=True), "it would have slept so long"
    writes.close()


def test_threads_that_begin_at_once_share_the_locks_of_a_file(path, make_file):
    """Were there two descriptors of the lock file, closing one would drop the locks of the other."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = in_threads(make_file.db, *[lambda: [FileLocks.of(f"{path}{n}") for n in range(2000)]] * 4)
    finally:
        sys.setswitchinterval(interval)
    assert all(len(set(map(id, locks))) == 1 for locks in zip(*found, strict=True))
