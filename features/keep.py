"""Acked tasks stay."""

from __future__ import annotations

from xq.core.machine import Feature, On, Transition


def keep(on: On = True) -> Feature:
    """Acked tasks stay in the table as D, for good."""
    return Feature("keep", transitions=(Transition("T", "ack", "D", fenced=True),), methods=("restart",))
