"""What NotInstalled says where another process has installed another definition of a queue."""

from __future__ import annotations

from typing import Any

import pytest

import xq
from xq import Feature, Transition

ROLES = {"status": "status", "runat": "runat"}


def parking(event):
    return Feature("parked", transitions=(Transition("R", event, "P"), Transition("P", "fetch", "R")))


FEATURES = {"buried": True, "limit": 5, "parked": parking("park")}

# what is different -> all that is said of it
DIFFERENT = [
    ({"features": {**FEATURES, "keep": True}}, ["the feature 'keep' is off there and on here"]),
    ({"features": {**FEATURES, "buried": "any"}}, ["the feature 'buried' is on there and 'any' here"]),
    (
        {"features": {"buried": True, "parked": FEATURES["parked"]}},
        ["the feature 'limit' is 5 there and off here"],
    ),
    (
        {"features": {**FEATURES, "parked": parking("leave")}},
        ["the feature 'parked' has other transitions, timers or columns there than here"],
    ),
    ({"fields": {"status": "status"}}, ["the role 'runat' is the column 'runat' there and mapped to no field here"]),
    ({"statuses": {"B": "failed", "R": "ready"}}, ["B is 'B' there and 'failed'", "R is 'R' there and 'ready'"]),
]


def test_the_feature_the_role_or_the_status_that_differs_is_named_and_nothing_else(make):
    Task = make(FEATURES, fields=ROLES)
    Task.put({})
    for different, said in DIFFERENT:
        Other = make.model()
        definition: Any = {"fields": ROLES, "features": FEATURES, **different}
        xq.upgrade(Other, **definition)
        with pytest.raises(xq.NotInstalled) as raised:
            Other.put({})
        told = [line for line in raised.value.missing if "missing" not in line]
        assert len(told) == len(said), told
        assert all(words in line for words, line in zip(said, told, strict=True)), told
