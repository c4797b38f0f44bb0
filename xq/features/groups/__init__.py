"""The feature `groups`: its data (feature.py), its SQL (slice.py), and what the ends of tasks set off (settler.py)."""

from xq.features.groups.feature import groups

__all__ = ["groups"]
