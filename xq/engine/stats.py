"""Count the tasks in each state, and the transitions."""

from __future__ import annotations

from collections import Counter as Total
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, Field

from xq.core.counters import MANY, Counter
from xq.core.kinds import ErrorKind
from xq.core.machine import ABSENT, ELSEWHERE, NAMES
from xq.database.transactions import retried
from xq.engine.executor import Executor


class Numbers(BaseModel):
    """`counts` of the tasks by state, and `transition` counts by name ("R-T")."""

    counts: dict[str, int]
    transition: dict[str, int]

    def spelled(self, names: Mapping[str, str] = NAMES) -> Numbers:
        """Return the same with the states' names in place of their letters."""
        return Numbers(counts=_spelled(self.counts, names), transition=_spelled(self.transition, names))


class Stats(Numbers):
    """A queue's numbers, and the numbers for each tube in `tube_stats`.

    With the feature events, `events` counts each event's calls, and `by_event` splits these by transition ("T-T"
    for a touch).
    """

    tube: dict[str, Numbers] = Field(default_factory=dict)
    events: dict[str, int] = Field(default_factory=dict)
    by_event: dict[str, dict[str, int]] = Field(default_factory=dict)

    def spelled(self, names: Mapping[str, str] = NAMES) -> Stats:
        tubes = {name: tube.spelled(names) for name, tube in self.tube.items()}
        by_event = {event: _spelled(found, names) for event, found in self.by_event.items()}
        return Stats(**super().spelled(names).model_dump(), tube=tubes, events=self.events, by_event=by_event)


def _spelled(numbers: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    return {"-".join(names.get(s, s) for s in name.split("-")): n for name, n in numbers.items()}


def stats(
    counters: Iterable[Counter],
    states: Sequence[str],
    tubes: Sequence[str] = (),
    usual_event: Callable[[str, str], str] | None = None,
) -> Stats:
    """Add the counters up. A state's count is how many tasks entered it minus how many left it.

    `usual_event` returns the event of a transition for which no other was counted. Without it, events are not counted.
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


def counters(executor: Executor) -> list[Counter]:
    """Return the counters. If they have become many rows, roll those up."""
    found = executor.run(executor.dialect.queries.counters)
    if sum(rows for *_, rows in found) > MANY and not executor.store.in_transaction():
        roll_up_some(executor)
    return [tuple(row[:4]) for row in found]


def counts(executor: Executor) -> dict[str, int]:
    """Return how many tasks are in each state."""
    return stats(counters(executor), executor.definition.machine.states).counts


def writes(counters: Iterable[Counter]) -> dict[str, int]:
    """Return, by transition, how many tasks other programs have moved from a guarded state ("D-R": 3)."""
    return by_event((row for row in counters if row[1] == ELSEWHERE == row[2]), lambda *_: "").get("write", {})


def told_of(writes: Mapping[str, int]) -> list[str]:
    """Return a sentence for each transition in `writes`."""
    names = {**NAMES, ABSENT: "a status that is none of this queue's"}
    moves = [(n, " to ".join(names.get(state, state) for state in name.split("-"))) for name, n in writes.items()]
    return [f"{n:,} task{'s' * (n > 1)} went from {move} by other programs" for n, move in moves if n > 0]


def room(executor: Executor, counts: Mapping[str, int]) -> int | None:
    """Return how many tasks may be put beside these numbers by state; None without the feature limit."""
    if (limit := executor.definition.machine.room) is None:
        return None
    return max(0, int(limit.value) - sum(counts[state] for state in executor.dialect.guarded_states(limit)))


def roll_up_some(executor: Executor) -> bool:
    """Roll up some counters that no other process is rolling up. Return whether there may be more."""
    dialect, store = executor.dialect, executor.store
    try:
        return retried(store, lambda: dialect.queries.roll_up(store))
    except Exception as error:
        # Ignore others: a standby cannot write, nor a user that may only look.
        if store.classify(error) is ErrorKind.NOT_DATABASE:
            raise
        return False


def by_event(counted: Iterable[Counter], usual_event: Callable[[str, str], str]) -> dict[str, dict[str, int]]:
    """Return each event's count by transition: the usual event's count leaves out other events' transitions."""
    found: defaultdict[str, Total[str]] = defaultdict(Total)
    for tube, source, target, n in counted:
        if source == target == ELSEWHERE:
            transition, _, event = tube.partition(" ")
            left, entered = transition.split("-")
            found[event][transition] += n
            if left != entered:  # else the triggers counted no transition
                found[usual_event(left, entered)][transition] -= n
        elif tube == "" and source:
            found[usual_event(source, target)][f"{source}-{target}"] += n
    each = {event: {name: n for name, n in of_event.items() if n} for event, of_event in found.items()}
    return {event: of_event for event, of_event in each.items() if of_event}
