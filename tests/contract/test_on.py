"""Calls that join the transaction of another connection: `on=`, with a connection of the database's driver."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import xq
from tests.factories import task, tasks

pytestmark = pytest.mark.of_peewee("a queue of SQLAlchemy joins its sessions and connections")


def begun(queue):
    """A connection beside those of the ORM, with a transaction open."""
    store = queue.parts.store
    raw = (
        sqlite3.connect(store.address().parameters["database"])
        if store.engine == "sqlite"
        else store.connector().open()
    )
    raw.cursor().execute("BEGIN")
    return closing(raw)


def test_what_calls_do_is_part_of_the_transaction(make):
    queue = make({"keep": True, "limit": 2}).xq
    seen = []
    queue.on_change(lambda task, event, source, target: seen.append(event))
    with begun(queue) as raw:
        queue.put(task(), on=raw)
        raw.rollback()
        assert (queue.count(), queue.stats().transition) == (0, {})
    seen.clear()
    with begun(queue) as raw:
        queue.put(task(), on=raw)
        assert (queue.count(), seen) == (0, [])
        with pytest.raises(xq.Full):  # in a savepoint
            queue.put_many(tasks(2), on=raw)
        queue.ack(queue.take(on=raw), on=raw)
        raw.commit()
    assert queue.stats().counts["D"] == 1
    assert seen == ["put", "take", "ack"]


def test_what_is_no_connection_is_refused(make):
    with pytest.raises(xq.BadType, match="on is a connection"):
        make().xq.put(task(), on="a session")
