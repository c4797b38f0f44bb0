"""Each thing that a pipeline does, once: Spark writes, consumes and reads tasks, reports on them and archives them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

import xq
from xq.cli import main


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


def test_a_frame_has_all_rows_after_queries_that_filtered_them_and_those_of_later(spark, queue):
    for parts in (1, 3):
        first, second, *_ = (task.id for task in queue.xq.put_many([{"name": name} for name in "abc"]))
        tasks = spark.read.format("xq").options(**xq.spark.options(queue), partitions=parts).load()
        assert [tasks.where(f"id = {id}").count() for id in (first, second)] == [1, 1]
        assert tasks.where(f"id = {first}").union(tasks.where(f"id = {second}")).count() == 2
        queue.xq.put_many([{"name": "d"}])
        assert tasks.count() == queue.select().count()


def test_a_report_counts_the_last_end_of_each_task(spark, ended, tmp_path):
    report = xq.spark.report(spark, {"</script>": ended}, out=tmp_path / "report")
    (shares,) = report.tables["shares"].collect()
    assert (shares.done, shares.buried) == (pytest.approx(6 / 7), pytest.approx(1 / 7))
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>"), "the name of a queue ends no script"


def test_the_command_names_what_it_tells_of_a_report(spark, ended, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(globals(), "queued", ended)
    words = ["--thresholds", "not_done=0.1", "--fail-if-red", "--json"]
    with pytest.raises(SystemExit) as exited:
        main(["spark", "report", str(tmp_path / "report"), f"{__name__}:queued", *words])
    told = json.loads(capsys.readouterr().out)
    (found,) = told["queues"].values()
    assert (exited.value.code, found["red"], told["thresholds"]["not_done"]) == (3, ["failures"], 0.1)
    assert datetime.fromisoformat(told["since"]) < datetime.fromisoformat(told["until"])
    (failed,), (busiest,) = found["failed"], found["busiest"]
    assert (failed["ended"], failed["not_done"], busiest["buried"], found["shares"]["expired"]) == (7, 1, 2, 0)


def test_ended_tasks_go_to_an_archive_and_come_back(spark, ended, tmp_path):
    xq.spark.archive(spark, ended, tmp_path)
    assert ended.xq.count("D") == 0
    assert xq.spark.tasks(spark, ended, archive=tmp_path).count() == 7
    xq.spark.restore(spark, ended, tmp_path)
    assert ended.xq.count("D") == 6
    assert ended.xq.check() == []


def worked(df: Any) -> Any:
    return df.selectExpr("id", "size * 2 AS size", "IF(size = 2, 'two', NULL) AS xq_error")


def test_commands_put_a_file_once_and_work_the_tasks_off(spark, queue, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(globals(), "queued", queue)
    target, file = f"{__name__}:queued", tmp_path / "a.csv"
    file.write_text("name,size\n007,1\n008,2\n")

    def ends(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main(["spark", *words])
        return ended.value.code

    put = ("put", target, str(file), "--format", "csv", "--job", "tonight", "--partitions", "2")
    for now in (2, 0):
        assert ends(*put, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["rows"], told["partitions"], told["complete"], told["rows_now"]) == (2, 2, True, now)
    assert ends(*put) == 0
    assert capsys.readouterr().out.startswith("0 put: the job tonight was completed at")
    assert "tonight was completed at" in ends(*put, "--on-done", "raise")
    assert sorted((task.name, task.size) for task in queue.select()) == [("007", 1), ("008", 2)]
    assert ends("consume", target, f"{__name__}:worked", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"ack": 1, "bury": 1}
    assert ends("consume", target, f"{__name__}:worked", "--batch", "0") == 2
    file.write_text("name,size\n009,many\n")
    assert ends(*put[:-3], "other", "--partitions", "1").startswith("xq: NumberFormatException: [CAST_INV")
    assert ends("put", target, str(tmp_path / "none"), "--job", "none").startswith("xq: AnalysisException: [PATH_NOT_F")
    assert sorted(task.size for task in queue.select()) == [2, 4]
