"""Pytest fixtures for programs that use xq. Installing xq registers them.

Each imports xq when a test uses it: pytest loads this module at every start, also in projects without a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xq.testing import Clock


@pytest.fixture
def xq_memory() -> Iterator[Callable[..., Clock]]:
    """`clock = xq_memory(Page, Other)`: Peewee models on a fresh database in memory until the test ends."""
    from xq.testing import memory

    with ExitStack() as stack:
        yield lambda *models: stack.enter_context(memory(*models))


@pytest.fixture
def xq_clock() -> Iterator[Callable[..., Clock]]:
    """`clock = xq_clock(Order)`: queues that use the test's clock until it ends, on their own databases."""
    from xq.testing import clock

    with ExitStack() as stack:
        yield lambda *queues: stack.enter_context(clock(*queues))


@pytest.fixture
def xq_session() -> Iterator[Callable[..., Clock]]:
    """`clock = xq_session(session)`: the queues of SQLAlchemy on the connection of a test's session until it ends."""
    from xq.testing import session

    with ExitStack() as stack:
        yield lambda given: stack.enter_context(session(given))


@pytest.fixture
def run_pending() -> Callable[..., Any]:
    """`run_pending(fetch)`: see `xq.testing.run_pending`."""
    from xq.testing import run_pending

    return run_pending


@pytest.fixture
def run_pending_async() -> Callable[..., Any]:
    """`await run_pending_async(fetch)`: see `xq.testing.run_pending_async`."""
    from xq.testing import run_pending_async

    return run_pending_async


@pytest.fixture
def assert_put() -> Callable[..., list[Any]]:
    """`assert_put(Page, {"url": "..."})`: see `xq.testing.assert_put`."""
    from xq.testing import assert_put

    return assert_put
