"""A shop on FastAPI and SQLAlchemy: a request puts an order in its session, and a worker beside it books the order.

python examples/fastapi_sqlalchemy/shop.py    serves it: open http://127.0.0.1:8000/docs, and end it by Ctrl-C
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import sqlalchemy as sa
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Response
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import xq
from xq.adapters.sqlalchemy import upgrade

log = logging.getLogger("shop")
make_session = async_sessionmaker(expire_on_commit=False)  # the engine is made when the program starts


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"
    name: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    owes: Mapped[int] = mapped_column(default=0)  # cents


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(sa.ForeignKey(Customer.name))
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(sa.String(10), default="draft")


orders = upgrade(
    Order,
    fields={"status": Order.state, "attempts": True, "error": True},
    features={"delayed": True, "buried": True, "keep": True, "ttr": 60},
    statuses={"R": "new", "T": "booking", "W": "later", "B": "failed", "D": "booked"},
)


@orders.worker(session=make_session, workers=20, max_attempts=5)
async def book(order: Order, session: AsyncSession) -> None:
    """Book an order. Its customer's debt and the ack are one transaction; the mail goes out after it."""
    if order.cents > 100_000:
        raise xq.Bury("too expensive: check it by hand")
    add = sa.update(Customer).where(Customer.name == order.customer).values(owes=Customer.owes + order.cents)
    await session.execute(add)
    xq.after_commit(mail, order.customer, order.id)


async def mail(customer: str, order: int) -> None:
    log.info("a mail to %s: order %s is booked", customer, order)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///shop.db"))
    make_session.configure(bind=engine)
    orders.bind(engine)
    async with engine.begin() as connection:  # a real shop has migrations: see docs/start/sqlalchemy.md
        await connection.run_sync(Base.metadata.create_all)
    await orders.aio.install()
    workers = asyncio.create_task(orders.aio.run())
    yield
    workers.cancel()  # the worker books the orders that it has taken, and takes no more
    with suppress(asyncio.CancelledError):
        await workers
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def request_session() -> AsyncIterator[AsyncSession]:
    """One transaction for each request: it commits before the response is sent, and an error rolls it back."""
    async with make_session.begin() as session:
        yield session


RequestSession = Annotated[AsyncSession, Depends(request_session, scope="function")]


@app.post("/orders", status_code=201)
async def buy(customer: str, cents: int, session: RequestSession) -> dict[str, object]:
    if await session.get(Customer, customer) is None:
        session.add(Customer(name=customer))
        await session.flush()
    order = await orders.aio.put(Order(customer=customer, cents=cents), on=session)
    if cents <= 0:
        raise HTTPException(422, "an order costs something")  # neither customer nor order are there
    return {"id": order.id, "state": order.state}


@app.get("/orders/{number}")
async def look(number: int, session: RequestSession) -> dict[str, object]:
    if (order := await session.get(Order, number)) is None:
        raise HTTPException(404)
    return {"id": order.id, "state": order.state}


@app.get("/customers/{name}")
async def owes(name: str, session: RequestSession) -> dict[str, object]:
    if (customer := await session.get(Customer, name)) is None:
        raise HTTPException(404)
    return {"name": customer.name, "owes": customer.owes}


@app.get("/health")
async def health(response: Response) -> dict[str, str]:
    health = await orders.aio.health()
    response.status_code = 200 if health.usable else 503  # a buried task is no reason to take the process away
    return {"state": health.state, "why": health.sentence}


if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    uvicorn.run(app)
