"""Takes that wait for a task, puts that wait for room, and waits for the end of a task."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steps import PATIENCE, bring
from xq.database import duties

FEATURES = {"buried": True, "delayed": True, "ttr": True}
SOON = 0.05  # seconds until something falls due


@pytest.fixture(autouse=True)
def no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the look that makes up for a lost notification: what these tests see, they were notified of."""
    monkeypatch.setattr(duties, "FALLBACK", 3600.0)


@pytest.fixture
def shared(make_live):
    return make_live(FEATURES, roles=("runat", "priority", "tube"))


@pytest.fixture
def full(make_live):
    """A queue for two, with two in it: one taken, one buried."""
    Task = make_live({"limit": 2, "buried": True, "delayed": True, "ttl": True, "keep": True})
    bring(Task, "B")
    bring(Task, "T")
    return Task


def waited_for(Task: Any) -> list[Any]:
    """The keys of the tasks whose end is waited for, in any process."""
    return [key for key, _, _ in Task.xq.waiting() if key is not None]


def take(Task: Any, **options: Any) -> Any:
    return lambda: Task.take(timeout=PATIENCE, **options)


def taken(Task: Any) -> Any:
    (found,) = Task.xq.by_state("T")
    return found
