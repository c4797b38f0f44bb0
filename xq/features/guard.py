"""The feature `guard`: refuse what other programs write over a taken or finished task."""

from __future__ import annotations

from typing import Literal

from xq.core.machine import Feature, On, Settings


def guard(on: On | Literal["log"] = True) -> Feature:
    """Have the database refuse a status write from T, D or Z unless xq makes it.

    With "log" it goes through, and the maintenance threads log how many there were.
    """
    return Feature("guard", settings=Settings(guard=on), structure=on)
