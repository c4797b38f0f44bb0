"""The time that a report covers, and its buckets."""

from __future__ import annotations

from dataclasses import dataclass

from xq.pipeline.rollup import UNITS

SECOND = 1_000_000  # µs
BUCKETS = 600  # the largest number of buckets in a span, unless they are days


@dataclass(frozen=True)
class Span:
    """The time of a report: from `since`, before `until`, seen at `now`; µs since 1970."""

    since: int
    until: int
    now: int

    @property
    def unit(self) -> str:
        """The unit of the buckets: the shortest that does not give too many."""
        length = self.until - self.since
        return next((unit for unit, seconds in UNITS.items() if length <= BUCKETS * seconds * SECOND), "day")

    @property
    def before(self) -> Span:
        """The preceding span of the same length."""
        return Span(2 * self.since - self.until, self.since, self.since)

    @property
    def has(self) -> str:
        """The test whether `at_us` is in the span."""
        return f"(at_us >= {self.since} AND at_us < {self.until})"

    def bucket(self, at_us: int) -> int:
        """Return the start of the bucket of a moment. Days are in UTC."""
        return at_us - at_us % (UNITS[self.unit] * SECOND)

    def slot_of(self, at_us: str) -> str:
        """Return the expression for the bucket of a moment."""
        return f"{at_us} - pmod({at_us}, {UNITS[self.unit] * SECOND}L)"
