"""Tasks that nobody takes in time are dropped."""

from __future__ import annotations

from xq.core.machine import READYING, Feature, On, Seconds, Timer, Transition, seconds


def ttl(on: On | Seconds = True) -> Feature:
    """A task that stays ready this long is dropped: put(ttl=), release(ttl=), dig(ttl=), its own, or `on` seconds."""
    return Feature(
        "ttl",
        needs=("runat",),
        transitions=(Transition("R", "touch", "R", enters=False),),
        timers=(Timer("R", "ttl", "X", option="ttl", default=seconds(on)),),
        methods=("touch",),
        options={"ttl": READYING, "increment": ("touch",)},
    )
