"""What a worker's function has written on the application's own connections, until it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

WRITE = ("insert", "update", "delete", "merge", "replace")


class Writes:
    """The connections on which the function of this thread or coroutine has written."""

    def __init__(self) -> None:
        self.begun = set[sa.Connection]()  # with a transaction that it has begun: not that of a test around it
        self.open = set[sa.Connection]()  # of these, those that have written
        self.lost = (
            False  # whether one was rolled back by the end of its connection or session, and none committed after
        )


_writes: ContextVar[Writes | None] = ContextVar("xq_writes", default=None)


@contextmanager
def noting() -> Iterator[Writes]:
    """Note what the block writes."""
    token = _writes.set(made := Writes())
    try:
        yield made
    finally:
        _writes.reset(token)


def open_writes() -> bool:
    """Return whether the worker's function that calls has a transaction open that has written."""
    return bool((writes := _writes.get()) and writes.open)


def began(connection: sa.Connection) -> None:
    if (writes := _writes.get()) is not None:
        writes.begun.add(connection)


def wrote(connection: sa.Connection) -> None:
    """Note that a connection's transaction has written."""
    if (writes := _writes.get()) is not None and connection in writes.begun:
        writes.open.add(connection)


def executed(connection: sa.Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
    """Look at a statement of the application's. An event of an engine."""
    if (writes := _writes.get()) is None or connection not in writes.begun or connection in writes.open:
        return
    if context.isinsert or context.isupdate or context.isdelete or sql.lstrip()[:7].lower().startswith(WRITE):
        detect = getattr(connection.dialect, "detect_autocommit_setting", None)
        if not (detect and detect(connection.connection.dbapi_connection)):
            writes.open.add(connection)


def committed(connection: sa.Connection) -> None:
    if (writes := _writes.get()) is not None and _was_open(writes, connection):
        writes.lost = False  # the function has tried again


def rolled_back(connection: sa.Connection) -> None:
    if (writes := _writes.get()) is not None and _was_open(writes, connection):
        writes.lost = True


def _was_open(writes: Writes, connection: sa.Connection) -> bool:
    found = connection in writes.open
    writes.begun.discard(connection)
    writes.open.discard(connection)
    return found


def _by_itself(session: Session) -> None:
    """Forget a rollback that the function has asked for: a session that is closed without a commit has no event."""
    if (writes := _writes.get()) is not None and not session.in_nested_transaction():
        writes.lost = False


sa.event.listen(Session, "after_rollback", _by_itself)
