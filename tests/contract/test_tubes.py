"""The classic tubes: what those who know tarantool/queue expect of them. Without other threads and processes."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.support import tubes as support
from tests.support.stories import played
from tests.support.tubes import Rows, left_of_tubes, put
from xq import Feature
from xq.tubes import PRESETS, Tubes

clock, queue = support.clock, support.queue

ALL, TIMED, SUBQUEUES = [*PRESETS], ["fifottl", "limfifottl", "utubettl"], ["utube", "utubettl"]
CALLS = ("ack", "bury", "delay", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr")
METHODS = (
    *("put", "take", "ack", "release", "release_all", "bury", "kick", "delete", "touch", "peek", "truncate"),
    *("tasks_by_state", "drop"),
)


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

    def undone(work: Any) -> Any:
        with queue.database.atomic() as transaction:
            found = work()
            transaction.rollback()
        return found

    def together(work: Any) -> Any:
        with queue.database.atomic():
            return work()

    def elsewhere(work: Any) -> Any:
        with queue.session():
            return work()

    return {
        **{name: getattr(tube, name) for name in METHODS},
        "take": lambda timeout=0: tube.take(timeout),
        "puts": puts,
        "took": took,
        "told": told,
        "inf": math.inf,
        "tasks": lambda: counts("tasks"),
        "calls": lambda: counts("calls"),
        "nan": math.nan,
        "tube": tube,
        "tick": clock.tick,
        "sweep": tube.model.xq.sweep if hasattr(tube.model, "xq") else None,
        "queue": queue,
        "undone": undone,
        "together": together,
        "elsewhere": elsewhere,
        "create": queue.create_tube,
    }


STORIES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    # the life of a task
    "put, take, ack": (
        ALL,
        {},
        """
        put("a")                    -> 1r 'a'
        take()                      -> 1t 'a'
        take()                      -> None
        ack(1)                      -> 1- 'a'
        peek(1)                     -> NotFound
        told()                      -> 1r put, 1t take, 1- delete
        calls()                     -> ack 1, put 1, take 1
        tasks()                     -> done 1
        """,
    ),
    "first put, first taken, also after a release": (
        ALL,
        {},
        """
        puts("abc")                 -> [1r 'a', 2r 'b', 3r 'c']
        take()                      -> 1t 'a'
        release(1)                  -> 1r 'a'
        took()                      -> a b c
        release(peek(2))            -> 2r 'b'
        peek(peek(2))               -> 2r 'b'
        """,
    ),
    "buried in any state, and kicked in the order of take": (
        ALL,
        {},
        """
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
        """,
    ),
    "deleted in any state": (
        ALL,
        {},
        """
        puts("abc"); take(); bury(2); delete(1) -> 1- 'a'
        delete(2)                   -> 2- 'b'
        delete(3)                   -> 3- 'c'
        tasks()                     -> done 3
        """,
    ),
    "an id is never used again": (
        ALL,
        {},
        """
        puts("ab"); delete(2); delete(1); puts("c") -> [3r 'c']
        truncate(); puts("d")       -> [4r 'd']
        """,
    ),
    "release_all and truncate": (
        ALL,
        {},
        """
        puts("abc"); take(); take(); release_all() -> 2
        tasks()                     -> ready 3, total 3
        take(); drop()              -> TubeBusy
        told(); truncate()          -> 3
        told()                      -> nothing
        tasks()                     -> nothing
        calls()                     -> put 3, release 2, take 3
        ack(1)                      -> NotFound
        drop()                      -> True
        """,
    ),
    "listed by state in the order of take": (
        ALL,
        {},
        """
        puts("abcd"); take(); bury(3); tasks_by_state("r") -> [2r 'b', 4r 'd']
        tasks_by_state("t")         -> [1t 'a']
        tasks_by_state("!")         -> [3! 'c']
        tasks_by_state("~")         -> []
        tasks_by_state("-")         -> []
        tasks_by_state("ready")     -> BadValue
        """,
    ),
    "what is not taken cannot be finished": (
        ALL,
        {},
        """
        puts("a"); ack(1)           -> WrongState
        release(1)                  -> WrongState
        ack(99)                     -> NotFound
        release(99)                 -> NotFound
        peek(99)                    -> NotFound
        bury(99)                    -> NotFound
        delete(99)                  -> NotFound
        ack("x")                    -> BadType
        ack(1.5)                    -> BadType
        calls()                     -> put 1
        """,
    ),
    # order
    "the lowest pri first, then the lowest id": (
        TIMED,
        {"pri": 4},
        """
        puts("c", pri=5); puts("a", pri=1); puts("d", pri=5); puts("b"); took() -> a b c d
        put("a", pri="1")           -> BadType
        put("a", pri=2**63)         -> BadValue
        """,
    ),
    # time
    "a delay": (
        TIMED,
        {},
        """
        put("a", delay=5)           -> 1~ 'a'
        tick(4); take()             -> None
        tick(2); take()             -> 1t 'a'
        release(1, delay=5)         -> 1~ 'a'
        told()                      -> 1~ put, 1r delay, 1t take, 1~ release
        tick(6); sweep(); calls()   -> delay 2, put 1, release 1, take 1
        take(); release(1, delay=0) -> 1r 'a'
        delete(1); put("b", delay=0) -> 2r 'b'
        """,
    ),
    "a task lives for its delay and its ttl": (
        TIMED,
        {},
        """
        put("a", ttl=10, delay=5); tick(14); sweep(); tasks() -> ready 1, total 1
        told(); tick(2); take()     -> None
        sweep(); tasks()            -> done 1
        told()                      -> 1- ttl
        calls()                     -> delay 1, put 1, ttl 1
        """,
    ),
    "a release with a delay prolongs the life": (
        TIMED,
        {},
        """
        put("a", ttl=10); take(); release(1, delay=5); tick(14); take() -> 1t 'a'
        """,
    ),
    "a release without one does not begin it anew": (
        TIMED,
        {},
        """
        put("a", ttl=10); take(); tick(9); release(1); tick(2); take() -> None
        sweep(); tasks()            -> done 1
        """,
    ),
    "a buried task dies at its time, kicked or not": (
        TIMED,
        {},
        """
        puts("ab", ttl=10); bury(1); bury(2); tick(9); kick() -> 1
        tick(2); sweep(); tasks()   -> done 2
        calls()                     -> bury 2, kick 1, put 2, ttl 2
        """,
    ),
    "a taken task whose time has come is first given back": (
        TIMED,
        {},
        """
        put("a", ttl=10); take(); told(); tick(11); sweep(); told() -> 1r ttr, 1- ttl
        calls()                     -> put 1, take 1, ttl 1, ttr 1
        ack(1)                      -> NotFound
        """,
    ),
    "a task that is taken too long is given back, each time": (
        TIMED,
        {},
        """
        put("a", ttr=10); take(); tick(11); sweep(); peek(1) -> 1r 'a'
        ack(1)                      -> WrongState
        take()                      -> 1t 'a'
        tick(11); sweep(); calls()  -> put 1, take 2, ttr 2
        """,
    ),
    "a tube has a ttl and a ttr for tasks that bring none": (
        TIMED,
        {"ttl": 100, "ttr": 10},
        """
        puts("a"); puts("b", ttl=20, ttr=15); puts("c", ttl=1000); puts("d", ttl=inf, ttr=inf); took() -> a b c d
        tick(11); sweep(); tasks_by_state("r") -> [1r 'a', 3r 'c']
        tick(10); sweep(); tasks()  -> done 1, ready 2, taken 1, total 3
        tick(1e9); sweep(); tasks() -> done 3, taken 1, total 1
        ack(4)                      -> 4- 'd'
        """,
    ),
    "the ttr of a tube is its ttl where it has none": (
        TIMED,
        {"ttl": 10},
        """
        put("a", ttl=1000); take(); tick(11); sweep(); peek(1) -> 1r 'a'
        """,
    ),
    "a touch prolongs the ttr and the ttl": (
        TIMED,
        {},
        """
        put("a", ttl=20, ttr=10); take(); touch(1, 2.01) -> 1t 'a'
        touch(1, 7.99); tick(19); sweep(); peek(1) -> 1t 'a'
        touch(1, 5); tick(5); sweep(); peek(1) -> 1t 'a'
        release(1); tick(10); take() -> 1t 'a'
        tick(2); sweep(); tasks()   -> done 1
        told() -> 1r put, 1t take, 1t touch, 1t touch, 1t touch, 1r release, 1t take, 1r ttr, 1- ttl
        calls()                     -> put 1, release 1, take 2, touch 3, ttl 1, ttr 1
        """,
    ),
    "a touch gives no end to what never ends": (
        TIMED,
        {},
        """
        put("a"); take(); touch(1, 5); tick(1e6); sweep(); ack(1) -> 1- 'a'
        """,
    ),
    "a touch by nothing, and those that fail, are not counted": (
        TIMED,
        {},
        """
        put("a", ttr=10); take(); told(); touch(1, 0) -> 1t 'a'
        touch(1, -1)                -> BadValue
        touch(1, nan)               -> BadValue
        touch(1, inf)               -> BadValue
        touch(1, "1")               -> BadType
        touch(1, True)              -> BadType
        touch(7, 5)                 -> NotFound
        elsewhere(lambda: touch(1, 5)) -> NotOwner
        told()                      -> nothing
        calls()                     -> put 1, take 1
        tick(11); sweep(); peek(1)  -> 1r 'a'
        """,
    ),
    # room
    "a full tube takes no more until there is room": (
        ["limfifottl"],
        {"capacity": 2},
        """
        puts("ab"); put("c")        -> None
        put("c", timeout=0.01)      -> None
        take(); bury(2); put("c")   -> None
        ack(1); put("c", ttl=5)     -> 3r 'c'
        tick(6); put("d")           -> 4r 'd'
        calls()                     -> ack 1, bury 1, put 4, take 1, ttl 1
        """,
    ),
    "a capacity of 0 is none": (["limfifottl"], {"capacity": 0}, 'puts("a" * 20); tasks() -> ready 20, total 20'),
    "a tube without a capacity is never full": (["limfifottl"], {}, 'puts("a" * 20); tasks() -> ready 20, total 20'),
    # sub-queues
    "of a sub-queue one task is taken at a time, in order": (
        SUBQUEUES,
        {},
        """
        put("a0", utube="a"); put("a1", utube="a"); put("b0", utube="b"); put("a2", utube="a"); took() -> a0 b0
        ack(1); took()              -> a1
        release(2); took()          -> a1
        delete(2); took()           -> a2
        """,
    ),
    "only a taken task is in the way": (
        SUBQUEUES,
        {"storage_mode": "ready_buffer"},
        """
        puts("abc", utube="u"); bury(1); took() -> b
        kick(5)                     -> 1
        took()                      -> nothing
        ack(2); took()              -> a
        """,
    ),
    "tasks without a sub-queue share one called nil": (
        SUBQUEUES,
        {"storage_mode": "default"},
        'put("a"); put("b"); put("c", utube="nil"); took() -> a',
    ),
    "a sub-queue is named by text": (
        SUBQUEUES,
        {},
        """
        put(1, utube=1); put(2, utube="1"); put(3, utube=True); put(4, utube="true"); put(5, utube=1.5); took() -> 1 3 5
        put("a", utube="é 😀")      -> 6r 'a'
        put("a", utube=b"1")        -> BadType
        put("a", utube=[])          -> BadType
        """,
    ),
    "within a sub-queue the lowest pri comes first, also one that came meanwhile": (
        ["utubettl"],
        {},
        """
        put("a1", utube="a", pri=2); put("b1", utube="b", pri=3); put("a0", utube="a", pri=1); took() -> a0 b1
        ack(3); put("a2", utube="a", pri=0); took() -> a2
        """,
    ),
    # transactions
    "what is undone is not told and not counted": (
        ["fifottl", "limfifottl"],
        {"ttr": 10},
        """
        puts("a"); told(); undone(lambda: [put("b").id, take(), touch(1, 5), ack(1)]) -> [2, 1t 'a', 1t 'a', 1- 'a']
        told()                      -> nothing
        calls()                     -> put 1
        tasks()                     -> ready 1, total 1
        """,
    ),
    # presets and classes of ones own
    "what is kept when it is done is done once": (
        ["kept"],
        {},
        """
        puts("abcd"); told(); ack(take()) -> 1- 'a'
        peek(1)                     -> 1- 'a'
        ack(take()); told()         -> 1t take, 1- delete, 2t take, 2- delete
        tasks_by_state("-")         -> [1- 'a', 2- 'b']
        delete(1); delete(3); tasks() -> done 3, ready 1, total 2
        calls()                     -> ack 2, delete 2, put 4, take 2
        truncate(); tasks()         -> done 3
        """,
    ),
    "the ttl, ttr and pri of a tube of a preset of ones own": (
        ["own"],
        {"ttl": 1000, "pri": 3},
        """
        put("a"); put("b", pri=1); take() -> 2t 'b'
        tick(6); sweep(); peek(2)   -> 2r 'b'
        tick(1000); sweep(); tasks() -> done 2
        put("c", utube="u")         -> FeatureOff
        """,
    ),
    "a feature that a preset has off is not there": (
        ["off"],
        {"ttl": 60},
        """
        put("a", ttl=5)             -> 1r 'a'
        tick(6); sweep(); tasks()   -> done 1
        put("a", ttr=5)             -> FeatureOff
        create("b", "off", ttr=5)   -> FeatureOff
        """,
    ),
    "a class of ones own": (
        ["rows"],
        {"colour": "blue"},
        """
        put("b", prefix="a")        -> 1r 'ab'
        ack(1)                      -> WrongState
        release(1)                  -> WrongState
        take()                      -> 1t 'ab'
        take(0.01)                  -> None
        touch(1, 5)                 -> 1t 'ab'
        drop()                      -> TubeBusy
        elsewhere(lambda: ack(1))   -> NotOwner
        release(1)                  -> 1r 'ab'
        bury(1)                     -> 1! 'ab'
        tasks_by_state("!")         -> [1! 'ab']
        kick(5)                     -> 1
        ack(take())                 -> 1- 'ab'
        told()                      -> 1r put, 1t take, 1t touch, 1r release, 1! bury, 1r kick, 1t take, 1- delete
        calls()                     -> ack 1, bury 1, kick 1, put 1, release 1, take 2, touch 1
        tasks()                     -> done 1
        put("c"); take(); release_all() -> 1
        truncate(); drop()          -> True
        """,
    ),
    "what is wrong with a call of a class is said as of any tube": (
        ["rows"],
        {},
        """
        put("a"); peek(7)           -> NotFound
        ack(7)                      -> NotFound
        touch(7, 5)                 -> NotFound
        bury("1")                   -> BadType
        delete(None)                -> BadType
        release(2**64)              -> BadValue
        tasks_by_state("x")         -> BadValue
        kick(-1)                    -> BadValue
        kick("1")                   -> BadType
        take(-1)                    -> BadValue
        take(nan)                   -> BadValue
        touch(1, inf)               -> BadValue
        together(lambda: [take(), take(1)]) -> InTransaction
        tasks_by_state("-")         -> []
        """,
    ),
    "what is undone of a class": (
        ["rows"],
        {},
        """
        together(lambda: [put("b").data, bury(take().id).state, told(), calls()]) -> [b, !, nothing, nothing]
        told()                      -> 1r put, 1t take, 1! bury
        calls()                     -> bury 1, put 1, take 1
        put("c"); take(); told(); undone(lambda: put("d").data) -> d
        undone(lambda: ack(2)); touch(2, 5) -> 2t 'c'
        undone(lambda: release(2)); touch(2, 5) -> 2t 'c'
        undone(lambda: bury(2)); touch(2, 5) -> 2t 'c'
        undone(truncate); touch(2, 5) -> 2t 'c'
        told()                      -> 2t touch, 2t touch, 2t touch, 2t touch
        together(lambda: [release(2), take(), touch(2, 5)]) -> [2r 'c', 2t 'c', 2t 'c']
        ack(2)                      -> 2- 'c'
        calls()                     -> ack 1, bury 1, put 2, release 1, take 3, touch 5
        """,
    ),
}

DRIVERS = {
    "rows": Rows,
    "kept": {"keep": True, "buried": "any"},
    "off": {"lifetime": False, "ttl": True, "ttr": None, "keep": True},
    "own": {"lifetime": True, "ttr": 5, "priority": True},
}


@pytest.mark.parametrize("story", STORIES)
def test_a_tube_returns_tells_and_counts_what_its_story_says(queue, clock, story):
    types, options, lines = STORIES[story]
    for type in types:
        if type in DRIVERS:
            queue.register_driver(type, DRIVERS[type])
        tube = queue.create_tube(f"tube of {type}", type, **options)
        found, wanted = played(lines, names_of(queue, tube, clock))
        assert f"{type}:\n{found}" == f"{type}:\n{wanted}"


OPTIONS = ("pri", "ttl", "ttr", "delay", "utube", "timeout")
HAS = {
    "fifo": (),
    "fifottl": ("pri", "ttl", "ttr", "delay"),
    "limfifottl": ("pri", "ttl", "ttr", "delay", "timeout"),
    "utube": ("utube",),
    "utubettl": ("pri", "ttl", "ttr", "delay", "utube"),
}


def test_an_option_that_a_type_lacks_is_refused_as_a_feature_that_is_off(queue):
    found: dict[str, tuple[str, ...]] = {}
    for type in HAS:
        tube, found[type] = queue.create_tube(type, type), ()
        for option in OPTIONS:
            try:
                tube.put("a", **{option: 1})
            except xq.FeatureOff:
                continue
            found[type] += (option,)
    assert found == HAS


REFUSALS = """
    # of an option that a type lacks
    put("a", ttl=5)                 -> FeatureOff: put(ttl=) needs a tube of the type TIMED, and this one is of the type
    put("a", pri=1)                 -> FeatureOff: put(pri=) needs a tube of the type TIMED, and this one is of the type
    put("a", utube="u")             -> FeatureOff: put(utube=) needs a tube of the type utube or utubettl, and this one
    put("a", timeout=1)             -> FeatureOff: put(timeout=) needs a tube of the type limfifottl, and this one
    release(1, delay=5)             -> FeatureOff: release(delay=) needs a tube of the type TIMED, and this one
    touch(1, 5)                     -> FeatureOff: touch needs a tube of the type TIMED, and this one is of the type
    touch(1, 0)                     -> FeatureOff
    bare.kick(1)                    -> FeatureOff: kick needs a tube of the type fifo, fifottl, limfifottl, utube or
    # of a task of others, or in another state
    timed.ack(1)                    -> WrongState: cannot ack task 1: it is delayed (~); ack needs a taken task (t)
    owned.ack(1)                    -> NotOwner: it is taken by another session (OWNER), which identify('OWNER') joins
    # of a call in another form
    timed.put("x", {"pri": 1, "delay": 5}) -> BadType: put takes its options by name: put(data, pri=1, delay=5)
    timed.put("x", 1)               -> BadType: put(data, pri=..., ttl=..., ttr=..., delay=..., utube=..., timeout=...)
    timed.put("x", prio=1)          -> BadType: put has no option 'prio': it has pri, ttl, ttr, delay, utube, timeout
    timed.put("x", {"prio": 1})     -> BadType: put has no option 'prio': it has pri, ttl, ttr, delay, utube, timeout
    timed.put()                     -> BadType: put: missing a required argument: 'data'
    release(1, {"delay": 5})        -> BadType: release takes its options by name: release(id, delay=5)
    release(1, dely=5)              -> BadType: release has no option 'dely': it has delay
    timed.touch(1)                  -> BadType: touch: missing a required argument: 'increment'
    timed.touch(1, inf)             -> BadValue: increment is a number of seconds from 0 to 10000000000, not
    timed.take(ttr=3)               -> BadType: take has no option 'ttr': it has timeout
    ack(1, update={})               -> BadType: ack has no option 'update': it has id
    tube.on_task_change(5)          -> BadType
    tube.worker("no function")      -> ConfigurationError: function
    create("a", "fifo", {"temporary": True}) -> BadType: create_tube(name, type, temporary=True)
    queue.tube("mail")              -> BadType: tube['mail'] is one of them
    queue.tube["nonsense"]          -> UnknownTube
    queue.tube.nonsense             -> AttributeError
    queue.statistics("nonsense")    -> UnknownTube: nonsense
    # of create_tube
    create("x", "fifo", ttl=1)      -> FeatureOff: create_tube(ttl=) needs a tube of the type TIMED
    create("x", "fifo", pri=1)      -> FeatureOff: pri
    create("x", "utube", ttr=1)     -> FeatureOff: ttr
    create("x", "fifottl", capacity=1) -> FeatureOff: capacity
    create("x", "fifo", nonsense=1) -> BadType: nonsense
    create("x", "limfifottl", ttl=-1) -> BadValue
    create("x", "limfifottl", ttr=nan) -> BadValue
    create("x", "limfifottl", capacity=-1) -> BadValue
    create("x", "limfifottl", capacity=1.5) -> BadType
    create("x", "limfifottl", pri="1") -> BadType
    create("x", "fifo", storage_mode="vinyl") -> BadValue
    create("x", "fifo", temporary=1) -> BadType
    create("x", "fifo", on_task_change=1) -> BadType
    create("x", "nonsense")         -> BadValue
    create("x", None)               -> BadValue
    create("", "fifo")              -> BadValue
    create("x" * 65, "fifo")        -> BadValue
    create("\\x00", "fifo")         -> BadValue
    create("\\ud800", "fifo")       -> BadValue
    create(b"x", "fifo")            -> BadType
    create("tube", "fifo")          -> TubeExists
    create("x", "rows", colour=object()) -> BadType: JSON
    create("x", "few")              -> ConfigurationError: kick
    # of register_driver
    register("fifo", {})            -> ConfigurationError
    register("bare", {})            -> ConfigurationError
    register("x", {"keep": True, "zombie": True}) -> Conflict
    register("x", {"nonsense": True}) -> ConfigurationError
    register("x", {"retval": "dict"}) -> ConfigurationError
    register("x", {"events": None}) -> ConfigurationError
    register("x", 5)                -> ConfigurationError
    register("x", {"id": "required"}) -> ConfigurationError: sets id
    register("x", {"unique": True}) -> ConfigurationError: the role 'unique'
    register("x", {"own": Feature("own", needs=("payload",))}) -> ConfigurationError: 'payload'
    register("x", Lacks)            -> ConfigurationError: create_space
    # of settings, of which none is set if one is wrong
    queue.cfg({"ttr": 5})           -> BadType: cfg takes its options by name: cfg(ttr=5)
    queue.cfg(ttr=-1)               -> BadValue
    queue.cfg(ttr=inf)              -> BadValue
    queue.cfg(ttr="1")              -> BadType
    queue.cfg(ttr=5, in_replicaset=1) -> BadType
    queue.cfg(nonsense=1)           -> BadType
    queue.identify("nonsense")      -> BadValue
    queue.identify("")              -> BadValue
    queue.identify(5)               -> BadType
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
    names |= {"register": queue.register_driver, "Feature": Feature, "Lacks": type("Lacks", (), {"new": print})}
    names |= {"owned": owned, "bare": bare, "timed": timed}
    with queue.session() as owner:
        owned.take(0)
        with queue.session():
            story = lines.replace("OWNER", owner.uuid).replace("TIMED", "fifottl, limfifottl or utubettl")
            found, wanted = played(story, names)
    assert found == wanted
    assert queue.database.get_tables() == before


# data

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
    released = memoryview(b"a")
    released.release()
    for data in (object(), {1: 2}, [{None: 1}], {"a": b"b"}, {1, 2}, 1j):
        with pytest.raises(xq.BadType, match="JSON"):
            tube.put(data)
    for data in (math.nan, math.inf, [math.nan], endless, released):
        with pytest.raises(xq.BadValue, match=None if data is released else "JSON"):
            tube.put(data)
    assert tube.statistics()["tasks"]["total"] == 0


def test_a_row_that_another_program_writes_is_a_task(queue):
    tube = queue.create_tube("data", "fifottl")
    for data in ('{"a": 1}', "plain", None):
        tube.model.create(data=data)
    assert [tube.take(0).data for _ in range(3)] == [{"a": 1}, "plain", None]
    assert tube.ack(2) == (2, "-", "plain")
    assert tube.statistics()["calls"] | {"put": 3, "take": 3, "ack": 1} == tube.statistics()["calls"]


def test_tasks_are_taken_and_acked_many_at_a_time(queue):
    tube = queue.create_tube("tube", "fifo")
    put(tube, {"url": "a"}, b"b", None)
    taken = tube.take_many(2, timeout=0)
    assert taken == [(1, "t", {"url": "a"}), (2, "t", b"b")]
    with pytest.raises(xq.NotFound):
        tube.ack_many([*taken, 77])
    with pytest.raises(xq.BadType):
        tube.ack_many(taken[0])
    assert tube.peek(1).state == "t", "all of them, or none"
    assert tube.ack_many([taken[0], 2]) == [(1, "-", {"url": "a"}), (2, "-", b"b")]
    assert tube.take_many(5, timeout=0) == [(3, "t", None)]
    assert tube.take_many(5, timeout=0) == []


# what is told, and counted


def test_on_task_change_returns_the_former_and_none_ends_it(queue):
    told: list[str] = []
    first, second = (lambda task, event, name=name: told.append(name) for name in ("first", "second"))
    tube = queue.create_tube("tube", "fifo", on_task_change=first)
    for new, former in ((second, first), (None, second), (first, None)):
        tube.put("a")
        assert tube.on_task_change(new) is former
    assert told == ["first", "second"]


def test_a_callback_that_raises_harms_no_call_and_no_sweep(queue, clock, caplog):
    tube = queue.create_tube("tube", "fifottl", on_task_change=lambda task, event: 1 / 0)
    put(tube, "a", delay=5, ttl=10)
    clock.tick(6)
    assert tube.release(tube.take(0)).state == "r"
    clock.tick(10)
    tube.model.xq.sweep()
    counted = {name: n for name, n in tube.statistics()["calls"].items() if n}
    assert counted == {"put": 1, "delay": 1, "take": 1, "release": 1, "ttl": 1}
    assert "division by zero" in caplog.text


def test_statistics_are_told_of_a_tube_and_of_all(queue):
    one, other = queue.create_tube("one", "fifo"), queue.create_tube("other", "utubettl")
    put(one, "a", "b")
    put(other, "c", delay=5)
    one.take(0)
    found = queue.statistics()
    assert set(found) == {"one", "other"}
    assert found["one"] == queue.statistics("one") == one.statistics()
    assert found["one"]["tasks"] == {"ready": 1, "taken": 1, "delayed": 0, "buried": 0, "done": 0, "total": 2}
    assert found["other"]["tasks"] == {"ready": 0, "taken": 0, "delayed": 1, "buried": 0, "done": 0, "total": 1}
    assert found["other"]["calls"] == {**dict.fromkeys(CALLS, 0), "put": 1}


# tubes


def test_tubes_are_found_by_name(queue, db, clock):
    emails = queue.create_tube("emails", "fifo")
    pages = queue.create_tube("pages", "fifottl", ttl=5)
    assert queue.tube() == list(queue.tube) == ["emails", "pages"]
    assert queue.tube["emails"] is queue.tube.emails is Tubes(db, clock=clock).tube.emails is emails
    assert queue.create_tube("pages", "fifo", if_not_exists=True) is pages
    assert (pages.name, pages.type, dict(pages.options)) == ("pages", "fifottl", {"ttl": 5})
    assert (len(queue.tube), "emails" in queue.tube) == (2, True)
    for name in ("nonsense", None, 5, "", "\x00", "\ud800", "x" * 65):
        assert name not in queue.tube


NAMES = ["order", '"x', ";--", " ", "a b ", "é", "😀" * 64, "%s", "\n", "x" * 64, "X" * 64, "keys", "a'`\\"]


def test_any_text_names_a_tube(queue):
    for name in NAMES:
        queue.create_tube(name, "fifo").put(name)
    assert sorted(queue.tube) == sorted(NAMES)
    for name in NAMES:
        assert queue.tube[name].take(0).data == name
        assert queue.statistics(name)["calls"]["take"] == 1


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


def test_a_name_whose_table_is_gone_is_free(queue):
    queue.create_tube("free", "fifo").drop()
    before = left_of_tubes(queue)
    for if_not_exists in (False, True, None):
        tube = queue.create_tube("tube", "utube")
        queue.database.execute_sql(f"DROP TABLE {tube.model._meta.table_name}")
        if if_not_exists is None:
            for call in (tube.put, tube.peek):
                with pytest.raises(xq.TubeDropped):
                    call(1)
            assert queue.tube.tube.drop()
            break
        again = queue.create_tube("tube", "fifo", if_not_exists=if_not_exists)
        assert (again.type, again.put("a").id) == ("fifo", 1)
        assert again.drop()
    assert (queue.tube(), left_of_tubes(queue)) == ([], before), "and nothing stays of what was there"


def test_a_temporary_tube_is_as_any_other_while_the_server_runs(queue):
    tube = queue.create_tube("tube", "utubettl", temporary=True)
    put(tube, *"ab")
    assert tube.ack(tube.take(0)) == (1, "-", "a")
    assert tube.statistics()["tasks"]["ready"] == 1
    if isinstance(queue.database, pw.PostgresqlDatabase):
        name = tube.model._meta.table_name
        logged = "SELECT relname FROM pg_class WHERE relname LIKE %s AND relpersistence = 'p' AND relkind = 'r'"
        assert queue.database.execute_sql(logged, (f"{name}%",)).fetchall() == []
    assert tube.model.xq.check() == []


def test_a_tube_is_created_and_dropped_with_the_transaction(queue):
    db = queue.database
    if isinstance(db, pw.MySQLDatabase):
        tube = queue.create_tube("tube", "fifo")
        with db.atomic():
            tube.put("a")
            for call in (tube.drop, lambda: queue.create_tube("other", "fifo")):
                with pytest.raises(xq.ConfigurationError, match="outside"):
                    call()
        assert (tube.statistics()["tasks"]["ready"], queue.tube()) == (1, ["tube"])
        return
    with db.atomic() as transaction:
        queue.create_tube("tube", "fifo").put("a")
        assert queue.tube() == ["tube"]
        transaction.rollback()
    assert queue.tube() == []
    queue.create_tube("tube", "fifo").put("b")
    with db.atomic() as transaction:
        queue.tube.tube.drop()
        assert queue.tube() == []
        transaction.rollback()
    assert queue.tube.tube.take(0).data == "b"


def begun_anew(queue: Tubes, clock: Any) -> Any:
    """The tubes of a database as a process that has just begun finds them."""
    vars(queue.database).pop("_xq_tubes")
    return Tubes(queue.database, clock=clock)


def test_what_is_recorded_of_a_tube_any_reader_of_json_reads(queue, db, clock):
    def no_json(word: str) -> Any:
        raise AssertionError(word)

    options = {"ttl": math.inf, "ttr": 5, "capacity": 3}
    queue.create_tube("tube", "limfifottl", **options)
    queue.create_tube("old", "limfifottl", **options)
    ((kept,),) = db.execute_sql("SELECT options FROM xq_tube WHERE name = 'tube'").fetchall()
    json.loads(kept, parse_constant=no_json)
    db.execute_sql(f"UPDATE xq_tube SET options = '{json.dumps(options)}' WHERE name = 'old'")
    again = begun_anew(queue, clock)
    for name in again.tube:
        assert again.tube[name].options == options
        assert again.tube[name].put("a").state == "r"


def test_a_tube_is_hidden_until_its_type_is_registered(queue, clock):
    queue.register_driver("rows", Rows)
    queue.register_driver("plain", {"buried": True})
    queue.create_tube("a", "rows", colour="blue").put("x")
    queue.create_tube("b", "plain").put("x")
    again = begun_anew(queue, clock)
    assert again.tube() == []
    with pytest.raises(xq.UnknownTube, match="of the type 'rows', which register_driver"):
        again.tube["a"]
    again.register_driver("rows", Rows)
    again.register_driver("plain", {"buried": True})
    assert again.tube() == ["a", "b"]
    assert (again.tube.a.take(0).data, again.tube.b.take(0).data) == ("x", "x")
    assert again.tube.a.options == {"colour": "blue"}


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


def test_a_url_leads_to_the_tubes_of_a_database(tmp_path):
    for wrong, message in {"sqlite:app.db": "sqlite:///app.db", "sqlite://app.db": "sqlite:///app.db"}.items():
        with pytest.raises(xq.BadValue, match=message):
            Tubes(wrong)
    url = f"sqlite:///{tmp_path}/app.db"
    queue = Tubes(url)
    queue.create_tube("tube", "fifo").put("a")
    queue.database.close()
    again: Any = Tubes(url)
    assert again.tube.tube.take(0).data == "a"
    again.tube.tube.ack(1)
    again.database.close()
    for bad in ("nonsense://x", "postgresql:", "app.db", "", 5):
        with pytest.raises(xq.BadType if bad == 5 else xq.BadValue):
            Tubes(bad)


# sessions


def test_what_a_session_has_taken_is_given_back_at_its_end_or_kept_for_its_ttr(queue):
    queue.register_driver("rows", Rows)
    for type in ("fifo", "rows"):
        tube = queue.create_tube(type, type)
        put(tube, *"abc")
        queue.cfg(ttr=0)
        with queue.session():
            assert [tube.take(0).id, tube.take(0).id] == [1, 2]
            tube.bury(2)
        assert [(task.id, task.state) for state in "rt!" for task in tube.tasks_by_state(state)] == [
            *((1, "r"), (3, "r"), (2, "!"))
        ]
        queue.cfg(ttr=1000)
        with queue.session() as session:
            assert tube.take(0).id == 1
        assert tube.peek(1).state == "t"
        with queue.session(session.uuid):
            assert tube.ack(1).state == "-", "it was kept"


def test_identify_holds_until_the_block_around_it_is_left(queue):
    tube = queue.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine = queue.identify()
    other, third = queue.session(), queue.session()
    with queue.session() as session:
        assert queue.identify() == session.uuid
        tube.take(0)
        assert queue.identify(mine) == queue.identify() == mine
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        assert queue.identify(other.uuid) == queue.identify() == other.uuid
        with third:
            assert queue.identify(session.uuid) == queue.identify() == session.uuid
            assert tube.ack(1).state == "-"
        assert queue.identify() == other.uuid
        assert tube.take(0).id == 2
    assert queue.identify() == mine
    assert tube.peek(2).state == "r", "nobody is left in the other"
    with pytest.raises(xq.UnknownSession):
        queue.identify(other.uuid)


def test_what_was_identified_before_a_block_is_so_after_it(queue):
    tube = queue.create_tube("tube", "fifo")
    put(tube, "a")
    mine, other = queue.identify(), queue.session()
    queue.identify(other.uuid)
    tube.take(0)
    with queue.session():
        queue.identify(mine)
    assert queue.identify() == other.uuid
    assert tube.peek(1).state == "t"
    queue.identify(mine)
    assert tube.peek(1).state == "r", "whoever leaves a session last gives back what it holds"
