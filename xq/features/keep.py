"""The feature `keep`: acked tasks stay in the table."""

from __future__ import annotations

from xq.core.machine import Feature, Lasts, On, Timer, Transition, seconds


def keep(on: On | Lasts = True) -> Feature:
    """Keep acked tasks in the table, in the state D: forever, or for a timedelta, after which they are deleted."""
    ack, lasts = Transition("T", "ack", "D", fenced=True), seconds(on)
    if lasts is None:
        return Feature("keep", transitions=(ack,))
    timer = Timer("D", "keep", "X", option="", default=lasts)
    return Feature("keep", needs=("runat",), transitions=(ack,), timers=(timer,), structure="for a time")
