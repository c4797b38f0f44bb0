"""The views on a history, read without xq, have the numbers of a report."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import pytest

import xq
from tests.conftest import SHARED, fresh

shared_db = fresh(SHARED)
REACHED = ("url", "driver", "user", "password", "sessionInitStatement")  # on MariaDB the last is needed
COUNTED = ["put", "taken", "done", "buried", "killed", "expired"]


@pytest.fixture
def queue(make_live):
    made = make_live({"keep": True, "buried": True, "history": True}, roles=("tube",))
    made.xq.put_many([{"name": f"n{i}", "tube": f"t{i % 2}"} for i in range(9)])
    first, second, *others = made.xq.take_many(8)
    made.xq.ack_many(others)
    first.bury()
    second.release()
    made.xq.kill(9)
    made.xq.install(views=True)
    return made


TYPES = {  # SQLite declares no types for a view
    "task_xq_events": "at STRING, at_us BIGINT, source STRING, target STRING, seconds DOUBLE",
    "task_xq_hourly": "hour STRING, tube STRING, " + ", ".join(f"{name} BIGINT" for name in ["hour_us", *COUNTED]),
}


def of_jdbc(spark, queue, view):
    """A view by Spark's own JDBC."""
    reached = {name: xq.spark.jdbc_options(queue).get(name) for name in REACHED}
    options = {name: value for name, value in reached.items() if value} | {"dbtable": view}
    if "sqlite" in options["url"]:
        options["customSchema"] = TYPES[view]
    return spark.read.format("jdbc").options(**options).load().toPandas()


def of_sql(queue, view):
    """A view by a plain connection, as Grafana has one."""
    cursor = queue._meta.database.execute_sql(f"SELECT * FROM {view}")
    return pd.DataFrame(cursor.fetchall(), columns=[column[0] for column in cursor.description])


def of_duckdb(events: Any, sql: str) -> list[Any]:
    """DuckDB reads a frame: its own extensions for other databases are downloads."""
    with duckdb.connect() as connection:
        connection.register("events", events)
        return connection.execute(sql).fetchall()


def test_stock_readers_have_the_numbers_of_a_report(spark, queue, tmp_path):
    report = xq.spark.report(spark, {"q": queue}, out=tmp_path / "report")
    moved: Any = report.tables["throughput"].toPandas()
    told = {name: int(moved[name].sum()) for name in COUNTED}
    stays: Any = dict(report.tables["states"].groupBy("state").sum("n").collect())
    for hourly, events in (
        (of_jdbc(spark, queue, "task_xq_hourly"), of_jdbc(spark, queue, "task_xq_events")),
        (of_sql(queue, "task_xq_hourly"), of_sql(queue, "task_xq_events")),
    ):
        assert {name: int(hourly[name].sum()) for name in COUNTED} == told
        found = dict(of_duckdb(events, "SELECT source, COUNT(*) FROM events WHERE seconds >= 0 GROUP BY source"))
        assert found == stays
        ((longest,),) = of_duckdb(events, "SELECT MAX(seconds) FROM events WHERE source = 'Taken'")
        assert longest == pytest.approx(events[events["source"] == "Taken"]["seconds"].max())
        assert pd.to_datetime(events["at"], utc=True).max().timestamp() * 1e6 == pytest.approx(events["at_us"].max())
