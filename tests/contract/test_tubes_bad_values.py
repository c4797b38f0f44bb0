"""Every call of a tube with any value works, or says what is wrong and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import xq
from tests.support.bad_values import VALUES, HostileError
from xq.testing import Clock
from xq.tubes import PRESETS, Tubes

Call = Callable[[Tubes, Any, Any], Any]  # of the tubes, one that has all options, and a value


def of_put(option: str) -> Call:
    return lambda queue, tube, v: tube.put("a", **{option: v})


def of_taken(method: str) -> Call:
    return lambda queue, tube, v: getattr(tube, method)(v)


def of_create(type: str, option: str) -> Call:
    return lambda queue, tube, v: queue.create_tube("made", type, **{option: v})


def _calls() -> Iterator[tuple[str, Call]]:
    yield "put(v)", lambda queue, tube, v: tube.put(v)
    yield "put([v])", lambda queue, tube, v: tube.put([v])
    yield "put({'a': v})", lambda queue, tube, v: tube.put({"a": v})
    for option in ("pri", "ttl", "ttr", "delay", "utube", "timeout", "nonsense"):
        yield f"put({option}=v)", of_put(option)
    for method in ("ack", "release", "peek", "bury", "delete", "kick", "tasks_by_state", "on_task_change"):
        yield f"{method}(v)", of_taken(method)
    yield "touch(v, 1)", lambda queue, tube, v: tube.touch(v, 1)
    yield "touch(taken, v)", lambda queue, tube, v: tube.touch(tube.tasks_by_state("t")[0], v)
    yield "release(taken, delay=v)", lambda queue, tube, v: tube.release(tube.tasks_by_state("t")[0], delay=v)
    yield "queue.tube[v]", lambda queue, tube, v: queue.tube[v]
    yield "v in queue.tube", lambda queue, tube, v: v in queue.tube
    yield "statistics(v)", lambda queue, tube, v: queue.statistics(v)
    yield "session(v)", lambda queue, tube, v: queue.session(v)
    yield "identify(v)", lambda queue, tube, v: queue.identify(v)
    yield "cfg(ttr=v)", lambda queue, tube, v: queue.cfg(ttr=v)
    yield "cfg(in_replicaset=v)", lambda queue, tube, v: queue.cfg(in_replicaset=v)
    yield "create_tube(v)", lambda queue, tube, v: queue.create_tube(v, "fifo")
    yield "create_tube(type=v)", lambda queue, tube, v: queue.create_tube("made", v)
    for option in (
        "temporary",
        "if_not_exists",
        "on_task_change",
        "storage_mode",
        "ttl",
        "capacity",
        "pri",
        "nonsense",
    ):
        yield f"create_tube({option}=v)", of_create("limfifottl", option)
    yield "register_driver(v)", lambda queue, tube, v: queue.register_driver(v, {"keep": True})
    yield "register_driver('x', v)", lambda queue, tube, v: queue.register_driver("x", v)
    yield "register_driver('y', {'keep': v})", lambda queue, tube, v: queue.register_driver("y", {"keep": v})
    yield "register_driver('z', {'ttl': v})", lambda queue, tube, v: queue.register_driver("z", {"ttl": v})


CALLS = dict(_calls())


def wrong_with(call: Call, queue: Tubes, tube: Any, value: Any) -> str:
    """What is wrong with what a call does with a value, if anything."""
    before = tube.statistics()["tasks"]
    try:
        call(queue, tube, value)
    except HostileError:
        pass  # the caller's own
    except Exception as error:
        if not isinstance(error, xq.Error) and not (isinstance(error, TypeError) and "nonsense" in str(error)):
            return f"{type(error).__name__}: {error}"
        if tube.statistics()["tasks"] != before:
            return "it was refused, and changed something"
    return ""


def test_a_call_with_any_value_works_or_says_what_is_wrong(db):
    queue: Any = Tubes(db, clock=Clock())
    drivers = vars(db)["_xq_tubes"]["drivers"]
    queue.register_driver("all", {**PRESETS["utubettl"], "limit": 10_000})
    tube = queue.create_tube("tube", "all")
    found = {}
    for name, (value, made) in product(CALLS, VALUES.items()):
        for other in [other for other in queue.tube if other != "tube"]:
            queue.tube[other].drop()
        for driver in drivers.keys() - {*PRESETS, "all"}:
            del drivers[driver]
        tube.on_task_change(None)
        if not tube.tasks_by_state("t"):
            tube.put("taken", utube=value[:20], pri=-1)
            tube.take(0)
        if wrong := wrong_with(CALLS[name], queue, tube, made()):
            found[name, value] = wrong
    assert found == {}
