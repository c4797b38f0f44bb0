"""What MariaDB alone does: locks beside what is written, conflicts of its own, the end of idle connections."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.factories import task, tasks
from tests.steps import (
    STUCK,
    Work,
    another_process,
    eventually,
    is_exact,
    isolate,
    make_impatient,
    processes,
    until_one_waits_for_a_lock,
)
from xq.core.errors import ConfigurationError
from xq.core.ports import ErrorKind

KIND = pytest.mark.parametrize("kind", ["mariadb"])


@pytest.fixture(params=["mariadb"])
def db(request):
    with database_on(SERVERS[request.param]) as (server, name), closing(server.peewee(name)) as database:
        yield database


@pytest.mark.parametrize("set_names", ["utf8mb4 COLLATE utf8mb4_bin", "utf8mb4 COLLATE utf8mb4_unicode_ci", "latin1"])
def test_the_history_of_a_task_is_read_whatever_the_collation_of_the_connection(db, set_names):
    db.init(db.database, **{**db.connect_params, "init_command": f"SET NAMES {set_names}"})
    fields = {
        "site": pw.IntegerField(),
        "page": pw.CharField(),
        "meta": {"primary_key": pw.CompositeKey("site", "page")},
    }
    Task = live(db)({"history": True, "keep": True}, attributes=fields)
    Task.put({"site": 1, "page": "a"})
    held = Task.take()
    assert [row.event for row in Task.xq.history(held.ack())] == ["put", "take", "ack"]


def test_nobody_waits_for_a_transaction_that_adds_the_counters_up(db):
    make_impatient(db, STUCK // 2)
    Task = live(db)({"keep": True})
    for _ in range(5):
        Task.put(task())

    def moves():
        yield "ready"
        yield Task.put(task()).id, Task.take().ack().id

    with another_process(db, moves) as other:
        next(other)
        with db.atomic():
            Task.xq._database.roll_up_some()
            assert next(other) == (6, 1)
    assert is_exact(Task)


@pytest.mark.parametrize("roles", [(), ("owner",)], ids=["side table", "role"])
def test_an_ack_waits_for_no_task_that_another_has_locked(db, roles):
    isolate(db, "READ COMMITTED")
    Task = live(db)({"keep": True, "ttr": 60}, roles=("runat", *roles))
    Task.xq.put_many(tasks(9))

    def takes():
        yield "ready"
        with db.atomic():
            yield len(Task.xq.take_many(4))
            yield "taken"

    with another_process(db, takes) as other:
        next(other)
        assert next(other) == 4
        db.execute_sql(f"SET SESSION innodb_lock_wait_timeout = {STUCK // 2}")
        first, *held = Task.xq.take_many(5)
        assert first.ack().status == "D"
        assert len(Task.xq.ack_many(held)) == 4
    assert is_exact(Task)


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
    assert Task.xq.adapter.store.classify(changed.value) is ErrorKind.CONFLICT
    assert Task.kill(1).name == "new"


@KIND
def test_a_deadlock_over_the_next_number_of_a_key_is_a_conflict(kind):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        Task = live(db)({"keep": True})
        Other: Any = type("Other", (pw.Model,), {"name": pw.TextField(), "Meta": type("Meta", (), {"database": db})})
        db.create_tables([Other])
        Other.insert_many([{"name": "a"}] * 2).execute()

        def copies():
            """Has the numbers of the tasks to itself until it has read the second row."""
            with db.atomic():
                Other.insert_many([{"name": "b"}] * 100).execute()  # of two, who has written more goes on
                db.execute_sql(
                    "INSERT INTO task (name, size, status, attempts) SELECT name, 0, 'R', 0 FROM other WHERE id <= 2"
                )

        waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"  # nobody else is here
        with db.atomic() as transaction:
            Other.update(name="c").where(Other.id == 2).execute()
            copy = Work(db, copies)
            eventually(lambda: server.run(waits)[0][1] == "1")
            with pytest.raises(pw.OperationalError, match="1467") as deadlock:
                Task.put(task())
            transaction.rollback()
        copy.result()
        assert Task.xq.adapter.store.classify(deadlock.value) is ErrorKind.CONFLICT
        assert Task.xq.count() == 2
        assert is_exact(Task)


def test_what_a_deadlock_undid_within_the_applications_transaction_is_not_begun_anew_without_the_rest(db):
    Task = live(db)({"keep": True, "unique": True}, roles=("runat", "unique"))
    Other: Any = type("Other", (pw.Model,), {"name": pw.TextField(), "Meta": type("Meta", (), {"database": db})})
    db.create_tables([Other])
    Other.create(name="a")
    written = threading.Event()

    def writes() -> None:
        with db.atomic():
            Other.insert_many([{"name": "b"}] * 100).execute()  # of two, who has written more goes on
            Task.put({"job": "same"})
            written.set()
            Other.update(name="c").where(Other.id == 1).execute()

    with db.atomic() as transaction:
        Other.update(name="lost").where(Other.id == 1).execute()
        other = Work(db, writes)
        assert written.wait(STUCK)
        until_one_waits_for_a_lock(db)
        with pytest.raises(pw.OperationalError, match="1213") as deadlock:
            Task.put({"job": "same"}, on_conflict="skip")
        transaction.rollback()
    other.result()
    assert Task.xq.adapter.store.classify(deadlock.value) is ErrorKind.CONFLICT
    assert (Task.xq.count(), Other.get_by_id(1).name) == (1, "c")
    assert is_exact(Task)


@pytest.mark.parametrize("engine", ["MyISAM"])
def test_a_table_of_another_engine_than_innodb_is_refused_by_name(db, engine):
    db.execute_sql(f"SET SESSION default_storage_engine = {engine}, SESSION default_tmp_storage_engine = {engine}")
    maker = live(db)
    model: Any = maker.model(**{name: pw.CharField(null=True) for name in ("name", "tube", "owner", "job")})
    with pytest.raises(ConfigurationError, match=rf"task is a table of {engine}, .*: ALTER TABLE") as refused:
        maker({"keep": True, "history": True}, model=model)
    db.execute_sql(str(refused.value)[str(refused.value).index("ALTER TABLE") :])  # as it says
    model.xq.install()
    heard: list[Any] = []
    model.xq.on_change(lambda *told: heard.append(told[1:]))
    with db.atomic() as transaction:
        model.put({"name": "a"})
        transaction.rollback()
    with db.atomic():
        with db.atomic() as savepoint:
            model.put({"name": "b"})
            savepoint.rollback()
        model.put({"name": "c"})
    assert heard == [("put", "X", "R")]
    assert is_exact(model)
    assert [row.event for row in model.xq.history()] == ["put"]
    db.execute_sql(f"ALTER TABLE task_xq_count ENGINE = {engine}")
    (told,) = model.xq.check()
    assert f"task_xq_count is a table of {engine}" in told


# The columns that MariaDB makes of others for `unique` and `utube` are stored: it damages indexes of virtual ones.
# Those that xq 0.1 installed were virtual, and `install()` moves them.

ON_SHARED = pytest.mark.parametrize("shared_db", ["mariadb"], indirect=True)
FEATURES = {"unique": True, "utube": True, "keep": True}
QUEUE: dict[str, Any] = {"features": FEATURES, "roles": ("priority", "unique", "utube")}

# What xq 0.1 installed in the place of today's columns and indexes, in its words; the rest is the same.
OF_0_1 = (
    "ALTER TABLE `task` DROP INDEX `task_xq_utube`, DROP COLUMN `task_xq_turn`",
    "ALTER TABLE `task` DROP INDEX `task_xq_unique`, DROP COLUMN `task_xq_held`",
    "ALTER TABLE `task_xq_utube_1` DROP INDEX open, DROP COLUMN open",
    "ALTER TABLE `task_xq_utube_1` ADD COLUMN "
    "open BOOLEAN GENERATED ALWAYS AS (taken < 1 AND k0 IS NOT NULL) VIRTUAL, ADD INDEX (open, priority, k0)",
    "ALTER TABLE `task` ADD COLUMN IF NOT EXISTS `task_xq_turn` CHAR(64) CHARACTER SET ascii GENERATED ALWAYS AS "
    "(SHA2(CONVERT(`utube` USING utf8mb4), 256)) VIRTUAL INVISIBLE, "
    "ADD INDEX IF NOT EXISTS `task_xq_utube` (`status`, `task_xq_turn`, `priority`, `id`)",
    "ALTER TABLE `task` ADD COLUMN IF NOT EXISTS `task_xq_held` CHAR(64) CHARACTER SET ascii GENERATED ALWAYS AS "
    "(CASE WHEN (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) "
    "THEN SHA2(CONVERT(`job` USING utf8mb4), 256) END) VIRTUAL INVISIBLE, "
    "ADD UNIQUE INDEX IF NOT EXISTS `task_xq_unique` (`task_xq_held`)",
    "UPDATE xq_queue SET version = '5'",
)


def made_of_others(db):
    """The columns that the database makes of others, and whether each is stored."""
    found = db.execute_sql(
        "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND generation_expression IS NOT NULL"
    )
    return {name: "STORED" in extra for name, extra in found.fetchall()}


STORED = {"task_xq_held": True, "task_xq_turn": True, "open": True}


def as_of_0_1(make):
    """A queue as xq 0.1 installed it, with tasks in all states, and a definition of it by this version."""
    Task = make(**QUEUE)
    for n, utube in enumerate("aabb"):
        Task.put(task(job=str(n), utube=utube))
    eventually(Task.take).ack()  # another connection may be refreshing the heads
    assert eventually(Task.take)
    for sql in OF_0_1:
        make.db.execute_sql(sql)
    assert made_of_others(make.db) == dict.fromkeys(STORED, False)
    model = make.model()
    xq.upgrade(
        model, {"status": "status", "priority": "priority", "unique": "job", "utube": "utube"}, QUEUE["features"]
    )
    return model


@ON_SHARED
def test_install_moves_the_columns_that_0_1_installed(make_live):
    Task = as_of_0_1(make_live)
    with pytest.raises(xq.NotInstalled, match="layout 5, this is 10"):
        Task.put(task())

    def script():
        Task.xq.install()
        yield made_of_others(make_live.db)

    with processes(make_live.db, *[script] * 3) as others:
        assert [next(other) for other in others] == [STORED] * 3
    assert Task.stats().transition == {"X-R": 4, "R-T": 2, "T-D": 1}
    assert is_exact(Task)
    with pytest.raises(xq.Duplicate):
        Task.put(task(job="3"))
    assert eventually(Task.take)
    assert sorted(found.utube for found in Task.xq.by_state("T")) == ["a", "b"]
    assert Task.take() is None
    damages = make_live.db.execute_sql("CHECK TABLE task, task_xq_utube_1 EXTENDED").fetchall()
    assert {found[-1] for found in damages} == {"OK"}
