"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import math
import uuid
from collections import UserDict, UserString
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xq
from xq.testing import Clock

EVERY = {"buried": True, "delayed": True, "zombie": 9, "ttl": 60, "ttr": 60, "unique": True, "limit": 50}
ROLES = ("runat", "priority", "tube", "owner", "attempts", "unique", "ttl", "ttr")
FIELDS = ("id", "name", "size", "status", "runat", "deadline", "priority", "tube", "owner", "attempts", "ttl", "ttr")


class Text(str):
    """Text, and yet not str."""


class Whole(int):
    """An integer, and yet not int."""


class Pretending:
    """Converts to a number, and to an index."""

    def __index__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0


class Hostile:
    """Fails at whatever it is asked, as proxies and detached rows do."""

    def fail(self, *args: Any) -> Any:
        raise RuntimeError("hostile")

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __float__ = __index__ = __int__ = fail  # type: ignore[assignment]
    __getitem__ = __contains__ = __lt__ = __call__ = fail


class Other(pw.Model):
    """A model of no queue."""

    name = pw.TextField()

    class Meta:
        database = pw.SqliteDatabase(None)


def _recursive() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def _recursive_mapping() -> dict[str, Any]:
    found: dict[str, Any] = {"size": 1}
    found["name"] = found
    return found


# name -> makes the value anew, since some are used up
VALUES: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-0.0": lambda: -0.0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "a fraction": lambda: 1.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "1e308": lambda: 1e308,
    "tiny": lambda: 5e-324,
    "2**53+1": lambda: 2**53 + 1,
    "2**63-1": lambda: 2**63 - 1,
    "2**63": lambda: 2**63,
    "-2**63": lambda: -(2**63),
    "-2**63-1": lambda: -(2**63) - 1,
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "10**5000": lambda: 10**5000,
    "Whole": lambda: Whole(1),
    "Pretending": Pretending,
    "complex": lambda: 1j,
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Decimal NaN": lambda: decimal.Decimal("NaN"),
    "Decimal sNaN": lambda: decimal.Decimal("sNaN"),
    "Decimal 1e999": lambda: decimal.Decimal("1e999"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "''": lambda: "",
    "'x'": lambda: "x",
    "'1'": lambda: "1",
    "'R'": lambda: "R",
    "'T'": lambda: "T",
    "'take'": lambda: "take",
    "'put'": lambda: "put",
    "'touch'": lambda: "touch",
    "a space": lambda: " ",
    "a zero byte": lambda: "\0",
    "a zero byte inside": lambda: "a\0b",
    "a lone surrogate": lambda: "\ud800",
    "an emoji": lambda: "😀",
    "Text": lambda: Text("x"),
    "UserString": lambda: UserString("x"),
    "a quote": lambda: "'; DROP TABLE task; --",
    "a megabyte": lambda: "x" * 2**20,
    "b''": lambda: b"",
    "b'x'": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "object": object,
    "a function": lambda: lambda: 1,
    "a class": lambda: int,
    "a model": lambda: Other,
    "another model's": lambda: Other(name="x"),
    "another model's field": lambda: Other.name,
    "a query": lambda: Other.select(),
    "an expression": lambda: pw.SQL("1"),
    "a call of SQL": lambda: pw.fn.abs(1),
    "an exception": lambda: ValueError("x"),
    "a namespace": lambda: SimpleNamespace(id=1, now="x"),
    "a date": lambda: dt.date(2020, 1, 1),
    "a datetime": lambda: dt.datetime(2020, 1, 1),
    "an aware datetime": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "a timedelta": lambda: dt.timedelta(seconds=1),
    "a UUID": lambda: uuid.UUID(int=1),
    "[]": list,
    "[1]": lambda: [1],
    "[1, 1]": lambda: [1, 1],
    "[[1]]": lambda: [[1]],
    "[None]": lambda: [None],
    "thirteen": lambda: [None] * 13,
    "()": tuple,
    "(1,)": lambda: (1,),
    "(1, 2)": lambda: (1, 2),
    "a recursive list": _recursive,
    "{}": dict,
    "{'x': 1}": lambda: {"x": 1},
    "{1: 1}": lambda: {1: 1},
    "{None: None}": lambda: {None: None},
    "{'id': 1}": lambda: {"id": 1},
    "{'id': []}": lambda: {"id": []},
    "{'name': {}}": lambda: {"name": {}},
    "{'status': 'R'}": lambda: {"status": "R"},
    "a recursive mapping": _recursive_mapping,
    "UserDict": lambda: UserDict({"id": 1}),
    "a set": lambda: {1},
    "a frozenset": lambda: frozenset({1}),
    "a range": lambda: range(2),
    "a generator": lambda: (i for i in range(2)),
    "an endless key": lambda: "k" * 100_000,
    "Hostile": Hostile,
    "[Hostile]": lambda: [Hostile()],
    "{'name': Hostile}": lambda: {"name": Hostile()},
    "{'id': Hostile}": lambda: {"id": Hostile()},
}

Call = Callable[[Any, Any], Any]  # of a model and a value


def _calls() -> Iterator[tuple[str, Call]]:
    """Each argument of each public method, by what a reader would write."""
    options = {
        "put": ("delay", "ttl", "ttr", "on_conflict"),
        "put_many": ("delay", "ttl", "ttr", "on_conflict"),
        "take": ("tube", "ttr"),
        "take_many": ("tube", "ttr"),
        "ack": ("update", "delay"),
        "release": ("update", "delay", "ttl", "ttr"),
        "bury": ("update",),
        "dig": ("update", "delay", "ttl"),
        "kick": ("update", "delay", "ttl"),
        "plow": ("update", "delay", "ttl"),
        "kill": (),
        "snatch": ("delay",),
        "restart": ("delay",),
        "ack_many": ("update", "delay"),
        "release_many": ("update", "delay", "ttl", "ttr"),
        "bury_many": ("update",),
        "kill_many": (),
    }
    subject = {  # an argument for which the call works, to try the options with
        "put": lambda Task: ({},),
        "put_many": lambda Task: ([{}, {"name": "x"}],),
        "take": lambda Task: (),
        "take_many": lambda Task: (2,),
        "plow": lambda Task: (),
        "dig": lambda Task: (key(Task, "B"),),
        "kick": lambda Task: (key(Task, "B"),),
        "restart": lambda Task: (key(Task, "Z"),),
    }

    def option(method: str, name: str) -> Call:
        def call(Task: Any, value: Any) -> Any:
            many = method.endswith("_many") and method not in subject
            found = ([key(Task, "T")],) if many else subject.get(method, lambda Task: (key(Task, "T"),))(Task)
            return getattr(Task.xq, method)(*found, **{name: value})

        return call

    def field(method: str, name: str) -> Call:
        def call(Task: Any, value: Any) -> Any:
            if method == "put":
                return Task.xq.put({name: value})
            if method == "put_many":
                return Task.xq.put_many([{}, {name: value}])
            if method == "instance":
                return Task.xq.put(Task(**{name: value}))
            if method == "sequence":
                return Task.xq.put([value if field == name else None for field in Task._meta.sorted_field_names])
            return Task.xq.ack(key(Task, "T"), update={name: value})

        return call

    for method, names in options.items():
        if method not in ("take", "plow"):
            yield f"{method}(v)", lambda Task, v, m=method: getattr(Task.xq, m)(v)
        if method.endswith("_many"):
            yield f"{method}([v])", lambda Task, v, m=method: getattr(Task.xq, m)([v])
            yield f"{method}([key, v])", lambda Task, v, m=method: getattr(Task.xq, m)([key(Task, "T"), v])
        for name in names:
            yield f"{method}({name}=v)", option(method, name)
        if names:
            yield f"{method}(nonsense=v)", option(method, "nonsense")
    for name in FIELDS:
        for method in ("put", "put_many", "instance", "sequence", "update"):
            yield f"{method}: {name}=v", field(method, name)
    yield "put: a field v", lambda Task, v: Task.xq.put({v: 1})
    yield "ack: a field v", lambda Task, v: Task.xq.ack(key(Task, "T"), update={v: 1})
    for event in ("ack", "release", "bury", "dig", "kill", "peek", "touch", "snatch", "restart", "switch"):
        more: tuple[Any, ...] = {"touch": (1,), "switch": ("R",)}.get(event, ())
        yield f"{event}({{'id': v}})", lambda Task, v, e=event, m=more: getattr(Task.xq, e)({"id": v}, *m)
        yield f"{event}(Task(id=v))", lambda Task, v, e=event, m=more: getattr(Task.xq, e)(Task(id=v), *m)
        yield f"{event}(v, ...)", lambda Task, v, e=event, m=more: getattr(Task.xq, e)(v, *m)
    yield "task.ack(update=v)", lambda Task, v: Task.get(status="T").ack(update=v)
    yield "task.release(delay=v)", lambda Task, v: Task.get(status="T").release(delay=v)
    yield "task.touch(v)", lambda Task, v: Task.get(status="T").touch(v)
    yield "touch(key, v)", lambda Task, v: Task.touch(key(Task, "T"), v)
    yield "switch(key, v)", lambda Task, v: Task.xq.switch(key(Task, "R"), v)
    yield "switch(key, 'W', delay=v)", lambda Task, v: Task.xq.switch(key(Task, "R"), "W", delay=v)
    yield "switch(key, 'Z', delay=v)", lambda Task, v: Task.xq.switch(key(Task, "R"), "Z", delay=v)
    yield "call(v, key)", lambda Task, v: Task.xq.call(v, key(Task, "T"))
    yield "call('ack', v)", lambda Task, v: Task.xq.call("ack", v)
    yield "call('take', v)", lambda Task, v: Task.xq.call("take", v)
    yield "call('touch', key, increment=v)", lambda Task, v: Task.xq.call("touch", key(Task, "T"), increment=v)
    yield "call('ack', key, update=v)", lambda Task, v: Task.xq.call("ack", key(Task, "T"), update=v)
    yield "dig(n=v)", lambda Task, v: Task.dig(n=v)
    yield "kick(n=v)", lambda Task, v: Task.kick(n=v)
    yield "plow(v)", lambda Task, v: Task.plow(v)
    yield "by_state(v)", lambda Task, v: Task.xq.by_state(v)
    yield "by_state('R', v)", lambda Task, v: Task.xq.by_state("R", v)
    yield "count(v)", lambda Task, v: Task.xq.count(v)
    yield "session(v)", lambda Task, v: Task.xq.session(v)
    yield "reconfigure(v)", lambda Task, v: Task.xq.reconfigure(v)
    yield "reconfigure(move=v)", lambda Task, v: Task.xq.reconfigure({"delayed": True}, move=v)
    yield "reconfigure(move={'B': v})", lambda Task, v: Task.xq.reconfigure({"delayed": True}, move={"B": v})
    yield "reconfigure(move={v: 'R'})", lambda Task, v: Task.xq.reconfigure({"delayed": True}, move={v: "R"})
    for feature in ("ttl", "keep", "buried", "limit", "id", "nonsense"):
        yield f"reconfigure({feature}=v)", lambda Task, v, f=feature: Task.xq.reconfigure({f: v})


CALLS = dict(_calls())


def key(Task: Any, state: str) -> Any:
    """The key of a task that is in a state, and held by this session where it is T."""
    return Task.select().where(Task.status == state).order_by(Task._meta.primary_key).first().get_id()


def stock(make: Any, **queue: Any) -> Any:
    """A queue with tasks in each state, one of them another session's."""
    Task = make(**{"features": EVERY, "roles": ROLES, **queue})
    keys = iter(range(1, 20))
    own = {"composite": lambda n: {"a": n, "b": "x"}}.get(queue.get("kind", ""), lambda n: {})
    for state in "TBZRRW":
        Task.put({"name": state, "tube": "a", **own(next(keys))}, **({"delay": 5} if state == "W" else {}))
        if state in "TBZ":
            task = Task.take()
            task.bury() if state == "B" else task.ack() if state == "Z" else None
    return Task


def everything(Task: Any) -> Any:
    """All that a call could have changed: the rows, the counters, who holds what, the sessions."""
    rows = sorted(Task.select().tuples(), key=repr)
    return rows, Task.xq.stats(), Task.xq.taken(), Task.xq.sessions()


def tried(Task: Any, call: Call, value: Any) -> tuple[str, bool]:
    """What is wrong with a call ("" for nothing), and whether it worked."""
    before = everything(Task)
    try:
        call(Task, value)
    except (xq.Error, pw.IntegrityError) as error:
        if everything(Task) != before:
            return f"{type(error).__name__} ({error}), and yet something changed", False
        try:
            str(error)
        except Exception as second:
            return f"{type(error).__name__} cannot be told: {second!r}", False
        return "", False
    except BaseException as error:
        told = repr(error)[:150]
        return told + ("" if everything(Task) == before else ", and something changed"), False
    return "; ".join(Task.xq.check()), True


def unhashable(name: str, value: Any) -> bool:
    """Whether it is the test's own dictionary that cannot be made."""
    if "{v:" not in name and "a field v" not in name:
        return False
    try:
        hash(value)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_or_says_what_is_wrong_and_changes_nothing(make, name):
    wrong = {}
    Task = stock(make)
    for value in VALUES:
        if unhashable(name, VALUES[value]()):
            continue
        what, worked = tried(Task, CALLS[name], VALUES[value]())
        if what:
            wrong[value] = what
        if worked or what:
            Task.drop_table()
            Task = stock(make)
    assert wrong == {}
