"""A commit in one process wakes waiters in all others. A waiter survives a server restart and a lost connection."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from tests.conftest import SERVERS, database_on, live
from tests.factories import task
from tests.proxy import Proxy
from tests.steps import PATIENCE, STUCK, another_process, eventually, waiter
from tests.support.servers_fail import own
from xq.database import duties

SOON = 0.05  # seconds until something falls due


@pytest.mark.parametrize("delay", [None, SOON], ids=["ready", "due later"])
def test_a_take_in_another_process_wakes_by_a_task(make_live, delay, monkeypatch):
    monkeypatch.setattr(duties, "FALLBACK", PATIENCE)  # it does not look by itself in time
    Task = make_live({"delayed": True})

    def waits():
        waiting = waiter(Task, lambda: Task.take(timeout=PATIENCE))
        yield "waits"
        yield waiting.result().id

    with another_process(make_live.db, waits) as other:
        assert next(other) == "waits"
        put = Task.put(task(), delay=delay)
        assert next(other) == put.id


@pytest.mark.parametrize("processed", [True, False], ids=["acked", "killed"])
def test_a_wait_in_another_process_is_told_the_end_of_its_task(make_live, processed):
    Task = make_live()

    def waits():
        yield "begun"
        yield Task.xq.put(task(), wait=PATIENCE)[1]

    with another_process(make_live.db, waits) as other:
        assert next(other) == "begun"
        other.post(None)
        eventually(lambda: [key for key, *_ in Task.xq.waiting() if key is not None])
        taken = Task.take()
        taken.ack() if processed else Task.kill(taken.id)
        assert other.hear() is processed


def test_a_queue_that_the_database_refuses_keeps_no_task_of_another_waiting(make_live, monkeypatch, caplog):
    Broken, Task = (make_live({"delayed": True}, model=make_live.model(table_name=name)) for name in ("broken", "task"))
    broken = Broken.xq.parts.maintenance
    assert Broken.take() is Task.take() is None, "both are maintained"
    monkeypatch.setattr(broken.executor.dialect.queries, "times_left", lambda window: ["nothing FROM nowhere"])
    Task.put(task(), delay=SOON)
    eventually(lambda: Task.select().where(Task.status == "R").exists())
    assert "broken cannot expire timers" in caplog.text


def test_a_coroutine_wakes_by_a_put_of_a_thread(make_live):
    Task = make_live()

    def put():
        with make_live.db.connection_context():
            Task.put(task())

    async def main():
        async with asyncio.timeout(STUCK):
            take = asyncio.create_task(Task.xq.aio.take(timeout=PATIENCE))
            while not await Task.xq.aio.waiting():
                await asyncio.sleep(0.01)
            await asyncio.to_thread(put)
            return (await take).id

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("kind", SERVERS.values(), ids=SERVERS)
def test_a_take_outlives_a_restart_of_the_server(kind):
    with own(kind) as server, closing(server.peewee("app")) as db:
        Task = live(db)()
        waiting = waiter(Task, lambda: Task.take(timeout=PATIENCE))
        server.restart("immediate")
        Task.put(task())
        assert waiting.result().id == 1


@pytest.mark.parametrize("kind", SERVERS.values(), ids=SERVERS)
def test_a_connection_that_was_cut_while_nobody_used_it_is_made_anew(kind):
    with database_on(kind) as (its, name), Proxy(its.host, its.port) as proxy:
        db = its.peewee(name, host=proxy.host, port=proxy.port)
        Task = live(db)({"keep": True})
        Task.put(task())
        proxy.cut(db)
        assert Task.take().ack().status == "D"
        db.close()
