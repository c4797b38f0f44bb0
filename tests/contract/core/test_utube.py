"""The feature utube: tasks that come one after the other, beside others."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task
from tests.steps import (
    PATIENCE,
    STUCK,
    Work,
    elsewhere,
    eventually,
    is_exact,
    isolate,
    refuse_the_past,
    transitions,
)
from tests.support.stories import played

FEATURES = {"utube": True, "delayed": True, "buried": "any", "ttl": True, "ttr": True, "keep": True}
ROLES = ("runat", "priority", "utube", "owner")
ON_SERVERS = pytest.mark.parametrize("shared_db", SERVERS, indirect=True)


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=ROLES)


def put(Task: Any, *names: str, **options: Any) -> list[Any]:
    """Tasks called by their utube and their number in it, "a0"; one that begins with "-" has no utube."""
    rows = [{"name": name, "utube": None if name[0] == "-" else name[0]} for name in names]
    return [Task.put(row, **options) for row in rows]


def taken(Task: Any, n: int = 1) -> list[str]:
    """The names of the next tasks, taken one by one until none comes, or so many."""
    found = [Task.take() for _ in range(n)]
    return [one.name for one in found if one]


def all_heard(Task: Any) -> None:
    """Wait until takes can find all that is ready."""
    if not isinstance(Task._meta.database, pw.SqliteDatabase):
        news = "SELECT COUNT(*) FROM task_xq_dirty_groups"
        eventually(lambda: Task.xq.sweep() == 0 == Task._meta.database.execute_sql(news).fetchone()[0])


# one after the other

STORIES = {
    "of each utube one task is taken at a time, in the order of put": """
        put("a0 a1 b0 a2"); taken() -> a0 b0
        ack("a0"); taken()          -> a1
    """,
    "tasks without a utube are in nobodys way": 'put("-0 a0 -1 a1 -2"); taken() -> -0 a0 -1 -2',
    "a better priority comes first among utubes and within them": """
        put("a0", 5); put("a1", 1); put("b0", 3); put("b1", None); put("-0", 2); taken() -> b1 a1 -0
    """,
    "a batch has one task of each utube": """
        put("a0 a1 -0 b0 -1 b1"); many(4) -> a0 -0 b0 -1
        many(4)                     -> nothing
    """,
    "a task that comes back is the first of its utube again": """
        put("a0 a1"); taken()       -> a0
        release("a0"); taken(ttr=5) -> a0
        tick(6); taken()            -> a0
    """,
    "only a taken task is in the way": """
        put("a0", delay=5); put("a1"); taken() -> a1
        put("b0", ttl=1); tick(2); put("b1"); taken() -> b1
        tick(4); taken()            -> nothing
        ack("a1"); taken()          -> a0
    """,
    "the next comes when a task is finished, or changed by another program": """
        put("a0 a1"); taken()       -> a0
        ack("a0"); taken()          -> a1
        put("b0 b1"); taken()       -> b0
        release("b0", delay=5); taken() -> b1
        put("c0 c1"); taken()       -> c0
        bury("c0"); taken()         -> c1
        put("d0 d1"); taken()       -> d0
        kill("d0"); taken()         -> d1
        put("e0 e1"); taken()       -> e0
        snatch("e0", delay=5); taken() -> e1
        put("f0 f1"); taken()       -> f0
        deleted("f0"); taken()      -> f1
        put("g0 g1"); taken()       -> g0
        updated("g0", status="D"); taken() -> g1
        put("h0 h1"); taken()       -> h0
        updated("h0", utube="z"); taken() -> h1
        put("i0 i1"); taken()       -> i0
        updated("i0", utube=None); taken() -> i1
    """,
    "rows that other programs write take their places": """
        inserted("a0"); inserted("b0"); inserted("a1"); updated("a1", priority=-1); taken(1) -> a1
        updated("a0", utube="c"); deleted("b0"); taken() -> a0
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_tasks_of_utubes_are_taken_as_their_story_says(queue, story):
    def puts(names: str, priority: int | None = 0, **options: Any) -> None:
        for name in names.split():
            utube = None if name[0] == "-" else name[0]
            queue.put({"name": name, "utube": utube, "priority": priority}, **options)

    def key(name: str) -> int:
        return int(queue.get(queue.name == name).id)

    def took(n: int = 9, **options: Any) -> str:
        found = [queue.take(**options) for _ in range(n)]
        return " ".join(one.name for one in found if one)

    def on_key(method: str) -> Any:
        return lambda name, **options: getattr(queue.xq, method)(key(name), **options)

    found, wanted = played(
        STORIES[story],
        {
            **{name: on_key(name) for name in ("ack", "release", "bury", "kill", "snatch")},
            "put": puts,
            "taken": took,
            "tick": queue.xq.clock.tick,
            "many": lambda n: " ".join(one.name for one in queue.xq.take_many(n)),
            "inserted": lambda name: queue.insert(name=name, utube=name[0]).execute(),
            "deleted": lambda name: queue.delete().where(queue.name == name).execute(),
            "updated": lambda name, **values: queue.update(**values).where(queue.name == name).execute(),
        },
    )
    assert found == wanted
    assert is_exact(queue)


@pytest.mark.apart("in the caller's transaction a take looks at few groups of others")
def test_what_may_be_taken_is_found_behind_any_number_of_utubes_that_may_not(make):
    Task = make({"utube": True, "ttl": True}, roles=("utube", "tube", "runat"))
    Task.xq.put_many([task(tube="x", utube=f"{i}") for i in range(1_500)], ttl=5)
    Task.xq.put_many([task(tube=tube, utube="last") for tube in "yx"])
    assert Task.take(tube="y").id == 1_501
    Task.xq.clock.tick(6)
    assert Task.take() is None
    Task.ack(1_501)
    assert Task.take().id == 1_502


# what other programs write


def test_the_database_refuses_more_taken_tasks_of_a_utube_than_may_be(make):
    Task = make({"utube": 2}, roles=("utube",))
    put(Task, "a0", "a1", "a2")
    before = transitions(Task)
    with pytest.raises((pw.IntegrityError, pw.OperationalError)):
        Task.update(status="T").execute()
    assert transitions(Task) == before
    assert taken(Task, 3) == ["a0", "a1"]


UTUBES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pw.TextField, ["a", "A", "a ", "ä", "", "x" * 5_000, "it's", "\\"]),
    "characters": (lambda **more: pw.CharField(max_length=64, **more), ["a", "A", "a ", "nil"]),
    "integers": (pw.IntegerField, [1, -1, 0, 2**31 - 1]),
}


@pytest.mark.parametrize("kind", UTUBES)
def test_each_value_is_a_utube_of_its_own(make, kind):
    field, values = UTUBES[kind]
    Task = make({"utube": True}, roles=("utube",), attributes={"utube": field(null=True)})
    Task.xq.put_many([{"utube": value} for value in values for _ in range(2)])
    found = [one.utube for one in iter(Task.take, None)]
    assert found == values
    assert is_exact(Task)


# what is installed


def test_a_table_with_rows_becomes_such_a_queue_unless_too_many_are_taken(make):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"name": f"{u}{i}", "utube": u} for i in range(3) for u in "ab"]).execute()
    model.update(status="T").where(model.name << ["a0", "a1"]).execute()
    Task = xq.upgrade(model, {"status": "status", "utube": "utube"}, {"utube": True})
    with pytest.raises(xq.ConfigurationError, match="utube"):
        Task.install()
    model.update(status="R").where(model.name == "a1").execute()
    Task.install()
    assert is_exact(model)
    assert taken(model, 9) == ["b0"]


@pytest.mark.apart("in the caller's transaction a take looks at few groups of others")
def test_heads_that_are_wrong_are_found_and_repaired(queue):
    put(queue, "a0", "a1", "b0")
    a0 = queue.take()
    queue._meta.database.execute_sql("DELETE FROM task_xq_heads")
    assert [line for line in queue.xq.check() if "2 heads" in line]
    queue.xq.recount()
    assert is_exact(queue)
    assert taken(queue, 2) == ["b0"]
    a0.ack()
    assert taken(queue, 2) == ["a1"]


def test_who_waits_for_a_utube_hears_that_its_task_is_done(make_live):
    Task = make_live({"utube": True}, roles=("utube",))
    put(Task, "a0", "a1")
    held = Task.take(timeout=STUCK)  # a take skips a group whose head another connection refreshes
    other = Work(make_live.db, lambda: Task.take(timeout=PATIENCE).name)
    eventually(Task.xq.waiting)
    held.ack()
    assert other.result() == "a1"


# transactions of the application


def test_a_transaction_takes_what_it_has_put_and_what_it_has_made_room_for(queue):
    with queue._meta.database.atomic() as transaction:
        put(queue, "a0", "a1", "b0")
        assert taken(queue, 3) == ["a0", "b0"]
        queue.xq.ack(1)
        queue.put({"name": "a2", "utube": "a", "priority": -1})
        assert taken(queue, 2) == ["a2"]
        transaction.rollback()
        put(queue, "c0")
        assert taken(queue, 2) == ["c0"]
    assert is_exact(queue)


@ON_SERVERS
def test_nobody_waits_for_a_transaction_that_has_put_and_taken(make_live):
    isolate(make_live.db, "READ COMMITTED")  # else MariaDB locks gaps
    Task = make_live({"utube": True, "keep": True}, roles=("utube", "owner"))
    put(Task, "a0", "b0", "c0", "d0")
    all_heard(Task)

    def others() -> list[str]:
        put(Task, "a1", "e1", "f0", *(f"{utube}0" for utube in "ghijk"))
        return taken(Task, 19)

    with make_live.db.atomic():
        put(Task, "e0")
        assert taken(Task, 1) == ["a0"]
        assert {*Work(make_live.db, others).result()} - {"e1"} == {f"{utube}0" for utube in "bcdfghijk"}
    Task.xq.ack(1)
    assert "a1" in taken(Task, 9)
    assert is_exact(Task)


@ON_SERVERS
def test_dirty_marks_that_no_transaction_sees_yet_do_not_pile_up(make_live):
    Task = make_live({"utube": True, "keep": True}, roles=("utube", "owner"))
    put(Task, "a0", "b0")
    all_heard(Task)

    def many() -> int:
        put(Task, *["a1"] * 50)
        assert taken(Task, 2) == ["b0"]
        ((n,),) = make_live.db.execute_sql("SELECT COUNT(*) FROM task_xq_dirty_groups").fetchall()
        return int(n)

    with make_live.db.atomic():
        assert taken(Task, 1) == ["a0"]
        assert Work(make_live.db, many).result() <= 1
    Task.xq.ack(1)
    assert taken(Task, 2) == ["a1"]
    assert is_exact(Task)


@ON_SERVERS
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_transaction_that_sees_the_past_spoils_nothing_for_others(make_live, is_refused):
    refuse_the_past(make_live.db, is_refused)
    all_have_one = {"utube": pw.CharField()}  # else MariaDB also locks the place where tasks without one would stand
    Task = make_live({"utube": True, "keep": True}, roles=("utube", "owner"), attributes=all_have_one)
    elsewhere(make_live.db, lambda: put(Task, "a0", "a1"))

    def others() -> None:
        Task.take().ack()
        all_heard(Task)

    with make_live.db.atomic() as transaction:
        assert Task.select().count() == 2  # from here on MariaDB sees what was there then
        Work(make_live.db, others).result()
        if is_refused:
            with pytest.raises(Exception, match="1020|could not serialize"):
                Task.take()
            transaction.rollback()
        else:
            assert taken(Task, 1) == ["a1"]
        Work(make_live.db, lambda: put(Task, "b0", "c0")).result()  # and nobody waits
    all_heard(Task)  # else a take skips the utube whose head the maintenance thread refreshes just then
    assert taken(Task, 3) == ["a1"] * is_refused + ["b0", "c0"]
    assert is_exact(Task)


@ON_SERVERS
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("acts", ["put ack", "ack put"])
def test_a_put_and_an_ack_that_do_not_see_each_other_forget_no_task(make_live, level, acts):
    isolate(make_live.db, level)
    Task = make_live({"utube": True}, roles=("utube", "owner"))
    put(Task, "a0")
    held = Task.take(timeout=STUCK)  # a take skips a group whose head another connection refreshes
    all_heard(Task)
    Task.xq.parts.maintenance.stop_maintenance()  # beside a third transaction SERIALIZABLE may refuse the commit
    first, second = ({"put": lambda: put(Task, "a1"), "ack": held.ack}[act] for act in acts.split())
    with make_live.db.atomic():
        first()
        Work(make_live.db, second).result()  # a put waits for no other call, and none waits for it
    assert is_exact(Task)
    assert Task.take(timeout=STUCK).name == "a1"
    assert Task.take() is None
