"""python -m benchmarks.install_online postgres --rows 10000000: install(online=True) beside writers, with kill -9.

It prints the longest write of another program, and whether the counters equal the table in the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import threading
import time
from contextlib import closing
from typing import Any

import peewee as pw

import xq
from benchmarks.databases import HOMES, Database
from benchmarks.measure import percentile

STATES = "'draft', 'draft', 'draft', 'paid', 'draft', 'shipped'"
COLUMNS = {
    "postgres": "id bigserial PRIMARY KEY",
    **dict.fromkeys(("mariadb", "mysql"), "id BIGINT AUTO_INCREMENT PRIMARY KEY"),
}
WRITES = (
    "INSERT INTO orders (customer, state) VALUES ('new', 'paid')",
    "UPDATE orders SET state = 'shipped' WHERE id = {}",
    "UPDATE orders SET state = 'paid' WHERE id = {}",
    "DELETE FROM orders WHERE id = {}",
)


def queue_on(database: Database) -> xq.Queue[Any]:
    meta = type("Meta", (), {"database": database.peewee(), "table_name": "orders"})
    model: Any = type("Order", (pw.Model,), {"customer": pw.TextField(), "state": pw.CharField(20), "Meta": meta})
    statuses = {"R": "paid", "T": "packing", "W": "later", "D": "shipped"}
    return xq.upgrade(model, {"status": "state"}, {"delayed": True, "keep": True, "ttr": 60}, statuses=statuses)


def fill(database: Database, rows: int) -> None:
    one = "(ARRAY[{}])[1 + i % 6]" if database.engine == "postgres" else "ELT(1 + seq % 6, {})"
    numbers = f"generate_series(1, {rows}) AS i" if database.engine == "postgres" else database.numbers(rows)
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE TABLE orders ({COLUMNS[database.engine]}, customer text, state varchar(20) NOT NULL)")
        cursor.execute(f"INSERT INTO orders (customer, state) SELECT 'ann', {one.format(STATES)} FROM {numbers}")
        cursor.execute("ANALYZE orders" if database.engine == "postgres" else "ANALYZE TABLE orders")


def write(database: Database, rows: int, rate: float, until: threading.Event, took: list[float]) -> None:
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        due = time.perf_counter()
        while not until.is_set():
            start = time.perf_counter()
            cursor.execute(random.choice(WRITES).format(random.randint(1, rows)))
            took.append(time.perf_counter() - start)
            due = max(due + 1 / rate, time.perf_counter() - 1)
            time.sleep(max(due - time.perf_counter(), 0))


def stay_open(database: Database, seconds: float) -> None:
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        for sql in ("BEGIN", WRITES[0]):
            cursor.execute(sql)
        time.sleep(seconds)
        cursor.execute("COMMIT")


def install(database: Database) -> None:
    queue_on(database).install(online=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=COLUMNS)
    for name, default in {"rows": 1_000_000, "writes": 500, "open": 60, "kills": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with closing(HOMES[given.engine]()) as home:
        database, over, took = home.new("online"), threading.Event(), list[float]()
        fill(database, given.rows)
        arguments = (database, given.rows, given.writes / 4, over, took)
        writers = [threading.Thread(target=write, args=arguments) for _ in range(4)]
        others = [*writers, threading.Thread(target=stay_open, args=(database, given.open))]
        for thread in others:
            thread.start()
        start, killed, code = time.monotonic(), 0, None
        while code in (None, -signal.SIGKILL):
            installing = multiprocessing.get_context("spawn").Process(target=install, args=(database,))
            installing.start()
            installing.join(random.uniform(1, 2 * given.open / given.kills) if killed < given.kills else None)
            if installing.exitcode is None:
                installing.kill()
                installing.join()
                killed += 1
            code = installing.exitcode
        seconds = time.monotonic() - start
        over.set()
        for thread in others:
            thread.join()
        problems = queue_on(database).check()
        print(
            f"{home.describe()}\n{given.rows:,} rows, {len(took) / seconds:.0f} writes/s, a write transaction open for "
            f"{given.open} s, killed {killed} times: {seconds:.0f} s; writes: longest {max(took):.3f} s, 99.9 % within "
            f"{percentile(took, 0.999):.3f} s; check(): {problems or 'nothing is wrong'}; exit code {code}"
        )


if __name__ == "__main__":
    main()
