"""What the proofs of life of a process have in common: they count how often it holds each session."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter

ENDING = 0.5  # seconds to wait for whoever is ending a session, which may be kept for a while (session_ttr)
POLL = 0.02  # seconds between two tries


class Proof(ABC):
    """Holds sessions: each as long as somebody in this process wants it held."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._ending: set[str] = set()  # by this process, which does not conflict with itself
        self._lock = threading.RLock()

    @abstractmethod
    def _get_ready(self) -> None:
        """Have what sessions are held by. Raises when it cannot be had."""

    @abstractmethod
    def _begin(self, uuid: str) -> bool:
        """Hold a session, or go on with it. False where another process is about to end it."""

    @abstractmethod
    def _end(self, uuid: str) -> None:
        """Hold it no longer."""

    def close(self) -> None:  # noqa: B027
        """Close the connection that it has, if any, until it is needed again."""

    def acquire(self, uuid: str) -> bool:
        """Prove that a process of this session lives. False where another process is about to end it."""
        deadline = time.monotonic() + ENDING
        while True:
            with self._lock:
                self._get_ready()
                if uuid not in self._ending and self._begin(uuid):
                    self._held[uuid] += 1
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)

    def release(self, uuid: str) -> None:
        """Prove it no longer, when it was let go of as often as it was held."""
        with self._lock:
            if self._held.get(uuid, 0) > 1:
                self._held[uuid] -= 1
            elif uuid in self._held:
                del self._held[uuid]
                self._end(uuid)
