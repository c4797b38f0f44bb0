"""The benchmarks of Spark run; what they measure is no test's business."""

from __future__ import annotations

import pytest

from benchmarks import spark as benchmark
from benchmarks.report import SMOKE
from tests.conftest import SHARED
from tests.support.homes import home_of


@pytest.mark.parametrize("engine", SHARED)
@pytest.mark.parametrize("what", [*benchmark.MEASURED, "killed", "activity"])
def test_a_section_fills_its_table(spark, monkeypatch, engine, what):
    if what == "sources" and not spark.conf.get("spark.jars", ""):
        pytest.skip("there is no jar of JDBC")
    monkeypatch.setattr(benchmark, "apart", benchmark.raced)  # in this process, whose session is there already
    measured = {section.name: section.measure for section in benchmark.SECTIONS}
    measured |= {"killed": benchmark.killed, "activity": benchmark.activity}
    with home_of(engine) as home:
        table = measured[what](SMOKE, home)
    assert len(table.rows) > (what in benchmark.MEASURED)
    assert {len(row) for row in table.rows} == {len(table.head)}
