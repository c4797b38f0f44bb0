"""The names of sessions, and the tokens that say which session took a task, and when."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from xq.core.errors import BadType, BadValue

UUID_LENGTH = 36  # with its dashes; a token begins with the uuid and one more character, see `tokens_of`
HOST, PROGRAM = 255, 60  # characters at most of what a session says about its process
REAPED = 100  # sessions that are ended at once
OUTAGE = "outage"  # the event, in place of died, of tasks whose session was lost with the server

TOKEN_ATTRIBUTE = "_xq_take"  # the attribute of an instance that holds the token of its take


def in_full(sessions: Sequence[str]) -> Sequence[str]:
    """Return one session, or REAPED by repeating the last: a statement has a text for each number."""
    return sessions if len(sessions) == 1 else [*sessions, *[sessions[-1]] * (REAPED - len(sessions))]


def checked(name: object) -> str:
    """Return a session's uuid as it is stored. Raises BadType and BadValue."""
    if isinstance(name, uuid.UUID):
        return str(name)
    if not isinstance(name, str):
        raise BadType(f"a session is named by its uuid, not by a {type(name).__name__}")
    try:
        return str(uuid.UUID(name))
    except ValueError:
        raise BadValue(f"a session is named by its uuid, and {name!r} is not a uuid") from None


def tokens_of(session: str) -> tuple[str, str]:
    """Return the bounds of a session's tokens: their common prefix, and a text above all of them."""
    return f"{session}/", f"{session}0"


def owner_of(token: str) -> tuple[str, float | None]:
    """Return the session's uuid and the time of a token, in seconds since 1970.

    The time is None if another program wrote the token.
    """
    session, _, take = token.partition("/")
    try:
        return session, int(take.partition(".")[0], 16) / 1000
    except ValueError:
        return token, None


def lock_of(session: str) -> str:
    """Return the name of the lock that a session has on a file, while its heartbeat may wait to touch its tasks."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, session))
