"""Connections to a server that are cut, time out or are killed: clear errors, and nothing done by halves."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.inside.steps import look
from tests.proxy import Proxy
from tests.steps import PATIENCE, another_process, eventually, is_exact
from xq.database import reaper
from xq.testing import run_pending
from xq.workers import attempt
from xq.workers.concurrency import Slots

FEATURES = {"keep": True, "buried": True, "delayed": True}
ROLES = ("runat", "attempts")
CUTS = 20  # places at which one call may be cut, at most


class Place:
    """A database of its own, which can be reached through a proxy and past it."""

    def __init__(self, server: Any, name: str, proxy: Proxy) -> None:
        self.server, self.name, self.proxy = server, name, proxy
        self.kind = next(kind for kind, server_kind in SERVERS.items() if isinstance(server, server_kind))
        self.opened: list[pw.Database] = []
        self.there = live(self.database())(FEATURES, roles=ROLES)  # past the proxy
        self.Task = live(self.database(host=proxy.host, port=proxy.port))(FEATURES, roles=ROLES)
        self.db = self.Task._meta.database

    def database(self, **options: Any) -> pw.Database:
        self.opened.append(self.server.peewee(self.name, **options))
        return self.opened[-1]

    def as_worker(self) -> pw.Database:
        """The database, as a user by whom the connections of one process are told from others."""
        if self.kind == "postgres":
            if not self.server.run("SELECT 1 FROM pg_roles WHERE rolname = 'worker'"):
                self.server.run("CREATE ROLE worker LOGIN IN ROLE xq")
        else:
            self.server.run("CREATE USER IF NOT EXISTS worker")
            self.server.run(f"GRANT ALL ON `{self.name}`.* TO worker")
        return self.database(user="worker")

    def states(self) -> Counter[str]:
        return Counter(task.status for task in self.there.select())


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with database_on(SERVERS[request.param]) as (server, name), Proxy(server.host, server.port) as proxy:
        made = Place(server, name, proxy)
        try:
            yield made
        finally:
            for db in made.opened:
                db.close()


# what is done with three tasks, of which one is ready and two are taken -> how many of them are then in which states
CALLS: dict[str, tuple[Callable[[Any, list[Any]], Any], dict[str, int]]] = {
    "put": (lambda Task, held: Task.put({}), {"R": 2, "T": 2}),
    "take_many": (lambda Task, held: Task.xq.take_many(2), {"T": 3}),
    "ack": (lambda Task, held: held[0].ack(), {"R": 1, "T": 1, "D": 1}),
    "bury_many": (lambda Task, held: Task.xq.bury_many(held), {"R": 1, "B": 2}),
}


@pytest.mark.parametrize("when", ["client", "server"], ids=["asked", "answered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_connection_is_cut_did_all_or_nothing_and_the_next_one_works(place, call, when):
    Task, (do, then) = place.Task, CALLS[call]
    for after in range(CUTS):
        Task.xq.truncate()
        Task.xq.put_many([{}] * 3)
        held = Task.xq.take_many(2)
        before = place.states()
        place.proxy.cut_later(when, place.db, after)
        try:
            do(Task, held)
        except pw.PeeweeException:
            assert place.states() in ((before,) if when == "client" else (before, then))
        else:
            break
    else:
        pytest.fail("it was cut each time")
    assert after > 0, "it was never cut"
    assert place.states() == then
    assert is_exact(place.there)


def test_a_call_replaces_a_connection_that_was_closed_before_any_call_had_it(place):
    place.db.close()
    place.db.connect()
    place.db.connection().close()  # the driver's own: Peewee takes it for open

    assert not place.Task.xq.parts.store.in_transaction()
    place.Task.put({})

    assert place.states() == {"R": 1}


def test_what_was_taken_by_a_call_whose_answer_was_lost_comes_back(place):
    place.Task.put({})
    place.Task.take().release()  # so this process looks after the queue

    def takes() -> int:
        return int(place.there.xq.stats().transition["R-T"])

    for after in [*range(CUTS)] * 3:
        place.db.close()
        place.Task.xq.truncate()
        assert place.Task.take() is None  # the next one need not look for what is due, and has fewer answers
        place.Task.put({})
        before = takes()
        place.proxy.cut_later("server", place.db, after)
        try:
            place.Task.take()
        except pw.PeeweeException:
            if takes() > before:  # it was taken, whether or not it is back by now
                break
    else:
        pytest.fail("no answer was lost after the commit")
    eventually(lambda: place.states() == {"R": 1})
    again = place.Task.take()
    assert (again.attempts, again.ack().status) == (1, "D")  # nobody worked on it before
    assert is_exact(place.there)


def test_what_was_taken_in_a_transaction_whose_commit_was_not_answered_is_released_or_was_never_taken(place):
    place.Task.put({})
    place.Task.take().release()  # so this process looks after the queue
    became = set()
    for when in ("client", "server"):
        whole = place.db.atomic()
        whole.__enter__()
        task = eventually(place.Task.take)  # the server may yet have to notice that the last transaction is cut
        place.proxy.cut_later(when, place.db)
        with pytest.raises(pw.PeeweeException):
            whole.__exit__(None, None, None)
        became |= set(place.states())
        with suppress(xq.WrongState):
            task.release()
        assert place.states() == {"R": 1}
    assert became == {"R", "T"}
    assert is_exact(place.there)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("buried", [True, "any"])
def test_a_burial_whose_answer_was_lost_is_one_and_calls_what_follows_it_once(make, monkeypatch, buried, inside):
    attributes = {"error": pw.TextField(null=True)}
    Task = make({"buried": buried, "history": True}, roles=("attempts", "error"), attributes=attributes)
    told, losses = list[str](), [1]
    named = Task.xq.parts.named
    run = named.executor.transaction if inside else named.one

    def loses(*given: Any, **options: Any) -> Any:
        found = run(*given, **options)
        while losses:
            losses.pop()
            raise pw.OperationalError("the connection is lost")
        return found

    @Task.xq.worker(max_attempts=1)
    def fails(task: Any) -> None:
        monkeypatch.setattr(*((named.executor, "transaction") if inside else (named, "one")), loses)
        raise ValueError

    fails.on_buried(lambda task, error: told.append("buried"))
    if inside:
        fails.on_buried(lambda task, error: told.append("in its transaction"), in_transaction=True)
    monkeypatch.setattr(attempt, "AGAIN", 0)
    Task.put({})
    run_pending(fails)
    assert (told, losses) == (["in its transaction"] * inside + ["buried"], [])
    assert [each.event for each in Task.xq.history(1)] == ["put", "take", "bury"]


def test_a_worker_buries_no_task_that_another_take_has(make):
    Task = make({"buried": "any", "ttr": 10}, roles=("runat", "attempts"))

    @Task.xq.worker(max_attempts=1)
    def fails(task: Any) -> None:
        Task.xq.clock.tick(11)
        Task.take()
        raise ValueError

    Task.put({})
    run_pending(fails)
    assert Task.xq.count("T") == 1


def test_a_worker_whose_take_of_a_slot_was_not_answered_does_not_wait_for_itself(make, monkeypatch):
    Task, smtp, losses = make({"keep": True}), xq.Concurrency("smtp", 1), [1]
    executor = Task.xq.parts.named.executor
    transaction = executor.transaction

    def loses(what: Any, *given: Any, **options: Any) -> Any:
        found = transaction(what, *given, **options)
        while losses and isinstance(getattr(getattr(what, "func", None), "__self__", None), Slots):
            losses.pop()
            raise pw.OperationalError("the connection is lost")
        return found

    monkeypatch.setattr(executor, "transaction", loses)
    monkeypatch.setattr(attempt, "AGAIN", 0.01)
    Task.xq.put_many([{}, {}])
    Task.xq.worker(lambda task: None, concurrency=smtp).run(until_empty=True)
    assert (losses, Task.xq.count("D")) == ([], 2)


# connections that the server kills

OF_WORKER = {"postgres": "usename = 'worker'", "mariadb": "user = 'worker'", "mysql": "user = 'worker'"}
LINKS = {  # that prove that processes live
    "postgres": "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')",
    "mariadb": "id IN (SELECT IS_USED_LOCK(CONCAT('xq.', process)) FROM {name}.xq_alive)",
}
LINKS["mysql"] = LINKS["mariadb"]


def ends_connections(place: Place, which: str = "{worker}") -> None:
    """Have the server end connections of the worker, and wait until they are gone."""
    look, end = {
        "postgres": (
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {}",
            "SELECT pg_terminate_backend({})",
        ),
    }.get(place.kind, ("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND {}", "KILL {}"))
    link = LINKS[place.kind].format(name=place.name)
    look = look.format(which.format(link=link, worker=OF_WORKER[place.kind]))
    with place.server.administrator(place.name) as execute:
        ended = execute(look)
        for (number,) in ended:
            execute(end.format(number))
        eventually(lambda: not {*ended} & {*execute(look)})  # others come in their place
        if place.kind == "postgres":  # which lists a process no more while its end of the connection is still open
            eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for (pid,) in ended))


def refused(call: Callable[[], Any]) -> str:
    """The name of the error that a call raises."""
    try:
        call()
    except (xq.Error, pw.PeeweeException) as error:
        return type(error).__name__
    return "none"


DEEDS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "ack": lambda Task, held: refused(held[0].ack),
    "ack by key": lambda Task, held: refused(lambda: Task.ack(held[1].id)),
    "take": lambda Task, held: Task.take(timeout=PATIENCE).id,
}


def worker(place: Place) -> Callable[[], Generator[Any, Any, None]]:
    """Takes two tasks, and then does what it is told with them."""
    db = place.as_worker()

    def script() -> Generator[Any, Any, None]:
        Task = live(db)(FEATURES, roles=ROLES)
        held = Task.xq.take_many(2)
        told = yield [task.id for task in held]
        while True:
            told = yield DEEDS[told](Task, held)

    return script


LOST = ("SessionLost", "SessionLost")


@pytest.mark.parametrize(
    ("which", "then", "said"),
    [
        ("{worker}", {"R": 2, "T": 1}, LOST),
        ("{link} AND {worker}", {"R": 2, "T": 1}, LOST),
        ("NOT {link} AND {worker}", {"T": 3}, ("none", "none")),
    ],
    ids=["all", "the session connection", "all but the session connection"],
)
def test_a_process_loses_its_tasks_with_its_session_connection_and_with_no_other_and_is_told_so(
    place, which, then, said
):
    place.there.xq.put_many([{}] * 3)
    place.there.take().release()  # so this process looks after the queue
    kept = place.there.take()
    with another_process(place.db, worker(place)) as other:
        assert next(other) == [2, 3]
        ends_connections(place, which)
        eventually(lambda: place.states() == then)
        look(place.there._meta.database)
        assert place.states() == then
        assert (other.send("ack"), other.send("ack by key")) == said
        if said == LOST:
            assert other.send("take") == 2
            assert other.send("ack") == "SessionLost"
    assert kept.ack().status == "D"
    assert is_exact(place.there)


def test_what_is_taken_in_a_transaction_that_outlives_its_session_comes_back_after_the_commit(place, monkeypatch):
    monkeypatch.setattr(reaper, "ORPHANS", 0.5)
    Task = live(place.as_worker())(FEATURES, roles=ROLES)
    Task.put({})
    with Task._meta.database.atomic():
        assert Task.take()
        ends_connections(place, "{link} AND {worker}")
        eventually(lambda: place.there.xq.sessions() == [])
    # This process, the only one to take, makes no call.
    eventually(lambda: place.states() == {"R": 1})


def test_who_cannot_prove_any_more_that_it_lives_takes_nothing(place):
    place.there.xq.put_many([{}] * 9)
    place.there.take().release()  # so this process looks after the queue
    Task = live(place.as_worker())(FEATURES, roles=ROLES)
    lock, unlock = {
        "postgres": ("ALTER ROLE worker NOLOGIN", "ALTER ROLE worker LOGIN"),
    }.get(place.kind, ("ALTER USER worker ACCOUNT LOCK", "ALTER USER worker ACCOUNT UNLOCK"))
    Task.take()
    place.server.run(lock)
    try:
        ends_connections(place, "{link} AND {worker}")
        eventually(lambda: refused(Task.take) == "OperationalError")  # the other end may close a little later
        eventually(lambda: place.states() == {"R": 9})
        assert refused(Task.take) == "OperationalError"
    finally:
        place.server.run(unlock)
    assert Task.take().ack().status == "D"
    assert is_exact(place.there)
