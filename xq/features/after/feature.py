"""The data of the feature `after`: tasks wait for others to end."""

from __future__ import annotations

from xq.core.machine import READY, Column, Detour, Feature, On, Transition
from xq.features.after.settler import Dependants
from xq.features.after.slice import AfterSlice


def after(on: On = True) -> Feature:
    """Let tasks wait for the ends of others, their parents: put takes after= and on_failure=, put_many also chain=True.

    A dependant is in W until each of its parents has ended well. Its role `after` holds its on_failure and its own
    delay, which begins then; in every other state the role is NULL.
    """
    return Feature(
        "after",
        needs=("after",),
        transitions=(Transition("W", "after", READY),),
        detours=(Detour(into=READY, via="W", option="after", only="put"),),
        columns=(Column("after", at={}, otherwise=None),),
        options=dict.fromkeys(("on_failure", "chain"), ("put",)),
        slice=AfterSlice,
        settler=Dependants,
    )
