"""Takes of which nobody knows whether they took: the answer was lost with the connection, or by an interrupt."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from xq.core.errors import BadType, BadValue, Error
from xq.engine.batches import Batches

LASTS = 10.0  # seconds within which a server has done, or forgotten, what a lost connection told it to do


class Doubts:
    """Marks of takes in one queue whose callers got an error in the place of what they may have taken."""

    def __init__(self, batches: Batches) -> None:
        self.store = batches.store
        self.batches = batches
        self._until: dict[str, float] = {}  # mark -> the monotonic time by which it was done, or never
        self._look_at = 0.0  # the monotonic time at which to look for them
        # Held by the thread that looks: another one would not find the rows that this one has locked, and forget them.
        self._looking = threading.Lock()

    def add(self, marks: Sequence[str | None], error: BaseException) -> None:
        """Have given back what these marks have taken, unless the error excludes that they have.

        To be called where the error is caught: a context manager would be left by calls, between which a signal may
        come, too.
        """
        if not self.excluded_by(error):
            self._until.update({mark: time.monotonic() + LASTS for mark in marks if mark})

    def excluded_by(self, error: BaseException) -> bool:
        """Whether it is known from this error that nothing was done."""
        if self.store.is_failure(error):
            return not self.store.is_loss(error)
        # What neither the database nor xq has raised, the handler of a signal may have, at any place. An error of a
        # value may have been that one's, too.
        return isinstance(error, Error) and not isinstance(error, (BadType, BadValue))

    def go_on_from(self, other: Doubts) -> None:
        """Settle those of another definition of the queue, too, which this one replaces."""
        self._until = other._until  # itself: a call of its may be under way still, and fail

    def settle(self) -> None:
        """Give back what they have taken: again and again for a while, since the server may be at it still."""
        if not self._until or time.monotonic() < self._look_at or not self._looking.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            self._look_at = now + LASTS / 20
            for mark, until in list(self._until.items()):
                # Of this take alone: no mark goes on with a !, or less.
                refused = self.batches.give_back_what_goes(mark, f"{mark}!", "release", "take")
                if now > until and not refused:
                    self._until.pop(mark, None)
        finally:
            self._looking.release()
