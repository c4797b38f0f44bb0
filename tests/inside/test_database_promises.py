"""What docs/databases.md says of the servers: signals, idle connections, crashes, replicas, what passes by triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.servers import Server
from tests.steps import PATIENCE, STUCK, eventually, is_exact
from tests.support.servers_fail import own

FEATURES: xq.Features = {"keep": True, "ttr": 60, "delayed": True, "history": True}
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["postgres"])
def postgres(request: pytest.FixtureRequest) -> Iterator[tuple[pw.Database, Server, str]]:
    """A new database of PostgreSQL, its server and its name."""
    with database_on(SERVERS[request.param]) as (server, name), closing(server.peewee(name)) as database:
        yield database, server, name


def queue_on(
    database: pw.Database, installed: bool = True, roles: tuple[str, ...] = ("runat",), **attributes: Any
) -> Any:
    maker = live(database)
    model = maker.model(**attributes)
    if installed:
        return maker(FEATURES, roles=roles, model=model)
    xq.upgrade(model, {role: role for role in ("status", *roles)}, FEATURES)
    return model


def test_a_put_and_a_timer_notify_only_while_a_process_waits(postgres):
    database, server, name = postgres
    with closing(server.peewee(name)) as ears:
        Task = queue_on(database, roles=("runat", "tube"))
        told: list[Any] = []
        ears.connection().add_notify_handler(told.append)
        ears.execute_sql("LISTEN xq")

        def is_told_of(sql: str) -> bool:
            ears.execute_sql("SELECT 1")
            told.clear()
            server.run(sql, name)
            ears.execute_sql("SELECT 1")
            return bool(told)

        def waits() -> bool:
            return any(waits for (waits,) in server.run("SELECT waits FROM xq_alive WHERE uuid = ''", name))

        def take() -> Any:
            with database.connection_context():
                return Task.xq.take(timeout=PATIENCE, tube="wanted")

        put = "INSERT INTO task (status, size, attempts) VALUES ('R', 0, 0)"
        set_a_timer = "UPDATE task SET status = 'W', runat = extract(epoch FROM now()) + 0.5"
        assert (is_told_of(put), is_told_of(set_a_timer)) == (False, False)
        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(take)
            eventually(waits)
            assert (is_told_of(put), is_told_of(set_a_timer)) == (True, True)
            assert not taken.done(), "it still waits"
            Task.put({"tube": "wanted"})
            assert taken.result(STUCK).tube == "wanted"


def test_a_queue_that_the_open_transaction_installs_takes_when_that_is_committed(postgres):
    database, *_ = postgres
    Task = queue_on(database, installed=False)
    with database.atomic():
        database.create_tables([Task])
        Task.put({})
        with pytest.raises(xq.ConfigurationError, match="take when the transaction that installs it is committed"):
            Task.take()
        assert Task.stats().counts["R"] == 1
    assert Task.take().ack().status == "D"
    assert is_exact(Task)


def test_the_history_is_complete_below_the_oldest_open_transaction(postgres):
    """By the query of docs/databases.md, for programs that read the history from where they left off."""
    lines = (ROOT / "docs" / "databases.md").read_text().splitlines()
    (query,) = (found[1] for line in lines if (found := re.search("`(SELECT [*] FROM page_xq_history [^`]*)`", line)))
    columns = query.replace("page_", "task_").replace("SELECT *", "SELECT xid, id, key, event")
    database, server, name = postgres
    with closing(server.peewee(name)) as other:
        Task, Late = queue_on(database), queue_on(other, installed=False)
        left_off = [0, 0]

        def news() -> list[tuple[str, str]]:
            found = server.run(columns.replace(":xid", str(left_off[0])).replace(":id", str(left_off[1])), name)
            left_off[:] = found[-1][:2] if found else left_off
            return [tuple(told) for _, _, *told in found]

        Task.put({})
        assert news() == [("1", "put")]
        with other.atomic():
            Late.put({})
            Task.put({})
            assert Task.xq.History.select().count() == 2
            assert news() == [], "what is yet to come may stand before what is there"
        assert news() == [("2", "put"), ("3", "put")]
        assert news() == []


# connections

IDLE = {  # what ends idle sessions after a second, and how to see that all but the link have ended
    "postgres": (
        "ALTER DATABASE app SET idle_session_timeout = '1s'",
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'xq' AND clock_timestamp() - state_change > interval '2 s'",
        "ALTER DATABASE app RESET idle_session_timeout",
    ),
    "mariadb": (
        "SET GLOBAL wait_timeout = 1",
        "SELECT 1 FROM information_schema.processlist WHERE user = 'xq' AND command = 'Sleep' AND time_ms > 2000",
        "SET GLOBAL wait_timeout = DEFAULT",
    ),
    "mysql": (
        "SET GLOBAL wait_timeout = 1",
        "SELECT 1 FROM information_schema.processlist WHERE user = 'xq' AND command = 'Sleep' AND time > 2",
        "SET GLOBAL wait_timeout = DEFAULT",
    ),
}


@pytest.mark.parametrize("kind", IDLE)
def test_an_idle_process_keeps_its_task_where_the_server_ends_idle_sessions(kind):
    ends, idle, no_more = IDLE[kind]
    with own(SERVERS[kind]) as server, closing(server.peewee("app")) as database:
        Task = queue_on(database)
        Task.put({})
        server.run(ends)  # of connections from here on: those of the take
        taken = Task.take()
        database.close()
        assert Task.xq.count("T") == 1
        eventually(lambda: server.run(idle))
        server.run(no_more)  # the ack may take longer than a second
        database.close()
        assert taken.ack().status == "D"


# replicas, crashes, and what passes by the triggers


CRASHES: list[tuple[str, str, dict[str, Any]]] = [
    ("postgres", "killed", {"synchronous_commit": "off", "wal_writer_delay": "10s"}),
    ("mariadb", "immediate", {"innodb_flush_log_at_trx_commit": 0}),
    ("mysql", "immediate", {"innodb_flush_log_at_trx_commit": 0}),
]


@pytest.mark.parametrize(("kind", "how", "settings"), CRASHES)
def test_what_a_crash_undoes_where_commits_do_not_wait_is_undone_whole(kind, how, settings):
    """The counters and the history are written with the task, and lost with it."""
    with own(SERVERS[kind], **settings) as server:
        with closing(server.peewee("app")) as database:
            Task = queue_on(database)
            for number in range(200):
                Task.put({"name": str(number)})
                if number % 3 == 0:
                    Task.take().ack()
            server.stop(how)
        server.start()
        with closing(server.peewee("app")) as database:
            Task = queue_on(database)
            left = [task.name for task in Task.select().order_by(Task.id)]
            assert left == [str(number) for number in range(len(left))], "the last ones, and none in between"
            assert is_exact(Task)
            assert Task.xq.History.select().count() == sum(Task.stats().transition.values())


@pytest.mark.parametrize("kind", SERVERS)
def test_truncate_and_cascades_are_counted_or_check_tells_and_recount_repairs_it(kind):
    counts = kind == "postgres"  # no trigger of MariaDB hears of them
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as database:
        meta = type("Meta", (), {"database": database, "table_name": "site"})
        Site: Any = type("Site", (pw.Model,), {"Meta": meta})
        database.create_tables([Site])
        Task = queue_on(database, site=pw.ForeignKeyField(Site, null=True, on_delete="CASCADE"))
        Task.put({"site": Site.create()})
        Task.put({})
        for sql in ("DELETE FROM site", "TRUNCATE TABLE task"):
            database.execute_sql(sql)
            told = "1 tasks in all that are ready (R) were removed uncounted: recount() repairs it"
            assert Task.xq.check() == ([] if counts else [told])
            Task.xq.recount()
            assert is_exact(Task)
        assert Task.stats().transition == ({"X-R": 2, "R-X": 2} if counts else {"X-R": 2})
