"""The feature `ttr`: return tasks that workers do not finish in time."""

from __future__ import annotations

from xq.core.machine import Feature, On, Seconds, Timer, seconds


def ttr(on: On | Seconds = True) -> Feature:
    """Return a taken task to R after its ttr, in seconds.

    The ttr comes from take(ttr=), else from the task's role `ttr`, else from `on`.
    """
    return Feature(
        "ttr",
        needs=("runat",),
        timers=(Timer("T", "ttr", "R", option="ttr", default=seconds(on)),),
    )
