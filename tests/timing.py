"""Which tests are timing tests: by what they use, not by a mark.

A timing test starts threads or processes, sends signals, polls, or goes by a clock that runs by itself. The result of
such a test depends on scheduling: it may pass a thousand times and then fail. `make test` and `make test-rest` run one
such test for each guarantee and database, those of tests/guarantees. The others are left to `make test-long`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dis import get_instructions
from functools import cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])

MODULES = {
    *("asyncio", "concurrent", "multiprocessing", "selenium", "signal"),
    *("socket", "subprocess", "threading", "time"),
}
NOT_FOLLOWED = {"tests.conftest", "tests.django.conftest", "tests.servers"}  # they start servers, for all tests

_allowed = True


def in_sequence(helper: F) -> F:
    """Mark a helper whose threads and processes have ended when it returns."""
    helper.in_sequence = True  # type: ignore[attr-defined]
    return helper


def is_for_timing(helper: F) -> F:
    """Mark a helper that makes each test that uses it a timing test."""
    helper.is_for_timing = True  # type: ignore[attr-defined]
    return helper


def allow(yes: bool) -> None:
    """Say whether the test that runs now may do what only timing tests do."""
    global _allowed
    _allowed = yes


def timed(what: str) -> None:
    """Raise AssertionError unless the current test is a timing test."""
    assert _allowed, f"{what}: only in tests/guarantees and in tests that tests/timing.py takes for timing tests"


def _forks(fork: Callable[[], int] = os.fork) -> int:
    timed("a fork")
    return fork()


os.fork = _forks  # also of multiprocessing


def is_timing(item: pytest.Item) -> bool:
    """Return whether a test, a fixture of it or a function among its parameters uses one of these modules."""
    fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    callspec = getattr(item, "callspec", None)
    functions = [item.function, *(found[-1].func for found in fixtures.values() if found)]  # type: ignore[attr-defined]
    parameters = callspec.params.values() if callspec else ()
    return any(map(_takes_time, functions)) or not MODULES.isdisjoint(_modules(*parameters))


@cache
def _takes_time(function: FunctionType) -> bool:
    return not MODULES.isdisjoint(_modules(function))


def _modules(*begins: Any) -> Iterator[str]:
    """Yield the first part of the names of the modules that things use, followed through what is in tests/."""
    left, seen = list(begins), dict[int, Any]()
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if getattr(thing, "is_for_timing", False) is True:
            yield "time"
        module = _module(thing)
        if isinstance(thing, (list, tuple, set, frozenset)):
            left += thing
        elif not module.startswith("tests."):
            yield module.partition(".")[0]
        elif module in NOT_FOLLOWED or getattr(thing, "in_sequence", False):
            continue
        elif isinstance(thing, FunctionType):
            left += _named(thing)
        elif isinstance(thing, type):
            left += vars(thing).values()


def _module(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return thing.__name__
    return getattr(thing, "__module__", None) or type(thing).__module__


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield the objects that a function and its nested functions refer to."""
    function = inspect.unwrap(function)
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names |= {*code.co_names}
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield from (ModuleType(each.argval) for each in get_instructions(code) if each.opname == "IMPORT_NAME")
    yield from (function.__globals__[name] for name in names & function.__globals__.keys())
    yield from (cell.cell_contents for cell in function.__closure__ or () if cell != CellType())
