"""Tubes of threads and processes that go on beside each other, end and are killed, and of servers that crash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on
from tests.steps import (
    PATIENCE,
    STUCK,
    Work,
    another_process,
    eventually,
    processes,
    until_one_waits_for_a_lock,
    writing,
)
from tests.support.tubes import Rows, put
from xq.tubes import Tube, Tubes


@pytest.fixture
def shared(shared_db: pw.Database) -> Any:
    """Those of a database that other processes can open, by its own clock."""
    return Tubes(shared_db)


@contextmanager
def opened(db: Any) -> Iterator[Any]:
    """The tubes of the same database, as another program opens them."""
    with closing(type(db)(db.database, **db.connect_params)) as database:
        yield Tubes(database)


def drops(tube: Tube) -> bool:
    """Whether nothing was in the way of dropping it."""
    try:
        return tube.drop()
    except xq.TubeBusy:
        return False


def test_a_process_that_takes_from_one_tube_expires_and_reaps_in_another(shared_db):
    queue, names = Tubes(shared_db), ["before", "later"]

    def taker() -> Any:
        with opened(shared_db) as mine:
            yield mine.create_tube("a", "fifo").take(0)
            yield None

    def owner() -> Any:
        with opened(shared_db) as mine:
            yield [mine.tube[name].take(0).data for name in names]
            yield None

    def is_maintained(name: str) -> bool:
        found = queue.statistics(name)["tasks"]
        return (found["ready"], found["done"], found["total"]) == (2, 1, 2)

    queue.create_tube("before", "fifottl").put("taken")
    with another_process(shared_db, taker) as running:
        assert next(running) is None
        queue.create_tube("later", "utubettl").put("taken")
        with another_process(shared_db, owner) as dying:
            assert next(dying) == ["taken", "taken"]
            dying.kill()
        for name in names:
            queue.tube[name].put("delayed", delay=0.3)
            queue.tube[name].put("lives", ttl=0.3)
        for name in names:
            eventually(partial(is_maintained, name))


def test_a_drop_waits_for_a_take_that_is_not_yet_committed(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")

    def other() -> Any:
        with opened(db) as queue:
            with writing(queue.database):
                taken = queue.tube.tube.take(0)
                yield taken.id
                until_one_waits_for_a_lock(queue.database)
            yield "committed"
            yield queue.tube.tube.ack(taken).state

    with another_process(db, other) as running:
        assert next(running) == 1
        dropping = Work(db, lambda: drops(tube))
        assert next(running) == "committed"
        assert dropping.result() is False
        assert next(running) == "-"
    assert tube.drop()


def test_a_take_that_waits_in_another_process_ends_when_the_tube_is_dropped(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifo")

    def other() -> Any:
        with opened(db) as queue:
            found = queue.tube.tube
            yield found.take(0)
            with pytest.raises(xq.TubeDropped):
                found.take(PATIENCE)
            yield "dropped"

    with another_process(db, other) as running:
        assert next(running) is None
        running.post(None)
        tube.drop()
        assert running.hear() == "dropped"


def test_a_take_waits_for_a_task_and_a_put_for_room_and_nobody_drops_the_tube_meanwhile(shared):
    tube = shared.create_tube("tube", "limfifottl", capacity=1)
    takes = Work(shared.database, lambda: tube.take(PATIENCE))
    eventually(tube.model.xq.waiting)
    with pytest.raises(xq.TubeBusy, match="wait"):
        tube.drop()
    tube.put("a")
    assert takes.result().data == "a"
    puts = Work(shared.database, lambda: tube.put("b", timeout=PATIENCE))
    tube.ack(1)
    assert puts.result().data == "b"


@pytest.mark.parametrize(("type", "options"), [("utubettl", {"ttl": 1000, "pri": 5}), ("rows", {"colour": "blue"})])
def test_another_process_finds_a_tube_and_what_it_takes_is_its_own(shared, type, options):
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tübe", type, **options)
    put(tube, "a")

    def other() -> Any:
        with opened(shared.database) as queue:
            queue.register_driver("rows", Rows)
            found = queue.tube["tübe"]
            queue.create_tube("theirs", "fifo")
            yield found.type, dict(found.options), tuple(found.take(0))
            yield tuple(found.ack(1))

    with another_process(shared.database, other) as running:
        assert next(running) == (type, options, (1, "t", "a"))
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        with pytest.raises(xq.TubeBusy):
            tube.drop()
        assert next(running) == (1, "-", "a")
    assert shared.tube.theirs.take(0) is None
    assert tube.drop()
    with pytest.raises(xq.TubeDropped):
        tube.put("b")


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_of_processes_that_create_a_tube_at_once_one_does_and_all_may_share_it(shared, if_not_exists):
    def other() -> Any:
        with opened(shared.database) as queue:
            yield
            try:
                yield queue.create_tube("tube", "fifo", if_not_exists=if_not_exists).put("a").id
            except xq.TubeExists:
                yield 0

    with processes(shared.database, other, other, other) as running:
        for one in running:
            next(one)
        for one in running:
            one.post(None)
        assert sorted(one.hear() for one in running) == ([1, 2, 3] if if_not_exists else [0, 0, 1])
    made = [name for name in shared.database.get_tables() if re.fullmatch("xq_tube_tube_[0-9a-f]{8}", name)]
    assert len(made) == 1, "and the others leave nothing"


def test_a_worker_of_a_tube_is_called_with_its_tasks(shared):
    tube, found = shared.create_tube("tube", "fifottl"), list[Any]()
    tube.worker(found.append)
    tube.put({"url": "a"})
    tube.run(until_empty=True)
    other = shared.create_tube("other", "fifottl")
    other.worker(lambda task: found.append(other.bury(task.id)), workers=1)
    other.put("bad")
    other.run(until_empty=True)
    assert found == [(1, "t", {"url": "a"}), (1, "!", "bad")]


def test_a_take_of_a_class_waits_also_for_what_an_ended_session_keeps_for_its_ttr(shared):
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    waits = Work(shared.database, lambda: tube.take(PATIENCE))
    tube.put("a")
    assert waits.result().data == "a"
    tube.put("b")
    shared.cfg(ttr=0.3)
    with shared.session():
        assert tube.take(0).id == 2
    eventually(lambda: tube.peek(2).state == "r")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_url_leads_to_the_tubes_of_a_server(kind):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        for again in (url, url.replace("://", "+pool://"), url.replace("mysql:", "mariadb:")):
            queue: Any = Tubes(again)
            with closing(queue.database):
                tube = queue.create_tube("tube", "fifo", if_not_exists=True)
                tube.put(again)
                assert tube.ack(tube.take(0)).data == again


@pytest.mark.parametrize("kind", SERVERS.values(), ids=SERVERS)
def test_a_crash_takes_the_tasks_of_no_tube_and_no_id_comes_again(kind):
    if reason := kind.missing():
        pytest.skip(reason)
    with kind() as server:
        server.create("app")
        with closing(server.peewee("app")) as database:
            queue: Any = Tubes(database)
            queue.cfg(ttr=1000)
            for name in ("kept", "temporary"):
                tube = queue.create_tube(name, "utubettl", temporary=name == "temporary")
                for data in "abc":
                    tube.put(data, utube="u")
                tube.delete(3)
                assert tube.take(STUCK) == (1, "t", "a")  # the maintenance thread may be refreshing the head
            uuid = queue.identify()
            server.stop("immediate")
        server.start()
        with closing(server.peewee("app")) as database:
            queue = Tubes(database)
            for tube in (queue.tube.kept, queue.tube.temporary):
                with queue.session(uuid):
                    assert tube.ack(1) == (1, "-", "a")
                assert tube.take(0) == (2, "t", "b")
                assert tube.statistics()["calls"]["put"] == 3
                assert tube.put("d", utube="v").id > 3
                assert tube.model.xq.check() == []
