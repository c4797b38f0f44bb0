"""Steps of a worker's function in a session of its own: what a step writes and its record are one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.orm import Session
from tests.sqlalchemy.in_loop import engine
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_async_worker_session import DRIVERS


class Failed(Exception):
    pass


@pytest.fixture(params=["def", "async def"])
def shop(request: Any, shared_db: Any) -> Iterator[Any]:
    """A shop whose workers have sessions, or asynchronous ones: `run` runs a function written as an `async def`."""
    awaits = request.param == "async def"
    asynchronous = engine(shared_db, DRIVERS[type(shared_db)], poolclass=sa.NullPool) if awaits else None
    made: Any = Shop(shared_db, asynchronous, steps=True)
    made.awaits = awaits

    def runs(function: Any, **options: Any) -> str:
        """Run a function of an order, and of what does a step, waits and flushes as the kind of session needs it."""
        made.orders.handlers.clear()
        options = {"session": made.Session, "backoff": [0], "max_attempts": 3, **options}
        if awaits:
            made.orders.worker(_awaited(function), **options)
            asyncio.run(made.orders.aio.run(until_empty=True))
        else:
            made.orders.worker(_plain(function), **options)
            made.orders.run(until_empty=True)
        return str(made.states())

    made.run = runs
    yield made
    made.engine.dispose()


def _plain(function: Any) -> Any:
    def work(order: Any, session: Any) -> None:
        for call, *given in function(order, session):
            call(*given)

    return work


def _awaited(function: Any) -> Any:
    async def work(order: Any, session: Any) -> None:
        for call, *given in function(order, session):
            if call in (xq.step, xq.sleep, xq.wait_for):
                await {xq.step: _step, xq.sleep: _sleep, xq.wait_for: _wait}[call](*given)
            elif asyncio.iscoroutine(found := call(*given)):
                await found

    async def _step(*given: Any) -> Any:
        return await xq.step(*given)

    async def _sleep(*given: Any) -> Any:
        return await xq.sleep(*given)

    async def _wait(*given: Any) -> Any:
        return await xq.wait_for(*given)

    return work


def test_what_a_step_has_written_stays_and_what_comes_after_it_is_undone(shop):
    failed = list[int]()

    def pays(order: Any, session: Any) -> Any:
        yield xq.step, "pay", lambda: session.add(shop.Payment(order_id=order.id))
        order.cents += 5
        session.add(shop.Payment(order_id=order.id))
        yield (session.flush,)
        if not failed:
            failed.append(order.id)
            raise Failed

    shop.orders.put({"cents": 1})
    assert (shop.run(pays), shop.paid(), shop.orders.peek(1).cents) == ("D", [1, 1], 6)
    assert failed == [1]


def test_what_is_changed_after_a_step_is_committed_with_the_ack_without_a_flush(shop):
    def work(order: Any, session: Any) -> Any:
        yield xq.step, "a", print
        order.cents = 7
        session.add(shop.Payment(order_id=order.id))

    shop.orders.put({"cents": 1})
    assert (shop.run(work, max_attempts=1), shop.orders.peek(1).cents, shop.paid()) == ("D", 7, [1])


def test_a_function_that_commits_its_task_in_a_session_of_its_own_goes_on_with_its_records(shop):
    if shop.awaits:
        return
    calls, again = list[Any](), list[Any]()

    @shop.orders.worker(backoff=[0], max_attempts=2)
    def work(order: Any) -> None:
        with Session(shop.engine) as session:
            session.add(order)
            order.cents += 1
            session.commit()  # which expires the order
        xq.step("a", calls.append, "a")
        if not again:
            again.append(True)
            raise Failed

    shop.orders.put({"cents": 0})
    shop.orders.run(until_empty=True)
    assert (shop.states(), calls, shop.orders.peek(1).cents) == ("D", ["a"], 2)


def test_steps_side_by_side_in_one_session_take_turns(shop):
    def pays(session: Any, order: Any, n: int) -> int:
        session.add(shop.Payment(order_id=order.id))
        return n

    def work(order: Any, session: Any) -> Any:
        async def all_of_them() -> None:
            own = session if not hasattr(session, "sync_session") else session.sync_session
            found = await asyncio.gather(*(xq.step(f"s{n}", pays, own, order, n) for n in range(5)))
            assert found == [*range(5)]

        yield (all_of_them,) if shop.awaits else (lambda: asyncio.run(all_of_them()),)
        if not order.cents:
            order.cents = 1
            raise Failed

    shop.orders.put({"cents": 0})
    assert (shop.run(work, max_attempts=2), shop.paid()) == ("B", [1] * 5)


def test_a_plain_function_has_no_steps_in_a_session_that_is_awaited(shop):
    def helper() -> None:
        xq.step("a", print)

    def work(order: Any, session: Any) -> Any:
        yield (helper,)

    shop.orders.put({"cents": 1})
    assert shop.run(work, max_attempts=1) == ("B" if shop.awaits else "D")
    if shop.awaits:
        assert "the session of the worker's function is awaited" in shop.why()


def test_a_step_commits_without_expiring_what_the_function_has_and_makes_the_calls_that_wait_for_it(shop):
    calls = list[Any]()

    def work(order: Any, session: Any) -> Any:
        xq.after_commit(calls.append, "first")
        yield xq.step, "a", calls.append, "a"
        calls.append((order.cents, sa.inspect(order).expired))  # a coroutine could not load it
        xq.after_commit(calls.append, "second")
        calls.append("end")

    shop.orders.put({"cents": 3})
    assert shop.run(work) == "D"
    assert calls == ["a", "first", (3, False), "end", "second"]


def test_a_sleep_undoes_what_was_written_since_the_last_step(shop):
    def work(order: Any, session: Any) -> Any:
        yield xq.step, "pay", lambda: session.add(shop.Payment(order_id=order.id))
        session.add(shop.Payment(order_id=order.id))
        yield (session.flush,)
        yield xq.sleep, "cool off", 86_400

    shop.orders.put({"cents": 1})
    assert (shop.run(work), shop.paid()) == ("W", [1])
    shop.orders.restart(1)
    assert (shop.run(work), shop.paid()) == ("D", [1, 1])


def test_a_wait_goes_on_with_the_value_of_its_signal_and_next_drops_records(shop):
    seen = list[Any]()

    def waits(order: Any, session: Any) -> Any:
        yield xq.step, "a", seen.append, "a"
        yield xq.wait_for, "approved"
        if order.stage is None:
            raise xq.Next("other")

    shop.orders.put({"cents": 1})
    assert shop.run(waits) == "W"
    if shop.awaits:
        asyncio.run(shop.orders.aio.signal(1, "approved"))
    else:
        with Session(shop.engine) as session:
            assert shop.orders.signal(1, "approved", on=session) is True
            session.rollback()
        assert shop.states() == "W"
        with Session(shop.engine) as session, session.begin():
            shop.orders.signal(1, "approved", on=session)
    assert (shop.run(waits), seen) == ("D", ["a", "a"])


def test_who_has_lost_the_task_commits_nothing(shop):
    errors = list[Any]()

    def work(order: Any, session: Any) -> Any:
        session.add(shop.Payment(order_id=order.id))
        if not errors:
            if shop.awaits:
                yield shop.orders.aio.snatch, order.id
            else:
                shop.orders.snatch(order.id)
            try:
                yield xq.step, "a", print
            finally:
                errors.append(shop.paid())

    shop.orders.put({"cents": 1})
    assert (shop.run(work), shop.paid(), errors) == ("D", [1], [[]])


def test_a_step_within_a_savepoint_is_refused(shop):
    def work(order: Any, session: Any) -> Any:
        inner = session.begin_nested()
        yield (inner.start,) if shop.awaits else (lambda: None,)
        yield xq.step, "a", print

    shop.orders.put({"cents": 1})
    assert shop.run(work, max_attempts=1) == "B"
    assert "call it outside of begin_nested()" in shop.why()
