"""Spark Connect, as `make spark-connect` runs it: the program has no Spark of its own, but a server has."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from pyspark.errors import PySparkException

import xq
from tests.spark.cluster import without_xq
from tests.steps import transitions

FEATURES = {"keep": True, "buried": True, "history": True}


@pytest.fixture(scope="module")
def connected(tmp_path_factory):
    """A session of a server, which this process starts, and whose Python has no xq."""
    if find_spec("grpc") is None:
        pytest.skip("grpc is not installed: make spark-connect")
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("PYSPARK_PYTHON", without_xq(folder / "python"))
        patch.chdir(folder)
        session = xq.spark.session(remote="local[2]")
    yield session
    session.stop()


@pytest.fixture
def queue(make_live):
    return make_live(FEATURES)


def test_a_frame_is_put_read_and_worked_off(connected, queue):
    frame = connected.range(10).selectExpr("concat('n', id) AS name", "CAST(id AS INT) AS size")
    frame.write.format("xq").options(**xq.spark.options(queue), job="once").mode("append").save()
    assert xq.spark.consume(connected, queue, lambda df: df.selectExpr("id", "upper(name) AS name")) == {"ack": 10}
    read = connected.read.format("xq").options(**xq.spark.options(queue)).load()
    assert sorted((row.name, row.state) for row in read.collect()) == [(f"N{i}", "Done") for i in range(10)]
    assert transitions(queue) == {"X-R": 10, "R-T": 10, "T-D": 10}


def test_a_stream_needs_xq_on_the_server_as_spark_finds_no_sent_file_where_it_plans_streams(connected, queue, tmp_path):
    events = connected.readStream.format("xq").options(**xq.spark.options(queue, "history")).load()
    files = events.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
    with pytest.raises(PySparkException, match="No module named 'xq'"):
        files.trigger(availableNow=True).start(f"{tmp_path}/history").awaitTermination()


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("archives and reports", lambda spark, queue, out: xq.spark.report(spark, queue, out=out)),
        ("archives and reports", lambda spark, queue, out: xq.spark.archive(spark, queue, out)),
        ("archives and reports", lambda spark, queue, out: xq.spark.restore(spark, queue, out)),
        ("archives and reports", lambda spark, queue, out: xq.spark.tasks(spark, queue, out)),
        ("write_batch and stream", lambda spark, queue, out: xq.spark.stream(spark, queue, "activity", out)),
        ("write_batch and stream", lambda spark, queue, out: xq.spark.write_batch(queue, "sink", print)),
    ],
    ids=["report", "archive", "restore", "tasks", "stream", "write_batch"],
)
def test_what_needs_spark_in_the_program_is_refused(connected, queue, tmp_path, what, call):
    with pytest.raises(xq.ConfigurationError, match=f"{what} do not work with Spark Connect: start another session"):
        call(connected, queue, str(tmp_path))
    assert "activity" not in queue._meta.database.get_tables()
