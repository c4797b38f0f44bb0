"""In-doubt takes: it is not known whether they were applied."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from xq.core import time
from xq.core.errors import BadType, BadValue, Error
from xq.core.kinds import ErrorKind
from xq.engine.timers import UnattendedMoves

LASTS: Final = 10.0  # seconds within which a server has done, or forgotten, what a lost connection told it to do


class InDoubtTakes:
    """The tokens of one queue's takes whose result did not arrive: the connection was lost, or the call interrupted.

    The tasks may or may not have been taken, so they are released.
    """

    def __init__(self, unattended: UnattendedMoves) -> None:
        self.store = unattended.store
        self.unattended = unattended
        self.pending: dict[str, float] = {}  # token -> the monotonic time by which the take was applied or discarded
        self._look_at = 0.0  # the monotonic time when it next attempts to release
        # Held by the thread that resolves: another would skip the locked rows, and drop their tokens.
        self._looking = threading.Lock()

    def add(self, tokens: Sequence[str | None], error: BaseException) -> None:
        """Add a take's tokens, unless the error shows that it took nothing.

        Call it in the `except` block: a context manager is left by several calls, and a signal may come between them.
        """
        if not self.excluded_by(error):
            self.pending.update({token: time.monotonic() + LASTS for token in tokens if token})

    def excluded_by(self, error: BaseException) -> bool:
        """Return whether this error shows that the take was not applied."""
        kind = self.store.classify(error)
        if kind is not ErrorKind.NOT_DATABASE:
            return kind is not ErrorKind.LOST
        # A signal handler may have raised any other error, BadType and BadValue included, at any point in the call.
        return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))

    def resolve(self) -> None:
        """Release the tasks with the tokens. Each is retried for LASTS seconds: the server may not have finished."""
        if not self.pending or time.monotonic() < self._look_at or not self._looking.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            self._look_at = now + LASTS / 20
            for token, until in list(self.pending.items()):
                refused = self.unattended.undo_take(token)
                if now > until and not refused:
                    self.pending.pop(token, None)
        finally:
            self._looking.release()
