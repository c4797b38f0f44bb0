"""A foreign key holds a role, by its name or by that of its column."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq

KEYS = {"a number": lambda: pw.AutoField(), "a text": lambda: pw.CharField(max_length=40, primary_key=True)}


def queue(make, key, role, named, **features) -> tuple[Any, list[Any]]:
    """A queue whose role a foreign key holds, and two rows that it may refer to."""
    meta = type("Meta", (), {"database": make.db, "table_name": "customer"})
    Customer: Any = type("Customer", (pw.Model,), {"id": KEYS[key](), "Meta": meta})
    reference = pw.ForeignKeyField(Customer, null=True, column_name="its_customer")
    make.db.create_tables([Customer])
    fields = {"status": "status", "runat": "runat", role: named}
    Task = make({"keep": True, **features}, fields=fields, attributes={"customer": reference, "tube": None})
    made = [Customer.create(**({"id": name} if key == "a text" else {})) for name in ("ann", "bob")]
    return Task, made


@pytest.mark.of_peewee("a value is an instance of another model")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("named", ["customer", "its_customer"])
def test_one_task_of_each_related_row_runs_at_a_time(make, key, named):
    Task, (ann, bob) = queue(make, key, "utube", named, utube=True, rate={"limit": "1/h", "by": "utube"})
    Task.put({"customer": ann, "name": "1"})
    Task.put({"its_customer": ann.id, "name": "2"})
    Task.xq.put_many([{"customer": ann, "name": "3"}, {"customer": bob, "name": "4"}])
    first, other = Task.take(), Task.take()
    assert (first.name, first.customer, other.name, Task.take()) == ("1", ann, "4", None)
    Task.xq.clock.tick(3600)
    assert Task.take() is None  # the first one is not done
    first.ack()
    assert (Task.take().name, Task.take()) == ("2", None)
    assert Task.xq.check() == []


@pytest.mark.of_peewee("a value is an instance of another model")
@pytest.mark.parametrize("key", KEYS)
def test_a_related_row_has_one_task_with_unique(make, key):
    Task, (ann, bob) = queue(make, key, "unique", "customer", unique=True)
    Task.xq.put_many([{"customer": ann}, {"customer": bob}])
    with pytest.raises(xq.Duplicate):
        Task.put({"customer": ann})


@pytest.mark.of_peewee("a value is an instance of another model")
def test_a_related_row_with_a_text_as_key_is_a_tube_and_one_with_a_number_is_not(make):
    Task, (ann, bob) = queue(make, "a text", "tube", "customer")
    Task.xq.put_many([{"customer": bob, "name": "1"}, {"customer": ann, "name": "2"}])
    assert (Task.take(tube="ann").name, Task.take(tube="ann")) == ("2", None)
    with pytest.raises(xq.ConfigurationError, match="role 'tube' is a field of type text"):
        queue(make, "a number", "tube", "customer")
