"""Commands for operations: what an operator does to all tasks that a filter shows, in chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from xq.cli.output import Answer, ask, moment, say
from xq.cli.targets import Actor, Queue, Reason, Yes
from xq.cli.tasks import described, table
from xq.core.errors import Error
from xq.operators.filters import quoted

if TYPE_CHECKING:
    from xq.operators.operations import Operation

DESTROY = ("kill", "snatch")  # what refuses to run without a terminal, unless --yes is given
COLUMNS = ("id", "state", "event", "filter", "done", "skipped", "actor", "reason")


def act(
    queue: Queue,
    event: Annotated[str, Argument(metavar="EVENT", help="dig, kill, release, restart or bury")],
    filter: Annotated[str, Argument(metavar="FILTER", help="which tasks, as 'state:buried error:Timeout'")],
    reason: Reason = None,
    actor: Actor = None,
    delay: Annotated[float | None, Option(help="Seconds until the tasks are ready.")] = None,
    chunk: Annotated[int, Option(min=1, max=1000, help="Tasks of one transaction.")] = 500,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    yes: Yes = False,
) -> Answer:
    """Dig, kill, release, restart or bury all tasks that a filter shows, in chunks; `operations` can go on with it."""
    options: dict[str, Any] = {} if delay is None else {"delay": delay}
    planned = queue.act(event, filter, chunk=chunk, dry_run=True, **options)
    preview = planned.preview
    n = f"{preview.n:,}" if preview.exact else f"at least {preview.n:,}"
    if dry_run:
        told = [described(queue, each) for each in preview.tasks]
        numbers = {"n": preview.n, "exact": preview.exact, "looked": preview.looked}
        looked = f", looked at {preview.looked:,} rows" if preview.looked else ""
        content = {"event": planned.event, "filter": planned.filter, **numbers, "tasks": told}
        return Answer(content, table(queue, told), f"{planned.event} would move {n} tasks{looked}")
    if planned.event in DESTROY or sys.stdin.isatty():
        rows = f", and delete their rows of the table {queue.adapter.store.table}" if planned.event == "kill" else ""
        ask(f"{planned.event} {n} tasks of {queue.name} ({filter}){rows}?", yes)
    made = queue.act(event, filter, actor=actor, reason=reason, chunk=chunk, **options)
    return _run(made, preview.n / chunk if preview.exact else None)


def operations(
    queue: Queue,
    id: Annotated[int | None, Argument(metavar="[ID]", help="one operation, by its number")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with it.")] = False,
    cancel: Annotated[bool, Option("--cancel", help="End it; what was moved stays.")] = False,
) -> Answer:
    """List the operations of a queue, the newest first. With a number, show one, go on with it or cancel it."""
    if resume + cancel > (id is not None):
        raise typer.BadParameter("say which operation: its number stands in xq operations TARGET; and one of the two")
    if id is None:
        found = queue.operations()
        return Answer([_document(each) for each in found], [[_row(each) for each in found]])
    one = queue.operation(id)
    if (resume and one.state != "running") or (cancel and not one.cancel()):
        raise Error(f"operation {id} is {one.state}")
    return _run(one, None) if resume else Answer(_document(one), [[_row(one)]])


def _run(operation: Operation[Any], chunks: float | None) -> Answer:
    """Run an operation, with its progress on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    try:
        for _ in track(operation, operation.event, chunks, console=console, transient=True, disable=hidden):
            pass
    except BaseException:
        say(f"operation {operation.id} is stored: xq operations TARGET {operation.id} --resume goes on with it")
        raise
    skipped = f", {operation.skipped:,} skipped" if operation.skipped else ""
    moved = f"{operation.event}: {operation.done:,} tasks moved{skipped}"
    return Answer(_document(operation), [], f"{moved}; operation {operation.id} is {operation.state}")


def _document(operation: Operation[Any]) -> dict[str, Any]:
    return operation.as_dict() | {"created": moment(operation.created), "updated": moment(operation.updated)}


def _row(operation: Operation[Any]) -> dict[str, Any]:
    told = _document(operation)
    if not told["filter"] and (tube := told["options"].get("tube")) is not None:  # of a pause, and of a resume
        told["filter"] = f"tube:{quoted(tube)}"
    return {"begun": told["created"], **{name: told[name] for name in COLUMNS}}


ON_A_QUEUE: tuple[Callable[..., Answer], ...] = (act, operations)
