"""The state of a database's tubes, which follows from whether the database accepts writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from xq.core import time
from xq.core.errors import NotRunning
from xq.core.kinds import ErrorKind

KNOWN_FOR = 1.0  # seconds for which RUNNING is cached

RUNNING: Final = "RUNNING"

STATES: Final = ("INIT", "STARTUP", RUNNING, "ENDING", "WAITING")


class State:
    """The state of a database's tubes, on the calling thread's connection.

    `with state:` around a call raises NotRunning in every state but RUNNING, and if the database refuses a write. It is
    a class, not a generator, because every call to a tube passes through it.
    """

    def __init__(
        self, conditions: Mapping[str, Callable[[], bool]], classify: Callable[[BaseException], ErrorKind]
    ) -> None:
        self._conditions = conditions  # only_reads, there, awaited, paused; asked only if needed
        self._classify = classify  # returns a database error's kind
        self._known = threading.local()

    def look(self) -> str:
        self._known.until, ask = 0.0, self._conditions
        if ask["only_reads"]():
            if not ask["there"]():
                return "INIT"
            return "ENDING" if ask["awaited"]() else "WAITING"
        if ask["paused"]():
            return "STARTUP"
        self._known.until = time.monotonic() + KNOWN_FOR
        return RUNNING

    def check(self) -> None:
        """Raise NotRunning unless the state is, or was up to a second ago, RUNNING."""
        if time.monotonic() >= getattr(self._known, "until", 0.0) and (found := self.look()) != RUNNING:
            raise NotRunning(found)

    def check_waiting(self) -> None:
        """Check as `check` does, but ignore database errors: a waiting call outlives a lost connection."""
        try:
            self.check()
        except Exception as error:
            if self._classify(error) is ErrorKind.NOT_DATABASE:
                raise

    __enter__ = check

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.explain(error)

    def explain(self, error: BaseException) -> None:
        """Raise NotRunning if a database error came from a state in which it refuses writes."""
        if self._classify(error) is ErrorKind.READ_ONLY:
            try:
                found = self.look()
            except Exception as another:
                if self._classify(another) is ErrorKind.NOT_DATABASE:
                    raise
                return  # in PostgreSQL an error ends the transaction, and no further query can run in it
            if found != RUNNING:
                raise NotRunning(found) from error
