"""Each thing that a pipeline does, once: Spark writes, consumes and reads tasks, reports on them and archives them."""

from __future__ import annotations

import pytest

import xq


@pytest.fixture
def queue(make_live):
    return make_live({"keep": True, "buried": True, "history": True})


@pytest.fixture
def ended(queue):
    """A queue whose tasks have ended: six are done, of which one was buried before, and one is buried."""
    queue.xq.put_many([{"name": f"n{i}"} for i in range(7)])
    first, *others = queue.xq.take_many(7)
    queue.xq.ack_many(others[:5])
    others[5].bury()
    first.bury().dig()
    queue.take().ack()
    return queue


def test_tasks_go_through_spark_from_a_frame_to_their_end(spark, queue):
    rows = spark.range(0, 6, 1, 2).selectExpr("concat('n', id) AS name", "CAST(id AS INT) AS size")
    rows.write.format("xq").options(**xq.spark.options(queue)).mode("append").save()
    assert queue.xq.count("R") == 6

    def work(df):
        return df.selectExpr("id", "concat(name, '!') AS name", "IF(size = 5, 'ValueError: five', NULL) AS xq_error")

    assert xq.spark.consume(spark, queue, work) == {"ack": 5, "bury": 1}
    read = spark.read.format("xq").options(**xq.spark.options(queue)).load()
    ended = {*((f"n{i}!", "Done") for i in range(5)), ("n5!", "Buried")}
    assert {(row.name, row.state) for row in read.collect()} == ended


def test_a_report_counts_the_last_end_of_each_task(spark, ended, tmp_path):
    report = xq.spark.report(spark, {"</script>": ended}, out=tmp_path / "report")
    (shares,) = report.tables["shares"].collect()
    assert (shares.done, shares.buried) == (pytest.approx(6 / 7), pytest.approx(1 / 7))
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>"), "the name of a queue ends no script"


def test_ended_tasks_go_to_an_archive_and_come_back(spark, ended, tmp_path):
    xq.spark.archive(spark, ended, tmp_path)
    assert ended.xq.count("D") == 0
    assert xq.spark.tasks(spark, ended, archive=tmp_path).count() == 7
    xq.spark.restore(spark, ended, tmp_path)
    assert ended.xq.count("D") == 6
    assert ended.xq.check() == []
