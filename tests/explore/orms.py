"""Calls in the transaction of an application, by each ORM: its row and the queue's change are both there, or neither.

ORMS has a function for each ORM: it replaces the world's queue by the ORM's, and opens a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import peewee as pw
from django.db import connections, models, transaction
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from tests.django.conftest import ENGINES, DjangoDatabase, forget_connections
from tests.explore.calls import Call, W, by_name
from tests.explore.homes import World, model, paid
from tests.sqlalchemy import in_loop
from tests.sqlalchemy.maker import engine_of, mapped
from xq.adapters import django, sqlalchemy

Begun = AbstractContextManager[tuple[Any, Callable[[], object], dict[str, Any]]]
DRIVERS = {"sqlite": "aiosqlite", "postgres": "psycopg", "mariadb": "asyncmy", "mysql": "asyncmy"}


def given(w: World, act: str) -> Any:
    """Return the argument of the call: a row, or a task taken before the transaction."""
    return {"name": "task 2"} if act == "put" else w.take().t[0]


@contextmanager
def by_peewee(w: World, act: str) -> Iterator[Any]:
    task = given(w, act)
    try:
        with w.db.atomic():
            yield task, lambda: paid(w.db).create(name="row"), {}
    except pw.OperationalError:
        w.db.close()  # like an application whose connection may be lost
        raise


def defined(w: World) -> dict[str, Any]:
    """Return the definition of the world's queue, as each `upgrade` takes it."""
    return {**{name: w.q.parts.definition.arguments[name] for name in ("fields", "features")}, "clock": w.clock}


def sessions(w: World, in_a_loop: bool = False) -> tuple[Any, Any]:
    """Replace the queue by SQLAlchemy's. Return a session maker, and the class of the application's rows."""
    engine: Any = in_loop.engine(w.db, DRIVERS[w.engine]) if in_a_loop else engine_of(w.db)
    w.q = sqlalchemy.upgrade(mapped(model(w.db)), engine=engine, **defined(w))
    return (async_sessionmaker if in_a_loop else sessionmaker)(engine), mapped(paid(w.db))


@contextmanager
def by_sqlalchemy(w: World, act: str) -> Iterator[Any]:
    maker, Paid = sessions(w)
    task = given(w, act)
    with maker.begin() as session:
        yield task, lambda: session.add(Paid(name="row")), {"on": session}


def on_django(w: World) -> DjangoDatabase:
    """Let Django's alias "default" be the world's database."""
    where: dict[str, Any] = {name.upper(): str(w.db.connect_params.get(name, "")) for name in ("host", "port", "user")}
    where |= {"ENGINE": f"django.db.backends.{ENGINES[w.engine]}", "NAME": w.db.database}
    where["OPTIONS"] = {"ssl_disabled": True} if w.engine in ("mariadb", "mysql") else {}
    forget_connections()
    connections.settings["default"].update(connections.configure_settings({"default": where})["default"])
    return DjangoDatabase(w.engine, where)


@contextmanager
def by_django(w: World, act: str) -> Iterator[Any]:
    Task = on_django(w).model(trace=models.CharField(max_length=200, null=True))
    w.q = django.upgrade(Task, **defined(w))
    task = given(w, act)
    with transaction.atomic(), connections["default"].cursor() as cursor:
        yield task, lambda: cursor.execute("INSERT INTO paid (name) VALUES ('row')"), {}


ORMS: dict[str, Callable[[World, str], Begun]] = {
    "peewee": by_peewee,
    "sqlalchemy": by_sqlalchemy,
    "django": by_django,
}


class Undone(Exception): ...


def _act(w: World, orm: str, act: str, undone: bool) -> None:
    with suppress(Undone), ORMS[orm](w, act) as (task, save, on):
        save()
        getattr(w.q, act)(task, **on)
        if undone:
            raise Undone


def _act_in_a_loop(w: World, orm: str, act: str, undone: bool) -> None:
    async def acts() -> None:
        maker, Paid = sessions(w, in_a_loop=True)
        given: Any = {"name": "task 2"} if act == "put" else await w.q.aio.take()
        if act != "put":
            w.note("had", given.name)
        with suppress(Undone):
            async with maker.begin() as session:
                session.add(Paid(name="row"))
                await getattr(w.q.aio, act)(given, on=session)
                if undone:
                    raise Undone

    asyncio.run(acts())


ON_ORMS = by_name(
    *(
        Call(
            f"{orm}: {act}, {'rolled back' if undone else 'committed'}",
            W.two,
            partial(_act if orm in ORMS else _act_in_a_loop, orm=orm, act=act, undone=undone),
            between=None if act == "put" else (W.take,),
            block=True,
        )
        for orm in (*ORMS, "sqlalchemy in a loop")
        for act in ("put", "ack", "release", "bury")
        for undone in (False, True)
    )
)
