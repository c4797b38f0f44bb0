"""What several of these tests do: bring a task into a state, look at its row, run a script in another process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pymysql.constants import CLIENT

import xq
from tests.factories import task
from tests.timing import in_sequence, timed
from xq.core import time as clocks
from xq.upgrading.build import build
from xq.upgrading.verbs import VERBS

Script = Callable[[], Generator[Any, Any, None]]

STUCK = 60  # seconds, after which another process or thread counts as stuck
PATIENCE = 2 * STUCK  # seconds; longer than STUCK, so a lost notification fails the test instead of slowing it
END = "the test is over"


class Bytes(pw.BlobField):
    """Bytes that every database can have as a key."""

    def ddl_datatype(self, ctx: Any) -> pw.SQL:
        found: pw.SQL = super().ddl_datatype(ctx)
        return pw.SQL("VARBINARY(255)") if found.sql == "BLOB" and "%s" in ctx.state.param else found


def eventually(condition: Callable[[], Any], within: float = STUCK) -> Any:
    """What a condition returns when it holds at last, looked at again and again for so many seconds."""
    timed("to poll")
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
    return found


def a_second_passes(patch: pytest.MonkeyPatch) -> None:
    """Set the monotonic clock, by which xq looks at an installation once a second."""
    now = clocks.monotonic
    patch.setattr(clocks, "monotonic", lambda: now() + 2)


def install_anew(Task: Any, features: Mapping[str, Any], **options: Any) -> None:
    """Install other features as the next release of a program does, which upgrades its model with them."""
    old, kind = Task.xq, type(Task.xq.parts.store)
    definition = {**old.parts.definition.arguments, "features": features, "clock": old.clock}
    build(kind(Task), **definition, detached=True).install(**options)
    old.parts.maintenance.stop_maintenance()
    for name in {"xq", *VERBS} & {*vars(Task)}:
        delattr(Task, name)
    build(kind(Task), **definition)


def next_release(Task: Any, **changes: Any) -> Any:
    """The queue by another definition, without the columns that xq brings by itself."""
    arguments = {**Task.xq.parts.definition.arguments, **changes}
    fields = {role: name for role, name in arguments["fields"].items() if not name.startswith("xq_")}
    return build(type(Task.xq.parts.store)(Task), **{**arguments, "fields": fields}, detached=True)


def install_after_the_statements(Task: Any, features: Mapping[str, Any], **options: Any) -> None:
    """Install features that lack states of tasks, after running exactly the statements that the refusal ends with."""
    with pytest.raises(xq.ConfigurationError, match="move them where you want them") as refused:
        install_anew(Task, features, **options)
    run_script(Task._meta.database, str(refused.value).partition("\n")[2])
    install_anew(Task, features, **options)


@contextmanager
def put_late(Task: Any) -> Iterator[Callable[[], None]]:
    """A task that another connection has put, and commits when this is called or the block ends."""
    db = Task._meta.database
    began, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with db.atomic():
            Task.put(task(name="late"))
            began.set()
            assert go_on.wait(STUCK)
        db.close()

    def commit() -> None:
        go_on.set()
        thread.join()

    thread = threading.Thread(target=late)
    thread.start()
    try:
        assert began.wait(STUCK)
        yield commit
    finally:
        commit()


def writing(db: pw.Database) -> Any:
    """A transaction in which to write: SQLite must hear of it at its beginning, where it may still wait for another."""
    return db.atomic("IMMEDIATE") if isinstance(db, pw.SqliteDatabase) else db.atomic()


def make_impatient(db: pw.Database, seconds: int = 2) -> None:
    """Set the lock timeout. Use a long one if no statement should wait."""
    impatience: dict[str, str | float] = {"timeout": seconds}
    if isinstance(db, pw.PostgresqlDatabase):
        impatience = {"options": f"-c lock_timeout={seconds}s"}
    elif isinstance(db, pw.MySQLDatabase):
        impatience = {"init_command": f"SET SESSION innodb_lock_wait_timeout = {seconds}"}
    db.close()
    db.init(db.database, **{**db.connect_params, **impatience})


def until_one_waits_for_a_lock(db: pw.Database) -> None:
    """Until a statement of another connection waits for what this one's transaction has locked; SQLite cannot tell."""
    if isinstance(db, pw.PostgresqlDatabase):
        # No view of the server's statistics, which is read once in a transaction.
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    elif isinstance(db, pw.MySQLDatabase):  # who may ask for the locks themselves is an administrator
        if "MariaDB" not in db.connection().server_version:
            _until_one_waits_on_mysql(db)
            return
        mine = "db = DATABASE() AND id <> CONNECTION_ID()"
        waits = f"SELECT 1 FROM information_schema.processlist WHERE {mine} AND command = 'Query' AND time_ms > 50"
    else:
        return
    eventually(lambda: db.execute_sql(waits).fetchone())


def _until_one_waits_on_mysql(db: pw.Database) -> None:
    """Where a statement says NOWAIT, the call has been refused, and waits by looking again."""
    refused = (
        "SELECT 1 FROM events_errors_summary_by_thread_by_error JOIN threads USING (thread_id) "
        f"WHERE processlist_db = '{db.database}' AND error_number = 3572 AND sum_error_raised > 0"
    )
    with closing(pw.MySQLDatabase("performance_schema", **{**db.connect_params, "user": "root"})) as administrators:
        waits = f"SELECT 1 FROM data_lock_waits UNION ALL {refused}"
        eventually(lambda: administrators.execute_sql(waits).fetchone())


def isolate(db: pw.Database, level: str) -> None:
    """Have all run at this level: what Peewee begins, and single statements."""
    options = {"init_command": f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"}
    if isinstance(db, pw.PostgresqlDatabase):
        default = level.lower().replace(" ", r"\ ")
        options = {"isolation_level": level, "options": f"-c default_transaction_isolation={default}"}
    db.close()
    db.init(db.database, **{**db.connect_params, **options})


def refuse_the_past(db: pw.Database, refuses: bool) -> None:
    """Have transactions at REPEATABLE READ fail to lock a row changed since they began to read, as on MariaDB 11.8."""
    if isinstance(db, pw.PostgresqlDatabase):
        isolate(db, "REPEATABLE READ" if refuses else "READ COMMITTED")
    elif db.execute_sql("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").fetchone():
        command = f"SET SESSION innodb_snapshot_isolation = {int(refuses)}"
        db.close()
        db.init(db.database, **{**db.connect_params, "init_command": command})
    elif refuses:
        pytest.skip("this MariaDB has no innodb_snapshot_isolation")


def keep_references(db: pw.Database) -> None:
    """Have the database refuse to delete what others refer to: SQLite does so where it is told to."""
    if isinstance(db, pw.SqliteDatabase):
        db.pragma("foreign_keys", 1, permanent=True)


def refers(Task: Any, *tasks: Any, **options: Any) -> Any:
    """A table that refers to tasks, which the database therefore refuses to delete."""
    keep_references(Task._meta.database)
    meta = type("Meta", (), {"database": Task._meta.database})
    Child: Any = type("Child", (pw.Model,), {"task": pw.ForeignKeyField(Task, **options), "Meta": meta})
    Task._meta.database.create_tables([Child])
    Child.insert_many([{"task": task.id} for task in tasks]).execute()
    return Child


# What a trigger of the application's may do so that a row stays as it was, on each kind of database.
FAILURES: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        "fails": "SELECT abs(-9223372036854775807 - 1)",
        "ends the transaction": "SELECT RAISE(ROLLBACK, 'the trigger fails')",
    },
    "postgres": {
        "fails": "RAISE EXCEPTION 'the trigger fails'",
        "fails at the commit": "RAISE EXCEPTION 'the trigger fails'",
        "says not in this state": "RAISE object_not_in_prerequisite_state",
        "has no right": "PERFORM 1 FROM pg_authid",
    },
    "mariadb": {
        "fails": "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the trigger fails'",
        "finds too much": "SET @found = (SELECT 1 UNION SELECT 2)",
    },
    "mysql": {
        "fails": "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the trigger fails'",
        "counts too far": "SET @found = EXP(1000)",
    },
}


def fail_for(Task: Any, condition: str, how: str = "fails") -> None:
    """Have a trigger of the application's fail where a row is updated of which NEW then meets a condition."""
    store = Task.xq.parts.store
    begin = f"CREATE TRIGGER fails AFTER UPDATE ON {store.table}"
    if store.engine == "sqlite":
        store.change(f"{begin} WHEN {condition} BEGIN {FAILURES['sqlite'][how]}; END")
    elif store.engine == "postgres":
        body = f"$$ BEGIN {FAILURES['postgres'][how]}; RETURN NULL; END $$"
        store.change(f"CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS {body}")
        if how == "fails at the commit":
            begin = begin.replace("TRIGGER", "CONSTRAINT TRIGGER") + " DEFERRABLE INITIALLY DEFERRED"
        store.change(f"{begin} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION fails()")
    else:
        sql = FAILURES[store.database.product][how]
        store.change(f"{begin} FOR EACH ROW BEGIN IF {condition} THEN {sql}; END IF; END")


def fail_no_more(Task: Any) -> None:
    """Drop the trigger of `fail_for`."""
    store = Task.xq.parts.store
    store.change(f"DROP TRIGGER fails{f' ON {store.table}' if store.engine == 'postgres' else ''}")


def another_program(db: pw.Database, sql: str) -> None:
    """Have a statement run on a connection that neither Peewee nor xq knows of, and commit."""
    connect: Any = db._connect  # type: ignore[attr-defined]
    with closing(connect()) as connection:
        connection.cursor().execute(sql)
        connection.commit()


def conflict(db: pw.Database, execute: Callable[[str], Any]) -> None:
    """Have the database undo the open transaction of `execute`, as it does for the sake of another one."""
    if isinstance(db, pw.SqliteDatabase):  # that has written what this one has read
        execute("SELECT count(*) FROM xq_queue").fetchall()
        another_program(db, "UPDATE xq_queue SET name = name")
        execute("UPDATE xq_queue SET name = name")
    elif isinstance(db, pw.PostgresqlDatabase):
        execute("DO $$ BEGIN RAISE 'another one was first' USING ERRCODE = 'serialization_failure'; END $$")
    else:
        execute("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'")


def run_script(db: pw.Database, text: str) -> None:
    """Run several statements at once, as a migration would."""
    if isinstance(db, pw.MySQLDatabase):
        several: Any = type(db)(db.database, **{**db.connect_params, "client_flag": CLIENT.MULTI_STATEMENTS})
        with closing(several._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                re.sub("^DELIMITER .*$", "", text, flags=re.MULTILINE).replace(";;", ";")
            )  # as the client does
            while cursor.nextset():
                pass
    elif isinstance(db, pw.SqliteDatabase):
        db.execute_sql("SELECT 1 FROM sqlite_master").fetchall()  # else it may still have a column that is gone
        db.connection().executescript(text)
    else:
        db.connection().execute(text)  # Peewee's own would take a % for the placeholder of a value


def exact_collation(db: pw.Database) -> str | None:
    """By which MariaDB and MySQL compare byte by byte."""
    if not isinstance(db, pw.MySQLDatabase):
        return None
    return "utf8mb4_nopad_bin" if "MariaDB" in db.connection().server_version else "utf8mb4_0900_bin"


def refused(db: pw.Database) -> Any:
    """Within a transaction, around what the database itself will refuse: PostgreSQL wants a savepoint to return to."""
    return db.savepoint() if isinstance(db, pw.PostgresqlDatabase) else nullcontext()


def bring(Task: Any, state: str, brought: Any = None, **options: Any) -> Any:
    """A new task, brought into a state. Takes the oldest one, so no other may be ready."""
    if state == "W":
        options.setdefault("delay", 5)
    found = Task.xq.put(task() if brought is None else brought, **options)
    if state in "TBZD":
        found = Task.xq.take()
    if state == "B":
        found = Task.xq.bury(found)
    if state in "ZD":
        found = Task.xq.ack(found)
    return found


def row(Task: Any, key: Any) -> Any:
    """The row as the table has it, None where there is none. The queue is not asked."""
    key = key.get_id() if hasattr(key, "get_id") else key
    return Task.get_or_none(Task._meta.primary_key == key)


def names(found: Iterable[Any]) -> list[str]:
    return [each.name for each in found]


def empty(Task: Any) -> None:
    """Delete all tasks, and set the counters to zero."""
    Task.xq.truncate()
    Task.xq.reset()


def note(path: Path, what: object) -> None:
    """Add a line to a file with a single write: processes may do so at once."""
    with path.open("a") as file:
        file.write(f"{what}\n")


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def state(Task: Any, key: Any) -> str:
    """The stored status, X where there is no row."""
    found = row(Task, key)
    return "X" if found is None else str(found.status)


def transitions(Task: Any) -> Counter[str]:
    """How often each transition was seen."""
    return Counter(Task.xq.stats().transition)


@in_sequence
def is_exact(Task: Any) -> bool:
    """Whether the numbers are what the table holds; looked at again where a thread has moved something meanwhile."""

    def held() -> Counter[str]:
        return Counter(found.status for found in Task.select())

    before, counts, after = held(), Task.xq.stats().counts, held()
    deadline = time.monotonic() + STUCK
    while before != after:
        assert time.monotonic() < deadline, "something moves all the time"
        before, counts, after = after, Task.xq.stats().counts, held()
    return not wrong(Task.xq) and all(n == before[letter] for letter, n in counts.items())


def wrong(queue: Any) -> list[str]:
    """What `check` finds, but for tasks whose status, or key, the test itself has written."""
    its_own = "have no owner", "that no call sees", "of the key has given"
    return [line for line in queue.check() if not any(each in line for each in its_own)]


class Other:
    """A script in another process: `next(other)` is what it yields next, `other.send(value)` tells it something."""

    def __init__(self, db: pw.Database, script: Script) -> None:
        timed("another process")
        db.close()  # a connection must not be carried across a fork
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=self._run, args=(db, script, theirs))
        self._process.start()
        theirs.close()
        self._begun = False

    @staticmethod
    def _run(db: pw.Database, script: Script, pipe: Any) -> None:
        try:
            running = script()
            pipe.send((next(running), None))
            for value in iter(pipe.recv, END):
                pipe.send((running.send(value), None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))
        finally:
            db.close()

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._begun:
            self.post(value)
        self._begun = True
        return self.hear()

    def post(self, value: Any) -> None:
        """Send a value, and do not wait for the next yield."""
        self._pipe.send(value)

    def is_heard(self, within: float) -> bool:
        """Wait for what it yields next, for so many seconds, and return whether it has come."""
        return bool(self._pipe.poll(within))

    def hear(self) -> Any:
        """What it yields next."""
        assert self._pipe.poll(STUCK), "the other process is stuck"
        value, error = self._pipe.recv()
        assert error is None, error
        return value

    @property
    def pid(self) -> int:
        pid: int | None = self._process.pid
        assert pid is not None
        return pid

    def kill(self) -> None:
        """kill -9, and it is gone when this returns."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join(STUCK)

    def join(self) -> None:
        """Wait until it is gone."""
        self._process.join(STUCK)
        assert not self._process.is_alive(), "the other process is stuck"

    def stop(self) -> None:
        """Have it stand still until `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        with suppress(BrokenPipeError):  # it ended already
            self._pipe.send(END)
        self._process.join(STUCK)
        if self._process.is_alive():
            self._process.kill()


@contextmanager
def processes(db: pw.Database, *scripts: Script) -> Iterator[list[Other]]:
    """Scripts, each in a process of its own, which run at once to their first yield."""
    others = [Other(db, script) for script in scripts]
    try:
        yield others
    finally:
        for other in others:
            other.end()


@contextmanager
def another_process(db: pw.Database, script: Script) -> Iterator[Other]:
    """A script in another process, which runs at once to its first yield."""
    with processes(db, script) as (other,):
        yield other


@in_sequence
def elsewhere(db: pw.Database, work: Callable[[], Any]) -> Any:
    """What this returns, or raises, done in a thread with a connection of its own while this one waits."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(db.connection_context()(work)).result()


def in_threads(db: pw.Database, *works: Callable[[], Any]) -> list[Any]:
    """What these return, all started at the same moment, each in a thread with a connection of its own."""
    barrier = threading.Barrier(len(works))

    def begun(work: Callable[[], Any]) -> Any:
        barrier.wait(STUCK)
        return work()

    return [thread.result() for thread in [Work(db, partial(begun, work)) for work in works]]


# How drivers name a transaction that the server has undone for the sake of another one.
CONFLICTS = {"40001", "40P01", 1020, 1213, 1467}


def is_conflict(error: Exception) -> bool:
    causes = (error, error.__cause__, error.__context__)  # the driver's own is one of these
    codes = {code for cause in causes for code in (getattr(cause, "sqlstate", None), *getattr(cause, "args", ())[:1])}
    return not codes.isdisjoint(CONFLICTS)


def begun_anew(Task: Any, work: Callable[[], Any]) -> Any:
    """Return the result of `work`, a statement or transaction, and repeat it when the server undid it for another's."""
    while True:
        try:
            return work()
        except pw.OperationalError as error:
            if not is_conflict(error):
                raise


def forked(db: pw.Database, run: Callable[[], Any]) -> Any:
    """A program that runs in a process of its own."""
    timed("another process")
    db.close()  # a connection must not be carried across a fork
    program = multiprocessing.get_context("fork").Process(target=run)
    program.start()
    return program


def of_kind(kind: str, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function as workers of a kind have it: of asyncio a coroutine, which calls it in a thread."""

    async def coroutine(found: Any) -> None:
        await asyncio.to_thread(work, found)

    return coroutine if kind == "asyncio" else work


class Work:
    """Something that goes on in a thread with a connection of its own."""

    def __init__(self, db: pw.Database, work: Callable[[], Any]) -> None:
        timed("another thread")
        self._db, self._work = db, work
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._db.connection_context():
                self._result = self._work()
        except BaseException as error:
            self._result = error

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    @property
    def thread(self) -> int | None:
        """The identifier of its thread."""
        return self._thread.ident

    def result(self) -> Any:
        """What it returned, or raised."""
        self._thread.join(STUCK)
        assert not self.goes_on, "the thread is stuck"
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


def waiter(Task: Any, work: Callable[[], Any]) -> Work:
    """A thread that does this, and waits for something of the queue, if it has not done it already."""
    before = len(Task.xq.waiting())
    found = Work(Task._meta.database, work)
    eventually(lambda: len(Task.xq.waiting()) > before or not found.goes_on)
    return found


def waiters(Task: Any, work: Callable[[], Any], n: int) -> list[Work]:
    """So many of them, in the order in which they began."""
    return [waiter(Task, work) for _ in range(n)]
