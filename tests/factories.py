"""Rows for the tests."""

from __future__ import annotations

from typing import Any

from factory.base import DictFactory
from factory.declarations import Sequence


class TaskFactory(DictFactory):
    """A task as put takes it: a mapping of the application's own fields."""

    name = Sequence(lambda n: f"task {n}")
    size = Sequence(lambda n: n)


def task(**fields: Any) -> dict[str, Any]:
    """One new task."""
    made: dict[str, Any] = TaskFactory.build(**fields)
    return made


def tasks(n: int, **fields: Any) -> list[dict[str, Any]]:
    """`n` new tasks."""
    made: list[dict[str, Any]] = TaskFactory.build_batch(n, **fields)
    return made
