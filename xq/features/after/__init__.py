"""The feature `after`: its data (feature.py), and its SQL (slice.py)."""

from xq.features.after.feature import after

__all__ = ["after"]
