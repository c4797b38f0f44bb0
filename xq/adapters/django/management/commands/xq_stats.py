"""manage.py xq_stats: count the tasks in each state, and the transitions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from xq import Queue
from xq.adapters.django.management.queues import QueueCommand
from xq.engine.stats import Stats


class Command(QueueCommand):
    help = "Counts the tasks in each state, and the transitions. The numbers are exact at the last commit."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_queues(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document with all numbers by queue")

    def handle(self, *args: Any, **options: Any) -> None:
        spelled = not options["json"]
        found = self.each(options["queues"], lambda queue: Queue.stats(queue, pretty=spelled))
        if options["json"]:
            self.stdout.write(json.dumps({name: stats.model_dump() for name, stats in found.items()}, indent=2))
        elif found:
            self.stdout.write("\n".join(text(found)))
        elif not self.wrong:
            self.stdout.write("there are no queues")
        self.finish()


def text(found: Mapping[str, Stats]) -> list[str]:
    """Return the lines for two tables: counts, with a column for each state of any queue, and transitions."""
    numbers = {(name, tube): of for name, stats in found.items() for tube, of in {"": stats, **stats.tube}.items()}
    states = list(dict.fromkeys(state for of in numbers.values() for state in of.counts))
    counts = [[*who, *(str(of.counts.get(state, "")) for state in states)] for who, of in numbers.items()]
    times = [[*who, name, str(n)] for who, of in numbers.items() for name, n in of.transition.items()]
    heads = ["queue", "tube"]
    return [*aligned([[*heads, *states], *counts]), "", *aligned([[*heads, "transition", "times"], *times])]


def aligned(rows: list[list[str]]) -> list[str]:
    """Return a table's lines, without the columns that are empty below their head."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in zip(*columns, strict=True)]
