"""The clock of a queue: the database's own, or one that a test sets. Moments in time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from xq.core.errors import BadType, BadValue, is_number, shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 253_402_300_800  # seconds since 1970: the end of the year 9999
LAST_DAY = LATEST - 86_400  # the last moment that Python can show in any time zone


class Clock:
    """A clock that a test sets: `xq.upgrade(..., clock=Clock(1_700_000_000))`, in seconds since 1970.

    The queue uses it for all times. No thread expires timers or fires schedules: `Page.xq.sweep()` does. The functions
    and fixtures of xq.testing store the schedules that `upgrade` was given, as workers do when they start.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = float(now)

    def tick(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.now += seconds


def microseconds(name: str, value: object) -> int:
    """Return a moment in microseconds since 1970; of a date its beginning in UTC. Raises BadType and BadValue."""
    if isinstance(value, date):
        at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        aware = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(microseconds=1)
    if not is_number(value):
        raise BadType(f"{name} is a moment (seconds since 1970, a datetime or a date), not {shown(value)}")
    if not abs(value) <= LATEST:
        raise BadValue(f"{name} is a moment (seconds since 1970, a datetime or a date), not {shown(value)}")
    return round(value * 1_000_000)
