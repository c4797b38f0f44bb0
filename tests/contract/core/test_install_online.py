"""install(online=True) beside writers, and install(plan=True)."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker
from tests.steps import another_program, another_process, elsewhere, forked, writing

FEATURES = {"delayed": True, "keep": True, "ttr": 60}
LOG = logging.getLogger("xq")


class Each(logging.Handler):
    """Calls a function with each message of an installation."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def emit(self, record: logging.LogRecord) -> None:
        self.call(record.getMessage())


@pytest.fixture
def told(request):
    """Has a function called with each message: `told(print)`."""

    def add(call):
        handler = Each(call)
        LOG.addHandler(handler)
        request.addfinalizer(lambda: LOG.removeHandler(handler))

    LOG.setLevel(logging.INFO)
    yield add
    LOG.setLevel(logging.NOTSET)


def plain(make: Maker, features: Any = FEATURES, **options: Any) -> Any:
    """The application's table with 30 rows, a third of them ready; its queue is not installed."""
    fields = {"name": pw.TextField(null=True), "job": pw.TextField(null=True), "state": pw.CharField(20, default="R")}
    model = type("Orders", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": make.db})})
    make.db.create_tables([model])
    model.insert_many([{"name": f"n{n}", "job": f"j{n}", "state": "RDx"[n % 3]} for n in range(30)]).execute()
    xq.upgrade(model, {"status": "state", **options}, features)
    return model


def is_counted(Orders: Any) -> bool:
    held = dict(Orders.select(Orders.state, pw.fn.COUNT(Orders.id)).group_by(Orders.state).tuples())
    return Orders.xq.check() == [] and all(Orders.stats().counts[state] == held.get(state, 0) for state in "RD")


def write(Orders: Any) -> None:
    """As the application, which knows nothing of a queue: one row comes, one leaves, one becomes ready."""
    table, first = Orders._meta.table_name, "ORDER BY id LIMIT 1"
    for sql in (
        f"INSERT INTO {table} (name, state) VALUES ('new', 'R')",
        f"DELETE FROM {table} WHERE id = (SELECT id FROM (SELECT id FROM {table} WHERE state = 'R' {first}) AS it)",
        f"UPDATE {table} SET state = 'R' WHERE id = (SELECT id FROM (SELECT id FROM {table} WHERE state = 'x' {first}) AS it)",
    ):
        another_program(Orders._meta.database, sql)


def test_online(make_shared, told):
    Orders = plain(make_shared)
    def f(m):
        print(m)
        write(Orders)
    if not isinstance(make_shared.db, pw.SqliteDatabase):
        told(f)
    print(Orders.xq.install(plan=True))
    print(Orders.xq.install(plan=True, online=True))
    Orders.xq.install(online=True)
    print(Orders.xq.install(plan=True, online=True))
    assert is_counted(Orders)
