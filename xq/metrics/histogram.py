"""Durations in buckets, as Prometheus counts them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

# Seconds: from a task that a waiting worker takes at once to one that waits for an hour.
BOUNDS: tuple[float, ...] = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
)  # fmt: skip


class Histogram:
    """Counts of durations. They only grow."""

    def __init__(self) -> None:
        self.sum = 0.0
        self._counts = [0] * (len(BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)  # a clock may be set back
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def buckets(self) -> Sequence[tuple[str, int]]:
        """Returns (bound as text, number of durations up to it), the last one without a bound."""
        found, total = [], 0
        for bound, n in zip((*BOUNDS, math.inf), self._counts, strict=True):
            total += n
            found.append(("+Inf" if bound == math.inf else f"{float(bound)}", total))
        return found
