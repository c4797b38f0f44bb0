"""put and put_many: what they take, what they make of it, and who makes the key."""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import is_exact, row
from tests.support.calls import sequence

SHAPES = {
    "mapping": lambda Task, **values: values,
    "instance": lambda Task, **values: Task(**values),
    "list": lambda Task, **values: sequence(Task, **values),
    "tuple": lambda Task, **values: tuple(sequence(Task, **values)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_may_be_a_mapping_an_instance_or_a_sequence(make, shape):
    Task = make(roles=("runat", "priority", "tube"))
    brought = SHAPES[shape](Task, name="a", size=3, priority=2, tube="left")
    for put in (Task.put(brought), *Task.xq.put_many([brought, {}])[:1]):
        assert (put.name, put.size, put.priority, put.tube, put.status) == ("a", 3, 2, "left", "R")
        assert row(Task, put).__data__ == put.__data__
        assert put is not brought
    assert shape != "instance" or (brought.id, brought.put().name) == (None, "a"), "it stays as it is, and puts itself"
    assert Task.put(SHAPES[shape](Task, id=77, name="a", size=1)).id == 77


def test_fields_that_are_not_given_take_the_defaults_of_the_model(make):
    numbers = itertools.count(1)
    Task = make(attributes={"number": pw.IntegerField(default=lambda: next(numbers))})
    assert [Task.put().number, Task.put({}).number] == [1, 2]
    assert Task.put().size == 0
    many = [put.number for put in Task.xq.put_many([{}, {"number": -1}, {}])]
    assert many[1] == -1
    assert len(set(many)) == 3


def test_a_mapping_may_use_the_names_of_columns(make):
    Task = make(attributes={"link": pw.TextField(column_name="the_url", null=True)})
    assert Task.put({"the_url": "a"}).link == "a"
    assert Task.put({"link": "b"}).link == "b"


@pytest.mark.of_peewee("a value is an instance of another model")
def test_a_foreign_key_may_be_an_instance_or_a_key(make):
    class Author(pw.Model):
        class Meta:
            database = make.db

    make.db.create_tables([Author])
    ada = Author.create()
    Task = make(attributes={"author": pw.ForeignKeyField(Author, null=True)})
    for brought in ({"author": ada}, {"author": ada.get_id()}, {"author_id": ada.get_id()}, Task(author=ada)):
        assert Task.put(brought).author == ada


VALUES: dict[str, Any] = {
    "BlobField": (pw.BlobField, b"a\0b"),
    "BlobField of a bytearray": (pw.BlobField, bytearray(b"a\0b")),
    "BooleanField": (pw.BooleanField, True),
    "DateField": (pw.DateField, datetime.date(2024, 2, 29)),
    "DateTimeField": (pw.DateTimeField, datetime.datetime(2024, 2, 29, 1, 2, 3, 4)),
    "DecimalField": (pw.DecimalField, decimal.Decimal("1.25000")),
    "DoubleField": (pw.DoubleField, 0.1),
    "FixedCharField": (pw.FixedCharField, "a"),
    "IPField": (pw.IPField, "127.0.0.1"),
    "SmallIntegerField": (pw.SmallIntegerField, -5),
    "TextField": (pw.TextField, "é 🦆 'x' \" \\ %s :now\n"),
    "TimeField": (pw.TimeField, datetime.time(1, 2, 3)),
    "TimestampField": (pw.TimestampField, datetime.datetime(2024, 2, 29, 1, 2, 3)),
    "UUIDField": (pw.UUIDField, uuid.UUID(int=5)),
    "BinaryUUIDField": (pw.BinaryUUIDField, uuid.UUID(int=5)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_any_field_comes_back_as_peewee_would_bring_it(make, kind):
    field, value = VALUES[kind]
    Task = make({"keep": True}, attributes={"value": field(null=True)})
    Task.create(value=value)
    wanted = Task.get().value
    assert Task.put({"value": value}).value == Task.put(Task(value=value)).value == wanted
    assert [each.value for each in Task.xq.put_many([{"value": value}, {"value": value}])] == [wanted] * 2
    assert [each.value for each in Task.xq.take_many(5)] == [wanted] * 5
    assert Task.ack(1, update={"value": value}).value == Task.get().value == wanted


# keys


KEYS: dict[str, Callable[[], Any]] = {
    "auto_increment": lambda: pw.AutoField(),
    "big auto_increment": lambda: pw.BigAutoField(),
    "time64": lambda: pw.BigIntegerField(primary_key=True),
    "uuid": lambda: pw.UUIDField(primary_key=True),
    "text uuid": lambda: pw.CharField(max_length=36, primary_key=True),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_kind_is_made_in_the_order_of_put_and_names_its_task(make, kind):
    Task = make({"buried": True} | ({"id": "time64"} if kind == "time64" else {}), key=KEYS[kind]())
    put = [Task.put(task()).id for _ in range(20)] + [each.id for each in Task.xq.put_many(tasks(300))]
    assert [each.id for each in Task.xq.take_many(320)] == put
    assert len(set(put)) == 320
    key = put[7]
    assert [Task.bury(key).id, Task.dig(key).id, Task.xq.peek(key).id, Task.kill(key).id] == [key] * 4
    if "uuid" in kind:
        assert (type(key), uuid.UUID(str(key)).version) == (str if kind == "text uuid" else uuid.UUID, 7)
        assert Task.xq.peek(uuid.UUID(str(put[8]))).id == put[8]


@pytest.mark.parametrize("kind", ["uuid", "text uuid"])
def test_the_order_of_uuids_is_the_order_of_put_though_the_clock_stands_still_or_is_set_back(make, kind, monkeypatch):
    Task = make({"id": "uuid"}, key=KEYS[kind]())
    now, put = int(datetime.datetime.now().timestamp() * 10**9), []
    for moment in (now, now - 3600 * 10**9):
        monkeypatch.setattr("xq.core.time.time_ns", lambda moment=moment: moment)
        put += [Task.put(task()).id for _ in range(5)] + [each.id for each in Task.xq.put_many(tasks(15))]
    assert [each.id for each in Task.xq.take_many(40)] == put


PAIR = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
# the features, the fields, a key
REQUIRED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "as the feature says": ({"id": "required"}, {}, {"id": 5}),
    "an integer that the database does not count": ({}, {"id": pw.IntegerField(primary_key=True)}, {"id": 5}),
    "of several fields": ({}, PAIR, {"site": "a", "page": 1}),
}


@pytest.mark.parametrize("why", REQUIRED)
def test_a_key_that_is_required_must_be_in_the_task(make, why):
    features, fields, key = REQUIRED[why]
    Task = make(features, model=make.model(**fields))
    with pytest.raises(xq.BadValue, match=[*key][-1]):
        Task.put(task(**dict([*key.items()][:-1])))
    put = Task.put(task(**key))
    assert {name: getattr(put, name) for name in key} == key


def test_a_callable_makes_the_key_from_the_mapping_of_the_task(make):
    Task = make({"id": lambda task: f"{task['name']}/{task['size']}"}, key=pw.CharField(primary_key=True))
    assert Task.put({"name": "a", "size": 2}).id == "a/2"
    assert Task.put({"name": "b"}).id == "b/0", "the defaults of the model are in it"
    assert Task.put({"id": "mine", "name": "c"}).id == "mine"
    assert [put.id for put in Task.xq.put_many([{"name": "d"}, {"name": "e"}])] == ["d/0", "e/0"]


@pytest.mark.parametrize(("made", "error"), [(1, xq.ConfigurationError), ("one", xq.BadType)])
def test_a_strategy_that_makes_only_taken_keys_or_none_is_told_so(make, made, error):
    Task = make({"id": lambda task: made})
    Task.put(task(id=1))
    with pytest.raises(error, match="id"):
        Task.put(task())
    assert Task.xq.count() == 1


def test_a_brought_key_that_is_taken_is_the_databases_error(make):
    Task = make()
    Task.put(task(id=1, name="first"))
    before = Task.stats()
    for call in (
        lambda: Task.put(task(id=1)),
        lambda: Task.xq.put_many([*tasks(500), task(id=1)]),
        lambda: Task.xq.put_many([task(id=9), task(id=9)]),
    ):
        with pytest.raises(pw.IntegrityError):
            call()
        assert Task.stats() == before
    with pytest.raises(xq.BadValue):
        Task.xq.put_many([*tasks(500), {"nonsense": 1}])
    assert [each.name for each in Task.select()] == ["first"]
    assert is_exact(Task)


# many


def test_tasks_of_one_call_may_bring_different_fields(make):
    Task = make()
    shapes: list[dict[str, Any]] = [{}, {"name": "a"}, {"name": None}, {"tube": None}]
    assert Task.xq.put_many(iter(())) == []
    put = Task.xq.put_many([{"id": 5000, "name": "a"}, {"name": "b"}, {"id": 4000, "name": "c"}])
    assert [each.name for each in put] == ["a", "b", "c"]
    for brought in itertools.permutations(shapes, 3):
        assert [put.name for put in Task.xq.put_many(brought)] == [each.get("name") for each in brought]


def test_thousands_of_tasks_are_put_at_once(make):
    Task = make()
    put = Task.xq.put_many(tasks(5000))
    assert len({each.id for each in put}) == 5000
    assert Task.xq.count("R") == Task.stats().transition["X-R"] == 5000
    assert [each.name for each in Task.xq.by_state("R")] == [each.name for each in put]
