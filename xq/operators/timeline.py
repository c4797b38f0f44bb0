"""What happened to a task, and how long it was in each state."""

from __future__ import annotations

from dataclasses import dataclass

from xq.engine.history import History
from xq.sessions.session import owner_of


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
    for row, until_us in zip(rows, [*(row.at_us for row in rows[1:]), None], strict=False):
        there = row.target in history.machine.states
        found.append(
            Step(
                row.at_us / 1_000_000,
                row.event,
                row.source,
                row.target,
                ((now_us if until_us is None else until_us) - row.at_us) / 1_000_000 if there else None,
                there and until_us is None,
                owner_of(row.owner)[0] if row.owner else None,
                row.attempt,
                row.tube,
                row.actor,
                row.reason,
            )
        )
    return found
