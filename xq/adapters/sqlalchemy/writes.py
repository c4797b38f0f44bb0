"""What a worker's function has written on connections and in sessions of its own, until it is committed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, SessionTransaction

PART = r"insert\s+into|delete\s+from|merge\s+into|update\s+\S+(\s+as\s+\S+)?\s+set"
WRITE = re.compile(rf"(?is)\s*(insert|update|delete|merge|replace|with\b.*\b({PART}))\b")


class Writes:
    """The connections on which the function of this thread or coroutine has written."""

    def __init__(self) -> None:
        # Whose transaction the function has begun, not a test around it; and whether a session has it.
        self.begun = dict[sa.Connection, bool]()
        self.open = set[sa.Connection]()  # of these, those that have written
        self.sessions = set[Session]()  # in which it has begun something
        self.rolled_back = False  # whether what has ended last is writes of a connection that is no session's
        self.lost = False  # whether one was closed before it was committed or rolled back, and none committed after

    def left(self, own: sa.Connection | None = None) -> bool:
        """Return whether something is open that was written, or is to be, but on its `own` connection."""
        return bool(self.open - {own}) or any(map(_has_changes, self.sessions))

    def undo(self, own: sa.Connection | None = None) -> None:
        """Roll back what is open: a session of the thread would have it committed by the next task."""
        for session in self.sessions:
            if session.in_transaction():
                session.rollback()
        for connection in self.open - {own}:
            connection.close()  # the pool rolls it back


def _has_changes(session: Session) -> bool:
    changes = session.new or session.deleted or any(map(session.is_modified, session.dirty))
    return bool(session.in_transaction() and changes)


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


def is_ended_by_xq(session: Session) -> None:
    """Note that xq ends the session, and not the function."""
    if (writes := _writes.get()) is not None:
        writes.sessions.discard(session)


def wrote(connection: sa.Connection) -> None:
    """Note that a connection's transaction has written."""
    if (writes := _writes.get()) is not None and connection in writes.begun:
        writes.open.add(connection)


def autocommits(connection: sa.Connection) -> bool:
    """Return whether each statement is a transaction of its own. SQLAlchemy before 2.0.43 cannot tell: then False."""
    dialect, raw = connection.dialect, cast(Any, connection.connection.dbapi_connection)
    detect = getattr(dialect, "detect_autocommit_setting", None)
    # On SQLite the application itself may begin one in this mode, so that reads are part of it.
    begun = dialect.name == "sqlite" and getattr(raw, "driver_connection", raw).in_transaction
    return not begun and bool(detect and detect(raw))


# events of engines, their pools, and sessions


def began(connection: sa.Connection) -> None:
    if (writes := _writes.get()) is not None:
        writes.begun[connection] = False


def executed(connection: sa.Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
    if _writes.get() and (context.isinsert or context.isupdate or context.isdelete or WRITE.match(sql)):
        if not autocommits(connection):
            wrote(connection)


def ended(connection: sa.Connection, committed: bool) -> None:
    if (writes := _writes.get()) is not None:
        by_session, has_written = writes.begun.pop(connection, False), connection in writes.open
        writes.open.discard(connection)
        writes.rolled_back = has_written and not (committed or by_session)
        if has_written and (committed or by_session):
            writes.lost = not committed  # unless `_by_itself` follows; after a commit the function has tried again


def reset(raw: object, record: object, state: sa.pool.PoolResetState) -> None:
    """Note that a connection was closed, which has just rolled it back: a rollback by hand is meant."""
    if state.transaction_was_reset and (writes := _writes.get()) is not None and writes.rolled_back:
        writes.lost = True


def _in_session(session: Session, transaction: object, connection: sa.Connection) -> None:
    if (writes := _writes.get()) is not None and connection in writes.begun:
        writes.begun[connection] = True


def _by_itself(session: Session) -> None:
    """Forget a rollback that the function has asked for: a session that is closed without a commit has no event."""
    if (writes := _writes.get()) is not None and not session.in_nested_transaction():
        writes.lost = False


def _session_began(session: Session, transaction: SessionTransaction) -> None:
    if (writes := _writes.get()) is not None and transaction.parent is None:
        writes.sessions.add(session)


sa.event.listen(Session, "after_begin", _in_session)
sa.event.listen(Session, "after_rollback", _by_itself)
sa.event.listen(Session, "after_transaction_create", _session_began)
