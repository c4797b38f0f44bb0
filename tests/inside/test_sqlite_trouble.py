"""When the file or the clock plays tricks: what fails is the call that needed it, and nothing is lost or counted wrong.

A clock that jumps is the test's own: no test may set that of the machine.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, is_exact, state, transitions
from xq.runtime.maintenance import RETRY
from xq.runtime.threads import threads
from xq.sessions import session as sessions
from xq.testing import Clock

FEATURES = {"ttr": 60, "delayed": True}
NOBODY = 65534  # the user who may write nothing
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
def folder(tmp_path):
    return tmp_path


def maker(folder: Path, timeout: float = 20) -> Maker:
    """Makes queues on a file, by its own clock."""
    return live(pw.SqliteDatabase(str(folder / "app.db"), timeout=timeout))


@pytest.fixture
def make(request, folder):
    """As `maker`; where a test locks the file, calls do not wait long for other writers."""
    yield (make := maker(folder, 0.5) if "locked" in request.fixturenames else maker(folder))
    make.db.close()


def reaches(Task: Any, key: Any, letter: str) -> bool:
    """Whether a task comes into a state by itself."""
    deadline = time.monotonic() + PATIENCE
    while state(Task, key) != letter and time.monotonic() < deadline:
        time.sleep(0.01)
    return state(Task, key) == letter


def told(caplog: Any, n: int, word: str) -> list[logging.LogRecord]:
    """The first `n` records with this word, as soon as they are there."""
    deadline = time.monotonic() + PATIENCE
    while len(found := [r for r in caplog.records if word in r.getMessage()]) < n and time.monotonic() < deadline:
        time.sleep(0.01)
    return found[:n]


# the file is deleted


def test_a_deleted_file_is_used_on_until_it_is_opened_again(make, folder):
    Task = make(FEATURES)
    Task.put(task())
    taken = Task.take()
    for file in folder.iterdir():
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
def test_a_file_made_anew_serves_a_process_that_used_the_old_one(make, folder, noticed):
    Task = make(FEATURES)
    Task.put(task())
    Task.take()
    make.db.close()
    for file in folder.iterdir():
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


def test_the_thread_that_keeps_time_goes_on_with_a_file_made_anew(make, folder):
    Task = make(FEATURES)
    Task.take()
    make.db.close()
    for file in folder.iterdir():
        file.unlink()
    make.db.create_tables([Task])
    Task.take()
    assert reaches(Task, Task.put(task(), delay=0.1), "R")


def test_the_thread_that_keeps_time_goes_on_with_a_file_that_another_process_put_there(make, folder):
    Task = make(FEATURES)
    Task.take()
    put = Task.put(task(), delay=0.1)
    make.db.execute_sql("VACUUM INTO ?", (str(folder / "copy"),))
    make.db.close()
    with closing(sqlite3.connect(folder / "copy")) as copy:
        copy.execute("PRAGMA journal_mode = WAL")
    for file in folder.glob("app.db-*"):
        file.unlink()
    os.replace(folder / "copy", folder / "app.db")
    assert reaches(Task, put, "R")
    assert is_exact(Task)


def test_the_thread_that_keeps_time_outlives_the_folder_of_the_file(make, folder):
    folder = folder / "below"
    folder.mkdir()
    make = maker(folder)
    Task = make(FEATURES)
    Task.take()
    make.db.close()
    folder.rename(away := folder.with_name("away"))
    maintenance = threads()[make.db]
    for _ in range(2):  # it sees that the file is gone, and goes on
        with maintenance.working:
            maintenance._cycle()
    away.rename(folder)
    Task.take()
    assert reaches(Task, Task.put(task(), delay=0.1), "R")
    assert threads()[make.db] is maintenance
    make.db.close()


# the file may not be written


def ready_and_taken(Task: Any) -> tuple[Any, Any]:
    Task.xq.put_many(tasks(4))
    taken = Task.take()
    return Task.xq.by_state("R", 1)[0].id, taken


def test_what_may_not_be_written_fails_and_what_only_reads_does_not(make):
    Task = make(FEATURES)
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


def test_a_file_opened_for_reading_shows_the_queue(make, folder):
    Task = make(FEATURES)
    ready, taken = ready_and_taken(Task)
    with closing(pw.SqliteDatabase(f"file:{folder / 'app.db'}?mode=ro", uri=True)) as db:
        Seen: Any = live(db).model()
        xq.upgrade(Seen, {role: role for role in ("status", "runat", "deadline", "priority")}, FEATURES)
        assert Seen.stats() == Task.stats()
        assert Seen.xq.check() == []
        assert [key for key, _, _ in Seen.xq.taken()] == [taken.id]
        assert Seen.xq.peek(ready).status == "R"
        for call in WRITES.values():
            with pytest.raises(pw.OperationalError, match="readonly"):
                call(Seen, ready, taken.id)
    assert is_exact(Task)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may look into, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_a_user_who_may_not_write_the_file_sees_the_queue_and_changes_nothing(open_folder):
    folder, make = open_folder, maker(open_folder)
    Task = make(FEATURES)
    ready, taken = ready_and_taken(Task)
    before = Task.stats()
    for file in folder.iterdir():
        file.chmod(0o444)

    def stranger():
        if os.geteuid() == 0:
            os.setuid(NOBODY)  # what the modes say does not hold for root
        refused = []
        for name, call in WRITES.items():
            try:
                call(Task, ready, taken.id)
            except (pw.OperationalError, xq.ConfigurationError) as error:  # the latter for the file of locks
                refused.append((name, "readonly" in str(error) or "Permission denied" in str(error)))
        yield refused, Task.stats(), Task.xq.check()

    with another_process(make.db, stranger) as other:
        assert next(other) == ([(name, True) for name in WRITES], before, [])
    for file in folder.iterdir():
        file.chmod(0o644)
    assert taken.ack().id == taken.id
    assert is_exact(Task)
    make.db.close()


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
def test_what_was_put_before_the_disk_was_full_is_there_and_nothing_else(make, folder, n):
    Task = make({**FEATURES, "history": True})
    Task.xq.put_many(tasks(3))
    make.db.close()

    def child():
        Task.take()
        before = Task.xq.count()
        limit = Limit(folder)
        put = until_full(Task, n)
        full = Task.xq.count() - before == len(put), is_exact(Task)
        limit.lift()
        Task.put(task())
        yield (*full, Task.xq.count() - before == len(put) + 1, is_exact(Task), len(Task.xq.history()))

    with another_process(make.db, child) as other:
        *held, rows = next(other)
        assert held == [True] * 4
    assert rows == sum(transitions(Task).values()) - 1, "the task that the child held went back when it ended"


def test_on_a_full_disk_a_call_is_done_or_fails_and_later_all_go_on(make, folder):
    Task = make({**FEATURES, "history": True})

    def child():
        ready, taken = ready_and_taken(Task)
        late = Task.put(task(), delay=0.2)
        limit = Limit(folder)
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
        yield errors, left, is_exact(Task), reaches(Task, late, "R")
        yield is_exact(Task), len(Task.xq.take_many(1))

    with another_process(make.db, child) as other:
        # The first error, and not one that follows from it.
        assert next(other) == ({"disk I/O error"}, True, True, True)
        assert next(other) == (True, 1)


# the database is locked


@pytest.fixture
def locked(make, folder):
    """Has another process lock the file: `unlock = locked()`."""
    path = folder / "app.db"

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


def test_a_lock_that_lasts_too_long_is_an_error_of_that_call_alone(make, locked):
    Task = make(FEATURES)
    ready, taken = ready_and_taken(Task)
    before = Task.stats()
    unlock = locked()
    for call in WRITES.values():
        with pytest.raises(pw.OperationalError, match="locked"):
            call(Task, ready, taken)
    assert Task.stats() == before, "looking does not wait for writers"
    assert unlock() == "free"
    for name in ("put", "put_many", "take", "ack", "kill"):
        WRITES[name](Task, ready, taken)
    assert is_exact(Task)


def test_the_thread_that_keeps_time_tries_a_locked_database_again_and_catches_up(make, locked, caplog):
    caplog.set_level(logging.DEBUG, logger="xq")
    Task = make(FEATURES)
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
    assert reaches(Task, late, "R")
    assert is_exact(Task)


# the clock jumps

YEAR = 365 * 86_400.0


@pytest.fixture
def jumping(folder):
    db = pw.SqliteDatabase(folder / "jumping.db")
    features = {**FEATURES, "buried": True, "zombie": 10, "history": True}
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


def test_the_order_of_takes_is_that_of_puts_whatever_the_clock_did_between(jumping):
    put = []
    for jump in (0.0, -YEAR, 2 * YEAR, -YEAR, -1.0):
        jumping.xq.clock.tick(jump)
        put.append(jumping.put(task()).id)
    jumping.xq.clock.tick(-3 * YEAR)
    assert [jumping.take().id for _ in put] == put
    assert [row.key for row in jumping.xq.history()] == [str(key) for key in put * 2], "so is the history's"


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
