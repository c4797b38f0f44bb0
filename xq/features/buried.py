"""The feature `buried`: set failed tasks aside, and dig them out again."""

from __future__ import annotations

from typing import Literal

from xq.core.machine import Feature, On, Transition


def buried(on: On | Literal["any"] = True) -> Feature:
    """Let workers bury tasks: a buried task (B) stays until it is dug out.

    With "any", a caller may bury a task from every state and without owning it.
    """
    bury = Transition("*", "bury", "B") if on == "any" else Transition("T", "bury", "B", fenced=True)
    return Feature(
        "buried",
        transitions=(bury, Transition("B", "dig", "R", picks=True), Transition("RTW", "cancel", "B", named=True)),
        structure=on,
        options={"to": ("cancel",)},
    )
