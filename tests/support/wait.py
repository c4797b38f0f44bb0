"""Waiting for the end of a task: was it processed?"""

from __future__ import annotations

from typing import Any


def waited_for(Task: Any) -> list[Any]:
    """The keys of the tasks whose end is waited for, in any process."""
    return [key for key, _, _ in Task.xq.waiting() if key is not None]
