"""A person names a task by a key of bytes: in the console, in a filter and for an operation."""

from __future__ import annotations

import re
import uuid
from typing import Any

import peewee as pw
import pytest

from tests.steps import Bytes
from tests.support.console import SAME, consoles, visitor  # noqa: F401
from xq import serve

# a field or the fields of a key, two keys, and these as text
KEYS: dict[str, Any] = {
    "bytes": (Bytes(primary_key=True), {}, [(b"\x00\xff'\"",), (b"abc",)], ["00FF2722", "616263"]),
    "uuid": (
        pw.BinaryUUIDField(primary_key=True),
        {},
        [(uuid.UUID(int=9),), (uuid.UUID(int=7),)],
        [str(uuid.UUID(int=9)), str(uuid.UUID(int=7))],
    ),
    "two columns": (
        Bytes(),
        {"n": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("id", "n")}},
        [(b"\x00\xff'\"", 1), (b"abc", 2)],
        ['["00FF2722", 1]', '["616263", 2]'],
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_console_shows_and_kills_a_task_and_a_filter_finds_it_for_an_operation(make_shared, kind):
    field, attributes, keys, (one, two) = KEYS[kind]
    Task = make_shared({"buried": True}, model=make_shared.model(field, **attributes))
    for key in keys:
        Task.put(dict(zip(("id", "n"), key, strict=False)))
    here = visitor(serve.app([Task]))
    (address, *_) = re.findall(r'href="(/q/Task/task\?key=[^"]+)"', here.get("/q/Task").text)
    assert here.get(address.replace("&amp;", "&")).status_code == 200
    assert here.get("/q/Task/task", params={"key": one}).status_code == 200
    assert here.get("/q/Task/task", params={"key": "no key"}).status_code == 404
    form = {"verb": "kill", "scope": "selected", "keys": [one]}
    assert here.post("/q/Task/act", data=form, headers=SAME).status_code == 200
    assert Task.xq.count() == 1
    filter = "key:" + ("'{}'".format(two.replace("'", "\\'")) if two.startswith("[") else two)
    assert len(Task.xq.find(filter).tasks) == 1
    assert Task.xq.act("kill", filter).run().done == 1
    assert Task.xq.count() == 0
