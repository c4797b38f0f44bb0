"""Servers that restart, crash, fill their disk or only read: nothing is lost, nothing done twice, and all go on."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests import servers
from tests.clocks import another_clock, needs_another_clock
from tests.conftest import SERVERS, Maker, live
from tests.servers import Server
from tests.steps import PATIENCE, eventually, is_exact, processes, waiter
from tests.support.servers_fail import ONLY_READ, Standby

FEATURES = {"keep": True, "delayed": True}
PROCESSES = 3
STEPS = 20  # that each process makes between two ends of the server
FULL = 160 * 2**20  # bytes of the disk that fills up


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that a test may stop."""
    kind = SERVERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with kind() as made:
        yield made


@pytest.fixture
def make(server: Server) -> Iterator[Maker]:
    """Makes queues on a database of its own there."""
    name = f"app_{next(_numbers)}"
    server.create(name)
    db = server.peewee(name)
    try:
        yield live(db)
    finally:
        db.close()
        server.drop(name)


_numbers = itertools.count(1)


class Log:
    """What a process has done for certain, one line for each call that returned, outside of the database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, what: str, about: Any) -> None:
        os.write(self._descriptor, f"{json.dumps([what, about])}\n".encode())

    def all(self, what: str) -> list[Any]:
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [about for known, about in lines if known == what]


def works(Task: Any, log: Log, end: Path) -> Callable[[], Generator[Any, Any, None]]:
    """Puts, takes and acks until it is told to end, whatever errors the database has."""

    def step() -> None:
        log.add("put", Task.put({}).id)
        task = Task.take()
        if task is not None:
            log.add("taken", task.id)
            log.add("acked", task.ack().id)

    def script() -> Generator[Any, Any, None]:
        yield
        while not end.exists():
            try:
                step()
            except pw.PeeweeException as error:
                log.add("failed", str(error))
                time.sleep(0.01)  # an application would pause as well
            except (
                xq.NotOwner,
                xq.WrongState,
            ) as error:  # the server came back, and the task had been released meanwhile
                log.add("refused", type(error).__name__)
            except Exception:
                log.add("wrong", traceback.format_exc())
        yield

    return script


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_what_processes_have_done_outlives_the_server_and_they_go_on_by_themselves(server, make, tmp_path, how):
    Task, end = make(FEATURES), tmp_path / "end"
    logs = [Log(tmp_path / f"{n}.log") for n in range(PROCESSES)]

    def all_go_on() -> None:
        before = [len(log.all("acked")) for log in logs]
        eventually(lambda: all(len(log.all("acked")) > n + STEPS for log, n in zip(logs, before, strict=True)))

    with processes(make.db, *[works(Task, log, end) for log in logs]) as others:
        for other in others:
            next(other)
            other.post(None)
        for _ in range(2):
            all_go_on()
            server.restart(how)
        all_go_on()
        end.touch()
        for other in others:
            other.hear()
    told = {
        what: Counter(about for log in logs for about in log.all(what)) for what in ("put", "acked", "failed", "wrong")
    }
    states = {task.id: task.status for task in Task.select()}
    assert not told["wrong"]
    assert told["failed"], "no call was under way"
    assert set(told["put"]) <= set(states)
    assert max(told["put"].values()) == max(told["acked"].values()) == 1
    assert {states[key] for key in told["acked"]} == {"D"}
    assert Counter(states.values())["D"] == Task.xq.stats().transition["T-D"]
    assert is_exact(Task)


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_workers_outlive_a_server_that_is_away_and_lose_no_task(server, make, tmp_path, kind):
    Task, done = make(FEATURES), Log(tmp_path / "done")

    def work(task: Any) -> None:
        time.sleep(0.02)  # so that the server ends under a function, an ack and a take
        done.add("done", task.id)

    async def awork(task: Any) -> None:
        await asyncio.to_thread(work, task)

    Task.xq.worker(kind=kind, workers=2)(awork if kind == "asyncio" else work)
    Task.xq.put_many([{}] * 100)
    make.db.close()
    program = multiprocessing.get_context("fork").Process(target=Task.xq.run)
    program.start()
    try:
        eventually(lambda: len(done.all("done")) > 10)
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


def test_who_waits_for_the_end_of_a_task_outlives_the_server(server, make):
    Task = make(FEATURES)
    Task.put({})
    waiting = waiter(Task, lambda: Task.wait(1, PATIENCE))
    server.restart("fast")
    # For a moment the row is that of the one who waits, and begins to anew: a take passes it by.
    assert Task.take(timeout=PATIENCE).ack().id == 1
    assert waiting.result()[1]


def test_calls_fail_while_the_server_is_down_and_what_is_due_by_then_is_moved_after_it(server, make, caplog):
    caplog.set_level(logging.INFO, "xq")
    Task = make(FEATURES)
    assert Task.take() is None  # so it is looked after
    Task.put({}, delay=0.5)
    due = time.monotonic() + 0.5
    server.stop()
    for call in (Task.put, Task.xq.kill):
        with pytest.raises(pw.PeeweeException):
            call({"id": 1})
    eventually(lambda: time.monotonic() > due)
    server.start()
    eventually(lambda: Task.xq.count("R") == 1)
    assert not repeated(caplog)


def repeated(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what a maintenance thread has logged twice, without having worked in between."""
    logged: dict[int | None, list[str]] = {}
    for record in caplog.records:
        if "the maintenance thread" in record.message:
            logged.setdefault(record.thread, []).append(record.message)
    return [one for lines in logged.values() for one, other in itertools.pairwise(lines) if one == other]


# a disk that is full


@contextmanager
def disk(size: int) -> Iterator[Path]:
    """A small disk in memory."""
    folder = tempfile.mkdtemp(prefix="xq-")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "xq", folder], capture_output=True)
    if made.returncode:
        os.rmdir(folder)
        pytest.skip(f"no disk can be made here: {made.stderr.decode().strip()}")
    try:
        yield Path(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        os.rmdir(folder)


SMALL: dict[str, dict[str, Any]] = {
    "postgres": {"max_wal_size": "32MB", "min_wal_size": "32MB"},
    "mariadb": {"innodb_log_file_size": "8M", "innodb_buffer_pool_size": "16M"},
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a disk in memory: Linux has them")
@pytest.mark.parametrize("kind", SERVERS)
def test_on_a_full_disk_puts_fail_and_change_nothing_and_go_on_when_there_is_room_again(kind, monkeypatch):
    if reason := SERVERS[kind].missing():
        pytest.skip(reason)
    with disk(FULL) as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with SERVERS[kind](**SMALL[kind]) as server:
            server.create("app")
            db = server.peewee("app")
            Task = live(db)(FEATURES)
            ballast = folder / "ballast"
            room = os.statvfs(folder)
            subprocess.run(["fallocate", "-l", str(room.f_bavail * room.f_frsize - 2 * 2**20), ballast], check=True)
            done, failed = 0, None
            while failed is None:
                try:
                    done += len(Task.xq.put_many([{"name": "x" * 1000}] * 100))
                except pw.PeeweeException as error:
                    failed = error
            ballast.unlink()

            def goes_on() -> bool:
                if server.ended():  # which it may do a little later
                    server.start()
                return refused(lambda: Task.put({})) is None

            eventually(goes_on)
            assert Task.select().where(Task.name.is_null(False)).count() == done
            assert Task.take().ack().status == "D"
            assert is_exact(Task)
            db.close()


def refused(call: Callable[[], Any]) -> pw.PeeweeException | None:
    """What the database says to a call, None where it does it."""
    try:
        call()
    except pw.PeeweeException as error:
        return error
    return None


# servers that only read

READS: dict[str, Callable[[Any], Any]] = {
    "stats": lambda Task: Task.xq.stats().counts["R"],
    "count": lambda Task: Task.xq.count("R"),
    "peek": lambda Task: Task.xq.peek(1).status,
    "by_state": lambda Task: [task.id for task in Task.xq.by_state("R")],
    "history": lambda Task: len(list(Task.xq.history(key=1))),
    "sessions": lambda Task: Task.xq.sessions(),
    "taken": lambda Task: Task.xq.taken(),
    "check": lambda Task: Task.xq.check(),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "put": lambda Task: Task.put({}),
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
    refusals = {name: refused(lambda write=write: write(Task)) for name, write in WRITES.items()}  # type: ignore[misc]
    assert all("read" in str(error) or "recovery" in str(error) for error in refusals.values()), refusals
    assert {name: read(Task) for name, read in READS.items()} == before
    return bool(before["count"] == 1)


def test_a_standby_can_be_read_and_when_it_is_promoted_the_same_process_works_on(caplog):
    if reason := servers.Postgres.missing():
        pytest.skip(reason)
    others = {thread.ident for thread in threading.enumerate()}  # that look after queues of other tests
    with servers.Postgres() as primary:
        primary.create("app")
        db = primary.peewee("app")
        Task = live(db)(FEATURES | {"history": True})
        Task.xq.put_many([{}] * 2)
        held = Task.take()
        with Standby(primary) as standby:
            there = standby.peewee("app")
            Task.bind(there)
            eventually(lambda: refused(lambda: Task.xq.count("R")) is None)
            assert only_reads(Task)
            primary.stop("immediate")
            standby.run("SELECT pg_promote()")
            # What is held comes back before the first take, or after it: its process has its link on the other server.
            assert {Task.take(timeout=PATIENCE).ack().id for _ in range(2)} == {held.id, held.id + 1}
            assert is_exact(Task)
            there.close()
            db.close()
            # Before the servers end, of which there is more to tell the longer that takes.
            warnings = [row for row in caplog.records if row.levelno >= logging.WARNING]
    assert len([row for row in warnings if row.thread not in others]) <= 1


ASKED = {
    "postgres": "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{name}'",
    "mariadb": "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'",
}


def asked(server: Server, database: str) -> int:
    """How many transactions of a database (PostgreSQL) or statements (MariaDB) a server has executed."""
    kind = next(name for name, kind in SERVERS.items() if isinstance(server, kind))
    return int(server.run(ASKED[kind].format(name=database))[0][0])


def test_a_server_that_begins_to_only_read_is_waited_for_without_haste(server, make, caplog):
    caplog.set_level(logging.INFO, "xq")
    Task = make(FEATURES | {"history": True})
    assert Task.take() is None  # so it is looked after
    Task.put({})
    kind = next(name for name, kind in SERVERS.items() if isinstance(server, kind))
    on, off = (sql.format(name=make.db.database) for sql in ONLY_READ[kind])
    server.run(on)
    make.db.close()
    if kind == "postgres":
        server.restart()  # it holds for connections that are made from now on
        eventually(lambda: refused(lambda: Task.xq.count("R")) is None)
    assert only_reads(Task)
    before, until = asked(server, make.db.database), time.monotonic() + 2
    eventually(lambda: time.monotonic() > until)
    assert asked(server, make.db.database) - before < 200  # without haste: thousands if it asked without a pause
    server.run(off)
    make.db.close()
    server.restart() if kind == "postgres" else None
    assert eventually(Task.take).ack().status == "D"
    assert not repeated(caplog)
    assert is_exact(Task)


# a clock of the client that is not the server's

ELSEWHEN = """
import sys, time
from tests.steps import eventually
from tests.conftest import SERVERS, Maker, live
kind, name, port = sys.argv[1:]
db = __import__("peewee").{database}(name, host="127.0.0.1", port=int(port), user="xq", **{options!r})
Task = live(db)({features!r})
print(time.time(), flush=True)
Task.xq.configure(session_ttr=1)
Task.put({{"name": "waits"}}, delay=3600)
Task.put({{"name": "ready"}}, ttl=3600)
taken = Task.take(ttr=3600)
((_, _, since),) = Task.xq.taken()
((_, told),) = Task.xq.sessions()
with Task.xq.session():
    Task.put({{"name": "left"}})
    left = Task.take(ttr=3600)
print(taken.name, left.name, abs(since - told) < 60, flush=True)
print(Task.xq.why(taken)[-1], flush=True)
eventually(lambda: Task.xq.count("R") == 1)
Task.take(ttr=1)
Task.put({{"name": "soon"}}, delay=1)
eventually(lambda: Task.xq.count("R") == 2)
print(*sorted(task.name for task in Task.xq.by_state("R")), flush=True)
"""


@needs_another_clock
@pytest.mark.parametrize("hours", [-5, 5])
def test_times_go_by_the_clock_of_the_server_whatever_the_client_believes(server, make, tmp_path, hours):
    Task = make(FEATURES | {"ttl": True, "ttr": True})
    script = tmp_path / "elsewhen.py"
    library = another_clock(tmp_path, str(hours * 3600))
    options = {"ssl_disabled": True} if isinstance(server, servers.MariaDB) else {"prefer_psycopg3": True}
    script.write_text(
        ELSEWHEN.format(
            database=type(make.db).__name__, options=options, features=FEATURES | {"ttl": True, "ttr": True}
        )
    )
    path = os.pathsep.join(filter(None, sys.path))
    env = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, script, server.NAME, make.db.database, str(server.port)],
        env=env,
        capture_output=True,
        timeout=PATIENCE,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    now, taken, why, ready = ran.stdout.splitlines()
    assert abs(float(now) - time.time() - hours * 3600) < 600
    assert (taken, ready) == ("ready left True", "left soon")
    assert re.fullmatch(r"its ttr ends in 3,[56]\d\d s", why)
    assert Task.xq.stats().transition["W-R"] == 1
    assert is_exact(Task)
