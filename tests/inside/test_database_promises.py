"""What docs/databases.md says of the servers: connections, signals, rights, crashes, what passes by the triggers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_MARIADB, ON_POSTGRES, database_on, live
from tests.servers import MariaDB, PgBouncer, Postgres, Server
from tests.steps import PATIENCE, STUCK, eventually, is_exact
from tests.support.databases import KINDS
from xq.core.errors import ConfigurationError
from xq.sessions import session as sessions

FEATURES = {"keep": True, "ttr": 60, "delayed": True, "history": True}
ROOT = Path(__file__).parents[2]

CONNECTIONS = {
    "postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{name}' AND usename = 'xq'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{name}' AND user = 'xq'",
}


def queue_on(
    database: pw.Database, installed: bool = True, roles: tuple[str, ...] = ("runat",), **attributes: Any
) -> Any:
    maker = live(database)
    model = maker.model(**attributes)
    if installed:
        return maker(FEATURES, roles=roles, model=model)
    xq.upgrade(model, {role: role for role in ("status", *roles)}, FEATURES)
    return model


# connections


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_puts_has_a_connection_for_each_thread_and_one_that_takes_two_more(kind):
    with database_on(KINDS[kind]) as (server, name):

        def connections() -> int:
            ((found,),) = server.run(CONNECTIONS[kind].format(name=name))
            return int(found)

        with closing(server.peewee(name)) as database:
            Task = queue_on(database)
            Task.put({})
            assert connections() == 1
            done, go = threading.Barrier(4), threading.Event()

            def thread() -> None:
                with database.connection_context():
                    Task.put({})
                    done.wait(PATIENCE)
                    go.wait(PATIENCE)

            threads = [threading.Thread(target=thread) for _ in range(3)]
            for each in threads:
                each.start()
            done.wait(PATIENCE)
            assert connections() == 4
            assert Task.take(timeout=5) is not None
            eventually(lambda: connections() == 4 + 2)  # the thread that looks after the queues, and the link
            go.set()
            for each in threads:
                each.join()
            eventually(lambda: connections() == 1 + 2)


# signals


@ON_POSTGRES
def test_postgresql_tells_only_while_somebody_waits_and_unless_it_is_switched_off():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)

        def is_told() -> bool:
            return any(waits for (waits,) in server.run("SELECT waits FROM xq_alive WHERE uuid = ''", name))

        def take() -> Any:
            with database.connection_context():
                return Task.take(timeout=PATIENCE)

        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(take)
            eventually(is_told)
            Task.put({})
            assert taken.result(STUCK) is not None
            eventually(lambda: not is_told())
            Task.xq.configure(notify=False)
            taken = thread.submit(take)
            Task.put({"name": "b"})
            assert taken.result(STUCK).name == "b"
            assert not is_told()


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
def test_a_timer_that_another_program_sets_is_told_of_when_it_is_soon():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        Task.put({}, delay=3600)
        assert Task.take() is None  # so this process listens
        eventually(lambda: server.run("SELECT 1 FROM xq_alive WHERE uuid = ''", name))
        with closing(server.peewee(name)) as ears:
            told: list[Any] = []
            ears.connection().add_notify_handler(told.append)
            ears.execute_sql("LISTEN xq")
            for seconds, is_told in ((1800, False), (0.5, True)):
                told.clear()
                server.run(f"UPDATE task SET runat = extract(epoch FROM now()) + {seconds}", name)
                ears.execute_sql("SELECT 1")
                assert bool(told) == is_told
        assert Task.take(timeout=PATIENCE) is not None


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


@ON_POSTGRES
def test_an_idle_process_keeps_its_task_where_the_server_ends_idle_sessions():
    with own(Postgres) as server, closing(server.peewee("app")) as database:
        Task = queue_on(database)
        Task.put({})
        server.run("ALTER DATABASE app SET idle_session_timeout = '1s'")  # of connections from here on
        taken = Task.take()
        database.close()
        assert Task.xq.count("T") == 1
        idle = (
            "SELECT 1 FROM pg_stat_activity WHERE usename = 'xq' AND clock_timestamp() - state_change > interval '2 s'"
        )
        eventually(lambda: server.run(idle))  # only the link may be: all others have ended by then
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


@ON_POSTGRES
def test_a_transaction_that_puts_cannot_be_prepared_while_somebody_waits():
    with own(Postgres, max_prepared_transactions=1) as server, closing(server.peewee("app")) as database:
        Task = queue_on(database)

        def take() -> Any:
            with database.connection_context():
                return Task.take(timeout=PATIENCE)

        def prepare() -> None:
            database.execute_sql("BEGIN")
            Task.put({})
            database.execute_sql("PREPARE TRANSACTION 'a'")

        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(take)
            eventually(lambda: server.run("SELECT 1 FROM xq_alive WHERE uuid = '' AND waits", "app"))
            with pytest.raises(pw.PeeweeException, match="PREPARE a transaction that has executed .*NOTIFY"):
                prepare()
            database.close()
            Task.xq.configure(notify=False)
            prepare()
            database.execute_sql("COMMIT PREPARED 'a'")
            assert taken.result(STUCK) is not None


# rights


@ON_POSTGRES
def test_a_user_who_may_read_and_write_the_tables_can_use_a_queue_and_not_install_one():
    with database_on(Postgres) as (server, name):
        with closing(server.peewee(name)) as database:
            queue_on(database)
        for sql in (
            "DROP ROLE IF EXISTS clerk",
            "CREATE ROLE clerk LOGIN",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk",
            f"REVOKE TEMP ON DATABASE {name} FROM PUBLIC",
        ):
            server.run(sql, name)
        with closing(server.peewee(name, user="clerk")) as database:
            Task = queue_on(database, installed=False)
            heard: list[str] = []
            Task.xq.on_change(lambda task, event, source, target: heard.append(event))
            with database.atomic():
                Task.put({})
            assert Task.take(timeout=5).ack().status == "D"
            assert heard == ["put", "take", "ack"]
            assert is_exact(Task)
            with pytest.raises(pw.PeeweeException, match="permission denied for schema|must be owner"):
                queue_on(database, installed=True, table_name="another")


@ON_MARIADB
def test_a_user_who_may_not_make_triggers_can_use_a_queue_of_mariadb_and_not_install_one():
    with database_on(MariaDB) as (server, name):
        with closing(server.peewee(name)) as database:
            queue_on(database)
        server.run("CREATE OR REPLACE USER clerk")
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES, INDEX, ALTER"
        server.run(f"GRANT {rights} ON `{name}`.* TO clerk")
        with closing(server.peewee(name, user="clerk")) as database:
            Task = queue_on(database, installed=False)
            heard: list[str] = []
            Task.xq.on_change(lambda task, event, source, target: heard.append(event))
            with database.atomic():
                Task.put({})
            assert Task.take(timeout=5).ack().status == "D"
            assert heard == ["put", "take", "ack"]
            assert is_exact(Task)
            with pytest.raises(pw.PeeweeException, match="TRIGGER command denied"):
                queue_on(database, table_name="another")
        server.run(f"GRANT TRIGGER ON `{name}`.* TO clerk")
        with closing(server.peewee(name, user="clerk")) as database:
            another = queue_on(database, table_name="another")
            another.put({})
            assert is_exact(another)


@contextmanager
def own(kind: type[Server], **settings: Any) -> Iterator[Server]:
    if reason := kind.missing():
        pytest.skip(reason)
    with kind(**settings) as server:
        server.create("app")
        yield server


@ON_MARIADB
def test_with_a_binary_log_mariadb_wants_to_trust_those_who_make_triggers():
    with own(MariaDB, log_bin="binary-log") as server, closing(server.peewee("app")) as database:
        with pytest.raises(pw.DatabaseError, match="log_bin_trust_function_creators"):
            queue_on(database)
        server.run("SET GLOBAL log_bin_trust_function_creators = 1")
        Task = queue_on(database)
        Task.put({})
        assert Task.take().ack().status == "D"
        assert is_exact(Task)


# behind a pooler


@ON_POSTGRES
def test_behind_pgbouncer_in_transaction_mode_a_queue_works_and_its_sessions_have_a_lease():
    if reason := PgBouncer.missing():
        pytest.skip(reason)
    with Postgres() as server:
        server.create("q")
        leases = "SELECT ends - extract(epoch FROM now()) FROM xq_session WHERE queue = ''"
        with closing(server.peewee("q")) as database:
            Task = queue_on(database)
            Task.put({})
            assert Task.take().ack().status == "D"
            assert server.run(leases, "q") == [(None,)], "a session lives as long as its connection"
        with PgBouncer(server, pool_mode="transaction") as pooler:
            with closing(pooler.peewee("q", prepare_threshold=None)) as database:
                Task = queue_on(database)

                def take() -> Any:
                    with database.connection_context():
                        return Task.take(timeout=PATIENCE).ack()

                with ThreadPoolExecutor(1) as thread:
                    taken = thread.submit(take)
                    Task.put({"name": "a"})
                    assert taken.result(STUCK).name == "a"
                ((lease,),) = [(ends,) for (ends,) in server.run(leases, "q") if ends is not None]
                assert 0 < lease < 11, (
                    "ten seconds, of which the renewal may know later than the transaction that looks"
                )
                assert is_exact(Task)


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


def queue_of_a_site_that_is_gone(database: Any) -> Any:
    """A queue of two tasks, one of which went along with what it referred to."""

    class Site(pw.Model):
        class Meta:
            database: Any

    Site.bind(database)
    database.create_tables([Site])
    Task = queue_on(database, site=pw.ForeignKeyField(Site, null=True, on_delete="CASCADE"))
    Task.put({"site": Site.create()})
    Task.put({})
    Site.delete().execute()
    return Task


@ON_MARIADB
def test_mariadb_counts_neither_truncate_nor_cascades_and_check_tells():
    with database_on(MariaDB) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_of_a_site_that_is_gone(database)
        assert Task.xq.check() == ["1 tasks in all that are ready (R) were removed uncounted: recount() repairs it"]
        Task.xq.recount()
        assert is_exact(Task)
        database.execute_sql("TRUNCATE TABLE task")
        assert Task.xq.check() == ["1 tasks in all that are ready (R) were removed uncounted: recount() repairs it"]
        Task.xq.recount()
        assert is_exact(Task)


@ON_POSTGRES
def test_postgresql_counts_truncate_and_cascades():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_of_a_site_that_is_gone(database)
        assert is_exact(Task)
        database.execute_sql("TRUNCATE TABLE task")
        assert is_exact(Task)
        assert Task.stats().transition == {"X-R": 2, "R-X": 2}


@ON_POSTGRES
def test_a_crash_empties_an_unlogged_table_and_check_tells():
    with own(Postgres) as server:
        with closing(server.peewee("app")) as database:
            Task = queue_on(database)
            database.execute_sql("ALTER TABLE task SET UNLOGGED")
            Task.put({})
            server.stop("immediate")
        server.start()
        with closing(server.peewee("app")) as database:
            Task = queue_on(database)
            assert Task.select().count() == 0
            assert Task.xq.check() == ["1 tasks in all that are ready (R) were removed uncounted: recount() repairs it"]
            Task.xq.recount()
            assert is_exact(Task)


@ON_POSTGRES
def test_rows_of_tables_that_inherit_are_taken_and_not_counted():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        database.execute_sql("CREATE TABLE child () INHERITS (task)")
        database.execute_sql("INSERT INTO child (name, status, size, attempts) VALUES ('a', 'R', 0, 0)")
        assert Task.take().ack().name == "a"
        assert "1 tasks in all that are done (D) were written uncounted: recount() repairs it" in Task.xq.check()
        Task.xq.recount()
        assert is_exact(Task)


@ON_POSTGRES
def test_postgresql_refuses_to_take_from_a_table_with_a_rule_on_update():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        database.execute_sql("CREATE RULE also AS ON UPDATE TO task DO ALSO NOTIFY changed")
        Task.put({})
        with pytest.raises(pw.NotSupportedError, match="rules"):
            Task.take()
        assert Task.xq.count("R") == 1
        assert is_exact(Task)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_triggers_name_is_altered_between_uninstall_and_install(kind):
    with database_on(KINDS[kind]) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        Task.put({})
        if kind == "postgres":
            alter = "ALTER TABLE task ALTER COLUMN status TYPE text"
            with pytest.raises(pw.NotSupportedError, match="used in a trigger"):
                database.execute_sql(alter)
        else:
            alter = "ALTER TABLE task RENAME COLUMN status TO state"
            database.execute_sql(alter)
            with pytest.raises(pw.OperationalError, match="1054"):
                database.execute_sql("UPDATE task SET name = 'a'")
            database.execute_sql("ALTER TABLE task RENAME COLUMN state TO status")
        Task.xq.uninstall()
        database.execute_sql(alter)
        database.close()
        if kind == "mariadb":
            Task = queue_on(database, status=pw.CharField(default="R", column_name="state"))
        Task.xq.install()
        assert Task.take().ack().status == "D"
        assert is_exact(Task)


@ON_MARIADB
def test_mariadb_installs_nothing_within_a_transaction_and_postgresql_does():
    with database_on(MariaDB) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database, installed=False)
        database.execute_sql("CREATE TABLE task (id INT)")
        with database.atomic(), pytest.raises(xq.Error):
            Task.xq.install()


@ON_POSTGRES
def test_postgresql_installs_within_a_transaction():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database, installed=False)
        with database.atomic() as transaction:
            database.create_tables([Task])
            Task.put({})
            transaction.rollback()
        assert database.get_tables() == []


@ON_POSTGRES
def test_postgresql_keeps_no_text_with_a_nul():
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        Task = queue_on(database)
        with pytest.raises(xq.BadValue, match="NUL"):
            Task.put({"name": "a\0b"})
        assert is_exact(Task)


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
