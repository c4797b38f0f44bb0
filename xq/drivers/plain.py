"""A store on a driver's plain connection, for processes without a model or an ORM."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from xq.core.connections import Address, Driver
from xq.drivers import DRIVERS, connect
from xq.drivers.stores import BaseStore, Connection

PATIENCE = 60.0  # seconds to wait for another writer of the file, since a whole job is one transaction
FOUND_ROWS = 2  # MariaDB's CLIENT.FOUND_ROWS: with it, rows whose values stay the same would count as changed

for kind in (Decimal, datetime.date, datetime.time):
    sqlite3.register_adapter(kind, str)  # as Peewee does, which a process without a model does not import


class PlainStore(BaseStore):
    """What moving tasks and installing need from `xq.core.connections.Store`, for one thread. Close it after use."""

    installs = merged = ""
    forwards = "install it by its own program"
    adds_columns = False

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.engine = address.engine
        parameters = {**address.parameters}
        if self.engine == "sqlite":
            parameters["timeout"] = max(PATIENCE, parameters.get("timeout", 0))
        elif self.engine == "innodb":
            parameters["client_flag"] = parameters.get("client_flag", 0) & ~FOUND_ROWS
        self.connection = connect(replace(address, parameters=parameters))
        self.database_error = self.connection.Error
        self.product = self.driver.check(self.connection)
        self._connection = Connection(self, self.driver, self.connection, self.connection.cursor, self)

    @cached_property
    def driver(self) -> Driver:
        return DRIVERS[self.engine]

    def close(self) -> None:
        self.connection.close()

    def ready(self) -> Connection:
        self._connection.in_transaction = self.in_transaction()
        return self._connection

    @contextmanager
    def atomic(self, own: bool = True) -> Iterator[None]:
        """Open a transaction. Rolls back if the block raises. It cannot be nested: no caller needs that."""
        self._connection.open_block = "transaction"
        try:
            with self._connection.transaction():
                yield
        finally:
            self._connection.open_block = ""

    def in_transaction(self) -> bool:
        return self.driver.in_transaction(self.connection)

    def undo_interrupted(self) -> None:
        """Do nothing: an interrupted caller closes the connection."""

    @property
    def in_use(self) -> Any:
        return self.connection
