"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import pytest

from tests.conftest import DATABASES, SERVERS, Maker
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
        Task = Maker(db, None)(FEATURES, roles=("runat", "tube"))
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
        Task = Maker(db, None)(FEATURES, roles=("runat",))
        for _ in range(5):
            Task.xq.put()
        database = Task.xq._database
        with db.atomic():
            assert database.dialect.roll_up(database.store)
            assert in_threads(db, database.roll_up_some) == [False]
        assert in_threads(db, database.roll_up_some) == [True]
        assert is_exact(Task)


@pytest.mark.parametrize("call", ["recount", "reset"])
def test_of_several_that_set_the_numbers_right_at_once_each_finds_them_as_the_one_before_left_them(make_shared, call):
    Task = make_shared({"keep": True})
    for _ in range(5):
        Task.xq.put_many(tasks(3))
        Task.take().ack()
        if call == "recount":
            Task.xq._database.open().installation.add_counter("", "", "R", 2)
        in_threads(make_shared.db, *[getattr(Task.xq, call)] * 4)
        assert is_exact(Task)
        assert all(n >= 0 for n in transitions(Task).values())
