"""A standby takes over from its primary, and a subscriber from its publisher, as docs/howto/failover.md has it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw
import pytest

from tests.conftest import live
from tests.factories import task, tasks
from tests.proxy import Proxy
from tests.servers import PgBouncer, Postgres, Replica
from tests.steps import eventually, is_exact

FEATURES = {"keep": True, "delayed": True, "buried": True, "history": True, "ttr": 60}
NEEDED: dict[str, Any] = {"wal_level": "logical", "wal_log_hints": "on", "full_page_writes": "on"}
# By which PgBouncer notices that its server has vanished, and asks again soon.
NOTICES = {"server_login_retry": 1, "server_connect_timeout": 3, "tcp_user_timeout": 5000}
NOTICES |= {"tcp_keepidle": 2, "tcp_keepintvl": 2, "tcp_keepcnt": 3}


@pytest.fixture
def primary() -> Iterator[Postgres]:
    with Postgres(**NEEDED) as server:
        server.create("app")
        for setting in (
            "wal_log_hints = on",
            "wal_keep_size = '1GB'",
        ):  # pg_rewind starts it without those of the tests
            server.run(f"ALTER SYSTEM SET {setting}")
        yield server


def of_both(one: Postgres, other: Postgres) -> pw.Database:
    where = ",".join(f"{server.host}:{server.port}" for server in (one, other))
    how = "connect_timeout=3&target_session_attrs=read-write"
    return pw.PostgresqlDatabase(f"postgresql://{one.USER}@{where}/app?{how}", prefer_psycopg3=True)


def loses_nothing(primary: Postgres) -> None:
    """Have each commit wait for the standby."""
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    eventually(lambda: primary.run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))


@contextmanager
def program(Task: Any) -> Iterator[tuple[list[int], list[str]]]:
    """A program that puts and works for the block: the keys that it was told, and its errors. Then all is done."""
    put, errors, over = list[int](), list[str](), threading.Event()
    Task.xq.worker(lambda found: None, workers=2)
    running = Task.xq.start()

    def puts() -> None:
        while not over.is_set():
            try:
                put.append(Task.put(task()).id)
            except pw.PeeweeException as error:
                errors.append(str(error))
                Task._meta.database.close()  # nobody was told that this one is there
        Task._meta.database.close()

    putting = threading.Thread(target=puts)
    putting.start()
    try:
        eventually(lambda: Task.xq.count("D") > 50)
        Task._meta.database.close()
        yield put, errors
    finally:
        over.set()
        putting.join()
    eventually(lambda: not (Task.xq.count("R") or Task.xq.count("T")))
    running.stop()
    running.join()


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_workers_go_on_at_the_standby_and_the_old_primary_comes_back_behind_it(primary, synchronous):
    with Replica(primary) as standby, closing(of_both(primary, standby)) as db:
        if synchronous:
            loses_nothing(primary)
        Task = live(db)(FEATURES)
        with program(Task) as (put, _):
            primary.stop("killed")
            told = len(put)
            standby.run("SELECT pg_promote()")
            eventually(lambda: len(put) > told + 50)
        lost = {*put} - {each.id for each in Task.xq.by_state("D")}
        assert not (synchronous and lost), "what the standby had not received"
        assert all(each <= max(put) for each in lost)
        assert (Task.xq.check(), is_exact(Task)) == ([], True)
        comes_back(primary, standby)
        Task.put(task())
        eventually(
            lambda: primary.run("SELECT count(*) FROM task", "app") == standby.run("SELECT count(*) FROM task", "app")
        )
        assert primary.run("SELECT pg_is_in_recovery()") == [(True,)]


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
@pytest.mark.parametrize("how", ["killed", "vanished", "stalled", "planned"])
def test_workers_behind_pgbouncer_go_on_at_the_standby_to_which_it_is_switched(primary, how, pool_mode):
    if reason := PgBouncer.missing():
        pytest.skip(reason)
    if (how, pool_mode) == ("planned", "session"):
        pytest.skip("PAUSE would wait until the clients of session mode have left")
    settings = {"pool_mode": pool_mode} | (NOTICES if how != "stalled" else {})
    with (
        Replica(primary) as standby,
        Proxy(primary.host, primary.port) as proxy,
        PgBouncer(proxy, **settings) as pooler,
        closing(pooler.peewee("app", prepare_threshold=None)) as db,
    ):
        loses_nothing(primary)
        Task = live(db)(FEATURES)
        with program(Task) as (put, errors):
            if how == "planned":
                pooler.tell("PAUSE app")
                standby.follow()
            if how in ("vanished", "stalled"):
                proxy.vanish()
            else:
                primary.stop("fast" if how == "planned" else "killed")
            told = len(put)
            standby.run("SELECT pg_promote()")
            pooler.switch(standby)
            if how == "stalled":
                pooler.tell("KILL app")
            if how in ("stalled", "planned"):
                pooler.tell("RESUME app")
            eventually(lambda: len(put) > told + 50)
            assert not (how == "planned" and errors)
        assert {*put} <= {each.id for each in Task.xq.by_state("D")}
        acked = "SELECT count(*), count(DISTINCT key) FROM task_xq_history WHERE event = 'ack'"
        ((acks, tasks_acked),) = standby.run(acked, "app")
        assert acks == tasks_acked == Task.xq.count("D")
        assert (Task.xq.check(), is_exact(Task)) == ([], True)


def comes_back(old: Postgres, new: Postgres) -> None:
    """The old primary, which is down, follows the new one."""
    new.run("CHECKPOINT")  # before its first one, pg_rewind of PostgreSQL 15 sees no new timeline, and does nothing
    source = f"host={new.host} port={new.port} user={new.ADMINISTRATOR[0]} dbname=postgres"
    rewind = [old.program("pg_rewind"), f"--target-pgdata={old.folder}/data", f"--source-server={source}"]
    done = subprocess.run([*rewind, "--write-recovery-conf", "--no-sync"], capture_output=True, **old._how())
    assert done.returncode == 0, done.stderr.decode()
    old.start()


def test_a_subscriber_takes_over_from_a_publisher(primary):
    with Postgres(**NEEDED) as other, closing(primary.peewee("app")) as db, closing(other.peewee("app")) as there:
        other.create("app")
        Task = live(db)(FEATURES)
        Task.xq.put_many(tasks(20))
        how = [f"--host={primary.host}", f"--port={primary.port}", f"--username={primary.USER}", "--schema-only", "app"]
        dump = subprocess.run([primary.program("pg_dump"), *how], check=True, capture_output=True, **primary._how())
        psql = [f"--host={other.host}", f"--port={other.port}", f"--username={other.USER}", "--quiet", "app"]
        subprocess.run(
            [other.program("psql"), *psql], input=dump.stdout, check=True, capture_output=True, **other._how()
        )
        primary.run("CREATE PUBLICATION app FOR ALL TABLES", "app")
        source = f"host={primary.host} port={primary.port} user=postgres dbname=app"
        other.run(f"CREATE SUBSCRIPTION app CONNECTION '{source}' PUBLICATION app", "app")
        eventually(lambda: not other.run("SELECT 1 FROM pg_subscription_rel WHERE srsubstate <> 'r'", "app"))
        held = Task.take()
        for _ in range(5):
            Task.take().ack()
        Task.kill(20)
        arrived = "SELECT count(*) FROM task_xq_history"
        eventually(lambda: primary.run(arrived, "app") == other.run(arrived, "app"))
        primary.stop()
        other.run("ALTER SUBSCRIPTION app DISABLE", "app")
        other.run("ALTER SUBSCRIPTION app SET (slot_name = NONE)", "app")
        other.run("DROP SUBSCRIPTION app", "app")
        Task.bind(there)
        behind = "the sequence public.task_id_seq of the key has given 0, and the table has keys up to 19"
        assert f"{behind}, so that puts fail: recount() repairs it" in Task.xq.check()
        Task.xq.recount()
        assert Task.xq.check() == []
        assert Task.put(task()).id == 21, "the key of a task that is gone is not given again"
        assert held.id in {Task.take(timeout=10).ack().id for _ in range(15)}
        assert is_exact(Task)
