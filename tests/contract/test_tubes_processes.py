"""Tubes of threads and processes that go on beside each other, end and are killed, and of servers that crash."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing, suppress
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
    in_threads,
    processes,
    until_one_waits_for_a_lock,
    writing,
)
from tests.support import tubes as support
from tests.support.tubes import Rows, opened, put
from xq.tubes import Tube, Tubes

shared = support.shared


def is_used(tube: Tube) -> bool:
    return bool(tube.statistics()["calls"]["take"])


def drops(tube: Tube) -> bool:
    """Whether nothing was in the way of dropping it."""
    try:
        return tube.drop()
    except xq.TubeBusy:
        return False


# what one process does for the tubes that it has not taken from


def has(queue: xq.Tubes, name: str, **wanted: int) -> bool:
    """Whether a tube has so many tasks in these states, and no others, as any process sees it that only looks."""
    found = queue.statistics(name)["tasks"].items()
    return {state: n for state, n in found if n and state != "total"} == wanted


def taking(db: pw.Database) -> Any:
    """A process that takes from the tube a, and from no other."""

    def take() -> Any:
        with opened(db) as queue:
            yield queue.create_tube("a", "fifo").take(0)
            yield None

    return take


def test_a_process_that_takes_from_one_tube_expires_what_is_due_in_another(shared_db):
    queue = xq.Tubes(shared_db)
    before = queue.create_tube("before", "fifottl")
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        later = queue.create_tube("later", "fifottl")
        for tube in (before, later):
            tube.put("delayed", delay=0.3)
            tube.put("lives", ttl=0.3)
        for name in ("before", "later"):
            eventually(partial(has, queue, name, ready=1, done=1))


def test_a_process_that_takes_from_one_tube_reaps_the_orphaned_tasks_of_another(shared_db):
    queue = xq.Tubes(shared_db)
    names = ["before", "later"]

    def owner() -> Any:
        with opened(shared_db) as mine:
            for name in names:
                assert mine.tube[name].take(0)
            yield "taken"
            yield None

    queue.create_tube("before", "fifo").put(1)
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        queue.create_tube("later", "utubettl").put(1)
        with another_process(shared_db, owner) as dying:
            assert next(dying) == "taken"
            dying.kill()
            for name in names:
                eventually(partial(has, queue, name, ready=1))


def test_a_tube_that_cannot_be_looked_at_keeps_no_other_from_being_maintained(shared_db):
    queue = xq.Tubes(shared_db)
    broken, whole = (queue.create_tube(name, "fifottl") for name in ("broken", "whole"))
    shared_db.execute_sql(f"DROP TABLE {broken.model._meta.table_name}")
    with another_process(shared_db, taking(shared_db)) as running:
        assert next(running) is None
        whole.put("delayed", delay=0.2)
        eventually(partial(has, queue, "whole", ready=1))


def test_a_tube_is_dropped_by_a_process_that_only_looks_when_the_owner_of_its_tasks_is_dead(shared):
    tube = shared.create_tube("tube", "fifo")
    tube.put(1)

    def owner() -> Any:
        with opened(shared.database) as mine:
            yield mine.tube.tube.take(0)
            yield None

    with another_process(shared.database, owner) as dying:
        assert next(dying)
        with pytest.raises(xq.TubeBusy, match="release_all"):
            tube.drop()
        dying.kill()
        eventually(partial(drops, tube))
    assert shared.tube() == []


# dropping


def test_what_was_taken_while_others_drop_the_tube_is_there_until_its_ack(shared):
    db = shared.database

    def worker() -> Any:
        with opened(db) as queue:
            acked = 0
            while name := (yield acked):
                with suppress(xq.NotInstalled, xq.UnknownTube):
                    tube = queue.tube[name]
                    while task := tube.take(0):
                        try:
                            tube.ack(task)
                        except xq.NotInstalled as error:  # no other call may come to this
                            raise AssertionError("what was taken is gone") from error
                        acked += 1

    with processes(db, worker, worker) as running:
        for one in running:
            next(one)
        for n in range(8):
            tube = shared.create_tube(f"tube{n}", "fifo")
            put(tube, *range(30))
            for one in running:
                one.post(tube.name)
            eventually(partial(is_used, tube))
            eventually(partial(drops, tube))
            for one in running:
                one.hear()
        assert shared.tube() == []


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


def test_a_take_that_began_while_the_tube_is_dropped_says_so(shared):
    db = shared.database
    if isinstance(db, pw.MySQLDatabase):
        return  # no transaction drops a tube there
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")
    with writing(db):
        tube.drop()
        takes = Work(db, lambda: tube.take(0))
        until_one_waits_for_a_lock(db)
    with pytest.raises(xq.TubeDropped):
        takes.result()


def test_a_transaction_that_sees_the_past_drops_no_tube_of_which_a_task_was_taken_since(shared):
    db = shared.database
    if not isinstance(db, pw.PostgresqlDatabase):
        return  # to write there is to see the present, or to be refused
    tube = shared.create_tube("tube", "fifo")
    with db.atomic():
        db.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert tube.statistics()["tasks"]["taken"] == 0
        in_threads(db, lambda: put(tube, "a") and tube.take(0))
        with pytest.raises(xq.TubeBusy):
            tube.drop()
    assert tube.ack(1).data == "a"


# calls side by side


def test_those_who_bury_a_task_at_once_bury_it_once(shared):
    tube = shared.create_tube("tube", "fifo")
    for id in put(tube, *range(10)):
        assert [task.state for task in in_threads(shared.database, *[partial(tube.bury, id)] * 3)] == ["!"] * 3
    assert tube.statistics()["calls"]["bury"] == 10


def test_another_process_finds_the_tubes(shared):
    db = shared.database
    tube = shared.create_tube("tübe", "utubettl", ttl=1000, pri=5)
    put(tube, "a", b"b", pri=1)

    def other() -> Any:
        with opened(db) as queue:
            found = queue.tube["tübe"]
            first = found.take(0)
            queue.create_tube("theirs", "fifo")
            yield queue.tube(), found.type, dict(found.options), tuple(first)
            yield tuple(found.ack(first.id))

    with another_process(db, other) as running:
        names, *rest = next(running)
        assert (sorted(names), *rest) == (["theirs", "tübe"], "utubettl", {"ttl": 1000, "pri": 5}, (1, "t", "a"))
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        assert next(running) == (1, "-", "a")
        assert tube.take(0).data == b"b"
        assert shared.tube.theirs.take(0) is None
        assert tube.statistics()["calls"]["take"] == 2


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_of_processes_that_create_a_tube_at_once_one_does_and_all_may_share_it(shared_db, if_not_exists):
    def other() -> Any:
        with opened(shared_db) as queue:
            yield
            try:
                yield queue.create_tube("tube", "fifo", if_not_exists=if_not_exists).put("a").id
            except xq.TubeExists:
                yield 0

    with processes(shared_db, other, other, other) as running:
        for one in running:
            next(one)
        for one in running:
            one.post(None)
        assert sorted(one.hear() for one in running) == ([1, 2, 3] if if_not_exists else [0, 0, 1])
    made = [name for name in shared_db.get_tables() if re.fullmatch("xq_tube_tube_[0-9a-f]{8}", name)]
    assert len(made) == 1, "and the others leave nothing"
    assert Tubes(shared_db).tube.tube.statistics()["calls"]["put"] == (3 if if_not_exists else 1)


def test_who_waits_who_has_taken_what_and_which_sessions_there_are_is_told_of_a_tube(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine, looks = shared.identify(), tube.model.xq
    tube.take(0)
    with shared.session() as session:
        tube.take(0)
        assert sorted((id, uuid) for id, uuid, _ in looks.taken()) == [(1, mine), (2, session.uuid)]
        assert sorted(uuid for uuid, _ in looks.sessions()) == sorted([mine, session.uuid])
    assert [(id, uuid) for id, uuid, _ in looks.taken()] == [(1, mine)]
    assert [uuid for uuid, _ in looks.sessions()] == [mine]
    assert looks.waiting() == []
    tube.take(0)
    waits = Work(shared.database, lambda: tube.take(PATIENCE))
    eventually(lambda: [(id, uuid) for id, uuid, _ in looks.waiting()] == [(None, mine)])
    put(tube, "c")
    assert waits.result().data == "c"
    assert looks.waiting() == []
    for _, _, since in looks.taken():
        assert abs(since - time.time()) < 3600


def test_a_session_is_joined_in_another_thread_and_ends_with_the_last_who_leaves_it(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine = shared.identify()

    def in_another_thread() -> None:
        assert shared.identify() == mine
        assert shared.identify(other.uuid) == other.uuid
        assert tube.take(0).data == "a"
        assert shared.identify(mine) == mine

    def alone() -> None:
        shared.identify(shared.session().uuid)
        assert tube.take(0).data == "b"
        shared.identify(shared.session().uuid)
        assert tube.peek(2).state == "r"

    with shared.session() as other:
        in_threads(shared.database, in_another_thread)
        assert tube.ack(1).state == "-", "the session is one"
    in_threads(shared.database, alone)
    assert tube.statistics()["calls"]["release"] == 1


def test_who_puts_and_looks_has_no_session_in_the_database(shared):
    tube = shared.create_tube("tube", "fifo")

    def looks() -> None:
        put(tube, "a")
        tube.peek(1)
        tube.statistics()

    in_threads(shared.database, looks)
    looks()
    assert tube.model.xq.sessions() == []
    tube.take(0)
    assert [uuid for uuid, _ in tube.model.xq.sessions()] == [shared.identify()]


def test_a_worker_of_a_tube_is_called_with_its_tasks(shared):
    tube, found = shared.create_tube("tube", "fifottl"), []

    @tube.worker
    def work(task):
        found.append(task)

    tube.put({"url": "a"})
    tube.run(until_empty=True)
    assert found == [(1, "t", {"url": "a"})]

    @tube.worker(workers=1, finishes=True)
    def finishes(task, finish):
        found.append(finish("bury") if task.data == "bad" else finish())

    tube.put("good")
    tube.put("bad")
    tube.run(until_empty=True)
    assert found[1:] == [(2, "-", "good"), (3, "!", "bad")]


# classes of ones own


def test_a_tube_of_a_class_that_two_threads_open_at_once_is_started_once(shared):
    db, started, stopped = shared.database, [], []

    class Counted(Rows):
        def start(self) -> None:
            started.append(self)
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

        def stop(self) -> None:
            stopped.append(self)

    both = threading.Barrier(1)
    shared.register_driver("counted", Counted)
    shared.create_tube("tube", "counted")
    vars(db).pop("_xq_tubes")  # as a process that has just begun
    again: Any = Tubes(db)
    again.register_driver("counted", Counted)
    both = threading.Barrier(2)
    one, other = in_threads(db, lambda: again.tube.tube, lambda: again.tube.tube)
    assert one is other
    assert [found for found in started[1:] if found not in stopped] == [one._object]


def test_a_task_of_a_class_that_another_process_has_taken_is_its_own(shared):
    db = shared.database
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    tube.put("a")

    def other() -> Any:
        with opened(db) as queue:
            queue.register_driver("rows", Rows)
            yield queue.tube.tube.take(0).id
            yield queue.tube.tube.ack(1).state

    with another_process(db, other) as running:
        assert next(running) == 1
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        with pytest.raises(xq.TubeBusy):
            tube.drop()
        assert next(running) == "-"
    assert tube.drop()
    with pytest.raises(xq.TubeDropped):
        tube.put("b")


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


# servers


@pytest.mark.parametrize("kind", SERVERS)
def test_a_url_leads_to_the_tubes_of_a_server(kind):
    with database_on(SERVERS[kind]) as (server, name):
        url = server.url(name)
        for again in (url, url.replace("://", "+pool://"), url.replace("mysql:", "mariadb:")):
            queue: Any = Tubes(again)
            with closing(queue.database):
                tube = queue.create_tube("tube", "fifo", if_not_exists=True)
                tube.put(again)
                task = tube.take(0)
                assert task.data == again
                tube.ack(task)


@pytest.fixture
def server(request):
    """A server of the test's own."""
    kind = SERVERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with kind() as server:
        server.create("app")
        yield server


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_crash_takes_the_tasks_of_no_tube_that_is_not_temporary_and_no_id_comes_again(server):
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
        assert queue.tube() == ["kept", "temporary"]
        kept, temporary = queue.tube.kept, queue.tube.temporary
        with queue.session(uuid):
            assert kept.ack(1) == (1, "-", "a")
        assert kept.take(0) == (2, "t", "b")
        assert kept.statistics()["calls"]["put"] == 3
        counted = temporary.statistics()
        assert counted["tasks"]["total"] == len(temporary.tasks_by_state("r")) + len(temporary.tasks_by_state("t"))
        if "postgres" in type(server).__name__.lower():
            assert counted["tasks"]["total"] == counted["calls"]["put"] == 0
        for tube in (kept, temporary):
            task = tube.put("d", utube="v")
            assert task.id > 3, tube.name
            assert tube.model.xq.check() == []
        assert temporary.take(0).data == "d"
