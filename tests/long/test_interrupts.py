"""Exceptions that the handler of a signal raises in the middle of a call: a limit of time, Ctrl-C.

They are raised here where a call spends its time: when a statement has run and its result is lost, and in a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import peewee as pw
import pytest

from tests.conftest import Maker, live
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, in_threads, is_exact
from xq.engine import take as takes
from xq.engine.take import InDoubtTakes, Takes
from xq.engine.timers import Batches
from xq.engine.unit import Database
from xq.runtime import waiters

FEATURES = {"keep": True, "ttr": 3600, "history": True}
MANY = 5  # tasks


class Late(Exception):
    pass


@pytest.fixture
def make_db(db: pw.Database) -> Maker:
    """Makes queues by the database's own clock."""
    return live(db)


@contextmanager
def interrupted(owner: Any, name: str, kind: type[BaseException]) -> Iterator[None]:
    """Within, the first call of this in the main thread is interrupted: a sleep at once, others at their end."""
    call, calls = getattr(owner, name), list[str]()

    def interrupt(*arguments: Any, **options: Any) -> Any:
        if calls or threading.current_thread() is not threading.main_thread():
            return call(*arguments, **options)
        calls.append(name)
        if name != "_sleep":
            call(*arguments, **options)
        raise kind

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupt)
        with pytest.raises(kind):
            yield


CALLS: dict[str, Callable[[Any], Any]] = {
    "take": lambda Task: Task.take(),
    "take_many": lambda Task: Task.xq.take_many(3),
    "patient": lambda Task: Task.take(timeout=60),
}
KINDS = pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])


@KINDS
@pytest.mark.parametrize("name", CALLS)
def test_what_an_interrupted_take_has_taken_comes_back_and_the_next_call_works(make_db, kind, name):
    Task = make_db(FEATURES)
    Task.xq.put_many(tasks(MANY))
    Task.take().ack()
    with interrupted(Database, "perform", kind):
        CALLS[name](Task)
    assert not Task.xq.adapter.store.in_transaction()
    all_are_there(Task)


@KINDS
def test_a_transaction_in_which_a_take_was_interrupted_is_undone_and_the_next_call_works(make_db, kind):
    Task = make_db(FEATURES)
    Task.xq.put_many(tasks(MANY))
    Task.take().ack()
    with interrupted(Database, "perform", kind), Task._meta.database.atomic():
        Task.take()
    assert not Task.xq.adapter.store.in_transaction()
    assert Task.xq.count("T") == 0
    all_are_there(Task)


@KINDS
def test_an_interrupted_take_that_waits_leaves_its_wait_queue(make_db, kind):
    Task = make_db(FEATURES)
    with interrupted(waiters, "_sleep", kind):
        Task.take(timeout=PATIENCE)
    assert not Task.xq._waiting.anybody


@KINDS
def test_an_interrupted_wait_leaves_nobody_waiting(make_db, kind):
    Task = make_db(FEATURES)
    put = Task.put({})
    with interrupted(waiters, "_sleep", kind):
        Task.wait(put, timeout=PATIENCE)
    assert not Task.xq._waiting.anybody
    assert Task.xq.waiting() == []


@pytest.mark.parametrize("retval", ["model", "dict"])
def test_a_take_that_is_interrupted_when_it_calls_the_next_who_waits_is_given_back(shared_db, monkeypatch, retval):
    Task = live(shared_db)(FEATURES | {"retval": retval}, roles=("runat", "tube"))
    db, ready = Task._meta.database, Takes.any_ready

    def any_ready(of: Takes[Any]) -> bool:
        if threading.current_thread() is threading.main_thread():  # those that listen ask, too
            raise Late
        return ready(of)

    def put() -> None:
        with db.connection_context():
            eventually(lambda: len(Task.xq.waiting()) == 2)
            Task.put({"tube": "a"})

    def wait() -> Any:
        with db.connection_context():
            return Task.take(tube="b", timeout=PATIENCE)

    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(wait)
        threads.submit(put)
        with monkeypatch.context() as patch:
            patch.setattr(Takes, "any_ready", any_ready)
            with pytest.raises(Late):
                Task.take(tube="a", timeout=PATIENCE)
        assert Task.xq.take_many(1, tube="a", timeout=PATIENCE)
        Task.put({"tube": "b"})
        assert other.result(PATIENCE)


def test_two_threads_may_settle_the_same_doubt(shared_db, monkeypatch):
    Task, together = live(shared_db)(FEATURES), threading.Barrier(2)
    of_queue, give_back = Task.xq._takes.in_doubt, Batches.give_back
    monkeypatch.setattr(takes, "LASTS", 0)
    of_queue.add(["of nobody"], Late())

    def give_back_together(self: Batches, first: str, end: str, event: str) -> None:
        together.wait(PATIENCE)
        give_back(self, first, end, event)

    monkeypatch.setattr(Batches, "give_back", give_back_together)
    in_threads(shared_db, of_queue.resolve, of_queue.resolve)
    assert not of_queue.pending


def test_what_an_interrupted_take_has_taken_comes_back_after_reconfigure(make_db, monkeypatch):
    Task = make_db(FEATURES)
    Task.put({})

    def interrupted(*_: Any) -> Any:
        raise Late

    with monkeypatch.context() as patch:
        patch.setattr(InDoubtTakes, "resolve", lambda of: None)
        patch.setattr(Task.xq._tasks, "returned", interrupted)
        with pytest.raises(Late):
            Task.take()
        Task.xq.reconfigure(FEATURES | {"buried": True})
    assert eventually(Task.take).id == 1


def all_are_there(Task: Any) -> None:
    def rest_is_acked() -> bool:
        Task.xq.ack_many(Task.xq.take_many(MANY))
        return bool(Task.xq.count("D") == MANY)

    eventually(rest_is_acked)
    assert is_exact(Task)
