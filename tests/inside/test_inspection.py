"""What doctor finds on PostgreSQL: transactions that stay open, and dead rows."""

from __future__ import annotations

import pytest

from tests.factories import tasks
from tests.steps import eventually
from xq.engine import inspection


def found(Task, words):
    return [each for each in Task.xq.doctor() if words in each.what]


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)  # MariaDB shows them to those with PROCESS
def test_doctor_finds_a_transaction_that_stays_open(make_live, monkeypatch):
    Task, db = make_live(), make_live.db
    Task.xq.put_many(tasks(2))
    monkeypatch.setattr(inspection, "LONG", 0.0)
    other = type(db)(db.database, **db.connect_params)
    with other.connection_context(), other.atomic():
        other.execute_sql(f"UPDATE {Task._meta.table_name} SET name = 'z' WHERE id = 2")
        one = eventually(lambda: found(Task, "has a transaction open for"))[0]
        assert one.do.startswith("end it: ")
    assert eventually(lambda: not found(Task, "has a transaction open for"))


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_doctor_finds_dead_rows(make, db, monkeypatch):
    Task = make()
    db.execute_sql(f"ALTER TABLE {Task._meta.table_name} SET (autovacuum_enabled = off)")
    monkeypatch.setattr(inspection, "FEW", 10)
    Task.xq.put_many(tasks(100))
    Task.xq.truncate()
    Task.xq.put_many(tasks(10))
    (one,) = eventually(lambda: found(Task, "of the table are dead"))
    assert one.do == "lower autovacuum_vacuum_scale_factor of this table"


def test_a_percentile_is_the_nearest_rank():
    assert inspection.percentiles([100, 1]) == {50: 1, 99: 100}
    assert inspection.percentiles([1] * 99 + [20])[99] == 1
    assert inspection.percentiles([1] * 98 + [20] * 2)[99] == 20
