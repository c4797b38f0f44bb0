"""How soon a waiting take hears of a put, and what waiting costs: sections of make bench."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.contestants import Place, Xq
from benchmarks.databases import PATIENCE, Database, Home
from benchmarks.measure import percentile, spawn
from benchmarks.report import Effort, Section, Table, milli

PAUSES = (0.02, 0.08)  # seconds between two puts: at random, so that no rhythm of a waiter is met
OTHER_WORK = 1_000  # commits a second
QUEUE = partial(Xq, roles=("owner", "runat"), features={"ttr": 60})


def heard(queue: Xq, samples: int) -> list[float]:
    """The seconds from before a put until its task is in the hands of a take that waited for it."""
    delays = []
    for _ in range(samples):
        task: Any = queue.queue.take(timeout=PATIENCE)
        # CLOCK_MONOTONIC: the same for all processes of a machine.
        delays.append((time.monotonic_ns() - int(task.payload)) / 1e9)
        queue.ack(task)
    return delays


def put_now_and_then(queue: Xq, samples: int) -> None:
    for _ in range(samples):
        time.sleep(random.uniform(*PAUSES))
        queue.put(str(time.monotonic_ns()))


def by_a_thread(place: Place, samples: int) -> Sequence[float]:
    delays: list[float] = []
    with closing(QUEUE(place)) as queue:

        def consume() -> None:
            delays.extend(heard(queue, samples))
            queue.close()

        consumer = threading.Thread(target=consume)
        consumer.start()
        put_now_and_then(queue, samples)
        consumer.join()
    return delays


def by_a_process(place: Place, samples: int) -> Sequence[float]:
    with closing(QUEUE(place)) as queue:
        delays: list[float] = in_a_process(
            place, partial(heard, samples=samples), lambda: put_now_and_then(queue, samples)
        )
    return delays


def in_a_process(place: Place, there: Callable[[Xq], Any], meanwhile: Callable[[], object]) -> Any:
    """What `there` returns when another process calls it with its own queue, while this one does something else."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_there, args=(theirs, place, there))
    process.start()
    theirs.close()
    ours.recv()
    meanwhile()
    found = ours.recv()
    process.join()
    return found


def _there(pipe: Connection, place: Place, there: Callable[[Xq], Any]) -> None:
    with closing(QUEUE(place)) as queue:
        queue.take()  # connects
        pipe.send("ready")
        pipe.send(there(queue))


def latency(effort: Effort, home: Home) -> Table:
    ways = {"a thread of the same process": by_a_thread, "another process": by_a_process}
    rows = []
    for i, (name, way) in enumerate(ways.items()):
        delays = way(Place(home.new(f"latency-{i}")), effort.samples)
        rows.append([name, *(milli(percentile(delays, part)) for part in (0.5, 0.9, 0.99, 1)), str(len(delays))])
    return Table(["who waits", "p50 ms", "p90", "p99", "max", "puts"], rows)


# what a death costs


def killed(effort: Effort, home: Home) -> Table:
    """Of each kill the time until the task that the dead one had is ready again, by what the table says."""
    place = Place(home.new("killed"))
    delays = []
    with closing(QUEUE(place)) as queue:
        queue.put()
        queue.ack(queue.take())  # from here on this process looks after the sessions of others
        for _ in range(effort.kills):
            queue.put()
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_take_and_hang, args=(theirs, place))
            process.start()
            theirs.close()
            ours.recv()
            start = time.perf_counter()
            process.kill()
            while not queue.queue.count("R"):
                time.sleep(1e-3)
            delays.append(time.perf_counter() - start)
            process.join()
            queue.ack(queue.take())
    return Table(
        ["", "p50 ms", "max", "kills"],
        [["kill -9 to Ready", milli(percentile(delays, 0.5)), milli(percentile(delays, 1)), str(len(delays))]],
    )


def _take_and_hang(pipe: Connection, place: Place) -> None:
    pipe.send(QUEUE(place).take() is not None)
    threading.Event().wait()


# what waiting costs


def processor_time(queue: Xq, seconds: float) -> float:
    """The seconds of processor time that this process uses, all its threads together, while a take waits in vain."""
    queue.queue.take(timeout=1)  # the maintenance thread connects: pymysql needs 20 ms each time, to read certificates
    start = time.process_time()
    queue.queue.take(timeout=seconds)
    return time.process_time() - start


def other_work(database: Database, seconds: float) -> int:
    """Commits of another table, evenly spread. Returns how many there were time for."""
    start, commits = time.monotonic(), 0
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS other (n INTEGER)")
        cursor.execute("INSERT INTO other VALUES (0)")
        while (now := time.monotonic() - start) < seconds:
            if commits < now * OTHER_WORK:
                cursor.execute("UPDATE other SET n = n + 1")
                commits += 1
            else:
                time.sleep(commits / OTHER_WORK - now + 1e-4)
    return commits


def idle(effort: Effort, home: Home) -> Table:
    place = Place(home.new("idle"))
    QUEUE(place).close()
    commits = [0]

    def work() -> None:
        commits[0] = other_work(place.database, effort.idle)

    rows = []
    for name, meanwhile in {"nothing": lambda: None, "commits to another table": work}.items():
        commits[0] = 0
        spent = in_a_process(place, partial(processor_time, seconds=effort.idle), meanwhile)
        each = f"{spent / effort.idle * 1e3:.2f}"
        rows.append([name, f"{commits[0] / effort.idle:,.0f}", each, f"{spent / effort.idle:.2%}"])
    return Table(
        ["what others do in the database", "commits a second", "ms of processor time a second", "of a core"], rows
    )


SECTIONS = [
    Section(
        "latency",
        "How soon a waiting take hears of a put",
        "The time from the begin of a put until a waiting take returns the task. Puts come at random, every 20 to "
        "80 ms. The aim is a median under 1 ms within a process, and between processes under 5 ms on SQLite and "
        "under 2 ms on PostgreSQL.",
        latency,
    ),
    Section(
        "killed",
        "How soon the task of a dead process is ready",
        "A process takes a task and is killed with SIGKILL. The time ends when the table says that the task is "
        "ready. Another process has the queue open. The aim is 1 s. [STORM.md](STORM.md) has the same under load.",
        killed,
    ),
    Section(
        "idle",
        "What waiting costs",
        "The processor time, of all threads, of a process whose only call is a take that waits and gets no task.",
        idle,
    ),
]
