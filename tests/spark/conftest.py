"""One Spark session for all tests of Spark. Their queues are those of `make_live`: what Spark's workers do runs by the
database's own clock. They are on SQLite, and those of what reads, writes and takes on the servers as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xq
from tests.browser import browser, window  # noqa: F401 (fixtures)
from tests.conftest import fresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING = next((name for name in ("pyspark", "pyarrow") if find_spec(name) is None), None)
REQUIRED = "XQ_REQUIRE_ALL" in os.environ


class NotHere(pytest.Module):
    """A file of tests that could not be imported."""

    def collect(self):
        pytest.skip(
            f"{MISSING} is not installed: pip install '.[spark]' in the checkout of xq", allow_module_level=True
        )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return NotHere.from_parent(parent, path=module_path) if MISSING and not REQUIRED else None


shared_db = fresh(["sqlite"])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two threads for workers, which is stopped when all tests are over."""
    try:
        session = xq.spark.session(master="local[2]", driver_memory="1g", sql_shuffle_partitions=2)
    except xq.ConfigurationError as error:
        pytest.skip(str(error))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
