"""Run hooks in a child when the process forks, in the order of `PARTS`, independent of the order of imports.

A child has none of its parent's threads, sessions and locks, and must not close its connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable

PARTS = ("sessions", "locks", "threads", "keys")


_hooks: list[tuple[int, Callable[[], None]]] = []


def at_fork(part: str, hook: Callable[[], None]) -> None:
    """Register a hook of a part, one of `PARTS`."""
    _hooks.append((PARTS.index(part), hook))
    _hooks.sort(key=lambda each: each[0])


def _in_child() -> None:
    for _, hook in _hooks:
        hook()


os.register_at_fork(after_in_child=_in_child)
