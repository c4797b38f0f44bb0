"""A first look at xq: four processes read the source files of this Python. An ordinary table is their queue.

    make demo        or        python examples/demo.py [--db PATH], and then python examples/demo.py --report PATH

The table `module` has a row for each source file of the standard library and of the installed packages, and for three
broken files that this program writes. xq.upgrade makes the table a queue. The workers take the files, parse them, write
the results into the rows, and ack them. They bury a file that does not parse, with its error.
In the middle the program puts a task and waits for its result, and kills a worker (kill -9) that has taken a file.
At the end it checks each of its statements in the database. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import ast
import errno
import io
import multiprocessing
import os
import shlex
import signal
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
FIRST = -(10**9)  # a priority before that of the largest file
BROKEN = {
    "broken_bracket.py": b"def never_closed(:\n",
    "broken_byte.py": b"zero = '\0'\n",
    "broken_encoding.py": b"# -*- coding: klingon-8 -*-\n",
}

# xq sets WAL. There, "normal" loses nothing if a process dies, and no commit waits for the disk.
db = pw.SqliteDatabase(None, pragmas={"synchronous": "normal"}, timeout=30)
console = Console(highlight=False, markup=False, emoji=False)


class Module(pw.Model):
    id = pw.BigAutoField()
    path = pw.TextField()
    name = pw.TextField()  # the path from the package on
    package = pw.TextField()
    size = pw.IntegerField()
    lines = pw.IntegerField(null=True)
    functions = pw.IntegerField(null=True)
    classes = pw.IntegerField(null=True)
    title = pw.TextField(null=True)  # the first line of its docstring
    seconds = pw.DoubleField(null=True)  # the time of parsing
    error = pw.TextField(null=True)  # the error of a buried file

    # The fields of the queue, in the same table. Only the first one is required.
    status = pw.CharField(max_length=1, default="R")  # one of STATES
    runat = pw.DoubleField(null=True)  # when the state ends without a call: here T, after its ttr
    priority = pw.IntegerField(default=0)  # lower is taken first
    owner = pw.TextField(null=True)  # the session that took it
    attempts = pw.IntegerField(default=0)  # the number of its takes

    class Meta:
        database = db


class Receipt(pw.Model):
    """One row for each ack, written in the same transaction. A file that is acked twice has two rows."""

    module = pw.ForeignKeyField(Module)
    worker = pw.IntegerField()

    class Meta:
        database = db


class Worker(pw.Model):
    """The session of each worker process. A session owns the tasks that it has taken, and ends with its process."""

    pid = pw.IntegerField()
    session = pw.TextField()

    class Meta:
        database = db


def open_queue(path: str, tubes: list[str]) -> xq.Queue[Module]:
    """Make the table a queue. Each process calls this, and has its own connection."""
    db.init(path)
    return xq.upgrade(
        Module,
        # A field of the application may have a role, too: the package is the tube.
        fields={role: role for role in ("status", "runat", "priority", "owner", "attempts")} | {"tube": "package"},
        # Acked files stay, as D. A file that is taken for more than a minute returns to R. The history has all changes.
        features={"keep": True, "buried": True, "ttr": 60, "history": True},
        tube_stats=tubes,
    )


def described(path: Path, name: str, priority: int | None = None) -> dict[str, Any]:
    """Return a file as a task. The largest files are first, so that no worker has a large file left at the end."""
    size = path.stat().st_size
    names = {"path": storable(str(path)), "name": name, "package": name.split("/")[0]}
    return names | {"size": size, "priority": -size if priority is None else priority}


def fill(modules: xq.Queue[Module], files: Iterable[tuple[Path, str]]) -> int:
    """Put all files or none."""
    return len(modules.put_many(described(path, name) for path, name in files))


def drain(modules: xq.Queue[Module]) -> None:
    """Take files, parse them, and ack or bury them, until no file is left."""
    warnings.simplefilter("ignore")  # the parsed sources may have invalid escape sequences
    while module := next_of(modules):
        started = time.perf_counter()
        try:
            found = parse(Path(module.path))
        except Exception as error:  # a SyntaxError, mostly
            modules.bury(module, update={"error": storable(f"{type(error).__name__}: {error}")})
            continue
        found["seconds"] = time.perf_counter() - started
        with db.atomic():  # the application's own transaction: the ack is part of it
            Receipt.create(module=module, worker=os.getpid())
            modules.ack(module, update=found)


def next_of(modules: xq.Queue[Module]) -> Module | None:
    """Take a file; None if no file is left. Wait while others have files: if a worker dies, its file is R again."""
    while (module := modules.take(timeout=0.1)) is None:
        counts = modules.stats().counts
        if not counts["R"] + counts["T"]:
            break
    return module


def parse(path: Path) -> dict[str, Any]:
    source = path.read_bytes()  # bytes: the file names its own encoding
    tree = ast.parse(source, path.name)
    nodes = Counter(type(node) for node in ast.walk(tree))
    return {
        "lines": len(source.splitlines()),
        "functions": nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef],
        "classes": nodes[ast.ClassDef],
        "title": storable((ast.get_docstring(tree) or "").partition("\n")[0]),
        "error": None,
    }


def storable(text: str) -> str:
    """Return text that a database can store. Names and sources may have half a surrogate pair, which is escaped."""
    return text.encode(errors="backslashreplace").decode()


def work(path: str, tubes: list[str]) -> None:
    """Run a worker process."""
    with closing(db):
        modules = open_queue(path, tubes)
        with modules.session() as session:
            Worker.create(pid=os.getpid(), session=session.uuid)
            drain(modules)


def run_workers(modules: xq.Queue[Module], tubes: list[str], total: int, endless: Module) -> dict[str, bool]:
    """Start the workers and show the statistics until the last one has ended. Returns the checks."""
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(db.database, tubes), daemon=True) for _ in range(WORKERS)]
    checks: dict[str, bool] = {}
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as progress:
        bar = progress.add_task(f"{WORKERS} workers", total=total)
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.exitcode is None:
                worker.join(0.1)
                if not checks and (end := far_end(Path(endless.path))) is not None:
                    checks = ask_a_worker(modules) | kill_a_worker(modules, endless, end)
                counts = modules.stats().counts  # a few counters, however many rows there are
                progress.update(bar, completed=counts["D"] + counts["B"])
    console.print()
    exits = sorted(worker.exitcode or 0 for worker in workers)
    return {
        "one worker was killed, and the others exited with 0": exits == [-signal.SIGKILL, *[0] * (WORKERS - 1)]
    } | checks


def far_end(pipe: Path) -> int | None:
    """Open a pipe to write if a process reads it; else return None. The reader waits, since nothing is written."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:  # no process reads
            raise
        return None


def ask_a_worker(modules: xq.Queue[Module]) -> dict[str, bool]:
    """Put this program itself before all other files, and wait for the result of a worker."""
    started = time.perf_counter()
    task = described(Path(__file__).resolve(), "examples/demo.py", FIRST)
    answer, processed = modules.put(task, wait=30)
    milliseconds = 1000 * (time.perf_counter() - started)
    console.print(f"Put {answer.name} before all others, with wait=. The answer after {milliseconds:.0f} ms:")
    console.print(f"  {answer.lines} lines, {answer.functions} functions, {answer.classes} classes")
    row = ask("SELECT status, lines, functions, classes FROM module WHERE path = ?", task["path"])
    wanted = ("D", answer.lines, answer.functions, answer.classes)
    return {"put(wait=) returned what a worker wrote": processed and row == [wanted]}


def kill_a_worker(modules: xq.Queue[Module], endless: Module, end: int) -> dict[str, bool]:
    """Kill the worker that reads the pipe, and wait until another worker has acked the file. `end` is our end of it."""
    holders = {key: session for key, session, _ in modules.taken()}
    victim = Worker.get(session=holders[endless.id]).pid
    pipe = Path(endless.path)
    pipe.unlink()
    pipe.write_text('"""A file now."""\n')  # the next worker reads this
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    os.close(end)
    console.print(f"Worker {victim} had taken {pipe.name}, and was killed with kill -9.")
    modules.wait(endless, timeout=30)
    history = ask("SELECT event, at_us FROM module_xq_history WHERE key = ? ORDER BY id", str(endless.id))
    receipt = "SELECT max(worker) FROM receipt WHERE module_id = module.id"
    ((status, attempts, by),) = ask(f"SELECT status, attempts, ({receipt}) FROM module WHERE id = ?", endless.id)
    for event, at_us in history:
        if event == "died":
            milliseconds = at_us / 1000 - killed * 1000
            console.print(f"  {pipe.name} was Ready again {milliseconds:.0f} ms later; worker {by} acked it.")
    lived = [event for event, _ in history] == ["put", "take", "died", "take", "ack"]
    again = lived and (status, attempts) == ("D", 2) and by != victim
    return {"the killed worker's file was Ready again, and another worker acked it": again}


def corpus() -> list[tuple[Path, str]]:
    """Return the source files of this Python, each with its path from the package on."""
    found: dict[Path, str] = {}
    for root in (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if path.is_file() and not {"site-packages", "dist-packages"} & set(
                inside.parts
            ):  # these are roots of their own
                found[path] = storable(inside.as_posix())
    return list(found.items())


def ask(sql: str, *values: object) -> list[Any]:
    """Return the rows of plain SQL, on a connection without xq and Peewee."""
    with closing(sqlite3.connect(str(db.database))) as connection:
        return connection.execute(sql, values).fetchall()


def grouped(package: str | None = None) -> Counter[str]:
    """Return how many files are in each state, by GROUP BY."""
    sql = "SELECT status, count(*) FROM module WHERE package = coalesce(?, package) GROUP BY status"
    return Counter(dict(ask(sql, package)))


def verify(modules: xq.Queue[Module], files: int, killed: int = 0, dug: int = 0) -> dict[str, bool]:
    """Return the checks after `files` were put and processed, each with whether it holds.

    `killed` files were taken by workers that were killed, and `dug` files were dug up: both were taken twice.
    """
    stats = modules.stats()
    moves = Counter(stats.transition)
    packages = all(Counter(numbers.counts) == grouped(package) for package, numbers in stats.tube.items())
    totals = ask("SELECT count(*), count(DISTINCT path), sum(attempts), max(attempts) FROM module")
    ((rows, paths, takes, most),) = totals
    history = Counter(dict(ask("SELECT source || '-' || target, count(*) FROM module_xq_history GROUP BY 1")))
    twice = " and ".join(f"{n} {why}" for n, why in ((killed, "that came back"), (dug, "dug up")) if n)
    receipts = ask("SELECT module_id FROM receipt ORDER BY 1")
    done = ask("SELECT id FROM module WHERE status = 'D' ORDER BY 1")
    return {
        "the statistics equal a GROUP BY": Counter(stats.counts) == grouped(),
        "the statistics by package equal a GROUP BY as well": packages,
        "the history has every transition that was counted": history == moves,
        "the queue's own check() finds nothing missing and nothing uncounted": modules.check() == [],
        "every file was put once": moves["X-R"] == rows == paths == files,
        "every file is Done or Buried": stats.counts["D"] + stats.counts["B"] == files,
        "every file was taken once" + (f", and again {twice}" if twice else ""): (
            moves["R-T"] == takes == files + killed + dug
            and (moves["T-R"], moves["B-R"]) == (killed, dug)
            and most == (2 if twice else 1)
        ),
        "every Done file was acked exactly once": moves["T-D"] == len(done) and receipts == done,
        "every Buried file has its error": not ask("SELECT 1 FROM module WHERE status = 'B' AND error IS NULL"),
    }


def show_checks(checks: dict[str, bool], before: dict[str, bool]) -> bool:
    """Print each check; one line counts the checks that already held `before`. Returns whether all hold."""
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


def show_history(modules: xq.Queue[Module], module: Module) -> None:
    pids = {worker.session: worker.pid for worker in Worker.select()}
    rows = []
    for change in modules.history(module):
        spent = "" if change.dur_us is None else f"{change.dur_us / 1000:.0f}"
        owner, _, _ = (change.owner or "").partition("/")  # the rest identifies the take
        rows.append((change.event, f"{change.source}-{change.target}", spent, str(pids.get(owner, "")), change.attempt))
    show(f"The history of {module.name}", ("event", "from-to", "after ms", "worker", "attempt"), rows)


def demo(path: Path) -> bool:
    """Run the demo. Returns whether all checks hold."""
    folder = path.with_name("made-by-the-demo")
    folder.mkdir(parents=True, exist_ok=True)
    broken = {folder / name: source for name, source in BROKEN.items()}
    for file, source in broken.items():
        file.write_bytes(source)
    pipe = folder / "endless.py"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    found = corpus()
    files = [*found[:FILES], *((file, f"{folder.name}/{file.name}") for file in broken)]
    tubes = [package for package, _ in Counter(name.split("/")[0] for _, name in files).most_common(4)]

    modules = open_queue(str(path), tubes)
    db.create_tables([Module, Receipt, Worker])  # also the indexes, triggers and counters of the queue
    total = fill(modules, files)
    console.print(f"Put {total:,} files: those of this Python and its packages, and {len(broken)} broken ones.")
    if left_out := len(found[FILES:]):
        console.print(f"Left out {left_out:,} files: {FILES:,} are enough.")
    # About half of the work is in files larger than three times the mean.
    middle = -round(3 * Module.select(pw.fn.avg(Module.size)).scalar())
    endless = modules.put(described(pipe, f"{folder.name}/{pipe.name}", middle))
    console.print(f"Put {pipe.name} among them: a pipe without data, which makes its reader wait.")
    total += 2  # the pipe, and the task of ask_a_worker
    console.print(f"{WORKERS} workers read and parse them now. That takes seconds to minutes.")
    meanwhile = run_workers(modules, tubes, total, endless)

    stats = modules.stats()
    counts = {"all files": stats.counts, "all files, by GROUP BY": grouped()}
    counts |= {f"package {name}": numbers.counts for name, numbers in stats.tube.items()}
    states = ((name, *(numbers[state] for state in STATES)) for name, numbers in counts.items())
    show("The statistics, of all and of the largest packages", ("counted", *STATES.values()), states)
    show("The transitions", ("from-to", "times"), modules.stats(pretty=True).transition.items())
    show_history(modules, endless)
    done = Module.select().where(Module.status == "D").limit(5)
    slowest = ((m.name, f"{m.seconds:.3f}", m.lines) for m in done.order_by(Module.seconds.desc()))
    show("The slowest to parse", ("module", "seconds", "lines"), slowest)
    largest = ((m.name, m.size, m.lines, m.functions, m.classes) for m in done.order_by(Module.size.desc()))
    show("The largest", ("module", "bytes", "lines", "functions", "classes"), largest)
    buried = modules.by_state("B")
    ours = {str(file) for file in broken} <= {module.path for module in buried}
    first = meanwhile | {"the broken files are Buried": ours} | verify(modules, total, killed=1)
    good = show_checks(first, before={})

    repaired = next(iter(broken))
    repaired.write_text('"""Closed after all."""\n')
    console.print(f"{repaired.name} is repaired now. The Buried files are dug up and tried again.")
    if (others := len(buried) - len(broken)) > 0:
        console.print(f"{others} of them are test files of Python and its packages, invalid on purpose.")
    dug = modules.dig(n=None)
    drain(modules)
    again = [(module, modules.peek(module)) for module in buried]
    for was, now in again:
        console.print(f"  {STATES[now.status]} after {now.attempts} attempts: {was.name}", soft_wrap=True)
        console.print(f"      first error: {was.error}", soft_wrap=True)
    console.print()
    only = [now.path for _, now in again if now.status == "D"] == [str(repaired)]
    second = {"of the dug files only the repaired one is Done": only} | verify(modules, total, killed=1, dug=len(dug))
    return show_checks(second, before=first) and good


def report(path: Path) -> None:
    """Make a report of an earlier run with Spark, from its history."""
    print("Spark starts and makes a report of this run: half a minute.", flush=True)
    db.init(str(path))
    tubes = [tube for (tube,) in ask("SELECT DISTINCT tube FROM module_xq_count WHERE tube <> ''")]
    ((last,),) = ask("SELECT max(at_us) FROM module_xq_history")
    with closing(db):
        modules, out = open_queue(str(path), tubes), str(path.with_name("report"))
        # Java compiles less, and so starts sooner: worth it for a short history.
        session = xq.spark.session(driver_extraJavaOptions="-XX:TieredStopAtLevel=1")
        made = xq.spark.report(session, [modules], until=last / 1e6 + 1, out=out)
    print(f"The report of this run has tables of Parquet and a page: open {shlex.quote(str(made.html))}")


def show_command(path: Path) -> None:
    """Print the command that serves the console of this database, by this program's Python."""
    print("The console shows it in a browser:")
    print(f"    {shlex.join([sys.executable, '-m', 'xq', 'serve', f'sqlite:///{path}'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Four processes read the source files of this Python.")
    parser.add_argument("--db", type=Path, help="the SQLite file to make (default: one in a new temporary folder)")
    parser.add_argument(
        "--report", type=Path, metavar="DB", help="make a report of an earlier run with Spark, from its SQLite file"
    )
    given = parser.parse_args()
    if given.report:
        if not given.report.is_file():
            parser.error(f"{given.report} does not exist: give the file of an earlier run")
        report(given.report.absolute())
        show_command(given.report.absolute())
        return 0
    path: Path = given.db or Path(tempfile.mkdtemp(prefix="xq-demo-"), "demo.db")
    path = path.absolute()
    if path.exists():
        parser.error(f"{path} is there already and is not overwritten: give another file")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack characters of the errors
    good = demo(path)
    db.close()
    print(f"""The database stays for you to read:
    sqlite3 {shlex.quote(str(path))}
    sqlite> SELECT package, status, count(*), sum(lines) FROM module GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 20;
    sqlite> SELECT name, attempts, error FROM module WHERE status = 'B';
    sqlite> SELECT * FROM module_xq_count;  -- sums of the history, to which stats() adds the newest rows
    sqlite> SELECT * FROM module_xq_history WHERE key = (SELECT id FROM module WHERE name LIKE '%/endless.py');""")
    show_command(path)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
