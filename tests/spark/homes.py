"""Where the benchmarks of Spark have their databases, on the servers of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from benchmarks.databases import HOMES, Home, OnServer
from tests import servers


@contextmanager
def home_on(database: str) -> Iterator[Home]:
    """A home for databases of this kind, closed afterwards. Skip the test where the server cannot be started."""
    kind = HOMES[database]
    if reason := kind.missing():
        pytest.skip(reason)
    with closing(kind(servers.shared(kind.kind)) if issubclass(kind, OnServer) else kind()) as home:
        yield home
