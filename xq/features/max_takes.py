"""The feature `max_takes`: give up a task that ends its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Gt, Le

from xq.core.errors import ConfigurationError, is_integer, shown
from xq.core.machine import KEEP, READY, TAKEN, Column, Feature, Transition
from xq.core.words import never_finished

MOST = 1_000_000


def max_takes(n: Annotated[int, Gt(0), Le(MOST)] | Mapping[str, Any] = 5) -> Feature:
    """Bury a task when `n` takes of it were lost: the session died, or the ttr passed.

    {"n": 5, "to": "X"} deletes it instead. The role `lost` counts these takes, and no release; when the task is buried
    or done it begins anew.
    """
    given: Mapping[str, Any] = n if isinstance(n, Mapping) else {"n": n}
    most, to = given.get("n"), given.get("to", "B")
    if given.keys() - {"n", "to"} or not is_integer(most) or not 0 < most <= MOST or to not in ("B", "X"):
        raise ConfigurationError(
            f"feature 'max_takes' takes a number of takes, or {{'n': 5, 'to': 'B'}} ('X' deletes), not {shown(n)}"
        )
    writes = (("lost", 0), ("error", never_finished(most)))
    return Feature(
        "max_takes",
        needs=("lost",),
        requires=("buried",) if to == "B" else (),
        transitions=(Transition(TAKEN, "max_takes", to, writes=writes, loses=most),),
        columns=(Column("lost", at={READY: KEEP, TAKEN: KEEP, "W": KEEP}, otherwise=0),),
        structure={"n": most, "to": to},
    )
