"""The classes of Peewee by which an application may have its database, its schemas, and the columns it may have."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import peewee as pw
import pytest
from playhouse import pool, postgres_ext

import xq
from tests.conftest import SERVERS, Maker, database_on, live
from tests.servers import Postgres, Server
from tests.steps import PATIENCE, STUCK, another_process, eventually, is_exact, transitions
from xq.testing import Clock

FEATURES = {"keep": True, "ttr": 60, "delayed": True, "history": True}
PSYCOPG3: dict[str, Any] = {"prefer_psycopg3": True}


@pytest.fixture(params=["postgres"])
def postgres() -> Iterator[pw.Database]:
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        yield database


def of(cls: type[pw.Database], **options: Any) -> Callable[[Server, str], pw.Database]:
    """The way of an application that names a class and where the server is."""
    return lambda server, name: cls(name, host=server.host, port=server.port, user=server.USER, **options)


WAYS: list[tuple[str, str, Callable[[Server, str], pw.Database]]] = [
    ("postgres", "PooledPostgresqlDatabase", of(pool.PooledPostgresqlDatabase, max_connections=4, **PSYCOPG3)),
    ("postgres", "PostgresqlExtDatabase", of(postgres_ext.PostgresqlExtDatabase, **PSYCOPG3)),
    ("postgres", "PooledPsycopg3Database", of(postgres_ext.PooledPsycopg3Database, max_connections=4)),
    ("postgres", "Psycopg3Database", of(postgres_ext.Psycopg3Database)),
    ("mariadb", "PooledMySQLDatabase", of(pool.PooledMySQLDatabase, max_connections=4, ssl_disabled=True)),
    ("mysql", "PooledMySQLDatabase", of(pool.PooledMySQLDatabase, max_connections=4, ssl_disabled=True)),
]


@pytest.mark.parametrize(("kind", "way", "connects"), WAYS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_queue_works_by_each_class_of_peewee_between_threads_and_in_a_transaction(kind, way, connects):
    with database_on(SERVERS[kind]) as (server, name):
        database: Any = connects(server, name)
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
        assert [row.event for row in Task.xq.history()] == ["put", "take", "ack"]
        assert is_exact(Task)
        database.close_all() if isinstance(database, pool.PooledDatabase) else database.close()


@contextmanager
def pooled(kind: str, folder: Any) -> Iterator[Any]:
    if kind == "sqlite":
        yield pool.PooledSqliteDatabase(str(folder / "app.db"), timeout=20, check_same_thread=False)
        return
    with database_on(SERVERS[kind]) as (server, name):
        yield next(connects for of, way, connects in WAYS if of == kind and "Pooled" in way)(server, name)


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_a_child_takes_no_connection_from_the_pool_of_its_parent(kind, tmp_path):
    with pooled(kind, tmp_path) as database:
        Task = live(database)(FEATURES, roles=("runat",))
        inherited = [database.connection()]

        def hold() -> object:
            with database.connection_context():
                return database.connection()

        with ThreadPoolExecutor(1) as thread:
            inherited.append(thread.submit(hold).result(PATIENCE))  # which then waits in the pool
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


# schemas


def queue_in(database: pw.Database, schema: str | None, table: str = "task") -> Any:
    maker = Maker(database)
    return maker(FEATURES, model=maker.model(meta={"schema": schema, "table_name": table}))


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
    queues[1].xq.uninstall()
    left = "SELECT 1 FROM pg_class WHERE relname LIKE '%%xq%%' AND relnamespace = '\"the other\"'::regnamespace"
    assert postgres.execute_sql(left).fetchall() == []
    assert queues[2].take() is not None
    assert is_exact(queues[2])


class ByItsOwnCode:
    """The application's connections: its class knows the user, as by a token that passes, and sets each one up."""

    user, made = "", 0

    def _connect(self: Any) -> Any:
        given, self.connect_params = self.connect_params, {**self.connect_params, "user": ByItsOwnCode.user}
        try:
            return super()._connect()  # type: ignore[misc]
        finally:
            self.connect_params = given

    def _initialize_connection(self, connection: Any) -> None:
        ByItsOwnCode.made += 1


@pytest.mark.parametrize(
    ("kind", "cls", "options"),
    [
        ("postgres", pool.PooledPostgresqlDatabase, PSYCOPG3),
        ("postgres", pw.PostgresqlDatabase, PSYCOPG3),
        ("mariadb", pool.PooledMySQLDatabase, {"ssl_disabled": True}),
    ],
)
def test_the_session_connection_is_made_by_the_code_of_the_application_and_is_none_of_its_pool(kind, cls, options):
    pooled = {"max_connections": 1} if issubclass(cls, pool.PooledDatabase) else {}
    with database_on(SERVERS[kind]) as (server, name):
        database: Any = type("Own", (ByItsOwnCode, cls), {})(
            name, host=server.host, port=server.port, user="none", **options, **pooled
        )
        ByItsOwnCode.user, ByItsOwnCode.made = server.USER, 0
        with closing(database):
            Task = Maker(database)()
            Task.put({})
            assert Task.take().ack()
            assert ByItsOwnCode.made == 2
            assert not pooled or len(database._in_use) == 1


@contextmanager
def two_ways(kind: str) -> Iterator[list[tuple[pw.Database, str | None]]]:
    """Two databases of Peewee and what the model says of the schema by each: both lead to one table."""
    with database_on(SERVERS[kind]) as (server, name), database_on(SERVERS[kind]) as (_, another):
        if kind == "postgres":
            there = "there"
            server.run(f"CREATE SCHEMA {there} AUTHORIZATION {server.USER}", name)
            ways = [server.peewee(name, options=f"-c search_path={there}"), server.peewee(name)]
        else:
            there = name
            ways = [server.peewee(name), server.peewee(another)]
        with closing(ways[0]) as straight, closing(ways[1]) as around:
            yield [(straight, None), (around, there)]


@pytest.mark.parametrize("kind", SERVERS)
def test_one_table_is_a_queue_from_one_schema_only(kind):
    with two_ways(kind) as ((one, one_schema), (other, other_schema)):
        Task = queue_in(one, one_schema)
        taken = Task.put({"name": "a"}).take()
        with pytest.raises(xq.ConfigurationError, match=r"Task cannot be installed: .*connect (with|to)") as refused:
            queue_in(other, other_schema)
        assert Task.ack(taken).status == "D"
        assert is_exact(Task)
        # Once nobody is there any more, what the error says helps.
        records = one.execute_sql("SELECT * FROM xq_queue").fetchall()
        other.execute_sql(str(refused.value)[str(refused.value).index("DELETE FROM") :])
        Another = queue_in(other, other_schema)
        assert Another.put({}).status == "R"
        assert is_exact(Another)
        marks = ", ".join(["%s"] * len(records[0]))
        one.execute_sql(f"INSERT INTO xq_queue VALUES ({marks})", records[0])  # by an xq that did not look
        (told,) = Another.xq.check()
        assert "names its table as" in told


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("is_in_both", [False, True])
def test_a_schema_that_is_set_by_request_is_refused_at_the_first_take(kind, is_in_both):
    with database_on(SERVERS[kind]) as (server, name), database_on(SERVERS[kind]) as (_, another):
        with closing(server.peewee(name)) as db:
            if is_in_both:
                Maker(db)()
            if kind == "postgres":
                db.execute_sql("CREATE SCHEMA tenant")
            Task = Maker(db).model()
            with db.connection_context():
                db.execute_sql("SET search_path TO tenant" if kind == "postgres" else f"USE {another}")
                Task = Maker(db)(model=Task)
                Task.put({})
                with pytest.raises(xq.ConfigurationError, match="in the options of the database's connections"):
                    Task.take()
                assert Task.xq.count("R") == 1


def test_another_server_that_speaks_postgresqls_protocol_is_refused_by_name():
    with database_on(SERVERS["postgres"]) as (server, name):
        with closing(server.peewee(name, options="-c search_path=public,pg_catalog")) as db:
            db.execute_sql(
                "CREATE FUNCTION version() RETURNS text LANGUAGE sql AS $$ SELECT 'PostgreSQL 15.2-YB-2.25.1'::text $$"
            )
            with pytest.raises(xq.ConfigurationError, match=r"lacks .* LISTEN \(PostgreSQL 15\.2-YB"):
                Maker(db)()


def test_a_status_of_postgresqls_enum_is_refused_and_one_of_mariadbs_works(subtests):
    makes = {
        "postgres": [
            "CREATE TYPE mood AS ENUM ('R', 'T')",
            "ALTER TABLE task ALTER status TYPE mood USING status::mood",
        ],
        "mariadb": ["ALTER TABLE task MODIFY status ENUM('R', 'T') NOT NULL"],
    }
    for kind, statements in makes.items():
        with subtests.test(kind), maker_on(kind) as maker:
            model: Any = maker.model()
            model.create_table()
            for sql in statements:
                maker.db.execute_sql(sql)
            refused = pytest.raises(xq.ConfigurationError, match="status is of the type mood, an enum")
            with refused if kind == "postgres" else nullcontext():
                assert maker({"delayed": kind == "postgres"}, model=model).put({}).take()  # with a status that it lacks
            assert any("mood, an enum" in line for line in model.xq.check()) == (kind == "postgres")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("ALTER TABLE task RENAME TO old; CREATE TABLE task (LIKE old) PARTITION BY HASH (id)", "partitioned"),
        (
            "CREATE TABLE whole (LIKE task) PARTITION BY HASH (id);"
            "ALTER TABLE whole ATTACH PARTITION task FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            "partitioned, or a partition",
        ),
        ("ALTER TABLE task SET UNLOGGED", "UNLOGGED"),
    ],
)
def test_a_partitioned_or_unlogged_table_of_postgresql_is_refused_by_name(sql, told):
    with maker_on("postgres") as maker:
        model: Any = maker.model()
        model.create_table()
        maker.db.execute_sql(sql)
        with pytest.raises(xq.ConfigurationError, match=f"cannot be installed: it is {told}") as refused:
            maker(model=model)
        if told == "UNLOGGED":
            maker.db.execute_sql(str(refused.value).partition("crash would empty it: ")[2])  # as it says
            model.xq.install()
            assert model.take() is None
            maker.db.execute_sql(sql)
            assert "it is UNLOGGED" in " ".join(model.xq.check())


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


@contextmanager
def maker_on(kind: str, **options: Any) -> Iterator[Maker]:
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name, **options)) as database:
        yield Maker(database, Clock(1_700_000_000))


@pytest.mark.parametrize(("kind", "attributes", "brought"), OF_KINDS)
def test_a_key_may_be_of_columns_that_only_servers_have(kind, attributes, brought):
    with maker_on(kind) as maker:
        Task = maker({"buried": True, "keep": True, "history": True}, attributes=attributes)
        put = Task.put({"name": "a", **brought})
        taken = Task.take()
        assert taken.get_id() == put.get_id()
        assert Task.xq.bury_many([taken])[0].status == "B"
        assert Task.dig(put.get_id()).status == "R"
        assert Task.xq.ack_many(Task.xq.take_many(5))[0].name == "a"
        assert [row.event for row in Task.xq.history(put)] == ["put", "take", "bury", "dig", "take", "ack"]
        assert is_exact(Task)


class Microseconds(pw.DateTimeField):
    field_type = "DATETIME(6)"


TIMERS: list[tuple[str, Any, float]] = [  # the kind, the field, and when it is due whose delay is 10.75 seconds
    ("postgres", postgres_ext.DateTimeTZField, 10.75),
    ("mariadb", pw.DateTimeField, 11),
    ("mariadb", Microseconds, 10.75),
    ("mysql", pw.DateTimeField, 11),
    ("mysql", Microseconds, 10.75),
]


@pytest.mark.parametrize(("kind", "field", "due"), TIMERS)
def test_a_timer_may_be_in_any_time_zone_and_is_rounded_up_to_what_its_column_holds(kind, field, due):
    with maker_on(kind) as maker:
        if kind == "postgres":
            maker.db.execute_sql("SET TIME ZONE 'Asia/Kathmandu'")
        Task = maker(FEATURES, model=maker.model(runat=field(null=True)), roles=("runat",))
        put = Task.put({}, delay=10.75)
        wanted = datetime.datetime.fromtimestamp(1_700_000_000 + due, datetime.UTC)
        assert put.runat == (wanted if kind == "postgres" else wanted.replace(tzinfo=None))
        Task.xq.clock.tick(due - 0.25)
        assert Task.take() is None
        Task.xq.clock.tick(0.25)
        assert Task.take().get_id() == put.get_id()


OBJECT: tuple[Any, Any] = ({"a": [1, None, "ü"]}, {"b": {"c": 2.5}})
JSONS: Mapping[str, tuple[str, dict[str, Any], Callable[[], pw.Field], tuple[Any, Any]]] = {
    "BinaryJSONField": ("postgres", {}, lambda: postgres_ext.BinaryJSONField(null=True), OBJECT),
    "JSONField of Peewee": ("postgres", {}, lambda: pw.JSONField(null=True), OBJECT),
    "ArrayField": ("postgres", {}, lambda: postgres_ext.ArrayField(pw.IntegerField, null=True), ([1, 2], [3])),
    "on MariaDB": ("mariadb", {"mariadb": True}, lambda: pw.JSONField(null=True), OBJECT),
    "on MariaDB, written as for MySQL": ("mariadb", {}, lambda: pw.JSONField(null=True), OBJECT),
    "on MySQL": ("mysql", {}, lambda: pw.JSONField(null=True), OBJECT),
}


@pytest.mark.parametrize(("kind", "options", "field", "values"), JSONS.values(), ids=JSONS)
def test_the_application_may_have_columns_of_json_and_arrays(kind, options, field, values):
    given, changed = values
    with maker_on(kind, **options) as maker:
        Task = maker({"keep": True}, model=maker.model(data=field()))
        assert Task.put({"data": given}).data == given
        assert Task.xq.put_many([{"data": given}, {"data": None}])[1].data is None
        taken = Task.take()
        assert taken.data == given
        assert taken.ack(update={"data": changed}).data == changed
        assert Task.get_by_id(taken.id).data == changed
