"""`Page.xq.aio`: the methods of a queue for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.steps import PATIENCE, STUCK, Work, is_exact, put_late

IN_MEMORY = True  # the tests run on a database in memory as well, which only the thread of the event loop reaches

# What no coroutine needs: it calls no database, runs until the program ends, or belongs into a `transaction`.
NOT_THERE = {"worker", "start", "on_change", "off_change", "acting"}


@pytest.fixture
def make_db(db: pw.Database) -> Maker:
    """Makes queues by the database's own clock."""
    return live(db)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a program, up to STUCK seconds."""
    return asyncio.run(asyncio.wait_for(main, STUCK))


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(test)
    def call(*given: Any, **named: Any) -> None:
        run(test(*given, **named))

    return call


async def waiters(Task: Any, n: int) -> None:
    """Poll until so many calls wait."""
    while len(await Task.xq.aio.waiting()) != n:
        await asyncio.sleep(0.005)


def test_every_method_that_calls_the_database_is_there_with_the_same_arguments_and_words():
    Task = Maker(pw.SqliteDatabase(None)).model()
    twins = dict(inspect.getmembers(type(xq.upgrade(Task, {"status": "status"}).aio), inspect.isfunction))
    for name, method in inspect.getmembers(xq.Queue, inspect.isfunction):
        if name.startswith("_") or name in NOT_THERE:
            continue
        there, here = inspect.signature(method).parameters, inspect.signature(twins[name]).parameters
        assert list(here) == list(there), name
        assert [each.default for each in here.values()] == [each.default for each in there.values()], name
        assert twins[name].__doc__, name


@in_a_loop
async def test_calls_of_a_turn_are_one_and_each_has_its_own_fields_and_its_own_error(make_db):
    Task = make_db({"keep": True})
    put = await asyncio.gather(*[Task.xq.aio.put(task(name=f"task {n}")) for n in range(6)])
    held = [await Task.xq.aio.take() for _ in put]
    await Task.xq.aio.release(held[3])

    async def ack(found: Any) -> Any:
        try:
            return (await Task.xq.aio.ack(found, update={"name": f"{found.name}, done"})).name
        except xq.WrongState:
            return "wrong"

    for all_of_them in (held[:3], held[3:]):
        names = await asyncio.gather(*map(ack, all_of_them))
        assert names == [f"{each.name}, done" if each is not held[3] else "wrong" for each in all_of_them]
    assert [await Task.xq.aio.count(state) for state in "RTD"] == [1, 0, 5]


@in_a_loop
async def test_a_queue_is_paused_and_has_schedules_and_operations(make_db):
    Task = make_db({"keep": True, "buried": "any", "history": True})
    aio = Task.xq.aio
    assert await aio.every(3600, {"size": 1, "name": "a"}, name="each hour") == "each hour"
    assert [each.name for each in await aio.schedules()] == ["each hour"]
    assert await aio.unschedule("each hour")
    put = await aio.put(task())
    await aio.pause()
    assert await aio.paused() == [None]
    taking = asyncio.create_task(aio.take(timeout=PATIENCE))
    await waiters(Task, 1)
    await aio.resume()
    assert (await taking).id == put.id
    await aio.put_many(tasks(5))
    assert [each.done async for each in aio.act("bury", "state:R", actor="ann", chunk=2)] == [2, 4, 5]
    assert [row.actor for row in Task.xq.history() if row.event == "bury"] == ["ann"] * 5


@in_a_loop
async def test_each_coroutine_has_its_own_actor_in_calls_that_share_a_turn_and_in_its_threads(make_db, caplog):
    Task, Plain = make_db({"history": True, "buried": "any"}), make_db(model=make_db.model(table_name="plain"))
    logged = caplog.at_level("INFO", f"xq.{Plain.__name__}")

    async def act(name: str) -> None:
        with Task.xq.acting(name), Plain.xq.acting(name, reason="why not"):
            put = await Task.xq.aio.put(task(name=name))
            await Task.xq.aio.transaction(lambda: Task.xq.bury(put))
            if not Task.xq.parts.store.is_private:
                await asyncio.to_thread(Task.xq.put, task(name=name))

    with logged:
        await asyncio.gather(*map(act, ("ann", "ben", "cy")))
    await Task.xq.aio.put(task())
    *rows, last = Task.xq.history()
    by_key = {row.key: {each.actor for each in rows if each.key == row.key} for row in rows}
    assert Counter(row.actor for row in rows) == dict.fromkeys(("ann", "ben", "cy"), len(rows) // 3)
    assert ([len(actors) for actors in by_key.values()], last.actor) == ([1] * len(by_key), None)
    assert sorted(caplog.messages) == [f"{name}: acted: why not" for name in ("ann", "ben", "cy")]


@in_a_loop
async def test_the_other_methods_do_what_their_twins_do(make_db):
    features = {"buried": True, "delayed": True, "keep": True, "ttr": 60, "history": True}
    Task = make_db(features, roles=("runat", "tube"))
    aio = Task.xq.aio
    put = await aio.put_many(tasks(6, tube="a"))
    assert [each.id for each in await aio.take_many(6, tube="a")] == [each.id for each in put]
    first, *others = put
    assert (await aio.touch(first, 5)).status == "T"
    assert (await aio.touch(first, update={"size": 40})).size == 40
    assert (await aio.bury(first)).status == "B"
    assert (await aio.dig(first)).status == "R"
    assert (await aio.release(others[0], delay=60)).status == "W"
    assert (await aio.restart(others[0])).status == "R"
    assert [each.status for each in await aio.bury_many(others[1:3])] == ["B", "B"]
    assert len(await aio.dig(n=1)) == len(await aio.plow()) == 1
    assert (await aio.snatch(others[3])).status == "R"
    assert [each.status for each in await aio.ack_many(others[4:])] == ["D"]
    assert (await aio.kill(first)).id == first.id
    assert await aio.count() == 5
    assert [each.id for each in await aio.by_state("D")] == [others[4].id]
    assert (await aio.switch(others[0], "B")).status == (await aio.peek(others[0])).status == "B"
    assert len(await aio.history(first)) == 5
    assert await aio.check() == []
    assert await aio.release_all() == 0
    assert await aio.truncate() == 5
    await aio.uninstall()
    with pytest.raises(xq.NotInstalled):
        await aio.put({})
    await aio.install()
    await aio.put({})


@in_a_loop
async def test_wrong_arguments_are_refused_as_by_the_queue(make_db):
    Task = make_db()
    for wrong, error in [
        (lambda: Task.xq.aio.put({"nothing": 1}), xq.BadValue),
        (lambda: Task.xq.aio.take(tube="a"), xq.FeatureOff),
        (lambda: Task.xq.aio.take_many("a"), xq.BadType),
        (lambda: Task.xq.aio.ack(1), xq.NotFound),
    ]:
        with pytest.raises(error):
            await wrong()
    if make_db.db.database == ":memory:":
        with pytest.raises(xq.ConfigurationError, match=r"use aio.transaction\(work\)"):
            await Task.xq.aio.atomic().__aenter__()


@in_a_loop
async def test_calls_of_one_turn_return_their_own_tasks_and_raise_their_own_errors(make_db):
    Task = make_db({"keep": True}, key=pw.IntegerField(primary_key=True))
    put = await asyncio.gather(
        *(Task.xq.aio.put(task(id=id)) for id in (3, 1, 3, 2)), Task.xq.aio.put({"id": "x"}), return_exceptions=True
    )
    assert Counter(type(each) for each in put) == {Task: 3, pw.IntegrityError: 1, xq.BadType: 1}
    assert [getattr(each, "id", None) for each in (put[1], put[3])] == [1, 2]
    taken = await asyncio.gather(*(Task.xq.aio.take() for _ in range(4)))
    assert [each and each.id for each in taken] == [1, 2, 3, None]
    acked = await asyncio.gather(
        *(Task.xq.aio.ack(each) for each in (taken[0], taken[1], taken[0], 9, taken[2])), return_exceptions=True
    )
    assert [getattr(each, "id", type(each)) for each in acked] == [1, 2, xq.WrongState, xq.NotFound, 3]
    assert is_exact(Task)


def test_the_event_loop_goes_on_while_another_connection_writes(make_live):
    Task = make_live()

    async def main(commit: Callable[[], None]) -> None:
        puts = asyncio.gather(Task.xq.aio.put({}), Task.xq.aio.put({}))
        await asyncio.to_thread(commit)
        await puts

    with put_late(Task) as commit:
        run(main(commit))
    assert Task.xq.count() == 3


@pytest.mark.parametrize("shared_db", ["mariadb", "mysql"], indirect=True)
def test_a_deadlock_in_a_turn_takes_no_call_back_that_has_returned(make_live):
    Task, wrote, crosses = make_live({"keep": True, "buried": True}), threading.Event(), threading.Event()
    Task.xq.put_many(tasks(200))
    first, second = Task.xq.take_many(2)

    def write() -> None:
        with make_live.db.atomic():
            Task.update(size=1).where(Task.id >= second.id).execute()  # of so many rows that the turn is the victim
            wrote.set()
            crosses.wait(STUCK)
            Task.update(size=1).where(Task.id == first.id).execute()

    def first_is_locked() -> bool:
        with make_live.db.connection_context():
            return not list(Task.select().where(Task.id == first.id).for_update("FOR UPDATE SKIP LOCKED"))

    async def main() -> None:
        calls = asyncio.gather(Task.xq.aio.ack(first), Task.xq.aio.bury(second))
        while not await asyncio.to_thread(first_is_locked):
            await asyncio.sleep(0.005)
        crosses.set()
        assert [each.status for each in await calls] == ["D", "B"]

    writing = Work(make_live.db, write)
    assert wrote.wait(PATIENCE)
    run(main())
    writing.result()
    assert [Task.xq.peek(each).status for each in (first, second)] == ["D", "B"]


@in_a_loop
async def test_a_thousand_takes_wait_and_each_gets_a_task(make_live):
    Task, before = make_live({"keep": True}), threading.active_count()
    takes = [asyncio.create_task(Task.xq.aio.take(timeout=PATIENCE)) for _ in range(1000)]
    await waiters(Task, 1000)
    assert threading.active_count() - before < 20, "no thread for each"
    put = await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(1000)))
    taken = await asyncio.gather(*takes)
    assert sorted(each.id for each in taken) == sorted(each.id for each in put)
    await asyncio.gather(*map(Task.xq.aio.ack, taken))
    assert await Task.xq.aio.take(timeout=0.01) is None
    assert Task.xq.waiting() == []
    assert Task.stats().transition == {"X-R": 1000, "R-T": 1000, "T-D": 1000}


@in_a_loop
async def test_the_end_of_a_task_is_awaited_and_so_is_room(make_db):
    Task = make_db({"keep": True, "limit": 1})
    aio = Task.xq.aio
    asked = asyncio.create_task(aio.put(task(name="a"), wait=PATIENCE))
    taken = await aio.take(timeout=PATIENCE)
    also = asyncio.create_task(aio.wait(taken, PATIENCE))
    await waiters(Task, 2)
    with pytest.raises(xq.Full):
        await aio.put({}, timeout=0.01)
    put = asyncio.create_task(aio.put(task(name="late"), timeout=PATIENCE))
    await asyncio.sleep(0)
    await aio.ack(taken)
    for waited in (await asked, await also):
        assert (waited[0].name, waited[0].status, waited[1]) == ("a", "D", True)
    late = await put
    assert (await aio.wait(late, 0.01))[1] is False


@in_a_loop
async def test_cancelled_takes_lose_no_task_and_double_none(make_live):
    Task, chance = make_live({"keep": True}, roles=("runat", "attempts")), random.Random(7)
    acked = Counter[int]()

    async def take(timeout: float | None) -> None:
        taken = await Task.xq.aio.take(timeout=timeout)
        if taken is not None:
            acked[(await asyncio.shield(Task.xq.aio.ack(taken))).id] += 1

    for _ in range(10):
        takes = [asyncio.create_task(take(chance.choice([0, PATIENCE]))) for _ in range(100)]
        puts = [asyncio.create_task(Task.xq.aio.put({})) for _ in range(50)]
        for each in takes:
            if chance.random() < 0.5:
                await asyncio.sleep(chance.choice([0, 0, 0.0005]))
            each.cancel()
        await asyncio.gather(*takes, return_exceptions=True)
        await asyncio.gather(*puts)
    # An ack whose caller was cancelled may still be on its way, and so may the release of a task.
    while (await Task.xq.aio.stats()).counts["T"]:
        await asyncio.sleep(0.01)
    while taken := await Task.xq.aio.take():
        await Task.xq.aio.ack(taken)
    assert max(acked.values(), default=1) == 1
    stats = Task.stats()
    assert stats.counts == {"R": 0, "T": 0, "D": 500}
    assert stats.transition["T-D"] == 500
    assert {task.attempts for task in Task.select()} == {1}
    assert Task.xq.waiting() == []
    assert is_exact(Task)


async def put_and_fail(Task: Any, name: str, entered: asyncio.Event | None = None) -> None:
    async with Task.xq.aio.atomic():
        await Task.xq.aio.put(task(name=name, size=0))
        if entered:
            entered.set()
        await asyncio.sleep(0.02)
        raise ZeroDivisionError


@in_a_loop
async def test_a_block_of_atomic_commits_as_a_whole(make_live):
    Task = make_live()
    async with Task.xq.aio.atomic():
        await Task.xq.aio.put(task(name="a"))
        taken = await Task.xq.aio.take()
        await Task.xq.aio.transaction(lambda: Task.update(size=7).execute())
        await Task.xq.aio.release(taken)
    for cancelled in (False, True):
        entered = asyncio.Event()
        failing = asyncio.create_task(put_and_fail(Task, "b", entered))
        await entered.wait()
        if cancelled:
            failing.cancel()
        await Task.xq.aio.put(task(name="other", size=0))  # which is no part of the block
        with pytest.raises(asyncio.CancelledError if cancelled else ZeroDivisionError):
            await failing
    async with Task.xq.aio.atomic():
        with pytest.raises(ZeroDivisionError):
            await put_and_fail(Task, "c")
        await Task.xq.aio.put(task(name="d", size=0))
    found = [(each.name, each.size) for each in Task.select().order_by(Task.id)]
    assert found == [("a", 7), ("other", 0), ("other", 0), ("d", 0)]
    assert is_exact(Task)


@in_a_loop
async def test_waiting_in_a_block_is_refused(make_live):
    Task = make_live({"limit": 9})
    async with Task.xq.aio.atomic():
        put = await Task.xq.aio.put({})
        for wait in (
            lambda: Task.xq.aio.take(timeout=1),
            lambda: Task.xq.aio.wait(put, 1),
            lambda: Task.xq.aio.put({}, wait=1),
            lambda: Task.xq.aio.put({}, timeout=1),
        ):
            with pytest.raises(xq.InTransaction):
                await wait()
        assert await Task.xq.aio.take()
    assert Task.stats().counts["T"] == 1


@in_a_loop
async def test_coroutines_take_by_their_own_sessions(make_db):
    Task = make_db({"keep": True})
    await Task.xq.aio.put_many(tasks(2))
    async with Task.xq.aio.session() as mine:
        taken = await Task.xq.aio.take()
        assert (await Task.xq.aio.current_session()).uuid == mine.uuid
        assert [session for _, session, _ in await Task.xq.aio.taken()] == [mine.uuid]
    with pytest.raises(xq.WrongState):  # the end of the session has released it
        await Task.xq.aio.ack(taken)

    async def one() -> str:
        async with Task.xq.aio.session() as session:
            assert (await Task.xq.aio.take()).status == "T"
            return str(session.uuid)

    assert len({(await Task.xq.aio.current_session()).uuid, *await asyncio.gather(one(), one())}) == 3


def test_event_loops_may_follow_one_another(make_db):
    Task = make_db()
    for n in range(3):
        run(Task.xq.aio.put(task(name=str(n))))
    assert [each.name for each in run(Task.xq.aio.take_many(5))] == ["0", "1", "2"]
