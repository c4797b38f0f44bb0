"""A home for the databases of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from benchmarks.databases import HOMES, Home, OnServer
from tests import servers


@contextmanager
def home_of(engine: str) -> Iterator[Home]:
    """Yield a home on this database, and remove it. Skips the test where the programs are missing."""
    kind = HOMES[engine]
    if reason := kind.missing():
        pytest.skip(reason)
    with closing(kind(servers.shared(kind.kind)) if issubclass(kind, OnServer) else kind()) as home:
        yield home
