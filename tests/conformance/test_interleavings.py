"""Threads and processes that pass each other at the worst moment, which is brought about on purpose."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import threading
from typing import Any

import pytest

import xq
from tests.conformance.steps import PATIENCE, another_process, eventually, in_threads, look, state
from tests.factories import task
from xq import sessions
from xq.adapters.databases.sqlite_files import FileWrites, Inotify


def test_a_task_taken_by_a_session_that_ends_meanwhile_is_given_back(make, monkeypatch):
    Task = make(roles=("owner",))
    put = Task.put(task())
    mark = sessions.Session.mark

    def marks_and_ends(self: sessions.Session, now: float) -> str:
        made = mark(self, now)
        monkeypatch.undo()
        self.close()
        return made

    monkeypatch.setattr(sessions.Session, "mark", marks_and_ends)
    with pytest.raises(xq.UnknownSession):
        Task.take()
    assert state(Task, put) == "R"
    assert Task.take().ack()


def test_a_session_that_another_thread_enters_while_it_is_left_goes_on(make_shared, monkeypatch):
    Task = make_shared(roles=("owner",))
    put = Task.put(task())
    session = Task.xq.session()
    taken: list[Any] = []
    leave = sessions.Sessions.leave

    def work() -> None:
        with session:
            taken.append(Task.take())
            left.set()
            ended.wait(PATIENCE)
            taken.append(Task.ack(put.id))

    left, ended = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: in_threads(make_shared.db, work))

    def leaves_late(self: sessions.Sessions, leaving: sessions.Session) -> None:
        monkeypatch.undo()
        other.start()
        left.wait(PATIENCE)
        leave(self, leaving)

    monkeypatch.setattr(sessions.Sessions, "leave", leaves_late)
    with session:
        pass
    assert state(Task, put) == "T"
    ended.set()
    other.join(PATIENCE)
    assert [found.id for found in taken] == [put.id, put.id]
    assert session.closed


def test_a_child_that_enters_a_session_of_its_parent_proves_that_it_lives(make_shared):
    Task = make_shared(roles=("owner",))
    put = Task.put(task())
    session = Task.xq.session()

    def child() -> Any:
        with session:
            found = Task.take()
            yield found.id
            yield found.ack().id

    with another_process(make_shared.db, child) as other:
        assert next(other) == put.id
        session.let_go()  # as the end of this process would
        look(make_shared.db)
        assert state(Task, put) == "T"
        assert next(other) == put.id


def test_the_first_take_of_a_process_finds_what_a_dead_one_held(make_shared):
    Task = make_shared(roles=("owner",))
    put = Task.put(task())

    def child() -> Any:
        yield Task.take().id
        os.kill(os.getpid(), signal.SIGKILL)

    with another_process(make_shared.db, child) as other:
        assert next(other) == put.id
        proof = sessions.of(make_shared.db).proof
        assert proof is not None
        eventually(proof.renew)  # beside a new lock file nobody is taken for dead
        with pytest.raises((AssertionError, EOFError)):
            next(other)
    assert Task.take().id == put.id


def test_a_worker_asks_again_when_the_database_is_locked(make_shared):
    db = make_shared.db
    db.timeout = 0.05
    db.close()
    Task = make_shared({"buried": True, "keep": True}, roles=("runat", "attempts"))
    put = Task.put(task())
    writer = sqlite3.connect(db.database, isolation_level=None, check_same_thread=False)
    done = []

    class Unlock(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "asked again" in record.getMessage() and writer.in_transaction:
                writer.execute("ROLLBACK")

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        done.append(found.id)
        writer.execute("BEGIN IMMEDIATE")

    handler = Unlock()
    logging.getLogger("xq.Task").addHandler(handler)
    try:
        Task.xq.run(until_empty=True)
    finally:
        logging.getLogger("xq.Task").removeHandler(handler)
        writer.close()
    assert (done, state(Task, put)) == ([put.id], "D")


def test_what_ends_a_worker_is_raised_by_run(make_shared):
    Task = make_shared()
    Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        Task.xq.uninstall()

    with pytest.raises(xq.NotInstalled):
        Task.xq.run()


def test_a_callback_that_waited_for_a_plain_commit_takes_no_event_away(make):
    Task = make({"history": True})
    Task.xq.on_change(lambda found, event, source, target: event == "take" and Task.put(task()))
    Task.put(task())
    taken = None
    make.db.connection().execute("BEGIN")
    taken = Task.take()
    make.db.connection().execute("COMMIT")
    taken.ack()
    assert [row.event for row in Task.xq.history(taken)] == ["put", "take", "ack"]


def test_where_no_more_files_may_be_watched_the_thread_looks_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(Inotify, "add", lambda self, path: False)
    writes = FileWrites([str(tmp_path / "app.db")])
    assert writes.wait(PATIENCE), "it would have slept so long"
    writes.close()
