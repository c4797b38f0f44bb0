"""What the liveness locks in all databases share: each process counts its acquisitions."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter

from xq.core import time

ENDING = 0.5  # seconds to wait for a process that is closing the session, which session_ttr may keep
POLL = 0.02  # seconds between two tries


class LivenessLocks(ABC):
    """A process's liveness locks: it holds each until it has released it as often as acquired."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._ending: set[str] = set()  # sessions that this process is closing: its own locks do not conflict
        self._lock = threading.RLock()

    @abstractmethod
    def _prepare(self) -> None:
        """Open the locks' file or connection. Raises if that is not possible."""

    @abstractmethod
    def _lock_session(self, uuid: str) -> bool:
        """Lock a session. Returns False if another process is closing it."""

    @abstractmethod
    def _unlock_session(self, uuid: str) -> None:
        """Unlock a session."""

    def close(self) -> None:  # noqa: B027
        """Do nothing: a file has no session connection."""

    def forked(self) -> None:  # noqa: B027
        """Do nothing: `FileLocks` resets all files."""

    def acquire(self, uuid: str) -> bool:
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
        with self._lock:
            if self._held.get(uuid, 0) > 1:
                self._held[uuid] -= 1
            elif uuid in self._held:
                del self._held[uuid]
                self._unlock_session(uuid)
