"""The feature `delayed`: tasks wait before they are ready."""

from __future__ import annotations

from xq.core.machine import Detour, Feature, On, Timer


def delayed(on: On = True) -> Feature:
    """Let tasks wait: each event that leads to R takes delay= or at=, and the task waits in W first."""
    return Feature(
        "delayed",
        needs=("runat",),
        timers=(Timer("W", "delay", "R", option="delay"),),
        detours=(Detour(into="R", via="W", option="delay"),),
    )
