"""The command for operations: what an operator does to all tasks that a filter shows, in chunks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from xq.cli.output import Answer, ask
from xq.cli.targets import Actor, Queue, Reason, Yes
from xq.cli.tasks import described, table

if TYPE_CHECKING:
    from xq.operators.operations import Operation

DESTROY = ("kill", "release")  # what refuses to run without a terminal, unless --yes is given


def act(
    queue: Queue,
    event: Annotated[str, Argument(metavar="EVENT", help="dig, kill, release, restart or bury")],
    filter: Annotated[str, Argument(metavar="[FILTER]", help="which tasks, as 'state:buried error:Timeout'")] = "",
    every: Annotated[bool, Option("--all", help="All tasks, without a filter.")] = False,
    reason: Reason = None,
    actor: Actor = None,
    delay: Annotated[float | None, Option(help="Seconds until the tasks are ready.")] = None,
    chunk: Annotated[int, Option(min=1, max=1000, help="Tasks of one transaction.")] = 500,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    yes: Yes = False,
) -> Answer:
    """Dig, kill, release, restart or bury all tasks that a filter shows, in chunks. Ctrl-C ends it after its chunk."""
    if every == bool(filter.strip()):
        raise BadParameter("say which tasks: a FILTER, or --all")
    options: dict[str, Any] = {} if delay is None else {"delay": delay}
    operation = queue.act(event, filter, actor=actor, reason=reason, chunk=chunk, **options)
    preview = operation.preview
    n = f"{preview.n:,}" if preview.exact else f"at least {preview.n:,}"
    if dry_run:
        told = [described(queue, each) for each in preview.tasks]
        numbers = {"n": preview.n, "exact": preview.exact, "looked": preview.looked}
        looked = f", looked at {preview.looked:,} rows" if preview.looked else ""
        content = {"event": event, "filter": filter, **numbers, "tasks": told}
        return Answer(content, table(queue, told), f"{event} would move {n} tasks{looked}")
    if event in DESTROY or sys.stdin.isatty():
        rows = f", and delete their rows of the table {queue.adapter.store.table}" if event == "kill" else ""
        ask(f"{event} {n} tasks of {queue.name} ({filter or 'all'}){rows}?", yes)
    _run(operation, preview.n / chunk if preview.exact else None)
    skipped = f", {operation.skipped:,} skipped" if operation.skipped else ""
    left = "" if operation.state == "done" else "; it was cancelled, and the same command moves the others"
    return Answer(operation.as_dict(), [], f"{event}: {operation.done:,} tasks moved{skipped}{left}", int(bool(left)))


def _run(operation: Operation[Any], chunks: float | None) -> None:
    """Run an operation, with its progress on a terminal. The first Ctrl-C cancels it, a second one is as ever."""
    from rich.console import Console
    from rich.progress import track

    def cancel(*_: object) -> None:
        operation.cancel()
        signal.signal(signal.SIGINT, before)

    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    before = signal.signal(signal.SIGINT, cancel)
    try:
        for _ in track(operation, operation.event, chunks, console=console, transient=True, disable=hidden):
            pass
    finally:
        signal.signal(signal.SIGINT, before)


ON_A_QUEUE: tuple[Callable[..., Answer], ...] = (act,)
