"""Cron texts as Debian's cron reads them: five fields, or a nickname; and when they fire in a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
FAR: Final = 50 * 366 * DAY  # a text that does not fire for so long never fires
NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS: Final = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of month", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("weekday", 0, 7, "sun mon tue wed thu fri sat"),  # 7 is sun, too
)


@lru_cache(1000)
def parsed(text: str) -> tuple[list[set[int]], bool, bool]:
    """Return the numbers in the five fields, and two flags. Raises ValueError.

    The first says that a day fits by the month or by the week; else it must fit by both. The second says that minute or
    hour begins with "*": the text fires whenever clocks show its time.
    """
    fields = NICKNAMES.get(text.strip().lower(), text).lower().split()
    if len(fields) != len(FIELDS):
        raise ValueError(f"give five fields (minute, hour, day of month, month, weekday) or {', '.join(NICKNAMES)}")
    numbers = [_numbers(field, *of) for field, of in zip(fields, FIELDS, strict=True)]
    minute, hour, day, _, weekday = (field.startswith("*") for field in fields)
    return numbers, not (day or weekday), minute or hour


def _numbers(field: str, name: str, low: int, high: int, names: str) -> set[int]:
    """Return a field's numbers: for "*", "3", "mon-fri", "*/5", "10-20/2", "7/3"; for several with commas."""
    known = {str(n): n for n in range(low, high + 1)} | {each: low + n for n, each in enumerate(names.split())}
    found = set[int]()
    for part in field.split(","):
        match = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/0*([1-9][0-9]*))?", part)
        first, last, step = match.groups() if match else ("?", None, None)
        begin, end = (known.get(n.lstrip("0") or "0", -1) if n else low for n in (first, last))
        if last is None:
            end = high if first is None or step else begin
        elif last == "sun":
            end = 7  # fri-sun
        numbers = range(begin, end + 1, int(step or 1))
        if begin < low or not numbers:
            raise ValueError(
                f"{part!r} is no {name}: give *, numbers from {low} to {high}{' or names' if names else ''}, 1-5, */2; "
                "what cron cannot say, such as the last day of a month, a CronTrigger of APScheduler can"
            )
        found.update(numbers)
    return found


def following(text: str, zone: tzinfo, after: datetime) -> datetime | None:
    """Return the first firing after a time, in UTC; None if it never fires. Raises ValueError.

    Changes to the clocks work as with Debian's cron. A text with a fixed minute and hour fires once on each of its
    days: a skipped time when the clocks are changed, a time that comes twice the first time.
    """
    (numbers, either, follows_clocks), here = parsed(text), after.astimezone(zone).replace(second=0, microsecond=0)
    if follows_clocks:
        return _first(numbers, either, here.astimezone(UTC) + MINUTE, zone)
    wall = here.replace(tzinfo=UTC)  # what clocks show, as if that were UTC
    while (then := _first(numbers, either, wall + MINUTE, UTC)) is not None:
        wall = then
        at = wall.replace(tzinfo=zone)
        while at.astimezone(UTC).astimezone(zone) != at:  # skipped
            at += MINUTE
        if (found := at.astimezone(UTC)) > after:
            return found
    return None


def _first(numbers: list[set[int]], either: bool, at: datetime, zone: tzinfo) -> datetime | None:
    """Return the first minute from `at` on at which a zone's clocks show a time in the text."""
    (minutes, hours, days, months, weekdays), fits, end = numbers, any if either else all, at + FAR
    while at < end:
        local = at.astimezone(zone)
        if local.month not in months:
            at = datetime.combine(local.replace(day=1) + 32 * DAY, time(), zone).replace(day=1).astimezone(UTC)
        elif not fits((local.day in days, {local.isoweekday(), local.isoweekday() % 7} & weekdays)):
            at = datetime.combine(local + DAY, time(), zone).astimezone(UTC)
        elif local.hour not in hours:
            at += (60 - local.minute) * MINUTE
        elif local.minute not in minutes:
            at += MINUTE
        else:
            return at
    return None
