"""manage.py xq: the command line of xq, with the settings of the project."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from xq.cli import main


class Command(BaseCommand):
    help = "The command line of xq, with the settings of this project: manage.py xq --help"

    def run_from_argv(self, argv: list[str]) -> None:
        main(argv[2:], "manage.py xq")  # its options are not Django's

    def print_help(self, prog_name: str, subcommand: str) -> None:
        main(["--help"], "manage.py xq")
