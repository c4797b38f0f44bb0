"""Features as users write them."""

from __future__ import annotations

from xq import Feature, Timer, Transition

RETRY = Feature("retry", transitions=(Transition("T", "retry", "R", fenced=True),))
PARK = Feature(
    "park",
    needs=("runat",),
    transitions=(Transition("T", "park", "P", fenced=True), Transition("P", "unpark", "R")),
    timers=(Timer("P", "tow", "B", option="hours", default=7200),),
)
