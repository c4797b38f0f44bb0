"""What `grant` gives: users of real servers, each of whom can do what its role says, and nothing else."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker, database_on
from tests.steps import PATIENCE, STUCK, eventually
from tests.support.grant import QUEUES, Land, _numbers
from xq.adapters.databases.rights import RIGHTS
from xq.sessions import session as sessions
from xq.tubes import Tubes

ROLES = ("reader", "producer", "consumer", "operator")
DENIED = re.compile(r"permission denied|must be owner|\((1142|1143|1227|1044|1370),")


@pytest.fixture(params=SERVERS)
def land(request):
    with database_on(SERVERS[request.param]) as (server, name):
        land = Land(server, name)
        try:
            yield land
        finally:
            land.remove()


def is_denied(call: Callable[..., object], *values: Any, **options: Any) -> bool:
    """Whether the database refuses a call for want of a right."""
    try:
        call(*values, **options)
    except pw.PeeweeException as error:
        if DENIED.search(str(error)):
            return True
        raise
    return False


def is_denied_or_unseen(call: Callable[..., object], *values: Any) -> bool:
    """As `is_denied`; on MariaDB who has no right on a table does not see that it is there."""
    try:
        return is_denied(call, *values)
    except xq.NotInstalled:
        return True


def put(queue: Any, **task: Any) -> Any:
    """A task, put in the way that this kind of queue has most to do with."""
    task = {"name": "a", **task}
    if "utube" in queue.machine.roles:
        task = {"utube": "u", **task}
    if "unique" in queue.machine.roles:
        task = {"job": f"j{next(_numbers)}", **task}
    return queue.put(task)


def taken(queue: Any) -> Any:
    if not (task := queue.take()):
        put(queue)
        task = queue.take()
    return task


def puts(queue: Any) -> None:
    features = {feature.name for feature in queue.machine.features}
    put(queue)
    queue.put_many([{"name": "b"}, {"name": "c"}])
    if "delayed" in features:
        queue.put({"name": "d"}, delay=1000)
    if "limit" in features:
        queue.put({"name": "e"}, timeout=1)
    if "unique" in features:
        job = put(queue).job
        assert queue.put({"job": job}, on_conflict="skip").job == job
        assert queue.put({"job": job, "name": "f"}, on_conflict="replace").name == "f"
        with pytest.raises(xq.Duplicate):
            queue.put({"job": job})
    told: list[Any] = []
    hears = queue.on_change(lambda *change: told.append(change))
    with queue.model._meta.database.atomic():
        put(queue)
    assert len(told) == 1
    queue.off_change(hears)


def waits(queue: Any) -> None:
    task = {"name": "w", **({"utube": "w"} if "utube" in queue.machine.roles else {})}
    assert queue.put(task, wait=0.01)[1] is False


def looks(queue: Any) -> None:
    queue.stats(), queue.count(), queue.by_state("R"), queue.taken(), queue.sessions(), queue.waiting()
    queue.check()
    if rows := queue.by_state("R", 1):
        queue.peek(rows[0])
    if queue.machine.settings.history is not None:
        queue.history()


def works(queue: Any) -> None:
    """Takes, and all that is done with what was taken."""
    features = {feature.name for feature in queue.machine.features}
    queue.ack(taken(queue), update={"size": 2})
    queue.release(taken(queue))
    if "buried" in features:
        queue.bury(taken(queue))
    if "reject" in features:
        queue.call("reject", taken(queue))
    if features & {"ttr", "lifetime"}:
        queue.touch(taken(queue), 5)
    queue.wait(put(queue), 0.01)
    queue.release_all()
    with queue.model._meta.database.atomic():
        queue.release(taken(queue))
        # A utube of which nobody else has heard.
        put(queue, **({"utube": f"u{next(_numbers)}"} if "utube" in queue.machine.roles else {}))
        queue.ack(taken(queue))


def sweeps(queue: Any) -> None:
    put(queue)
    if "ttl" in {feature.name for feature in queue.machine.features}:
        queue.put({"name": "t"}, ttl=1e-6)
    queue.sweep()
    store, dialect = queue.adapter.store, queue._database.dialect
    dialect.roll_up(store)


def joins(queue: Any) -> None:
    with queue.session() as session:
        taken(queue)
        session.close()  # where the `with` ends it, a process that looks at it just then is left to end it


def operates(queue: Any) -> None:
    features = {feature.name for feature in queue.machine.features}
    if "buried" in features:
        queue.bury(taken(queue))
        queue.dig(n=1)
    queue.snatch(taken(queue))
    queue.recount()
    queue.reset()
    queue.configure(session_ttr=0)
    queue.kill(put(queue))
    queue.truncate()


# What each of the roles can do, and those before it cannot.
CALLS: Mapping[str, tuple[Callable[[Any], object], ...]] = {
    "reader": (looks,),
    "producer": (puts, waits),
    "consumer": (works, sweeps, joins),
    "operator": (operates,),
}


def allowed(role: str) -> list[Callable[[Any], object]]:
    return [call for one in ROLES[: ROLES.index(role) + 1] for call in CALLS[one]]


@pytest.mark.parametrize("kind", QUEUES)
def test_each_role_can_do_what_it_is_for(land, kind):
    queue = land.queue(kind)
    for role in ROLES:
        user = land.user()
        queue.grant(user, role)
        with land.connected(user) as db:
            for call in allowed(role):
                call(land.of(db))
        assert queue.check() == [], role


@pytest.mark.parametrize("kind", QUEUES)
def test_no_role_can_do_what_only_a_later_one_is_for(land, kind):
    queue = land.queue(kind)
    features = {feature.name for feature in queue.machine.features}
    task, other = put(queue), put(queue, utube="v") if "utube" in features else put(queue)
    held = queue.take()
    beyond: dict[str, list[Callable[[Any], object]]] = {
        "reader": [put, lambda q: q.put({"name": "x"}, wait=0.01)],
        "producer": [
            lambda q: q.take(),
            lambda q: q.take(0.01),
            lambda q: q.kill(other.id),
            lambda q: q.snatch(held.id),
            lambda q: q.release_all(),
            lambda q: q.truncate(),
        ],
        "consumer": [lambda q: q.configure(session_ttr=1), lambda q: q.uninstall()],
        "operator": [lambda q: q.uninstall()],
    }
    before = queue.peek(task), queue.peek(other)
    for at, role in enumerate(ROLES):
        user = land.user()
        queue.grant(user, role)
        with land.connected(user) as db:
            mine = land.of(db)
            for later in ROLES[at:]:
                for number, call in enumerate(beyond[later]):
                    if role == "producer" and "unique" in features and later == "producer" and number in (0, 1, 3, 4):
                        continue  # whoever may replace a task may write its columns
                    assert is_denied(call, mine), (role, later, number)
    assert (queue.peek(task), queue.peek(other)) == before
    assert queue.taken()[0][0] == held.id
    assert queue.check() == []


@pytest.mark.parametrize("kind", ["all", "unique"])
def test_a_producer_puts_in_bulk_when_the_owner_has_made_the_tables(land, kind):
    queue, user = land.queue(kind), land.user()
    queue.grant(user, "producer")
    with land.connected(user) as db:
        bulk = land.of(db).pipeline.bulk()
        with pytest.raises(xq.ConfigurationError, match="no tables yet to stage jobs in"):
            bulk.begin(["name"])
        queue.pipeline.bulk().begin(["name"])
        queue.grant(user, "producer")
        for name in ("tonight", None):
            job = bulk.begin(["name", "delay"], name)
            assert job.commit([job.stage([[["a", "b"], [None, 60]]])]) == 2
    assert queue.count("W") == 2
    assert queue.check() == []


def _rights(statements: list[str]) -> list[tuple[str, str]]:
    """What was granted on tables, one by one: (a right, the table)."""
    found = []
    for sql in statements:
        granted = re.fullmatch(r"GRANT (.*) ON (\S+) TO .*", sql)
        if granted and "SEQUENCE" not in sql and "SCHEMA" not in sql and "TEMPORARY" not in sql:
            found += [(right, granted[2]) for right in re.findall(r"\w+(?: \([^)]*\))?", granted[1])]
    return found


# Without these, a row stays where a wait or a session has ended, until others clear it away.
QUIET = {("DELETE", "task_xq_wait"), ("DELETE", "xq_alive")}


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        *(("all", role) for role in ROLES[1:]),
        *(("utube", role) for role in ROLES[1:]),
        ("unique", "producer"),
        ("plain", "consumer"),
        ("kept", "consumer"),
        ("own", "consumer"),
    ],
)
def test_each_right_is_needed(land, kind, role):
    queue = land.queue(kind)
    user = land.user()
    rights = _rights(queue.grant(user, role))
    with land.connected(user) as db:
        assert not any(is_denied(call, land.of(db)) for call in allowed(role))
    queue.truncate()
    idle = []
    for right, table in rights:
        land.server.run(f"REVOKE {right} ON {table} FROM {land.quoted(user)}", land.name)
        try:
            with land.connected(user) as db:
                failed = any(is_denied_or_unseen(call, land.of(db)) for call in allowed(role))
        except pw.PeeweeException as error:  # as the session ended
            failed = bool(DENIED.search(str(error)))
        if not failed and (right, table.strip('"`')) not in QUIET:
            idle.append((right, table))
        land.server.run(f"GRANT {right} ON {table} TO {land.quoted(user)}", land.name)
        queue.truncate()
    assert idle == []


def test_who_may_not_move_what_is_due_is_told_so(land):
    queue, user = land.queue("all"), land.user()
    queue.grant(user, "consumer")
    land.server.run(f"REVOKE DELETE ON task FROM {land.quoted(user)}", land.name)
    with land.connected(user) as db:
        mine = land.of(db)
        queue.put({"name": "a"}, ttl=1e-6)
        assert is_denied(mine.sweep)


@pytest.mark.parametrize("land", ["postgres"], indirect=True)
def test_a_policy_that_keeps_one_row_where_it_is_stops_no_other(land):
    queue, user = land.queue("all"), land.user()
    queue.grant(user, "consumer")
    land.server.run("ALTER TABLE task ENABLE ROW LEVEL SECURITY", land.name)
    refused = "WITH CHECK (NOT (name = 'bad' AND status = 'R'))"
    land.server.run(f"CREATE POLICY p ON task USING (true) {refused}", land.name)
    with land.connected(user) as db:
        mine = land.of(db)
        for name in ("bad", "good"):
            mine.put({"name": name}, delay=1e-6)
        assert eventually(lambda: [mine.sweep(), mine.count("R")][1] == 1)
        assert [found.name for found in mine.by_state("W")] == ["bad"]


def test_a_producer_can_take_and_delete_and_count_nothing_by_plain_sql(land):
    queue = land.queue("all")
    task, user = put(queue), land.user()
    queue.grant(user, "producer")
    with land.connected(user) as db:
        for sql in (
            "UPDATE task SET status = 'T'",
            "UPDATE task SET name = 'x'",
            "UPDATE task SET id = id + 1",
            "DELETE FROM task",
            "TRUNCATE TABLE task",
            "DROP TABLE task",
            "ALTER TABLE task ADD COLUMN x INTEGER",
            "INSERT INTO task_xq_count (tube, source, target, n) VALUES ('', 'X', 'R', 1)",
            "DELETE FROM task_xq_count",
            "UPDATE task_xq_wait SET event = 'ack', target = 'X'",
            "INSERT INTO task_xq_history (at_us, event) VALUES (1, 'ack')",
            "DELETE FROM task_xq_history",
            "UPDATE xq_queue SET fingerprint = ''",
            "DELETE FROM xq_queue",
            "INSERT INTO xq_setting (name, value) VALUES ('session_ttr', 9)",
            f"DROP TRIGGER task_xq_insert{' ON task' if land.is_postgres else ''}",
        ):
            assert is_denied(db.execute_sql, sql), sql
        db.execute_sql("INSERT INTO task (name, status, size, attempts) VALUES ('plain', 'R', 0, 0)")
    assert queue.peek(task) == task
    assert queue.stats().counts["R"] == 2
    assert queue.check() == []


@pytest.mark.parametrize("kind", ["all", "utube", "plain"])
def test_a_producer_hears_of_the_end_of_its_task_and_a_consumer_of_the_task(land, kind, caplog):
    queue = land.queue(kind)
    producer, consumer = land.user(), land.user()
    queue.grant(producer, "producer")
    queue.grant(consumer, "consumer")
    with land.connected(producer) as one, land.connected(consumer) as other:
        puts_it, takes_it = land.of(one), land.of(other)
        ended: list[Any] = []
        task = {"name": "w", **({"utube": "w"} if kind == "utube" else {})}

        def wait() -> None:
            ended.append(puts_it.put(task, wait=PATIENCE))
            one.close()

        thread = threading.Thread(target=wait)
        thread.start()
        found = takes_it.take(PATIENCE)
        takes_it.ack(found)
        thread.join(STUCK)
        assert [processed for _, processed in ended] == [True]
        # What the session of the producer leaves is cleared away by whoever may move tasks.
        sessions.of(one).exit()

        def nothing_is_left() -> bool:
            sessions.of(other).reaper.reap()
            left = {uuid for (uuid,) in land.owner.execute_sql("SELECT DISTINCT uuid FROM xq_session").fetchall()}
            return left <= {session.uuid for session in sessions.of(other).live()}

        eventually(nothing_is_left)
        if kind == "all":
            for _ in range(100):
                puts_it.put({"name": "x"})
            with pytest.raises(xq.Full):
                puts_it.put({"name": "y"}, timeout=0.01)
            assert puts_it.stats().counts["R"] == 100
    assert queue.check() == []
    assert [record.message for record in caplog.records if DENIED.search(record.message)] == []


def test_what_a_consumer_held_comes_back_when_its_session_ends(land):
    queue = land.queue("all")
    users = land.user(), land.user()
    for user in users:
        queue.grant(user, "consumer")
    put(queue)
    with land.connected(users[0]) as one:
        task = land.of(one).take()
    with land.connected(users[1]) as other:  # the first has ended
        assert land.of(other).take(60).id == task.id


def test_what_is_installed_otherwise_is_granted_anew(land):
    queue, user = land.queue("plain"), land.user()
    queue.grant(user, "producer")
    queue.install()
    with land.connected(user) as db:
        put(land.of(db))
    queue.reconfigure({"history": True})
    queue.grant(user, "producer")
    land.kind = {"history": True}, ()
    with land.connected(user) as db:
        puts(land.of(db))
    assert queue.check() == []


def test_sql_that_was_not_run_gives_the_rights_when_it_is(land):
    queue, user = land.queue("all"), land.user()
    for sql in queue.grant(user, "consumer", run=False):
        land.owner.execute_sql(sql.replace("%", "%%"))
    with land.connected(user) as db:
        works(land.of(db))


def test_users_have_names_of_all_kinds(land):
    names = ['a"b', "a'b", "a`b", "a;--", "sélect", "SELECT", "a b", "a%b", "a\\b"]
    queue = land.queue()
    for name in names:
        user = land.user(name)
        told = queue.grant(user if land.is_postgres else f"{user}@%", "producer", run=False)
        with land.connected(user) as db:
            assert is_denied(db.execute_sql, "SELECT * FROM task")
        assert queue.grant(user if land.is_postgres else f"{user}@%", "producer") == told
        with land.connected(user) as db:
            assert land.of(db).put({"name": name}).name == name


def test_who_is_nobody_or_has_no_such_role_is_refused_in_words(land):
    queue = land.queue()
    with pytest.raises(pw.PeeweeException):
        queue.grant("nobody there", "producer")
    for user in ("", "a\0b", "\ud800"):
        with pytest.raises(xq.core.errors.BadValue):
            queue.grant(user, "producer")
    wrong: list[tuple[Any, Any]] = [(None, "producer"), (7, "producer"), ("u", None)]
    for name, role in wrong:
        with pytest.raises(xq.core.errors.BadType):
            queue.grant(name, role)
    with pytest.raises(xq.core.errors.BadValue, match="reader, producer, consumer or operator, not 'king'"):
        queue.grant("u", "king")
    if land.is_postgres:
        with pytest.raises(xq.core.errors.BadValue, match="63 bytes"):
            queue.grant("u" * 64, "producer")
    with pytest.raises(xq.core.errors.BadValue, match="everybody"):
        queue.grant("public", "producer")


@pytest.mark.parametrize("land", ["mariadb"], indirect=True)
def test_a_role_of_mariadb_is_a_user_too_and_a_pattern_names_no_other_database(land):
    queue, role, user = land.queue(), f"r{next(_numbers)}", land.user()
    land.server.run(f"CREATE ROLE {role}")
    try:
        statements = queue.grant(role, "producer")
        assert f"ON `{land.name}`.*".replace("_", "\\_") in statements[-1]
        land.server.run(f"GRANT {role} TO {user}")
        land.server.run(f"SET DEFAULT ROLE {role} FOR {user}")
        with land.connected(user) as db:
            assert land.of(db).put({"name": "a"}).name == "a"
    finally:
        land.server.run(f"DROP ROLE {role}")


@pytest.mark.parametrize("land", ["postgres"], indirect=True)
def test_no_function_of_a_users_own_runs_with_the_rights_of_the_owner(land):
    queue, user = land.queue("all"), land.user()
    queue.grant(user, "producer")
    land.server.run(f"CREATE SCHEMA mine AUTHORIZATION {user}", land.name)
    with land.connected(user) as db:
        db.execute_sql(
            "CREATE FUNCTION mine.split_part(text, text, integer) RETURNS text LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'as %%', current_user; END $$"
        )
        db.execute_sql("SET search_path = mine, pg_catalog, public")
        db.execute_sql("INSERT INTO task (name, status, size, attempts) VALUES ('plain', 'R', 0, 0)")
        db.execute_sql("CREATE TABLE mine.task (id INTEGER)")
        forged = "CREATE TRIGGER t AFTER INSERT ON mine.task REFERENCING NEW TABLE AS changed FOR EACH STATEMENT"
        assert is_denied(db.execute_sql, f"{forged} EXECUTE FUNCTION public.task_xq_insert()")
    assert queue.check() == []


def test_a_tube_is_found_by_whoever_it_was_granted_to(land):
    queue: Any = Tubes(land.owner)
    tube = queue.create_tube("emails", "utubettl", ttr=60)
    other = queue.create_tube("others", "fifo")
    users = {role: land.user() for role in ROLES}
    for role, user in users.items():
        tube.grant(user, role)
    tube.put("first", utube="first")
    tube.model.xq.sweep()  # so that whoever takes finds it
    for role, user in users.items():
        with land.connected(user) as db:
            mine: Any = Tubes(db)
            assert set(mine.tube()) == {"emails", "others"}
            found = mine.tube.emails
            assert found.statistics()["tasks"]["total"] >= 0
            assert is_denied_or_unseen(mine.tube.others.put, "x")
            assert is_denied(mine.create_tube, "more", "fifo")
            can = ROLES.index(role)
            assert is_denied(found.put, role, utube=role) == (can < 1)
            if can < 2:
                assert is_denied(found.take, 0)
            else:
                assert mine.identify()
                task = found.take(0)
                found.touch(task, 1)
                found.release(task, delay=0)
                found.ack(found.take(0))
            if can == 3:
                task = found.put("z", utube="z")
                found.bury(task)
                assert found.kick(1) == 1
                found.delete(task)
                mine.cfg(ttr=0)
                found.truncate()
    assert tube.statistics()["calls"]["put"] == 5
    assert tube.model.xq.check() == []
    assert other.statistics()["tasks"]["total"] == 0


def test_sqlite_has_no_users(tmp_path):
    with closing(pw.SqliteDatabase(tmp_path / "app.db")) as db:
        queue = xq.upgrade(Maker(db, None).model(), {"status": "status"}, {}, methods=False)
        db.create_tables([queue.model])
        with pytest.raises(xq.ConfigurationError, match="SQLite has no users"):
            queue.grant("me", "producer")


# what the documents say of it

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "databases.md"


def rows_of(heading: str) -> list[list[str]]:
    """The rows of the last table of a section of the document."""
    section = re.split(r"^## ", DOCUMENT.read_text(), flags=re.M)
    (found,) = [text for text in section if text.startswith(heading)]
    lines = [line for line in found.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names_of(cell: str) -> set[str]:
    return {re.sub(r"page_xq_|_1$", "", name) for name in re.findall(r"`([^`]+)`", cell)} - {"page"}


def test_the_document_tells_of_each_table_and_of_the_rights_of_each_role():
    here = set(RIGHTS) - {"task"}
    assert here == set().union(*(names_of(first) for first, *_ in rows_of("Tables in the database"))) - {
        "xq_tube",
        "xq_tube_",
    }
    told = {
        name: dict(zip(ROLES[1:], rights, strict=True))
        for first, *rights in rows_of("Rights")
        if len(rights) == len(ROLES) - 1
        for name in (names_of(first) or {"task"})
    }
    words = re.compile("INSERT|UPDATE|DELETE")
    assert {name: {role: sorted(words.findall(text)) for role, text in of.items()} for name, of in told.items()} == {
        name: {role: sorted(right.does for right in of.get(role, ()) if right.does != "LOCK") for role in ROLES[1:]}
        for name, of in RIGHTS.items()
    }


@pytest.mark.parametrize("land", ["postgres"], indirect=True)
def test_the_sql_that_the_document_shows_is_what_is_run(land):
    Page = Maker(land.owner, None).model(table_name="page")
    queue = xq.upgrade(Page, {"status": "status", "runat": "runat"}, {"ttr": True, "limit": 100})
    land.owner.create_tables([Page])
    shown = re.findall(r'^```sql\n-- Page\.xq\.grant\("web", "(\w+)"\)\n(.*?)^```', DOCUMENT.read_text(), re.M | re.S)
    assert [role for role, _ in shown] == ["producer", "operator"]
    for role, text in shown:
        run = queue.grant("web", role, run=False)
        assert text.splitlines() == (run if role == "producer" else [sql for sql in run if sql.endswith('"web"')][1:-1])
