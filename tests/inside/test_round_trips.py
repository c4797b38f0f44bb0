"""What each path sends: statements/round trips/transactions. A change of a number is a change in review.

SQLite has no round trips: there the second number is that of its statements.
"""

from __future__ import annotations

import re

import pytest

from tests.support.trips import awaited_ack, counter_of, guarded, measured, minute, of_lists, of_peewee, table

EXPECTED = {
    "sqlite": """
                                    a table      a table, all  xq.Task      xq.Task, all
put                                 1/1/1        1/1/1         1/1/1        1/1/1
take                                1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there                 2/2/2        3/3/3         2/2/2        3/3/3
ack                                 1/1/1        1/1/1         1/1/1        1/1/1
release                             1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                       1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                      1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                       3/3/1        3/3/1         3/3/1        3/3/1
take that waits                     4/4/4        5/5/5         4/4/4        5/5/5
a thread's job                      4/4/1        4/4/1         4/4/1        4/4/1
a thread's job, prefetch=10         0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a thread's job, batch=10            0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a coroutine's job                   4/4/1        4/4/1         4/4/1        4/4/1
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
a job that acks                     2/2/2        2/2/2         2/2/2        2/2/2
a job that acks, atomic             7/7/2        7/7/2         7/7/2        7/7/2
a job that is discarded             2/2/2        2/2/2         2/2/2        2/2/2
a start, 100 schedules new          307/307/1    307/307/1     307/307/1    307/307/1
a start, 100 schedules unchanged    4/4/1        4/4/1         4/4/1        4/4/1
a start, 100 schedules one changed  8/8/1        8/8/1         8/8/1        8/8/1
a job that awaits its ack           2/2/2        2/2/2         2/2/2        2/2/2
an idle thread, a minute            644/644/644  884/884/884   644/644/644  884/884/884
bury                                -            1/1/1         -            1/1/1
touch                               -            1/1/1         -            1/1/1
""",
    "postgres": """
                                    a table      a table, all  xq.Task      xq.Task, all
put                                 1/1/1        1/1/1         1/1/1        1/1/1
take                                1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there                 2/2/2        3/3/3         2/2/2        3/3/3
ack                                 1/1/1        1/1/1         1/1/1        1/1/1
release                             1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                       1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                      1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                       3/3/1        3/3/1         3/3/1        3/3/1
take that waits                     4/4/4        5/5/5         4/4/4        5/5/5
a thread's job                      2/1/1        2/1/1         2/1/1        2/1/1
a thread's job, prefetch=10         0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a thread's job, batch=10            0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a coroutine's job                   2/1/1        2/1/1         2/1/1        2/1/1
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
a job that acks                     2/2/2        2/2/2         2/2/2        2/2/2
a job that acks, atomic             5/4/2        5/4/2         5/4/2        5/4/2
a job that is discarded             2/2/2        2/2/2         2/2/2        2/2/2
a start, 100 schedules new          506/506/1    506/506/1     506/506/1    506/506/1
a start, 100 schedules unchanged    3/3/1        3/3/1         3/3/1        3/3/1
a start, 100 schedules one changed  7/7/1        7/7/1         7/7/1        7/7/1
a job that awaits its ack           2/2/2        2/2/2         2/2/2        2/2/2
an idle thread, a minute            644/644/644  884/884/884   644/644/644  884/884/884
bury                                -            1/1/1         -            1/1/1
touch                               -            1/1/1         -            1/1/1
""",
    "mariadb": """
                                    a table        a table, all   xq.Task        xq.Task, all
put                                 1/1/1          1/1/1          1/1/1          1/1/1
take                                5/5/1          5/5/1          5/5/1          5/5/1
take, nothing there                 4/4/2          5/5/3          4/4/2          5/5/3
ack                                 4/4/1          5/5/1          4/4/1          5/5/1
release                             5/5/1          5/5/1          5/5/1          5/5/1
put_many(100)                       1/1/1          1/1/1          1/1/1          1/1/1
take_many(100)                      5/5/1          5/5/1          5/5/1          5/5/1
ack_many(100)                       6/6/1          7/7/1          6/6/1          7/7/1
take that waits                     10/10/4        11/11/5        10/10/4        11/11/5
a thread's job                      9/9/2          10/10/2        9/9/2          10/10/2
a thread's job, prefetch=10         0.9/0.9/0.2    1/1/0.2        0.9/0.9/0.2    1/1/0.2
a thread's job, batch=10            0.9/0.9/0.2    1/1/0.2        0.9/0.9/0.2    1/1/0.2
a coroutine's job                   9/9/2          10/10/2        9/9/2          10/10/2
a coroutine's job, workers=10       0.9/0.9/0.2    1/1/0.2        0.9/0.9/0.2    1/1/0.2
a job that acks                     9/9/2          10/10/2        9/9/2          10/10/2
a job that acks, atomic             14/14/3        15/15/3        14/14/3        15/15/3
a job that is discarded             9/9/2          9/9/2          9/9/2          9/9/2
a start, 100 schedules new          306/306/1      306/306/1      306/306/1      306/306/1
a start, 100 schedules unchanged    3/3/1          3/3/1          3/3/1          3/3/1
a start, 100 schedules one changed  7/7/1          7/7/1          7/7/1          7/7/1
a job that awaits its ack           9/9/2          10/10/2        9/9/2          10/10/2
an idle thread, a minute            1124/1124/644  1364/1364/884  1124/1124/644  1364/1364/884
bury                                -              5/5/1          -              5/5/1
touch                               -              5/5/1          -              5/5/1
""",
}


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


LISTS = """
                                   sqlite  postgres  mariadb
ack_many(100) of single takes      3/3/1   3/3/1     4/4/1
release_many(100) of single takes  3/3/1   3/3/1     5/5/1
bury_many(100) of single takes     4/4/1   4/4/1     6/6/1
touch_many(100) of single takes    3/3/1   3/3/1     5/5/1
kill_many(100)                     4/4/1   4/4/1     5/5/1
put_many(100), two keys            1/1/1   1/1/1     1/1/1
take_many(100), two keys           1/1/1   1/1/1     5/5/1
ack_many(100), two keys            3/3/1   3/3/1     4/4/1
put, unique                        1/1/1   1/1/1     1/1/1
put_many(100), unique              3/3/1   3/3/1     3/3/1
put_many(100), 2 are there         5/5/1   5/5/1     201/201/1
20 acks of coroutines, update      4/4/1   4/4/1     5/5/1
put, DecimalField                  3/3/1   1/1/1     1/1/1
take, DecimalField                 3/3/1   1/1/1     5/5/1
ack, DecimalField                  3/3/1   1/1/1     4/4/1
put, UUIDField                     3/3/1   1/1/1     3/3/1
take, UUIDField                    3/3/1   1/1/1     5/5/1
ack, UUIDField                     3/3/1   1/1/1     4/4/1
put, Upper                         3/3/1   3/3/1     3/3/1
take, Upper                        3/3/1   3/3/1     5/5/1
ack, Upper                         3/3/1   3/3/1     4/4/1
a thread's job, on_change          4/4/1   2/2/2     9/9/2
"""


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_a_list_is_one_statement_whatever_its_takes_keys_and_fields(shared_db, request, monkeypatch):
    shared_db.close()
    found = of_lists(counter_of(monkeypatch), shared_db)
    engine = request.node.callspec.params["shared_db"]
    names, *rows = [re.split(" {2,}", line) for line in LISTS.strip("\n").splitlines()]
    assert found == {row[0]: row[names.index(engine)] for row in rows}


GUARDED = {
    "sqlite": """
                               limit  rate
put                            1/1/1  -
put_many(100)                  1/1/1  -
take                           -      5/5/1
take, nothing there            -      10/10/4
take_many(100)                 -      502/502/1
take that waits                -      16/16/6
a thread's job                 -      6/6/1
a thread's job, prefetch=10    -      3.3/3.3/0.1
a thread's job, batch=10       -      3.3/3.3/0.1
a coroutine's job              -      6/6/2
a coroutine's job, workers=10  -      5.3/5.3/0.2
""",
    "postgres": """
                               limit  rate
put                            5/2/1  -
put_many(100)                  5/2/1  -
take                           -      1/1/1
take, nothing there            -      4/4/4
take_many(100)                 -      102/102/1
take that waits                -      6/6/6
a thread's job                 -      2/1/1
a thread's job, prefetch=10    -      1.3/1.3/0.1
a thread's job, batch=10       -      1.3/1.3/0.1
a coroutine's job              -      2/2/2
a coroutine's job, workers=10  -      1.3/1.3/0.2
""",
    "mariadb": """
                               limit  rate
put                            1/1/1  -
put_many(100)                  1/1/1  -
take                           -      1/1/1
take, nothing there            -      4/4/4
take_many(100)                 -      102/102/1
take that waits                -      6/6/6
a thread's job                 -      1/1/1
a thread's job, prefetch=10    -      1.3/1.3/0.1
a thread's job, batch=10       -      1.3/1.3/0.1
a coroutine's job              -      2/2/2
a coroutine's job, workers=10  -      1.3/1.3/0.2
""",
}


@pytest.mark.parametrize("shared_db", [*GUARDED], indirect=True)
def test_room_and_tokens_cost_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    found = table(guarded(counter_of(monkeypatch), shared_db))
    assert found == GUARDED[request.node.callspec.params["shared_db"]].strip("\n")
