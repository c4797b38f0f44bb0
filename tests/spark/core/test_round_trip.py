"""What a pipeline does, once: Spark writes tasks, consumes and reads them, reports on them and archives them."""

from __future__ import annotations

import pytest

import xq


@pytest.fixture
def queue(make_live):
    return make_live({"keep": True, "buried": True, "history": True})


def test_tasks_go_through_spark_from_the_frame_to_the_archive(spark, queue, tmp_path):
    queue.put({"name": "n6"})
    queue.take().bury().dig()
    assert queue.take().ack().status == "D"
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
        ("n6", "Done"),
    }
    report = xq.spark.report(spark, {"</script>": queue}, out=tmp_path / "report")
    (shares,) = report.tables["shares"].collect()
    assert (shares.done, shares.buried) == (pytest.approx(6 / 7), pytest.approx(1 / 7)), "a task's last end counts"
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>"), "the name of a queue ends no script"

    xq.spark.archive(spark, queue, tmp_path / "archive")
    assert queue.xq.stats().counts["D"] == 0
    assert xq.spark.tasks(spark, queue, archive=tmp_path / "archive").count() == 7
    xq.spark.restore(spark, queue, tmp_path / "archive")
    assert queue.xq.stats().counts["D"] == 6
    assert queue.xq.check() == []
