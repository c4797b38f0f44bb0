"""A queue of an older version, and the address of a database."""

from __future__ import annotations

import pickle
from contextlib import closing
from datetime import timedelta

import peewee as pw

from xq.core.connections import Address
from xq.drivers import connect
from xq.sql.installer import installation
from xq.upgrading.build import arguments_of, build, written


def test_a_plain_connection_to_the_address_of_a_model_reads_what_it_writes(make_shared):
    Task = make_shared()
    Task.put({"name": "here"})
    address = Task.xq.parts.store.address()
    name = next(iter({"timeout", "user"} & address.parameters.keys()))
    public = {key: value for key, value in address.parameters.items() if key != name}
    secret = {name: address.parameters[name]}
    hidden = Address(address.engine, public, address.password, secret)
    for each in (pickle.loads(pickle.dumps(address)), hidden):
        with closing(connect(each)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT name FROM task")
            assert [*cursor.fetchall()] == [("here",)]


def test_an_installation_that_makes_the_writers_of_many_rows_wait_is_logged_once_with_the_remedy(
    make, caplog, monkeypatch
):
    monkeypatch.setattr(installation, "MANY", 1)
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"name": name} for name in "abc"]).execute()
    if isinstance(make.db, pw.PostgresqlDatabase):
        make.db.execute_sql("ANALYZE task")
    Task = make.upgrade(model, {"status": "status"}, {"keep": True}) and model
    for _ in range(2):
        Task.xq.install()
    (message,) = [each.getMessage() for each in caplog.records if "writers wait" in each.getMessage()]
    assert "has about 3 rows" in message
    assert "install(online=True)" in message


def test_what_a_database_has_recorded_of_a_queue_upgrades_a_table_to_the_same_queue(make):
    features = {"keep": timedelta(days=3), "max_takes": 5, "buried": True, "ttr": 60}
    Task = make(features, fields={"status": "status", "finished": True})
    definition = Task.xq.parts.definition
    again = build(type(Task.xq.parts.store)(Task), **arguments_of(written(definition)), detached=True)
    assert again.parts.definition.structure == definition.structure
    other = build(type(Task.xq.parts.store)(Task), {"status": "status"}, {**features, "keep": True}, detached=True)
    (unlike, *_) = other.check()
    assert unlike == "the feature 'keep' is 'for a time' there and on here"
