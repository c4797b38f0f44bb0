"""The feature `id`: how put makes the key of a task without one."""

from __future__ import annotations

import os
import secrets
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from xq.core import time
from xq.core.machine import Feature, Settings, Strategy


class _Increasing:
    """Readings of a clock, each greater than the one before, in this process."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._last = 0
        self._renew()
        os.register_at_fork(after_in_child=self._renew)  # a thread of the parent may have held it

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self._last = max(self._read(), self._last + 1)
            return self._last


_nanoseconds = _Increasing(time.time_ns)
# in 1/4096 ms, which fits 60 bits until the year 10889
_ticks = _Increasing(lambda: time.time_ns() * 4096 // 1_000_000)


def time64(task: Mapping[str, Any]) -> int:
    """Return nanoseconds since 1970, each value greater than the one before."""
    return _nanoseconds()


def uuid7(task: Mapping[str, Any]) -> uuid.UUID:
    """Return a UUID of version 7 (RFC 9562, section 6.2, method 3). Keys sort in the order of put."""
    milliseconds, fraction = divmod(_ticks(), 4096)
    value = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)
    return uuid.UUID(int=value)


MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {"time64": time64, "uuid": uuid7}


def id(strategy: Strategy | Callable[..., Any] = "auto_increment") -> Feature:
    """Choose how put makes the key of a task without one.

    "auto_increment": the database numbers the tasks. "time64": nanoseconds since 1970. "uuid": a UUID of version 7.
    "required": each task must bring its key. A function: put calls it with the task and uses the result.
    """
    maker = MAKERS.get(strategy) if isinstance(strategy, str) else strategy
    setting = Settings(id=strategy if isinstance(strategy, str) else "callable")
    return Feature("id", fill={"key": maker} if maker else {}, settings=setting, structure=setting.id)
