"""Tasks that must come one after the other, beside others that need not."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from xq.core.machine import READY, TAKEN, Feature, Guard, On


def utube(on: On | Annotated[int, Gt(0), Le(1_000_000)] = True) -> Feature:
    """At most one task of each value of the role `utube` is taken at a time, or `on` of them, in their order.

    Tasks without a value are in nobody's way.
    """
    most = 1 if isinstance(on, bool) else on
    guard = Guard("utube", role="utube", states=TAKEN, value=most, in_the_way=READY + TAKEN)
    return Feature("utube", needs=("utube",), guards=(guard,), structure=most)
