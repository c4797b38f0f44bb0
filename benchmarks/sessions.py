"""Workers with a session of SQLAlchemy beside the same coroutines without a queue: a section of make bench."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.contestants import PAYLOAD, Place, model
from benchmarks.databases import Home
from benchmarks.measure import Numbers, race
from benchmarks.on_django import BARE, OnSqlalchemy
from benchmarks.report import Effort, Section, Table, rate
from tests.sqlalchemy.maker import mapped

N = 20  # coroutines, each with a session


def sessions(effort: Effort, home: Home) -> Table:
    made = OnSqlalchemy(Place(home.new("sessions")), **BARE)
    queue, loop, url = made.queue, asyncio.Runner(), made.engine.url.set(drivername="postgresql+asyncpg")
    settings = {"server_settings": {"synchronous_commit": "off"}}
    make = async_sessionmaker(engine := create_async_engine(url, pool_size=N, connect_args=settings))
    made.db.create_tables([table := model(made.db, "plain")])
    with Session(made.engine, expire_on_commit=False) as session, session.begin():
        session.execute(sa.insert(plain := mapped(table)), [{"payload": PAYLOAD, "priority": 0}] * effort.calls)
        rows = session.scalars(sa.select(plain)).all()

    @queue.worker(session=make, workers=N)
    async def work(task: Any, session: object) -> None:
        task.priority += 1

    async def all_plainly() -> None:
        async def plainly() -> None:
            for row in left:
                async with make.begin() as session:
                    (await session.merge(row, load=False)).priority += 1

        left = iter(rows)
        await asyncio.gather(*(plainly() for _ in range(N)))

    def run(who: str) -> Numbers:
        queue.put_many([{"payload": PAYLOAD}] * (effort.calls if who == "worker" else 0))
        start = time.perf_counter()
        loop.run(queue.aio.run(until_empty=True) if who == "worker" else all_plainly())
        return {"jobs": effort.calls / (time.perf_counter() - start)}

    base, of = race(["no queue", "worker"], run, effort.repetitions).values()
    loop.run(engine.dispose())
    loop.close()
    made.close()
    row = [*(rate(each.median("jobs")) for each in (base, of)), of.times(base, "jobs")]
    return Table(["no queue", "the worker", "of that"], [row])


TEXT = f"Jobs a second of {N} coroutines that change their row in a session (asyncpg). The worker acks there, too."
SECTIONS = [Section("sessions", "Workers with a session of SQLAlchemy", TEXT, sessions, ("postgres",))]
