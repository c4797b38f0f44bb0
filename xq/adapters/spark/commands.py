"""Commands for Spark, as `xq spark report`. PySpark is imported when one runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib import import_module
from typing import Annotated, Any

import typer

from xq.cli.options import Json, Target, Yes, flag
from xq.cli.output import Answer, ask, say
from xq.cli.targets import connected, queue_named

spark = typer.Typer(no_args_is_help=True, help="Reports and archives by Spark.")
Out = Annotated[str, typer.Argument(metavar="FOLDER", help="a folder, or its URI")]


def register(app: typer.Typer) -> None:
    app.add_typer(spark, name="spark", rich_help_panel="Spark")


@contextmanager
def _session(queues: list[str]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield xq.spark, a Spark session and these targets' queues."""
    with ExitStack() as stack:
        found: list[Any] = [stack.enter_context(connected(queue_named(text))) for text in queues]
        spark = import_module("xq.spark")  # by its name: it stands above this module
        session = spark.session(ui_showConsoleProgress=sys.stderr.isatty())
        stack.callback(session.stop)
        yield spark, session, found


@spark.command()
def report(
    out: Out,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="the queues, each with its history")],
    since: Annotated[datetime | None, typer.Option(help="The beginning, in UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="The end, in UTC.")] = None,
) -> None:
    """Write tables and a page that show what happened in queues."""
    with _session(targets) as (spark, session, queues):
        spark.report(session, queues, since, until, out=out)
    say(f"open {out}/index.html")


@spark.command()
def archive(
    target: Target,
    out: Out,
    before: Annotated[
        datetime | None, typer.Option(help="Archive only tasks that were done before this moment, in UTC.")
    ] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Move done tasks and old history to Parquet, and delete them from the database."""
    ask(f"Move the done tasks of {target} to {out}, and delete them from the database?", yes)
    with _session([target]) as (spark, session, (found,)):
        moved = spark.archive(session, found, out, before)
    Answer(moved._asdict(), [], str(moved)).print(json)


@spark.command()
def restore(target: Target, out: Out, json: Json = False) -> None:
    """Put an archive's tasks that the table lacks back into it, as done. The files stay."""
    with _session([target]) as (spark, session, (found,)):
        n = spark.restore(session, found, out)
    Answer({"restored": n}, [], f"{n:,} tasks are back").print(json)


@spark.command()
def stream(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="the table that is kept, in the queues' database")],
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="a folder for Spark's checkpoint")],
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="the queues, each with its history")],
    unit: Annotated[str, typer.Option(help="second, minute, hour or day.")] = "minute",
    every: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, flag("--once", help="Count what is there, and end.")] = False,
) -> None:
    """Keep a table of how often each transition occurred per time unit. Ctrl-C ends it; run it again to go on."""
    with _session(targets) as (spark, session, queues):
        query = spark.stream(session, queues, table, checkpoint, unit=unit, every=every, available_now=once)
        say(f"the table {table} is kept")
        query.awaitTermination()
