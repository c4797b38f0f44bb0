"""How databases run the statements of a queue: by an index, and each batch once."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

from tests.conftest import DATABASES, Maker, live
from tests.golden.regenerate import QUEUES, dialect
from tests.steps import another_program, is_exact
from xq.engine.executor import Executor

# SQLite: a table full of rows, most of them in one state

MANY, FEW = 1_500, 60
STATES = {"readme": "RTWBD", "tubes": "RTWBZ", "moments": "RTWB", "words": "RTWBD", "integers": "RT"}


def plans_of(db: pw.Database, call: Callable[[], Any]) -> list[list[str]]:
    """How SQLite runs the statements of a call."""
    asked: list[str] = []
    connection = db.connection()
    connection.set_trace_callback(asked.append)
    call()
    connection.set_trace_callback(None)
    of_rows = [sql for sql in asked if re.match("WITH|SELECT|INSERT|UPDATE|DELETE", sql)]
    return [[step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in of_rows]


def faults(table: str, plan: list[str]) -> list[str]:
    """The steps of a plan that cost more the more rows the table has: not a walk along the oldest until its LIMIT."""
    scan = re.compile(rf'SCAN (TABLE )?"?{table}"?(?!\w)(?!.* {table}_xq_oldest)')
    return [step for step in plan if step != GROUPED and ("TEMP B-TREE" in step or scan.match(step))]


GROUPED = "USE TEMP B-TREE FOR GROUP BY"  # of the counters


def row(queue: Any, i: int, state: str) -> dict[str, Any]:
    """A row in a state, as another program may have written it."""
    of, fields = dialect(queue), queue.model._meta.fields
    later: Any = queue.clock.now + 1_000_000 + i
    if "runat" in of.roles and of.kind("runat") == "datetime":
        later = dt.datetime.fromtimestamp(later, dt.UTC).replace(tzinfo=None)
    roles = {
        "status": of.words.get(state, 9),
        "runat": later if state in "TWZR" else None,
        "deadline": later if state in "RTWB" else None,
        "priority": i % 3,
        "tube": ("news", "it's", None)[i % 3],
        "owner": "someone/1.2.3" if state == "T" else None,
        "unique": f"n{i}",
    }
    own = {"url": "u", "address": "a", "host": f"h{i % 50}", "number": i, "id": i}
    values = {name: value for name, value in own.items() if name in fields}
    return values | {of.source.roles[role].name: value for role, value in roles.items() if role in of.roles}


@pytest.fixture
def db() -> Iterator[pw.Database]:
    with closing(pw.SqliteDatabase(":memory:")) as database:
        yield database


def filled(db: pw.Database, name: str, most: str, analyzed: bool) -> Any:
    """A queue with rows in every state, and some that are not the queue's (?), most of them in one state."""
    queue = QUEUES[name](db)
    db.create_tables([queue.model])
    states = [state for state in (*queue.machine.states, "?") for _ in range(MANY if state == most else FEW)]
    with db.atomic():
        for batch in pw.chunked([row(queue, i, state) for i, state in enumerate(states, 1)], 500):
            queue.model.insert_many(batch).execute()
    if analyzed:
        db.execute_sql("ANALYZE")
    return queue


def calls(queue: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a program does with a queue, one call after the other."""
    has = queue.machine.sources
    own = {"url": "u", "address": "a", "host": "h", "number": 1_000_000}
    new = {field: value for field, value in own.items() if field in queue.model._meta.fields}
    news = [{**new, "number": i} if "number" in new else new for i in (1_000_001, 1_000_002)]
    yield "put", partial(queue.put, new)
    yield "put_many", partial(queue.put_many, news)
    yield "take", queue.take
    yield "take_many", partial(queue.take_many, 5)
    if "tube" in queue.machine.roles:
        yield "take of a tube", partial(queue.take, tube="news")
        yield "take_many of a tube", partial(queue.take_many, 5, tube="it's")
    yield "ack of a take", partial(queue.ack, queue.take())
    for name in ("ack", "release", "bury", "snatch", "peek", "kill"):
        if name == "peek" or has(name):
            yield f"{name} by key", partial(getattr(queue, name), queue.take().get_id())
    yield "touch", partial(queue.touch, queue.take().get_id(), update={})
    if queue.machine.options("touch"):
        yield "touch by seconds", partial(queue.touch, queue.take().get_id(), 5)
    if len(queue.parts.store.key) == 1:
        yield "ack_many", partial(queue.ack_many, [found.id for found in queue.take_many(3)])
        yield "ack_many of several takes", partial(queue.ack_many, [queue.take(), queue.take()])
        yield "kill_many", partial(queue.kill_many, queue.take_many(3))
    if has("dig"):
        yield "dig n", partial(queue.dig, n=5)
        yield "dig all", queue.plow
    with queue.session() as session:
        queue.take_many(3)
        yield "the end of a session", session.close
    if "runat" in queue.machine.roles:
        dead = [str(uuid.uuid4()) for _ in range(3)]
        yield "the end of many sessions", partial(queue.parts.maintenance.give_back, dead, "died")
        yield "taken", queue.taken
        yield "release_all", queue.release_all
    yield "stats", queue.stats
    yield "count", queue.count
    queue.clock.tick(2_000_000)
    yield "due", queue.parts.takes.timers.left
    yield "sweep", queue.sweep


@pytest.mark.parametrize("analyzed", [False, True], ids=["not analyzed", "analyzed"])
@pytest.mark.parametrize(("name", "most"), [(name, most) for name in STATES for most in STATES[name] + "?"])
def test_a_call_reads_and_sorts_no_whole_table_whatever_state_most_rows_are_in(name, most, analyzed, db):
    queue = filled(db, name, most, analyzed)
    table = queue.parts.store.table
    (whole,) = plans_of(db, lambda: db.execute_sql(f"SELECT * FROM {dialect(queue).table}"))
    assert faults(table, whole), "this is what is looked for"
    wrong = {(call, step) for call, run in calls(queue) for plan in plans_of(db, run) for step in faults(table, plan)}
    assert wrong == set()


# pages of tasks

WHOLE = r"SCAN task(?!_| USING)|Seq Scan on task(?!_)|'task', 'ALL'"
SORTED = r"TEMP B-TREE|Sort Key|filesort"


def explained(db: pw.Database, patch: pytest.MonkeyPatch) -> list[str]:
    """The plans of the queries that come."""
    explain = "EXPLAIN QUERY PLAN" if isinstance(db, pw.SqliteDatabase) else "EXPLAIN"
    run, plans = Executor.run, list[str]()

    def run_explained(database: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        if isinstance(compiled, str):
            plans.append(str(run(database, f"{explain} {compiled}", *values)))
        return run(database, compiled, *values, **options)

    patch.setattr(Executor, "run", run_explained)
    return plans


@pytest.mark.parametrize("order", [True, "highest"])
@pytest.mark.parametrize("filter", ["state:{}", "state:{} hello", "state:{} tube:news"])
def test_the_next_page_of_tasks_is_read_along_an_index_and_few_tasks_are_sorted(
    make_shared, monkeypatch, filter, order
):
    features = {"delayed": True, "buried": True, "ttr": 60, "priority": order}
    priority = pw.IntegerField(default=0)
    Task = make_shared(features, roles=("runat", "priority", "tube"), attributes={"priority": priority})
    Task.xq.put_many([{"tube": "news", "name": "hello"}] * 80)
    Task.xq.put_many([{"tube": "news", "name": "hello"}] * 20, delay=60)
    Task.xq.bury_many(Task.xq.take_many(20))
    Task.xq.take_many(20)
    if isinstance(make_shared.db, pw.PostgresqlDatabase):
        for cheaper in ("seqscan", "sort"):  # in a small table
            make_shared.db.execute_sql(f"SET enable_{cheaper} = off")
    plans = explained(make_shared.db, monkeypatch)
    for state, wrong in {"R": f"{WHOLE}|{SORTED}", "B": f"{WHOLE}|{SORTED}", "T": WHOLE, "W": WHOLE}.items():
        plans.clear()
        first = Task.xq.find(filter.format(state), 10)
        assert len(Task.xq.find(filter.format(state), 10, after=first.next).tasks) == 10
        assert plans
        assert [plan for plan in plans if "task_xq_count" not in plan and re.search(wrong, plan)] == []


@pytest.mark.parametrize("features", [{}, {"ttr": 60}], ids=["no timer", "ttr"])
def test_the_taken_tasks_are_read_by_an_index(make_shared, monkeypatch, features):
    Task = make_shared(features, roles=("runat",) if features else ())
    Task.xq.put_many([{}] * 200)
    Task.xq.take_many(5)
    if isinstance(make_shared.db, pw.PostgresqlDatabase):
        make_shared.db.execute_sql("SET enable_seqscan = off")  # which is cheaper in a small table
    plans = explained(make_shared.db, monkeypatch)
    assert len(Task.xq.taken()) == 5
    assert [plan for plan in plans if re.search(WHOLE, plan)] == []
    assert "task_xq_" in plans[-1]


# PostgreSQL


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[pw.Database]:
    with DATABASES["postgres"](tmp_path) as db:
        yield db


def plan_of_take(connection: Any, has: str = "SKIP LOCKED") -> str:
    """As this connection has prepared it, whatever the values."""
    ((name, values),) = connection.execute(
        "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE statement LIKE %s", [f"%{has}%"]
    ).fetchall()
    connection.execute("SET plan_cache_mode = force_generic_plan")
    lines = connection.execute(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * values)})").fetchall()
    return "\n".join(line for (line,) in lines)


def test_a_batch_is_chosen_once_though_the_plan_asks_for_it_again_for_each_row(postgres):
    Task: Any = live(postgres)({"keep": True}, roles=("runat",))
    Task.xq.put_many([{}] * 50)
    for other in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
        postgres.execute_sql(f"SET enable_{other} = off")
    assert [found.id for found in Task.xq.take_many(3)] == [1, 2, 3]
    assert "Nested Loop Semi Join" in plan_of_take(postgres.connection())
    assert is_exact(Task)


def test_tasks_that_are_named_are_found_by_key_and_not_among_all_taken_ones(postgres):
    postgres.execute_sql("SET enable_seqscan = off")  # which is cheaper in a small table
    Task: Any = Maker(postgres)(roles=("owner",))
    Task.xq.put_many([{}] * 300)
    found = Task.xq.take_many(200)
    Task.xq.ack_many(found, update=[{"size": n} for n in range(200)])
    Task.xq.ack_many([Task.xq.take() for _ in range(100)])
    for statement in ("json_array_elements_text", "listed ->> 1"):
        plan = plan_of_take(postgres.connection(), statement)
        assert "task_pkey" in plan
        assert "task_xq_taken" not in plan


def test_tasks_that_are_named_are_found_by_key_before_the_server_has_analyzed_the_table(postgres):
    Task: Any = Maker(postgres)({"keep": True, "ttr": 60}, roles=("owner",))
    Task.xq.put_many([{}] * 3000)
    found = Task.xq.take_many(1500)
    Task.xq.touch_many(found, 5)
    Task.xq.touch_many([*found, *Task.xq.take_many(1500)], 5)
    for statement in ("json_array_elements_text", "listed ->> 1"):
        assert "task_pkey" in plan_of_take(postgres.connection(), f"UPDATE%{statement}")


def test_a_column_may_be_altered_beside_a_worker_that_notices_nothing(postgres):
    Task: Any = live(postgres)({"keep": True, "history": True})
    Task.xq.put_many([{}] * 20)
    for _ in range(6):  # from then on its statements are prepared
        Task.put({}).take().ack()
        Task.xq.history(1)
    for how in ("name TYPE varchar(200)", "size TYPE bigint", "name TYPE text", "size TYPE int"):
        another_program(postgres, f"ALTER TABLE task ALTER {how}, ADD other int")
        assert Task.put({"name": "a"}).name == "a"
        assert Task.take().ack().status == "D"
        another_program(postgres, "ALTER TABLE task DROP other")
        assert Task.xq.ack_many(Task.xq.take_many(2))[0].status == "D"
    assert is_exact(Task)
