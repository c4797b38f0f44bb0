"""The feature `utube`: take the tasks of a group one after the other."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from xq.core.machine import READY, TAKEN, Feature, Guard, On


def utube(on: On | Annotated[int, Gt(0), Le(1_000_000)] = True) -> Feature:
    """Let workers take at most one task per value of the role `utube` at a time, or `on` tasks, in their order.

    Tasks without a value are not limited.
    """
    most = 1 if isinstance(on, bool) else on
    guard = Guard("utube", role="utube", states=TAKEN, value=most, in_the_way=READY + TAKEN)
    return Feature("utube", needs=("utube",), guards=(guard,), structure=most)
