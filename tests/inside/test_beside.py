"""What else uses a database of the queue: policies, publications, restores, other schemas, an uninstall meanwhile."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, database_on
from tests.factories import task, tasks
from tests.servers import MariaDB, Postgres
from tests.steps import Work, is_exact, state


@pytest.fixture(params=["postgres"])
def server(request):
    with database_on(Postgres) as found:
        yield found


@pytest.fixture
def postgres(server):
    with closing(server[0].peewee(server[1])) as database:
        yield database


@pytest.mark.parametrize(("goes", "at"), [("other", 1), ("other", 2), ("task", 2)])
def test_install_creates_all_where_another_process_uninstalls_the_last_queue_meanwhile(
    make_shared, monkeypatch, goes, at
):
    Other = make_shared(model=make_shared.model(table_name="other"))
    Task = make_shared({"ttr": 60}, roles=("runat",))
    if goes == "other":
        Task.xq.uninstall()
    else:
        Other.xq.uninstall()
        make_shared.db.execute_sql("UPDATE xq_queue SET fingerprint = REPLACE(fingerprint, '60', '61')")
    installer = type(Task.xq.parts.maintenance.executor.installation.installer)
    existing, calls = installer.existing, []

    def and_then_it_goes(self: Any, store: Any) -> Any:
        found = existing(self, store)
        calls.append(found)
        if len(calls) == at:
            monkeypatch.undo()
            Work(make_shared.db, {"other": Other, "task": Task}[goes].xq.uninstall).result()
        return found

    monkeypatch.setattr(installer, "existing", and_then_it_goes)
    Task.xq.install()
    assert len(calls) == at
    Task.put(task())
    assert Task.take().ack()
    assert is_exact(Task)


def test_a_role_that_row_level_security_restricts_puts_and_is_refused_by_name_where_it_takes(server, postgres):
    Maker(postgres)({"utube": True}, roles=("utube",))
    role = f"app_{server[1]}"
    for sql in (
        f"CREATE ROLE {role} LOGIN IN ROLE xq",
        "ALTER TABLE task ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "CREATE POLICY tenants ON task USING (name = current_setting('app.tenant', true))",
    ):
        server[0].run(sql, server[1])
    try:
        with closing(server[0].peewee(server[1], user=role)) as database:
            database.execute_sql("SET app.tenant = 'a'")
            Task = Maker(database)({"utube": True}, roles=("utube",))  # installs nothing
            Task.put({"name": "a"})
            for call in (Task.take, Task.xq.recount):
                with pytest.raises(xq.ConfigurationError, match=f"hides rows of it from {role}") as refused:
                    call()
            assert Task.xq.doctor()[0].what in str(refused.value)
            server[0].run(str(refused.value)[str(refused.value).index("CREATE POLICY") :], server[1])  # as it says
            assert Task.take().ack()
            assert Task.xq.check() == []
            server[0].run("CREATE POLICY more ON task AS RESTRICTIVE USING (size = 0)", server[1])
            assert len(Task.xq.check()) == 1
    finally:
        server[0].run(f"DROP OWNED BY {role}", server[1])
        server[0].run(f"DROP ROLE {role}")


@pytest.mark.parametrize("comes", ["before", "afterwards"])
def test_a_publication_for_all_tables_is_in_nobodys_way(server, postgres, comes):
    maker = Maker(postgres)
    Task = maker({"utube": True, "history": True, "keep": True}, roles=("utube",))
    server[0].run("CREATE PUBLICATION everything FOR ALL TABLES", server[1])
    try:
        if comes == "before":
            Task.xq.uninstall()
        Task.xq.install()
        Task.xq.put_many(tasks(3, utube="u"))
        Task.take().ack()
        sides = postgres.execute_sql(
            "SELECT tablename FROM pg_tables WHERE starts_with(tablename, 'task_xq_')"
        ).fetchall()
        assert len(sides) >= 5
        for (side,) in sides:
            postgres.execute_sql(f"DELETE FROM {side} WHERE FALSE")  # is refused without a replica identity
        postgres.execute_sql("DELETE FROM task WHERE id = 2")
        Task.xq.recount()
        postgres.execute_sql("TRUNCATE task")
        assert is_exact(Task)
    finally:
        server[0].run("DROP PUBLICATION everything", server[1])


def test_a_task_is_taken_beside_a_new_row_that_refers_to_it_and_a_due_one_is_not_waited_for(postgres):
    Task = Maker(postgres)({"ttl": 10, "utube": True}, roles=("deadline", "utube"))
    first, second, third = (Task.put(task(utube=utube)).id for utube in ("u", None, "v"))
    postgres.execute_sql("CREATE TABLE note (task_id int REFERENCES task)")
    with closing(postgres._connect()) as other:
        other.execute("BEGIN")
        other.execute(f"INSERT INTO note VALUES ({first}), ({second}), ({third})")
        assert [Task.take().id, Task.take().id] == [first, second]
        Task.xq.clock.tick(11)
        assert Task.xq.sweep() == 0  # deletes it
        assert state(Task, third) == "R"
        other.rollback()
    assert Task.xq.sweep() == 1


def test_indexes_that_a_dump_has_brought_back_are_as_install_left_them(postgres):
    Task = Maker(postgres)({"unique": "RTW", "delayed": True, "utube": True}, roles=("runat", "unique", "utube"))
    listed = (
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'task' AND indexname LIKE 'task|_xq%%' ESCAPE '|'"
    )
    for name, sql in postgres.execute_sql(listed).fetchall():
        postgres.execute_sql(f'DROP INDEX "{name}"')
        postgres.execute_sql(sql)
    assert Task.xq.parts.executor.installation.changed() == {}
    postgres.execute_sql('DROP INDEX "task_xq_unique"')
    postgres.execute_sql('CREATE UNIQUE INDEX "task_xq_unique" ON task (job)')
    assert Task.xq.parts.executor.installation.changed() == {"task_xq_unique": "index"}
    Task.xq.install()
    assert Task.xq.parts.executor.installation.changed() == {}


def test_recount_lets_ids_go_on_after_those_that_a_restore_has_brought(postgres):
    Task = Maker(postgres)({"utube": True, "history": True}, roles=("utube",))
    for suffix in ("history", "dirty_groups"):
        Task.put(task(utube="u"))
        postgres.execute_sql(f"ALTER TABLE task_xq_{suffix} ALTER id RESTART WITH 1")  # as a dump of data does
        with pytest.raises(pw.IntegrityError, match=suffix):
            Task.put(task(utube="u"))
        Task.xq.recount()
        Task.xq.put_many(tasks(3, utube="u"))
    assert is_exact(Task)


def test_a_user_who_may_not_create_in_the_first_schema_learns_which_option_chooses_another(server):
    role = f"own_{server[1]}"
    for sql in (
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA app AUTHORIZATION {role}",
        "CREATE SCHEMA closed",
        f"GRANT USAGE ON SCHEMA closed TO {role}",
    ):
        server[0].run(sql, server[1])
    try:
        for path in ("closed", "''", "app"):
            with closing(server[0].peewee(server[1], user=role, options=f"-c search_path={path}")) as database:
                maker = Maker(database)
                model = maker.model(meta={"schema": "app"})
                refused = pytest.raises(xq.ConfigurationError, match='options="-c search_path=app"')
                with nullcontext() if path == "app" else refused:
                    assert maker(model=model).put({}).take().ack()
    finally:
        server[0].run("DROP SCHEMA closed", server[1])
        server[0].run(f"DROP OWNED BY {role} CASCADE", server[1])
        server[0].run(f"DROP ROLE {role}")


COLUMNS: list[tuple[str, dict[str, pw.Field], str]] = [  # of the model, and of the table
    (
        "narrower",
        {name: pw.TextField(null=True) for name in ("status", "tube", "utube", "job")},
        "status VARCHAR(20), tube VARCHAR(30), utube VARCHAR(9), job VARCHAR(300)",
    ),
    ("wider", {}, "status TEXT, tube MEDIUMTEXT, utube TINYTEXT, job TEXT"),
    ("blank-padded", {}, "status CHAR(1), tube CHAR(9), utube CHAR(9), job CHAR(9)"),
    ("of another case", {}, "Status VARCHAR(20), TUBE VARCHAR(30), Utube VARCHAR(9), JOB VARCHAR(9)"),
    ("compact", {}, "status VARCHAR(255), tube VARCHAR(255), utube VARCHAR(255), job VARCHAR(255)"),
]


@pytest.mark.parametrize(("named", "fields", "columns"), COLUMNS)
def test_the_columns_of_the_table_decide_how_mariadb_indexes_them(named, fields, columns):
    with database_on(MariaDB) as (server, name), closing(server.peewee(name)) as database:
        end = "ROW_FORMAT = COMPACT" if named == "compact" else ""
        database.execute_sql(
            "CREATE TABLE task (id INT AUTO_INCREMENT PRIMARY KEY, name TEXT, size INT, runat DOUBLE, deadline DOUBLE, "
            f"priority INT, owner TEXT, attempts INT, ttl DOUBLE, ttr DOUBLE, {columns}) {end}"
        )
        maker = Maker(database)
        Task = maker(
            {"utube": True, "unique": True, "keep": True},
            roles=("tube", "utube", "unique"),
            model=maker.model(**fields),
        )
        Task.put(task(tube="t", utube="u", job="a"))
        Task.put(task(tube="t", utube="u", job="b"))
        with pytest.raises(xq.Duplicate, match="already holds"):
            Task.put(task(job="a"))
        taken = Task.take(tube="t")
        assert Task.take(tube="t") is None
        assert taken.ack()
        assert Task.xq.doctor() == []
        assert is_exact(Task)


def test_a_binary_log_of_statements_is_refused_by_name_and_a_text_that_a_column_lacks_is_a_bad_value():
    with MariaDB(log_bin="bin", binlog_format="STATEMENT", log_bin_trust_function_creators=1) as server:
        server.create("app")
        with closing(server.peewee("app")) as database:
            database.execute_sql("ALTER DATABASE app CHARACTER SET latin1")
            maker = Maker(database)
            model: Any = maker.model(error=pw.TextField(null=True))
            with pytest.raises(xq.ConfigurationError, match="SET GLOBAL binlog_format = MIXED"):
                maker({"buried": True}, model=model, fields={"status": "status", "error": "error"})
            database.close()
            server.run("SET GLOBAL binlog_format = MIXED")
            model.xq.install()
            model.put({})
            with pytest.raises(xq.BadValue):
                model.xq.bury_many(model.xq.take_many(1), error="€ 🦆")
