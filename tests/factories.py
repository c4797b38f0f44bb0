"""Rows for the tests."""

from __future__ import annotations

import itertools
from typing import Any

_numbers = itertools.count()


def task(**fields: Any) -> dict[str, Any]:
    """One new task, as put takes it: a mapping of the application's own fields."""
    n = next(_numbers)
    return {"name": f"task {n}", "size": n} | fields


def tasks(n: int, **fields: Any) -> list[dict[str, Any]]:
    """`n` new tasks."""
    return [task(**fields) for _ in range(n)]
