"""A network between an application and a server that can be had to fail: a TCP proxy in a thread of the tests.

`with Proxy(server.host, server.port) as proxy:` listens at `proxy.host` and `proxy.port`. What it does to connections
it does at once, and only then returns.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Self

import peewee as pw

CHUNK = 65_536  # bytes that are forwarded at once
FILTER, NO_FILTER = 26, 27  # SO_ATTACH_FILTER and SO_DETACH_FILTER of Linux
DROPS = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # the filter's one instruction: keep 0 bytes
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: a close that tells the other end at once, and drops what was on its way
PATIENCE = 10  # seconds within which the thread does what it is told

_all: set[Proxy] = set()


class Connection:
    """One connection through the proxy, and what is to become of it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self._cut_on: socket.socket | None = None  # the end of which so many chunks are forwarded yet
        self._passes = 0

    @property
    def ends(self) -> tuple[socket.socket, socket.socket]:
        return self.client, self.server

    def cut_later(self, end: str, passes: int) -> None:
        self._cut_on, self._passes = getattr(self, end), passes

    def is_cut_by(self, end: socket.socket) -> bool:
        """Whether what comes from this end is the last thing that happens."""
        if end is not self._cut_on:
            return False
        self._passes -= 1
        return self._passes < 0

    def other(self, end: socket.socket) -> socket.socket:
        return self.server if end is self.client else self.client


class Proxy:
    """Forwards, until it is told otherwise."""

    def __init__(self, host: str, port: int, at: str = "127.0.0.1") -> None:
        self._to = (host, port)
        self._listener = socket.create_server((at, 0), backlog=1000)
        self.host, self.port = self._listener.getsockname()
        self._connections: dict[int, Connection] = {}  # by the port of the client
        self._vanished: list[socket.socket] = []  # whose clients have not been told
        self._orders: list[tuple[Callable[[], None], Future[None]]] = []
        self._called, self._call = socket.socketpair()
        self._over = False
        self._halves = self._stands = False
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        for end in (self._listener, self._called):
            self._selector.register(end, selectors.EVENT_READ, None)
        _all.add(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._over = True
        self._call.send(b"x")
        self._thread.join(PATIENCE)
        _all.discard(self)
        self._close()

    # what it can be had to do

    def cut(self, which: Any = None) -> None:
        """Cut the connection of a driver's connection, or all: both ends are told of it."""
        self._do(self._cut, which)

    def cut_later(self, end: str, which: Any, after: int = 0) -> None:
        """Cut a connection with what an end sends, after so many others, which the other end never sees.

        That is a question of the `client`, or an answer of the `server`, to what it has done.
        """
        self._do(lambda connection: connection.cut_later(end, after), which)

    def vanish(self) -> None:
        """Drop all that clients send from now on, also to connect, as a machine that is gone: nothing is acknowledged.

        The server has none of these connections any more, as one that is promoted has none. It works on Linux.
        """
        program = struct.pack("HP", 1, ctypes.addressof(DROPS))

        def drop(connection: Connection) -> None:
            for end in connection.ends:
                self._selector.unregister(end)
            while unacknowledged(connection.client):  # else the system would send it again, as a sign of life
                time.sleep(0.001)
            connection.client.setsockopt(socket.SOL_SOCKET, FILTER, program)
            self._reset(connection.server)
            self._vanished.append(connection.client)

        self._listener.setsockopt(socket.SOL_SOCKET, FILTER, program)
        self._do(drop, None)
        self._connections = {}

    def appear(self) -> None:
        """Accept connections again: another machine has the address. Those of before have vanished for good."""
        self._listener.setsockopt(socket.SOL_SOCKET, NO_FILTER, 0)

    def stand(self) -> None:
        """Forward half of what a server sends next, and then nothing more; all connections stay open."""
        self._halves = True

    # its thread

    def _do(self, what: Callable[[Connection], object], which: Any) -> None:
        port = None if which is None else port_of(which)

        def order() -> None:
            for connection in [*self._connections.values()] if port is None else [self._connections[port]]:
                what(connection)

        done: Future[None] = Future()
        self._orders.append((order, done))
        self._call.send(b"x")
        done.result(PATIENCE)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                end: Any = key.fileobj
                if end is self._listener:
                    self._accept()
                elif end is self._called:
                    end.recv(1)
                    if self._over:
                        return
                    order, done = self._orders.pop(0)
                    try:
                        done.set_result(order())
                    except BaseException as error:
                        done.set_exception(error)
                elif end.fileno() >= 0 and end in self._selector.get_map():  # not just closed, or vanished
                    self._forward(key.data, end)

    def _accept(self) -> None:
        client, (_, port) = self._listener.accept()
        try:
            server = socket.create_connection(self._to)
        except OSError:  # the server is down, and the client sees the same
            self._reset(client)
            return
        connection = self._connections[port] = Connection(client, server)
        for end in connection.ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end, selectors.EVENT_READ, connection)

    def _forward(self, connection: Connection, end: socket.socket) -> None:
        try:
            data = end.recv(CHUNK)
            if self._stands and data:
                return
            if self._halves and end is connection.server:
                data, self._stands = data[: len(data) // 2], True
            if not data or connection.is_cut_by(end):
                self._cut(connection, reset=bool(data))
            else:
                connection.other(end).sendall(data)
        except OSError:
            self._cut(connection)

    def _cut(self, connection: Connection, reset: bool = True) -> None:
        self._connections = {port: known for port, known in self._connections.items() if known is not connection}
        for end in connection.ends:
            self._selector.unregister(end)
            self._reset(end) if reset else end.close()

    @staticmethod
    def _reset(end: socket.socket) -> None:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.close()

    def _close(self) -> None:
        """Close what is open, without a word to the other ends where a parent has it open, too."""
        for connection in self._connections.values():
            for end in connection.ends:
                end.close()
        for end in (*self._vanished, self._listener, self._called, self._call):
            end.close()
        self._selector.close()


def unacknowledged(end: socket.socket) -> int:
    """How many packets the other end of a connection has not acknowledged, on Linux."""
    return int(struct.unpack_from("I", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 24)[0])


def port_of(connection: Any) -> int:
    """The port from which a driver's connection comes, or that of the current thread to a Peewee database."""
    if isinstance(connection, pw.Database):
        connection = connection.connection()
    descriptor = connection._sock.fileno() if hasattr(connection, "_sock") else connection.fileno()
    with socket.socket(fileno=os.dup(descriptor)) as end:
        port: int = end.getsockname()[1]
        return port


def _forked() -> None:
    """The connections are the parent's: a child that held them would keep them open."""
    for proxy in _all:
        proxy._close()
    _all.clear()


os.register_at_fork(after_in_child=_forked)
