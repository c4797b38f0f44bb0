"""What happened to a task, and how long it was in each state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from xq.engine.history import History
from xq.sessions.session import owner_of

SAME = ("event", "source", "target", "attempt", "tube", "actor", "reason")  # in the history


@dataclass(frozen=True)
class Step:
    """One transition of a task, and the time that the task then spent in `target`.

    `open` says that it is still there: then `seconds` is the time up to now. Times are seconds since 1970.
    """

    at: float
    event: str
    source: str
    target: str
    seconds: float | None
    open: bool
    session: str | None
    attempt: int | None
    tube: str | None
    actor: str | None
    reason: str | None


def timeline(history: History, key: object) -> list[Step]:
    """Return the transitions of a task, with the time in each state. Raises FeatureOff."""
    rows = [row for row in history.read(key, None, None) if row.source != row.target]
    now_us = history.database.time_us()
    found = []
    for row, after in zip_longest(rows, rows[1:]):
        there = row.target in history.machine.states
        until_us = after.at_us if after else now_us
        found.append(
            Step(
                at=row.at_us / 1_000_000,
                seconds=(until_us - row.at_us) / 1_000_000 if there else None,
                open=there and after is None,
                session=owner_of(row.owner)[0] if row.owner else None,
                **{name: getattr(row, name) for name in SAME},
            )
        )
    return found
