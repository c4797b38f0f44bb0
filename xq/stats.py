"""How many tasks are in each state, and how often each transition was seen."""

from __future__ import annotations

from collections import Counter as Total
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, Field

from xq.machine import ABSENT, ELSEWHERE, NAMES

# tube ('' is all together), source ('' is "there before counting began"), target, how often
Counter = tuple[str, str, str, int]


def apart(event: str, source: str, target: str) -> tuple[str, str, str]:
    """The counter of an event that the transition does not tell: tube, source, target, as no transition has them."""
    return f"{source}-{target} {event}", ELSEWHERE, ELSEWHERE


class Numbers(BaseModel):
    """`counts` per state and `transition` counts, named "R-T"."""

    counts: dict[str, int]
    transition: dict[str, int]

    def spelled(self) -> Numbers:
        """The same, with the names of the states in place of their letters."""
        return Numbers(
            counts={NAMES.get(state, state): n for state, n in self.counts.items()},
            transition={"-".join(NAMES.get(s, s) for s in name.split("-")): n for name, n in self.transition.items()},
        )


class Stats(Numbers):
    """The numbers of a queue, and of each of its tubes that is counted; with the feature events, how often each was."""

    tube: dict[str, Numbers] = Field(default_factory=dict)
    events: dict[str, int] = Field(default_factory=dict)

    def spelled(self) -> Stats:
        tubes = {name: tube.spelled() for name, tube in self.tube.items()}
        return Stats(**super().spelled().model_dump(), tube=tubes, events=self.events)


def stats(
    counters: Iterable[Counter],
    states: Sequence[str],
    tubes: Sequence[str] = (),
    told_by: Callable[[str, str], str] | None = None,
) -> Stats:
    """Add the counters up. What is in a state is what entered it minus what left it.

    `told_by` tells of which event a transition is; without it, events are not counted.
    """
    counted = list(counters)
    order = {letter: place for place, letter in enumerate([ABSENT, ELSEWHERE, *states])}

    def numbers(tube: str) -> Numbers:
        mine = [(source, target, n) for name, source, target, n in counted if name == tube]
        entered = {state: sum(n for _, target, n in mine if target == state) for state in states}
        left = {state: sum(n for source, _, n in mine if source == state) for state in states}
        mine.sort(key=lambda row: (order.get(row[0], -1), order.get(row[1], -1)))
        return Numbers(
            counts={state: entered[state] - left[state] for state in states},
            transition={f"{source}-{target}": n for source, target, n in mine if source and n},
        )

    events = _events(counted, told_by) if told_by else {}
    return Stats(**numbers("").model_dump(), tube={name: numbers(name) for name in tubes}, events=events)


def _events(counted: Iterable[Counter], told_by: Callable[[str, str], str]) -> dict[str, int]:
    """How often each event was: by its transitions, but for those that were counted as another's."""
    found: Total[str] = Total()
    for tube, source, target, n in counted:
        if source == target == ELSEWHERE:
            transition, _, event = tube.partition(" ")
            left, entered = transition.split("-")
            found[event] += n
            if left != entered:  # else no transition was counted
                found[told_by(left, entered)] -= n
        elif tube == "" and source:
            found[told_by(source, target)] += n
    return {event: n for event, n in found.items() if n}


def corrections(counters: Iterable[Counter], actual: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """What to add to the tasks "there before", per (tube, state), for the counters to tell what the table holds."""
    told: dict[tuple[str, str], int] = {}
    for tube, source, target, n in counters:
        told[tube, target] = told.get((tube, target), 0) + n
        told[tube, source] = told.get((tube, source), 0) - n
    outside = (ABSENT, ELSEWHERE, "")
    names = {name for name in {*told, *actual} if name[1] not in outside}
    return {name: actual.get(name, 0) - told.get(name, 0) for name in names if actual.get(name, 0) != told.get(name, 0)}
