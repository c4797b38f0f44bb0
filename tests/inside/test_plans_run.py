"""A plan is written beside the code that runs a call: what it shows is what the database gets."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import live
from tests.factories import tasks
from xq.adapters.stores import Connection, FileConnection

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttr": 60}
CALLS = {
    "put": lambda Task, taken: Task.put({"name": "b"}),
    "take": lambda Task, taken: Task.take(),
    "ack": lambda Task, taken: taken.ack(),
    "bury": lambda Task, taken: taken.bury(),
}
PUT = ["size", "priority", "attempts", "name"]  # the fields with defaults, and what is brought
OWN = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


@pytest.fixture
def sent(monkeypatch):
    """The statements that a connection is told to run from now on."""
    found: list[str] = []
    caller = threading.get_ident()
    for kind in (Connection, FileConnection):

        def execute(self, sql, values=(), plain=kind.execute):
            if threading.get_ident() == caller:  # the maintenance thread has statements of its own
                found.append(sql)
            return plain(self, sql, values)

        monkeypatch.setattr(kind, "execute", execute)
    return found


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres"], indirect=True)  # MariaDB's have a mark for each key
@pytest.mark.parametrize("roles", [("runat",), ("runat", "owner")], ids=["side table", "role"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_runs_the_statements_of_its_plan_and_no_others(shared_db, sent, call, roles):
    Task = live(shared_db)(FEATURES, roles=roles)
    for _ in range(2):  # the first cycle installs, registers the session and looks for due tasks
        Task.xq.put_many(tasks(3))
        taken = Task.take()
        Task.take().ack()
    dialect = Task.xq._database.dialect
    planned = Task.xq.plan(call, update=PUT if call == "put" else ())
    lines = [line.partition("  -- ")[0] for _, sql in planned.steps for line in sql.splitlines()]
    Task.xq._takes.timers.sweep_if_any()  # else the take may be the one that looks for due tasks
    sent.clear()
    CALLS[call](Task, taken)
    assert sent
    assert {sql for sql in sent if not sql.startswith(OWN)} <= {dialect.filled(line)[0] for line in lines}
