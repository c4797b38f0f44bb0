"""manage.py xq_worker: work on the tasks of a queue, or on those of django.tasks."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.utils.autoreload import run_with_reloader
from django.utils.module_loading import import_string

from xq import Queue
from xq.adapters.django.management.queues import QueueCommand, label, queue
from xq.adapters.django.settings import setting

LEVELS = {0: logging.ERROR, 1: logging.INFO}  # by --verbosity; at 2 and above, everything

TASKS = "xq.adapters.django.tasks"


class Command(QueueCommand):
    help = (
        "Works on the tasks of a queue, or of django.tasks if none is named. After SIGTERM or SIGINT it finishes the "
        "running tasks and ends; a second signal releases them."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "model", type=queue, nargs="?", metavar="app.Model", help="the queue (default: that of django.tasks)"
        )
        parser.add_argument(
            "--call", metavar="PATH", help="the function, as shop.jobs.mail (default: the worker of the model)"
        )
        parser.add_argument("--workers", type=int, metavar="N", help="threads (default: XQ['WORKERS'], or the model's)")
        parser.add_argument("--until-empty", action="store_true", help="end when no task is ready")
        parser.add_argument("--max-tasks", type=int, metavar="N", help="end after so many tasks")
        parser.add_argument(
            "--queue", action="append", dest="names", metavar="NAME", help="a queue of django.tasks; may be repeated"
        )
        parser.add_argument(
            "--exclude-queue",
            action="append",
            dest="excluded",
            metavar="NAME",
            help="all queues of django.tasks but this one; may be repeated",
        )
        parser.add_argument("--worker-id", default="", metavar="ID", help="the id in the results of django.tasks")
        parser.add_argument(
            "--reload",
            action=argparse.BooleanOptionalAction,
            help="restart when the code changes (default: XQ['AUTORELOAD'], or DEBUG)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found: Queue[Any] | None = options["model"]
        work = self._on_tasks(options) if found is None else self._on_queue(found, options)
        reloads = first(options["reload"], setting("AUTORELOAD"), settings.DEBUG)
        with self._logged(options["verbosity"]):
            if reloads and not options["until_empty"]:
                run_with_reloader(work)
            else:
                work()

    @contextmanager
    def _logged(self, verbosity: int) -> Iterator[None]:
        """Show the log of the tasks on the console, unless the setting LOGGING configures it."""
        log = logging.getLogger("xq")
        if log.hasHandlers():
            yield
            return
        handler, before = logging.StreamHandler(self.stdout), log.level
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(LEVELS.get(verbosity, logging.DEBUG))
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(before)

    def _on_queue(self, found: Queue[Any], options: dict[str, Any]) -> Callable[[], object]:
        for name, option in (("names", "--queue"), ("excluded", "--exclude-queue"), ("worker_id", "--worker-id")):
            if options[name]:
                raise CommandError(f"{option} is for the queues of django.tasks, which are worked on without a model")
        if path := options["call"]:
            try:
                function = import_string(path)
            except ImportError as error:
                raise CommandError(f"--call {path}: {error}") from error
            # the import may just have registered it as the worker, with options
            if found.work is None or function not in (found.work, found.work.function):
                found.worker(function)
        elif found.work is None:
            raise CommandError(
                f"{label(found)} has no worker: give upgrade(..., worker=function), "
                f"decorate one with @{found.model.__name__}.xq.worker() in a module that is imported with its models, "
                "or name one by --call"
            )
        workers = first(options["workers"], setting("WORKERS"))
        return partial(found.run, until_empty=options["until_empty"], workers=workers, max_tasks=options["max_tasks"])

    def _on_tasks(self, options: dict[str, Any]) -> Callable[[], object]:
        if options["call"]:
            raise CommandError("--call needs a queue: manage.py xq_worker shop.Order --call shop.jobs.mail")
        if not apps.is_installed(TASKS):
            raise CommandError(
                "name a queue, as in manage.py xq_worker shop.Order; "
                f"or add {TASKS!r} to INSTALLED_APPS, for django.tasks"
            )
        return partial(
            import_string(f"{TASKS}.worker.run"),
            queues=options["names"],
            workers=first(options["workers"], setting("WORKERS"), 1),
            until_empty=options["until_empty"],
            max_tasks=options["max_tasks"],
            excluded=options["excluded"],
            worker_id=options["worker_id"],
        )


def first(*choices: Any) -> Any:
    """Return the first choice that is not None; None if all are."""
    return next((choice for choice in choices if choice is not None), None)
