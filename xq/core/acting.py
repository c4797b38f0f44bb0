"""The actor and the reason: what xq's statements in a `Page.xq.acting` block pass to the triggers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import local
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


class _Blocks(local):
    by_database: Mapping[int, By] = {}  # this thread's innermost block in each, by the database's id


NO_ACTOR: Final = By(None, None)
BLOCKS: Final = _Blocks()


def actor_of(connection: Connection) -> By:
    """Return the actor, and the reason, in this thread's open block on a connection."""
    return BLOCKS.by_database.get(id(connection.database()), NO_ACTOR)


@contextmanager
def block(database: object, by: By) -> Iterator[None]:
    """Ascribe what xq does in a database by this thread. Open it within a transaction, which it must not outlive."""
    before = BLOCKS.by_database
    BLOCKS.by_database = {**before, id(database): by}
    try:
        yield
    finally:
        BLOCKS.by_database = before


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
