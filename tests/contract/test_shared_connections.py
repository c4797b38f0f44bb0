"""A connection that all threads of a process share (thread_safe=False)."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import live
from tests.steps import PATIENCE, another_program


def test_where_threads_share_a_connection_one_waits_and_others_are_refused(tmp_path):
    shared: dict[str, Any] = {"thread_safe": False, "check_same_thread": False, "timeout": 20}
    with closing(pw.SqliteDatabase(str(tmp_path / "app.db"), **shared)) as db:
        Task = live(db)({"keep": True, "limit": 2}, roles=("runat",))
        Other = live(db)({"keep": True}, model=live(db).model(table_name="other"), roles=("runat",))
        # Python's sqlite3 may hang where two threads use one connection at once: what the main thread calls while the
        # other waits is to run no SQL, and so it opens the other queue before.
        assert Other.xq.count() == 0
        waits = threading.Event()
        Task.xq.adapter.waiting.woken = waits.set
        taken: list[Any] = []
        thread = threading.Thread(target=lambda: taken.append(Task.take(timeout=PATIENCE)))
        thread.start()
        assert waits.wait(PATIENCE)
        refused = [
            lambda: Task.take(timeout=1),
            lambda: Other.take(timeout=1),
            lambda: Task.put({}, timeout=1),
            lambda: Task.put({}, wait=1),
            lambda: Task.xq.wait(1, timeout=1),
        ]
        for wait in refused:
            with pytest.raises(xq.ConfigurationError, match="thread_safe=False"):
                wait()
        another_program(db, "INSERT INTO task (size, status, attempts) VALUES (0, 'R', 0)")
        thread.join(PATIENCE)
        assert taken[0].ack().status == "D"
        assert Task.take(timeout=0.01) is None  # nobody else waits any more


def test_workers_that_share_a_connection_are_refused_but_for_one():
    with closing(pw.SqliteDatabase(":memory:", thread_safe=False, check_same_thread=False)) as db:
        Task = live(db)({"keep": True}, roles=("tube",), worker=lambda task: None)
        put = Task.put({})
        for several in ({"workers": 2}, {"workers": 1, "tubes": ["a", "b"]}):
            with pytest.raises(xq.ConfigurationError, match="2 threads of Task cannot work on one connection"):
                Task.xq.run(until_empty=True, **several)
        Task.xq.run(until_empty=True, workers=1)
        assert Task.xq.peek(put).status == "D"
