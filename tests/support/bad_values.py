"""Every public call with values of every kind: it works, or raises an error of xq and has changed nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import math
import uuid
from collections import UserDict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import peewee as pw


class HostileError(Exception):
    """What a value of the caller's own raises is the caller's: it passes."""


class Hostile:
    """Fails at whatever it is asked, as proxies and detached rows do."""

    def fail(self, *args: Any) -> Any:
        raise HostileError

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __float__ = __index__ = __int__ = fail
    __getitem__ = __contains__ = __lt__ = __call__ = fail


class Other(pw.Model):
    """A model of no queue."""

    name = pw.TextField()

    class Meta:
        database = pw.SqliteDatabase(":memory:")


Other.create_table()  # one of the values is a query of it


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
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "a fraction": lambda: 1.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "1e308": lambda: 1e308,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "2**70": lambda: 2**70,
    "10**5000": lambda: 10**5000,
    "complex": lambda: 1j,
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Decimal NaN": lambda: decimal.Decimal("NaN"),
    "Decimal sNaN": lambda: decimal.Decimal("sNaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "''": lambda: "",
    "'x'": lambda: "x",
    "'R'": lambda: "R",
    "'T'": lambda: "T",
    "'touch'": lambda: "touch",
    "a zero byte": lambda: "\0",
    "a zero byte inside": lambda: "a\0b",
    "a lone surrogate": lambda: "\ud800",
    "an emoji": lambda: "😀",
    "a quote": lambda: "'; DROP TABLE task; --",
    "a megabyte": lambda: "x" * 2**20,
    "b'x'": lambda: b"x",
    "memoryview": lambda: memoryview(b"x"),
    "object": object,
    "a function": lambda: lambda: 1,
    "a class": lambda: int,
    "a model": lambda: Other,
    "another model's": lambda: Other(name="x"),
    "another model's field": lambda: Other.name,
    "a query": lambda: Other.select(),
    "an expression": lambda: pw.SQL("1"),
    "a namespace": lambda: SimpleNamespace(id=1, now=5.0),
    "a date": lambda: dt.date(2020, 1, 1),
    "a datetime": lambda: dt.datetime(2020, 1, 1),
    "an aware datetime": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "a timedelta": lambda: dt.timedelta(seconds=1),
    "a UUID": lambda: uuid.UUID(int=1),
    "[]": list,
    "[1]": lambda: [1],
    "[[1]]": lambda: [[1]],
    "thirteen": lambda: [None] * 13,
    "()": tuple,
    "(1,)": lambda: (1,),
    "(1, 2)": lambda: (1, 2),
    "a recursive list": _recursive,
    "{}": dict,
    "{1: 1}": lambda: {1: 1},
    "{'id': 1}": lambda: {"id": 1},
    "{'name': {}}": lambda: {"name": {}},
    "{'status': 'R'}": lambda: {"status": "R"},
    "a recursive mapping": _recursive_mapping,
    "UserDict": lambda: UserDict({"id": 1}),
    "a set": lambda: {1},
    "a range": lambda: range(2),
    "a generator": lambda: (i for i in range(2)),
    "Hostile": Hostile,
    "[Hostile]": lambda: [Hostile()],
    "{'name': Hostile}": lambda: {"name": Hostile()},
    "{'id': Hostile}": lambda: {"id": Hostile()},
}

Call = Callable[[Any, Any], Any]  # of a model and a value


def fits(name: str, value: Any) -> bool:
    """Whether the test itself can make such a call: a key of a dictionary must be hashable."""
    try:
        hash(value)
    except Exception:
        return "{v:" not in name
    return True
