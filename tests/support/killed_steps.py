"""Programs of workers whose functions have steps, killed with kill -9 at any moment."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from os import kill
from typing import Any

import peewee as pw
import sqlalchemy as sa

import xq
from tests.conftest import Maker
from tests.sqlalchemy import in_loop
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_async_worker_session import DRIVERS
from tests.steps import eventually, forked, is_exact
from tests.support.life import end_threads

FEATURES = {"steps": True, "delayed": True, "buried": True, "keep": True, "ttr": 60}
STEPS = 4


def ledger(db: pw.Database) -> Any:
    class Effect(pw.Model):
        order = pw.IntegerField()
        step = pw.TextField()

        class Meta:
            database = db
            table_name = "effects"

    db.create_tables([Effect])
    return Effect


def orders(make: Maker) -> Any:
    """Orders, each of which keeps in `name` what its steps returned."""
    return make(
        FEATURES, roles=("runat", "attempts"), fields={"status": "status", "runat": "runat", "attempts": "attempts"}
    )


def function(db: pw.Database, Effect: Any, in_transaction: bool) -> Callable[[Any], None]:
    """A worker's function: steps with an effect each, a short sleep, and a wait for a signal that a step sends."""

    def effect(order: Any, name: str) -> str:
        Effect.create(order=order.id, step=name)
        return f"{order.id} {name}"

    def work(order: Any) -> None:
        found = []
        for n in range(STEPS):
            if in_transaction:
                with db.atomic("IMMEDIATE") if isinstance(db, pw.SqliteDatabase) else db.atomic():
                    found.append(xq.step(f"step {n}", effect, order, f"step {n}"))
            else:
                found.append(xq.step(f"step {n}", effect, order, f"step {n}"))
            if n == 1:
                xq.sleep("short", 0.01)
            if n == 2:
                xq.step("send", type(order).xq.signal, order.id, "sent", n)
                found.append(xq.wait_for("sent"))
        order.ack(update={"name": json.dumps(found)})

    return work


def killed(db: pw.Database, queue: Any, program: Callable[[], Any], kills: int, at_once: int = 2) -> None:
    """Run programs of workers, and kill each after a random time, until so many are killed and all orders are done."""
    drawn, running = random.Random(7), [forked(db, program) for _ in range(at_once)]

    def left() -> int:
        counts = queue.stats().counts
        return int(sum(counts.values()) - counts["D"])

    def ends(victim: Any) -> None:
        kill(victim.pid, signal.SIGKILL)
        victim.join()

    for _ in range(kills):
        time.sleep(drawn.uniform(0.0, 0.12) / at_once)
        ends(running.pop(0))
        running.append(forked(db, program))
        if not left():
            queue.put_many([{} for _ in range(20)])
        end_threads()
        queue.parts.store.disconnect()
        db.close()
    try:
        eventually(lambda: not left(), 60)
    finally:
        for each in running:
            ends(each)


def effects(Order: Any, Effect: Any) -> Iterator[tuple[int, str, int]]:
    """Each order's steps, and how often their effect is there."""
    counts = Counter((each.order, each.step) for each in Effect.select())
    for order in Order.select():
        assert json.loads(order.name) == [
            *(f"{order.id} step {n}" for n in range(3)),
            2,
            f"{order.id} step 3",
        ], "the values are those of its own steps"
        assert order.xq_steps is None
        for n in range(STEPS):
            yield order.id, f"step {n}", counts[order.id, f"step {n}"]


def check(make: Maker, kills: int, in_transaction: bool) -> None:
    """Kill so many programs. Each effect is there, and with a transaction exactly once; the statistics are exact."""
    Order, Effect = orders(make), ledger(make.db)
    Order.xq.worker(function(make.db, Effect, in_transaction), backoff=0)
    Order.xq.put_many([{} for _ in range(20)])
    end_threads()
    make.db.close()
    killed(make.db, Order.xq, lambda: Order.xq.run(workers=3), kills)
    found = list(effects(Order, Effect))
    assert found
    wrong = [each for each in found if each[2] != 1] if in_transaction else [each for each in found if each[2] < 1]
    assert wrong == []
    assert is_exact(Order)
    print(f"{kills} kills: {len(found):,} steps, {sum(n - 1 for *_, n in found):,} effects more than one")


def check_sessions(db: pw.Database, kills: int, asynchronous: bool) -> None:
    """Kill so many programs whose functions have sessions of SQLAlchemy: each payment is there exactly once."""
    made = in_loop.engine(db, DRIVERS[type(db)], poolclass=sa.NullPool) if asynchronous else None
    shop: Any = Shop(db, made, steps=True)

    def pays(session: Any, order: Any) -> str:
        session.add(shop.Payment(order_id=order.id))
        return f"{order.id}"

    def work(order: Any, session: Any) -> None:
        for n in range(STEPS):
            assert xq.step(f"step {n}", pays, session, order) == f"{order.id}"
            if n == 1:
                xq.sleep("short", 0.01)
        order.cents += 1

    async def awork(order: Any, session: Any) -> None:
        for n in range(STEPS):
            assert await xq.step(f"step {n}", pays, session, order) == f"{order.id}"
            if n == 1:
                await xq.sleep("short", 0.01)
        order.cents += 1

    shop.orders.worker(awork if asynchronous else work, session=shop.Session, backoff=[0], workers=3)
    shop.orders.put_many([{} for _ in range(20)])
    end_threads()
    shop.engine.dispose()
    db.close()
    killed(db, shop.orders, shop.orders.run, kills)
    with shop.engine.connect() as connection:
        cents = connection.execute(sa.text("SELECT id, cents FROM orders")).fetchall()
    paid = Counter(shop.paid())
    assert {key: (n, paid[key]) for key, n in cents if (n, paid[key]) != (1, STEPS)} == {}
    print(f"{kills} kills: {len(cents):,} orders, {sum(paid.values()):,} payments")
    shop.engine.dispose()
