"""Sections of numbers: measuring those that are asked for, and keeping RESULTS.md."""

from __future__ import annotations

import argparse
import gc
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import machine
from benchmarks.databases import HOMES, Home

E = TypeVar("E")

RESULTS = Path(__file__).parent / "RESULTS.md"
ORDER = (  # of the sections in the file
    *("single", "features", "batches", "processes", "threads", "coroutines", "workers", "full", "backlog"),
    *(
        "burst",
        "utubes",
        "busy",
        "fairness",
        "groups",
        "shapes",
        "checkpoints",
        "latency",
        "killed",
        "idle",
        "storage",
        "size",
        "memory",
        "pages",
    ),
    *("millions", "busiest", "held", "readers", "fused"),
    *("fused-full", "peers", "peer-workers", "peer-workers-full", "durable", "layers", "cpu", "orms"),
    *("django-peers", "functions", "sources"),
    *("bulk", "consume", "driver", "activity", "pipeline", "pipelines", "pipelines-long"),
)
HEADER = """\
# What xq costs

`make bench`, `make bench-long`, `make bench-spark`, `make bench-peers`, `make bench-django` and `make profile` write
this page: each replaces its own tables. Every table names its machine, date and command. A ratio compares with *the
floor*: hand-written SQL through the same driver on the same database in the same run, on a table with one index and
nothing else (`Floor` in [contestants.py](contestants.py)). Each contestant has its own database. A commit does not
wait for the disk unless a section says so. SQLite runs in WAL mode with `synchronous=NORMAL`, MariaDB with
`innodb_flush_log_at_trx_commit=2`, and MySQL with `sync_binlog=0` as well, for the binary log that it has by default:
commits survive the death of every process, but the last ones not a power cut. PostgreSQL runs with
`synchronous_commit=off`, where the last commits do not survive the server's death either.
Servers listen on loopback TCP with their default settings, but for those that a table names. The contestants run in
turn, in an order that each repetition shuffles. Two numbers with a slash are the best and the median of the
repetitions; a rate beside them is the median. If the floor's best and median differ much, other work kept the machine
or its disk busy.
"""
MARK = "<!-- section {} -->"


@dataclass(frozen=True)
class Effort:
    """How much is measured: what a section multiplies its work by."""

    repetitions: int
    calls: int  # of each kind, in a repetition, on the slowest database
    rounds: int  # repetitions of what callers do beside each other
    seconds: float  # that such a round lasts
    waiting: int  # tasks that are there throughout single calls
    threads: tuple[int, ...]
    coroutines: tuple[int, ...]
    processes: tuple[int, ...]
    batches: tuple[int, ...]
    backlogs: tuple[int, ...]  # rows
    burst: int  # rows put at once
    millions: tuple[int, ...]  # and those of make bench-long
    samples: int  # of a latency
    kills: int
    idle: float  # seconds
    held: float  # seconds that a transaction is open
    readers: float  # seconds beside readers, whose snapshots last for 120
    watched: float  # seconds of that for a line of the table
    utubes: int  # with a task each
    busy: tuple[int, ...]  # tasks of each of a few utubes
    busiest: tuple[int, ...]  # and those of make bench-long
    grouped: int  # tasks that belong together
    fairness: tuple[int, ...]  # utubes that takes go round
    cores: tuple[int, ...]  # that Spark is bound to
    rows: int  # that it reads, and puts
    hand: int  # tasks that it works off at once
    moves: int  # rows of history that it reports on
    more_moves: int
    most_moves: int  # and those of make bench-spark-long


FULL = Effort(
    repetitions=5,
    calls=300,
    rounds=2,
    seconds=0.4,
    waiting=200,
    threads=(1, 4, 32),
    coroutines=(1, 8, 32),
    processes=(1, 2, 4, 8),
    batches=(10, 100, 1_000),
    backlogs=(10, 200_000),
    burst=100_000,
    millions=(10, 10_000_000),
    samples=150,
    kills=10,
    idle=5.0,
    held=120.0,
    readers=120.0,
    watched=10.0,
    utubes=30_000,
    busy=(1_000, 10_000),
    busiest=(50_000, 150_000),
    grouped=10_000,
    fairness=(30, 3_000, 30_000),
    cores=(1, 2),
    rows=1_000_000,
    hand=10_000,
    moves=1_000_000,
    more_moves=10_000_000,
    most_moves=50_000_000,
)
QUICK = Effort(
    repetitions=3,
    calls=100,
    rounds=2,
    seconds=0.2,
    waiting=50,
    threads=(1, 32),
    coroutines=(1, 32),
    processes=(1, 4),
    batches=(10, 100),
    backlogs=(10, 100_000),
    burst=20_000,
    millions=(10, 1_000_000),
    samples=60,
    kills=3,
    idle=2.0,
    held=20.0,
    readers=20.0,
    watched=5.0,
    utubes=3_000,
    busy=(100, 1_000),
    busiest=(2_000, 5_000),
    grouped=1_000,
    fairness=(30, 3_000),
    cores=(1, 2),
    rows=100_000,
    hand=1_000,
    moves=100_000,
    more_moves=1_000_000,
    most_moves=2_000_000,
)
SMOKE = Effort(
    repetitions=1,
    calls=3,
    rounds=1,
    seconds=0.02,
    waiting=2,
    threads=(2,),
    coroutines=(2,),
    processes=(2,),
    batches=(3,),
    backlogs=(5, 10),
    burst=20,
    millions=(5, 10),
    samples=3,
    kills=1,
    idle=0.1,
    held=0.2,
    readers=0.4,
    watched=0.1,
    utubes=5,
    busy=(2,),
    busiest=(2,),
    grouped=20,
    fairness=(3,),
    cores=(1,),
    rows=50,
    hand=5,
    moves=500,
    more_moves=500,
    most_moves=500,
)


@dataclass(frozen=True)
class Table:
    """What a section found."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        lines = [self.head, ["---"] + ["---:"] * (len(self.head) - 1), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Section:
    """One question, asked of each database: what answers it makes a table of the same shape for all."""

    name: str
    title: str
    text: str
    measure: Callable[[Effort, Home], Table]
    on: Collection[str] = tuple(HOMES)
    turn: int = 0  # those of a later one are measured when the others were, on every database


def rate(number: float) -> str:
    return f"{number:,.0f}/s"


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}"


def milli(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def run(sections: Iterable[Section], command: str, arguments: Sequence[str] | None = None) -> None:
    """The command line of one command: measures its sections, prints them, and writes them into RESULTS.md."""
    known = {section.name: section for section in sections}
    parser = argparse.ArgumentParser(description=f"Measure, and write the numbers into {RESULTS.name}.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"only these: {', '.join(known)}")
    parser.add_argument("--db", default=os.environ.get("XQ_TEST_DB"), help=f"only on this one: {', '.join(HOMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, printed only and not written")
    parser.add_argument(
        "--effort", action="append", default=[], metavar="NAME=NUMBER", help="another number of class Effort: held=600"
    )
    parser.add_argument("--dir", help="where the databases are made (default: where temporary files are)")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.sections if name not in known]
    if unknown:
        parser.error(f"there is no section {', '.join(unknown)}: they are {', '.join(known)}")
    if given.db and given.db not in HOMES:
        parser.error(f"nothing is measured on {given.db}: it is on {', '.join(HOMES)}")
    effort = QUICK if given.quick else FULL
    try:
        effort = replace(effort, **{name: _number(effort, name, value) for name, value in map(_pair, given.effort)})
    except (AttributeError, ValueError) as error:
        parser.error(f"--effort: {error}")
    tempfile.tempdir = given.dir or tempfile.tempdir

    console = Console()
    wanted = [known[name] for name in given.sections or known]
    for turn, engine in product(sorted({section.turn for section in wanted}), [given.db] if given.db else HOMES):
        mine = [section for section in wanted if section.turn == turn and engine in section.on]
        if reason := HOMES[engine].missing() if mine else None:
            console.print(f"nothing on {engine}: {reason}", highlight=False)
        elif mine:
            with closing(HOMES[engine]()) as home:
                for section in mine:
                    console.print(f"measuring {section.name} on {engine} ...", style="dim", highlight=False)
                    words = [*[section.name] * (len(known) > 1), *(f"--effort {pair}" for pair in given.effort)]
                    again = [command, f"DB={engine}", *[f"ARGS={shlex.quote(' '.join(words))}"] * bool(words)]
                    table = measured(section, effort, home, " ".join(again))
                    console.print(Markdown(f"{head(section)}\n{table}"))
                    if not given.quick:
                        write(RESULTS, section, engine, table)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _number(effort: Effort, name: str, value: str) -> Any:
    """What stands for a field of an Effort on the command line; several numbers have commas."""
    before = getattr(effort, name)
    return tuple(map(int, value.split(","))) if isinstance(before, tuple) else type(before)(value)


def measured(section: Section, effort: Effort, home: Home, again: str) -> str:
    """A table, and below it how it came about."""
    load, start = machine.load(), time.monotonic()
    table = section.measure(replace(effort, calls=effort.calls * home.pace), home)
    gc.collect()  # with the queues end the threads that listen for them, which the next section would hear
    made = f"{date.today()}, `{again}` ({time.monotonic() - start:.0f} s, load average before it {load})"
    return f"### {home.title}\n\n{table}\n\n*{made}. {home.describe()}.*\n"


def head(section: Section) -> str:
    return f"## {section.title}\n\n{section.text}\n"


def write(path: Path, section: Section, engine: str, table: str) -> None:
    """Put the table of a section on a database into its place, and keep the others."""
    kept = read(path) | {section.name: head(section), f"{section.name} {engine}": table}

    def place(name: str) -> tuple[int, int]:
        of, _, on = name.partition(" ")
        return ORDER.index(of) if of in ORDER else len(ORDER), ["", *HOMES].index(on)

    path.write_text("\n".join([HEADER, *(f"{MARK.format(name)}\n{kept[name]}" for name in sorted(kept, key=place))]))


def read(path: Path) -> dict[str, str]:
    """What a file has: the head of a section by its name, a table of it by that and the database."""
    _, *parts = re.split(MARK.format(r"([\w-]+(?: \w+)?)"), path.read_text() if path.exists() else "")
    return {name: text.strip("\n") + "\n" for name, text in zip(parts[::2], parts[1::2])}
