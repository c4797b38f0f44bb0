"""The feature `priority`: take tasks with a lower priority number first."""

from __future__ import annotations

from xq.core.machine import Feature, On


def priority(on: On = True) -> Feature:
    """Require the role `priority`: a lower number is taken first.

    Mapping the role to a field has the same effect without this feature.
    """
    return Feature("priority", needs=("priority",), structure=None)
