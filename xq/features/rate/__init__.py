"""The feature `rate`: its data (feature.py), and its SQL (slice.py)."""

from xq.features.rate.feature import rate

__all__ = ["rate"]
