"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

FEATURES = {"buried": True, "delayed": True, "keep": True}
