"""MariaDB and MySQL: a put reads nothing back if the caller has its row, nor does an ack; and what either returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import peewee as pw
import pytest

from tests.conftest import fresh
from tests.factories import task
from tests.steps import row
from tests.support.trips import Counter

db = fresh(["mariadb", "mysql"])


@pytest.fixture
def counter(monkeypatch):
    return Counter(monkeypatch)


def sent(counter: Counter, call: Any) -> str:
    with counter.counting() as trips:
        call()
    return " ".join(trips.texts)


def test_a_put_and_an_ack_read_nothing_that_the_caller_has(counter, make):
    Task = make({"buried": True})
    Task.put(task())
    assert "SELECT" not in sent(counter, lambda: Task.put(task()))
    taken = Task.take()
    assert "`name`" not in sent(counter, lambda: taken.ack(update={"size": 7}))


# What a database makes of a value, or of none: a change to the table, and what a task brings.
CHANGED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("MODIFY name TEXT", {"name": "a ", "size": 7}),
    "a space at the end": ("MODIFY name CHAR(9)", {"name": "a "}),
    "the case of a word": ("MODIFY name ENUM('Red', 'Blue')", {"name": "red"}),
    "digits of a float": ("MODIFY ttl DOUBLE(9, 2) NULL", {"ttl": 0.125}),
    "the type of a number": ("MODIFY size DECIMAL(9, 2) NOT NULL", {"size": 7}),
    "a default": ("MODIFY job VARCHAR(9) DEFAULT 'none'", {}),
    "a default that is computed": ("MODIFY job VARCHAR(50) DEFAULT (CONCAT('a', 'b'))", {}),
    "a computed column": ("DROP COLUMN job, ADD COLUMN job VARCHAR(50) AS (CONCAT(name, '!')) STORED", {}),
    "what the mode cuts off": ("MODIFY name VARCHAR(3)", {"name": "abcdef"}),
}


@pytest.mark.parametrize("change", CHANGED)
def test_the_returned_task_is_the_row(make, change):
    sql, brought = CHANGED[change]
    make.db.execute_sql("SET SESSION sql_mode = ''")
    Task = make()
    make.db.execute_sql(f"ALTER TABLE task {sql}")
    for _ in range(2):
        put = Task.put({"name": "a", **brought})
        assert put.__data__ == row(Task, put).__data__


def test_the_returned_task_is_the_row_that_a_trigger_of_the_application_has_made(make):
    Task = make()
    make.db.execute_sql("CREATE TRIGGER named BEFORE INSERT ON task FOR EACH ROW SET NEW.name = UPPER(NEW.name)")
    assert [Task.put({"name": "a"}).name for _ in range(2)] == ["A", "A"]


@pytest.mark.parametrize("key", [0, 5, None])
def test_the_returned_task_has_the_key_of_the_row(make, key):
    Task = make()
    Task.put(task())
    put = Task.put({"id": key, "name": "named"})
    assert Task.get(Task.name == "named").id == put.id > 0


def test_an_acked_task_is_as_its_taker_has_it_with_the_update(make):
    Task = make(attributes={"at": pw.DateTimeField(null=True), "price": pw.DecimalField(null=True)})
    Task.put(task(at="2030-01-01 00:00:00", price="1.5"))
    taken = Task.take()
    acked = taken.ack(update={"size": 7})
    assert acked.__data__ == {**taken.__data__, "size": 7}
    assert Task.select().count() == 0


def test_a_task_that_whoever_kills_has_not_taken_is_as_the_table_has_it(make):
    Task = make()
    Task.put(task())
    taken = Task.take()
    Task.release(taken.id, update={"size": 7})
    assert (taken.kill().size, Task.select().count()) == (7, 0)
