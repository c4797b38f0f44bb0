"""Fixtures of pytest for programs that use xq. Installing xq registers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from xq import testing


@pytest.fixture
def xq_memory() -> Iterator[Callable[..., testing.Clock]]:
    """`clock = xq_memory(Page, Other)`: Peewee models on a fresh database in memory until the test ends."""
    with ExitStack() as stack:
        yield lambda *models: stack.enter_context(testing.memory(*models))


@pytest.fixture
def xq_clock() -> Iterator[Callable[..., testing.Clock]]:
    """`clock = xq_clock(Order)`: queues that use a clock of the test until it ends, on their own databases."""
    with ExitStack() as stack:
        yield lambda *queues: stack.enter_context(testing.clock(*queues))


@pytest.fixture
def run_pending() -> Callable[..., Any]:
    """`run_pending(fetch)`: see `xq.testing.run_pending`."""
    return testing.run_pending


@pytest.fixture
def assert_put() -> Callable[..., list[Any]]:
    """`assert_put(Page, url="...")`: see `xq.testing.assert_put`."""
    return testing.assert_put
