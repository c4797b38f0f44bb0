"""manage.py xq_sweep: run the maintenance thread's duties once."""

from __future__ import annotations

import argparse
from typing import Any

from xq import Queue
from xq.adapters.django.management.queues import QueueCommand


class Command(QueueCommand):
    help = "Moves all due tasks. Processes that take tasks do so themselves; use this if none runs."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_queues(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        swept = self.each(options["queues"], Queue.sweep)
        for name, moves in swept.items():
            self.stdout.write(f"{name}: {moves} moved")
        self.finish()
