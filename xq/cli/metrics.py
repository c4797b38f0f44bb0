"""The command that prints the metrics of queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from xq.cli.options import TARGET
from xq.cli.output import Failure
from xq.cli.targets import queue_named

EXTRA = "pip install 'xq-tables[metrics]'"


@contextmanager
def needs_prometheus() -> Iterator[None]:
    """Run the imports of the block; without prometheus_client end the program with what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prometheus_client"):
            raise
        raise Failure(f"metrics need prometheus_client: {EXTRA}") from error


def metrics(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help=TARGET)],
) -> None:
    """Print the metrics of queues once, as Prometheus reads them. Exits with 1 if a database fails."""
    with needs_prometheus():
        from xq.metrics import Metrics
    read = Metrics([queue_named(target) for target in targets], past=True)
    body, _ = read.scrape()
    print(body.decode(), end="")
    if failed := read.failed():
        raise Failure(f"the database of {', '.join(failed)} fails: the log has the error")


COMMANDS: dict[str, Callable[..., None]] = {"metrics": metrics}
