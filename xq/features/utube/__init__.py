"""The feature `utube`: its data (feature.py), and its SQL: the heads of groups, and what differs between databases."""

from xq.features.utube.feature import utube

__all__ = ["utube"]
