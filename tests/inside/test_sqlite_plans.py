"""How SQLite runs the statements of a queue: by an index, and never by reading or sorting the table."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import peewee as pw
import pytest

from tests.golden.regenerate import QUEUES, dialect

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

MANY, FEW = 1_500, 60


class Recorded(pw.SqliteDatabase):
    """A database that remembers what it was asked, and tells how it did it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        database = self
        self.asked: dict[str, Any] = {}

        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, params: Any = ()) -> Any:
                database.asked[sql] = params
                return super().execute(sql, params)

        class Connection(sqlite3.Connection):
            def cursor(self, *args: Any) -> Any:
                return super().cursor(Cursor)

        super().__init__(*args, factory=Connection, **kwargs)

    def plan(self, sql: str, params: Any) -> list[str]:
        if re.match("BEGIN|COMMIT|SAVEPOINT|RELEASE|ROLLBACK|PRAGMA", sql):
            return []
        rows = self.connection().execute(f"EXPLAIN QUERY PLAN {sql}", params or {})
        return [detail for *_, detail in rows]


STEP = re.compile(
    r"(SCAN|SEARCH) (?:TABLE )?(\S+)(?: USING (?:COVERING )?(?:INDEX (\S+)|(INTEGER PRIMARY KEY|PRIMARY KEY)))?"
)


def reads(plan: list[str]) -> Iterator[tuple[str, str, str]]:
    """What a plan reads: (SCAN or SEARCH, the table, by which index)."""
    for detail in plan:
        step = STEP.match(detail)
        if step and "CONSTANT ROW" not in detail:
            yield step[1], step[2].strip('"'), step[3] or step[4] or ""


def faults(table: str, plan: list[str]) -> list[str]:
    """The steps of a plan that cost more the more rows the table has."""
    return [
        detail
        for detail in plan
        # What walks along the index of the oldest in its order stops at its LIMIT.
        if "TEMP B-TREE" in detail
        or any(
            found == table and how == "SCAN" and f"{table}_xq_oldest" not in index
            for how, found, index in reads([detail])
        )
    ]


# a table full of rows


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
def recorder() -> Iterator[Recorded]:
    with closing(Recorded(":memory:")) as db:
        yield db


def filled(db: Recorded, name: str, most: str, analyzed: bool) -> Any:
    """A queue with rows in every state, and some that are not the queue's (?), most of them in one state."""
    queue = QUEUES[name](db)
    db.create_tables([queue.model])
    states = [state for state in (*queue.machine.states, "?") for _ in range(MANY if state == most else FEW)]
    with db.atomic():
        for batch in pw.chunked([row(queue, i, state) for i, state in enumerate(states, 1)], 500):
            queue.model.insert_many(batch).execute()
        of = dialect(queue)
        if "owner" not in of.roles:
            side, keys = of.quote(of.name("owner")), ", ".join(of.keys)
            db.execute_sql(
                f"INSERT INTO {side} SELECT {keys}, 'someone/1.2.3' FROM {of.table} WHERE {of.is_state('T')}"
            )
    if analyzed:
        db.execute_sql("ANALYZE")
    return queue


def calls(queue: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a program does with a queue, one call after the other."""
    has = queue.machine.sources

    def taken() -> Any:
        return queue.take().get_id()

    own = {"url": "u", "address": "a", "host": "h", "number": 1_000_000}
    new = {field: value for field, value in own.items() if field in queue.model._meta.fields}
    yield "put", partial(queue.put, new)
    yield (
        "put_many",
        lambda: queue.put_many([{**new, "number": i} if "number" in new else new for i in (1_000_001, 1_000_002)]),
    )
    yield "take", queue.take
    yield "take_many", partial(queue.take_many, 5)
    if "tube" in queue.machine.roles:
        yield "take of a tube", partial(queue.take, tube="news")
        yield "take_many of a tube", partial(queue.take_many, 5, tube="it's")
    yield "ack of a take", partial(queue.ack, queue.take())
    yield "ack by key", partial(queue.ack, taken())
    yield "release", partial(queue.release, taken())
    if has("touch"):
        yield "touch", partial(queue.touch, taken(), 5)
    if has("bury"):
        yield "bury", partial(queue.bury, taken())
    if len(queue.adapter.store.key) == 1:
        yield "ack_many", partial(queue.ack_many, [task.id for task in queue.take_many(3)])
        yield "kill_many", partial(queue.kill_many, queue.take_many(3))
    if has("dig"):
        yield "dig n", partial(queue.dig, n=5)
        yield "dig all", queue.plow
    yield "peek", partial(queue.peek, taken())
    yield "snatch", partial(queue.snatch, taken())
    yield "kill", partial(queue.kill, taken())
    with queue.session() as session:
        queue.take_many(3)
        yield "the end of a session", session.close
    if "runat" in queue.machine.roles:
        yield "taken", queue.taken
        yield "release_all", queue.release_all
    yield "stats", queue.stats
    yield "count", queue.count
    queue.clock.tick(2_000_000)
    yield "due", queue._takes.timers.seconds
    yield "sweep", queue.sweep


# what a call reads the table by: its key, and which of xq's indexes
BY = {
    "put": "",
    "put_many": "",
    "take": "key oldest_R",
    "take_many": "key oldest_R",
    "take of a tube": "key oldest_R_of_tube",
    "take_many of a tube": "key oldest_R_of_tube",
    "ack of a take": "key",
    "ack by key": "key",
    "release": "key",
    "touch": "key",
    "bury": "key",
    "ack_many": "key",
    "kill_many": "key",
    "dig n": "key oldest_B",
    "dig all": "key oldest_B",
    "peek": "key",
    "snatch": "key",
    "kill": "key",
    "the end of a session": "key( runat)?",  # of what it holds, or of what is taken: the fewer
    "taken": "runat",
    "release_all": "runat",
    "stats": "",
    "count": "",
    "due": "runat",
    "sweep": "key runat",
}
BY_OF = {
    "readme": BY,
    "tubes": BY,
    "moments": {**BY, "due": "deadline runat", "sweep": "deadline key runat"},
    "words": {**BY, "put": "unique", "put_many": "unique", "the end of a session": ""},  # which leaves its tasks
    "integers": {**BY, "due": "", "sweep": ""},
}
STATES = {"readme": "RTWBD", "tubes": "RTWBZ", "moments": "RTWB", "words": "RTWBD", "integers": "RT"}


@pytest.mark.parametrize("analyzed", [False, True], ids=["not analyzed", "analyzed"])
@pytest.mark.parametrize(("name", "most"), [(name, most) for name in STATES for most in STATES[name] + "?"])
def test_a_call_goes_by_its_index_whatever_state_most_rows_are_in(name, most, analyzed, recorder):
    queue = filled(recorder, name, most, analyzed)
    db = queue.model._meta.database
    swept = recorded(db, lambda: (queue._takes.timers.seconds(), queue.sweep()))  # a take does so before
    by, wrong = {}, {}
    for call, run in calls(queue):
        asked = recorded(db, run)
        plans = [db.plan(sql, params) for sql, params in asked.items() if call in ("due", "sweep") or sql not in swept]
        by[call] = indexes(queue.adapter.store.table, plans)
        wrong[call] = [fault for plan in plans for fault in faults(queue.adapter.store.table, plan)]
    if dialect(queue).history_counts:  # the sums, and at most 999 rows after them
        wrong = {call: [each for each in found if each != GROUPED] for call, found in wrong.items()}
    assert {call: found for call, found in wrong.items() if found} == {}
    wanted = BY_OF[name]
    assert {call: found for call, found in by.items() if not re.fullmatch(wanted[call], found)} == {}


def recorded(db: Recorded, call: Callable[[], Any]) -> dict[str, Any]:
    """The statements of a call, with their values."""
    db.asked = {}
    call()
    return db.asked


def indexes(table: str, plans: list[list[str]]) -> str:
    """By which indexes the table is read."""
    found = {index or "nothing" for plan in plans for _, of, index in reads(plan) if of == table}
    keys = ("INTEGER PRIMARY KEY", f"sqlite_autoindex_{table}_1")
    return " ".join(sorted("key" if index in keys else index.removeprefix(f"{table}_xq_") for index in found))


GROUPED = "USE TEMP B-TREE FOR GROUP BY"


@pytest.mark.parametrize("name", STATES)
def test_the_numbers_are_read_from_the_counters_and_the_newest_rows_of_the_history(name, recorder):
    queue = filled(recorder, name, "R", analyzed=False)
    db, table = queue.model._meta.database, queue.adapter.store.table
    queue.stats()  # the first call looks whether all is installed
    for call in (queue.stats, queue.count, partial(queue.count, "R")):
        asked = recorded(db, call)
        steps = {step for sql, params in asked.items() for step in reads(db.plan(sql, params))}
        assert f"{table}_xq_count" in [of for _, of, _ in steps]
        others = {step for step in steps if step[1] != f"{table}_xq_count" and not step[1].startswith("(subquery")}
        newest = {("SEARCH", f"{table}_xq_history", "INTEGER PRIMARY KEY")}
        assert others == (newest if dialect(queue).history_counts else set())


@pytest.mark.parametrize("name", STATES)
def test_a_trigger_reads_no_table_and_finds_owners_waiters_and_sums_by_their_key(name, recorder):
    queue = filled(recorder, name, "T", analyzed=True)
    db = queue.model._meta.database
    prefix = f"{queue.adapter.store.table}_xq_"
    triggers = dict(db.execute_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    wanted = ["insert", "update", "update_task", "delete"]
    wanted += ["add_up", "noted", "pruned"] if dialect(queue).history_counts else []
    assert {*triggers} == {prefix + trigger for trigger in wanted}
    for sql in triggers.values():
        body = sql.partition(" BEGIN ")[2].removesuffix(" END")
        for statement in filter(None, map(str.strip, body.split(";"))):
            alone = re.sub(r'(OLD|NEW)\.("(?:[^"]|"")+"|\w+)', "?", statement)  # as values, outside of a trigger
            steps = list(reads(db.plan(alone, [None] * alone.count("?"))))
            beside = [prefix + table for table in ("owner", "wait", "count", "history")]
            assert all(how == "SEARCH" and of in beside for how, of, _ in steps), statement


# the search


def pages(queue: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Pages of the search, at the ends and within, forward and back: (the filter, the call)."""
    for filter in [
        "",
        "size>5" if "size" in queue.model._meta.fields else "-b",
        *map("state:{}".format, STATES_OF_ALL),
    ]:
        if filter.startswith("state:") and filter[-1] not in queue.machine.states:
            continue
        first, last = queue.find(filter, 5), queue.find(filter, 5, None, True)
        yield filter, partial(queue.find, filter, 5)
        yield filter, partial(queue.find, filter, 5, first.next)
        yield filter, partial(queue.find, filter, 5, None, True)
        yield filter, partial(queue.find, filter, 5, last.previous, True)


STATES_OF_ALL = "RTWBZD"
OF_TIES = re.compile("_xq_(runat|taken)")  # indexes without the whole key: tasks of the same moment are sorted


@pytest.mark.parametrize(("name", "most"), [(name, most) for name in STATES for most in STATES[name][-1] + "?"])
def test_a_page_of_a_search_is_read_along_an_index_and_the_table_is_never_sorted(name, most, recorder):
    queue = filled(recorder, name, most, analyzed=True)
    db, table = queue.model._meta.database, queue.adapter.store.table
    for filter, page in pages(queue):
        asked = recorded(db, page)
        assert [sql for sql in asked if "AS xq_0" in sql], filter
        for sql, params in asked.items():
            plan = db.plan(sql, params)
            wrong = [fault for fault in faults(table, plan) if not (OF_TIES.search(str(plan)) and "ORDER BY" in fault)]
            if "AS xq_0" in sql:  # what walks along the key stops at its LIMIT
                wrong = [fault for fault in wrong if not walks_along_the_key(table, fault)]
                assert sql.endswith("LIMIT ?")
            wrong = [fault for fault in wrong if fault != GROUPED]  # of the counters
            assert wrong == [], (filter, sql, plan)


def walks_along_the_key(table: str, step: str) -> bool:
    return re.fullmatch(f'SCAN "?{table}"?( USING INDEX sqlite_autoindex_{table}_1)?', step) is not None
