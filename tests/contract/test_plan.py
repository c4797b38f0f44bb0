"""The plan of a call: its steps and its SQL, to be read."""

from __future__ import annotations

from typing import Any

import pytest

import xq

BASE: dict[str, Any] = {"features": {"buried": True, "delayed": True, "keep": True}, "roles": ("runat",)}
UNIQUE: dict[str, Any] = {"features": {"unique": True}, "roles": ("unique",)}

# the queue, the call, the fields of its update, the first words of its plan, what else is in it
PLANS: list[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], str, list[str]]] = [
    (BASE, ("take",), (), "take()\n  1  ", ["token", "R to T", "UPDATE"]),
    (BASE, ("ack",), ("name",), "ack(update={name})", ["UPDATE", "name"]),
    (BASE, ("put",), (), "put()", ["to R"]),
    (BASE, ("put", "delay"), (), "put(delay=)", ["to W"]),
    (BASE, ("kill",), (), "kill()", ["look up the task", "R to X", "T to X", "W to X", "B to X", "D to X"]),
    (UNIQUE, ("put", "on_conflict"), (), "put(on_conflict=)\n", ["as on_conflict= says"]),
    ({"roles": ("tube",)}, ("take", "timeout", "tube"), (), "take(", ["tube"]),
]


def test_a_plan_tells_the_steps_and_the_sql_of_a_call(make, subtests):
    for features, asked, update, first, told in PLANS:
        with subtests.test(repr(asked)):
            queue = make(**features).xq
            text = str(queue.plan(*asked, update=update))
            assert text.startswith(first)
            assert [words for words in told if words not in text] == []
            queue.uninstall()


def test_what_is_no_call_of_the_queue_has_no_plan(make):
    queue = make(**BASE).xq
    wrong: list[Any] = [("tkae",), ("take", "dealy"), ([],), ("put", [])]
    for bad in wrong:
        with pytest.raises((xq.BadValue, xq.BadType, xq.FeatureOff)):
            queue.plan(*bad)
    with pytest.raises(xq.FeatureOff, match="unique"):
        queue.plan("put", "on_conflict")
    no_names: list[Any] = [None, 7, "url", [1], [[]]]
    for update in no_names:
        for event in ("put", "ack"):
            with pytest.raises(xq.BadType, match="names"):
                queue.plan(event, update=update)
