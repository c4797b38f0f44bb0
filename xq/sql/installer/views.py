"""The views on a queue's history for readers without xq: each transition, and what happened in each hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xq.core.machine import ABSENT, EXPIRIES, NAMES
from xq.sql.terms import Terms

# What a transition counts as. A finished task does not count again when it leaves D or Z.
_LEAVES = "source IN ('R', 'T', 'W', 'B') AND "
THROUGHPUT: Final[Mapping[str, str]] = {
    "put": "source = 'X' AND target IN ('R', 'T', 'W', 'B')",
    "taken": "target = 'T' AND source <> 'T'",
    "done": f"{_LEAVES}(target IN ('D', 'Z') OR (target = 'X' AND event = 'ack'))",
    "buried": f"{_LEAVES}target = 'B' AND source <> 'B'",
    "killed": f"{_LEAVES}target = 'X' AND event NOT IN {('ack', *EXPIRIES)}",
    "expired": f"{_LEAVES}target = 'X' AND event IN {EXPIRIES}",
}

HOUR: Final = 3_600_000_000  # microseconds


def views(terms: Terms) -> dict[str, str]:
    """Return the queries that the views are, by the suffix of their names."""
    instant, key = terms.instant, terms.quote("key")
    table = (terms.in_schema("") if terms.is_local else terms).side("history")  # SQLite looks in the view's schema
    events = ["id", f"{instant('at_us')} AS at", "at_us", key, "tube"]
    for column, absent in {"source": "put", "target": "gone"}.items():
        cases = " ".join(f"WHEN '{letter}' THEN '{word}'" for letter, word in {**NAMES, ABSENT: absent}.items())
        events.append(f"CASE {column} {cases} ELSE {column} END AS {column}")
    events += ["event", f"{terms.in_seconds(terms.since_before)} AS seconds", "owner", "attempt", "actor", "reason"]
    if terms.position:
        events.append(f"{terms.position} AS position")  # last: PostgreSQL adds a column to a view only there
    hour, tube = f"at_us - at_us % {HOUR}", "COALESCE(tube, '')"
    hourly = [f"{instant(hour)} AS hour", f"{hour} AS hour_us", f"{tube} AS tube"]
    for column, what in THROUGHPUT.items():
        hourly.append(f"{terms.whole(f'SUM(CASE WHEN {what} THEN 1 ELSE 0 END)')} AS {column}")
    return {
        "events": f"SELECT {', '.join(events)} FROM {table}",
        "hourly": f"SELECT {', '.join(hourly)} FROM {table} GROUP BY 1, 2, 3",
    }
