"""Threads and processes that pass each other at the worst moment, which is brought about on purpose."""

from __future__ import annotations

import gc
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_POSTGRES, SERVERS, Maker, database_on, live
from tests.factories import task, tasks
from tests.inside.steps import look
from tests.servers import Postgres
from tests.steps import (
    PATIENCE,
    STUCK,
    Work,
    another_process,
    another_program,
    eventually,
    is_exact,
    isolate,
    make_impatient,
    state,
    writing,
)
from xq.adapters.databases.file_liveness import FileNotifier
from xq.adapters.databases.session_connection import ServerNotifier
from xq.engine import take
from xq.sessions import liveness
from xq.sessions import session as sessions
from xq.testing import Clock


@pytest.fixture
def session_ends_within_a_take(monkeypatch):
    """Has the session of the next take be closed while it takes."""
    new_token = sessions.Session.new_token

    def marks_and_ends(self: sessions.Session, now: float) -> str:
        made = new_token(self, now)
        monkeypatch.undo()
        self.close()
        return made

    monkeypatch.setattr(sessions.Session, "new_token", marks_and_ends)


def test_a_task_taken_by_a_session_that_ends_meanwhile_is_given_back(make, session_ends_within_a_take):
    Task = make(roles=("owner",))
    put = Task.put(task())
    with Task.xq.session(), pytest.raises(xq.UnknownSession):
        Task.take()
    assert state(Task, put) == "R"
    assert Task.take().ack()


def test_where_the_session_of_the_process_ends_within_a_take_the_next_one_takes(make, session_ends_within_a_take):
    Task = make(roles=("owner",))
    put = Task.put(task())
    assert Task.take().ack().id == put.id
    assert Task.stats().transition == {"X-R": 1, "R-T": 2, "T-R": 1, "T-X": 1}


def test_the_first_take_of_a_process_finds_what_a_dead_one_held(make_live):
    Task = make_live(roles=("owner",))
    put = Task.put(task())

    def child() -> Any:
        yield Task.take().id
        yield sessions.of(make_live.db).own().uuid

    with another_process(make_live.db, child) as other:
        assert next(other) == put.id
        proof = sessions.of(make_live.db).liveness
        assert proof is not None
        eventually(proof.renew)  # beside a new lock file nobody is taken for dead
        name = next(other)
        other.kill()
        eventually(lambda: proof.gone([name]))  # a server hears of it a little later
    assert Task.take().id == put.id


def test_a_worker_asks_again_when_the_database_is_locked(make_live):
    db = make_live.db
    make_impatient(db)
    Task = make_live({"buried": True, "keep": True}, roles=("runat", "attempts"))
    put = Task.put(task())
    locked, refused = threading.Event(), threading.Event()
    done = []

    class Unlock(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "asked again" in record.getMessage():
                refused.set()

    def locks() -> bool:
        with writing(db):
            Task.update(size=1).execute()
            locked.set()
            return refused.wait(PATIENCE)

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        done.append((found.id, Work(db, locks)))
        locked.wait(PATIENCE)

    handler = Unlock()
    logging.getLogger("xq.Task").addHandler(handler)
    try:
        Task.xq.run(until_empty=True)
    finally:
        logging.getLogger("xq.Task").removeHandler(handler)
    ((key, other),) = done
    assert (key, state(Task, put)) == (put.id, "D")
    assert other.result()


def test_a_callback_that_waited_for_a_plain_commit_takes_no_event_away(make):
    Task = make({"history": True})
    Task.xq.on_change(lambda found, event, source, target: event == "take" and Task.put(task()))
    Task.put(task())
    taken = None
    plain = make.db.connection().cursor()
    plain.execute("BEGIN")
    taken = Task.take()
    plain.execute("COMMIT")
    taken.ack()
    assert [row.event for row in Task.xq.history(taken)] == ["put", "take", "ack"]


def test_history_is_pruned_by_itself_where_nothing_else_is_due(make_live):
    Task = make_live({"history": 0.5, "keep": True})
    Task.put(task())
    Task.take().ack()
    eventually(lambda: len(Task.xq.History.select()) <= 1)  # the newest row stays, for its number
    eventually(lambda: Task.xq.history() == [])


def test_a_signal_that_is_lost_is_made_up_for(make_live, monkeypatch):
    for listening in (FileNotifier, ServerNotifier):
        monkeypatch.setattr(listening, "wait", lambda self, seconds, eagerly: threading.Event().wait(seconds))
    Task = make_live()
    work = Work(make_live.db, lambda: Task.take(timeout=PATIENCE))
    eventually(Task.xq.waiting)
    another_program(make_live.db, "INSERT INTO task (size, status, attempts) VALUES (0, 'R', 0)")
    assert work.result().id == 1


def test_a_task_whose_session_nobody_lists_comes_back_without_a_call(make_live, monkeypatch):
    monkeypatch.setattr(liveness, "ORPHANS", 2.0)
    Task = make_live(roles=("owner",))
    assert Task.take() is None  # which looks for such tasks; the next look is the thread's
    put = Task.put(task())
    another_program(make_live.db, f"UPDATE task SET status = 'T', owner = '{uuid.uuid4()}/0'")
    eventually(lambda: state(Task, put) == "R")


def test_what_proves_that_a_session_lives_is_not_forgotten_by_a_thread_that_finds_no_queue(make_live):
    Task = make_live(roles=("owner",))
    Task.put(task())
    mine = sessions.of(make_live.db)
    taken = Task.take()
    proof = mine.liveness
    mine.use_liveness(lambda: None)
    mine._liveness, mine._liveness_found = None, False  # as if nobody had looked for it yet
    gc.collect()
    assert mine.liveness is proof

    def child() -> Any:
        look(make_live.db)
        yield Task.xq.count("T")

    with another_process(make_live.db, child) as other:
        assert next(other) == 1
    assert taken.ack()


ON_SERVERS = pytest.mark.parametrize("shared_db", SERVERS, indirect=True)  # where writers are side by side
LEVELS = pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])


@ON_SERVERS
def test_a_take_that_passes_by_what_another_moves_at_this_moment_finds_it_a_moment_later(shared_db, monkeypatch):
    clock = Clock()
    Task = Maker(shared_db, clock)({"delayed": True})
    put = Task.put(task(), delay=1)
    clock.tick(2)
    swept, passed_by = threading.Event(), threading.Event()

    def sweeps() -> None:
        with shared_db.atomic():
            assert Task.xq.sweep() == 1
            swept.set()
            assert passed_by.wait(STUCK)

    def moment() -> Iterator[float]:
        passed_by.set()
        other.result()
        yield 0.0

    other = Work(shared_db, sweeps)
    assert swept.wait(STUCK)
    monkeypatch.setattr(take, "BEING_MOVED", moment())
    assert Task.take().id == put.id


def somebody_waits_for(db: pw.Database) -> bool:
    """Whether a statement on another connection waits for what the transaction of this thread has locked."""
    if isinstance(db, pw.PostgresqlDatabase):
        asked = "SELECT 1 FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    else:  # what else there is to see of a wait needs a right that few have
        asked = (
            "SELECT 1 FROM information_schema.processlist "
            "WHERE id <> CONNECTION_ID() AND db = DATABASE() AND command = 'Query' AND time_ms > 100"
        )
    return bool(db.execute_sql(asked).fetchall())


@ON_SERVERS
@pytest.mark.parametrize("finish", ["ack", "release", "ack_many", "write"])
def test_who_waits_for_a_task_that_the_application_changes_and_leaves_taken_finishes_it(make_live, finish):
    Task = make_live()
    Task.xq.put_many(tasks(2))
    mine = Task.xq.take_many(2)
    calls = {
        "ack_many": lambda: Task.xq.ack_many(mine[:1]),
        "write": lambda: Task.xq._finish.write(mine[0], {"name": "mine"}),
    }
    with make_live.db.atomic():
        make_live.db.execute_sql("UPDATE task SET name = 'theirs'")
        late = Work(make_live.db, calls.get(finish, lambda: getattr(mine[0], finish)()))
        eventually(lambda: somebody_waits_for(make_live.db))
    late.result()
    assert Task.select().count() == {"ack": 1, "release": 2, "ack_many": 1, "write": 2}[finish]
    assert Task.select().where(Task.name == "mine").count() == (finish == "write")
    assert is_exact(Task)


@ON_SERVERS
@pytest.mark.parametrize(
    ("level", "roles", "finish"),
    [
        ("READ COMMITTED", (), "ack"),
        ("READ COMMITTED", ("owner",), "release"),
        ("REPEATABLE READ", ("owner",), "ack"),
        ("SERIALIZABLE", (), "release"),
    ],
)
def test_who_waits_for_a_task_that_is_taken_away_and_again_does_not_finish_it(make_live, level, roles, finish):
    isolate(make_live.db, level)
    Task = make_live(roles=roles)
    put = Task.put(task())
    mine = Task.take()
    with Task.xq.session():
        with make_live.db.atomic():
            Task.xq.snatch(put)
            theirs = Task.take()
            late = Work(make_live.db, lambda: getattr(Task, finish)(mine))
            eventually(lambda: somebody_waits_for(make_live.db))
        with pytest.raises(xq.NotOwner):
            late.result()
        assert state(Task, put) == "T"
        assert theirs.ack().id == put.id
    assert is_exact(Task)


@ON_SERVERS
def test_what_proves_that_a_process_lives_is_in_no_conflict_at_the_level_of_the_application(make_live):
    db = make_live.db
    isolate(db, "SERIALIZABLE")
    if isinstance(db, pw.MySQLDatabase):  # as it is by itself from MariaDB 11.6 on
        db.connect_params["init_command"] = "SET tx_isolation = 'SERIALIZABLE', innodb_snapshot_isolation = ON"
        try:
            db.connect()
        except pw.OperationalError:
            pytest.skip("this MariaDB has no innodb_snapshot_isolation")
    Task = make_live(roles=("owner",))
    Task.put(task())
    taken, mine, gone = Task.take(), sessions.of(db), str(uuid.uuid4())
    db.execute_sql(f"INSERT INTO xq_alive (uuid, process) VALUES ('{gone}', 7)")

    def end() -> bool:
        with mine.alone(gone) as alone:
            return alone

    with db.atomic():
        db.execute_sql(f"DELETE FROM xq_alive WHERE uuid = '{gone}'")
        ends = Work(db, end)
        eventually(lambda: somebody_waits_for(db))
    assert ends.result()
    assert taken.ack().id == taken.id


@ON_POSTGRES
def test_a_call_that_postgresql_ends_in_a_deadlock_with_the_application_is_made_again_unseen():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as db:
        Task = live(db)({"keep": True})
        Task.xq.put_many([task()] * 3)
        held = Task.xq.take_many(3)

        def look_for_deadlocks_after(delay: str) -> None:
            server.run(f"ALTER DATABASE {name} SET deadlock_timeout = '{delay}'")  # of connections from here on

        def until_so_many_wait(n: int) -> None:
            waits = (
                f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}' AND cardinality(pg_blocking_pids(pid)) > 0"
            )
            eventually(lambda: len(server.run(waits)) == n)

        def application() -> None:
            with db.atomic():
                for late in (held[2], held[0]):
                    Task.update(name="changed").where(Task.id == late.id).execute()

        with db.atomic():
            Task.update(name="changed").where(Task.id == held[1].id).execute()
            look_for_deadlocks_after("10ms")
            acks = Work(db, lambda: Task.xq.ack_many(held))
            until_so_many_wait(1)  # it has the first task
            look_for_deadlocks_after("1h")
            other = Work(db, application)
            until_so_many_wait(2)  # from here on it waits for the first, and has the last
        other.result()
        assert [found.status for found in acks.result()] == ["D"] * 3
        assert {found.name for found in Task.select()} == {"changed"}
        assert is_exact(Task)


@ON_SERVERS
@LEVELS
def test_who_begins_to_wait_amid_the_transaction_of_an_ack_is_told_of_it(make_live, level):
    isolate(make_live.db, level)
    Task = make_live(roles=("owner",))
    Task.put(task())
    taken = Task.take()
    waits: list[Work] = []

    def finish() -> None:
        with make_live.db.atomic():
            make_live.db.execute_sql("SELECT count(*) FROM xq_setting").fetchall()  # its moment is now
            if not waits:
                waits.append(Work(make_live.db, lambda: Task.xq.wait(taken, timeout=PATIENCE)))
                Work(make_live.db, lambda: eventually(Task.xq.waiting)).result()
            taken.ack()

    try:
        finish()
    except pw.OperationalError:  # it gave way to the one who waits, and to begin anew is the application's
        finish()
    assert waits[0].result()[1]
