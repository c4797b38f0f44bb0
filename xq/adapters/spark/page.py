"""A report's page: one self-contained file, computed from the tables as they are written."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from xq.adapters.spark.facts import LIFE
from xq.adapters.spark.moves import COUNTED, SECOND, Span
from xq.adapters.spark.tables import KINDS, LEVELS, TABLES, Row, TubeFacts, by_attempts, by_outcome, count, ends
from xq.adapters.spark.tables import levels as levels_of
from xq.adapters.spark.tables import oldest as oldest_of
from xq.adapters.spark.verdicts import THRESHOLDS, verdicts

# At most: queues, and for each queue.
SHOWN = {"queues": 30, "tubes": 12, "stuck": 50, "transitions": 60, "retries": 100, "failures": 12}
FIGURES = (*COUNTED, "ended", "missed", "again", *LEVELS, "lived", "lived_p99", "ready_p90")  # the previous span's


MEASURED = ("n", "p50", "p90", "p99", "max")
ROWS = {  # what the rows of a queue's figures consist of
    "throughput": ("at", *COUNTED),
    "backlog": ("at", "arrived", "departed", "change"),
    "overall": ("measure", *MEASURED),
    "retries": ("attempts", "n"),
    "busiest": ("tube", *COUNTED, "backlog"),
    "failed": ("tube", "ended", "not_done", "taken_again"),
    "failures": ("tube", "error", "n", "latest"),
    "waits": ("tube", "p50", "p90", "max", "ready", "grown", "n", "oldest"),
    "slowest": ("tube", *MEASURED),
    "transitions": ("source", "target", "event", "n"),
}
STUCK = ("key", "state", "since", "seconds")


def in_words(queue: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queue's figures with a name for each value, and the names of the red answers."""
    rows = {name: [dict(zip(names, row, strict=True)) for row in queue[name]] for name, names in ROWS.items()}
    stuck = {**queue["stuck"], "rows": [dict(zip(STUCK, row, strict=True)) for row in queue["stuck"]["rows"]]}
    red = [name for name, is_red in queue["verdicts"].items() if is_red]
    return {**queue, **rows, "shares": dict(zip(KINDS, queue["shares"], strict=True)), "stuck": stuck, "red": red}


class First:
    """The first rows in an order, from any number of rows."""

    def __init__(self, most: int, order: Callable[[Row], Any]) -> None:
        self.most, self.order = most, order
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows = sorted([*self.rows, row], key=self.order)[: self.most]


def _text(value: str | None) -> tuple[bool, str]:
    return value is not None, value or ""  # null comes first


@dataclass
class Figures:
    """What the page shows about one queue. It has one number per bucket, and 12 tubes."""

    name: str
    thresholds: Mapping[str, float]
    begun: int | None  # the history's, in µs since 1970
    throughput: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    backlog: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    levels: Counter[str] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Row] = field(default_factory=Counter)
    overall: list[Row] = field(default_factory=list)
    tubes: int = 0
    stuck: int = 0
    before: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(FIGURES))

    def __post_init__(self) -> None:
        tubes, enough = SHOWN["tubes"], self.thresholds["tube_tasks"]

        def failing(row: Row) -> Any:
            tube, n, missed, again = row
            return n < enough, -missed / n, -again, _text(tube)

        def waiting(row: Row) -> Any:
            tube, _, p90, _, ready, _, n, oldest = row
            starved = ready > 0 and p90 is None and (oldest or 0) > self.thresholds["ready_p90"]
            return not starved, n < enough, p90 is None, -(p90 or 0), -ready, _text(tube)

        self.busiest = First(tubes, lambda row: (-row[2], -row[1], _text(row[0])))
        self.failed = First(tubes, failing)
        self.failures = First(SHOWN["failures"], lambda row: (-row[2], -row[3], _text(row[1])))
        self.waits = First(tubes, waiting)
        self.slowest = First(tubes, lambda row: (-row[3], -row[5], _text(row[0])))
        self.longest = First(SHOWN["stuck"], lambda row: (-row[3], row[0]))

    def add(self, tube: TubeFacts, tables: Mapping[str, Sequence[Row]]) -> None:
        """Add a tube: its facts, and its rows in the tables."""
        counts: Counter[str] = Counter()
        for _, _, _, slot, *numbers in tables["throughput"]:
            found = dict(zip(COUNTED, numbers, strict=True))
            self.throughput[slot].update(found)
            counts.update(found)
        ready = 0
        for _, _, slot, arrived, departed, _, level in tables["backlog"]:
            self.backlog[slot].update(arrived=arrived, departed=departed, change=level - ready)
            ready = level  # the first bucket includes what was Ready already
        levels = levels_of(tube)
        self.levels.update(levels)
        attempts = by_attempts(tube)
        self.attempts.update(attempts)
        self.outcomes.update(by_outcome(tube))
        for _, _, source, target, event, n in tables["transitions"]:
            self.transitions[source, target, event] += n
        self.overall += (row[1:] for row in tables["overall"])
        if tables["throughput"]:
            self.tubes += 1
            self.busiest.add((tube.name, *(counts[name] for name in COUNTED), levels["backlog"]))
        n, missed = attempts.total(), attempts.total() - by_outcome(tube)["done"]
        again = sum(many for takes, many in attempts.items() if takes > 1)
        if missed or again:
            self.failed.add((tube.name, n, missed, again))
        for _, _, error, many, latest in tables["failures"]:
            self.failures.add((tube.name, error, many, latest // SECOND))
        stays = next((row[3:] for row in tables["states"] if row[2] == "Ready"), (0, None, None, None, None))
        if levels["ready"] > 0 or stays[0]:
            grown, wait = levels["ready"] - levels["ready_base"], oldest_of(tube, self.begun)
            self.waits.add((tube.name, stays[1], stays[2], stays[4], levels["ready"], grown, stays[0], wait))
        for row in tables["lives"]:
            self.slowest.add(row[1:])
        for fact in tube.facts.get("stuck", ()):
            self.stuck = fact.n
            since = None if fact.us is None else fact.us // SECOND
            self.longest.add((fact.source, fact.target, since, fact.ranks[0]))
        self._add_before(tube)

    def _add_before(self, tube: TubeFacts) -> None:
        counts: Counter[str] = Counter(levels_of(tube, "before"))
        for fact in tube.of("moved", "before"):
            count(counts, fact)
        for (outcome, takes), n in ends(tube, "before").items():
            counts.update(ended=n, missed=n * (outcome != "done"), again=n * (takes > 1))
        for name, n in counts.items():
            self.before[name] = (self.before[name] or 0) + n
        for fact in tube.of("overall", "before"):
            p50, p90, p99, _ = fact.ranks
            if fact.source == LIFE:
                self.before.update(lived=p50, lived_p99=p99)
            elif fact.source == "R":
                self.before["ready_p90"] = p90

    def shown(self, silent: str | None, since: int | None, lacking: bool) -> dict[str, Any]:
        """Return the page's data about the queue. `since` begins the span that it is compared with, if there is one.

        `lacking` means that history is in an archive, and not in this report.
        """
        n = self.outcomes.total()
        found: dict[str, Any] = {
            "name": self.name,
            "throughput": [(at // SECOND, *(row[name] for name in COUNTED)) for at, row in self.throughput.items()],
            "backlog": [
                (at // SECOND, *(row[name] for name in ("arrived", "departed", "change")))
                for at, row in self.backlog.items()
            ],
            "overall": self.overall,
            "retries": sorted(self.attempts.items())[: SHOWN["retries"]],
            **{name: getattr(self, name).rows for name in ("busiest", "failed", "failures", "waits", "slowest")},
            "transitions": [
                (*way, n)
                for way, n in sorted(self.transitions.items(), key=lambda item: (-item[1], *map(_text, item[0])))
            ][: SHOWN["transitions"]],
            "levels": {name: self.levels[name] for name in LEVELS},
            "shares": [self.outcomes[kind] / n if n else 0 for kind in KINDS],
            "tubes": self.tubes,
            "stuck": {"n": self.stuck, "rows": self.longest.rows},
        }
        known = since is not None and self.begun is not None and self.begun <= since
        return {
            **found,
            "verdicts": verdicts(found, self.thresholds),
            "silent": silent,
            "lacking": lacking,
            "begun": None if self.begun is None else self.begun / 1e6,
            "before": self.before if known else None,
        }


class ReportPage:
    """Collects the first queues' figures, from their tubes one by one."""

    def __init__(self, names: Sequence[str], thresholds: Mapping[str, float], begun: Mapping[str, int]) -> None:
        self.names = names
        self.thresholds = thresholds
        self.queues = {name: Figures(name, thresholds, begun.get(name)) for name in names[: SHOWN["queues"]]}

    def add(self, tube: TubeFacts, tables: Mapping[str, Sequence[Row]]) -> None:
        if tube.queue in self.queues:
            self.queues[tube.queue].add(tube, tables)

    def figures(self, before: Span | None, silent: Mapping[str, str], lacking: Container[str]) -> list[dict[str, Any]]:
        """Return what is shown of each queue. `silent` has those without errors, and what they lack."""
        since = before.since if before else None
        return [queue.shown(silent.get(name), since, name in lacking) for name, queue in self.queues.items()]

    def html(self, span: Span, before: Span | None, figures: Sequence[Mapping[str, Any]]) -> str:
        """Return the page."""
        # imported here, since Spark's workers import this package without needing it
        from plotly.offline import get_plotlyjs

        data = {
            **{name: getattr(span, name) / 1e6 for name in ("since", "until", "now")},
            "unit": span.unit,
            "left": len(self.names) - len(self.queues),
            "meanings": [(name, table.meaning) for name, table in TABLES.items()],
            "compared": before is not None,
            "thresholds": {
                name: [self.thresholds[name], threshold.unit, threshold.meaning]
                for name, threshold in THRESHOLDS.items()
            },
            "queues": figures,
        }
        template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
        # Only `<` could end the script element; JSON has another way to write it.
        values = json.dumps(data).replace("<", "\\u003c")
        head, rest = template.split("/*PLOTLY*/")
        middle, end = rest.split("/*DATA*/")
        return "".join([head, get_plotlyjs(), middle, values, end])
