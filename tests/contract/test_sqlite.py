"""What is SQLite's own: files, locks, rows that no model wrote, what is installed, limits."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from typing import Any

import peewee as pw
import pytest
from playhouse import migrate

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.steps import a_second_passes, eventually, is_exact, state, wrong
from xq.testing import run_pending

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FEATURES: xq.Features = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "unique": True}


@pytest.fixture
def db(sqlite_db):
    return sqlite_db


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def make_file(path):
    with closing(pw.SqliteDatabase(path, timeout=20)) as database:
        yield Maker(database)


def master(db):
    return db.execute_sql("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def test_check_names_a_connection_whose_triggers_cannot_tell_the_queue_from_other_programs(make_file):
    Task = make_file({"keep": True, "guard": True})
    make_file.db.pragma("trusted_schema", 0, permanent=True)
    make_file.db.close()
    assert any("PRAGMA trusted_schema is off" in line for line in Task.xq.check())
    Task.put(task())
    with pytest.raises(pw.IntegrityError, match="feature guard"):
        Task.take().ack()
    assert state(Task, 1) == "T"


# rows and tables that no model wrote


def test_a_row_that_cannot_be_read_is_passed_over_and_is_acked_as_it_is(make):
    Task = make(attributes={"own": pw.UUIDField(null=True)})
    keys = [put.id for put in Task.xq.put_many(tasks(3))]
    spoil = "UPDATE task SET own = 'abc' WHERE id = ?"
    make.db.execute_sql(spoil, (keys[1],))
    assert [taken.id for taken in (*Task.xq.take_many(3), *Task.xq.take_many(3))] == [keys[0], keys[2]]
    assert Task.xq.count("R") == 1
    make.db.execute_sql(spoil, (keys[0],))
    assert Task.ack(keys[0]).own == "abc"
    assert Task.xq.count("T") == 1


def test_a_trigger_that_ignores_a_row_is_told(make):
    Task = make()
    make.db.execute_sql("CREATE TRIGGER no BEFORE INSERT ON task BEGIN SELECT RAISE(IGNORE); END")
    for put in (lambda: Task.put(task()), lambda: Task.xq.put_many(tasks(2))):
        with pytest.raises(xq.Error, match="trigger that ignores"):
            put()
    assert Task.xq.count() == 0


def test_a_column_that_is_missing_is_named_and_nothing_is_installed_beside_it(make):
    make.db.create_tables([make.model(runat=None)])
    before = master(make.db)
    Task = make.model()
    xq.upgrade(Task, {"status": "status", "runat": "runat"}, {"ttl": 10}, clock=make.clock)
    for call in (Task.xq.install, lambda: make.db.create_tables([Task]), lambda: Task.put(task())):
        with pytest.raises(xq.NotInstalled, match=r"task\.runat"):
            call()
    assert Task.xq.check()[0] == "the column task.runat is missing"
    assert master(make.db) == before
    make.db.execute_sql("ALTER TABLE task ADD COLUMN runat DOUBLE")
    Task.xq.install()
    assert Task.put(task()).take()
    assert is_exact(Task)


def rebuilt_by_sql(db):  # as Alembic's batch_alter_table does, and SQLite's documents say
    (sql,) = db.execute_sql("SELECT sql FROM sqlite_master WHERE name = 'task'").fetchone()
    indexes = db.execute_sql("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql <> ''").fetchall()
    copied = "INSERT INTO copy SELECT * FROM task", "DROP TABLE task", "ALTER TABLE copy RENAME TO task"
    with db.atomic():
        for each in (sql.replace('"task"', "copy"), *copied, *(index for (index,) in indexes)):
            db.execute_sql(each)


def rebuilt_by_playhouse(db):
    migrate.migrate(migrate.SqliteMigrator(db).drop_not_null("task", "size", legacy=True))


@pytest.mark.parametrize("rebuilt", [rebuilt_by_sql, rebuilt_by_playhouse])
@pytest.mark.parametrize("call", ["put", "take"])
def test_triggers_that_a_change_of_the_table_drops_are_missed_within_a_second(make, rebuilt, call, monkeypatch):
    Task = make()
    for _ in range(2):
        Task.put({}).take()
    rebuilt(make.db)
    a_second_passes(monkeypatch)
    with pytest.raises(xq.NotInstalled, match=r"the trigger task_xq_\w+ is missing"):
        getattr(Task.xq, call)()
    Task.xq.install()
    assert (Task.put({}).take().id, Task.xq.count("T"), is_exact(Task)) == (3, 3, True)


def test_a_process_that_takes_misses_triggers_that_a_change_of_the_table_drops(make_file):
    Task = live(make_file.db)()
    Task.put({}).take()
    rebuilt_by_sql(make_file.db)

    def is_told():
        with suppress(xq.NotInstalled):
            return not Task.put({})
        return True

    eventually(is_told)


def test_a_put_in_a_transaction_looks_at_the_installation_when_it_may_write(make_file, path, monkeypatch):
    Task, refused = make_file(), []
    Task.put({})

    def meanwhile(sql):
        if sql.startswith("SELECT version"):
            with closing(sqlite3.connect(path, timeout=0)) as other, pytest.raises(sqlite3.OperationalError) as error:
                other.execute("UPDATE task SET name = 'other'")
            refused.append(str(error.value))

    a_second_passes(monkeypatch)
    with make_file.db.atomic():
        make_file.db.connection().set_trace_callback(meanwhile)
        Task.put({})
    assert refused == ["database is locked"]


# the files


def test_what_is_locked_is_peewees_error_and_a_session_may_be_closed_when_it_no_longer_is(make_file, path):
    make_file.db.init(path, timeout=0.05)
    Task = make_file(roles=("runat",))
    put = Task.put(task())
    stack = ExitStack()
    session = stack.enter_context(Task.xq.session())
    assert Task.take().id == put.id
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    for call in (
        lambda: Task.put(task()),
        Task.take,
        Task.xq.truncate,
        lambda: Task.xq.put_many(tasks(2)),
        stack.close,
    ):
        with pytest.raises(pw.OperationalError, match="locked"):
            call()
    assert (Task.xq.count("T"), session.closed) == (1, False)
    writer.close()
    session.close()
    stack.close()
    assert session.closed
    assert state(Task, put) == "R"
    assert session.uuid not in dict(Task.xq.sessions())


def test_a_call_that_reads_before_it_writes_locks_the_file_before_both(make_file):
    Task, seen = make_file(), list[str]()
    Task.xq.put_many(tasks(3))
    make_file.db.connection().set_trace_callback(seen.append)
    Task.xq.kill_many([1, 2])
    Task.xq.truncate()
    assert [sql for sql in seen if sql.startswith("BEGIN")] == ["BEGIN IMMEDIATE"] * 2


FIRST_CALLS = {
    "act": lambda queue: queue.act("kill", "state:R"),
    "configure": lambda queue: queue.configure(session_ttr=0),
    "pause_schedule": lambda queue: queue.pause_schedule("none"),
    "recount": lambda queue: queue.recount(),
    "reset": lambda queue: queue.reset(),
    "session": lambda queue: queue.session(),
}


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_the_first_call_of_a_process_locks_the_file_before_it_looks_for_the_queue(make_file, name):
    make_file()
    make_file.INSTALLS = False
    queue, seen = make_file().xq, list[str]()  # as another process has it
    with make_file.db.atomic():
        make_file.db.connection().set_trace_callback(seen.append)
        FIRST_CALLS[name](queue)
        make_file.db.connection().set_trace_callback(None)
    first = next(sql for sql in seen if sql.startswith("UPDATE") or " FROM " in sql)
    assert first.startswith("UPDATE"), "else it fails if another process has written since it looked"


@pytest.mark.parametrize("name", ["recount", "reset", "sweep"])
def test_a_call_locks_the_file_once_within_a_transaction(make_file, name):
    queue, seen = make_file({"ttr": 1}).xq, list[str]()
    queue.put_many(tasks(2))
    queue.take_many(2)
    make_file.clock.tick(2)
    with make_file.db.atomic():
        make_file.db.connection().set_trace_callback(seen.append)
        getattr(queue, name)()
        make_file.db.connection().set_trace_callback(None)
    assert sum(sql.endswith("WHERE FALSE") for sql in seen) == 1


def test_a_take_that_waits_makes_one_update_before_it_sleeps_and_one_after(make_file):
    Task, seen = live(make_file.db)(), list[str]()
    make_file.db.connection().set_trace_callback(seen.append)
    assert Task.take(timeout=0.2) is None
    assert sum(sql.startswith("UPDATE") for sql in seen) <= 2


def test_the_file_of_the_locks_has_the_mode_and_the_owner_of_the_database(make_file, path):
    Task = make_file()
    Task.put(task())
    path.chmod(0o660)
    if os.geteuid() == 0:  # no other user may give a file away
        os.chown(path, 65534, 65534)
    assert Task.take()
    there, locks = path.stat(), path.with_name("app.db-xq").stat()
    assert (locks.st_mode, locks.st_uid, locks.st_gid) == (there.st_mode, there.st_uid, there.st_gid)


def test_a_file_that_is_not_in_wal_is_told_and_set_right(make_file):
    Task = make_file()
    Task.put(task())
    make_file.db.execute_sql("PRAGMA journal_mode = DELETE")
    assert any("WAL" in line for line in Task.xq.check())
    assert Task.take(), "it works all the same"
    Task.xq.install()
    assert Task.xq.check() == []
    Task.xq.uninstall()
    assert make_file.db.pragma("journal_mode") == "wal"


@pytest.mark.parametrize(("pragma", "value"), [("journal_mode", "DELETE"), ("locking_mode", "exclusive")])
def test_pragmas_by_which_connections_lock_each_other_out_are_refused_by_name(tmp_path, pragma, value):
    with pytest.raises(xq.ConfigurationError, match=f"has {pragma} = {value} in its pragmas"):
        Maker(pw.SqliteDatabase(str(tmp_path / "app.db"), pragmas={pragma: value}))()
    with closing(pw.SqliteDatabase(":memory:", pragmas={pragma: value})) as db:  # which no other connection opens
        assert Maker(db)().put({})


@pytest.mark.parametrize(
    ("options", "words"), [({}, "each thread has a database of its own"), ({"thread_safe": False}, "check_same_thread")]
)
def test_a_database_of_one_thread_is_refused_by_run_which_names_what_works(options, words):
    with closing(pw.SqliteDatabase(":memory:", **options)) as db:
        Task = Maker(db)({"keep": True}, worker=lambda task: None)
        Task.put({})
        with pytest.raises(xq.ConfigurationError, match=f"{words}.*, or call .* by xq.testing.run_pending"):
            Task.xq.run(until_empty=True)
        assert run_pending(Task) == 1


def test_an_error_that_no_retry_helps_against_ends_the_worker(make_file):
    Task = make_file({"keep": True}, worker=lambda task: None)
    Task.put({})
    make_file.db.execute_sql("CREATE TRIGGER own BEFORE UPDATE ON task BEGIN SELECT missing(); END")
    with pytest.raises(pw.OperationalError, match="no such function: missing"):
        Task.xq.run(until_empty=True)
    assert Task.xq.count("R") == 1


# what is installed


def test_whatever_is_dropped_is_missed_by_name_and_brought_back(make_file):
    def again():
        return make_file.model(), {"status": "status", "runat": "runat", "tube": "tube", "unique": "job"}

    def installed():
        return [(kind, name) for kind, name, _, sql in master(make_file.db) if sql and name != "task"]

    model, fields = again()
    Task = make_file(FEATURES, model=model, fields=fields, tube_stats=["a"])
    before = installed()
    assert {kind for kind, _ in before} == {"table", "index", "trigger"}
    for kind, name in before:
        Task.put(task())
        make_file.db.execute_sql(f'DROP {kind} "{name}"')
        assert any(name in line for line in Task.xq.check())
        fresh, fields = again()
        xq.upgrade(fresh, fields, FEATURES, tube_stats=["a"], clock=make_file.clock)
        with pytest.raises(xq.NotInstalled, match=name):
            fresh.put(task())
        fresh.xq.install()
        assert wrong(fresh.xq) == []
        assert Task.take()
    assert installed() == before


def test_a_wide_table_takes_batches_within_the_limit_of_variables(make_file):
    Task = make_file(attributes={f"column_{i}": pw.IntegerField(default=i) for i in range(200)})
    make_file.db.connection().setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32766)  # SQLite's own default
    assert len(Task.xq.put_many(tasks(170))) == 170
    assert Task.take().column_199 == 199


def test_a_tube_that_is_never_null_is_taken_and_found_by_its_index(sqlite_db):
    Task = Maker(sqlite_db)(roles=("tube",), attributes={"tube": pw.CharField(default="main")})
    Task.xq.put_many(tasks(2))
    assert (Task.take(tube="main").id, len(Task.xq.find("tube:main").tasks)) == (1, 2)


def test_a_link_in_the_place_of_the_lock_file_is_refused(tmp_path):
    (tmp_path / "app.db-xq").symlink_to(tmp_path / "other")
    with pytest.raises(xq.ConfigurationError, match="app.db-xq, and it cannot be opened"):
        Maker(pw.SqliteDatabase(tmp_path / "app.db"))().take()


@pytest.mark.parametrize("base", [pw.Model, xq.Task])
def test_a_strict_table_has_the_columns_of_a_queue(sqlite_db, base):
    meta = type("Meta", (), {"database": sqlite_db, "strict_tables": True, "table_name": "task"})
    Task: Any = type("Task", (base,), {"name": pw.TextField(), "Meta": meta})
    xq.upgrade(Task, {"attempts": True, "finished": True}, {"keep": True, "ttr": 60})
    sqlite_db.create_tables([Task])
    assert any("STRICT" in (sql or "") for *_, sql in master(sqlite_db))
    Task.put({"name": "a"})
    Task.take().ack()
    assert (Task.xq.count("D"), wrong(Task.xq)) == (1, [])


def test_a_queue_of_the_same_table_by_another_spelling_is_refused_and_leaves_it_whole(make):
    Task, Other = make(), make.model(table_name="TASK")
    xq.upgrade(Other, {"status": "status"}, {"keep": True})
    with pytest.raises(xq.ConfigurationError, match="TASK is installed as task: spell its name so in the model"):
        Other.xq.install()
    Task.put(task())
    assert (Task.take().id, wrong(Task.xq)) == (1, [])


@pytest.mark.parametrize("ends", [{"until_empty": True}, {"max_tasks": 1}])
def test_a_program_that_ends_by_itself_ends_with_the_error_of_a_file_that_only_reads(make_file, path, ends):
    Task = make_file()
    Task.put(task())
    with closing(pw.SqliteDatabase(f"file:{path}?mode=ro", uri=True)) as only_reads:
        Task.bind(only_reads)
        with pytest.raises(pw.OperationalError, match="readonly"):
            xq.run(Task.xq.worker(print), **ends)
        with pytest.raises(pw.OperationalError, match="readonly"):
            run_pending(Task)
