"""Whether a queue does its tasks in time, for probes."""

from __future__ import annotations

from typing import NamedTuple

from xq.core.machine import READY
from xq.core.ports import PASSING
from xq.engine.stats import stats
from xq.operators.inspection import Inspection
from xq.operators.oldest_ready import OldestReady


class Health(NamedTuple):
    """The state of a queue, which is healthy, late, failing or unreachable, and a sentence about it."""

    state: str
    sentence: str


def health(inspection: Inspection, oldest_ready: OldestReady, max_age: float | None, max_buried: int) -> Health:
    """Return the worst of what holds. `max_age` is in seconds; None: tasks may wait for any time."""
    database = inspection.database
    try:
        counts = stats(database.counters(), inspection.machine.states).counts
        age, takers = oldest_ready.age(), inspection.takers()
        paused = ["the queue is paused"] if None in inspection.pauses.listed() else []
    except Exception as error:
        if database.store.classify(error) not in PASSING:
            raise
        return Health("unreachable", f"the database does not answer: {error}")
    ready, buried = counts[READY], counts.get("B", 0)
    unknown = f"for how long is unknown; processes that take: {takers}"
    oldest = unknown if age is None else f"the oldest for {age:,.0f} s"
    late = max_age is not None and (ready and not takers if age is None else age > max_age)
    told = [f"ready tasks: {ready:,}{f', {oldest}' if ready else ''}", f"buried tasks: {buried:,}", *paused]
    return Health("failing" if buried > max_buried else "late" if late else "healthy", "; ".join(told))
