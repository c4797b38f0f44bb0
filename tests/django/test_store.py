"""Models of Django as queues: their fields, instances, transactions and databases."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import os
import pickle
import signal
import sqlite3
import threading
import unittest
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from typing import Any

import django
import pytest
from django.apps.registry import Apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connection, connections, models, transaction
from django.db.models.functions import Now
from django.db.models.signals import post_save
from django.test import SimpleTestCase, TestCase
from django.test.utils import CaptureQueriesContext, override_settings

import xq
from tests.django.conftest import one_more
from tests.steps import STUCK, eventually
from xq.adapters.django import queue, upgrade

FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
TAKING = ("runat", "owner")
IN_BERLIN = {"USE_TZ": False, "TIME_ZONE": "Europe/Berlin"}


class Colour(models.TextChoices):
    RED = "r"


class Shouted(models.CharField):
    """A field of the application's own."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value and f"{value}!"

    def get_prep_value(self, value: Any) -> Any:
        return value and str(value).rstrip("!")


@contextmanager
def rolled_back(using: str = "default") -> Iterator[None]:
    """A transaction, or a savepoint in one, that is undone."""
    with transaction.atomic(using=using):
        yield
        transaction.set_rollback(True, using=using)


# the search


def test_a_search_goes_page_by_page_by_uuids_and_date_times(make):
    with override_settings(USE_TZ=True):
        attributes = {
            "id": models.UUIDField(primary_key=True, default=uuid.uuid4),
            "runat": models.DateTimeField(null=True),
        }
        Task = make({**FEATURES, "history": True}, roles=("runat", "priority"), attributes=attributes)
        for i in range(9):
            Task.put({"name": f"Task {i}"}, **({"delay": 5 + i // 2} if i % 3 else {}))
        Task.xq.bury(Task.take())
        Task.take()
        for filter in ("", "state:waiting", "name:tASK -state:R", "age<1m"):
            forward, back = list[uuid.UUID](), list[uuid.UUID]()
            cursor = end = None
            while not forward or cursor:
                found = Task.xq.find(filter, n=2, after=cursor)
                forward += [each.pk for each in found.tasks]
                cursor = found.next
            while not back or end:
                found = Task.xq.find(filter, n=2, after=end, back=True)
                back = [*(each.pk for each in found.tasks), *back]
                end = found.previous
            assert forward == back
            wanted = {"": 9, "state:waiting": 6, "name:tASK -state:R": 8, "age<1m": 9}[filter]
            assert len({*forward}) == len(forward) == wanted
        (buried,) = Task.xq.find("state:buried").tasks
        assert [each.pk for each in Task.xq.find(f"key:{buried.pk}").tasks] == [buried.pk]
        assert [step.target for step in Task.xq.timeline(buried.pk)] == ["R", "T", "B"]


# pauses and schedules


def test_a_queue_is_paused_also_within_the_transaction_that_pauses_it(make):
    Task = make(FEATURES)
    Task.put({"name": "a"})
    with rolled_back():
        Task.xq.pause()
        assert Task.take() is None
    with transaction.atomic():
        Task.xq.pause()
    assert (Task.xq.paused(), Task.take()) == ([None], None)
    Task.xq.resume()
    assert Task.take().name == "a"


def test_a_schedule_puts_its_task(make_live):
    Task = make_live(FEATURES)
    Task.xq.every(dt.datetime(2020, 1, 1), {"name": "late"}, name="a")
    assert Task.take(STUCK).name == "late"
    assert Task.xq.schedules() == []


# transactions


def test_a_put_is_one_with_the_transaction_that_it_stands_in(make):
    Task = make(FEATURES)
    with rolled_back():
        Task.put({"name": "never"})
    with transaction.atomic():
        Task.put({"name": "once"})
        with rolled_back():
            Task.put({"name": "not in this savepoint"})
    assert [task.name for task in Task.objects.all()] == ["once"]
    assert Task.xq.check() == []


def test_a_waiting_take_wakes_when_the_transaction_of_the_put_is_committed(make_live):
    Task = make_live(FEATURES, roles=TAKING)
    found: list[Any] = []

    def take() -> None:
        try:
            found.append(Task.take(timeout=60))
        finally:
            connections.close_all()

    waiting = threading.Thread(target=take)
    waiting.start()
    eventually(lambda: Task.xq._waiting.anybody)
    with transaction.atomic():
        Task.put({"name": "late"}, delay=3600)
        Task.put({"name": "now"})
    waiting.join(60)
    assert [task.name for task in found] == ["now"]


def test_callbacks_hear_of_what_is_committed_and_of_nothing_else(make):
    Task = make(FEATURES)
    heard: list[str] = []
    Task.xq.on_change(lambda task, event, source, target: heard.append(task.name))
    with transaction.atomic():
        Task.put({"name": "a"})
        assert heard == []
    with rolled_back():
        Task.put({"name": "b"})
    assert heard == ["a"]


def test_a_transaction_by_hand_is_one_as_well(make):
    Task = make(FEATURES)
    heard: list[str] = []
    Task.xq.on_change(lambda task, event, source, target: heard.append(task.name))
    transaction.set_autocommit(False)
    try:
        Task.put({"name": "gone"})
        transaction.rollback()
        Task.xq.put_many([{"name": "gone"}] * 2)
        transaction.rollback()
        Task.put({"name": "there"})
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert [task.name for task in Task.objects.all()] == ["there"]
    assert Task.take().name == "there"
    assert heard == ["there", "there"]  # put, and taken


def test_an_error_within_a_transaction_leaves_it_to_be_rolled_back(make):
    Task = make({"unique": True}, roles=("unique",))
    with transaction.atomic():
        Task.put({"job": "one"})
        with pytest.raises(xq.Duplicate):
            Task.put({"job": "one"})
        Task.put({"job": "two"})
    assert Task.objects.count() == 2
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            Task.put({"job": "three"})


# instances


def test_tasks_are_instances_that_know_their_database(make):
    Task = make(FEATURES)
    put = Task.put({"name": "a"})
    taken = Task.take()
    assert taken == put
    assert type(taken) is Task
    assert (taken._state.adding, taken._state.db) == (False, "default")
    assert Task.put(Task(name="b")).name == "b"
    assert taken.ack().status == "D"


def test_save_of_a_stale_instance_moves_no_task(make):
    Task = make(FEATURES)
    stale = Task.put({"name": "a"})
    Task.take()
    stale.name = "b"
    stale.save()
    assert Task.objects.get().name == "b"
    assert Task.objects.get().status == "T"
    stale.refresh_from_db()
    Task.ack(stale.pk)
    stale.save()
    Task.objects.only("name").get().save()
    assert Task.objects.get().status == "D"
    assert "write" not in Task.xq.stats().by_event
    assert Task.xq.check() == []


def test_save_writes_a_status_that_the_application_assigned(make):
    Task = make(FEATURES)
    task = Task.put({})
    task.status = "B"
    task.save()
    task.status = "R"
    task.save(update_fields=["status"])
    created = Task.objects.create(name="by the application")
    created.status = "B"
    created.save()
    assert {row.status for row in Task.objects.all()} == {"R", "B"}
    assert Task.stats().counts["B"] == 1
    assert Task.xq.check() == []


def test_what_the_application_assigned_is_written_by_a_later_save_unless_this_one_was(make):
    Task = make(FEATURES)
    task = Task.put({"name": "a"})
    task.status = "B"
    task.save(update_fields=["name"])
    task.refresh_from_db(fields=["size"])
    assert Task.objects.get().status == "R"
    task.save()
    assert Task.objects.get().status == "B"
    Task.dig(task.pk)
    task.save()  # which has written it already
    assert Task.objects.get().status == "R"


def test_what_a_transaction_undid_is_written_again_where_it_is_named(make):
    Task = make(FEATURES)
    task = Task.put({"name": "a"})
    task.status = "B"
    with rolled_back():
        task.save()
    task.save()
    assert Task.objects.get().status == "R"
    task.save(update_fields=["status"])
    assert Task.objects.get().status == "B"


def test_an_instance_that_a_transaction_undid_is_inserted_where_the_application_asks_for_that(make):
    Task = make(FEATURES)
    task = Task(name="a")
    with rolled_back():
        task.save()
    with pytest.raises(xq.NotFound, match=r"its put was undone.*save\(force_insert=True\)"):
        task.save()
    task.save(force_insert=True)
    assert Task.objects.get().name == "a"


def test_what_a_transaction_committed_is_not_written_again_whatever_its_other_hooks_do(make):
    Task = make(FEATURES)
    task = Task.put({"name": "a"})

    def save_again() -> None:
        Task.take()
        task.name = "b"
        task.save()
        raise OSError

    with suppress(OSError), transaction.atomic():
        transaction.on_commit(save_again)
        task.status = "R"
        task.save()
    assert (Task.objects.get().name, Task.objects.get().status) == ("b", "T")
    task.save()
    assert Task.objects.get().status == "T"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
def test_a_copy_of_an_instance_that_a_transaction_wrote_moves_no_task_either(office, copied):
    with transaction.atomic():
        order = copied(office.Order.objects.create(note="a"))
    office.Order.take()
    order.note = "b"
    order.save()
    assert (office.Order.objects.get().note, office.Order.objects.get().status) == ("b", "T")
    office.Order.kill(order.pk)
    with pytest.raises(xq.NotFound):
        order.save()


def test_what_a_test_case_has_set_up_for_its_tests_moves_no_task(office):
    class Saving(TestCase):
        order: Any

        @classmethod
        def setUpTestData(cls) -> None:
            cls.order = office.Order.objects.create(note="a")

        def runTest(self) -> None:
            office.Order.take()
            self.order.note = "b"
            self.order.save()
            assert office.Order.objects.get().status == "T"

    result = unittest.TestResult()
    unittest.TestSuite([Saving()]).run(result)
    assert [told for _, told in [*result.errors, *result.failures]] == []


@pytest.fixture
def saved() -> Iterator[Callable[[Any, Callable[[Any], None]], None]]:
    """Has a function called with each instance of a model behind its save(), as a handler of post_save."""
    connected = []

    def connect(model: Any, function: Callable[[Any], None]) -> None:
        def handler(instance: Any, **others: Any) -> None:
            function(instance)

        post_save.connect(handler, sender=model)
        connected.append((handler, model))

    yield connect
    for handler, model in connected:
        post_save.disconnect(handler, sender=model)


def test_save_within_post_save_moves_no_task(make, saved):
    Task = make(FEATURES)

    def name_it(task: Any) -> None:
        if task.name is None:
            Task.take()
            task.name = "a"
            task.save()

    saved(Task, name_it)
    Task().save()
    assert (Task.objects.get().name, Task.objects.get().status) == ("a", "T")


def test_what_a_handler_of_post_save_assigns_is_written_by_the_next_save(make, saved):
    Task = make(FEATURES)
    task = Task.put({})
    saved(Task, lambda task: setattr(task, "status", "B"))
    task.save()
    assert Task.objects.get().status == "R"
    task.save()
    assert Task.objects.get().status == "B"


def test_what_was_written_is_not_written_again_where_a_handler_of_post_save_failed(make, saved):
    Task = make(FEATURES)
    task = Task.put({})
    task.status = "B"

    def fail(task: Any) -> None:
        if task.name is None:
            raise OSError

    saved(Task, fail)
    with suppress(OSError):
        task.save()
    Task.dig(task.pk)
    task.name = "a"
    task.save()
    assert (Task.objects.get().name, Task.objects.get().status) == ("a", "R")


def test_an_expression_is_written_each_time(make):
    Task = make({"delayed": True}, roles=("runat", "priority"))
    task = Task.put({"name": "a"})
    for _ in range(2):
        task.priority = models.F("priority") + 5
        task.save()
    assert Task.objects.get().priority == 10


def test_what_was_only_read_in_a_transaction_that_is_undone_is_never_written(make):
    Task = make(FEATURES)
    read, deferred = Task.put({}), Task.put({})
    deferred = Task.objects.only("name").get(pk=deferred.pk)
    with rolled_back():
        for task in (read, deferred):
            task.name = "a"
            task.save()
        Task.xq.take_many(2)
        read.refresh_from_db()
        assert deferred.status == "T"  # which reads it
    for task in (read, deferred):
        task.save()
    assert [(row.name, row.status) for row in Task.objects.all()] == [("a", "R"), ("a", "R")]


def test_a_key_may_be_written_otherwise_than_it_was_read(django_db, make):
    Task = make(FEATURES, model=django_db.model(id=models.UUIDField(primary_key=True)))
    stale = Task.put({"name": "a"})
    Task.take()
    stale.pk = str(stale.pk)
    stale.save()
    assert Task.objects.get().status == "T"


def test_an_instance_with_deferred_fields_moves_no_task_either(make):
    Task = make(FEATURES)
    Task.put({"name": "a"})
    stale = Task.objects.only("name", "status").get()
    Task.take()
    stale.name = "b"
    stale.save()
    row = Task.objects.get()
    assert (row.name, row.status) == ("b", "T")


@pytest.mark.skipif(django.VERSION < (5,), reason="there are no generated fields before Django 5.0")
def test_an_instance_whose_generated_field_is_deferred_moves_no_task_either(django_db, make):
    double = models.GeneratedField(expression=models.F("size") * 2, output_field=models.IntegerField(), db_persist=True)
    Task = make(FEATURES, model=django_db.model(double=double))
    Task.put({"name": "a"})
    stale = Task.objects.defer("double", "size").get()
    Task.take()
    stale.name = "b"
    stale.save()
    row = Task.objects.get()
    assert (row.name, row.status) == ("b", "T")


def test_a_worker_within_a_transaction_is_refused(make):
    Task = make(FEATURES)
    Task.xq.worker(lambda task: None)
    with transaction.atomic(), pytest.raises(xq.InTransaction):
        Task.xq.run(until_empty=True)


def test_a_test_that_may_not_use_the_database_cannot_by_a_queue(make):
    Task = make(FEATURES)
    Task.put({})

    class Simple(SimpleTestCase):
        def runTest(self) -> None:
            Task.put({})

    result = unittest.TestResult()
    unittest.TestSuite([Simple()]).run(result)
    ((_, told),) = [*result.errors, *result.failures]
    assert "not allowed" in told
    assert Task.objects.count() == 1


def test_a_test_case_may_wait_within_the_transaction_that_it_is(make_live):
    Task = make_live(FEATURES, roles=TAKING)

    class Waiting(TestCase):
        def runTest(self) -> None:
            Task.put({"name": "late"}, delay=0.05)
            assert Task.take(timeout=60).name == "late"
            assert Task.take(timeout=0.06) is None
            with transaction.atomic(), pytest.raises(xq.InTransaction):
                Task.take(timeout=1)
            Task.xq.worker(lambda task: None)
            with pytest.raises(xq.InTransaction):
                Task.xq.run(until_empty=True)

    result = unittest.TestResult()
    unittest.TestSuite([Waiting()]).run(result)
    assert [told for _, told in [*result.errors, *result.failures]] == []
    assert not Task.objects.exists()


def test_save_of_an_instance_whose_task_is_finished_does_not_bring_it_back(make):
    Task = make({"ttr": 60})
    task = Task.put({"name": "a"})
    Task.take().ack()
    with pytest.raises(xq.NotFound, match=r"put\(\) puts a new one"):
        task.save()
    with pytest.raises(DatabaseError):
        task.save(update_fields=["name"])
    assert not Task.objects.exists()
    task.pk = None  # a copy, as one makes it in Django
    task.save()
    assert Task.objects.get().name == "a"


def test_save_makes_copies_under_another_key_and_on_another_database(make, other):
    Task = make(FEATURES)
    task = Task.put({"name": "a"})
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    task.save(using=other)
    assert Task.objects.using(other).get().name == "a"
    copy = Task.objects.get()
    copy.pk += 1
    copy.save()
    assert [row.name for row in Task.objects.all()] == ["a", "a"]


def test_deletes_and_updates_of_querysets_are_counted(make):
    Task = make(FEATURES)
    Task.xq.put_many([{"name": str(n)} for n in range(5)])
    Task.objects.filter(name="1").update(status="B")
    Task.objects.filter(name="2").delete()
    Task.objects.bulk_create([Task(name="6"), Task(name="7", status="B")])
    assert {state: Task.stats().counts[state] for state in "RB"} == {"R": 4, "B": 2}
    assert Task.xq.check() == []


def test_the_history_is_a_model_that_can_be_queried(make):
    Task = make({**FEATURES, "history": True})
    Task.put({})
    Task.take().ack()
    events = Task.xq.History.objects.order_by("id").values_list("event", "target")
    assert list(events) == [("put", "R"), ("take", "T"), ("ack", "D")]
    assert [step.event for step in Task.xq.history()] == ["put", "take", "ack"]


# fields


def customers(app: str) -> Any:
    """A model that tasks may refer to."""
    meta = {"app_label": app, "apps": Apps()}
    return type("Customer", (models.Model,), {"__module__": __name__, "Meta": type("Meta", (), meta)})


def test_every_field_of_an_application_comes_back_as_it_was(django_db, make):
    Customer = customers("store_fields")
    Task = django_db.model(
        meta={"app_label": "store_fields", "apps": Customer._meta.apps},
        data=models.JSONField(null=True),
        token=models.UUIDField(null=True),
        price=models.DecimalField(max_digits=8, decimal_places=2, null=True),
        at=models.DateTimeField(null=True),
        on=models.DateField(null=True),
        clock=models.TimeField(null=True),
        span=models.DurationField(null=True),
        paid=models.BooleanField(default=False),
        blob=models.BinaryField(null=True),
        colour=models.CharField(max_length=1, choices=Colour.choices, null=True),
        loud=Shouted(max_length=20, null=True),
        customer=models.ForeignKey(Customer, models.CASCADE, null=True),
    )
    django_db.create(Customer)
    make(FEATURES, model=Task)
    customer = Customer.objects.create()
    brought = {
        "data": {"a": [1, None, "ü"]},
        "token": uuid.UUID(int=7),
        "price": Decimal("12.50"),
        "at": dt.datetime(2026, 3, 4, 5, 6, 7, 891, tzinfo=dt.UTC),
        "on": dt.date(2026, 3, 4),
        "clock": dt.time(5, 6, 7),
        "span": dt.timedelta(days=1, seconds=2),
        "paid": True,
        "blob": b"\0\xff",
        "colour": Colour.RED,
        "loud": "hello!",
        "customer": customer,
    }
    put = Task.put(brought)
    taken = Task.take()
    queried = Task.objects.get()
    for name, value in brought.items():
        if name == "blob":
            assert {bytes(task.blob) for task in (put, taken, queried)} == {value}
        else:
            assert [getattr(task, name) for task in (put, taken, queried)] == [value] * 3, name
    assert Task.put({"customer_id": customer.pk}).customer == customer
    assert Task.ack(taken, update={"data": {"b": 1}}).data == {"b": 1}
    with pytest.raises(xq.BadType, match="another model"):
        Task.put({"customer": taken})
    with pytest.raises(xq.BadValue, match="SQL expression"):
        Task.put({"size": models.F("size") + 1})
    with pytest.raises(xq.BadValue, match="never saved"):
        Task.put({"customer": Customer(pk=None)})


def test_a_foreign_key_is_what_the_key_that_it_refers_to_is(django_db, make):
    meta = {"app_label": "store_uuid", "apps": Apps()}
    attributes = {"__module__": __name__, "id": models.UUIDField(primary_key=True), "Meta": type("Meta", (), meta)}
    Parcel: Any = type("Parcel", (models.Model,), attributes)
    django_db.create(Parcel)
    parcel = models.ForeignKey(Parcel, models.CASCADE, null=True)
    Task = django_db.model(meta=meta, parcel=parcel)
    make(FEATURES, model=Task)
    sent = Parcel.objects.create(id=uuid.UUID(int=7))
    assert Task.put({"parcel": sent}).parcel_id == sent.id
    assert Task.take().parcel == sent


def test_what_nobody_brings_is_what_django_would_write(django_db, make):
    Task = django_db.model(
        title=models.CharField(max_length=20),
        tags=models.JSONField(default=list),
        created=models.DateTimeField(auto_now_add=True),
        grade=models.IntegerField(**({"db_default": 7} if django.VERSION >= (5,) else {"default": 7})),
    )
    make(FEATURES, model=Task)
    task = Task.put({})
    assert (task.title, task.tags, task.grade) == ("", [], 7)
    assert abs(task.created - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)
    task.tags.append("mine")
    assert Task.put({}).tags == []


def test_an_instance_that_was_never_saved_is_filled_as_django_fills_it(django_db, make):
    generated = {}
    if django.VERSION >= (5,):
        twice = {"expression": models.F("size") * 2, "output_field": models.IntegerField(), "db_persist": True}
        generated = {"twice": models.GeneratedField(**twice)}
    Task = django_db.model(
        size=models.IntegerField(default=2),
        created=models.DateTimeField(auto_now_add=True),
        changed=models.DateTimeField(auto_now=True),
        grade=models.IntegerField(**({"db_default": 7} if generated else {"default": 7})),
        **generated,
    )
    make(FEATURES, model=Task)
    put = Task.put(Task(size=3))
    assert put.grade == 7
    assert None not in (put.created, put.changed)
    put.pk = None
    again = Task.put(put)
    assert again.created == put.created
    if generated:
        assert (Task.objects.first().twice, again.twice) == (6, 6)


@pytest.mark.skipif(django.VERSION < (5,), reason="there are no defaults of the database before Django 5.0")
def test_what_an_instance_holds_comes_before_a_default_of_the_database(django_db, make):
    Task = django_db.model(
        grade=models.IntegerField(db_default=7, null=True),
        created=models.DateTimeField(auto_now_add=True, db_default=Now()),
    )
    make(FEATURES, model=Task)
    assert [Task.put(Task(**given)).grade for given in ({}, {"grade": None}, {"grade": 3})] == [7, None, 3]
    assert Task.objects.filter(created=None).count() == 0
    with pytest.raises(xq.BadValue, match="SQL expression"):
        Task.put(Task(grade=models.Value(1) + 2))


def test_what_an_instance_refers_to_may_be_saved_after_it_was_assigned(django_db, make):
    Customer = customers("store_later")
    django_db.create(Customer)
    meta = {"app_label": "store_later", "apps": Customer._meta.apps}
    Task = django_db.model(meta=meta, customer=models.ForeignKey(Customer, models.CASCADE, null=True))
    make(FEATURES, model=Task)
    customer = Customer()
    task = Task(customer=customer)
    with pytest.raises(xq.BadValue, match="never saved"):
        Task.put(task)
    customer.save()
    assert Task.put(task).customer == customer
    assert Task.put(Task(customer=None)).customer is None


def test_the_times_of_a_put_are_told_without_an_instance(django_db, make):
    made = []

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        made.append(args)
        models.Model.__init__(self, *args, **options)

    Task = django_db.model(__init__=__init__, created=models.DateTimeField(auto_now_add=True))
    make(FEATURES, model=Task)
    assert Task.put({}).created is not None
    assert len(made) == 1, "but for the task itself"


def test_only_fields_that_are_converted_have_a_call_be_a_transaction(django_db, make):
    Customer = customers("store_key")
    django_db.create(Customer)
    meta = {"app_label": "store_key", "apps": Customer._meta.apps}
    refers = django_db.model("Refers", meta, customer=models.ForeignKey(Customer, models.CASCADE, null=True))
    converts = django_db.model("Converts", data=models.JSONField(null=True))

    def transactions(Task: Any) -> int:
        make(FEATURES, model=Task)
        Task.put({})
        with CaptureQueriesContext(connection) as queries:
            Task.put({})
        return sum(query["sql"].startswith("COMMIT") for query in queries)

    assert (transactions(refers), transactions(converts)) == (0, 1)


def test_an_integer_that_is_too_large_is_refused_or_kept_and_never_cut(make):
    Task = make({})
    for size in (2**40, str(2**40), 2**31 + 1, str(2**31 + 1)):
        try:
            put = Task.put({"size": size})
        except xq.BadValue:
            continue
        assert Task.xq.peek(put.pk).size == int(size)  # in SQLite, where integers have 64 bits
    assert Task.put({"size": str(2**31 - 1)}).size == 2**31 - 1


@pytest.mark.skipif(django.VERSION < (5,), reason="there are none before Django 5.0")
def test_a_generated_field_is_the_databases_and_nobody_brings_it(django_db, make):
    def computed(field: str, held: models.Field) -> Any:
        return models.GeneratedField(expression=models.F(field) * 2, output_field=held, db_persist=True)

    Task = django_db.model(
        double=computed("size", models.IntegerField()),
        price=computed("size", models.DecimalField(max_digits=8, decimal_places=2)),
    )
    make({"keep": True}, roles=(), model=Task)
    put = Task.put({"size": 3})
    taken = Task.take()
    assert [(task.double, task.price) for task in (put, taken)] == [(6, Decimal("6.00"))] * 2
    assert Task.ack(taken, update={"size": 4}).double == 8
    again = Task.objects.get()
    again.pk = None
    assert Task.put(again).double == 8
    names = [field.name for field in Task._meta.concrete_fields]
    assert Task.put([{"size": 1, "attempts": 0}.get(name) for name in names]).double == 2
    for call in (
        lambda: Task.put({"size": 1, "double": 2}),
        lambda: Task.put({"size": 1, "double": None}),
        lambda: Task.ack(Task.take(), update={"double": 7}),
    ):
        with pytest.raises(xq.BadValue, match="computes 'double' of Task from other fields: leave it out"):
            call()
    assert Task.xq.check() == []


def test_times_may_be_date_times(django_db, make):
    Task = make(
        {**FEATURES, "lifetime": 3600},
        attributes={"runat": models.DateTimeField(null=True), "deadline": models.DateTimeField(null=True)},
    )
    later = Task.put({}, delay=30)
    assert later.runat == dt.datetime.fromtimestamp(Task.xq.clock.now + 30, dt.UTC)
    assert Task.objects.filter(runat__gt=later.runat - dt.timedelta(seconds=1)).count() == 1
    assert Task.take() is None
    Task.xq.clock.tick(31)
    assert Task.take() == later


@pytest.mark.parametrize("django_db", ["sqlite", "mariadb"], indirect=True)
def test_times_that_django_writes_in_another_zone_are_refused_and_leave_the_model_as_it_was(django_db):
    Task = django_db.model(runat=models.DateTimeField(null=True))
    with override_settings(**IN_BERLIN), pytest.raises(xq.ConfigurationError, match="USE_TZ = True"):
        upgrade(Task, {"status": "status", "runat": "runat"}, {"delayed": True})
    assert not hasattr(Task, "xq")
    upgrade(Task, {"status": "status", "runat": "runat"}, {"delayed": True})
    assert Task.xq.roles == {"status": "status", "runat": "runat"}


@pytest.mark.parametrize("django_db", ["postgres"], indirect=True)
def test_times_are_in_any_zone_where_the_database_knows_it(make, django_db):
    attributes = {"runat": models.DateTimeField(null=True), "deadline": models.DateTimeField(null=True)}
    with override_settings(**IN_BERLIN):
        Task = make(FEATURES, attributes=attributes)
        Task.put({}, delay=30)
        assert Task.take() is None
        Task.xq.clock.tick(31)
        assert Task.take() is not None


# relations without a constraint


def test_what_a_generic_relation_joins_only_django_knows(django_db, make):
    ContentType.objects.clear_cache()  # of another test's database
    registry = Apps(["tests.django.shop"])

    def model(name: str, **fields: Any) -> Any:
        return django_db.model(name, meta={"app_label": "shop", "apps": registry}, **fields)

    def reference() -> dict[str, Any]:
        return {
            "of": models.ForeignKey(ContentType, models.CASCADE, null=True),
            "key": models.IntegerField(null=True),
            "what": GenericForeignKey("of", "key"),
        }

    Note = model("Note", **reference())
    Task = model("Task", **reference(), notes=GenericRelation(Note, "key", "of"))
    Customer = model("Customer", tasks=GenericRelation(Task, "key", "of"))
    django_db.create(ContentType, Permission, Group, Note, Customer)
    make(FEATURES, model=Task)
    group = Group.objects.create(name="buyers")
    kind = ContentType.objects.get_for_model(Group)
    Task.put(Task(what=group))
    Task.put({"of": kind, "key": group.pk})
    with pytest.raises(xq.BadValue, match="no field 'what'"):
        Task.put({"what": group})
    for _ in range(2):
        assert Task.take().ack().what == group

    customer = Customer.objects.create()
    customer.tasks.create(name="by the relation")
    taken = Task.take()
    taken.notes.create(name="stays")
    taken.kill()
    assert Note.objects.get().key == taken.pk  # which refers to nothing now
    customer.tasks.create(name="goes with the customer")
    customer.delete()
    assert Task.stats().counts["R"] == 0
    again = Task.put({})
    again.notes.create(name="goes with the task")
    Task.objects.get(pk=again.pk).delete()
    assert [note.name for note in Note.objects.all()] == ["stays"]
    assert Task.xq.check() == []


# inheritance


def test_a_model_inherits_from_abstract_ones_and_its_proxies_share_its_queue(django_db, make):
    registry = Apps()

    class Dated(models.Model):
        note = models.TextField(default="noted")

        class Meta:
            abstract = True

    Task: Any = type(
        "Task",
        (Dated,),
        {
            "__module__": __name__,
            "status": models.CharField(max_length=1, default="R"),
            "Meta": type("Meta", (), {"app_label": "store_abstract", "apps": registry, "db_table": "task"}),
        },
    )
    make({}, roles=(), model=Task)
    proxy: Any = type(
        "Proxy",
        (Task,),
        {
            "__module__": __name__,
            "Meta": type("Meta", (), {"app_label": "store_abstract", "apps": registry, "proxy": True}),
        },
    )
    assert proxy.xq is Task.xq
    assert proxy.put({}).note == "noted"
    assert proxy.objects.get().status == "R"
    with pytest.raises(xq.ConfigurationError, match="is abstract"):
        upgrade(Dated, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="is a proxy: upgrade Task"):
        upgrade(proxy, {"status": "status"})


def test_a_model_whose_fields_are_in_two_tables_is_refused():
    registry = Apps()

    class Place(models.Model):
        status = models.CharField(max_length=1, default="R")

        class Meta:
            app_label = "store_parents"
            apps = registry

    class Shop(Place):
        class Meta:
            app_label = "store_parents"
            apps = registry

    with pytest.raises(xq.ConfigurationError, match="in the table of another model"):
        upgrade(Shop, {"status": "status"})
    upgrade(Place, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="upgrade Shop itself"):
        Shop.take()


def test_what_is_no_model_of_djangos_is_refused():
    with pytest.raises(xq.ConfigurationError, match="a model of Django's"):
        upgrade(dict, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="stands above"):
        queue(dict)  # type: ignore[arg-type]


def test_a_field_of_the_name_of_a_verb_is_not_hidden(django_db):
    with pytest.raises(xq.ConfigurationError, match="take is a field already"):
        upgrade(django_db.model(take=models.TextField(null=True)), {"status": "status"})


# databases


def test_a_queue_may_be_on_another_database_than_the_default_one(django_db, other):
    Task = django_db.model()
    upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES, using=other)
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    Task.xq.install()
    with transaction.atomic():  # of the default one, which is another's
        task = Task.put({"name": "there"})
    assert task._state.db == other
    with rolled_back(other):
        Task.put({})
    assert Task.objects.using(other).count() == 1
    heard: list[str] = []
    Task.xq.on_change(lambda task, event, source, target: heard.append(event))
    with transaction.atomic(), transaction.atomic(using=other):
        assert Task.take().name == "there"
        assert heard == []
    assert heard == ["take"]


def test_a_thread_whose_database_gets_another_name_leaves_the_old_one(django_db, other, tmp_path):
    Task = django_db.model()
    upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES, using=other)
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    Task.xq.install()
    connections[other].close()
    Task.put({"name": "of the app"})  # on a connection that is the queue's doing
    there = connections.settings[other]
    before, there["NAME"] = there["NAME"], str(tmp_path / "test.db")  # as a test runner does, for all threads
    with pytest.raises(xq.NotInstalled):
        Task.take()
    there["NAME"] = before
    assert Task.take().name == "of the app"


def test_a_thread_whose_connection_is_older_than_the_settings_ends_no_session_of_others(django_db, tmp_path):
    def at(name: str) -> dict[str, str]:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / name)}

    with ThreadPoolExecutor(1) as older:
        with one_more("other", at("old.db")):
            older.submit(lambda: connections["other"].ensure_connection()).result(STUCK)
        with one_more("other", at("new.db")):
            Task = django_db.model()
            upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES, using="other")
            with connections["other"].schema_editor() as editor:
                editor.create_model(Task)
            Task.xq.install()
            Task.put({})
            taken = Task.take()
            older.submit(lambda: Task.xq.adapter.store.database).result(STUCK)  # as for the thread of another queue
            assert Task.ack(taken) is not None
        older.submit(lambda: connections["other"].close()).result(STUCK)


def test_what_routers_change_ends_no_session(django_db, other):
    class Turns:
        alias = "default"

        def db_for_write(self, model, **hints):
            return self.alias

    Task = django_db.model()
    turns = Turns()
    with override_settings(DATABASE_ROUTERS=[turns]):
        upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES)
        django_db.create(Task)
        Task.xq.install()
        Task.put({})
        taken = Task.take()
        turns.alias = other
        if django_db.kind == "sqlite":  # of another vendor the queue is none there
            with pytest.raises(xq.NotInstalled):
                Task.take()
        turns.alias = "default"
        assert Task.ack(taken) is not None


def test_a_transaction_of_the_queue_on_sqlite_lets_nobody_write_between_what_it_reads_and_writes(make, tmp_path):
    if make.database.kind != "sqlite":
        return  # whose rows are locked one by one
    Task = make({"keep": True}, roles=())

    def count_and_put() -> None:
        n = Task.objects.count()
        with closing(sqlite3.connect(make.database.settings["NAME"], timeout=0)) as another:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                another.execute("UPDATE task SET name = 'meanwhile'")
        Task.put({"size": n})

    Task.xq.transaction(count_and_put)
    transaction.set_autocommit(False)
    try:
        Task.xq.transaction(count_and_put)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert [task.size for task in Task.objects.order_by("pk")] == [0, 1]


def test_upgrade_touches_no_database(django_db):
    nowhere = {**django_db.settings, "HOST": "127.0.0.1", "PORT": "1"}
    if django_db.kind == "sqlite":
        nowhere["NAME"] = "/nowhere/app.db"
    with one_more("nowhere", nowhere):
        Task = django_db.model(token=models.UUIDField(), data=models.JSONField(), at=models.DateTimeField(null=True))
        upgrade(Task, {"status": "status", "runat": "at"}, FEATURES, using="nowhere")
        with pytest.raises(DatabaseError):
            Task.take()


def test_a_backend_of_the_projects_own_may_be_djangos_under_another_name(django_db, tmp_path, monkeypatch):
    engine, own = django_db.settings["ENGINE"], f"own_{django_db.kind}"
    (tmp_path / own).mkdir()
    (tmp_path / own / "base.py").write_text(f"from {engine}.base import DatabaseWrapper\n")
    monkeypatch.syspath_prepend(tmp_path)
    Task = django_db.model()
    with one_more("own", {**django_db.settings, "ENGINE": own}) as alias:
        upgrade(Task, {"status": "status"}, using=alias)
        django_db.create(Task)
        Task.xq.install()
        Task.put({"name": "a"})
        assert Task.take().name == "a"


class ToOther:
    """A router of all writes."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "other"


def test_a_router_names_the_database_of_a_queue(django_db, other):
    Task = django_db.model()
    with override_settings(DATABASE_ROUTERS=[ToOther()]):
        upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES)
        with connections[other].schema_editor() as editor:
            editor.create_model(Task)
        Task.xq.install()
        assert Task.put({})._state.db == other
    if django_db.kind != "sqlite":
        with pytest.raises(xq.ConfigurationError, match="was upgraded for sqlite"):
            Task.put({})


def test_a_queue_that_no_migration_installed_says_so(django_db):
    Task = django_db.model()
    upgrade(Task, {"status": "status"})
    with pytest.raises(xq.NotInstalled, match=r"the table task is missing.*manage.py migrate"):
        Task.put({})


@pytest.mark.parametrize("django_db", ["postgres", "mariadb"], indirect=True)
def test_a_connection_that_was_lost_is_made_anew(make_live, django_db):
    Task = make_live(FEATURES, roles=TAKING)
    Task.put({"name": "a"})
    raw = connection.connection
    number = raw.info.backend_pid if django_db.kind == "postgres" else raw.thread_id()
    with django_db.server.administrator() as execute:
        execute(f"SELECT pg_terminate_backend({number})" if django_db.kind == "postgres" else f"KILL {number}")
    eventually(lambda: Task.xq.adapter.store.driver.is_broken(raw))
    assert Task.take().name == "a"


def test_a_database_in_memory_has_queues_as_well(make, tmp_path):
    settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:memory_of_a_test?mode=memory&cache=shared"}
    Task = make.database.model()
    connections.settings["memory"] = connections.configure_settings({"default": {}, "memory": settings})["memory"]
    try:
        upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES, using="memory")
        with connections["memory"].schema_editor() as editor:
            editor.create_model(Task)
        Task.xq.install()
        Task.put({}, delay=0.02)
        assert Task.take(timeout=60) is not None
        with pytest.raises(xq.ConfigurationError, match="is in memory"):
            Task.xq.adapter.store.address()
    finally:
        raw = connections["memory"].connection
        connections["memory"].connection = None
        raw.close()
        del connections.settings["memory"], connections["memory"]


@pytest.mark.parametrize("django_db", ["postgres"], indirect=True)
def test_a_schema_may_stand_in_the_name_of_the_table(django_db):
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA shop")
    Task = django_db.model(meta={"db_table": 'shop"."order'})
    upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES)
    django_db.create(Task)
    Task.xq.install()
    Task.put({"name": "a"})
    assert Task.objects.get().name == Task.take().name == "a"
    assert Task.xq.check() == []


# threads, processes, those who look on


def test_a_process_that_was_killed_gives_back_what_it_had_taken(make_live):
    Task = make_live({"keep": True}, roles=TAKING)
    Task.put({"name": "a"})
    child = os.fork()
    if child == 0:
        try:
            assert Task.take() is not None
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert Task.take(timeout=60).name == "a"


def test_statements_of_a_queue_are_seen_as_those_of_django(make):
    Task = make(FEATURES)
    seen: list[str] = []

    def look(execute: Any, sql: str, *others: Any) -> Any:
        seen.append(sql)
        return execute(sql, *others)

    with CaptureQueriesContext(connection) as queries, connection.execute_wrapper(look):
        Task.put({})
    assert any("INSERT" in query["sql"] for query in queries.captured_queries)
    assert any("INSERT" in sql for sql in seen)


def test_a_call_on_the_loop_of_asyncio_is_refused_as_django_refuses_it(make):
    Task = make(FEATURES)

    async def put() -> None:
        Task.put({})

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(put())
    assert not Task.objects.exists()
