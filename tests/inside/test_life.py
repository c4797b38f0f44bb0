"""Whose tasks are whose while processes come and go: first use, fork, exit, kill -9, SIGSTOP, shared sessions."""

from __future__ import annotations

import gc
import logging
import math
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SHARED, Maker, live
from tests.inside.steps import look
from tests.steps import (
    PATIENCE,
    STUCK,
    Other,
    another_process,
    eventually,
    in_threads,
    is_exact,
    make_impatient,
    processes,
    state,
    transitions,
    waiter,
    writing,
)
from tests.support.life import FEATURES, LATE, seen, takes, watch
from xq.runtime import maintenance
from xq.sessions import liveness
from xq.sessions import session as sessions

OWNERS = {"side table": ("runat",), "role": ("runat", "owner")}


@pytest.fixture(params=OWNERS)
def roles(request):
    return OWNERS[request.param]


@pytest.fixture
def queue(make_live, roles):
    return make_live(FEATURES, roles=roles)


def another(make: Maker, table: str, **options: Any) -> Any:
    """One more queue on the same database."""
    return make(FEATURES, model=make.model(table_name=table), **options)


def open_sessions(Task: Any) -> list[str]:
    return [uuid for uuid, _ in Task.xq.sessions()]


# one session for each process and database


def test_the_session_of_a_process_is_made_at_its_first_take_and_serves_all_queues(make_live):
    One, Two = make_live(FEATURES), another(make_live, "two")

    def child() -> Any:
        One.put({})
        One.xq.put_many([{}, {}])
        One.xq.stats()
        yield threading.active_count(), open_sessions(One)
        found = []
        for Task in (One, Two):
            Task.take()
            found.append(open_sessions(Task))
        yield found

    with another_process(One._meta.database, child) as other:
        assert next(other) == (1, [])
        first, second = next(other)
        assert len(first) == 1
        assert second == first


# kill -9, SIGSTOP


@pytest.mark.parametrize("ttr", [{}, {"ttr": 3600}], ids=["no ttr", "ttr"])
def test_a_killed_process_gives_its_tasks_back_and_one_that_stands_still_keeps_them(make_live, roles, ttr):
    One = make_live(FEATURES | ttr, roles=roles)
    Two = another(make_live, "two", roles=roles)
    watch(One)
    watch(Two)
    One.xq.put_many([{}] * 7)
    Two.put({})
    ours, buried = One.xq.take_many(2)
    buried.bury()
    One.put({}, delay=3600)
    with processes(make_live.db, takes(One), takes(One, Two, n=3)) as (stopped, killed):
        next(stopped)
        session = next(killed)
        assert (One.xq.count("T"), Two.xq.count("T")) == (5, 1)
        stopped.stop()
        killed.kill()
        eventually(lambda: One.xq.count("T") == 2 and Two.xq.count("T") == 0)
        look(make_live.db)
        assert transitions(One) == {"X-R": 7, "X-W": 1, "R-T": 6, "T-B": 1, "T-R": 3}
        assert transitions(Two) == {"X-R": 1, "R-T": 1, "T-R": 1}
        stopped.go_on()
        assert len(stopped.send("ack")) == 1
    assert is_exact(One)
    eventually(lambda: session not in open_sessions(One))
    assert (state(One, ours), state(One, buried)) == ("T", "B")
    assert ours.ack().id == ours.id


def test_a_queue_that_no_living_process_knows_is_given_back_by_the_first_one_that_does(make_live):
    One = make_live(FEATURES)

    def dies() -> Any:
        Two = another(live(make_live.db), "two")
        Two.put({})
        One.put({})
        One.take()
        yield Two.take().id

    def comes() -> Any:
        Two = another(live(make_live.db), "two")
        yield eventually(Two.take).id

    watch(One)
    with another_process(make_live.db, dies) as other:
        assert next(other) == 1
        other.kill()
        eventually(lambda: One.xq.count("T") == 0)
        look(make_live.db)
        assert list(make_live.db.execute_sql("SELECT status FROM two")) == [("T",)]
    with another_process(make_live.db, comes) as other:
        assert next(other) == 1


def test_a_look_at_who_lives_that_fails_is_made_again(make_live, caplog):
    Task = make_live(FEATURES)
    make_impatient(make_live.db)
    watch(Task)
    Task.put({})
    with another_process(make_live.db, takes(Task)) as other, make_live.db.connection_context():
        next(other)
        with suppress(KeyError), writing(make_live.db):
            make_live.db.execute_sql("UPDATE xq_session SET ends = ends")
            other.kill()
            eventually(lambda: "the maintenance thread failed" in caplog.text)
            raise KeyError  # nothing is written that would be a reason to look
        eventually(lambda: Task.xq.count("T") == 0)


# fork


@pytest.mark.parametrize("dies", ["parent", "child"])
def test_parent_and_child_prove_each_for_itself_that_they_live(queue, dies):
    watch(queue)
    queue.xq.put_many([{}] * 2)
    fork = multiprocessing.get_context("fork")
    ends = {name: fork.Pipe() for name in ("parent", "child")}

    def follow(name: str) -> None:
        pipe = ends[name][1]
        task = queue.take()
        pipe.send((os.getpid(), task.id))
        with suppress(EOFError):
            pipe.send(getattr(task, pipe.recv())().id)

    def parent() -> Any:
        queue.take().release()  # so there is a session to be inherited
        queue._meta.database.close()
        child = fork.Process(target=follow, args=("child",))
        child.start()
        follow("parent")
        yield

    other = Other(queue._meta.database, parent)
    held = {name: ours.recv() for name, (ours, _) in ends.items()}
    lives = "child" if dies == "parent" else "parent"
    os.kill(held[dies][0], 9)
    eventually(lambda: state(queue, held[dies][1]) == "R")
    look(queue._meta.database)
    assert state(queue, held[lives][1]) == "T"
    ours, _ = ends[lives]
    ours.send("ack")
    assert ours.poll(STUCK)
    assert ours.recv() == held[lives][1]
    other.end()


def test_forks_of_a_process_whose_thread_works_do_not_hang(make_live):
    Task = make_live(FEATURES | {"ttr": 3600})
    watch(Task)

    def busy() -> Any:
        yield
        while True:
            Task.put({}, delay=0)
            for task in Task.xq.take_many(5):
                task.ack()
            yield

    def child() -> Any:
        Task.put({}, delay=0)
        task = Task.take(timeout=0.01)
        yield task is None or task.release().id

    with another_process(make_live.db, busy) as other:
        next(other)
        for _ in range(50):
            other.post(None)
            with another_process(make_live.db, child) as forked:
                assert next(forked)
    assert is_exact(Task)
    assert Task.xq.count("T") == 0


# normal exits

PROGRAM = """
import multiprocessing, os, sys
import peewee as pw
from tests.conftest import DATABASES, SHARED, Maker, live

def work():
    db = pw.{kind}({name!r}, **{params!r})
    Task = live(db)({features!r}, roles={roles!r})
    assert len(Task.xq.take_many(2)) == 2
    return Task

if __name__ == "__main__":
{ends}
"""
ENDS = {
    "the end of the script": "work()",
    "sys.exit": "work(); sys.exit(0)",
    "an exception": "work(); 1 / 0",
    "a thread's end": "import threading; thread = threading.Thread(target=work); thread.start(); thread.join()",
    "a forked child": "multiprocessing.get_context('fork').Process(target=work).start()",
    "a spawned child": "multiprocessing.get_context('spawn').Process(target=work).start()",
    "os.fork": "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nelse: work()",
    "os._exit": "work(); os._exit(3)",
    "the database closed": "work()._meta.database.close()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_gives_its_tasks_back_at_once(make_live, tmp_path, end):
    Task = make_live(FEATURES, roles=OWNERS["role"])
    Task.xq.put_many([{}] * 3)
    script, code = tmp_path / "program.py", ENDS[end]
    named = {"kind": type(make_live.db).__name__, "name": make_live.db.database, "params": make_live.db.connect_params}
    script.write_text(
        PROGRAM.format(**named, features=FEATURES, roles=OWNERS["role"], ends=textwrap.indent(code, "    "))
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run([sys.executable, script], env=env, timeout=PATIENCE).returncode
    if end == "os._exit":  # without a word, as one that is killed
        assert (found, Task.xq.count("T")) == (3, 2)
        assert eventually(Task.take).id == 1
        return
    assert found == (1 if end == "an exception" else 0)
    assert Task.xq.stats().counts["R"] == 3  # and nobody was there to look
    assert Task.xq.sessions() == []


def test_a_process_that_ends_finishes_what_its_thread_is_about(queue):
    def takes_and_looks() -> Any:
        inside, ends = threading.Event(), threading.Event()

        def slowly(task: Any, event: str, source: str, target: str) -> None:
            if event == "died":
                inside.set()
                ends.wait(STUCK)
                ends.clear()
                ends.wait(0.1)  # within which a process that did not care would be gone

        queue.xq.on_change(slowly)
        watch(queue)
        yield
        assert inside.wait(STUCK)
        yield
        ends.set()
        sessions._at_exit()
        os._exit(0)

    with another_process(queue._meta.database, takes_and_looks) as other:
        next(other)
        queue.put({})
        with another_process(queue._meta.database, takes(queue)) as holder:
            next(holder)
            holder.kill()
            next(other)
        with suppress(EOFError):
            next(other)
    assert queue.take() is not None
    assert len(queue.xq.sessions()) == 1, "of this process: nobody is left for the other ones"


# sessions that processes share


def joins(Task: Any) -> Callable[[], Generator[Any, Any, None]]:
    """A script that joins the session it is told, takes a task in it, and leaves."""

    def script() -> Generator[Any, Any, None]:
        uuid = yield
        with Task.xq.session(uuid):
            Task.take()
            yield Task.xq.count("T")
        yield Task.xq.count("T")

    return script


def test_a_session_is_joined_in_a_transaction_that_began_before_it(queue):
    queue.xq.put({})
    with queue._meta.database.atomic():
        assert queue.xq.count("R") == 1  # from here on MariaDB shows what was committed by now
        taken = queue.take()
        mine = sessions.of(queue._meta.database).current()
        assert queue.xq.session(mine.uuid) is mine
    queue.ack(taken)


def test_the_last_process_to_leave_a_session_closes_it(queue):
    queue.xq.put_many([{}] * 5)
    with processes(queue._meta.database, *[joins(queue)] * 4) as others:
        with queue.xq.session() as session:
            queue.take()
            for n, other in enumerate(others):
                next(other)
                assert other.send(session.uuid) == n + 2
        assert queue.xq.count("T") == 5
        assert next(others[0]) == 5
        for other in others[1:]:  # all at once
            other.post(None)
        for other in others[1:]:
            other.hear()
        # Whoever closes it may be the thread that looks after the queue in a process that has left already.
        eventually(lambda: queue.xq.stats().counts == {"R": 5, "T": 0, "B": 0, "W": 0})
        eventually(lambda: session.uuid not in open_sessions(queue))
    with pytest.raises(xq.UnknownSession):
        queue.xq.session(session.uuid)


def test_a_shared_session_lives_as_long_as_one_of_its_processes(queue):
    watch(queue)
    queue.xq.put_many([{}] * 3)
    with processes(queue._meta.database, joins(queue), joins(queue), takes(queue)) as (one, two, canary):
        with queue.xq.session() as session:
            for other in (one, two):
                next(other)
                other.send(session.uuid)
        next(canary)
        one.kill()
        canary.kill()
        eventually(lambda: queue.xq.count("T") == 2)  # so who lives was looked at
        look(queue._meta.database)
        assert queue.xq.count("T") == 2
        two.kill()
        eventually(lambda: queue.xq.count("T") == 0)
    assert transitions(queue) == {"X-R": 3, "R-T": 3, "T-R": 3}


def test_a_session_closed_by_another_process_is_over_and_the_next_take_makes_another(queue):
    queue.xq.put_many([{}] * 2)

    def child() -> Any:
        task = queue.take()
        session = sessions.of(queue._meta.database).current()
        yield session.uuid
        yield queue.xq.count("T")
        with pytest.raises(xq.WrongState):
            task.ack()
        look(queue._meta.database)
        assert session.closed
        assert queue.take().ack().id == 1
        yield sessions.of(queue._meta.database).current().uuid

    with another_process(queue._meta.database, child) as other:
        first = next(other)
        queue.xq.session(first).close()
        assert next(other) == 0
        assert next(other) != first
    assert queue.xq.count("T") == 0
    assert queue.xq.sessions() == []


def test_a_session_that_is_to_end_ends_where_it_has_taken_since_as_well(make_live):
    One, Two = make_live(FEATURES), another(make_live, "two")
    watch(One)
    watch(Two)
    One.put({})
    Two.put({})
    One.xq.configure(session_ttr=3600)

    def child() -> Any:
        One.take()
        yield sessions.of(make_live.db).current().uuid
        yield Two.take() is not None

    with another_process(make_live.db, child) as other:
        One.xq.session(next(other)).close()
        assert next(other)
        make_live.db.execute_sql("UPDATE xq_session SET ends = 1 WHERE ends IS NOT NULL")  # as if the time had passed
        eventually(lambda: (One.xq.count("R"), Two.xq.count("R")) == (1, 1))


# sessions and transactions


def test_a_close_that_is_rolled_back_may_be_done_again(queue):
    queue.xq.put_many([{}] * 2)
    session = queue.xq.session()
    with session:
        queue.take()
        with suppress(KeyError), queue._meta.database.atomic():
            session.close()
            raise KeyError
        assert queue.xq.count("T") == 1
    with suppress(xq.UnknownSession), queue.xq.session(session.uuid):
        pass
    assert queue.xq.count("R") == 2
    assert queue.xq.sessions() == []


def test_a_session_left_within_a_transaction_that_is_rolled_back_ends_all_the_same(queue):
    watch(queue)
    queue.xq.put_many([{}] * 2)
    session = queue.xq.session()
    with suppress(KeyError), queue._meta.database.atomic():
        with session:
            queue.take()
        raise KeyError
    assert queue.xq.count("R") == 2
    eventually(lambda: queue.xq.count("R") == 2)
    eventually(lambda: session.uuid not in open_sessions(queue))


def test_a_queue_whose_table_was_dropped_is_in_no_others_way(make_live):
    Gone = make_live(FEATURES, model=make_live.model(table_name="gone"))
    Task, Late = make_live(FEATURES), make_live(FEATURES, model=make_live.model(table_name="late"))
    for each in (Gone, Task, Late):
        each.put({})
        assert each.take().release()
    with Task.xq.session() as session:
        assert all(each.take() for each in (Gone, Task, Late))
        make_live.db.execute_sql("DROP TABLE gone")
        Gone.xq._database._may_move = (None, False, 0.0)  # as where no sweep has asked yet
    assert (Task.xq.count("R"), Late.xq.count("R")) == (1, 1)
    assert session.uuid not in open_sessions(Task)
    assert Task.take().ack()


def test_who_looks_before_a_session_is_listed_looks_again(make_live, monkeypatch):
    Task = make_live(FEATURES)
    watch(Task)
    Task.put({})
    go, listed = threading.Event(), sessions.Sessions.apart

    def late(self: sessions.Sessions, *statement: Any) -> Any:
        assert go.wait(60)
        return listed(self, *statement)

    def child() -> Any:
        monkeypatch.setattr(sessions.Sessions, "apart", late)
        mine = sessions.of(make_live.db)
        takes = threading.Thread(target=in_threads, args=(make_live.db, Task.take))
        takes.start()
        yield eventually(lambda: bool(mine.liveness and vars(mine.liveness)["_held"]))
        go.set()
        takes.join(60)
        yield "taken"

    with another_process(make_live.db, child) as other:
        assert next(other)
        until = time.monotonic() + 2 * maintenance.LOOK
        eventually(lambda: time.monotonic() > until)  # whoever was told by now has looked
        assert next(other) == "taken"
        other.kill()
        eventually(lambda: Task.xq.count("R") == 1)


# session_ttr


@pytest.mark.parametrize("end", ["is left", "is lost", "is closed by another"])
def test_a_session_keeps_its_tasks_for_its_ttr_and_another_process_may_come_back_to_them_when_it(queue, end):
    watch(queue)
    queue.put({})
    queue.xq.configure(session_ttr=3600)
    with ExitStack() as ends:
        if end == "is left":
            with queue.xq.session() as session:
                queue.take()
            uuid = session.uuid
        else:
            other = ends.enter_context(another_process(queue._meta.database, takes(queue)))
            uuid = next(other)
            other.kill() if end == "is lost" else queue.xq.session(uuid).close()
        look(queue._meta.database)
        assert queue.xq.count("T") == 1

    def child() -> Any:
        with queue.xq.session(uuid):
            yield queue.ack(1).id
        yield

    with another_process(queue._meta.database, child) as other:
        assert next(other) == 1


def test_after_its_ttr_a_lost_session_is_unknown_and_its_tasks_are_ready(queue, caplog):
    caplog.set_level("INFO", "xq")
    watch(queue)
    queue.put({})
    queue.xq.configure(session_ttr=0.2)
    with another_process(queue._meta.database, takes(queue)) as other:
        lost = next(other)
        other.kill()
        eventually(lambda: queue.xq.count("R") == 1)
    with pytest.raises(xq.UnknownSession):
        queue.xq.session(lost)
    assert transitions(queue) == {"X-R": 1, "R-T": 1, "T-R": 1}
    eventually(lambda: f"session {lost}, which was to end, has ended" in caplog.messages)
    gone = [message for message in caplog.messages if message.startswith(f"session {lost} is gone")]
    assert len(gone) == 1
    (pid,) = re.findall(r"is gone, and ends after session_ttr: pid (\d+) on host .+ \(.+\)$", gone[0])
    assert int(pid) != os.getpid()


def test_the_ttr_of_sessions_is_stored_in_the_database(queue):
    def child() -> Any:
        queue.xq.configure(session_ttr=3600)
        yield

    with another_process(queue._meta.database, child) as other:
        next(other)
    queue.put({})
    with queue.xq.session():
        queue.take()
    assert queue.xq.count("T") == 1
    queue.xq.configure(session_ttr=None)
    with queue.xq.session():
        pass
    look(queue._meta.database)
    assert queue.xq.count("T") == 1, "the one that was left earlier keeps the time it was told"


@pytest.mark.parametrize(
    ("value", "error"), [(-1, xq.BadValue), (math.nan, xq.BadValue), (math.inf, xq.BadValue), ("5", xq.BadType)]
)
def test_a_session_ttr_is_a_finite_number_of_seconds(make, value, error):
    Task = make()
    Task.xq.configure(session_ttr=7)
    with pytest.raises(error, match="session_ttr"):
        Task.xq.configure(session_ttr=value)
    assert list(make.db.execute_sql("SELECT value FROM xq_setting")) == [(7.0,)]


def test_a_session_that_is_made_while_who_lives_is_looked_at_is_not_taken_for_an_ended_one(make_live):
    Task = make_live(FEATURES)
    watch(Task)
    Task.put({})
    over = threading.Event()

    def work() -> None:
        try:
            for _ in range(150):
                with Task.xq.session():
                    Task.take().release()
        finally:
            over.set()

    def look_again_and_again() -> None:
        while not over.is_set():
            look(make_live.db)

    in_threads(make_live.db, work, look_again_and_again, look_again_and_again)


@pytest.mark.parametrize("kind", SHARED)
def test_a_database_that_nobody_has_any_more_is_forgotten_and_its_thread_ends(kind, tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "xq")  # what is logged is kept, with whatever it knows
    before = set(threading.enumerate())

    def use() -> weakref.ref[pw.Database]:
        with DATABASES[kind](tmp_path) as db:
            Task = live(db)({"ttr": 60}, roles=("runat",))
            Task.put({})
            Task.take().ack()
            with suppress(xq.NotFound):
                Task.ack(1)
            return weakref.ref(db)

    used = use()
    threads = [thread for thread in set(threading.enumerate()) - before if thread.name == "xq"]
    eventually(lambda: gc.collect() >= 0 and used() is None)
    eventually(lambda: not any(thread.is_alive() for thread in threads))


def test_a_session_that_is_joined_again_in_its_last_moment_keeps_its_tasks(make_live):
    """Its time is over while the transaction that joins it is not yet committed."""
    Task, db = make_live(FEATURES), make_live.db
    watch(Task)
    Task.put({})
    ttr = 7  # longer than it takes to join the session, on a machine that stands still for a while, too
    Task.xq.configure(session_ttr=ttr)
    with another_process(db, takes(Task)) as other:
        lost = next(other)
        other.kill()
    eventually(lambda: db.execute_sql("SELECT 1 FROM xq_session WHERE ends IS NOT NULL").fetchone())
    with writing(db):
        session = Task.xq.session(lost)
        over = time.time() + ttr
        looks = threading.Thread(target=in_threads, args=(db, lambda: look(db)))
        eventually(lambda: time.time() > over)
        looks.start()
        eventually(lambda: time.time() > over + 0.2)  # it waits for this transaction
    looks.join(STUCK)
    with session:
        assert Task.ack(1).id == 1


def test_a_session_that_was_left_to_a_process_which_is_killed_ends(queue, monkeypatch):
    monkeypatch.setattr(liveness, "ORPHANS", float("inf"))  # then who lives is looked at where there is a reason only
    queue.put({})
    with another_process(queue._meta.database, joins(queue)) as other:
        next(other)
        with queue.xq.session() as session:
            assert other.send(session.uuid) == 1
            waiting = waiter(queue, lambda: queue.take(timeout=PATIENCE))
        other.kill()
        eventually(lambda: not waiting.goes_on)
        assert waiting.result().id == 1


# timers


def test_what_is_due_before_anybody_could_look_is_not_left_for_later(make_live, monkeypatch):
    for module, seconds in ((maintenance, "FALLBACK"), (maintenance, "LOOK"), (liveness, "ORPHANS")):
        monkeypatch.setattr(module, seconds, float(LATE))  # else each was left for a second, and then moved
    Task = make_live({"delayed": True})
    watch(Task)
    for n in range(1, 41):
        Task.put({}, delay=0.001)
        seen(Task, "W-R", n)
