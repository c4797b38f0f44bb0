"""The command that runs workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Annotated, Any

import typer

from xq.cli.metrics import needs_prometheus
from xq.cli.output import Failure
from xq.cli.targets import found, queue_in, queue_named


def worker(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET...", help="module:handler, decorated by @Page.xq.worker; or a queue")
    ],
    queue: Annotated[
        str | None, typer.Option(help="module:Model, or URL#table: the queue of a plain function.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="How many tasks at a time.")] = None,
    kind: Annotated[str | None, typer.Option(help="thread, process or asyncio.")] = None,
    tube: Annotated[list[str] | None, typer.Option("--tube", "-t", help="Only this tube; may be repeated.")] = None,
    until_empty: Annotated[bool, typer.Option(help="End when no task is ready.")] = False,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="End after this many tasks.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus here; 0: on a free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address of that port.")] = "127.0.0.1",
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: all.")] = 0,
) -> None:
    """Run workers until SIGTERM or SIGINT. Then they finish their tasks; a second signal releases these."""
    from xq.core.errors import Error
    from xq.runtime.workers.program import Assignment, assignment_of, assignments_of, run_assignments
    from xq.runtime.workers.worker import Options, Worker

    level = [logging.INFO, logging.DEBUG][min(verbose, 1)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def assigned(text: str) -> list[Assignment]:
        thing = found(text)
        if not isinstance(thing, Worker) and queue is not None:
            thing = Worker(queue_named(queue), thing, Options())
        if isinstance(thing, Worker):
            return [assignment_of(changed(thing), None, tube)]
        target = queue_in(thing, text)
        if not target.handlers:
            raise Failure(
                f"{text} has no worker in the modules that are imported: decorate a function with @Page.xq.worker, "
                "and name it as module:function"
            )
        for each in target.handlers.values():
            changed(each)
        return assignments_of(target, None, tube)

    def changed(worker: Worker[Any]) -> Worker[Any]:
        worker.options = replace(worker.options, **given).checked(worker.queue, worker.function)
        return worker

    given: dict[str, Any] = {name: value for name, value in (("workers", workers), ("kind", kind)) if value is not None}
    try:
        assignments = [each for text in targets for each in assigned(text)]
        with _metrics([each.worker for each in assignments], metrics_host, metrics_port):
            run_assignments(assignments, until_empty, max_tasks)
    except Error as error:
        raise Failure(str(error)) from error


def _metrics(workers: list[Any], host: str, port: int | None) -> AbstractContextManager[object]:
    """Return a context manager that serves the metrics of these workers, if there is a port."""
    if port is None:
        return nullcontext()
    with needs_prometheus():
        from xq.metrics import serving
    return serving(workers, host, port)


COMMANDS: dict[str, Callable[..., None]] = {"worker": worker}
