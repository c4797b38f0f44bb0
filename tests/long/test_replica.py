"""A queue is read from a replica of its database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import peewee as pw
import pytest

import xq
from tests.servers import MariaDB, MariaReplica, Postgres, Replica
from tests.support.pipeline import elsewhere, rows


@pytest.fixture(scope="module")
def primary() -> Iterator[Postgres]:
    with Postgres() as server:
        server.create("queue")
        yield server


def queue_on(db: pw.Database) -> xq.Queue[Any]:
    class Task(pw.Model):
        name = pw.TextField()

        class Meta:
            database = db

    queue = xq.upgrade(Task, features={"history": True, "keep": True})
    db.create_tables([Task])
    return queue


def test_tasks_and_history_are_read_from_a_replica_and_from_nothing_else(primary):
    queue = queue_on(primary.peewee("queue"))
    with Replica(primary) as replica, primary.administrator("queue") as execute:
        execute("BEGIN")
        execute("INSERT INTO task (name, xq_status) VALUES ('late', 'R')")  # its transaction stays open
        queue.put_many([{"name": str(i)} for i in range(20)])
        queue.ack(queue.take())
        replica.follow()
        extracts = {what: queue.pipeline.extract(what) for what in ("tasks", "history", "stats")}
        there = {what: elsewhere(extract.on_replica(replica.url("queue"))) for what, extract in extracts.items()}
        assert there["tasks"].address.parameters["port"] == str(replica.port)
        for what in ("tasks", "stats"):
            assert rows(there[what]) == rows(extracts[what]) != []
        assert rows(there["history"]) == [], "it goes up to the oldest open transaction"
        execute("ROLLBACK")
        replica.follow()
        assert rows(there["history"]) == rows(extracts["history"]) != []
        assert there["history"].checkpoint() == extracts["history"].checkpoint()
    with Postgres() as another:
        another.create("queue")
        for server in (primary, another):
            with pytest.raises(xq.ConfigurationError, match="names no replica of the database of Task"):
                extracts["tasks"].on_replica(server.url("queue"))
    with pytest.raises(xq.BadValue, match="read_from is the URL of a replica"):
        extracts["tasks"].on_replica("http://replica")


def test_a_replica_of_mariadb_is_read_and_has_no_stream():
    with MariaDB(log_bin="log", log_bin_trust_function_creators=1, server_id=1) as primary:
        primary.create("queue")
        queue = queue_on(primary.peewee("queue"))
        with MariaReplica(primary) as replica:
            queue.put_many([{"name": str(i)} for i in range(20)])
            queue.ack(queue.take())
            replica.follow()
            for what in ("tasks", "history", "stats"):
                extract = queue.pipeline.extract(what)
                there = elsewhere(extract.on_replica(replica.url("queue")))
                assert there.address.parameters["port"] == replica.port
                assert rows(there) == rows(extract) != []
            with pytest.raises(xq.BadValue, match="does not show which rows of the history of Task are still to come"):
                queue.pipeline.extract("history").on_replica(replica.url("queue")).checkpoint()
            with pytest.raises(xq.ConfigurationError, match="names no replica of the database of Task"):
                queue.pipeline.extract("tasks").on_replica(primary.url("queue"))


def test_a_file_has_no_replica(tmp_path):
    class Task(pw.Model):
        class Meta:
            database = pw.SqliteDatabase(tmp_path / "queue.db")

    queue = xq.upgrade(Task)
    Task.create_table()
    with pytest.raises(xq.BadValue, match="is in a file"):
        queue.pipeline.extract().on_replica("sqlite:///queue.db")
