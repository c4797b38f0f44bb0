"""A thread that waits for descriptors is woken by one more: its waker."""

from __future__ import annotations

import socket
from contextlib import suppress


class Waker:
    """Any thread may wake by it, also when it is closed already."""

    def __init__(self) -> None:
        # Sockets know that they are closed. The number of a closed pipe may be that of another file by now, and a late
        # call would be written into it.
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Readable once `wake` was called, until `clear`."""
        return self._reader.fileno()

    def wake(self) -> None:
        with suppress(OSError):  # its buffer is full, or it is closed
            self._writer.send(b"x")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            self._reader.recv(4096)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
