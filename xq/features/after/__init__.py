"""The feature `after`: its data (feature.py), its SQL (slice.py), and what the ends of tasks set off (settler.py)."""

from xq.features.after.feature import after

__all__ = ["after"]
