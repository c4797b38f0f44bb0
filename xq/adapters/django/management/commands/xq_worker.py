"""manage.py xq_worker: work on a queue's tasks, or on those of django.tasks."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, run_with_reloader
from django.utils.module_loading import import_string

from xq import Queue
from xq.adapters.django.lookup import queues
from xq.adapters.django.management.queues import QueueCommand, label, queue
from xq.core import time
from xq.database.process import name_program
from xq.workers.options import Options
from xq.workers.program import assignment_of, run_assignments, worker_of
from xq.workers.worker import Worker

LEVELS = {0: logging.ERROR, 1: logging.INFO}  # by --verbosity; at 2 and above, everything

LOOK = 0.2  # seconds between two looks at the process from which the reloader has started this one

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
        parser.add_argument("--workers", type=int, metavar="N", help="threads (default: those of the model)")
        parser.add_argument("--until-empty", action="store_true", help="end when no task is ready")
        parser.add_argument("--max-tasks", type=int, metavar="N", help="end after this many tasks")
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
            "--metrics-port", type=int, metavar="PORT", help="serve /metrics for Prometheus here; 0: on a free port"
        )
        parser.add_argument(
            "--metrics-host", default="127.0.0.1", metavar="HOST", help="the address of that port (default: 127.0.0.1)"
        )
        parser.add_argument(
            "--reload",
            action=argparse.BooleanOptionalAction,
            help="restart when the code changes (default: if DEBUG is on)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found: Queue[Any] | None = options["model"]
        workers, work = self._on_tasks(options) if found is None else self._on_queue(found, options)
        if options["metrics_port"] is not None:
            tubes = (options["names"] or import_string(f"{TASKS}.worker.known_names")()) if found is None else ()
            work = measured(work, workers, options["metrics_host"], options["metrics_port"], tubes)
        name_program("manage.py xq_worker")
        for each in workers:
            each.in_child.append(partial(_show_log, options["verbosity"], None))
        reloads = settings.DEBUG if options["reload"] is None else options["reload"]
        with self._logged(options["verbosity"]):
            if reloads and not options["until_empty"]:
                if os.environ.get(DJANGO_AUTORELOAD_ENV) == "true":  # this is the child, which is started anew
                    threading.Thread(target=_end_with_the_parent, args=(os.getppid(),), daemon=True).start()
                run_with_reloader(work)
            else:
                work()

    @contextmanager
    def _logged(self, verbosity: int) -> Iterator[None]:
        """Show the tasks' log on the console, unless the setting LOGGING configures it.

        The logger of django.tasks has a line when a task begins and when it ends.
        """
        before = _show_log(verbosity, self.stdout)
        try:
            yield
        finally:
            for log, handler, level, propagates in before:
                log.removeHandler(handler)
                log.setLevel(level)
                log.propagate = propagates

    def _on_queue(self, found: Queue[Any], options: dict[str, Any]) -> tuple[list[Worker[Any]], Callable[[], object]]:
        for name, option in (("names", "--queue"), ("excluded", "--exclude-queue"), ("worker_id", "--worker-id")):
            if options[name]:
                raise CommandError(f"{option} is for the queues of django.tasks, which are worked on without a model")
        if path := options["call"]:
            try:
                function = import_string(path)
            except ImportError as error:
                raise CommandError(f"--call {path}: {error}") from error
            # it may be registered, with its own options
            named = next((each for each in found.handlers.values() if function in (each, each.function)), None)
            chosen = [named or worker_of(found, function, Options())]
        elif not (chosen := [*found.handlers.values()]):
            raise CommandError(
                f"{label(found)} has no worker: give upgrade(..., worker=function), "
                f"decorate one with @{found.model.__name__}.xq.worker() in a module that is imported with its models, "
                "or name one by --call"
            )
        assignments = [assignment_of(each, options["workers"], None) for each in chosen]
        return chosen, partial(run_assignments, assignments, options["until_empty"], options["max_tasks"])

    def _on_tasks(self, options: dict[str, Any]) -> tuple[list[Worker[Any]], Callable[[], object]]:
        if options["call"]:
            raise CommandError("--call needs a queue: manage.py xq_worker shop.Order --call shop.jobs.mail")
        if not apps.is_installed(TASKS):
            raise CommandError(
                "name a queue, as in manage.py xq_worker shop.Order; "
                f"or add {TASKS!r} to INSTALLED_APPS, for django.tasks"
            )
        workers = [*import_string(f"{TASKS}.models.Task").xq.handlers.values()]
        return workers, partial(
            import_string(f"{TASKS}.worker.run"),
            queues=options["names"],
            workers=1 if options["workers"] is None else options["workers"],
            until_empty=options["until_empty"],
            max_tasks=options["max_tasks"],
            excluded=options["excluded"],
            worker_id=options["worker_id"],
        )


def _end_with_the_parent(parent: int) -> None:
    """End this process, as if it were killed, soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def measured(
    work: Callable[[], object], workers: list[Worker[Any]], host: str, port: int, tubes: Sequence[str]
) -> Callable[[], object]:
    """Return a call that serves metrics for a queue and its workers, and by these tubes, while they run.

    The label is the model's name; with its app's name if another app has a queue with the same name.
    """
    try:
        from xq.metrics import serving
    except ModuleNotFoundError as error:
        raise CommandError("metrics need prometheus_client: pip install '.[metrics]' in the checkout of xq") from error
    on: Any = workers[0].queue
    name = label(on) if sum(each.name == on.name for each in queues()) > 1 else on.name

    def run() -> None:
        with serving(workers, host, port, [name] * len(workers), tubes):
            work()

    return run


def _show_log(verbosity: int, stream: Any = None, worker: object = None) -> list[tuple[Any, ...]]:
    """Show the log on a stream; None: the standard output. Return the loggers, with what to set back."""
    names = ["xq", import_string(f"{TASKS}.interface.NAME")] if apps.is_installed(TASKS) else ["xq"]
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    shown = [log for log in map(logging.getLogger, names) if not _is_configured(log)]
    before = [(log, handler, log.level, log.propagate) for log in shown]
    for log in shown:
        log.addHandler(handler)
        log.setLevel(LEVELS.get(verbosity, logging.DEBUG))
        log.propagate = False  # Django's own handler shows it in DEBUG only
    return before


def _is_configured(log: logging.Logger) -> bool:
    """Return whether a logger has another handler than Django's own."""
    return log.hasHandlers() if settings.LOGGING else bool(log.handlers or logging.getLogger().handlers)
