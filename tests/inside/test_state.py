"""Tubes whose database may only be read: their state follows it, sweeps rest, calls are refused, and all goes on."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.inside.steps import sleeps
from tests.servers import MariaDB, Postgres, Server
from tests.steps import PATIENCE, STUCK, Work, eventually, in_threads
from tests.support.servers_fail import ONLY_READ
from tests.support.tubes import Rows
from xq.core.ports import ErrorKind
from xq.runtime.threads import threads
from xq.tubes import Tubes
from xq.tubes.state import State

# What is refused, and nothing is changed by: a method of a tube, and its arguments.
OF_TUBE: Sequence[tuple[Any, ...]] = (
    *(
        ("put", "refused"),
        ("take", 0),
        ("take",),
        ("touch", 1, 1),
        ("ack", 1),
        ("release", 1),
        ("peek", 1),
        ("bury", 1),
    ),
    *(("kick",), ("delete", 1), ("release_all",), ("truncate",), ("drop",), ("tasks_by_state", "r")),
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
    of_tube = {name: answers(lambda: getattr(tube, name)(*values)) for name, *values in OF_TUBE}  # noqa: B023
    return {*of_tube.values(), *(answers(lambda call=call: call(queue, tube)) for call in OF_ALL)}  # type: ignore[misc]


def seen(queue: Tubes) -> Any:
    """What can be looked at in any state."""
    queue.cfg(in_replicaset=True)
    return queue.tube(), queue.identify(), {name: tube.statistics()["tasks"] for name, tube in queue.tube.items()}


def state_of(queue: Tubes) -> str:
    """The state, "" while the server does not answer."""
    try:
        return queue.state()
    except pw.PeeweeException:
        return ""


@contextmanager
def closed_at_last(db: Any) -> Iterator[Any]:
    """Within, a database; afterwards nobody looks after it, whose server may be gone."""
    try:
        yield db
    finally:
        db.close()
        if maintenance := threads().get(db):
            maintenance.end()
            maintenance.thread.join(STUCK)


def pauses(db: pw.Database) -> bool:
    """Whether the maintenance thread of a database has paused."""
    return threads()[db].paused


def ready(tube: Any) -> int:
    found: int = tube.statistics()["tasks"]["ready"]
    return found


def in_a_thread(db: pw.Database, work: Callable[[], Any]) -> Any:
    """What this returns in a thread, and so on a connection, of its own."""
    (found,) = in_threads(db, work)
    return found


# the states


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({"only_reads": False, "there": False, "awaited": False, "paused": False}, "RUNNING"),
        ({"only_reads": False, "there": True, "awaited": True, "paused": False}, "RUNNING"),
        ({"only_reads": False, "there": True, "awaited": False, "paused": True}, "STARTUP"),
        ({"only_reads": True, "there": False, "awaited": False, "paused": False}, "INIT"),
        ({"only_reads": True, "there": True, "awaited": True, "paused": True}, "ENDING"),
        ({"only_reads": True, "there": True, "awaited": False, "paused": True}, "WAITING"),
    ],
)
def test_the_state_follows_from_what_is_found(found, state):
    questions = {name: (lambda value=value: value) for name, value in found.items()}
    here = State(questions, lambda error: ErrorKind.NOT_DATABASE)
    assert here.look() == state
    assert answers(here.check) == ("" if state == "RUNNING" else state)


# files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def filled(file: Path) -> Iterator[Any]:
    """The tubes of a file: one with a task, one of a class."""
    with closing(pw.SqliteDatabase(str(file), timeout=20)) as db:
        queue = Tubes(db)
        queue.register_driver("rows", Rows)
        queue.create_tube("tube", "fifottl").put("a")
        queue.create_tube("rows", "rows").put("b")
        yield queue


def for_reading(file: Path) -> pw.SqliteDatabase:
    return pw.SqliteDatabase(f"file:{file}?mode=ro", uri=True)


def test_the_tubes_of_a_file_that_is_opened_for_reading_wait_and_can_be_looked_at(file, filled):
    with closing(for_reading(file)) as db:
        queue = Tubes(db)
        assert queue.state() == "WAITING"
        assert queue.tube() == ["tube"]
        assert refused(queue, queue.tube.tube) == {"WAITING"}
        names, session, tasks = seen(queue)
        assert names == ["tube"]
        assert uuid.UUID(session)
        assert tasks["tube"]["ready"] == 1
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
    assert filled.state() == "WAITING"
    assert refused(filled, tube) == {"WAITING"}
    assert seen(filled) == before
    assert in_a_thread(db, lambda: (filled.state(), tube.put("c").state)) == ("RUNNING", "r")
    db.execute_sql("PRAGMA query_only = 0")
    assert filled.state() == "RUNNING"
    assert tube.put("d").state == "r"


def test_within_a_transaction_of_the_application_the_state_is_told_and_nothing_is_lost(filled):
    tube, db = filled.tube.tube, filled.database
    with db.atomic():
        tube.put("kept")
        db.execute_sql("PRAGMA query_only = 1")
        assert answers(lambda: tube.put("refused")) == "WAITING"
        db.execute_sql("PRAGMA query_only = 0")
        assert filled.state() == "RUNNING"
    assert [task.data for task in tube.tasks_by_state("r")] == ["a", "kept"]


# servers


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that a test may stop."""
    kind = SERVERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with kind() as made:
        yield made


@pytest.fixture
def there(server: Server) -> Iterator[pw.Database]:
    """A database of its own there."""
    name = f"app_{next(_numbers)}"
    server.create(name)
    try:
        with closed_at_last(server.peewee(name)) as db:
            yield db
    finally:
        may_be_written(server, name, True)
        server.drop(name)


_numbers = itertools.count(1)


def may_be_written(server: Server, database: str, yes: bool) -> None:
    """Have a server read only, or no longer."""
    kind = next(name for name, kind in SERVERS.items() if isinstance(server, kind))
    server.run(ONLY_READ[kind][yes].format(name=database))
    if kind == "postgres":
        server.restart()  # it holds for connections that are made from now on


def privileged(server: Server, database: str) -> pw.Database:
    """Somebody to whom the flag does not apply, as to replication."""
    user, _ = server.ADMINISTRATOR
    options = {"options": "-c default_transaction_read_only=off"} if isinstance(server, Postgres) else {"user": user}
    return server.peewee(database, **options)


def replicate(server: Server, database: str) -> None:
    """Bring a task in that is due."""
    with closing(privileged(server, database)) as db:
        model = Tubes(db).tube["tube"].model
        model.insert(data='"late"', runat=time.time() - 60, status="W").execute()


def been_by(db: pw.Database) -> None:
    """Until the thread that looks after a database has looked whether it may be written, and gone on."""
    maintenance = threads()[db]
    asked = maintenance.ask_to_write.next_at
    eventually(lambda: math.inf > maintenance.ask_to_write.next_at > asked)
    with maintenance.working:
        pass


def test_while_a_server_only_reads_calls_are_refused_and_nothing_is_swept_until_it_may_be_written(server, there):
    with closing(privileged(server, there.database)) as db:
        Tubes(db).create_tube("tube", "fifottl")  # on MariaDB triggers have the rights of who made them
    queue: Any = Tubes(there)
    tube = queue.tube.tube
    tube.put("a")
    tube.release(tube.take(0))  # so it is looked after
    may_be_written(server, there.database, False)
    there.close()
    eventually(lambda: state_of(queue) == "WAITING" and pauses(there))
    replicate(server, there.database)
    before = seen(queue)
    assert (before[2]["tube"]["ready"], before[2]["tube"]["delayed"]) == (1, 1)
    assert refused(queue, tube) == {"WAITING"}
    been_by(there)
    assert seen(queue) == before
    may_be_written(server, there.database, True)
    there.close()
    eventually(lambda: state_of(queue) == "RUNNING")
    eventually(lambda: ready(tube) == 2)
    assert not pauses(there)
    assert tube.take(0).data == "a"
    assert tube.model.xq.check() == []


@pytest.mark.parametrize("kind", ["fifottl", "rows"])
def test_who_waits_is_told_when_the_server_begins_to_only_read(server, there, kind):
    queue: Any = Tubes(there)
    queue.register_driver("rows", Rows)
    tube = queue.create_tube("tube", kind)
    waiting = [Work(there, lambda: tube.take(PATIENCE)) for _ in range(2)]
    # A look that a call begins with is refused like any statement: only who sleeps outlives a connection.
    eventually(lambda: tube.is_awaited if kind == "rows" else all(sleeps(one) for one in waiting))
    may_be_written(server, there.database, False)
    for one in waiting:
        try:
            assert answers(one.result) in ("ENDING", "WAITING")
        except pw.PeeweeException:  # a class does not outlive its connection, as queues do
            assert (kind, type(server)) == ("rows", Postgres)
    there.close()
    eventually(lambda: state_of(queue) == "WAITING")


def test_what_a_session_held_that_was_left_while_the_server_only_read_comes_back(server, there):
    queue: Any = Tubes(there)
    tube = queue.create_tube("tube", "fifottl")
    tube.put("a")
    with suppress(pw.PeeweeException), queue.session():
        assert tube.take(0).data == "a"
        may_be_written(server, there.database, False)
    may_be_written(server, there.database, True)
    there.close()
    eventually(lambda: state_of(queue) == "RUNNING")
    eventually(lambda: ready(tube) == 1)


def test_who_may_write_a_replica_all_the_same_does_not():
    if reason := MariaDB.missing():
        pytest.skip(reason)
    with MariaDB() as server:
        server.create("app")
        user, _ = server.ADMINISTRATOR
        with closed_at_last(server.peewee("app", user=user)) as db:
            queue: Any = Tubes(db)
            tube = queue.create_tube("tube", "fifottl")
            waiting = Work(db, lambda: tube.take(PATIENCE))
            eventually(lambda: tube.is_awaited)
            server.run("SET GLOBAL read_only = 1")
            assert answers(waiting.result) in ("ENDING", "WAITING"), "nobody has refused it anything"
            assert queue.state() == "WAITING"
            assert refused(queue, tube) == {"WAITING"}
            eventually(lambda: pauses(db))
            replicate(server, "app")
            been_by(db)
            assert tube.statistics()["tasks"]["delayed"] == 1
            server.run("SET GLOBAL read_only = 0")
            eventually(lambda: queue.state() == "RUNNING")
            assert tube.take(PATIENCE).data == "late"
