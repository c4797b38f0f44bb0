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
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table
from rich.text import Text

import xq

WORKERS = 4
MEGABYTES = 80  # of source at most: the standard library, then the packages by name; what is left out is told
BROKEN = {
    "broken_bracket.py": b"def never_closed(:\n",
    "broken_byte.py": b"zero = '\0'\n",
    "broken_encoding.py": b"# -*- coding: klingon-8 -*-\n",
}

# In WAL, which xq sets, "normal" loses nothing when a process dies, and no commit waits for the disk.
db = pw.SqliteDatabase(None, pragmas={"synchronous": "normal"}, timeout=30)


class Module(pw.Model):
    id = pw.AutoField()
    path = pw.TextField()
    size = pw.IntegerField()
    package = pw.TextField()
    lines = pw.IntegerField(null=True)
    functions = pw.IntegerField(null=True)
    classes = pw.IntegerField(null=True)
    title = pw.TextField(null=True)  # the first line of its docstring
    seconds = pw.DoubleField(null=True)  # that parsing took
    error = pw.TextField(null=True)  # why it was buried

    # What the queue needs stands in the same table. Only the first of these is required.
    status = pw.CharField(max_length=1, default="R")  # R(eady), T(aken), B(uried), D(one)
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
        features={
            "keep": True,  # acked files stay, as D
            "buried": True,
            "ttr": 60,  # if a worker died, its file would be Ready again after a minute
        },
        tube_stats=tubes,
    )


def fill(modules: xq.Queue[Module], files: Iterable[tuple[Path, str]]) -> int:
    """Put all files or none. The largest come first: taken last, one would keep the other workers waiting."""
    rows = []
    for path, package in files:
        size = path.stat().st_size
        rows.append({"path": sayable(str(path)), "size": size, "package": package, "priority": -size})
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
    drain(open_queue(path, tubes))


def run_workers(modules: xq.Queue[Module], tubes: list[str], total: int, console: Console) -> bool:
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


def corpus() -> tuple[list[tuple[Path, str]], int]:
    """The source files of this Python, each with its package, and how many more there are."""
    found: dict[Path, str] = {}
    for root in dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root).parts
            if path.is_file() and not {"site-packages", "dist-packages"} & set(inside):  # these belong to another root
                found.setdefault(path.resolve(), inside[0] if len(inside) > 1 else "(single files)")
    chosen, size = [], 0
    for path, package in found.items():
        size += path.stat().st_size
        if size <= MEGABYTES * 1_000_000:
            chosen.append((path, package))
    return chosen, len(found) - len(chosen)


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
    moves, done = Counter(stats.transition), stats.counts["D"]
    ((rows, paths),) = ask("SELECT count(*), count(DISTINCT path) FROM module")
    ((takes, most),) = ask("SELECT sum(attempts), max(attempts) FROM module")
    receipts = ask("SELECT module_id FROM receipt ORDER BY 1")
    return {
        "the statistics equal a GROUP BY": Counter(stats.counts) == grouped(),
        "so do those of each package that is counted by itself": all(
            Counter(numbers.counts) == grouped(package) for package, numbers in stats.tube.items()
        ),
        "no writer passed by the counters": modules.check() == [],
        "every file was put once": moves["X-R"] == rows == paths == files,
        "every file is Done or Buried": done + stats.counts["B"] == files,
        "every file was taken once, and once more when it was dug up": (
            moves["R-T"] == takes == files + dug and moves["B-R"] == dug and most == (2 if dug else 1)
        ),
        "every Done file was acked exactly once": (
            moves["T-D"] == done and receipts == ask("SELECT id FROM module WHERE status = 'D' ORDER BY 1")
        ),
        "every Buried file says why": not ask("SELECT 1 FROM module WHERE status = 'B' AND error IS NULL"),
    }


def tell(console: Console, checks: dict[str, bool]) -> bool:
    for what, holds in checks.items():
        console.print("  holds" if holds else "  FAILS", what, style="green" if holds else "bold red")
    console.print()
    return all(checks.values())


def show(console: Console, title: str, columns: str, rows: Iterable[Iterable[object]]) -> None:
    table = Table(*columns.split(), title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(Text(f"{cell:7,}" if isinstance(cell, int) else str(cell)) for cell in row))
    console.print(table, "")


def short(module: Module) -> str:
    return "/".join(Path(module.path).parts[-2:])


def demo(path: Path, console: Console) -> bool:
    """The whole story. Returns whether all of it held."""
    folder = path.with_name("broken-by-the-demo")
    folder.mkdir(parents=True, exist_ok=True)
    broken = {folder / name: source for name, source in BROKEN.items()}
    for file, source in broken.items():
        file.write_bytes(source)
    found, left_out = corpus()
    files = [*found, *((file, folder.name) for file in broken)]
    tubes = [package for package, _ in Counter(package for _, package in files).most_common(4)]

    modules = open_queue(str(path), tubes)
    db.create_tables([Module, Receipt])  # and with them the indexes, triggers and counters of the queue
    total = fill(modules, files)
    console.print(f"Put {total:,} files: {len(found):,} of this Python and its packages, {len(broken)} broken ones.")
    console.print(f"Left out {left_out:,} files of packages, beyond {MEGABYTES} megabytes.")
    ended = run_workers(modules, tubes, total, console)

    stats = modules.stats()
    counts = {"all": stats.counts, "by GROUP BY": grouped()} | {name: tube.counts for name, tube in stats.tube.items()}
    states = ((name, *(numbers[state] for state in "RTBD")) for name, numbers in counts.items())
    show(console, "The statistics, and of the largest packages", "package Ready Taken Buried Done", states)
    show(console, "The transitions", "from-to times", modules.stats(pretty=True).transition.items())
    done = Module.select().where(Module.status == "D").limit(5)
    slowest = ((short(m), f"{m.seconds:.3f}", m.title) for m in done.order_by(Module.seconds.desc()))
    show(console, "The slowest to parse", "module seconds title", slowest)
    largest = ((short(m), m.size, m.lines, m.functions, m.classes) for m in done.order_by(Module.size.desc()))
    show(console, "The largest", "module bytes lines functions classes", largest)
    buried = modules.by_state("B")
    ours = {str(file) for file in broken} <= {module.path for module in buried}
    checks = {"all workers ended well": ended, "the broken files are Buried": ours}
    good = tell(console, checks | verify(modules, total))

    repaired = next(iter(broken))
    repaired.write_text('"""Closed after all."""\n')
    console.print(f"{repaired.name} is repaired now. The Buried ones are dug up and tried again:")
    dug = modules.dig(n=None)
    drain(modules)
    again = [(module, modules.peek(module)) for module in buried]
    tries = ((Path(was.path).name, was.error, now.status, now.attempts) for was, now in again)
    show(console, "", "module error now attempts", tries)
    console.print("Any others are real: Python tests itself with files that do not parse.")
    only = [now.path for _, now in again if now.status == "D"] == [str(repaired)]
    checks = {"the repaired file is Done, and it alone": only}
    return tell(console, checks | verify(modules, total, dug=len(dug))) and good


def main() -> int:
    parser = argparse.ArgumentParser(description="Four processes read the source files of this Python.")
    parser.add_argument("--db", type=Path, help="the SQLite file to make (default: one in a new temporary folder)")
    path: Path = parser.parse_args().db or Path(tempfile.mkdtemp(prefix="xq-demo-"), "demo.db")
    path = path.absolute()
    if path.exists():
        parser.error(f"{path} is there already and is not overwritten: name another file")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal knows every letter of every error
    console = Console(highlight=False, markup=False)
    good = demo(path, console)
    db.close()
    console.print("The database is left for you to look at:")
    for line in (
        f"sqlite3 {shlex.quote(str(path))}",
        "sqlite> SELECT package, status, count(*), sum(lines) FROM module GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 20;",
        "sqlite> SELECT path, attempts, error FROM module WHERE status = 'B';",
        "sqlite> SELECT * FROM module_xq_count;  -- the statistics: triggers count whatever anybody writes",
    ):
        console.print("   ", line, soft_wrap=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
