"""Every call of a tube with any value works, or says what is wrong and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import xq
from tests.support.bad_values import VALUES, HostileError
from xq.testing import Clock
from xq.tubes import PRESETS, Tubes

Call = Callable[[Tubes, Any, Any], Any]  # of the tubes, one that has all options, and a value


def call_of(method: str) -> Call:
    return lambda queue, tube, v: getattr(tube, method)(v)


def put(option: str) -> Call:
    return lambda queue, tube, v: tube.put("a", **{option: v})


def create(option: str) -> Call:
    return lambda queue, tube, v: queue.create_tube("made", "limfifottl", **{option: v})


PUT = ("pri", "ttl", "ttr", "delay", "utube", "timeout", "nonsense")
METHODS = ("put", "ack", "release", "peek", "bury", "delete", "kick", "tasks_by_state", "on_task_change")
CREATE = ("temporary", "if_not_exists", "on_task_change", "storage_mode", "ttl", "capacity", "pri", "nonsense")
CALLS: dict[str, Call] = {
    **{f"put({option}=v)": put(option) for option in PUT},
    **{f"{method}(v)": call_of(method) for method in METHODS},
    **{f"create_tube({option}=v)": create(option) for option in CREATE},
    "put({'a': v})": lambda queue, tube, v: tube.put({"a": [v]}),
    "touch(v, 1)": lambda queue, tube, v: tube.touch(v, 1),
    "touch(taken, v)": lambda queue, tube, v: tube.touch(tube.tasks_by_state("t")[0], v),
    "release(taken, delay=v)": lambda queue, tube, v: tube.release(tube.tasks_by_state("t")[0], delay=v),
    "queue.tube[v]": lambda queue, tube, v: queue.tube[v],
    "v in queue.tube": lambda queue, tube, v: v in queue.tube,
    "statistics(v)": lambda queue, tube, v: queue.statistics(v),
    "session(v)": lambda queue, tube, v: queue.session(v),
    "identify(v)": lambda queue, tube, v: queue.identify(v),
    "cfg(ttr=v)": lambda queue, tube, v: queue.cfg(ttr=v),
    "create_tube(v)": lambda queue, tube, v: queue.create_tube(v, "fifo"),
    "create_tube(type=v)": lambda queue, tube, v: queue.create_tube("made", v),
    "register_driver(v)": lambda queue, tube, v: queue.register_driver(v, {"keep": True}),
    "register_driver('x', v)": lambda queue, tube, v: queue.register_driver("x", v),
    "register_driver('y', {'ttl': v})": lambda queue, tube, v: queue.register_driver("y", {"ttl": v}),
}


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
    drivers = vars(db)["_xq_database"].tubes["drivers"]
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
