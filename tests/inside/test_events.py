"""The features events, endless and priority, which tubes are made with, on tables of an application."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import peewee as pw

from tests.conftest import live
from tests.factories import task
from tests.steps import another_process, bring
from tests.support import events as support

Task = support.Task


def test_what_may_be_lost_in_a_crash_works_as_before(Task):
    made = Task.xq.adapter.installation.set_unlogged()
    assert bool(made) == isinstance(Task._meta.database, pw.PostgresqlDatabase)
    assert all("UNLOGGED" in sql or "SET LOGGED" in sql for sql in made)
    bring(Task, "T").ack()
    assert Task.stats().events == {"put": 1, "take": 1, "ack": 1}
    assert Task.xq.check() == []


def test_the_first_put_of_a_process_that_did_not_install_the_queue_is_told_as_a_put(shared_db):
    Task = live(shared_db)({"history": True})

    def puts() -> Generator[Any, Any, None]:
        there = live(shared_db)
        there.INSTALLS = False
        yield there({"history": True}).put(task()).id

    with another_process(shared_db, puts) as other:
        key = next(other)
    assert [row.event for row in Task.xq.history(key)] == ["put"]
