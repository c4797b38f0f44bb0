"""Servers that a test may stop, have read only, or follow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import servers
from tests.conftest import SERVERS
from tests.servers import Server

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that a test may stop."""
    with own(SERVERS[request.param]) as made:
        yield made


@contextmanager
def own(kind: type[Server], **settings: object) -> Iterator[Server]:
    """A server of this kind with these settings and a database `app`; skips where there can be none."""
    if reason := kind.missing():
        pytest.skip(reason)
    with kind(**settings) as made:  # type: ignore[arg-type]
        made.create("app")
        yield made


@contextmanager
def new_database(server: Server) -> Iterator[str]:
    """The name of a database of its own there."""
    name = f"app_{next(_numbers)}"
    server.create(name)
    try:
        yield name
    finally:
        server.drop(name)


class Standby(servers.Postgres):
    """A PostgreSQL that follows another one."""

    WELCOME = ()

    def __init__(self, primary: Server) -> None:
        super().__init__()
        self._primary = primary

    def _making(self) -> list[str]:
        user, _ = self.ADMINISTRATOR
        where = [f"--host={self._primary.host}", f"--port={self._primary.port}", f"--username={user}"]
        how = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        return [self.program("pg_basebackup"), f"--pgdata={self.folder}/data", *where, *how]


def may_be_written(server: Server, database: str, yes: bool) -> None:
    """Have a server read only, or no longer."""
    if isinstance(server, servers.Postgres):
        server.run(f"ALTER DATABASE {database} SET default_transaction_read_only = {'off' if yes else 'on'}")
        server.restart()  # it holds for connections that are made from now on
    else:
        server.run(f"SET GLOBAL read_only = {int(not yes)}")
