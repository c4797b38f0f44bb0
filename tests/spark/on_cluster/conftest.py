"""A cluster of processes on this machine, whose workers have no xq, before databases on servers.

The drivers are processes of their own: in one process Spark has one master.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import peewee as pw
import pytest

from tests.conftest import DATABASES, SERVERS
from tests.spark.cluster import Cluster, cluster


@pytest.fixture(params=SERVERS)
def shared_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pw.Database]:
    """A fresh database that other machines can open."""
    with DATABASES[request.param](tmp_path) as database:
        yield database


@pytest.fixture(scope="session")
def workers() -> Iterator[Cluster]:
    """One cluster for all tests."""
    with cluster() as found:
        yield found
