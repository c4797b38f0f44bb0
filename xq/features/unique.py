"""The feature `unique`: one unfinished task per value."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Len

from xq.core.machine import Feature, Guard, On


def unique(on: On | Annotated[str, Len(1)] = True) -> Feature:
    """Allow one task per value of the role `unique` while it is in W, R or T, or in the states that `on` names.

    put(on_conflict=) decides what happens to a second one: "raise" raises Duplicate, "skip" returns the existing task,
    and "replace" updates the existing task in place.
    """
    states = "WRT" if isinstance(on, bool) else on
    return Feature(
        "unique",
        needs=("unique",),
        guards=(Guard("unique", role="unique", states=states, and_before=isinstance(on, bool), checks="single"),),
        structure="".join(sorted(states)),
        options={"on_conflict": ("put",)},
    )
