"""What docs/databases.md says of the servers: connections, signals, rights, crashes, what passes by the triggers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_MARIADB, ON_POSTGRES, database_on, live
from tests.servers import MariaDB, Postgres, Server
from tests.steps import PATIENCE, STUCK, eventually, is_exact
from tests.support.databases import KINDS
from xq.core.errors import ConfigurationError
from xq.sessions import session as sessions

FEATURES = {"keep": True, "ttr": 60, "delayed": True, "history": True}
ROOT = Path(__file__).parents[2]


def queue_on(
    database: pw.Database, installed: bool = True, roles: tuple[str, ...] = ("runat",), **attributes: Any
) -> Any:
    maker = live(database)
    model = maker.model(**attributes)
    if installed:
        return maker(FEATURES, roles=roles, model=model)
    xq.upgrade(model, {role: role for role in ("status", *roles)}, FEATURES)
    return model


@contextmanager
def own(kind: type[Server], **settings: Any) -> Iterator[Server]:
    if reason := kind.missing():
        pytest.skip(reason)
    with kind(**settings) as server:
        server.create("app")
        yield server


# signals


@ON_POSTGRES
def test_to_switch_notifications_off_and_on_is_heard_by_processes_that_wait_already():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database, roles=("runat", "tube"))
        of_timers = "UPDATE task SET status = 'W', runat = extract(epoch FROM now()) + 0.5"
        with closing(server.peewee(name)) as ears, ThreadPoolExecutor(1) as thread:
            told: list[Any] = []
            ears.connection().add_notify_handler(told.append)
            ears.execute_sql("LISTEN xq")

            def is_told_of(write: Callable[[], object]) -> bool:
                ears.execute_sql("SELECT 1")
                told.clear()
                write()
                ears.execute_sql("SELECT 1")
                return bool(told)

            def waits() -> bool:
                return any(waits for (waits,) in server.run("SELECT waits FROM xq_alive WHERE uuid = ''", name))

            def take() -> Any:
                with database.connection_context():
                    return Task.xq.take(timeout=PATIENCE, tube="wanted")

            def put() -> None:
                server.run("INSERT INTO task (status, size, attempts) VALUES ('R', 0, 0)", name)

            def set_a_timer() -> None:
                server.run(of_timers, name)

            taken = thread.submit(take)
            eventually(waits)
            assert is_told_of(put)
            assert is_told_of(set_a_timer)
            Task.xq.configure(notify=False)
            assert not is_told_of(put)
            assert not is_told_of(set_a_timer)
            eventually(lambda: not waits())
            assert not taken.done(), "it still waits"
            Task.xq.configure(notify=True)
            eventually(waits)
            assert is_told_of(put)
            Task.xq.configure(notify=False)
            eventually(lambda: not waits())
            Task.put({"tube": "wanted"})
            assert taken.result(STUCK).tube == "wanted"


# within the transaction that installs


@ON_POSTGRES
def test_a_queue_that_the_open_transaction_installs_takes_when_that_is_committed():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database, installed=False)
        with database.atomic():
            database.create_tables([Task])
            Task.put({})
            with pytest.raises(ConfigurationError, match="take when the transaction that installs it is committed"):
                Task.take()
            assert Task.stats().counts["R"] == 1
        assert Task.take().ack().status == "D"
        assert is_exact(Task)


@ON_POSTGRES
def test_the_history_is_complete_below_the_oldest_open_transaction():
    """By the query of docs/databases.md, for programs that read the history from where they left off."""
    lines = (ROOT / "docs" / "databases.md").read_text().splitlines()
    (query,) = (found[1] for line in lines if (found := re.search("`(SELECT [*] FROM page_xq_history [^`]*)`", line)))
    columns = query.replace("page_", "task_").replace("SELECT *", "SELECT xid, id, key, event")
    with database_on(Postgres) as (server, name):
        with closing(server.peewee(name)) as database, closing(server.peewee(name)) as other:
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
            Task.take()
            assert news() == [("1", "take")]
            assert news() == []


IDLE = {  # what ends idle sessions after a second, and how to see that all but the link have ended
    Postgres: (
        "ALTER DATABASE app SET idle_session_timeout = '1s'",
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'xq' AND clock_timestamp() - state_change > interval '2 s'",
        "ALTER DATABASE app RESET idle_session_timeout",
    ),
    MariaDB: (
        "SET GLOBAL wait_timeout = 1",
        "SELECT 1 FROM information_schema.processlist WHERE user = 'xq' AND command = 'Sleep' AND time_ms > 2000",
        "SET GLOBAL wait_timeout = DEFAULT",
    ),
}


@pytest.mark.parametrize("kind", IDLE)
def test_an_idle_process_keeps_its_task_where_the_server_ends_idle_sessions(kind):
    ends, idle, no_more = IDLE[kind]
    with own(kind) as server, closing(server.peewee("app")) as database:
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


@ON_POSTGRES
def test_of_a_machine_that_is_gone_the_server_knows_within_seconds():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        assert Task.take() is None
        mine = sessions.of(database)
        expected = {"keepalives_idle": "2", "keepalives_interval": "2", "keepalives_count": "3", "user_timeout": "3000"}
        assert {setting: mine.apart(f"SHOW tcp_{setting}", {}) for setting in expected} == {
            setting: [(value,)] for setting, value in expected.items()
        }


# rights


# rights

CLERK = {
    "postgres": (
        "DROP ROLE IF EXISTS clerk",
        "CREATE ROLE clerk LOGIN",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk",
        "REVOKE TEMP ON DATABASE {name} FROM PUBLIC",
    ),
    "mariadb": (
        "CREATE OR REPLACE USER clerk",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES, INDEX, ALTER ON {name}.* TO clerk",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_who_may_read_and_write_the_tables_can_use_a_queue_and_not_install_one(kind):
    with database_on(KINDS[kind]) as (server, name):
        with closing(server.peewee(name)) as database:
            queue_on(database)
        for sql in CLERK[kind]:
            server.run(sql.format(name=name), name)
        with closing(server.peewee(name, user="clerk")) as database:
            Task = queue_on(database, installed=False)
            heard: list[str] = []
            Task.xq.on_change(lambda task, event, source, target: heard.append(event))
            with database.atomic():
                Task.put({})
            assert Task.take(timeout=5).ack().status == "D"
            assert heard == ["put", "take", "ack"]
            assert is_exact(Task)
            with pytest.raises(pw.PeeweeException, match="permission denied|must be owner|TRIGGER command denied"):
                queue_on(database, table_name="another")


# a copy


@ON_MARIADB
def test_a_replica_of_mariadb_reads_exact_numbers_since_its_triggers_count_nothing_twice():
    trust = {"log_bin_trust_function_creators": 1}
    with own(MariaDB, log_bin="binary-log", server_id=1, **trust) as server, own(MariaDB, server_id=2) as replica:
        ((file, position, *_),) = server.run("SHOW MASTER STATUS")
        server.run("CREATE USER copier")
        server.run("GRANT REPLICATION SLAVE ON *.* TO copier")
        replica.run(
            f"CHANGE MASTER TO MASTER_HOST = '{server.host}', MASTER_PORT = {server.port}, MASTER_USER = 'copier', "
            f"MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}"
        )
        replica.run("START SLAVE")
        with closing(server.peewee("app")) as database, closing(replica.peewee("app")) as there:
            Task = queue_on(database)
            Task.xq.put_many([{"name": str(number)} for number in range(5)])
            Task.take().ack()
            copy = queue_on(there, installed=False)

            def arrived() -> bool:
                with suppress(xq.NotInstalled, pw.PeeweeException):  # a part of it only
                    return bool(copy.xq.check() == [] and copy.stats() == Task.stats())
                return False

            eventually(arrived)
            assert [(row.key, row.event) for row in copy.xq.history()] == [
                (row.key, row.event) for row in Task.xq.history()
            ]


# what a crash undoes


@pytest.mark.parametrize(
    ("kind", "how", "settings"),
    [
        pytest.param(Postgres, "killed", {"synchronous_commit": "off", "wal_writer_delay": "10s"}),
        pytest.param(MariaDB, "immediate", {"innodb_flush_log_at_trx_commit": 0}),
    ],
)
def test_what_a_crash_undoes_where_commits_do_not_wait_is_undone_whole(kind, how, settings):
    """The counters and the history are written with the task, and lost with it."""
    with own(kind, **settings) as server:
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
            changes = Task.stats().transition.values()
            assert Task.xq.History.select().count() == sum(changes)


# what passes by the triggers, or cannot be


@pytest.mark.parametrize("kind", KINDS)
def test_truncate_and_cascades_are_counted_or_check_tells_and_recount_repairs_it(kind):
    counts = kind == "postgres"  # no trigger of MariaDB hears of them
    with database_on(KINDS[kind]) as (server, name), closing(server.peewee(name)) as database:
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


@ON_MARIADB
def test_mariadb_installs_nothing_within_a_transaction():
    with database_on(MariaDB) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database, installed=False)
        database.execute_sql("CREATE TABLE task (id INT)")
        with database.atomic(), pytest.raises(xq.Error):
            Task.xq.install()


@ON_POSTGRES
def test_what_a_trigger_of_the_applications_own_fails_at_is_told_as_it_is():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        database.execute_sql(
            "CREATE FUNCTION fails() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 = no_such(1); END $$"
        )
        database.execute_sql("CREATE TRIGGER fails BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION fails()")
        with pytest.raises(pw.ProgrammingError, match="no_such"):
            Task.put({})
