"""The feature `endless`: touch never gives a time limit to a task without one."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def endless(on: On = True) -> Feature:
    """Make touch prolong only a time limit that exists.

    Without this feature, touch(increment=seconds) gives a task without a limit one, so many seconds from now.
    """
    return Feature("endless", settings=Settings(touch_ends=False))
