"""Tubes whose database may only be read: their state follows it, sweeps rest, calls are refused, and all goes on."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.inside.steps import sleeps
from tests.servers import Postgres, Server
from tests.steps import PATIENCE, STUCK, Work, eventually, in_threads
from tests.support.servers_fail import may_be_written, new_database
from tests.support.servers_fail import server as server
from tests.support.tubes import Rows
from xq.adapters.peewee.connections import database_of
from xq.core.kinds import ErrorKind
from xq.tubes import Tubes
from xq.tubes.state import State

# what is refused, and nothing is changed by: a method of a tube, and its arguments
OF_TUBE: Sequence[tuple[Any, ...]] = (
    *(("put", "refused"), ("take", 0), ("take",), ("touch", 1, 1), ("ack", 1), ("release", 1), ("peek", 1)),
    *(("bury", 1), ("kick",), ("delete", 1), ("release_all",), ("truncate",), ("drop",), ("tasks_by_state", "r")),
)
OF_ALL: Sequence[Callable[[Tubes, Any], Any]] = (
    lambda queue, tube: queue.create_tube("another", "fifo"),
    lambda queue, tube: queue.create_tube(tube.name, "fifo", if_not_exists=True),
    lambda queue, tube: queue.cfg(ttr=10),
    lambda queue, tube: queue.session(),
    lambda queue, tube: queue.identify(uuid.uuid4()),
)


def answers(call: Callable[[], Any]) -> str:
    """The state that a call is refused in; "" when it is not."""
    try:
        call()
    except xq.NotRunning as error:
        return str(error.state)
    return ""


def refused(queue: Tubes, tube: Any) -> set[str]:
    """The states that all calls are refused in."""
    of_tube = {answers(lambda: getattr(tube, name)(*values)) for name, *values in OF_TUBE}  # noqa: B023
    return of_tube | {answers(lambda call=call: call(queue, tube)) for call in OF_ALL}  # type: ignore[misc]


def seen(queue: Tubes) -> Any:
    """What can be looked at in any state."""
    queue.cfg(in_replicaset=True)
    return queue.tube(), queue.identify(), {name: tube.statistics()["tasks"] for name, tube in queue.tube.items()}


@pytest.mark.parametrize(
    ("only_reads", "there", "awaited", "paused", "state"),
    [
        (False, False, False, False, "RUNNING"),
        (False, True, True, False, "RUNNING"),
        (False, True, False, True, "STARTUP"),
        (True, False, False, False, "INIT"),
        (True, True, True, True, "ENDING"),
        (True, True, False, True, "WAITING"),
    ],
)
def test_the_state_follows_from_what_is_found(only_reads, there, awaited, paused, state):
    found = {"only_reads": only_reads, "there": there, "awaited": awaited, "paused": paused}
    questions = {name: (lambda value=value: value) for name, value in found.items()}
    here = State(questions, lambda error: ErrorKind.NOT_DATABASE)
    assert here.look() == state
    assert answers(here.check) == ("" if state == "RUNNING" else state)


# files


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Any]:
    """The tubes of a file: one with a task, one of a class."""
    with closing(pw.SqliteDatabase(str(tmp_path / "app.db"), timeout=20)) as db:
        queue = Tubes(db)
        queue.register_driver("rows", Rows)
        queue.create_tube("tube", "fifottl").put("a")
        queue.create_tube("rows", "rows").put("b")
        yield queue


def test_the_tubes_of_a_file_that_is_opened_for_reading_wait_and_can_be_looked_at(filled):
    with closing(pw.SqliteDatabase(f"file:{filled.database.database}?mode=ro", uri=True)) as db:
        queue = Tubes(db)
        assert queue.state() == "WAITING"
        assert refused(queue, queue.tube.tube) == {"WAITING"}
        names, session, tasks = seen(queue)
        assert (names, tasks["tube"]["ready"]) == (["tube"], 1)
        assert uuid.UUID(session)
        with db.atomic():
            assert queue.state() == "WAITING"
    assert filled.state() == "RUNNING"
    assert filled.tube.tube.take(0).data == "a"


@pytest.mark.parametrize("name", ["tube", "rows"])
def test_a_connection_that_may_only_ask_is_refused_at_once_and_others_are_not(filled, name):
    tube, db = filled.tube[name], filled.database
    assert tube.put("b").state == "r"
    before = seen(filled)
    db.execute_sql("PRAGMA query_only = 1")
    assert answers(lambda: tube.put("refused")) == "WAITING", "it was told a moment ago that it may write"
    assert refused(filled, tube) == {filled.state()} == {"WAITING"}
    assert seen(filled) == before
    assert in_threads(db, lambda: (filled.state(), tube.put("c").state)) == [("RUNNING", "r")]
    db.execute_sql("PRAGMA query_only = 0")
    assert filled.state() == "RUNNING"
    assert tube.put("d").state == "r"


# servers


@pytest.fixture
def there(server: Server) -> Iterator[pw.Database]:
    """A database of its own there, which nobody looks after when the test is over."""
    with new_database(server) as name:
        db = server.peewee(name)
        try:
            yield db
        finally:
            db.close()
            if maintenance := database_of(db).duties:
                maintenance.end()
                maintenance.thread.join(STUCK)
            may_be_written(server, name, True)


def privileged(server: Server, database: str) -> pw.Database:
    """Somebody to whom the flag does not apply, as to replication."""
    user, _ = server.ADMINISTRATOR
    options = {"options": "-c default_transaction_read_only=off"} if isinstance(server, Postgres) else {"user": user}
    return server.peewee(database, **options)


def becomes(queue: Tubes, state: str) -> None:
    """Wait for a state, while the server may not answer."""
    queue.database.close()

    def is_so() -> bool:
        try:
            return queue.state() == state
        except pw.PeeweeException:
            return False

    eventually(is_so)


def test_while_a_server_only_reads_calls_are_refused_and_nothing_is_swept_until_it_may_be_written(server, there):
    with closing(privileged(server, there.database)) as db:
        Tubes(db).create_tube("tube", "fifottl")  # on MariaDB triggers have the rights of who made them
    queue: Any = Tubes(there)
    tube = queue.tube.tube
    tube.put("a")
    tube.release(tube.take(0))  # so it is looked after
    may_be_written(server, there.database, False)
    becomes(queue, "WAITING")
    maintenance: Any = database_of(there).duties
    eventually(lambda: maintenance.paused)
    with closing(privileged(server, there.database)) as db:  # a task that is due
        Tubes(db).tube["tube"].model.insert(data='"late"', runat=time.time() - 60, status="W").execute()
    before = seen(queue)
    assert (before[2]["tube"]["ready"], before[2]["tube"]["delayed"]) == (1, 1)
    assert refused(queue, tube) == {"WAITING"}
    asked = maintenance.read_records.next_at
    eventually(lambda: math.inf > maintenance.read_records.next_at > asked)  # the thread has looked again
    with maintenance.working:
        assert seen(queue) == before
    may_be_written(server, there.database, True)
    becomes(queue, "RUNNING")
    eventually(lambda: tube.statistics()["tasks"]["ready"] == 2)
    assert not maintenance.paused
    assert tube.take(0).data == "a"
    assert tube.model.xq.check() == []


def test_who_waits_is_told_when_the_server_begins_to_only_read(server, there):
    queue: Any = Tubes(there)
    tube = queue.create_tube("tube", "fifottl")
    waiting = [Work(there, lambda: tube.take(PATIENCE)) for _ in range(2)]
    # A look that a call begins with is refused like any statement: only who sleeps outlives a connection.
    eventually(lambda: all(map(sleeps, waiting)))
    may_be_written(server, there.database, False)
    assert {answers(one.result) for one in waiting} <= {"ENDING", "WAITING"}
    becomes(queue, "WAITING")
