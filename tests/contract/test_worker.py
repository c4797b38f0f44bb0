"""Workers: a function is called with each task, which is acked when it returns, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}
RETRIES = {"buried": True, "delayed": True}
KEPT = {**RETRIES, "keep": True}
BEGINS = "working on Task with threads="


class Failed(Exception):
    pass


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def logged(caplog: Any) -> list[str]:
    """What was said of the tasks; other databases than that of the test are of no interest."""
    told = [record.getMessage() for record in caplog.records if record.name == "xq.Task"]
    return [message for message in told if not message.startswith(BEGINS)]


def with_errors(make: Maker, features: dict[str, Any] | None = None) -> Any:
    return make(features or KEPT, roles=ROLES, attributes=ERROR)


# what becomes of a task


def raises(error: BaseException) -> Callable[..., None]:
    def work(*given: Any) -> None:
        raise error

    return work


def write(Task: Any, found: Any) -> None:
    Task.update(name="written").where(Task.id == found.id).execute()


def become_another(Task: Any, found: Any) -> None:
    found.id += 1


def become_another_and_fail(Task: Any, found: Any) -> None:
    found.id += 1
    raise Failed("as it must")


def leave_open(begin: Callable[[pw.Database], Any]) -> Callable[..., None]:
    def work(Task: Any, found: Any) -> None:
        begin(Task._meta.database)
        write(Task, found)

    return work


def finish_in_a_transaction(ends: str) -> Callable[..., None]:
    def work(Task: Any, found: Any, finish: Any) -> None:
        with Task._meta.database.atomic() as transaction:
            finish(update={"name": "written"})
            getattr(transaction, ends)()

    return work


def kill_and_touch(Task: Any, found: Any) -> None:
    Task.kill(found)
    assert xq.current().heartbeat() is False


def kill_and_finish(Task: Any, found: Any, finish: Any) -> None:
    Task.xq.kill(found)
    assert finish() is None


def ack_and_fail(Task: Any, found: Any) -> None:
    Task.xq.ack(found)
    raise Failed


async def has_not_run(Task: Any, found: Any) -> None:
    Task.xq.kill(found)


def generator(Task: Any, found: Any) -> Iterator[None]:
    Task.xq.kill(found)
    yield


class End(NamedTuple):
    """What a function does with a task, the state and the error that this has then, and its name."""

    work: Callable[..., Any]
    becomes: str
    error: str = ""
    name: str = "first"
    options: dict[str, Any] = {}


FINISHES = {"finishes": True}
ENDS = {
    "returns": End(lambda Task, found: None, "D"),
    "raises": End(raises(Failed("as it must")), "B", "Failed: as it must"),
    "raises what has no text": End(raises(Untold()), "B", "Untold"),
    "raises GeneratorExit": End(raises(GeneratorExit("closed")), "B", "GeneratorExit"),
    "raises CancelledError": End(raises(asyncio.CancelledError("cancelled")), "B", "CancelledError"),
    "asks for another attempt": End(raises(xq.Retry(delay=30)), "W", options={"max_attempts": 2}),
    "asks for another attempt in vain": End(raises(xq.Retry(delay=30)), "B", "Retry"),
    "has it buried": End(raises(xq.Bury("no such page")), "B", "no such page"),
    "discards it": End(raises(xq.Discard()), "X"),
    "returns a coroutine": End(lambda Task, found: has_not_run(Task, found), "B", "which has not run: decorate"),
    "returns a generator": End(generator, "B", "which has not run: decorate"),
    "acks it itself": End(lambda Task, found: found.ack(), "D"),
    "releases it itself": End(lambda Task, found: found.release(delay=60), "W"),
    "buries it itself": End(lambda Task, found: found.bury(), "B"),
    "kills it itself": End(lambda Task, found: found.kill(), "X"),
    "kills it, and touches it": End(kill_and_touch, "X"),
    "kills it, and finishes it": End(kill_and_finish, "X", options=FINISHES),
    "acks it, and raises": End(ack_and_fail, "D"),
    "finishes it": End(lambda Task, found, finish: finish(update={"name": "written"}), "D", "", "written", FINISHES),
    "finishes it by bury": End(
        lambda Task, found, finish: finish("bury", update={"name": "written"}), "B", "", "written", FINISHES
    ),
    "finishes it by release": End(lambda Task, found, finish: finish("release", delay=60), "W", options=FINISHES),
    "finishes it with a field that is not": End(
        lambda Task, found, finish: finish(update={"nmae": "z"}), "B", "BadValue", options=FINISHES
    ),
    "finishes it by an event that is not": End(
        lambda Task, found, finish: finish("bruy"), "B", "BadValue", options=FINISHES
    ),
    "finishes it and commits": End(finish_in_a_transaction("commit"), "D", "", "written", FINISHES),
    "finishes it and rolls back": End(finish_in_a_transaction("rollback"), "B", "Undone:", options=FINISHES),
    "makes another of its object": End(become_another, "D"),
    "makes another of its object, and fails": End(become_another_and_fail, "B", "Failed: as it must"),
    "closes the connection behind the ORM": End(lambda Task, found: Task._meta.database.connection().close(), "D"),
    "leaves a block open": End(leave_open(lambda db: db.atomic().__enter__()), "B", "LeftOpen:"),
    "leaves a transaction open": End(leave_open(lambda db: db.execute_sql("BEGIN")), "B", "LeftOpen:"),
    "leaves manual commit": End(lambda Task, found: Task._meta.database.manual_commit().__enter__(), "B", "LeftOpen:"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_whatever_a_function_does_its_task_ends_and_the_next_one_is_done(make_shared, shared_db, end, caplog):
    Task, told = with_errors(make_shared), list[int]()
    first, second = Task.xq.put_many([task(name="first"), task(name="second")])

    @Task.xq.worker(**{"max_attempts": 1, **end.options})
    def work(found: Any, *finish: Any) -> Any:
        if found.name == "first":
            return end.work(Task, found, *finish)
        with shared_db.atomic():  # what the first one has left is not in its way
            Task.update(size=7).where(Task.id == found.id).execute()
        return None

    work.on_buried(lambda found, error: told.append(found.id))
    Task.xq.run(until_empty=True)
    found, other = row(Task, first), row(Task, second)
    if end.becomes == "X":
        assert found is None
    else:
        assert (found.status, found.name) == (end.becomes, end.name)
        assert end.error in (found.error or "").partition("\n")[0]
        assert bool(found.error) == bool(end.error)
        assert str(shared_db.database) not in (found.error or "")
    assert (other.status, other.size) == ("D", 7)
    assert (len(told) == 1) == bool(end.error), "what is told of a burial has happened"
    assert not shared_db.in_transaction()
    assert is_exact(Task)


def test_a_decorator_names_the_worker_which_may_be_called_as_the_function_was(make_shared):
    Task = make_shared({"keep": True})

    @Task.xq.worker(workers=2)
    def work(found: Any) -> Any:
        """Return the status."""
        return found.status

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "D"
    assert isinstance(work, xq.Worker)
    assert (work(Task.xq.peek(put)), work.__name__, work.__doc__) == ("D", "work", "Return the status.")


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
    with pytest.raises(xq.ConfigurationError, match="in the worker's function"):
        xq.current()


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


@pytest.mark.parametrize("retval", ["model", "tuple"])
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


def test_a_task_that_others_own_by_now_is_not_discarded(make_shared):
    Task, seen = make_shared(), list[str]()
    put = Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        if not seen:
            Task.xq.snatch(put)
        seen.append(state(Task, put))
        raise xq.Discard

    Task.xq.run(until_empty=True)
    assert seen == ["R", "T"], "the first Discard left the task to its next owner"


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


def test_a_task_ends_by_the_features_that_its_queue_has_by_then(make_shared):
    Task = make_shared()
    put = Task.put(task())
    Task.xq.worker(lambda found: Task.xq.reconfigure({"keep": True}))
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "D"


def test_a_connection_that_threads_share_is_not_closed_and_a_transaction_there_may_be_anothers():
    db = pw.SqliteDatabase(":memory:", thread_safe=False, check_same_thread=False)
    Task = with_errors(Maker(db, Clock()))
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


# what fails: delays, burials, errors


@pytest.mark.parametrize(
    ("backoff", "delays"),
    {
        "as usual": (None, [1, 2, 4]),
        "a list": ([5, 60], [5, 60, 60]),
        "a function": (lambda found, error: 7 if isinstance(error, Failed) else 1, [7, 7, 7]),
        "a function that fails": (lambda found, error: "soon", [1, 2, 4]),
    }.values(),
    ids=["as usual", "a list", "a function", "a function that fails"],
)
def test_what_fails_is_released_with_a_delay_that_grows_or_that_its_backoff_says(make_shared, backoff, delays, caplog):
    Task = with_errors(make_shared)
    put = Task.put(task())

    @Task.xq.worker(**({"backoff": backoff} if backoff else {}))
    def work(found: Any) -> None:
        raise Failed("as it must")

    seen = []
    caplog.set_level("INFO", "xq")
    for _ in delays:
        Task.xq.run(until_empty=True)
        found = Task.xq.peek(put)
        assert found.status == "W"
        seen.append(found.runat - Task.xq.clock.now)
        Task.xq.restart(put)
    usual = delays[1] == 2  # with some chance in it
    assert seen == [pytest.approx(delay, rel=0.1 if usual else 1e-9) for delay in delays]
    told = [line for line in logged(caplog) if line.startswith("task ")]
    assert told == [
        f"task {put.id} failed (attempt {n}; next in {delay:.3g} s): Failed: as it must"
        for n, delay in enumerate(seen, 1)
    ]


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, bool]]:
    """The level of each line about a task, the first line of it, and whether a traceback follows it."""
    found = [(r.levelname, r.getMessage(), bool(r.exc_info)) for r in caplog.records if r.name == "xq.Task"]
    return [(level, text.partition("\n")[0], told) for level, text, told in found if text.startswith("task ")]


def test_a_failed_attempt_is_a_warning_of_one_line_until_the_task_is_buried_with_its_error(make_shared, caplog):
    Task = with_errors(make_shared, RETRIES)
    put = Task.put({})

    @Task.xq.worker(max_attempts=2, backoff=[1])
    def work(found: Any) -> None:
        raise ValueError("no price\nin the order")

    caplog.set_level(logging.DEBUG, "xq")
    Task.xq.run(until_empty=True)
    assert said(caplog) == [
        ("DEBUG", f"task {put.id} failed", True),
        ("WARNING", f"task {put.id} failed (attempt 1 of 2; next in 1 s): ValueError: no price", False),
    ]
    caplog.clear()
    caplog.set_level(logging.WARNING, "xq")
    Task.xq.clock.tick(2)
    Task.xq.run(until_empty=True)
    assert said(caplog) == [("ERROR", f"task {put.id} is buried: ValueError: no price", True)]
    (record,) = (each for each in caplog.records if getattr(each, "event", "") == "bury")
    assert (record.queue, record.key, record.attempt) == ("Task", put.id, 2)
    found = Task.xq.peek(put)
    first, second, third, *_ = found.error.splitlines()
    assert (found.status, first, second) == ("B", "ValueError: no price", "in the order"), "so that reports can group"
    assert third.startswith("Traceback")


@pytest.mark.parametrize("length", [80, None])
def test_an_error_that_no_field_holds_is_written_down_as_far_as_it_goes(make_shared, length):
    field = pw.CharField(max_length=length, null=True) if length else pw.TextField(null=True)
    Task = make_shared({"buried": True}, roles=ROLES, attributes={"error": field})
    short, long = Task.xq.put_many(tasks(2))

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise Failed("no price" if found.id == short.id else "\0 and \ud800, " + "and so on " * 20_000)

    Task.xq.run(until_empty=True)
    written = Task.xq.peek(short).error
    assert written.startswith("Failed: no price\nTraceback")
    assert length is None or len(written) == length
    assert Task.xq.peek(long).error.startswith("Failed: \\x00 and \\ud800, and so on a")


def test_a_task_is_buried_without_its_error_where_the_field_refuses_that(make_shared):
    Task = make_shared({"buried": True}, roles=ROLES, attributes={"error": pw.CharField(null=True, unique=True)})
    Task.xq.put_many([task(), task()])

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise Failed("as the other")

    Task.xq.run(until_empty=True)
    told = sorted(str(found.error).splitlines()[0] for found in Task.xq.by_state("B"))
    assert told == ["Failed: as the other", "None"]


def test_a_queue_that_cannot_bury_tries_the_task_again(make_shared):
    Task = make_shared({"delayed": True}, roles=("runat",))
    put = Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        raise xq.Bury("no such page")

    Task.xq.run(until_empty=True)
    assert state(Task, put) == "W"


def test_a_task_whose_ack_is_refused_has_failed_and_the_others_are_done(make_shared, shared_db):
    Task = with_errors(make_shared, {"buried": True})
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
    Task = with_errors(make_shared)
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
    Task = with_errors(make_shared)
    stuck, good = Task.put(task(name="stuck")), Task.put(task(name="good"))
    fail_for(Task, "NEW.name = 'stuck' AND NEW.status <> 'T'")
    Task.xq.worker(lambda found: None, max_attempts=most)
    Task.xq.run(until_empty=True)
    assert (state(Task, stuck), state(Task, good)) == ("T", "D")
    assert logged(caplog)[-1].endswith("stays taken")


@pytest.mark.parametrize("features", [{"ttr": 60}, {"retval": "tuple"}])
def test_a_task_that_kills_its_workers_is_buried_when_it_was_taken_too_often(make_live, features):
    Task = with_errors(make_live, {"buried": True, **features})
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

    for size, attempts, times in ((3, 4, 3), (4, 6, 5)):
        eventually(one_more)
        found = row(Task, 1)
        told = (found.size, found.attempts, found.error)
        assert told == (size, attempts, f"it was taken {times} times and never finished")
        Task.xq.dig(1)  # by somebody who thinks that it is worth another try
    assert is_exact(Task)


@pytest.mark.parametrize("nothing", [None, ""])
@pytest.mark.parametrize("fails", [True, False])
def test_what_was_given_up_and_is_dug_is_tried_once_more(make_shared, fails, nothing):
    error = pw.TextField(null=True) if nothing is None else pw.CharField(default="")
    Task = make_shared(KEPT, roles=ROLES, attributes={"error": error})
    put = Task.put(task())
    calls = list[int]()

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        calls.append(found.id)
        if fails or len(calls) == 1:
            raise Failed(str(len(calls)))

    for n in (1, 2):
        Task.xq.run(until_empty=True)
        found = row(Task, put)
        if n == 1 or fails:
            assert (found.status, found.error.splitlines()[0]) == ("B", f"Failed: {n}")
            Task.xq.dig(put)
        else:
            assert (found.status, found.error) == ("D", nothing)
    assert len(calls) == 2


# programs


def test_workers_take_from_the_tubes_that_are_named(make_shared):
    done: list[Any] = []
    Task = make_shared(roles=("runat", "tube"), worker=lambda found: done.append(found.tube), workers=2)
    Task.xq.put_many([task(tube=tube) for tube in ("mail", "slow", "other") for _ in range(3)])
    Task.xq.run(until_empty=True, tubes=["mail"])
    assert done == ["mail"] * 3
    Task.xq.run(until_empty=True, tubes=["slow", "mail"])
    assert sorted(done) == ["mail"] * 3 + ["slow"] * 3
    for bad, error in (([1], xq.BadType), ("mail", xq.BadType), (5, xq.Error), ([], xq.Error)):
        with pytest.raises(error, match="tube"):
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


def test_who_begins_to_work_says_on_what_and_by_which_session(make_shared, caplog):
    caplog.set_level("DEBUG", "xq")
    Task = make_shared({"history": True})
    Task.put({})
    Task.xq.worker(lambda found: None, workers=3)
    Task.xq.run(until_empty=True)
    assert f"{BEGINS}3" in caplog.messages
    (owner,) = {row.owner.partition("/")[0] for row in Task.xq.history() if row.owner}
    told = {message for message in caplog.messages if message.startswith("the session of")}
    assert any(message.endswith(f" is {owner}") and f"of pid {os.getpid()} on host " in message for message in told)


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


# what is refused

REFUSED: dict[str, dict[str, Any]] = {
    **{f"timeout={timeout!r}": {"timeout": timeout} for timeout in (0, -1, "5", True, float("nan"), float("inf"))},
    **{f"workers={workers!r}": {"workers": workers} for workers in (0, True, "4")},
    "no kind": {"kind": "fiber"},
    "no coroutine": {"kind": "asyncio"},
    "prefetch": {"prefetch": 0},
    "batch": {"batch": 0},
    "batch is more than prefetch": {"batch": 5, "prefetch": 2},
    "batch and finishes": {"batch": 5, "finishes": True},
    **{f"backoff={backoff!r}": {"backoff": backoff} for backoff in ([], "soon", [1, -1], 5)},
    "concurrency": {"concurrency": 5},
    "max_attempts, and no role attempts": {"max_attempts": 2},
}


def unbound(features: Any = None, *roles: str, **options: Any) -> Any:
    """A queue that has no database yet."""
    maker = Maker(pw.SqliteDatabase(None))
    maker.INSTALLS = False
    return maker(features, roles=roles, **options)


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_options_that_do_not_fit_are_refused(options):
    Task = unbound({"buried": True, "delayed": True}, "runat")
    with pytest.raises(xq.ConfigurationError, match="attempts|batch|finishes|" + next(iter(options))):
        Task.xq.worker(print, **options)


def test_what_cannot_work_is_refused():
    for given in ({"worker": 5}, {"worker": print, "workers": 0}):
        with pytest.raises(xq.ConfigurationError):
            unbound(**given)
    Task = unbound({}, "attempts")
    with pytest.raises(xq.ConfigurationError, match="worker"):
        Task.xq.run()
    with pytest.raises(xq.ConfigurationError, match="buried"):
        Task.xq.worker(print, max_attempts=2)
    work = Task.xq.worker(print)
    for register in (work.around, work.on_failure, work.on_buried):
        for wrong in (5, None, has_not_run):
            with pytest.raises(xq.ConfigurationError, match="takes a"):
                register(wrong)
    for option in ("workers", "max_tasks"):
        with pytest.raises(xq.ConfigurationError, match=option):
            Task.xq.run(**{option: 0})
    with pytest.raises(xq.Error, match="worker"):
        xq.run()
    with pytest.raises(xq.Error, match="worker"):
        xq.run(print)  # type: ignore[arg-type]
