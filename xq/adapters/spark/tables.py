"""A report's tables: each is a function that takes one tube's facts, in plain Python.

TABLES has each one's columns, and what they mean.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.types import StructType

from xq.adapters.spark.facts import LIFE
from xq.adapters.spark.moves import COUNTED, OPEN, Span
from xq.core.machine import ABSENT, NAMES

STUCK = 3  # a task is stuck in a state for longer than this many times the state's p99
KINDS = ("done", "buried", "expired", "killed")
TIMES = "n bigint, p50 double, p90 double, p99 double, max double"
LEVELS = ("base", "backlog", "ready_base", "ready", "readied")

Row = tuple[Any, ...]


class Fact(NamedTuple):
    """A row of the facts (`xq.adapters.spark.facts`), or a row about percentiles or a stuck task beside them."""

    queue: str
    tube: str | None
    kind: str
    era: str = "now"
    source: str = ""
    target: str = ""
    event: str | None = None
    outcome: str | None = None
    slot: int = 0
    number: int = 0
    n: int = 0
    arrived: int = 0
    departed: int = 0
    readied: int = 0
    unreadied: int = 0
    us: int | None = None
    least: int = 0
    ranks: Sequence[float] = ()  # p50, p90, p99, max in seconds; for how long a task is stuck


@dataclass(frozen=True)
class TubeFacts:
    """What is known about a queue's tube: its facts by kind, in the span and before. The whole queue's percentiles
    belong to the tube None, with the kind "overall".
    """

    queue: str
    name: str | None
    facts: Mapping[str, Sequence[Fact]]
    span: Span

    def of(self, kind: str, era: str = "now") -> list[Fact]:
        return [fact for fact in self.facts.get(kind, ()) if fact.era == era]

    @property
    def place(self) -> Row:
        return self.queue, self.name


def throughput(tube: TubeFacts) -> Iterable[Row]:
    """Count what happened in each bucket in which a task was put, taken or ended."""
    slots: dict[int, Counter[str]] = defaultdict(Counter)
    for fact in tube.of("moved"):
        count(slots[tube.span.bucket(fact.slot)], fact)
    for slot, counts in slots.items():
        if any(counts.values()):
            yield (*tube.place, tube.span.unit, slot, *(counts[name] for name in COUNTED))


def count(counts: Counter[str], moved: Fact) -> None:
    """Count the puts, the takes, and each kind of end: COUNTED."""
    if moved.source == ABSENT and moved.target in OPEN:
        counts["put"] += moved.n
    if moved.target == "T" and moved.source != "T":
        counts["taken"] += moved.n
    if moved.outcome is not None:
        counts[moved.outcome] += moved.n


def states(tube: TubeFacts) -> Iterable[Row]:
    """Return the ended stays' percentiles, by the tube at their end."""
    return [(*tube.place, named(fact.source), *times(fact)) for fact in tube.of("ranks") if fact.source != LIFE]


def lives(tube: TubeFacts) -> Iterable[Row]:
    """Return the percentiles from put to done, by the tube in which the task was done."""
    return [(*tube.place, *times(fact)) for fact in tube.of("ranks") if fact.source == LIFE]


def overall(tube: TubeFacts) -> Iterable[Row]:
    return [(tube.queue, named(fact.source), *times(fact)) for fact in tube.of("overall")]


def named(state: str) -> str:
    return NAMES.get(state, state)


def times(fact: Fact) -> Row:
    return fact.n, *fact.ranks


def retries(tube: TubeFacts) -> Iterable[Row]:
    return [(*tube.place, attempts, n) for attempts, n in by_attempts(tube).items()]


def ends(tube: TubeFacts, era: str = "now") -> Counter[tuple[str, int]]:
    """Return how many lives ended in each way after so many takes."""
    counts = _summed(((fact.outcome, fact.number), fact.n) for fact in tube.of("ended", era))
    return +counts  # without the ends that later ones replaced


def by_attempts(tube: TubeFacts) -> Counter[int]:
    return _summed((takes, n) for (_, takes), n in ends(tube).items())


def by_outcome(tube: TubeFacts) -> Counter[str]:
    return _summed((outcome, n) for (outcome, _), n in ends(tube).items())


def _summed(numbers: Iterable[tuple[Any, int]]) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for name, n in numbers:
        counts[name] += n
    return counts


def shares(tube: TubeFacts) -> Iterable[Row]:
    """Return how the ended tasks ended: once for each task's life, by its last end in the span."""
    counts = by_outcome(tube)
    return [(*tube.place, *(counts[kind] / counts.total() for kind in KINDS))] if counts else []


def backlog(tube: TubeFacts) -> Iterable[Row]:
    """Return the backlog at each bucket's end: the previous bucket's, plus arrived, minus departed.

    At the history's beginning it follows from the source state in each task's first row, or from the table for a
    task without one. The span's first bucket has a row if there was a backlog.
    """
    first = tube.span.bucket(tube.span.since)
    slots: dict[int, Counter[str]] = defaultdict(Counter, {first: Counter()})
    for fact in changes(tube, "now"):
        for name in CHANGES:
            slots[tube.span.bucket(fact.slot)][name] += getattr(fact, name)
    found = levels(tube)
    level, ready = found["base"], found["ready_base"]
    for slot, counts in sorted(slots.items()):
        level += counts["arrived"] - counts["departed"]
        ready += counts["readied"] - counts["unreadied"]
        is_shown = level and (slot == first or counts["readied"] or counts["unreadied"])
        if counts["arrived"] or counts["departed"] or is_shown:
            yield (*tube.place, slot, counts["arrived"], counts["departed"], level, ready)


CHANGES = ("arrived", "departed", "readied", "unreadied")


def changes(tube: TubeFacts, era: str) -> list[Fact]:
    return tube.of("moved", era) + tube.of("changed", era)


def stuck(tube: TubeFacts) -> Iterable[Row]:
    return [(tube.queue, fact.source, fact.target, fact.us, *fact.ranks) for fact in tube.of("stuck")]


def failures(tube: TubeFacts) -> Iterable[Row]:
    return [(*tube.place, fact.event, fact.n, fact.us) for fact in tube.of("failed")]


def transitions(tube: TubeFacts) -> Iterable[Row]:
    """Count the transitions by their states and their event."""
    counts = _summed(((fact.source, fact.target, fact.event), fact.n) for fact in tube.of("moved"))
    return [(*tube.place, *way, n) for way, n in counts.items()]


class ReportTable(NamedTuple):
    columns: str
    rows: Callable[[TubeFacts], Iterable[Row]]
    meaning: str  # the explanation on the page

    @property
    def schema(self) -> StructType:
        found = StructType.fromDDL(self.columns)
        assert isinstance(found, StructType)
        return found


TABLES: Mapping[str, ReportTable] = {
    "throughput": ReportTable(
        "queue string, tube string, unit string, bucket timestamp, " + ", ".join(f"{name} bigint" for name in COUNTED),
        throughput,
        "Tasks put, taken and ended in each second, minute, hour or day, by tube. Done: acked. Buried: put aside after "
        "a failure. Expired: its ttl or lifetime passed. Killed: deleted otherwise. A task that "
        "has ended is not counted again when its row is deleted.",
    ),
    "states": ReportTable(
        f"queue string, tube string, state string, {TIMES}",
        states,
        "How long tasks stayed in each state, by tube, of the stays that ended in the span. A pN is a real value: N % "
        "of the stays were as long or shorter.",
    ),
    "lives": ReportTable(
        f"queue string, tube string, {TIMES}",
        lives,
        "How long tasks took from put to done, by tube, including delays, retries and the time Buried. The restart of "
        "a finished task begins a new life.",
    ),
    "overall": ReportTable(
        f"queue string, measure string, {TIMES}",
        overall,
        "The same times over all tubes of a queue, since percentiles of parts cannot be added.",
    ),
    "retries": ReportTable(
        "queue string, tube string, attempts bigint, n bigint",
        retries,
        "How often the tasks that ended in the span had been taken by then: once means no retry.",
    ),
    "shares": ReportTable(
        "queue string, tube string, " + ", ".join(f"{kind} double" for kind in KINDS),
        shares,
        "The fractions done, buried, expired and killed of the tasks that ended in the span, each by its last end. "
        "One that was buried, dug and done is done.",
    ),
    "backlog": ReportTable(
        "queue string, tube string, bucket timestamp, arrived bigint, departed bigint, backlog bigint, ready bigint",
        backlog,
        "How many tasks entered the backlog (Ready, or Waiting for their time) in each bucket, for example by put or "
        "release, how many left it, and how many were in it at the end; ready: those of them that were Ready. Buckets "
        "without changes have no row.",
    ),
    "stuck": ReportTable(
        "queue string, key string, state string, since timestamp, seconds double",
        stuck,
        "Tasks Ready or Taken when the report was made, for longer than three times the p99 of that state in the span, "
        "of its tube, or of its queue if the tube has none. For a task from before the history, the time is a lower "
        "bound.",
    ),
    "failures": ReportTable(
        "queue string, tube string, error string, n bigint, latest timestamp",
        failures,
        "Why tasks were buried in the span and are still Buried, by the first line of the role error: how many, and "
        "when the last one was buried.",
    ),
    "transitions": ReportTable(
        "queue string, tube string, source string, target string, event string, n bigint",
        transitions,
        "How often tasks went from one state to another, and by which event.",
    ),
}


# Further figures for the page.


def levels(tube: TubeFacts, era: str = "now") -> dict[str, int]:
    """Return a tube's backlog at a span's beginning and end.

    base, backlog (R and W at the beginning, and at the end), ready_base, ready (R alone), readied (how many became
    Ready in the span).
    """

    def total(name: str, eras: Iterable[str]) -> int:
        return sum(getattr(fact, name) for each in eras for fact in changes(tube, each))

    earlier = ("early", "before") if era == "now" else ("early",)
    until = (*earlier, era)
    return {
        "base": total("arrived", earlier) - total("departed", earlier),
        "backlog": total("arrived", until) - total("departed", until),
        "ready_base": total("readied", earlier) - total("unreadied", earlier),
        "ready": total("readied", until) - total("unreadied", until),
        "readied": total("readied", (era,)),
    }


def oldest(tube: TubeFacts, begun: int | None) -> float | None:
    """Return for how many seconds, at least, the oldest Ready task has been so at the span's end.

    `begun` is when the queue's history begins, in µs since 1970. None if no task is Ready.
    """
    known = [-fact.us if fact.us is not None else begun for fact in tube.facts.get("waiting", ())]
    times = [us for us in known if us is not None]
    return max((tube.span.until - min(times)) / 1e6, 0.0) if times else None
