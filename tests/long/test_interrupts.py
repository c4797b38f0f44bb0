"""Exceptions that the handler of a signal raises in the middle of a call: a limit of time, Ctrl-C.

They are raised here where a call spends its time: when a statement has run and its result is lost, and in a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, is_exact
from xq.engine.executor import Executor
from xq.runtime import sleep

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
    """Within, the first call of this in the main thread is interrupted: a sleep at once, others at their end.

    A call that runs a text of the dialect, as a look for due tasks, is none of these.
    """
    call, calls = getattr(owner, name), list[str]()

    def interrupt(*arguments: Any, **options: Any) -> Any:
        runs_text = any(isinstance(argument, str) for argument in arguments)
        if calls or runs_text or threading.current_thread() is not threading.main_thread():
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
    "in a transaction": lambda Task: Task.take(),
}
KINDS = pytest.mark.parametrize("kind", [Late, KeyboardInterrupt, xq.BadType])  # the last may be of the application


@KINDS
@pytest.mark.parametrize("name", CALLS)
def test_what_an_interrupted_take_has_taken_comes_back_and_the_next_call_works(make_db, kind, name):
    Task = make_db(FEATURES, roles=("runat", "attempts"))
    Task.xq.put_many(tasks(MANY))
    Task.take().ack()
    in_transaction = name == "in a transaction"
    with interrupted(Executor, "run", kind), Task._meta.database.atomic() if in_transaction else nullcontext():
        CALLS[name](Task)
    assert not Task.xq.parts.store.in_transaction()
    assert not in_transaction or Task.xq.count("T") == 0
    all_are_there(Task)
    assert {task.attempts for task in Task.select()} == {1}


@KINDS
@pytest.mark.parametrize("call", ["take", "wait"])
def test_an_interrupted_call_that_waits_leaves_nobody_waiting(make_db, kind, call):
    Task = make_db(FEATURES)
    put = Task.put({}) if call == "wait" else None
    with interrupted(sleep, "_sleep", kind):
        Task.wait(put, timeout=PATIENCE) if put else Task.take(timeout=PATIENCE)
    assert Task.xq.waiting() == []
    assert not Task.xq.parts.waiters.anybody
    assert Task.put({})
    assert Task.take(timeout=PATIENCE)


def all_are_there(Task: Any) -> None:
    def rest_is_acked() -> bool:
        Task.xq.ack_many(Task.xq.take_many(MANY))
        return bool(Task.xq.count("D") == MANY)

    eventually(rest_is_acked)
    assert is_exact(Task)
