"""How many functions of xq each path enters, once it has run before. A change of a number is a change in review."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.support.walks import Walk, end_of_group, expiry, functions, job, size_of, verbs

EXPECTED = """
put                    16
take                   18
ack                    23
a thread's job         101
a ttr that has passed  112
the end of a group     120
"""
FILES, LINES = 14, 4_900  # that put, take and ack enter, at most


def queue_of(db: pw.Database, name: str, **features: Any) -> Any:
    model: Any = type(name, (xq.Task,), {"of": pw.CharField(null=True), "Meta": type("Meta", (), {"database": db})})
    queue: Any = xq.upgrade(model, {"group": "of"} if "groups" in features else {}, features)
    db.create_tables([model])
    return queue


def walked(db: pw.Database) -> dict[str, Walk]:
    late = expiry(queue_of(db, "Timed", ttr=60), {})  # first: a cycle attends each queue
    return {
        **verbs(queue_of(db, "Plain"), {}),
        "a thread's job": job(queue_of(db, "Worked"), {}),
        "a ttr that has passed": late,
        "the end of a group": end_of_group(queue_of(db, "Grouped", groups=True), {}),
    }


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_each_path_enters_as_many_functions_as_the_table_says(shared_db):
    found = walked(shared_db)
    assert functions(found) == EXPECTED.strip("\n")
    _, files, lines = size_of([call for verb in ("put", "take", "ack") for call in found[verb]])
    assert files <= FILES
    assert lines <= LINES
