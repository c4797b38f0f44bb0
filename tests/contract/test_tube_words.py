"""The errors of tubes speak of the states, options, types and calls of tubes."""

from __future__ import annotations

from typing import Any

import pytest

import xq
from xq.testing import Clock


@pytest.fixture
def queue(db: Any) -> xq.Tubes:
    return xq.Tubes(db, clock=Clock())


def test_a_tube_names_its_own_states(queue):
    tube = queue.create_tube("mail", "fifottl")
    delayed = tube.put("a", delay=5)
    with pytest.raises(xq.WrongState) as wrong:
        tube.ack(delayed.id)
    assert str(wrong.value) == f"cannot ack task {delayed.id}: it is delayed (~); ack needs a taken task (t)"
    assert (wrong.value.state, wrong.value.allowed) == ("W", ("T",))


def test_a_task_of_another_session_is_told_with_the_call_that_joins_it(queue):
    tube = queue.create_tube("mail", "fifo")
    tube.put("a")
    with queue.session() as owner:
        tube.take(0)
        with queue.session(), pytest.raises(xq.NotOwner) as other:
            tube.ack(1)
    told = f"it is taken by another session ({owner.uuid}), which identify({owner.uuid!r}) joins"
    assert str(other.value) == f"cannot ack task 1: {told}"


def test_an_option_that_a_type_lacks_is_told_with_the_types_that_have_it(queue):
    tube = queue.create_tube("mail", "fifo")
    tube.put("a")
    timed = "fifottl, limfifottl or utubettl"
    for call, what, types in (
        (lambda: tube.put("a", ttl=5), "put(ttl=)", timed),
        (lambda: tube.put("a", pri=1), "put(pri=)", timed),
        (lambda: tube.put("a", utube="u"), "put(utube=)", "utube or utubettl"),
        (lambda: tube.put("a", timeout=1), "put(timeout=)", "limfifottl"),
        (lambda: tube.release(1, delay=5), "release(delay=)", timed),
        (lambda: tube.touch(1, 5), "touch", timed),
        (lambda: queue.create_tube("other", "fifo", ttl=5), "create_tube(ttl=)", timed),
    ):
        with pytest.raises(xq.FeatureOff) as off:
            call()
        assert str(off.value) == f"{what} needs a tube of the type {types}, and this one is of the type fifo"
        assert off.value.feature
    queue.register_driver("bare", {})
    bare = queue.create_tube("bare", "bare")
    with pytest.raises(xq.FeatureOff, match="^kick needs a tube of the type fifo, .* or utubettl, and this one is of"):
        bare.kick(1)


def test_a_call_with_options_in_a_table_or_of_another_name_is_a_bad_type_that_shows_the_form(queue):
    tube: Any = queue.create_tube("mail", "fifottl")
    tubes: Any = queue
    for call, told in (
        (lambda: tube.put("x", {"pri": 1, "delay": 5}), "put takes its options by name: put(data, pri=1, delay=5)"),
        (lambda: tube.put("x", 1), "put(data, pri=..., ttl=..., ttr=..., delay=..., utube=..., timeout=...)"),
        (lambda: tube.release(1, {"delay": 5}), "release takes its options by name: release(id, delay=5)"),
        (lambda: tubes.cfg({"ttr": 5}), "cfg takes its options by name: cfg(ttr=5)"),
        (lambda: tubes.create_tube("a", "fifo", {"temporary": True}), "create_tube(name, type, temporary=True)"),
        (lambda: tubes.tube("mail"), "tube['mail'] is one of them"),
        (lambda: tube.put("x", prio=1), "put has no option 'prio': it has pri, ttl, ttr, delay, utube, timeout"),
        (lambda: tube.put("x", {"prio": 1}), "put has no option 'prio': it has pri, ttl, ttr, delay, utube, timeout"),
        (lambda: tube.release(1, dely=5), "release has no option 'dely': it has delay"),
        (lambda: tube.put(), "put: missing a required argument: 'data'"),
        (lambda: tube.take(ttr=3), "take has no option 'ttr': it has timeout"),
        (lambda: tube.ack(1, update={}), "ack has no option 'update': it has id"),
        (lambda: tube.touch(1), "touch: missing a required argument: 'increment'"),
    ):
        with pytest.raises(xq.BadType) as bad:
            call()
        assert told in str(bad.value)
    assert tube.statistics()["calls"]["put"] == 0
