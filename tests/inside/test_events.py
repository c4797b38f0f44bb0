"""The features events, endless and priority, which tubes are made with, on tables of an application."""

from __future__ import annotations

import peewee as pw

from tests.steps import bring
from tests.support import events as support

Task = support.Task


def test_what_may_be_lost_in_a_crash_works_as_before(Task):
    made = Task.xq.adapter.installation.set_unlogged()
    assert bool(made) == isinstance(Task._meta.database, pw.PostgresqlDatabase)
    assert all("UNLOGGED" in sql or "SET LOGGED" in sql for sql in made)
    bring(Task, "T").ack()
    assert Task.stats().events == {"put": 1, "take": 1, "ack": 1}
    assert Task.xq.check() == []
