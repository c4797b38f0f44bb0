"""A connection that all threads of a process share (thread_safe=False)."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.steps import PATIENCE, another_program, eventually

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


@pytest.mark.skipif(not ["sqlite"], reason="of SQLite")
def test_where_threads_share_a_connection_one_waits_and_others_are_refused(tmp_path):
    shared: dict[str, Any] = {"thread_safe": False, "check_same_thread": False, "timeout": 20}
    with closing(pw.SqliteDatabase(str(tmp_path / "app.db"), **shared)) as db:
        Task = Maker(db, None)({"keep": True, "limit": 2}, roles=("runat",))
        Other = Maker(db, None)({"keep": True}, model=Maker(db, None).model(table_name="other"), roles=("runat",))
        taken: list[Any] = []
        thread = threading.Thread(target=lambda: taken.append(Task.take(timeout=PATIENCE)))
        thread.start()
        eventually(lambda: Task.xq.waiting())
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
