"""Who acts on tasks, in the history and in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from xq.core.acting import By, block
from xq.engine.one import NamedMoves

CHUNK: Final = 500  # tasks in one transaction of an operation, unless the call says


@contextmanager
def acting(named: NamedMoves[Any], by: By) -> Iterator[None]:
    """Run the block as one transaction in this thread, and ascribe the transitions that xq makes within it."""
    store = named.executor.store
    named.executor.begin(locks=True)
    with store.atomic():
        with block(store.database, by):
            yield
        if by and named.machine.settings.history is None:
            log_act(named, by, "acted")


def log_act(named: NamedMoves[Any], by: By, what: str) -> None:
    """Log at INFO what an operator did, once this transaction is committed."""
    line = f"{by.actor or 'an operator'}: {what}{f': {by.reason}' if by.reason else ''}"
    named.executor.store.after_commit(lambda: named.log.info("%s", line))
