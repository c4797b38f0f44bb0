"""How PostgreSQL plans the statements of a queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from psycopg import ClientCursor

from tests.conftest import DATABASES, live
from tests.steps import another_program, is_exact
from xq.adapters import drivers
from xq.adapters.databases.named import by_position


@pytest.fixture
def db(tmp_path: Path) -> Iterator[pw.Database]:
    with DATABASES["postgres"](tmp_path) as db:
        yield db


def plan_of_take(connection: Any, begins: str = "") -> str:
    """As this connection has prepared it, whatever the values."""
    ((name, values),) = connection.execute(
        "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE statement LIKE %s",
        [f"{begins}%SKIP LOCKED%"],
    ).fetchall()
    connection.execute("SET plan_cache_mode = force_generic_plan")
    lines = connection.execute(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * values)})").fetchall()
    return "\n".join(line for (line,) in lines)


def test_many_tasks_that_come_at_once_are_taken_by_the_index_though_the_table_was_empty(db, monkeypatch):
    Task: Any = live(db)()
    db.execute_sql(f"ALTER TABLE {Task._meta.table_name} SET (autovacuum_enabled = off)")  # after it, no plan is kept
    monkeypatch.setattr(drivers, "PLANNED", float("inf"))
    Task.take()
    connection = db.connection()
    connection.execute(f"VACUUM {Task._meta.table_name}")  # from here on it takes the table for an empty one
    Task.take()
    assert "Seq Scan" in plan_of_take(connection)
    Task.xq.put_many([{}] * 10_000)
    assert "Seq Scan" in plan_of_take(connection), "a plan is kept"
    monkeypatch.setattr(drivers, "PLANNED", 0.0)
    Task.take()
    assert "Seq Scan" not in plan_of_take(connection)


@pytest.mark.parametrize("roles", [(), ("owner",)], ids=["side table", "role"])
def test_a_batch_is_chosen_once_though_the_plan_asks_for_it_again_for_each_row(db, roles):
    Task: Any = live(db)({"keep": True}, roles=("runat", *roles))
    Task.xq.put_many([{}] * 50)
    for other in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
        db.execute_sql(f"SET enable_{other} = off")
    assert [found.id for found in Task.xq.take_many(3)] == [1, 2, 3]
    assert "Nested Loop Semi Join" in plan_of_take(db.connection())
    assert is_exact(Task)


def test_which_task_of_a_utube_is_the_next_is_found_without_a_look_at_those_behind_it(db):
    Task: Any = live(db)({"utube": True}, roles=("owner", "utube"))
    Task.xq.put_many([{"utube": str(i % 10)} for i in range(1_000)])
    for _ in range(9):
        Task.take().ack()
    lines = plan_of_take(db.connection(), "WITH locked").splitlines()
    looks = [after for line, after in pairwise(lines) if f" on {Task._meta.table_name} " in line]
    assert looks
    assert all("Index Cond" in look for look in looks)


# There and back, of columns that a take returns.
ALTERED = {
    "name": ("ALTER name TYPE varchar(200)", "ALTER name TYPE text"),
    "several": ("ALTER size TYPE bigint, ADD other int", "ALTER size TYPE int, DROP other"),
}


@pytest.fixture
def altered(db: pw.Database) -> Any:
    """A queue whose statements are prepared, and what alters its table beside it."""
    Task: Any = live(db)({"keep": True, "history": True})
    Task.xq.put_many([{}] * 9)
    for _ in range(6):
        Task.take().ack()
        Task.put({})
        Task.xq.history(1)
    return Task, lambda how: another_program(db, f"ALTER TABLE {Task._meta.table_name} {how}")


@pytest.mark.parametrize("what", ALTERED)
def test_a_column_may_be_altered_beside_a_worker_that_notices_nothing(altered, what):
    Task, alter = altered
    for how in ALTERED[what] * 2:
        alter(how)
        assert Task.put({"name": "a"}).name == "a"
        assert Task.take().ack().status == "D"
        assert Task.xq.ack_many(Task.xq.take_many(2))[0].status == "D"
    assert is_exact(Task)


# the search

SEARCHES = {  # filter -> the index by which the first page is read, and a page within
    "state:R": "task_xq_oldest_R",
    "state:B": "task_xq_oldest_B",
    "state:T": "task_xq_runat",
    "state:W": "task_xq_runat",
    "state:R tube:b": "task_xq_oldest_R_of_tube",
    "name:7": "task_xq_oldest_R|task_xq_runat|task_xq_oldest_B|task_pkey",
    "state:D name:7": "task_pkey",
}


@pytest.fixture
def searched(db: pw.Database) -> Any:
    """A queue with rows in every state, whose statistics the server has."""
    features = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
    Task: Any = live(db)(features, roles=("runat", "priority", "tube", "owner"))
    states = ["R", "B", "T", "W", *["D"] * 46] * 300
    rows = [
        {
            "name": f"n{i}",
            "status": state,
            "runat": 4e9 + i if state in "TW" else None,
            "priority": i % 3,
            "tube": "ab"[i % 2],
        }
        for i, state in enumerate(states)
    ]
    with db.atomic():
        for batch in pw.chunked(rows, 2_000):
            Task.insert_many(batch).execute()
    db.execute_sql(f"ANALYZE {Task._meta.table_name}")
    return Task


@pytest.mark.parametrize("filter", SEARCHES)
def test_a_page_of_a_search_is_read_along_an_index_and_the_table_is_never_sorted(searched, filter, monkeypatch):
    queue, db = searched.xq, searched._meta.database
    dialect, asked = queue._database.dialect, list[tuple[str, list[Any]]]()
    run = dialect.execute

    def execute(store: Any, sql: str, values: Any) -> Any:
        text, names = by_position(sql, dialect.placeholder)
        asked.append((text, [values[name] for name in names]))
        return run(store, sql, values)

    middle = queue.find(filter, 100)
    monkeypatch.setattr(dialect, "execute", execute)
    queue.find(filter, 20)
    queue.find(filter, 20, middle.next)
    queue.find(filter, 20, middle.next, True)
    queue.find(filter, 20, None, True)
    pages = [(sql, values) for sql, values in asked if "AS xq_0" in sql]
    assert len(pages) >= 4
    for sql, values in pages:
        with ClientCursor(db.connection()) as cursor:
            plan = "\n".join(line for (line,) in cursor.execute(f"EXPLAIN {sql}", values).fetchall())
        assert "Seq Scan" not in plan, plan
        assert re.search(f'Index (Only )?Scan( Backward)? (using|on) "?({SEARCHES[filter]})"? ', plan), plan
        # Sorted are tasks of the same moment, and the rows of a range that has no more of them than the page looks at.
        most = [int(rows) for rows in re.findall(r"(?<!Incremental )Sort .* rows=(\d+)", plan)]
        assert all(rows <= values[-1] for rows in most), plan
