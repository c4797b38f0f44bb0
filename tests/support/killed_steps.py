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

import xq
from tests.conftest import Maker
from tests.steps import eventually, forked
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


def killed(db: pw.Database, Order: Any, kills: int, at_once: int = 2, seed: int = 7) -> int:
    """Run programs of workers, and kill each after a random time, until so many are killed and all orders are done."""
    drawn = random.Random(seed)

    def program() -> None:
        Order.xq.run(workers=3)

    done, running = 0, [forked(db, program) for _ in range(at_once)]
    while done < kills:
        time.sleep(drawn.uniform(0.0, 0.12) / at_once)
        victim = running.pop(0)
        kill(victim.pid, signal.SIGKILL)
        victim.join()
        done += 1
        running.append(forked(db, program))
        if not Order.select().where(Order.status != "D").count():
            Order.xq.put_many([{} for _ in range(20)])
        db.close()
    try:
        eventually(lambda: not Order.select().where(Order.status != "D").count(), 60)
    finally:
        for each in running:
            kill(each.pid, signal.SIGKILL)
            each.join()
    return done


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
    from tests.steps import is_exact

    Order, Effect = orders(make), ledger(make.db)
    Order.xq.worker(function(make.db, Effect, in_transaction), backoff=0)
    Order.xq.put_many([{} for _ in range(20)])
    end_threads()
    make.db.close()
    assert killed(make.db, Order, kills) == kills
    found = list(effects(Order, Effect))
    assert found
    wrong = [each for each in found if each[2] != 1] if in_transaction else [each for each in found if each[2] < 1]
    assert wrong == []
    assert is_exact(Order)
    print(f"{kills} kills: {len(found):,} steps, {sum(n - 1 for *_, n in found):,} effects more than one")
