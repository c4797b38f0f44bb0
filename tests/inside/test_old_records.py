"""What version 0.1 recorded of a queue: of the features of an application's own only the digest of all transitions."""

from __future__ import annotations

import json

import pytest

import xq
from xq import Feature, Transition

FIELDS = {"status": "status"}


def parking(event):
    return Feature("parked", transitions=(Transition("R", event, "P"), Transition("P", "fetch", "R")))


def test_a_queue_that_an_older_version_installed_is_used_and_a_difference_is_told_as_far_as_it_is_known(make):
    Task = make({"parked": parking("park"), "buried": True}, fields=FIELDS)
    recorded = json.loads(Task.xq.adapter.installation.fingerprint)
    assert recorded.pop("own")
    make.db.execute_sql(f"UPDATE xq_queue SET fingerprint = {make.db.param}", (json.dumps(recorded, sort_keys=True),))
    assert Task.xq.check() == []
    assert Task.put({}).status == "R"
    Other = make.model()
    xq.upgrade(Other, FIELDS, {"parked": parking("leave"), "buried": True})
    with pytest.raises(xq.NotInstalled, match="transitions are others there than here, where .* buried"):
        Other.put({})
