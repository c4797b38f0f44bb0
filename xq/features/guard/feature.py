"""The data of the feature `guard`: refuse the states that other programs write over a taken or finished task."""

from __future__ import annotations

from typing import Literal

from xq.core.machine import Feature, On, Settings
from xq.features.guard.slice import GuardSlice


def guard(on: On | Literal["log"] = True) -> Feature:
    """Have the database refuse a status write out of T, or out of D or Z to another state, unless xq makes it.

    A word that no state has takes a finished row out of the queue. With "log" such a write goes through, and the
    maintenance threads log how many there were.
    """
    return Feature("guard", settings=Settings(guard=on), structure=on, slice=GuardSlice if on is True else None)
