"""pause and resume: while a queue or a tube is paused no process takes from it, and all else goes on."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.conftest import live
from tests.factories import task, tasks
from tests.steps import eventually, in_threads, is_exact, processes, state, waiter
from xq.testing import run_pending

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

WITH_TUBES = ("runat", "deadline", "priority", "tube")
WITHIN = 5.0  # seconds until another process knows: one, and what a busy machine adds
LONG = 60.0


def names(taken):
    return [each.name for each in taken]


# the queue


# what is paused, one after the other -> what paused() says, what a take of the tube x finds, and those of any tube
PAUSED: dict[str, tuple[list[str | None], list[str | None], str | None, list[str]]] = {
    "nothing": ([], [], "a", ["b", "c", "d", "e"]),
    "the queue": ([None], [None], None, []),
    "the queue, twice": ([None, None], [None], None, []),
    "a tube": (["x"], ["x"], None, ["b", "c", "e"]),
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
    for tube in reversed(pauses):
        Task.xq.resume(tube)
        Task.xq.resume(tube)  # twice changes nothing
    assert Task.xq.paused() == []
    run_pending(Task)
    assert sorted([*filter(None, [of_tube]), *of_any, *done]) == [*"abcde"]


def test_a_tube_stays_paused_when_the_queue_is_resumed(make):
    Task = make(roles=WITH_TUBES)
    Task.put(task(tube="x"))
    Task.xq.pause()
    Task.xq.pause("x")
    Task.xq.resume()
    assert (Task.xq.paused(), Task.take()) == (["x"], None)


@pytest.mark.parametrize("tube", ["x ", "", "it's", "%s:x?", "ü"])
def test_a_tube_is_paused_by_its_exact_name(make, tube):
    Task = make(roles=WITH_TUBES)
    for each in ["x", tube]:
        Task.put(task(name=each, tube=each))
    Task.xq.pause(tube)
    assert names(Task.xq.take_many(5)) == ["x"]
    Task.xq.resume(tube)
    assert names(Task.xq.take_many(5)) == [tube]


def test_all_else_goes_on_while_a_queue_is_paused(make):
    Task = make({"buried": True, "delayed": True})
    for name in "abc":
        Task.put({"name": name})
    acked, released, buried = Task.xq.take_many(3)
    Task.xq.pause()
    acked.ack()
    released.release()
    buried.bury()
    put = Task.put({"name": "d"}, delay=5)
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    assert Task.dig(buried).name == "c"
    assert [state(Task, each) for each in (released, buried, put)] == ["R", "R", "R"]
    assert Task.kill(put).name == "d"
    assert is_exact(Task)


# tubes


def test_the_tasks_of_a_paused_tube_are_skipped_in_a_queue_with_utubes(make):
    Task = make({"utube": True}, roles=("tube", "utube", "priority"))
    for name, tube, utube in [("a", "x", "1"), ("b", "y", "2"), ("c", "y", "2"), ("d", "x", None), ("e", None, None)]:
        Task.put(task(name=name, tube=tube, utube=utube))
    Task.xq.pause("x")
    taken = Task.xq.take_many(9)
    assert sorted(names(taken)) == ["b", "e"]
    Task.xq.resume("x")
    assert sorted(names(Task.xq.take_many(9))) == ["a", "d"]
    for each in taken:
        each.ack()
    assert Task.take().name == "c"


def test_a_tube_is_refused_as_take_refuses_it(make):
    Task = make()
    for call in (Task.xq.pause, Task.xq.resume):
        with pytest.raises(xq.FeatureOff, match="needs the role 'tube'"):
            call("a")
    Tubes = make(roles=WITH_TUBES, model=make.model(table_name="tubes"))
    for call in (Tubes.xq.pause, Tubes.xq.resume):
        with pytest.raises(xq.BadType, match="a tube is named by text, not by 7"):
            call(7)
    with pytest.raises(xq.BadValue, match="a tube to pause has a name of at most 255 characters, not 256"):
        Tubes.xq.pause("a" * 256)
    assert Tubes.xq.paused() == []


# transactions, and the installation


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
    assert Task.take() is None
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


def test_other_threads_see_a_pause_when_its_transaction_is_committed(make_live):
    Task = make_live()
    Task.xq.put_many(tasks(2))
    with make_live.db.atomic():
        Task.xq.pause()
        if not isinstance(make_live.db, pw.SqliteDatabase):
            assert in_threads(make_live.db, lambda: Task.take().id) == [1]
    assert in_threads(make_live.db, Task.take) == [None]


def test_a_pause_survives_reconfigure_and_not_uninstall(make):
    Task = make()
    Task.put(task())
    Task.xq.pause()
    Task.xq.reconfigure({"buried": True})
    assert Task.take() is None
    Task.xq.uninstall()
    Task.xq.install()
    assert Task.xq.paused() == []
    assert Task.take().id == 1


def test_a_take_of_a_queue_that_is_not_paused_reads_no_pause(sqlite_db):
    Task = live(sqlite_db)()
    Task.xq.put_many(tasks(3))
    Task.take()
    seen: list[str] = []
    sqlite_db.connection().set_trace_callback(seen.append)
    Task.take()
    sqlite_db.connection().set_trace_callback(None)
    assert seen != []
    assert not [sql for sql in seen if "xq_pause" in sql]


# waiting, and other processes


@pytest.mark.parametrize("tube", [None, "x"])
def test_a_waiting_take_goes_on_waiting_until_it_is_resumed(make_live, tube):
    Task = make_live(roles=WITH_TUBES)
    Task.xq.pause(tube)
    waits = waiter(Task, lambda: Task.take(LONG))
    put = Task.put(task(tube="x"))
    assert Task.take() is None
    assert waits.goes_on
    Task.xq.resume(tube)
    eventually(lambda: not waits.goes_on, WITHIN)
    assert waits.result().id == put.id


def test_other_processes_see_a_pause_and_its_end(make_live):
    Task = make_live()
    n = 3
    Task.xq.put_many(tasks(n))

    def taker():
        what = yield
        while True:
            found = Task.take(LONG if what == "wait" else 0)
            what = yield found and found.release().id

    def found():
        return [other.send("look") for other in others]

    with processes(make_live.db, *[taker] * n) as others:
        for other in others:
            next(other)
        assert None not in found()
        for _ in range(2):
            Task.xq.pause()
            eventually(lambda: found() == [None] * n, WITHIN)
            assert [found(), Task.take()] == [[None] * n, None]
            for other in others:
                other.post("wait")
            Task.xq.resume()
            assert None not in [other.hear() for other in others]
