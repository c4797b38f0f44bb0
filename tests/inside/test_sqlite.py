"""SQLite's files when things go wrong: the locks beside them, deleted and full files, clocks that jump."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from weakref import WeakSet

import peewee as pw
import pytest

import xq
from tests.clocks import another_clock, needs_another_clock
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.inside.steps import look
from tests.steps import PATIENCE, another_process, eventually, in_threads, is_exact, processes, state, transitions
from tests.support.life import FEATURES, takes, watch
from xq.adapters.databases import file_liveness
from xq.adapters.databases.file_liveness import FileLocks, FileNotifier, Inotify
from xq.runtime.maintenance import RETRY
from xq.sessions import session as sessions
from xq.testing import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


opened: WeakSet[pw.Database] = WeakSet()


@pytest.fixture(autouse=True)
def closed_afterwards() -> Iterator[None]:
    yield
    for db in list(opened):
        db.close()


def queue_on(path: Path | str, **options: Any) -> Any:
    """A queue on a file, by a database object of its own."""
    db = pw.SqliteDatabase(str(path), timeout=20, **options)
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


# the file

TIMED = {"ttr": 60, "delayed": True}
ROOM = 60_000  # bytes that the log of a file may still grow by: some puts
# Every call that writes, given a queue, the key of a ready task and a taken one.
WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "put": lambda Task, ready, taken: Task.put(task()),
    "put_many": lambda Task, ready, taken: Task.xq.put_many(tasks(3)),
    "take": lambda Task, ready, taken: Task.take(),
    "a patient take": lambda Task, ready, taken: Task.take(timeout=PATIENCE),
    "ack": lambda Task, ready, taken: Task.ack(taken),
    "ack_many": lambda Task, ready, taken: Task.xq.ack_many([taken]),
    "release": lambda Task, ready, taken: Task.release(taken),
    "kill": lambda Task, ready, taken: Task.kill(ready),
    "sweep": lambda Task, ready, taken: Task.xq.sweep(),
    "wait": lambda Task, ready, taken: Task.wait(ready, timeout=PATIENCE),
}


@pytest.fixture
def make(request, path):
    """Makes queues on a file, by its own clock; where a test locks the file, calls do not wait long for others."""
    yield (make := live(pw.SqliteDatabase(str(path), timeout=0.5 if "locked" in request.fixturenames else 20)))
    make.db.close()


def told(caplog: Any, n: int, word: str) -> list[logging.LogRecord]:
    """The first `n` records with this word, as soon as they are there."""
    records: list[logging.LogRecord] = caplog.records
    eventually(lambda: len([r for r in records if word in r.getMessage()]) >= n)
    return [r for r in records if word in r.getMessage()][:n]


# the file is deleted


def test_a_deleted_file_is_used_on_until_it_is_opened_again(make, tmp_path):
    Task = make(TIMED)
    Task.put(task())
    taken = Task.take()
    for file in tmp_path.iterdir():
        file.unlink()
    Task.put(task())
    taken.ack()
    assert Task.xq.count() == 1
    assert is_exact(Task)
    make.db.close()
    for call in (Task.put, Task.take, Task.stats):
        with pytest.raises(xq.NotInstalled, match="create_tables"):
            call()


@pytest.mark.parametrize("noticed", [True, False])
def test_a_file_made_anew_serves_a_process_that_used_the_old_one(make, tmp_path, noticed):
    Task = make(TIMED)
    Task.put(task())
    Task.take()
    make.db.close()
    for file in tmp_path.iterdir():
        file.unlink()
    if noticed:
        with pytest.raises(xq.NotInstalled):
            Task.stats()
    make.db.create_tables([Task])
    Task.put(task())
    taken = Task.take()
    sessions.of(make.db).reaper.reap()
    assert [session for _, session, _ in Task.xq.taken()] == [session for session, _ in Task.xq.sessions()]
    taken.ack()
    assert is_exact(Task)


def test_the_thread_that_keeps_time_goes_on_with_a_file_that_another_process_put_there(make, tmp_path):
    Task = make(TIMED)
    Task.take()
    put = Task.put(task(), delay=0.1)
    make.db.execute_sql("VACUUM INTO ?", (str(tmp_path / "copy"),))
    make.db.close()
    with closing(sqlite3.connect(tmp_path / "copy")) as copy:
        copy.execute("PRAGMA journal_mode = WAL")
    for file in tmp_path.glob("app.db-*"):
        file.unlink()
    os.replace(tmp_path / "copy", tmp_path / "app.db")
    eventually(lambda: state(Task, put) == "R")
    assert is_exact(Task)


# the file may not be written


def ready_and_taken(Task: Any) -> tuple[Any, Any]:
    Task.xq.put_many(tasks(4))
    taken = Task.take()
    return Task.xq.by_state("R", 1)[0].id, taken


def test_what_may_not_be_written_fails_and_what_only_reads_does_not(make):
    Task = make(TIMED)
    ready, taken = ready_and_taken(Task)
    before = Task.stats()
    make.db.execute_sql("PRAGMA query_only = 1")
    for call in WRITES.values():
        with pytest.raises(pw.OperationalError, match="readonly"):
            call(Task, ready, taken)
    assert (Task.stats(), Task.xq.check()) == (before, [])
    assert Task.xq.peek(taken).status == "T"
    make.db.execute_sql("PRAGMA query_only = 0")
    assert taken.ack().id == taken.id
    assert is_exact(Task)


# the disk is full


class Limit:
    """No file of this process may grow: a full disk, which leaves the others alone."""

    def __init__(self, folder: Path) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        largest = max(file.stat().st_size for file in folder.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + ROOM, self._hard))

    def lift(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._soft, self._hard))


def until_full(Task: Any, n: int) -> list[Any]:
    """What could be put, `n` at a time."""
    put: list[Any] = []
    while True:
        try:
            put += Task.xq.put_many(tasks(n, name="x" * 500))
        except pw.OperationalError:
            return put


@pytest.mark.parametrize("n", [1, 30])
def test_what_was_put_before_the_disk_was_full_is_there_and_nothing_else(make, tmp_path, n):
    Task = make({**TIMED, "history": True})
    Task.xq.put_many(tasks(3))
    make.db.close()

    def child():
        Task.take()
        before = Task.xq.count()
        limit = Limit(tmp_path)
        put = until_full(Task, n)
        full = Task.xq.count() - before == len(put), is_exact(Task)
        limit.lift()
        Task.put(task())
        yield (*full, Task.xq.count() - before == len(put) + 1, is_exact(Task), len(Task.xq.history()))

    with another_process(make.db, child) as other:
        *held, rows = next(other)
        assert held == [True] * 4
    assert rows == sum(transitions(Task).values()) - 1, "the task that the child held went back when it ended"


def test_on_a_full_disk_a_call_is_done_or_fails_and_later_all_go_on(make, tmp_path):
    Task = make({**TIMED, "history": True})

    def child():
        ready, taken = ready_and_taken(Task)
        late = Task.put(task(), delay=0.2)
        limit = Limit(tmp_path)
        until_full(Task, 1)
        errors: set[str] = set()
        left = True
        for name in ("put_many", "take", "ack_many", "ack", "release", "kill"):
            before = Task.xq.history()
            try:
                WRITES[name](Task, ready, taken)
            except pw.OperationalError as error:
                errors.add(str(error))
                # The thread that keeps time may just have moved what was due.
                left = left and {row.event for row in Task.xq.history()[len(before) :]} <= {"delay"}
            except (xq.WrongState, xq.NotFound):
                pass  # one before was done
        limit.lift()
        yield errors, left, is_exact(Task), eventually(lambda: state(Task, late) == "R")
        yield is_exact(Task), len(Task.xq.take_many(1))

    with another_process(make.db, child) as other:
        # The first error, and not one that follows from it.
        assert next(other) == ({"disk I/O error"}, True, True, True)
        assert next(other) == (True, 1)


# the database is locked


@pytest.fixture
def locked(make, tmp_path):
    """Has another process lock the file: `unlock = locked()`."""
    path = tmp_path / "app.db"

    def script():
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield "locked"
            connection.execute("COMMIT")
            yield "free"

    running = []

    def lock() -> Callable[[], Any]:
        running.append(another_process(make.db, script))
        other = running[-1].__enter__()
        assert next(other) == "locked"
        return lambda: next(other)

    yield lock
    for process in running:
        process.__exit__(None, None, None)


def test_the_thread_that_keeps_time_tries_a_locked_database_again_and_catches_up(make, locked, caplog):
    caplog.set_level(logging.DEBUG, logger="xq")
    Task = make(TIMED)
    ready_and_taken(Task)
    for delay in (1, 2, 4, 8, 16):
        late = Task.put(task(), delay=delay)
        unlock = locked()
        if state(Task, late) == "W":  # it was locked before that was due
            break
        unlock()
    first, second = told(caplog, 2, "locked")
    assert (first.levelname, second.levelname) == ("WARNING", "DEBUG"), "it complains once"
    assert second.created - first.created > RETRY * 0.9, "it does not try without a pause"
    unlock()
    eventually(lambda: state(Task, late) == "R")
    assert is_exact(Task)


# the clock jumps

YEAR = 365 * 86_400.0


@pytest.fixture
def jumping(tmp_path):
    db = pw.SqliteDatabase(tmp_path / "jumping.db")
    features = {**TIMED, "buried": True, "zombie": 10, "history": True}
    yield Maker(db, Clock())(features, roles=("runat", "priority"))
    db.close()


def test_a_clock_that_jumps_ahead_gives_tasks_back_and_refuses_those_who_had_them(jumping):
    jumping.xq.put_many(tasks(2))
    first, second = jumping.xq.take_many(2)
    jumping.xq.clock.tick(YEAR)
    assert jumping.take().id == first.id
    for lost, refusal in ((first, xq.NotOwner), (second, xq.WrongState)):
        with pytest.raises(refusal):
            lost.ack()
    jumping.xq.clock.tick(-YEAR)
    with pytest.raises(xq.NotOwner):
        first.ack()
    assert is_exact(jumping)


def test_a_clock_that_jumps_back_makes_tasks_wait_and_loses_none(jumping):
    waiting = jumping.put(task(), delay=5)
    done = jumping.put(task())
    jumping.take().ack()
    held = jumping.put(task())
    taken = jumping.take()
    jumping.xq.clock.tick(-YEAR)
    jumping.xq.clock.tick(60)
    assert jumping.xq.sweep() == 0
    assert [state(jumping, one) for one in (waiting, done, held)] == ["W", "Z", "T"]
    ready = jumping.put(task())
    assert jumping.take().id == ready.id, "what is ready is taken whatever the time is"
    assert taken.ack().status == "Z"
    jumping.xq.clock.tick(YEAR)
    jumping.xq.sweep()
    assert [state(jumping, one) for one in (waiting, done, ready)] == ["R", "X", "R"]
    assert is_exact(jumping)


def test_takes_at_the_same_time_by_a_clock_that_was_set_back_are_told_apart(jumping):
    jumping.put(task())
    before = jumping.take()
    before.release()
    jumping.xq.clock.tick(5)
    jumping.xq.clock.tick(-5)
    again = jumping.take()
    with pytest.raises(xq.NotOwner):
        before.ack()
    again.ack()


# the thread that listens


def test_a_call_after_the_end_writes_into_no_file_that_was_opened_since(path):
    """Whoever is called late (a timer, the end of a process) has a number that another file may have got."""
    writes = FileNotifier([str(path)], [])
    writes.close()
    files = [(path.parent / str(n)).open("w+b", buffering=0) for n in range(8)]
    writes.wake()
    writes.close()
    assert [file.read() for file in files] == [b""] * 8
    for file in files:
        file.close()


def test_a_write_is_told_of_beyond_the_thousandth_file(make):
    Task = make()
    with ExitStack() as files:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 2000:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2000 if hard < 0 else min(2000, hard), hard))
            files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        writes = FileNotifier([str(make.db.database)], [])
        files.callback(writes.close)
        writes.wait(0, False)
        Task.put(task())
        assert writes.wait(PATIENCE, False)


def test_where_no_more_files_may_be_watched_the_thread_looks_by_itself(path, monkeypatch):
    monkeypatch.setattr(Inotify, "add", lambda self, path: False)
    writes = FileNotifier([str(path)], [])
    assert writes.wait(PATIENCE, eagerly=True), "it would have slept so long"
    writes.close()


def test_threads_that_begin_at_once_share_the_locks_of_a_file(path, make):
    """Were there two descriptors of the lock file, closing one would drop the locks of the other."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = in_threads(make.db, *[lambda: [FileLocks.of(f"{path}{n}") for n in range(2000)]] * 4)
    finally:
        sys.setswitchinterval(interval)
    assert all(len(set(map(id, locks))) == 1 for locks in zip(*found, strict=True))
