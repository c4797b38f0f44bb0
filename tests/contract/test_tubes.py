"""The classic tubes: what those who know tarantool/queue expect of them."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.steps import (
    PATIENCE,
    Work,
    another_process,
    eventually,
    in_threads,
    processes,
    until_one_waits_for_a_lock,
    writing,
)
from tests.support import tubes as support
from tests.support.tubes import Rows, heard, left_of_tubes, opened, put
from xq import Feature
from xq.tubes import PRESETS, Tube, Tubes

clock, queue, shared, tube, subqueues = support.clock, support.queue, support.shared, support.tube, support.subqueues

TIMED = ["fifottl", "limfifottl", "utubettl"]
CALLS = ("ack", "bury", "delay", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr")


@pytest.fixture(params=TIMED)
def timed(request: pytest.FixtureRequest, queue: Tubes) -> Any:
    return queue.create_tube("timed", request.param)


def took(tube: Tube, n: int = 9) -> list[Any]:
    """The data of the next tasks."""
    found = (tube.take(0) for _ in range(n))
    return [task.data for task in found if task]


def calls(tube: Tube) -> dict[str, int]:
    """The calls that there were."""
    found = tube.statistics()["calls"]
    assert set(found) == set(CALLS)
    return {name: n for name, n in found.items() if n}


def tasks(tube: Tube) -> dict[str, int]:
    return {name: n for name, n in tube.statistics()["tasks"].items() if n}


def sweep(tube: Tube) -> None:
    tube.model.xq.sweep()


# the life of a task


def test_a_task_is_put_taken_and_acked(tube):
    task = tube.put("a")
    assert task == (1, "r", "a")
    assert (task.id, task.state, task.data) == (1, "r", "a")
    assert tube.take(0) == (1, "t", "a")
    assert tube.take(0) is None
    assert tube.ack(1) == (1, "-", "a")
    with pytest.raises(xq.NotFound):
        tube.peek(1)


def test_the_first_that_was_put_is_taken_first(tube):
    put(tube, *"abcd")
    assert took(tube) == ["a", "b", "c", "d"]


def test_a_released_task_comes_again_in_its_place(tube):
    first, _ = put(tube, "a", "b")
    tube.take(0)
    assert tube.release(first) == (first, "r", "a")
    assert took(tube) == ["a", "b"]


def test_a_method_takes_a_task_as_well_as_its_id(tube):
    put(tube, "a")
    task = tube.take(0)
    assert tube.release(task) == tube.peek(task) == (task.id, "r", "a")


def test_a_task_is_buried_in_any_state_and_kicked_in_the_order_of_take(tube):
    a, b, c = put(tube, *"abc")
    tube.take(0)
    assert [tube.bury(id).state for id in (c, a, b)] == ["!", "!", "!"]
    assert tube.take(0) is None
    assert tube.kick() == 1
    assert took(tube) == ["a"]
    assert tube.kick(9) == 2
    assert tube.kick(9) == 0
    assert took(tube) == ["b", "c"]


def test_a_kick_of_no_number_of_tasks_is_refused(tube):
    put(tube, "a")
    tube.bury(1)
    for count in (None, "1", True, -1):
        with pytest.raises((xq.BadType, xq.BadValue)):
            tube.kick(count)
    assert tasks(tube) == {"buried": 1, "total": 1}


def test_a_task_is_deleted_in_any_state(tube):
    ids = put(tube, *"abc")
    tube.take(0)
    tube.bury(ids[1])
    assert [tube.delete(id) for id in ids] == [(ids[0], "-", "a"), (ids[1], "-", "b"), (ids[2], "-", "c")]
    assert tasks(tube) == {"done": 3}


def test_to_bury_what_is_buried_changes_nothing_and_is_told_to_nobody(tube):
    (id,) = put(tube, "a")
    tube.bury(id)
    told = heard(tube)
    assert tube.bury(id) == (id, "!", "a")
    assert (told, calls(tube)) == ([], {"put": 1, "bury": 1})


def test_those_who_bury_a_task_at_once_bury_it_once(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, *range(10))
    for id in range(1, 11):
        assert [task.state for task in in_threads(shared.database, *[partial(tube.bury, id)] * 3)] == ["!"] * 3
    assert calls(tube) == {"put": 10, "bury": 10}


def test_an_id_is_never_used_again(tube):
    assert put(tube, "a", "b") == [1, 2]
    tube.delete(2)
    tube.delete(1)
    tube.put("c")
    tube.truncate()
    assert put(tube, "d") == [4]


def test_release_all_and_truncate_do_as_their_names_say(tube):
    put(tube, *"abc")
    tube.take(0)
    tube.take(0)
    assert tube.release_all() == 2
    assert tasks(tube) == {"ready": 3, "total": 3}
    tube.take(0)
    told = heard(tube)
    assert tube.truncate() == 3
    assert (tasks(tube), told) == ({}, [])
    assert calls(tube) == {"put": 3, "take": 3, "release": 2}
    with pytest.raises(xq.NotFound):
        tube.ack(1)
    assert tube.drop(), "nothing is taken any more"


def test_tasks_are_listed_by_state_in_the_order_of_take(tube):
    ids = put(tube, *"abc")
    tube.take(0)
    tube.bury(ids[2])
    assert tube.tasks_by_state("r") == [(ids[1], "r", "b")]
    assert tube.tasks_by_state("t") == [(ids[0], "t", "a")]
    assert tube.tasks_by_state("!") == [(ids[2], "!", "c")]
    assert tube.tasks_by_state("~") == tube.tasks_by_state("-") == []
    with pytest.raises(xq.BadValue):
        tube.tasks_by_state("ready")


def test_what_is_not_taken_cannot_be_finished(tube):
    (id,) = put(tube, "a")
    for finish in (tube.ack, tube.release):
        with pytest.raises(xq.WrongState):
            finish(id)
        with pytest.raises(xq.NotFound):
            finish(99)
    for look in (tube.peek, tube.bury, tube.delete):
        with pytest.raises(xq.NotFound):
            look(99)
    for bad in ("x", None, 1.5, b"1"):
        with pytest.raises(xq.BadType):
            tube.ack(bad)
    assert calls(tube) == {"put": 1}


# data

DATA = [
    None,
    True,
    0,
    -(2**70),
    1.5,
    "",
    "null",
    "=",
    'é 😀 \x00 \n \\ "',
    "\ud800",
    [],
    {},
    [1, [None, {"a": [{}]}]],
    {"": {"é": 1}},
    b"",
    b"null",
    b"\x00\xff" * 500,
    "x" * 100_000,
    b"\x00" * 100_000,
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


def test_memory_that_was_released_is_refused(queue):
    data = memoryview(b"a")
    data.release()
    with pytest.raises(xq.BadValue):
        queue.create_tube("tube", "fifo").put(data)


@pytest.mark.parametrize("data", [object(), {1: 2}, [{None: 1}], {"a": b"b"}, {1, 2}, 1j])
def test_what_is_no_value_of_json_is_refused(queue, data):
    tube = queue.create_tube("data", "fifo")
    with pytest.raises(xq.BadType, match="JSON"):
        tube.put(data)
    assert calls(tube) == {}


def test_a_value_that_json_cannot_write_is_refused(queue):
    tube = queue.create_tube("data", "fifo")
    endless: list[Any] = []
    endless.append(endless)
    for data in (math.nan, math.inf, [math.nan], endless):
        with pytest.raises(xq.BadValue, match="JSON"):
            tube.put(data)
    assert calls(tube) == {}


def test_a_row_that_another_program_writes_is_a_task(queue):
    tube = queue.create_tube("data", "fifottl")
    for data in ('{"a": 1}', "plain", None):
        tube.model.create(data=data)
    assert took(tube) == [{"a": 1}, "plain", None]
    assert tube.ack(2) == (2, "-", "plain")
    assert calls(tube) == {"put": 3, "take": 3, "ack": 1}


# order


def test_the_lowest_pri_comes_first_and_then_the_lowest_id(timed):
    for data, pri in (("c", 5), ("a", 1), ("d", 5), ("b", None)):
        put(timed, data, pri=2 if pri is None else pri)
    assert took(timed) == ["a", "b", "c", "d"]


def test_a_tube_has_a_pri_for_those_that_bring_none(queue):
    tube = queue.create_tube("tube", "fifottl", pri=5)
    tube.put("late")
    tube.put("first", pri=0)
    tube.put("last", pri=6)
    assert took(tube) == ["first", "late", "last"]


@pytest.mark.parametrize("pri", ["1", 1.5, True, 2**63])
def test_a_pri_is_an_integer(timed, pri):
    with pytest.raises((xq.BadType, xq.BadValue)):
        timed.put("a", pri=pri)


# time


def test_a_delayed_task_is_ready_when_its_delay_has_passed(timed, clock):
    task = timed.put("a", delay=5)
    assert task.state == timed.peek(task.id).state == "~"
    clock.tick(4)
    assert timed.take(0) is None
    clock.tick(2)
    assert timed.take(0) == (task.id, "t", "a")
    assert timed.release(task.id, delay=5).state == "~"
    assert calls(timed) == {"put": 1, "delay": 1, "take": 1, "release": 1}


def test_no_delay_is_no_delay(timed):
    assert timed.put("a", delay=0).state == "r"
    timed.take(0)
    assert timed.release(1, delay=0).state == "r"


def test_a_task_lives_for_its_delay_and_its_ttl(timed, clock):
    timed.put("a", ttl=10, delay=5)
    clock.tick(14)
    sweep(timed)
    assert tasks(timed) == {"ready": 1, "total": 1}
    clock.tick(2)
    assert timed.take(0) is None
    sweep(timed)
    assert tasks(timed) == {"done": 1}
    assert calls(timed) == {"put": 1, "delay": 1, "ttl": 1}


def test_a_release_with_a_delay_prolongs_the_life(timed, clock):
    timed.put("a", ttl=10)
    timed.take(0)
    timed.release(1, delay=5)
    clock.tick(14)
    assert timed.take(0) is not None


def test_a_release_does_not_begin_the_life_anew(timed, clock):
    timed.put("a", ttl=10)
    timed.take(0)
    clock.tick(9)
    timed.release(1)
    clock.tick(2)
    assert timed.take(0) is None
    sweep(timed)
    assert tasks(timed) == {"done": 1}, "and what was released dies at its time, too"


def test_a_buried_task_dies_at_its_time_and_a_kick_does_not_change_that(timed, clock):
    put(timed, "a", "b", ttl=10)
    timed.bury(1)
    timed.bury(2)
    clock.tick(9)
    assert timed.kick() == 1
    clock.tick(2)
    sweep(timed)
    assert tasks(timed) == {"done": 2}
    assert calls(timed)["ttl"] == 2


def test_a_task_that_is_taken_when_its_time_has_come_is_first_given_back(timed, clock):
    put(timed, "a", ttl=10)
    timed.take(0)
    told = heard(timed)
    clock.tick(11)
    sweep(timed)
    assert told == ["1r ttr", "1- ttl"]
    assert calls(timed) == {"put": 1, "take": 1, "ttr": 1, "ttl": 1}
    with pytest.raises(xq.NotFound):
        timed.ack(1)


def test_a_task_that_is_taken_too_long_is_given_back(timed, clock):
    put(timed, "a", ttr=10)
    timed.take(0)
    clock.tick(11)
    sweep(timed)
    assert timed.peek(1).state == "r"
    with pytest.raises(xq.WrongState):
        timed.ack(1)
    assert timed.take(0) is not None
    clock.tick(11)
    sweep(timed)
    assert calls(timed) == {"put": 1, "take": 2, "ttr": 2}, "its ttr is remembered"


def test_a_tube_has_a_ttl_and_a_ttr_for_tasks_that_bring_none(queue, clock):
    tube = queue.create_tube("tube", "fifottl", ttl=100, ttr=10)
    tube.put("a")
    tube.put("b", ttl=20, ttr=15)
    assert took(tube) == ["a", "b"]
    clock.tick(11)
    sweep(tube)
    assert [tube.peek(id).state for id in (1, 2)] == ["r", "t"]
    clock.tick(10)
    sweep(tube)
    assert tasks(tube) == {"ready": 1, "done": 1, "total": 1}


def test_the_ttr_of_a_tube_is_its_ttl_where_it_has_none(queue, clock):
    tube = queue.create_tube("tube", "utubettl", ttl=10)
    tube.put("a", ttl=1000)
    tube.take(0)
    clock.tick(11)
    sweep(tube)
    assert tube.peek(1).state == "r"


def test_a_ttl_that_is_given_does_not_change_the_ttr(queue, clock):
    tube = queue.create_tube("tube", "fifottl", ttr=10)
    tube.put("a", ttl=1000)
    tube.take(0)
    clock.tick(11)
    sweep(tube)
    assert tube.peek(1).state == "r"


def test_never_is_never(queue, clock):
    tube = queue.create_tube("tube", "fifottl", ttl=10)
    tube.put("a", ttl=math.inf, ttr=math.inf)
    tube.take(0)
    clock.tick(1e9)
    sweep(tube)
    assert tube.ack(1) == (1, "-", "a")


def test_a_touch_prolongs_the_ttr_and_the_ttl(timed, clock):
    put(timed, "a", ttl=20, ttr=10)
    timed.take(0)
    assert timed.touch(1, 2.01) == (1, "t", "a")
    timed.touch(1, 7.99)
    clock.tick(19)
    sweep(timed)
    assert timed.peek(1).state == "t"
    timed.touch(1, 5)
    clock.tick(5)
    sweep(timed)
    assert timed.peek(1).state == "t"
    timed.release(1)
    clock.tick(10)
    assert timed.take(0) is not None, "it lives 35 seconds"
    clock.tick(2)
    sweep(timed)
    assert tasks(timed) == {"done": 1}
    assert calls(timed)["touch"] == 3


def test_a_touch_gives_no_end_to_what_never_ends(timed, clock):
    put(timed, "a")
    timed.take(0)
    timed.touch(1, 5)
    clock.tick(1e6)
    sweep(timed)
    assert timed.ack(1) == (1, "-", "a")


def test_a_touch_by_nothing_is_none_and_a_negative_one_is_refused(timed, clock):
    put(timed, "a", ttr=10)
    timed.take(0)
    told = heard(timed)
    assert timed.touch(1, 0) == (1, "t", "a")
    for value in (-1, math.nan, math.inf):
        with pytest.raises(xq.BadValue, match=r"^increment is a number of seconds from 0 to 10000000000, not"):
            timed.touch(1, value)
    for no_value in ("1", None, True):
        with pytest.raises(xq.BadType):
            timed.touch(1, no_value)
    assert (told, calls(timed)) == ([], {"put": 1, "take": 1})
    clock.tick(11)
    sweep(timed)
    assert timed.peek(1).state == "r"


def test_a_touch_is_counted_and_told_once_and_one_that_fails_not_at_all(timed):
    put(timed, "a", ttr=10)
    timed.take(0)
    told = heard(timed)
    timed.touch(1, 2.01)
    with timed.model.xq.session(), pytest.raises(xq.NotOwner):
        timed.touch(1, 5)
    with pytest.raises(xq.NotFound):
        timed.touch(7, 5)
    assert (told, calls(timed)) == (["1t touch"], {"put": 1, "take": 1, "touch": 1})


def test_a_delay_that_has_passed_is_counted_as_delay(timed, clock):
    put(timed, "a", delay=5)
    clock.tick(6)
    sweep(timed)
    assert calls(timed) == {"put": 1, "delay": 1}


def test_an_end_by_time_is_told_once_and_of_a_task_that_is_gone(timed, clock):
    put(timed, "a", ttl=5)
    told = heard(timed)
    clock.tick(6)
    sweep(timed)
    assert (told, calls(timed)) == (["1- ttl"], {"put": 1, "ttl": 1})


# what a type lacks


@pytest.mark.parametrize(
    ("type", "lacks"),
    [
        ("fifo", ("pri", "ttl", "ttr", "delay", "utube", "timeout")),
        ("fifottl", ("utube", "timeout")),
        ("limfifottl", ("utube",)),
        ("utube", ("pri", "ttl", "ttr", "delay", "timeout")),
        ("utubettl", ("timeout",)),
    ],
)
def test_an_option_that_a_type_lacks_is_refused_as_a_feature_that_is_off(queue, type, lacks):
    tube = queue.create_tube("tube", type)
    for option in ("pri", "ttl", "ttr", "delay", "utube", "timeout"):
        if option in lacks:
            with pytest.raises(xq.FeatureOff):
                tube.put("a", **{option: 1})
        else:
            assert tube.put("a", **{option: 1}) is not None
    with pytest.raises(TypeError):
        tube.put("a", nonsense=1)
    if "ttl" not in type:
        tube.take(0)
        for call in (lambda: tube.touch(1, 1), lambda: tube.touch(1, 0), lambda: tube.release(1, delay=1)):
            with pytest.raises(xq.FeatureOff):
                call()


def test_a_tube_is_created_with_the_options_of_its_type(queue):
    for type, option in (("fifo", "ttl"), ("fifo", "pri"), ("utube", "ttr"), ("fifottl", "capacity")):
        with pytest.raises(xq.FeatureOff, match=option):
            queue.create_tube("tube", type, **{option: 1})
    with pytest.raises(TypeError, match="nonsense"):
        queue.create_tube("tube", "fifo", nonsense=1)
    for options in ({"ttl": -1}, {"ttr": math.nan}, {"capacity": -1}, {"storage_mode": "vinyl"}):
        with pytest.raises(xq.BadValue):
            queue.create_tube("tube", "limfifottl", **options)
    for options in ({"ttl": "1"}, {"capacity": 1.5}, {"pri": "1"}, {"temporary": 1}, {"on_task_change": 1}):
        with pytest.raises(xq.BadType):
            queue.create_tube("tube", "limfifottl", **options)
    unknown: Any = ("nonsense", None, 1)
    for type in unknown:
        with pytest.raises(xq.BadValue):
            queue.create_tube("tube", type)
    assert queue.tube() == []


# room


def test_a_full_tube_takes_no_more_until_there_is_room(queue, clock):
    tube = queue.create_tube("tube", "limfifottl", capacity=2)
    assert put(tube, "a", "b") == [1, 2]
    assert tube.put("c") is None
    assert tube.put("c", timeout=0.01) is None
    tube.take(0)
    tube.bury(2)
    assert tube.put("c") is None, "whatever state they are in"
    tube.ack(1)
    assert tube.put("c", ttl=5) is not None
    clock.tick(6)
    assert tube.put("d") is not None, "what has expired takes no room"
    assert calls(tube)["put"] == 4


def test_a_tube_without_a_capacity_is_never_full(queue):
    for name, options in (("a", {}), ("b", {"capacity": 0})):
        tube = queue.create_tube(name, "limfifottl", **options)
        put(tube, *range(20))
        assert tasks(tube) == {"ready": 20, "total": 20}


# sub-queues


def test_of_a_sub_queue_one_task_is_taken_at_a_time_in_order(subqueues):
    for data in ("a0", "a1", "b0", "a2"):
        subqueues.put(data, utube=data[0])
    assert took(subqueues) == ["a0", "b0"]
    subqueues.ack(1)
    assert took(subqueues) == ["a1"]
    subqueues.release(2)
    assert took(subqueues) == ["a1"]
    subqueues.delete(2)
    assert took(subqueues) == ["a2"]


def test_only_a_taken_task_is_in_the_way(subqueues):
    for data in ("a", "b", "c"):
        subqueues.put(data, utube="u")
    subqueues.bury(1)
    assert took(subqueues) == ["b"]
    assert subqueues.kick() == 1
    assert took(subqueues) == []
    subqueues.ack(2)
    assert took(subqueues) == ["a"], "it is in its place again"


def test_tasks_without_a_sub_queue_share_one_called_nil(subqueues):
    subqueues.put("a")
    subqueues.put("b")
    subqueues.put("c", utube="nil")
    assert took(subqueues) == ["a"]


def test_a_sub_queue_is_named_by_text(subqueues):
    for data, utube in ((1, 1), (2, "1"), (3, True), (4, "true"), (5, 1.5), (6, "é 😀")):
        subqueues.put(data, utube=utube)
    assert took(subqueues) == [1, 3, 5, 6]
    no_names: Any = (b"1", [], {})
    for bad in no_names:
        with pytest.raises(xq.BadType):
            subqueues.put("a", utube=bad)


def test_within_a_sub_queue_the_lowest_pri_comes_first(queue):
    tube = queue.create_tube("tube", "utubettl")
    for data, pri in (("a1", 2), ("b1", 3), ("a0", 1)):
        tube.put(data, utube=data[0], pri=pri)
    assert took(tube) == ["a0", "b1"]
    tube.ack(3)
    tube.put("a2", utube="a", pri=0)
    assert took(tube) == ["a2"], "also after a better one came meanwhile"


# what is told, and counted


def test_every_change_is_told_with_its_event(tube):
    told = heard(tube)
    a, b = put(tube, "a", "b")
    tube.take(0)
    tube.release(a)
    tube.bury(a)
    tube.kick()
    tube.take(0)
    tube.ack(a)
    tube.delete(b)
    assert told == [
        "1r put",
        "2r put",
        "1t take",
        "1r release",
        "1! bury",
        "1r kick",
        "1t take",
        "1- delete",
        "2- delete",
    ]
    assert calls(tube) == {"put": 2, "take": 2, "release": 1, "bury": 1, "kick": 1, "ack": 1, "delete": 1}
    assert tasks(tube) == {"done": 2}


def test_what_time_brings_about_is_told(timed, clock):
    told = heard(timed)
    put(timed, "a", delay=5, ttr=10, ttl=100)
    clock.tick(6)
    timed.take(0)
    timed.touch(1, 1)
    clock.tick(12)
    sweep(timed)
    clock.tick(100)
    sweep(timed)
    assert told == ["1~ put", "1r delay", "1t take", "1t touch", "1r ttr", "1- ttl"]
    assert calls(timed) == {"put": 1, "delay": 1, "take": 1, "touch": 1, "ttr": 1, "ttl": 1}


def test_on_task_change_returns_the_former_and_none_ends_it(queue):
    def first(task: Any, event: str) -> None:
        told.append("first")

    def second(task: Any, event: str) -> None:
        told.append("second")

    told: list[str] = []
    tube = queue.create_tube("tube", "fifo", on_task_change=first)
    tube.put("a")
    assert tube.on_task_change(second) is first
    tube.put("a")
    assert tube.on_task_change(None) is second
    tube.put("a")
    assert tube.on_task_change(first) is None
    assert told == ["first", "second"]
    with pytest.raises(xq.BadType):
        tube.on_task_change(5)


def test_what_is_undone_is_not_told_and_not_counted(queue):
    tube = queue.create_tube("tube", "fifottl", ttr=10)
    put(tube, "a")
    told = heard(tube)
    with queue.database.atomic() as transaction:
        tube.put("b")
        tube.take(0)
        tube.touch(1, 5)
        tube.ack(1)
        transaction.rollback()
    assert (told, calls(tube), tasks(tube)) == ([], {"put": 1}, {"ready": 1, "total": 1})


def test_a_callback_that_raises_harms_nothing(tube, clock, caplog):
    def broken(task: Any, event: str) -> None:
        raise RuntimeError("broken")

    tube.on_task_change(broken)
    put(tube, "a")
    assert tube.take(0).data == "a"
    assert tube.ack(1).state == "-"
    assert calls(tube) == {"put": 1, "take": 1, "ack": 1}
    assert "broken" in caplog.text


def test_a_callback_that_raises_does_not_end_the_sweeps(timed, clock, caplog):
    timed.on_task_change(lambda task, event: 1 / 0)
    put(timed, "a", delay=5, ttl=10)
    clock.tick(6)
    sweep(timed)
    clock.tick(10)
    sweep(timed)
    assert calls(timed) == {"put": 1, "delay": 1, "ttl": 1}


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
    assert set(found["other"]["calls"]) == set(CALLS)
    with pytest.raises(xq.UnknownTube, match="nonsense"):
        queue.statistics("nonsense")


# tubes


def test_tubes_are_found_by_name(queue):
    emails = queue.create_tube("emails", "fifo")
    queue.create_tube("pages", "fifottl", ttl=5)
    assert queue.tube() == list(queue.tube) == ["emails", "pages"]
    assert queue.tube["emails"] is queue.tube.emails is emails
    assert len(queue.tube) == 2
    assert "emails" in queue.tube
    assert "nonsense" not in queue.tube
    assert (queue.tube.pages.name, queue.tube.pages.type, dict(queue.tube.pages.options)) == (
        "pages",
        "fifottl",
        {"ttl": 5},
    )
    with pytest.raises(KeyError):
        queue.tube["nonsense"]
    with pytest.raises(AttributeError):
        queue.tube.nonsense  # noqa: B018
    for name in (None, 5, "", "\x00", "\ud800", "x" * 65):
        assert name not in queue.tube


NAMES = ["order", '"x', ";--", " ", "a b ", "é", "😀" * 64, "%s", "\n", "x" * 64, "X" * 64, "keys", "a'`\\"]


def test_any_text_names_a_tube(queue):
    for name in NAMES:
        tube = queue.create_tube(name, "fifo")
        tube.put(name)
    assert sorted(queue.tube) == sorted(NAMES)
    for name in NAMES:
        assert queue.tube[name].take(0).data == name
        assert queue.statistics(name)["calls"]["take"] == 1
    for name in ("", "x" * 65, "\x00", "\ud800"):
        with pytest.raises(xq.BadValue):
            queue.create_tube(name, "fifo")
    no_names: Any = (None, 5, b"x")
    for name in no_names:
        with pytest.raises(xq.BadType):
            queue.create_tube(name, "fifo")


def test_a_tube_that_is_there_is_returned_when_it_may_exist(queue):
    tube = queue.create_tube("tube", "fifottl", ttl=5)
    with pytest.raises(xq.TubeExists):
        queue.create_tube("tube", "fifo")
    assert queue.create_tube("tube", "fifo", if_not_exists=True) is tube
    assert queue.create_tube("other", "fifo", if_not_exists=True).type == "fifo"


def test_a_tube_is_dropped_with_all_that_belongs_to_it(tube, queue):
    table = tube.model._meta.table_name
    put(tube, "a")
    assert tube.drop() is True
    assert queue.tube() == []
    assert [name for name in queue.database.get_tables() if name.startswith(table)] == []
    again = queue.create_tube("tube", "fifo")
    assert (again.statistics()["calls"]["put"], again.take(0)) == (0, None)
    late: list[Callable[[], Any]] = [lambda: tube.put("a"), lambda: tube.take(0), tube.statistics, tube.drop]
    for call in late:
        with pytest.raises(xq.TubeDropped, match="'tube' was dropped"):
            call()


def test_a_tube_whose_tasks_are_taken_is_not_dropped(tube):
    put(tube, "a")
    tube.take(0)
    with pytest.raises(xq.TubeBusy, match="1 of its tasks"):
        tube.drop()
    tube.ack(1)
    assert tube.drop()


def test_what_was_taken_while_others_drop_the_tube_is_there_until_its_ack(shared):
    db = shared.database

    def worker() -> Any:
        with opened(db) as queue:
            acked = 0
            while name := (yield acked):
                with suppress(xq.NotInstalled, xq.UnknownTube):
                    tube = queue.tube[name]
                    while task := tube.take(0):
                        try:
                            tube.ack(task)
                        except xq.NotInstalled as error:  # no other call may come to this
                            raise AssertionError("what was taken is gone") from error
                        acked += 1

    with processes(db, worker, worker) as running:
        for one in running:
            next(one)
        for n in range(8):
            tube = shared.create_tube(f"tube{n}", "fifo")
            put(tube, *range(30))
            for one in running:
                one.post(tube.name)
            eventually(partial(is_used, tube))
            eventually(partial(drops, tube))
            for one in running:
                one.hear()
        assert shared.tube() == []


def is_used(tube: Tube) -> bool:
    return "take" in calls(tube)


def drops(tube: Tube) -> bool:
    """Whether nothing was in the way of dropping it."""
    try:
        return tube.drop()
    except xq.TubeBusy:
        return False


def test_a_drop_waits_for_a_take_that_is_not_yet_committed(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")

    def other() -> Any:
        with opened(db) as queue:
            with writing(queue.database):
                taken = queue.tube.tube.take(0)
                yield taken.id
                until_one_waits_for_a_lock(queue.database)
            yield "committed"
            yield queue.tube.tube.ack(taken).state

    with another_process(db, other) as running:
        assert next(running) == 1
        dropping = Work(db, lambda: drops(tube))
        assert next(running) == "committed"
        assert dropping.result() is False
        assert next(running) == "-"
    assert tube.drop()


def test_a_take_that_waits_in_another_process_ends_when_the_tube_is_dropped(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifo")

    def other() -> Any:
        with opened(db) as queue:
            found = queue.tube.tube
            yield found.take(0)
            with pytest.raises(xq.TubeDropped):
                found.take(PATIENCE)
            yield "dropped"

    with another_process(db, other) as running:
        assert next(running) is None
        running.post(None)
        tube.drop()
        assert running.hear() == "dropped"


def test_a_tube_whose_table_is_gone_is_dropped_to_free_its_name(queue):
    tube = queue.create_tube("tube", "fifo")
    queue.database.execute_sql(f"DROP TABLE {tube.model._meta.table_name}")
    for call in (tube.put, tube.peek):
        with pytest.raises(xq.TubeDropped):
            call(1)
    assert queue.tube.tube.drop()
    assert queue.tube() == []
    queue.create_tube("tube", "fifo").put("a")


def test_a_name_whose_table_is_gone_is_free(queue):
    queue.create_tube("free", "fifo").drop()
    before = left_of_tubes(queue)
    for if_not_exists in (False, True):
        tube = queue.create_tube("tube", "utube")
        queue.database.execute_sql(f"DROP TABLE {tube.model._meta.table_name}")
        again = queue.create_tube("tube", "fifo", if_not_exists=if_not_exists)
        assert (again.type, again.put("a").id) == ("fifo", 1)
        assert again.drop()
    assert left_of_tubes(queue) == before, "and nothing stays of what was there"


def test_a_take_that_began_while_the_tube_is_dropped_says_so(shared):
    db = shared.database
    if isinstance(db, pw.MySQLDatabase):
        return  # no transaction drops a tube there
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")
    with writing(db):
        tube.drop()
        takes = Work(db, lambda: tube.take(0))
        until_one_waits_for_a_lock(db)
    with pytest.raises(xq.TubeDropped):
        takes.result()


def test_a_transaction_that_sees_the_past_drops_no_tube_of_which_a_task_was_taken_since(shared):
    db = shared.database
    if not isinstance(db, pw.PostgresqlDatabase):
        return  # to write there is to see the present, or to be refused
    tube = shared.create_tube("tube", "fifo")
    with db.atomic():
        db.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert tube.statistics()["tasks"]["taken"] == 0
        in_threads(db, lambda: put(tube, "a") and tube.take(0))
        with pytest.raises(xq.TubeBusy):
            tube.drop()
    assert tube.ack(1).data == "a"


@pytest.mark.parametrize("type", PRESETS)
def test_a_temporary_tube_is_as_any_other_while_the_server_runs(queue, type):
    tube = queue.create_tube("tube", type, temporary=True)
    put(tube, *"abc")
    assert took(tube) == ["a", "b", "c"]
    assert tube.ack(1).state == "-"
    assert calls(tube) == {"put": 3, "take": 3, "ack": 1}
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
        assert (tasks(tube), queue.tube()) == ({"ready": 1, "total": 1}, ["tube"])
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


def test_what_is_recorded_of_a_tube_any_reader_of_json_reads(queue, db, clock):
    def no_json(word: str) -> Any:
        raise AssertionError(word)

    options = {"ttl": math.inf, "ttr": 5, "capacity": 3}
    queue.create_tube("tube", "limfifottl", **options)
    queue.create_tube("old", "limfifottl", **options)
    read = "SELECT options FROM xq_tube WHERE name = 'tube'"
    ((kept,),) = db.execute_sql(read).fetchall()
    json.loads(kept, parse_constant=no_json)
    db.execute_sql(f"UPDATE xq_tube SET options = '{json.dumps(options)}' WHERE name = 'old'")
    vars(db).pop("_xq_tubes")  # as a process that has just begun
    again: Any = Tubes(db, clock=clock)
    for name in again.tube:
        assert again.tube[name].options == options
        assert again.tube[name].put("a").state == "r"


def test_a_storage_mode_is_accepted(queue):
    for mode in ("default", "ready_buffer"):
        tube = queue.create_tube(mode, "utube", storage_mode=mode)
        put(tube, "a", "b", utube="u")
        assert took(tube) == ["a"]


def test_a_url_leads_to_the_tubes_of_a_database(tmp_path):
    for wrong in ("sqlite:app.db", "sqlite://app.db"):
        with pytest.raises(xq.BadValue, match="sqlite:///app.db"):
            Tubes(wrong)
    url = f"sqlite:///{tmp_path}/app.db"
    queue = Tubes(url)
    queue.create_tube("tube", "fifo").put("a")
    queue.database.close()
    again: Any = Tubes(url)
    assert again.tube.tube.take(0).data == "a"
    again.tube.tube.ack(1)
    again.database.close()
    for bad in ("nonsense://x", "postgresql:", "app.db", ""):
        with pytest.raises(xq.BadValue):
            Tubes(bad)
    with pytest.raises(xq.BadType):
        Tubes(5)


def test_two_of_a_process_share_their_tubes(queue, db, clock):
    other = Tubes(db, clock=clock)
    tube = queue.create_tube("tube", "fifo")
    assert other.tube.tube is tube


# drivers


def test_what_is_kept_when_it_is_done_is_done_once(queue):
    queue.register_driver("kept", {"keep": True, "buried": "any"})
    tube = queue.create_tube("tube", "kept")
    put(tube, *"abcd")
    told = heard(tube)
    assert tube.ack(tube.take(0)) == tube.peek(1) == (1, "-", "a")
    tube.ack(tube.take(0))
    assert told == ["1t take", "1- delete", "2t take", "2- delete"]
    assert tube.tasks_by_state("-") == [(1, "-", "a"), (2, "-", "b")]
    tube.delete(1)
    tube.delete(3)
    assert tasks(tube) == {"ready": 1, "done": 3, "total": 2}
    assert calls(tube) == {"put": 4, "take": 2, "ack": 2, "delete": 2}
    tube.truncate()
    assert tasks(tube) == {"done": 3}


def test_a_preset_of_ones_own_is_a_type(queue, clock):
    queue.register_driver("kept", {"keep": True, "buried": True, "ttl": True, "priority": True})
    tube = queue.create_tube("tube", "kept", ttl=5, pri=3)
    assert (tube.type, queue.driver["kept"]["keep"]) == ("kept", True)
    tube.put("a")
    tube.put("b", pri=1)
    assert tube.take(0).data == "b"
    tube.ack(2)
    clock.tick(6)
    sweep(tube)
    assert tasks(tube) == {"done": 2, "total": 1}, "one is kept"
    with pytest.raises(xq.FeatureOff):
        tube.put("a", utube="u")
    for name, driver in (
        ("fifo", {}),
        ("kept", {}),
        ("x", {"keep": True, "zombie": True}),
        ("x", {"nonsense": True}),
        ("x", {"retval": "dict"}),
        ("x", {"events": False}),
        ("x", {"events": None}),
        ("x", {"events": 5}),
        ("x", 5),
    ):
        with pytest.raises(xq.ConfigurationError):
            queue.register_driver(name, driver)
    assert set(queue.driver) == {*PRESETS, "kept"}


def test_a_feature_that_a_preset_has_off_is_not_there(queue):
    queue.register_driver("off", {"lifetime": False, "ttl": True, "ttr": None})
    tube = queue.create_tube("tube", "off", ttl=60)
    assert tube.put("a", ttl=5).state == "r"
    with pytest.raises(xq.FeatureOff):
        tube.put("a", ttr=5)
    with pytest.raises(xq.FeatureOff):
        queue.create_tube("other", "off", ttr=5)


def test_the_ttr_of_a_preset_is_not_taken_for_the_ttl_of_a_tube(queue, clock):
    queue.register_driver("own", {"lifetime": True, "ttr": 5})
    tube = queue.create_tube("tube", "own", ttl=1000)
    put(tube, "a")
    tube.take(0)
    clock.tick(6)
    sweep(tube)
    assert tube.peek(1).state == "r"


def test_a_feature_that_needs_a_role_which_tubes_lack_is_refused(queue):
    with pytest.raises(xq.ConfigurationError, match="'payload'"):
        queue.register_driver("own", {"own": Feature("own", needs=("payload",))})
    assert set(queue.driver) == set(PRESETS)


def test_a_class_of_ones_own_is_a_type(queue):
    queue.register_driver("rows", Rows)
    assert queue.driver["rows"] is Rows
    tube = queue.create_tube("tube", "rows", colour="blue")
    told = heard(tube)
    assert tube.put("b", prefix="a") == (1, "r", "ab")
    assert tube.take(0) == (1, "t", "ab")
    assert tube.take(0.01) is None
    assert tube.touch(1, 5).state == "t"
    with pytest.raises(xq.TubeBusy):
        tube.drop()
    with queue.session(), pytest.raises(xq.NotOwner):
        tube.ack(1)
    assert tube.release(1).state == "r"
    with pytest.raises(xq.WrongState):
        tube.ack(1)
    assert tube.bury(1) == tube.peek(1) == (1, "!", "ab")
    assert tube.tasks_by_state("!") == [(1, "!", "ab")]
    assert tube.kick(5) == 1
    assert tube.ack(tube.take(0)) == (1, "-", "ab")
    assert [event.split()[1] for event in told] == ["put", "take", "touch", "release", "bury", "kick", "take", "delete"]
    assert tube.statistics()["calls"]["ack"] == 1
    assert tube.statistics()["tasks"]["done"] == 1
    tube.put("c")
    tube.take(0)
    assert tube.release_all() == 1
    tube.truncate()
    table = tube.model._meta.table_name
    assert tube.drop()
    assert (queue.tube(), table in queue.database.get_tables()) == ([], False)


def test_a_tube_is_hidden_until_its_type_is_registered(queue, db, clock):
    queue.register_driver("rows", Rows)
    queue.register_driver("plain", {"buried": True})
    queue.create_tube("a", "rows", colour="blue").put("x")
    queue.create_tube("b", "plain").put("x")
    vars(db).pop("_xq_tubes")  # as a process that has just begun
    again: Any = Tubes(db, clock=clock)
    assert again.tube() == []
    with pytest.raises(xq.UnknownTube, match="of the type 'rows', which register_driver"):
        again.tube["a"]
    again.register_driver("rows", Rows)
    again.register_driver("plain", {"buried": True})
    assert again.tube() == ["a", "b"]
    assert (again.tube.a.take(0).data, again.tube.b.take(0).data) == ("x", "x")
    assert again.tube.a.options == {"colour": "blue"}


def test_a_class_that_lacks_something_is_refused(queue):
    for lacks in ({}, {"new": lambda *args: None}):
        with pytest.raises(xq.ConfigurationError, match="create_space"):
            queue.register_driver("bad", type("Bad", (), lacks))

    class Few(Rows):
        kick = None  # type: ignore[assignment]

    queue.register_driver("few", Few)
    with pytest.raises(xq.ConfigurationError, match="kick"):
        queue.create_tube("tube", "few")
    queue.register_driver("rows", Rows)
    with pytest.raises(xq.BadType, match="JSON"):
        queue.create_tube("tube", "rows", colour=object())
    assert queue.tube() == []
    assert not [name for name in queue.database.get_tables() if name.startswith("xq_tube_tube_")], "nothing is left"


def test_what_is_undone_is_not_told_and_not_counted_of_a_class_either(queue):
    queue.register_driver("rows", Rows)
    tube = queue.create_tube("tube", "rows")
    told = heard(tube)
    with queue.database.atomic() as transaction:
        tube.put("a")
        transaction.rollback()
    assert (told, calls(tube)) == ([], {})
    with queue.database.atomic():
        tube.put("b")
        assert tube.ack(tube.take(0)).state == "-"
        assert (told, calls(tube)) == ([], {})
    assert [event.split()[1] for event in told] == ["put", "take", "delete"]
    assert calls(tube) == {"put": 1, "take": 1, "ack": 1}


def test_who_has_taken_a_task_of_a_class_has_it_after_what_is_undone_too(queue):
    queue.register_driver("rows", Rows)
    tube = queue.create_tube("tube", "rows")
    tube.put("a")
    tube.take(0)

    finish: list[Callable[[], Any]] = [lambda: tube.ack(1), lambda: tube.release(1), lambda: tube.bury(1)]
    for call in [*finish, tube.truncate]:
        with queue.database.atomic() as transaction:
            call()
            transaction.rollback()
        assert tube.touch(1, 5) == (1, "t", "a")
    with queue.database.atomic():
        tube.release(1)
        tube.take(0)
        assert tube.touch(1, 5).state == "t"
    assert tube.ack(1).state == "-"


def test_a_tube_of_a_class_that_two_threads_open_at_once_is_started_once(shared):
    db, started, stopped = shared.database, [], []

    class Counted(Rows):
        def start(self) -> None:
            started.append(self)
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

        def stop(self) -> None:
            stopped.append(self)

    both = threading.Barrier(1)
    shared.register_driver("counted", Counted)
    shared.create_tube("tube", "counted")
    vars(db).pop("_xq_tubes")  # as a process that has just begun
    again: Any = Tubes(db)
    again.register_driver("counted", Counted)
    both = threading.Barrier(2)
    one, other = in_threads(db, lambda: again.tube.tube, lambda: again.tube.tube)
    assert one is other
    assert [found for found in started[1:] if found not in stopped] == [one._object]


def test_what_is_wrong_with_a_call_of_a_class_is_said_as_of_any_tube(queue):
    queue.register_driver("rows", Rows)
    tube = queue.create_tube("tube", "rows")
    tube.put("a")
    named: list[Callable[[Any], Any]] = [tube.peek, tube.ack, tube.release, tube.bury, tube.delete]
    named.append(lambda id: tube.touch(id, 5))
    for call in named:
        with pytest.raises(xq.NotFound):
            call(7)
        for id, error in ((None, xq.BadType), (True, xq.BadType), ([1], xq.BadType), ("1", xq.BadType)):
            with pytest.raises(error):
                call(id)
        with pytest.raises(xq.BadValue):
            call(2**64)
    wrong: list[tuple[Callable[[Any], Any], Any]] = [(tube.tasks_by_state, "x"), (tube.tasks_by_state, None)]
    wrong += [
        (tube.kick, -1),
        (tube.kick, "1"),
        (tube.kick, None),
        (tube.take, -1),
        (tube.take, "1"),
        (tube.take, math.nan),
    ]
    wrong += [(partial(tube.touch, 1), -1), (partial(tube.touch, 1), "1"), (partial(tube.touch, 1), math.inf)]
    for call, value in wrong:
        with pytest.raises((xq.BadType, xq.BadValue)):
            call(value)
    for call in (tube.ack, tube.release):
        with pytest.raises(xq.WrongState):
            call(1)
    with queue.database.atomic():
        assert tube.take(0).data == "a"
        for timeout in (1, None):
            with pytest.raises(xq.InTransaction):
                tube.take(timeout)
    assert tube.tasks_by_state("-") == []


def test_the_end_of_a_session_gives_back_what_it_has_taken_of_a_class(shared):
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    for data in "abc":
        tube.put(data)
    with shared.session() as session:
        assert [tube.take(0).id, tube.take(0).id] == [1, 2]
        tube.bury(2)
    assert [(task.id, task.state) for state in "rt!" for task in tube.tasks_by_state(state)] == [
        (1, "r"),
        (3, "r"),
        (2, "!"),
    ]
    shared.cfg(ttr=1000)
    with shared.session() as session:
        assert tube.take(0).id == 1
    with shared.session(session.uuid):
        assert tube.ack(1).state == "-", "it was kept"


def test_a_task_of_a_class_that_another_process_has_taken_is_its_own(shared):
    db = shared.database
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    tube.put("a")

    def other() -> Any:
        with opened(db) as queue:
            queue.register_driver("rows", Rows)
            yield queue.tube.tube.take(0).id
            yield queue.tube.tube.ack(1).state

    with another_process(db, other) as running:
        assert next(running) == 1
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        with pytest.raises(xq.TubeBusy):
            tube.drop()
        assert next(running) == "-"
    assert tube.drop()
    with pytest.raises(xq.TubeDropped):
        tube.put("b")


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


def test_a_take_of_a_class_waits(shared):
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    waits = Work(shared.database, lambda: tube.take(PATIENCE))
    tube.put("a")
    assert waits.result().data == "a"


# sessions


def test_identify_tells_the_session_and_joins_another(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine = shared.identify()
    assert shared.identify(mine) == shared.identify() == mine
    tube.take(0)
    with shared.session() as other:
        assert shared.identify() == other.uuid
        with pytest.raises(xq.NotOwner):
            tube.ack(1)

        def in_another_thread() -> Any:
            assert shared.identify() == mine
            assert shared.identify(other.uuid) == other.uuid
            taken = tube.take(0)
            assert shared.identify(mine) == mine
            return taken

        (taken,) = in_threads(shared.database, in_another_thread)
        assert taken.data == "b"
        assert tube.ack(2).state == "-", "the session is one"
    assert tube.ack(1).state == "-"
    with pytest.raises(xq.UnknownSession):
        shared.identify("00000000-0000-4000-8000-000000000000")
    with pytest.raises(xq.UnknownSession):
        shared.identify(other.uuid)
    for bad in ("nonsense", ""):
        with pytest.raises(xq.BadValue):
            shared.identify(bad)
    with pytest.raises(xq.BadType):
        shared.identify(5)
    assert shared.identify() == mine


def test_identify_holds_until_the_block_around_it_is_left(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine = shared.identify()
    other, third = shared.session(), shared.session()
    with shared.session() as session:
        tube.take(0)
        assert shared.identify(mine) == shared.identify() == mine
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        assert shared.identify(other.uuid) == shared.identify() == other.uuid
        with third:
            assert shared.identify(session.uuid) == shared.identify() == session.uuid
            assert tube.ack(1).state == "-"
        assert shared.identify() == other.uuid
        assert tube.take(0).id == 2
    assert shared.identify() == mine
    assert tube.peek(2).state == "r", "nobody is left in the other"
    with pytest.raises(xq.UnknownSession):
        shared.identify(other.uuid)


def test_what_was_identified_before_a_block_is_so_after_it(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")
    mine, other = shared.identify(), shared.session()
    shared.identify(other.uuid)
    tube.take(0)
    with shared.session():
        shared.identify(mine)
    assert shared.identify() == other.uuid
    assert tube.peek(1).state == "t"
    shared.identify(mine)
    assert tube.peek(1).state == "r"


def test_what_a_session_has_taken_of_a_class_is_kept_for_its_ttr_and_given_back_then(shared):
    shared.register_driver("rows", Rows)
    tube = shared.create_tube("tube", "rows")
    tube.put("a")
    shared.cfg(ttr=0.3)
    with shared.session():
        assert tube.take(0).id == 1
    eventually(lambda: tube.peek(1).state == "r")


@pytest.mark.parametrize(
    ("features", "why"), [({"id": "required"}, "sets id"), ({"unique": True}, "the role 'unique'")]
)
def test_a_preset_whose_tasks_put_could_not_make_is_refused(queue, features, why):
    with pytest.raises(xq.ConfigurationError, match=why):
        queue.register_driver("mine", features)


def test_whoever_leaves_a_session_last_gives_back_what_it_holds(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")

    def elsewhere() -> None:
        shared.identify(shared.session().uuid)
        tube.take(0)
        assert tube.peek(1).state == "t"
        shared.identify(shared.session().uuid)
        assert tube.peek(1).state == "r"

    in_threads(shared.database, elsewhere)
    assert calls(tube) == {"put": 1, "take": 1, "release": 1}


def test_who_puts_and_looks_has_no_session_in_the_database(shared):
    tube = shared.create_tube("tube", "fifo")

    def looks() -> None:
        put(tube, "a")
        tube.peek(1)
        tube.statistics()

    in_threads(shared.database, looks)
    looks()
    assert tube.model.xq.sessions() == []
    tube.take(0)
    assert [uuid for uuid, _ in tube.model.xq.sessions()] == [shared.identify()]


def test_who_waits_who_has_taken_what_and_which_sessions_there_are_is_told_of_a_tube(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    mine, looks = shared.identify(), tube.model.xq
    tube.take(0)
    with shared.session() as session:
        tube.take(0)
        assert sorted((id, uuid) for id, uuid, _ in looks.taken()) == [(1, mine), (2, session.uuid)]
        assert sorted(uuid for uuid, _ in looks.sessions()) == sorted([mine, session.uuid])
    assert [(id, uuid) for id, uuid, _ in looks.taken()] == [(1, mine)]
    assert [uuid for uuid, _ in looks.sessions()] == [mine]
    assert looks.waiting() == []
    tube.take(0)
    waits = Work(shared.database, lambda: tube.take(PATIENCE))
    eventually(lambda: [(id, uuid) for id, uuid, _ in looks.waiting()] == [(None, mine)])
    put(tube, "c")
    assert waits.result().data == "c"
    assert looks.waiting() == []
    for _, _, since in looks.taken():
        assert abs(since - time.time()) < 3600


def test_settings_are_checked_before_any_is_set(queue):
    queue.cfg(ttr=5, in_replicaset=True)
    queue.cfg(in_replicaset=False)
    queue.cfg(ttr=0)
    for value in (-1, math.inf, math.nan):
        with pytest.raises(xq.BadValue):
            queue.cfg(ttr=value)
    wrong: Any = ({"ttr": "1"}, {"ttr": 5, "in_replicaset": 1}, {"nonsense": 1})
    for bad in wrong:
        with pytest.raises(TypeError):
            queue.cfg(**bad)


def test_the_tasks_of_a_session_that_has_ended_are_kept_for_the_ttr(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")
    shared.cfg(ttr=1000)
    with shared.session() as session:
        tube.take(0)
    assert tube.peek(1).state == "t"
    with shared.session(session.uuid):
        assert tube.ack(1).state == "-"


def test_another_process_finds_the_tubes(shared):
    db = shared.database
    tube = shared.create_tube("tübe", "utubettl", ttl=1000, pri=5)
    put(tube, "a", b"b", pri=1)

    def other() -> Any:
        with opened(db) as queue:
            found = queue.tube["tübe"]
            first = found.take(0)
            queue.create_tube("theirs", "fifo")
            yield queue.tube(), found.type, dict(found.options), tuple(first)
            yield tuple(found.ack(first.id))

    with another_process(db, other) as running:
        names, *rest = next(running)
        assert (sorted(names), *rest) == (["theirs", "tübe"], "utubettl", {"ttl": 1000, "pri": 5}, (1, "t", "a"))
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        assert next(running) == (1, "-", "a")
        assert tube.take(0).data == b"b"
        assert shared.tube.theirs.take(0) is None
        assert tube.statistics()["calls"]["take"] == 2


def test_a_child_goes_on_with_the_tubes_of_its_parent(shared):
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a", "b")
    assert tube.take(0).data == "a"
    mine = shared.identify()

    def child() -> Any:
        assert shared.identify() != mine
        with pytest.raises(xq.NotOwner):
            tube.ack(1)
        yield tuple(tube.take(0))
        yield tube.ack(2).state

    with another_process(shared.database, child) as running:
        assert next(running) == (2, "t", "b")
        assert next(running) == "-"
    assert tube.ack(1).state == "-"


def test_of_processes_that_create_a_tube_at_once_one_does(shared_db):
    def other() -> Any:
        with opened(shared_db) as queue:
            yield
            try:
                yield queue.create_tube("tube", "fifo").name
            except xq.TubeExists as error:
                yield type(error).__name__

    with processes(shared_db, other, other, other) as running:
        for one in running:
            next(one)
        for one in running:
            one.post(None)
        assert sorted(one.hear() for one in running) == ["TubeExists", "TubeExists", "tube"]
    made = [name for name in shared_db.get_tables() if re.fullmatch("xq_tube_tube_[0-9a-f]{8}", name)]
    assert len(made) == 1, "and the others leave nothing"


def test_two_processes_that_create_a_tube_at_once_share_it(shared_db):
    def other() -> Any:
        with opened(shared_db) as queue:
            yield "ready"
            tube = queue.create_tube("tube", "fifo", if_not_exists=True)
            yield tube.put("a").id

    with processes(shared_db, other, other, other) as running:
        assert [next(one) for one in running] == ["ready"] * 3
        for one in running:
            one.post(None)
        assert sorted(one.hear() for one in running) == [1, 2, 3]
    assert Tubes(shared_db).tube.tube.statistics()["calls"]["put"] == 3


def test_a_process_that_is_killed_gives_its_tasks_back(shared):
    db = shared.database
    tube = shared.create_tube("tube", "utube")
    put(tube, "a", "b", utube="u")

    def other() -> Any:
        with opened(db) as queue:
            yield tuple(queue.tube.tube.take(0))
            yield

    with another_process(db, other) as running:
        assert next(running) == (1, "t", "a")
        assert tube.take(0) is None
        told = heard(tube)
        running.kill()
        assert tube.take(PATIENCE).data == "a"
        eventually(lambda: sorted(told) == ["1r release", "1t take"])
        assert calls(tube) == {"put": 2, "take": 2, "release": 1}


def test_processes_share_a_session(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifo")
    put(tube, "a")
    uuid = shared.identify()

    def other() -> Any:
        with opened(db) as queue:
            yield queue.identify(uuid)
            yield tuple(queue.tube.tube.ack(1))

    tube.take(0)
    with another_process(db, other) as running:
        assert next(running) == uuid
        assert next(running) == (1, "-", "a")
    with pytest.raises(xq.NotFound):
        tube.ack(1)
