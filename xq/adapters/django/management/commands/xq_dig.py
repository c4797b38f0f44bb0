"""manage.py xq_dig: make buried tasks ready again."""

from __future__ import annotations

import argparse
from typing import Any

from xq.adapters.django.management.queues import QueueCommand, label, queue
from xq.operators.keys import key_in_text


class Command(QueueCommand):
    help = "Digs buried tasks: they are ready again, or wait for a delay. If one named task fails, none is dug."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("queue", type=queue, metavar="app.Model")
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument(
            "key", nargs="?", metavar="KEY", help="the task of this key; a composite key is a JSON array (default: all)"
        )
        chosen.add_argument("--key", action="append", dest="keys", metavar="KEY", help="as KEY; may be repeated")
        chosen.add_argument("-n", type=int, metavar="N", help="the N oldest")
        parser.add_argument("--delay", type=float, metavar="SECONDS", help="how long they wait first")

    def handle(self, *args: Any, **options: Any) -> None:
        found, n, delay = options["queue"], options["n"], options["delay"]
        keys = options["keys"] or ([] if options["key"] is None else [options["key"]])
        given = {} if delay is None else {"delay": delay}
        if keys:
            wanted = [key_in_text(found.parts.tasks, text) for text in keys]
            dug = found.transaction(lambda: [found.dig(key, **given) for key in wanted])
        else:
            dug = found.dig(n=n, **given)
        self.stdout.write(f"{label(found)}: {len(dug)} dug")
