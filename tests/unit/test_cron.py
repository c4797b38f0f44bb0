"""Cron texts fire when cron says: as the package cronsim, which follows Debian's cron, finds it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from xq.runtime.cron import FIELDS, NICKNAMES, following

BERLIN = ZoneInfo("Europe/Berlin")
# When the clocks of Berlin were or will be changed in ten years: on the last Sundays of March and October.
LAST_DAYS = [datetime(year, month, 31, 1, tzinfo=UTC) for year in range(2020, 2030) for month in (3, 10)]
CHANGES = [day - timedelta(days=day.isoweekday() % 7) for day in LAST_DAYS]


def field(any_of: random.Random, low: int, high: int, names: str) -> str:
    first, last = sorted(any_of.sample(range(low, high + 1), 2))
    n, step = any_of.randint(low, high), any_of.randint(1, high)
    name = any_of.choice(names.split()) if names else f"{n}"
    return any_of.choice(
        ["*", "*", f"*/{step}", f"{first}-{last}", f"{first}-{last}/{step}", f"{n},{last}", f"{n}", name]
    )


def texts() -> list[str]:
    any_of, found = random.Random(7), list(NICKNAMES.values())
    while len(found) < 200:
        fields = [field(any_of, low, high, names) for _, low, high, names in FIELDS]
        fields[1] = any_of.choice([fields[1], field(any_of, 1, 3, "")])  # clocks are changed from 2 to 3
        found.append(" ".join(fields))
    return found


def test_cron_texts_fire_as_cronsim_finds_also_where_clocks_are_changed():
    for text in texts():
        for start in [change - before for change in CHANGES for before in (timedelta(days=1), timedelta(minutes=15))]:
            try:
                sim, at = CronSim(text, start.astimezone(BERLIN)), start
            except CronSimError:  # such as February 30th
                assert following(text, BERLIN, start) is None, text
                break
            expected = [next(sim).astimezone(UTC) for _ in range(6)]
            for then in dict.fromkeys(expected):  # cronsim names a moment for each skipped time
                found = following(text, BERLIN, at)
                assert found == then, (text, at)
                at = then


@pytest.mark.parametrize(
    ("text", "same"), [*NICKNAMES.items(), ("0 9 * JAN,Mar Fri-Sun", "0 9 * 1,3 5,6,0"), (" @Daily ", "0 0 * * *")]
)
def test_nicknames_and_names_mean_what_cron_has_for_them(text, same):
    assert following(text, UTC, CHANGES[0]) == following(same, UTC, CHANGES[0])


BAD = ["", "* * * *", "0 * * * * *", "@reboot", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "* * L * *"]


@pytest.mark.parametrize(
    "text", [*BAD, "* * * * 8", "1,,2 * * * *", "x * * * *", "* * * * mon#2", "1/ * * * *", "-1 * * * *"]
)
def test_what_cron_does_not_know_is_refused(text):
    with pytest.raises(ValueError, match=r"give (five fields|\*, numbers)"):
        following(text, UTC, CHANGES[0])
