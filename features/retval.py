"""What the methods of a queue return."""

from __future__ import annotations

from typing import Literal

from xq.machine import Feature


def retval(kind: Literal["model", "dict", "tuple"] = "model") -> Feature:
    """Tasks come back as instances of the model, as dicts, or as tuples in the order of its fields."""
    return Feature("retval", settings={"retval": kind}, structure=None)
