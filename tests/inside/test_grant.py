"""Users of real servers who may do some things with a queue and not others."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.servers import Postgres
from tests.steps import PATIENCE, Work, eventually
from xq.adapters.peewee.connections import Place
from xq.adapters.peewee.tables import queue_of
from xq.runtime.workers.attempts import Attempts
from xq.sessions import session as sessions

DENIED = re.compile(r"permission denied|must be owner|\((1142|1143|1227|1044|1370),")
DOCS = Path(__file__).parents[2] / "docs" / "databases.md"
ALL = "SELECT, INSERT, UPDATE, DELETE"
FIELDS = ("runat", "deadline", "priority", "tube", "ttl", "ttr")

# Kinds of queues: features, roles beside status.
QUEUES: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "plain": ({}, ()),
    "all": (
        {"delayed": True, "buried": True, "zombie": 60, "ttl": True, "ttr": True, "limit": 100, "history": 3600},
        (*FIELDS, "owner", "attempts"),
    ),
    "timed": ({"ttr": 60, "limit": 100}, ("runat",)),
    "utube": ({"utube": True, "lifetime": True, "buried": "any", "events": True}, (*FIELDS, "utube", "owner")),
}

_numbers = itertools.count(1)


class Land:
    """A database on a server with a queue, and users of that server."""

    def __init__(self, server: Any, name: str) -> None:
        self.server, self.name = server, name
        self.is_postgres = isinstance(server, Postgres)
        self.role = "ROLE" if self.is_postgres else "USER"
        self.owner = server.peewee(name, **({} if self.is_postgres else {"user": "root"}))
        self.users: list[str] = []
        self.kind = QUEUES["plain"]

    def queue(self, kind: str = "plain") -> Any:
        """The queue, installed, as its owner sees it."""
        self.kind = QUEUES[kind]
        queue = self.of(self.owner)
        self.owner.create_tables([queue.model])
        return queue

    def of(self, db: pw.Database) -> Any:
        """The queue as a user of this connection sees it."""
        features, roles = self.kind
        return xq.upgrade(live(db).model(), {role: role for role in ("status", *roles)}, features, methods=False)

    def user(self, on_task: str = "", on_others: str = "SELECT, INSERT, UPDATE, DELETE") -> str:
        """A new user; with rights on the table of the tasks, where these are named, and on the tables of xq."""
        user = f"u{next(_numbers)}"
        self.server.run(f"CREATE {self.role} {user}{' LOGIN' if self.is_postgres else ''}", self.name)
        self.users.append(user)
        if on_task:
            for table in self.owner.get_tables():
                rights = on_task if table == "task" else on_others
                self.server.run(f"GRANT {rights} ON {table} TO {user}", self.name)
            rights = "USAGE ON ALL SEQUENCES IN SCHEMA public"
            if not self.is_postgres:
                rights = f"CREATE TEMPORARY TABLES ON `{self.name}`.*"
            self.server.run(f"GRANT {rights} TO {user}", self.name)
        return user

    @contextmanager
    def connected(self, user: str) -> Iterator[pw.Database]:
        with closing(self.server.peewee(self.name, user=user)) as db:
            try:
                yield db
            finally:
                sessions.of(Place.of(db)).exit()

    def remove(self) -> None:
        self.owner.close()
        for user in self.users:
            if self.is_postgres:
                self.server.run(f"DROP OWNED BY {user}", self.name)
            self.server.run(f"DROP {self.role} {user}", self.name)


@pytest.fixture(params=SERVERS)
def land(request):
    with database_on(SERVERS[request.param]) as (server, name):
        land = Land(server, name)
        try:
            yield land
        finally:
            land.remove()


def is_denied(call: Callable[..., object], *values: object) -> bool:
    """Whether the database refuses a call for want of a right."""
    try:
        call(*values)
    except pw.PeeweeException as error:
        if DENIED.search(str(error)):
            return True
        raise
    return False


@pytest.mark.parametrize("land", ["postgres"], indirect=True)
def test_the_documented_rights_are_enough_for_a_producer_and_an_operator(land):
    queue = land.queue("timed")
    for role in ("producer", "operator"):
        user = land.user()
        (script,) = re.findall(rf"```sql\n-- an? {role}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        for sql in script.replace("page", "task").replace("web", user).splitlines():
            land.server.run(sql, land.name)
        with land.connected(user) as db:
            mine = land.of(db)
            put = mine.put({"name": role})
            assert mine.put({"name": "w"}, wait=0.01)[1] is False
            assert mine.count("R") == 2
            if role == "producer":
                assert is_denied(mine.take)
                assert is_denied(mine.kill, put.id)
                assert is_denied(db.execute_sql, "DELETE FROM task_xq_count")
            else:
                mine.ack(mine.take())
                mine.snatch(mine.take())
                mine.configure(session_ttr=0)
                mine.recount()
                mine.reset()
                mine.act("kill", "state:T", actor="ann", reason="bad deploy").run()
                mine.pause(actor="ann")
                mine.resume(actor="ann")
                with mine.acting("ann"):
                    mine.truncate()
            assert is_denied(mine.uninstall)
        queue.truncate()
    assert queue.check() == []


def test_a_user_who_may_only_read_looks_for_problems(land):
    land.queue("timed").put({"name": "a"})
    with land.connected(land.user("SELECT")) as one:
        mine = land.of(one)
        assert mine.check() == []
        assert mine.doctor()[-1].what == "ready tasks: 1, and no process takes"


def test_select_alone_is_enough_to_name_a_queue_by_a_url_and_to_look_at_it(land):
    queue = land.queue("all")
    queue.put({"name": "a"})
    url = land.server.url(land.name).replace(land.server.USER, land.user("SELECT", "SELECT"))
    mine = queue_of(url, "task")
    with mine.model._meta.database.connection_context():
        assert (mine.stats().counts["R"], mine.find().tasks[0].name, mine.check()) == (1, "a", [])


@pytest.mark.parametrize("kind", ["all", "utube", "plain"])
def test_a_producer_hears_of_the_end_of_its_task_and_a_consumer_of_the_task(land, kind, caplog):
    queue = land.queue(kind)
    producer, consumer = land.user("SELECT, INSERT"), land.user(ALL)
    with land.connected(producer) as one, land.connected(consumer) as other:
        puts_it, takes_it = land.of(one), land.of(other)
        task = {"name": "w", **({"utube": "w"} if kind == "utube" else {})}
        putting = Work(one, lambda: puts_it.put(task, wait=PATIENCE))
        takes_it.ack(takes_it.take(PATIENCE))
        assert putting.result()[1] is True
        # What the session of the producer leaves is cleared away by whoever may move tasks.
        sessions.of(Place.of(one)).exit()

        def nothing_is_left() -> bool:
            sessions.of(Place.of(other)).reaper.reap()
            left = {uuid for (uuid,) in land.owner.execute_sql("SELECT DISTINCT uuid FROM xq_session").fetchall()}
            return left <= {session.uuid for session in sessions.of(Place.of(other)).live()}

        eventually(nothing_is_left)
        if kind == "all":
            puts_it.put_many([{"name": "x"}] * 100)
            with pytest.raises(xq.Full):
                puts_it.put({"name": "y"}, timeout=0.01)
    assert queue.check() == []
    assert [record.message for record in caplog.records if DENIED.search(record.message)] == []


def test_a_denied_privilege_ends_a_run_that_is_to_end_and_a_worker_asks_ever_less_often(land):
    queue = land.queue()
    queue.put({"name": "w"})
    user = land.user("SELECT, INSERT")

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return False

    pauses = list[Any]()
    with land.connected(user) as db:
        mine = land.of(db)
        mine.worker(print)
        for options in ({"until_empty": True}, {"max_tasks": 1}):
            assert is_denied(lambda options=options: mine.run(**options))
        daemon: Any = Attempts(mine.handlers[None], mine.adapter.finish, Stop(), ends=False)
        for _ in range(8):
            with pytest.raises(pw.PeeweeException) as denied:
                mine.take()
            daemon.wait_for_the_database(denied.value)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
