"""A storm: processes that do anything to the tasks of one queue and are killed at any moment, and what must hold then.

Every process writes down what it does in a file of its own, outside of the database, one line at a time: when a task
was handed to it, and, before it calls, that it lets go of it; what was done for certain, once that has been committed.
`judge` compares these lines with the table, its counters and its history. Where a server has the database, it is
restarted meanwhile: whether a call did anything that was under way then nobody knows, and what was in hand is not.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import multiprocessing
import os
import random
import signal
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, live
from tests.servers import MariaDB, MySQL, Postgres, Server
from tests.steps import isolate
from xq.adapters.peewee.connections import database_of
from xq.core.kinds import ErrorKind
from xq.core.tokens import TOKEN_ATTRIBUTE

PATIENCE = 120.0  # seconds without any progress, after which the storm counts as stuck
TICK = 0.01  # seconds between two looks of whoever watches the storm
LOOK = 1.0  # seconds between two comparisons of the counters with the table while it blows
SLACK = 0.01  # seconds by which the time of the database and that of the processes may differ
DRAIN = 0.2  # of the way, of the progress
MOST = 15  # tasks that one process has in hand
TUBES = ("a", "b")
UTUBES = (None, "u", "v", "w", "x", "y")
JOBS = 200  # values of the role unique: few enough to meet
TOLD = 20  # violations that are reported in full
AWAY = 60.0  # seconds from the return of a server within which every process has noticed that it was away
PAUSE = 0.02  # seconds that a process gives a server before it tries again

REFUSALS = (xq.NotFound, xq.WrongState, xq.NotOwner, xq.Duplicate, xq.Full)
TROUBLES = (pw.OperationalError, pw.InterfaceError, xq.UnknownSession)  # with a server that goes away

# What a process does next, with how likely that is. Of the finishing ones there must be enough for the tasks to end.
ACTS: Mapping[str, int] = (
    {"put": 8, "put_many": 3, "take": 14, "take_many": 4, "wait": 1}
    | {"ack": 12, "release": 4, "bury": 3, "ack_many": 2, "release_many": 1, "ack_by_key": 2, "touch": 2}
    | {"dig": 2, "snatch": 1, "kill": 1, "restart": 1, "switch": 1, "sweep": 1}
    | {"kill_many": 1, "insert": 1, "change": 1, "hasten": 1, "wrest": 1, "delete": 1, "draft": 1, "nap": 2}
    | {"groups": 6, "after": 5}
)
OF_FEATURES = ("groups", "after")  # acts that have the names of the features that they need
PLAIN = ("insert", "change", "hasten", "wrest", "delete", "draft")  # statements that are not xq's
TRANSACTION, SAVEPOINT, UNDONE, DIES = 0.15, 0.3, 0.3, 0.01  # parts of the steps, of the transactions


@dataclass(frozen=True)
class Plan:
    """One storm: what the queue is like, and what is done to it."""

    seed: str
    roles: tuple[str, ...]
    features: Mapping[str, Any]
    tubes: tuple[str, ...]
    processes: int
    tasks: int
    kills: int
    stops: int
    restarts: int = 0
    isolation: str = ""  # of every transaction and statement; as the server has it

    def __str__(self) -> str:
        parts = [
            name if value is True else f"{name} {value if isinstance(value, dict) else format(value, 'g')}"
            for name, value in self.features.items()
        ]
        return ", ".join([*parts, *(role for role in self.roles if role in ("owner", "attempts", "tube"))])


def plan(
    seed: str,
    processes: int = 8,
    tasks: int = 10_000,
    kills: int = 16,
    stops: int = 6,
    restarts: int = 0,
    isolation: str = "",
    always: Collection[str] = (),
) -> Plan:
    """The storm of a seed. The features that it has `always` are not left to chance."""
    rng = random.Random(seed)
    features: dict[str, Any] = {}

    def perhaps(part: float, **more: Any) -> bool:
        chosen = rng.random() < part or not more.keys().isdisjoint(always)
        if chosen:
            features.update(more)
        return chosen

    perhaps(0.8, ttr=rng.choice((0.2, 1.0, 60.0)))
    perhaps(0.7, delayed=True)
    perhaps(0.7, buried=True)
    features |= rng.choice(({}, {"keep": True}, {"zombie": 0.3}))
    unique = perhaps(0.4, unique=True)
    utube = perhaps(0.3, utube=rng.choice((True, 2, {"n": 1, "fair": True}, {"n": 2, "fair": True})))
    perhaps(0.75, history=True)
    tubes = TUBES if rng.random() < 0.5 else ()
    chosen = {
        "owner": rng.random() < 0.5,
        "attempts": rng.random() < 0.5,
        "tube": bool(tubes),
        "unique": unique,
        "utube": utube,
    }
    for name in OF_FEATURES:  # last: older seeds keep the other features
        perhaps(0.5, **{name: True})
    roles = ("runat", "priority", *(role for role, on in chosen.items() if on))
    return Plan(seed, roles, features, tubes, processes, tasks, kills, stops, restarts, isolation)


# where it blows

SERVERS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB, "mysql": MySQL}
ISOLATIONS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

_numbers = itertools.count(1)


@functools.cache
def _server(kind: type[Server]) -> Server:
    """A server that writes to the disk, since it will crash; and no test's but the storms'."""
    server = kind(durable=True)
    server.start()
    return server


@contextmanager
def ground(name: str, folder: Path, isolation: str = "") -> Iterator[tuple[pw.Database, Server | None]]:
    """A fresh database of a kind, and the server that has it, if there is one."""
    if name not in SERVERS:
        with DATABASES[name](folder) as db:
            yield db, None
        return
    server, database = _server(SERVERS[name]), f"storm_{next(_numbers)}"
    server.create(database)
    try:
        with closing(server.peewee(database)) as db:
            if isolation:
                isolate(db, isolation)
            yield db, server
    finally:
        server.drop(database)


def model(db: pw.Database, plan: Plan) -> Any:
    """The queue, which every process makes for itself."""
    return live(db)(plan.features, roles=plan.roles, tube_stats=plan.tubes or None)


def sequel(db: pw.Database) -> Any:
    """The queue into which groups put their `then`, and from which nothing is taken."""
    return live(db)(attributes={"table_name": "sequel"})


# one process


Hand = tuple[Any, str]  # a task that was taken: its key, and the token of the take


def hand(task: Any) -> Hand:
    return task.id, getattr(task, TOKEN_ATTRIBUTE)


class _Undone(Exception):
    """A transaction shall be rolled back."""


class Worker:
    """Does anything to any task, and writes down what it does."""

    def __init__(self, db: pw.Database, plan: Plan, seed: str, path: Path) -> None:
        self.db = db
        self.plan = plan
        self.Task, self.Sequel = model(db, plan), sequel(db)
        self.machine = self.Task.xq.machine
        self.rng = random.Random(seed)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.hands: dict[Hand, Any] = {}  # by take: models of one key are equal
        self._until: dict[Hand, float | None] = {}  # the monotonic time at which its ttr passes
        self._since: dict[Hand, float] = {}  # the monotonic time before the call that took
        self._depth = 0
        self._done: list[tuple[Any, ...]] = []  # what is certain as soon as the transaction is committed
        self._away: list[Any] = []  # keys that were perhaps taken away from somebody in this transaction
        self._enough = False
        self._patience: Sequence[float] = (0.0, 0.0, 0.0, 0.02)  # seconds that a take waits
        known = [name for name in ACTS if self._can(name)]
        self._next = partial(self.rng.choices, known, [ACTS[name] for name in known])
        self._session = ""
        self.record("born")
        self._tell_session()

    def _can(self, act: str) -> bool:
        """Whether the queue has what an act needs."""
        if act in OF_FEATURES:
            return act in self.plan.features
        event = act.removesuffix("_many").removesuffix("_by_key")
        verb = callable(getattr(xq.Queue, event, None)) and event not in ("wait", "sweep")
        hasten = act != "hasten" or "W" in self.machine.states
        return hasten and (not verb or bool(self.machine.sources(event)))

    # the log

    def record(self, what: str, *fields: Any) -> None:
        os.write(self._descriptor, f"{json.dumps([time.monotonic(), what, *fields])}\n".encode())

    def _tell_session(self) -> None:
        """As whom it takes: another than before, when a server that went away has ended that one."""
        session = database_of(self.db).sessions.current().uuid
        if session != self._session:
            self._session = session
            self.record("session", session)

    def _has(self, task: Any) -> None:
        self.record("has", *hand(task), self._since[hand(task)], self._until[hand(task)])

    def _lets_go(self, task: Any, event: str, at: float | None = None) -> None:
        """From now on, or from an earlier time on."""
        self.record("lets go", *hand(task), event, at)

    def _did(self, event: str, key: Any, token: str | None = None) -> None:
        self._done.append((event, key, token))
        self._flush()

    def _flush(self) -> None:
        if not self._depth:
            for done in self._done:
                self.record("did", *done)
            for key in self._away:
                self.record("took away", key)
            self._done, self._away = [], []

    @contextmanager
    def _takes_away(self, key: Any) -> Iterator[None]:
        self.record("takes away", key)
        self._away.append(key)
        try:
            yield
        finally:
            self._flush()

    @contextmanager
    def _transaction(self, begin: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
        """A transaction, or a savepoint in it, which may be rolled back, or die with the process."""
        hands, done, begun = dict(self.hands), len(self._done), time.monotonic()
        self._depth += 1
        try:
            with begin():
                yield
                if self.rng.random() < DIES:
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.rng.random() < UNDONE:
                    self._undo(hands, done, time.monotonic())  # recorded before it is true
                    raise _Undone
        except _Undone:
            pass
        except BaseException as error:
            # No one records when that was undone, and where the server went away it may have been done.
            self._undo(hands, done, begun, certain=not isinstance(error, TROUBLES) or self._gave_way(error))
            raise
        finally:
            self._depth -= 1
            self._flush()

    def _undo(self, hands: dict[Hand, Any], done: int, at: float, certain: bool = True) -> None:
        """What was taken in a transaction was not, or only until then; what was finished is in hand again."""
        for taken in self.hands.keys() - hands.keys():
            self._lets_go(self.hands[taken], "undone", at)
        for _, *fields in self._done[done:]:  # what was refused was lost
            finished = tuple(fields)
            if finished in hands.keys() - self.hands.keys() and certain:
                self._has(hands[finished])
        self.hands = {taken: task for taken, task in hands.items() if certain or taken in self.hands}
        del self._done[done:]

    def _gave_way(self, error: BaseException | None) -> bool:
        """Whether the database undid a transaction for another's sake. Who rolls it back may meet a second error."""
        while error is not None:
            if isinstance(error, Exception) and self.Task.xq.parts.store.classify(error) is ErrorKind.CONFLICT:
                return True
            error = error.__context__
        return False

    # what it does

    def step(self) -> None:
        self._tell_session()
        if self.rng.random() > TRANSACTION:
            self._act()
            return
        try:
            self._act_in_transaction()
        except pw.PeeweeException as error:
            # To begin a transaction anew that gave way is the application's. This one does something else.
            if not self._gave_way(error):
                raise
            self.record("gave way")

    def _act_in_transaction(self) -> None:
        # A transaction of SQLite that reads before it writes must ask for the lock. One that begins with a verb of xq
        # needs not.
        asks = self.rng.random() < 0.5
        with self._transaction(self.Task.xq.parts.store.atomic if asks else self.db.atomic):
            if not asks:
                self.take()
            for _ in range(self.rng.randint(1, 3)):
                self._act()
            if self.rng.random() < SAVEPOINT:
                with self._transaction(self.db.atomic):
                    self._act()

    def _act(self) -> None:
        name = self._next()[0] if len(self.hands) < MOST else "ack"
        try:
            getattr(self, name)()
        except REFUSALS:
            pass
        except pw.PeeweeException as error:
            if name not in (*PLAIN, "groups") or self._depth or not self._gave_way(error):
                raise
            self.record("gave way")

    def _seconds(self) -> dict[str, Any]:
        """A delay, sometimes, where there are any."""
        delayed = "delayed" in self.plan.features and self.rng.random() < 0.3
        return {"delay": self.rng.uniform(0, 0.4)} if delayed else {}

    def _row(self) -> dict[str, Any]:
        tube = {"tube": self.rng.choice((*self.plan.tubes, None))} if self.plan.tubes else {}
        utube = {"utube": self.rng.choice(UTUBES)} if "utube" in self.plan.roles else {}
        return {"name": self.plan.seed, "priority": self.rng.randrange(3), **tube, **utube}

    def _room(self) -> bool:
        """Whether more is to be put."""
        if not self._enough and self.rng.random() < 0.1:
            self._enough = entered(self.Task) >= self.plan.tasks
        return not self._enough

    def put(self) -> None:
        if not self._room():
            return
        if "unique" in self.plan.roles and self.rng.random() < 0.3:
            on_conflict = self.rng.choice(("raise", "skip", "replace"))
            self.Task.put({**self._row(), "job": str(self.rng.randrange(JOBS))}, on_conflict=on_conflict)
        else:
            self._did("put", self.Task.put(self._row(), **self._seconds()).id)

    def put_many(self) -> None:
        if self._room():
            rows = [self._row() for _ in range(self.rng.choice((2, 10, 30)))]
            for task in self.Task.xq.put_many(rows, **self._seconds()):
                self._did("put", task.id)

    def groups(self) -> None:
        """Begin a group, or add to any that is open. The `then` of a group can go into either queue."""
        if not self._room():
            return
        rows = [self._row() for _ in range(self.rng.randrange(5))]
        if self.rng.random() < 0.2 and (found := self.Task.xq.groups()):
            with suppress(xq.BadValue):  # it is done meanwhile
                for task in self.Task.xq.group(self.rng.choice(found)).put_many(rows, **self._seconds()):
                    self._did("put", task.id)
            return
        name, failed = f"{os.getpid()} {time.monotonic_ns()}", self.rng.choice((None, "run"))
        then = self.rng.choice((self._row(), (self.Sequel, {"name": name})))
        group = self.Task.xq.group(name, then=then, failed=failed)
        with self._transaction(lambda: group):
            for task in group.put_many(rows, **self._seconds()):
                self._did("put", task.id)
            if isinstance(then, tuple):
                self._did("group", name)

    def after(self) -> None:
        """Put a task after others, or a chain of them. Its name has these for the process that takes it."""
        parents = {self._any(self.machine.pending) for _ in range(self.rng.randint(1, 3))} - {None}
        if parents and self._room():
            how = self.rng.choice(("kill", "run"))
            rows = [self._row() for _ in range(self.rng.choice((1, 1, 3)))]
            rows[0]["name"] = " ".join(map(str, ("after", how, *parents)))
            options = {"after": parents, "on_failure": how, "chain": True, **self._seconds()}
            for task in self.Task.xq.put_many(rows, **options):
                self._did("put", task.id)

    def take(self) -> None:
        self._take(1)

    def take_many(self) -> None:
        self._take(self.rng.randint(2, 6))

    def _take(self, n: int) -> None:
        options: dict[str, Any] = {"timeout": 0 if self._depth else self.rng.choice(self._patience)}
        if self.plan.tubes and self.rng.random() < 0.3:
            options["tube"] = self.rng.choice(self.plan.tubes)
        if "ttr" in self.plan.features and self.rng.random() < 0.2:
            options["ttr"] = self.rng.uniform(0.05, 0.5)
        since = time.monotonic()
        one = self.Task.take(**options) if n == 1 else None
        for task in self.Task.xq.take_many(n, **options) if n > 1 else [one] if one else []:
            self._since[hand(task)], self._until[hand(task)] = since, self._ends(task)
            if task.utube:
                self.record("utube", *hand(task), task.utube)
            if task.name and task.name.startswith("after"):
                self.record("after", *hand(task), task.name)
            self._has(task)
            self.hands[hand(task)] = task
            self._did("take", *hand(task))

    def _ends(self, task: Any) -> float | None:
        """The monotonic time at which a task that was taken is anybody's again."""
        if "ttr" not in self.plan.features or task.runat is None:
            return None
        return time.monotonic() + float(task.runat) - time.time()

    def _pick(self, n: int = 1) -> list[Any]:
        """Tasks out of the hands, however late it is for them."""
        picked = self.rng.sample(list(self.hands), min(n, len(self.hands)))
        return [self.hands.pop(one) for one in picked]

    def _finish(self, event: str, task: Any, **options: Any) -> None:
        self._lets_go(task, event)
        getattr(task, event)(**options)
        self._did(event, *hand(task))

    def ack(self) -> None:
        for task in self._pick():
            self._finish("ack", task)

    def release(self) -> None:
        for task in self._pick():
            self._finish("release", task, **self._seconds())

    def bury(self) -> None:
        for task in self._pick():
            self._finish("bury", task)

    def ack_many(self) -> None:
        self._finish_many("ack")

    def release_many(self) -> None:
        self._finish_many("release")

    def _finish_many(self, event: str) -> None:
        picked: list[Any] = []
        for task in self._pick(4):  # of two takes of one task one is lost, but which?
            if any(task.id == other.id for other in picked):
                self.hands[hand(task)] = task
            else:
                picked.append(task)
        for task in picked:
            self._lets_go(task, event)
        try:
            getattr(self.Task.xq, f"{event}_many")(picked)
        except REFUSALS:  # all or none: so each by itself
            for task in picked:
                with suppress(*REFUSALS):
                    self._finish("release", task)
        else:
            for task in picked:
                self._did(event, *hand(task))

    def ack_by_key(self) -> None:
        """By its key a task is acked by session, whichever take of the session it is that holds it."""
        for task in self._pick():
            same = [one for one in self.hands if one[0] == task.id]
            for one in [task, *map(self.hands.pop, same)]:
                self._lets_go(one, "ack")
            self.Task.ack(task.id)

    def touch(self) -> None:
        if self.hands and not self._depth and "ttr" in self.plan.features:
            task = self.rng.choice(list(self.hands.values()))
            touched = task.touch(self.rng.uniform(0, 0.5))
            self._until[hand(task)] = self._ends(touched)
            self._has(task)

    def wait(self) -> None:
        found = self._any(self.machine.pending)
        if found is not None and not self._depth:
            self.Task.wait(found, timeout=0.02)

    def dig(self) -> None:
        self.Task.dig(n=self.rng.randint(1, 5), **self._seconds())

    def _any(self, states: Iterable[str]) -> Any:
        """The key of any task that was in one of these states a moment ago."""
        found = self.Task.xq.by_state(self.rng.choice(tuple(states)), 10)
        return self.rng.choice(found).id if found else None

    def _operate(self, event: str, *args: Any, states: Iterable[str] | None = None, **options: Any) -> None:
        key = self._any(states or self.machine.sources(event))
        if key is not None:
            with self._takes_away(key):
                getattr(self.Task.xq, event)(key, *args, **options)

    def snatch(self) -> None:
        self._operate("snatch", **self._seconds())

    def kill(self) -> None:
        self._operate("kill")

    def kill_many(self) -> None:
        """Any tasks, in any order."""
        found = self.Task.xq.by_state(self.rng.choice(self.machine.states), 10)
        keys = [task.id for task in self.rng.sample(found, min(len(found), self.rng.randint(2, 4)))]
        with ExitStack() as away:
            for key in keys:
                away.enter_context(self._takes_away(key))
            self.Task.xq.kill_many(keys)

    def restart(self) -> None:
        self._operate("restart", **self._seconds())

    def switch(self) -> None:
        self._operate("switch", "R", states=[state for state in self.machine.states if state != "T"])

    def sweep(self) -> None:
        self.Task.xq.sweep()

    # what other programs do: they write to the table

    def insert(self) -> None:
        if self._room():
            self.Task.create(**self._row())

    def change(self) -> None:
        self.Task.update(size=self.Task.size + 1).where(self.Task.id == self._any(self.machine.states)).execute()

    def hasten(self) -> None:
        self._write("W")

    def wrest(self) -> None:
        self._write("T")

    def _write(self, source: str) -> None:
        key = self._any(source)
        if key is not None:
            with self._takes_away(key):
                same = (self.Task.id == key) & (self.Task.status == source)
                self.Task.update(status="R", runat=None).where(same).execute()

    def delete(self) -> None:
        key = self._any(self.machine.states)
        if key is not None:
            with self._takes_away(key):
                self.Task.delete().where(self.Task.id == key).execute()

    def draft(self) -> None:
        """A row that becomes a task later."""
        if self._room():
            key = self.Task.create(**self._row(), status="draft").id
            self.Task.update(status="R").where(self.Task.id == key).execute()

    def nap(self) -> None:
        time.sleep(self.rng.uniform(0, 0.01))

    # the end

    def drain(self) -> None:
        """Finish whatever there is."""
        self._tell_session()
        self._patience = (0.02,)
        for act in ("take_many", "ack", "ack_many"):
            with suppress(*REFUSALS):
                getattr(self, act)()
        if not self.hands and self.machine.sources("dig"):
            with suppress(*REFUSALS):
                self.Task.dig(n=1)


def work(pipe: Connection, opened: tuple[Any, ...], plan: Plan, seed: str, path: Path) -> None:
    """One process: storms, then drains, then ends, on command."""
    logging.getLogger("xq").setLevel(logging.ERROR)  # that a server is away the storm knows
    kind, name, params = opened
    db = kind(name, **params)
    worker = _born(db, plan, seed, path)
    step = worker.step
    try:
        while True:
            if pipe.poll():
                if pipe.recv() == "end":
                    break
                step = worker.drain
                pipe.send("drains")
            try:
                step()
            except TROUBLES:
                worker.record("trouble", traceback.format_exc())
                # xq finds by itself that a connection is gone; Peewee leaves that to the application.
                if worker.rng.random() < 0.5:
                    with suppress(*TROUBLES):
                        db.close()
                time.sleep(PAUSE)
            except Exception:
                worker.record("error", traceback.format_exc())
    except EOFError:  # whoever watches is gone
        pass
    finally:
        db.close()


def _born(db: pw.Database, plan: Plan, seed: str, path: Path) -> Worker:
    """A worker, as soon as the database is there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Worker(db, plan, seed, path)
        except TROUBLES:
            if time.monotonic() > deadline:
                raise
            with suppress(*TROUBLES):
                db.close()
            time.sleep(PAUSE)


# whoever watches


@dataclass
class Report:
    """What a storm did, and what did not hold after it."""

    plan: Plan
    kills: int = 0
    stops: int = 0
    restarts: list[str] = field(default_factory=list)  # of the server, and how
    tasks: int = 0
    transitions: int = 0
    gave_way: int = 0  # transactions of the application that the database undid for another's sake
    seconds: float = 0.0
    returns: list[float] = field(default_factory=list)  # seconds from kills until nothing of the dead was taken
    violations: list[str] = field(default_factory=list)


@dataclass
class _Process:
    process: Any
    pipe: Connection
    path: Path
    killed: float | None = None  # the monotonic time just before
    resumes: float | None = None
    drains: bool = False
    _read: int = 0
    _sessions: set[str] = field(default_factory=set)

    @property
    def sessions(self) -> set[str]:
        """What it has recorded so far; nothing if it was killed before that."""
        with suppress(FileNotFoundError), self.path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                _, what, *fields = json.loads(line)
                self._sessions |= set(fields if what == "session" else ())
        return self._sessions


def read(path: Path) -> list[list[Any]]:
    """The lines of a log. A process that was killed may have left half a line."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def entered(Task: Any) -> int:
    """How many tasks have come into the queue so far."""
    return sum(n for name, n in Task.xq.stats().transition.items() if name.startswith("X-"))


class Storm:
    """Starts the processes, kills them, has them drain what is left, and judges."""

    def __init__(
        self,
        db: pw.Database,
        plan: Plan,
        folder: Path,
        progress: Callable[[float], None] | None = None,
        server: Server | None = None,
        stops: Sequence[str] = (),  # in which ways the server is stopped; none: in all that it has
    ) -> None:
        self.db = db
        self.server = server
        self.stops = stops
        self.plan = plan
        self.folder = folder
        self.progress = progress or (lambda part: None)
        self.Task = model(db, plan)
        self.rng = random.Random(f"{plan.seed} kills")
        self.report = Report(plan)
        self._started = 0
        self._processes: list[_Process] = []
        self._alive: list[_Process] = []
        self._bereft: dict[str, float] = {}  # session of a killed process -> since when
        self._draining = False
        self._away: list[Away] = []
        blows = ["kill"] * plan.kills + ["stop"] * plan.stops + ["restart"] * (plan.restarts if server else 0)
        # Each at a part of the way; the last ones while it drains.
        self._blows = sorted((self.rng.uniform(0.05, 1.0 + DRAIN), blow) for blow in blows)
        # Forked from a server that has imported all this, which is as clean as spawned and a second faster.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def run(self) -> Report:
        """Raises nothing that the storm does: what does not hold is in the report."""
        begun = time.monotonic()
        try:
            for _ in range(self.plan.processes):
                self._start()
            self._blow()
            self._drain()
            self._end()
        finally:
            for one in self._alive:
                one.process.kill()
                one.process.join()
        self.report.tasks = entered(self.Task)
        self.report.transitions = sum(self.Task.xq.stats().transition.values())
        logs = {one.path: one.killed for one in self._processes}
        self.report.violations += judge(self.Task, self.plan, logs, self._away)
        self.report.gave_way = sum(line[1] == "gave way" for path in logs for line in read(path))
        self.report.seconds = time.monotonic() - begun
        return self.report

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        path = self.folder / f"{self._started}.log"
        params = dict(self.db.connect_params)
        if isinstance(self.db, pw.SqliteDatabase):
            params["timeout"] = self.db.timeout  # which Peewee keeps elsewhere
        elif isinstance(self.db, pw.PostgresqlDatabase):
            params |= {"prefer_psycopg3": True, "isolation_level": self.plan.isolation or None}
        opened = (type(self.db), self.db.database, params)
        seed = f"{self.plan.seed} {self._started}"
        process = self._context.Process(target=work, args=(theirs, opened, self.plan, seed, path))
        process.start()
        theirs.close()
        self._started += 1
        self._processes.append(_Process(process, ours, path))
        self._alive.append(self._processes[-1])

    def _blow(self) -> None:
        """Until all tasks were put, with most of the blows."""
        for part in self._watched(lambda: entered(self.Task) / self.plan.tasks):
            self.progress(min(part, 1.0) * (1.0 - DRAIN))
            if part >= 1.0:
                break
            self._deal(part)

    def _drain(self) -> None:
        begun, self._draining = self._left(), True
        for one in self._alive:
            with suppress(OSError):  # it has just died
                one.pipe.send("drain")
        for part in self._watched(lambda: 1.0 - self._left() / max(1, begun)):
            self.progress(1.0 - DRAIN + max(0.0, part) * DRAIN)
            self._deal(1.0 + DRAIN * part)
            sessions = {session for session, _ in self.Task.xq.sessions()}
            orphans = sessions.difference(*(one.sessions for one in self._alive))
            for one in self._alive:
                with suppress(EOFError, OSError):  # it has just died
                    one.drains = one.drains or (one.pipe.poll() and one.pipe.recv() == "drains")
            rest = orphans or self._blows or self._bereft or not all(one.drains for one in self._alive)
            if not rest and not self._left():  # `part` is older: one that did not drain yet may have put since
                break

    def _left(self) -> int:
        """How many tasks, and groups, have not ended. D is an end."""
        groups = self.Task.xq.groups() if "groups" in self.plan.features else ()
        return len(groups) + int(sum(n for state, n in self.Task.xq.stats().counts.items() if state != "D"))

    def _watched(self, progress: Callable[[], float]) -> Iterator[float]:
        """How far it is, again and again, until it is stuck."""
        last, since, looked = -1.0, time.monotonic(), time.monotonic()
        while True:
            part, now = progress(), time.monotonic()
            if part != last:
                last, since = part, now
            elif now - since > PATIENCE:
                held = [(key, session) for key, session, _ in self.Task.xq.taken()]
                self.report.violations.append(
                    f"stuck at {part:.2f}: {self.Task.xq.stats().counts}, sessions {self.Task.xq.sessions()}, "
                    f"taken {held[:TOLD]}, of the dead {list(self._bereft)}"
                )
                return
            if now - looked > LOOK and not any(one.resumes for one in self._alive):
                looked = now  # it locks rows, and must not wait for a process that only this one wakes
                self.report.violations += disagreements(self.Task)
            yield part
            self._resume()
            self._mourn()
            wait([one.process.sentinel for one in self._alive], TICK)
            self._replace()

    def _deal(self, part: float) -> None:
        while self._blows and self._blows[0][0] <= part:
            _, blow = self._blows.pop(0)
            victim = self.rng.choice(self._alive)
            time.sleep(self.rng.uniform(0, TICK))  # at any moment, not just after a look
            if blow == "restart":
                self._restart()
            elif blow == "kill":
                if victim.process.is_alive():  # else it has killed itself before
                    victim.killed = time.monotonic()
                victim.process.kill()
                victim.process.join()
            elif victim.resumes is None and victim.process.is_alive():
                self.report.stops += 1
                victim.resumes = time.monotonic() + self.rng.uniform(0.05, 1.5)
                os.kill(victim.process.pid, signal.SIGSTOP)
            self._replace()

    def _restart(self) -> None:
        assert self.server
        self.db.close()
        how = self.rng.choice(list(self.stops or self.server.STOPS))
        begun = time.monotonic()
        self.server.restart(how)
        self._away.append((begun, time.monotonic()))
        self.report.restarts.append(how)
        self.report.violations += damages(self.db)
        self._bereft = {}

    def _resume(self, all_of_them: bool = False) -> None:
        for one in self._alive:
            if one.resumes is not None and (all_of_them or time.monotonic() >= one.resumes):
                one.resumes = None
                os.kill(one.process.pid, signal.SIGCONT)
                self._bereft = {}  # while the one that stood still had the database locked, no other could move

    def _replace(self) -> None:
        """A new process for each that died."""
        for one in [one for one in self._alive if not one.process.is_alive()]:
            self._alive.remove(one)
            one.process.join()
            if one.process.exitcode != -signal.SIGKILL:
                self.report.violations.append(f"{one.path.name} ended with {one.process.exitcode}")
            self.report.kills += 1
            lines = read(one.path)
            # What killed itself did so after its last line.
            one.killed = one.killed or (lines[-1][0] if lines else time.monotonic())
            if not any(other.resumes for other in self._alive):
                self._bereft |= dict.fromkeys(one.sessions, time.monotonic())
            self._start()
            if self._draining:
                self._alive[-1].pipe.send("drain")

    def _mourn(self) -> None:
        """How long it takes until what a killed process had is ready again."""
        if self._bereft:
            now = time.monotonic()
            held = {session for _, session, _ in self.Task.xq.taken()}
            for session in [session for session in self._bereft if session not in held]:
                self.report.returns.append(now - self._bereft.pop(session))

    def _end(self) -> None:
        self._resume(all_of_them=True)
        for one in self._alive:
            one.pipe.send("end")
        for one in self._alive:
            one.process.join(PATIENCE)
            if one.process.exitcode != 0:
                self.report.violations.append(f"{one.path.name} ended with {one.process.exitcode}")


# what must hold


def disagreements(Task: Any) -> list[str]:
    """Where the counters, the table and the history differ. Of one moment, whatever is written meanwhile."""
    states = Task.xq.machine.states
    rows = pw.fn.COUNT(pw.SQL("*"))
    db = Task._meta.database
    with db.atomic() if isinstance(db, pw.SqliteDatabase) else db.atomic(isolation_level="REPEATABLE READ"):
        stats = Task.xq.stats()
        found = Task.select(Task.status, Task.tube, rows).group_by(Task.status, Task.tube).tuples()
        held = [(state, tube, n) for state, tube, n in found if state in states]
        noted = None
        if Task.xq.machine.settings.history is not None:
            History = Task.xq.History
            moves = History.select(History.source, History.target, rows).where(History.source != History.target)
            moves = moves.group_by(History.source, History.target)  # a state that was entered anew is no transition
            noted = {f"{source}-{target}": n for source, target, n in moves.tuples()}
    wrong = []
    for name, numbers in {"": stats, **stats.tube}.items():
        actual = Counter[str]()
        for state, tube, n in held:
            actual[state] += n if name in ("", tube) else 0
        if numbers.counts != {state: actual[state] for state in states}:
            wrong.append(f"tube {name!r}: counted {numbers.counts}, in the table {dict(actual)}")
        flow = Counter[str]()
        for move, n in numbers.transition.items():
            source, target = move.split("-")
            flow[target] += n
            flow[source] -= n
        if any(flow[state] != actual[state] for state in states):
            wrong.append(f"tube {name!r}: in minus out is {dict(flow)}, in the table {dict(actual)}")
    if noted is not None and noted != stats.transition:
        wrong.append(f"counted {stats.transition}, in the history {noted}")
    return wrong


Away = tuple[float, float]  # the monotonic times before a server was stopped, and after it answered again


@dataclass(frozen=True)
class Hold:
    """One process had one task in hand, from `begin` to `end`; `since` is before the call that took it."""

    since: float
    begin: float
    end: float
    token: str
    again: bool = False  # whether it goes on, since what had ended it was undone

    def is_of_one_hand(self, other: Hold) -> bool:
        """Whether these are no two hands: of what goes on, a transaction that was undone may have had a part."""
        same_session = _session_of(self.token) == _session_of(other.token)
        return self.token == other.token or (same_session and (self.again or other.again))


@dataclass
class Witness:
    """What the logs of all processes say, by key."""

    away_at: Sequence[Away] = ()
    errors: list[str] = field(default_factory=list)
    did: Counter[tuple[str, Any, str | None]] = field(default_factory=Counter)  # event, key, token
    tried: set[tuple[str, Any, str | None]] = field(default_factory=set)
    holds: dict[Any, list[Hold]] = field(default_factory=lambda: defaultdict(list))
    away: dict[Any, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    sessions: dict[str, float] = field(default_factory=dict)  # -> since when it is known
    utubes: dict[Hand, str] = field(default_factory=dict)  # of what was taken
    after: dict[Hand, list[str]] = field(default_factory=dict)  # on_failure, and the keys of the parents

    def hear(self, path: Path, killed: float | None) -> None:
        """One log. What was in hand when the process was killed, or ended, was until then."""
        lines = read(path)
        end = killed or (lines[-1][0] if lines else 0.0)
        having: dict[tuple[Any, str], tuple[float, float, float | None, bool]] = {}
        left: dict[tuple[Any, str], float] = {}  # since when it has them no more
        taking: dict[Any, float] = {}

        def let_go(key: Any, token: str, at: float) -> None:
            since, begin, until, again = having.pop((key, token))
            last = at if until is None else min(at, until - SLACK)
            if last > begin:
                self.holds[key].append(Hold(since, begin, last, token, again))

        for at, what, *fields in lines:
            if what == "has":
                key, token, since, until = fields
                self.sessions.setdefault(_session_of(token), since)
                self.tried.add(("take", key, token))
                if (key, token) in having:
                    let_go(key, token, at)
                # What a transaction had let go of was in hand all the time, when that is undone.
                again = (key, token) in left
                having[key, token] = since, left.pop((key, token), at), until, again
            elif what == "lets go":
                key, token, event, earlier = fields
                self.tried.add((event, key, token))
                if (key, token) in having:
                    let_go(key, token, at if earlier is None else earlier)
                    left[key, token] = at
            elif what == "session":
                self.sessions.setdefault(fields[0], at)
            elif what == "did":
                event, key, token = fields
                self.did[event, key, token] += 1
            elif what == "utube":
                key, token, utube = fields
                self.utubes[key, token] = utube
            elif what == "after":
                key, token, name = fields
                self.after[key, token] = name.split()[1:]
            elif what == "takes away":
                taking.setdefault(fields[0], at)
            elif what == "took away":
                self.away[fields[0]].append((taking.pop(fields[0], 0.0), at))
            elif what == "error" or (what == "trouble" and not self._was_away(at)):
                self.errors.append(f"{path.name}: {fields[0]}")
        for key, token in list(having):
            let_go(key, token, end)
        for key, at in taking.items():
            self.away[key].append((at, float("inf")))

    def _was_away(self, at: float) -> bool:
        """Whether somebody may have noticed then that a server was away."""
        return any(down <= at <= up + AWAY for down, up in self.away_at)

    def _kept(self, hold: Hold) -> Hold:
        """How long it was its own: no session outlives its server.

        Whoever stood still may hear of a take only when the server is gone, and another has the task.
        """
        known = self.sessions[_session_of(hold.token)]
        ends = [down for down, up in self.away_at if known < up and hold.end > down]
        return replace(hold, begin=min(hold.begin, *ends), end=min(ends)) if ends else hold

    def two_hands(self) -> Iterator[str]:
        """Tasks that one process was given while another still had them."""
        for key, holds in self.holds.items():
            latest: Hold | None = None
            for hold in sorted(map(self._kept, holds), key=lambda hold: hold.begin):
                if latest and hold.begin < latest.end and not latest.is_of_one_hand(hold):
                    # A process that stood still may hear of its take when the task was taken away and taken again.
                    begin, since = hold.begin, min(latest.since, hold.since)
                    if not any(at <= begin and over >= since for at, over in self.away.get(key, ())):
                        yield f"task {key} was handed to {hold.token} while {latest.token} had it"
                if latest is None or hold.end > latest.end:
                    latest = hold


def _session_of(token: str) -> str:
    return token.partition("/")[0]


def walks(Task: Any, witness: Witness) -> Iterator[str]:
    """Where the history is no walk through the machine that ends in the table, or is not what the processes did."""
    machine = Task.xq.machine
    legal = {(row.source, row.event, row.target) for row in machine.rows} | {("T", "died", "R"), ("T", "outage", "R")}
    if machine.single:  # put over another task
        legal |= {(source, "put", target) for source in "WR" for target in "WR"}
    state: dict[str, str] = defaultdict(lambda: "X")
    takes: Counter[str] = Counter()
    holder: dict[str, str] = {}
    done: Counter[tuple[str, str, str | None]] = Counter()
    most = machine.turns.limits[None].n if machine.turns else None
    taken: dict[str, set[str]] = defaultdict(set)  # of each utube
    ended: dict[str, set[str]] = defaultdict(set)  # well, by a parent's on_failure "kill"; anyhow, by "run"
    History = Task.xq.History
    columns = (History.key, History.source, History.event, History.target, History.owner)
    for key, source, event, target, owner in History.select(*columns).order_by(History.id).tuples().iterator():
        if state[key] != source:
            yield f"task {key}: {source}-{target} by {event}, and it was {state[key]}"
        if event != "write" and (source, event, target) not in legal:
            yield f"task {key}: {event} does not move {source} to {target}"
        if source == "X":
            takes[key] = 0
        for others in taken.values():
            others.discard(key)
        if most and target == "T" and (utube := witness.utubes.get((int(key), owner))):
            taken[utube].add(key)
            if len(taken[utube]) > most:
                yield f"of utube {utube} {sorted(taken[utube])} are taken"
        if target in "DZ" or event == "ack":
            ended["kill"].add(key)
        if target in "XDZB":
            ended["run"].add(key)
        if target == "T" and int(key) not in witness.away:  # else another call may have released it
            how, *parents = witness.after.get((int(key), owner), ("run",))
            if early := set(parents) - ended[how]:
                yield f"task {key} was taken before {sorted(early)} had ended"
        if event == "release" and ("take", int(key), owner) not in witness.tried:
            takes[key] -= 1  # its result did not arrive: that is no attempt
        if target == "T":
            takes[key] += 1
            holder[key] = owner
        elif source == "T" and event != "write" and holder.pop(key, None) != owner:
            yield f"task {key}: {event} ended the take {owner}, and it was another's"
        state[key] = target
        done[event, key, None if source == "X" else owner] += 1
    attempts = "attempts" in machine.roles
    found = Task.select(Task.id, Task.status, Task.attempts).where(Task.status << machine.states).tuples()
    rows = {str(key): (status, n) for key, status, n in found}
    for key in rows.keys() | state.keys():
        status, n = rows.get(key, ("X", 0))
        if state[key] != status:
            yield f"task {key} is {status}, and by the history {state[key]}"
        if attempts and status != "X" and n != takes[key]:
            yield f"task {key} counts {n} takes, and by the history {takes[key]}"
    for (event, key, token), n in witness.did.items():
        seen = done[event, str(key), token]
        if event != "group" and (seen < n or (token and seen > 1)):
            yield f"{event} of {key} by {token} returned {n} times, and is {seen} times in the history"
    for event, key, token in done:
        if event == "ack" and (event, int(key), token) not in witness.tried:
            yield f"{event} of {key} by {token} is in the history, and nobody called it"


def judge(Task: Any, plan: Plan, logs: Mapping[Path, float | None], away: Sequence[Away] = ()) -> list[str]:
    """What does not hold: nothing, it is hoped. `logs` tells of each when its process was killed."""
    witness = Witness(away)
    for path, killed in logs.items():
        witness.hear(path, killed)
    wrong = [*witness.errors, *disagreements(Task), *Task.xq.check(), *witness.two_hands()]
    if "history" in plan.features:
        wrong += walks(Task, witness)
    counts = Task.xq.stats().counts
    wrong += [f"{n} tasks were left in {state}" for state, n in counts.items() if n and state != "D"]
    wrong += [f"session {session} was left" for session, _ in Task.xq.sessions()]
    wrong += [f"{session} was left waiting for {key}" for key, session, _ in Task.xq.waiting()]
    db = Task._meta.database
    if "after" in plan.features:
        wrong += [f"link {link} was left" for link in db.execute_sql("SELECT * FROM task_xq_after").fetchall()]
    if "groups" in plan.features:
        wrong += [f"group {name} was left open" for name in Task.xq.groups()]
        puts = Counter(name for (name,) in db.execute_sql("SELECT name FROM sequel").fetchall())
        began = {name for event, name, _ in witness.did if event == "group"}
        wrong += [f"the then of {name} was put {puts[name]} times" for name in {*puts, *began} if puts[name] != 1]
    return wrong + damages(db)


def damages(db: pw.Database) -> list[str]:
    """What the database says of its files, where it can be asked."""
    if isinstance(db, pw.SqliteDatabase):
        asked = "PRAGMA integrity_check"
    elif isinstance(db, pw.MySQLDatabase):
        asked = f"CHECK TABLE {', '.join(f'`{table}`' for table in db.get_tables())} EXTENDED"
    else:
        return []
    return [str(row) for row in db.execute_sql(asked).fetchall() if row[-1].lower() != "ok"]


def blow(seed: str, name: str, isolation: str, folder: Path, processes: int = 8, tasks: int = 400) -> None:
    """Run a storm as a test, and assert that it violates nothing."""
    if name in SERVERS and (reason := SERVERS[name].missing()):
        pytest.skip(reason)
    of = plan(seed, processes, tasks, kills=4, stops=1, restarts=1, isolation=isolation)
    with ground(name, folder, isolation) as (db, server):
        report = Storm(db, of, folder, server=server).run()
    assert report.violations == []
    assert report.kills >= 4
    assert report.tasks >= tasks
    assert len(report.restarts) == (name in SERVERS)
