"""The classes of Peewee by which an application may have its database, its schemas, and the columns it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import peewee as pw
import pytest

from tests.conftest import database_on
from tests.servers import MariaDB, Postgres, Server

KINDS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB}


@pytest.fixture(params=["postgres"])
def postgres() -> Iterator[pw.Database]:
    with database_on(Postgres) as (server, name):
        database = server.peewee(name)
        yield database
        database.close()
