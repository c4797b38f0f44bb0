"""Servers that are away, only read or have another clock: nothing is lost, and all go on."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS, Maker, live
from tests.servers import Server
from tests.steps import PATIENCE, another_process, eventually, forked, is_exact, of_kind, waiter
from tests.support.servers_fail import Standby, may_be_written, new_database, own
from tests.support.servers_fail import server as server

FEATURES = {"keep": True, "delayed": True}


@pytest.fixture
def make(server: Server) -> Iterator[Maker]:
    """Makes queues on a database of its own there."""
    with new_database(server) as name, closing(server.peewee(name)) as db:
        yield live(db)


def refused(call: Callable[[], Any]) -> pw.PeeweeException | None:
    """What the database says to a call, None where it does it."""
    try:
        call()
    except pw.PeeweeException as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_workers_outlive_a_server_that_is_away_and_lose_no_task(server, make, kind):
    Task = make(FEATURES)

    def work(task: Any) -> None:
        time.sleep(0.02)  # so that the server ends under a function, an ack and a take

    Task.xq.worker(kind=kind, workers=2)(of_kind(kind, work))
    Task.xq.put_many([{}] * 100)
    program = forked(make.db, Task.xq.run)
    try:
        eventually(lambda: Task.xq.count("D") > 10)
        make.db.close()
        server.stop()
        program.join(2)  # the workers ask the database again each second
        assert program.is_alive()
        server.start()
        eventually(lambda: Task.xq.count("D") == 100)
        program.terminate()
        program.join(PATIENCE)
        assert program.exitcode == 0
    finally:
        program.kill()
    assert is_exact(Task)


def test_calls_fail_while_the_server_is_down_and_after_it_what_is_due_is_moved_and_who_waits_is_told(server, make):
    Task = make(FEATURES)
    assert Task.take() is None  # so it is looked after
    Task.put({}, delay=0.5)
    due = time.monotonic() + 0.5
    waiting = waiter(Task, lambda: Task.wait(1, PATIENCE))
    server.stop()
    for call in (Task.put, Task.xq.kill):
        with pytest.raises(pw.PeeweeException):
            call({"id": 1})
        told = [Task.xq.health(), asyncio.run(Task.xq.aio.health())]
        assert [(each.state, each.usable) for each in told] == [("unreachable", False)] * 2
    eventually(lambda: time.monotonic() > due)
    server.start()
    eventually(lambda: Task.xq.count("R") == 1)
    # For a moment the row is that of the one who waits, and begins to anew: a take passes it by.
    assert Task.take(timeout=PATIENCE).ack().id == 1
    assert waiting.result()[1]


def test_what_a_restart_of_the_server_releases_is_an_outage_and_no_death(server, make):
    Task = make({**FEATURES, "history": True})

    def takes() -> Generator[int, Any, None]:
        yield Task.take().id

    Task.put({})
    assert Task.take().id == 1
    server.restart()
    assert eventually(lambda: not refused(Task.xq.count) and Task.xq.count("R") == 1)
    with another_process(make.db, takes) as other:
        assert next(other) == 1
        other.kill()
    assert eventually(lambda: Task.xq.count("R") == 1)
    assert [each.event for each in Task.xq.history(1)] == ["put", "take", "outage", "take", "died"]


# servers that only read

READS: dict[str, Callable[[Any], Any]] = {
    "stats": lambda Task: Task.xq.stats().counts["R"],
    "count": lambda Task: Task.xq.count("R"),
    "peek": lambda Task: Task.xq.peek(1).status,
    "by_state": lambda Task: [task.id for task in Task.xq.by_state("R")],
    "history": lambda Task: len(list(Task.xq.history(key=1))),
    "sessions, taken": lambda Task: (Task.xq.sessions(), Task.xq.taken()),
    "check": lambda Task: Task.xq.check(),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "put_many": lambda Task: Task.xq.put_many([{}] * 2),
    "take": lambda Task: Task.take(),
    "take, waiting": lambda Task: Task.take(timeout=0.05),
    "wait": lambda Task: Task.wait(1, 0.05),
    "kill": lambda Task: Task.kill(1),
    "truncate": lambda Task: Task.xq.truncate(),
    "session": lambda Task: Task.xq.session(),
}


def only_reads(Task: Any) -> bool:
    """Whether what reads works, and what writes is refused by the database and changes nothing."""
    before = {name: read(Task) for name, read in READS.items()}
    for name, write in WRITES.items():
        with pytest.raises(pw.PeeweeException, match="read|recovery"):
            write(Task)
        assert {name: read(Task) for name, read in READS.items()} == before, name
    return bool(before["count"] == 1)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_standby_can_be_read_and_when_it_is_promoted_the_same_process_works_on(kind):
    with own(SERVERS[kind]) as primary, closing(primary.peewee("app")) as db:
        Task = live(db)(FEATURES | {"history": True})
        Task.xq.put_many([{}] * 2)
        held = Task.take()
        with Standby(primary) as standby, closing(standby.peewee("app")) as there:
            Task.bind(there)
            eventually(lambda: refused(lambda: Task.xq.count("R")) is None)
            assert only_reads(Task)
            primary.stop("immediate")
            standby.run("SELECT pg_promote()")
            # What is held comes back before the first take, or after it: its process has its link on the other server.
            assert {Task.take(timeout=PATIENCE).ack().id for _ in range(2)} == {held.id, held.id + 1}
            assert is_exact(Task)


def test_a_server_that_begins_to_only_read_can_be_read_and_all_go_on_when_it_may_be_written_again(server, make):
    Task = make(FEATURES | {"history": True})
    assert Task.take() is None  # so it is looked after
    Task.put({})
    may_be_written(server, make.db.database, False)
    make.db.close()
    eventually(lambda: refused(lambda: Task.xq.count("R")) is None)
    assert only_reads(Task)
    may_be_written(server, make.db.database, True)
    make.db.close()
    assert eventually(Task.take).ack().status == "D"
    assert is_exact(Task)


@pytest.mark.parametrize("hours", [-5, 5])
def test_times_go_by_the_clock_of_the_server_whatever_the_client_believes(make, monkeypatch, hours):
    there = time.time
    monkeypatch.setattr("xq.core.time.time", lambda: there() + hours * 3600)
    Task = make(FEATURES | {"ttl": True, "ttr": True})
    Task.put({}, delay=3600)
    put = Task.put({}, ttl=3600)
    taken = Task.take(ttr=3600)
    assert taken.id == put.id
    ((_, _, since),) = Task.xq.taken()
    ((_, told),) = Task.xq.sessions()
    assert abs(since - told) < 60
    assert re.fullmatch(r"its ttr ends in (5\d(\.\d)?|60) min.*", Task.xq.why(taken)[-1])
    Task.release(taken)
    Task.take(ttr=1)
    soon = Task.put({}, delay=1)
    eventually(lambda: {task.id for task in Task.xq.by_state("R")} == {taken.id, soon.id})
    assert Task.xq.count("W") == 1
    assert is_exact(Task)
