"""Whose tasks are whose while processes come and go: fork, exit, kill -9, SIGSTOP, shared sessions."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import xq
from tests.inside.steps import look
from tests.steps import PATIENCE, STUCK, Other, another_process, eventually, fail_for, processes, state, transitions
from tests.support.life import FEATURES, die, takes, watch
from xq.adapters.peewee.connections import database_of


@pytest.fixture
def queue(make_live):
    return make_live(FEATURES, roles=("runat",))


def open_sessions(Task: Any) -> list[str]:
    return [uuid for uuid, _ in Task.xq.sessions()]


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


# normal exits

PROGRAM = """
import multiprocessing, threading
import peewee as pw
from tests.conftest import live

def work():
    db = pw.{kind}({name!r}, **{params!r})
    Task = live(db)({features!r})
    assert len(Task.xq.take_many(2)) == 2
    return Task

if __name__ == "__main__":
    {ends}
"""
ENDS = {
    "the end of the script": "work()",
    "an exception": "work(); 1 / 0",
    "a thread's end": "threading.Thread(target=work).start()",
    "a forked child": "multiprocessing.get_context('fork').Process(target=work).start()",
    "a spawned child": "multiprocessing.get_context('spawn').Process(target=work).start()",
    "the database closed": "work()._meta.database.close()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_gives_its_tasks_back_at_once(make_live, tmp_path, end):
    Task = make_live(FEATURES)
    Task.xq.put_many([{}] * 3)
    named = {"kind": type(make_live.db).__name__, "name": make_live.db.database, "params": make_live.db.connect_params}
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(**named, features=FEATURES, ends=ENDS[end]))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, script], env=env, timeout=PATIENCE).returncode == (end == "an exception")
    assert Task.xq.stats().counts["R"] == 3  # and nobody was there to look
    assert Task.xq.sessions() == []


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


def test_the_last_process_to_leave_a_session_closes_it(queue):
    queue.xq.put_many([{}] * 5)
    with processes(queue._meta.database, *[joins(queue)] * 4) as others:
        with queue.xq.session() as session:
            queue.take()
            for other in others:
                next(other)
                other.send(session.uuid)
        assert queue.xq.count("T") == 5
        assert next(others[0]) == 5
        for other in others[1:]:  # all at once
            other.post(None)
        for other in others[1:]:
            other.hear()
        # Whoever closes it may be the thread that looks after the queue in a process that has left already.
        eventually(lambda: queue.xq.stats().counts == {"R": 5, "T": 0, "B": 0, "W": 0})
        eventually(lambda: session.uuid not in open_sessions(queue))


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
        ((_, first, _),) = queue.xq.taken()
        yield first
        with pytest.raises(xq.WrongState):
            task.ack()
        look(queue._meta.database)
        assert queue.take().ack().id == 1
        yield open_sessions(queue)

    with another_process(queue._meta.database, child) as other:
        first = next(other)
        queue.xq.session(first).close()
        assert queue.xq.count("T") == 0
        assert first not in next(other)
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
    eventually(lambda: session.uuid not in open_sessions(queue))


def test_tasks_of_more_than_a_batch_of_dead_sessions_are_ready_but_for_one_that_the_database_keeps(queue):
    watch(queue)
    fail_for(queue, "NEW.id = 1 AND NEW.status = 'R'")  # before they die: the maintenance thread reaps at any time
    die(queue.xq, 250)
    eventually(lambda: queue.xq.count("R") == 249)
    assert [task.id for task in queue.xq.by_state("T")] == [1]
    own = database_of(queue._meta.database).sessions.own()
    eventually(lambda: [uuid for uuid, _ in queue.xq.sessions()] == [own.uuid])


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
    (gone,) = [message for message in caplog.messages if message.startswith(f"session {lost} is gone")]
    assert f"pid {other.pid} on host" in gone
