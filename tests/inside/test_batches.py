"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steps import is_exact
from tests.support.batches import taken


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
def test_no_statement_names_all_tasks_of_a_large_queue(make, monkeypatch, observed):
    Task = make({"events": True})
    taken(Task, 3_000)
    if observed:
        Task.xq.on_change(lambda *told: None)
    sent, cursor = [0], Task.xq.store._cursor

    def noting(sql: str, values: Any) -> Any:
        sent.append(len(values))
        return cursor(sql, values)

    monkeypatch.setattr(Task.xq.store, "_cursor", noting)
    assert Task.xq.release_all() == 3_000
    assert Task.xq.truncate() == 3_000
    assert max(sent) < 3_000
    assert is_exact(Task)
