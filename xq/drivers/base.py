"""What the drivers share, below any ORM."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from xq.core.connections import ServerDriver
from xq.core.errors import ConfigurationError
from xq.core.kinds import ErrorKind, T

# Events on a socket whose peer has closed it. The operating system reports them without sending anything.
GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)

# By the exceptions' names in PEP 249, which drivers and ORMs both use.
OF_CLASSES: Mapping[str, ErrorKind] = {
    "IntegrityError": ErrorKind.CONSTRAINT,
    "OperationalError": ErrorKind.TRANSIENT,
    "InterfaceError": ErrorKind.TRANSIENT,
    "DatabaseError": ErrorKind.PERMANENT,
}


def kinds(codes: Mapping[ErrorKind, Iterable[T]]) -> Mapping[T, ErrorKind]:
    """Return each code's kind."""
    return {code: kind for kind, of_kind in codes.items() for code in of_kind}


def kind_by_class(error: BaseException) -> ErrorKind:
    """Return the kind that an error's class says."""
    names = {each.__name__ for each in type(error).__mro__}
    return next((kind for name, kind in OF_CLASSES.items() if name in names), ErrorKind.NOT_DATABASE)


def is_gone(descriptor: int) -> bool:
    """Return whether the peer, or another thread here, has closed a connection."""
    if descriptor < 0:
        return True
    end = select.poll()
    end.register(descriptor, GONE)
    return bool(end.poll(0))


def is_remote(descriptor: int) -> bool:
    """Return whether a connection leads to another machine, which may vanish without a word."""
    with socket.socket(fileno=os.dup(descriptor)) as end:
        return end.family != socket.AF_UNIX and not ip_address(end.getpeername()[0].partition("%")[0]).is_loopback


def of_another(server: str, driver: str, connection: Any, advice: str) -> ConfigurationError:
    """Return the error for a connection that another driver has opened."""
    text = f"xq speaks to {server} through {driver}, this is a connection of {type(connection).__module__}"
    return ConfigurationError(f"{text}: {advice}" if advice else text)


def of_login(error: RuntimeError) -> BaseException:
    """Return what an error is raised as with which a driver has made no connection: pymysql's names a package."""
    if "cryptography" not in str(error):
        return error
    return ConfigurationError(
        "pymysql needs the package cryptography to send this user's password without TLS: pip install 'pymysql[rsa]', "
        "or leave ssl_disabled out"
    )


class BaseDriver(ServerDriver):
    """The base of server drivers."""

    def transaction(self, connection: Any) -> bool | None:
        return True if self.in_transaction(connection) else None if self.is_broken(connection) else False
