"""A person names a task by a key of bytes: in the console, in a filter, and on the command line."""

from __future__ import annotations

import re
import uuid

import peewee as pw
import pytest

from tests.steps import Bytes
from tests.support.console import SAME, consoles, visitor  # noqa: F401
from xq import serve

ONE, TWO = b"\x00\xff'\"", b"abc"
UUID = uuid.UUID("1d73450b-7d18-4a4a-ab28-5b05c2fc38b9")


def of_bytes(make):
    return make({"buried": True}, key=Bytes(primary_key=True)), [ONE, TWO], ["00FF2722", "616263"]


def of_a_binary_uuid(make):
    Task = make({"buried": True}, key=pw.BinaryUUIDField(primary_key=True))
    return Task, [UUID, uuid.UUID(int=7)], [str(UUID), str(uuid.UUID(int=7))]


def of_two_columns(make):
    model = make.model(Bytes(), n=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("id", "n")})
    return make({"buried": True}, model=model), [(ONE, 1), (TWO, 2)], ['["00FF2722", 1]', '["616263", 2]']


@pytest.fixture(params=[of_bytes, of_a_binary_uuid, of_two_columns])
def keyed(request, make_shared):
    """A queue with two ready tasks, their keys, and these as text."""
    Task, keys, texts = request.param(make_shared)
    for key in keys:
        Task.put(dict(zip(("id", "n"), key if isinstance(key, tuple) else (key,))))
    return Task, keys, texts


def test_the_console_shows_the_page_of_the_task_and_kills_it(keyed):
    Task, keys, (one, _) = keyed
    here = visitor(serve.app([Task]))
    listed = here.get("/q/Task").text
    (address, *_) = re.findall(r'href="(/q/Task/task\?key=[^"]+)"', listed)
    assert here.get(address.replace("&amp;", "&")).status_code == 200
    assert here.get("/q/Task/task", params={"key": one}).status_code == 200
    assert here.get("/q/Task/task", params={"key": "no key"}).status_code == 404
    form = {"verb": "kill", "scope": "selected", "keys": [one]}
    assert here.post("/q/Task/act", data=form, headers=SAME).status_code == 200
    assert Task.xq.count() == 1
    assert Task.xq.peek(keys[1])


def test_a_filter_finds_it_and_an_operation_moves_it(keyed):
    Task, _, (_, two) = keyed
    quoted = "key:" + "'{}'".format(two.replace("'", "\\'")) if two.startswith("[") else f"key:{two}"
    assert len(Task.xq.find(quoted).tasks) == 1
    assert Task.xq.act("kill", quoted).run().done == 1
    assert Task.xq.act("kill", "state:ready").run().done == 1
    assert Task.xq.count() == 0
