"""The feature `groups`: its data (feature.py), and its SQL (slice.py)."""

from xq.features.groups.feature import groups

__all__ = ["groups"]
