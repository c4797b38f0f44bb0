"""Processes of an older release beside a newer definition: their puts go on where both put the same rows."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_type_hints

import peewee as pw
import pytest

import xq
from tests.features import alone
from tests.steps import a_second_passes

PAGE = Path(__file__).parents[3] / "docs/howto/deploy.md"
FIELDS = {"utube": "utube", "unique": "job", "priority": "priority"}


def release(make: Any, features: dict[str, Any], statuses: Any = None, **fields: str) -> Any:
    """The model of one release, on the table of all."""
    Task = make.model(pw.BigAutoField())
    used = {role: name for role, name in FIELDS.items() if role in features}
    make.upgrade(Task, {"status": "status", **used, **fields}, features, clock=make.clock, statuses=statuses)
    return Task


def deployed(make: Any, monkeypatch: Any, Old: Any, New: Any, tasks: int = 1) -> list[str]:
    """A process of the old release has put, and a second ago the new one was installed. The INSERTs of both."""
    make.create(Old)
    Old.xq.put_many([{"name": "before"}] * tasks)
    insert = Old.xq.sql("put")
    New.xq.install()
    a_second_passes(monkeypatch)
    return [text.partition("RETURNING")[0] for text in (insert, New.xq.sql("put"))]


def rows_of(db: Any) -> list[dict[str, Any]]:
    """The rows without their keys; a counter of lost takes that is NULL is as one of 0."""
    found = db.execute_sql("SELECT * FROM task ORDER BY id")
    names = [column[0] for column in found.description]
    left_out = [("xq_lost", 0), ("xq_lost", None)]
    rows = [zip(names, row, strict=True) for row in found.fetchall()]
    return [{name: value for name, value in row if name != "id" and (name, value) not in left_out} for row in rows]


def fates() -> dict[str, bool]:
    """What the page says of each feature that a newer definition has: whether the puts of older processes go on."""
    table = PAGE.read_text().partition("| what the newer release has |")[2].splitlines()
    return {name: "| go on |" in row for row in table[2:4] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


FATES = fates()


def test_the_page_has_the_fate_of_each_feature():
    assert FATES.keys() == get_type_hints(xq.Features).keys()


@pytest.mark.parametrize("name", sorted(FATES))
def test_puts_of_an_older_process_go_on_where_the_newer_one_puts_the_same_rows(make, monkeypatch, name):
    before = {} if name in ("delayed", "ttr", "ttl") else {"delayed": True, "ttr": 60}
    Old, New = release(make, before), release(make, before | alone(name))
    inserts = deployed(make, monkeypatch, Old, New)
    calls = [{}, {"delay": 5}] if "delayed" in before else [{}]
    for options in calls if FATES[name] else ():
        for Task in (Old, New):
            Task.xq.put({"name": "one"}, **options)
            Task.xq.put_many([{"name": "some", "size": n} for n in range(2)], **options)
        rows = rows_of(make.db)
        assert rows[-6:-3] == rows[-3:]
    if not FATES[name]:
        assert inserts[0] != inserts[1] or name == "id"
        for put in (Old.put, lambda task: Old.xq.put_many([task])):
            with pytest.raises(xq.NotInstalled, match="start the newer program"):
                put({"name": "late"})
    for call in (Old.take, Old.stats) if name != "retval" else ():
        with pytest.raises(xq.NotInstalled):
            call()
    assert (New.take().name if name != "retval" else New.take()["name"]) == "before"
    assert New.xq.check() == []


WORDS = {"R": "R", "W": "W", "T": "T"}
OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {  # what both releases have, and whether puts go on
    "a word that no put writes": ({"statuses": WORDS}, {"statuses": WORDS | {"T": "packing"}}, True),
    "the word for ready": ({"statuses": WORDS}, {"statuses": WORDS | {"R": "paid"}}, False),
    "the word for waiting": ({"statuses": WORDS}, {"statuses": WORDS | {"W": "later"}}, False),
    "a field of the application's": ({}, {"fields": {"owner": "tube"}}, False),
    "a column with the time of each move": ({}, {"fields": {"moved": True}}, False),
    "a default ttl": ({"ttl": 5}, {"ttl": 6, "buried": True}, False),
    "no default ttl": ({"ttl": True}, {"ttl": True, "buried": True}, True),
    "a lifetime without a default": ({}, {"lifetime": True}, True),
    "a limit, and a state that it counts": ({"limit": 50}, {"limit": 50, "buried": True}, False),
    "a unique value, and states without it": ({"unique": True}, {"unique": True, "buried": True, "keep": True}, True),
    "a unique value, and a state with it": ({"unique": True, "delayed": None}, {"unique": True}, False),
    "a unique value in more states": ({"unique": True, "buried": True}, {"unique": "WRTB", "buried": True}, False),
    "less that no put writes": ({"buried": True, "keep": True, "ttr": 60}, {"delayed": True}, True),
    "no delayed": ({"keep": True}, {"keep": True, "delayed": None}, False),
}


@pytest.mark.parametrize("name", OTHER)
def test_puts_of_an_older_process_go_on_beside(make, monkeypatch, name):
    one, two, goes_on = OTHER[name]
    given = [{"delayed": True, **each} for each in (one, two)]
    others = [(each.pop("statuses", None), each.pop("fields", {})) for each in given]
    Old, New = (release(make, each, words, **fields) for each, (words, fields) in zip(given, others, strict=True))
    inserts = deployed(make, monkeypatch, Old, New, tasks=0)
    if not goes_on:
        assert inserts[0] != inserts[1] or "waiting" in name
        with pytest.raises(xq.NotInstalled):
            Old.put({})
        return
    for Task in (Old, New):
        Task.put({"job": Task.__name__ if Task is Old else "new"})
        Task.put({}, delay=5)
    rows = [{name: value for name, value in row.items() if name != "job"} for row in rows_of(make.db)]
    assert rows[:2] == rows[2:]


def test_an_older_process_says_once_that_it_is_one(make, monkeypatch, caplog):
    Old, New = (release(make, {"unique": True, **more}) for more in ({}, {"keep": True}))
    deployed(make, monkeypatch, Old, New)
    for n in range(3):
        Old.put({"job": str(n)})
        with pytest.raises(xq.NotInstalled, match="its puts go on meanwhile"):
            Old.take()
        a_second_passes(monkeypatch)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "it is older, as this definition was installed here before" in line
    assert "'keep' is on there and off here" in line
    assert [("its puts go on" in each, "older" in each) for each in Old.xq.check()] == [(True, True), (False, False)]
    assert [("its puts go on" in what, do) for what, do in Old.xq.doctor()] == [(True, "start the newer program")]
    assert New.xq.check() == []


def test_an_older_put_has_its_options_transaction_and_observers(make, monkeypatch):
    Old, New = (release(make, {"unique": True, "delayed": True, **more}) for more in ({}, {"buried": True}))
    deployed(make, monkeypatch, Old, New)
    seen = []
    Old.xq.on_change(lambda task, event, source, target: seen.append((event, target)))
    with make.db.atomic():
        key = Old.put({"job": "a"}, delay=5).id
    with make.db.atomic() as undone:
        Old.put({"job": "b"})
        undone.rollback()
    assert Old.put({"job": "a"}, on_conflict="skip").id == key
    assert Old.put({"job": "a", "name": "other"}, on_conflict="replace").name == "other"
    with pytest.raises(xq.Duplicate):
        Old.put({"job": "a"})
    with pytest.raises(xq.BadValue):
        Old.put({"size": "many"}, delay=-1)
    assert seen == [("put", "W"), ("put", "R")]
    assert (New.stats().counts["R"], New.stats().counts["W"], New.xq.check()) == (2, 0, [])


def test_what_an_older_process_puts_otherwise_than_as_rows_is_refused(make, monkeypatch):
    features = {"groups": True, "after": True, "limit": 9}
    Old, New = (release(make, {**features, **more}) for more in ({}, {"keep": True}))
    deployed(make, monkeypatch, Old, New)
    calls = [lambda: Old.put({}, after=1), lambda: Old.put({}, timeout=5), lambda: Old.put({}, wait=5)]
    for call in (*calls, lambda: Old.xq.group("g").__enter__(), lambda: Old.xq.put_many([{}, {}], chain=True)):
        with pytest.raises(xq.NotInstalled):
            call()
    assert Old.put({}).status == "R"
    assert (New.xq.count(), New.xq.check()) == (2, [])


def test_an_installation_of_an_earlier_version_of_xq_does_not_say_what_its_puts_write(make, monkeypatch):
    Old, New = release(make, {}), release(make, {"keep": True})
    deployed(make, monkeypatch, Old, New)
    ((record,),) = make.db.execute_sql("SELECT fingerprint FROM xq_queue").fetchall()
    without = json.dumps({part: value for part, value in json.loads(record).items() if part != "puts"}, sort_keys=True)
    for table, column in (("xq_queue", "fingerprint"), ("xq_generation", "definition")):
        mark = "?" if isinstance(make.db, pw.SqliteDatabase) else "%s"
        make.db.execute_sql(f"UPDATE {table} SET {column} = {mark} WHERE {column} = {mark}", (without, record))
    with pytest.raises(xq.NotInstalled):
        Old.put({})
    assert New.xq.check() == []
    New.xq.install()
    assert Old.put({}).status == "R"


# back and forward again


def test_a_release_that_was_rolled_back_comes_again_by_a_deploy_and_not_by_a_start(make, monkeypatch):
    features: list[dict[str, Any]] = [{"keep": True}, {"keep": True, "ttr": 60}, {"keep": True, "events": True}]
    A, B, C = (release(make, each) for each in features)

    def standing(Task: Any) -> str:
        """What a process that puts, takes and starts again is told of its definition."""
        a_second_passes(monkeypatch)
        Task.put({})
        try:
            Task.ack(Task.take())
            why = "installed"
        except xq.NotInstalled as error:
            (why,) = re.findall(r"\): it is (\w+), as", str(error))
        with pytest.raises(xq.ConfigurationError, match=f"it is {why}, as") if why != "installed" else nullcontext():
            Task.xq.install()
        assert ("It is refused" in Task.xq.install(plan=True, forward=True)) == (why == "older")
        return why

    make.create(A)
    B.xq.install()
    for again in ({"forward": True}, {"downgrade": True}):  # A, B, A, B, A, B
        assert [*map(standing, (A, B))] == ["older", "installed"]
        with pytest.raises(xq.ConfigurationError, match="it is older"):
            A.xq.install(forward=True)
        A.xq.install(downgrade=True)
        assert [*map(standing, (A, B))] == ["installed", "withdrawn"]
        B.xq.install(**again)
    C.xq.install()
    back, forward = {"downgrade": True}, {"forward": True}
    for Task, how, then in (
        (C, {}, ["older", "older", "installed"]),
        (A, back, ["installed", "withdrawn", "withdrawn"]),
        (C, forward, ["older", "older", "installed"]),
        (A, back, ["installed", "withdrawn", "withdrawn"]),
        (B, forward, ["older", "installed", "withdrawn"]),
        (release(make, {"keep": True, "groups": True}), {}, ["older", "older", "older"]),  # another way from there
    ):
        Task.xq.install(**how)
        assert [*map(standing, (A, B, C))] == then
        assert Task.xq.check() == []


def test_other_durations_are_no_other_release(make):
    One, Two, Newer = (release(make, each) for each in ({"ttr": 5}, {"ttr": 7}, {"ttr": 7, "keep": True}))
    make.create(One)
    Newer.xq.install()
    Two.xq.install(downgrade=True)  # as it was, but for the seconds
    One.xq.install()
    Two.xq.install()
    with pytest.raises(xq.ConfigurationError, match="it is withdrawn"):
        Newer.xq.install()
    Newer.xq.install(forward=True)
    for Task in (One, Two):
        with pytest.raises(xq.ConfigurationError, match="it is older"):
            Task.xq.install(forward=True)
