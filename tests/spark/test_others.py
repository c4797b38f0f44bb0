"""DuckDB, Polars and pandas read archives and reports, as docs/spark.md says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import xq
from tests.spark.archives import FEATURES, done
from tests.support import questions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"```python\n(import (?:duckdb|polars|pandas)\n.+?)```", re.DOTALL)
BLOCKS = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))

SQL = re.compile(r"^((?:CREATE TABLE|MSCK REPAIR TABLE) [^;]+);", re.MULTILINE)


def test_the_document_has_one_program_for_each():
    assert [block.split()[1] for block in BLOCKS] == ["duckdb", "polars", "pandas"]


def test_an_archive_and_a_report_are_read_without_spark(spark, make_live, tmp_path):
    Task, out, report = make_live(FEATURES), tmp_path / "pages", tmp_path / "report"
    done(Task, 2)
    xq.spark.archive(spark, Task, out)
    done(Task, 3)
    xq.spark.archive(spark, Task, out)
    (lives,) = xq.spark.report(spark, Task, out=report, archive=out).tables["lives"].select("n", "p90").collect()
    day = Counter(str(row.day) for row in xq.spark.tasks(spark, Task, archive=out).where("state = 'Done'").collect())
    for block in BLOCKS:
        known: dict[str, Any] = {}
        exec(block.replace("data/pages", str(out)).replace("report/", f"{report}/"), known)
        assert {str(day): n for day, n in known["days"]} == day, block
        assert known["acks"] == 5, block
        assert known["lives"] == [tuple(lives)], block


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_duckdb_answers_the_questions_to_an_archived_history(spark, make_live, tmp_path):
    Page = make_live({"keep": True, "history": True}, attributes={"table_name": questions.TABLE})
    History = Page.xq.History
    names = [getattr(History, name) for name in questions.COLUMNS]
    later = (len(questions.history()) + 1, 1_795_180_000_000_000, "10", "web", "X", "R", "put", *[None] * 4)
    History.insert_many([*questions.history(), later], names).execute()  # the newest row stays
    assert xq.spark.archive(spark, Page, tmp_path).history == len(questions.history())
    with duckdb.connect() as db:
        db.execute(f"CREATE VIEW page_xq_history AS SELECT * FROM '{tmp_path}/history/*/*/*.parquet'")
        for title, (sql, columns, answers) in questions.questions().items():
            cursor = db.execute(sql)
            found = questions.told(cursor.fetchall())
            assert ([name for name, *_ in cursor.description or ()], found) == (columns, answers), title


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_the_catalog_of_spark_takes_an_archive_as_a_table(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), tmp_path / "pages"
    create, repair = SQL.findall(DOCUMENT.read_text(encoding="utf-8"))
    done(Task, 2)
    first = xq.spark.archive(spark, Task, out).history
    try:
        spark.sql(create.replace("/data/pages", str(out)))
        spark.sql(repair)
        assert spark.table("pages_history").count() == first
        second = xq.spark.archive(spark, Task, out).history
        spark.sql(repair)
        assert spark.table("pages_history").count() == first + second
    finally:
        spark.sql("DROP TABLE IF EXISTS pages_history")
