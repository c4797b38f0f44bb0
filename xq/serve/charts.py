"""Charts for the last hour: how many tasks a second were put, finished and buried."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from xq.core.machine import ABSENT, TAKEN
from xq.core.words import lasting
from xq.serve.texts import moment, rate

BUCKET: Final = 15  # seconds between a chart's points
SPAN: Final = 3_600  # seconds that a chart shows
RECENT: Final = 20  # seconds that the current rates cover
LINES: Final = ("put", "finished", "failed")  # a chart's, in tasks a second
TALL: Final = 34  # units that a chart is tall; it is SPAN units wide

Totals = tuple[float, tuple[int, ...]]  # a moment of time.monotonic(), and the totals then


def totals(transitions: Mapping[str, int]) -> tuple[int, ...]:
    """Return how many tasks were put, finished and buried since counting began."""
    moves = [(name[0], name[-1], n) for name, n in transitions.items()]  # as in R-T
    put = sum(n for source, _, n in moves if source == ABSENT)
    finished = sum(n for source, target, n in moves if source == TAKEN and target in ("D", "Z", ABSENT))
    return put, finished, sum(n for _, target, n in moves if target == "B")


class LastHour(deque[Totals]):
    """One queue's totals over the last hour: one for each time bucket."""

    def begin(self, at: float, now: float, transitions: Mapping[str, int], rows: Sequence[Any]) -> None:
        """Add the totals before `at` (the time `now`) that follow from the history's last transitions, in order."""
        counted, ago, found = Counter(transitions), BUCKET, deque[Totals]()
        for row in reversed(rows):
            while ago <= min(SPAN, now - row.at_us / 1_000_000):
                found.appendleft((at - ago, totals(counted)))
                ago += BUCKET
            counted[f"{row.source}-{row.target}"] -= 1
        if rows and ago <= SPAN:
            found.appendleft((at - ago, totals(counted)))  # before the first of them
        self.extend(each for each in found if not self or each[0] > self[-1][0])

    def add(self, at: float, now: tuple[int, ...]) -> None:
        if len(self) > 1 and self[-1][0] - self[-2][0] < BUCKET:
            self.pop()  # the bucket has a later one
        self.append((at, now))
        while self[0][0] < at - SPAN - BUCKET:
            self.popleft()


def rates(past: Sequence[Totals]) -> list[float | None]:
    """Return how many tasks a second were put, finished and buried recently; None until that is known."""
    before = next((each for each in reversed(past) if past[-1][0] - each[0] >= RECENT), past[-1])
    return _between(before, past[-1])


def _between(first: Totals, last: Totals) -> list[float | None]:
    seconds = last[0] - first[0]
    return [max(0, b - a) / seconds if seconds >= 1 else None for a, b in zip(first[1], last[1])]  # < 0: a reset


@dataclass(frozen=True)
class Chart:
    """The greatest rate, the lines as SVG points, and for each step where it begins and what it says."""

    title: str
    most: float
    lines: Mapping[str, str]
    steps: Sequence[tuple[int, int, str]]  # its x, its width, its text


def chart(past: Sequence[Totals], now: float, buckets: int) -> Chart:
    """Return a chart with so many buckets to a step. `now` is the last bucket's time, in seconds since 1970."""
    ends = [*past][::-buckets][::-1]
    steps = [(round(SPAN + a[0] - past[-1][0]), round(b[0] - a[0]), _between(a, b)) for a, b in pairwise(ends)]
    most = max((each for *_, found in steps for each in found if each), default=0.0)
    lines = {
        name: " ".join(f"{x + w},{TALL - (TALL - 4) * (found[i] or 0) / most:.1f}" for x, w, found in steps)
        for i, name in enumerate(LINES)
        if any(found[i] for *_, found in steps)
    }
    known = past[-1][0] - past[0][0] if past else 0.0
    span = "the last hour" if known >= SPAN else f"the last {lasting(known)} (of the time before nothing is known)"
    moved = f"{span}: up to {rate(most)}" if most else f"nothing has moved in {span}"
    told = [", ".join(f"{name} {rate(each)}" for name, each in zip(LINES, found)) for *_, found in steps]
    ends_at = [moment(now - SPAN + x + w) for x, w, _ in steps]
    title = moved if steps else "how much has moved is not known yet"
    return Chart(title, most, lines, [(x, w, f"{at}: {text}") for (x, w, _), at, text in zip(steps, ends_at, told)])
