"""What operators do: dig, kill, switch, snatch, restart, truncate, and looking without touching."""

from __future__ import annotations

import pytest

import xq
from tests.support.operators import RETRY


@pytest.mark.parametrize("event", ["nonsense", "put", "switch"])
def test_call_runs_events_that_a_key_alone_can_run(make, event):
    Task = make({"retry": RETRY})
    with pytest.raises(xq.BadValue, match=event):
        Task.xq.call(event, 1)


def test_an_event_is_named_by_text(make):
    with pytest.raises(xq.BadType):
        make({"retry": RETRY}).xq.call(5, 1)
