"""manage.py xq_worker: work on the tasks of queues, or on those of django.tasks."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, run_with_reloader
from django.utils.module_loading import autodiscover_modules, import_string

from xq import Queue
from xq.adapters.django.lookup import queues
from xq.adapters.django.management.queues import QueueCommand, label, queue
from xq.core import time
from xq.database.process import name_program
from xq.workers.attempt import Lines
from xq.workers.options import Options
from xq.workers.pool import Assignment
from xq.workers.program import assignment_of, run_assignments, worker_of
from xq.workers.worker import Worker

LEVELS = {0: logging.ERROR, 1: logging.INFO}  # by --verbosity; at 2 and above, everything

LOOK = 0.2  # seconds between two looks at the process from which the reloader has started this one

TASKS = "xq.adapters.django.tasks"


class Command(QueueCommand):
    help = (
        "Works on the tasks of queues, or of django.tasks if none is named. After SIGTERM or SIGINT it finishes the "
        "running tasks and ends; a second signal releases them."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "models", type=queue, nargs="*", metavar="app.Model", help="the queues (default: that of django.tasks)"
        )
        parser.add_argument(
            "--call", metavar="PATH", help="the function, as shop.jobs.mail (default: the worker of the model)"
        )
        parser.add_argument(
            "--workers", type=int, metavar="N", help="threads of each function (default: those of the model)"
        )
        parser.add_argument(
            "--kind", choices=["thread", "process"], default="", help="what runs the tasks of django.tasks"
        )
        parser.add_argument(
            "--coroutines", type=int, metavar="N", help="run N tasks of django.tasks at a time, on one event loop"
        )
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
        autodiscover_modules("tasks")  # as Celery does: workers, tasks and schedules are declared there
        tasks = import_string(f"{TASKS}.models.Task").xq if apps.is_installed(TASKS) else None
        chosen: list[Queue[Any]] = [*dict.fromkeys(options["models"] or filter(None, [tasks]))]
        self._check(chosen, tasks, options)
        given = [each for on in chosen for each in self._assignments(on, on is tasks, options)]
        workers = [each.worker for each in given]
        work: Callable[[], object] = partial(run_assignments, given, options["until_empty"], options["max_tasks"])
        if options["metrics_port"] is not None:
            tubes = (options["names"] or import_string(f"{TASKS}.worker.known_names")()) if tasks in chosen else ()
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
                for lines in [each for each in log.filters if isinstance(each, FirstLines)]:
                    log.removeFilter(lines)
                    lines.sum_up()
                log.removeHandler(handler)
                log.setLevel(level)
                log.propagate = propagates

    def _check(self, chosen: list[Queue[Any]], tasks: Queue[Any] | None, options: dict[str, Any]) -> None:
        """Raise CommandError unless the options fit the queues; `tasks` is that of django.tasks."""
        if options["call"] and (not options["models"] or len(chosen) > 1 or tasks in chosen):
            raise CommandError(
                "--call goes with one queue of a model: manage.py xq_worker shop.Order --call shop.jobs.mail"
            )
        if not chosen:
            raise CommandError(
                "name a queue, as in manage.py xq_worker shop.Order; "
                f"or add {TASKS!r} to INSTALLED_APPS, for django.tasks"
            )
        named = {"names": "--queue", "excluded": "--exclude-queue", "worker_id": "--worker-id"}
        named |= {"kind": "--kind", "coroutines": "--coroutines"}
        for name, option in named.items():
            if options[name] and tasks not in chosen:
                raise CommandError(
                    f"{option} is for the queues of django.tasks, which are worked on without a model, or beside "
                    "others by the model xq_tasks.Task"
                )

    def _assignments(self, found: Queue[Any], is_tasks: bool, options: dict[str, Any]) -> list[Assignment]:
        """Return what one queue's workers do."""
        if is_tasks:
            workers = 1 if options["workers"] is None else options["workers"]
            of_tasks = import_string(f"{TASKS}.worker.assignments")
            how = [options[name] for name in ("excluded", "worker_id")]
            kind, coroutines = options["kind"] or "thread", options["coroutines"]
            made: list[Assignment] = of_tasks(options["names"], workers, *how, kind, coroutines)
            return made
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
                f"{label(found)} has no worker: decorate a function with @{found.model.__name__}.xq.worker(), and "
                "import its module in tasks.py of an app, which xq_worker imports, or in ready(), by import shop.jobs; "
                "or give upgrade(..., worker=function); or, for this queue alone, name a function by --call"
            )
        return [assignment_of(each, options["workers"], None) for each in chosen]


def _end_with_the_parent(parent: int) -> None:
    """End this process, as if it were killed, soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def measured(
    work: Callable[[], object], workers: list[Worker[Any]], host: str, port: int, tubes: Sequence[str]
) -> Callable[[], object]:
    """Return a call that serves metrics for workers and their queues, and by these tubes, while they run.

    A queue's label is the model's name; with its app's name if another app has a queue with the same name.
    """
    try:
        from xq.metrics import serving
    except ModuleNotFoundError as error:
        raise CommandError("metrics need prometheus_client: pip install '.[metrics]' in the checkout of xq") from error
    named = Counter(each.name for each in queues())
    working: list[Any] = [each.queue for each in workers]
    names = [label(on) if named[on.name] > 1 else on.name for on in working]

    def run() -> None:
        with serving(workers, host, port, names, tubes):
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
        if log.name != "xq":
            log.addFilter(FirstLines(log))
    return before


class FirstLines(Lines):
    """A filter for the log of django.tasks: the first lines of each second, level and error, then their number."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__(log.getChild("more"))  # which no filter is for

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[0] if record.exc_info else None
        told = f"lines of {record.name}" + (f": {error.__name__}" if error else "")
        return self.level(told, record.levelno) == record.levelno


def _is_configured(log: logging.Logger) -> bool:
    """Return whether a logger has another handler than Django's own."""
    return log.hasHandlers() if settings.LOGGING else bool(log.handlers or logging.getLogger().handlers)
