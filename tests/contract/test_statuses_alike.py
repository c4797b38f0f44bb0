"""Statuses that a column does not tell apart."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task

WORDS = {"R": "new", "T": "NEW"}


def loose(db: pw.Database, **options: Any) -> pw.Field:
    """A field whose column compares without regard to case."""
    if isinstance(db, pw.PostgresqlDatabase):
        db.execute_sql("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    collation = {"SqliteDatabase": "NOCASE", "PostgresqlDatabase": "loose", "MySQLDatabase": "utf8mb4_general_ci"}
    return pw.CharField(collation=collation[type(db).__name__], **options)


def test_statuses_that_differ_by_case_alone_are_refused_or_kept_apart(make):
    Task = make.model(status=loose(make.db, default="new"))
    if isinstance(make.db, pw.MySQLDatabase):  # where the queue's own statements compare exactly
        make({"keep": True}, model=Task, statuses=WORDS)
        Task.xq.put_many([task(), task()])
        assert [Task.take().status, Task.take().status, Task.take()] == ["NEW", "NEW", None]
        assert Task.xq.check() == []
        return
    with pytest.raises(xq.ConfigurationError, match=r"task\.status .* 'new' \(R\) and 'NEW' \(T\)"):
        make({"keep": True}, model=Task, statuses=WORDS)
    assert "'new' (R) and 'NEW' (T)" in Task.xq.check()[-1]


@pytest.mark.parametrize("db", ["sqlite", "postgres"], indirect=True)
def test_a_reconfiguration_that_brings_such_a_status_is_refused(make):
    Task = make(model=make.model(status=loose(make.db, default="new")), statuses={"R": "new", "D": "NEW"})
    with pytest.raises(xq.ConfigurationError, match=r"'new' \(R\) and 'NEW' \(D\)"):
        Task.xq.reconfigure({"keep": True})
    Task.put(task())
    assert Task.take().status == "T"
    assert Task.xq.check() == []
