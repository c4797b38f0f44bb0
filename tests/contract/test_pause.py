"""pause and resume: while a queue or a tube is paused no process takes from it, and all else goes on."""

from __future__ import annotations

import pytest

from tests.factories import task, tasks
from tests.steps import names, processes, waiter
from xq.testing import run_pending

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

WITH_TUBES = ("runat", "deadline", "priority", "tube")
LONG = 60.0


# what is paused, one after the other -> what paused() says, what a take of the tube x finds, and those of any tube
PAUSED: dict[str, tuple[list[str | None], list[str | None], str | None, list[str]]] = {
    "nothing": ([], [], "a", ["b", "c", "d", "e"]),
    "the queue, twice": ([None, None], [None], None, []),
    "two tubes": (["z", "x"], ["x", "z"], None, ["b", "c"]),
    "a tube of a like name": (["X"], ["X"], "a", ["b", "c", "d", "e"]),
    "the queue and a tube": ([None, "x"], [None, "x"], None, []),
}


@pytest.mark.parametrize("what", PAUSED)
def test_no_task_is_taken_of_what_is_paused_until_it_is_resumed(make, what):
    pauses, paused, of_tube, of_any = PAUSED[what]
    Task, Other = make(roles=WITH_TUBES), make(model=make.model(table_name="other"))
    for name, tube in [("a", "x"), ("b", "y"), ("c", None), ("d", "x"), ("e", "z")]:
        Task.put(task(name=name, tube=tube))
    Other.put(task())
    for tube in pauses:
        Task.xq.pause(tube)
    assert (Task.xq.paused(), Other.xq.paused()) == (paused, [])
    found = Task.take(tube="x")
    assert (found and found.name, names(Task.xq.take_many(9))) == (of_tube, of_any)
    assert Task.take(0.01) is None
    assert Other.take()
    done: list[str] = []
    Task.xq.worker(lambda each: done.append(each.name))
    run_pending(Task)
    assert done == []
    for n, tube in enumerate(pauses, 1):
        Task.xq.resume(tube)
        Task.xq.resume(tube)  # twice changes nothing
        assert Task.xq.paused() == [each for each in paused if each not in pauses[:n]]
    run_pending(Task)
    assert sorted([*filter(None, [of_tube]), *of_any, *done]) == [*"abcde"]


@pytest.mark.parametrize("tube", ["x ", "", "it's", "%s:x?", "ü"])
def test_a_tube_is_paused_by_its_exact_name(make, tube):
    Task = make(roles=WITH_TUBES)
    for each in ["x", tube]:
        Task.put(task(name=each, tube=each))
    Task.xq.pause(tube)
    assert names(Task.xq.take_many(5)) == ["x"]
    Task.xq.resume(tube)
    assert names(Task.xq.take_many(5)) == [tube]


def test_a_pause_counts_when_its_transaction_is_committed(make):
    Task = make()
    Task.xq.put_many(tasks(2))
    with make.db.atomic() as transaction:
        Task.xq.pause()
        assert Task.take() is None
        transaction.rollback()
    assert Task.xq.paused() == []
    assert Task.take().id == 1
    with make.db.atomic():
        Task.xq.pause()
    with make.db.atomic():
        with make.db.atomic() as savepoint:
            Task.xq.resume()
            savepoint.rollback()
        assert Task.take() is None
    assert Task.take() is None
    with make.db.atomic():
        Task.xq.resume()
        assert Task.take().id == 2
    assert Task.xq.paused() == []


@pytest.mark.parametrize("tube", [None, "x"])
def test_takes_of_other_processes_wait_until_the_queue_or_the_tube_is_resumed(make_live, tube):
    Task, n = make_live(roles=WITH_TUBES), 3
    put = [each.id for each in Task.xq.put_many(tasks(n - 1, tube="x"))]
    Task.xq.pause(tube)

    def taker():
        waits = waiter(Task, lambda: Task.take(LONG))
        yield waits.goes_on
        yield waits.result().id

    with processes(make_live.db, *[taker] * n) as others:
        assert [next(other) for other in others] == [True] * n
        put.append(Task.put(task(tube="x")).id)
        assert Task.take() is None
        assert Task.xq.count("R") == n, "nobody has taken what came meanwhile"
        Task.xq.resume(tube)
        assert sorted(next(other) for other in others) == put
