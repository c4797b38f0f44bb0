"""A report of a simulated day, by Spark and by plain SQL, and an archive of it: sections of make bench-spark.

Each measurement is a process of its own with a Spark session of its own, bound to so many cores; the session's start is
not counted. The day is that of benchmarks/day.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial, reduce
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import peewee as pw

import xq
from benchmarks import databases, day
from benchmarks.databases import Database, Home, OnServer
from benchmarks.measure import timed
from benchmarks.report import Effort, Section, Table

MEMORY = "1g"  # of the Java process: Spark's default
LOADED = 1_000  # rows of one INSERT
ON: Mapping[str, type[Database]] = {
    kind.engine: kind for kind in (databases.Sqlite, databases.Postgres, databases.MariaDB, databases.MySQL)
}


def table(database: pw.Database) -> type[pw.Model]:
    """The application's table, no queue yet."""

    class Job(pw.Model):
        id = pw.AutoField()
        tube = pw.CharField(32)
        payload = pw.CharField(64)
        status = pw.CharField(1, default="R")
        runat = pw.DoubleField(null=True)
        attempts = pw.IntegerField(default=0)

        class Meta:
            database: pw.Database

    Job.bind(database)
    return Job


def queue(database: pw.Database) -> xq.Queue[pw.Model]:
    return xq.upgrade(
        table(database),
        fields={role: role for role in ("status", "tube", "runat", "attempts")},
        features={"keep": True, "buried": True, "delayed": True, "history": True},
    )


def build(place: Database, moves: int) -> None:
    """Fill a database with the tables that a queue has after a day of nearly so many moves."""
    database = place.peewee()
    left = day.Left()
    with closing(database):
        database.create_tables([table(database)])
        history = tempfile.TemporaryFile("w+")  # noqa: SIM115  # the tasks are known when the day is over
        with history:
            for move in day.day(moves, left=left):
                history.write(json.dumps(move) + "\n")
            load(place, "job", ("id", "tube", "payload", "status", "attempts"), _tasks(left))
            made = queue(database)
            made.install()
            history.seek(0)
            load(place, "job_xq_history", day.Move._fields, map(json.loads, history))
    if place.engine == "postgres":
        with closing(place.connect()) as connection:
            for of in ("job", "job_xq_history"):
                connection.execute(f"SELECT setval(pg_get_serial_sequence('{of}', 'id'), (SELECT MAX(id) FROM {of}))")
            connection.execute("VACUUM ANALYZE")


def _tasks(left: day.Left) -> Iterator[tuple[Any, ...]]:
    for key, (tube, state, attempts) in left.tasks.items():
        yield key, tube, "what an application stores", state, attempts


def load(place: Database, into: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """The database's own bulk load."""
    rows = iter(rows)
    quote = "`" if place.engine in ("mariadb", "mysql") else '"'
    names = ", ".join(f"{quote}{column}{quote}" for column in columns)
    with closing(place.connect()) as connection, closing(connection.cursor()) as cursor:
        if place.engine == "postgres":
            with cursor.copy(f"COPY {into} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            return
        mark = "?" if place.engine == "sqlite" else "%s"
        cursor.execute("BEGIN")
        while some := [*islice(rows, LOADED)]:
            cursor.executemany(f"INSERT INTO {into} ({names}) VALUES ({', '.join([mark] * len(columns))})", some)
        cursor.execute("COMMIT")


# what is measured, each in a process of its own


def report(place: Database, cores: int, out: Path) -> float:
    spark = session(cores)
    database = place.peewee()
    with closing(database):
        span = day.MIDNIGHT, day.MIDNIGHT + day.DAY
        return timed(partial(xq.spark.report, spark, [queue(database)], *span, out=str(out)))


def archive(place: Database, cores: int, out: Path) -> float:
    spark = session(cores)
    database = place.peewee()
    with closing(database):
        return timed(partial(xq.spark.archive, spark, queue(database), str(out)))


def nothing(place: Database, cores: int, out: Path) -> float:
    """The second report of an empty queue."""
    spark = session(cores)
    database = place.peewee()
    with closing(database):
        found = queue(database)
        database.create_tables([found.model])
        return [timed(partial(xq.spark.report, spark, [found], out=str(out))) for _ in range(2)][-1]


def by_jdbc(place: Database, cores: int, out: Path) -> float:
    """The same tables by the same SQL, in Spark, of the tables as stock JDBC reads them."""
    spark = session(cores)
    database = place.peewee()
    with closing(database):
        found = queue(database)
        xq.spark.jdbc(spark, found).createOrReplaceTempView("job")
        xq.spark.jdbc(spark, found, "history", partitions=cores).createOrReplaceTempView(HISTORY)

    def ask() -> None:
        for sql in SQL.values():
            spark.sql(reduce(lambda text, pair: text.replace(*pair), FOR_SPARK, sql)).collect()

    return timed(ask)


def session(cores: int) -> Any:
    return xq.spark.session(**{"spark.master": f"local[{cores}]", "spark.driver.memory": MEMORY})


MEASURED: Mapping[str, Callable[[Database, int, Path], float]] = {
    "report": report,
    "report of nothing, the second": nothing,
    "report by SQL in Spark, stock JDBC": by_jdbc,
    "archive": archive,
}


def measured(what: str, place: Database, cores: int, out: Path) -> tuple[float, float]:
    """Seconds, and the most memory that its processes had together, in MiB."""
    asked = json.dumps([what, place.engine, place.where, cores, str(out)])
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.pipeline", asked], stdout=subprocess.PIPE, text=True)
    most, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            most[0] = max(most[0], memory_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    told, _ = process.communicate()
    over.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{what} of {place.engine} ended with {process.returncode}")
    return float(told.splitlines()[-1]), most[0]


def memory_of(pid: int) -> float:
    """What a process and all below it have in memory, in MiB; what they share is counted once."""
    found = 0.0
    below = [pid]
    while below:
        one = below.pop()
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                below += map(int, (task / "children").read_text().split())
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found += int(line.split()[1]) / 1024
        except OSError:
            continue  # ended meanwhile
    return found


def answer(asked: str) -> None:
    """What such a process does."""
    what, engine, where, cores, out = json.loads(asked)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    print(MEASURED[what](ON[engine](where), cores, Path(out)), flush=True)


def pipeline(rows: Callable[[Effort], int], effort: Effort, home: Home) -> Table:
    moves = rows(effort)
    found: list[tuple[int, str, str, float, str]] = []
    built = home.new(f"day-{moves}")
    build(built, moves)
    built.settle()
    for what in MEASURED:
        for cores in effort.cores:
            place = copy(home, built) if what == "archive" else home.new("empty") if "nothing" in what else built
            with tempfile.TemporaryDirectory(prefix="xq-bench-") as folder:
                seconds, memory = measured(what, place, cores, Path(folder, what))
            of = 0 if "nothing" in what else moves
            found.append((of, what, str(cores), seconds, f"{memory:,.0f} MiB"))
    sql = by_sql(built)
    found.append((moves, "report by plain SQL", "", sql, ""))
    heads = ["rows of history", "", "cores", "seconds", "a million rows", "memory", "to plain SQL"]
    return Table(heads, [_line(*one, sql) for one in found])


def _line(moves: int, what: str, cores: str, seconds: float, memory: str, sql: float) -> list[str]:
    each = f"{seconds / moves * 1e6:.2f} s" if moves else ""
    ratio = f"{seconds / sql:.2f}" if moves and what.startswith("report") else ""
    return [f"{moves:,}", what, cores, f"{seconds:.1f}", each, memory, ratio]


def copy(home: Home, of: Database) -> Database:
    """Another such database, to be changed."""
    made = home.new("copy")
    if isinstance(home, OnServer):
        name, template = (one.where.rpartition("/")[2] for one in (made, of))
        home.server.run(f'DROP DATABASE "{name}"')
        home.server.run(f'CREATE DATABASE "{name}" OWNER {home.server.USER} TEMPLATE "{template}"')
    else:
        shutil.copyfile(of.where, made.where)
    return made


def ranks(rows: str, by: str) -> str:
    """The nearest ranks of `us` in rows, by columns of theirs: a query."""
    percents = ", ".join(f"MIN(CASE WHEN 100 * i >= {p} * n THEN us END) / 1e6 AS p{p}" for p in (50, 90, 99))
    ranked = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY us) AS i, COUNT(*) OVER (PARTITION BY {by}) AS n"
    return (
        f"SELECT {by}, n, {percents}, MAX(us) / 1e6 AS longest "
        f"FROM (SELECT {by}, us, {ranked} FROM ({rows}) AS rows_) AS ranked GROUP BY {by}, n"
    )


HISTORY = "job_xq_history"
HOUR = "at_us / 3600000000"
STAYS = f'SELECT tube, source, at_us - LAG(at_us) OVER (PARTITION BY "key" ORDER BY at_us, id) AS us FROM {HISTORY}'
ENDS = "('D', 'B', 'X')"
ENDED = f'SELECT "key", tube, target, at_us FROM {HISTORY} WHERE target IN {ENDS}'


def times(**events: str) -> str:
    return ", ".join(f"SUM(CASE WHEN {when} THEN 1 ELSE 0 END) AS {name}" for name, when in events.items())


MOVES = times(
    put="source = 'X'",
    taken="target = 'T'",
    done="event = 'ack'",
    buried="target = 'B'",
    killed="event = 'kill'",
    expired="event IN ('ttl', 'lifetime')",
)
SHARES = times(done="target = 'D'", buried="target = 'B'", killed="target = 'X'")
CROSSED = times(
    arrived="target IN ('R', 'W') AND source NOT IN ('R', 'W')",
    departed="source IN ('R', 'W') AND target NOT IN ('R', 'W')",
)
LIVES = (
    f"SELECT d.tube, d.at_us - p.at_us AS us FROM {HISTORY} AS d "
    f"JOIN {HISTORY} AS p ON p.\"key\" = d.\"key\" AND p.source = 'X' WHERE d.target = 'D'"
)
TAKES = (
    f'SELECT e."key", e.tube, COUNT(*) AS takes FROM ({ENDED}) AS e '
    f'JOIN {HISTORY} AS h ON h."key" = e."key" AND h.target = \'T\' GROUP BY 1, 2'
)
# The tables of the report as SQL by hand, for one queue that never uses a key again, over its whole history. The tables
# overall and failures are left out. stuck has every task that is Ready or Taken, without the limit of its state.
SQL: Mapping[str, str] = {
    "throughput": f"SELECT tube, {HOUR} AS bucket, {MOVES} FROM {HISTORY} GROUP BY 1, 2",
    "states": ranks(f"SELECT * FROM ({STAYS}) AS stays WHERE us IS NOT NULL", "tube, source"),
    "lives": ranks(LIVES, "tube"),
    "retries": f"SELECT tube, takes, COUNT(*) FROM ({TAKES}) AS taken GROUP BY 1, 2",
    "shares": f"SELECT tube, {SHARES} FROM {HISTORY} WHERE target IN {ENDS} GROUP BY 1",
    "backlog": "SELECT tube, bucket, arrived, departed, "
    "SUM(arrived - departed) OVER (PARTITION BY tube ORDER BY bucket) "
    f"FROM (SELECT tube, {HOUR} AS bucket, {CROSSED} FROM {HISTORY} GROUP BY 1, 2) AS moved "
    "WHERE arrived + departed > 0",
    "stuck": f'SELECT j.id, j.status, MAX(h.at_us) FROM job AS j JOIN {HISTORY} AS h ON h."key" = CAST(j.id AS TEXT) '
    "WHERE j.status IN ('R', 'T') GROUP BY 1, 2",
    "transitions": f"SELECT tube, source, target, event, COUNT(*) FROM {HISTORY} GROUP BY 1, 2, 3, 4",
}


# What Spark writes otherwise.
FOR_SPARK = (('"', "`"), (HOUR, HOUR.replace("/", "DIV")), ("AS TEXT", "AS STRING"))


def by_sql(place: Database) -> float:
    """Seconds that these tables take in the database itself."""
    with closing(place.connect()) as connection, closing(connection.cursor()) as cursor:

        def ask() -> None:
            for sql in SQL.values():
                cursor.execute(sql)
                cursor.fetchall()

        return timed(ask)


TEXT = (
    "A simulated day (benchmarks/day.py) in a queue with history. `xq.spark.report` and `xq.spark.archive` process "
    f"all of it, in a Spark with {MEMORY} of memory for Java, bound to so many cores. Memory is the maximum of Java, "
    "Python and its workers together. Plain SQL queries the database for the tables of the report but overall (for "
    "stuck without its limit), and fetches them; the same SQL in Spark reads the tables by stock JDBC. Ratios are of "
    "seconds. The start of Spark is not counted. Only the report of nothing, the second one of its process, is warm."
)


def section(name: str, title: str, rows: Callable[[Effort], int], turn: int) -> Section:
    return Section(name, title, TEXT, partial(pipeline, rows), ("sqlite", "postgres"), turn)


SECTIONS = [
    section("pipeline", "The data pipeline", attrgetter("moves"), 1),
    section("pipelines", "The data pipeline, ten times that", attrgetter("more_moves"), 2),
]
LONG = [section("pipelines-long", "The data pipeline, fifty times that", attrgetter("most_moves"), 0)]

if __name__ == "__main__":
    answer(sys.argv[1])
