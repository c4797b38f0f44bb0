"""Sections of numbers: measuring those that are asked for, and keeping RESULTS.md."""

from __future__ import annotations

import argparse
import gc
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import machine

RESULTS = Path(__file__).parent / "RESULTS.md"
ORDER = (  # of the sections in the file
    *("single", "features", "batches", "processes", "threads", "full", "backlog", "latency", "idle"),
    *("peers", "layers", "functions"),
)
HEADER = """\
# What xq costs

Made by `make bench`, `make bench-peers` and `make profile`, each of which writes its sections anew and leaves the
others. Every section says on what machine, when, and by which command it was measured. A ratio compares with *the
floor*, hand-written SQL through Python's own `sqlite3` in the same run: a table with one index, one statement a call,
nothing else (`Floor` in [contestants.py](contestants.py)). All work in one file, in WAL mode, with
`synchronous=NORMAL` unless a section says otherwise: a commit survives the death of the process, and the last ones not
a power cut. Everybody is measured in turn, in an order shuffled at each repetition. Two numbers with a slash are the
best and the median of the repetitions; a rate beside them is the median. Where the floor's best and its median lie
far apart, something else kept the machine or its disk busy.
"""
MARK = "<!-- section {} -->"


@dataclass(frozen=True)
class Effort:
    """How much is measured: what a section multiplies its work by."""

    repetitions: int
    calls: int  # of each kind, in a repetition
    rounds: int  # repetitions of what callers do beside each other
    seconds: float  # that such a round lasts
    waiting: int  # tasks that are there throughout the cycles
    callers: tuple[int, ...]  # threads
    processes: int
    batches: tuple[int, ...]
    backlogs: tuple[int, ...]  # rows
    samples: int  # of a latency
    idle: float  # seconds


FULL = Effort(
    repetitions=7,
    calls=2_000,
    rounds=5,
    seconds=0.5,
    waiting=1_000,
    callers=(1, 2, 4, 8, 16, 32),
    processes=4,
    batches=(10, 100, 1_000),
    backlogs=(1_000, 100_000, 1_000_000),
    samples=400,
    idle=10.0,
)
QUICK = Effort(
    repetitions=3,
    calls=500,
    rounds=2,
    seconds=0.2,
    waiting=100,
    callers=(1, 4, 32),
    processes=4,
    batches=(10, 100, 1_000),
    backlogs=(1_000, 100_000),
    samples=60,
    idle=3.0,
)
SMOKE = Effort(
    repetitions=1,
    calls=3,
    rounds=1,
    seconds=0.02,
    waiting=2,
    callers=(2,),
    processes=2,
    batches=(3,),
    backlogs=(5, 10),
    samples=3,
    idle=0.1,
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
    """One question, and what answers it. `measure` is given a folder for its files."""

    name: str
    title: str
    text: str
    measure: Callable[[Effort, Path], Table]


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
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, printed only and not written")
    parser.add_argument("--dir", type=Path, help="where the databases are made (default: where temporary files are)")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.sections if name not in known]
    if unknown:
        parser.error(f"there is no section {', '.join(unknown)}: they are {', '.join(known)}")

    console = Console()
    for name in given.sections or known:
        section = known[name]
        console.print(f"measuring {name} ...", style="dim", highlight=False)
        load, start = machine.load(), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="xq-bench-", dir=given.dir) as folder:
            table = section.measure(QUICK if given.quick else FULL, Path(folder))
            gc.collect()  # with the queues end the threads that listen for them, which the next section would hear
            described = machine.describe(Path(folder))
        again = f"{command} ARGS={name}" if len(known) > 1 else command
        made = f"{date.today()}, `{again}` ({time.monotonic() - start:.0f} s, load average before it {load})"
        text = f"## {section.title}\n\n{section.text}\n\n{table}\n\n*{made}. {described}.*\n"
        console.print(Markdown(text))
        if not given.quick:
            write(RESULTS, name, text)


def write(path: Path, name: str, text: str) -> None:
    """Put a section into its place, and keep the others."""
    kept = read(path)
    kept[name] = text
    names = sorted(kept, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    path.write_text("\n".join([HEADER, *(f"{MARK.format(name)}\n{kept[name]}" for name in names)]))


def read(path: Path) -> dict[str, str]:
    """The sections of a file, by name."""
    _, *parts = re.split(MARK.format(r"(\w+)"), path.read_text() if path.exists() else "")
    return {name: text.strip("\n") + "\n" for name, text in zip(parts[::2], parts[1::2])}
