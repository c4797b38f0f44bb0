"""What a trigger is told, in a process that did not install the queue."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.conftest import live
from tests.factories import task
from tests.steps import another_process


def test_the_first_put_of_a_process_that_did_not_install_the_queue_is_told_as_a_put(shared_db):
    Task = live(shared_db)({"history": True})

    def puts() -> Generator[Any, Any, None]:
        there = live(shared_db)
        there.INSTALLS = False
        yield there({"history": True}).put(task()).id

    with another_process(shared_db, puts) as other:
        key = next(other)
    assert [row.event for row in Task.xq.history(key)] == ["put"]
