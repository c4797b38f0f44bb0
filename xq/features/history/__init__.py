"""The feature `history`: its data (feature.py), and its SQL (slice.py)."""

from xq.features.history.feature import history

__all__ = ["history"]
