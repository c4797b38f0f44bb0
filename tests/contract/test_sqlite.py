"""What is SQLite's own: files, locks, rows that no model wrote, what is installed, REPLACE, limits, its history."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sqlite3
import threading
from contextlib import ExitStack, closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import PATIENCE, bring, in_threads, is_exact, processes, state, transitions, waiter
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
def make_file(open_file):
    return open_file(Clock(), timeout=20)


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


def test_a_row_that_cannot_be_read_is_named_and_neither_taken_nor_acked_half(make):
    Task = make(attributes={"own": pw.UUIDField(null=True)})
    keys = [put.id for put in Task.xq.put_many(tasks(3))]
    make.db.execute_sql("UPDATE task SET own = 'abc' WHERE id = ?", (keys[1],))
    with pytest.raises(xq.BadValue, match=rf"row \[{keys[1]}\].*'abc' in 'own'"):
        Task.xq.take_many(3)
    assert Task.xq.stats().counts["R"] == 3
    assert Task.xq.taken() == []
    make.db.execute_sql("UPDATE task SET own = NULL")
    assert [taken.id for taken in Task.xq.take_many(3)] == keys
    make.db.execute_sql("UPDATE task SET own = 'abc' WHERE id = ?", (keys[1],))
    with pytest.raises(xq.BadValue):
        Task.ack(keys[1])
    assert Task.xq.count("T") == 3


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


# a database that another connection writes


def test_a_session_that_cannot_give_its_tasks_back_yet_may_be_closed_again(open_file, writer):
    Task = open_file(timeout=0.05)(roles=("runat",))
    put = Task.put(task())
    session = Task.xq.session()
    stack = ExitStack()
    stack.enter_context(session)
    assert Task.take().id == put.id
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(pw.OperationalError, match="locked"):
        stack.close()
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
    "put": lambda Task: Task.put(task(job="a")),
    "put_many": lambda Task: Task.xq.put_many(tasks(2)),
    "take": lambda Task: Task.take(),
    "sweep": lambda Task: Task.xq.sweep(),
    "release_all": lambda Task: Task.xq.release_all(),
    "kill": lambda Task: Task.xq.kill(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_call_in_a_transaction_waits_for_another_writer(open_file, writer, write):
    features, roles = {"ttl": 1000, "unique": True}, ("runat", "priority", "unique")
    open_file()(features, roles=roles).put(task())
    make = open_file(timeout=PATIENCE)
    Task = make.model()
    fields = {role: "job" if role == "unique" else role for role in ("status", *roles)}
    xq.upgrade(Task, fields, features)
    Task.xq.check()  # a look, so that its first call writes at once
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


FEATURES = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "unique": True}
ROLES = ("runat", "priority", "tube", "unique")


def mode(db):
    return db.execute_sql("PRAGMA journal_mode").fetchone()[0]


# the file of the liveness locks


def test_the_file_of_the_locks_has_the_mode_and_the_owner_of_the_database(make_file, path):
    Task = make_file()
    Task.put(task())
    path.chmod(0o660)
    root = os.geteuid() == 0  # no other user may give a file away
    if root:
        os.chown(path, 65534, 65534)
    assert Task.take()
    there, locks = path.stat(), path.with_name("app.db-xq").stat()
    assert locks.st_mode == there.st_mode
    assert (locks.st_uid, locks.st_gid) == (there.st_uid, there.st_gid)
    assert root == (locks.st_uid == 65534)


# the journal


def test_a_file_that_is_not_in_wal_is_told_and_set_right(make_file):
    Task = make_file()
    Task.put(task())
    make_file.db.execute_sql("PRAGMA journal_mode = DELETE")
    assert any("WAL" in line for line in Task.xq.check())
    assert Task.take(), "it works all the same"
    Task.xq.install()
    assert Task.xq.check() == []
    assert mode(make_file.db) == "wal"
    Task.xq.uninstall()
    assert mode(make_file.db) == "wal"


@pytest.mark.parametrize("time", range(2))
def test_many_processes_may_set_a_file_to_wal_at_the_same_moment(make_file, time):
    model: Any = make_file.model()
    make_file.db.create_tables([model])
    xq.upgrade(model, {"status": "status"})
    barrier = multiprocessing.get_context("fork").Barrier(8)

    def script():
        make_file.db.connect()
        barrier.wait(PATIENCE)
        model.xq.install()
        yield "installed"

    with processes(make_file.db, *[script] * 8) as others:
        assert {next(other) for other in others} == {"installed"}
    assert mode(make_file.db) == "wal"


# what is installed


def test_reconfigure_and_install_leave_nothing_behind(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    full = master(make_file.db)
    Task.xq.reconfigure({"buried": True})
    assert len(master(make_file.db)) < len(full)
    Task.xq.reconfigure(FEATURES)
    assert master(make_file.db) == full


def test_whatever_is_dropped_is_missed_by_name_and_brought_back(make_file):
    def again():
        return make_file.model(), {"status": "status", "runat": "runat", "tube": "tube", "unique": "job"}

    model, fields = again()
    Task = make_file(FEATURES, model=model, fields=fields, tube_stats=["a"])
    installed = [(kind, name) for kind, name, _, sql in master(make_file.db) if sql and name != "task"]
    assert {kind for kind, _ in installed} == {"table", "index", "trigger"}
    for kind, name in installed:
        Task.put(task())
        make_file.db.execute_sql(f'DROP {kind} "{name}"')
        assert any(name in line for line in Task.xq.check())
        fresh, fields = again()
        xq.upgrade(fresh, fields, FEATURES, tube_stats=["a"], clock=make_file.clock)
        with pytest.raises(xq.NotInstalled, match=name) as missing:
            fresh.put(task())
        assert any(name in line for line in missing.value.missing)
        fresh.xq.install()
        assert fresh.xq.check() == []
        assert Task.take()
    assert [(kind, name) for kind, name, _, sql in master(make_file.db) if sql and name != "task"] == installed


def test_a_statement_that_fails_for_want_of_a_side_table_says_so(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    Task.xq.put_many(tasks(2))
    Task.take()
    make_file.db.execute_sql("DROP TABLE task_xq_owner")
    with pytest.raises(xq.NotInstalled, match="task_xq_owner"):
        Task.take()
    Task.xq.install()
    assert Task.take()


# REPLACE and upserts


def test_replace_with_recursive_triggers_and_upserts_are_counted(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    make_file.db.pragma("recursive_triggers", 1, permanent=True)
    put = Task.put(task())
    Task.replace(id=put.id, name="new", status="B").execute()
    Task.insert(id=put.id, name="newer").on_conflict("REPLACE").execute()
    assert transitions(Task) == {"X-R": 2, "R-X": 1, "X-B": 1, "B-X": 1}
    upsert = Task.insert(id=put.id).on_conflict(conflict_target=[Task.id], update={Task.status: "B"})
    upsert.execute()
    assert transitions(Task) == {"X-R": 2, "R-X": 1, "X-B": 1, "B-X": 1, "R-B": 1}
    assert is_exact(Task)


def test_what_fires_no_trigger_is_told_by_check_and_repaired_by_recount(make_file, path):
    Task = make_file(FEATURES, roles=ROLES, tube_stats=["a"])
    Task.xq.put_many(tasks(3, tube="a"))
    make_file.db.close()
    other = sqlite3.connect(path)
    other.execute("REPLACE INTO task (id, name, size, status, attempts, tube) VALUES (1, 'x', 0, 'B', 0, 'a')")
    other.commit()
    other.close()
    assert Task.stats().counts["R"] == 3, "the old row went unseen"
    told = Task.xq.check()
    assert len(told) == 2, "in all, and in the tube"
    assert all("recount" in line for line in told)
    seen = transitions(Task)
    Task.xq.recount()
    assert Task.xq.check() == []
    assert Task.stats().counts == {"R": 2, "T": 0, "W": 0, "B": 1, "D": 0}
    assert Task.stats().tube["a"].counts["R"] == 2
    assert transitions(Task) == seen


# limits


def test_a_wide_table_takes_batches_within_the_limit_of_variables(make_file):
    Task = make_file(attributes={f"column_{i}": pw.IntegerField(default=i) for i in range(200)})
    make_file.db.connection().setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32766)  # SQLite's own default
    assert len(Task.xq.put_many(tasks(170))) == 170
    assert Task.take().column_199 == 199


def test_a_key_with_a_zero_byte_names_no_other_task(make_file):
    Task = make_file({"keep": True}, key=pw.CharField(primary_key=True))
    Task.xq.put_many([task(id="a"), task(id="a\0b"), task(id="c")])
    Task.xq.take_many(3)
    assert [each.id for each in Task.xq.ack_many(["a\0b", "c"])] == ["a\0b", "c"]
    assert Task.get_by_id("a").status == "T"


# other databases, and other kinds of them


def test_a_key_that_is_written_otherwise_names_the_same_task_where_its_column_says_so(make_file):
    Task = make_file(key=pw.TextField(primary_key=True, collation="NOCASE"))
    Task.put(task(id="Key"))
    waits = waiter(Task, lambda: Task.wait("kEY", timeout=PATIENCE))
    Task.take().ack()
    assert waits.result()[1]


def test_a_queue_may_stand_in_an_attached_schema(make_file, tmp_path):
    make_file.db.attach(tmp_path / "side.db", "side")
    Task = make_file(FEATURES, roles=ROLES, model=make_file.model(meta={"schema": "side"}))
    Main = make_file(FEATURES, roles=ROLES)
    taken = bring(Task, "T")
    assert taken.bury().dig().status == "R"
    with Task.xq.session():
        assert Task.take().status == "T"
    assert (Task.xq.count(), Main.xq.count()) == (1, 0)
    assert is_exact(Task)
    Task.xq.reconfigure({"buried": True})
    Task.xq.uninstall()
    assert Main.xq.check() == []
    assert Task.select().count() == 1


def test_a_table_without_rowid_may_be_a_queue(make_file):
    Task = make_file({"buried": True}, key=pw.CharField(primary_key=True), attributes={"meta": {"without_rowid": True}})
    Task.xq.put_many(tasks(3))
    Task.xq.bury_many(Task.xq.take_many(3))
    assert len(Task.plow(2)) == 2
    assert is_exact(Task)


def test_what_sqlite_refuses_passes_as_peewees_error(make_file, path):
    Task = make_file({"keep": True})
    Task.put(task())
    make_file.db.close()
    quick = pw.SqliteDatabase(path, timeout=0)
    with quick.bind_ctx([Task]):
        assert Task.xq.count() == 1
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for call in (lambda: Task.put(task()), Task.take, Task.xq.truncate, lambda: Task.xq.put_many(tasks(2))):
            with pytest.raises(pw.OperationalError, match="locked"):
                call()
        assert Task.stats().counts["R"] == 1, "looking does not wait"
        other.execute("ROLLBACK")
        other.close()
        assert Task.take()
        quick.close()


def test_a_database_of_another_kind_is_told_at_the_first_call(make_file):
    class Elsewhere(pw.Database):
        pass

    Task: Any = make_file.model(meta={"database": Elsewhere("nowhere")})
    xq.upgrade(Task, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="Elsewhere"):
        Task.put(task())


# the history

WORDS: list[Any] = ["plain", "100%%", "%d %s", "", 66, 67.5, -1, None, b"bytes", "write", "owner", "clock", "xq"]
FUNCTIONS: dict[
    str, list[tuple[Any, ...]]
] = {  # of SQLite, which triggers of the history ask by: on connections of xq they know more
    "char(?, ?, ?, ?, ?)": [
        (72, 101, 108, 108, 111),
        (0, 65, 0x1F986, -1, 0x110000),
        (None, "66", 67.9, "x", 0x10FFFF),
    ],
    "COALESCE(NULLIF(printf(?), 'owner'), 'clock')": [(word,) for word in WORDS],
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=["char", "printf"])
def test_what_the_history_asks_by_is_what_it_was_to_the_application(make, function):
    Task = make({"history": True})
    Task.put(task())
    for values in FUNCTIONS[function]:
        with closing(sqlite3.connect(":memory:")) as other:
            plain = other.execute(f"SELECT {function}", values).fetchone()
        assert make.db.execute_sql(f"SELECT {function}", values).fetchone() == plain
    make.db.execute_sql(f"CREATE INDEX odd ON task ({function.replace('?', 'size')})")


def told(Task: Any) -> list[str]:
    return [f"{row.source}-{row.target} {row.event}" for row in Task.xq.history()]


def test_a_connection_that_trusts_no_schema_writes_all_the_same(make_file):
    Task = make_file({"history": True})
    make_file.db.close()
    make_file.db.execute_sql("PRAGMA trusted_schema = 0")
    Task.put(task())
    assert told(Task) == ["X-R write"]
    (what,) = Task.xq.check()
    assert "trusted_schema" in what


def test_the_history_of_a_table_in_an_attached_database_stands_beside_it(make):
    make.db.attach(":memory:", "side")
    Task = make({"zombie": 5, "history": 10}, model=make.model(meta={"schema": "side"}))
    bring(Task, "Z")
    assert told(Task) == ["X-R put", "R-T take", "T-Z ack"]
    Task.xq.reconfigure({"keep": True, "history": 10}, move={"Z": "D"})
    assert told(Task)[3:] == ["Z-D reconfigure"]
    Task.xq.clock.tick(11)
    Task.xq.sweep()
    assert told(Task) == []
    assert Task.xq.check() == []
    Task.xq.uninstall()
    assert not [name for name in make.db.get_tables("side") if "xq" in name]
