"""A waker: a descriptor by which any thread wakes a thread waiting for descriptors."""

from __future__ import annotations

import socket
from contextlib import suppress


class Waker:
    """A thread's wake-up pipe. Any thread may call `wake`, also after `close`."""

    def __init__(self) -> None:
        # Sockets, since sending to a closed one raises. A closed pipe's number may belong to another file: a late
        # `wake` would write to it.
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, which is readable after `wake` until `clear`."""
        return self._reader.fileno()

    def wake(self) -> None:
        with suppress(OSError):  # its buffer is full, or it is closed
            self._writer.send(b"x")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            self._reader.recv(4096)

    def __del__(self) -> None:
        if hasattr(self, "_writer"):  # not if no descriptor was free
            self.close()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
