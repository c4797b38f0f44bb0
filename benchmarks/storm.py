"""make storm: processes that do anything and are killed at any moment, and their servers with them, for many rounds.

The storm is the tests'. Each round is a line of `ROUNDS`, which the report is made of: it may be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine
from benchmarks.databases import software
from tests.conftest import SHARED
from tests.storm import ISOLATIONS, SERVERS, TICK, Plan, Report, Storm, ground, plan

RESULTS = Path(__file__).parent / "STORM.md"
ROUNDS = Path(__file__).parent / "storm.jsonl"  # not for the repository
EXPLORED = "## Cuts and pairs"  # of that page: what follows is written by hand
TEXT = """\
# Storms

`make storm` writes this page. In each round, processes call one queue at random on a fresh database. They put, take
(one, several, and with a timeout), ack in time and too late, release, bury, dig, touch, snatch, kill, restart, switch,
wait and sweep, one task or several. They begin groups, and put tasks after others. Some calls are in transactions and
savepoints that are rolled back. Beside that they run plain `INSERT`, `UPDATE` and `DELETE`. Meanwhile the storm kills
processes with SIGKILL at any moment, some within a transaction, and starts others in their place. It stops processes
with SIGSTOP for up to a second and a half. It restarts a server: by an orderly stop, a fast stop, or SIGKILL; the
processes must recover by themselves. Each round draws the features of its queue anew. At its end the processes finish
all tasks.

[tests/storm.py](../tests/storm.py) then checks that

- each task is in one state by the table, by the counters and by the history, and the rows of its history follow the
  transition table;
- the transitions into and out of each state add up to its number of tasks, in each tube, during the storm as well;
- the history has every put and every ack that returned once, and no ack that no process called;
- no two processes had a task at the same time, by logs that they write outside of the database, unless its ttr had
  passed, it was taken away, or the server that kept its session stopped;
- the `then` of a group is put once, no group is left open, and no task is taken before its parents have ended;
- the tasks of killed processes return, no call hangs, and no task is left;
- calls raise only errors of a server that is away, and of a transaction of the application that gave way to another;
- `check()` finds nothing, nor does the database's own check of its files, where it has one.
"""
HEAD = (
    "isolation",
    "rounds",
    "tasks",
    "moves",
    "kills",
    "stops",
    "restarts",
    "gave way",
    "kill to Ready",
    "violations",
)


@dataclass(frozen=True)
class Round:
    """What one round found, and where and how it was made."""

    database: str
    made: str
    report: Report

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Round:
        found = json.loads(line)
        report = found.pop("report")
        return cls(**found, report=Report(Plan(**report.pop("plan")), **report))

    @property
    def again(self) -> str:
        """The command that makes it again."""
        of = self.report.plan
        isolation = f" --isolation {of.isolation.replace(' ', '-').lower()}" if of.isolation else ""
        numbers = {"tasks": of.tasks, "processes": of.processes, "kills": of.kills, "stops": of.stops}
        numbers |= {"restarts": of.restarts} if self.database in SERVERS else {}
        told = " ".join(f"--{name} {number}" for name, number in numbers.items())
        return f"make storm ARGS='--database {self.database}{isolation} {told} --seed {of.seed}'"

    def __str__(self) -> str:
        of, found = self.report.plan, self.report
        words = (
            f"{self.database} {of.isolation}".strip(),
            of.seed,
            str(of) or "nothing more",
            f"{found.tasks:,} tasks",
            f"{found.transitions:,} moves",
            f"{found.kills} kills",
            f"{found.stops} stops",
            *([f"restarts: {', '.join(found.restarts)}"] if found.restarts else []),
            f"{found.seconds:.0f} s",
            f"{len(found.violations)} violations",
        )
        return "  ".join(words)


def row(name: str, reports: Sequence[Report]) -> Sequence[str]:
    """A line of the table."""
    returns = sorted(seconds for report in reports for seconds in report.returns)
    return (
        name,
        f"{len(reports):,}",
        f"{sum(r.tasks for r in reports):,}",
        f"{sum(r.transitions for r in reports):,}",
        f"{sum(r.kills for r in reports):,}",
        f"{sum(r.stops for r in reports):,}",
        f"{sum(len(r.restarts) for r in reports):,}",
        f"{sum(r.gave_way for r in reports):,}",
        f"{statistics.median(returns):.2f} s / {returns[-1]:.2f} s" if returns else "-",
        f"{sum(len(r.violations) for r in reports):,}",
    )


def section(database: str, rounds: Sequence[Round]) -> Iterator[str]:
    """What the rounds on one database found."""
    reports = [one.report for one in rounds]
    queues = len({str(report.plan) for report in reports})
    yield f"## {database}"
    yield (
        f"**{len(reports):,} rounds, {sum(r.tasks for r in reports):,} tasks, "
        f"{sum(r.transitions for r in reports):,} moves: {sum(len(r.violations) for r in reports):,} violations.** "
        f"{queues:,} different queues, {max(r.plan.processes for r in reports)} processes at a time."
    )
    levels = sorted({report.plan.isolation for report in reports})
    lines = [row(level or "its own", [r for r in reports if r.plan.isolation == level]) for level in levels]
    cells = [HEAD, ["---"] + ["---:"] * (len(HEAD) - 1), *lines]
    yield "\n".join(f"| {' | '.join(line)} |" for line in cells)
    wrong = [
        f"- `{one.again}`: {len(one.report.violations)}, the first: {one.report.violations[0].splitlines()[-1]}"
        for one in rounds
        if one.report.violations
    ]
    if wrong:
        yield "\n".join(["What did not hold:", "", *wrong])
    yield f"The last one again: `{rounds[-1].again}`"
    yield f"*{sum(r.seconds for r in reports):,.0f} s; the last one on {rounds[-1].made}.*"


def text(rounds: Sequence[Round]) -> str:
    """What the rounds found, as STORM.md."""
    notes = (
        "*Gave way* counts transactions and plain statements of the application that the database "
        "undid for another transaction; xq repeats its own. *Kill to Ready* has the median and the "
        "maximum of the time from a kill until no task of the killed process is taken, observed every "
        f"{TICK * 1e3:.0f} ms while all processes write without a pause. A process that ends a dead session "
        "waits for the locks of the database like any other, and SQLite's lock is not fair. Kills "
        "beside a stopped process are left out, since it may have had such a lock, and so are those "
        "during a restart. A seed repeats a round with the same queue and the same random numbers, "
        "but not the same timing."
    )
    found = [name for name in SHARED if any(one.database == name for one in rounds)]
    parts = [part for name in found for part in section(name, [one for one in rounds if one.database == name])]
    explored = "".join(RESULTS.read_text().partition(EXPLORED)[1:])
    return "\n\n".join([TEXT.rstrip(), notes, *parts, explored]).rstrip() + "\n"


def blow(of: Plan, database: str, folder: Path, progress: Progress) -> Round:
    """One round, with its bar."""
    bar = progress.add_task(f"{database}, {of.seed}: {of}", total=1.0)
    with ground(database, folder, of.isolation) as (db, server):
        report = Storm(db, of, folder, lambda part: progress.update(bar, completed=part), server).run()
        told = software(db)
    progress.remove_task(bar)
    return Round(database, f"{date.today()}, {machine.describe(folder, told)}", report)


def kept(resumed: bool, databases: Sequence[str]) -> list[Round]:
    """The rounds of before that the report goes on with: all, or those on other databases."""
    lines = ROUNDS.read_text().splitlines() if ROUNDS.exists() else []
    return [one for one in map(Round.of, lines) if resumed or one.database not in databases]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 when something did not hold."""
    levels = {level.replace(" ", "-").lower(): level for level in ISOLATIONS}
    parser = argparse.ArgumentParser(
        description=f"Storms of processes; what they found is written into {RESULTS.name}."
    )
    parser.add_argument("--rounds", type=int, default=60, help="how many on each database, of random seeds (60)")
    parser.add_argument("--resume", action="store_true", help="add to the rounds that were made, instead of forgetting")
    parser.add_argument("--seed", action="append", help="the round of this seed again; nothing is written")
    parser.add_argument("--database", action="append", choices=SHARED, help="one of them (all that can be had)")
    parser.add_argument("--isolation", choices=levels, help="of the servers' transactions (each in turn)")
    parser.add_argument("--processes", type=int, default=8, help="that are alive at a time (8)")
    parser.add_argument("--tasks", type=int, default=1_000, help="that are put in a round, about (1,000)")
    parser.add_argument("--kills", type=int, default=6, help="in a round; some processes kill themselves beside (6)")
    parser.add_argument("--stops", type=int, default=2, help="of processes, in a round (2)")
    parser.add_argument("--restarts", type=int, default=2, help="of the server, in a round (2)")
    parser.add_argument("--dir", type=Path, help="where the files are made (default: where temporary files are)")
    given = parser.parse_args(arguments)

    console = Console()
    missing = {name: reason for name, kind in SERVERS.items() if (reason := kind.missing())}
    databases = given.database or [name for name in SHARED if name not in missing]
    for name in databases:
        if name in missing:
            parser.error(missing[name])
    rounds = kept(given.resume, databases)
    if not given.seed:
        ROUNDS.write_text("".join(f"{one.line()}\n" for one in rounds))
    wrong = 0
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for number, seed in enumerate(given.seed or (secrets.token_hex(3) for _ in range(given.rounds))):
            for database in databases:
                level = levels[given.isolation] if given.isolation else ISOLATIONS[number % len(ISOLATIONS)]
                served = {"restarts": given.restarts, "isolation": level} if database in SERVERS else {}
                of = plan(seed, given.processes, given.tasks, given.kills, given.stops, **served)
                folder = Path(tempfile.mkdtemp(prefix="xq-storm-", dir=given.dir))
                rounds.append(blow(of, database, folder, progress))
                violations = rounds[-1].report.violations
                wrong += len(violations)
                console.print(str(rounds[-1]), highlight=False, soft_wrap=True)
                for violation in violations:
                    console.print(violation, style="red", highlight=False, markup=False)
                if violations:
                    console.print(f"what each process did is in {folder}", highlight=False)
                else:
                    shutil.rmtree(folder)
                if not given.seed:  # after each round: who has seen enough may stop it
                    with ROUNDS.open("a") as lines:
                        lines.write(f"{rounds[-1].line()}\n")
                    RESULTS.write_text(text(rounds))
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
