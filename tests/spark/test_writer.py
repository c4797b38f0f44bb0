"""df.write.format("xq"): the rows of a frame become tasks, each once, or none at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.errors import PySparkException

import xq
from tests import conftest
from tests.conftest import DATABASES, SHARED, live
from tests.spark.failing import ROWS, frame
from tests.steps import STUCK, eventually, is_exact, transitions, waiter
from xq.tubes import Tubes

shared_db = conftest.shared_db  # on the servers as well


def write(df: Any, queue: Any, mode: str = "append", **options: Any) -> None:
    df.write.format("xq").options(**xq.spark.options(queue)).options(**options).mode(mode).save()


def staged_rows(Task: Any) -> int:
    """How many rows jobs have left behind."""
    stage = Task.xq.pipeline.bulk().dialect.staging.stage
    return int(Task._meta.database.execute_sql(f"SELECT COUNT(*) FROM {stage}").fetchone()[0])


def test_rows_become_tasks_through_the_features(spark, make_live):
    features = {"delayed": True, "ttl": 100, "utube": True, "history": True}
    Task = make_live(features, roles=("runat", "priority", "tube", "utube", "ttl"), tube_stats=["a"])
    waiting = waiter(Task, lambda: Task.take(timeout=STUCK))
    df = spark.range(0, 20, 1, 2).selectExpr(
        "concat('n', id) AS name",
        "CAST(id AS SMALLINT) AS size",
        "CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END AS tube",
        "CAST(id % 3 AS STRING) AS utube",
        "CASE WHEN id >= 10 THEN 3600 END AS delay",
        "CASE WHEN id = 5 THEN DOUBLE('Infinity') END AS ttl",
    )
    write(df, Task)
    assert waiting.result() is not None
    stats = Task.xq.stats()
    assert (stats.counts["R"] + stats.counts["T"], stats.counts["W"]) == (10, 10)
    assert {move: n for move, n in stats.transition.items() if n} == {"X-R": 10, "X-W": 10, "R-T": 1}
    assert stats.tube["a"].transition["X-R"] == 5
    found = {task.name: task for task in Task.select()}
    assert [found[f"n{i}"].size for i in range(20)] == [*range(20)]
    assert [found[f"n{i}"].runat is None for i in (4, 5, 15)] == [False, True, False]
    assert {row.event for row in Task.xq.history() if row.source == "X"} == {"put"}
    assert is_exact(Task)


def test_a_job_that_has_a_name_is_put_once_and_others_each_time(spark, make_live):
    Task = make_live({"unique": True}, roles=("unique",))
    df = spark.range(3).selectExpr("concat('j', id) AS job", "'a' AS name")
    for _ in range(2):
        write(df, Task, job="tonight")
    with pytest.raises(PySparkException, match="already holds the unique value 'j"):
        write(df, Task)
    write(df.union(spark.sql("SELECT 'new', 'b'")), Task, on_conflict="skip")
    assert sorted(task.name for task in Task.select()) == ["a", "a", "a", "b"]
    write(df.where("job = ''"), Task)
    assert transitions(Task) == {"X-R": 4}
    assert staged_rows(Task) == 0


REFUSED = [
    ("'R' AS status", "append", "'status' is the queue's own"),
    ("'a' AS name", "overwrite", "overwrites none: write with mode"),
    ("id / 3 AS size", "append", "'size' of Task cannot hold"),
    ("raise_error('no more') AS name", "append", "no more"),
]


def test_what_put_could_not_take_is_refused_and_nothing_is_put(spark, make_live):
    Task = make_live()
    for column, mode, words in REFUSED:
        with pytest.raises(PySparkException, match=words):
            write(spark.range(0, 5, 1, 2).selectExpr(column), Task, mode)
    assert Task.select().count() == 0
    assert transitions(Task) == {}
    assert staged_rows(Task) == 0


def test_a_frame_fills_a_tube(spark, shared_db):
    tube = Tubes(shared_db).create_tube("mail", "fifottl")
    write(spark.range(2).selectExpr("to_json(named_struct('to', id)) AS data", "3600 AS ttl"), tube)
    taken: list[Any] = [tube.take(0) for _ in range(2)]
    assert [task.data for task in taken] == [{"to": 0}, {"to": 1}]


def test_nothing_is_lost_nor_doubled_when_tasks_fail_and_a_driver_is_killed(spark, tmp_path, monkeypatch):
    with ExitStack() as stack:
        queues = []
        for name in SHARED:
            (folder := tmp_path / name).mkdir()
            queues.append(live(stack.enter_context(DATABASES[name](folder)))({"id": "auto_increment"}))
        told = [tmp_path / f"told{i}" for i in range(len(queues))]
        with monkeypatch.context() as shared:
            shared.setenv("XQ_SPARK_KEY", "of this test and the driver")
            options = [{**xq.spark.options(Task), "told": str(path)} for Task, path in zip(queues, told, strict=True)]
            mine = dict(os.environ)
        (file := tmp_path / "options.json").write_text(json.dumps(options))
        with (tmp_path / "log").open("w") as log:
            command = [sys.executable, "-m", "tests.spark.failing", str(file)]
            environment = {k: v for k, v in mine.items() if not k.startswith(("PYSPARK_GATEWAY", "SPARK_"))}
            driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            eventually(lambda: driver.poll() is not None or all(path.exists() for path in told), within=4 * STUCK)
            assert driver.poll() is None, (tmp_path / "log").read_text()[-5000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        for Task in queues:
            assert transitions(Task) == {"X-R": ROWS}  # of the tasks that were tried again
            assert staged_rows(Task) == ROWS
            for _ in range(2):
                write(frame(spark, "killed"), Task, job="killed")
            assert transitions(Task) == {"X-R": 2 * ROWS}
            assert sorted((task.name, task.size) for task in Task.select()) == [
                (name, size) for name in ("killed", "tried") for size in range(ROWS)
            ]
            assert is_exact(Task)
            assert staged_rows(Task) == 0
