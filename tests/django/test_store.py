"""Models of Django as queues: what is Django's own of transactions, save(), fields, relations and databases."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import sqlite3
import threading
import unittest
import uuid
from collections.abc import Iterator
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
from django.db import DatabaseError, connection, connections, models, transaction
from django.db.models.signals import post_save
from django.test import SimpleTestCase, TestCase
from django.test.utils import override_settings

import xq
from tests.django.conftest import one_more
from tests.steps import STUCK, eventually
from xq.adapters.django import queue, upgrade

FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
TAKING = ("runat", "owner")
IN_BERLIN = {"USE_TZ": False, "TIME_ZONE": "Europe/Berlin"}
HAS_GENERATED = django.VERSION >= (5,)  # fields that the database computes, and defaults of its own


@contextmanager
def rolled_back(using: str = "default") -> Iterator[None]:
    """A transaction, or a savepoint in one, that is undone."""
    with transaction.atomic(using=using):
        yield
        transaction.set_rollback(True, using=using)


@contextmanager
def by_hand() -> Iterator[None]:
    """Without autocommit."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.set_autocommit(True)


def run(case: type[unittest.TestCase]) -> list[str]:
    """The errors of a test case."""
    result = unittest.TestResult()
    unittest.TestSuite([case()]).run(result)
    return [told for _, told in [*result.errors, *result.failures]]


def doubled(**held: Any) -> Any:
    """A field that the database computes of `size`."""
    held_in = models.DecimalField(**held) if held else models.IntegerField()
    return models.GeneratedField(expression=models.F("size") * 2, output_field=held_in, db_persist=True)


# transactions


def test_what_a_transaction_undoes_was_not_put_nor_paused_nor_heard_of(make):
    Task = make(FEATURES)
    heard: list[str] = []
    Task.xq.on_change(lambda task, event, source, target: heard.append(f"{event} {task.name}"))
    with rolled_back():
        Task.put({"name": "never"})
        Task.xq.pause()
        assert Task.take() is None
    with transaction.atomic():
        Task.put({"name": "once"})
        with rolled_back():
            Task.put({"name": "not in this savepoint"})
        assert heard == []
    with by_hand():
        Task.put({"name": "gone"})
        Task.xq.put_many([{"name": "gone"}] * 2)
        transaction.rollback()
        Task.put({"name": "by hand"})
        transaction.commit()
    assert heard[0] == "put once"
    assert [Task.take().name, Task.take().name, Task.take()] == ["once", "by hand", None]
    assert heard == ["put once", "put by hand", "take once", "take by hand"]
    assert Task.xq.check() == []


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


def test_a_transaction_of_the_queue_on_sqlite_lets_nobody_write_between_what_it_reads_and_writes(make):
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
    with by_hand():
        Task.xq.transaction(count_and_put)
        transaction.commit()
    assert [task.size for task in Task.objects.order_by("pk")] == [0, 1]


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_connection_that_a_queue_has_used_has_no_recursive_triggers(make):
    make({"keep": True}).put({"name": "one"})
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA recursive_triggers").fetchone() == (0,)


# test cases


def test_a_test_that_may_not_use_the_database_cannot_by_a_queue(make):
    Task = make(FEATURES)
    Task.put({})

    class Simple(SimpleTestCase):
        def runTest(self) -> None:
            Task.put({})

    (told,) = run(Simple)
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

    assert run(Waiting) == []
    assert not Task.objects.exists()


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

    assert run(Saving) == []


# save(): what is done with a task, and its name and state in the end


def assign(task: Any, status: str, **options: Any) -> None:
    task.status = status
    task.save(**options)


def rename(task: Any) -> None:
    task.name = "b"
    task.save()


def save_what_is_stale(Task: Any, task: Any) -> None:
    Task.take()
    rename(task)
    assert "write" not in Task.xq.stats().by_event


def save_what_is_stale_and_done(Task: Any, task: Any) -> None:
    Task.take()
    task.refresh_from_db()
    Task.ack(task.pk)
    rename(task)
    Task.objects.only("name").get().save()


def save_with_deferred_fields(Task: Any, task: Any) -> None:
    for stale in (Task.objects.only("name", "status").get(), Task.objects.defer("double", "size").get()):
        Task.take()
        rename(stale)


def assign_a_status(Task: Any, task: Any) -> None:
    assign(task, "B")
    assign(task, "R", update_fields=["status"])
    assign(task, "B")


def assign_and_save_another_field_first(Task: Any, task: Any) -> None:
    assign(task, "B", update_fields=["name"])
    task.refresh_from_db(fields=["size"])
    assert Task.objects.get().status == "R"
    task.save()


def save_again_what_was_written_already(Task: Any, task: Any) -> None:
    assign(task, "B")
    Task.dig(task.pk)
    rename(task)


def save_again_what_a_transaction_undid(Task: Any, task: Any) -> None:
    with rolled_back():
        assign(task, "B")
    rename(task)


def save_by_name_what_a_transaction_undid(Task: Any, task: Any) -> None:
    with rolled_back():
        assign(task, "B")
    task.save(update_fields=["status"])


def save_in_a_hook_of_the_commit_that_fails(Task: Any, task: Any) -> None:
    def save_again() -> None:
        Task.take()
        rename(task)
        raise OSError

    with suppress(OSError), transaction.atomic():
        transaction.on_commit(save_again)
        assign(task, "R")
    task.save()


def save_what_was_read_in_a_transaction_that_is_undone(Task: Any, task: Any) -> None:
    deferred = Task.objects.only("name").get()
    with rolled_back():
        rename(task)
        rename(deferred)
        Task.take()
        task.refresh_from_db()
        assert deferred.status == "T"  # which reads it
    task.name = deferred.name = "b"
    task.save()
    deferred.save()


SAVES = {
    save_what_is_stale: ("b", "T"),
    save_what_is_stale_and_done: ("b", "D"),
    save_with_deferred_fields: ("b", "T"),
    assign_a_status: ("a", "B"),
    assign_and_save_another_field_first: ("a", "B"),
    save_again_what_was_written_already: ("b", "R"),
    save_again_what_a_transaction_undid: ("b", "R"),
    save_by_name_what_a_transaction_undid: ("a", "B"),
    save_in_a_hook_of_the_commit_that_fails: ("b", "T"),
    save_what_was_read_in_a_transaction_that_is_undone: ("b", "R"),
}


@pytest.mark.parametrize("key", ["integer", "uuid"])
def test_save_moves_a_task_only_by_a_status_that_the_application_assigned(django_db, make, key, subtests):
    own = {"id": models.UUIDField(primary_key=True)} if key == "uuid" else {}
    own["double"] = doubled() if HAS_GENERATED else models.IntegerField(null=True)
    Task = make(FEATURES, model=django_db.model(**own))
    for done, expected in SAVES.items():
        with subtests.test(done.__name__):
            Task.xq.truncate()
            Task.xq.reset()
            task = Task.put({"name": "a"})
            task.pk = str(task.pk) if key == "uuid" else task.pk  # written otherwise than it was read
            done(Task, task)
            found = Task.objects.get()
            assert (found.name, found.status) == expected
            assert Task.xq.check() == []


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


def take_and_save(Task: Any, task: Any) -> None:
    if task.name == "a":
        Task.take()
        rename(task)


def fail_once(Task: Any, task: Any) -> None:
    if task.name == "a":
        raise OSError


@pytest.mark.parametrize(
    ("handler", "assigned", "then"),
    [
        (take_and_save, "R", ["T", "T"]),
        (lambda Task, task: setattr(task, "status", "B"), "R", ["R", "B"]),
        (fail_once, "B", ["B", "R"]),  # dug in between: what was written is not written again
    ],
    ids=["it saves", "it assigns", "it fails"],
)
def test_what_a_handler_of_post_save_does_moves_no_task_twice(make, handler, assigned, then):
    Task = make(FEATURES)
    task = Task.put({"name": "a"})

    def handle(instance: Any, **others: Any) -> None:
        handler(Task, instance)

    post_save.connect(handle, sender=Task)
    try:
        with suppress(OSError):
            assign(task, assigned)
        found = [Task.objects.get().status]
        if handler is fail_once:
            Task.dig(task.pk)
        task.name = "b"
        task.save()
    finally:
        post_save.disconnect(handle, sender=Task)
    assert [*found, Task.objects.get().status] == then


def test_an_expression_is_written_each_time(make):
    Task = make({"delayed": True}, roles=("runat", "priority"))
    task = Task.put({"name": "a"})
    for _ in range(2):
        task.priority = models.F("priority") + 5
        task.save()
    assert Task.objects.get().priority == 10


def test_save_brings_back_no_task_that_is_gone_but_makes_copies(make, other):
    Task = make({"ttr": 60})
    task = Task.put({"name": "a"})
    Task.take().ack()
    with pytest.raises(xq.NotFound, match=r"put\(\) puts a new one"):
        task.save()
    with pytest.raises(DatabaseError):
        task.save(update_fields=["name"])
    assert not Task.objects.exists()
    undone = Task(name="a")
    with rolled_back():
        undone.save()
    with pytest.raises(xq.NotFound, match=r"its put was undone.*save\(force_insert=True\)"):
        undone.save()
    undone.save(force_insert=True)
    task.pk = None  # a copy, as one makes it in Django
    task.save()
    task.pk += 1
    task.save()
    assert [row.name for row in Task.objects.all()] == ["a"] * 3
    with connections[other].schema_editor() as editor:
        editor.create_model(Task)
    task.save(using=other)
    assert Task.objects.using(other).get().name == "a"


# fields


class Colour(models.TextChoices):
    RED = "r"


class Shouted(models.CharField):
    """A field of the application's own."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value and f"{value}!"

    def get_prep_value(self, value: Any) -> Any:
        return value and str(value).rstrip("!")


BROUGHT = {
    "data": (models.JSONField(null=True), {"a": [1, None, "ü"]}),
    "token": (models.UUIDField(null=True), uuid.UUID(int=7)),
    "price": (models.DecimalField(max_digits=8, decimal_places=2, null=True), Decimal("12.50")),
    "at": (models.DateTimeField(null=True), dt.datetime(2026, 3, 4, 5, 6, 7, 891, tzinfo=dt.UTC)),
    "on": (models.DateField(null=True), dt.date(2026, 3, 4)),
    "clock": (models.TimeField(null=True), dt.time(5, 6, 7)),
    "span": (models.DurationField(null=True), dt.timedelta(days=1, seconds=2)),
    "paid": (models.BooleanField(default=False), True),
    "blob": (models.BinaryField(null=True), b"\0\xff"),
    "colour": (models.CharField(max_length=1, choices=Colour.choices, null=True), Colour.RED),
    "loud": (Shouted(max_length=20, null=True), "hello!"),
}


def test_every_field_of_an_application_comes_back_as_it_was(django_db, make):
    meta = {"app_label": "store_fields", "apps": Apps()}
    own = {"__module__": __name__, "id": models.UUIDField(primary_key=True), "Meta": type("Meta", (), meta)}
    Customer: Any = type("Customer", (models.Model,), own)
    reference = models.ForeignKey(Customer, models.CASCADE, null=True)
    fields = {name: copy.deepcopy(field) for name, (field, _) in BROUGHT.items()}
    Task = django_db.model(meta=meta, customer=reference, **fields)
    django_db.create(Customer)
    make(FEATURES, model=Task)
    customer = Customer(id=uuid.UUID(int=7))
    refers = Task(customer=customer)
    with pytest.raises(xq.BadValue, match="never saved"):
        Task.put(Task(customer=Customer(pk=None)))
    customer.save()
    brought = {name: value for name, (_, value) in BROUGHT.items()} | {"customer": customer}
    put = Task.put(brought)
    assert (type(put), put._state.adding, put._state.db) == (Task, False, "default")
    taken = Task.take()
    for name, value in brought.items():
        found = [getattr(task, name) for task in (put, taken, Task.objects.get())]
        assert (list(map(bytes, found)) if name == "blob" else found) == [value] * 3, name
    assert Task.put(refers).customer == customer  # which was saved after it was assigned
    assert Task.put({"customer_id": customer.pk}).customer == customer
    assert Task.ack(taken, update={"data": {"b": 1}}).data == {"b": 1}
    for error, words, bad in (
        (xq.BadType, "another model", {"customer": taken}),
        (xq.BadValue, "SQL expression", {"size": models.F("size") + 1}),
        (xq.BadValue, "never saved", {"customer": Customer(pk=None)}),
    ):
        with pytest.raises(error, match=words):
            Task.put(bad)


def test_what_nobody_brings_is_what_django_would_write(django_db, make):
    Task = django_db.model(
        title=models.CharField(max_length=20),
        tags=models.JSONField(default=list),
        created=models.DateTimeField(auto_now_add=True),
        changed=models.DateTimeField(auto_now=True),
        grade=models.IntegerField(null=True, **{"db_default" if HAS_GENERATED else "default": 7}),
    )
    make(FEATURES, model=Task)
    task = Task.put({})
    assert (task.title, task.tags, task.grade) == ("", [], 7)
    assert abs(task.created - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)
    task.tags.append("mine")
    assert Task.put({}).tags == []
    assert [Task.put(Task(**given)).grade for given in ({}, {"grade": None}, {"grade": 3})] == [7, None, 3]
    put = Task.put(Task(size=3))
    assert None not in (put.created, put.changed)
    put.pk = None
    assert Task.put(put).created == put.created
    with pytest.raises(xq.BadValue, match="SQL expression"):
        Task.put(Task(grade=models.Value(1) + 2))


def test_an_integer_that_is_too_large_is_refused_or_kept_and_never_cut(make):
    Task = make({})
    for size in (2**40, str(2**31 + 1)):
        with suppress(xq.BadValue):
            assert Task.xq.peek(Task.put({"size": size}).pk).size == int(size)  # in SQLite, of 64 bits
    assert Task.put({"size": str(2**31 - 1)}).size == 2**31 - 1


@pytest.mark.skipif(not HAS_GENERATED, reason="there are none before Django 5.0")
def test_a_generated_field_is_the_databases_and_nobody_brings_it(django_db, make):
    Task = django_db.model(double=doubled(), price=doubled(max_digits=8, decimal_places=2))
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
        lambda: Task.put({"size": 1, "double": None}),
        lambda: Task.ack(Task.take(), update={"double": 7}),
    ):
        with pytest.raises(xq.BadValue, match="computes 'double' of Task from other fields: leave it out"):
            call()


def test_times_in_another_zone_are_for_a_database_that_knows_zones(make, django_db):
    Task = django_db.model(runat=models.DateTimeField(null=True), deadline=models.DateTimeField(null=True))
    with override_settings(**IN_BERLIN):
        if django_db.kind == "postgres":
            make(FEATURES, model=Task)
            Task.put({}, delay=30)
            assert Task.take() is None
            Task.xq.clock.tick(31)
            assert Task.take() is not None
            return
        with pytest.raises(xq.ConfigurationError, match="USE_TZ = True"):
            make(FEATURES, model=Task)
    assert not hasattr(Task, "xq")
    make({**FEATURES, "lifetime": 3600}, model=Task)
    assert Task.put({}, delay=30).runat == dt.datetime.fromtimestamp(Task.xq.clock.now + 30, dt.UTC)


def test_a_search_and_the_history_go_by_uuids_and_date_times(make):
    attributes = {
        "id": models.UUIDField(primary_key=True, default=uuid.uuid4),
        "runat": models.DateTimeField(null=True),
    }
    Task = make({**FEATURES, "history": True}, roles=("runat", "priority"), attributes=attributes)
    for i in range(9):
        Task.put({"name": f"Task {i}"}, **({"delay": 5 + i // 2} if i % 3 else {}))
    buried = Task.xq.bury(Task.take())
    Task.take()
    for filter, wanted in {"": 9, "state:waiting": 6, "name:tASK -state:R": 8, f"key:{buried.pk}": 1}.items():
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
        assert len({*forward}) == len(forward) == wanted
    assert [step.target for step in Task.xq.timeline(buried.pk)] == ["R", "T", "B"]
    events = Task.xq.History.objects.order_by("id").values_list("event", flat=True)  # a model of Django's
    assert list(events)[-3:] == ["take", "bury", "take"]


# relations without a constraint


def test_what_a_generic_relation_joins_only_django_knows(django_db, make):
    ContentType.objects.clear_cache()  # of another test's database
    meta = {"app_label": "shop", "apps": Apps(["tests.django.shop"])}

    def reference() -> dict[str, Any]:
        of = models.ForeignKey(ContentType, models.CASCADE, null=True)
        return {"of": of, "key": models.IntegerField(null=True), "what": GenericForeignKey("of", "key")}

    Note = django_db.model("Note", meta, **reference())
    Task = django_db.model("Task", meta, **reference(), notes=GenericRelation(Note, "key", "of"))
    Customer = django_db.model("Customer", meta, tasks=GenericRelation(Task, "key", "of"))
    django_db.create(ContentType, Permission, Group, Note, Customer)
    make(FEATURES, model=Task)
    group = Group.objects.create(name="buyers")
    Task.put(Task(what=group))
    Task.put({"of": ContentType.objects.get_for_model(Group), "key": group.pk})
    with pytest.raises(xq.BadValue, match="no field 'what'"):
        Task.put({"what": group})
    assert [Task.take().ack().what for _ in range(2)] == [group] * 2
    customer = Customer.objects.create()
    customer.tasks.create(name="by the relation")
    taken = Task.take()
    taken.notes.create(name="stays")
    taken.kill()
    assert Note.objects.get().key == taken.pk  # which refers to nothing now
    customer.tasks.create(name="goes with the customer")
    customer.delete()
    assert Task.stats().counts["R"] == 0
    assert Task.xq.check() == []


# models


def test_a_model_inherits_from_abstract_ones_and_its_proxies_share_its_queue(django_db, make):
    def model(name: str, *bases: type, **meta: Any) -> Any:
        own = type("Meta", (), {"app_label": "store_abstract", "apps": registry, **meta})
        field = models.CharField(max_length=10, default="R")
        body = {} if bases else {"status": field, "note": models.TextField(default="noted")}
        return type(name, bases or (models.Model,), {"__module__": __name__, **body, "Meta": own})

    registry = Apps()
    Dated = model("Dated", abstract=True)
    Task = model("Task", Dated)
    make({}, roles=(), model=Task)
    proxy = model("Proxy", Task, proxy=True)
    assert proxy.xq is Task.xq
    assert proxy.put({}).note == "noted"
    assert proxy.objects.get().status == "R"
    child = model("Child", Task)
    for refused, words in {
        Dated: "is abstract",
        proxy: "is a proxy: upgrade Task",
        child: "in the table of another model",
        django_db.model(take=models.TextField(null=True)): "take is a field already",
        dict: "a model of Django's",
    }.items():
        with pytest.raises(xq.ConfigurationError, match=words):
            upgrade(refused, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="upgrade Child itself"):
        child.take()
    with pytest.raises(xq.ConfigurationError, match="stands above"):
        queue(dict)  # type: ignore[arg-type]


# databases


def queue_at(alias: str, Task: Any, using: str | None = None) -> Any:
    """The model upgraded, whose table is there; the alias is named to it, or a router does that."""
    upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES, using=using)
    with connections[alias].schema_editor() as editor:
        editor.create_model(Task)
    Task.xq.install()
    return Task


def test_a_queue_may_be_on_another_database_than_the_default_one(django_db, other):
    Task = queue_at(other, django_db.model(), other)
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
    Task = queue_at(other, django_db.model(), other)
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
            Task = queue_at("other", django_db.model(), "other")
            Task.put({})
            taken = Task.take()
            older.submit(lambda: Task.xq.adapter.store.database).result(STUCK)  # as for the thread of another queue
            assert Task.ack(taken) is not None
        older.submit(lambda: connections["other"].close()).result(STUCK)


class To:
    """A router of all writes."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return self.alias


def test_a_router_names_the_database_of_a_queue_and_its_change_ends_no_session(django_db, other):
    router = To(other)
    with override_settings(DATABASE_ROUTERS=[router]):
        assert queue_at(other, django_db.model("First")).put({})._state.db == other
        router.alias = "default"
        Task = queue_at("default", django_db.model())
        Task.put({})
        taken = Task.take()
        router.alias = other
        same = django_db.kind == "sqlite"  # of another vendor the queue cannot be there
        with pytest.raises(xq.NotInstalled if same else xq.ConfigurationError, match=None if same else "was upgraded"):
            Task.take()
        router.alias = "default"
        assert Task.ack(taken) is not None


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
    with one_more("own", {**django_db.settings, "ENGINE": own}) as alias:
        Task = queue_at(alias, django_db.model(), alias)
        Task.put({"name": "a"})
        assert Task.take().name == "a"


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


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_database_in_memory_has_queues_as_well(django_db):
    name = "file:memory_of_a_test?mode=memory&cache=shared"
    with one_more("memory", {"ENGINE": "django.db.backends.sqlite3", "NAME": name}):
        Task = queue_at("memory", django_db.model(), "memory")
        Task.put({}, delay=0.02)
        assert Task.take(timeout=60) is not None
        with pytest.raises(xq.ConfigurationError, match="is in memory"):
            Task.xq.adapter.store.address()
        raw, connections["memory"].connection = connections["memory"].connection, None  # close() would not close it
        raw.close()


@pytest.mark.parametrize("django_db", ["postgres"], indirect=True)
def test_a_schema_may_stand_in_the_name_of_the_table(django_db):
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA shop")
    Task = queue_at("default", django_db.model(meta={"db_table": 'shop"."order'}))
    Task.put({"name": "a"})
    assert Task.objects.get().name == Task.take().name == "a"
    assert Task.xq.check() == []
