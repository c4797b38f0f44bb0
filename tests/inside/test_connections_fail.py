"""Connections to a server that are cut, stall, time out or are killed: clear errors, and nothing done by halves."""

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
from tests.steps import PATIENCE, another_process, eventually, is_exact, waiter
from xq.sessions import liveness

FEATURES = {"keep": True, "buried": True, "delayed": True}
CUTS = 20  # places at which one call may be cut, at most


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with database_on(SERVERS[request.param]) as (server, name), Proxy(server.host, server.port) as proxy:
        made = Place(server, name, proxy)
        try:
            yield made
        finally:
            made.close()


class Place:
    """A database of its own, which can be reached through a proxy and past it."""

    def __init__(self, server: Any, name: str, proxy: Proxy) -> None:
        self.server = server
        self.kind = next(kind for kind, server_kind in SERVERS.items() if isinstance(server, server_kind))
        self.name = name
        self.proxy = proxy
        self.there = live(self.database())(FEATURES)  # past the proxy
        self.Task = live(self.database(host=proxy.host, port=proxy.port))(FEATURES)
        self.db = self.Task._meta.database

    def close(self) -> None:
        self.there._meta.database.close()
        self.db.close()

    def database(self, **options: Any) -> pw.Database:
        made: pw.Database = self.server.peewee(self.name, **options)
        return made

    def states(self) -> Counter[str]:
        return Counter(task.status for task in self.there.select())


def watch(Task: Any) -> None:
    """Have this process look after the queue, as any does that has taken."""
    Task.take().release()


# what is done with three tasks, of which one is ready and two are taken -> how many of them are then in which states
CALLS: dict[str, tuple[Callable[[Any, list[Any]], Any], dict[str, int]]] = {
    "put": (lambda Task, held: Task.put({}), {"R": 2, "T": 2}),
    "take_many": (lambda Task, held: Task.xq.take_many(2), {"T": 3}),
    "ack": (lambda Task, held: held[0].ack(), {"R": 1, "T": 1, "D": 1}),
    "bury_many": (lambda Task, held: Task.xq.bury_many(held), {"R": 1, "B": 2}),
}


@pytest.mark.parametrize("when", ["asked", "answered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_connection_is_cut_did_all_or_nothing_and_the_next_one_works(place, call, when):
    Task, (do, then) = place.Task, CALLS[call]
    cut = {"asked": place.proxy.cut_when_asked, "answered": place.proxy.cut_when_answered}[when]
    for after in range(CUTS):
        Task.xq.truncate()
        Task.xq.put_many([{}] * 3)
        held = Task.xq.take_many(2)
        before = place.states()
        cut(place.db, after=after)
        try:
            do(Task, held)
        except pw.PeeweeException:
            assert place.states() in ((before,) if when == "asked" else (before, then))
        else:
            break
    else:
        pytest.fail("it was cut each time")
    assert after > 0, "it was never cut"
    assert place.states() == then
    assert is_exact(place.there)


def test_what_was_taken_by_a_call_whose_answer_was_lost_comes_back(place):
    place.Task.put({})
    watch(place.Task)

    def takes() -> int:
        return int(place.there.xq.stats().transition["R-T"])

    for after in [*range(CUTS)] * 3:
        place.db.close()
        place.Task.xq.truncate()
        assert place.Task.take() is None  # the next one need not look for what is due, and has fewer answers
        place.Task.put({})
        before = takes()
        place.proxy.cut_when_answered(place.db, after=after)
        try:
            place.Task.take()
        except pw.PeeweeException:
            if takes() > before:  # it was taken, whether or not it is back by now
                break
    else:
        pytest.fail("no answer was lost after the commit")
    eventually(lambda: place.states() == {"R": 1})
    assert place.Task.take().ack().status == "D"
    assert is_exact(place.there)


def test_what_was_taken_in_a_transaction_whose_commit_was_not_answered_is_released_or_was_never_taken(place):
    place.Task.put({})
    watch(place.Task)
    became = set()

    for cut in (place.proxy.cut_when_asked, place.proxy.cut_when_answered):
        whole = place.db.atomic()
        whole.__enter__()
        task = eventually(place.Task.take)  # the server may yet have to notice that the last transaction is cut
        cut(place.db)
        with pytest.raises(pw.PeeweeException):
            whole.__exit__(None, None, None)
        became |= set(place.states())
        with suppress(xq.WrongState):
            task.release()
        assert place.states() == {"R": 1}
    assert became == {"R", "T"}
    assert is_exact(place.there)


def test_within_the_applications_transaction_a_cut_connection_is_an_error_and_the_transaction_is_gone(place):
    place.Task.put({})

    def put_two() -> None:
        with place.db.atomic():
            place.Task.put({})
            place.proxy.cut(place.db)
            place.Task.put({})

    with pytest.raises(pw.PeeweeException):
        put_two()
    assert place.states() == {"R": 1}
    place.Task.put({})
    with place.db.atomic():
        place.Task.put({})
    assert place.states() == {"R": 3}


def test_who_waits_is_given_what_is_put_after_the_network_was_down(place):
    waiting = waiter(place.Task, lambda: place.Task.take(timeout=PATIENCE))
    place.proxy.refuse()
    place.proxy.cut()
    place.there.put({})
    place.proxy.refuse(False)
    assert waiting.result().id == 1


# the link, which proves that the process lives: opened by its first take


def connections(place: Any) -> int:
    """How many the user of the tests has."""
    count = {
        "postgres": f"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{place.name}' AND usename <> 'postgres'",
        "mariadb": f"SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{place.name}' AND user <> 'root'",
    }[place.kind]
    ((found,),) = place.server.run(count)
    return int(found)


@pytest.mark.parametrize("when", ["asked", "answered"])
def test_a_link_that_is_cut_while_it_is_opened_is_an_error_leaves_no_connection_and_the_next_take_works(place, when):
    place.Task.xq.put_many([{}] * 2)
    cut = {"asked": place.proxy.cut_new_when_asked, "answered": place.proxy.cut_new_when_answered}[when]
    most = connections(place) + 2  # the link, and that of the thread that looks after the queues
    for after in range(2 * CUTS):
        cut(after)
        try:
            place.Task.take()
        except pw.PeeweeException:
            eventually(lambda: connections(place) <= most)
            assert place.states() == {"R": 2}
        else:
            break
    else:
        pytest.fail("it was cut each time")
    assert after > 2, "it was never cut half-way"
    place.proxy.spare()
    look(place.db)  # the link may have been cut after the take
    assert place.Task.take().ack().status == "D"
    eventually(lambda: connections(place) == most)
    assert is_exact(place.there)


def test_a_server_that_lets_nobody_in_any_more_says_so_to_who_takes_first_and_lets_others_put(place):
    db = as_worker(place)
    limit = {
        "postgres": "ALTER ROLE worker CONNECTION LIMIT {}",
        "mariadb": "ALTER USER worker WITH MAX_USER_CONNECTIONS {}",
    }[place.kind]
    Task = live(db)(FEATURES)
    none = {"postgres": -1, "mariadb": 0}[place.kind]
    place.server.run(limit.format(1))
    try:
        known = connections(place)
        db.close()  # MariaDB looks at the limit when a connection is made
        eventually(lambda: connections(place) < known)
        Task.put({})
        known, most = connections(place), len(os.listdir("/dev/fd"))
        for _ in range(3):
            with pytest.raises(pw.OperationalError, match="too many connections|max_user_connections"):
                Task.take()
        eventually(lambda: connections(place) == known)
        eventually(lambda: len(os.listdir("/dev/fd")) <= most)  # something of an earlier test may come and go by now
        assert Task.put({}).id == 2
        assert place.states() == {"R": 2}
    finally:
        place.server.run(limit.format(none))
    assert Task.take().ack().status == "D"
    assert is_exact(place.there)
    db.close()


# limits of the server

LIMITS = {
    "postgres": {"statement": "SET statement_timeout = '1s'", "lock": "SET lock_timeout = '0.2s'"},
    "mariadb": {"statement": "SET max_statement_time = 1", "lock": "SET innodb_lock_wait_timeout = 1"},
}
LIFTED = {
    "postgres": {"statement": "RESET statement_timeout", "lock": "RESET lock_timeout"},
    "mariadb": {"statement": "SET max_statement_time = 0", "lock": "SET innodb_lock_wait_timeout = DEFAULT"},
}


@pytest.mark.parametrize("limit", ["statement", "lock"])
def test_a_call_that_takes_longer_than_the_server_allows_changes_nothing_and_the_next_one_works(place, limit):
    Task, (do, then) = place.Task, CALLS["bury_many"]
    Task.xq.put_many([{}] * 3)
    held = Task.xq.take_many(2)
    before = place.states()
    place.db.execute_sql(LIMITS[place.kind][limit])
    with place.there._meta.database.atomic():
        place.there.select().where(place.there.id == held[-1].id).for_update().execute()
        place.there.select().where(place.there.id == held[0].id).for_update().execute()
        with pytest.raises(pw.PeeweeException):
            do(Task, held)
        assert not place.db.in_transaction()
    assert place.states() == before
    place.db.execute_sql(LIFTED[place.kind][limit])  # a server that stands still for a moment takes longer, too
    do(Task, held)
    assert place.states() == then
    assert is_exact(place.there)


# connections that the server kills


def ends_connections_of(place: Any, condition: str) -> None:
    """Have the server end connections, and wait until they are gone."""
    look, end = {
        "postgres": (
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {}",
            "SELECT pg_terminate_backend({})",
        ),
        "mariadb": ("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND {}", "KILL {}"),
    }[place.kind]
    with place.server.administrator(place.name) as execute:
        ended = execute(look.format(condition))
        for (number,) in ended:
            execute(end.format(number))
        eventually(lambda: not {*ended} & {*execute(look.format(condition))})  # others come in their place
        if place.kind == "postgres":  # which lists a process no more while its end of the connection is still open
            eventually(lambda: not any(exists(pid) for (pid,) in ended))


def exists(pid: int) -> bool:
    """Whether there is a process of that number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


OF_USER = {"postgres": "usename = 'worker'", "mariadb": "user = 'worker'"}
LINKS = {  # of all processes
    "postgres": "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')",
    "mariadb": "id IN (SELECT IS_USED_LOCK(CONCAT('xq.', process)) FROM {name}.xq_alive)",
}


def as_worker(place: Any) -> pw.Database:
    """The database, as a user by whom the connections of one process are told from others."""
    place.server.run(
        {
            "postgres": "DO $$ BEGIN CREATE ROLE worker LOGIN IN ROLE xq; EXCEPTION WHEN duplicate_object THEN END $$",
            "mariadb": "CREATE USER IF NOT EXISTS worker",
        }[place.kind]
    )
    if place.kind == "mariadb":
        place.server.run(f"GRANT ALL ON `{place.name}`.* TO worker")
    made: pw.Database = place.database(user="worker")
    return made


def worker(place: Any, n: int = 2) -> Callable[[], Generator[Any, Any, None]]:
    """Takes tasks, and then does what it is told: a function of its queue and of what it has taken."""
    db = as_worker(place)

    def script() -> Generator[Any, Any, None]:
        Task = live(db)(FEATURES)
        held = Task.xq.take_many(n)
        told = yield [task.id for task in held]
        while True:
            told = yield DEEDS[told](Task, held)

    return script


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
    "session": lambda Task, held: Task.xq.session().uuid,
}


def test_who_loses_all_connections_loses_its_tasks_and_is_told_so_and_others_keep_theirs(place):
    place.there.xq.put_many([{}] * 4)
    watch(place.there)
    kept = place.there.take()
    with another_process(place.db, worker(place)) as other:
        assert next(other) == [2, 3]
        ends_connections_of(place, OF_USER[place.kind])
        eventually(lambda: place.states() == {"R": 3, "T": 1})
        assert other.send("ack") == "SessionLost"
        assert other.send("ack by key") == "SessionLost"
        assert other.send("take") == 2
        assert other.send("ack") == "SessionLost"
    assert kept.ack().status == "D"
    assert place.there.xq.stats().transition["T-R"] == 4
    assert is_exact(place.there)


# which connections of a process end -> the states of its two tasks then, and what is said to its acks
ENDED = {
    "{link} AND {user}": ({"R": 2}, ("SessionLost", "SessionLost")),
    "NOT {link} AND {user}": ({"T": 2}, ("none", "none")),
}


@pytest.mark.parametrize("which", ENDED, ids=["the link", "all but the link"])
def test_a_process_loses_its_tasks_with_its_link_and_with_no_other_connection(place, which):
    then, said = ENDED[which]
    place.there.xq.put_many([{}] * 2)
    watch(place.there)
    with another_process(place.db, worker(place)) as other:
        next(other)
        link = LINKS[place.kind].format(name=place.name)
        ends_connections_of(place, which.format(link=link, user=OF_USER[place.kind]))
        eventually(lambda: place.states() == then)
        look(place.there._meta.database)
        assert place.states() == then
        assert (other.send("ack"), other.send("ack by key")) == said
    assert is_exact(place.there)


def test_what_is_taken_in_a_transaction_that_outlives_its_session_comes_back_after_the_commit(place, monkeypatch):
    monkeypatch.setattr(liveness, "ORPHANS", 0.5)
    Task = live(as_worker(place))(FEATURES)
    Task.put({})
    with Task._meta.database.atomic():
        assert Task.take()
        link = LINKS[place.kind].format(name=place.name)
        ends_connections_of(place, f"{link} AND {OF_USER[place.kind]}")
        eventually(lambda: place.there.xq.sessions() == [])
    # This process, the only one to take, makes no call.
    eventually(lambda: place.states() == {"R": 1})
    Task._meta.database.close()


def test_who_cannot_prove_any_more_that_it_lives_takes_nothing(place):
    place.there.xq.put_many([{}] * 9)
    watch(place.there)
    Task = live(as_worker(place))(FEATURES)
    lock, unlock = {
        "postgres": ("ALTER ROLE worker NOLOGIN", "ALTER ROLE worker LOGIN"),
        "mariadb": ("ALTER USER worker ACCOUNT LOCK", "ALTER USER worker ACCOUNT UNLOCK"),
    }[place.kind]
    Task.take()
    place.server.run(lock)
    try:
        ends_connections_of(place, f"{LINKS[place.kind].format(name=place.name)} AND {OF_USER[place.kind]}")
        eventually(lambda: refused(Task.take) == "OperationalError")  # the other end may close a little later
        eventually(lambda: place.states() == {"R": 9})
        assert refused(Task.take) == "OperationalError"
    finally:
        place.server.run(unlock)
    assert Task.take().ack().status == "D"
    assert is_exact(place.there)
    Task._meta.database.close()
