"""A queue's counters: one for each transition, in all and by tube."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xq.core.machine import ABSENT, ELSEWHERE

# tube ('' for all tubes), source ('' for tasks that were there before counting began), target, number
Counter = tuple[str, str, str, int]
MANY = 1_000  # rows of counters above which they are rolled up


def counter_of(event: str, source: str, target: str) -> tuple[str, str, str]:
    """Return the counter for an event that is not a transition's usual one: an otherwise unused tube and states."""
    return f"{source}-{target} {event}", ELSEWHERE, ELSEWHERE


def corrections(counters: Iterable[Counter], actual: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return what to add to the initial tasks, by (tube, state), to make the counters equal to the table."""
    counted: dict[tuple[str, str], int] = {}
    for tube, source, target, n in counters:
        counted[tube, target] = counted.get((tube, target), 0) + n
        counted[tube, source] = counted.get((tube, source), 0) - n
    names = [name for name in {*counted, *actual} if name[1] not in (ABSENT, ELSEWHERE, "")]
    missing = {name: actual.get(name, 0) - counted.get(name, 0) for name in names}
    return {name: n for name, n in missing.items() if n}
