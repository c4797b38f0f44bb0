"""What the methods of a queue return."""

from __future__ import annotations

from xq.core.machine import Feature, Retval, Settings


def retval(kind: Retval = "model") -> Feature:
    """Tasks come back as instances of the model, as dicts, or as tuples in the order of its fields."""
    return Feature("retval", settings=Settings(retval=kind), structure=None)
