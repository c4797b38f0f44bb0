"""The drivers, below any ORM: sqlite3, psycopg 3 and pymysql."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xq.core.connections import Address, Driver, ServerDriver
from xq.drivers.postgres import Psycopg
from xq.drivers.pymysql import Pymysql
from xq.drivers.sqlite import Sqlite3

SERVERS: Mapping[str, ServerDriver] = {"postgres": Psycopg(), "innodb": Pymysql()}
DRIVERS: Mapping[str, Driver] = {"sqlite": Sqlite3(), **SERVERS}


def connect(address: Address) -> Any:
    """Return a new driver connection to an address, in autocommit mode. Raises the driver's errors."""
    parameters: dict[str, Any] = {**address.parameters, **address.secrets}
    if address.password is not None:
        parameters["password"] = address.password
    return DRIVERS[address.engine].connect(parameters)
