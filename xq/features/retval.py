"""The feature `retval`: the type in which methods return tasks."""

from __future__ import annotations

from xq.core.machine import Feature, Retval, Settings


def retval(kind: Retval = "model") -> Feature:
    """Return tasks as model instances, as dicts, or as tuples in the order of the model's fields."""
    return Feature("retval", settings=Settings(retval=kind), structure=None)
