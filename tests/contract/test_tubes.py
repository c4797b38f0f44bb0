"""The classic tubes: what those who know tarantool/queue expect of them. Without other threads and processes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.support.stories import played
from tests.support.tubes import Rows, put
from xq.testing import Clock
from xq.tubes import PRESETS, Tubes

ALL, TIMED, SUBQUEUES = [*PRESETS], ["fifottl", "limfifottl", "utubettl"], ["utube", "utubettl"]
CALLS = ("ack", "bury", "delay", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr")
METHODS = ("put", "ack", "release", "release_all", "bury", "kick", "delete", "touch", "peek", "truncate", "drop")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(db: pw.Database, clock: Clock) -> Tubes:
    """The tubes of a fresh database, whose clock is in the test's hand."""
    return Tubes(db, clock=clock)


def names_of(queue: Tubes, tube: Any, clock: Any) -> dict[str, Any]:
    """What a story calls: the methods of the tube, and what the test does beside them."""
    heard: list[str] = []
    tube.on_task_change(lambda task, event: heard.append(f"{task.id}{task.state} {event}"))

    def counts(of: str) -> str:
        return ", ".join(f"{name} {n}" for name, n in sorted(tube.statistics()[of].items()) if n)

    def told() -> str:
        """What was told since one asked last."""
        found = ", ".join(heard)
        heard.clear()
        return found

    def took() -> str:
        """The data of all that may be taken now."""
        return " ".join(str(task.data) for task in iter(lambda: tube.take(0), None))

    def puts(data: str, **options: Any) -> list[Any]:
        """Tasks with a letter each, in sub-queues of their own."""
        return [tube.peek(id) for id in put(tube, *data, **options)]

    def together(work: Any, *, undone: bool = False) -> Any:
        with queue.database.atomic() as transaction:
            found = work()
            if undone:
                transaction.rollback()
        return found

    def elsewhere(work: Any) -> Any:
        with queue.session():
            return work()

    return {
        **{name: getattr(tube, name) for name in METHODS},
        "take": lambda timeout=0: tube.take(timeout),
        "listed": tube.tasks_by_state,
        "puts": puts,
        "took": took,
        "told": told,
        "tasks": lambda: counts("tasks"),
        "calls": lambda: counts("calls"),
        "inf": math.inf,
        "nan": math.nan,
        "tube": tube,
        "tick": clock.tick,
        "sweep": getattr(getattr(tube.model, "xq", None), "sweep", None),
        "queue": queue,
        "undone": partial(together, undone=True),
        "together": together,
        "elsewhere": elsewhere,
        "create": queue.create_tube,
    }


STORIES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    # the life of a task
    "put, take, ack": (ALL, {}, """
        put("a")                    -> 1r 'a'
        take()                      -> 1t 'a'
        take()                      -> None
        ack(1)                      -> 1- 'a'
        peek(1)                     -> NotFound
        told()                      -> 1r put, 1t take, 1- delete
        calls()                     -> ack 1, put 1, take 1
        tasks()                     -> done 1
    """),
    "first put, first taken, also after a release": (ALL, {}, """
        puts("abc")                 -> [1r 'a', 2r 'b', 3r 'c']
        take()                      -> 1t 'a'
        release(1)                  -> 1r 'a'
        took()                      -> a b c
        release(peek(2))            -> 2r 'b'
        peek(peek(2))               -> 2r 'b'
    """),
    "buried in any state, and kicked in the order of take": (ALL, {}, """
        puts("abc"); take(); told(); bury(3) -> 3! 'c'
        bury(1)                     -> 1! 'a'
        bury(2)                     -> 2! 'b'
        told()                      -> 3! bury, 1! bury, 2! bury
        bury(2)                     -> 2! 'b'
        told()                      -> nothing
        take()                      -> None
        kick()                      -> 1
        took()                      -> a
        told()                      -> 1r kick, 1t take
        kick(9)                     -> 2
        kick(9)                     -> 0
        took()                      -> b c
        kick(-1)                    -> BadValue
        kick(True)                  -> BadType
        calls()                     -> bury 3, kick 3, put 3, take 4
    """),
    "deleted in any state": (ALL, {}, """
        puts("abc"); take(); bury(2); delete(1) -> 1- 'a'
        delete(2)                   -> 2- 'b'
        delete(3)                   -> 3- 'c'
        tasks()                     -> done 3
    """),
    "an id is never used again": (ALL, {}, """
        puts("ab"); delete(2); delete(1); puts("c") -> [3r 'c']
        truncate(); puts("d")       -> [4r 'd']
    """),
    "release_all and truncate": (ALL, {}, """
        puts("abc"); take(); take(); release_all() -> 2
        tasks()                     -> ready 3, total 3
        take(); drop()              -> TubeBusy
        told(); truncate()          -> 3
        told()                      -> nothing
        tasks()                     -> nothing
        calls()                     -> put 3, release 2, take 3
        ack(1)                      -> NotFound
        drop()                      -> True
    """),
    "listed by state in the order of take": (ALL, {}, """
        puts("abcd"); take(); bury(3); listed("r") -> [2r 'b', 4r 'd']
        listed("t")                 -> [1t 'a']
        listed("!")                 -> [3! 'c']
        listed("~")                 -> []
        listed("-")                 -> []
        listed("ready")             -> BadValue
    """),
    "what is not taken cannot be finished": (ALL, {}, """
        puts("a"); ack(1)           -> WrongState
        release(1)                  -> WrongState
        ack(99)                     -> NotFound
        bury(99)                    -> NotFound
        delete(99)                  -> NotFound
        ack("x")                    -> BadType
        calls()                     -> put 1
    """),
    # order
    "the lowest pri first, then the lowest id": (TIMED, {"pri": 4}, """
        puts("c", pri=5); puts("a", pri=1); puts("d", pri=5); puts("b"); took() -> a b c d
        put("a", pri="1")           -> BadType
        put("a", pri=2**63)         -> BadValue
    """),
    # time
    "a delay": (TIMED, {}, """
        put("a", delay=5)           -> 1~ 'a'
        tick(4); take()             -> None
        tick(2); take()             -> 1t 'a'
        release(1, delay=5)         -> 1~ 'a'
        told()                      -> 1~ put, 1r delay, 1t take, 1~ release
        tick(6); sweep(); calls()   -> delay 2, put 1, release 1, take 1
        take(); release(1, delay=0) -> 1r 'a'
        delete(1); put("b", delay=0) -> 2r 'b'
    """),
    "a task lives for its delay and its ttl": (TIMED, {}, """
        put("a", ttl=10, delay=5); tick(14); sweep(); tasks() -> ready 1, total 1
        told(); tick(2); take()     -> None
        sweep(); tasks()            -> done 1
        told()                      -> 1- ttl
        calls()                     -> delay 1, put 1, ttl 1
        put("b", ttl=10); take(); release(2, delay=5); tick(14); take() -> 2t 'b'
        release(2); tick(2); take() -> None
    """),
    "a buried task dies at its time, kicked or not": (TIMED, {}, """
        puts("ab", ttl=10); bury(1); bury(2); tick(9); kick() -> 1
        tick(2); sweep(); tasks()   -> done 2
        calls()                     -> bury 2, kick 1, put 2, ttl 2
    """),
    "a task that is taken too long is given back, each time": (TIMED, {}, """
        put("a", ttr=10); take(); tick(11); sweep(); peek(1) -> 1r 'a'
        ack(1)                      -> WrongState
        take()                      -> 1t 'a'
        tick(11); sweep(); calls()  -> put 1, take 2, ttr 2
    """),
    "a tube has a ttl and a ttr for tasks that bring none": (TIMED, {"ttl": 100, "ttr": 10}, """
        puts("a"); puts("b", ttl=20, ttr=15); puts("c", ttl=1000); puts("d", ttl=inf, ttr=inf); took() -> a b c d
        tick(11); sweep(); listed("r") -> [1r 'a', 3r 'c']
        tick(10); sweep(); tasks()  -> done 1, ready 2, taken 1, total 3
        tick(1e9); sweep(); tasks() -> done 3, taken 1, total 1
        ack(4)                      -> 4- 'd'
    """),
    "a touch prolongs the ttr and the ttl": (TIMED, {}, """
        put("a", ttl=20, ttr=10); take(); touch(1, 2.01) -> 1t 'a'
        touch(1, 7.99); tick(19); sweep(); peek(1) -> 1t 'a'
        touch(1, 5); tick(5); sweep(); peek(1) -> 1t 'a'
        release(1); tick(10); take() -> 1t 'a'
        tick(2); sweep(); tasks()   -> done 1
        told() -> 1r put, 1t take, 1t touch, 1t touch, 1t touch, 1r release, 1t take, 1r ttr, 1- ttl
        calls()                     -> put 1, release 1, take 2, touch 3, ttl 1, ttr 1
    """),
    "a touch by nothing, and those that fail, are not counted": (TIMED, {}, """
        put("a", ttr=10); take(); told(); touch(1, 0) -> 1t 'a'
        touch(1, -1)                -> BadValue
        touch(1, "1")               -> BadType
        touch(7, 5)                 -> NotFound
        elsewhere(lambda: touch(1, 5)) -> NotOwner
        told()                      -> nothing
        calls()                     -> put 1, take 1
        tick(11); sweep(); peek(1)  -> 1r 'a'
    """),
    # room
    "a full tube takes no more until there is room": (["limfifottl"], {"capacity": 2}, """
        puts("ab"); put("c")        -> None
        put("c", timeout=0.01)      -> None
        take(); bury(2); put("c")   -> None
        ack(1); put("c", ttl=5)     -> 3r 'c'
        tick(6); put("d")           -> 4r 'd'
        calls()                     -> ack 1, bury 1, put 4, take 1, ttl 1
    """),
    "a capacity of 0 is none": (["limfifottl"], {"capacity": 0}, 'puts("a" * 20); tasks() -> ready 20, total 20'),
    # sub-queues
    "of a sub-queue one task is taken at a time, in order": (SUBQUEUES, {}, """
        put("a0", utube="a"); put("a1", utube="a"); put("b0", utube="b"); put("a2", utube="a"); took() -> a0 b0
        ack(1); took()              -> a1
        release(2); took()          -> a1
        delete(2); took()           -> a2
    """),
    "only a taken task is in the way": (SUBQUEUES, {"storage_mode": "ready_buffer"}, """
        puts("abc", utube="u"); bury(1); took() -> b
        kick(5)                     -> 1
        took()                      -> nothing
        ack(2); took()              -> a
    """),
    "a sub-queue is named by text": (SUBQUEUES, {}, """
        put(1, utube=1); put(2, utube="1"); put(3, utube=True); put(4, utube="true"); put(5, utube=1.5); took() -> 1 3 5
        put("a", utube="é 😀")      -> 6r 'a'
        put("a", utube=b"1")        -> BadType
    """),
    "within a sub-queue the lowest pri comes first, also one that came meanwhile": (["utubettl"], {}, """
        put("a1", utube="a", pri=2); put("b1", utube="b", pri=3); put("a0", utube="a", pri=1); took() -> a0 b1
        ack(3); put("a2", utube="a", pri=0); took() -> a2
    """),
    # transactions
    "what is undone is not told and not counted": (["fifottl", "limfifottl"], {"ttr": 10}, """
        puts("a"); told(); undone(lambda: [put("b").id, take(), touch(1, 5), ack(1)]) -> [2, 1t 'a', 1t 'a', 1- 'a']
        told()                      -> nothing
        calls()                     -> put 1
        tasks()                     -> ready 1, total 1
    """),
    # presets and classes of ones own
    "what is kept when it is done is done once": (["kept"], {}, """
        puts("abcd"); told(); ack(take()) -> 1- 'a'
        peek(1)                     -> 1- 'a'
        ack(take()); told()         -> 1t take, 1- delete, 2t take, 2- delete
        listed("-")                 -> [1- 'a', 2- 'b']
        delete(1); delete(3); tasks() -> done 3, ready 1, total 2
        calls()                     -> ack 2, delete 2, put 4, take 2
        truncate(); tasks()         -> done 3
    """),
    "the ttl, ttr and pri of a tube of a preset of ones own": (["own"], {"ttl": 1000, "pri": 3}, """
        put("a"); put("b", pri=1); take() -> 2t 'b'
        tick(6); sweep(); peek(2)   -> 2r 'b'
        tick(1000); sweep(); tasks() -> done 2
        put("c", utube="u")         -> FeatureOff
    """),
    "a class of ones own": (["rows"], {"colour": "blue"}, """
        put("b", prefix="a")        -> 1r 'ab'
        release(1)                  -> WrongState
        ack(7)                      -> NotFound
        bury("1")                   -> BadType
        kick(-1)                    -> BadValue
        together(lambda: take(1))   -> InTransaction
        take()                      -> 1t 'ab'
        take(0.01)                  -> None
        touch(1, 5)                 -> 1t 'ab'
        drop()                      -> TubeBusy
        elsewhere(lambda: ack(1))   -> NotOwner
        release(1)                  -> 1r 'ab'
        bury(1)                     -> 1! 'ab'
        listed("!")                 -> [1! 'ab']
        kick(5)                     -> 1
        ack(take())                 -> 1- 'ab'
        told()                      -> 1r put, 1t take, 1t touch, 1r release, 1! bury, 1r kick, 1t take, 1- delete
        calls()                     -> ack 1, bury 1, kick 1, put 1, release 1, take 2, touch 1
        tasks()                     -> done 1
        put("c"); take(); release_all() -> 1
        truncate(); drop()          -> True
    """),
    "what is undone of a class": (["rows"], {}, """
        together(lambda: [put("b").data, bury(take().id).state, told(), calls()]) -> [b, !, nothing, nothing]
        told()                      -> 1r put, 1t take, 1! bury
        calls()                     -> bury 1, put 1, take 1
        put("c"); take(); told(); undone(lambda: put("d").data) -> d
        undone(lambda: ack(2)); touch(2, 5) -> 2t 'c'
        undone(lambda: bury(2)); touch(2, 5) -> 2t 'c'
        together(lambda: [release(2), take(), touch(2, 5)]) -> [2r 'c', 2t 'c', 2t 'c']
        ack(2)                      -> 2- 'c'
        calls()                     -> ack 1, bury 1, put 2, release 1, take 3, touch 3
    """),
}  # fmt: skip

DRIVERS = {"rows": Rows, "kept": {"keep": True, "buried": "any"}, "own": {"lifetime": True, "ttr": 5, "priority": True}}


@pytest.mark.parametrize("story", STORIES)
def test_a_tube_returns_tells_and_counts_what_its_story_says(queue, clock, story):
    types, options, lines = STORIES[story]
    for type in types:
        if type in DRIVERS:
            queue.register_driver(type, DRIVERS[type])
        tube = queue.create_tube(f"tube of {type}", type, **options)
        found, wanted = played(lines, names_of(queue, tube, clock))
        assert f"{type}:\n{found}" == f"{type}:\n{wanted}"


HAS = {
    "fifo": (),
    "fifottl": ("pri", "ttl", "ttr", "delay"),
    "limfifottl": ("pri", "ttl", "ttr", "delay", "timeout"),
    "utube": ("utube",),
    "utubettl": ("pri", "ttl", "ttr", "delay", "utube"),
}


def test_an_option_that_a_type_lacks_is_refused_as_a_feature_that_is_off(queue):
    for type, has in HAS.items():
        tube = queue.create_tube(type, type)
        for option in ("pri", "ttl", "ttr", "delay", "utube", "timeout"):
            with nullcontext() if option in has else pytest.raises(xq.FeatureOff, match=option):
                tube.put("a", **{option: 1})


REFUSALS = """
    # of an option that a type lacks
    put("a", ttl=5)                 -> FeatureOff: put(ttl=) needs a tube of the type TIMED, and this one is of the type
    put("a", timeout=1)             -> FeatureOff: put(timeout=) needs a tube of the type limfifottl, and this one
    touch(1, 5)                     -> FeatureOff: touch(increment=) needs a tube of the type TIMED, and this one is
    bare.kick(1)                    -> FeatureOff: kick needs a tube of the type fifo, fifottl, limfifottl, utube or
    # of a task of others, or in another state
    timed.ack(1)                    -> WrongState: cannot ack task 1: it is delayed (~); ack needs a taken task (t)
    owned.ack(1)                    -> NotOwner: it is taken by another session (OWNER), which identify('OWNER') joins
    # of a call in another form
    timed.put("x", {"pri": 1, "delay": 5}) -> BadType: put takes its options by name: put(data, pri=1, delay=5)
    timed.put("x", prio=1)          -> BadType: put has no option 'prio': it has pri, ttl, ttr, delay, utube, timeout
    release(1, {"delay": 5})        -> BadType: release takes its options by name: release(id, delay=5)
    ack(1, update={})               -> BadType: ack has no option 'update': it has id
    tube.worker("no function")      -> ConfigurationError: function
    create("a", "fifo", {"temporary": True}) -> BadType: create_tube(name, type, temporary=True)
    queue.tube("mail")              -> BadType: tube['mail'] is one of them
    queue.tube["nonsense"]          -> UnknownTube
    queue.statistics("nonsense")    -> UnknownTube: nonsense
    # of create_tube
    create("x", "fifo", ttl=1)      -> FeatureOff: create_tube(ttl=) needs a tube of the type TIMED
    create("x", "fifo", nonsense=1) -> BadType: nonsense
    create("x", "fifo", storage_mode="vinyl") -> BadValue
    create("tube", "fifo")          -> TubeExists
    create("x", "rows", colour=object()) -> BadType: JSON
    create("x", "few")              -> ConfigurationError: kick
    # of register_driver
    register("fifo", {})            -> ConfigurationError
    register("x", {"keep": True, "zombie": True}) -> Conflict
    register("x", {"unique": True}) -> ConfigurationError: the role 'unique'
    register("x", Lacks)            -> ConfigurationError: create_space
    # of settings, of which none is set if one is wrong
    queue.cfg({"ttr": 5})           -> BadType: cfg takes its options by name: cfg(ttr=5)
    queue.identify("00000000-0000-4000-8000-000000000000") -> UnknownSession
    # and nothing was changed
    calls()                         -> put 1
    sorted(queue.tube)              -> [bare, owned, timed, tube]
    sorted(queue.driver)            -> [bare, few, fifo, fifottl, limfifottl, rows, utube, utubettl]
"""


def test_a_refusal_says_what_is_wrong_and_changes_nothing(queue, clock):
    queue.register_driver("bare", {})
    queue.register_driver("rows", Rows)
    queue.register_driver("few", type("Few", (Rows,), {"kick": None}))
    tube, owned = queue.create_tube("tube", "fifo"), queue.create_tube("owned", "fifo")
    bare, timed = queue.create_tube("bare", "bare"), queue.create_tube("timed", "fifottl")
    for one in (tube, owned):
        one.put("a")
    timed.put("a", delay=5)
    before = queue.database.get_tables()
    lines = "\n".join(line for line in REFUSALS.splitlines() if line and "# " not in line)
    names = names_of(queue, tube, clock)
    names |= {"register": queue.register_driver, "Lacks": type("Lacks", (), {"new": print})}
    names |= {"owned": owned, "bare": bare, "timed": timed}
    with queue.session() as owner:
        owned.take(0)
        with queue.session():
            story = lines.replace("OWNER", owner.uuid).replace("TIMED", "fifottl, limfifottl or utubettl")
            found, wanted = played(story, names)
    assert found == wanted
    assert queue.database.get_tables() == before


DATA = [
    *(None, True, 0, -(2**70), 1.5, "", "null", "=", 'é 😀 \x00 \n \\ "', "\ud800", [], {}, {"": {"é": 1}}),
    *([1, [None, {"a": [{}]}]], b"", b"null", b"\x00\xff" * 500, "x" * 100_000, b"\x00" * 100_000),
]


def test_data_is_any_value_of_json_or_bytes(queue):
    tube = queue.create_tube("data", "fifo")
    for data in DATA:
        task = tube.put(data)
        taken = tube.take(0)
        assert task.data == taken.data == tube.peek(task.id).data == data
        assert type(taken.data) is type(data)
        assert tube.ack(taken.id).data == data
    assert tube.put(bytearray(b"a")).data == tube.put(memoryview(b"a")).data == b"a"
    assert tube.put((1, (2,))).data == [1, [2]]


def test_what_is_no_value_of_json_is_refused(queue):
    tube = queue.create_tube("data", "fifo")
    endless: list[Any] = []
    endless.append(endless)
    for data in (object(), {1: 2}, {"a": b"b"}, {1, 2}):
        with pytest.raises(xq.BadType, match="JSON"):
            tube.put(data)
    for data in (math.nan, [math.inf], endless):
        with pytest.raises(xq.BadValue, match="JSON"):
            tube.put(data)
    assert tube.statistics()["tasks"]["total"] == 0


def test_a_row_that_another_program_writes_is_a_task(queue):
    tube = queue.create_tube("data", "fifottl")
    for data in ('{"a": 1}', "plain", None):
        tube.model.create(data=data)
    assert [tube.take(0).data for _ in range(3)] == [{"a": 1}, "plain", None]
    assert tube.ack(2) == (2, "-", "plain")


def test_tasks_are_taken_and_acked_many_at_a_time(queue):
    tube = queue.create_tube("tube", "fifo")
    put(tube, {"url": "a"}, b"b", None)
    taken = tube.take_many(2, timeout=0)
    assert taken == [(1, "t", {"url": "a"}), (2, "t", b"b")]
    with pytest.raises(xq.NotFound):
        tube.ack_many([*taken, 77])
    assert tube.peek(1).state == "t", "all of them, or none"
    assert tube.ack_many([taken[0], 2]) == [(1, "-", {"url": "a"}), (2, "-", b"b")]
    assert [tube.take_many(5, timeout=0) for _ in range(2)] == [[(3, "t", None)], []]


def test_on_task_change_returns_the_former_and_none_ends_it(queue):
    told: list[str] = []
    first, second = (lambda task, event, name=name: told.append(name) for name in ("first", "second"))
    tube = queue.create_tube("tube", "fifo", on_task_change=first)
    for new, former in ((second, first), (None, second), (first, None)):
        tube.put("a")
        assert tube.on_task_change(new) is former
    assert told == ["first", "second"]


def test_statistics_are_told_of_a_tube_and_of_all(queue):
    one, other = queue.create_tube("one", "fifo"), queue.create_tube("other", "utubettl")
    put(one, "a", "b")
    put(other, "c", delay=5)
    one.take(0)
    found = queue.statistics()
    assert set(found) == {"one", "other"}
    assert found["one"] == queue.statistics("one") == one.statistics()
    assert found["one"]["tasks"] == {"ready": 1, "taken": 1, "delayed": 0, "buried": 0, "done": 0, "total": 2}
    assert found["other"]["calls"] == {**dict.fromkeys(CALLS, 0), "put": 1}


def test_tubes_are_found_by_name(queue, db, clock):
    emails = queue.create_tube("emails", "fifo")
    pages = queue.create_tube("pages", "fifottl", ttl=5)
    assert queue.tube() == list(queue.tube) == ["emails", "pages"]
    assert queue.tube["emails"] is queue.tube.emails is Tubes(db, clock=clock).tube.emails is emails
    assert queue.create_tube("pages", "fifo", if_not_exists=True) is pages
    assert (pages.name, pages.type, dict(pages.options)) == ("pages", "fifottl", {"ttl": 5})
    assert (len(queue.tube), "emails" in queue.tube, "nonsense" in queue.tube) == (2, True, False)


NAMES = ["order", '"x', ";--", " ", "a b ", "é", "😀" * 64, "%s", "\n", "x" * 64, "X" * 64, "a'`\\"]


def test_any_text_names_a_tube(queue):
    for name in NAMES:
        queue.create_tube(name, "fifo").put(name)
    assert sorted(queue.tube) == sorted(NAMES)
    for name in NAMES:
        assert queue.tube[name].take(0).data == name
        assert queue.statistics(name)["calls"]["take"] == 1


def left_of_tubes(queue: Tubes) -> list[Any]:
    """What the database has of the tables of tubes."""
    tables = [name for name in queue.database.get_tables() if name.startswith("xq_tube_")]
    known = queue.database.execute_sql("SELECT name FROM xq_queue").fetchall()
    return tables + [name for (name,) in known if name.startswith("xq_tube_")]


def test_sessions_of_tubes_need_no_queue_and_outlive_the_last_one(queue):
    def listed() -> list[str]:
        return [uuid for (uuid,) in queue.database.execute_sql("SELECT uuid FROM xq_session").fetchall()]

    own = queue.identify()
    with queue.session() as session:
        assert not list(queue.database.execute_sql("SELECT name FROM xq_queue").fetchall())
        assert sorted(listed()) == sorted([own, session.uuid])
    assert listed() == [own]
    queue.create_tube("tube", "fifo").drop()
    assert queue.identify() == own
    with queue.session(), queue.session():
        queue.cfg(ttr=5)


def test_a_tube_is_dropped_with_all_that_belongs_to_it(queue):
    queue.create_tube("free", "fifo").drop()
    before = left_of_tubes(queue)
    for type in ALL:
        tube = queue.create_tube("tube", type)
        put(tube, "a")
        tube.take(0)
        with pytest.raises(xq.TubeBusy, match="1 of its tasks"):
            tube.drop()
        tube.release_all()
        assert tube.drop() is True
        assert (queue.tube(), left_of_tubes(queue)) == ([], before)
        again = queue.create_tube("tube", "fifo")
        assert (again.statistics()["calls"]["put"], again.take(0)) == (0, None)
        for late in (partial(tube.put, "a"), partial(tube.take, 0), tube.statistics, tube.drop):
            with pytest.raises(xq.TubeDropped, match="'tube' was dropped"):
                late()
        again.drop()


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_a_name_whose_table_is_gone_is_free(queue, if_not_exists):
    queue.create_tube("free", "fifo").drop()
    before = left_of_tubes(queue)
    tube = queue.create_tube("tube", "utube")
    queue.database.execute_sql(f"DROP TABLE {tube.model._meta.table_name}")
    with pytest.raises(xq.TubeDropped):
        tube.put(1)
    again = queue.create_tube("tube", "fifo", if_not_exists=if_not_exists)
    assert (again.type, again.put("a").id) == ("fifo", 1)
    assert again.drop()
    assert (queue.tube(), left_of_tubes(queue)) == ([], before), "and nothing stays of what was there"


def test_a_tube_is_created_and_dropped_with_the_transaction_or_outside(queue):
    db, tube = queue.database, queue.create_tube("tube", "fifo")
    calls = (tube.drop, lambda: queue.create_tube("other", "fifo"))
    tube.put("a")
    with db.atomic() as transaction:
        for call in calls:
            if isinstance(db, pw.MySQLDatabase):
                with pytest.raises(xq.ConfigurationError, match="outside"):
                    call()
            else:
                call()
        transaction.rollback()
    assert queue.tube() == ["tube"]
    assert queue.tube.tube.take(0).data == "a"


def test_a_tube_is_hidden_until_its_type_is_registered(queue, clock):
    types: dict[str, Any] = {"rows": Rows, "plain": {"buried": True}}
    for type, driver in types.items():
        queue.register_driver(type, driver)
        queue.create_tube(type, type).put("x")
    del vars(queue.database)["_xq_database"].tubes  # as a process that has just begun
    again: Any = Tubes(queue.database, clock=clock)
    assert again.tube() == []
    with pytest.raises(xq.UnknownTube, match="of the type 'rows', which register_driver"):
        again.tube["rows"]
    for type, driver in types.items():
        again.register_driver(type, driver)
    assert [again.tube[type].take(0).data for type in types] == ["x", "x"]


def test_a_create_tube_that_fails_leaves_its_name_free_and_no_table(queue):
    class Fails(Rows):
        def start(self) -> None:
            raise RuntimeError("it does not start")

    queue.register_driver("fails", Fails)
    with pytest.raises(RuntimeError, match="does not start"):
        queue.create_tube("tube", "fails")
    assert queue.tube() == []
    assert not [name for name in queue.database.get_tables() if name.startswith("xq_tube_tube_")]
    assert queue.create_tube("tube", "fifo").put("a").id == 1


def test_a_url_leads_to_the_tubes_of_a_file(tmp_path):
    queue = Tubes(f"sqlite:///{tmp_path}/app.db")
    queue.create_tube("tube", "fifo").put("a")
    queue.database.close()
    again: Any = Tubes(f"sqlite+aiosqlite:///{tmp_path}/app.db")  # a URL of SQLAlchemy's
    assert again.tube.tube.take(0).data == "a"
    again.tube.tube.ack(1)
    again.database.close()
    with pytest.raises(xq.BadValue, match="^write sqlite:///app.db, .*: the text given names no database\n"):
        Tubes("app.db")
    for bad in ("nonsense://x", "sqlite:app.db", "sqlite://app.db", "", 5):
        with pytest.raises(xq.BadType if bad == 5 else xq.BadValue):
            Tubes(bad)


def test_what_a_session_has_taken_is_given_back_at_its_end_or_kept_for_its_ttr(queue):
    queue.register_driver("rows", Rows)
    for type in ("fifo", "rows"):
        tube = queue.create_tube(type, type)
        put(tube, *"abc")
        queue.cfg(ttr=0)
        with queue.session():
            assert [tube.take(0).id, tube.take(0).id] == [1, 2]
            tube.bury(2)
        assert [tube.peek(id).state for id in (1, 2, 3)] == ["r", "!", "r"]
        queue.cfg(ttr=1000)
        with queue.session() as session:
            assert tube.take(0).id == 1
        assert tube.peek(1).state == "t"
        with queue.session(session.uuid):
            assert tube.ack(1).state == "-", "it was kept"


def test_identify_holds_until_the_block_around_it_is_left(queue):
    tube = queue.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine, other = queue.identify(), queue.session()
    with queue.session() as session:
        assert queue.identify() == session.uuid
        tube.take(0)
        assert queue.identify(other.uuid) == queue.identify() == other.uuid
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        assert tube.take(0).id == 2
        queue.identify(session.uuid)
        assert tube.ack(1).state == "-"
    assert queue.identify() == mine
    assert tube.peek(2).state == "r", "nobody is left in the other"
    with pytest.raises(xq.UnknownSession):
        queue.identify(other.uuid)
