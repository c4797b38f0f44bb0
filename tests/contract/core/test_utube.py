"""The feature utube: tasks that come one after the other, beside others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SERVERS, SHARED, live
from tests.factories import task
from tests.steps import (
    PATIENCE,
    STUCK,
    Work,
    begun_anew,
    eventually,
    is_exact,
    isolate,
    processes,
    transitions,
    writing,
)
from tests.support import utube as support
from tests.support.stories import played
from tests.support.utube import all_heard, put, taken

make_server = support.make_server

FEATURES = {"utube": True, "delayed": True, "buried": "any", "ttl": True, "ttr": True, "keep": True}
ROLES = ("runat", "priority", "utube", "owner")


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=ROLES)


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


def test_as_many_of_a_utube_are_taken_as_the_feature_says(make):
    Task = make({"utube": 3}, roles=("utube",))
    put(Task, "a0", "a1", "a2", "a3", "b0")
    found = [Task.take() for _ in range(5)]
    assert [one and one.name for one in found] == ["a0", "a1", "a2", "b0", None]
    found[1].ack()
    assert taken(Task, 2) == ["a3"]


def test_a_take_of_one_tube_finds_a_utube_whose_first_task_is_there(make):
    Task = make({"utube": True}, roles=("utube", "tube"))
    Task.xq.put_many(
        [task(tube=tube, utube=utube) for tube, utube in [("x", "a"), ("y", "a"), ("y", None), ("y", "b")]]
    )
    assert [one.id for one in (Task.take(tube="y"), Task.take(tube="y"))] == [3, 4]
    assert Task.take(tube="y") is None
    Task.take(tube="x").ack()
    assert Task.take(tube="y").id == 2


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


@pytest.mark.parametrize("key", [pw.UUIDField(primary_key=True), pw.CharField(primary_key=True), None])
def test_keys_of_any_type_do(make, key):
    attributes: dict[str, Any] = {"utube": pw.CharField()}
    if key is None:
        attributes |= {"a": pw.IntegerField(), "b": pw.CharField(), "meta": {"primary_key": pw.CompositeKey("a", "b")}}
    Task = make({"utube": True}, roles=("utube", "priority"), key=key, attributes=attributes)
    for i in range(4):
        Task.put({"name": f"{i}", "utube": "ab"[i % 2], **({"a": i, "b": "x"} if key is None else {})})
    first = Task.xq.take_many(4)
    assert [one.name for one in first] == ["0", "1"]
    Task.xq.ack_many(first)
    assert taken(Task, 4) == ["2", "3"]
    assert is_exact(Task)


@pytest.mark.parametrize("name", ["old", "xq_t", "task_xq_utube_1", "select"])
def test_the_table_may_be_called_as_it_likes(make, name):
    Task = make({"utube": True}, roles=("utube", "priority"), model=make.model(table_name=name))
    put(Task, "a0", "a1", "-0")
    Task.update(priority=-1).where(Task.name == "a1").execute()
    assert taken(Task, 3) == ["a1", "-0"]
    assert is_exact(Task)


def test_tubes_and_utubes_may_be_as_long_as_their_columns(make):
    attributes = {"tube": pw.CharField(1000, null=True), "utube": pw.CharField(1000, null=True)}
    Task = make({"utube": True}, roles=("tube", "utube", "priority"), attributes=attributes)
    long = "x" * 999
    Task.xq.put_many([{"tube": long + end, "utube": long + end} for end in "abab"])
    assert [one.utube[-1] for one in iter(partial(Task.take, tube=long + "b"), None)] == ["b"]
    assert Task.take().tube == long + "a"
    assert Task.take() is None
    assert is_exact(Task)


def test_utubes_that_differ_in_case_alone_are_two_whatever_the_column_compares(make):
    collation = "NOCASE" if isinstance(make.db, pw.SqliteDatabase) else None  # MariaDB compares so by default
    caseless = pw.CharField(null=True, collation=collation)
    Task = make({"utube": True}, roles=("utube",), attributes={"utube": caseless})
    put(Task, "a0", "A0", "a1")
    assert taken(Task, 3) == ["a0", "A0"]
    Task.update(utube="A").where(Task.name == "a1").execute()
    Task.ack(2)
    assert taken(Task, 2) == ["a1"]
    assert is_exact(Task)


# what is installed


@pytest.mark.parametrize("features", [{"utube": True}, {"utube": 2}, {"utube": True, "keep": True}])
def test_a_table_with_rows_becomes_such_a_queue(make, features):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"name": f"{u}{i}", "utube": u} for i in range(3) for u in "ab"]).execute()
    model.update(status="T").where(model.name == "a0").execute()
    xq.upgrade(model, {"status": "status", "utube": "utube"}, features).install()
    assert is_exact(model)
    assert taken(model, 9) == (["b0"] if features["utube"] is True else ["b0", "a1", "b1"])


def test_a_table_in_which_too_many_are_taken_does_not(make):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"status": "T", "utube": "a"}] * 2).execute()
    with pytest.raises(xq.ConfigurationError, match="utube"):
        xq.upgrade(model, {"status": "status", "utube": "utube"}, {"utube": True}).install()


def test_the_feature_comes_and_goes_and_takes_another_number(make):
    Task = make({}, roles=("utube",))
    put(Task, "a0", "a1", "a2", "b0")
    assert taken(Task, 2) == ["a0", "a1"]
    with pytest.raises(xq.ConfigurationError, match="'a'"):
        Task.xq.reconfigure({"utube": True})
    Task.xq.reconfigure({"utube": 2})
    assert taken(Task, 9) == ["b0"]
    Task.xq.reconfigure({"utube": 3})
    assert taken(Task, 9) == ["a2"]
    Task.xq.reconfigure({})
    put(Task, "a3", "a4")
    assert taken(Task, 9) == ["a3", "a4"]
    tables = make.db.get_tables()
    Task.xq.uninstall()
    assert [table for table in make.db.get_tables() if "utube" in table] == []
    assert [table for table in tables if "utube" in table] == []


def test_uninstall_leaves_the_table_as_it_was(make):
    model = make.model()
    make.db.create_tables([model])
    before = make.db.get_columns("task"), make.db.get_indexes("task"), make.db.get_tables()
    xq.upgrade(model, {"status": "status", "utube": "utube"}, {"utube": True}).install()
    model.xq.uninstall()
    assert (make.db.get_columns("task"), make.db.get_indexes("task"), make.db.get_tables()) == before


def test_the_role_priority_may_come_later_and_go_again(make):
    before = make(FEATURES, roles=("runat", "utube", "owner"))
    put(before, "a0", "a1", "b0")
    after = make(FEATURES, roles=ROLES)
    after.xq.install()
    after.put({"name": "a2", "utube": "a", "priority": -1})
    assert taken(after, 3) == ["a2", "b0"]
    assert is_exact(after)
    again = make(FEATURES, roles=("runat", "utube", "owner"))
    again.xq.install()
    assert again.take() is None
    assert is_exact(again)


def test_heads_that_are_wrong_are_found_and_repaired(queue):
    put(queue, "a0", "a1", "b0")
    a0 = queue.take()
    queue._meta.database.execute_sql("DELETE FROM task_xq_utube_1")
    assert [line for line in queue.xq.check() if "2 heads" in line]
    queue.xq.recount()
    assert is_exact(queue)
    assert taken(queue, 2) == ["b0"]
    a0.ack()
    assert taken(queue, 2) == ["a1"]


# who waits


def test_who_waits_for_a_utube_hears_that_its_task_is_done(make_live):
    Task = make_live({"utube": True}, roles=("utube",))
    put(Task, "a0", "a1")
    held = Task.take(timeout=STUCK)  # a take skips a group whose head another connection refreshes
    other = Work(make_live.db, lambda: Task.take(timeout=PATIENCE).name)
    eventually(Task.xq.waiting)
    held.ack()
    assert other.result() == "a1"


LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
EACH_LEVEL = [(kind, level) for kind in SHARED for level in (LEVELS if kind in SERVERS else [""])]


@pytest.fixture
def at_level(kind: str, level: str, tmp_path: Path) -> Iterator[pw.Database]:
    """A database all of whose connections have an isolation level, where it has some."""
    with DATABASES[kind](tmp_path) as db:
        if level:
            isolate(db, level)
        yield db


@pytest.mark.parametrize(("kind", "level"), EACH_LEVEL)
def test_a_transaction_takes_what_it_has_put_and_what_it_has_made_room_for(at_level):
    Task = live(at_level)({"utube": True, "keep": True}, roles=("utube", "priority", "owner"))
    with at_level.atomic() as transaction:
        put(Task, "a0", "a1", "b0")
        assert taken(Task, 3) == ["a0", "b0"]
        Task.xq.ack(1)
        Task.put({"name": "a2", "utube": "a", "priority": -1})
        assert taken(Task, 2) == ["a2"]
        transaction.rollback()
        put(Task, "c0")
        assert taken(Task, 2) == ["c0"]
    assert is_exact(Task)


@pytest.mark.parametrize(("kind", "level"), EACH_LEVEL)
def test_a_transaction_takes_what_others_have_put_a_moment_ago(at_level):
    Task = live(at_level)({"utube": True, "keep": True}, roles=("utube", "owner"))

    def transaction() -> list[str]:
        with at_level.atomic():
            return taken(Task, 4)

    put(Task, *(f"{utube}{i}" for i in range(2) for utube in "abc"))
    assert sorted(begun_anew(Task, transaction)) == ["a0", "b0", "c0"]
    assert is_exact(Task)


def test_a_transaction_that_has_emptied_many_utubes_may_go_on_to_take(queue):
    names = [chr(ord("a") + i // 2) + str(i % 2) for i in range(46)]
    put(queue, *names)
    with writing(queue._meta.database):
        done = 0
        while found := queue.xq.take_many(100):
            done += len(queue.xq.ack_many(found))
        assert done == 46
        assert taken(queue, 5) == []
    put(queue, "a9")
    assert taken(queue, 9) == ["a9"]


def test_a_transaction_takes_though_others_have_emptied_many_utubes(make_server):
    Task = make_server(FEATURES, roles=ROLES)
    put(Task, *(chr(ord("a") + i) + "0" for i in range(26)))
    all_heard(Task)
    assert Work(make_server.db, lambda: len(Task.xq.ack_many(Task.xq.take_many(26)))).result() == 26
    with writing(make_server.db):
        assert taken(Task, 5) == []
    assert is_exact(Task)


def test_nobody_waits_for_a_transaction_that_has_put_and_taken(make_server):
    isolate(make_server.db, "READ COMMITTED")  # else MariaDB locks gaps
    Task = make_server({"utube": True, "keep": True}, roles=("utube", "owner"))
    put(Task, "a0", "b0", "c0", "d0")
    all_heard(Task)

    def others() -> list[str]:
        put(Task, "a1", "e1", "f0", *(f"{utube}0" for utube in "ghijk"))
        return taken(Task, 19)

    with make_server.db.atomic():
        put(Task, "e0")
        assert taken(Task, 1) == ["a0"]
        assert {*Work(make_server.db, others).result()} - {"e1"} == {f"{utube}0" for utube in "bcdfghijk"}
    Task.xq.ack(1)
    assert "a1" in taken(Task, 9)
    assert is_exact(Task)


def test_dirty_marks_that_no_transaction_sees_yet_do_not_pile_up(make_server):
    Task = make_server({"utube": True, "keep": True}, roles=("utube", "owner"))
    put(Task, "a0", "b0")
    all_heard(Task)

    def many() -> int:
        put(Task, *["a1"] * 50)
        assert taken(Task, 2) == ["b0"]
        ((n,),) = make_server.db.execute_sql("SELECT COUNT(*) FROM task_xq_dirty_groups").fetchall()
        return int(n)

    with make_server.db.atomic():
        assert taken(Task, 1) == ["a0"]
        assert Work(make_server.db, many).result() <= 1
    Task.xq.ack(1)
    assert taken(Task, 2) == ["a1"]
    assert is_exact(Task)


def test_a_utube_that_no_index_holds_keeps_no_other_task_from_becoming_ready(make):
    Task = make({"utube": True, "delayed": True}, roles=("utube", "runat"), attributes={"utube": pw.TextField()})
    long = "".join(sha256(bytes([i])).hexdigest() for i in range(256))
    for name, utube in {"a": "a", "long": long, "b": "b"}.items():
        Task.put({"name": name, "utube": utube}, delay=1)
    Task.xq.clock.tick(2)
    assert {"a", "b"} <= {*taken(Task, 4)}


def test_a_transaction_that_sees_the_past_spoils_nothing_for_others(make_server):
    all_have_one = {"utube": pw.CharField()}  # else MariaDB also locks the place where tasks without one would stand
    Task = make_server({"utube": True, "keep": True}, roles=("utube", "owner"), attributes=all_have_one)
    Work(make_server.db, lambda: put(Task, "a0", "a1")).result()

    def others() -> None:
        Task.take().ack()
        all_heard(Task)

    with make_server.db.atomic():
        assert Task.select().count() == 2  # from here on MariaDB sees what was there then
        Work(make_server.db, others).result()
        assert taken(Task, 1) == ["a1"]
        Work(make_server.db, lambda: put(Task, "b0", "c0")).result()  # and nobody waits
    all_heard(Task)  # else a take skips the utube whose head the maintenance thread refreshes just then
    assert taken(Task, 3) == ["b0", "c0"]
    assert is_exact(Task)


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("field", [pw.FixedCharField(5, null=True), pw.TextField(null=True, collation="loose")])
def test_utubes_are_told_apart_to_the_last_letter_whatever_the_column_is(kind, field, tmp_path):
    with DATABASES[kind](tmp_path) as db:
        db.execute_sql("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        Task = live(db)({"utube": True}, roles=("utube",), attributes={"utube": field})
        put(Task, "a0", "A0", "a1")
        assert taken(Task, 3) == ["a0", "A0"]
        Task.xq.sweep()
        assert is_exact(Task)


# races


def work_off(Task: Any) -> list[tuple[str, int]]:
    """Take and ack until nothing is left; tells how many of each task's utube were taken when it was."""
    done = []
    while Task.xq.count("D") < 40:
        found = Task.take(timeout=0.05)
        if found:
            others = Task.select().where((Task.utube == found.utube) & (Task.status == "T"))
            done.append((found.name, begun_anew(Task, others.count)))  # at SERIALIZABLE a look may be in conflict, too
            found.ack()
    return done


@pytest.mark.parametrize(("kind", "level"), EACH_LEVEL)
def test_processes_work_utubes_off_in_order_and_one_at_a_time(at_level):
    Task = live(at_level)({"utube": True, "keep": True, "history": True}, roles=("utube", "owner"))

    def script() -> Any:
        yield work_off(Task)

    with processes(at_level, *[script] * 3) as others:
        for i in range(10):
            put(Task, *(f"{utube}{i}" for utube in "abcd"))
        found = [one for other in others for one in next(other)]
    assert len(found) == 40
    assert {n for _, n in found} == {1}
    order = [row.key for row in Task.xq.history() if row.event == "take"]
    names = {str(row.id): row.name for row in Task.select()}
    for utube in "abcd":
        assert [names[key] for key in order if names[key][0] == utube] == [f"{utube}{i}" for i in range(10)]
    assert is_exact(Task)


@pytest.mark.parametrize(("kind", "level"), [each for each in EACH_LEVEL if each[0] in SERVERS])
@pytest.mark.parametrize("first", ["put", "ack"])
def test_a_put_and_an_ack_that_do_not_see_each_other_forget_no_task(at_level, first):
    Task = live(at_level)({"utube": True}, roles=("utube", "owner"))
    put(Task, "a0")
    held = Task.take(timeout=STUCK)  # a take skips a group whose head another connection refreshes
    all_heard(Task)
    acts = {"put": lambda: put(Task, "a1"), "ack": held.ack}
    second = "ack" if first == "put" else "put"
    with at_level.atomic():
        acts[first]()
        Work(at_level, acts[second]).result()  # who puts waits for nobody, and nobody for who puts
    assert is_exact(Task)
    assert Task.take(timeout=STUCK).name == "a1"
    assert Task.take() is None
