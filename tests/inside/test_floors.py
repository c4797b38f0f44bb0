"""Where takes begin to look on PostgreSQL: at a floor, below which no task is ready but what came back since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

from tests.conftest import Maker, database_on
from tests.factories import task, tasks
from tests.servers import Postgres
from tests.steps import PATIENCE, elsewhere, eventually, forked
from xq.core import time
from xq.engine import floors as of_floors
from xq.sql import floors as texts
from xq.sql.named import filled
from xq.sql.queries import SOON

Run = Callable[..., Any]


@pytest.fixture
def connect() -> Iterator[Callable[[], pw.Database]]:
    opened: list[pw.Database] = []
    with database_on(Postgres) as (server, name):

        def connected() -> pw.Database:
            opened.append(server.peewee(name))
            return opened[-1]

        yield connected
        for database in opened:
            database.close()


@pytest.fixture
def Task(connect: Any) -> Any:
    return Maker(connect())({"ttr": 60, "delayed": True, "buried": True}, roles=("runat", "tube"))


@pytest.fixture
def other(connect: Any) -> Iterator[Any]:
    """Another program's connection, on which each statement is a transaction."""
    with closing(connect()) as database:
        yield database.connection()


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any snapshot counts as held."""
    monkeypatch.setattr(texts, "HELD", -1)


def floors(Task: Any) -> of_floors.Floors:
    found: of_floors.Floors = Task.xq.parts.maintenance.timers.floors
    return found


def look(Task: Any, tube: str | None = None) -> int | None:
    """Look once, as the maintenance does; return the key of the floor."""
    floors(Task).look()
    floor = floors(Task).tubes[tube].floor
    return floor and floor.key


def raised(Task: Any, to: int, tube: str | None = None) -> None:
    # Other transactions of the server may hold a floor back for a moment.
    eventually(lambda: look(Task, tube) == to)


def taken(Task: Any, n: int = 1) -> list[int]:
    """Take tasks and end them; return their keys."""
    found = [Task.take() for _ in range(n)]
    for each in found:
        each.ack()
    return [each.id for each in found]


def at_the_floor(Task: Any, n: int = 10, left: int = 2) -> None:
    """Put tasks and take all but the last, up to which the floor is raised."""
    Task.xq.put_many(tasks(n))
    assert taken(Task, n - left) == [*range(1, n - left + 1)]
    raised(Task, n - left + 1)


def test_there_are_floors_while_a_snapshot_is_held(Task, other, monkeypatch):
    monkeypatch.setattr(texts, "HELD", 1_000)
    Task.xq.put_many(tasks(10))
    assert taken(Task, 8)
    assert [look(Task) for _ in range(3)] == [None] * 3
    assert other.execute("SELECT is_called FROM task_xq_high").fetchone() == (False,)
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.execute("SELECT 1 FROM task")
    for _ in range(1_001):
        Task._meta.database.execute_sql("SELECT pg_current_xact_id()")
    raised(Task, 9)
    other.execute("COMMIT")
    eventually(lambda: look(Task) is None)
    assert taken(Task, 2) == [9, 10]


def test_a_take_begins_at_the_floor_and_reads_nothing_below_it(Task, other):
    at_the_floor(Task)
    other.execute("ALTER TABLE task DISABLE TRIGGER USER")
    other.execute("INSERT INTO task (id, size, status, attempts) VALUES (1, 0, 'R', 0)")
    assert taken(Task, 2) == [9, 10]


@pytest.mark.parametrize("n", [1, 5])
def test_what_comes_back_below_the_floor_is_the_next_one_taken(Task, other, n):
    Task.xq.put_many(tasks(10))
    mine = [Task.take() for _ in range(8)]
    raised(Task, 9)
    assert mine[2].release()
    assert [each.id for each in Task.xq.take_many(n)] == [3, 9, 10][:n]
    mine[4].bury()
    Task.xq.dig(5)
    assert Task.take().id == 5


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO task (id, size, status, attempts) VALUES (-7, 0, 'R', 0), (-8, 0, 'R', 0)",
        "UPDATE task SET status = 'R' WHERE id = 2",
        "UPDATE task SET id = -8 WHERE id = 10",
    ],
)
def test_what_another_program_makes_ready_below_the_floor_is_the_next_one_taken(connect, other, sql):
    Task = Maker(connect())({"keep": True}, roles=())
    at_the_floor(Task)
    other.execute(sql)
    assert Task.take().id in (2, -8)


def test_a_task_that_falls_due_or_changes_its_tube_below_the_floor_is_taken_next(Task, other):
    Task.put(task(), delay=5)
    first = Task.put(task(tube="mail")).id
    Task.xq.put_many(tasks(5))
    Task.xq.put_many(tasks(5, tube="news"))
    assert [Task.take(tube="news").id for _ in range(4)] == [8, 9, 10, 11]
    raised(Task, 12, "news")
    other.execute("UPDATE task SET tube = 'news' WHERE id = %s", (first,))
    assert Task.take(tube="news").id == first
    assert Task.take().id == 3
    raised(Task, 4)
    Task.xq.clock.tick(6)
    assert Task.take().id == 1


@pytest.mark.parametrize("begun", ["before", "after"])
@pytest.mark.parametrize("within", ["", "SAVEPOINT a"])
def test_a_return_in_a_transaction_that_stays_open_is_found_after_its_commit(Task, other, begun, within):
    at_the_floor(Task)
    give_back = "INSERT INTO task (id, size, status, attempts) VALUES (2, 0, 'R', 0)"
    before = look(Task)
    other.execute("BEGIN")
    if begun == "after":
        look(Task)  # publishes
    for sql in filter(None, (within, give_back)):
        other.execute(sql)
    taken(Task)
    assert [look(Task) for _ in range(3)] == [before] * 3 if begun == "before" else look(Task)
    assert taken(Task) == [10]
    Task.xq.put_many(tasks(2))
    look(Task)
    other.execute("COMMIT")
    assert taken(Task) == [2]
    raised(Task, 11)
    assert taken(Task) == [11]


def test_a_transaction_that_wrote_before_the_key_was_published_holds_the_floor_back(Task, other):
    Task.xq.put_many(tasks(10))
    other.execute("BEGIN")
    other.execute("INSERT INTO task (id, size, status, attempts) VALUES (0, 0, 'R', 0)")  # nothing is published yet
    taken(Task, 8)
    assert [look(Task) for _ in range(4)] == [None] * 4
    other.execute("COMMIT")
    assert taken(Task) == [0]
    raised(Task, 9)


def test_a_take_that_is_rolled_back_or_loses_its_savepoint_was_never_below_the_floor(Task, other):
    Task.xq.put_many(tasks(10))
    other.execute("BEGIN")
    other.execute("SAVEPOINT a")
    other.execute("UPDATE task SET status = 'T' WHERE id = 1")
    taken(Task, 8)
    assert all(look(Task) is None for _ in range(3))
    other.execute("ROLLBACK TO a")
    other.execute("COMMIT")
    assert taken(Task) == [1]


def test_a_transaction_with_an_old_snapshot_takes_what_is_ready_for_it(Task, connect):
    db = Task._meta.database
    Task.xq.put_many(tasks(10))
    with db.atomic():
        db.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert Task.select().count() == 10
        elsewhere(db, lambda: (taken(Task, 8), eventually(lambda: look(Task) == 9)))
        ninth = Task.take()  # the others are ready for this snapshot alone
        assert ninth.id == 9
        assert ninth.release()
        Task.put(task(id=-1))
        assert Task.take().id == -1


def test_no_process_lowers_what_another_has_published(connect):
    one, two = (Maker(connect())({}, roles=()) for _ in range(2))
    at_the_floor(one)
    one.xq.put_many(tasks(10))
    two.take().release()
    assert taken(one, 8) == [*range(9, 17)]
    raised(one, 17)
    raised(two, 17)
    high = "SELECT last_value FROM task_xq_high"
    assert one._meta.database.execute_sql(high).fetchone() == (17,)
    two._meta.database.execute_sql("INSERT INTO task (id, size, status, attempts) VALUES (3, 0, 'R', 0)")
    assert one.take().id == 3


def test_keys_that_begin_anew_after_a_truncate_are_taken(Task, other):
    at_the_floor(Task)
    other.execute("TRUNCATE task RESTART IDENTITY")
    Task.xq.put_many(tasks(3))
    assert taken(Task, 2) == [1, 2]
    raised(Task, 3)
    assert taken(Task) == [3]
    assert Task.take() is None


def texts_of_takes(Task: Any) -> list[str]:
    """The statements that begin at a floor, of those that are compiled."""
    compiled = Task.xq.parts.executor.binding.compiled.values()
    return [each.statement.sql for each in compiled if ":floor" in each.statement.sql and each.target]


def test_a_take_sorts_no_backlog_though_the_planner_believes_that_hardly_a_task_is_ready(Task, connect, other):
    connect().execute_sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    at_the_floor(Task)
    other.execute("INSERT INTO task (size, status, attempts) SELECT 0, 'R', 0 FROM generate_series(1, 20000)")
    other.execute("DELETE FROM task WHERE id > 10")
    other.execute("ANALYZE task")
    assert taken(Task) == [9]
    (text,) = texts_of_takes(Task)
    names = dict.fromkeys(("now", "owner"), "NULL") | {"floor": "1", "floor_xid": "1"}
    plan = [line for (line,) in other.execute(f"EXPLAIN {filled(text, **names)}").fetchall()]
    assert [line for line in plan if "task_xq_oldest_R" in line and "Index Scan" in line], plan
    assert not [line for line in plan if "Sort" in line], plan


def test_moves_have_other_texts_after_some_seconds_so_that_they_are_planned_anew(Task, monkeypatch):
    monkeypatch.setattr(of_floors, "NOTED", 5.0)
    at_the_floor(Task)
    assert taken(Task) == [9]
    (before,) = texts_of_takes(Task)
    now = time.monotonic() + of_floors.NOTED
    monkeypatch.setattr(time, "monotonic", lambda: now)
    raised(Task, 10)
    assert taken(Task) == [10]
    (after,) = texts_of_takes(Task)
    assert before != after
    assert before.partition("/*")[0] == after.partition("/*")[0]


def test_what_no_trigger_saw_is_found_where_there_is_nothing_else_and_after_ten_seconds(Task, other, monkeypatch):
    at_the_floor(Task)
    other.execute("ALTER TABLE task DISABLE TRIGGER USER")
    other.execute("INSERT INTO task (id, size, status, attempts) VALUES (1, 0, 'R', 0), (2, 0, 'R', 0)")
    assert taken(Task) == [9]
    now = time.monotonic() + of_floors.LIVES
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert taken(Task) == [1]
    raised(Task, 2)
    assert taken(Task, 2) == [2, 10]
    raised(Task, 10)
    other.execute("INSERT INTO task (id, size, status, attempts) VALUES (3, 0, 'R', 0)")
    assert taken(Task) == [3]
    assert Task.take() is None


def test_a_server_that_lacks_the_last_transactions_ends_floors_and_what_was_published(Task, other):
    Task.xq.put_many(tasks(10))
    assert taken(Task, 8)
    assert look(Task) is None  # it has published 9
    other.execute("ALTER SEQUENCE task_xq_high RESTART")
    assert look(Task) is None
    Task.put(task(id=-1))
    raised(Task, -1)
    assert taken(Task) == [-1]
    raised(Task, 9)
    mine = floors(Task).tubes[None]
    mine.floor = mine.floor._replace(xid=2**62)  # type: ignore[union-attr]
    Task.put(task(id=-2))
    assert look(Task) is None
    assert taken(Task) == [-2]


def test_looks_at_timers_read_the_times_around_now_and_the_one_each_second_reads_all(Task, other, monkeypatch):
    at_the_floor(Task)
    timers, executor = Task.xq.parts.maintenance.timers, Task.xq.parts.executor

    def seen() -> list[Any]:
        return [pytest.approx(seconds) for seconds in timers.left(executor.window).values()]

    first, second = Task.xq.take_many(2)
    assert timers.raise_floors()
    assert seen() == []
    Task.xq.clock.tick(60 - SOON / 2)
    assert seen() == [SOON / 2]
    other.execute("UPDATE task SET runat = runat - 30")
    assert seen() == []
    monkeypatch.setattr("xq.engine.timers.READ_ALL", 0)
    assert timers.raise_floors()
    assert [Task.take().id for _ in range(2)] == [first.id, second.id]
    assert seen() == [60], "while any is late, each look reads all"


def test_a_forked_child_looks_for_ready_tasks_below_the_floors_of_its_parent(Task, other):
    at_the_floor(Task)
    other.execute("ALTER TABLE task DISABLE TRIGGER USER")
    other.execute("UPDATE task SET id = id - 8")
    any_ready = Task.xq.parts.takes.any_ready
    assert not any_ready()
    child = forked(Task._meta.database, lambda: os._exit(any_ready()))
    child.join(PATIENCE)
    assert child.exitcode == 1


def test_a_queue_to_which_many_tasks_come_back_has_no_floor(Task):
    at_the_floor(Task, texts.MANY + 3)
    Task.xq.put_many([task(id=-i) for i in range(1, texts.MANY + 1)])
    assert look(Task) is not None  # one row for the rows of a statement
    for i in range(texts.MANY):
        Task.put(task(id=-1_000 - i))
    assert look(Task) is None
    assert Task.take().id == -1_000 - texts.MANY + 1


def test_what_came_back_long_ago_is_forgotten(Task, other, monkeypatch):
    at_the_floor(Task)
    Task.put(task(id=-1))
    other.execute("UPDATE task_xq_back SET at = at - interval '11 minutes'")
    now = time.monotonic() + of_floors.FORGET
    monkeypatch.setattr(time, "monotonic", lambda: now + 1)
    assert Task.take().id == -1
    floors(Task).look()
    assert other.execute("SELECT COUNT(*) FROM task_xq_back").fetchone() == (0,)


@pytest.mark.parametrize(
    ("features", "roles", "key"),
    [({}, ("priority",), None), ({"utube": True}, ("utube",), None), ({"rate": "5/s"}, (), None)]
    + [({}, (), pw.TextField(primary_key=True))],
)
def test_queues_that_are_not_ordered_by_an_integer_key_alone_have_no_floor(connect, features, roles, key):
    db = connect()
    Task = Maker(db)(features, roles=roles, key=key)
    assert "task_xq_back" not in db.get_tables()
    Task.put(task(**({"id": "a"} if key else {})))
    assert Task.take()
    assert floors(Task).tubes == {}


def test_uninstall_drops_what_floors_need(Task):
    db = Task._meta.database
    assert "task_xq_back" in db.get_tables()
    Task.xq.uninstall()
    left = db.execute_sql("SELECT relname FROM pg_class WHERE relname LIKE 'task_xq%%'").fetchall()
    assert left == []
