"""Commands for Spark, as `xq spark report`. PySpark is imported when one runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import Annotated, Any

import typer

from xq.cli.options import Json, Target, Yes, flag
from xq.cli.output import Answer, ask, say
from xq.cli.targets import connected, queue_named
from xq.cli.targets import found as imported
from xq.core.errors import Error

spark = typer.Typer(no_args_is_help=True, help="Puts, consumers, reports and archives by Spark.")
RED = 3  # the exit code of report --fail-if-red
Out = Annotated[str, typer.Argument(metavar="FOLDER", help="a folder, or its URI")]


def register(app: typer.Typer) -> None:
    app.add_typer(spark, name="spark", rich_help_panel="Spark")


@contextmanager
def _session(queues: list[str]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield xq.spark, a Spark session and these targets' queues."""
    with ExitStack() as stack:
        spark = import_module("xq.spark")  # by its name: it stands above this module
        is_there = import_module("pyspark.sql").SparkSession.getActiveSession() is not None
        session = spark.session(ui_showConsoleProgress=sys.stderr.isatty())  # first: modules with UDFs need it
        if not is_there:
            stack.callback(session.stop)
            if context := getattr(session, "sparkContext", None):  # None with Spark Connect
                context.setLogLevel("OFF")  # its errors come as exceptions, too
        found: list[Any] = [stack.enter_context(connected(queue_named(text))) for text in queues]
        stack.enter_context(_in_words())
        stack.enter_context(import_module("xq.adapters.spark.errors").raised_as_xq())
        yield spark, session, found


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise Error with the words of Spark's exceptions in place of their traces, which the log has at DEBUG."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    from xq.adapters.spark.errors import words_of

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # which print the same once more
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        logging.getLogger("xq").debug("a command failed", exc_info=True)
        words = [words_of(error).partition("\n==")[0], *getattr(error, "__notes__", ())]
        raise Error(f"{type(error).__name__}: {'. '.join(words)}") from error


@spark.command()
def put(
    target: Target,
    file: Annotated[str, typer.Argument(metavar="FILE", help="a file or folder, or its URI; its columns are fields")],
    job: Annotated[str, typer.Option(help="The name under which the rows are put once, however often this runs.")],
    format: Annotated[str, typer.Option(help="parquet, csv, json, or another that Spark reads.")] = "parquet",
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of Spark for it.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="In so many transactions; in each run the same.")] = 8,
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Whose values choose the partition.")] = None,
    on_conflict: Annotated[str, typer.Option(help="With the feature unique: raise or skip.")] = "raise",
    on_done: Annotated[str, typer.Option(help="If the job is complete: skip or raise.")] = "skip",
    json: Json = False,
) -> None:
    """Put a file's rows as tasks, once. After a kill run it again: it puts the partitions that are missing."""
    given = dict(each.partition("=")[::2] for each in option or ())
    with _session([target]) as (spark, session, (found,)):
        frame = import_module("xq.adapters.spark.put").read(session, found, file, format, given)
        before = found.pipeline.job(job)
        done = spark.put(session, found, frame, job, partitions, on_conflict, on_done, by or ())
    now = done.rows - (before.rows if before else 0)
    Answer({**done._asdict(), "rows_now": now}, [f"{now:,} put: {done}"]).print(json)


@spark.command()
def consume(
    target: Target,
    work: Annotated[str, typer.Argument(metavar="MODULE:WORK", help="a function from a DataFrame to a DataFrame")],
    batch: Annotated[int, typer.Option(min=1, help="So many tasks at once.")] = 10_000,
    timeout: Annotated[float, typer.Option(min=0, help="End when no task comes for so many seconds.")] = 0,
    on_error: Annotated[str, typer.Option(help="What failed tasks are: bury or release.")] = "bury",
    json: Json = False,
) -> None:
    """Process the ready tasks as DataFrames, and end. Tasks that fail are counted, and are no error."""
    with _session([target]) as (spark, session, (found,)):
        counts = spark.consume(session, found, imported(work), batch, on_error, timeout)
    Answer(counts, [", ".join(f"{name} {n:,}" for name, n in counts.items()) or "no task was ready"]).print(json)


@spark.command()
def report(
    out: Out,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="the queues, each with its history")],
    since: Annotated[datetime | None, typer.Option(help="The beginning, in UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="The end, in UTC.")] = None,
    last: Annotated[bool, flag("--last", help="Begin where the report in FOLDER ended.")] = False,
    archive: Annotated[
        list[str] | None, typer.Option(metavar="[QUEUE=]FOLDER", help="The archive, or that of one queue.")
    ] = None,
    thresholds: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A threshold: above it a figure is red.")
    ] = None,
    fail_if_red: Annotated[bool, flag("--fail-if-red", help="Exit with 3 if a queue needs attention.")] = False,
    json: Json = False,
) -> None:
    """Write tables and a page that show what happened in queues. Print what is red."""
    if last and since:
        raise typer.BadParameter("--last and --since name two beginnings: give one")
    with _session(targets) as (spark, session, queues):
        names = {queue.name for queue in queues}
        pairs = [text.partition("=")[::2] if text.partition("=")[0] in names else ("", text) for text in archive or ()]
        folders = dict(pairs) if all(name for name, _ in pairs) else pairs[0][1] if len(pairs) == 1 else None
        if folders is None:
            raise typer.BadParameter("--archive is one FOLDER, or QUEUE=FOLDER for each of several queues")
        limits = dict(map(_number, thresholds or ()))
        begin = "last" if last else since
        made = spark.report(session, queues, begin, until, out=out, archive=folders or None, thresholds=limits)
    told = {name: import_module("xq.adapters.spark.page").in_words(each) for name, each in made.figures.items()}
    limits = import_module("xq.adapters.spark.verdicts").checked(limits)
    first, end = (datetime.fromtimestamp(at, UTC) for at in made.span)
    content = {"page": made.html, "since": first, "until": end, "thresholds": limits, "queues": told}
    lines = [f"{name}: {', '.join(each['red']) or 'all is well'}" for name, each in told.items()]
    code = RED if fail_if_red and any(each["red"] for each in told.values()) else 0
    Answer(content, lines, f"open {out}/index.html", code).print(json)


def _number(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise typer.BadParameter(f"a threshold is NAME=NUMBER, as not_done=0.01, and not {text}") from None


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
