"""Notifications when another process commits to one SQLite file.

Linux reports a write to a watched file at once, at no cost for the writer; elsewhere waiting processes poll.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Sequence
from contextlib import suppress

from xq.core import time
from xq.core.connections import Connections
from xq.sql.file_liveness import identity
from xq.sql.waker import Waker

POLL = 0.02  # seconds between two polls if no file can be watched
# The system reports a write before its transaction is visible: seconds to sleep between looks for it.
COMMITTING = (0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128)
STATE = 0.9  # seconds between two looks at the state of files that are at rest, in case a write is not reported
QUIET = 5.0  # seconds after a write in which its transaction, or one that it overwrites, may become visible


class Inotify:
    """Watches files on Linux. Its descriptor is readable when one was written."""

    _WRITTEN, _REMOVED = 0x2, 0x400 | 0x800  # IN_MODIFY; IN_DELETE_SELF, IN_MOVE_SELF

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def fileno(self) -> int:
        return int(self._descriptor)

    def add(self, path: str) -> bool:
        """Watch a file, if it is not watched yet. Returns False if it does not exist or too many are watched."""
        events = self._WRITTEN | self._REMOVED
        return int(self._library.inotify_add_watch(self._descriptor, os.fsencode(path), events)) >= 0

    def clear(self) -> None:
        """Discard the writes reported so far."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 65_536)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:  # once only: afterwards the number may belong to another file
            os.close(descriptor)


def watch() -> Inotify | None:
    """Return the operating system's watch; None if it supports none, or has reached its limit."""
    try:
        return Inotify()
    except (OSError, AttributeError):  # another system than Linux has no such function
        return None


class FileNotifier:
    """Waits until another process may have written to a database file, or this process calls `wake`."""

    unseen = COMMITTING[-1]

    def __init__(self, files: Sequence[str], versions: Sequence[str]) -> None:
        self._versions = versions  # queries whose result changes with each commit of another connection
        self._version: object = None
        self._logs = [f"{file}-wal" for file in files]
        self._files = files
        self._seen = self._there()
        self._at_rest: object = None  # the state of the files at the last look; None within QUIET seconds of a write
        self._waker = Waker()
        self._watch = watch()
        self._poll = select.poll()  # select() does not support descriptors above 1023
        self._poll.register(self._waker, select.POLLIN)
        if self._watch is not None:
            self._poll.register(self._watch, select.POLLIN)

    def wait(self, seconds: float, eagerly: bool, conditions: Sequence[str] = ()) -> bool:
        polls = self._watch is None or sum(map(self._watch.add, self._logs)) < len(self._logs)
        if polls:
            seconds = min(seconds, POLL)
        rested = self.at_rest
        while True:
            ready = dict(self._poll.poll(1000 * (min(seconds, STATE) if rested else seconds)))
            seconds -= STATE
            if ready or seconds <= 0.0 or not rested or not self.at_rest:
                break
        written = self._watch is not None and self._watch.fileno() in ready
        if self._watch is not None and written:
            self._watch.clear()
        if self._waker.fileno() in ready:
            self._waker.clear()
        return written or polls or (rested and not self.at_rest)

    reports_own = True

    def expect(self) -> None:
        """Do nothing: the operating system always notifies."""

    def has_changed(self, store: Connections, notified: bool) -> bool:
        if self.at_rest:
            return False
        written, files = self._written()  # before the look
        before = self._version
        for pause in (*COMMITTING, 0.0) if notified else (0.0,):
            self._version = [store.execute(sql) for sql in self._versions]
            if self._version != before:
                break
            time.sleep(pause)
        self._at_rest = files if 0.0 < written < time.time() - QUIET else None
        return self._version != before

    @property
    def at_rest(self) -> bool:
        return self._at_rest is not None and self._written()[1] == self._at_rest

    def _written(self) -> tuple[float, object]:
        """Return when a database file was last written, in seconds since 1970 (0: never), and the files' state."""
        found = []
        for file in (*self._files, *self._logs):
            with suppress(OSError):
                found.append(os.stat(file))
        states = [(of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns) for of in found]
        return max([at for of in found for at in (of.st_mtime, of.st_ctime)], default=0.0), states

    def wake(self) -> None:
        self._waker.wake()

    def replaced(self) -> bool:
        # A connection keeps using the files that it has opened.
        before, self._seen = self._seen, self._there()
        return self._seen != before

    def _there(self) -> list[tuple[int, int] | None]:
        return [identity(file) for file in self._files]

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._waker.close()
