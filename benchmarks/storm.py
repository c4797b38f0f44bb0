"""make storm: processes that do anything and are killed at any moment, for many rounds. The storm is the tests'."""

from __future__ import annotations

import argparse
import secrets
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine
from benchmarks.databases import software
from tests.conftest import DATABASES, SHARED
from tests.storm import TICK, Plan, Report, Storm, plan

RESULTS = Path(__file__).parent / "STORM.md"
TEXT = """\
# Storms

Made by `make storm`. In each round {processes} processes do anything to {tasks:,} tasks of one queue on a fresh
{database} database: they put, take (one, several, patiently), ack in time and too late, release, bury, dig, touch,
snatch, kill, restart, switch, wait and sweep, in transactions and savepoints that are rolled back, beside plain
`INSERT`, `UPDATE` and `DELETE`. Meanwhile they are killed with SIGKILL at any moment, some within a transaction, and
others take their places; and they are stopped with SIGSTOP for up to a second and a half. What the queue can do is
drawn anew for each round. At last they finish what is left.

What must hold ([tests/storm.py](../tests/storm.py)): every task is in one state by the table, by the counters and by
the history, whose rows are a walk through the machine's table for each task; in minus out is what is there, in each
tube, also in the middle of it; every ack that returned is in the history once, and no other is; no task is in two
hands, by what each process wrote down outside of the database, unless its ttr had passed or it was taken away; what
the dead held comes back, nothing hangs, and nothing is left; `check()` and `PRAGMA integrity_check` find nothing.
"""
HEAD = ("seed", "the queue", "tasks", "moves", "kills", "stops", "took", "kill to Ready", "violations")


def row(report: Report) -> Sequence[str]:
    slowest = f"{max(report.returns):.2f} s" if report.returns else "-"
    return (
        f"`{report.plan.seed}`",
        str(report.plan) or "nothing more",
        f"{report.tasks:,}",
        f"{report.transitions:,}",
        str(report.kills),
        str(report.stops),
        f"{report.seconds:.0f} s",
        slowest,
        str(len(report.violations)),
    )


def text(reports: Sequence[Report], database: str, command: str, described: str) -> str:
    """What the rounds found, as STORM.md."""
    of = reports[0].plan
    returns = sorted(seconds for report in reports for seconds in report.returns)
    total = (
        f"**{len(reports)} rounds, {sum(r.tasks for r in reports):,} tasks, "
        f"{sum(r.transitions for r in reports):,} moves, {sum(r.kills for r in reports)} kills, "
        f"{sum(r.stops for r in reports)} stops: {sum(len(r.violations) for r in reports)} violations.**"
    )
    if returns:
        total += (
            f" From a kill until nothing of the dead was taken any more it took {statistics.median(returns):.2f} s "
            f"(median) and {returns[-1]:.2f} s at the most, seen every {TICK * 1e3:.0f} ms, while all processes wrote "
            "without a pause: who ends a dead session waits for the lock of the database like everybody, and SQLite's "
            "waiting is not fair. Kills beside a process that stood still are left out: it may have had that lock."
        )
    table = "\n".join(
        f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * 2 + ["---:"] * (len(HEAD) - 2), *map(row, reports))
    )
    again = (
        f"A round is made again by `make storm ARGS='--seed {of.seed}'`: the same queue and the same dice, though not "
        "the same moments."
    )
    took = sum(report.seconds for report in reports)
    made = f"*{date.today()}, `{command}` ({took:.0f} s, load average at its end {machine.load()}). {described}.*"
    head = TEXT.format(processes=of.processes, tasks=of.tasks, database=database)
    return "\n\n".join([head + "\n" + total, table, again, made]) + "\n"


def blow(of: Plan, database: str, folder: Path, progress: Progress) -> tuple[Report, str]:
    """One round, with its bar, and what it was on."""
    bar = progress.add_task(f"{of.seed}: {of}", total=1.0)
    with DATABASES[database](folder) as db:
        described = machine.describe(folder, software(db))
        report = Storm(db, of, folder, lambda part: progress.update(bar, completed=part)).run()
    progress.update(bar, completed=1.0)
    return report, described


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 when something did not hold."""
    parser = argparse.ArgumentParser(
        description=f"Storms of processes; what they found is written into {RESULTS.name}."
    )
    parser.add_argument("--rounds", type=int, default=20, help="how many, of seeds drawn at random (20)")
    parser.add_argument("--seed", action="append", help="the round of this seed again; nothing is written")
    parser.add_argument("--processes", type=int, default=8, help="that are alive at a time (8)")
    parser.add_argument("--tasks", type=int, default=10_000, help="that are put in a round, about (10,000)")
    parser.add_argument("--kills", type=int, default=16, help="in a round; some processes kill themselves beside (16)")
    parser.add_argument("--stops", type=int, default=6, help="in a round (6)")
    parser.add_argument("--database", choices=SHARED, default=SHARED[0])
    parser.add_argument("--dir", type=Path, help="where the databases are made (default: where temporary files are)")
    given = parser.parse_args(arguments)

    console = Console()
    reports: list[Report] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for seed in given.seed or [secrets.token_hex(3) for _ in range(given.rounds)]:
            folder = Path(tempfile.mkdtemp(prefix="xq-storm-", dir=given.dir))
            of = plan(seed, given.processes, given.tasks, given.kills, given.stops)
            report, described = blow(of, given.database, folder, progress)
            reports.append(report)
            console.print("  ".join(row(report)), highlight=False)
            if report.violations:
                for violation in report.violations:
                    console.print(violation, style="red", highlight=False, markup=False)
                console.print(f"the database and what each process did are in {folder}", highlight=False)
            else:
                shutil.rmtree(folder)
            if not given.seed:  # after each round: who has seen enough may stop it
                RESULTS.write_text(
                    text(reports, given.database, " ".join(["make storm", *_told(arguments)]), described)
                )
    return min(1, sum(len(report.violations) for report in reports))


def _told(arguments: Sequence[str] | None) -> list[str]:
    words = list(sys.argv[1:] if arguments is None else arguments)
    return [f"ARGS='{' '.join(words)}'"] if words else []


if __name__ == "__main__":
    sys.exit(main())
