"""The feature `zombie`: acked tasks stay for a while."""

from __future__ import annotations

from xq.core.machine import Feature, On, Seconds, Timer, Transition, seconds


def zombie(on: On | Seconds = True) -> Feature:
    """Keep acked tasks as Z: for ack(delay=seconds), else for `on` seconds.

    With True and no delay they stay until killed.
    """
    return Feature(
        "zombie",
        needs=("runat",),
        transitions=(Transition("T", "ack", "Z", fenced=True),),
        timers=(Timer("Z", "zombie", "X", option="delay", default=seconds(on)),),
    )
