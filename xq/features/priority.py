"""The feature `priority`: take tasks with a lower priority number first, or those with a higher one."""

from __future__ import annotations

from typing import Literal

from xq.core.machine import Feature, On, Settings, Transition


def priority(on: On | Literal["highest"] = True) -> Feature:
    """Require the role `priority`: a lower number is taken first.

    Mapping the role to a field has the same effect without this feature, but for `reprioritise`. With "highest" a
    higher number is taken first, and NULL last: `fields={"priority": "-importance"}` says the same.
    """
    highest = on == "highest"
    return Feature(
        "priority",
        needs=("priority",),
        transitions=(Transition("RW", "reprioritise", "RW", follows=False, sets="priority"),),
        settings=Settings(highest_first=highest),
        structure="highest" if highest else None,
    )
