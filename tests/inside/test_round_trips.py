"""What each path sends: statements/round trips/transactions. A change of a number is a change in review.

SQLite has no round trips: there the second number is that of its statements.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.conftest import SERVERS
from tests.steps import elsewhere, isolate, next_release
from tests.support.trips import (
    awaited_ack,
    counter_of,
    guarded,
    idle,
    late,
    many,
    measured,
    minute,
    of_ends,
    of_lists,
    of_peewee,
    of_steps,
    table,
    timed,
    upkeep,
)
from xq.engine import statements, take, timers
from xq.features.utube import server as server_heads
from xq.features.utube.innodb import InnodbHeads

EXPECTED = {
    "sqlite": """
                                    a table      a table, all  xq.Task      xq.Task, all
put                                 1/1/1        1/1/1         1/1/1        1/1/1
put that looks                      3/3/3        3/3/3         3/3/3        3/3/3
take                                1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there                 1/1/1        3/3/3         1/1/1        3/3/3
ack                                 1/1/1        1/1/1         1/1/1        1/1/1
release                             1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                       1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                      1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                       3/3/1        3/3/1         3/3/1        3/3/1
take that waits                     3/3/3        5/5/5         3/3/3        5/5/5
a thread's job                      4/4/1        4/4/1         4/4/1        4/4/1
a thread's job, prefetch=10         0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a thread's job, batch=10            0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a coroutine's job                   4/4/1        4/4/1         4/4/1        4/4/1
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
a job that acks                     2/2/2        2/2/2         2/2/2        2/2/2
a job that acks, atomic             7/7/2        7/7/2         7/7/2        7/7/2
a job that is discarded             2/2/2        2/2/2         2/2/2        2/2/2
a start, 100 schedules new          206/206/1    206/206/1     206/206/1    206/206/1
a start, 100 schedules unchanged    3/3/1        3/3/1         3/3/1        3/3/1
a start, 100 schedules one changed  9/9/1        9/9/1         9/9/1        9/9/1
a job that awaits its ack           2/2/2        2/2/2         2/2/2        2/2/2
an idle thread, a minute            1/1/1        1/1/1         1/1/1        1/1/1
bury                                -            1/1/1         -            1/1/1
touch                               -            1/1/1         -            1/1/1
""",
    "postgres": """
                                    a table      a table, all  xq.Task      xq.Task, all
put                                 1/1/1        1/1/1         1/1/1        1/1/1
put that looks                      2/2/2        2/2/2         2/2/2        2/2/2
take                                1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there                 1/1/1        3/3/3         1/1/1        3/3/3
ack                                 1/1/1        1/1/1         1/1/1        1/1/1
release                             1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                       1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                      1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                       3/3/1        3/3/1         3/3/1        3/3/1
take that waits                     3/3/3        5/5/5         3/3/3        5/5/5
a thread's job                      2/1/1        2/1/1         2/1/1        2/1/1
a thread's job, prefetch=10         0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a thread's job, batch=10            0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a coroutine's job                   2/1/1        2/1/1         2/1/1        2/1/1
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
a job that acks                     2/2/2        2/2/2         2/2/2        2/2/2
a job that acks, atomic             5/4/2        5/4/2         5/4/2        5/4/2
a job that is discarded             2/2/2        2/2/2         2/2/2        2/2/2
a start, 100 schedules new          206/206/1    206/206/1     206/206/1    206/206/1
a start, 100 schedules unchanged    3/3/1        3/3/1         3/3/1        3/3/1
a start, 100 schedules one changed  9/9/1        9/9/1         9/9/1        9/9/1
a job that awaits its ack           2/2/2        2/2/2         2/2/2        2/2/2
an idle thread, a minute            1/1/1        1/1/1         1/1/1        1/1/1
bury                                -            1/1/1         -            1/1/1
touch                               -            1/1/1         -            1/1/1
""",
    "mariadb": """
                                    a table      a table, all  xq.Task      xq.Task, all
put                                 1/1/1        1/1/1         1/1/1        1/1/1
put that looks                      2/2/2        2/2/2         2/2/2        2/2/2
take                                1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there                 1/1/1        3/3/3         1/1/1        3/3/3
ack                                 1/1/1        1/1/1         1/1/1        1/1/1
release                             1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                       1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                      4/4/1        4/4/1         4/4/1        4/4/1
ack_many(100)                       3/3/1        4/4/1         3/3/1        4/4/1
take that waits                     3/3/3        5/5/5         3/3/3        5/5/5
a thread's job                      1/1/1        1/1/1         1/1/1        1/1/1
a thread's job, prefetch=10         0.5/0.5/0.1  0.8/0.8/0.2   0.5/0.5/0.1  0.8/0.8/0.2
a thread's job, batch=10            0.5/0.5/0.1  0.8/0.8/0.2   0.5/0.5/0.1  0.8/0.8/0.2
a coroutine's job                   1/1/1        1/1/1         1/1/1        1/1/1
a coroutine's job, workers=10       0.5/0.5/0.2  0.8/0.8/0.2   0.5/0.5/0.2  0.8/0.8/0.2
a job that acks                     2/2/2        2/2/2         2/2/2        2/2/2
a job that acks, atomic             4/4/2        4/4/2         4/4/2        4/4/2
a job that is discarded             2/2/2        2/2/2         2/2/2        2/2/2
a start, 100 schedules new          206/206/1    206/206/1     206/206/1    206/206/1
a start, 100 schedules unchanged    3/3/1        3/3/1         3/3/1        3/3/1
a start, 100 schedules one changed  9/9/1        9/9/1         9/9/1        9/9/1
a job that awaits its ack           2/2/2        2/2/2         2/2/2        2/2/2
an idle thread, a minute            1/1/1        1/1/1         1/1/1        1/1/1
bury                                -            1/1/1         -            1/1/1
touch                               -            1/1/1         -            1/1/1
""",
}


EXPECTED["mysql"] = EXPECTED["mariadb"]


@pytest.mark.parametrize("shared_db", [*EXPECTED], indirect=True)
def test_each_path_sends_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    counter = counter_of(monkeypatch)
    parts = (measured, awaited_ack, minute)
    found = {
        name: {path: trips for part in parts for path, trips in part(counter, queue).items()}
        for name, queue in of_peewee(shared_db).items()
    }
    assert table(found) == EXPECTED[request.node.callspec.params["shared_db"]].strip("\n")


@pytest.mark.parametrize("shared_db", [*EXPECTED], indirect=True)
def test_a_put_beside_a_newer_definition_sends_what_one_beside_its_own_sends(shared_db, monkeypatch):
    shared_db.close()
    counter, queue = counter_of(monkeypatch), of_peewee(shared_db)["a table"]

    def sent():
        put = late(queue).put
        with counter.counting() as trips:
            put({})
        return str(trips)

    queue.put({})
    beside_its_own = sent()
    next_release(queue.model, features={**queue.parts.definition.features, "max_takes": {"n": 3, "to": "X"}}).install()
    sent()  # it looks what the newer definition is
    assert [sent(), sent()] == [beside_its_own] * 2


LISTS = """
                                   sqlite  postgres  mariadb
ack_many(100) of single takes      3/3/1   3/3/1     3/3/1
release_many(100) of single takes  3/3/1   3/3/1     4/4/1
bury_many(100) of single takes     4/4/1   4/4/1     5/5/1
touch_many(100) of single takes    3/3/1   3/3/1     4/4/1
kill_many(100)                     4/4/1   4/4/1     4/4/1
put_many(100), two keys            1/1/1   1/1/1     1/1/1
take_many(100), two keys           1/1/1   1/1/1     4/4/1
ack_many(100), two keys            3/3/1   3/3/1     3/3/1
put, unique                        1/1/1   1/1/1     1/1/1
put_many(100), unique              3/3/1   3/3/1     3/3/1
put_many(100), 2 are there         4/4/1   4/4/1     5/5/1
put_many(100), all are there       4/4/1   4/4/1     4/4/1
put_many(100), 2 UUIDs are there   4/4/1   4/4/1     5/5/1
20 acks of coroutines, update      4/4/1   4/4/1     4/4/1
put, DecimalField                  3/3/1   1/1/1     1/1/1
take, DecimalField                 3/3/1   1/1/1     1/1/1
ack, DecimalField                  3/3/1   1/1/1     1/1/1
put, UUIDField                     3/3/1   1/1/1     3/3/1
take, UUIDField                    3/3/1   1/1/1     3/3/1
ack, UUIDField                     3/3/1   1/1/1     3/3/1
put, Upper                         3/3/1   3/3/1     3/3/1
take, Upper                        3/3/1   3/3/1     3/3/1
ack, Upper                         3/3/1   3/3/1     3/3/1
a thread's job, DecimalField       4/4/1   2/1/1     1/1/1
a thread's job, UUIDField          4/4/1   2/1/1     4/4/1
a thread's job, Upper              4/4/1   4/4/1     4/4/1
a thread's job, on_change          4/4/1   2/2/2     2/2/2
a thread's job, one utube          4/4/1   4/3/3     7/7/3
a thread's job, 5 utubes           4/4/1   4/3/3     7/7/3
take, fair                         1/1/1   2/2/2     2/2/2
take_many(10) of 10 utubes, fair   3/3/1   5/5/2     6/6/2
take_many(10) of 5 utubes, fair    4/4/1   8/8/2     11/11/2
take_many(10) of one utube, fair   12/12/1  32/32/2  51/51/2
"""


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres", "mariadb", "mysql"], indirect=True)
def test_a_list_is_one_statement_whatever_its_takes_keys_and_fields(shared_db, request, monkeypatch):
    shared_db.close()
    found = of_lists(counter_of(monkeypatch), shared_db)
    assert found == of_database(LISTS, request.node.callspec.params["shared_db"])


STEPS = """
                            sqlite  postgres  mariadb
step                        1/1/1   1/1/1     1/1/1
step, recorded              0/0/0   0/0/0     0/0/0
step in atomic()            3/3/1   3/3/1     3/3/1
step in atomic(), recorded  2/2/1   2/2/1     2/2/1
sleep                       1/1/1   1/1/1     1/1/1
wait                        1/1/1   1/1/1     1/1/1
wait_for, its signal there  0/0/0   0/0/0     0/0/0
signal, awaited             1/1/1   1/1/1     1/1/1
signal, not awaited         1/1/1   1/1/1     1/1/1
"""


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres", "mariadb", "mysql"], indirect=True)
def test_a_step_is_one_statement_and_its_record_costs_the_next_attempts_none(shared_db, request, monkeypatch):
    shared_db.close()
    found = of_steps(counter_of(monkeypatch), shared_db, monkeypatch)
    assert found == of_database(STEPS, request.node.callspec.params["shared_db"])


def of_database(table: str, engine: str) -> dict[str, str]:
    """Return the column of a database in a table with one for each."""
    names, *rows = [re.split(" {2,}", line) for line in table.strip("\n").splitlines()]
    column = names.index("mariadb" if engine == "mysql" else engine)
    return {row[0]: row[column] for row in rows}


GUARDED = {
    "sqlite": """
                               limit  rate
put                            1/1/1  -
put_many(100)                  1/1/1  -
take                           -      5/5/1
take, nothing there            -      9/9/3
take_many(100)                 -      302/302/1
take that waits                -      15/15/5
a thread's job                 -      6/6/1
a thread's job, prefetch=10    -      3.3/3.3/0.1
a thread's job, batch=10       -      3.3/3.3/0.1
a coroutine's job              -      6/6/1
a coroutine's job, workers=10  -      3.3/3.3/0.2
""",
    "postgres": """
                               limit  rate
put                            5/2/1  -
put_many(100)                  5/2/1  -
take                           -      1/1/1
take, nothing there            -      3/3/3
take_many(100)                 -      102/102/1
take that waits                -      5/5/5
a thread's job                 -      2/1/1
a thread's job, prefetch=10    -      1.3/1.3/0.1
a thread's job, batch=10       -      1.3/1.3/0.1
a coroutine's job              -      2/1/1
a coroutine's job, workers=10  -      1.3/1.3/0.2
""",
    "mariadb": """
                               limit  rate
put                            1/1/1  -
put_many(100)                  1/1/1  -
take                           -      1/1/1
take, nothing there            -      3/3/3
take_many(100)                 -      102/102/1
take that waits                -      5/5/5
a thread's job                 -      1/1/1
a thread's job, prefetch=10    -      1.3/1.3/0.1
a thread's job, batch=10       -      1.3/1.3/0.1
a coroutine's job              -      1/1/1
a coroutine's job, workers=10  -      1.3/1.3/0.2
""",
}


GUARDED["mysql"] = GUARDED["mariadb"]


@pytest.mark.parametrize("shared_db", [*GUARDED], indirect=True)
def test_room_and_tokens_cost_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    found = table(guarded(counter_of(monkeypatch), shared_db))
    assert found == GUARDED[request.node.callspec.params["shared_db"]].strip("\n")


# A take that comes late does a batch of what is left to do: 1,000 tasks or groups (here 100), 100 sessions.
UPKEEP = {
    "sqlite": """
                                               timers       and utube
take, nothing is to do                         2/2/2        2/2/2
take, a new group is dirty                     2/2/2        2/2/2
take, a group is dirty                         2/2/2        2/2/2
take, 250 groups are dirty                     2/2/2        2/2/2
take, 250 delayed tasks are due                3/3/3        3/3/3
take, 250 tasks have expired                   5/5/5, none  6/6/6, none
take, 250 before it in its group have expired  3/3/3        11/11/11
take, 250 sessions are dead                    16/16/9      16/16/9
""",
    "postgres": """
                                               timers       and utube
take, nothing is to do                         2/2/2        2/2/2
take, a new group is dirty                     2/2/2        9/9/4
take, a group is dirty                         2/2/2        4/4/4
take, 250 groups are dirty                     2/2/2        9/9/4
take, 250 delayed tasks are due                3/3/3        10/10/5
take, 250 tasks have expired                   7/7/7, none  35/35/20, none
take, 250 before it in its group have expired  3/3/3        22/22/17
take, 250 sessions are dead                    25/25/16     27/27/18
""",
    "mariadb": """
                                               timers         and utube
take, nothing is to do                         2/2/2          2/2/2
take, a new group is dirty                     2/2/2          10/10/4
take, a group is dirty                         2/2/2          8/8/4
take, 250 groups are dirty                     2/2/2          38/38/8
take, 250 delayed tasks are due                6/6/3          42/42/9
take, 250 tasks have expired                   10/10/7, none  101/101/30, none
take, 250 before it in its group have expired  6/6/3          169/169/46
take, 250 sessions are dead                    23/23/15       25/25/17
""",
}


UPKEEP["mysql"] = UPKEEP["mariadb"]


@pytest.mark.parametrize("shared_db", [*UPKEEP], indirect=True)
def test_a_take_does_a_bounded_part_of_what_was_left_to_do(shared_db, request, monkeypatch):
    shared_db.close()
    for module in (statements, take, timers):
        monkeypatch.setattr(module, "PER_MOVE", 100)
    monkeypatch.setattr(server_heads, "MANY", 100)
    monkeypatch.setattr(InnodbHeads, "at_once", 20)
    counter, kinds = counter_of(monkeypatch), {"timers": {}, "and utube": {"utube": True}}
    queues = {of: timed(shared_db, f"timed{len(on)}", on) for of, on in kinds.items()}
    found = {of: upkeep(counter, queue) for of, queue in queues.items()}
    assert table(found) == UPKEEP[request.node.callspec.params["shared_db"]].strip("\n")


A_FEW = 40  # statements: those of a batch of heads, or two, and of no group alone
ON_SERVERS = pytest.mark.parametrize("shared_db", SERVERS, indirect=True)


@ON_SERVERS
def test_takes_that_meet_refresh_different_groups_a_batch_each(shared_db, monkeypatch):
    shared_db.close()
    counter, queue = counter_of(monkeypatch), timed(shared_db, "timed", {"utube": True})
    heads = queue.parts.executor.dialect.heads
    place = heads.place

    def placed(*args):
        place(*args)
        monkeypatch.setattr(heads, "place", place)
        with counter.counting() as trips:
            assert elsewhere(shared_db, queue.take)  # while this one has locked the heads before it
        assert trips.statements < A_FEW

    assert queue.take() is None
    with counter.alone():
        queue.put_many([{"n": n} for n in range(2 * heads.at_once)])
        monkeypatch.setattr(heads, "place", placed)
        assert queue.take()
    assert heads.place is place


@ON_SERVERS
def test_groups_whose_heads_an_open_transaction_has_inserted_are_skipped_together(shared_db, request, monkeypatch):
    isolate(shared_db, "READ COMMITTED")  # else MariaDB locks gaps
    counter, queue = counter_of(monkeypatch), timed(shared_db, "timed", {"utube": True})
    assert queue.take() is None
    with counter.alone(), shared_db.atomic():
        queue.put_many([{"n": n} for n in range(100)])
        assert queue.take()
        with counter.counting() as trips:
            found = elsewhere(shared_db, lambda: (queue.put_many([{"n": n} for n in range(500)]), queue.take_many(500)))
    assert [task.n for task in found[1]] == list(range(100, 500))
    if (
        request.node.callspec.params["shared_db"] != "mysql"
    ):  # which has no handler that goes on behind a locked row, so halves the batch
        assert trips.statements < A_FEW


@ON_SERVERS
def test_rows_of_full_groups_that_another_connection_deletes_are_skipped_together(shared_db, monkeypatch):
    shared_db.close()
    counter, queue = counter_of(monkeypatch), timed(shared_db, "timed", {"utube": True})
    heads = queue.parts.executor.dialect.heads
    some = [{"n": n} for n in range(100)]
    assert queue.take() is None
    with counter.alone():
        queue.put_many(some)
        assert len(queue.take_many(100)) == 100
        queue.put_many(some)
        rows = shared_db.execute_sql(f"SELECT id FROM {heads.dirty}").fetchall()
        queue.put({"n": 100})
        with shared_db.atomic():
            shared_db.execute_sql(heads.gone([id for (id,) in rows]))
            with counter.counting() as trips:
                assert elsewhere(shared_db, queue.take).n == 100
    assert trips.statements < A_FEW


@ON_SERVERS
def test_a_group_whose_earlier_row_is_locked_is_left_to_who_has_locked_it(shared_db, monkeypatch):
    monkeypatch.setattr(server_heads, "MANY", 1)
    queue = timed(shared_db, "timed", {"utube": True})
    rows = queue.parts.executor.dialect.heads.dirty
    assert queue.take() is None
    with queue.parts.maintenance.attend().working:  # else its thread may refresh the group first
        queue.put_many([{"n": 1}])
        queue.put_many([{"n": 1}])
        with shared_db.atomic():
            shared_db.execute_sql(f"SELECT id FROM {rows} ORDER BY id LIMIT 1 FOR UPDATE")
            assert elsewhere(shared_db, queue.take) is None
            assert len(shared_db.execute_sql(f"SELECT id FROM {rows}").fetchall()) == 2
    assert queue.take()


IDLE = {
    "sqlite": 80,
    "postgres": 300,
    "mariadb": 280,
    "mysql": 280,
}  # the most in a minute, without those of MariaDB's watch


CASES = [*((engine, False) for engine in IDLE), ("sqlite", True)]


@pytest.mark.parametrize(("shared_db", "paused"), CASES, indirect=["shared_db"])
def test_an_idle_process_of_20_workers_and_20_queues_sends_few_statements(shared_db, paused, request, monkeypatch):
    shared_db.close()
    counter, queues = counter_of(monkeypatch), many(shared_db, 20)
    for queue in queues if paused else ():
        queue.put({})
        queue.pause()
    trips = idle(counter, queues)
    assert 20 < trips.statements < IDLE[request.node.callspec.params["shared_db"]], Counter(trips.texts)


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_a_session_is_registered_in_an_applications_transaction_until_one_is_committed(shared_db, monkeypatch):
    shared_db.close()
    counter, queue = counter_of(monkeypatch), of_peewee(shared_db)["a table"]

    def sent(rolled_back: bool) -> int:
        with shared_db.atomic(), shared_db.atomic() as savepoint, counter.counting() as trips:
            queue.take()
            if rolled_back:
                savepoint.rollback()
        return sum("INTO xq_session" in text for text in trips.texts)

    assert [sent(True), sent(True), sent(False), sent(False)] == [1, 1, 1, 0]


# SQLite's column is what xq sends if it settles the ends within their transaction; PostgreSQL's triggers do that.
ENDS = """
                               sqlite   postgres  mariadb
ack, of no group               3/3/1    1/1/1     1/1/1
ack, 50 members are left       4/4/1    1/1/1     2/2/2
ack, one member is left        4/4/1    1/1/1     2/2/2
ack, the last member           10/10/1  1/1/1     8/8/3
ack, the last member, atomic   12/12/1  3/3/1     10/10/3
ack_many(100), all members     10/10/1  3/3/1     11/11/3
put after a task               5/5/1    5/5/1     5/5/1
put after 100 tasks            5/5/1    5/5/1     5/5/1
ack, no dependant              4/4/1    1/1/1     2/2/2
ack, one dependant             5/5/1    1/1/1     3/3/3
ack, one dependant, atomic     7/7/1    3/3/1     5/5/3
ack, 100 dependants            5/5/1    1/1/1     6/6/3
bury, one dependant is killed  6/6/1    1/1/1     4/4/4
ack_many(100), one dependant   5/5/1    3/3/1     6/6/3
sweep, 100 members expire      14/14/5  5/5/5     15/15/7
sweep, 100 parents expire      9/9/5    5/5/5     10/10/7
a thread's job, of no group    4/4/1    2/1/1     1/1/1
a thread's job, no dependant   5/5/1    2/1/1     2/2/2
a thread's job, a member       5/5/1    2/1/1     2/2/2
a thread's job, of a chain     6/6/1    2/1/1     8/8/8
"""


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres", "mariadb", "mysql"], indirect=True)
def test_what_follows_an_end_costs_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    found = of_ends(counter_of(monkeypatch), shared_db)
    assert found == of_database(ENDS, request.node.callspec.params["shared_db"])
