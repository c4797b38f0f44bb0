"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import pytest

from tests.conftest import DATABASES, SERVERS, live
from tests.factories import task, tasks
from tests.steps import (
    PATIENCE,
    another_program,
    eventually,
    in_threads,
    is_exact,
    transitions,
    waiter,
)
from xq.adapters.databases.mariadb import dialect as mariadb
from xq.adapters.databases.postgres import dialect as postgres
from xq.engine import unit

FEATURES = {"buried": True, "delayed": True, "keep": True}


@pytest.mark.parametrize("name", SERVERS)
def test_counters_that_another_program_piles_up_are_added_up_by_a_process_that_waits(name, tmp_path, monkeypatch):
    for module, number, value in ((unit, "MANY", 10), (postgres, "ROLL_UP", 20), (mariadb, "ROLL_UP", 20)):
        monkeypatch.setattr(module, number, value)
    with DATABASES[name](tmp_path) as db:
        Task = live(db)(FEATURES, roles=("runat", "tube"))
        Task.xq.put_many(tasks(2000, tube="a"))
        waits = waiter(Task, lambda: Task.take(timeout=PATIENCE, tube="b"))
        another_program(db, "UPDATE task SET status = 'B'")
        another_program(db, "UPDATE task SET status = 'R'")
        eventually(lambda: db.execute_sql("SELECT COUNT(*) FROM task_xq_count").fetchone()[0] < 20)
        assert is_exact(Task)
        Task.put(task(tube="b"))
        assert waits.result().tube == "b"


def test_on_postgresql_a_process_does_not_wait_for_another_that_adds_up_the_counters(tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "ROLL_UP", 1)
    with DATABASES["postgres"](tmp_path) as db:
        Task = live(db)(FEATURES, roles=("runat",))
        for _ in range(5):
            Task.xq.put()
        database = Task.xq._database
        with db.atomic():
            assert database.dialect.roll_up(database.store)
            assert in_threads(db, database.roll_up_some) == [False]
        assert in_threads(db, database.roll_up_some) == [True]
        assert is_exact(Task)


def test_a_take_is_counted_once_however_and_by_whom_it_ends(make):
    Task = make({"keep": True, "buried": True, "endless": True}, roles=())
    ids = [put.id for put in Task.xq.put_many(tasks(11))]
    another_program(make.db, f"UPDATE task SET status = 'T' WHERE id IN ({ids[0]}, {ids[1]})")
    Task.xq.take_many(9)
    assert transitions(Task) == {"X-R": 11, "R-T": 11}
    assert is_exact(Task)
    Task.ack(ids[2])
    Task.xq.release_many(ids[3:5])
    Task.take()
    for id_, changes in (
        (ids[0], "status = 'D'"),
        (ids[4], "status = 'B'"),
        (ids[5], "status = 'B', id = 1005"),
        (ids[6], "id = 1006"),
        (ids[7], "status = 'another'"),
        (ids[8], "name = 'another'"),
    ):
        another_program(make.db, f"UPDATE task SET {changes} WHERE id = {id_}")
    another_program(make.db, "UPDATE task SET status = 'D' WHERE id = 1006")
    another_program(make.db, f"DELETE FROM task WHERE id IN ({ids[1]}, {ids[9]})")
    assert is_exact(Task)
    left = {"T-D": 3, "T-R": 2, "R-B": 1, "T-B": 1, "T-X": 3}
    assert transitions(Task) == {"X-R": 11, "R-T": 12, **left}
    while Task.xq._database.roll_up_some():
        pass
    Task.xq.reset()
    assert is_exact(Task)
    Task.xq.truncate()
    assert is_exact(Task)
    assert transitions(Task) == {"T-X": 3, "B-X": 2, "D-X": 3}


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_the_takes_that_owners_count_are_counted_when_a_field_holds_the_owner(make_shared):
    Task = make_shared({"keep": True}, roles=())
    Task.xq.put_many(tasks(3))
    first, *_ = Task.xq.take_many(2)
    Mapped = make_shared({"keep": True}, roles=("owner",), model=make_shared.model())
    Mapped.xq.install()
    assert transitions(Mapped) == {"X-R": 3, "R-T": 2}
    Mapped.ack(first.id)
    assert transitions(Mapped) == {"X-R": 3, "R-T": 2, "T-D": 1}
    assert is_exact(Mapped)


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_install_keeps_the_takes_that_an_earlier_layout_has_counted(make_shared):
    db = make_shared.db
    Task = make_shared({"keep": True}, roles=())
    Task.xq.put_many(tasks(3))
    first, *_ = Task.xq.take_many(2)
    for sql in (
        "ALTER TABLE task_xq_owner DROP COLUMN taken_from",
        "INSERT INTO task_xq_count (tube, source, target, n) VALUES ('', 'R', 'T', 2)",
        "UPDATE xq_queue SET version = '7'",
    ):
        db.execute_sql(sql)
    Task = make_shared({"keep": True}, roles=("owner",), model=make_shared.model())
    Task.xq.install()
    assert transitions(Task) == {"X-R": 3, "R-T": 2}
    Task.ack(first.id)
    Task.take()
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-D": 1}
    assert is_exact(Task)


@pytest.mark.parametrize("call", ["recount", "reset"])
def test_of_several_that_set_the_numbers_right_at_once_each_finds_them_as_the_one_before_left_them(make_live, call):
    Task = make_live({"keep": True})
    for _ in range(5):
        Task.xq.put_many(tasks(3))
        Task.take().ack()
        if call == "recount":
            Task.xq._database.open().installation.add_counter("", "", "R", 2)
        in_threads(make_live.db, *[getattr(Task.xq, call)] * 4)
        assert is_exact(Task)
        assert all(n >= 0 for n in transitions(Task).values())
