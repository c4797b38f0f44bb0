"""The SQL of docs/questions.md answers as it says there, on every database."""

from __future__ import annotations

from typing import Any

from tests.support import questions


def asked(Task: Any, sql: str) -> tuple[list[str], list[tuple[str, ...]]]:
    cursor = Task._meta.database.cursor()
    cursor.execute(sql)  # without values: drivers would read % as a placeholder
    return [name for name, *_ in cursor.description], questions.told(cursor.fetchall())


def test_each_question_to_a_history_has_the_answer_of_the_document(make_shared):
    Page = make_shared({"keep": True, "history": True}, attributes={"table_name": questions.TABLE})
    History = Page.xq.History
    History.insert_many(questions.history(), [getattr(History, name) for name in questions.COLUMNS]).execute()
    found = questions.questions()
    assert len(found) == 10
    for title, (sql, names, answers) in found.items():
        assert asked(Page, sql) == (names, answers), title
