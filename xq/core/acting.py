"""The actor and the reason: what xq's statements in a `Page.xq.acting` block pass to the triggers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from xq.core.connections import Connection, Connections
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import fits_a_column

PART: Final = "\x1f"  # separates the parts of the event context of a server
LONGEST_ACTOR: Final = 255  # characters
LONGEST_REASON: Final = 1_000


class By(NamedTuple):
    """The actor, and the reason."""

    actor: str | None
    reason: str | None

    @classmethod
    def of(cls, actor: object, reason: object) -> By:
        """Return both, checked. Raises BadType and BadValue."""
        return cls(_checked("actor", actor, LONGEST_ACTOR), _checked("reason", reason, LONGEST_REASON))


NO_ACTOR: Final = By(None, None)
# The innermost block of this thread or coroutine in each database, by the database's id.
BLOCKS: Final[ContextVar[Mapping[int, By]]] = ContextVar("xq_acting", default={})  # noqa: B039


def actor_of(connection: Connection) -> By:
    """Return the actor, and the reason, in the open block of this thread or coroutine on a connection."""
    return BLOCKS.get().get(id(connection.database()), NO_ACTOR)


@contextmanager
def block(database: object, by: By) -> Iterator[None]:
    """Ascribe what xq does in a database by this thread or coroutine."""
    before = BLOCKS.get()
    BLOCKS.set({**before, id(database): by})
    try:
        yield
    finally:
        BLOCKS.set(before)  # a reset would fail in a generator that ends in another context


def log_act(store: Connections, by: By, what: str) -> None:
    """Log at INFO what an operator did, once this transaction is committed."""
    line = f"{by.actor or 'an operator'}: {what}{f': {by.reason}' if by.reason else ''}"
    store.after_commit(lambda: logging.getLogger(f"xq.{store.name}").info("%s", line))


def _checked(what: str, value: object, longest: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadType(f"{what} is text, not {shown(value)}")
    if not value.strip() or len(value) > longest or not fits_a_column(value) or PART in value:
        limits = f"1 to {longest:,} characters, without a zero byte and without {PART!r}"
        raise BadValue(f"{what} is a text of {limits}, not {shown(value)}")
    return value
