"""The data of the feature `history`: record every transition as a row."""

from __future__ import annotations

import math

from xq.core.machine import Feature, On, Seconds, Settings, seconds
from xq.features.history.slice import HistorySlice


def history(on: On | Seconds = True) -> Feature:
    """Record every transition in the table <table>_xq_history, also those of other programs.

    Rows are kept for `on` seconds; True keeps them forever.
    """
    keep = seconds(on)
    kept = Settings(history=math.inf if keep is None else keep)
    return Feature("history", settings=kept, methods=("history",), slice=HistorySlice)
