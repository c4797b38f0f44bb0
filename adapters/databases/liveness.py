"""What the liveness locks of all databases share: a process counts how often it has acquired each."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter

ENDING = 0.5  # seconds to wait for whoever is ending a session, which may be kept for a while (session_ttr)
POLL = 0.02  # seconds between two tries


class LivenessLocks(ABC):
    """The liveness locks of a process: each is held until it was released as often as it was acquired."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._ending: set[str] = set()  # by this process, which does not conflict with itself
        self._lock = threading.RLock()

    @abstractmethod
    def _prepare(self) -> None:
        """Open the file or connection of the locks. Raises if that is not possible."""

    @abstractmethod
    def _lock_session(self, uuid: str) -> bool:
        """Lock a session. False where another process is about to end it."""

    @abstractmethod
    def _unlock_session(self, uuid: str) -> None:
        """Unlock a session."""

    def close(self) -> None:  # noqa: B027
        """Close the connection that it has, if any, until it is needed again."""

    def acquire(self, uuid: str) -> bool:
        """Acquire the liveness lock of a session. False where another process is about to end it."""
        deadline = time.monotonic() + ENDING
        while True:
            with self._lock:
                self._prepare()
                if uuid not in self._ending and self._lock_session(uuid):
                    self._held[uuid] += 1
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)

    def release(self, uuid: str) -> None:
        """Release it, once it was released as often as it was acquired."""
        with self._lock:
            if self._held.get(uuid, 0) > 1:
                self._held[uuid] -= 1
            elif uuid in self._held:
                del self._held[uuid]
                self._unlock_session(uuid)
