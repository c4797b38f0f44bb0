"""Acked tasks stay for a while."""

from __future__ import annotations

from xq.core.machine import Feature, On, Seconds, Timer, Transition, seconds


def zombie(on: On | Seconds = True) -> Feature:
    """Acked tasks stay as Z: for ack(delay=seconds), for `on` seconds when it is a number, else until killed."""
    return Feature(
        "zombie",
        needs=("runat",),
        transitions=(Transition("T", "ack", "Z", fenced=True),),
        timers=(Timer("Z", "zombie", "X", option="delay", default=seconds(on)),),
        methods=("restart",),
        options={"delay": ("ack", "switch")},
    )
