"""The feature `steps`: its data (feature.py), its records (lines.py), its SQL (slice.py), and its calls."""

from xq.features.steps.feature import steps

__all__ = ["steps"]
