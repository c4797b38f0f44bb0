"""What a pipeline does, once: Spark writes tasks, consumes and reads them, reports on them and archives them."""

from __future__ import annotations

import pytest

import xq


@pytest.fixture
def queue(make_shared):
    return make_shared({"keep": True, "buried": True, "history": True})


def test_tasks_go_through_spark_from_the_frame_to_the_archive(spark, queue, tmp_path):
    rows = spark.range(0, 6, 1, 2).selectExpr("concat('n', id) AS name", "CAST(id AS INT) AS size")
    rows.write.format("xq").options(**xq.spark.options(queue)).mode("append").save()
    assert queue.xq.stats().counts["R"] == 6

    def work(df):
        return df.selectExpr("id", "concat(name, '!') AS name", "IF(size = 5, 'ValueError: five', NULL) AS xq_error")

    assert xq.spark.consume(spark, queue, work) == {"ack": 5, "bury": 1}
    read = spark.read.format("xq").options(**xq.spark.options(queue)).load()
    assert {(row.name, row.state) for row in read.collect()} == {
        *((f"n{i}!", "Done") for i in range(5)),
        ("n5!", "Buried"),
    }
    report = xq.spark.report(spark, queue, out=tmp_path / "report")
    (shares,) = report.tables["shares"].collect()
    assert (shares.done, shares.buried) == (pytest.approx(5 / 6), pytest.approx(1 / 6))
    assert (tmp_path / "report" / "index.html").exists()

    xq.spark.archive(spark, queue, tmp_path / "archive")
    assert queue.xq.stats().counts["D"] == 0
    assert xq.spark.tasks(spark, queue, archive=tmp_path / "archive").count() == 6
    xq.spark.restore(spark, queue, tmp_path / "archive")
    assert queue.xq.stats().counts["D"] == 5
    assert queue.xq.check() == []
