"""`Page.xq.aio`: the methods of a queue for asyncio."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, Maker, live
from tests.factories import task, tasks
from tests.steps import PATIENCE, STUCK, eventually, is_exact

IN_MEMORY = True  # the tests run on a database in memory as well, which only the thread of the event loop reaches

# What no coroutine needs: it calls no database, runs until the program ends, or belongs into a `transaction`.
NOT_THERE = {"worker", "run", "on_change", "off_change", "acting"}
THREADS = 8  # that a program has at most, besides the threads that were there: callers, maintenance, a timer


@pytest.fixture
def make_db(db: pw.Database) -> Maker:
    """Makes queues by the database's own clock."""
    return live(db)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a program, up to STUCK seconds."""

    async def limited() -> Any:
        async with asyncio.timeout(STUCK):
            return await main

    return asyncio.run(limited())


async def until(condition: Callable[[], Any]) -> None:
    """Poll until a condition holds."""
    while not condition():
        await asyncio.sleep(0.005)


async def waiters(Task: Any, n: int) -> None:
    """Poll until so many takes wait."""
    while sum(key is None for key, *_ in await Task.xq.aio.waiting()) != n:
        await asyncio.sleep(0.005)


# every method


def test_every_method_that_calls_the_database_is_there_with_the_same_arguments_and_words():
    methods = {
        name: method
        for name, method in inspect.getmembers(xq.Queue, inspect.isfunction)
        if not name.startswith("_") and name not in NOT_THERE
    }
    twins = dict(inspect.getmembers(type(unbound().aio), inspect.isfunction))
    for name, method in methods.items():
        there, here = inspect.signature(method).parameters, inspect.signature(twins[name]).parameters
        assert list(here) == list(there), name
        assert [each.default for each in here.values()] == [each.default for each in there.values()], name
        assert twins[name].__doc__, name


def unbound() -> Any:
    """A queue that is bound to no database yet."""
    return xq.upgrade(live(None).model(), {"status": "status"})  # type: ignore[arg-type]


def test_a_queue_is_paused_and_has_schedules_and_operations(make_db):
    Task = make_db({"keep": True, "buried": "any", "history": True})

    async def main() -> None:
        aio = Task.xq.aio
        assert await aio.every(3600, {"size": 1, "name": "a"}, name="each hour") == "each hour"
        assert [each.name for each in await aio.schedules()] == ["each hour"]
        assert await aio.unschedule("each hour")
        put = await aio.put(task())
        await aio.pause()
        assert await aio.paused() == [None]
        assert await aio.take() is None
        taking = asyncio.create_task(aio.take(timeout=PATIENCE))
        await waiters(Task, 1)
        await aio.resume()
        assert (await taking).id == put.id
        await aio.put_many(tasks(5))
        operation = await aio.act("bury", "state:R", actor="ann", chunk=2)
        while await aio.transaction(operation.step):
            pass
        assert [each.done for each in await aio.operations()] == [5]

    run(main())
    assert [row.actor for row in Task.xq.history() if row.event == "bury"] == ["ann"] * 5


def test_the_other_methods_do_what_their_twins_do(make_db):
    features = {"buried": True, "delayed": True, "keep": True, "ttr": 60, "history": True}
    Task = make_db(features, roles=("runat", "tube"))

    async def main() -> None:
        aio = Task.xq.aio
        put = await aio.put_many(tasks(6, tube="a"))
        assert [each.id for each in await aio.take_many(6, tube="a")] == [each.id for each in put]
        first, *others = put
        assert (await aio.touch(first, 5)).status == "T"
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

    run(main())


def test_wrong_arguments_are_refused_as_by_the_queue(make_db):
    Task = make_db()

    async def main() -> None:
        for wrong, error in [
            (lambda: Task.xq.aio.put({"nothing": 1}), xq.BadValue),
            (lambda: Task.xq.aio.put({}, delay=[]), xq.FeatureOff),
            (lambda: Task.xq.aio.take(timeout=-1), xq.BadValue),
            (lambda: Task.xq.aio.take(tube="a"), xq.FeatureOff),
            (lambda: Task.xq.aio.take_many("a"), xq.BadType),
            (lambda: Task.xq.aio.ack(1), xq.NotFound),
            (lambda: Task.xq.aio.put({}, wait=1, timeout=1), xq.BadValue),
        ]:
            with pytest.raises(error):
                await wrong()

    run(main())
    with pytest.raises(xq.ConfigurationError, match="aio is 'loop' or 'thread', not 'process'"):
        make_db(model=make_db.model(table_name="other"), aio="process")


# turns of the event loop


def test_calls_of_one_turn_return_their_own_tasks_and_raise_their_own_errors(make_db):
    Task = make_db({"keep": True}, key=pw.IntegerField(primary_key=True))

    async def main() -> None:
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

    run(main())
    assert is_exact(Task)


def test_calls_of_one_turn_share_a_transaction_and_equal_ones_a_statement(tmp_path):
    # Of the drivers, only sqlite3 lists its statements; with a database in memory the loop has no other connection.
    with DATABASES["sqlite"](tmp_path) as db:
        Task, seen = live(db)({"keep": True}), list[str]()

        async def main() -> None:
            await Task.xq.aio.put({})
            assert await Task.xq.aio.take()
            db.connection().set_trace_callback(seen.append)
            await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(5)), *(Task.xq.aio.take() for _ in range(3)))
            db.connection().set_trace_callback(None)

        run(main())
        # sqlite3 lists a statement again for each of its triggers.
        assert (seen.count("BEGIN IMMEDIATE"), seen.count("COMMIT")) == (1, 1)
        assert len({sql for sql in seen if sql.startswith('INSERT INTO "task" ')}) == 1
        assert Task.stats().counts == {"R": 2, "T": 4, "D": 0}


def test_other_coroutines_run_between_the_transactions_of_many_calls(tmp_path):
    with DATABASES["sqlite"](tmp_path) as db:
        Task, seen = live(db)(), list[str]()

        async def tick(calls: asyncio.Future[Any]) -> None:
            while not calls.done():
                seen.append("tick")
                await asyncio.sleep(0)

        async def main() -> None:
            await Task.xq.aio.put({})
            db.connection().set_trace_callback(seen.append)
            calls = asyncio.gather(*(Task.xq.aio.put({}) for _ in range(200)))
            await asyncio.gather(calls, tick(calls))
            db.connection().set_trace_callback(None)

        run(main())
        course = [each for each in seen if each in ("COMMIT", "tick")]
        commits = [at for at, each in enumerate(course) if each == "COMMIT"]
        assert len(commits) == 4  # of 64 calls each at most
        assert all("tick" in course[one:other] for one, other in itertools.pairwise(commits))


def test_the_event_loop_goes_on_while_another_connection_writes(make_live):
    Task, ticks = make_live(), list[float]()
    began, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with make_live.db.atomic():
            Task.put({})
            began.set()
            go_on.wait(STUCK)
        make_live.db.close()

    async def tick() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            ticks.append(time.monotonic())
        go_on.set()

    async def main() -> None:
        await Task.xq.aio.put({})
        thread = threading.Thread(target=write)
        thread.start()
        await until(began.is_set)
        await asyncio.gather(Task.xq.aio.put({}), Task.xq.aio.put({}), tick())
        await until(lambda: not thread.is_alive())

    run(main())
    assert len(ticks) == 20
    assert Task.xq.count() == 4


@pytest.mark.parametrize("aio", ["loop", "thread"])
def test_the_loop_has_no_connection_for_a_take_of_many_tasks_nor_with_aio_thread(make_live, aio):
    Task = make_live(aio=aio)
    Task.xq.put_many(tasks(70))
    make_live.db.close()

    async def main() -> None:
        assert len(await Task.xq.aio.take_many(65)) == 65
        if aio == "thread":
            await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(3)))
            assert await Task.xq.aio.take()
        assert make_live.db.is_closed()
        assert len(await Task.xq.aio.take_many(64)) == (7 if aio == "thread" else 5)

    run(main())


@pytest.mark.parametrize("shared_db", ["mariadb"], indirect=True)
def test_a_deadlock_in_a_turn_takes_no_call_back_that_has_returned(make_live):
    Task = make_live({"keep": True, "buried": True})
    Task.xq.put_many(tasks(200))
    first, second = Task.xq.take_many(2)
    wrote, crosses = threading.Event(), threading.Event()

    def write() -> None:
        with make_live.db.connection_context(), make_live.db.atomic():
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

    thread = threading.Thread(target=write)
    thread.start()
    assert wrote.wait(PATIENCE)
    run(main())
    thread.join()
    assert [Task.xq.peek(each).status for each in (first, second)] == ["D", "B"]


# waiting


def test_a_thousand_takes_wait_in_few_threads_and_each_gets_a_task(make_live):
    Task, before = make_live({"keep": True}), threading.active_count()

    async def main() -> None:
        takes = [asyncio.create_task(Task.xq.aio.take(timeout=PATIENCE)) for _ in range(1000)]
        await waiters(Task, 1000)
        assert threading.active_count() - before <= THREADS
        put = await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(1000)))
        taken = await asyncio.gather(*takes)
        assert sorted(each.id for each in taken) == sorted(each.id for each in put)
        await asyncio.gather(*map(Task.xq.aio.ack, taken))
        assert await Task.xq.aio.take(timeout=0.01) is None
        assert await Task.xq.aio.take_many(3, timeout=0.01) == []

    run(main())
    assert Task.xq.waiting() == []
    assert Task.stats().transition == {"X-R": 1000, "R-T": 1000, "T-D": 1000}


def test_the_end_of_a_task_is_awaited(make_db):
    Task = make_db({"keep": True})

    async def main() -> None:
        asked = asyncio.create_task(Task.xq.aio.put(task(name="a"), wait=PATIENCE))
        taken = await Task.xq.aio.take(timeout=PATIENCE)
        also = asyncio.create_task(Task.xq.aio.wait(taken, PATIENCE))
        while len(await Task.xq.aio.waiting()) < 2:
            await asyncio.sleep(0.005)
        await Task.xq.aio.ack(taken)
        for waited in (await asked, await also):
            assert (waited[0].name, waited[0].status, waited[1]) == ("a", "D", True)
        other = await Task.xq.aio.put({})
        assert (await Task.xq.aio.wait(other, 0.01))[1] is False

    run(main())


def test_a_put_waits_for_room(make_db):
    Task = make_db({"limit": 1})

    async def main() -> None:
        await Task.xq.aio.put({})
        with pytest.raises(xq.Full):
            await Task.xq.aio.put({})
        with pytest.raises(xq.Full):
            await Task.xq.aio.put({}, timeout=0.01)
        put = asyncio.create_task(Task.xq.aio.put(task(name="late"), timeout=PATIENCE))
        await asyncio.sleep(0)
        await Task.xq.aio.ack(await Task.xq.aio.take())
        assert (await put).name == "late"

    run(main())


# cancelled


def test_cancelled_takes_lose_no_task_and_double_none(make_live):
    Task, chance = make_live({"keep": True}), random.Random(7)

    async def main() -> None:
        acked = Counter[int]()

        async def take(timeout: float | None) -> None:
            taken = await Task.xq.aio.take(timeout=timeout)
            if taken is not None:
                acked[(await asyncio.shield(Task.xq.aio.ack(taken))).id] += 1

        async def cancel_some(takes: list[asyncio.Task[None]]) -> None:
            for each in takes:
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.choice([0, 0, 0.0005]))
                each.cancel()

        for _ in range(10):
            takes = [asyncio.create_task(take(chance.choice([0, PATIENCE]))) for _ in range(100)]
            puts = [asyncio.create_task(Task.xq.aio.put({})) for _ in range(50)]
            await cancel_some(takes)
            await asyncio.gather(*takes, return_exceptions=True)
            await asyncio.gather(*puts)
        # An ack whose caller was cancelled may still be on its way, and so may the release of a task.
        while (await Task.xq.aio.stats()).counts["T"]:
            await asyncio.sleep(0.01)
        while taken := await Task.xq.aio.take():
            await Task.xq.aio.ack(taken)
        assert max(acked.values(), default=1) == 1

    run(main())
    stats = Task.stats()
    assert stats.counts == {"R": 0, "T": 0, "D": 500}
    assert stats.transition["T-D"] == 500
    assert Task.xq.waiting() == []
    assert is_exact(Task)


def test_a_task_of_a_cancelled_take_is_released_to_its_place(make_db):
    Task = make_db()

    async def main() -> None:
        put = await Task.xq.aio.put_many(tasks(5))
        takes = [asyncio.create_task(Task.xq.aio.take()) for _ in range(3)]
        await asyncio.sleep(0)  # they have begun
        for each in takes:
            each.cancel()
        ended = await asyncio.gather(*takes, return_exceptions=True)
        kept = {each.id for each in ended if isinstance(each, Task)}
        while True:  # a cancelled take may still be on its way
            rest = await Task.xq.aio.take_many(5)
            if [each.id for each in rest] == [each.id for each in put if each.id not in kept]:
                break
            await Task.xq.aio.release_many(rest)
            await asyncio.sleep(0.005)

    run(main())


def test_a_task_that_a_cancelled_take_has_got_is_ready_again(make_live):
    Task = make_live(aio="thread")

    async def main() -> None:
        await Task.xq.aio.put({})
        take = asyncio.create_task(Task.xq.aio.take())
        for _ in range(5):
            await asyncio.sleep(0)  # until its turn is over and a thread has it
        deadline = time.monotonic() + PATIENCE
        while not Task.xq.stats().counts["T"] and time.monotonic() < deadline:
            pass  # the loop does not run meanwhile, so the result waits for it
        assert Task.xq.stats().counts["T"] == 1
        take.cancel()
        with pytest.raises(asyncio.CancelledError):
            await take
        await until(lambda: Task.xq.stats().counts["R"] == 1)

    run(main())


def test_a_take_with_a_timeout_of_asyncio_gives_its_place_to_the_next(make_live):
    Task = make_live()

    async def main() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(Task.xq.aio.take(timeout=None), 0.05)
        take = asyncio.create_task(Task.xq.aio.take(timeout=PATIENCE))
        await waiters(Task, 1)
        put = await Task.xq.aio.put({})
        assert (await take).id == put.id

    run(main())


# transactions and sessions


async def put_and_fail(Task: Any, name: str, then: Callable[[], None] = lambda: None) -> None:
    async with Task.xq.aio.atomic():
        await Task.xq.aio.put(task(name=name, size=0))
        then()
        await asyncio.sleep(0.02)
        raise ZeroDivisionError


def test_a_block_of_atomic_commits_as_a_whole(make_db):
    Task = make_db()

    async def main() -> None:
        async with Task.xq.aio.atomic():
            await Task.xq.aio.put(task(name="a"))
            taken = await Task.xq.aio.take()
            await Task.xq.aio.transaction(lambda: Task.update(size=7).execute())
            await Task.xq.aio.release(taken)
        with pytest.raises(ZeroDivisionError):
            await put_and_fail(Task, "b")
        async with Task.xq.aio.atomic():
            with pytest.raises(ZeroDivisionError):
                await put_and_fail(Task, "c")
            await Task.xq.aio.put(task(name="d", size=0))

    run(main())
    assert [(each.name, each.size == 7) for each in Task.select().order_by(Task.id)] == [("a", True), ("d", False)]
    assert is_exact(Task)


def test_a_call_of_another_coroutine_is_no_part_of_a_block(make_db):
    Task = make_db()

    async def main() -> None:
        entered, put = asyncio.Event(), list[Any]()

        async def another() -> None:
            await entered.wait()
            put.append(await Task.xq.aio.put(task(name="other")))

        other = asyncio.create_task(another())
        with pytest.raises(ZeroDivisionError):
            await put_and_fail(Task, "mine", entered.set)
        await other
        assert put[0].name == "other"

    run(main())
    assert [each.name for each in Task.select()] == ["other"]


def test_a_cancelled_block_is_rolled_back(make_db):
    Task = make_db()

    async def main() -> None:
        entered = asyncio.Event()

        async def block() -> None:
            async with Task.xq.aio.atomic():
                await Task.xq.aio.put({})
                entered.set()
                await asyncio.sleep(STUCK)

        running = asyncio.create_task(block())
        await entered.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await Task.xq.aio.put({})

    run(main())
    assert Task.select().count() == 1


def test_waiting_in_a_block_is_refused(make_db):
    Task = make_db({"limit": 9})

    async def main() -> None:
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

    run(main())
    assert Task.stats().counts["T"] == 1


def test_coroutines_take_by_their_own_sessions(make_db):
    Task = make_db({"keep": True})

    async def main() -> None:
        await Task.xq.aio.put_many(tasks(2))
        async with Task.xq.aio.session() as mine:
            taken = await Task.xq.aio.take()
            assert (await Task.xq.aio.current_session()).uuid == mine.uuid
            assert [session for _, session, _ in await Task.xq.aio.taken()] == [mine.uuid]
        with pytest.raises(xq.WrongState):  # the end of the session has released it
            await Task.xq.aio.ack(taken)
        assert (await Task.xq.aio.current_session()).uuid != mine.uuid

        async def one() -> Any:
            async with Task.xq.aio.session() as session:
                return (await Task.xq.aio.take()).id, session.uuid, [s for _, s, _ in await Task.xq.aio.taken()]

        first, second = await asyncio.gather(one(), one())
        assert first[1] != second[1]

    run(main())
    eventually(lambda: Task.stats().counts["R"] == 2)


# loops, threads, processes


def test_event_loops_may_follow_one_another(make_db):
    Task = make_db()
    for n in range(3):
        run(Task.xq.aio.put(task(name=str(n))))

    async def forget() -> None:
        asyncio.ensure_future(Task.xq.aio.take(timeout=None))  # noqa: RUF006 (which the end of the loop cancels)
        await asyncio.sleep(0)

    run(forget())
    names = list[str]()

    def all_taken() -> bool:  # a thread may still release what the cancelled take has taken
        names.extend(each.name for each in run(Task.xq.aio.take_many(5)))
        return len(names) == 3

    eventually(all_taken)
    assert sorted(names) == ["0", "1", "2"]


def test_a_forked_child_has_threads_of_its_own(make_live):
    Task = make_live()

    async def main() -> int:
        await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(3)))
        return len(await Task.xq.aio.by_state("R"))

    assert run(main()) == 3
    child = os.fork()
    if child == 0:
        try:
            os._exit(run(main()))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
    assert run(main()) == 9


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python warns of such a coroutine
def test_a_block_whose_event_loop_is_closed_is_rolled_back(make_live):
    Task, begun = make_live(), asyncio.Event()

    async def abandoned() -> None:
        async with Task.xq.aio.atomic():
            await Task.xq.aio.put(task())
            begun.set()
            await asyncio.sleep(PATIENCE)

    loop = asyncio.new_event_loop()
    running = loop.create_task(abandoned())
    loop.run_until_complete(begun.wait())
    loop.close()
    del running
    gc.collect()

    async def committed() -> None:
        async with Task.xq.aio.atomic():
            await Task.xq.aio.put(task())

    asyncio.run(committed())
    with make_live.db.connection_context():
        assert Task.select().count() == 1
        assert is_exact(Task)
