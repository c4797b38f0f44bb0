"""A queue of an older version, and the address of a database."""

from __future__ import annotations

import pickle
from contextlib import closing

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import run_script
from xq.adapters.databases.installer import installation
from xq.adapters.drivers import connect
from xq.core.ports import Address

# the table of sessions before it named their processes
OLD_SESSIONS = (
    "uuid VARCHAR(200) NOT NULL, queue VARCHAR(200) NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, "
    "PRIMARY KEY (uuid, queue)"
)


@pytest.mark.parametrize("by", ["install", "ddl"])
def test_install_adds_the_processes_to_the_sessions_of_an_earlier_layout_and_keeps_its_rows(make, by):
    Task = make()
    Task.put({})
    uuid = "0b6b2b9e-6c1f-4c0e-8d52-6f1d7a1c5d10"
    make.db.execute_sql("DROP TABLE xq_session")
    make.db.execute_sql(f"CREATE TABLE xq_session ({OLD_SESSIONS})")
    make.db.execute_sql(f"INSERT INTO xq_session VALUES ('{uuid}', '', 7, NULL)")
    make.db.execute_sql(f"UPDATE xq_queue SET version = {make.db.param}", ("0",))
    Task.xq.adapter.maintenance.executor.close()  # as in a process that starts
    with pytest.raises(xq.NotInstalled, match="another version of xq"):
        Task.take()
    for _ in range(2):
        Task.xq.install() if by == "install" else run_script(make.db, Task.xq.ddl())
    Task.take()
    named = {each.session: (each.name, each.tasks) for each in Task.xq.processes()}
    assert named.pop(uuid) == (f"session {uuid}", 0)
    ((name, n),) = named.values()
    assert name.startswith("pid ")
    assert n == 1


@pytest.mark.parametrize("lacks", [("last_us", "paused"), ()], ids=str)
def test_schedules_of_an_older_version_get_the_columns_that_this_one_adds(make, lacks):
    Task = make()
    Task.xq.every(60, task(), name="a")
    for column in (*lacks, "paused_us", "actor", "reason"):
        make.db.execute_sql(f"ALTER TABLE xq_schedule DROP COLUMN {column}")
    make.db.execute_sql("UPDATE xq_queue SET version = '8'")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    Task.xq.install()
    assert [(each.name, each.last, each.paused) for each in Task.xq.schedules()] == [("a", None, False)]
    assert Task.xq.pause_schedule("a")


def test_a_queue_of_an_older_version_gets_the_tables_and_columns_that_this_one_adds(make):
    Task = make({"history": True, "buried": "any"})
    there = Task.put(task())
    Task.xq.pause()
    make.db.execute_sql("DROP TABLE xq_schedule")
    for column in ("since_us", "actor", "reason"):
        make.db.execute_sql(f"ALTER TABLE xq_pause DROP COLUMN {column}")
    for column in ("actor", "reason"):
        make.db.execute_sql(f"ALTER TABLE task_xq_history DROP COLUMN {column}")
    make.db.execute_sql("UPDATE xq_queue SET version = '8'")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    with pytest.raises(xq.NotInstalled, match="it was installed by another version.*the table xq_schedule is missing"):
        Task.take()
    Task.xq.install()
    assert Task.xq.check() == []
    with Task.xq.acting("ann", "bad deploy"):
        Task.bury(there)
    assert (Task.take(), Task.xq.pauses()) == (None, [(None, None, None, None)])
    found = [(row.event, row.actor, row.reason) for row in Task.xq.history()]
    assert found == [("put", None, None), ("bury", "ann", "bad deploy")]
    Task.xq.act("dig", "", actor="ann").run()
    assert Task.xq.count("R") == 1


def test_a_plain_connection_to_the_address_of_a_model_reads_what_it_writes(make_shared):
    Task = make_shared()
    Task.put({"name": "here"})
    address = Task.xq.adapter.store.address()
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
