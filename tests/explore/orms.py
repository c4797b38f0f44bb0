"""Calls in an application's own transaction, by each ORM: the row that it saves and the queue's agree, both or none.

An ORM is a function in ORMS: it makes the world's queue one on its own models of the tables that are there, and returns
how its transaction begins. Each of ACTS is cut on each.
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
from tests.explore.calls import PLAIN as FEATURES
from tests.explore.calls import Call
from tests.explore.homes import World, model
from tests.sqlalchemy import in_loop
from tests.sqlalchemy.maker import engine_of, mapped
from xq.adapters import django, sqlalchemy

PLAIN: Any = FEATURES
Save = Callable[[], object]  # a row of the application's own
Begin = Callable[[], AbstractContextManager[tuple[Save, dict[str, Any]]]]


def paid(db: pw.Database) -> Any:
    class Paid(pw.Model):
        name = pw.CharField()

        class Meta:
            database = db
            table_name = "paid"

    return Paid


def there(w: World, n: int = 2) -> None:
    """A table of the application's own, and tasks."""
    w.db.create_tables([paid(w.db)])
    paid(w.db).delete().execute()
    w.put(n)
    w.db.close()


def by_peewee(w: World) -> Begin:
    @contextmanager
    def begin() -> Iterator[Any]:
        try:
            with w.db.atomic():
                yield lambda: paid(w.db).create(name="row"), {}
        except pw.OperationalError:
            w.db.close()  # as an application does when its connection may be lost
            raise

    return begin


def roles(w: World) -> dict[str, str]:
    return dict(w.q.parts.definition.arguments["fields"])


DRIVERS = {"sqlite": "aiosqlite", "postgres": "psycopg", "mariadb": "asyncmy"}


def sessions(w: World, in_a_loop: bool = False) -> tuple[Any, Any]:
    """Make the queue one of SQLAlchemy's. Return what makes sessions, and the class of the application's rows."""
    engine: Any = in_loop.engine(w.db, DRIVERS[w.engine]) if in_a_loop else engine_of(w.db)
    w.q = sqlalchemy.upgrade(mapped(model(w.db)), roles(w), PLAIN, engine=engine, clock=w.clock)
    return (async_sessionmaker if in_a_loop else sessionmaker)(engine), mapped(paid(w.db))


def by_sqlalchemy(w: World) -> Begin:
    maker, Paid = sessions(w)

    @contextmanager
    def begin() -> Iterator[Any]:
        with maker.begin() as session:
            yield lambda: session.add(Paid(name="row")), {"on": session}

    return begin


def by_django(w: World) -> Begin:
    where = {"ENGINE": f"django.db.backends.{ENGINES[w.engine]}", "NAME": w.db.database}
    given = {"HOST": "host", "PORT": "port", "USER": "user"}
    where |= {name: str(w.db.connect_params[its]) for name, its in given.items() if its in w.db.connect_params}
    forget_connections()
    where["OPTIONS"] = {"ssl_disabled": True} if w.engine == "mariadb" else {}
    connections.settings["default"].update(connections.configure_settings({"default": where})["default"])
    made = DjangoDatabase(w.engine, where)
    w.q = django.upgrade(made.model(trace=models.CharField(max_length=200, null=True)), roles(w), PLAIN, clock=w.clock)
    Paid = type("Paid", (models.Model,), {"__module__": __name__, **FIELDS})

    @contextmanager
    def begin() -> Iterator[Any]:
        with transaction.atomic():
            yield lambda: Paid.objects.create(name="row"), {}  # type: ignore[attr-defined]

    return begin


META = type("Meta", (), {"app_label": "explored", "db_table": "paid"})
FIELDS = {"name": models.CharField(max_length=255), "Meta": META}
ORMS: dict[str, Callable[[World], Begin]] = {"peewee": by_peewee, "sqlalchemy": by_sqlalchemy, "django": by_django}


class Undone(Exception): ...


def _take(w: World, orm: str) -> Begin:
    begin = ORMS[orm](w)
    w.t = [w.q.take()]
    w.note("had", w.t[0].name)
    return begin


def _act(w: World, orm: str, act: str, undone: bool) -> None:
    begin = _take(w, orm) if act != "put" else ORMS[orm](w)
    with suppress(Undone), begin() as (save, on):
        save()
        if act == "put":
            w.q.put({"name": "task 2"}, **on)
        else:
            getattr(w.q, act)(w.t[0], **on)
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


def _acts(orm: str) -> Iterator[Call]:
    does = _act if orm in ORMS else _act_in_a_loop
    for act in ("put", "ack", "release", "bury"):
        for undone in (False, True):
            name = f"{orm}: {act}, {'rolled back' if undone else 'committed'}"
            between = None if act == "put" else (partial(_take, orm=orm if orm in ORMS else "sqlalchemy"),)
            yield Call(name, there, partial(does, orm=orm, act=act, undone=undone), between=between)


ON_ORMS = {call.name: call for orm in (*ORMS, "sqlalchemy in a loop") for call in _acts(orm)}
