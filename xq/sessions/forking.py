"""Run hooks when the process forks, in the order of `PARTS`, independent of the order of imports.

A child has none of its parent's threads, sessions and locks, and must not close its connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

PARTS = ("sessions", "locks", "threads", "keys")


class Hooks(NamedTuple):
    in_child: Callable[[], None]
    before: Callable[[], None]
    in_parent: Callable[[], None]


_hooks: list[tuple[int, Hooks]] = []


def at_fork(
    part: str,
    in_child: Callable[[], None],
    *,
    before: Callable[[], None] = lambda: None,
    in_parent: Callable[[], None] = lambda: None,
) -> None:
    """Register hooks of a part, one of `PARTS`: call them when the process forks."""
    _hooks.append((PARTS.index(part), Hooks(in_child, before, in_parent)))
    _hooks.sort(key=lambda hooks: hooks[0])


def _before() -> None:
    for _, hooks in _hooks:
        hooks.before()


def _in_parent() -> None:
    for _, hooks in _hooks:
        hooks.in_parent()


def _in_child() -> None:
    for _, hooks in _hooks:
        hooks.in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
