"""Whether a queue does its tasks in time, for probes."""

from __future__ import annotations

from typing import NamedTuple

from xq.core.ports import PASSING
from xq.core.words import lasting
from xq.operators.ages import Ages


class Health(NamedTuple):
    """The state of a queue, which is healthy, late, failing or unreachable, and a sentence about it."""

    state: str
    sentence: str


def health(ages: Ages, max_age: float | None, max_buried: int) -> Health:
    """Return the worst of what holds. `max_age` is in seconds; None: tasks may wait for any time."""
    try:
        (tasks, oldest, still), takers = ages.ready(), ages.takers()
        buried, paused = ages.counts().get("B", 0), None in ages.pauses.listed()
    except Exception as error:
        if ages.database.store.classify(error) not in PASSING:
            raise
        return Health("unreachable", f"the database does not answer: {error}")
    exact, late, told = bool(oldest and oldest.exact), False, f"ready tasks: {tasks:,}"
    if tasks:
        age = f"the oldest for {oldest}" if oldest else "for how long is unknown"
        told += f", {age}" if exact else f", {age}; processes that take: {takers}"
    if tasks and max_age is not None:
        # A bound of the history is no proof of health. Without the history, a process that takes must do.
        unknown = not exact and (ages.machine.settings.history is not None or not takers)
        late = unknown or bool(oldest and oldest.seconds > max_age)
        if still is not None and still > max_age:
            late, told = True, f"{told}; none was taken for {lasting(still)}"
    told += f"; buried tasks: {buried:,}{'; the queue is paused' * paused}"
    return Health("failing" if buried > max_buried else "late" if late else "healthy", told)
