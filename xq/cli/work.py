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
    max_tasks: Annotated[int | None, typer.Option(min=1, help="End after so many tasks.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus here; 0: on a free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address of that port.")] = "127.0.0.1",
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: all.")] = 0,
) -> None:
    """Run workers until SIGTERM or SIGINT. Then they finish their tasks; a second signal releases these."""
    from xq.core.errors import Error
    from xq.runtime.workers.program import job_of, run_jobs
    from xq.runtime.workers.worker import Worker

    level = [logging.INFO, logging.DEBUG][min(verbose, 1)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def chosen(text: str) -> Worker[Any]:
        thing = found(text)
        if isinstance(thing, Worker):
            return thing
        if queue is not None:
            return queue_named(queue).worker(thing)
        made = queue_in(thing, text).work
        if made is None:
            raise Failure(
                f"{text} has no worker in the modules that are imported: decorate a function with @Page.xq.worker, "
                "and name it as module:function"
            )
        return made

    changed: dict[str, Any] = {
        name: value for name, value in (("workers", workers), ("kind", kind)) if value is not None
    }
    try:
        jobs = []
        for each in map(chosen, targets):
            each.options = replace(each.options, **changed).checked(each.queue, each.function)
            jobs.append(job_of(each, None, tube))
        with _metrics([job.worker for job in jobs], metrics_host, metrics_port):
            run_jobs(jobs, until_empty, max_tasks)
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
