"""Check that tests/guarantees use no short timeouts and count no threads.

The check sees neither a number that a constant names nor what tests/storm.py and tests/django/on_tasks.py do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import steps

TESTS = Path(__file__).resolve().parents[1]
LONG = 30  # seconds: a busy machine may stand still for as long as that
MUST_NOT_PASS = {"ttr", "ttl", "within", "lock_timeout"}  # options of calls
COUNTED = {"active_count", "enumerate", "getrefcount", "monotonic", "process_time", "sleep", "num_fds"}


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def is_short(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float)) and value.value < LONG


@pytest.mark.parametrize("path", sorted((TESTS / "guarantees").glob("*.py")), ids=lambda path: path.name)
def test_a_guarantee_is_shown_without_short_times_and_without_counting_what_the_machine_has(path):
    found = []
    for call in calls(path):
        options = {word.arg for word in call.keywords if is_short(word.value)}
        short = options & (MUST_NOT_PASS | ({"timeout"} if name(call) == "worker" else set()))
        if short or (name(call) in COUNTED and ast.unparse(call.func) != "asyncio.sleep"):
            found.append(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert found == []


def test_a_helper_that_polls_raises_in_a_test_that_is_no_timing_test():
    with pytest.raises(AssertionError, match="to poll: only in tests/guarantees"):
        steps.eventually(lambda: True)
