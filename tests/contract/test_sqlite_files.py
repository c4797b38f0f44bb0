"""What is SQLite's own: files, their journal, REPLACE, limits, attached schemas, and what stands in sqlite_master."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from typing import Any

import peewee as pw
import pytest
from playhouse.pool import PooledSqliteDatabase

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import PATIENCE, bring, in_threads, is_exact, processes, transitions, waiter
from tests.support import sqlite_files as support
from xq.testing import Clock

path, make_file = support.path, support.make_file


FEATURES = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "unique": True}
ROLES = ("runat", "priority", "tube", "unique")


def master(db):
    return db.execute_sql("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


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


def test_install_sets_a_file_to_wal_and_uninstall_leaves_it_so(make_file):
    Task = make_file()
    assert mode(make_file.db) == "wal"
    Task.xq.uninstall()
    assert mode(make_file.db) == "wal"


def test_a_file_that_is_not_in_wal_is_told_and_set_right(make_file):
    Task = make_file()
    Task.put(task())
    make_file.db.execute_sql("PRAGMA journal_mode = DELETE")
    assert any("WAL" in line for line in Task.xq.check())
    assert Task.take(), "it works all the same"
    Task.xq.install()
    assert Task.xq.check() == []
    assert mode(make_file.db) == "wal"


@pytest.mark.parametrize("time", range(8))
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


def test_a_queue_may_be_installed_within_a_transaction(make_file):
    model = make_file.model()
    xq.upgrade(model, {"status": "status"}, clock=make_file.clock)
    with make_file.db.atomic():
        make_file.db.create_tables([model])
        model.put(task())
    assert model.take()


# what is installed


@pytest.mark.parametrize("roles", [ROLES, (*ROLES, "owner")], ids=["side table", "role"])
def test_uninstall_leaves_sqlite_master_as_it_was(make_file, roles):
    model = make_file.model()
    make_file.db.create_tables([model])
    before = master(make_file.db)
    Task = make_file(FEATURES, roles=roles, model=model)
    bring(Task, "B")
    assert master(make_file.db) != before
    Task.xq.uninstall()
    assert master(make_file.db) == before


def test_drop_tables_leaves_an_empty_database(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    bring(Task, "B")
    make_file.db.drop_tables([Task])
    assert master(make_file.db) == []


def test_install_changes_nothing_that_is_there(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    before = master(make_file.db)
    Task.xq.install()
    Task.xq.ddl()
    assert master(make_file.db) == before


def test_reconfigure_and_install_leave_nothing_behind(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    full = master(make_file.db)
    Task.xq.reconfigure({"buried": True})
    assert len(master(make_file.db)) < len(full)
    Task.xq.reconfigure(FEATURES)
    assert master(make_file.db) == full


def test_the_ddl_installs_what_install_does(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    installed = master(make_file.db)
    text = Task.xq.ddl()
    Task.xq.uninstall()
    make_file.db.connection().executescript(text)
    assert master(make_file.db) == installed
    assert Task.xq.check() == []


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


@pytest.mark.parametrize("table", ["task_xq_count", "task_xq_owner"])
def test_a_statement_that_fails_for_want_of_a_side_table_says_so(make_file, table):
    Task = make_file(FEATURES, roles=ROLES)
    Task.xq.put_many(tasks(2))
    Task.take()
    make_file.db.execute_sql(f"DROP TABLE {table}")
    with pytest.raises(xq.NotInstalled, match=table):
        Task.take()
    Task.xq.install()
    assert Task.take()


# REPLACE and upserts


def test_replace_with_recursive_triggers_is_counted(make_file):
    Task = make_file(FEATURES, roles=ROLES)
    make_file.db.pragma("recursive_triggers", 1, permanent=True)
    put = Task.put(task())
    Task.replace(id=put.id, name="new", status="B").execute()
    Task.insert(id=put.id, name="newer").on_conflict("REPLACE").execute()
    assert transitions(Task) == {"X-R": 2, "R-X": 1, "X-B": 1, "B-X": 1}
    assert is_exact(Task)


def test_an_upsert_is_counted(make_file):
    Task = make_file({"buried": True}, attributes={"code": pw.IntegerField(unique=True, null=True)})
    Task.insert(code=1).execute()
    Task.insert(code=1).on_conflict(conflict_target=[Task.code], update={Task.status: "B"}).execute()
    assert transitions(Task) == {"X-R": 1, "R-B": 1}
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


def test_another_program_on_plain_sqlite_is_counted(make_file, path):
    Task = make_file(FEATURES, roles=ROLES)
    Task.xq.put_many(tasks(3))
    taken = Task.take()
    make_file.db.close()
    other = sqlite3.connect(path)
    other.execute("UPDATE task SET status = 'R' WHERE status = 'T'")
    other.execute("DELETE FROM task WHERE id = 2")
    other.execute("INSERT INTO task (name, size, status, attempts) VALUES ('x', 0, 'R', 0)")
    other.commit()
    other.close()
    assert transitions(Task) == {"X-R": 4, "R-T": 1, "T-R": 1, "R-X": 1}
    with pytest.raises(xq.WrongState):
        taken.ack()
    assert is_exact(Task)


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


def test_a_pool_of_connections_may_be_the_database(path):
    db = PooledSqliteDatabase(path, max_connections=8, stale_timeout=300, timeout=20, check_same_thread=False)
    Task = Maker(db, Clock())(FEATURES, roles=ROLES)
    Task.xq.put_many(tasks(40))

    def work():
        done = 0
        while taken := Task.take():
            taken.ack()
            done += 1
        return done

    assert sum(in_threads(db, *[work] * 4)) == 40
    assert is_exact(Task)
    db.close_all()


def test_a_call_after_the_connection_was_closed_opens_another(make_file):
    Task = make_file()
    Task.put(task())
    make_file.db.close()
    taken = Task.take()
    make_file.db.close()
    assert taken.ack()


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


def test_a_file_that_is_only_read_can_be_looked_at(make_file, path):
    Task = make_file({"keep": True})
    Task.put(task(name="a"))
    make_file.db.close()
    reader = pw.SqliteDatabase(f"file:{path}?mode=ro", uri=True)
    with reader.bind_ctx([Task]):
        assert Task.xq.peek(1).name == "a"
        assert Task.xq.count("R") == 1
        assert Task.xq.by_state("R")[0].name == "a"
        with pytest.raises(pw.OperationalError):
            Task.put(task())
        reader.close()


def test_a_database_of_another_kind_is_told_at_the_first_call(make_file):
    class Elsewhere(pw.Database):
        pass

    Task: Any = make_file.model(meta={"database": Elsewhere("nowhere")})
    xq.upgrade(Task, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="Elsewhere"):
        Task.put(task())
