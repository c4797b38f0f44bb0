"""manage.py xq_makemigration shop.Order: makemigrations, with options for queues."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.core.management.commands import makemigrations

from xq.adapters.django.detection import asked


class Command(makemigrations.Command):
    help = "makemigrations of an app (named as shop, or by a model as shop.Order), with options for its queues."
    requires_system_checks: list[str] = []  # the checks ask for this command

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--online", action="store_true", help="install beside writers, outside of a transaction")
        parser.add_argument(
            "--definition", action="store_true", help="write it where the migrations install that of the day"
        )

    def handle(self, *labels: str, online: bool, definition: bool, **options: Any) -> None:
        asked.update(online=online, definition=definition)
        try:
            super().handle(*(label.partition(".")[0] for label in labels), **options)
        finally:
            asked.clear()
