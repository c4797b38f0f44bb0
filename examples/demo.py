"""A first look at xq: four processes read the source files of this Python, and an ordinary table is their queue.

    make demo        or        python examples/demo.py [--db PATH]

The table `module` has a row for every source file of the standard library and of the packages installed beside it,
and for three broken files that this program writes itself. Upgraded, the table is a queue as well: workers take the
files, parse them, and ack them with what they found in the row; what does not parse is buried with its error.
In the end all that is claimed is looked up in the database, and the exit status is 1 when any of it does not hold.
"""

from __future__ import annotations

import argparse
import ast
import io
import multiprocessing
import os
import shlex
import sqlite3
import sys
import sysconfig
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

import xq

WORKERS = 4
FILES = 8_000  # at most: the standard library, then the packages by name
STATES = {"R": "Ready", "T": "Taken", "B": "Buried", "D": "Done"}
BROKEN = {
    "broken_bracket.py": b"def never_closed(:\n",
    "broken_byte.py": b"zero = '\0'\n",
    "broken_encoding.py": b"# -*- coding: klingon-8 -*-\n",
}

# In WAL, which xq sets, "normal" loses nothing when a process dies, and no commit waits for the disk.
db = pw.SqliteDatabase(None, pragmas={"synchronous": "normal"}, timeout=30)
console = Console(highlight=False, markup=False, emoji=False)


class Module(pw.Model):
    id = pw.AutoField()
    path = pw.TextField()
    name = pw.TextField()  # the path from the package on
    package = pw.TextField()
    size = pw.IntegerField()
    lines = pw.IntegerField(null=True)
    functions = pw.IntegerField(null=True)
    classes = pw.IntegerField(null=True)
    title = pw.TextField(null=True)  # the first line of its docstring
    seconds = pw.DoubleField(null=True)  # that parsing took
    error = pw.TextField(null=True)  # why it was buried

    # What the queue needs stands in the same table. Only the first of these is required.
    status = pw.CharField(max_length=1, default="R")  # one of STATES
    runat = pw.DoubleField(null=True)  # when the state ends by itself: here T, after its ttr
    priority = pw.IntegerField(default=0)  # lower is taken first
    owner = pw.TextField(null=True)  # the session that took it
    attempts = pw.IntegerField(default=0)  # how often it was taken

    class Meta:
        database = db


class Receipt(pw.Model):
    """One row for each ack, written in the same transaction. A file acked twice would stand here twice."""

    module = pw.ForeignKeyField(Module)
    worker = pw.IntegerField()

    class Meta:
        database = db


def open_queue(path: str, tubes: list[str]) -> xq.Queue[Module]:
    """Make the table a queue. Each process does so for itself, on a connection of its own."""
    db.init(path)
    return xq.upgrade(
        Module,
        # A field of the application may play a role as well: the package is the tube.
        fields={role: role for role in ("status", "runat", "priority", "owner", "attempts")} | {"tube": "package"},
        # Acked files stay, as D; and if a worker died, its file would be Ready again after a minute.
        features={"keep": True, "buried": True, "ttr": 60},
        tube_stats=tubes,
    )


def fill(modules: xq.Queue[Module], files: Iterable[tuple[Path, str]]) -> int:
    """Put all files or none. The largest come first: taken last, one would keep the other workers waiting."""
    rows = []
    for path, name in files:
        names = {"path": sayable(str(path)), "name": name, "package": name.split("/")[0]}
        size = path.stat().st_size
        rows.append(names | {"size": size, "priority": -size})
    return len(modules.put_many(rows))


def drain(modules: xq.Queue[Module]) -> None:
    """What a worker does: take, parse, and ack or bury, until there is nothing left to take."""
    warnings.simplefilter("ignore")  # an old escape sequence in somebody's source is not our business
    while module := modules.take():
        started = time.perf_counter()
        try:
            found = parse(Path(module.path))
        except Exception as error:  # a SyntaxError, mostly
            modules.bury(module, update={"error": sayable(f"{type(error).__name__}: {error}")})
            continue
        found["seconds"] = time.perf_counter() - started
        with db.atomic():  # the application's own transaction: the ack is part of it
            Receipt.create(module=module, worker=os.getpid())
            modules.ack(module, update=found)


def parse(path: Path) -> dict[str, Any]:
    source = path.read_bytes()  # bytes, since the file itself says how it is encoded
    tree = ast.parse(source, path.name)
    nodes = Counter(type(node) for node in ast.walk(tree))
    return {
        "lines": len(source.splitlines()),
        "functions": nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef],
        "classes": nodes[ast.ClassDef],
        "title": sayable((ast.get_docstring(tree) or "").partition("\n")[0]),
        "error": None,
    }


def sayable(text: str) -> str:
    """Names and sources may hold half a surrogate pair, which no database takes."""
    return text.encode(errors="backslashreplace").decode()


def work(path: str, tubes: list[str]) -> None:
    """A worker process."""
    with closing(db):
        drain(open_queue(path, tubes))


def run_workers(modules: xq.Queue[Module], tubes: list[str], total: int) -> bool:
    """Start the workers and watch the statistics until the last has ended. Returns whether all ended well."""
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(db.database, tubes), daemon=True) for _ in range(WORKERS)]
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as progress:
        bar = progress.add_task(f"{WORKERS} workers", total=total)
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.exitcode is None:
                worker.join(0.1)
                counts = modules.stats().counts  # a few counters, however many rows there are
                progress.update(bar, completed=counts["D"] + counts["B"])
    console.print()
    return all(worker.exitcode == 0 for worker in workers)


def corpus() -> list[tuple[Path, str]]:
    """The source files of this Python, each with its path from the package on."""
    found: dict[Path, str] = {}
    for root in (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if path.is_file() and not {"site-packages", "dist-packages"} & set(inside.parts):  # these are another root
                found[path] = sayable(inside.as_posix())
    return list(found.items())


def ask(sql: str, *values: object) -> list[Any]:
    """Plain SQL on a connection of its own, so that neither xq nor Peewee vouches for itself."""
    with closing(sqlite3.connect(str(db.database))) as connection:
        return connection.execute(sql, values).fetchall()


def grouped(package: str | None = None) -> Counter[str]:
    """How many files are in each state, counted the slow way."""
    sql = "SELECT status, count(*) FROM module WHERE package = coalesce(?, package) GROUP BY status"
    return Counter(dict(ask(sql, package)))


def verify(modules: xq.Queue[Module], files: int, dug: int = 0) -> dict[str, bool]:
    """What must hold when `files` were put and worked off, and `dug` of them dug up and worked off again."""
    stats = modules.stats()
    moves = Counter(stats.transition)
    packages = all(Counter(numbers.counts) == grouped(package) for package, numbers in stats.tube.items())
    totals = ask("SELECT count(*), count(DISTINCT path), sum(attempts), max(attempts) FROM module")
    ((rows, paths, takes, most),) = totals
    receipts = ask("SELECT module_id FROM receipt ORDER BY 1")
    done = ask("SELECT id FROM module WHERE status = 'D' ORDER BY 1")
    return {
        "the statistics equal a GROUP BY": Counter(stats.counts) == grouped(),
        "the statistics by package equal a GROUP BY as well": packages,
        "the queue's own check() finds nothing missing and nothing uncounted": modules.check() == [],
        "every file was put once": moves["X-R"] == rows == paths == files,
        "every file is Done or Buried": stats.counts["D"] + stats.counts["B"] == files,
        "every file was taken once" + (f", and the {dug} that were dug up once more" if dug else ""): (
            moves["R-T"] == takes == files + dug and moves["B-R"] == dug and most == (2 if dug else 1)
        ),
        "every Done file was acked exactly once": moves["T-D"] == len(done) and receipts == done,
        "every Buried file says why": not ask("SELECT 1 FROM module WHERE status = 'B' AND error IS NULL"),
    }


def tell(checks: dict[str, bool], before: dict[str, bool]) -> bool:
    """Print each check, and in one line those that hold as they did `before`. Returns whether all hold."""
    again = [what for what, holds in checks.items() if holds and before.get(what)]
    for what, holds in checks.items():
        if what not in again:
            console.print("  holds" if holds else "  FAILS", what, style="green" if holds else "bold red")
    if again:
        console.print(f"  the same {len(again)} checks hold again", style="green")
    console.print()
    return all(checks.values())


def show(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(title, style="bold")
    console.print(table, "")


def demo(path: Path) -> bool:
    """The whole story. Returns whether all of it held."""
    folder = path.with_name("broken-by-the-demo")
    folder.mkdir(parents=True, exist_ok=True)
    broken = {folder / name: source for name, source in BROKEN.items()}
    for file, source in broken.items():
        file.write_bytes(source)
    found = corpus()
    files = [*found[:FILES], *((file, f"{folder.name}/{file.name}") for file in broken)]
    tubes = [package for package, _ in Counter(name.split("/")[0] for _, name in files).most_common(4)]

    modules = open_queue(str(path), tubes)
    db.create_tables([Module, Receipt])  # and with them the indexes, triggers and counters of the queue
    total = fill(modules, files)
    console.print(f"Put {total:,} files: those of this Python and its packages, and {len(broken)} broken ones.")
    if left_out := len(found[FILES:]):
        console.print(f"Left out {left_out:,} files: {FILES:,} are enough.")
    ended = run_workers(modules, tubes, total)

    stats = modules.stats()
    counts = {"all files": stats.counts, "all files, by GROUP BY": grouped()}
    counts |= {f"package {name}": numbers.counts for name, numbers in stats.tube.items()}
    states = ((name, *(numbers[state] for state in STATES)) for name, numbers in counts.items())
    show("The statistics, of all and of the largest packages", ("counted", *STATES.values()), states)
    show("The transitions", ("from-to", "times"), modules.stats(pretty=True).transition.items())
    done = Module.select().where(Module.status == "D").limit(5)
    slowest = ((m.name, f"{m.seconds:.3f}", m.lines) for m in done.order_by(Module.seconds.desc()))
    show("The slowest to parse", ("module", "seconds", "lines"), slowest)
    largest = ((m.name, m.size, m.lines, m.functions, m.classes) for m in done.order_by(Module.size.desc()))
    show("The largest", ("module", "bytes", "lines", "functions", "classes"), largest)
    buried = modules.by_state("B")
    ours = {str(file) for file in broken} <= {module.path for module in buried}
    first = {"all workers ended well": ended, "the broken files are Buried": ours} | verify(modules, total)
    good = tell(first, before={})

    repaired = next(iter(broken))
    repaired.write_text('"""Closed after all."""\n')
    console.print(f"{repaired.name} is repaired now. The Buried ones are dug up and tried again.")
    if (others := len(buried) - len(broken)) > 0:
        console.print(f"{others} of them are real: Python, mostly, tests itself with files that do not parse.")
    dug = modules.dig(n=None)
    drain(modules)
    again = [(module, modules.peek(module)) for module in buried]
    for was, now in again:
        console.print(f"  {STATES[now.status]} after {now.attempts} attempts: {was.name}", soft_wrap=True)
        console.print(f"      at first {was.error}", soft_wrap=True)
    console.print()
    only = [now.path for _, now in again if now.status == "D"] == [str(repaired)]
    second = {"the repaired file is Done, and it alone": only} | verify(modules, total, dug=len(dug))
    return tell(second, before=first) and good


def main() -> int:
    parser = argparse.ArgumentParser(description="Four processes read the source files of this Python.")
    parser.add_argument("--db", type=Path, help="the SQLite file to make (default: one in a new temporary folder)")
    path: Path = parser.parse_args().db or Path(tempfile.mkdtemp(prefix="xq-demo-"), "demo.db")
    path = path.absolute()
    if path.exists():
        parser.error(f"{path} is there already and is not overwritten: name another file")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal knows every letter of every error
    good = demo(path)
    db.close()
    print(f"""The database is left for you to look at:
    sqlite3 {shlex.quote(str(path))}
    sqlite> SELECT package, status, count(*), sum(lines) FROM module GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 20;
    sqlite> SELECT name, attempts, error FROM module WHERE status = 'B';
    sqlite> SELECT * FROM module_xq_count;  -- the statistics: triggers count whatever anybody writes""")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
