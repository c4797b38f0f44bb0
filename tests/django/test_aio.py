"""`Order.xq.aio`: asyncio by Django's own rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from tests.django.conftest import forget_connections
from tests.steps import PATIENCE


@pytest.fixture
def Task(make: Any) -> Iterator[Any]:
    yield make({"keep": True})
    # Django keeps one thread for the calls of coroutines, whose connection is to the database of this test.
    asyncio.run(sync_to_async(forget_connections)())


def test_a_coroutine_puts_takes_and_acks(Task):
    async def main() -> None:
        with pytest.raises(SynchronousOnlyOperation):
            Task.put({})
        put = await Task.xq.aio.put({"name": "a"})
        assert (await Task.objects.aget(name="a")).pk == put.pk
        taken = await Task.xq.aio.take()
        assert (await Task.xq.aio.ack(taken, update={"name": "b"})).name == "b"
        assert await sync_to_async(lambda: connection.connection is not None)()  # the thread of Django's own methods
        with suppress(ZeroDivisionError):
            async with Task.xq.aio.atomic():
                await Task.xq.aio.put({})
                raise ZeroDivisionError
        assert await Task.objects.acount() == 1

    asyncio.run(main())


def test_in_a_transaction_of_the_thread_a_coroutine_sees_it_and_is_part_of_it(Task):
    async def put() -> int:
        await asyncio.gather(*(Task.xq.aio.put({}) for _ in range(3)))
        async with Task.xq.aio.atomic():
            await Task.xq.aio.put({})
        return int((await Task.xq.aio.stats()).counts["R"])

    with transaction.atomic():
        Task.put({})
        assert async_to_sync(put)() == 5
        transaction.set_rollback(True)
    assert Task.objects.count() == 0


def test_each_coroutine_has_its_own_actor(make):
    Task = make({"history": True})

    async def put(name: str) -> None:
        with Task.xq.acting(name):
            await Task.xq.aio.put({"name": name})

    async def main() -> None:
        await asyncio.gather(*map(put, ("ann", "ben", "cy")))
        await sync_to_async(forget_connections)()

    asyncio.run(main())
    assert {row.actor for row in Task.xq.history()} == {"ann", "ben", "cy"}


def test_a_take_waits_without_occupying_the_thread(Task):
    async def main() -> None:
        takes = [asyncio.create_task(Task.xq.aio.take(timeout=PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        put = [await Task.xq.aio.put({}) for _ in range(3)]
        assert sorted([(await take).pk for take in takes]) == [each.pk for each in put]

    asyncio.run(main())
