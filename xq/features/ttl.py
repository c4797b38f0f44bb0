"""The feature `ttl`: drop tasks that stay ready for too long."""

from __future__ import annotations

from xq.core.machine import Feature, On, Seconds, Timer, Transition, seconds


def ttl(on: On | Seconds = True) -> Feature:
    """Drop a task that stays ready for its ttl, in seconds.

    The ttl comes from put(ttl=), release(ttl=) or dig(ttl=), else from the task's role `ttl`, else from `on`.
    """
    return Feature(
        "ttl",
        needs=("runat",),
        transitions=(Transition("R", "touch", "R", follows=False, counts=False),),
        timers=(Timer("R", "ttl", "X", option="ttl", default=seconds(on)),),
    )
