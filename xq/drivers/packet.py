"""How MySQL runs several statements in one round trip: it has no blocks, so they stand in one packet.

Only for this packet: a connection that always takes several statements turns an injection of SQL into the application
into any statement. One write to the socket has the command that allows them, the statements, and the command that
forbids them again (COM_SET_OPTION and COM_QUERY: dev.mysql.com/doc/dev/mysql-server, Client/Server Protocol).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, Final

from xq.core.kinds import Row

SEVERAL: Final = "/*;*/ "  # stands in the SQL of several statements
QUERY, SET_OPTION = b"\x03", b"\x1b"  # commands of the protocol
ALLOWED, FORBIDDEN = b"\0\0", b"\1\0"  # the values of the option for several statements
LONGEST = 2**24 - 1  # bytes in one packet of the protocol
STATEMENT = re.compile(r"(?:'(?:[^'\\]|\\.|'')*'|`[^`]*`|[^;'`])+")
REFUSED = frozenset({1047, 1064})  # an unknown command, and a syntax error at the first semicolon


class OneByOneError(Exception):
    """What is between this program and the server takes no several statements. None has run."""


def statements(sql: str) -> list[str]:
    """Return the single statements, without the mark and the semicolons."""
    return [each for each in map(str.strip, STATEMENT.findall(sql.replace(SEVERAL, ""))) if each]


def _packets(command: bytes, of: bytes) -> Iterator[bytes]:
    left, number = command + of, 0
    while True:
        yield struct.pack("<I", min(len(left), LONGEST))[:3] + bytes([number % 256]) + left[:LONGEST]
        if len(left) < LONGEST:
            return
        left, number = left[LONGEST:], number + 1


def run(connection: Any, query: bytes) -> tuple[list[list[Row]], int]:
    """Run the statements of a query on a connection of pymysql.

    Return the rows of each that returns some, and how many rows the last one changed. An error ends the packet, and is
    raised when the connection is as before. Raises `OneByOneError`.
    """
    if not connection._sock:
        raise connection.InterfaceError(0, "")
    while connection._result is not None and connection._result.has_next:
        connection.next_result()
    parts = [*_packets(QUERY, query)]
    connection._write_bytes(b"".join((*_packets(SET_OPTION, ALLOWED), *parts, *_packets(SET_OPTION, FORBIDDEN))))
    found: list[list[Row]] = []
    refused = error = None
    try:
        _answer(connection)
    except connection.Error as failure:
        refused = _raised(connection, failure)
    try:
        more: Any = True
        connection._next_seq_id = len(parts) % 256  # answers go on with the numbers of the packets that ask
        while more:
            connection._read_query_result()
            result = connection._result
            if result.description:
                found.append(list(result.rows))
            more = result.has_next
    except connection.Error as failure:
        error = _raised(connection, failure)
    try:
        connection.server_status = _answer(connection)
    except connection.Error as failure:
        _raised(connection, failure)
    if error is not None:
        if refused is not None and error.args[0] in REFUSED:
            raise OneByOneError from error
        raise error
    return found, int(connection._affected_rows)


def _answer(connection: Any) -> int:
    """Read the answer to a command, and return the server's status in it."""
    connection._next_seq_id = 1
    return int.from_bytes(connection._read_packet().get_all_data()[3:5], "little")


def _raised(connection: Any, failure: Any) -> Any:
    """Return an error that the server has sent. Raises one that has lost the connection."""
    if not connection.open:
        raise failure
    connection._result = None
    return failure
