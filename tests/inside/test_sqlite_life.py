"""How processes on one SQLite file prove that they live: locks in a file beside it, whatever becomes of that."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import peewee as pw
import pytest
from playhouse.pool import PooledSqliteDatabase

import xq
from tests.clocks import another_clock, needs_another_clock
from tests.conftest import live
from tests.inside.steps import look
from tests.steps import PATIENCE, another_process, eventually, processes, state
from tests.support.life import FEATURES, takes, watch
from xq.adapters.databases import file_liveness
from xq.sessions import session as sessions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


opened: WeakSet[pw.Database] = WeakSet()


@pytest.fixture(autouse=True)
def closed_afterwards() -> Iterator[None]:
    yield
    for db in list(opened):
        db.close_all() if isinstance(db, PooledSqliteDatabase) else db.close()


def queue_on(path: Path | str, kind: type[pw.Database] = pw.SqliteDatabase, **options: Any) -> Any:
    """A queue on a file, by a database object of its own."""
    db = kind(str(path), timeout=20, **options)
    opened.add(db)
    with db.connection_context():
        return live(db)(FEATURES, roles=("runat",))


def locks(path: Path) -> Path:
    return path.with_name(path.name + "-xq")


# the file of the locks


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lost its lock with the file has the time to lock the new one, be the machine slow."""
    monkeypatch.setattr(file_liveness, "YOUNG", 6.0)


@pytest.mark.usefixtures("patient")
def test_a_lock_file_that_is_deleted_is_made_anew_and_no_living_process_loses_a_task(path):
    Task = queue_on(path)
    watch(Task)
    Task.xq.put_many([{}] * 3)
    with processes(Task._meta.database, takes(Task), takes(Task)) as (lives, dies):
        next(lives)
        next(dies)
        ours = Task.take()
        locks(path).unlink()
        proof = sessions.of(Task._meta.database).liveness
        assert proof is not None
        assert not proof.renew()  # the new one is young
        look(Task._meta.database)
        assert Task.xq.count("T") == 3
        dies.kill()
        eventually(lambda: Task.xq.count("T") == 2)
        assert len(lives.send("ack")) == 1
    assert ours.ack()
    assert Task.xq.count("T") == 0


@pytest.mark.usefixtures("patient")
def test_a_process_that_stood_still_while_the_lock_file_was_deleted_proves_itself_again(path):
    Task = queue_on(path)
    watch(Task)
    Task.put({})
    with another_process(Task._meta.database, takes(Task)) as other:
        next(other)
        locks(path).unlink()
        look(Task._meta.database)
        assert Task.xq.count("T") == 1
        assert len(other.send("ack")) == 1


def test_a_copy_of_a_database_knows_that_nobody_of_the_original_lives_in_it(path):
    Task = queue_on(path)
    Task.xq.put_many([{}] * 2)
    task = Task.take()
    copied = path.with_name("copy.db")
    with sqlite3.connect(path) as source, sqlite3.connect(copied) as target:
        source.backup(target)
    source.close()
    target.close()
    assert not locks(copied).exists()
    Copy = queue_on(copied)
    assert {Copy.take().id, eventually(Copy.take).id} == {1, 2}  # 2 first, unless this process was slow to take
    assert state(Task, 1) == "T"
    assert task.ack()


def test_whoever_copies_the_lock_file_drops_no_lock(path):
    Task = queue_on(path)
    Task.put({})
    task = Task.take()
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return  # there are only locks of a whole process
    shutil.copy(locks(path), path.with_name("copied"))

    def child() -> Any:
        look(Task._meta.database)
        yield Task.xq.count("T")

    with another_process(Task._meta.database, child) as other:
        assert next(other) == 1
    assert task.ack()


def test_a_lock_file_that_cannot_be_opened_is_told_by_name(path):
    Task = queue_on(path)
    Task.put({})
    locks(path).mkdir()
    with pytest.raises(xq.ConfigurationError, match="app.db-xq"):
        Task.take()
    assert Task.xq.count("R") == 1
    assert Task.xq.sessions() == []
    locks(path).rmdir()
    assert Task.take().ack()


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

        with sqlite3.connect(folder / "app.db") as reader:
            reader.execute("SELECT * FROM task").fetchall()  # so SQLite's own files are there
            folder.chmod(0o555)
            try:
                with another_process(Task._meta.database, child) as other:
                    assert next(other) == 1
            finally:
                folder.chmod(0o755)
        reader.close()


# roads to one file


def test_two_database_objects_on_one_file_have_a_session_each_and_closing_one_leaves_the_other_its_proof(path):
    One, Two = queue_on(path), queue_on(path)
    One.xq.put_many([{}] * 2)
    ours, theirs = One.take(), Two.take()
    with pytest.raises(xq.NotOwner):
        One.ack(theirs.id)
    own = [sessions.of(queue._meta.database).own() for queue in (One, Two)]
    own[1].close()
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
    task = Task.take()
    (path.parent / "link.db").symlink_to(path)
    monkeypatch.chdir(path.parent)
    roads = {"link": "link.db", "relative": "./app.db", "uri": f"file:{path}?cache=private"}
    Other = queue_on(roads[road], uri=road == "uri")

    def child() -> Any:
        taken = Other.take()
        look(Other._meta.database)
        yield taken.id, Other.xq.count("T")
        yield

    with another_process(Other._meta.database, child) as other:
        assert next(other) == (2, 2)
        look(Task._meta.database)
        assert Task.xq.count("T") == 2
        other.kill()
        eventually(lambda: Task.xq.count("T") == 1)
    assert task.ack()


def test_a_queue_in_an_attached_schema_is_looked_after(tmp_path):
    def make() -> Any:
        db = pw.SqliteDatabase(str(tmp_path / "app.db"), timeout=20)
        db.attach(str(tmp_path / "other.db"), "other")
        maker = live(db)
        return maker(FEATURES, roles=("runat",), model=maker.model(meta={"schema": "other"}))

    Task = make()
    watch(Task)
    Task.put({})
    with another_process(Task._meta.database, takes(Task)) as other:
        next(other)
        other.kill()
        eventually(lambda: Task.xq.count("R") == 1)
    Task.put({}, delay=0.05)
    eventually(lambda: Task.xq.count("R") == 2)
    Task._meta.database.close()


@pytest.mark.parametrize("kind", ["pooled", "no autoconnect"])
def test_the_thread_has_a_connection_of_its_own_whatever_the_database_object(path, kind):
    if kind == "pooled":
        Task = queue_on(path, PooledSqliteDatabase, max_connections=4, stale_timeout=60, check_same_thread=False)
    else:
        Task = queue_on(path, autoconnect=False)
    db = Task._meta.database
    with db.connection_context():
        watch(Task)
        Task.xq.put_many([{}, {}], delay=0.05)
    with another_process(db, lambda: iter_connected(Task)) as other:
        assert next(other)
        other.kill()
    with db.connection_context():
        eventually(lambda: Task.xq.count("R") == 2)
        assert Task.xq.stats().transition["T-R"] == 1


def iter_connected(Task: Any) -> Any:
    with Task._meta.database.connection_context():
        yield Task.take(timeout=PATIENCE) is not None
        yield


# installing


def test_a_queue_that_is_taken_away_and_installed_again_under_a_running_process_works_on(path):
    Task = queue_on(path)
    watch(Task)
    Task.put({})

    def child() -> Any:
        Task.take()
        yield
        look(Task._meta.database)
        yield Task.take(timeout=PATIENCE).ack().id

    with another_process(Task._meta.database, child) as other:
        next(other)
        Task.xq.uninstall()
        Task.xq.install()
        Task.put({})
        assert next(other) in (1, 2)
    Task.take()
    assert Task.xq.check() == []


# what is left when all is over


def test_a_database_object_that_is_dropped_gives_its_tasks_back(path):
    One, Two = queue_on(path), queue_on(path)
    One.xq.put_many([{}] * 2)
    task = One.take()
    assert Two.take().id == 2
    Two._meta.database.close()
    del Two

    def came_back() -> bool:
        gc.collect()  # again and again: the thread may have it in hand for a moment
        return bool(One.xq.count("R") == 1)

    eventually(came_back)
    assert task.ack()


def test_a_database_object_that_is_dropped_takes_its_thread_and_its_files_along(tmp_path):
    others = set(threading.enumerate())

    def use(n: int) -> None:
        Task = queue_on(tmp_path / f"{n}.db")
        Task.put({})
        Task.take().ack()
        Task._meta.database.close()

    def left() -> tuple[int, int]:
        gc.collect()
        mine = [thread for thread in threading.enumerate() if thread.name == "xq" and thread not in others]
        return len(mine), len(os.listdir("/proc/self/fd"))

    use(0)
    eventually(lambda: left()[0] == 0)
    _, files = left()
    for n in range(1, 50):
        use(n)
    eventually(lambda: left() <= (0, files))


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


def test_a_process_with_more_than_a_thousand_open_files_has_a_thread_all_the_same(path):
    Task = queue_on(path)

    def child() -> Any:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        held = [os.dup(1) for _ in range(1_050)]
        watch(Task)
        Task.put({}, delay=0.05)
        yield eventually(lambda: Task.xq.count("R") == 1)
        for descriptor in held:
            os.close(descriptor)

    with another_process(Task._meta.database, child) as other:
        assert next(other)


# the clock of the machine

SLEEPER = """
import signal, sys
import peewee as pw
from tests.conftest import Maker, live
from tests.steps import eventually
from xq.runtime.maintenance import FALLBACK
from xq.runtime.threads import threads
db = pw.SqliteDatabase(sys.argv[1], timeout=20)
Task = live(db)({"buried": True, "delayed": True}, roles=("runat",))
Task.take()
Task.put({}, delay=3600)
(thread,) = threads().values()
# The thread has seen the put and armed its timer: nothing else will wake it.
eventually(lambda: thread._armed < float("inf") and thread._recheck == FALLBACK)
print("there", flush=True)
signal.pause()
"""


@needs_another_clock
def test_what_falls_due_since_the_clock_was_set_is_moved(path):
    jump, script = path.with_name("jump"), path.with_name("sleeper.py")
    script.write_text(SLEEPER)
    library = another_clock(path.parent, f'access("{jump}", F_OK) == 0 ? 7200 : 0')
    Task = queue_on(path)
    env = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, script, path], env=env, stdout=subprocess.PIPE) as sleeper:
        try:
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline() == b"there\n"
            jump.touch()
            eventually(lambda: Task.xq.count("R") == 1)
        finally:
            sleeper.kill()
