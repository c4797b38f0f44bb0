"""A shop on SQLAlchemy, for tests of its workers: orders that are a queue, payments, and sessions."""

from __future__ import annotations

from typing import Any

import peewee as pw

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from xq.adapters.sqlalchemy import upgrade


class Shop:
    def __init__(self, db: pw.Database, asynchronous: AsyncEngine | None = None, **more: Any) -> None:
        class Base(DeclarativeBase):
            pass

        class Order(Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(primary_key=True)
            cents: Mapped[int] = mapped_column(default=0)
            tries: Mapped[int | None]
            why: Mapped[str | None] = mapped_column(sa.Text)
            stage: Mapped[str | None] = mapped_column(sa.String(20))

        class Payment(Base):
            __tablename__ = "payments"
            id: Mapped[int] = mapped_column(primary_key=True)
            order_id: Mapped[int] = mapped_column(
                sa.ForeignKey("orders.id", deferrable=True, initially="DEFERRED")
                if not isinstance(db, pw.MySQLDatabase)
                else sa.ForeignKey("orders.id")
            )

        self.is_file = isinstance(db, pw.SqliteDatabase)
        if isinstance(db, pw.SqliteDatabase):
            self.engine = sa.create_engine(f"sqlite:///{db.database}", connect_args={"timeout": 20})
            sa.event.listen(self.engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = 1"))
        else:
            scheme = "postgresql+psycopg" if isinstance(db, pw.PostgresqlDatabase) else "mysql+pymysql"
            given = {name: db.connect_params.get(name) for name in ("host", "port", "password")}
            user = db.connect_params.get("user")
            self.engine = sa.create_engine(sa.URL.create(scheme, username=user, database=db.database, **given))
        self.Order: Any = Order
        self.Payment: Any = Payment
        features: dict[str, Any] = {"delayed": True, "buried": True, "keep": True, "ttr": 60, **more}
        fields = {"attempts": "tries", "error": "why", "tube": "stage"}
        self.orders: Any = upgrade(Order, fields, features, engine=asynchronous or self.engine)
        Base.metadata.create_all(self.engine)
        self.orders.install()
        self.Session: Any = async_sessionmaker(asynchronous) if asynchronous else sessionmaker(self.engine)

    def paid(self) -> list[int]:
        """The orders that are paid for."""
        with Session(self.engine) as session:
            return list(session.scalars(sa.select(self.Payment.order_id).order_by(self.Payment.order_id)))

    def states(self) -> str:
        """The states of all orders, in order."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.text("SELECT xq_status FROM orders ORDER BY id"))
            return "".join(row[0] for row in rows)

    def why(self) -> str:
        """Why the only buried order has failed."""
        (found,) = self.orders.by_state("B")
        return str(found.why)
