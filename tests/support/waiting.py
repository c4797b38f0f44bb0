"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steps import (
    PATIENCE,
    bring,
)

FEATURES = {"buried": True, "delayed": True, "ttr": True}
SOON = 0.05  # seconds until something falls due


@pytest.fixture
def shared(make_live):
    return make_live(FEATURES, roles=("runat", "priority", "tube"))


def take(Task: Any, **options: Any) -> Any:
    return lambda: Task.take(timeout=PATIENCE, **options)


# puts that wait for room


@pytest.fixture
def full(make_live):
    """A queue for two, with two in it: one taken, one buried."""
    Task = make_live({"limit": 2, "buried": True, "delayed": True, "ttl": True, "keep": True})
    bring(Task, "B")
    bring(Task, "T")
    return Task


def taken(Task: Any) -> Any:
    (found,) = Task.xq.by_state("T")
    return found
