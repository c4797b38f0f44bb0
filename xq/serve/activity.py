"""The page of what a queue did over a day, a week or a month, from the table of `xq.spark.stream()`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from xq.core.errors import BadValue, ConfigurationError
from xq.core.filters import parse
from xq.pipeline.rollup import UNITS, Rollup, Throughput
from xq.serve import charts, texts
from xq.serve.console import Console, Route
from xq.serve.entries import on
from xq.serve.rights import VIEW
from xq.serve.visit import Visit

SPANS: Final = {"day": (86_400, 900), "week": (604_800, 7_200), "month": (2_592_000, 28_800)}  # and of a column, in s
SHOWN: Final = {"put": "T", "done": "R", "buried": "B", "killed": "X", "expired": "W"}  # each in the colour of a state


@dataclass(frozen=True)
class Activity:
    """The throughput of a queue over a span of time."""

    newest: int | None  # the start of the newest bucket of all; None if the queue has none
    width: int  # seconds of a column
    columns: list[tuple[int, Counter[str]]]  # the start of each, and its numbers

    def total(self, name: str) -> int:
        return sum(numbers[name] for _, numbers in self.columns)

    def chart(self, name: str) -> str:
        titled = [(numbers[name], f"{texts.moment(at)}: {numbers[name]:,}") for at, numbers in self.columns]
        return charts.columns(SHOWN[name], titled)


def read(rollup: Rollup, queue: str, span: str, tubes: tuple[str, ...], now: float) -> Activity:
    """Read the last day, week or month of a queue. Raises ConfigurationError if the table cannot be read."""
    seconds, width = SPANS[span]
    newest = rollup.newest(queue)
    fresh = [unit for unit, bucket in newest.items() if bucket >= now - seconds - UNITS[unit]]
    width = max([width, *(UNITS[unit] for unit in fresh)])  # a column has whole buckets
    until = int(now // width + 1) * width
    since = until - (seconds // width + 1) * width
    found: dict[int, Counter[str]] = {at: Counter() for at in range(since, until, width)}
    for unit in fresh:
        for row in rollup.throughput(queue, unit, since, until, width, tubes):
            found[row.bucket].update(dict(zip(Throughput._fields[1:], row[1:])))
    return Activity(max(newest.values(), default=None), width, [*found.items()])


def tubes_of(text: str) -> tuple[str, ...]:
    """Return the tubes that a filter names, none for all. Raises BadValue."""
    terms = parse(text).terms
    if any(term.name != "tube" or term.operator not in ":=" or term.negated for term in terms) or len(terms) > 1:
        raise BadValue("the table of the activity has tubes only: a filter is tube:mail, or tube:mail,news, here")
    return terms[0].values if terms else ()


def activity(console: Console, visit: Visit) -> Response:
    entry, table, now = visit.queue, console.settings.activity or "", time.time()
    text, span = visit.text("filter").strip(), visit.text("span")
    span = span if span in SPANS else "day"
    values: dict[str, Any] = {"filter": text, "span": span, "spans": SPANS, "shown": SHOWN, "table": table, "now": now}
    values |= {"found": None, "wrong": ""}
    try:
        tubes = tubes_of(text)
        values["found"] = on(entry, lambda: read(entry.queue.pipeline.rollup(table), entry.name, span, tubes, now))
    except (BadValue, ConfigurationError) as error:
        status = 400 if isinstance(error, BadValue) else 503
        return console.html("activity.html", visit, status, **values | {"wrong": f"{error}"})
    return console.html("activity.html", visit, **values)


PAGE: Final = Route("GET", "/q/{queue}/activity", VIEW, activity)
