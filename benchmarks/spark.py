"""make bench-spark: how fast Spark reads, puts and works tasks off, beside what does so without it; then the pipeline.

Each section is measured in a process of its own with a Spark session of its own, which is started and warm before.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import xq
from benchmarks import pipeline
from benchmarks.databases import Database, Home
from benchmarks.measure import Numbers, Series, percentile, race, timed
from benchmarks.report import Effort, Section, Table, milli, rate, run

CORES = 2
CHUNK = 10_000  # rows handed to a bulk put at once
BATCHES = 10  # that are worked off
COLUMNS = ("tube", "payload", "status", "attempts")


class Way(NamedTuple):
    """One of those that are compared: how many rows it is asked for, what moves them in how many seconds."""

    rows: int
    run: Callable[[], float]
    to: str = ""  # whose rate is 1.00; its own where this is empty


Ways = Mapping[str, Way]


@contextmanager
def sources(place: Database, effort: Effort) -> Iterator[Ways]:
    """All columns of a history, read and thrown away."""
    pipeline.build(place, effort.rows)
    place.settle()
    spark = session()
    with closing(place.peewee()) as database:
        queue = pipeline.queue(database)
        rows = queue.History.select().count()

        def jdbc(parts: int) -> Any:
            return xq.spark.jdbc(spark, queue, "history", partitions=parts)

        def own(parts: int) -> Any:
            options = xq.spark.options(queue, "history")
            return spark.read.format("xq").options(**options, partitions=parts).load()

        def read(frame: Callable[[int], Any], parts: int) -> float:
            return timed(frame(parts).write.format("noop").mode("overwrite").save)

        ways = {}
        for parts, words in {1: "one partition", 2: "two partitions"}.items():
            base = f"JDBC, {words}"
            ways[base] = Way(rows, partial(read, jdbc, parts))
            ways[f'`format("xq")`, {words}'] = Way(rows, partial(read, own, parts), base)
        yield ways


@contextmanager
def bulk(place: Database, effort: Effort) -> Iterator[Ways]:
    """Tasks, put into a queue that is empty each time."""
    spark, n = session(), effort.rows
    rows = [("mail", payload(i), "R", 0) for i in range(n)]
    columns = [[[row[i] for row in rows[first : first + CHUNK]] for i in (0, 1)] for first in range(0, n, CHUNK)]
    with closing(place.peewee()) as database:
        queue, bare = pipeline.queue(database), pipeline.table(database)
        bare._meta.set_table_name("bare")
        models = [queue.model, bare]
        database.create_tables(models)

        def into(table: str) -> None:
            pipeline.load(place, table, COLUMNS, rows)

        def staged() -> None:
            job = queue.pipeline.bulk().begin(COLUMNS[:2])
            job.put_blocks(0, columns)
            job.commit()

        def written() -> None:
            tasks = spark.range(0, n, 1, CORES).selectExpr("'mail' AS tube", f"concat('{payload('')}', id) AS payload")
            tasks.write.format("xq").options(**xq.spark.options(queue)).mode("append").save()

        def anew(work: Callable[[], None]) -> float:
            queue.uninstall()
            database.drop_tables(models)
            database.create_tables(models)
            place.settle()
            spent = timed(work)
            ((found,),) = database.execute_sql("SELECT (SELECT COUNT(*) FROM job) + (SELECT COUNT(*) FROM bare)")
            assert found == n
            return spent

        base = "the database's own bulk load"
        yield {
            base: Way(n, partial(anew, partial(into, "job"))),
            "the same into a bare table": Way(n, partial(anew, partial(into, "bare")), base),
            "`Page.xq.pipeline.bulk()`, one process": Way(n, partial(anew, staged), base),
            f'`df.write.format("xq")`, {CORES} partitions': Way(n, partial(anew, written), base),
        }


@contextmanager
def consume(place: Database, effort: Effort) -> Iterator[Ways]:
    """Ready tasks, worked off in batches by work that does nothing; those of before stay as done."""
    spark, n = session(), BATCHES * effort.hand
    with closing(place.peewee()) as database:
        queue = pipeline.queue(database)
        database.create_tables([queue.model])

        def by_hand() -> None:
            while tasks := queue.take_many(effort.hand):
                queue.ack_many(tasks)

        def by_spark() -> None:
            assert xq.spark.consume(spark, queue, lambda tasks: tasks.select("id"), effort.hand) == {"ack": n}

        def filled(work: Callable[[], None]) -> float:
            pipeline.load(place, "job", COLUMNS, [("mail", payload(i), "R", 0) for i in range(n)])
            place.settle()
            return timed(work)

        base = "`take_many` and `ack_many`"
        yield {
            base: Way(n, partial(filled, by_hand)),
            "`xq.spark.consume`": Way(n, partial(filled, by_spark), base),
        }


def payload(number: object) -> str:
    return f"https://example.org/a/page/of/some/length/{number}"


def session() -> Any:
    spark = pipeline.session(CORES)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# each in a process of its own

MEASURED: Mapping[str, Callable[[Database, Effort], AbstractContextManager[Ways]]] = {
    "sources": sources,
    "bulk": bulk,
    "consume": consume,
}


def cpu(place: Database) -> Numbers:
    """The CPU seconds that this program, its Java and its database's server have used so far, with those that ended."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, rest = (path / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            numbers = rest.split()
            used = sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")
            found[int(path.name)] = int(numbers[1]), name, used, (path / "cmdline").read_text()
    port = re.search(r"port\D+(\d{4,5})|:(\d{4,5})/", str(place.where))
    told = f"port={port[1] or port[2]}" if port else None
    spent = dict.fromkeys(("python", "java", "server"), 0.0)
    for pid, (_, name, used, _) in found.items():
        line = []
        while pid in found:
            line.append(pid)
            pid = found[pid][0]
        if told and any(told in found[one][3] for one in line):
            spent["server"] += used
        elif os.getpid() in line:
            spent["java" if name == "java" else "python"] += used
    return spent


def raced(what: str, place: Database, effort: Effort, often: int) -> list[tuple[str, int, str, Any]]:
    """Of each way its name, its rows, to whom it is compared, and its rates and CPU seconds."""
    with MEASURED[what](place, effort) as ways:

        def once(name: str) -> Numbers:
            before, seconds = cpu(place), ways[name].run()
            after = cpu(place)
            return {"rate": ways[name].rows / seconds, **{one: after[one] - before[one] for one in after}}

        found = race(ways, once, often)
    return [(name, way.rows, way.to or name, found[name].numbers) for name, way in ways.items()]


def apart(what: str, place: Database, effort: Effort, often: int) -> Any:
    with started(what, place, effort, often) as process:
        told, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{what} of {place.engine} ended with {process.returncode}")
    return json.loads(told.splitlines()[-1])


def started(what: str, place: Database, effort: Effort, often: int = 0, *more: str) -> subprocess.Popen[str]:
    asked = json.dumps([what, place.engine, place.where, asdict(effort), often, *more])
    return subprocess.Popen([sys.executable, "-m", "benchmarks.spark", asked], stdout=subprocess.PIPE, text=True)


def answer(asked: str) -> None:
    """What such a process does."""
    what, engine, where, effort, often, *more = json.loads(asked)
    place, effort = pipeline.ON[engine](where), Effort(**effort)
    if what in UNTIL_KILLED:
        UNTIL_KILLED[what](place, effort, *more)
    else:
        print(json.dumps(raced(what, place, effort, often)), flush=True)


def compared(what: str, often: Callable[[Effort], int], effort: Effort, home: Home) -> Table:
    found = apart(what, home.new(what), effort, often(effort))
    series = {name: Series(numbers) for name, _, _, numbers in found}
    rows = []
    for name, n, to, _ in found:
        of = series[name]
        seconds = f"{n / of.best('rate'):.2f} / {n / of.median('rate'):.2f}"
        used = " / ".join(f"{of.median(one):.2f}" for one in ("python", "java", "server"))
        rows.append([name, f"{n:,}", seconds, used, rate(of.median("rate")), of.times(series[to], "rate")])
    cpus = "CPU seconds of Python / Java / the server"
    return Table(["", "rows", "seconds", cpus, "rows a second", "rate, to that of the other"], rows)


# what a death costs


def hold(place: Database, effort: Effort) -> None:
    """What the driver does that is killed."""

    def work(tasks: Any) -> Any:
        print("working", flush=True)
        threading.Event().wait()

    with closing(place.peewee()) as database:
        xq.spark.consume(session(), pipeline.queue(database), work, effort.hand)


def killed(effort: Effort, home: Home) -> Table:
    place = home.new("driver")
    delays = []
    with closing(place.peewee()) as database:
        queue = pipeline.queue(database)
        database.create_tables([queue.model])
        queue.take()  # from here on this process looks after the sessions of others
        for _ in range(effort.kills):
            pipeline.load(place, "job", COLUMNS, [("mail", payload(i), "R", 0) for i in range(effort.hand)])
            with started("hold", place, effort) as process:
                assert process.stdout
                assert "working\n" in process.stdout
                start = time.perf_counter()
                process.kill()
                while queue.count("R") < effort.hand:
                    time.sleep(1e-3)
                delays.append(time.perf_counter() - start)
            queue.ack_many(queue.take_many(effort.hand))
    half, most = (milli(percentile(delays, part)) for part in (0.5, 1))
    return Table(["tasks in hand", "p50 ms", "max", "kills"], [[f"{effort.hand:,}", half, most, str(len(delays))]])


# how old what people look at is

EVERY = 1.0  # seconds between two looks of the stream


def count(place: Database, effort: Effort, folder: str) -> None:
    """Count transitions by a stream, until this process is killed."""
    with closing(place.peewee()) as database:
        xq.spark.stream(session(), pipeline.queue(database), "activity", folder, every=EVERY).awaitTermination()


def activity(effort: Effort, home: Home) -> Table:
    place = home.new("activity")
    delays = []
    with closing(place.peewee()) as database:
        queue = pipeline.queue(database)
        database.create_tables([queue.model])

        def put(n: int) -> float:
            """Put the task of this number. Return the seconds from its commit until the table has it."""
            queue.put({"tube": "mail", "payload": payload(n)})
            start = time.perf_counter()
            while not database.table_exists("activity") or counted() < n:
                time.sleep(1e-3)
            return time.perf_counter() - start

        def counted() -> int:
            return int(database.execute_sql("SELECT COALESCE(SUM(n), 0) FROM activity").fetchone()[0])

        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            started("count", place, effort, 0, folder) as process,
        ):
            put(1)  # the first batch of a stream starts processes
            for n in range(2, 2 + max(1, effort.samples // 5)):
                time.sleep(random.uniform(0, EVERY))  # not in step with the looks
                delays.append(put(n))
            process.kill()
    half, most = (f"{percentile(delays, part):.1f}" for part in (0.5, 1))
    return Table(["seconds between looks", "p50 s", "max s", "puts"], [[f"{EVERY:g}", half, most, str(len(delays))]])


UNTIL_KILLED: Mapping[str, Callable[..., None]] = {"hold": hold, "count": count}

QUEUE = "A queue with keep, buried, delayed and history"
SECTIONS = [
    Section(
        "sources",
        "Spark reads",
        "All columns of the history of a simulated day (benchmarks/day.py), read by one and by two partitions on 2 "
        'cores and discarded. `format("xq")` stands beside JDBC; each rate is compared with JDBC\'s rate by as many '
        "partitions.",
        partial(compared, "sources", attrgetter("repetitions")),
    ),
    Section(
        "bulk",
        "Tasks by the million",
        f"{QUEUE} is filled, and a table of the same columns without a queue. The first way is what the database "
        "offers: rows of executemany in one transaction, COPY on PostgreSQL, and INSERTs of many rows on MariaDB. It "
        "bypasses xq but not its triggers. The second way is xq, which stages the rows and then puts all at once.",
        partial(compared, "bulk", lambda effort: 1),  # each is a minute, not a moment
    ),
    Section(
        "consume",
        "Tasks worked off by Spark",
        f"{QUEUE} is worked off in {BATCHES} batches by `consume`, with work that returns the keys alone. Beside it "
        "one process without Spark does the same.",
        partial(compared, "consume", attrgetter("rounds")),
    ),
    Section(
        "driver",
        "How soon the tasks of a killed driver are ready",
        "A driver that works tasks off by `consume` is killed with SIGKILL. The time ends when the table says that "
        "all tasks are ready. Another process has the queue open.",
        killed,
    ),
    Section(
        "activity",
        "How soon a stream has counted a put",
        "`xq.spark.stream()` counts the transitions of a queue in a process of its own. Another process puts one task "
        "after the other, at random moments. The time begins with the commit of a put, and ends when the table has it.",
        activity,
    ),
    *pipeline.SECTIONS,
]

if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("["):
        answer(sys.argv[1])
    elif sys.argv[1:2] == ["--long"]:
        run(pipeline.LONG, "make bench-spark-long", sys.argv[2:])
    else:
        run(SECTIONS, "make bench-spark")
