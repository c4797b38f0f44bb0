"""A queue of an older version, one apart from its model, and where its database is."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

import xq
from tests.factories import task
from xq.adapters.drivers import connect
from xq.adapters.peewee import PeeweeStore
from xq.build import build
from xq.core.ports import Address
from xq.engine import unit

# older versions


FEATURES = {"buried": True, "delayed": True, "zombie": 30}


def test_a_queue_of_an_older_version_gets_the_shared_tables_that_this_one_adds(make):
    Task = make(FEATURES)
    Task.put(task())
    for table in ("xq_pause", "xq_schedule"):
        make.db.execute_sql(f"DROP TABLE {table}")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    with pytest.raises(xq.NotInstalled, match="the table xq_pause is missing"):
        Task.take()
    Task.xq.install()
    assert Task.xq.check() == []
    Task.xq.pause()
    assert Task.take() is None


def test_a_history_of_an_older_version_gets_the_columns_that_this_one_adds(make):
    Task = make({"history": True, "buried": "any"})
    there = Task.put(task())
    for column in ("actor", "reason"):
        make.db.execute_sql(f"ALTER TABLE task_xq_history DROP COLUMN {column}")
    make.db.execute_sql("UPDATE xq_queue SET version = '8'")
    make.db.execute_sql("DROP TABLE xq_operation")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    with pytest.raises(xq.NotInstalled, match="the table xq_operation is missing; it was installed by another version"):
        Task.take()
    Task.xq.install()
    assert Task.xq.check() == []
    with Task.xq.acting("ann", "bad deploy"):
        Task.bury(there)
    found = [(row.event, row.actor, row.reason) for row in Task.xq.history()]
    assert found == [("put", None, None), ("bury", "ann", "bad deploy")]
    Task.xq.act("dig", "", actor="ann").run()
    Task.xq.install()
    assert Task.xq.count("R") == 1


def test_a_queue_of_an_older_version_is_uninstalled_with_the_shared_tables_that_it_has(make):
    Task, Other = make(FEATURES), make(FEATURES, model=make.model(table_name="other"))
    for table in ("xq_pause", "xq_schedule"):
        make.db.execute_sql(f"DROP TABLE {table}")
    Task.xq.uninstall()
    assert list(make.db.execute_sql("SELECT name FROM xq_queue")) == [("other",)]
    Other.xq.install()
    assert Other.xq.check() == []


def test_a_process_from_whose_database_the_records_were_dropped_is_told(make, monkeypatch):
    monkeypatch.setattr(unit, "REVIEW", -1.0)  # the queue is looked at again at any time
    Task = make(FEATURES)
    Task.put(task())
    make.db.execute_sql("DROP TABLE xq_queue")
    with pytest.raises(xq.NotInstalled, match="the table xq_queue is missing"):
        Task.take()


# apart from the model


def test_a_queue_may_be_apart_from_its_model_which_never_hears_of_it(make):
    model = make.model()
    apart = build(PeeweeStore(model), {"status": "status"}, {"keep": True}, apart=True)
    make.db.create_tables([model])
    assert [name for name in make.db.get_tables() if "xq" in name] == []
    assert (hasattr(model, "xq"), model._meta.only_save_dirty) == (False, False)
    apart.install()
    assert apart.put({"name": "a"}).name == "a"


# the address of a database


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
