"""What doctor finds on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import task
from tests.steps import eventually
from xq.engine import inspection


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # MariaDB shows them to those with PROCESS
def test_doctor_finds_a_transaction_that_stays_open(make_live, monkeypatch):
    Task, db = make_live(), make_live.db
    Task.put(task())
    monkeypatch.setattr(inspection, "LONG", 0.0)

    def found() -> list[Any]:
        return [each.do for each in Task.xq.doctor() if "has a transaction open for" in each.what]

    other = type(db)(db.database, **db.connect_params)
    with other.connection_context(), other.atomic():
        other.execute_sql("UPDATE task SET name = 'z'")
        assert eventually(found)[0].startswith("end it: ")
    assert eventually(lambda: not found())
