"""Commands for operations: what an operator does to all tasks that a filter shows, in chunks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xq.cli.options import Actor, Json, Reason, Target, Yes, actor_of
from xq.cli.output import Failure, ask, document, say, table
from xq.cli.targets import queue, wrong_use
from xq.cli.tasks import described, show
from xq.core.filters import quoted

if TYPE_CHECKING:
    from xq.engine.operations import Operation, Preview
    from xq.handle import Queue

DESTROY = ("kill", "snatch")  # what refuses to run without a terminal, unless --yes is given


def act(
    target: Target,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="dig, kill, release, restart or bury")],
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="which tasks, as 'state:buried error:Timeout'")],
    reason: Reason = None,
    actor: Actor = None,
    delay: Annotated[float | None, typer.Option(help="Seconds until the tasks are ready.")] = None,
    chunk: Annotated[int, typer.Option(min=1, max=1000, help="Tasks of one transaction.")] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Dig, kill, release, restart or bury all tasks that a filter shows, in chunks; `operations` can go on with it."""
    options: dict[str, Any] = {} if delay is None else {"delay": delay}
    with queue(target) as found:
        with wrong_use():
            planned = found.act(event, filter, chunk=chunk, dry_run=True, **options)
        if dry_run:
            _show_preview(found, planned, json)
            return
        if not yes and (planned.event in DESTROY or sys.stdin.isatty()):
            ask(f"{planned.event} {_number(planned.preview)} tasks of {found.name} ({filter})?", yes)
        by = actor_of(actor)
        made = found.act(event, filter, actor=by, reason=reason, chunk=chunk, **options)
        _run(target, made, json)


def operations(
    target: Target,
    id: Annotated[int | None, typer.Argument(metavar="[ID]", help="one operation, by its number")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with it.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it; what was moved stays.")] = False,
    json: Json = False,
) -> None:
    """List the operations of a queue, the newest first. With a number, show one, go on with it or cancel it."""
    if resume and cancel:
        raise typer.BadParameter("say one of --resume and --cancel")
    if (resume or cancel) and id is None:
        raise typer.BadParameter("say which operation: its number stands in xq operations TARGET")
    with queue(target) as found:
        if id is None:
            _list(found.operations(), json)
            return
        one = found.operation(id)
        if resume:
            if one.state != "running":
                raise Failure(f"operation {id} is {one.state}")
            _run(target, one, json)
            return
        if cancel and not one.cancel():
            raise Failure(f"operation {id} is {one.state} already")
        document(_document(one)) if json else _list([one], json)


def _run(target: str, operation: Operation[Any], json: bool) -> None:
    """Run an operation, with its progress on a terminal."""
    try:
        if sys.stderr.isatty():
            _with_progress(operation)
        else:
            operation.run()
    except BaseException:
        say(f"operation {operation.id} is stored: xq operations {target} {operation.id} --resume goes on with it")
        raise
    if json:
        document(_document(operation))
    else:
        skipped = f", {operation.skipped:,} skipped" if operation.skipped else ""
        say(
            f"{operation.event}: {operation.done:,} tasks moved{skipped}; operation {operation.id} is {operation.state}"
        )


def _with_progress(operation: Operation[Any]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        before, preview = operation.done + operation.skipped, operation.preview
        total = before + preview.n if preview.exact else None
        bar = progress.add_task(operation.event, total=total, completed=before)
        for each in operation:
            progress.update(bar, completed=each.done + each.skipped)


def _number(preview: Preview) -> str:
    return f"{preview.n:,}" if preview.exact else f"at least {preview.n:,}"


def _show_preview(found: Queue[Any], planned: Operation[Any], json: bool) -> None:
    preview = planned.preview
    told = [described(found, each) for each in preview.tasks]
    if json:
        numbers = {"n": preview.n, "exact": preview.exact, "looked": preview.looked}
        document({"event": planned.event, "filter": planned.filter, **numbers, "tasks": told})
        return
    show(found, told)
    looked = f", looked at {preview.looked:,} rows" if preview.looked else ""
    say(f"{planned.event} would move {_number(preview)} tasks{looked}")


def _document(operation: Operation[Any]) -> dict[str, Any]:
    told = operation.as_dict()
    for name in ("created", "updated"):
        told[name] = None if told[name] is None else datetime.fromtimestamp(told[name], UTC)
    return told


def _list(listed: list[Operation[Any]], json: bool) -> None:
    told = [_document(each) for each in listed]
    if json:
        document(told)
        return
    names = ["id", "state", "event", "filter", "done", "skipped", "actor", "reason"]
    for each in told:
        if not each["filter"] and (tube := each["options"].get("tube")) is not None:
            each["filter"] = f"tube:{quoted(tube)}"  # of a pause, and of a resume
    rows = [[each["created"].strftime("%Y-%m-%d %H:%M:%S"), *(each[name] for name in names)] for each in told]
    table(["begun", *names], rows)


COMMANDS: dict[str, Callable[..., None]] = {"act": act, "operations": operations}
