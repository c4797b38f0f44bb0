"""What each path of a model of Django sends, and django.tasks: see tests/inside/test_round_trips.py."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, models

from tests.django.conftest import Maker
from tests.django.on_tasks import backend, install
from tests.django.shop import jobs
from tests.support.trips import ALL, Counter, counter_of, job, job_of, measured, table
from tests.support.walks import functions, verbs
from tests.timing import in_sequence
from xq.adapters.django import enqueue_many
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.worker import run

EXPECTED = {
    "sqlite": """
                                    a model      a model, all  django.tasks
put                                 1/1/1        1/1/1         -
put that looks                      3/3/3        3/3/3         -
take                                1/1/1        1/1/1         -
take, nothing there                 1/1/1        3/3/3         -
ack                                 1/1/1        1/1/1         -
release                             1/1/1        1/1/1         -
put_many(100)                       1/1/1        1/1/1         -
take_many(100)                      1/1/1        1/1/1         -
ack_many(100)                       3/3/1        3/3/1         -
take that waits                     3/3/3        5/5/5         -
a thread's job                      4/4/1        4/4/1         -
a thread's job, prefetch=10         0.4/0.4/0.1  0.4/0.4/0.1   -
a thread's job, batch=10            0.4/0.4/0.1  0.4/0.4/0.1   -
a coroutine's job                   4/4/1        4/4/1         -
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   -
a job that acks                     2/2/2        2/2/2         -
a job that acks, atomic             7/7/2        7/7/2         -
a job that is discarded             2/2/2        2/2/2         -
a start, 100 schedules new          206/206/1    206/206/1     -
a start, 100 schedules unchanged    3/3/1        3/3/1         -
a start, 100 schedules one changed  9/9/1        9/9/1         -
a thread's job, UUIDField           4/4/1        -             -
bury                                -            1/1/1         -
touch                               -            1/1/1         -
enqueue                             -            -             1/1/1
enqueue_many(200)                   -            -             1/1/1
a job                               -            -             4/4/1
""",
    "postgres": """
                                    a model      a model, all  django.tasks
put                                 1/1/1        1/1/1         -
put that looks                      2/2/2        2/2/2         -
take                                1/1/1        1/1/1         -
take, nothing there                 1/1/1        3/3/3         -
ack                                 1/1/1        1/1/1         -
release                             1/1/1        1/1/1         -
put_many(100)                       1/1/1        1/1/1         -
take_many(100)                      1/1/1        1/1/1         -
ack_many(100)                       3/3/1        3/3/1         -
take that waits                     3/3/3        5/5/5         -
a thread's job                      2/1/1        2/1/1         -
a thread's job, prefetch=10         0.2/0.1/0.1  0.2/0.1/0.1   -
a thread's job, batch=10            0.2/0.1/0.1  0.2/0.1/0.1   -
a coroutine's job                   2/1/1        2/1/1         -
a coroutine's job, workers=10       0.2/0.2/0.2  0.2/0.2/0.2   -
a job that acks                     2/2/2        2/2/2         -
a job that acks, atomic             5/4/2        5/4/2         -
a job that is discarded             2/2/2        2/2/2         -
a start, 100 schedules new          206/206/1    206/206/1     -
a start, 100 schedules unchanged    3/3/1        3/3/1         -
a start, 100 schedules one changed  9/9/1        9/9/1         -
a thread's job, UUIDField           2/1/1        -             -
bury                                -            1/1/1         -
touch                               -            1/1/1         -
enqueue                             -            -             1/1/1
enqueue_many(200)                   -            -             1/1/1
a job                               -            -             2/1/1
""",
    "mariadb": """
                                    a model      a model, all  django.tasks
put                                 1/1/1        1/1/1         -
put that looks                      2/2/2        2/2/2         -
take                                1/1/1        1/1/1         -
take, nothing there                 1/1/1        3/3/3         -
ack                                 1/1/1        1/1/1         -
release                             1/1/1        1/1/1         -
put_many(100)                       1/1/1        1/1/1         -
take_many(100)                      4/4/1        4/4/1         -
ack_many(100)                       4/4/1        5/5/1         -
take that waits                     3/3/3        5/5/5         -
a thread's job                      1/1/1        1/1/1         -
a thread's job, prefetch=10         0.5/0.5/0.1  0.8/0.8/0.2   -
a thread's job, batch=10            0.5/0.5/0.1  0.8/0.8/0.2   -
a coroutine's job                   1/1/1        1/1/1         -
a coroutine's job, workers=10       0.5/0.5/0.2  0.8/0.8/0.2   -
a job that acks                     2/2/2        2/2/2         -
a job that acks, atomic             5/5/2        5/5/3         -
a job that is discarded             2/2/2        2/2/2         -
a start, 100 schedules new          207/207/1    207/207/1     -
a start, 100 schedules unchanged    4/4/1        4/4/1         -
a start, 100 schedules one changed  10/10/1      10/10/1       -
a thread's job, UUIDField           5/5/1        -             -
bury                                -            1/1/1         -
touch                               -            1/1/1         -
enqueue                             -            -             1/1/1
enqueue_many(200)                   -            -             1/1/1
a job                               -            -             1/1/1
""",
}


@in_sequence
def of_tasks(counter: Counter) -> dict[str, str]:
    jobs.add.enqueue(1)
    with counter.counting() as trips:
        jobs.add.enqueue(1)
    with counter.counting() as many:
        enqueue_many(jobs.add, [((n,), {}) for n in range(200)])
    return {
        "enqueue": str(trips),
        "enqueue_many(200)": str(many),
        "a job": job(counter, Task.xq, lambda n: [jobs.add.enqueue(1) for _ in range(n)], run),
    }


@pytest.mark.parametrize("django_db", [*EXPECTED], indirect=True)
def test_each_path_sends_what_the_table_says(django_db, request, monkeypatch):
    connection.close()
    counter, make = counter_of(monkeypatch), Maker(django_db, None)

    def queue(features: dict[str, Any]) -> Any:
        roles, fields = (("runat",), {"data": models.JSONField(default=dict)}) if features else ((), {})
        return make(features, roles=roles, model=django_db.model(f"Task{len(features)}", **fields)).xq

    found = {"a model": measured(counter, queue({})), "a model, all": measured(counter, queue(dict(ALL)))}
    code = make({}, model=django_db.model("Code", x=models.UUIDField(null=True))).xq
    found["a model"]["a thread's job, UUIDField"] = job_of(counter, code, lambda task: None)
    with backend():
        install(django_db)
        found["django.tasks"] = of_tasks(counter)
    assert table(found) == EXPECTED[request.node.callspec.params["django_db"]].strip("\n")


WALKS = """
put   19
take  21
ack   26
"""


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_each_path_enters_as_many_functions_as_the_table_says(django_db):
    queue = Maker(django_db, None)({}, model=django_db.model("Walked")).xq
    assert functions(verbs(queue, {})) == WALKS.strip("\n")
