"""The SQL of docs/questions.md answers as it says there, in Spark SQL over a history and its archive."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import xq
from tests.support import questions

MOMENT = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)


def test_each_question_to_a_history_and_its_archive_has_the_answer_of_the_document(spark, make_live, tmp_path):
    Page = make_live({"keep": True, "history": True}, attributes={"table_name": questions.TABLE})
    History = Page.xq.History
    History.insert_many(questions.history(), [getattr(History, name) for name in questions.COLUMNS]).execute()
    archived = xq.spark.archive(spark, Page, tmp_path, before=MOMENT)
    assert 0 < archived.history < len(questions.history())
    (block,) = re.findall(r"^```python\n(.+?)^```", questions.DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    exec(block.replace("data/pages", str(tmp_path)), {"xq": xq, "spark": spark, "Page": Page})
    for title, (sql, names, answers) in questions.questions().items():
        found = spark.sql(sql)
        assert (found.columns, questions.told(found.collect())) == (names, answers), title
