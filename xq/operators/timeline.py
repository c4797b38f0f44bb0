"""What happened to a task, and how long it was in each state."""

from __future__ import annotations

from typing import NamedTuple

from xq.engine.history import History
from xq.sessions.session import owner_of


class Step(NamedTuple):
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
    rows, found = [row for row in history.read(key, None, None) if row.source != row.target], []
    for row, until_us in zip(rows, [*(row.at_us for row in rows[1:]), history.database.time_us()]):
        there = row.target in history.machine.states
        seconds = (until_us - row.at_us) / 1_000_000 if there else None
        session = owner_of(row.owner)[0] if row.owner else None
        others = (row.attempt, row.tube, row.actor, row.reason)
        is_last = row is rows[-1]
        found.append(
            Step(row.at_us / 1e6, row.event, row.source, row.target, seconds, there and is_last, session, *others)
        )
    return found
