"""Workers: a function is called with each task, which is acked when it returns."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import (
    PATIENCE,
    another_process,
    eventually,
    fail_for,
    is_exact,
    keep_references,
    row,
    state,
    transitions,
)
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}


class Failed(Exception):
    pass


BEGINS = "working on Task with threads="


def logged(caplog: Any) -> list[str]:
    """What was said of the tasks; other databases than that of the test are of no interest."""
    told = [record.getMessage() for record in caplog.records if record.name == "xq.Task"]
    return [message for message in told if not message.startswith(BEGINS)]


def test_every_task_is_done_by_one_of_the_workers_and_acked(make_live):
    done: list[Any] = []
    Task = make_live(worker=lambda found: done.append((found.id, threading.get_ident())), workers=4)
    Task.xq.put_many(tasks(40))
    Task.xq.run(until_empty=True)
    assert sorted(key for key, _ in done) == list(range(1, 41))
    assert threading.get_ident() not in {thread for _, thread in done}
    assert transitions(Task) == {"X-R": 40, "R-T": 40, "T-X": 40}
    assert is_exact(Task)


def test_a_decorator_names_the_worker(make_shared):
    Task = make_shared({"keep": True})

    @Task.xq.worker(workers=2)
    def work(found: Any) -> None:
        assert found.status == "T"

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "D"


def test_current_is_the_lease_of_the_task_that_a_function_works_on(make_shared):
    Task = make_shared({"keep": True, "ttr": 60}, roles=("runat", "attempts"))
    found: list[Any] = []

    @Task.xq.worker(workers=2)
    def work(task: Any) -> None:
        lease = xq.current()
        found.append((lease.task is task, lease.attempt, lease.heartbeat(), lease.lost.is_set()))

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert found == [(True, 1, True, False)] * 3
    assert transitions(Task)["T-D"] == 3
    with pytest.raises(xq.ConfigurationError, match="in the worker's function"):
        xq.current()


def test_a_function_that_runs_past_its_timeout_has_failed_and_another_thread_goes_on(make_live, caplog):
    Task = make_live({"keep": True, "buried": True}, roles=ROLES, attributes=ERROR)
    returned, lost = threading.Event(), threading.Event()

    @Task.xq.worker(timeout=0.2, max_attempts=3)
    def work(found: Any) -> None:
        if found.attempts > 1:
            return
        assert xq.current().lost.wait(PATIENCE)
        lost.set()
        eventually(lambda: state(Task, found) == "D")
        returned.set()  # its ack, which comes late, does nothing

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    assert lost.is_set()
    assert returned.wait(PATIENCE)
    assert (state(Task, put), row(Task, put.id).attempts) == ("D", 2)
    assert transitions(Task) == {"X-R": 1, "R-T": 2, "T-R": 1, "T-D": 1}
    assert any("TimeoutError: the function runs for longer than 0.2 s" in line for line in logged(caplog))


def test_a_task_whose_last_attempt_runs_past_the_timeout_is_buried(make_live):
    Task = make_live({"buried": True}, roles=ROLES, attributes=ERROR)
    over = threading.Event()
    Task.xq.worker(lambda found: over.wait(PATIENCE), timeout=0.2, max_attempts=1)
    put = Task.put(task())
    Task.xq.run(until_empty=True)
    over.set()
    found = row(Task, put.id)
    assert (found.status, found.error.splitlines()[0]) == ("B", "TimeoutError: the function runs for longer than 0.2 s")


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("nan"), float("inf")])
def test_a_timeout_of_a_worker_is_a_number_of_seconds(make, timeout):
    with pytest.raises(xq.ConfigurationError, match="timeout is a number of seconds"):
        make().xq.worker(print, timeout=timeout)


def test_a_heartbeat_of_a_task_that_is_not_taken_any_more_returns_false(make_shared):
    Task = make_shared({"ttr": 60}, roles=("runat",))
    kept: list[bool] = []

    @Task.xq.worker
    def work(task: Any) -> None:
        Task.kill(task)
        kept.append(xq.current().heartbeat())

    Task.put(task())
    Task.xq.run(until_empty=True)
    assert kept == [False]


def test_a_function_finishes_its_task_in_a_way_of_its_own(make_shared):
    Task = make_shared({"keep": True, "buried": True, "delayed": True})
    ends = {
        "a": ("ack", {"name": "done"}, {}),
        "b": ("bury", {"name": "bad"}, {}),
        "c": ("release", None, {"delay": 60}),
    }
    ended: list[Any] = []

    @Task.xq.worker(finishes=True)
    def work(found: Any, finish: Any) -> None:
        event, update, options = ends.get(found.name, ("", None, {}))
        if event:
            ended.append(finish(event, update=update, **options))

    put = [Task.put(task(name=name)) for name in "abcd"]
    Task.xq.run(until_empty=True)
    assert [(found.name, found.status) for found in ended] == [("done", "D"), ("bad", "B"), ("c", "W")]
    assert [state(Task, found) for found in put] == ["D", "B", "W", "D"]
    assert transitions(Task) == {"X-R": 4, "R-T": 4, "T-D": 2, "T-B": 1, "T-W": 1}


def test_a_function_hears_that_it_cannot_finish_a_task_that_it_has_lost(make_shared):
    Task = make_shared()
    ended: list[Any] = []

    @Task.xq.worker(finishes=True)
    def work(found: Any, finish: Any) -> None:
        Task.xq.kill(found)
        ended.append(finish())

    Task.put(task())
    Task.xq.run(until_empty=True)
    assert ended == [None]


@pytest.mark.parametrize("mistake", [{"update": {"nmae": "z"}}, {"event": "release", "delay": 5}, {"event": "bruy"}])
def test_a_function_that_cannot_finish_a_task_so_is_told_and_has_failed(make_shared, mistake):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    bad, good = Task.put(task(name="bad")), Task.put(task())
    told: list[Any] = []

    @Task.xq.worker(finishes=True, max_attempts=1)
    def work(found: Any, finish: Any) -> None:
        if found.name == "bad":
            try:
                finish(**mistake)
            except xq.Error as error:
                told.append(error)
                raise

    Task.xq.run(until_empty=True)
    (error,) = told
    assert (state(Task, bad), row(Task, bad).error.splitlines()[0]) == ("B", f"{type(error).__name__}: {error}")
    assert state(Task, good) == "D"


def test_a_function_may_finish_a_task_otherwise_where_it_was_refused(make_shared):
    text = {"note": pw.CharField(max_length=5, null=True, constraints=[pw.Check("length(note) < 6")])}
    Task = make_shared({"buried": True, "keep": True}, attributes=text)
    put = Task.put(task())

    @Task.xq.worker(finishes=True)
    def work(found: Any, finish: Any) -> None:
        try:
            finish(update={"note": "too long"})
        except pw.DatabaseError:
            finish("bury", update={"note": "short"})

    Task.xq.run(until_empty=True)
    assert (state(Task, put), row(Task, put).note) == ("B", "short")


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_task_that_a_function_finishes_in_a_transaction_has_failed_where_that_is_rolled_back(
    make_shared, shared_db, ends
):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    put = Task.put(task())

    @Task.xq.worker(finishes=True, max_attempts=1)
    def work(found: Any, finish: Any) -> None:
        with shared_db.atomic() as transaction:
            finish(update={"name": "written"})
            getattr(transaction, ends)()

    Task.xq.run(until_empty=True)
    found = row(Task, put)
    if ends == "commit":
        assert (found.status, found.name, found.error) == ("D", "written", None)
    else:
        assert (found.status, found.name == "written", found.error[:7]) == ("B", False, "Undone:")


@pytest.mark.parametrize("retval", ["model", "dict", "tuple"])
def test_what_a_function_gave_back_in_a_transaction_may_be_in_anothers_hand_by_then(make_live, shared_db, retval):
    Task = make_live({"keep": True, "retval": retval}, roles=("runat",))
    Task.put(task())
    again: list[Any] = []

    def another() -> None:
        again.append(Task.xq.take())
        shared_db.close()

    @Task.xq.worker(finishes=True)
    def work(found: Any, finish: Any) -> None:
        if again:
            return
        with shared_db.atomic():
            finish("release")
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()

    Task.xq.run(until_empty=True)
    assert Task.xq.count("T") == 1
    Task.xq.ack(again[0])
    assert transitions(Task)["R-T"] == 2


def test_workers_take_from_the_tubes_that_are_named(make_shared):
    done: list[Any] = []
    Task = make_shared(roles=("runat", "tube"), worker=lambda found: done.append(found.tube), workers=2)
    Task.xq.put_many([task(tube=tube) for tube in ("mail", "slow", "other") for _ in range(3)])
    Task.xq.run(until_empty=True, tubes=["mail"])
    assert done == ["mail"] * 3
    Task.xq.run(until_empty=True, tubes=["slow", "mail"])
    assert sorted(done) == ["mail"] * 3 + ["slow"] * 3
    for bad in ([1], "mail"):
        with pytest.raises(xq.BadType, match="tube"):
            Task.xq.run(until_empty=True, tubes=bad)
    Untubed = make_shared(roles=("runat",), model=None, worker=done.append)
    with pytest.raises(xq.FeatureOff, match="tube"):
        Untubed.xq.run(until_empty=True, tubes=["mail"])


def test_run_may_be_told_in_how_many_threads(make_live):
    done: set[int] = set()
    together = threading.Barrier(3)

    def work(found: Any) -> None:
        together.wait(PATIENCE)
        done.add(threading.get_ident())

    Task = make_live(worker=work)
    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True, workers=3)
    assert len(done) == 3
    assert (Task.xq.work.function, Task.xq.work.options.workers) == (work, 1)
    with pytest.raises(xq.ConfigurationError, match="workers"):
        Task.xq.run(workers=0)


def test_a_task_ends_by_the_features_that_its_queue_has_by_then(make_shared):
    Task = make_shared()
    put = Task.put(task())
    Task.xq.worker(lambda found: Task.xq.reconfigure({"keep": True}))
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "D"


def test_what_fails_is_released_with_a_delay_that_grows(shared_db, caplog):
    Task = Maker(shared_db, Clock())({"delayed": True}, roles=("runat", "attempts"))
    put = Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        raise Failed("as it must")

    delays = []
    caplog.set_level("INFO", "xq")
    for _ in range(3):
        Task.xq.run(until_empty=True)
        found = Task.xq.peek(put)
        assert found.status == "W"
        delays.append(found.runat - Task.xq.clock.now)
        Task.xq.restart(put)
    again = [
        f"task {put.id} failed (attempt {n}; next in {d:.3g} s): Failed: as it must" for n, d in enumerate(delays, 1)
    ]
    assert logged(caplog) == again
    assert [round(delay, 6) for delay in delays] == [pytest.approx(2**n, rel=0.1) for n in range(3)]
    assert "as it must" in caplog.text


def test_what_fails_too_often_is_buried_with_its_error(shared_db, caplog):
    Task = Maker(shared_db, Clock())({"buried": True, "delayed": True}, roles=ROLES, attributes=ERROR)
    put = Task.put(task())

    @Task.xq.worker(max_attempts=2)
    def work(found: Any) -> None:
        raise Failed("as it must")

    Task.xq.run(until_empty=True)
    assert state(Task, put) == "W"
    Task.xq.restart(put)
    Task.xq.run(until_empty=True)
    found = Task.xq.peek(put)
    assert (found.status, found.error.splitlines()[0]) == ("B", "Failed: as it must")
    assert logged(caplog)[-1].endswith("is buried: Failed: as it must")


@pytest.mark.parametrize("field", [lambda: pw.CharField(max_length=100, null=True), lambda: pw.TextField(null=True)])
def test_an_error_that_no_field_holds_is_written_down_as_far_as_it_goes(make_shared, field):
    Task = make_shared({"buried": True}, roles=ROLES, attributes={"error": field()})
    put = Task.put(task())

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise Failed("\0 and \ud800, " + "and so on " * 20_000)

    Task.xq.run(until_empty=True)
    found = Task.xq.peek(put)
    assert (found.status, found.error[:41]) == ("B", "Failed: \\x00 and \\ud800, and so on and so")


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Untold(), GeneratorExit("closed"), asyncio.CancelledError("cancelled")])
def test_whatever_a_function_raises_its_task_has_failed_and_the_next_one_is_done(make_live, error):
    Task = make_live({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    put = [Task.put(task(name=name)) for name in ("fails", "works")]

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        if found.name == "fails":
            raise error

    Task.xq.run(until_empty=True)
    assert [state(Task, each) for each in put] == ["B", "D"]
    assert Task.xq.peek(put[0]).error.startswith(type(error).__name__)


@pytest.mark.parametrize("fails", [True, False])
def test_a_function_may_make_another_task_of_the_object_that_it_was_given(make_shared, fails):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    put = Task.put(task())

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        found.id += 1
        if fails:
            raise Failed

    Task.xq.run(until_empty=True)
    assert state(Task, put) == ("B" if fails else "D")


def test_a_task_is_buried_without_its_error_where_the_field_refuses_that(make_shared):
    error = {"error": pw.CharField(null=True, unique=True)}
    Task = make_shared({"buried": True}, roles=ROLES, attributes=error)
    Task.xq.put_many([task(), task()])

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise Failed("as the other")

    Task.xq.run(until_empty=True)
    assert sorted(str(found.error).splitlines()[0] for found in Task.xq.by_state("B")) == [
        "Failed: as the other",
        "None",
    ]


def test_a_task_whose_ack_is_refused_has_failed_and_the_others_are_done(make_shared, shared_db):
    Task = make_shared({"buried": True}, roles=ROLES, attributes=ERROR)
    meta = type("Meta", (), {"database": shared_db, "table_name": "line"})
    Line: Any = type("Line", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": meta})
    shared_db.create_tables([Line])
    keep_references(shared_db)
    put = Task.xq.put_many([task(name=name) for name in ("referred", "a", "b")])

    @Task.xq.worker(workers=2, max_attempts=1)
    def work(found: Any) -> None:
        if found.name == "referred":
            Line.create(task=found)

    Task.xq.run(until_empty=True)
    (left,) = Task.select()
    assert (left.id, left.status, left.error[:15]) == (put[0].id, "B", "IntegrityError:")


@pytest.mark.parametrize("how", ["ack", "finish"])
def test_what_fails_for_one_task_is_not_asked_of_the_database_for_ever(make_shared, how):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    bad, good = Task.put(task(name="bad")), Task.put(task(name="good"))
    fail_for(Task, "NEW.name = 'bad' AND NEW.status = 'D'")

    def work(found: Any, *finish: Any) -> None:
        for each in finish:
            each(update={"size": 5})

    Task.xq.worker(work, finishes=how == "finish", max_attempts=1)
    Task.xq.run(until_empty=True)
    assert (state(Task, bad), state(Task, good)) == ("B", "D")
    assert any(told in row(Task, bad).error for told in ("overflow", "the trigger fails"))


@pytest.mark.parametrize("most", [1, None])
def test_a_task_that_can_neither_be_finished_nor_given_back_keeps_no_other_from_being_done(make_shared, most, caplog):
    Task = make_shared({"buried": True, "delayed": True, "keep": True}, roles=ROLES, attributes=ERROR)
    stuck, good = Task.put(task(name="stuck")), Task.put(task(name="good"))
    fail_for(Task, "NEW.name = 'stuck' AND NEW.status <> 'T'")
    Task.xq.worker(lambda found: None, max_attempts=most)
    Task.xq.run(until_empty=True)
    assert (state(Task, stuck), state(Task, good)) == ("T", "D")
    assert logged(caplog)[-1].endswith("stays taken")


def test_a_function_may_close_the_connection_of_its_thread_behind_the_orm(make_shared, shared_db):
    Task = make_shared({"keep": True})
    put = [Task.put(task()) for _ in range(3)]

    @Task.xq.worker
    def work(found: Any) -> None:
        shared_db.connection().close()

    Task.xq.run(until_empty=True)
    assert [state(Task, each) for each in put] == ["D"] * 3


def test_a_function_that_leaves_manual_commit_is_in_no_other_functions_way(make_shared, shared_db):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    put = [Task.put(task(name=name)) for name in ("left", "done")]

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        if found.name == "left":
            shared_db.manual_commit().__enter__()
        else:
            with shared_db.atomic():
                Task.update(name="written").where(Task.id == found.id).execute()

    Task.xq.run(until_empty=True)
    assert [state(Task, each) for each in put] == ["B", "D"]


@pytest.mark.parametrize("begin", [lambda db: db.atomic().__enter__(), lambda db: db.execute_sql("BEGIN")])
def test_a_function_that_leaves_a_transaction_open_has_failed_and_wrote_nothing(make_shared, shared_db, begin):
    Task = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    left = Task.put(task(name="left"))
    done = Task.put(task(name="done"))

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        if found.name == "left":
            begin(shared_db)
            Task.update(name="written").where(Task.id == found.id).execute()

    Task.xq.run(until_empty=True)
    found = Task.xq.peek(left)
    assert (found.name, found.status, found.error[:9]) == ("left", "B", "LeftOpen:")
    assert str(shared_db.database) not in found.error
    assert state(Task, done) == "D"
    assert not shared_db.in_transaction()
    assert is_exact(Task)


def test_a_connection_that_threads_share_is_not_closed_and_a_transaction_there_may_be_anothers():
    db = pw.SqliteDatabase(":memory:", thread_safe=False, check_same_thread=False)
    Task = Maker(db, Clock())({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR)
    put = Task.put(task())

    def another() -> None:
        db.atomic().__enter__()
        Task.update(name="written").where(Task.id == put.id).execute()

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()

    Task.xq.run(until_empty=True)
    db.top_transaction().__exit__(None, None, None)
    found = Task.xq.peek(put)
    assert (found.name, found.status) == ("written", "D")


@pytest.mark.parametrize("features", [{}, {"ttr": 60}, {"retval": "dict"}, {"retval": "tuple"}])
def test_a_task_that_kills_its_workers_is_buried_when_it_was_taken_too_often(make_live, features):
    Task = make_live({"buried": True, **features}, roles=ROLES, attributes=ERROR)
    Task.put({})
    fork = multiprocessing.get_context("fork")

    @Task.xq.worker(max_attempts=3)
    def work(found: Any) -> None:
        Task.update(size=Task.size + 1).execute()
        os.kill(os.getpid(), signal.SIGKILL)

    def one_more() -> bool:
        make_live.db.close()  # a connection must not be carried across a fork
        process = fork.Process(target=Task.xq.run, kwargs={"until_empty": True})
        process.start()
        process.join(PATIENCE)
        return state(Task, 1) == "B"

    eventually(one_more)
    found = row(Task, 1)
    assert (found.size, found.attempts, found.error) == (3, 4, "it was taken 3 times and never finished")
    Task.xq.dig(1)  # by somebody who thinks that it is worth another try
    eventually(one_more)
    found = row(Task, 1)
    assert (found.size, found.attempts, found.error) == (4, 6, "it was taken 5 times and never finished")
    assert is_exact(Task)


@pytest.mark.parametrize("nothing", [None, ""])
@pytest.mark.parametrize("fails", [True, False])
def test_what_was_given_up_and_is_dug_is_tried_once_more(make_shared, fails, nothing):
    error = pw.TextField(null=True) if nothing is None else pw.CharField(default="")
    Task = make_shared({"buried": True, "delayed": True, "keep": True}, roles=ROLES, attributes={"error": error})
    put = Task.put(task())
    ends = ["first", "second", "third"]

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        end = ends.pop(0)
        if fails or end == "first":
            raise Failed(end)

    for end in ("first", "second", "third")[: 3 if fails else 2]:
        Task.xq.run(until_empty=True)
        found = Task.xq.peek(put)
        if found.status == "B":
            assert found.error.splitlines()[0] == f"Failed: {end}"
            Task.xq.dig(put)
    ended = row(Task, put)
    assert ended.status == ("R" if fails else "D")
    assert (ended.error.splitlines()[0] if fails else ended.error) == ("Failed: third" if fails else nothing)


def test_who_begins_to_work_says_on_what_and_with_how_many_threads(make_shared, caplog):
    caplog.set_level(logging.INFO)
    Task = make_shared()
    Task.xq.worker(lambda found: None, workers=3)
    Task.xq.run(until_empty=True)
    assert f"{BEGINS}3" in caplog.messages


def test_a_worker_logs_the_session_that_the_history_names(make_shared, caplog):
    caplog.set_level("DEBUG", "xq")
    Task = make_shared({"history": True})
    Task.put({})
    Task.xq.worker(lambda found: None)
    Task.xq.run(until_empty=True)
    (owner,) = {row.owner.partition("/")[0] for row in Task.xq.history() if row.owner}
    (told,) = [message for message in caplog.messages if message.startswith("the session of")]
    assert told.startswith(f"the session of pid {os.getpid()} on host ")
    assert told.endswith(f" is {owner}")


@pytest.mark.parametrize("finish", ["ack", "release", "bury", "kill"])
def test_a_worker_may_finish_its_task_itself(make_shared, finish, caplog):
    caplog.set_level(logging.INFO)
    Task = make_shared({"buried": True, "delayed": True, "keep": True}, roles=("runat",))
    put = Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        if finish == "release":
            found.release(delay=60)
        else:
            getattr(found, finish)()

    Task.xq.run(until_empty=True)
    assert state(Task, put) == {"ack": "D", "release": "W", "bury": "B", "kill": "X"}[finish]
    assert logged(caplog) == []


@pytest.mark.parametrize("how", ["another status", "another take"])
def test_a_worker_warns_of_a_task_that_was_lost_while_its_function_ran(make_shared, how, caplog):
    caplog.set_level("INFO", "xq")
    Task = make_shared({"keep": True}, roles=("owner",))
    Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        session = found.owner.partition("/")[0]
        lost = {"status": "archived"} if how == "another status" else {"owner": f"{session}/99.99"}
        Task.update(**lost).where(Task.id == found.id).execute()

    Task.xq.run(until_empty=True)
    (warned,) = logged(caplog)
    assert warned.startswith("the function returned, but its task is lost: ")
    assert [record.levelname for record in caplog.records if record.getMessage() == warned] == ["WARNING"]


def test_a_signal_lets_what_is_in_hand_be_finished(make_live):
    Task = make_live({"keep": True}, roles=("runat",))
    Task.xq.put_many(tasks(3))
    handled = threading.Event()

    def child() -> Any:
        # Of signals that are there at once, the one of the higher number is handled after the other.
        signal.signal(signal.SIGWINCH, lambda *_: handled.set())

        @Task.xq.worker
        def work(found: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGWINCH)
            assert handled.wait(PATIENCE)

        Task.xq.run()
        yield Task.xq.stats().counts

    with another_process(make_live.db, child) as other:
        assert next(other) == {"R": 2, "T": 0, "D": 1}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_second_signal_releases_a_task_and_no_other_worker_begins_it(make_live, workers):
    Task = make_live({"keep": True}, roles=("runat",))
    Task.put(task())

    def child() -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of those that come after the workers have ended
        started, released = [], threading.Event()

        @Task.xq.worker(workers=workers)
        def work(found: Any) -> None:
            started.append(found.id)
            deadline = time.monotonic() + PATIENCE
            # A signal that arrives while another is handled cannot be distinguished from it.
            while not released.is_set() and time.monotonic() < deadline:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)

        with pytest.raises(SystemExit):
            Task.xq.run()
        released.set()
        deadline = time.monotonic() + PATIENCE
        while any("_loop" in thread.name for thread in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.01)
        yield len(started), Task.xq.stats().counts

    with another_process(make_live.db, child) as other:
        assert next(other) == (1, {"R": 1, "T": 0, "D": 0})


def test_run_needs_a_worker(make):
    with pytest.raises(xq.ConfigurationError, match="worker"):
        make().xq.run()


@pytest.mark.parametrize(
    "given",
    [
        {"worker": 5},
        {"worker": print, "workers": 0},
        {"worker": print, "workers": True},
        {"worker": print, "workers": "4"},
    ],
)
def test_what_cannot_work_is_refused(make, given):
    with pytest.raises(xq.ConfigurationError):
        make(**given)


def test_max_attempts_needs_what_counts_and_where_to_bury(make):
    with pytest.raises(xq.ConfigurationError, match="attempts"):
        make({"buried": True}).xq.worker(print, max_attempts=2)
    with pytest.raises(xq.ConfigurationError, match="buried"):
        make(roles=("attempts",), model=make.model(table_name="other")).xq.worker(print, max_attempts=2)
