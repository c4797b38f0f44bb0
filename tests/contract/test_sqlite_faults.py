"""What SQLite lets into a table, and what it does to those who wait: the queue stays whole all the same."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import ExitStack
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import PATIENCE, in_threads, is_exact, state
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


@pytest.fixture
def db(sqlite_db):
    return sqlite_db


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def open_file(path):
    """Opens the file once more, by Peewee: `make = open_file(timeout=20)`."""
    opened = []

    def open_it(clock: Clock | None = None, **options: Any) -> Maker:
        opened.append(pw.SqliteDatabase(path, **options))
        return Maker(opened[-1], clock)

    yield open_it
    for db in opened:
        db.close()


@pytest.fixture
def writer(path):
    """Another connection to the file; it writes in transactions of its own."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


def master(db):
    return db.execute_sql("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def pragma(db, name):
    return db.execute_sql(f"PRAGMA {name}").fetchone()[0]


# rows that no Peewee model wrote

UNREADABLE = {
    "uuid": (lambda: pw.UUIDField(null=True), "abc"),
    "decimal": (lambda: pw.DecimalField(null=True), "abc"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_row_that_cannot_be_read_is_named_and_nothing_is_taken(make, kind):
    field, poison = UNREADABLE[kind]
    Task = make(attributes={"own": field()})
    keys = [put.id for put in Task.xq.put_many(tasks(3))]
    make.db.execute_sql("UPDATE task SET own = ? WHERE id = ?", (poison, keys[1]))
    with pytest.raises(xq.BadValue, match=rf"row \[{keys[1]}\].*'abc' in 'own'"):
        Task.xq.take_many(3)
    assert Task.xq.stats().counts["R"] == 3
    assert Task.xq.taken() == []
    make.db.execute_sql("UPDATE task SET own = NULL")
    assert [taken.id for taken in Task.xq.take_many(3)] == keys


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_row_that_cannot_be_read_is_not_acked_half(make, kind):
    field, poison = UNREADABLE[kind]
    Task = make(attributes={"own": field()})
    Task.put(task())
    taken = Task.take()
    make.db.execute_sql("UPDATE task SET own = ?", (poison,))
    with pytest.raises(xq.BadValue):
        Task.ack(taken.id)
    assert Task.xq.count("T") == 1


def test_words_among_the_priorities_come_after_the_numbers(make):
    Task = make()
    high, two, one, none = (Task.put(task(priority=priority)).id for priority in (-5, 2, 1, None))
    make.db.execute_sql("UPDATE task SET priority = 'high' WHERE id = ?", (high,))
    assert [taken.id for taken in Task.xq.take_many(4)] == [none, one, two, high]
    Task.xq.release_all()
    assert [Task.take().id for _ in range(4)] == [none, one, two, high], "one by one as well"


def test_a_key_that_is_null_blocks_no_other(make):
    make.db.execute_sql("CREATE TABLE task (id TEXT PRIMARY KEY, status TEXT, runat DOUBLE)")
    make.db.execute_sql("INSERT INTO task VALUES (NULL, 'R', NULL), ('b', 'R', NULL), ('a', 'R', NULL)")
    fields = {"status": pw.TextField(default="R"), "runat": pw.DoubleField(null=True)}
    Task = make({"ttr": 10}, roles=("runat",), model=plain(make, id=pw.TextField(primary_key=True), **fields))
    assert [Task.take().id, Task.take().id, Task.take()] == ["a", "b", None]
    Task.ack("a")
    Task.xq.clock.tick(11)
    assert [taken.id for taken in Task.xq.take_many(9)] == ["b"]
    assert Task.xq.truncate() == 2, "the one that is taken, and the one that nobody can name"
    assert is_exact(Task)


def test_a_part_of_a_key_that_is_null_blocks_no_other(make):
    make.db.execute_sql("CREATE TABLE task (site TEXT, page INT, status TEXT, runat DOUBLE, PRIMARY KEY (site, page))")
    make.db.execute_sql(
        "INSERT INTO task VALUES (NULL, 1, 'R', NULL), ('b', NULL, 'R', NULL), ('a', 1, 'R', NULL), ('b', 1, 'R', NULL)"
    )
    fields = {
        "site": pw.TextField(),
        "page": pw.IntegerField(),
        "status": pw.TextField(default="R"),
        "runat": pw.DoubleField(null=True),
    }
    model = plain(make, meta={"primary_key": pw.CompositeKey("site", "page")}, **fields)
    Task = make({"ttr": 10}, roles=("runat",), model=model)
    assert [taken.get_id() for taken in Task.xq.take_many(9)] == [("a", 1), ("b", 1)]
    Task.ack(("a", 1))
    Task.xq.clock.tick(11)
    assert Task.take().get_id() == ("b", 1)


def plain(make, meta=None, **fields):
    """A model of these fields only."""
    options = {"database": make.db, "table_name": "task", **(meta or {})}
    return type("Task", (pw.Model,), {**fields, "Meta": type("Meta", (), options)})


def test_an_expired_task_that_another_table_refers_to_stops_no_other(make, caplog):
    Task = make({"ttl": 10})
    make.db.execute_sql("CREATE TABLE note (task INTEGER REFERENCES task (id))")
    make.db.execute_sql("PRAGMA foreign_keys = 1")
    one, kept, three = (put.id for put in Task.xq.put_many(tasks(3)))
    make.db.execute_sql("INSERT INTO note VALUES (?)", (kept,))
    Task.xq.clock.tick(11)
    with caplog.at_level(logging.WARNING, logger="xq"):
        assert Task.take() is None
    assert [state(Task, key) for key in (one, kept, three)] == ["X", "R", "X"]
    assert {(r.levelname, f"task {kept}:" in r.getMessage()) for r in caplog.records if r.name == "xq.Task"} == {
        ("WARNING", True)
    }
    fresh = Task.put(task())
    assert Task.take().id == fresh.id, "the queue goes on"
    make.db.execute_sql("DELETE FROM note")
    assert Task.xq.sweep() == 1
    assert is_exact(Task)


# triggers of the application


@pytest.mark.parametrize("table", ["task", "page"])
def test_a_trigger_that_ends_in_its_own_table_goes_on_working(make, table):
    Task = make.model()
    make.db.create_tables([Task])
    make.db.execute_sql("CREATE TABLE page (id INTEGER PRIMARY KEY, size INTEGER DEFAULT 0)")
    make.db.execute_sql("INSERT INTO page DEFAULT VALUES")
    make.db.execute_sql(
        f"CREATE TRIGGER seen AFTER UPDATE ON {table} BEGIN UPDATE {table} SET size = size + 1 WHERE id = NEW.id; END"
    )
    make({"keep": True}, model=Task)
    Task.put(task(size=0))
    Task.take().ack()
    make.db.execute_sql("UPDATE page SET id = id")
    assert make.db.execute_sql(f"SELECT size FROM {table}").fetchone()[0] == (2 if table == "task" else 1)
    assert pragma(make.db, "recursive_triggers") == 0
    assert is_exact(Task)


def test_a_trigger_that_ignores_a_row_is_told(make):
    Task = make()
    make.db.execute_sql("CREATE TRIGGER no BEFORE INSERT ON task BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(xq.Error, match="trigger that ignores"):
        Task.put(task())
    with pytest.raises(xq.Error, match="trigger that ignores"):
        Task.xq.put_many(tasks(2))
    assert Task.xq.count() == 0


# tables that change under the queue


def test_a_table_made_anew_in_the_place_of_a_renamed_one_is_not_installed(make):
    Task = make({"keep": True}, roles=("runat", "priority", "tube"))
    Task.xq.put_many(tasks(2))
    make.db.execute_sql("ALTER TABLE task RENAME TO former")
    Task._schema.create_table()
    Task.create(name="by plain SQL")
    with pytest.raises(xq.NotInstalled) as refused:
        Task.take()
    assert any("index" in what for what in refused.value.missing)
    assert any("trigger" in what for what in refused.value.missing)
    Task.xq.install()
    assert Task.xq.check() == []
    Task.xq.put_many(tasks(3))
    assert Task.xq.count("R") == Task.select().count() == 4
    Task.take().ack()
    make.db.execute_sql("UPDATE former SET status = 'D'")
    assert is_exact(Task)


def test_a_table_of_the_applications_own_that_is_named_like_an_index_survives(make):
    make.db.execute_sql("CREATE TABLE task_xq_deadline (note TEXT)")
    make.db.execute_sql("INSERT INTO task_xq_deadline VALUES ('mine')")
    Task = make({"keep": True})
    Task.put(task())
    Task.xq.reconfigure({"keep": True, "buried": True})
    Task.xq.uninstall()
    Task.xq.install()
    assert make.db.execute_sql("SELECT note FROM task_xq_deadline").fetchall() == [("mine",)]


def test_a_column_that_is_missing_is_named_and_nothing_is_installed_beside_it(make):
    make.db.create_tables([make.model(runat=None)])
    before = master(make.db)
    Task = make.model()
    xq.upgrade(Task, {"status": "status", "runat": "runat"}, {"ttl": 10}, clock=make.clock)
    for install in (Task.xq.install, lambda: make.db.create_tables([Task])):
        with pytest.raises(xq.NotInstalled, match="runat") as refused:
            install()
        assert refused.value.missing == ("the column task.runat is missing",)
    assert Task.xq.check()[0] == "the column task.runat is missing"
    assert master(make.db) == before
    with pytest.raises(xq.NotInstalled, match=r"task\.runat"):
        Task.put(task())
    make.db.execute_sql("ALTER TABLE task ADD COLUMN runat DOUBLE")
    Task.xq.install()
    Task.put(task())
    assert Task.take().name
    assert pragma(make.db, "integrity_check") == "ok"
    assert is_exact(Task)


def test_a_table_that_is_missing_is_named_and_nothing_is_installed(make):
    Task = make.model()
    xq.upgrade(Task, {"status": "status"})
    with pytest.raises(xq.NotInstalled) as refused:
        Task.xq.install()
    assert refused.value.missing == ("the table task is missing",)
    named = f"the database is the file {make.db.database}" in str(refused.value)
    assert named == (make.db.database != ":memory:")
    assert Task.xq.check()[0] == "the table task is missing"
    assert master(make.db) == []
    make.db.create_tables([Task])
    assert Task.xq.check() == []


# a database that another connection writes


@pytest.mark.parametrize("left", ["by close", "by the end of with"])
def test_a_session_that_cannot_give_its_tasks_back_yet_may_be_closed_again(open_file, writer, left):
    Task = open_file(timeout=0.05)(roles=("runat",))
    put = Task.put(task())
    session = Task.xq.session()
    stack = ExitStack()
    stack.enter_context(session)
    assert Task.take().id == put.id
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(pw.OperationalError, match="locked"):
        session.close() if left == "by close" else stack.close()
    assert not session.closed
    writer.execute("ROLLBACK")
    session.close()
    stack.close()
    assert session.closed
    assert state(Task, put) == "R"
    assert session.uuid not in dict(Task.xq.sessions())


def test_a_session_closed_while_another_thread_takes_leaves_no_task_taken(open_file):
    make = open_file(timeout=PATIENCE)
    Task = make()
    put = Task.put(task())
    session = Task.xq.session()
    takes, closed = threading.Event(), threading.Event()

    def hold(sql):
        if sql.startswith("BEGIN") and not takes.is_set():
            takes.set()
            closed.wait(PATIENCE)

    def take():
        with session:
            Task.xq.count()  # so that the statement held is that which takes
            make.db.connection().set_trace_callback(hold)
            with pytest.raises(xq.UnknownSession):
                Task.xq.take_many(1)

    def close():
        takes.wait(PATIENCE)
        session.close()
        closed.set()

    in_threads(make.db, take, close)
    assert takes.is_set()
    assert Task.xq.taken() == []
    assert state(Task, put) == "R"
    assert session.uuid not in dict(Task.xq.sessions())


WRITES = {
    "put": lambda Task: Task.put(task()),
    "put a unique task": lambda Task: Task.put(task(job="a")),
    "put many": lambda Task: Task.xq.put_many(tasks(2)),
    "take": lambda Task: Task.take(),
    "sweep": lambda Task: Task.xq.sweep(),
    "release all": lambda Task: Task.xq.release_all(),
    "kill": lambda Task: Task.xq.kill(1),
}

BEFORE = {"first look": lambda Task: Task.xq.check(), "later call": lambda Task: Task.xq.count()}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("unique", [{"unique": "job"}, {}], ids=["unique", "plain"])
def test_a_call_in_a_transaction_waits_for_another_writer(open_file, writer, unique, write, before):
    features: dict[str, Any] = {"ttl": 1000, **dict.fromkeys(unique, True)}
    open_file()(features, roles=("runat", "priority", *unique)).put(task())
    make = open_file(timeout=PATIENCE)
    Task = make.model()
    xq.upgrade(Task, {"status": "status", "runat": "runat", "priority": "priority", **unique}, features)
    before(Task)
    writes = threading.Event()
    connection = make.db.connection()
    # What SQLite traces is about to run: a lock that it needs is not taken yet.
    connection.set_trace_callback(lambda sql: writes.set() if sql.startswith(("UPDATE", "INSERT", "DELETE")) else None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO task (name, size, status, priority, attempts) VALUES ('other', 0, 'R', 0, 0)")

    def commit():
        writes.wait(PATIENCE)
        writer.execute("COMMIT")

    other = threading.Thread(target=commit)
    other.start()
    try:
        with make.db.atomic():
            WRITES[write](Task)
    finally:
        writes.set()
        other.join(PATIENCE)
    assert Task.select().where(Task.name == "other").count() == 1
    assert is_exact(Task)


# a commit that fails


def test_what_is_refused_at_the_commit_is_peewees_error(open_file):
    make = open_file()
    make.db.pragma("foreign_keys", 1, permanent=True)
    Task = make(roles=("owner",))
    child = pw.ForeignKeyField(Task, deferrable="INITIALLY DEFERRED")
    Child: Any = type("Child", (pw.Model,), {"task": child, "Meta": type("Meta", (), {"database": make.db})})
    make.db.create_tables([Child])
    Task.put(task())
    taken = Task.take()
    Child.create(task=taken)
    with pytest.raises(pw.IntegrityError):
        taken.ack()
    assert state(Task, taken) == "T"
    Child.delete().execute()
    assert taken.ack()
