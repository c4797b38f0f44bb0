"""Tasks that are taken and not finished in time return."""

from __future__ import annotations

from xq.core.machine import READYING, Feature, On, Seconds, Timer, seconds


def ttr(on: On | Seconds = True) -> Feature:
    """A taken task returns to R after this long: take(ttr=), its own, or `on` seconds."""
    return Feature(
        "ttr",
        needs=("runat",),
        timers=(Timer("T", "ttr", "R", option="ttr", default=seconds(on)),),
        methods=("touch",),
        options={"ttr": (*READYING, "take"), "increment": ("touch",)},
    )
