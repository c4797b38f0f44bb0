"""Tasks that come before others."""

from __future__ import annotations

from xq.core.machine import Feature, On


def priority(on: On = True) -> Feature:
    """Says that there must be the role priority, for which a field alone is enough: lower is taken first."""
    return Feature("priority", needs=("priority",), structure=None)
