"""What version 0.1 recorded of a queue: of the features of an application's own only the digest of all transitions."""

from __future__ import annotations

import json

import pytest

import xq
from tests.steps import run_script
from xq import Feature, Transition

FIELDS = {"status": "status"}


def parking(event):
    return Feature("parked", transitions=(Transition("R", event, "P"), Transition("P", "fetch", "R")))


def test_a_queue_that_an_older_version_installed_is_used_and_a_difference_is_told_as_far_as_it_is_known(make):
    Task = make({"parked": parking("park"), "buried": True}, fields=FIELDS)
    recorded = json.loads(Task.xq.adapter.installation.fingerprint)
    assert recorded.pop("own")
    make.db.execute_sql(f"UPDATE xq_queue SET fingerprint = {make.db.param}", (json.dumps(recorded, sort_keys=True),))
    assert Task.xq.check() == []
    assert Task.put({}).status == "R"
    Other = make.model()
    xq.upgrade(Other, FIELDS, {"parked": parking("leave"), "buried": True})
    with pytest.raises(xq.NotInstalled, match="transitions are others there than here, where .* buried"):
        Other.put({})


# the table of sessions before it named their processes
OLD_SESSIONS = {
    "sqlite": "uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, "
    "PRIMARY KEY (uuid, queue)",
}
OLD_SESSIONS |= {
    "postgres": OLD_SESSIONS["sqlite"],
    "mariadb": OLD_SESSIONS["sqlite"].replace("TEXT", "VARCHAR(200)"),
}


@pytest.mark.parametrize("by", ["install", "ddl"])
def test_install_adds_the_processes_to_the_sessions_of_an_earlier_layout_and_keeps_its_rows(make, by):
    Task = make()
    Task.put({})
    uuid = "0b6b2b9e-6c1f-4c0e-8d52-6f1d7a1c5d10"
    store = Task.xq.adapter.store
    make.db.execute_sql("DROP TABLE xq_session")
    make.db.execute_sql(f"CREATE TABLE xq_session ({OLD_SESSIONS[store.engine]})")
    make.db.execute_sql(f"INSERT INTO xq_session VALUES ('{uuid}', '', 7, NULL)")
    make.db.execute_sql(f"UPDATE xq_queue SET version = {make.db.param}", ("0",))
    Task.xq.adapter.maintenance.database.close()  # as in a process that starts
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
