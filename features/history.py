"""Every transition is written down."""

from __future__ import annotations

import math

from xq.core.machine import Feature, On, Seconds, Settings, seconds


def history(on: On | Seconds = True) -> Feature:
    """Every transition, whoever makes it, is a row of <table>_xq_history, kept for `on` seconds, else for good."""
    keep = seconds(on)
    kept = Settings(history=math.inf if keep is None else keep)
    return Feature("history", settings=kept, methods=("history",))
