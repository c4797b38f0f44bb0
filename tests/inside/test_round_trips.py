"""What each path sends: statements/round trips/transactions. A change of a number is a change in review.

SQLite has no round trips: there the second number is that of its statements.
"""

from __future__ import annotations

import pytest

from tests.support.trips import counter_of, guarded, measured, minute, of_peewee, table

EXPECTED = {
    "sqlite": """
                               a table      a table, all  xq.Task      xq.Task, all
put                            1/1/1        1/1/1         1/1/1        1/1/1
take                           1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there            2/2/2        3/3/3         2/2/2        3/3/3
ack                            1/1/1        1/1/1         1/1/1        1/1/1
release                        1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                  1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                 1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                  3/3/1        3/3/1         3/3/1        3/3/1
take that waits                4/4/4        5/5/5         4/4/4        5/5/5
a thread's job                 4/4/1        4/4/1         4/4/1        4/4/1
a thread's job, prefetch=10    0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a thread's job, batch=10       0.4/0.4/0.1  0.4/0.4/0.1   0.4/0.4/0.1  0.4/0.4/0.1
a coroutine's job              2/2/2        2/2/2         2/2/2        2/2/2
a coroutine's job, workers=10  0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
an idle thread, a minute       644/644/644  884/884/884   644/644/644  884/884/884
bury                           -            1/1/1         -            1/1/1
touch                          -            1/1/1         -            1/1/1
""",
    "postgres": """
                               a table      a table, all  xq.Task      xq.Task, all
put                            1/1/1        1/1/1         1/1/1        1/1/1
take                           1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there            2/2/2        3/3/3         2/2/2        3/3/3
ack                            1/1/1        1/1/1         1/1/1        1/1/1
release                        1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                  1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                 1/1/1        1/1/1         1/1/1        1/1/1
ack_many(100)                  3/3/1        3/3/1         3/3/1        3/3/1
take that waits                4/4/4        5/5/5         4/4/4        5/5/5
a thread's job                 2/1/1        2/1/1         2/1/1        2/1/1
a thread's job, prefetch=10    0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a thread's job, batch=10       0.2/0.1/0.1  0.2/0.1/0.1   0.2/0.1/0.1  0.2/0.1/0.1
a coroutine's job              2/2/2        2/2/2         2/2/2        2/2/2
a coroutine's job, workers=10  0.2/0.2/0.2  0.2/0.2/0.2   0.2/0.2/0.2  0.2/0.2/0.2
an idle thread, a minute       644/644/644  884/884/884   644/644/644  884/884/884
bury                           -            1/1/1         -            1/1/1
touch                          -            1/1/1         -            1/1/1
""",
    "mariadb": """
                               a table      a table, all  xq.Task      xq.Task, all
put                            1/1/1        1/1/1         1/1/1        1/1/1
take                           1/1/1        1/1/1         1/1/1        1/1/1
take, nothing there            2/2/2        3/3/3         2/2/2        3/3/3
ack                            1/1/1        1/1/1         1/1/1        1/1/1
release                        1/1/1        1/1/1         1/1/1        1/1/1
put_many(100)                  1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                 4/4/1        4/4/1         4/4/1        4/4/1
ack_many(100)                  3/3/1        6/6/1         3/3/1        6/6/1
take that waits                4/4/4        5/5/5         4/4/4        5/5/5
a thread's job                 1/1/1        1/1/1         1/1/1        1/1/1
a thread's job, prefetch=10    0.5/0.5/0.1  0.8/0.8/0.2   0.5/0.5/0.1  0.8/0.8/0.2
a thread's job, batch=10       0.5/0.5/0.1  0.8/0.8/0.2   0.5/0.5/0.1  0.8/0.8/0.2
a coroutine's job              2/2/2        2/2/2         2/2/2        2/2/2
a coroutine's job, workers=10  0.5/0.5/0.2  0.8/0.8/0.2   0.5/0.5/0.2  0.8/0.8/0.2
an idle thread, a minute       644/644/644  884/884/884   644/644/644  884/884/884
bury                           -            1/1/1         -            1/1/1
touch                          -            1/1/1         -            1/1/1
""",
}


@pytest.mark.parametrize("shared_db", [*EXPECTED], indirect=True)
def test_each_path_sends_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    counter = counter_of(monkeypatch)
    found = {name: measured(counter, queue) | minute(counter, queue) for name, queue in of_peewee(shared_db).items()}
    assert table(found) == EXPECTED[request.node.callspec.params["shared_db"]].strip("\n")


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
