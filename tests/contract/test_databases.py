"""The classes of Peewee by which an application may have its database, its schemas, and the columns it may have."""

from __future__ import annotations

import datetime
import gc
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import peewee as pw
import pytest
from playhouse import db_url, pool, postgres_ext

import xq
from tests.conftest import ON_POSTGRES, SERVERS, Maker, database_on, live
from tests.servers import Postgres, Server
from tests.steps import PATIENCE, STUCK, another_process, eventually, is_exact, transitions
from xq import ConfigurationError
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FEATURES = {"keep": True, "ttr": 60, "delayed": True, "history": True}


@pytest.fixture(params=["postgres"])
def postgres() -> Iterator[pw.Database]:
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        yield database


def of(cls: type[pw.Database], **options: Any) -> Callable[[Server, str], pw.Database]:
    """The way of an application that names a class and where the server is."""
    return lambda server, name: cls(name, host=server.host, port=server.port, user=server.USER, **options)


def at(scheme: str, options: str = "") -> Callable[[Server, str], pw.Database]:
    """The way of an application that has a URL."""
    return lambda server, name: db_url.connect(f"{scheme}://{server.USER}@{server.host}:{server.port}/{name}{options}")


PSYCOPG3: dict[str, Any] = {"prefer_psycopg3": True}
PLAIN: dict[str, Any] = {"ssl_disabled": True}
WAYS: Mapping[str, Mapping[str, Callable[[Server, str], pw.Database]]] = {
    "postgres": {
        "PostgresqlDatabase": of(pw.PostgresqlDatabase, **PSYCOPG3),
        "PooledPostgresqlDatabase": of(pool.PooledPostgresqlDatabase, max_connections=4, **PSYCOPG3),
        "PostgresqlExtDatabase": of(postgres_ext.PostgresqlExtDatabase, **PSYCOPG3),
        "PooledPostgresqlExtDatabase": of(postgres_ext.PooledPostgresqlExtDatabase, **PSYCOPG3),
        "Psycopg3Database": of(postgres_ext.Psycopg3Database),
        "PooledPsycopg3Database": of(postgres_ext.PooledPsycopg3Database, max_connections=4),
        "postgresql:": at("postgresql", "?prefer_psycopg3=true"),
        "postgresql+pool:": at("postgresql+pool", "?prefer_psycopg3=true&max_connections=4"),
        "psycopg3:": at("psycopg3"),
    },
    "mariadb": {
        "MySQLDatabase": of(pw.MySQLDatabase, **PLAIN),
        "PooledMySQLDatabase": of(pool.PooledMySQLDatabase, max_connections=4, **PLAIN),
        "mysql:": at("mysql", "?ssl_disabled=true"),
        "mysql+pool:": at("mysql+pool", "?ssl_disabled=true&max_connections=4"),
    },
}
EACH = [pytest.param(kind, way, id=f"{kind}-{way}") for kind in SERVERS for way in WAYS[kind]]


def works(database: Any) -> bool:
    """Whether a queue does what queues do, between threads and in a transaction."""
    Task = live(database)(FEATURES, roles=("runat",))

    def take() -> Any:
        with database.connection_context():
            return Task.take(timeout=PATIENCE).ack()

    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(take)
        eventually(lambda: Task.xq.waiting())
        Task.put({"name": "a"})
        assert taken.result(STUCK).status == "D"
    with database.atomic() as transaction:
        Task.put({"name": "b"})
        transaction.rollback()
    assert Task.select().count() == 1
    assert [row.event for row in Task.xq.history()] == ["put", "take", "ack"]
    assert is_exact(Task)
    database.close_all() if isinstance(database, pool.PooledDatabase) else database.close()
    return True


@pytest.mark.parametrize(("kind", "way"), EACH)
def test_a_queue_works_by_each_class_of_peewee(kind, way):
    with database_on(SERVERS[kind]) as (server, name):
        assert works(WAYS[kind][way](server, name))


def goes_on_in_a_child(database: Any) -> bool:
    """Whether a child leaves the connections to its parent, those that wait in the pool as well."""
    Task = live(database)(FEATURES, roles=("runat",))
    inherited = [database.connection()]

    def hold() -> object:
        with database.connection_context():
            return database.connection()

    with ThreadPoolExecutor(1) as thread:
        inherited.append(thread.submit(hold).result(PATIENCE))
    Task.put({})

    def child() -> Any:
        task = Task.take()
        yield all(database.connection() is not connection for connection in inherited)
        yield bool(task.ack())

    with another_process(database, child) as other:
        assert next(other)
        assert Task.xq.count("T") == 1
        assert next(other)
    assert Task.put({}).take().ack().status == "D"
    assert is_exact(Task)
    database.close_all()
    return True


@pytest.mark.parametrize(("kind", "way"), [("postgres", "PooledPsycopg3Database"), ("mariadb", "PooledMySQLDatabase")])
def test_a_child_takes_no_connection_from_the_pool_of_its_parent(kind, way):
    with database_on(SERVERS[kind]) as (server, name):
        assert goes_on_in_a_child(WAYS[kind][way](server, name))


def test_a_child_takes_no_connection_from_the_pool_of_its_parent_on_sqlite(tmp_path):
    # Else the pool frees, unclosed, what another thread made.
    database = pool.PooledSqliteDatabase(str(tmp_path / "app.db"), timeout=20, check_same_thread=False)
    assert goes_on_in_a_child(database)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_proxy_may_be_initialised_later_and_anew_and_the_thread_of_what_it_had_ends_silently(kind, caplog):
    proxy = pw.DatabaseProxy()

    @xq.queue(fields={"status": "status"}, features={"keep": True})
    class Task(pw.Model):
        status = pw.CharField(default="R")

        class Meta:
            database = proxy

    def threads() -> set[threading.Thread]:
        gc.collect()
        return {thread for thread in threading.enumerate() if thread.name == "xq"}

    tasks: Any = Task
    before = threads()
    with database_on(SERVERS[kind]) as (server, name):
        for _ in range(5):
            proxy.initialize(server.peewee(name))
            proxy.create_tables([Task])
            tasks.put({})
            assert tasks.take().ack().status == "D"
            assert is_exact(tasks)
            proxy.close()
            eventually(lambda: len(threads() - before) == 1)
        # Threads of earlier tests, whose databases were dropped, may tell of that.
        assert not [told for told in caplog.messages if "NoneType" in told or "is closed" in told]


# what is refused


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pw.PostgresqlDatabase, "psycopg 3, this is a connection of sqlite3: give the database prefer_psycopg3=True"),
        (pw.MySQLDatabase, "through pymysql, this is a connection of sqlite3"),
    ],
)
def test_another_driver_is_refused_by_name_whatever_is_called_first(kind, words):
    for call in ("put", "take", "install", "check", "stats"):
        with closing(sqlite3.connect(":memory:")) as connection:
            of_another = {"_connect": lambda self, it=connection: it, "_set_server_version": lambda *_: None}
            Task: Any = Maker(type("OfAnotherDriver", (kind,), of_another)("app")).model()
            xq.upgrade(Task, {"status": "status"}, {})
            with pytest.raises(ConfigurationError, match=words):
                getattr(Task.xq, call)()


# schemas of PostgreSQL


def queue_in(database: pw.Database, schema: str | None, table: str = "task", features: Any = FEATURES) -> Any:
    maker = Maker(database, Clock())
    return maker(features, model=maker.model(meta={"schema": schema, "table_name": table}))


def test_two_schemas_of_any_name_may_have_tables_of_one_name(postgres):
    schemas = (None, "the other", "two")
    for schema in schemas[1:]:
        postgres.execute_sql(f'CREATE SCHEMA "{schema}"')
    queues = [queue_in(postgres, schema) for schema in schemas]
    for number, Task in enumerate(queues):
        Task.xq.put_many([{"name": "a"}] * (number + 1))
        Task.take().ack()
    assert [transitions(Task) for Task in queues] == [{"X-R": n, "R-T": 1, "T-D": 1} for n in (1, 2, 3)]
    assert [len(Task.xq.history()) for Task in queues] == [3, 4, 5]
    assert all(map(is_exact, queues))
    queues[1].xq.uninstall()
    of_schema = (
        "SELECT relname FROM pg_class WHERE relname LIKE '%%xq%%' AND relnamespace = '\"the other\"'::regnamespace"
    )
    assert postgres.execute_sql(of_schema).fetchall() == []
    assert queues[2].take() is not None
    assert is_exact(queues[2])


def test_a_program_with_another_search_path_is_counted_as_well(postgres):
    Task = queue_in(postgres, None)
    postgres.execute_sql("CREATE SCHEMA other")
    postgres.execute_sql("SET search_path = other")
    postgres.execute_sql("INSERT INTO public.task (status, size, attempts) VALUES ('R', 0, 0)")
    postgres.execute_sql("UPDATE public.task SET status = 'D'")
    postgres.execute_sql("SET search_path = public")
    assert transitions(Task) == {"X-R": 1, "R-D": 1}
    assert is_exact(Task)


@ON_POSTGRES
def test_a_table_behind_the_first_schema_of_the_search_path_must_be_named_with_its_own():
    with database_on(Postgres) as (server, name):
        with closing(server.peewee(name)) as database:
            database.execute_sql('CREATE SCHEMA "first of all"')
            live(database).model().create_table()
        options = '-c search_path="first\\ of\\ all",public'
        with closing(server.peewee(name, options=options)) as database:
            maker = live(database)
            plain = xq.upgrade(maker.model(), {"status": "status", "runat": "runat"}, FEATURES)
            with pytest.raises(ConfigurationError, match=r"task is in the schema public.*schema = 'public'"):
                plain.install()
            Task = maker(FEATURES, roles=("runat",), model=maker.model(meta={"schema": "public"}))
            Task.put({})
            assert Task.take().ack().status == "D"
            assert is_exact(Task)
            database.execute_sql("TRUNCATE task")
            assert is_exact(Task)


# one table, seen from two schemas


@contextmanager
def two_ways(kind: str) -> Iterator[list[tuple[pw.Database, str | None]]]:
    """Two databases of Peewee and what the model says of the schema by each: both lead to one table."""
    server_kind, there = SERVERS[kind], "there"
    with database_on(server_kind) as (server, name), database_on(server_kind) as (_, another):
        if kind == "postgres":
            server.run(f"CREATE SCHEMA {there} AUTHORIZATION {server.USER}", name)
            ways = [server.peewee(name, options=f"-c search_path={there}"), server.peewee(name)]
        else:
            there = name
            ways = [server.peewee(name), server.peewee(another)]
        with closing(ways[0]) as straight, closing(ways[1]) as around:
            yield [(straight, None), (around, there)]


@pytest.mark.parametrize("first", [0, 1], ids=["there", "elsewhere"])
@pytest.mark.parametrize("kind", SERVERS)
def test_one_table_is_a_queue_from_one_schema_only(kind, first):
    with two_ways(kind) as ways:
        (one, one_schema), (other, other_schema) = ways[first], ways[1 - first]
        Task = queue_in(one, one_schema)
        Task.put({"name": "a"})
        taken = Task.take()
        with pytest.raises(ConfigurationError, match=r"Task cannot be installed: .*connect (with|to)") as refused:
            queue_in(other, other_schema)
        assert Task.ack(taken).status == "D"
        assert is_exact(Task)
        Task.xq.install()
        # Once nobody is there any more, what the error says helps.
        other.execute_sql(str(refused.value)[str(refused.value).index("DELETE FROM") :])
        Another = queue_in(other, other_schema)
        assert Another.put({}).status == "R"
        assert is_exact(Another)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_table_that_was_a_queue_from_another_schema_may_become_one_again_and_check_tells_if_it_is_both(kind):
    with two_ways(kind) as ways:
        first = queue_in(*ways[0])
        records = ways[0][0].execute_sql("SELECT * FROM xq_queue").fetchall()
        first.xq.uninstall()
        queue_in(ways[0][0], ways[0][1], table="another")
        Task = queue_in(*ways[1])  # what was a queue from another schema may become one again
        assert Task.xq.check() == []
        Task.put({"name": "a"})
        assert Task.take().ack().status == "D"
        assert is_exact(Task)
        marks = ", ".join(["%s"] * len(records[0]))
        ways[0][0].execute_sql(f"INSERT INTO xq_queue VALUES ({marks})", records[0])  # by an xq that did not look
        (told,) = Task.xq.check()
        assert "names its table as task" in told


@pytest.mark.parametrize("kind", SERVERS)
def test_records_in_a_schema_that_may_not_be_read_are_passed_by(kind):
    with two_ways(kind) as ((straight, _), (_, there)), database_on(SERVERS[kind]) as (server, another):
        closed = {"postgres": ["closed", "half_open"], "mariadb": [another]}[kind]
        for schema in closed:
            if kind == "postgres":
                straight.execute_sql(f"CREATE SCHEMA {schema}")
            straight.execute_sql(f"CREATE TABLE {schema}.xq_queue (name VARCHAR(99))")
            straight.execute_sql(f"INSERT INTO {schema}.xq_queue VALUES ('{there}.task')")
        if kind == "postgres":  # an owner has no more rights than others, but to have them back
            straight.execute_sql("REVOKE ALL ON SCHEMA closed FROM CURRENT_USER")
            straight.execute_sql("REVOKE SELECT ON half_open.xq_queue FROM CURRENT_USER")
        else:
            server.run(f"REVOKE ALL ON `{another}`.* FROM {server.USER}")
            server.run(f"GRANT INSERT ON `{another}`.* TO {server.USER}")
        # Within a transaction, where that can be: no error may have ended it.
        with straight.atomic() if kind == "postgres" else nullcontext():
            Task = queue_in(straight, None)
        Task.put({"name": "a"})
        assert Task.take().ack().status == "D"
        assert is_exact(Task)


# columns

COMPOSITE: dict[str, Any] = {
    "site": pw.UUIDField(),
    "page": pw.BigIntegerField(),
    "meta": {"primary_key": pw.CompositeKey("site", "page")},
}
BROUGHT = {"site": uuid.UUID(int=7), "page": 2**40}
OF_KINDS: list[Any] = [
    *(pytest.param(kind, COMPOSITE, BROUGHT, id=f"{kind}-composite") for kind in SERVERS),
    pytest.param("postgres", {"id": pw.IdentityField()}, {}, id="identity"),
    pytest.param("postgres", {"id": pw.IdentityField(generate_always=True)}, {}, id="identity-always"),
]


@pytest.mark.parametrize(("kind", "attributes", "brought"), OF_KINDS)
def test_a_key_may_be_of_columns_that_only_servers_have(kind, attributes, brought):
    with database_on(SERVERS[kind]) as (server, name):
        maker = Maker(server.peewee(name), Clock())
        Task = maker({"buried": True, "keep": True, "history": True}, attributes=attributes)
        put = Task.put({"name": "a", **brought})
        taken = Task.take()
        assert taken.get_id() == put.get_id()
        assert Task.xq.bury_many([taken])[0].status == "B"
        assert Task.dig(put.get_id()).status == "R"
        assert Task.xq.ack_many(Task.xq.take_many(5))[0].name == "a"
        assert [row.event for row in Task.xq.history(put)] == ["put", "take", "bury", "dig", "take", "ack"]
        assert is_exact(Task)
        maker.db.close()


def test_the_timer_may_be_a_timestamptz_in_any_time_zone(postgres):
    postgres.execute_sql("SET TIME ZONE 'Asia/Kathmandu'")
    clock = Clock(1_700_000_000)
    maker = Maker(postgres, clock)
    Task = maker(FEATURES, model=maker.model(runat=postgres_ext.DateTimeTZField(null=True)), roles=("runat",))
    put = Task.put({}, delay=90)
    assert put.runat == datetime.datetime.fromtimestamp(1_700_000_090, datetime.UTC)
    clock.tick(89)
    assert Task.take() is None
    clock.tick(1)
    assert Task.take().get_id() == put.get_id()
    assert is_exact(Task)


class Microseconds(pw.DateTimeField):
    field_type = "DATETIME(6)"


@pytest.mark.parametrize(("field", "due"), [(pw.DateTimeField, 11), (Microseconds, 10.75)])
@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_timer_of_mariadb_is_rounded_up_to_what_its_column_holds(kind, field, due):
    with database_on(SERVERS[kind]) as (server, name):
        clock = Clock(1_700_000_000)
        maker = Maker(server.peewee(name), clock)
        Task = maker(FEATURES, model=maker.model(runat=field(null=True)), roles=("runat",))
        put = Task.put({}, delay=10.75)
        assert put.runat == datetime.datetime.fromtimestamp(1_700_000_000 + due, datetime.UTC).replace(tzinfo=None)
        clock.tick(due - 0.25)
        assert Task.take() is None
        clock.tick(0.25)
        assert Task.take().get_id() == put.get_id()
        maker.db.close()


JSONS: Mapping[str, Callable[[], pw.Field]] = {
    "BinaryJSONField": lambda: postgres_ext.BinaryJSONField(null=True),
    "JSONField of playhouse": lambda: postgres_ext.JSONField(null=True),
    "JSONField of Peewee": lambda: pw.JSONField(null=True),
    "ArrayField": lambda: postgres_ext.ArrayField(pw.IntegerField, null=True),
}


@pytest.mark.parametrize("field", JSONS)
def test_the_application_may_have_columns_of_json_and_arrays(postgres, field):
    maker = Maker(postgres, Clock())
    Task = maker({"keep": True}, model=maker.model(data=JSONS[field]()))
    given, changed = ([1, 2], [3]) if field == "ArrayField" else ({"a": [1, None, "ü"]}, {"b": {"c": 2.5}})
    assert Task.put({"data": given}).data == given
    assert Task.xq.put_many([{"data": given}, {"data": None}])[1].data is None
    taken = Task.take()
    assert taken.data == given
    assert taken.ack(update={"data": changed}).data == changed
    assert Task.get_by_id(taken.id).data == changed


@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_column_of_json_on_mariadb_needs_a_database_that_says_so(kind):
    with database_on(SERVERS[kind]) as (server, name):
        maker = Maker(server.peewee(name), Clock())
        Task = maker(model=maker.model(data=pw.JSONField(null=True)))
        with pytest.raises(xq.BadValue, match=r"'data' for MySQL.*MySQLDatabase\(\.\., mariadb=True\)"):
            Task.put({"data": {"a": 1}})
        maker.db.close()
        maker = Maker(server.peewee(name, mariadb=True), Clock())
        Task = maker(model=maker.model(data=pw.JSONField(null=True)))
        assert Task.put({"data": {"a": [1, None, "ü"]}}).data == {"a": [1, None, "ü"]}
        assert Task.take().release(update={"data": [2.5]}).data == [2.5]
        maker.db.close()
