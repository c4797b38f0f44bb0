"""What each path sends: statements/round trips/transactions. A change of a number is a change in review.

SQLite has no round trips: there the second number is that of its statements.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.trips import counter_of, idle, many, measured, minute, of_peewee, table

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
an idle thread, a minute       1/1/1        1/1/1         1/1/1        1/1/1
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
an idle thread, a minute       1/1/1        1/1/1         1/1/1        1/1/1
bury                           -            1/1/1         -            1/1/1
touch                          -            1/1/1         -            1/1/1
""",
    "mariadb": """
                               a table      a table, all  xq.Task      xq.Task, all
put                            1/1/1        1/1/1         1/1/1        1/1/1
take                           5/5/1        5/5/1         5/5/1        5/5/1
take, nothing there            4/4/2        5/5/3         4/4/2        5/5/3
ack                            4/4/1        5/5/1         4/4/1        5/5/1
release                        5/5/1        5/5/1         5/5/1        5/5/1
put_many(100)                  1/1/1        1/1/1         1/1/1        1/1/1
take_many(100)                 5/5/1        5/5/1         5/5/1        5/5/1
ack_many(100)                  6/6/1        7/7/1         6/6/1        7/7/1
take that waits                10/10/4      11/11/5       10/10/4      11/11/5
a thread's job                 9/9/2        10/10/2       9/9/2        10/10/2
a thread's job, prefetch=10    0.9/0.9/0.2  1/1/0.2       0.9/0.9/0.2  1/1/0.2
a thread's job, batch=10       0.9/0.9/0.2  1/1/0.2       0.9/0.9/0.2  1/1/0.2
a coroutine's job              9/9/2        10/10/2       9/9/2        10/10/2
a coroutine's job, workers=10  0.9/0.9/0.2  1/1/0.2       0.9/0.9/0.2  1/1/0.2
an idle thread, a minute       1/1/1        1/1/1         1/1/1        1/1/1
bury                           -            5/5/1         -            5/5/1
touch                          -            5/5/1         -            5/5/1
""",
}


@pytest.mark.parametrize("shared_db", [*EXPECTED], indirect=True)
def test_each_path_sends_what_the_table_says(shared_db, request, monkeypatch):
    shared_db.close()
    counter = counter_of(monkeypatch)
    found = {name: measured(counter, queue) | minute(counter, queue) for name, queue in of_peewee(shared_db).items()}
    assert table(found) == EXPECTED[request.node.callspec.params["shared_db"]].strip("\n")


# The seconds to count, and the most statements in these: MariaDB is polled while a caller waits.
IDLE = {"sqlite": (60, 80), "postgres": (60, 300), "mariadb": (3, 200)}


@pytest.mark.parametrize("shared_db", [*IDLE], indirect=True)
def test_an_idle_process_of_20_workers_and_20_queues_sends_few_statements(shared_db, request, monkeypatch):
    shared_db.close()
    seconds, most = IDLE[request.node.callspec.params["shared_db"]]
    trips = idle(counter_of(monkeypatch), many(shared_db, 20), seconds)
    assert 20 < trips.statements < most, Counter(trips.texts)
