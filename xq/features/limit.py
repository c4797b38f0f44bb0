"""The feature `limit`: bound the number of unfinished tasks."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from xq.core.machine import Feature, Guard


def limit(n: Annotated[int, Gt(0), Le(2**62)] = 1000) -> Feature:
    """Raise Full from put while `n` tasks are waiting, ready, taken or buried."""
    guard = Guard("limit", states="WRTB", value=n, and_before=True, checks="room")
    return Feature("limit", guards=(guard,), structure=n, options={"timeout": ("put",)})
