"""Exceptions that the handler of a signal raises in the middle of a call: a limit of time, Ctrl-C."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import tasks
from tests.steps import PATIENCE, Work, another_process, eventually, in_threads, is_exact, waiter
from xq.adapters.databases.links import Link
from xq.adapters.databases.sqlite_files import Locks
from xq.core.machine import Feature, Transition
from xq.engine import take as takes
from xq.engine.take import InDoubtTakes, Takes
from xq.engine.timers import Batches
from xq.runtime import maintenance as sweep
from xq.runtime.waiters import Waiting
from xq.sessions.session import Session, Sessions

FEATURES = {"keep": True, "ttr": 3600, "history": True}
FIRST, STEP = 0.00002, 1.04  # seconds after which the first call is interrupted, and how much later each next one is
MANY = 2000  # tasks, more than are taken
ENOUGH = 5  # calls one after the other that were over before they could be interrupted


class Late(Exception):
    pass


@pytest.fixture
def make_db(db: pw.Database) -> Maker:
    """Makes queues by the database's own clock."""
    return Maker(db, None)


class Interrupter:
    """Interrupts a call of this thread by a real signal, whose handler raises."""

    def __init__(self, kind: type[BaseException], *instead: type[BaseException]) -> None:
        self.kind = kind
        self.instead = instead  # what the call may raise in its place
        self.after = FIRST
        self.over = 0
        self._armed = False

    def __enter__(self) -> Interrupter:
        # What comes while something is freed Python tells of, and does not raise; pytest cannot always show it.
        self._told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        self._before = signal.signal(signal.SIGALRM, self._raise)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        gc.collect()
        sys.unraisablehook = self._told

    def _raise(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            raise self.kind

    def call(self, Task: Any, call: Callable[[Any], Any]) -> Any:
        """What a call returns, unless it is interrupted; each one a little later than the one before."""
        Task.xq.count()  # to have a connection: while they make one, drivers raise errors of their own instead
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self.after)
            found = call(Task)
            self._armed = False  # from where the call returns to here no signal is handled
            self.over += 1
        except BaseException as error:
            # SQLite makes an error of its own of what is raised when a trigger has just asked for the event.
            if not isinstance(error, (self.kind, *self.instead)) and "user-defined function" not in str(error):
                pytest.fail(f"it is {error!r}")
            self.over = 0
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False
            self.after *= STEP
        return found

    def at_any_time(self) -> None:
        """Raise at the next signal, whoever sends it."""
        self._armed = True

    @property
    def goes_on(self) -> bool:
        return self.over < ENOUGH


CALLS: dict[str, Callable[[Any, Iterator[int]], Any]] = {
    "take": lambda Task, keys: [Task.take()],
    "take_many": lambda Task, keys: Task.xq.take_many(3),
    "patient": lambda Task, keys: [Task.take(timeout=60)],
    "an event of a feature": lambda Task, keys: [Task.xq.call("grab", next(keys))],
}
GRAB = Feature("grab", transitions=(Transition("R", "grab", "T"),))


@pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])
@pytest.mark.parametrize("name", CALLS)
def test_what_an_interrupted_take_has_taken_comes_back_and_the_next_call_works(make_db, kind, name):
    Task, take = make_db(FEATURES | {"grab": GRAB}), CALLS[name]
    Task.xq.put_many(tasks(MANY))
    Task.take().ack()
    keys = itertools.count(2)
    with Interrupter(kind) as interrupter:
        while interrupter.goes_on:
            with suppress(kind, pw.PeeweeException):
                Task.xq.ack_many(interrupter.call(Task, lambda Task: take(Task, keys)))
            assert not Task.xq.store.in_transaction()
    all_are_there(Task)


@pytest.mark.parametrize("retval", ["model", "dict"])
def test_a_take_that_is_interrupted_when_it_calls_the_next_who_waits_is_given_back(shared_db, monkeypatch, retval):
    Task = Maker(shared_db, None)(FEATURES | {"retval": retval}, roles=("runat", "tube"))
    db, ready = Task._meta.database, Takes.any_ready

    def any_ready(of: Takes[Any]) -> bool:
        if threading.current_thread() is threading.main_thread():  # those that listen ask, too
            signal.raise_signal(signal.SIGALRM)
        return ready(of)

    def put() -> None:
        with db.connection_context():
            eventually(lambda: len(Task.xq.waiting()) == 2)
            Task.put({"tube": "a"})

    def wait() -> Any:
        with db.connection_context():
            return Task.take(tube="b", timeout=PATIENCE)

    with ThreadPoolExecutor(2) as threads, Interrupter(Late) as interrupter:
        other = threads.submit(wait)
        threads.submit(put)
        with monkeypatch.context() as patch:
            patch.setattr(Takes, "any_ready", any_ready)
            interrupter.at_any_time()
            with pytest.raises(Late):
                Task.take(tube="a", timeout=PATIENCE)
        assert Task.xq.take_many(1, tube="a", timeout=PATIENCE)
        Task.put({"tube": "b"})
        assert other.result(PATIENCE)


@pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])
def test_a_transaction_in_which_a_take_was_interrupted_is_undone_and_the_next_call_works(make_db, kind):
    Task = make_db(FEATURES)
    Task.xq.put_many(tasks(MANY))
    Task.take().ack()

    def take() -> Any:
        with Task._meta.database.atomic():
            return interrupter.call(Task, lambda Task: Task.take())

    with Interrupter(kind) as interrupter:
        while interrupter.goes_on:
            with suppress(kind, pw.PeeweeException):  # Peewee's, when it finds the connection closed
                take().ack()
            assert not Task.xq.store.in_transaction()
            assert Task.xq.count("T") == 0
    all_are_there(Task)


@pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])
def test_an_interrupted_wait_leaves_nobody_waiting(make_db, kind):
    Task = make_db(FEATURES)
    put = Task.put({})
    Task.wait(put, timeout=0.02)  # its thread is there: what is interrupted while it is begun, another test looks at
    # It may have to connect to the server, to hear of what is done there.
    with Interrupter(kind, pw.PeeweeException) as interrupter:
        while interrupter.goes_on:
            with suppress(kind, pw.PeeweeException):
                interrupter.call(Task, lambda Task: Task.wait(put, timeout=0.02))
            assert not Task.xq._waiting.anybody
    Task.wait(put, timeout=0.02)
    eventually(lambda: Task.xq.waiting() == [])


def test_what_the_thread_of_a_process_listens_by_is_closed_when_its_beginning_is_interrupted(shared_db, monkeypatch):
    Task = Maker(shared_db, None)(FEATURES)
    made: list[Any] = []

    class Noted(sweep.Sweeper):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    def interrupted(*_: Any) -> Any:
        raise Late

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "Sweeper", Noted)
        patch.setattr(sweep, "finalize", interrupted)
        with pytest.raises(Late):
            Task.take(timeout=0.01)
    (sweeper,) = made
    eventually(lambda: not sweeper.thread.is_alive())
    assert sweeper._writes._bell.fileno() < 0
    assert waiter(Task, lambda: Task.take(timeout=PATIENCE)).goes_on
    Task.put({})
    eventually(lambda: Task.xq.count("T") == 1)


class Interrupting:
    """A lock, of which one of the calls is interrupted that enter or leave it."""

    def __init__(self, call: str) -> None:
        self._lock, self._calls = threading.RLock(), iter(["enter", "left", "enter again", "left again"])
        self._call = call

    def __enter__(self) -> None:
        self._next()
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
        self._next()

    def _next(self) -> None:
        if next(self._calls, None) == self._call:
            raise Late


@pytest.mark.parametrize("call", ["enter", "left", "enter again", "left again"])
@pytest.mark.parametrize("line", ["takers", "putters"])
def test_whoever_is_interrupted_on_entering_or_leaving_the_line_is_not_left_there(make_db, monkeypatch, line, call):
    Task = make_db(FEATURES | {"limit": 1})
    if line == "putters":
        Task.put({})
    waits = {"takers": lambda: Task.take(timeout=0.01), "putters": lambda: Task.put({}, timeout=0.01)}[line]
    with suppress(xq.Full):
        waits()  # it has its thread, which calls
    waiting = getattr(Task.xq._waiting, line)
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "_lock", Interrupting(call))
        patch.setattr(waiting, "call", lambda tube: None)
        patch.setattr(waiting, "call_for_any", lambda: None)  # the thread calls at any time
        with pytest.raises(Late):
            waits()
    assert not waiting.waiters


def test_a_wait_that_is_interrupted_just_before_it_ends_leaves_nobody_waiting(make_db, monkeypatch):
    Task = make_db(FEATURES)
    put = Task.put({})

    def interrupted(*_: Any) -> Any:
        raise Late

    with monkeypatch.context() as patch:
        patch.setattr(Waiting, "_end", interrupted)
        with pytest.raises(Late):
            Task.wait(put, timeout=0.02)
    assert not Task.xq._waiting.anybody
    Task.wait(put, timeout=0.02)
    eventually(lambda: Task.xq.waiting() == [])


def test_two_threads_may_settle_the_same_doubt(shared_db, monkeypatch):
    Task, together = Maker(shared_db, None)(FEATURES), threading.Barrier(2)
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


SLEEPS = {"postgres": "SELECT pg_sleep(0.02)", "mariadb": "SELECT SLEEP(0.02)"}


@pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])
def test_what_a_thread_has_taken_stays_its_own_however_often_another_is_interrupted(shared_db, monkeypatch, kind):
    Task, ask = Maker(shared_db, None)(FEATURES), Link._ask
    Task.put({})
    taken, done = threading.Event(), threading.Event()

    def work() -> str:
        task = Task.take()
        taken.set()
        done.wait(PATIENCE)
        return str(task.ack().status)

    def ask_slowly(link: Link, sql: str, values: Any) -> Any:
        ask(link, SLEEPS[Task.xq.store.engine], {})
        return ask(link, sql, values)

    def call(Task: Any) -> None:
        Task.take(timeout=0.003)
        with suppress(xq.NotFound):
            Task.ack(1_000_000)
        with Task.xq.session():
            pass

    worker = Work(shared_db, work)
    assert taken.wait(PATIENCE)
    own = Task.xq._database.open().sessions.own()
    with Interrupter(kind, pw.PeeweeException) as interrupter, monkeypatch.context() as patch:
        patch.setattr(Link, "_ask", ask_slowly)
        interrupter.after = 100 * FIRST
        while interrupter.goes_on:
            with suppress(kind, pw.PeeweeException):
                interrupter.call(Task, call)
    done.set()
    assert worker.result() == "D"
    assert Task.xq._database.open().sessions.own() is own


SEAMS = [
    (Session, "_others"),
    (Session, "let_go"),
    (Session, "_lock"),
    (Sessions, "leave"),
    (Sessions, "_end"),
    (Sessions, "alone"),
    (Link, "_end"),
    (Link, "gone"),
    (Locks, "_end"),
    (Locks, "_locked"),
]


@pytest.mark.parametrize(("kind", "name"), SEAMS)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_what_a_session_holds_comes_back_when_leaving_it_is_interrupted(shared_db, monkeypatch, kind, name, done):
    Task = Maker(shared_db, None)(FEATURES)
    Task.put({})
    session = Task.xq.session()
    call: Any = getattr(kind, name, None)
    interrupted: list[str] = []

    def interrupt(*arguments: Any, **options: Any) -> Any:
        if interrupted or threading.current_thread() is not threading.main_thread():
            return call(*arguments, **options)
        interrupted.append(name)
        if done:
            call(*arguments, **options)
        raise Late

    with monkeypatch.context() as patch:
        with suppress(Late), session:
            assert Task.take().id == 1
            if name == "_lock":
                patch.setattr(session, "_lock", Interrupting("left" if done else "enter"))
            else:
                patch.setattr(kind, name, interrupt)
        assert Task.xq._database.session is not session
    assert eventually(Task.take).id == 1


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_session_of_which_entering_was_interrupted_is_not_held(shared_db, monkeypatch, done):
    Task = Maker(shared_db, None)(FEATURES)
    Task.put({})

    def hold() -> Any:
        session = Task.xq.session()
        with session:
            yield session.uuid, Task.take().id
            yield

    with another_process(shared_db, hold) as other:
        uuid, key = next(other)
        rejoin = Sessions.rejoin

        def interrupt(*arguments: Any) -> Any:
            if done:
                rejoin(*arguments)
            raise Late

        session = Task.xq.session(uuid)
        with session:
            pass
        with monkeypatch.context() as patch:
            patch.setattr(Sessions, "rejoin", interrupt)
            with pytest.raises(Late):
                session.__enter__()
        assert Task.xq._database.session is not session
        other.kill()
    assert eventually(Task.take).id == key


def all_are_there(Task: Any) -> None:
    def rest_is_acked() -> bool:
        Task.xq.ack_many(Task.xq.take_many(MANY))
        return bool(Task.xq.count("D") == MANY)

    eventually(rest_is_acked)
    assert is_exact(Task)
