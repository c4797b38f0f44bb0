"""How a consumer hears of a row that another process wrote: what each way takes, and costs. docs/signals.md has the
results and what follows from them. `python -m benchmarks.wakeups [--quick] [section ...]` starts its own servers.
"""

from __future__ import annotations

import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from subprocess import PIPE
from typing import Any

import psycopg
import pymysql

from benchmarks.measure import end_orderly, percentile, spawn
from benchmarks.report import Table, show
from benchmarks.servers import MariaDB, Postgres, answer
from tests.servers import PgBouncer

PAUSES = (0.02, 0.08)  # seconds between two rows: at random, so that no rhythm of a waiter is met
SILENCE = (0.3, 0.5)  # long enough for every back-off to have reached its end
DEAF = 2.0  # seconds after which a row counts as not heard of
BINARY_LOG: dict[str, Any] = {
    "log_bin": "binlog",
    "server_id": 1,
    "log_bin_trust_function_creators": 1,  # else only an administrator may make a trigger beside a binary log
}


@dataclass
class Effort:
    samples: int  # rows, for a latency
    idle: float  # seconds
    seconds: float  # of writing, each time
    repetitions: int


FULL = Effort(samples=100, idle=5, seconds=0.8, repetitions=5)
QUICK = Effort(samples=30, idle=2, seconds=0.3, repetitions=2)


# the waiter: a process of its own


class Link:
    """A waiter's connection, which counts the statements that it sends."""

    def __init__(self, place: Any) -> None:
        self.connection: Any = (
            psycopg.connect(place, autocommit=True, prepare_threshold=0)
            if isinstance(place, str)
            else pymysql.connect(**place)
        )
        self.place = place
        self.statements = 0
        self._cursor = self.connection.cursor()

    def answer(self, statement: str) -> Any:
        self.statements += 1
        self._cursor.execute(statement)
        row = self._cursor.fetchone() if self._cursor.description else None
        return row[0] if row else None


Hear = Callable[[Link], Iterator[None]]  # yields once when it listens, then whenever it heard something

WAITER = "waiter-1"
PROBE = "SELECT 1 FROM t WHERE status = 'R' LIMIT 1"
VERSION = "SELECT SUM(id) FROM (SELECT id FROM t_count ORDER BY id DESC LIMIT 64) last"


def probing(link: Link, least: float, most: float) -> Iterator[None]:
    """Look for a ready row each `least` seconds, doubled up to `most` while there is none."""
    yield
    pause = least
    while True:
        if link.answer(PROBE):
            yield
            link.answer("DELETE FROM t")
            pause = least
        time.sleep(pause)
        pause = min(pause * 2, most)


def comparing(link: Link, least: float, most: float, statement: str = VERSION) -> Iterator[None]:
    """Look each so many seconds at something that changes with every write."""
    seen = link.answer(statement)
    yield
    pause = least
    while True:
        time.sleep(pause)
        pause = min(pause * 2, most)
        found = link.answer(statement)
        if found != seen:
            seen, pause = found, least
            yield


def sleeping_until_killed(link: Link, takes: bool = True, rearms: bool = True) -> Iterator[None]:
    """Sleep in the server until somebody ends the statement; the row is perhaps not committed yet: look on for a while.

    `rearms`: only while it sleeps does it hold the lock that says so, so that a crowd of writers interrupts it once.
    What looks is a connection of its own: while it was the one that is killed, INSERTs of others failed with error
    1064, a trigger with an error in its body (docs/signals.md).
    """

    def tried(statement: str) -> Any:
        with suppress(pymysql.OperationalError):  # a late KILL ends a statement that it was not meant for
            return link.answer(statement)

    looks = Link(link.place)
    arm, disarm = f"SELECT GET_LOCK('{WAITER}', 1)", f"SELECT RELEASE_LOCK('{WAITER}')"
    link.answer(arm)
    yield
    while True:
        if rearms:
            tried(arm)
        tried("SELECT SLEEP(60)")
        if rearms:
            tried(disarm)
        quiet, pause = 0.0, 0.0
        while quiet < 0.1:
            time.sleep(pause)
            quiet, pause = quiet + pause, min(max(0.001, pause * 2), 0.02)
            if looks.answer(PROBE):
                yield
                if takes:
                    looks.answer("DELETE FROM t")
                quiet, pause = 0.0, 0.001


def handed_a_lock(link: Link) -> Iterator[None]:
    """Wait for a lock that the one writer has, and gives out for a moment at each row."""
    yield
    while True:
        while not link.answer("SELECT GET_LOCK('turn', 60)"):
            pass
        yield
        link.answer("SELECT RELEASE_LOCK('turn')")
        while not link.answer("SELECT IS_USED_LOCK('turn') <> CONNECTION_ID()"):  # else we get it ourselves again
            pass


def streaming(link: Link) -> Iterator[None]:
    """Follow the binary log as a replica does, by the client that MariaDB brings for it."""
    place = link.place
    command = ["mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--stop-never", "--base64-output=never"]
    command += [f"--host={place['host']}", f"--port={place['port']}", "--user=replica", "binlog.000001"]
    with ExitStack() as ends:
        child = ends.enter_context(
            subprocess.Popen(["stdbuf", "-o0", *command], stdout=PIPE, stderr=subprocess.DEVNULL)
        )
        ends.callback(child.kill)
        assert child.stdout
        descriptor = child.stdout.fileno()
        while select.select([descriptor], [], [], 0.5)[0]:
            child.stdout.read1()  # type: ignore[attr-defined]  # what was written before
        yield
        text = b""
        while True:
            text += child.stdout.read1()  # type: ignore[attr-defined]
            if b"COMMIT" in text:
                text = b""
                yield


def notified(link: Link) -> Iterator[None]:
    """Block on the socket until the server sends a notification."""
    link.answer("LISTEN t")
    yield
    low = link.connection.pgconn
    while True:
        select.select([low.socket], [], [])
        low.consume_input()
        while low.notifies():
            yield


def wait(pipe: Connection, place: Any, hear: Hear) -> None:
    end_orderly()
    link = Link(place)
    for _ in hear(link):
        pipe.send((time.monotonic_ns(), time.process_time(), link.statements))


# the writer


@dataclass
class Way:
    """One way to hear, and what the writer's side needs for it."""

    name: str
    hear: Hear
    trigger: str = "counts"  # which of TRIGGERS
    after: Callable[[Any], None] | None = None  # what a writer does after its commit
    holds: str = ""  # a lock that the writer has between two rows


def kill(connection: Any) -> None:
    waiter = answer(connection, f"SELECT IS_USED_LOCK('{WAITER}')")
    answer(connection, f"KILL QUERY {waiter}")


def hand_over(connection: Any) -> None:
    """Let the waiter have the lock, and stand in line for it again."""
    answer(connection, "SELECT RELEASE_LOCK('turn')")
    answer(connection, "SELECT GET_LOCK('turn', 10)")


COUNT = "INSERT INTO t_count (source, target, n) VALUES ('X', NEW.status, 1)"


def kills(slots: int) -> str:
    """Interrupt the first who waits. A lock's holder lives: an id that a table remembers may be a stranger's by now."""
    holders = ", ".join(f"IS_USED_LOCK('waiter-{slot}')" for slot in range(1, slots + 1))
    first = f"COALESCE({holders})" if slots > 1 else holders
    return f"SET @waiter = {first}; IF @waiter <> CONNECTION_ID() THEN KILL QUERY @waiter; END IF"


TRIGGERS = {
    "nothing": "",
    "counts": COUNT,
    "counts, kills": f"{COUNT}; {kills(1)}",
    "counts, kills one of 8": f"{COUNT}; {kills(8)}",
    "counts, two locks": f"{COUNT}; SET @got = GET_LOCK('hint', 0); SET @got = RELEASE_LOCK('hint')",
}
MARIADB_WAYS = [
    *(Way(f"probe, each {ms} ms", partial(probing, least=ms / 1e3, most=ms / 1e3)) for ms in (5, 10, 20, 50)),
    Way("probe, 2 to 20 ms", partial(probing, least=0.002, most=0.02)),
    Way("version of the counters, 2 to 20 ms", partial(comparing, least=0.002, most=0.02)),
    Way(
        "`@@gtid_binlog_pos`, 2 to 20 ms",
        partial(comparing, least=0.002, most=0.02, statement="SELECT @@gtid_binlog_pos"),
    ),
    Way("GET_LOCK, handed over by the only writer", handed_a_lock, after=hand_over, holds="turn"),
    Way("SLEEP, `KILL QUERY` after the commit", sleeping_until_killed, after=kill),
    Way("SLEEP, `KILL QUERY` in the trigger", sleeping_until_killed, trigger="counts, kills"),
    Way("binary log as a stream", streaming),
]
SNAPSHOT = "SELECT pg_current_snapshot()::text"
POSTGRES_WAYS = [
    Way("LISTEN, NOTIFY in the trigger", notified, trigger="notifies"),
    *(Way(f"probe, each {ms} ms", partial(probing, least=ms / 1e3, most=ms / 1e3)) for ms in (5, 20)),
    Way("probe, 2 to 20 ms", partial(probing, least=0.002, most=0.02)),
    Way("`pg_current_snapshot()`, 2 to 20 ms", partial(comparing, least=0.002, most=0.02, statement=SNAPSHOT)),
]


def mariadb_tables(connection: Any, trigger: str) -> None:
    for name in ("t", "t_count"):
        answer(connection, f"DROP TABLE IF EXISTS {name}")
    answer(connection, "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, status CHAR(1), KEY (status, id))")
    answer(
        connection, "CREATE TABLE t_count (id BIGINT AUTO_INCREMENT PRIMARY KEY, source CHAR(1), target CHAR(1), n INT)"
    )
    if TRIGGERS[trigger]:
        answer(connection, f"CREATE TRIGGER t_i AFTER INSERT ON t FOR EACH ROW BEGIN {TRIGGERS[trigger]}; END")


DELTA = "INSERT INTO t_count (source, target, n) SELECT 'X', status, count(*) FROM n GROUP BY status"
BODIES = {  # of the statement trigger on PostgreSQL
    "nothing": "",
    "counts": f"{DELTA};",
    "notifies": f"{DELTA}; PERFORM pg_notify('t', '');",
    "asks for a waiter": f"{DELTA}; IF EXISTS(SELECT FROM waiters) THEN PERFORM pg_notify('t', ''); END IF;",
    "asks the switch": f"{DELTA}; IF (SELECT wakes FROM settings) THEN PERFORM pg_notify('t', ''); END IF;",
}


def postgres_tables(connection: Any, trigger: str, t: str = "t") -> None:
    """`t` names the table: several can stand beside each other."""
    for statement in (
        f"DROP TABLE IF EXISTS {t}",
        f"CREATE TABLE {t} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status char(1))",
        f"CREATE INDEX ON {t} (id) WHERE status = 'R'",
        "CREATE TABLE IF NOT EXISTS t_count (source text, target text, n bigint)",
        "CREATE TABLE IF NOT EXISTS waiters (id bigint)",
        "CREATE TABLE IF NOT EXISTS settings (wakes bool)",
    ):
        answer(connection, statement)
    if BODIES[trigger]:
        body = f"BEGIN {BODIES[trigger]} RETURN NULL; END"
        answer(connection, f"CREATE OR REPLACE FUNCTION {t}_f() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
        how = f"AFTER INSERT ON {t} REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION {t}_f()"
        answer(connection, f"CREATE TRIGGER {t}_i {how}")


@dataclass
class Heard:
    delays: list[float] = field(default_factory=list)  # seconds from COMMIT, sent, to heard
    lost: int = 0

    def row(self) -> list[str]:
        parts = [f"{percentile(self.delays, part) * 1e3:.2f}" for part in (0.5, 0.99)] if self.delays else ["-", "-"]
        return [*parts, str(self.lost)]


def rows_heard(pipe: Connection, writer: Any, way: Way, samples: int, pauses: tuple[float, float]) -> Heard:
    found = Heard()
    for _ in range(samples):
        time.sleep(random.uniform(*pauses))
        while pipe.poll():
            pipe.recv()  # heard twice
        answer(writer, "BEGIN")
        answer(writer, "INSERT INTO t (status) VALUES ('R')")
        start = time.monotonic_ns()
        answer(writer, "COMMIT")
        if way.after:
            way.after(writer)
        deadline, delay = time.monotonic() + DEAF, -1
        while delay < 0 and pipe.poll(max(0, deadline - time.monotonic())):
            delay = pipe.recv()[0] - start  # below 0: heard of what is not committed
        if delay < 0:
            found.lost += 1
        else:
            found.delays.append(delay / 1e9)
    return found


def one_way(way: Way, server: Any, place: Any, writer: Any, effort: Effort) -> list[str]:
    ours, theirs = spawn.Pipe()
    if way.holds:
        answer(writer, f"SELECT GET_LOCK('{way.holds}', 1)")
    process = spawn.Process(target=wait, args=(theirs, place, way.hear), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()
        busy = rows_heard(ours, writer, way, effort.samples, PAUSES)
        calm = rows_heard(ours, writer, way, effort.samples // 8, SILENCE)
        _, spent, sent = idle_since(ours, writer, way)
        server_spent = server.processor_time()
        time.sleep(effort.idle)
        server_spent = server.processor_time() - server_spent
        _, spent_then, sent_then = idle_since(ours, writer, way)
        cost = f"{(spent_then - spent) / effort.idle * 1e3:.1f}"
        return [way.name, *busy.row(), *calm.row()[:2], cost, f"{server_spent / effort.idle * 1e3:.0f}",
                f"{(sent_then - sent) / effort.idle:.0f}"]  # fmt: skip
    finally:
        process.terminate()
        process.join()
        ours.close()
        if way.holds:
            answer(writer, f"SELECT RELEASE_LOCK('{way.holds}')")


def idle_since(pipe: Connection, writer: Any, way: Way) -> Any:
    """Write one row, and return what the waiter says of itself when it hears of it."""
    found = None
    while pipe.poll(0.2):
        pipe.recv()
    for _ in range(20):
        answer(writer, "INSERT INTO t (status) VALUES ('R')")
        if way.after:
            way.after(writer)
        if pipe.poll(DEAF):
            found = pipe.recv()
            break
    time.sleep(0.1)
    while pipe.poll():
        found = pipe.recv()
    return found


HEAD = ["way", "p50 ms", "p99 ms", "not heard", "p50 ms after silence", "p99 ms", "idle waiter, ms of a core a second",
        "of the server", "its statements a second"]  # fmt: skip


def mariadb(effort: Effort) -> Table:
    """Latency and what waiting costs, on MariaDB."""
    rows = []
    with MariaDB(**BINARY_LOG) as server, closing(pymysql.connect(**server.place())) as writer:
        with closing(server.connect()) as admin:
            answer(admin, "CREATE USER replica")
            answer(admin, "GRANT REPLICATION SLAVE ON *.* TO replica")
        for way in MARIADB_WAYS:
            mariadb_tables(writer, way.trigger)
            rows.append(one_way(way, server, server.place(), writer, effort))
            print(*rows[-1], sep=" | ", file=sys.stderr)
    return Table(HEAD, rows)


def postgres(effort: Effort) -> Table:
    """Latency and what waiting costs, on PostgreSQL."""
    rows = []
    with Postgres() as server, closing(psycopg.connect(server.place(), autocommit=True)) as writer:
        for way in POSTGRES_WAYS:
            postgres_tables(writer, way.trigger)
            rows.append(one_way(way, server, server.place(), writer, effort))
            print(*rows[-1], sep=" | ", file=sys.stderr)
    return Table(HEAD, rows)


# what it costs the writers


def write(pipe: Connection, place: Any) -> None:
    """Insert one row after the other into the table that is named, for so many seconds; say how many a second."""
    link = Link(place)
    with suppress(EOFError):
        while True:
            table, seconds = pipe.recv()
            count, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds:
                link.answer(f"INSERT INTO {table} (status) VALUES ('R')")
                count += 1
            pipe.send(count / spent)


class Writers:
    def __init__(self, size: int, place: Any) -> None:
        self._ends = ExitStack()
        self._pipes = [self._start(place) for _ in range(size)]

    def _start(self, place: Any) -> Connection:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=write, args=(theirs, place), daemon=True)
        process.start()
        theirs.close()
        self._ends.callback(process.join)
        self._ends.callback(ours.close)
        return ours

    def rate(self, writers: int, table: str, seconds: float) -> float:
        for pipe in self._pipes[:writers]:
            pipe.send((table, seconds))
        return float(sum(pipe.recv() for pipe in self._pipes[:writers]))

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()


@dataclass(frozen=True)
class Cost:
    name: str
    trigger: str
    before: Sequence[str] = ()  # statements
    listener: Hear | None = None


POSTGRES_COSTS = [
    Cost("no trigger", "nothing"),
    Cost("counts", "counts"),
    Cost("+ NOTIFY, nobody listens", "notifies"),
    Cost("+ NOTIFY, a listener", "notifies", listener=notified),
    Cost("+ if a waiter's row exists: none", "asks for a waiter", ["DELETE FROM waiters"]),
    Cost(
        "+ if a waiter's row exists: one, a listener", "asks for a waiter", ["INSERT INTO waiters VALUES (1)"], notified
    ),
    Cost("+ if switched on: off", "asks the switch", ["INSERT INTO settings VALUES (false)"]),
    Cost("+ if switched on: on, a listener", "asks the switch", ["INSERT INTO settings VALUES (true)"], notified),
]
SLEEPER = partial(sleeping_until_killed, takes=False, rearms=False)
MARIADB_COSTS = [
    Cost("no trigger", "nothing"),
    Cost("counts", "counts"),
    Cost("+ GET_LOCK, RELEASE_LOCK", "counts, two locks"),
    Cost("+ `KILL QUERY IS_USED_LOCK(..)`, nobody waits", "counts, kills"),
    Cost("+ the same, 8 names", "counts, kills one of 8"),
    Cost("+ `KILL QUERY IS_USED_LOCK(..)`, one sleeps, always armed", "counts, kills", listener=SLEEPER),
    Cost(
        "+ `KILL QUERY IS_USED_LOCK(..)`, one sleeps when it is quiet",
        "counts, kills",
        listener=partial(sleeping_until_killed, takes=False),
    ),
]


def compared(costs: Sequence[Cost], server: Any, place: Any, tables: Callable[[Any, Cost], None],
             effort: Effort) -> list[list[str]]:  # fmt: skip
    """Rows a second of 1 and 4 writers under each cost, in turn: the ratio to the counting trigger, and medians."""
    sizes = (1, 4)
    rates: dict[tuple[str, int], list[float]] = {}
    with Writers(max(sizes), place) as writers, closing(Link(place).connection) as admin:
        for repetition in range(effort.repetitions + 1):
            for cost in random.sample(costs, len(costs)):
                tables(admin, cost)
                with ExitStack() as ends:
                    if cost.listener:
                        ours, theirs = spawn.Pipe()
                        process = spawn.Process(target=wait, args=(theirs, place, cost.listener), daemon=True)
                        process.start()
                        ends.callback(process.join)
                        ends.callback(process.terminate)
                        ours.recv()
                        threading.Thread(target=drain, args=(ours,), daemon=True).start()
                        theirs.close()
                    for size in sizes:
                        rate = writers.rate(size, "t", effort.seconds)
                        if repetition:
                            rates.setdefault((cost.name, size), []).append(rate)
    rows = []
    for cost in costs:
        row = [cost.name]
        for size in sizes:
            own, base = (sorted(rates[name, size]) for name in (cost.name, "counts"))
            median = own[len(own) // 2]
            row.append(f"{max(own) / max(base):.2f} / {median / base[len(base) // 2]:.2f} · {median:,.0f}/s")
        rows.append(row)
        print(*row, sep=" | ", file=sys.stderr)
    return rows


def drain(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        while True:
            pipe.recv()


COST_HEAD = ["the trigger", "1 writer", "4 writers"]


def postgres_cost(effort: Effort, durable: bool = False) -> Table:
    """What NOTIFY costs a put, without waiting for the disk: best / median against the counting trigger."""

    def tables(admin: Any, cost: Cost) -> None:
        postgres_tables(admin, cost.trigger)
        answer(admin, "TRUNCATE t_count, waiters, settings")
        for statement in cost.before:
            answer(admin, statement)

    with Postgres(durable=durable) as server:
        return Table(COST_HEAD, compared(POSTGRES_COSTS, server, server.place(), tables, effort))


def mariadb_cost(effort: Effort) -> Table:
    """What a trigger's hint costs a put on MariaDB, without waiting for the disk."""

    def tables(admin: Any, cost: Cost) -> None:
        mariadb_tables(admin, cost.trigger)
        for statement in cost.before:
            answer(admin, statement)

    with MariaDB() as server:
        return Table(COST_HEAD, compared(MARIADB_COSTS, server, server.place(), tables, effort))


def looks(effort: Effort) -> Table:
    """What one look at something that changes with every commit costs, against an indexed probe beside 900,000 rows."""
    rows = []
    count = 3_000 if effort is FULL else 300
    with Postgres() as server:
        link = Link(server.place())
        postgres_tables(link.connection, "nothing")
        link.answer(f"INSERT INTO t (status) SELECT 'D' FROM generate_series(1, {count * 300})")
        link.answer("VACUUM ANALYZE t")
        rows += timed_looks("PostgreSQL", link, [PROBE, SNAPSHOT, "SELECT 1"], count)
    with MariaDB() as server:
        link = Link(server.place())
        with closing(server.connect()) as admin:
            mariadb_tables(admin, "nothing")
        link.answer(f"INSERT INTO t (status) SELECT 'D' FROM seq_1_to_{count * 300}")
        link.answer("INSERT INTO t_count (n) SELECT 1 FROM seq_1_to_100000")
        rows += timed_looks("MariaDB", link, [PROBE, VERSION, "SELECT 1"], count)
    return Table(["look", "p50 µs", "p99 µs"], rows)


def timed_looks(server: str, link: Link, statements: Sequence[str], count: int) -> list[list[str]]:
    rows = []
    for statement in statements:
        spent = []
        for _ in range(count):
            start = time.perf_counter()
            link.answer(statement)
            spent.append((time.perf_counter() - start) * 1e6)
        rows.append([f"{server}: `{statement}`", *(f"{percentile(spent, part):.0f}" for part in (0.5, 0.99))])
    return rows


# whether a connection keeps its server's


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What `call` returns, or None when it takes longer or fails: its thread is left behind."""
    found: list[Any] = []

    def run() -> None:
        with suppress(psycopg.Error):
            found.append(call())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, connect_timeout=2)


def hears_another(dsn: str, application: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection hears what the application's own connection notifies."""
    with closing(connect(dsn)) as listener:
        if within(1, lambda: answer(listener, "LISTEN test") or True) is None:
            return False
        if within(1, lambda: answer(application, "SELECT pg_notify('test', '')") or True) is None:
            return False
        return bool(select.select([listener.pgconn.socket], [], [], 0.5)[0])


def hears_itself(dsn: str, application: psycopg.Connection[Any]) -> bool:
    with closing(connect(dsn)) as listener:
        if within(1, lambda: answer(listener, "LISTEN test") or True) is None:
            return False
        heard: list[object] = []
        listener.add_notify_handler(heard.append)
        within(1, lambda: answer(listener, "SELECT pg_notify('test', '')"))
        return bool(heard)


def keeps_a_setting(dsn: str, application: psycopg.Connection[Any]) -> bool:
    with closing(connect(dsn)) as one:
        within(1, lambda: answer(one, "SET xq.test = 'here'"))
        within(1, lambda: answer(application, "SELECT 1"))
        return within(1, lambda: answer(one, "SELECT current_setting('xq.test', true)")) == "here"


def keeps_a_lock(dsn: str, application: psycopg.Connection[Any]) -> bool:
    """Whether another, who happens to be in a transaction, cannot have the advisory lock that one took."""
    with closing(connect(dsn)) as one:
        within(1, lambda: answer(application, "BEGIN"))
        within(1, lambda: answer(one, "SELECT pg_advisory_lock(7)"))
        return within(1, lambda: answer(application, "SELECT pg_try_advisory_lock(7)")) is False


def keeps_its_process(dsn: str, application: psycopg.Connection[Any]) -> bool:
    with closing(connect(dsn)) as one:
        pids = {within(1, lambda: answer(one, "SELECT pg_backend_pid()")) for _ in range(5)}
        return len(pids) == 1 and None not in pids


def is_who_greeted(dsn: str, application: psycopg.Connection[Any]) -> bool:
    """Whether the process that answers is the one whose id the server gave when the connection began."""
    with closing(connect(dsn)) as one:
        return bool(within(1, lambda: answer(one, "SELECT pg_backend_pid()")) == one.info.backend_pid)


TESTS = {
    "hears another": hears_another,
    "hears itself": hears_itself,
    "keeps a setting": keeps_a_setting,
    "keeps an advisory lock": keeps_a_lock,
    "`pg_backend_pid()` stays": keeps_its_process,
    "it is the one of the greeting": is_who_greeted,
}


def idle_listener_hears(server: Postgres, dsn: str) -> bool:
    """The truth: whether an idle listener hears, within 2 seconds, a trigger of somebody who is connected directly."""
    with closing(connect(dsn)) as listener, closing(server.connect()) as writer:
        if within(1, lambda: answer(listener, "LISTEN t") or True) is None:
            return False
        answer(writer, "INSERT INTO t (status) VALUES ('R')")
        return bool(select.select([listener.pgconn.socket], [], [], 2)[0])


def pools(effort: Effort) -> Table:
    """What a client can find out about PgBouncer, beside another client that is connected and idle."""
    rows = []
    with Postgres() as server:
        with closing(server.connect()) as admin:
            postgres_tables(admin, "notifies")
        places: list[tuple[str, dict[str, object] | None]] = [("directly", None)]
        for mode in ("session", "transaction", "statement"):
            for size in (1, 2, 5):
                places.append((f"{mode} mode, {size} server connection{'s' * (size > 1)}",
                               {"pool_mode": mode, "default_pool_size": size}))  # fmt: skip
        for name, settings in places:
            verdicts = []
            for test in [None, *TESTS.values()]:
                with ExitStack() as ends:
                    dsn = server.place()
                    if settings:
                        dsn = ends.enter_context(PgBouncer(server, **settings)).url("q")
                    if test is None:
                        verdict = within(5, partial(idle_listener_hears, server, dsn))
                    else:
                        application = ends.enter_context(closing(connect(dsn)))
                        answer(application, "SELECT 1")
                        verdict = within(5, partial(test, dsn, application))
                    verdicts.append({True: "yes", False: "no", None: "no answer"}[verdict])
            rows.append([name, *verdicts])
            print(*rows[-1], sep=" | ", file=sys.stderr)
    return Table(["connected", "a listener hears", *TESTS], rows)


SECTIONS: dict[str, Callable[[Effort], Table]] = {
    "mariadb": mariadb,
    "mariadb-cost": mariadb_cost,
    "postgres": postgres,
    "postgres-cost": postgres_cost,
    "postgres-cost-durable": partial(postgres_cost, durable=True),
    "looks": looks,
    "pools": pools,
}


if __name__ == "__main__":
    show(SECTIONS, QUICK, FULL)
