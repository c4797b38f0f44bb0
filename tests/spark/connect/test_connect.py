"""Spark Connect, as `make spark-connect` runs it: the program has no Spark of its own, but a server has."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

import xq
from tests.spark.cluster import without_xq
from tests.steps import transitions


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
    return make_live({"keep": True, "buried": True, "history": True})


def test_a_frame_is_put_read_and_worked_off(connected, queue):
    frame = connected.range(10).selectExpr("concat('n', id) AS name", "CAST(id AS INT) AS size")
    with pytest.raises(xq.ConfigurationError, match="without partitions=, do not work with Spark Connect"):
        xq.spark.put(connected, queue, frame, "once")
    done = xq.spark.put(connected, queue, frame, "once", 2)
    assert done
    assert done.rows == 10
    assert xq.spark.consume(connected, queue, lambda df: df.selectExpr("id", "upper(name) AS name")) == {"ack": 10}
    read = connected.read.format("xq").options(**xq.spark.options(queue)).load()
    assert sorted((row.name, row.state) for row in read.collect()) == [(f"N{i}", "Done") for i in range(10)]
    assert transitions(queue) == {"X-R": 10, "R-T": 10, "T-D": 10}


ARCHIVES, STREAMS = "archives and reports", "streams into a table"
REFUSED: dict[str, tuple[str, Callable[..., object]]] = {
    "report": (ARCHIVES, lambda spark, queue, out: xq.spark.report(spark, queue, out=out)),
    "archive": (ARCHIVES, lambda spark, queue, out: xq.spark.archive(spark, queue, out)),
    "restore": (ARCHIVES, lambda spark, queue, out: xq.spark.restore(spark, queue, out)),
    "tasks": (ARCHIVES, lambda spark, queue, out: xq.spark.tasks(spark, queue, out)),
    "stream": (STREAMS, lambda spark, queue, out: xq.spark.stream(spark, queue, "activity", out)),
}


@pytest.mark.parametrize(("what", "call"), REFUSED.values(), ids=REFUSED)
def test_what_needs_spark_in_the_program_is_refused(connected, queue, tmp_path, what, call):
    with pytest.raises(xq.ConfigurationError, match=f"{what} do not work with Spark Connect: start another session"):
        call(connected, queue, str(tmp_path))
    assert "activity" not in queue._meta.database.get_tables()
