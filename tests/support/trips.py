"""Counts what programs send to a database: statements, round trips and transactions, by a wrapper of each driver."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

import peewee as pw
import pytest

import xq
from tests.steps import PATIENCE
from tests.support.life import die, threads
from tests.timing import in_sequence
from xq.database import database
from xq.drivers import packet
from xq.engine.stats import roll_up_some
from xq.runtime import sleep as sleeping
from xq.sql import file_notifier
from xq.testing import run_pending
from xq.workers.attempts import Attempts
from xq.workers.pool import Program
from xq.workers.program import assignment_of
from xq.workers.threads import ThreadJobs, Threads
from xq.workers.worker import TaskSource

# Sent by the time that passes, and not by a call: PLANNED in drivers/postgres.py, IDLE in session_connection.py.
TIMED = ("DISCARD PLANS", "INSERT INTO xq_alive (uuid, process, waits)")
MAINTENANCE = "xq"


@dataclass
class Trips:
    """What was sent. SQLite has no round trips; each statement outside of a transaction is one."""

    statements: int = 0
    turns: int = 0
    transactions: int = 0
    texts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.since(Trips())

    def since(self, before: Trips, jobs: int = 1) -> str:
        """Return statements, round trips and transactions of each of so many jobs more."""
        names = ("statements", "turns", "transactions")
        parts = [(getattr(self, name) - getattr(before, name)) / jobs for name in names]
        return "/".join(f"{part:g}" for part in parts)


class Counter:
    """The drivers, wrapped. It counts on connections that were opened since it was made.

    The monotonic clock stands still, so nothing is sent because time passes, but where a test moves `now`.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: Trips | None = None
        self.ignored: set[str] = set()
        self.lock = threading.Lock()
        self.now = float(round(time.monotonic()))  # a whole number: sums of halves are exact
        patch.setattr("xq.core.time.monotonic", lambda: self.now)
        patch.setattr(database, "ON_A_SERVER", 1)  # else it depends on the machine when another thread connects
        self._sqlite(patch)
        self._psycopg(patch)
        self._pymysql(patch)

    @contextmanager
    def counting(self, workers: bool = False) -> Iterator[Trips]:
        """Count what is sent, not by the maintenance thread; `workers`: nor by this one, which starts and ends them."""
        self.ignored = {MAINTENANCE, *([threading.current_thread().name] if workers else [])}
        self.found = found = Trips()
        try:
            with self.alone():
                yield found
        finally:
            self.found = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let the maintenance threads rest."""
        with ExitStack() as held:
            for each in threads():
                held.enter_context(each.working)
            yield

    def _count(self, sql: object = "", turn: bool = False, ends: bool = False) -> None:
        text = str(sql)
        found, thread = self.found, threading.current_thread().name
        if found is not None and not text.startswith(TIMED) and thread not in self.ignored:
            with self.lock:
                found.texts += [text] if text else []
                found.statements += bool(text)
                found.turns += turn
                found.transactions += ends

    def _sqlite(self, patch: pytest.MonkeyPatch) -> None:
        connect, counter = sqlite3.connect, self

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
                def execute(cursor: Any, sql: str, *args: Any) -> Any:
                    found = factory.execute(cursor, sql, *args)
                    counter._count(sql, turn=True, ends=not self.in_transaction)
                    return found

                return super().cursor(type("Cursor", (factory,), {"execute": execute}))

            def commit(self) -> None:
                if self.in_transaction:
                    counter._count("COMMIT", turn=True, ends=True)
                super().commit()

        for module in (sqlite3, sqlite3.dbapi2):
            patch.setattr(module, "connect", partial(connect, factory=Connection))

    def _psycopg(self, patch: pytest.MonkeyPatch) -> None:
        import psycopg

        execute, pipeline = psycopg.Cursor.execute, psycopg.Connection.pipeline

        def executed(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
            connection = cursor.connection
            piped = bool(connection.pgconn.pipeline_status)
            if not connection.autocommit and not connection.pgconn.transaction_status:
                self._count("BEGIN", turn=True)
            found = execute(cursor, query, *args, **options)
            self._count(query, turn=not piped, ends=not piped and not connection.pgconn.transaction_status)
            return found

        @contextmanager
        def pipelined(connection: Any) -> Iterator[Any]:
            with pipeline(connection) as found:
                yield found
            self._count(turn=True, ends=not connection.pgconn.transaction_status)

        patch.setattr(psycopg.Cursor, "execute", executed)
        patch.setattr(psycopg.Connection, "pipeline", pipelined)
        for name in ("commit", "rollback"):
            ended = getattr(psycopg.Connection, name)

            def end(connection: Any, ended: Any = ended, name: str = name) -> None:
                if connection.pgconn.transaction_status:  # else it sends nothing
                    self._count(name, turn=True, ends=True)
                ended(connection)

            patch.setattr(psycopg.Connection, name, end)

    def _pymysql(self, patch: pytest.MonkeyPatch) -> None:
        from pymysql.connections import Connection
        from pymysql.constants.COMMAND import COM_QUERY

        execute, within = Connection._execute_command, set[int]()

        def executed(connection: Any, command: int, sql: Any) -> Any:
            if command == COM_QUERY:
                text = sql if isinstance(sql, str) else sql.decode(errors="replace")
                # SET STATEMENT is a prefix of the statement that it sets a variable for.
                word, number = text.removeprefix("SET STATEMENT ").split(None, 1)[0].upper(), id(connection)
                if word in ("COMMIT", "ROLLBACK") and " TO " not in text:
                    within.discard(number)
                elif text.startswith("BEGIN NOT ATOMIC"):
                    pass  # a block, which is as large as a transaction, or within one
                elif word in ("BEGIN", "START") or not (word == "SET" or connection.get_autocommit()):
                    within.add(number)
                self._count(text, turn=True, ends=number not in within and "AUTOCOMMIT" not in text)
            return execute(connection, command, sql)

        patch.setattr(Connection, "_execute_command", executed)
        run = packet.run

        def together(connection: Any, query: bytes) -> Any:
            """Several statements of MySQL: as large as a transaction, or within one, but for what begins one."""
            if query.endswith(b"BEGIN"):
                within.add(id(connection))
            self._count(query.decode(errors="replace"), turn=True, ends=id(connection) not in within)
            return run(connection, query)

        patch.setattr(packet, "run", together)


@in_sequence
def counter_of(patch: pytest.MonkeyPatch) -> Counter:
    return Counter(patch)


ALL: Mapping[str, Any] = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "history": True}
MANY = 100  # tasks of a list
LEFT, DEAD = 250, 250  # tasks and sessions of which a take looks after a part
FEW = 20  # jobs of the shorter run of a worker; the longer one has three times as many
MINUTE = 60.0


async def awaited(task: Any) -> None: ...


WORKERS: Mapping[str, tuple[Callable[[Any], Any], Mapping[str, Any]]] = {
    "a thread's job": (lambda task: None, {}),
    "a thread's job, prefetch=10": (lambda task: None, {"prefetch": 10}),
    "a thread's job, batch=10": (lambda tasks: None, {"batch": 10}),
    "a coroutine's job": (awaited, {"workers": 1}),
    "a coroutine's job, workers=10": (awaited, {"workers": 10}),
}


def calls(queue: Any) -> dict[str, Callable[[], Callable[[], object]]]:
    """Functions that prepare a call and return it, by its name."""
    return {
        "put": lambda: partial(queue.put, {}),
        "put that looks": lambda: partial(late(queue).put, {}),
        "take": lambda: queue.take,
        "take, nothing there": lambda: (queue.truncate(), queue.take)[1],
        "ack": lambda: partial(queue.ack, taken(queue)),
        "release": lambda: partial(queue.release, taken(queue)),
        "bury": lambda: partial(queue.bury, taken(queue)),
        "touch": lambda: partial(queue.touch, taken(queue), 5),
        f"put_many({MANY})": lambda: partial(queue.put_many, [{}] * MANY),
        f"take_many({MANY})": lambda: (queue.put_many([{}] * MANY), partial(queue.take_many, MANY))[1],
        f"ack_many({MANY})": lambda: partial(queue.ack_many, (queue.put_many([{}] * MANY), queue.take_many(MANY))[1]),
    }


def late(queue: Any) -> Any:
    """A queue whose installation was looked at more than a second ago."""
    queue.parts.inserts.executor.open().installation.review_at = 0.0
    return queue


def taken(queue: Any) -> Any:
    queue.put({})
    return queue.take()


class Upper(pw.TextField):
    """A field of the application, which reads its values in its own way."""

    def python_value(self, value: Any) -> Any:
        return value and value.upper()


def task_of(db: pw.Database, features: Mapping[str, Any], name: str = "Listed", **fields: Any) -> Any:
    model: Any = type(name, (xq.Task,), {**fields, "Meta": type("Meta", (), {"database": db})})
    queue = xq.upgrade(model, {"unique": "x"} if "unique" in features else None, features)
    db.create_tables([model])
    return queue


def pairs(db: pw.Database) -> Any:
    """A table with a key of two columns."""
    meta = type("Meta", (), {"database": db, "primary_key": pw.CompositeKey("a", "b")})
    fields = {"a": pw.IntegerField(), "b": pw.CharField(max_length=9), "status": pw.CharField(default="R")}
    model: Any = type("Pair", (pw.Model,), {**fields, "Meta": meta})
    db.create_tables([model])
    queue = xq.upgrade(model, {"status": "status"})
    queue.install()
    return queue


def lists(db: pw.Database, of_kinds: Mapping[str, Any]) -> dict[str, Callable[[], Callable[[], object]]]:
    """Functions as those of `calls`, on lists of tasks and on fields of several kinds."""
    made: list[dict[str, Any]] = [{}] * MANY
    one, two = task_of(db, {"buried": "any", "ttr": 60}, x=pw.TextField(null=True)), pairs(db)
    unique = task_of(db, {"unique": True}, "Unique", x=pw.CharField(max_length=9, null=True))
    coded = task_of(db, {"unique": True}, "Coded", x=pw.UUIDField(null=True))
    numbers = itertools.count()

    def singly(queue: Any = one) -> list[Any]:
        queue.put_many(made)
        return [queue.take() for _ in range(MANY)]

    def some(n: int = MANY) -> list[dict[str, Any]]:
        return [{"a": next(numbers), "b": "b"} for _ in range(n)]

    def texts(n: int) -> list[dict[str, Any]]:
        return [{"x": str(next(numbers))} for _ in range(n)]

    def again(queue: Any, tasks: list[dict[str, Any]], n: int = 2) -> Callable[[], object]:
        queue.put_many(tasks[:n])
        return partial(queue.put_many, tasks, on_conflict="skip")

    def turn(tasks: list[Any]) -> None:
        asyncio.run(together(tasks))

    async def together(tasks: list[Any]) -> None:
        await asyncio.gather(*[one.aio.ack(task, update={"x": str(n)}) for n, task in enumerate(tasks)])

    found: dict[str, Callable[[], Callable[[], object]]] = {}
    for many in (one.ack_many, one.release_many, one.bury_many):
        found[f"{many.__name__}({MANY}) of single takes"] = partial(call_of, many, singly)
    found |= {
        f"touch_many({MANY}) of single takes": lambda: partial(one.touch_many, singly(), 5),
        f"kill_many({MANY})": lambda: partial(one.kill_many, one.put_many(made)),
        f"put_many({MANY}), two keys": lambda: partial(two.put_many, some()),
        f"take_many({MANY}), two keys": lambda: (two.put_many(some()), partial(two.take_many, MANY))[1],
        f"ack_many({MANY}), two keys": lambda: partial(two.ack_many, (two.put_many(some()), two.take_many(MANY))[1]),
        "put, unique": lambda: partial(unique.put, *texts(1)),
        f"put_many({MANY}), unique": lambda: partial(unique.put_many, texts(MANY)),
        f"put_many({MANY}), 2 are there": lambda: again(unique, texts(MANY)),
        f"put_many({MANY}), all are there": lambda: again(unique, texts(MANY), MANY),
        f"put_many({MANY}), 2 UUIDs are there": lambda: again(coded, [{"x": uuid4()} for _ in range(MANY)]),
        "20 acks of coroutines, update": lambda: partial(turn, singly()[:20]),
    }
    for name, queue in of_kinds.items():
        found[f"put, {name}"] = partial(partial, queue.put, {})
        found[f"take, {name}"] = partial(ready, queue)
        found[f"ack, {name}"] = partial(call_of, queue.ack, partial(taken, queue))
    return found


def call_of(call: Callable[[Any], object], prepare: Callable[[], Any]) -> Callable[[], object]:
    return partial(call, prepare())


def ready(queue: Any) -> Callable[[], object]:
    queue.put({})
    take: Callable[[], object] = queue.take
    return take


@in_sequence
def of_lists(counter: Counter, db: pw.Database) -> dict[str, str]:
    """Return what each path on lists, and on fields of several kinds, sends."""
    kinds = {
        kind.__name__: task_of(db, {}, f"Has{kind.__name__}", x=kind(null=True))
        for kind in (pw.DecimalField, pw.UUIDField, Upper)
    }
    found, queues = trips_of(counter, lists(db, kinds)), kinds | {"on_change": task_of(db, {}, "Observed")}
    queues["on_change"].on_change(lambda *change: None)
    for name, queue in queues.items():
        found[f"a thread's job, {name}"] = job_of(counter, queue, lambda task: None)
    queue = timed(db, "utubes", {"utube": True})
    queue.worker(lambda task: None)
    for utubes, n in (("one utube", 1), ("5 utubes", 5)):
        found[f"a thread's job, {utubes}"] = job(counter, queue, partial(in_turn, queue, n), queue.run, 10)
    fair = timed(db, "fair", {"utube": {"n": 50, "fair": True}})
    return found | {f"{name}, fair": trips for name, trips in trips_of(counter, of_turns(fair)).items()}


def of_turns(queue: Any) -> dict[str, Callable[[], Callable[[], object]]]:
    """Functions as those of `calls`: takes when all heads are as the table has them."""

    def take(utubes: int, put: int, n: int) -> Callable[[], Callable[[], object]]:
        def prepared() -> Callable[[], object]:
            queue.truncate()
            in_turn(queue, utubes, put)
            while queue.sweep():
                pass
            return partial(queue.take_many, n)

        return prepared

    return {
        "take": take(5, 10, 1),
        "take_many(10) of 10 utubes": take(10, 50, 10),
        "take_many(10) of 5 utubes": take(5, 50, 10),
        "take_many(10) of one utube": take(1, 50, 10),
    }


def in_turn(queue: Any, utubes: int, n: int) -> None:
    queue.put_many([{"n": i % utubes} for i in range(n)])


def trips_of(counter: Counter, prepared: Mapping[str, Callable[[], Callable[[], object]]]) -> dict[str, str]:
    found = {}
    for name, prepare in prepared.items():
        for _ in range(3):  # the first compiles the statement, and registers the session
            call = prepare()
            with suppress(xq.FeatureOff), counter.counting() as trips:
                call()
                found[name] = str(trips)
    return found


@in_sequence
def measured(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what each path sends, once it has run before."""
    rows = trips_of(counter, calls(queue))
    rows["take that waits"] = woken(counter, queue)
    for name, (function, options) in WORKERS.items():
        queue.worker(function, **options)
        rows[name] = job(counter, queue, lambda n: queue.put_many([{}] * n), queue.run)
        queue.handlers.clear()
    return rows | ended(counter, queue) | declared(counter, queue)


def ended(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what a job sends whose function decides itself what becomes of its task."""

    def discard(task: Any) -> None:
        raise xq.Discard

    jobs: dict[str, Callable[[Any], Any]] = {
        "that acks": queue.ack,
        "that acks, atomic": lambda task: queue.transaction(partial(queue.ack, task)),
        "that is discarded": discard,
    }
    return {f"a job {name}": job_of(counter, queue, function) for name, function in jobs.items()}


def awaited_ack(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what a job of a coroutine sends that acks its task. Django's calls keep a thread of the process."""

    async def ack(task: Any) -> None:
        await queue.aio.ack(task)

    return {"a job that awaits its ack": job_of(counter, queue, ack)}


def job_of(counter: Counter, queue: Any, function: Callable[[Any], Any]) -> str:
    queue.worker(function)
    found = job(counter, queue, lambda n: queue.put_many([{}] * n), queue.run)
    queue.handlers.clear()
    return found


def declared(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what a start of workers sends of declared schedules."""
    schedules, rows = queue.parts.maintenance.schedules, {}
    some: dict[str, Any] = {f"{n}": ("0 3 * * *", {}) for n in range(MANY)}
    for name, each in (("", {}), ("new", some), ("unchanged", some), ("one changed", {**some, "7": ("@daily", {})})):
        schedules._declared = schedules._declarations(each)
        with counter.counting() as trips:
            schedules.declare()
        rows[f"a start, {MANY} schedules {name}"] = str(trips)
    schedules._declared = None
    queue.unschedule("7")
    del rows[f"a start, {MANY} schedules "]
    return rows


def woken(counter: Counter, queue: Any) -> str:
    """Return what a take sends that finds nothing, sleeps, is woken by a put of this process, and takes."""

    def put(awake: Any, seconds: float) -> bool:
        found, counter.found = counter.found, None
        queue.put({})
        counter.found = found
        assert awake.is_set()
        awake.clear()
        return True

    queue.truncate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sleeping, "_sleep", put)
        for _ in range(2):
            with counter.counting() as trips:
                assert queue.take(timeout=MINUTE) is not None
    return str(trips)


@in_sequence
def minute(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what a thread of a worker sends in a minute without tasks: its sleeps move the clock."""
    pool = Threads(assignment_of(queue.worker(lambda task: None), None, None), Program())

    def sleep(awake: Any, seconds: float) -> bool:
        counter.now += seconds
        return False

    jobs = ThreadJobs()

    def pass_by() -> None:
        end = counter.now + MINUTE
        while counter.now < end:
            pool._take(TaskSource(None), jobs)

    queue.truncate()
    with pytest.MonkeyPatch.context() as patch, counter.alone():
        patch.setattr(sleeping, "_sleep", sleep)
        counter.now += 60 * MINUTE  # all is due when the first minute begins, whatever ran before
        pass_by()
        with counter.counting() as trips:
            pass_by()
    queue.handlers.clear()
    return {"an idle thread, a minute": str(trips)}


@in_sequence
def upkeep(counter: Counter, queue: Any) -> dict[str, str]:
    """Return what a take sends that comes a while after the last one, and what it finds."""

    def put(n: int, groups: int = LEFT, **options: Any) -> Any:
        return queue.put_many([{"n": i % groups} for i in range(n)], **options)

    left: dict[str, Callable[[], object]] = {
        "nothing is to do": lambda: (put(1), queue.sweep()),
        "a new group is dirty": lambda: put(1),
        "a group is dirty": lambda: (put(2, groups=1), queue.ack(queue.take())),
        f"{LEFT} groups are dirty": lambda: put(LEFT),
        f"{LEFT} delayed tasks are due": lambda: put(LEFT, delay=0),
        f"{LEFT} tasks have expired": lambda: (put(LEFT, ttl=0), queue.parts.maintenance.timers.refresh_heads()),
        f"{LEFT} before it in its group have expired": lambda: (put(LEFT, groups=1, ttl=0), put(1)),
        f"{DEAD} sessions are dead": lambda: die(queue, DEAD),
    }
    rows = {}
    for name, leave in left.items():
        for _ in range(2):  # the first compiles the statements
            queue.truncate()
            queue.take(timeout=0)
            with counter.alone():
                leave()
                counter.now += MINUTE
                with counter.counting() as trips:
                    found = queue.take(timeout=0)
        rows[f"take, {name}"] = f"{trips}{'' if found else ', none'}"
    return rows


def idle(counter: Counter, queues: Sequence[Any]) -> Trips:
    """Return what an idle process sends in a minute: a worker of each queue, and the maintenance thread."""
    program = Program()
    pools = [Threads(assignment_of(queue.worker(lambda task: None), None, None), program) for queue in queues]
    workers: list[Any] = [(pool, TaskSource(None), ThreadJobs()) for pool in pools]

    def sleep(awake: Any, seconds: float) -> bool:
        counter.now += seconds
        return False

    def pass_by() -> None:
        now = counter.now
        for pool, source, jobs in workers:
            pool._take(source, jobs)
            counter.now = now
        while counter.now < now + MINUTE:
            thread._notified = thread._wait(0.0)
            pause = thread._cycle()
            counter.now = max(counter.now + pause, 0.0 if thread._notified else thread._next_at)

    def rest() -> bool:
        rests.set()
        return over.wait()

    for queue in queues:
        queue.take()
    thread = queues[0].parts.maintenance._duties
    rests, over = threading.Event(), threading.Event()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as waiting:
        patch.setattr(thread, "_wait_and_work", rest)  # else it polls beside this one
        waiting.callback(over.set)
        thread.call_for(thread.look)
        assert rests.wait(PATIENCE)
        patch.setattr(sleeping, "_sleep", sleep)
        patch.setattr(file_notifier, "QUIET", 0.0)  # of the real time, which the files have
        pass_by()
        for queue in queues:
            waiting.enter_context(queue.parts.waiters.takers.enter())
        pass_by()
        with counter.counting() as trips:
            pass_by()
    return trips


@in_sequence
def job(counter: Counter, queue: Any, put: Callable[[int], object], run: Callable[..., object], jobs: int = FEW) -> str:
    """Return what a job sends: by how much a run of many sends more than one of fewer."""
    runs = []
    for n in (jobs, jobs, 3 * jobs):
        with counter.alone():
            queue.truncate()
            put(n)
            while roll_up_some(queue.parts.named.executor):
                pass  # else one of the runs would, at a thousand counters
            with counter.counting(workers=True) as trips:
                run(until_empty=True)
        runs.append(trips)
    return runs[2].since(runs[1], 2 * jobs)


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table as text: a row for each path, a column for each kind of queue."""
    names = dict.fromkeys(name for each in columns.values() for name in each)
    rows = [["", *columns], *([name, *(each.get(name, "-") for each in columns.values())] for name in names)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def plain(db: pw.Database, features: Mapping[str, Any]) -> Any:
    """A table of the application, and xq's own columns."""
    meta = type("Meta", (), {"database": db, "table_name": f"plain{len(features)}"})
    fields = {"status": pw.CharField(default="R"), "n": pw.IntegerField(default=0)}
    model: Any = type("Plain", (pw.Model,), {**fields, "Meta": meta})
    db.create_tables([model])
    queue = xq.upgrade(model, {"status": "status"}, features)
    queue.install()
    return queue


def based(db: pw.Database, features: Mapping[str, Any], name: str = "") -> Any:
    meta = type("Meta", (), {"database": db, "table_name": name or f"task{len(features)}"})
    model: Any = type("Task", (xq.Task,), {"n": pw.IntegerField(default=0), "Meta": meta})
    queue = xq.upgrade(model, features=features)
    db.create_tables([model])
    return queue


def guarded(counter: Counter, db: pw.Database) -> dict[str, dict[str, str]]:
    """Return what the paths of a queue with room send that differ, and those of one whose takes are charged."""
    room = measured(counter, based(db, {"limit": 10**6}, "room"))
    charged = measured(counter, based(db, {"rate": {"limit": "900000/s", "burst": 100_000}}, "charged"))
    return {
        "limit": {path: room[path] for path in ("put", f"put_many({MANY})")},
        "rate": {path: sent for path, sent in charged.items() if "take" in path or path in WORKERS},
    }


def timed(db: pw.Database, of: str, more: Mapping[str, Any]) -> Any:
    meta = type("Meta", (), {"database": db, "table_name": of})
    model: Any = type("Timed", (xq.Task,), {"n": pw.IntegerField(null=True), "Meta": meta})
    features: dict[str, Any] = {"ttl": True, "delayed": True, "ttr": True, **more}
    queue = xq.upgrade(model, {"utube": "n"} if "utube" in more else {}, features)
    db.create_tables([model])
    return queue


def many(db: pw.Database, n: int) -> list[Any]:
    """So many queues with all features."""
    models = [type(f"Task{i}", (xq.Task,), {"Meta": type("Meta", (), {"database": db})}) for i in range(n)]
    queues: list[Any] = [xq.upgrade(model, features=ALL) for model in models]
    db.create_tables(models)
    return queues


def of_peewee(db: pw.Database) -> dict[str, Any]:
    """The queues of the tables, each on a table of its own, by what their columns are called."""
    kinds = {"a table": plain, "xq.Task": based}
    return {f"{name}{', all' * bool(on)}": make(db, on) for name, make in kinds.items() for on in ({}, ALL)}


@in_sequence
def of_ends(counter: Counter, db: pw.Database) -> dict[str, str]:
    """Return what the ends of members of groups send, and those of parents."""
    features = {"buried": True, "keep": True, "ttl": True}
    groups = task_of(db, {**features, "groups": True}, "Member")
    after = task_of(db, {**features, "after": True}, "Parent")
    numbers = itertools.count()

    def members(n: int, **options: Any) -> None:
        groups.truncate()
        with groups.group(f"{next(numbers)}", then={}) as group:
            group.put_many([{}] * n, **options)

    def parents(n: int, dependants: int, on_failure: str = "hold", **options: Any) -> None:
        after.truncate()
        with db.atomic():
            put = after.put_many([{}] * n, **options)
            if dependants:
                after.put_many([{}] * dependants, after=put, on_failure=on_failure)

    def member(n: int) -> Any:
        members(n)
        return groups.take()

    def parent(dependants: int, on_failure: str = "hold") -> Any:
        parents(1, dependants, on_failure)
        return after.take()

    def all_members() -> Any:
        members(MANY)
        return groups.take_many(MANY)

    def all_parents() -> Any:
        parents(MANY, 1)
        return after.take_many(MANY)

    def within(queue: Any, task: Any) -> Callable[[], object]:
        return partial(queue.transaction, partial(queue.ack, task))

    calls: dict[str, Callable[[], Callable[[], object]]] = {
        "ack, of no group": lambda: partial(groups.ack, (groups.truncate(), taken(groups))[1]),
        "ack, 50 members are left": lambda: partial(groups.ack, member(51)),
        "ack, one member is left": lambda: partial(groups.ack, member(2)),
        "ack, the last member": lambda: partial(groups.ack, member(1)),
        "ack, the last member, atomic": lambda: within(groups, member(1)),
        f"ack_many({MANY}), all members": lambda: partial(groups.ack_many, all_members()),
        "put after a task": lambda: partial(after.put, {}, after=after.put({})),
        f"put after {MANY} tasks": lambda: partial(after.put, {}, after=after.put_many([{}] * MANY)),
        "ack, no dependant": lambda: partial(after.ack, parent(0)),
        "ack, one dependant": lambda: partial(after.ack, parent(1)),
        "ack, one dependant, atomic": lambda: within(after, parent(1)),
        f"ack, {MANY} dependants": lambda: partial(after.ack, parent(MANY)),
        "bury, one dependant is killed": lambda: partial(after.bury, parent(1, "kill")),
        f"ack_many({MANY}), one dependant": lambda: partial(after.ack_many, all_parents()),
    }

    def swept(queue: Any, put: Callable[[], None]) -> str:
        for _ in range(2):  # the first compiles the statements
            with counter.alone():
                put()
                with counter.counting() as trips:
                    queue.sweep()
        return str(trips)

    rows = trips_of(counter, calls)
    rows[f"sweep, {MANY} members expire"] = swept(groups, partial(members, MANY, ttl=0))
    rows[f"sweep, {MANY} parents expire"] = swept(after, partial(parents, MANY, 1, "run", ttl=0))
    rows["a thread's job, of no group"] = job_of(counter, groups, lambda task: None)
    rows["a thread's job, no dependant"] = job_of(counter, after, lambda task: None)
    for queue in (groups, after):
        queue.worker(lambda task: None)
    rows["a thread's job, a member"] = job(counter, groups, members, groups.run)
    chain = partial(after.put_many, chain=True)
    rows["a thread's job, of a chain"] = job(counter, after, lambda n: chain([{}] * n), after.run)
    return rows


def of_steps(counter: Counter, db: pw.Database, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what the calls of the feature steps send, each on its own connection's transaction."""
    queue, found = task_of(db, {"steps": True, "buried": True, "delayed": True}, "Stepped"), dict[str, str]()
    suspend = Attempts._suspend

    def sends(what: str, call: Callable[[], Any]) -> Any:
        before = replace(trips)
        try:
            return call()
        finally:
            found[what] = trips.since(before)

    def work(task: Any) -> None:
        recorded = ", recorded" * ('{"step"' in (task.xq_steps or ""))
        sends(f"step{recorded}", lambda: xq.step("a", str, "a"))
        sends(f"step in atomic(){recorded}", in_atomic)
        xq.sleep("s", 0.0001)
        sends("wait_for, its signal there", lambda: xq.wait_for("early"))
        xq.wait_for("late")

    def in_atomic() -> Any:
        with db.atomic():
            return xq.step("b", str, "b")

    patch.setattr(Attempts, "_suspend", lambda *given: sends(given[-1].event, lambda: suspend(*given)))
    worker = queue.worker(work)
    queue.put({})
    with counter.counting() as trips:
        sends("signal, not awaited", lambda: queue.signal(1, "early"))
        run_pending(worker)
        while queue.peek(1).status != "W" or not queue.peek(1).xq_awaits:
            run_pending(worker)
        sends("signal, awaited", lambda: queue.signal(1, "late"))
    return found
