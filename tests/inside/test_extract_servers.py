"""Reading the history while several write at once, which SQLite has not."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.conftest import DATABASES, SERVERS
from tests.factories import task, tasks
from tests.steps import eventually, put_late
from tests.support.extract import rows, unpickled
from xq.adapters.databases.mariadb import scans


@pytest.fixture(params=SERVERS)
def shared_db(request, tmp_path):
    with DATABASES[request.param](tmp_path) as database:
        yield database


@pytest.fixture
def held(make_live):
    """A queue with one row of history that is not committed yet, and one after it that is."""
    Task = make_live({"history": True})
    Task.put(task())
    with put_late(Task) as commit:
        Task.put(task())
        yield Task, commit


def test_a_checkpoint_never_passes_what_is_not_committed(held):
    Task, commit = held
    extract = unpickled(Task, "history")
    checkpoint = extract.checkpoint()
    assert len(rows(extract, "id", until=checkpoint)) == 1
    assert len(rows(extract, "id")) == 2
    commit()
    assert eventually(lambda: len(rows(extract, "id", after=checkpoint, until=extract.checkpoint(checkpoint))) == 2)


def test_a_checkpoint_never_passes_what_is_not_committed_however_long_ago_it_was_written(held, monkeypatch):
    Task, _ = held
    monkeypatch.setattr(scans, "FRESH", -3600.0)  # as if all was written an hour ago
    extract = unpickled(Task, "history")
    assert len(rows(extract, "id", until=extract.checkpoint())) == 1


def test_ranges_are_of_one_moment_also_when_what_is_older_is_committed_meanwhile(held):
    Task, commit = held
    extract = unpickled(Task, "history")
    parts = extract.ranges(2)
    seen = {row for part in parts for row in extract.read(["id"], part)}
    commit()
    assert {row for part in parts for row in extract.read(["id"], part)} == seen
    assert len(rows(extract, "id")) == 3


def test_a_number_that_was_given_to_nothing_holds_a_checkpoint_up_for_a_moment_only(make_live):
    Task = make_live({"history": True})
    Task.put(task())
    with make_live.db.atomic() as transaction:
        Task.xq.put_many(tasks(3))
        transaction.rollback()
    Task.put(task())
    extract = unpickled(Task, "history")
    assert eventually(lambda: len(rows(extract, "id", until=extract.checkpoint())) == 2)


def test_a_number_of_which_no_row_is_seen_holds_a_checkpoint_up_as_long_as_it_may_be_about_to_be_written(
    make_live, monkeypatch
):
    Task = make_live({"history": True})
    if not isinstance(make_live.db, pw.MySQLDatabase):
        return  # PostgreSQL goes by transactions
    Task.put(task())
    with make_live.db.atomic() as transaction:
        Task.put(task())
        transaction.rollback()
    Task.put(task())
    extract = unpickled(Task, "history")
    for fresh, n in {3600.0: 1, -3600.0: 2}.items():
        monkeypatch.setattr(scans, "FRESH", fresh)
        assert len(rows(extract, "id", until=extract.checkpoint())) == n
