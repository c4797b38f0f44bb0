"""put and put_many: what they take, what they make of it, and who makes the key."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import time
import uuid
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import is_exact, row
from tests.support.put import sequence

SHAPES = {
    "mapping": lambda Task, **values: values,
    "instance": lambda Task, **values: Task(**values),
    "list": lambda Task, **values: sequence(Task, **values),
    "tuple": lambda Task, **values: tuple(sequence(Task, **values)),
}


def test_a_put_task_is_ready_and_comes_back_as_it_is_stored(make):
    Task = make()
    put = Task.put(task(name="a", size=3))
    assert (put.name, put.size, put.status) == ("a", 3, "R")
    assert isinstance(put, Task)
    assert row(Task, put).__data__ == put.__data__


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_may_be_a_mapping_an_instance_or_a_sequence(make, shape):
    Task = make(roles=("runat", "priority", "tube"))
    put = Task.put(SHAPES[shape](Task, name="a", size=3, priority=2, tube="left"))
    assert (put.name, put.size, put.priority, put.tube, put.status) == ("a", 3, 2, "left", "R")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_key_that_the_task_brings_is_used(make, shape):
    Task = make()
    assert Task.put(SHAPES[shape](Task, id=77, name="a", size=1)).id == 77


def test_none_in_a_sequence_leaves_the_key_and_the_columns_of_the_queue_to_xq(make):
    Task = make({"ttl": 10}, roles=("runat", "owner", "attempts"))
    put = Task.put(sequence(Task, size=1))
    assert put.id is not None
    assert (put.status, put.runat, put.owner, put.attempts) == ("R", Task.xq.clock.now + 10, None, 0)


def test_a_put_instance_stays_as_it_is_and_what_comes_back_is_another(make):
    Task = make()
    brought = Task(name="a")
    put = Task.put(brought)
    assert put is not brought
    assert brought.id is None


def test_an_instance_puts_itself(make):
    Task = make()
    assert Task(name="a").put().name == "a"


def test_the_state_that_an_instance_carries_is_not_put(make):
    Task = make(roles=("runat", "owner", "attempts"))
    Task.put(task())
    taken = Task.take()
    taken.id = None
    again = Task.put(taken)
    assert (again.status, again.owner, again.attempts) == ("R", None, 0)


def test_fields_that_are_not_given_take_the_defaults_of_the_model(make):
    numbers = itertools.count(1)
    Task = make(attributes={"number": pw.IntegerField(default=lambda: next(numbers))})
    assert [Task.put().number, Task.put({}).number] == [1, 2]
    assert Task.put().size == 0
    many = [put.number for put in Task.xq.put_many([{}, {"number": -1}, {}])]
    assert many[1] == -1
    assert len(set(many)) == 3


def test_put_without_anything_puts_a_task_of_defaults(make):
    Task = make()
    assert Task.put().status == "R"


def test_a_mapping_may_use_the_names_of_columns(make):
    Task = make(attributes={"link": pw.TextField(column_name="the_url", null=True)})
    assert Task.put({"the_url": "a"}).link == "a"
    assert Task.put({"link": "b"}).link == "b"


@pytest.fixture
def authors(make):
    """A model that tasks may point to, and one author."""

    class Author(pw.Model):
        id = pw.AutoField()
        name = pw.TextField()

        class Meta:
            database = make.db

    make.db.create_tables([Author])
    return Author, Author.create(name="Ada")


def test_a_foreign_key_may_be_an_instance_or_a_key(make, authors):
    Author, ada = authors
    Task = make(attributes={"author": pw.ForeignKeyField(Author, null=True)})
    assert Task.put({"author": ada}).author == ada
    assert Task.put({"author": ada.id}).author == ada
    assert Task.put({"author_id": ada.id}).author == ada
    assert Task.put(Task(author=ada)).author_id == ada.id


def test_what_a_task_refers_to_may_be_saved_after_it_was_assigned(make, authors):
    Author, _ = authors
    Task = make(attributes={"author": pw.ForeignKeyField(Author, null=True)})
    grace = Author(name="Grace")
    new = Task(author=grace)
    grace.save()
    assert Task.put(new).author == grace


def test_a_foreign_key_may_be_the_key_of_a_task(make, authors):
    Author, ada = authors
    Task = make(key=pw.ForeignKeyField(Author, primary_key=True))
    Task.put({"id": ada})
    assert Task.take().id == ada
    assert Task.ack(ada).id_id == ada.id
    Task.put({"id": ada.id})
    assert Task.kill(ada.id).id == ada


def test_a_foreign_key_may_be_part_of_the_key_of_a_task(make, authors):
    Author, ada = authors
    key = {"author": pw.ForeignKeyField(Author), "page": pw.IntegerField()}
    Task = make(model=make.model(**key, meta={"primary_key": pw.CompositeKey("author", "page")}))
    Task.put({"author": ada, "page": 1})
    Task.put({"author": ada.id, "page": 2})
    assert Task.take().release().author == ada
    Task.xq.take_many(2)
    assert Task.ack((ada, 2)).page == 2
    assert [each.page for each in Task.xq.kill_many([(ada.id, 1)])] == [1]


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


def test_values_travel_as_the_fields_of_the_model_say(make):
    class Tags(pw.TextField):
        def db_value(self, value):
            return ",".join(value)

        def python_value(self, value):
            return value.split(",")

    Task = make(attributes={"tags": Tags(default=lambda: ["none"]), "done": pw.BooleanField(default=False)})
    assert Task.put({"tags": ["a", "b"], "done": True}).tags == ["a", "b"]
    assert Task.take().done is True
    assert Task.put({}).tags == ["none"]


# keys


def test_auto_increment_keys_are_the_databases(make):
    Task = make()
    first = Task.put(task()).id
    assert [Task.put(task()).id for _ in range(3)] == [first + 1, first + 2, first + 3]


KEYS = {
    "auto_increment": lambda: pw.AutoField(),
    "big auto_increment": lambda: pw.BigAutoField(),
    "time64": lambda: pw.BigIntegerField(primary_key=True),
    "uuid": lambda: pw.UUIDField(primary_key=True),
    "text uuid": lambda: pw.CharField(max_length=36, primary_key=True),
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_order_of_keys_is_the_order_of_put(make, kind):
    Task = make(key=KEYS[kind]())
    put = [Task.put(task()).id for _ in range(20)] + [each.id for each in Task.xq.put_many(tasks(300))]
    assert [each.id for each in Task.xq.take_many(320)] == put
    assert len(set(put)) == 320


@pytest.mark.parametrize("kind", ["uuid", "text uuid"])
def test_the_order_of_uuids_is_the_order_of_put_though_the_clock_stands_still_or_is_set_back(make, kind, monkeypatch):
    Task = make({"id": "uuid"}, key=KEYS[kind]())
    now, put = time.time_ns(), []
    for moment in (now, now - 3600 * 10**9):
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment)
        put += [Task.put(task()).id for _ in range(5)] + [each.id for each in Task.xq.put_many(tasks(15))]
    assert [each.id for each in Task.xq.take_many(40)] == put


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_key_names_a_task(make, kind):
    Task = make({"buried": True}, key=KEYS[kind]())
    key = Task.put(task()).id
    assert Task.take().id == key
    assert Task.bury(key).id == key
    assert Task.dig(key).id == key
    assert Task.xq.peek(key).id == key
    assert Task.kill(key).id == key


def test_time64_keys_are_nanoseconds_since_1970(make):
    Task = make({"id": "time64"}, key=pw.BigIntegerField(primary_key=True))
    before = time.time_ns()
    assert before <= Task.put(task()).id < before + 60_000_000_000


def test_a_big_auto_field_may_hold_time64_keys(make):
    Task = make({"id": "time64"}, key=pw.BigAutoField())
    before = time.time_ns()
    assert Task.put(task()).id >= before


def test_uuid_keys_are_of_version_7(make):
    Task = make(key=pw.UUIDField(primary_key=True))
    key = Task.put(task()).id
    assert isinstance(key, uuid.UUID)
    assert key.version == 7
    assert abs((key.int >> 80) / 1000 - time.time()) < 60


def test_a_text_key_holds_a_uuid(make):
    Task = make({"id": "uuid"}, key=pw.CharField(primary_key=True))
    key = Task.put(task()).id
    assert str(uuid.UUID(key)) == key
    assert Task.xq.peek(uuid.UUID(key)).id == key


def test_a_required_key_must_be_in_the_task(make):
    Task = make({"id": "required"})
    with pytest.raises(xq.BadValue, match="id"):
        Task.put(task())
    assert Task.put(task(id=5)).id == 5


def test_a_key_of_an_integer_field_is_required_by_itself(make):
    Task = make(key=pw.IntegerField(primary_key=True))
    with pytest.raises(xq.BadValue):
        Task.put(task())
    assert Task.put(task(id=5)).id == 5


def test_a_composite_key_is_required(make):
    Task = make(attributes={"site": pw.CharField(), "page": pw.IntegerField()}, **COMPOSITE(make))
    with pytest.raises(xq.BadValue, match="page"):
        Task.put({"site": "a"})
    put = Task.put({"site": "a", "page": 1})
    assert (put.site, put.page) == ("a", 1)


def COMPOSITE(make):
    return {
        "model": make.model(
            site=pw.CharField(),
            page=pw.IntegerField(),
            meta={"primary_key": pw.CompositeKey("site", "page")},
        )
    }


def test_a_callable_makes_the_key_from_the_mapping_of_the_task(make):
    Task = make({"id": lambda task: f"{task['name']}/{task['size']}"}, key=pw.CharField(primary_key=True))
    assert Task.put({"name": "a", "size": 2}).id == "a/2"
    assert Task.put({"name": "b"}).id == "b/0", "the defaults of the model are in it"
    assert Task.put({"id": "mine", "name": "c"}).id == "mine"
    assert [put.id for put in Task.xq.put_many([{"name": "d"}, {"name": "e"}])] == ["d/0", "e/0"]


def test_a_made_key_that_is_taken_already_is_made_again(make):
    keys = iter([1, 1, 1, 2, 3])
    Task = make({"id": lambda task: next(keys)})
    assert [Task.put(task()).id for _ in range(3)] == [1, 2, 3]


def test_a_strategy_that_makes_only_taken_keys_is_told_so(make):
    Task = make({"id": lambda task: 1})
    Task.put(task())
    with pytest.raises(xq.ConfigurationError, match="id"):
        Task.put(task())
    assert Task.xq.count() == 1


def test_a_callable_that_makes_something_else_than_a_key_is_told_so(make):
    Task = make({"id": lambda task: "one"})
    with pytest.raises(xq.BadType):
        Task.put(task())


def test_a_brought_key_that_is_taken_is_the_databases_error(make):
    Task = make()
    Task.put(task(id=1, name="first"))
    before = Task.stats()
    with pytest.raises(pw.IntegrityError):
        Task.put(task(id=1))
    assert Task.stats() == before
    assert row(Task, 1).name == "first"


def test_what_the_database_refuses_passes_as_its_error(make):
    Task = make(attributes={"must": pw.TextField()})
    with pytest.raises(pw.IntegrityError):
        Task.put({"must": None})
    with pytest.raises(pw.DatabaseError):  # to MariaDB this is no matter of integrity
        Task.put({})
    assert Task.put({"must": "a"}).must == "a"


# bad values


@pytest.mark.parametrize("column", ["status", "runat", "deadline", "owner", "attempts"])
@pytest.mark.parametrize("value", [None, 1])
def test_a_mapping_must_not_bring_what_is_the_queues_own(make, column, value):
    Task = make({"ttl": 10}, roles=("runat", "deadline", "owner", "attempts"))
    with pytest.raises(xq.BadValue, match=column):
        Task.put({column: value})
    assert Task.select().count() == 0


def test_columns_that_are_no_role_are_the_applications(make):
    Task = make(roles=("runat",))
    assert Task.put({"owner": "me", "attempts": 5}).owner == "me"


BAD = [
    ({"nonsense": 1}, xq.BadValue),
    ({1: 1}, xq.BadValue),
    ({"size": [1]}, xq.BadType),
    ([], xq.BadValue),
    ([1, 2], xq.BadValue),
    ("abc", xq.BadType),
    (b"abc", xq.BadType),
    (5, xq.BadType),
    (None, xq.BadType),
    ({1, 2}, xq.BadType),
    (object(), xq.BadType),
    ({"priority": "high"}, xq.BadType),
    ({"priority": True}, xq.BadType),
    ({"priority": math.nan}, xq.BadValue),
    ({"tube": 5}, xq.BadType),
    ({"ttl": -1}, xq.BadValue),
    ({"ttl": math.nan}, xq.BadValue),
    ({"ttl": "1"}, xq.BadType),
    ({"ttr": -1}, xq.BadValue),
    ({"ttr": True}, xq.BadType),
]


def test_what_is_no_task_is_refused_and_changes_nothing(make, subtests):
    Task = make({"ttl": 10, "ttr": 10}, roles=("runat", "priority", "tube", "ttl", "ttr"))
    for bad, error in BAD:
        with subtests.test(bad=bad):
            with pytest.raises(error):
                Task.put(bad)
            with pytest.raises(error):
                Task.xq.put_many([{}, bad, {}])
    assert Task.select().count() == 0
    assert Task.stats().transition == {}


@pytest.mark.parametrize("field", ["id", "code"])
@pytest.mark.parametrize("value", ["not a uuid", 5])
def test_a_value_that_its_field_could_not_read_back_is_refused(make, field, value):
    Task = make(key=pw.UUIDField(primary_key=True), attributes={"code": pw.UUIDField(null=True)})
    with pytest.raises((xq.BadType, xq.BadValue)):
        Task.put({field: value})
    assert Task.xq.count() == 0
    assert Task.take() is None


@pytest.mark.parametrize("option", ["delay", "ttl", "ttr"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, xq.BadValue), (math.nan, xq.BadValue), (1e300, xq.BadValue), ("1", xq.BadType), (True, xq.BadType)],
)
def test_seconds_are_a_number_that_is_not_negative(make, option, value, error):
    Task = make({"delayed": True, "ttl": 10, "ttr": 10}, roles=("runat", "ttr"))
    with pytest.raises(error, match=option):
        Task.put({}, **{option: value})
    assert Task.xq.count() == 0


def test_an_option_that_is_none_is_as_if_it_were_not_there(make):
    Task = make({"delayed": True, "ttl": 10})
    put = Task.put({}, delay=None, ttl=None)
    assert (put.status, put.runat) == ("R", Task.xq.clock.now + 10)


@pytest.mark.parametrize("role", ["ttl", "ttr"])
def test_a_tasks_own_seconds_stand_in_the_field_or_in_the_option(make, role):
    Task = make({role: 10}, roles=("runat", role))
    assert getattr(Task.put({role: 5}), role) == 5
    assert getattr(Task.put({}, **{role: 5}), role) == 5
    with pytest.raises(xq.BadValue, match=role):
        Task.put({role: 5}, **{role: 5})


# many


def test_put_many_returns_the_tasks_in_the_order_given(make):
    Task = make()
    names = [f"{i}" for i in range(10)]
    assert [put.name for put in Task.xq.put_many([{"name": name} for name in names])] == names
    assert [each.name for each in Task.xq.take_many(10)] == names


def test_put_many_takes_every_shape_at_once(make):
    Task = make(roles=("runat", "priority"))
    put = Task.xq.put_many([{"name": "a"}, Task(name="b", size=1), sequence(Task, name="c", size=2), {"size": 3}])
    assert [(each.name, each.size) for each in put] == [("a", 0), ("b", 1), ("c", 2), (None, 3)]


def test_tasks_of_one_call_may_bring_different_fields(make):
    Task = make()
    shapes: list[dict[str, Any]] = [{}, {"name": "a"}, {"name": None}, {"tube": None}]
    for brought in itertools.permutations(shapes, 3):
        assert [put.name for put in Task.xq.put_many(brought)] == [each.get("name") for each in brought]


def test_put_many_keeps_the_order_where_some_bring_their_key(make):
    Task = make()
    put = Task.xq.put_many([{"id": 50, "name": "a"}, {"name": "b"}, {"id": 7, "name": "c"}, {"id": 3, "name": "d"}])
    assert [each.name for each in put] == ["a", "b", "c", "d"]
    assert [each.id for each in put][::2] == [50, 7]


def test_put_many_takes_any_iterable_and_none_at_all(make):
    Task = make()
    assert len(Task.xq.put_many(each for each in tasks(3))) == 3
    assert Task.xq.put_many([]) == []
    assert Task.xq.count("R") == 3


def test_put_many_puts_all_or_none(make):
    Task = make()
    Task.put(task(id=1))
    before = Task.stats()
    with pytest.raises(pw.IntegrityError):
        Task.xq.put_many([*tasks(500), task(id=1)])
    with pytest.raises(xq.BadValue):
        Task.xq.put_many([*tasks(500), {"nonsense": 1}])
    assert Task.stats() == before
    assert is_exact(Task)


def test_a_key_named_twice_in_one_call_puts_none(make):
    Task = make()
    with pytest.raises(pw.IntegrityError):
        Task.xq.put_many([task(id=1), task(id=1)])
    assert Task.xq.count() == 0


def test_the_options_of_put_many_hold_for_all(make):
    Task = make({"delayed": True, "ttr": 10}, roles=("runat", "ttr"))
    put = Task.xq.put_many(tasks(300), delay=5, ttr=7)
    assert {(each.status, each.runat, each.ttr) for each in put} == {("W", Task.xq.clock.now + 5, 7)}


def test_each_task_of_put_many_may_have_seconds_of_its_own(make):
    Task = make({"ttl": 10}, roles=("runat", "ttl"))
    put = Task.xq.put_many([{"ttl": 5}, {}, {"ttl": 7}, {"ttl": math.inf}])
    now = Task.xq.clock.now
    assert [each.runat for each in put] == [now + 5, now + 10, now + 7, None]


def test_thousands_of_tasks_are_put_at_once(make):
    Task = make()
    put = Task.xq.put_many(tasks(5000))
    assert len({each.id for each in put}) == 5000
    assert Task.xq.count("R") == Task.stats().transition["X-R"] == 5000
    assert [each.name for each in Task.xq.by_state("R")] == [each.name for each in put]
