"""The feature `keep`: acked tasks stay in the table."""

from __future__ import annotations

from xq.core.machine import Feature, On, Transition


def keep(on: On = True) -> Feature:
    """Keep acked tasks in the table, in the state D, forever."""
    return Feature("keep", transitions=(Transition("T", "ack", "D", fenced=True),), methods=("restart",))
