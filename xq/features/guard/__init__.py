"""The feature `guard`: its data (feature.py), and its SQL (slice.py)."""

from xq.features.guard.feature import guard

__all__ = ["guard"]
