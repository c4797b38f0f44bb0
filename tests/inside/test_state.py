"""Tubes whose database may only be read: their state follows it, sweeps rest, calls are refused, and all goes on."""

from __future__ import annotations

import itertools
import math
import os
import re
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.inside.steps import sleeps
from tests.servers import MariaDB, Postgres, Server
from tests.steps import PATIENCE, STUCK, Work, another_process, eventually, in_threads
from tests.support.servers_fail import ONLY_READ, Standby
from tests.support.tubes import Rows
from xq.core.ports import ErrorKind
from xq.runtime.threads import threads
from xq.tubes import Tubes
from xq.tubes.state import LOOK, STATES, State

NOBODY = 65534
SOON = 0.5  # seconds of a delay

# What is refused, and nothing is changed by.
CALLS: Mapping[str, Callable[[Tubes, Any], Any]] = {
    "put": lambda queue, tube: tube.put("refused"),
    "take": lambda queue, tube: tube.take(0),
    "take, waiting": lambda queue, tube: tube.take(),
    "touch": lambda queue, tube: tube.touch(1, 1),
    "ack": lambda queue, tube: tube.ack(1),
    "release": lambda queue, tube: tube.release(1),
    "peek": lambda queue, tube: tube.peek(1),
    "bury": lambda queue, tube: tube.bury(1),
    "kick": lambda queue, tube: tube.kick(),
    "delete": lambda queue, tube: tube.delete(1),
    "release_all": lambda queue, tube: tube.release_all(),
    "truncate": lambda queue, tube: tube.truncate(),
    "drop": lambda queue, tube: tube.drop(),
    "tasks_by_state": lambda queue, tube: tube.tasks_by_state("r"),
    "create_tube": lambda queue, tube: queue.create_tube("another", "fifo"),
    "create_tube, if_not_exists": lambda queue, tube: queue.create_tube(tube.name, "fifo", if_not_exists=True),
    "cfg": lambda queue, tube: queue.cfg(ttr=10),
    "session": lambda queue, tube: queue.session(),
    "identify, as another": lambda queue, tube: queue.identify(uuid.uuid4()),
}


def answers(call: Callable[[], Any]) -> str:
    """The state that a call is refused in; "" when it is not."""
    try:
        call()
    except xq.NotRunning as error:
        return str(error.state)
    return ""


def refused(queue: Tubes, tube: Any) -> set[str]:
    """The states that all calls are refused in."""
    return {answers(lambda call=call: call(queue, tube)) for call in CALLS.values()}  # type: ignore[misc]


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


def test_the_error_names_the_state_and_says_why():
    for state in set(STATES) - {"RUNNING"}:
        assert re.search(rf"{state}, not RUNNING: .*(read|written)", str(xq.NotRunning(state)))


def test_there_are_the_five_states_of_the_classic_tubes():
    assert set(STATES) == {"INIT", "STARTUP", "RUNNING", "ENDING", "WAITING"}


def test_a_database_without_tubes_that_may_be_written_is_running(db):
    queue = Tubes(db)
    assert queue.state() == "RUNNING"
    assert queue.tube() == []
    queue.create_tube("tube", "fifo").put("a")
    assert queue.state() == "RUNNING"


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


def test_a_file_without_tubes_that_is_opened_for_reading_is_at_its_beginning(file):
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE other (id)")
    with closing(for_reading(file)) as db:
        queue = Tubes(db)
        assert queue.state() == "INIT"
        assert queue.tube() == []
        assert answers(lambda: queue.create_tube("tube", "fifo")) == "INIT"
        assert uuid.UUID(queue.identify())


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


def test_to_ask_for_the_state_locks_nobody_out(filled):
    db = filled.database
    with closing(sqlite3.connect(db.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert in_a_thread(db, filled.state) == "RUNNING"
        other.execute("ROLLBACK")


def test_a_user_who_may_not_write_the_file_is_told_so():
    with tempfile.TemporaryDirectory() as made, closing(pw.SqliteDatabase(f"{made}/app.db", timeout=20)) as db:
        os.chmod(made, 0o755)
        queue: Any = Tubes(db)
        tube = queue.create_tube("tube", "fifo")
        tube.put("a")
        tube.release(tube.take(0))  # by which the file stays open: else who may not write could not even read it

        def stranger():
            if os.geteuid() == 0:
                os.setuid(NOBODY)  # what the modes say does not hold for root
            yield queue.state(), refused(queue, tube), seen(queue)[2]["tube"]["ready"]

        def owner():
            if os.geteuid() == 0:
                for file in Path(made).iterdir():
                    os.chown(file, NOBODY, NOBODY)
                os.setuid(NOBODY)
            assert queue.state() == "RUNNING"  # and the connection stays
            for file in Path(made).iterdir():
                file.chmod(0o444)
            yield queue.state(), answers(lambda: tube.put("refused"))

        for file in Path(made).iterdir():
            file.chmod(0o444)
        with another_process(db, stranger) as other:
            assert next(other) == ("WAITING", {"WAITING"}, 1)
        for file in Path(made).iterdir():
            file.chmod(0o644)
        with another_process(db, owner) as other:
            assert next(other) == ("WAITING", "WAITING")
        for file in Path(made).iterdir():
            file.chmod(0o644)
        assert queue.state() == "RUNNING"
        assert tube.take(0).data == "a"


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


def test_who_waits_for_room_is_told_when_the_server_begins_to_only_read(server, there):
    queue: Any = Tubes(there)
    tube = queue.create_tube("tube", "limfifottl", capacity=1)
    tube.put("a")
    waiting = Work(there, lambda: tube.put("b", timeout=PATIENCE))
    eventually(lambda: tube.is_awaited)
    may_be_written(server, there.database, False)
    if isinstance(server, MariaDB):
        assert answers(waiting.result) in ("ENDING", "WAITING")
    there.close()
    eventually(lambda: state_of(queue) == "WAITING")


def test_who_waits_outlives_a_server_that_cannot_be_asked_for_a_while(server, there):
    queue: Any = Tubes(there)
    tube = queue.create_tube("tube", "fifottl")
    waiting = Work(there, lambda: tube.take(PATIENCE))
    eventually(lambda: tube.is_awaited)
    server.stop()
    until = time.monotonic() + 2 * LOOK
    tube.model.xq._waiting.wake_all()
    eventually(lambda: time.monotonic() > until)
    tube.model.xq._waiting.wake_all()
    server.start()
    there.close()
    eventually(lambda: state_of(queue) == "RUNNING")
    tube.put("a")
    assert waiting.result().data == "a"


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


def test_a_process_that_only_puts_is_refused_at_once(server, there):
    queue: Any = Tubes(there)
    tube = queue.create_tube("tube", "fifo")
    tube.put("a")
    may_be_written(server, there.database, False)
    there.close()
    eventually(lambda: state_of(queue) == "WAITING")
    assert answers(lambda: tube.put("b")) == "WAITING"
    may_be_written(server, there.database, True)
    there.close()
    eventually(lambda: state_of(queue) == "RUNNING")
    assert tube.put("b").id > 1


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


def test_a_standby_begins_waits_and_runs_when_it_is_promoted():
    if reason := Postgres.missing():
        pytest.skip(reason)
    with Postgres() as primary:
        primary.create("app")
        with (
            closing(primary.peewee("app")) as db,
            Standby(primary) as standby,
            closed_at_last(standby.peewee("app")) as there,
        ):
            queue: Any = Tubes(there)
            eventually(lambda: state_of(queue) == "INIT")
            assert answers(lambda: queue.create_tube("tube", "fifottl")) == "INIT"
            made: Any = Tubes(db)
            tube = made.create_tube("tube", "fifottl")
            tube.put("a")
            tube.put("late", delay=SOON)
            assert made.state() == "RUNNING"
            eventually(
                lambda: (
                    state_of(queue) == "WAITING" and queue.tube() == ["tube"] and seen(queue)[2]["tube"]["total"] == 2
                )
            )
            assert refused(queue, queue.tube.tube) == {"WAITING"}
            db.close()
            primary.stop("immediate")
            assert queue.state() == "WAITING"
            standby.run("SELECT pg_promote()")
            eventually(lambda: state_of(queue) == "RUNNING")
            assert queue.tube.tube.take(0).data == "a"
            assert queue.tube.tube.take(PATIENCE).data == "late"
            assert queue.tube.tube.model.xq.check() == []


def test_one_who_asks_wakes_the_thread_that_rests(db_of_a_file):
    queue, db = db_of_a_file
    tube = queue.create_tube("tube", "fifottl")
    assert tube.take(0) is None
    maintenance = threads()[db]
    with maintenance.working:
        maintenance.paused = True  # as if it had been told that the file may not be written
        states = [queue.state()]
        assert answers(lambda: tube.take(0)) == "STARTUP"
    assert states == ["STARTUP"]
    eventually(lambda: queue.state() == "RUNNING")
    assert tube.take(0) is None


@pytest.fixture
def db_of_a_file(file: Path) -> Iterator[Any]:
    with closing(pw.SqliteDatabase(str(file), timeout=20)) as db:
        yield Tubes(db), db
