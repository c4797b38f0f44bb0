"""manage.py xq_prune: delete the results of finished tasks of django.tasks."""

from __future__ import annotations

import argparse
from datetime import timedelta
from itertools import islice
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db.models import Q
from django.utils import timezone

from xq.adapters.django.management.queues import QueueCommand

TASKS = "xq.adapters.django.tasks"
PER_DELETE = 1_000  # rows that one statement deletes


def number(text: str) -> int:
    """Return a number from 0 on. Used as the type of an argument."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")
    return found


class Command(QueueCommand):
    help = "Deletes the results of finished tasks of django.tasks, by their age and number."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        days = "days after which the result of a {} task is deleted (default: {})"
        parser.add_argument(
            "--min-age-days", type=number, default=14, metavar="N", help=days.format("finished", "%(default)s")
        )
        parser.add_argument(
            "--failed-min-age-days", type=number, metavar="N", help=days.format("failed", "as --min-age-days")
        )
        parser.add_argument("--keep", type=number, default=0, metavar="N", help="keep the N results that ended last")
        parser.add_argument(
            "--queue", action="append", dest="names", metavar="NAME", help="only of this queue; may be repeated"
        )
        parser.add_argument("--dry-run", action="store_true", help="print the number, and delete nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed(TASKS):
            raise CommandError(f"xq_prune is for django.tasks: add {TASKS!r} to INSTALLED_APPS")
        from xq.adapters.django.tasks.models import STATUSES, Task

        now = timezone.now()
        done = timedelta(days=options["min_age_days"])
        days = options["failed_min_age_days"]
        failed = done if days is None else timedelta(days=days)
        found = Task.objects.filter(
            Q(status=STATUSES["Z"], finished_at__lte=now - done)
            | Q(status=STATUSES["B"], finished_at__lte=now - failed)
        )
        if options["names"]:
            found = found.filter(queue_name__in=options["names"])
        ended_last = Task.objects.filter(finished_at__isnull=False).order_by("-finished_at", "-pk")
        kept = set(ended_last.values_list("pk", flat=True)[: options["keep"]])
        pruned = [pk for pk in found.order_by("finished_at").values_list("pk", flat=True) if pk not in kept]
        if options["dry_run"]:
            self.stdout.write(f"{len(pruned)} results would be deleted")
            return
        keys = iter(pruned)
        while batch := list(islice(keys, PER_DELETE)):
            Task.objects.filter(pk__in=batch, status__in=(STATUSES["Z"], STATUSES["B"])).delete()
        self.stdout.write(f"{len(pruned)} results deleted")
