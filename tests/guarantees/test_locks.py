"""A lock on one queue's table, such as a migration's, holds up that queue and no other one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS
from tests.contract.test_alerts import BEFORE, check
from tests.factories import task
from tests.servers import shared
from tests.steps import PATIENCE, STUCK, Work, another_process, eventually, is_exact, processes, state, waiter
from tests.support.console import visitor
from xq import serve
from xq.cli import main
from xq.metrics import Metrics
from xq.operators.inspection import LOOK

pytestmark = pytest.mark.parametrize("shared_db", list(SERVERS), indirect=True)
LOCKED = "does not answer, and other queues do not wait for it: locked by "


@contextmanager
def locked(db: pw.Database, table: str = "task") -> Iterator[None]:
    """A table that another program has locked against all, until the block ends."""
    connect: Any = db._connect  # type: ignore[attr-defined]
    is_postgres = isinstance(db, pw.PostgresqlDatabase)
    with closing(connect()) as connection:
        begins = (
            ["BEGIN", f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"] if is_postgres else [f"LOCK TABLES {table} WRITE"]
        )
        for sql in begins:
            connection.cursor().execute(sql)
        yield


@pytest.fixture
def two(make_live: Any) -> tuple[Any, Any]:
    """Two queues of one database."""
    features, roles = {"delayed": True, "history": True}, ("runat",)
    return tuple(make_live(features, roles=roles, model=make_live.model(table_name=name)) for name in ("task", "other"))


def holds(*queues: Any) -> Any:
    """A program that takes a task from each of these."""

    def script() -> Any:
        yield [queue.take(timeout=PATIENCE).id for queue in queues]

    return script


def goes_on(Other: Any) -> None:
    """Do what needs the maintenance of a queue: a delay, a waiter, a schedule."""
    Other.put(task(), delay=0.2)
    waiter(Other, lambda: Other.take(timeout=STUCK).ack()).result()
    Other.xq.every(0.2, task(), name="often")
    Other.take(timeout=STUCK).ack()
    Other.xq.unschedule("often")
    while found := Other.take():
        found.ack()


def test_a_lock_holds_up_one_of_two_queues_of_a_program_and_no_death_changes_that(two, shared_db, caplog):
    caplog.set_level(logging.INFO, "xq")
    Task, Other = two
    Task.xq.put_many([task(), task()])
    Other.put(task())
    with another_process(shared_db, holds(Task, Other)) as holder:
        next(holder)
        taken = Task.take()  # this program maintains both from now on
        assert Other.take() is None
        with locked(shared_db):
            putting = Work(shared_db, lambda: Task.put(task()))
            goes_on(Other)
            holder.kill()
            assert Other.take(timeout=STUCK).id == 1
            goes_on(Other)
            assert putting.goes_on
        putting.result()
    eventually(lambda: state(Task, 1) == "R")
    assert [event.event for event in Task.xq.history(1)] == ["put", "take", "died"]
    taken.ack()
    Task.put(task(), delay=0.1)
    eventually(lambda: Task.xq.count("R") == 3)
    assert (caplog.text.count(f"task {LOCKED}"), caplog.text.count("task answers again")) == (1, 1)
    assert is_exact(Task)
    assert is_exact(Other)


def test_a_program_of_another_queue_does_not_see_the_lock(two, shared_db):
    Task, Other = two
    for queue in two:
        queue.put(task())

    def of_other() -> Any:
        assert Other.take(timeout=0.1) is None
        yield "maintains"
        goes_on(Other)
        yield "goes on"
        yield Other.take(timeout=STUCK).id

    with another_process(shared_db, holds(Task, Other)) as holder:
        next(holder)
        with processes(shared_db, of_other, holds(Task)) as (other, waits), locked(shared_db):
            assert next(other) == "maintains"
            assert next(other) == "goes on"
            holder.kill()
            assert next(other) == 1
            assert not waits.is_heard(0)
        # The task of the locked queue comes back when it answers.
    assert Task.take(timeout=STUCK).id == 1


def test_a_program_starts_while_another_queue_is_locked(two, shared_db):
    _, Other = two

    def starts() -> Any:
        goes_on(Other)
        with Other.xq.session():
            Other.put(task())
            yield Other.take(timeout=STUCK).id > 0
        yield "the session has ended"

    with locked(shared_db), another_process(shared_db, starts) as other:
        assert next(other)
        assert next(other) == "the session has ended"


def test_a_migration_that_waits_for_a_transaction_holds_up_its_queue_alone_and_both_are_named(two, shared_db):
    Task, Other = two
    Task.put(task())
    taken = Task.take()
    connect: Any = shared_db._connect
    with closing(connect()) as reads:
        for sql in ("BEGIN", "SELECT count(*) FROM task"):
            reads.cursor().execute(sql)
        migration = Work(shared_db, lambda: shared_db.execute_sql("ALTER TABLE task ADD COLUMN note INT"))
        eventually(lambda: "locked" in Task.xq.health().sentence)
        goes_on(Other)
        if isinstance(shared_db, pw.PostgresqlDatabase):
            assert Task.xq.health().sentence.count("process ") == 2
        assert migration.goes_on
    migration.result()
    taken.ack()


def test_health_the_doctor_the_console_and_metrics_name_the_table_and_the_lock(two, shared_db):
    Task, Other = two
    Task.put(task())
    with locked(shared_db):
        seen = Task.xq.health()
        (finding,) = Task.xq.doctor()
        for sentence in (seen.sentence, finding.what):
            assert "the table task is locked by " in sentence
        assert seen.state == "late"
        if isinstance(shared_db, pw.PostgresqlDatabase):
            assert " for " in seen.sentence
            assert "SELECT pg_terminate_backend(" in finding.do
        assert Other.xq.health().state == "healthy"
        assert Other.xq.doctor() == []
        body = Metrics({"task": Task.xq, "other": Other.xq}).scrape()[0].decode()
        assert 'xq_up{queue="task"} 0.0' in body
        assert 'xq_up{queue="other"} 1.0' in body
        assert 'xq_locked_seconds{queue="task"}' in body
        console = visitor(serve.app({"locked": Task, "free": Other}))
        assert "the table task is locked by " in (page := console.get("/q/locked")).text
        assert (page.status_code, console.get("/q/free").status_code) == (503, 200)
        assert "the table task is locked by " in console.get("/").text
    assert "locked" not in eventually(lambda: Task.xq.health()).sentence


def test_a_lock_on_a_table_beside_a_queues_is_one_on_the_queue(two, shared_db):
    Task, Other = two
    # MariaDB rebuilds a table without a lock that lasts.
    with locked(shared_db, "task_xq_history" if isinstance(shared_db, pw.PostgresqlDatabase) else "task"):
        assert "the table task is locked by " in Task.xq.health().sentence
        assert ["the table task is locked by " in each.what for each in Task.xq.doctor()] == [True]
        assert Other.xq.health().state == "healthy"


def test_a_command_with_a_url_names_the_lock_and_goes_on_with_other_queues(two, shared_db, request, capsys):
    server = shared(SERVERS[request.node.callspec.params["shared_db"]])

    def said(*command: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*command])
        return "".join([*capsys.readouterr(), str(ended.value)])

    with locked(shared_db):
        for command in ("doctor", "health"):
            assert "the table task is locked by " in said(command, f"{server.url(shared_db.database)}#task")
        two[1].put(task())
        both = said("doctor", server.url(shared_db.database))
    assert "the table task is locked by " in both
    assert "no process takes" in both


def test_many_locks_hold_up_the_metrics_of_other_queues_no_longer_than_one(make_live, shared_db, monkeypatch):
    monkeypatch.setattr("xq.metrics.PATIENCE", 3 * LOOK)
    queues = {name: make_live(model=make_live.model(table_name=name)).xq for name in "abcd"}
    with ExitStack() as locks:
        for name in "abc":
            locks.enter_context(locked(shared_db, name))
        body = Metrics(queues).scrape()[0].decode()
    assert [f'xq_up{{queue="{name}"}} 1.0' in body for name in "abcd"] == [False, False, False, True]


def test_a_lock_that_lasts_makes_its_alert_fire_and_no_other(two, shared_db, tmp_path):
    metrics, free = Metrics([queue.xq for queue in two], fresh_for=0), range(BEFORE)
    scrapes = [metrics.scrape()[0].decode() for _ in free]  # one a minute, for Prometheus
    check(tmp_path, [*scrapes, *scrapes], "")
    with locked(shared_db):
        scrapes += [metrics.scrape()[0].decode() for _ in free]
    check(tmp_path, scrapes, "XqLocked")
