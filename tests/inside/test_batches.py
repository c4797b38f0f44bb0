"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.steps import is_exact
from tests.support.batches import taken
from xq.adapters.stores import Connection, FileConnection


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
def test_no_statement_names_all_tasks_of_a_large_queue(make, monkeypatch, observed):
    Task = make({"events": True})
    taken(Task, 3_000)
    if observed:
        Task.xq.on_change(lambda *told: None)
    sent = [0]

    def noting(plain: Any) -> Any:
        def noted(self: Any, sql: str, values: Any = ()) -> Any:
            sent.append(len(values))
            return plain(self, sql, values)

        return noted

    for kind, name in product((Connection, FileConnection), ("execute", "change")):
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    assert Task.xq.release_all() == 3_000
    assert Task.xq.truncate() == 3_000
    assert max(sent) < 3_000
    assert is_exact(Task)
