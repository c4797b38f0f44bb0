"""How a thread is called that waits for descriptors: it waits for one more."""

from __future__ import annotations

import socket
from contextlib import suppress


class Bell:
    """Any thread may ring it; and it may be rung when it is gone already."""

    def __init__(self) -> None:
        # Sockets know that they are closed. The number of a closed pipe may be that of another file by now, and a late
        # call would be written into it.
        self._heard, self._call = socket.socketpair()
        self._heard.setblocking(False)
        self._call.setblocking(False)

    def fileno(self) -> int:
        """It can be read when it was rung."""
        return self._heard.fileno()

    def ring(self) -> None:
        with suppress(OSError):  # it was rung already, or is gone
            self._call.send(b"x")

    def hush(self) -> None:
        """It was heard."""
        with suppress(BlockingIOError):
            self._heard.recv(4096)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._heard.close()
        self._call.close()
