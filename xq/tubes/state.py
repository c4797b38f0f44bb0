"""In which state tubes are: it follows from whether their database may be written, which that says itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from xq.core.errors import NotRunning
from xq.core.ports import ErrorKind

LOOK = 1.0  # seconds between two looks, as long as all is well

RUNNING: Final = "RUNNING"

# The states, and what is found then; the first that fits is the one.
STATES: Final[Mapping[str, Mapping[str, bool]]] = {
    "INIT": {"only_reads": True, "there": False},
    "ENDING": {"only_reads": True, "awaited": True},
    "WAITING": {"only_reads": True},
    "STARTUP": {"paused": True},
    RUNNING: {},
}


class State:
    """The state of the tubes of a database, for the connection of the thread that asks.

    `with state:` around a call raises NotRunning in any state but RUNNING, and in place of what the database refuses
    to write. Not a generator: each call passes here.
    """

    def __init__(
        self, questions: Mapping[str, Callable[[], bool]], classify: Callable[[BaseException], ErrorKind]
    ) -> None:
        self._questions = questions  # by the names in STATES; asked only as far as it matters
        self._classify = classify  # an error of the database
        self._known = threading.local()

    def look(self) -> str:
        """The state, as it is now."""
        answers: dict[str, bool] = {}

        def holds(question: str, wanted: bool) -> bool:
            if question not in answers:
                answers[question] = self._questions[question]()
            return answers[question] is wanted

        self._known.until = 0.0
        found = next(state for state, all_of in STATES.items() if all(holds(*each) for each in all_of.items()))
        if found == RUNNING:
            self._known.until = time.monotonic() + LOOK
        return found

    def check(self) -> None:
        """Raise NotRunning where calls are not served, as far as was known a second ago."""
        if time.monotonic() >= getattr(self._known, "until", 0.0) and (found := self.look()) != RUNNING:
            raise NotRunning(found)

    def check_waiting(self) -> None:
        """As `check`, for a call that waits: it outlives a server that cannot be asked."""
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
        """Raise NotRunning where that is what is behind an error of the database."""
        if self._classify(error) is ErrorKind.READ_ONLY:
            try:
                found = self.look()
            except Exception as another:
                if self._classify(another) is ErrorKind.NOT_DATABASE:
                    raise
                return  # in a transaction of PostgreSQL, which an error ends, nobody can look
            if found != RUNNING:
                raise NotRunning(found) from error
