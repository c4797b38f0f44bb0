"""SQLite's files when things go wrong, and the history, whose rows are the counters."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.inside.steps import look
from tests.steps import (
    PATIENCE,
    STUCK,
    Work,
    another_process,
    eventually,
    install_anew,
    is_exact,
    processes,
    state,
    transitions,
)
from tests.support.life import FEATURES, takes, watch
from tests.support.wait import SOON
from xq.adapters.peewee.connections import database_of
from xq.database import duties
from xq.sql import file_liveness, file_notifier
from xq.sql.sqlite import sqlite_objects
from xq.workers.attempt import STAYS, RetriedCalls

IN_MEMORY = True  # the tests of the history run on a database in memory as well

opened: WeakSet[pw.Database] = WeakSet()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "app.db"
    for db in list(opened):
        db.close()


def queue_on(path: Path | str, features: Any = FEATURES, **options: Any) -> Any:
    """A queue on a file, by a database object of its own."""
    db = pw.SqliteDatabase(str(path), timeout=20, **options)
    opened.add(db)
    with db.connection_context():
        return live(db)(features, roles=("runat", "priority", "deadline"))


def locks(path: Path) -> Path:
    return path.with_name(path.name + "-xq")


# files at rest


@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_process_that_rests_with_the_files_wakes_by_a_commit_of_another_program(path, monkeypatch, system):
    if system == "macOS":  # without inotify the process polls
        monkeypatch.setattr(file_notifier, "ctypes", SimpleNamespace(CDLL=lambda *_, **__: object()))
    monkeypatch.setattr(file_notifier, "QUIET", 0.0)
    monkeypatch.setattr(duties, "REST", PATIENCE)
    Task, Other = queue_on(path), queue_on(path)
    found = [Work(Task._meta.database, lambda: Task.take(timeout=PATIENCE).id) for _ in range(2)]
    mine = eventually(lambda: Task.xq.parts.store.database.duties)  # tests before this one have left others
    eventually(lambda: mine._rests and mine.expire.next_at > time.monotonic() + STUCK)
    put = {Other.put(task()).id, Other.put(task(), delay=SOON).id}
    assert {each.result() for each in found} == put


def test_a_file_is_not_at_rest_before_a_write_of_the_last_seconds_must_be_visible(path, monkeypatch):
    Task = queue_on(path)
    notifier, written = file_notifier.FileNotifier([str(path)], ()), time.time()
    for seconds, rests in ((4.0, False), (6.0, True)):
        monkeypatch.setattr("xq.core.time.time", lambda after=seconds: written + after)
        notifier.has_changed(Task.xq.parts.store, notified=False)
        assert notifier.at_rest is rests


# the file of the locks


def test_a_lock_file_that_is_deleted_is_made_anew_and_no_living_process_loses_a_task(path, monkeypatch):
    monkeypatch.setattr(file_liveness, "YOUNG", 6.0)  # the time to lock the new one, be the machine slow
    Task = queue_on(path)
    watch(Task)
    Task.xq.put_many([{}] * 3)
    with processes(Task._meta.database, takes(Task), takes(Task)) as (lives, dies):
        next(lives)
        next(dies)
        ours = Task.take()
        locks(path).unlink()
        proof = database_of(Task._meta.database).liveness
        assert proof is not None
        assert not proof.renew()  # the new one is young
        look(Task._meta.database)
        assert Task.xq.count("T") == 3
        dies.kill()
        eventually(lambda: Task.xq.count("T") == 2)
        assert len(lives.send("ack")) == 1
    assert ours.ack()
    assert Task.xq.count("T") == 0


def test_a_copy_of_a_database_knows_that_nobody_of_the_original_lives_in_it(path):
    Task = queue_on(path)
    Task.xq.put_many([{}] * 2)
    taken = Task.take()
    copied = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copied)) as target:
        source.backup(target)
    Copy = queue_on(copied)
    assert {Copy.take().id, eventually(Copy.take).id} == {1, 2}  # 2 first, unless this process was slow to take
    assert state(Task, 1) == "T"
    assert taken.ack()


@pytest.mark.parametrize("what", ["the folder", "the file"])
def test_a_lock_file_that_may_not_be_written_is_told_by_name(what):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Task = queue_on(folder / "app.db")
        Task.put({})
        if what == "the file":
            locks(folder / "app.db").touch()
        for file in folder.iterdir():
            file.chmod(0o444 if file.name.endswith("-xq") else 0o666)

        def child() -> Any:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write anywhere
            named = "this file, and the database" if what == "the file" else what
            with pytest.raises(xq.ConfigurationError, match=rf"app.db-xq.* The user \w+ must be able to write {named}"):
                Task.take()
            yield Task.xq.count("R")

        with closing(sqlite3.connect(folder / "app.db")) as reader:
            reader.execute("SELECT * FROM task").fetchall()  # so SQLite's own files are there
            folder.chmod(0o555)
            try:
                with another_process(Task._meta.database, child) as other:
                    assert next(other) == 1
            finally:
                folder.chmod(0o755)


def test_two_database_objects_on_one_file_have_a_session_each_and_closing_one_leaves_the_other_its_proof(path):
    One, Two = queue_on(path), queue_on(path)
    One.xq.put_many([{}] * 2)
    ours, theirs = One.take(), Two.take()
    with pytest.raises(xq.NotOwner):
        One.ack(theirs.id)
    database_of(One._meta.database).sessions.own()
    database_of(Two._meta.database).sessions.own().close()
    assert One.xq.count("T") == 1

    def child() -> Any:
        assert One.take().id == theirs.id
        look(One._meta.database)
        yield One.xq.count("T")

    Two._meta.database.close()
    with another_process(One._meta.database, child) as other:
        assert next(other) == 2
    assert ours.ack()


@pytest.mark.parametrize("road", ["link", "relative", "uri"])
def test_whatever_road_leads_to_a_file_its_sessions_are_seen(path, monkeypatch, road):
    Task = queue_on(path)
    Task.xq.put_many([{}] * 2)
    taken = Task.take()
    (path.parent / "link.db").symlink_to(path)
    monkeypatch.chdir(path.parent)
    roads = {"link": "link.db", "relative": "./app.db", "uri": f"file:{path}?cache=private"}
    Other = queue_on(roads[road], uri=road == "uri")
    with another_process(Other._meta.database, takes(Other)) as other:
        next(other)
        look(Task._meta.database)
        assert Task.xq.count("T") == 2
        other.kill()
        eventually(lambda: Task.xq.count("T") == 1)
    assert taken.ack()


def test_what_a_child_inherits_of_the_thread_writes_into_none_of_its_files(tmp_path):
    Task = queue_on(tmp_path / "app.db")
    watch(Task)
    Task._meta.database.close()
    child = os.fork()
    if child == 0:
        try:
            files = [os.open(tmp_path / f"{n}.txt", os.O_CREAT | os.O_WRONLY) for n in range(30)]  # by free numbers
            Task._meta.database = None
            del Task
            gc.collect()
        finally:
            os._exit(len(files) - 30)
    assert os.waitpid(child, 0)[1] == 0
    assert {file.stat().st_size for file in tmp_path.glob("*.txt")} == {0}


def test_what_a_child_commits_stays_when_its_parent_closes_its_last_connection(path):
    Task = queue_on(path)

    def puts() -> Generator[Any, Any, None]:
        while True:
            yield Task.put({}).id

    watch(Task)
    maintenance: Any = database_of(Task._meta.database).duties
    eventually(lambda: maintenance._connection)
    with another_process(Task._meta.database, puts) as child:
        next(child)
        maintenance.end()
        maintenance.thread.join(STUCK)
        next(child)
        assert Task.xq.count("R") == 2


# the file cannot grow

TIMED = {"ttr": 60, "delayed": True, "history": True}
# calls that write, given a queue, the key of a ready task and a taken one
WRITES: list[Callable[[Any, Any, Any], Any]] = [
    lambda Task, ready, taken: Task.xq.put_many(tasks(3)),
    lambda Task, ready, taken: Task.take(),
    lambda Task, ready, taken: Task.xq.ack_many([taken]),
    lambda Task, ready, taken: Task.ack(taken),
    lambda Task, ready, taken: Task.kill(ready),
]


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Within, no file of this process may grow by more than 60 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 60_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Interrupted(sqlite3.Cursor):
    def fetchall(self) -> list[Any]:
        raise KeyboardInterrupt


def test_a_call_that_is_interrupted_before_its_rows_are_read_keeps_no_later_one_from_its_commit(path):
    Task = live(pw.SqliteDatabase(path))({})
    Task.put(task())
    connection = Task.xq.parts.store.ready()
    plain, connection.cursor, connection.idle = connection.cursor, lambda: Interrupted(connection.raw), None
    with pytest.raises(KeyboardInterrupt) as kept:  # as a shell keeps the last error, with its frames
        Task.put(task())
    connection.cursor = plain
    last = Task.put(task())
    with closing(sqlite3.connect(path)) as other:
        assert (last.id,) in other.execute("SELECT id FROM task").fetchall(), kept


@pytest.mark.parametrize("n", [1, 30])
def test_on_a_full_disk_a_call_is_done_or_fails_and_later_all_go_on(path, n):
    Task = queue_on(path, TIMED)

    def until_full() -> int:
        """How many could be put, `n` at a time."""
        put = 0
        with suppress(pw.OperationalError):
            while True:
                put += len(Task.xq.put_many(tasks(n, name="x" * 500)))
        return put

    def child():
        Task.xq.put_many(tasks(4))
        taken, ready = Task.take(), Task.xq.by_state("R", 1)[0].id
        late = Task.put(task(), delay=0.2)
        errors: set[str] = set()
        with full_disk(path.parent):
            before = Task.xq.count()
            put = until_full()
            assert Task.xq.count() == before + put
            for write in WRITES:
                written = Task.xq.history()
                try:
                    write(Task, ready, taken)
                except pw.OperationalError as error:
                    errors.add(str(error))
                    # The thread that keeps time may just have moved what was due.
                    assert {row.event for row in Task.xq.history()[len(written) :]} <= {"delay"}
                except (xq.WrongState, xq.NotFound):
                    pass  # one before was done
            assert is_exact(Task)
        eventually(lambda: state(Task, late) == "R")
        assert Task.take()
        yield errors, is_exact(Task)

    with another_process(Task._meta.database, child) as other:
        assert next(other) == ({"disk I/O error"}, True), "the first error, and not one that follows from it"
    eventually(lambda: len(Task.xq.history()) == sum(transitions(Task).values()))


# the history


@pytest.fixture
def db(sqlite_db):
    return sqlite_db


def test_the_numbers_stay_when_rows_are_added_up_and_pruned_and_the_history_is_switched_off_and_on(make, monkeypatch):
    monkeypatch.setattr(sqlite_objects, "ADD_UP", 3)
    Task = make({"buried": True, "history": 10}, roles=("runat", "tube"), tube_stats=["a"])

    def numbers() -> Any:
        found = Task.stats()
        return [(of.counts, {move: n for move, n in of.transition.items() if n}) for of in (found, found.tube["a"])]

    Task.xq.put_many(tasks(5, tube="a"))
    Task.take().bury()
    with suppress(KeyError), make.db.atomic():
        make.db.execute_sql("DELETE FROM task_xq_history")
        Task.xq.put_many(tasks(4, tube="a"))
        raise KeyError
    before = numbers()
    assert before[0] == before[1] == ({"R": 4, "T": 0, "B": 1}, {"X-R": 5, "R-T": 1, "T-B": 1})
    Task.xq.clock.tick(100)
    Task.xq.sweep()
    assert Task.xq.History.select().count() == 1
    assert numbers() == before
    for more in ({}, {"history": True}, {"history": True, "limit": 9}, {"history": True}):
        install_anew(Task, {"buried": True, **more}, drop_history=True, downgrade=True)
        assert numbers() == before
        assert Task.xq.check() == []
    Task.put(task(tube="a"))
    assert [moves["X-R"] for _, moves in numbers()] == [6, 6]
    Task.xq.History.delete().where(Task.xq.History.id % 2 == 0).execute()
    assert Task.xq.check() == []


def test_a_program_that_ends_by_itself_ends_with_an_unknown_error_that_stays(sqlite_db):
    Task, stop = Maker(sqlite_db)(), type("NoPause", (), {"wait": lambda self, seconds: None})()
    ends, goes_on = (RetriedCalls(Task.xq.parts.named, stop, ends=ends) for ends in (True, False))
    ((pages,),) = sqlite_db.execute_sql("PRAGMA page_count").fetchall()
    sqlite_db.execute_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(pw.OperationalError, match="full") as full:
        Task.put({"name": "x" * 100_000})
    for calls in (ends, goes_on):
        for _ in range(STAYS - 1):
            calls.wait_for_the_database(full.value)
    goes_on.wait_for_the_database(full.value)
    with pytest.raises(pw.OperationalError, match="full"):
        ends.wait_for_the_database(full.value)
