"""How many tasks are in each state, and how often each transition was seen."""

from __future__ import annotations

from collections import Counter as Total
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, Field

from xq.core.machine import ABSENT, ELSEWHERE, NAMES

# tube ('' is all together), source ('' is "there before counting began"), target, how often
Counter = tuple[str, str, str, int]


def apart(event: str, source: str, target: str) -> tuple[str, str, str]:
    """The counter of an event that is not the usual one of a transition: tube, source, target, as none has them."""
    return f"{source}-{target} {event}", ELSEWHERE, ELSEWHERE


class Numbers(BaseModel):
    """`counts` per state and `transition` counts, named "R-T"."""

    counts: dict[str, int]
    transition: dict[str, int]

    def spelled(self) -> Numbers:
        """The same, with the names of the states in place of their letters."""
        return Numbers(
            counts={NAMES.get(state, state): n for state, n in self.counts.items()},
            transition=_spelled(self.transition),
        )


class Stats(Numbers):
    """The numbers of a queue, and of each of its tubes that is counted.

    With the feature events, how often each was, and `by_event` by which transitions, "T-T" for a touch.
    """

    tube: dict[str, Numbers] = Field(default_factory=dict)
    events: dict[str, int] = Field(default_factory=dict)
    by_event: dict[str, dict[str, int]] = Field(default_factory=dict)

    def spelled(self) -> Stats:
        tubes = {name: tube.spelled() for name, tube in self.tube.items()}
        by_event = {event: _spelled(found) for event, found in self.by_event.items()}
        return Stats(**super().spelled().model_dump(), tube=tubes, events=self.events, by_event=by_event)


def _spelled(transitions: Mapping[str, int]) -> dict[str, int]:
    return {"-".join(NAMES.get(s, s) for s in name.split("-")): n for name, n in transitions.items()}


def stats(
    counters: Iterable[Counter],
    states: Sequence[str],
    tubes: Sequence[str] = (),
    usual_event: Callable[[str, str], str] | None = None,
) -> Stats:
    """Add the counters up. What is in a state is what entered it minus what left it.

    `usual_event` says of which event a transition is where no other was counted; without it, no event is.
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

    found = by_event(counted, usual_event) if usual_event else {}
    return Stats(
        **numbers("").model_dump(),
        tube={name: numbers(name) for name in tubes},
        events={event: sum(transitions.values()) for event, transitions in found.items()},
        by_event=found,
    )


def by_event(counted: Iterable[Counter], usual_event: Callable[[str, str], str]) -> dict[str, dict[str, int]]:
    """How often each event was, by transition: as often as that, but for what was counted as another event's."""
    found: defaultdict[str, Total[str]] = defaultdict(Total)
    for tube, source, target, n in counted:
        if source == target == ELSEWHERE:
            transition, _, event = tube.partition(" ")
            left, entered = transition.split("-")
            found[event][transition] += n
            if left != entered:  # else no transition was counted
                found[usual_event(left, entered)][transition] -= n
        elif tube == "" and source:
            found[usual_event(source, target)][f"{source}-{target}"] += n
    each = {event: {name: n for name, n in of_event.items() if n} for event, of_event in found.items()}
    return {event: of_event for event, of_event in each.items() if of_event}


def corrections(counters: Iterable[Counter], actual: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """What to add to the tasks "there before", per (tube, state), for the counters to tell what the table holds."""
    told: dict[tuple[str, str], int] = {}
    for tube, source, target, n in counters:
        told[tube, target] = told.get((tube, target), 0) + n
        told[tube, source] = told.get((tube, source), 0) - n
    outside = (ABSENT, ELSEWHERE, "")
    names = {name for name in {*told, *actual} if name[1] not in outside}
    return {name: actual.get(name, 0) - told.get(name, 0) for name in names if actual.get(name, 0) != told.get(name, 0)}
