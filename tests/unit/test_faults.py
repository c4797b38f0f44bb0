"""Faults that were found once: what happens now, on every database."""

from __future__ import annotations

import math
from typing import Any

import peewee as pw
import pytest

import xq

FIELDS = {"status": "status", "runat": "runat"}

CALLS = {
    "put": lambda queue: queue.put({"name": "a"}),
    "put_many": lambda queue: queue.put_many([{"name": "a"}, {"name": "b"}]),
    "take": lambda queue: queue.take(),
    "take_many": lambda queue: queue.take_many(2),
    "ack": lambda queue: queue.ack(1),
    "release": lambda queue: queue.release(1),
    "bury": lambda queue: queue.bury(1),
    "touch": lambda queue: queue.touch(1, 5),
    "ack_many": lambda queue: queue.ack_many([1]),
    "release_many": lambda queue: queue.release_many([1]),
    "bury_many": lambda queue: queue.bury_many([1]),
    "dig": lambda queue: queue.dig(1),
    "plow": lambda queue: queue.plow(),
    "kill": lambda queue: queue.kill(1),
    "kill_many": lambda queue: queue.kill_many([1]),
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
    "stats": lambda queue: queue.stats(),
    "reset": lambda queue: queue.reset(),
    "session by uuid": lambda queue: queue.session("0190163d-8694-739b-aea5-966c26f8ad90"),
    "install": lambda queue: queue.install(),
    "ddl": lambda queue: queue.ddl(),
    "check": lambda queue: queue.check(),
    "recount": lambda queue: queue.recount(),
    "uninstall": lambda queue: queue.uninstall(),
    "reconfigure": lambda queue: queue.reconfigure({"keep": True}),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_before_there_is_a_database_says_so(make, call):
    model = make.model(meta={"database": pw.DatabaseProxy()})
    queue = xq.upgrade(model, FIELDS, {"buried": True, "keep": True, "ttr": 60})
    with pytest.raises(xq.ConfigurationError, match="no database yet"):
        CALLS[call](queue)


REFUSED: dict[str, tuple[str, Any]] = {
    "statuses with a letter of no state": ("'q'", {"statuses": {"q": "x"}}),
    "statuses with the letter of no row": ("'X'", {"statuses": {"X": "gone"}}),
    "statuses with the letter of another tube": ("'S'", {"statuses": {"S": "elsewhere"}}),
    "statuses with a word for a letter": ("'ready'", {"statuses": {"ready": "R"}}),
    "methods that are no names": ("methods", {"methods": 5}),
    "methods that are one name": ("methods", {"methods": "put"}),
    "a clock that tells no time": ("clock", {"clock": "x"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_upgrade_refuses(make, what):
    told, options = REFUSED[what]
    with pytest.raises(xq.ConfigurationError, match=told):
        xq.upgrade(make.model(), FIELDS, **options)


@pytest.mark.parametrize("field", [pw.DateField, pw.BooleanField, pw.BlobField, pw.TextField])
def test_a_priority_is_in_a_field_of_numbers(make, field):
    with pytest.raises(xq.ConfigurationError, match="'priority'"):
        xq.upgrade(make.model(priority=field(null=True)), {**FIELDS, "priority": "priority"})


EARLY: dict[str, tuple[type[Exception], Any]] = {
    "switch to no state": (xq.BadValue, lambda Task: Task.xq.switch(999, "Q")),
    "switch with a bad delay": (xq.BadValue, lambda Task: Task.xq.switch(999, "W", delay=-1)),
    "switch to W without a delay": (xq.BadValue, lambda Task: Task.xq.switch(999, "W")),
    "switch for ever": (xq.BadValue, lambda Task: Task.xq.switch(999, "W", delay=math.inf)),
    "switch with a ttl": (xq.FeatureOff, lambda Task: Task.xq.switch(999, "R", ttl=5)),
    "restart with a bad delay": (xq.BadValue, lambda Task: Task.xq.restart(999, delay=-1)),
    "restart for ever": (xq.BadValue, lambda Task: Task.xq.restart(999, delay=math.inf)),
    "restart with a ttl": (xq.FeatureOff, lambda Task: Task.xq.restart(999, ttl=5)),
    "release with a bad delay": (xq.BadValue, lambda Task: Task.release(999, delay=math.nan)),
    "release for ever": (xq.BadValue, lambda Task: Task.release(999, delay=math.inf)),
    "release with a ttl": (xq.FeatureOff, lambda Task: Task.release(999, ttl=5)),
    "release with a ttr": (xq.FeatureOff, lambda Task: Task.release(999, ttr=5)),
}


@pytest.mark.parametrize("call", EARLY)
def test_what_is_asked_is_looked_at_before_the_task_is(make, call):
    error, asked = EARLY[call]
    Task = make({"delayed": True, "keep": True, "ttr": 60}, roles=("runat",))
    with pytest.raises(error):
        asked(Task)
