"""Users of real servers who may do some things with a queue and not others."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.servers import Postgres
from tests.steps import PATIENCE, a_second_passes
from tests.support.life import end_threads
from xq.adapters.peewee.connections import database_of
from xq.adapters.peewee.plain import queue_of
from xq.database.database import Database
from xq.engine import stats
from xq.tubes import Tubes
from xq.workers.attempt import RetriedCalls, Stop

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

    def user(self, on_task: str = "", on_others: str = ALL, to_wait: str = ALL) -> str:
        """A new user; with rights on the table of the tasks, where these are named, and on the tables of xq."""
        on = {"task": on_task, **dict.fromkeys(("task_xq_wait", "xq_session", "xq_alive"), to_wait)}
        user = f"u{next(_numbers)}"
        self.server.run(f"CREATE {self.role} {user}{' LOGIN' if self.is_postgres else ''}", self.name)
        self.users.append(user)
        if on_task:
            for table in self.owner.get_tables():
                self.server.run(f"GRANT {on.get(table, on_others)} ON {table} TO {user}", self.name)
            if self.is_postgres:
                self.server.run(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}", self.name)
        return user

    @contextmanager
    def connected(self, user: str) -> Iterator[pw.Database]:
        with closing(self.server.peewee(self.name, user=user)) as db:
            try:
                yield db
            finally:
                database_of(db).sessions.exit()

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
            mine.put_many([{"name": "w"}] * 2)
            if role == "producer":
                assert is_denied(partial(mine.put, {"name": "w"}, wait=PATIENCE))
                assert is_denied(mine.take)
                assert is_denied(mine.kill, put.id)
                assert is_denied(db.execute_sql, "DELETE FROM task_xq_count")
            else:
                assert mine.put({"name": "w"}, wait=0.01)[1] is False
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


@pytest.mark.parametrize("land", ["postgres"], indirect=True)
def test_users_go_on_where_install_brings_an_installed_queue_a_table_and_a_sequence(land):
    queue = land.queue()
    web, work = land.user("SELECT, INSERT", "SELECT, INSERT", "SELECT"), land.user(ALL)
    land.server.run("DROP TABLE task_xq_back", land.name)  # an earlier version had none, nor its sequence
    queue.install()
    with land.connected(web) as db:
        land.of(db).put({"name": "w"})
    with land.connected(work) as db:
        mine = land.of(db)
        mine.release(mine.take())
        mine.ack(mine.take())
    may = "SELECT has_sequence_privilege(%s, 'task_xq_high', 'UPDATE')"
    assert [land.owner.execute_sql(may, (user,)).fetchone() for user in (web, work)] == [(False,), (True,)]


@pytest.mark.parametrize("land", ["postgres"], indirect=True)  # MariaDB does not show a table without a right on it
def test_a_user_who_may_only_put_is_told_of_another_definition_in_a_transaction_that_goes_on(land, monkeypatch):
    land.queue("plain")
    user = land.user("SELECT, INSERT", "SELECT, INSERT", "SELECT")
    land.server.run(f"REVOKE ALL ON xq_generation FROM {user}", land.name)
    with land.connected(user) as db:
        mine = land.of(db)
        mine.put({"name": "w"})
        land.kind = {"keep": True}, ()
        land.of(land.owner).install()
        a_second_passes(monkeypatch)
        with db.atomic():
            with pytest.raises(xq.NotInstalled, match="feature 'keep' is on there"):
                mine.put({"name": "w"})
            assert db.execute_sql("SELECT COUNT(*) FROM task").fetchone() == (1,)


def test_a_user_who_may_only_read_looks_for_problems(land):
    land.queue("timed").put({"name": "a"})
    with land.connected(land.user("SELECT", "SELECT", "SELECT")) as one:
        mine = land.of(one)
        assert mine.check() == []
        assert mine.doctor()[-1].what == "ready tasks: 1, and no process takes"


def test_select_alone_is_enough_to_name_a_queue_by_a_url_and_to_look_at_it(land, monkeypatch):
    monkeypatch.setattr(stats, "MANY", 0)  # a look at the counters rolls them up, if the user may
    queue = land.queue("all")
    queue.put({"name": "a"})
    url = land.server.url(land.name).replace(land.server.USER, land.user("SELECT", "SELECT", "SELECT"))
    mine = queue_of(url, "task")
    with mine.model._meta.database.connection_context():
        assert (mine.stats().counts["R"], mine.find().tasks[0].name, mine.check()) == (1, "a", [])


@pytest.mark.parametrize("kind", QUEUES)
def test_who_may_only_put_puts_and_waits_for_nothing(land, kind):
    queue = land.queue(kind)
    task = {"name": "w", **({"utube": "w"} if kind == "utube" else {})}
    with land.connected(land.user("SELECT, INSERT", to_wait="SELECT")) as db:
        mine = land.of(db)
        mine.put(task, **({"delay": 60, "ttl": 90} if kind == "all" else {}))
        mine.put_many([task] * 2)
        with db.atomic():
            mine.put(task)
            mine.put_many([task] * 2)
        assert is_denied(partial(mine.put, task, wait=PATIENCE))
        assert sum(mine.stats().counts.values()) == mine.count() == 6
        if kind == "all":
            mine.put_many([task] * 94)
            land.owner.execute_sql("UPDATE task SET runat = 1")  # it may not expire what is due to make room
            for block in (nullcontext(), db.atomic()):
                with block:
                    with pytest.raises(xq.Full) as full:
                        mine.put(task, timeout=0)
                    assert DENIED.search(str(full.value.__cause__))
                    assert mine.count() == 100, "a transaction goes on"
            queue.put(task, timeout=0)  # the owner may
            assert mine.count("R") == 2, "one was delayed"
    assert queue.check() == []


def gone(db: pw.Database) -> Database:
    """The database of a connection, as at the end of its process; only the test reaps."""
    end_threads()
    found = database_of(db)
    for session in found.sessions.live():
        session.release()
    return found


def test_a_process_takes_from_one_queue_and_may_only_put_into_another(land, caplog):
    caplog.set_level(logging.INFO, "xq")
    task = land.queue("timed")
    other: Any = xq.upgrade(live(land.owner).model(table_name="other"), {"status": "status"}, methods=False)
    land.owner.create_tables([other.model])
    kept, back = task.put({"name": "kept"}), other.put({"name": "back"})
    with land.connected(land.user("SELECT, INSERT")) as db:
        puts, takes = land.of(db), xq.upgrade(live(db).model(table_name="other"), {"status": "status"}, methods=False)
        puts.put({"name": "more"})
        takes.put({"name": "more"})
        assert (task.take().id, other.take().id) == (kept.id, back.id)
        takes.take(PATIENCE)
        owners, mine = gone(land.owner), database_of(db)
        for _ in range(3):
            mine.reaper.reap()
        assert mine.sessions.reaped == 1, "it does not try again what it may not do"
        assert (task.peek(kept.id).status, other.peek(back.id).status) == ("T", "R")
        owners.reaper.reap()
    assert task.peek(kept.id).status == "R"
    told = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, message in told if "may not" in message] == ["WARNING"]
    assert len([level for level, message in told if "has ended" in message]) == 1


def test_a_denied_move_of_due_tasks_is_tried_again_after_a_pause(land):
    queue = land.queue("all")
    queue.put({"name": "due"}, ttl=0)
    with land.connected(land.user("SELECT, INSERT")) as db:
        maintenance = land.of(db).parts.maintenance
        due = maintenance.timers.left()
        assert is_denied(maintenance.expire, due)
        assert maintenance.expire(due) > 0
    queue.sweep()
    assert queue.count() == 0


def test_a_process_takes_from_one_tube_and_may_only_put_into_another(land):
    tubes: Any = Tubes(land.owner)
    for name in ("mine", "other"):
        tubes.create_tube(name, "fifo").put(name)
    user, table = land.user(ALL), tubes.tube["other"].model._meta.table_name
    land.server.run(f"REVOKE UPDATE, DELETE ON {table} FROM {user}", land.name)
    tubes.tube["mine"].take()
    tubes.tube["other"].take()
    with land.connected(user) as db:
        theirs: Any = Tubes(db).tube
        owners = gone(land.owner)
        for _ in range(3):
            database_of(db).reaper.reap()
        assert database_of(db).sessions.reaped == 1
        assert is_denied(theirs["other"].take)
        assert theirs["mine"].take(0).data == "mine"
        owners.reaper.reap()
        assert tubes.tube["other"].take(0).data == "other"


def test_a_denied_privilege_ends_a_run_that_is_to_end_and_a_worker_asks_ever_less_often(land):
    queue = land.queue()
    queue.put({"name": "w"})
    user = land.user("SELECT, INSERT")

    class Impatient(Stop):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return False

    pauses = list[Any]()
    with land.connected(user) as db:
        mine = land.of(db)
        mine.worker(print)
        for options in ({"until_empty": True}, {"max_tasks": 1}):
            assert is_denied(lambda options=options: mine.run(**options))
        daemon: Any = RetriedCalls(mine.parts.named, Impatient(), ends=False)
        for _ in range(8):
            with pytest.raises(pw.PeeweeException) as denied:
                mine.take()
            daemon.wait_for_the_database(denied.value)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
