"""The benchmarks of Spark run; their day is one that a queue can have, and plain SQL finds what the report does."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import xq
from benchmarks import day, pipeline
from benchmarks import spark as benchmark
from benchmarks.databases import Files, Sqlite
from benchmarks.report import SMOKE
from tests.conftest import SHARED
from tests.support.homes import home_of
from xq.core.machine import NAMES

SECONDS = "unix_seconds(bucket) AS bucket"


@pytest.fixture(scope="module")
def moves() -> tuple[list[day.Move], day.Left]:
    left = day.Left()
    return [*day.day(20_000, left=left)], left


def test_a_day_is_in_order_and_each_task_goes_from_state_to_state(moves):
    history, left = moves
    assert [move.id for move in history] == [*range(1, len(history) + 1)]
    assert all(one.at_us <= other.at_us for one, other in pairwise(history))
    state: dict[str, str] = {}
    for move in history:
        assert state.get(move.key, "X") == move.source
        state[move.key] = move.target
    assert state == {str(key): letter for key, (_, letter, _) in left.tasks.items()}


def test_a_day_has_rush_hours_and_a_tube_that_fails_for_two_hours(moves):
    history, _ = moves
    hours = Counter((move.at_us // 1_000_000 - day.MIDNIGHT) // 3600 for move in history if move.event == "put")
    assert hours[11] > 5 * hours[3]
    buried = [move for move in history if move.event == "bury" and move.tube == "webhook"]
    within = [move for move in buried if 13 <= (move.at_us // 1_000_000 - day.MIDNIGHT) / 3600 < 15.1]
    assert len(within) > 0.9 * len(buried) > 0


def test_the_same_seed_gives_the_same_day():
    assert [*day.day(500, seed=7)] == [*day.day(500, seed=7)] != [*day.day(500, seed=8)]


def test_what_is_built_is_a_queue_that_finds_nothing_missing(tmp_path):
    place = Sqlite(str(tmp_path / "day.db"))
    pipeline.build(place, 500)
    with closing(place.peewee()) as database:
        assert pipeline.queue(database).check() == []


def test_plain_sql_finds_the_numbers_of_the_report(spark, tmp_path):
    place = Sqlite(str(tmp_path / "day.db"))
    pipeline.build(place, 5_000)
    with closing(place.peewee()) as database:
        span = day.MIDNIGHT, day.MIDNIGHT + day.DAY
        made = xq.spark.report(spark, [pipeline.queue(database)], *span, out=str(tmp_path / "report"))
    with closing(place.connect()) as connection:
        asked = {name: connection.execute(sql).fetchall() for name, sql in pipeline.SQL.items()}

    def told(name: str, *columns: str) -> list[tuple[object, ...]]:
        return sorted(map(tuple, made.tables[name].selectExpr(*columns).collect()))

    for name, *columns in (
        ("lives", "tube", "n", "p50", "p90", "p99", "max"),
        ("retries", "tube", "attempts", "n"),
        ("transitions", "tube", "source", "target", "event", "n"),
    ):
        assert told(name, *columns) == sorted(asked[name])
    states = sorted((tube, NAMES[state], *more) for tube, state, *more in asked["states"])
    assert told("states", "tube", "state", "n", "p50", "p90", "p99", "max") == states
    hours = [
        sorted((tube, hour * 3600, *more) for tube, hour, *more in asked[name]) for name in ("throughput", "backlog")
    ]
    counts = ("put", "taken", "done", "buried", "killed", "expired")
    assert told("throughput", "tube", SECONDS, *counts) == hours[0]
    assert told("backlog", "tube", SECONDS, "arrived", "departed", "backlog") == hours[1]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is measured on Linux")
def test_the_section_fills_its_table(spark, monkeypatch):  # `spark`, because where it cannot start this is skipped
    section, _ = pipeline.SECTIONS
    monkeypatch.setattr(pipeline, "MEASURED", {"archive": pipeline.archive})  # each starts a session of its own
    with closing(Files()) as home:
        table = section.measure(SMOKE, home)
    assert {len(row) for row in table.rows} == {len(table.head)}


@pytest.fixture(params=SHARED)
def home(request):
    """A home for the databases of a benchmark."""
    with home_of(request.param) as home:
        yield home


@pytest.mark.parametrize("what", benchmark.MEASURED)
def test_a_section_of_what_is_compared_fills_its_table(spark, home, monkeypatch, what):
    if what == "sources" and not spark.conf.get("spark.jars", ""):
        pytest.skip("there is no jar of JDBC")
    monkeypatch.setattr(benchmark, "apart", benchmark.raced)  # in this process, whose session is there already
    (section,) = [section for section in benchmark.SECTIONS if section.name == what]
    table = section.measure(SMOKE, home)
    assert len(table.rows) >= 2
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_a_day_that_was_copied_is_the_same_day(home):
    if home.engine not in pipeline.SECTIONS[0].on:
        return
    built = home.new("day")
    pipeline.build(built, 50)
    built.settle()
    with closing(pipeline.copy(home, built).peewee()) as database:
        assert pipeline.queue(database).History.select().count() > 0
        assert pipeline.queue(database).check() == []


@pytest.mark.parametrize("measured", [benchmark.killed, benchmark.activity])
def test_what_goes_on_until_it_is_killed_is_measured(spark, home, measured):
    table = measured(SMOKE, home)
    assert {len(row) for row in table.rows} == {len(table.head)}
