"""What never ends is not made to."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def endless(on: On = True) -> Feature:
    """touch gives no end to a state that has none; else that ends so many seconds from then."""
    return Feature("endless", settings=Settings(touch_ends=False))
