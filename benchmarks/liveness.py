"""How the death of a process becomes known, on PostgreSQL and MariaDB: by a lock that its connection holds.
docs/signals.md has the results and what follows from them. `python -m benchmarks.liveness [--quick] [section ...]`
starts its own servers. The section `cut` needs root, for two network namespaces.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg
import pymysql

from benchmarks.measure import percentile, spawn
from benchmarks.report import Table, show
from benchmarks.servers import MariaDB, Postgres, answer

PATIENCE = 60.0  # seconds after which something counts as never
SETTINGS: dict[str, dict[str, object]] = {
    "PostgreSQL": {"max_connections": 1100, "shared_buffers": "16MB"},
    "MariaDB": {"max_connections": 1100, "open_files_limit": 4096},
}


@dataclass(frozen=True)
class Effort:
    deaths: int
    rounds: int  # of looks
    processes: tuple[int, ...]


FULL = Effort(deaths=50, rounds=100, processes=(1, 10, 100, 1000))
QUICK = Effort(deaths=5, rounds=10, processes=(1, 10))


@dataclass(frozen=True)
class Database:
    """What the two say differently."""

    name: str
    server: Callable[..., Any]
    take: str  # the lock of a session
    free: str  # whether it is free
    busy: str  # a statement that takes two seconds
    me: str
    end: str  # the connection that is named

    def start(self, **more: Any) -> Any:
        return self.server(**SETTINGS[self.name] | more)


POSTGRES = Database(
    "PostgreSQL",
    Postgres,
    take="SELECT pg_advisory_lock(4711)",
    free="SELECT pg_try_advisory_xact_lock_shared(4711)",
    busy="SELECT pg_sleep(2)",
    me="SELECT pg_backend_pid()",
    end="SELECT pg_terminate_backend({})",
)
MARIADB = Database(
    "MariaDB",
    MariaDB,
    take="SELECT GET_LOCK('xq-4711', 0)",
    free="SELECT IS_FREE_LOCK('xq-4711')",
    busy="SELECT SLEEP(2)",
    me="SELECT CONNECTION_ID()",
    end="KILL {}",
)
DATABASES = (POSTGRES, MARIADB)


def connect(place: Any) -> Any:
    """A connection of one's own: `place` is a DSN of PostgreSQL, or what pymysql.connect takes."""
    return psycopg.connect(place, autocommit=True) if isinstance(place, str) else pymysql.connect(**place)


def low_socket(connection: Any) -> Any:
    return connection.pgconn.socket if isinstance(connection, psycopg.Connection) else connection._sock


def hold(pipe: Connection, place: Any, statements: Sequence[str], last: str = "") -> None:
    """Be a process that lives: take the lock, and stay; with `last`, in the middle of that statement."""
    connection = connect(place)
    found = [answer(connection, statement) for statement in statements]
    pipe.send(found)
    if last:
        with suppress(psycopg.Error, pymysql.Error):
            answer(connection, last)
    with suppress(EOFError):
        pipe.recv()


@contextmanager
def living(place: Any, statements: Sequence[str], last: str = "") -> Iterator[tuple[BaseProcess, list[Any]]]:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=hold, args=(theirs, place, statements, last), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours.recv()
    finally:
        ours.close()
        process.kill()
        process.join()


def until(condition: Callable[[], object], patience: float = PATIENCE) -> float:
    """The seconds until it holds, infinite when it does not within `patience`."""
    start = time.perf_counter()
    while not condition():
        spent = time.perf_counter() - start
        if spent > patience:
            return float("inf")
        if spent > 1:
            time.sleep(0.01)  # leave the processors to the servers
    return time.perf_counter() - start


def milli(values: Sequence[float]) -> list[str]:
    return [f"{percentile(values, part) * 1e3:,.1f}" for part in (0.5, 0.99, 1)]


def killed(effort: Effort) -> Table:
    """From kill -9 of the process to the lock being free elsewhere."""
    cases: list[tuple[str, Database, dict[str, object], bool]] = [
        ("PostgreSQL, idle connection", POSTGRES, {}, False),
        ("PostgreSQL, in the middle of `pg_sleep(2)`", POSTGRES, {}, True),
        (
            "the same, `client_connection_check_interval = 100`",
            POSTGRES,
            {"client_connection_check_interval": 100},
            True,
        ),
        ("MariaDB, idle connection", MARIADB, {}, False),
        ("MariaDB, in the middle of `SLEEP(2)`", MARIADB, {}, True),
    ]
    rows = []
    for name, database, settings, busy in cases:
        delays = []
        with database.start(**settings) as server, closing(server.connect()) as other:
            for _ in range(max(3, effort.deaths // 5) if busy else effort.deaths):
                with living(server.place(), [database.take], database.busy if busy else "") as (process, _):
                    assert not answer(other, database.free)
                    if busy:
                        time.sleep(0.1)
                    assert process.pid
                    os.kill(process.pid, signal.SIGKILL)
                    delays.append(until(partial(answer, other, database.free)))
        rows.append([name, *milli(delays), str(len(delays))])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return Table(["who is killed", "p50 ms", "p99 ms", "max", "deaths"], rows)


# what a look costs

LOOKS: dict[str, dict[str, str]] = {
    "PostgreSQL": {
        "`pg_try_advisory_xact_lock_shared(key)` per row": "SELECT count(*) FROM sessions WHERE"
        " pg_try_advisory_xact_lock_shared(key)",
        "no row of `pg_locks`": "SELECT count(*) FROM sessions s WHERE NOT EXISTS (SELECT FROM pg_locks l WHERE"
        " l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND l.classid = ((s.key >> 32) & 4294967295)::oid AND l.objid = (s.key & 4294967295)::oid)",
        "no row of `pg_stat_activity`": "SELECT count(*) FROM sessions s WHERE NOT EXISTS (SELECT FROM"
        " pg_stat_activity a WHERE a.pid = s.pid AND a.backend_start = s.began)",
    },
    "MariaDB": {
        "`IS_FREE_LOCK(name)` per row": "SELECT count(*) FROM sessions WHERE IS_FREE_LOCK(CONCAT('xq-', id))",
        "`IS_USED_LOCK(name) IS NULL` per row": "SELECT count(*) FROM sessions WHERE"
        " IS_USED_LOCK(CONCAT('xq-', id)) IS NULL",
    },
}


def register(database: Database, connection: Any, key: int) -> None:
    if database is POSTGRES:
        answer(connection, f"SELECT pg_advisory_lock({key})")
        began = "SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        answer(connection, f"INSERT INTO sessions VALUES ({key}, {key}, pg_backend_pid(), ({began}))")
    else:
        answer(connection, f"SELECT GET_LOCK('xq-{key}', 0)")
        answer(connection, f"INSERT INTO sessions VALUES ({key})")


def looks(effort: Effort) -> Table:
    """One look at the sessions of so many live connections, a lock each."""
    rows: dict[str, list[str]] = {}
    for database in DATABASES:
        with database.start() as server, ExitStack() as ends:
            other = ends.enter_context(closing(connect(server.place())))
            columns = "id bigint PRIMARY KEY, key bigint, pid int, began timestamptz"
            answer(other, f"CREATE TABLE sessions ({columns if database is POSTGRES else 'id bigint PRIMARY KEY'})")
            key = 0
            for size in effort.processes:
                while key < size:
                    key += 1
                    connection = ends.enter_context(closing(connect(server.place())))
                    # one key of the whole 64 bits among them: the halves are to be joined with their signs
                    register(database, connection, key if key > 1 or database is MARIADB else -(2**62) - 1)
                if database is POSTGRES:
                    answer(other, "ANALYZE sessions")
                for name, look in LOOKS[database.name].items():
                    spent = []
                    for _ in range(effort.rounds):
                        start = time.perf_counter()
                        dead = answer(other, look)
                        spent.append(time.perf_counter() - start)
                        assert dead == 0, (name, dead)
                    rows.setdefault(f"{database.name}: {name}", []).append(f"{percentile(spent, 0.5) * 1e6:,.0f}")
    for name, row in rows.items():
        print(name, *row, sep=" | ", file=sys.stderr)
    return Table(
        ["look, p50 µs", *(f"{size:,}" for size in effort.processes)], [[name, *row] for name, row in rows.items()]
    )


# how the process hears that it has lost its lock


def ended(effort: Effort) -> Table:
    """From an administrator's end of the connection to its socket being readable."""
    rows = []
    for database in DATABASES:
        delays = []
        with database.start() as server, closing(server.connect()) as other:
            for _ in range(effort.deaths):
                with closing(connect(server.place())) as connection:
                    me = answer(connection, database.me)
                    start = time.perf_counter()
                    answer(other, database.end.format(me))
                    readable = select.select([low_socket(connection)], [], [], PATIENCE)[0]
                    delays.append(time.perf_counter() - start if readable else float("inf"))
        rows.append([f"`{database.end.format('id').removeprefix('SELECT ')}`", *milli(delays)])
    return Table(["ended by", "p50 ms", "p99 ms", "max"], rows)


def idle(effort: Effort) -> Table:
    """Whether a connection that is idle for three seconds is ended where the server allows it one, and how to stay."""
    cases: list[tuple[Database, dict[str, object], str, str]] = [
        (POSTGRES, {"idle_session_timeout": "1s"}, "`idle_session_timeout = 1s`", "SET idle_session_timeout = 0"),
        (MARIADB, {"wait_timeout": 1}, "`wait_timeout = 1`", "SET SESSION wait_timeout = 31536000"),
    ]
    rows = []
    for database, settings, told, stay in cases:
        for statement in ("", stay):
            with database.start(**settings) as server, closing(connect(server.place())) as connection:
                if statement:
                    answer(connection, statement)
                start = time.perf_counter()
                readable = select.select([low_socket(connection)], [], [], 3)[0]
                found = f"ended after {time.perf_counter() - start:.1f} s" if readable else "stays"
                rows.append([f"{database.name}, {told}", f"`{statement}`" if statement else "nothing", found])
    return Table(["the server", "what the connection says", "idle"], rows)


# a network that is cut: packets vanish, and nothing is closed


class Network:
    """Two namespaces with a cable between them: one for the server, one for its client."""

    def __init__(self) -> None:
        self.names = tuple(f"xq{os.getpid()}{end}" for end in "ab")
        self._addresses = ("192.0.2.1", "192.0.2.2")  # set aside for documentation: nobody's

    def __enter__(self) -> Network:
        one, two = self.names
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "xq0", "netns", one, "type", "veth", "peer", "name", "xq0", "netns", two)
        for name, address in zip(self.names, self._addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "xq0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "xq0", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:
            ip("netns", "del", name)

    def inside(self, end: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[end]]

    def cut(self) -> None:
        """From now on each end sends to a card that nobody has."""
        for name, address in zip(self.names, reversed(self._addresses)):
            ip("-n", name, "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "xq0")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def be_cut(place: Any, statements: Sequence[str], keepalive: bool, patience: float) -> None:
    """Be the client: after a line on standard input, say how many seconds later the idle connection is readable."""
    connection = connect(place)
    for statement in statements:
        answer(connection, statement)
    descriptor = low_socket(connection) if isinstance(place, str) else low_socket(connection).fileno()
    if keepalive:
        with socket.socket(fileno=os.dup(descriptor)) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
                own.setsockopt(socket.IPPROTO_TCP, option, seconds)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    readable = select.select([descriptor], [], [], patience)[0]
    print(time.monotonic() - start if readable else "inf", flush=True)


@dataclass(frozen=True)
class Cut:
    name: str
    database: Database
    settings: Mapping[str, object] = field(default_factory=dict)  # of the server
    said: Sequence[str] = ()  # by the client, at first
    keepalive: bool = False  # set by the client at its own socket
    rest: float = 0.5  # seconds before the cut, in which the last answer is acknowledged


KEEPALIVE = [f"SET tcp_keepalives_{name} = {n}" for name, n in {"idle": 2, "interval": 1, "count": 3}.items()]
TIMEOUT = "SET tcp_user_timeout = 3000"
CUTS = [
    Cut("PostgreSQL, nothing set", POSTGRES),
    Cut("PostgreSQL, `SET tcp_keepalives_idle = 2`, `_interval = 1`, `_count = 3`", POSTGRES, said=KEEPALIVE),
    Cut("the same, cut while an answer is on its way", POSTGRES, said=KEEPALIVE, rest=0),
    Cut("the same, and `SET tcp_user_timeout = 3000`", POSTGRES, said=[*KEEPALIVE, TIMEOUT], rest=0),
    Cut("the same, cut while nothing is on its way", POSTGRES, said=[*KEEPALIVE, TIMEOUT]),
    Cut("PostgreSQL, `SET tcp_user_timeout = 3000` alone", POSTGRES, said=[TIMEOUT]),
    Cut("PostgreSQL, the client's own keepalive of 2, 1, 3", POSTGRES, keepalive=True),
    Cut("MariaDB, nothing set", MARIADB),
    Cut("MariaDB, `SET SESSION wait_timeout = 5`", MARIADB, said=["SET SESSION wait_timeout = 5"]),
    Cut(
        "MariaDB, its server started with `tcp_keepalive_time=2`, `_interval=1`, `_probes=3`",
        MARIADB,
        {"tcp_keepalive_time": 2, "tcp_keepalive_interval": 1, "tcp_keepalive_probes": 3},
    ),
    Cut("MariaDB, the client's own keepalive of 2, 1, 3", MARIADB, keepalive=True),
]


def cut(effort: Effort) -> Table:
    """From the cut to the lock being free at the server, and to the client's select() on its idle connection."""
    patience = 10.0
    rows = []
    for case in CUTS:
        with ExitStack() as ends:
            network = ends.enter_context(Network())
            server = ends.enter_context(network_server(case, network))
            other = ends.enter_context(closing(server.connect()))
            said = [*case.said, case.database.take]
            call = f"be_cut({server.place()!r}, {said!r}, {case.keepalive}, {patience})"
            words = [*network.inside(1), sys.executable, "-c", f"from benchmarks.liveness import be_cut; {call}"]
            client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert client.stdin
            assert client.stdout
            client.stdout.readline()
            assert not answer(other, case.database.free)
            time.sleep(case.rest)
            network.cut()
            client.stdin.write("cut\n")
            client.stdin.flush()
            freed = until(partial(answer, other, case.database.free), patience)
            heard = float(client.communicate()[0])
        found = [f"{each:.1f}" if each < patience else f"not in {patience:.0f}" for each in (freed, heard)]
        rows.append([case.name, *found])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return Table(["what was set", "lock free after, s", "client hears after, s"], rows)


def network_server(case: Cut, network: Network) -> Any:
    inside = network.inside(0)
    inside += ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]  # root is needed to go there only
    return case.database.start(host="192.0.2.1", inside=inside, **case.settings)


SECTIONS: dict[str, Callable[[Effort], Table]] = {
    "killed": killed,
    "looks": looks,
    "ended": ended,
    "idle": idle,
    "cut": cut,
}


if __name__ == "__main__":
    show(SECTIONS, QUICK, FULL)
