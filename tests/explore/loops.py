"""CALLS in an event loop: each through `queue.aio`, of Peewee's queue, and of SQLAlchemy's on an AsyncEngine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from tests.explore.calls import CALLS, Does
from tests.explore.homes import World
from tests.explore.orms import sessions
from xq.aio import Aio


class InALoop:
    """What has coroutines, blocks and iterators for a loop, as if they were for none: each runs in the runner's."""

    def __init__(self, twin: Any, runner: asyncio.Runner) -> None:
        self._twin, self._runner = twin, runner

    def __getattr__(self, name: str) -> Any:
        running = self._runner.get_loop().is_running()  # it is called by the function of a call
        if running or not hasattr(self._twin, name):
            return getattr(self._twin._queue, name)
        return lambda *args, **options: self._ended(getattr(self._twin, name)(*args, **options))

    def __enter__(self) -> Any:
        return self._ended(self._twin.__aenter__())

    def __exit__(self, *error: Any) -> Any:
        return self._ended(self._twin.__aexit__(*error))

    def __iter__(self) -> Iterator[Any]:
        while each := self._ended(anext(self._twin, None)):
            yield each

    def run(self) -> None:  # of an operation
        assert [*self]

    def _ended(self, found: Any) -> Any:
        async def ends() -> Any:
            return await found

        if isinstance(found, Awaitable):
            return self._ended(self._runner.run(ends()))
        apart = isinstance(found, (AbstractAsyncContextManager, AsyncIterator))
        return InALoop(found, self._runner) if apart else found


def _in_a_loop(w: World, before: Does, by_sqlalchemy: bool) -> None:
    if by_sqlalchemy:
        sessions(w, in_a_loop=True)
    w.q = InALoop(w.q.aio, asyncio.Runner())
    before(w)


IN_LOOPS = {
    (name := f"{call.name} in a loop{' of SQLAlchemy' * by}"): replace(
        call, name=name, before=partial(_in_a_loop, before=call.before, by_sqlalchemy=by), varies=True
    )
    for by in (False, True)
    for call in CALLS.values()
    if hasattr(Aio, call.name.partition(",")[0].split()[0]) and call.then is None
}
