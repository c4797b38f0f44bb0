"""Bulk puts: rows staged by any process, and put all at once by one, without the model."""

from __future__ import annotations

from tests.support.bulk import put


def test_a_job_with_a_name_is_put_once_however_often_it_is_run(make_shared, caplog):
    Task = make_shared()
    assert [put(Task, ["name"], ("a",), ("b",), job="tonight") for _ in range(3)] == [2, 0, 0]
    assert caplog.messages == ["the job tonight was put before: none of its 2 rows is put again"] * 2
    assert put(Task, ["name"], ("a",), job="tomorrow") == 1
    assert Task.select().count() == 3
