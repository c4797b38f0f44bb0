"""Where a database is, as another process is told that has no model."""

from __future__ import annotations

import pickle
from contextlib import closing

from xq.adapters.drivers import connect
from xq.core.ports import Address


def test_what_a_model_writes_is_read_by_a_plain_connection_to_its_address(make_shared):
    Task = make_shared()
    Task.put({"name": "here"})
    address = pickle.loads(pickle.dumps(Task.xq.adapter.store.address()))
    with closing(connect(address)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM task")
        assert [*cursor.fetchall()] == [("here",)]


def test_what_is_secret_reaches_the_driver(make_shared):
    Task = make_shared()
    address = Task.xq.adapter.store.address()
    name = next(iter({"timeout", "user"} & address.parameters.keys()))
    public = {key: value for key, value in address.parameters.items() if key != name}
    hidden = Address(address.engine, public, address.password, {name: address.parameters[name]})
    with closing(connect(hidden)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM task")
        assert [*cursor.fetchall()] == [(0,)]
