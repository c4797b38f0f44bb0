"""What MariaDB alone does: locks beside what is written, conflicts of its own, engines, columns made of others."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker, database_on, live
from tests.factories import task
from tests.servers import MariaDB, MySQL
from tests.steps import (
    STUCK,
    Work,
    another_program,
    bring,
    elsewhere,
    eventually,
    is_exact,
    make_impatient,
    run_script,
    until_one_waits_for_a_lock,
    waiter,
)
from tests.support.wait import take
from xq.core.kinds import ErrorKind
from xq.database import duties
from xq.sql import server_notifier
from xq.sql.language import Form
from xq.sql.mariadb.mariadb_dialect import MariadbLanguage


@pytest.fixture(params=["mariadb"])
def db(request):
    with database_on(SERVERS[request.param]) as (server, name), closing(server.peewee(name)) as database:
        yield database


@pytest.fixture
def other(db):
    """A table of the application's, with two rows."""
    Other: Any = type("Other", (pw.Model,), {"name": pw.TextField(), "Meta": type("Meta", (), {"database": db})})
    db.create_tables([Other])
    Other.insert_many([{"name": "a"}] * 2).execute()
    return Other


def is_conflict(Task: Any, error: Any) -> bool:
    return Task.xq.parts.store.classify(error.value) is ErrorKind.CONFLICT


def test_a_task_with_an_unsigned_key_is_taken_and_acked(db):
    db.execute_sql("CREATE TABLE task (id BIGINT UNSIGNED PRIMARY KEY)")
    meta = type("Meta", (), {"database": db, "table_name": "task"})
    Task: Any = type("Task", (pw.Model,), {"id": pw.BigIntegerField(primary_key=True), "Meta": meta})
    xq.upgrade(Task, features={"keep": True}).install()
    db.execute_sql(f"INSERT INTO task (id, xq_status) VALUES ({2**64 - 1}, 'R'), ({2**63}, 'R')")
    first, last = Task.xq.take_many(2)
    Task.xq.ack_many([first])
    assert (Task.release(last).id, Task.ack(Task.take()).id) == (2**64 - 1, 2**64 - 1)
    assert Task.xq.count("D") == 2


# locks of a transaction of the application's at REPEATABLE READ

UTUBES = "mczdgka"


@pytest.mark.parametrize("features", [{}, {"utube": True}, {"utube": {"fair": True}}], ids=["plain", "utube", "fair"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "old snapshot"])
def test_no_call_waits_for_a_gap_beside_an_open_transaction_that_has_taken(db, features, old):
    make_impatient(db)
    Task = live(db)({"keep": True, "buried": True} | features, roles=("runat", "utube"))
    Task.xq.put_many([task(name=str(n), utube=utube) for n in range(3) for utube in UTUBES])
    Task.take().release()  # the heads are known

    def others() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        while taken := Task.take():
            names = found.setdefault(taken.utube, [])
            names.append(taken.name)
            {"0": taken.release if len(names) == 1 else taken.ack, "1": taken.bury, "2": taken.ack}[taken.name]()
            if taken.name == "0":
                Task.put(task(name="2", utube="b"))
        return found

    with db.atomic():
        if old:
            assert Task.select().count() == 3 * len(UTUBES)
            Work(db, lambda: Task.take().ack()).result()
        mine = Task.take()
        found = Work(db, others).result()
        mine.ack()
    assert [found[utube] for utube in UTUBES[3:]] == 4 * [["0", "0", "1", "2"]]
    assert is_exact(Task)


# conflicts


def test_a_dig_of_all_tasks_finds_those_that_an_older_snapshot_lacks(db):
    Task = live(db)({"buried": True})
    with db.atomic():
        assert Task.xq.count("B") == 0
        elsewhere(db, lambda: bring(Task, "B"))
        assert [dug.status for dug in Task.xq.dig(n=None)] == ["R"]


def test_a_session_is_registered_beside_a_transaction_that_has_asked_for_an_unknown_one(db):
    Task = live(db)({})
    with db.atomic() as transaction:
        with pytest.raises(xq.UnknownSession):
            Task.xq.session(uuid4())
        with Task.xq.session() as session:
            transaction.rollback()
            assert session.uuid in dict(Task.xq.sessions())


def test_a_row_that_was_changed_since_the_transaction_began_to_read_is_a_conflict(db):
    try:
        db.execute_sql("SET SESSION innodb_snapshot_isolation = ON")
    except pw.OperationalError:
        pytest.skip("this MariaDB has no innodb_snapshot_isolation")
    Task = live(db)({"keep": True})
    Task.put(task())
    with db.atomic() as transaction:
        assert Task.select().count() == 1
        Work(db, lambda: Task.update(name="new").execute()).result()
        with pytest.raises(pw.OperationalError, match="1020") as changed:
            Task.kill(1)
        transaction.rollback()
    assert is_conflict(Task, changed)
    assert Task.kill(1).name == "new"


def test_a_put_returns_the_task_that_it_replaces_by_equal_values_where_the_snapshot_lacks_it(db):
    Task = live(db)({"unique": True}, fields={"unique": "name"})
    with db.atomic():
        assert Task.select().count() == 0
        Work(db, lambda: Task.put({"name": "a"})).result()
        assert Task.put({"name": "a"}, on_conflict="replace").id == 1


def test_a_deadlock_over_the_next_number_of_a_key_is_a_conflict(db, other):
    Task = live(db)({"keep": True})

    def copies():
        """Has the numbers of the tasks to itself until it has read the second row."""
        with db.atomic():
            other.insert_many([{"name": "b"}] * 100).execute()  # of two, who has written more goes on
            db.execute_sql(
                "INSERT INTO task (name, size, status, attempts) SELECT name, 0, 'R', 0 FROM other WHERE id <= 2"
            )

    waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"  # nobody else is here
    with db.atomic() as transaction:
        other.update(name="c").where(other.id == 2).execute()
        copy = Work(db, copies)
        eventually(lambda: db.execute_sql(waits).fetchone()[1] == "1")
        with pytest.raises(pw.OperationalError, match="1467") as deadlock:
            Task.put(task())
        transaction.rollback()
    copy.result()
    assert is_conflict(Task, deadlock)
    assert Task.xq.count() == 2
    assert is_exact(Task)


def test_a_take_that_is_interrupted_on_the_server_leaves_no_transaction_open(db):
    # No handler of a block runs then.
    Task = live(db)({})
    Task.put(task())
    db.execute_sql("CREATE TRIGGER interrupts BEFORE UPDATE ON task FOR EACH ROW KILL QUERY CONNECTION_ID()")
    with pytest.raises(pw.OperationalError, match="1317"):
        Task.take()
    assert db.execute_sql("SELECT @@in_transaction").fetchone() == (0,)
    db.execute_sql("DROP TRIGGER interrupts")
    assert Task.take().id == 1


def test_what_a_deadlock_undid_within_the_applications_transaction_is_not_begun_anew_without_the_rest(db, other):
    Task = live(db)({"keep": True, "unique": True}, roles=("runat", "unique"))
    written = threading.Event()

    def writes() -> None:
        with db.atomic():
            other.insert_many([{"name": "b"}] * 100).execute()  # of two, who has written more goes on
            Task.put({"job": "same"})
            written.set()
            other.update(name="c").where(other.id == 1).execute()

    with db.atomic() as transaction:
        other.update(name="lost").where(other.id == 1).execute()
        writing = Work(db, writes)
        assert written.wait(STUCK)
        until_one_waits_for_a_lock(db)
        with pytest.raises(pw.OperationalError, match="1213") as deadlock:
            Task.put({"job": "same"}, on_conflict="skip")
        transaction.rollback()
    writing.result()
    assert is_conflict(Task, deadlock)
    assert (Task.xq.count(), other.get_by_id(1).name) == (1, "c")
    assert is_exact(Task)


# the statement that looks for those who wait

INSERT = "INSERT INTO task (size, status, attempts) VALUES (1, 'R', 0)"
WATCHES = "SELECT id FROM information_schema.processlist WHERE info LIKE '%%xq_pause%%' AND id <> CONNECTION_ID()"


@pytest.mark.parametrize("db", ["mariadb", "mysql"], indirect=True)
def test_who_is_told_within_a_transaction_that_the_server_shuts_down_is_not_in_it_for_ever(db):
    Task = live(db)({})
    store = Task.xq.parts.store
    db.begin()
    with pytest.raises(pw.OperationalError):
        store.execute("SIGNAL SQLSTATE '08S01' SET MYSQL_ERRNO = 1053, MESSAGE_TEXT = 'Server shutdown in progress'")
    assert (store.is_lost, store.driver.transaction(store.in_use)) == (True, None)
    db.close()
    Task.put(task())
    assert Task.take(timeout=1)


def test_the_server_looks_for_who_waits_and_keeps_nothing_locked(db):
    Task = live(db)({})
    waits = waiter(Task, take(Task))
    eventually(lambda: db.execute_sql(WATCHES).fetchall())
    db.execute_sql("SET STATEMENT lock_wait_timeout = 1 FOR ALTER TABLE task COMMENT 'beside it'")
    another_program(db, INSERT)
    assert waits.result().size == 1


def test_who_waits_in_another_queue_is_woken_before_the_statement_of_the_first_ends(db, monkeypatch):
    endless = Form(MariadbLanguage.watch.replace("@@timestamp + 5", "@@timestamp + 500"))
    monkeypatch.setattr(MariadbLanguage, "session_sql", replace(MariadbLanguage.session_sql, watch=endless))
    monkeypatch.setattr(duties, "FALLBACK", 3600.0)
    Task, maker = live(db)({}), live(db)
    Other = maker({}, model=maker.model(table_name="other"))
    first = waiter(Task, take(Task))
    eventually(lambda: db.execute_sql(WATCHES).fetchall())
    second = waiter(Other, take(Other))
    another_program(db, INSERT.replace("task", "other"))
    assert second.result().size == 1
    another_program(db, INSERT)
    assert first.result().size == 1


def test_who_waits_is_woken_though_the_connection_that_looks_for_it_is_killed(db, monkeypatch):
    monkeypatch.setattr(duties, "FALLBACK", 3600.0)
    Task = live(db)({})
    waits = waiter(Task, take(Task))
    ((number,),) = eventually(lambda: db.execute_sql(WATCHES).fetchall())
    db.execute_sql(f"KILL {number}")
    another_program(db, INSERT)
    assert waits.result().size == 1


def test_who_waits_is_woken_though_the_server_has_no_connection_left_that_would_look_for_it(db, monkeypatch, caplog):
    def refuse(*_: object) -> None:
        raise pw.OperationalError(1226, "User has exceeded the 'max_user_connections' resource")

    monkeypatch.setattr(duties, "FALLBACK", 3600.0)
    monkeypatch.setattr(server_notifier.Watch, "_begin", refuse)
    Task = live(db)({})
    waits = waiter(Task, take(Task))
    another_program(db, INSERT)
    assert (waits.result().size, caplog.messages) == (1, [])


# what is installed


@pytest.mark.parametrize("mode", ["ORACLE", "EMPTY_STRING_IS_NULL"])
def test_a_mode_in_which_sql_has_another_meaning_is_refused_by_name(db, mode):
    Task = live(db)({})
    Task.xq.uninstall()
    db.execute_sql(f"SET sql_mode = '{mode}'")
    with pytest.raises(xq.ConfigurationError, match=f"sql_mode {mode} .* connect without it"):
        Task.xq.install()


def test_a_table_of_another_engine_than_innodb_is_refused_by_name(db):
    db.execute_sql("SET SESSION default_storage_engine = MyISAM, SESSION default_tmp_storage_engine = MyISAM")
    maker = live(db)
    model: Any = maker.model(**{name: pw.CharField(null=True) for name in ("name", "tube", "owner", "job")})
    with pytest.raises(xq.ConfigurationError, match=r"task is a table of MyISAM, .*: ALTER TABLE") as refused:
        maker({"keep": True, "history": True}, model=model)
    db.execute_sql(str(refused.value)[str(refused.value).index("ALTER TABLE") :])  # as it says
    model.xq.install()
    model.put({"name": "a"})
    assert is_exact(model)
    db.execute_sql("ALTER TABLE task_xq_count ENGINE = MyISAM")
    (told,) = model.xq.check()
    assert "task_xq_count is a table of MyISAM" in told


def test_a_take_looks_again_for_a_task_whose_row_a_take_of_other_tubes_locks_in_passing(db, monkeypatch):
    Task = live(db)({}, roles=("tube",))
    put = Task.put(task(tube="mail"))
    with closing(db._connect()) as another:
        another.begin()
        another.cursor().execute("SELECT * FROM task FOR UPDATE")
        monkeypatch.setattr("xq.engine.take.time.sleep", lambda seconds: another.rollback())
        taken = Task.take(tube="mail")
    assert taken.id == put.id


@pytest.mark.parametrize("made", [partial(MariaDB, log_bin="bin"), partial(MySQL, log_bin_trust_function_creators=0)])
def test_a_user_who_may_create_no_trigger_beside_a_binary_log_is_told_so_before_anything_is_made(made):
    with made() as server:
        server.create("app")
        with closing(server.peewee("app")) as mine, closing(server.peewee("app", user="root")) as administrators:
            Task: Any = Maker(mine).model()
            mine.create_tables([Task])
            queue = xq.upgrade(Task, {"status": "status"})
            with pytest.raises(xq.ConfigurationError, match=(remedy := "SET GLOBAL log_bin_trust_function_creators")):
                queue.install()
            assert remedy in str(queue.install(plan=True))
            assert [each for each in mine.get_tables() if "xq" in each] == []
            run_script(administrators, queue.ddl())
            queue.install()
            server.run("SET GLOBAL log_bin_trust_function_creators = 1")
            run_script(administrators, queue.ddl(uninstall=True))
            queue.install()
            Task.put(task())
            assert Task.take().ack()
            assert queue.check() == []
