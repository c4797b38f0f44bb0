"""The benchmark that kills a driver of Spark runs on each database."""

from __future__ import annotations

import pytest

from benchmarks import spark as benchmark
from benchmarks.report import SMOKE
from tests.conftest import SHARED
from tests.spark.homes import home_on


@pytest.fixture(params=SHARED)
def home(request):
    with home_on(request.param) as home:
        yield home


def test_a_driver_that_is_killed_is_measured(spark, home):
    table = benchmark.killed(SMOKE, home)
    assert {len(row) for row in table.rows} == {len(table.head)}
