"""Each call of a queue in its plainest form, and the features and tasks of calls that several tests make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import xq

# what a queue that is there can be asked
CALLS: Mapping[str, Callable[[Any], Any]] = {
    "put": lambda queue: queue.put({"name": "a"}),
    "put_many": lambda queue: queue.put_many([{"name": "a"}, {"name": "b"}]),
    "take": lambda queue: queue.take(),
    "take_many": lambda queue: queue.take_many(2),
    "ack": lambda queue: queue.ack(1),
    "release": lambda queue: queue.release(1),
    "bury": lambda queue: queue.bury(1),
    "touch": lambda queue: queue.touch(1, 5),
    "ack_many": lambda queue: queue.ack_many([1]),
    "dig": lambda queue: queue.dig(1),
    "plow": lambda queue: queue.plow(),
    "kill": lambda queue: queue.kill(1),
    "snatch": lambda queue: queue.snatch(1),
    "restart": lambda queue: queue.restart(1),
    "switch": lambda queue: queue.switch(1, "R"),
    "release_all": lambda queue: queue.release_all(),
    "truncate": lambda queue: queue.truncate(),
    "sweep": lambda queue: queue.sweep(),
    "peek": lambda queue: queue.peek(1),
    "by_state": lambda queue: queue.by_state("R"),
    "count": lambda queue: queue.count(),
    "taken": lambda queue: queue.taken(),
    "sessions": lambda queue: queue.sessions(),
    "session": lambda queue: queue.session("0190163d-8694-739b-aea5-966c26f8ad90"),
    "stats": lambda queue: queue.stats(),
    "reset": lambda queue: queue.reset(),
    "recount": lambda queue: queue.recount(),
}
# what is done with a queue as a whole
UPKEEP: Mapping[str, Callable[[Any], Any]] = {
    "install": lambda queue: queue.install(),
    "ddl": lambda queue: queue.ddl(),
    "check": lambda queue: queue.check(),
    "uninstall": lambda queue: queue.uninstall(),
}

BATCHES = {"buried": True, "keep": True, "delayed": True, "ttr": 60}
TARGETS = {"ack_many": "D", "release_many": "R", "bury_many": "B", "kill_many": "X"}  # the state after each
HISTORY = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "ttl": 100, "history": True}
RETRY = xq.Feature("retry", transitions=(xq.Transition("T", "retry", "R", fenced=True),))


def sequence(Task: Any, **values: Any) -> list[Any]:
    """A task as a sequence: a value for each field, None for what is the queue's."""
    own = {"size": 0} | ({} if "attempts" in Task.xq.machine.roles else {"attempts": 0})
    return [(own | values).get(field.name) for field in Task._meta.sorted_fields]
