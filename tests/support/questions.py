"""The questions of docs/questions.md, their answers there, and the history that these are of."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "questions.md"
SECTION = re.compile(
    r"^## (?P<title>[^\n]+)\n.*?```sql\n(?P<sql>.+?)```\n+(?P<answer>(?:\|[^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"  # sessions
TABLE = "page"
COLUMNS = ("id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason")
# time, key, tube, transition, event, session of the take, attempt; who, and why
DAY = """
    08:00:00 1 mail X-R put
    08:00:05 2 mail X-R put
    08:00:10 1 mail R-T take    A 1
    08:00:15 1 mail T-D ack     A 1
    08:00:20 2 mail R-T take    A 1
    08:00:30 2 mail T-R release A 1
    08:02:30 2 mail R-T take    B 2
    08:02:40 2 mail T-D ack     B 2
    08:10:00 3 web  X-R put
    08:11:00 3 web  R-T take    B 1
    08:11:05 3 web  T-B bury    B 1
    08:20:00 4 web  X-R put
    08:20:30 4 web  R-T take    A 1
    08:21:30 4 web  T-R ttr     A 1
    08:21:40 4 web  R-T take    A 2
    08:22:40 4 web  T-R ttr     A 2
    09:00:00 4 web  R-T take    B 3
    09:00:05 4 web  T-B bury    B 3
    09:05:00 5 mail X-R put
    09:05:02 5 mail R-T take    B 1
    09:05:04 5 mail T-D ack     B 1
    09:10:00 6 mail X-R put
    09:15:00 7 web  X-R put
    09:15:10 7 web  R-T take    A 1
    09:20:00 8 web  X-R put
    09:30:00 3 web  B-R dig     - - ann deploy
    09:30:10 3 web  R-T take    A 2
    09:30:20 3 web  T-D ack     A 2
    09:40:00 8 web  R-X kill    - - ann test
    10:59:00 9 mail X-R put
    10:59:30 9 mail R-T take    B 1
    10:59:50 9 mail T-D ack     B 1
"""


def history() -> list[tuple[Any, ...]]:
    """The rows of the day, by COLUMNS."""
    found, sessions = [], {"A": A, "B": B}
    for id_, line in enumerate(DAY.strip().splitlines(), 1):
        time, key, tube, move, event, *more = line.split()
        session, attempt, actor, reason = [None if given == "-" else given for given in (*more, *"----")[:4]]
        at = datetime.fromisoformat(f"2026-11-20T{time}").replace(tzinfo=UTC)
        owner = f"{sessions[session]}/{attempt}" if session else None
        source, target = move.split("-")
        at_us = int(at.timestamp()) * 1_000_000
        times = int(attempt) if attempt else None
        found.append((id_, at_us, key, tube, source, target, event, owner, times, actor, reason))
    return found


def questions() -> dict[str, tuple[str, list[str], list[tuple[str, ...]]]]:
    """By its title, the SQL of each question, and the names and rows of its answer."""
    found = {}
    for section in SECTION.finditer(DOCUMENT.read_text(encoding="utf-8")):
        names, _, *answers = [tuple(line.strip("| ").split(" | ")) for line in section["answer"].strip().splitlines()]
        found[section["title"]] = (section["sql"].strip(), [*names], answers)
    return found


def told(rows: Any) -> list[tuple[str, ...]]:
    """The rows of an answer as the document writes them: a number has the decimals that it needs."""
    return [tuple("" if value is None else _told(value) for value in row) for row in rows]


def _told(value: Any) -> str:
    return value if isinstance(value, str) else f"{round(float(value), 3):.12g}" if value < 10**12 else str(int(value))
