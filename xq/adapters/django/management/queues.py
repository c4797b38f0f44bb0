"""What the commands share: queues by their labels, and readable errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from xq import Queue
from xq.adapters.django.lookup import queue_of, queues
from xq.core.errors import Error, shown


def label(queue: Queue[Any]) -> str:
    """Return a queue's name on the command line: "shop.Order"."""
    return str(queue.model._meta.label)


def queue(name: str) -> Queue[Any]:
    """Return the queue with a label, in upper or lower case. Used as an argument's type."""
    try:
        found = queue_of(apps.get_model(name)._meta.concrete_model)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"there is no model {shown(name)}: name it as APP.MODEL, for example shop.Order"
        ) from None
    if found is None:
        known = ", ".join(map(label, queues())) or "none"
        raise argparse.ArgumentTypeError(
            f"{name} is not a queue: @queue or upgrade() of xq.adapters.django makes it one. The queues are: {known}"
        )
    return found


class QueueCommand(BaseCommand):
    """A command about queues. It reports all their errors as text."""

    def add_queues(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("queues", nargs="*", type=queue, metavar="app.Model", help="a queue (default: all)")

    def execute(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute(*args, **options)
        except (Error, DatabaseError) as error:
            raise CommandError(str(error)) from error

    def each(self, chosen: Sequence[Queue[Any]], call: Callable[[Queue[Any]], Any]) -> dict[str, Any]:
        """Return what a call returns for each chosen queue, or for all, by label.

        An error in one queue does not stop the others: it is printed at once, and `finish` raises it.
        """
        found: dict[str, Any] = {}
        self.wrong: list[str] = []
        for each in chosen or queues():
            try:
                found[label(each)] = call(each)
            except (Error, DatabaseError) as error:
                self.wrong.append(f"{label(each)}: {error}")
        return found

    def finish(self) -> None:
        """Raise the queues' errors, if there were any."""
        if self.wrong:
            raise CommandError("\n".join(self.wrong))
