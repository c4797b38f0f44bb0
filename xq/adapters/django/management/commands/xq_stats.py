"""manage.py xq_stats: count the tasks in each state, and the transitions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xq import Queue
from xq.adapters.django.management.queues import QueueCommand
from xq.engine.stats import Numbers, Stats


class Command(QueueCommand):
    help = "Counts the tasks in each state, and the transitions. The numbers are exact at the last commit."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_queues(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document with all numbers by queue")

    def handle(self, *args: Any, **options: Any) -> None:
        spelled = not options["json"]
        found = self.each(options["queues"], options["database"], lambda queue: Queue.stats(queue, pretty=spelled))
        if options["json"]:
            self.stdout.write(json.dumps({name: stats.model_dump() for name, stats in found.items()}, indent=2))
        elif found:
            self.stdout.write("\n".join(text(found)))
        elif not self.wrong:
            self.stdout.write("there are no queues")
        self.finish()


def text(found: Mapping[str, Stats]) -> Iterator[str]:
    """Yield the lines of two tables: counts, with a column for each state of any of the queues, and transitions."""
    numbers = {(name, tube): of for name, stats in found.items() for tube, of in each(stats)}
    states = list(dict.fromkeys(state for of in numbers.values() for state in of.counts))
    yield from aligned(
        [
            ["queue", "tube", *states],
            *([*who, *(str(of.counts.get(state, "")) for state in states)] for who, of in numbers.items()),
        ]
    )
    yield ""
    yield from aligned(
        [
            ["queue", "tube", "transition", "times"],
            *([*who, name, str(n)] for who, of in numbers.items() for name, n in of.transition.items()),
        ],
        texts=3,
    )


def each(stats: Stats) -> Iterator[tuple[str, Numbers]]:
    """Yield the numbers of a queue, and those of its tubes."""
    yield "", stats
    yield from stats.tube.items()


def aligned(rows: Sequence[Sequence[str]], texts: int = 2) -> Iterator[str]:
    """Yield lines of aligned columns: first `texts` columns of text, then numbers. Empty columns are left out."""
    widths = [max(map(len, column)) if any(column[1:]) else 0 for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            if width
        ]
        yield "  ".join(cells).rstrip()
