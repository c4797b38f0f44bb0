"""Models of Django as queues: what is Django's own of transactions, save(), fields, relations and databases."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import gc
import pickle
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from decimal import Decimal
from functools import partial
from typing import Any
from weakref import ref

import django
import pytest
from asgiref.sync import sync_to_async
from django.apps.registry import Apps
from django.contrib.postgres.fields import ArrayField
from django.db import DatabaseError, connection, connections, models, transaction
from django.db.models.signals import post_save, pre_save
from django.test.utils import CaptureQueriesContext, override_settings

import xq
from tests.contract.test_on import test_what_calls_do_is_part_of_the_transaction  # noqa: F401 (runs here as well)
from tests.steps import PATIENCE, eventually
from xq.adapters.django import queue, upgrade
from xq.adapters.django.connections import database_of

FEATURES: xq.Features = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
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


def doubled() -> Any:
    """A field that the database computes of `size`."""
    return models.GeneratedField(expression=models.F("size") * 2, output_field=models.IntegerField(), db_persist=True)


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
    known = [each for each in heard if each != "put gone"]  # without autocommit an end is seen, and not which
    assert known == ["put once", "put by hand", "take once", "take by hand"]
    assert Task.xq.check() == []


def test_django_sees_each_statement_of_a_queue(make):
    Task = make({"keep": True})
    for _ in range(2):  # the first calls check the installation
        with CaptureQueriesContext(connection) as seen:
            Task.put({"name": "x"})
            Task.take().ack()
    assert len(seen) == 3


def test_a_connection_that_the_application_has_opened_is_checked_as_well(make):
    Task = make({})
    Task.xq.parts.store.database.product = "another"
    connection.close()
    connection.ensure_connection()
    with pytest.raises(xq.ConfigurationError, match="the server was another"):
        Task.take()


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # on a server rows are locked one by one
def test_a_transaction_of_the_queue_on_sqlite_lets_nobody_write_between_what_it_reads_and_writes(make):
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
    with transaction.atomic():
        Task.xq.transaction(count_and_put)
    assert [task.size for task in Task.objects.order_by("pk")] == [0, 1, 2]


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
    task.status = "B"
    task.refresh_from_db(fields=["name"])
    task.save()


def save_while_a_handler_of_post_save_takes_and_saves(Task: Any, task: Any) -> None:
    def handle(instance: Any, **others: Any) -> None:
        post_save.disconnect(handle, sender=Task)
        Task.take()
        rename(instance)

    post_save.connect(handle, sender=Task)
    assign(task, "R")
    task.save()


def save_again_what_was_written_already(Task: Any, task: Any) -> None:
    assign(task, "B")
    Task.dig(task.pk)
    rename(task)


def save_again_what_a_transaction_undid(Task: Any, task: Any) -> None:
    with rolled_back():
        assign(task, "B")
    rename(task)


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


def save_while_a_handler_of_post_save_fails(Task: Any, task: Any) -> None:
    def handle(**others: Any) -> None:
        post_save.disconnect(handle, sender=Task)
        raise ConnectionError

    post_save.connect(handle, sender=Task)
    task.name = "b"
    with pytest.raises(ConnectionError):
        assign(task, "B")
    Task.dig(task.pk)
    task.save()


def name_a_status_that_is_as_it_was_read(Task: Any, task: Any) -> None:
    for each in (task, Task.objects.only("name", "status").get()):
        Task.take()
        each.save(force_update=True)
        assert Task.objects.get().status == "T"
        each.save(update_fields=["status"])


SAVES = {
    save_what_is_stale: ("b", "T"),
    save_what_is_stale_and_done: ("b", "D"),
    save_with_deferred_fields: ("b", "T"),
    assign_a_status: ("a", "B"),
    save_again_what_was_written_already: ("b", "R"),
    save_again_what_a_transaction_undid: ("b", "R"),
    save_what_was_read_in_a_transaction_that_is_undone: ("b", "R"),
    save_while_a_handler_of_post_save_takes_and_saves: ("b", "T"),
    save_while_a_handler_of_post_save_fails: ("b", "R"),
    name_a_status_that_is_as_it_was_read: ("a", "R"),
}


def test_save_moves_a_task_only_by_a_status_that_the_application_assigned(django_db, make, subtests):
    double = doubled() if HAS_GENERATED else models.IntegerField(null=True)
    Task = make(FEATURES, model=django_db.model(double=double))
    for done, expected in SAVES.items():
        with subtests.test(done.__name__):
            Task.xq.truncate()
            Task.xq.reset()
            done(Task, Task.put({"name": "a"}))
            found = Task.objects.get()
            assert (found.name, found.status) == expected
            assert Task.xq.check() == []


def test_save_writes_each_role_that_the_application_changed_and_no_other(django_db, make):
    def save(self: Any, *args: Any, **options: Any) -> None:
        self.tube = f"of {self.name}"
        super(Task, self).save(*args, **options)

    def handle(instance: Any, update_fields: Any, **others: Any) -> None:
        assert update_fields is None  # as if it was no queue
        instance.ttr = 7

    Task = django_db.model(save=save)
    make(FEATURES, roles=("runat", "priority", "tube", "owner", "attempts", "ttr", "error"), model=Task)
    Task.xq.put_many([{"name": "a"}])
    stale = Task.objects.get()
    Task.objects.update(error="of another")
    taken = Task.take()
    stale.name, stale.priority = "b", models.F("priority") + 5
    pre_save.connect(handle, sender=Task)
    stale.save()
    found = Task.objects.get()
    assert (found.name, found.priority, found.tube, found.ttr, found.error) == ("b", 5, "of b", 7, "of another")
    assert (found.status, found.owner, found.attempts, found.runat) == ("T", taken.owner, 1, taken.runat)
    assert taken.ack().status == "D"
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


def test_save_brings_back_no_task_that_is_gone_but_makes_copies(make):
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


# fields


BROUGHT = {
    "data": (models.JSONField(null=True), {"a": [1, None, "ü"]}),
    "token": (models.UUIDField(null=True), uuid.UUID(int=7)),
    "price": (models.DecimalField(max_digits=8, decimal_places=2, null=True), Decimal("12.50")),
    "at": (models.DateTimeField(null=True), dt.datetime(2026, 3, 4, 5, 6, 7, 891, tzinfo=dt.UTC)),
    "span": (models.DurationField(null=True), dt.timedelta(days=1, seconds=2)),
    "blob": (models.BinaryField(null=True), b"\0\xff"),
}


def test_every_field_of_an_application_comes_back_as_it_was(django_db, make):
    Customer = django_db.model("Customer")
    reference = models.ForeignKey(Customer, models.CASCADE, null=True)
    fields = {name: copy.deepcopy(field) for name, (field, _) in BROUGHT.items()}
    meta = {"app_label": Customer._meta.app_label, "apps": Customer._meta.apps}
    Task = django_db.model(meta=meta, customer=reference, **fields)
    django_db.create(Customer)
    make(FEATURES, model=Task)
    customer = Customer()
    refers = Task(customer=customer)
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


@pytest.mark.parametrize("key", [models.BigAutoField, models.CharField, models.UUIDField])
@pytest.mark.parametrize("named", ["customer", "customer_id"])
@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_foreign_key_holds_a_role_whether_its_model_is_loaded_or_not(django_db, make, key, named, is_loaded):
    attributes = {"max_length": 20} if key is models.CharField else {}
    fields = {"utube": None, "id": key(primary_key=True, **attributes)}
    meta = {"app_label": "office", "apps": Apps()}
    Customer = django_db.model("Customer", meta=meta, **fields) if is_loaded else None
    Task = django_db.model(meta=meta, customer=models.ForeignKey("Customer", models.CASCADE, null=True))
    roles = {"status": "status", "utube": named, "unique": "job"}
    utube = {"n": 1, "fair": True} if is_loaded else True
    upgrade(Task, roles, {"keep": True, "utube": utube, "rate": {"limit": "1/h", "by": "utube"}}, clock=make.clock)
    Customer = Customer or django_db.model("Customer", meta=meta, **fields)
    django_db.create(Customer, Task)
    Task.xq.install()
    keys = {models.CharField: ("ann", "bob"), models.UUIDField: (uuid.UUID(int=1), uuid.UUID(int=2))}
    ann, bob = (Customer.objects.create(**({"id": id} if id else {})) for id in keys.get(key, (None, None)))
    Task.put({"customer": ann, "name": "1"})
    Task.put({"customer_id": ann.pk, "name": "2"})
    Task.xq.put_many([Task(customer=ann, name="3"), Task(customer=bob, name="4")])
    first, other = Task.take(), Task.take()
    assert (first.name, first.customer, other.name, Task.take()) == ("1", ann, "4", None)
    Task.xq.clock.tick(3600)
    assert Task.take() is None  # the first one is not done
    first.ack()
    Task.objects.get(name="1").save()
    assert (Task.take().name, Task.take()) == ("2", None)
    done = Task.objects.get(name="1")
    done.customer = bob
    done.save()
    assert Task.objects.get(name="1").customer == bob
    assert Task.xq.check() == []


def test_a_foreign_key_that_cannot_hold_its_role_is_refused_when_its_model_is_loaded(django_db):
    meta = {"app_label": "office", "apps": Apps()}
    Task = django_db.model(meta=meta, customer=models.ForeignKey("Customer", models.CASCADE, null=True))
    upgrade(Task, {"status": "status", "tube": "customer"}, {"keep": True})
    with pytest.raises(
        xq.ConfigurationError, match="role 'tube' is a field of type text or uuid; Task.customer is bigint"
    ):
        django_db.model("Customer", meta=meta)


def test_what_nobody_brings_is_what_django_would_write(django_db, make):
    Task = django_db.model(
        title=models.CharField(max_length=20),
        tags=models.JSONField(default=list),
        created=models.DateTimeField(auto_now_add=True),
        grade=models.IntegerField(null=True, **{"db_default" if HAS_GENERATED else "default": 7}),
    )
    make(FEATURES, model=Task)
    task = Task.put({})
    assert (task.title, task.tags, task.grade) == ("", [], 7)
    assert abs(task.created - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)
    task.tags.append("mine")
    assert Task.put({}).tags == []
    assert [Task.put(Task(**given)).grade for given in ({}, {"grade": None}, {"grade": 3})] == [7, None, 3]


def test_a_move_writes_a_field_with_auto_now_as_save_does(django_db, make):
    Task = django_db.model(updated=models.DateTimeField(auto_now=True))
    make(FEATURES, model=Task)
    task, clock = Task.put({}), Task.xq.clock
    clock.tick(1_000_000)
    assert Task.take().updated - task.updated == dt.timedelta(seconds=1_000_000)
    stale = Task.xq.peek(task)
    clock.tick(1)
    assert Task.release(Task.xq.peek(task)).updated > stale.updated
    stale.save()
    assert Task.xq.peek(task).updated > dt.datetime.fromtimestamp(clock.now, dt.UTC)  # save() has the real time
    assert Task.xq.peek(task).status == "R"
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        local = django_db.model("Local", updated=models.DateTimeField(auto_now=True))
        assert ("moved" in upgrade(local, features={}).roles) == (django_db.kind == "postgres")


@pytest.mark.skipif(not HAS_GENERATED, reason="there are none before Django 5.0")
def test_a_generated_field_is_the_databases_and_nobody_brings_it(django_db, make):
    Task = make({"keep": True}, roles=(), model=django_db.model(double=doubled()))
    put = Task.put({"size": 3})
    taken = Task.take()
    assert (put.double, taken.double, Task.ack(taken, update={"size": 4}).double) == (6, 6, 8)
    for call in (lambda: Task.put({"size": 1, "double": None}), lambda: Task.ack(put.pk, update={"double": 7})):
        with pytest.raises(xq.BadValue, match="computes 'double' of Task from other fields: leave it out"):
            call()


def test_times_in_another_zone_are_for_a_database_that_knows_zones(make, django_db):
    refused = pytest.raises(xq.ConfigurationError, match="USE_TZ = True")
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        with nullcontext() if django_db.kind == "postgres" else refused:
            Task = make(FEATURES, attributes={"runat": models.DateTimeField(null=True)})
            Task.put({}, delay=30)
            assert Task.take() is None
            Task.xq.clock.tick(31)
            assert Task.take() is not None


# models and databases


def test_a_proxy_shares_the_queue_of_its_model_and_what_can_be_none_is_told_why(django_db, make):
    def below(base: Any, **meta: Any) -> Any:
        own = type("Meta", (), {"app_label": base._meta.app_label, "apps": base._meta.apps, **meta})
        return type("Below", (base,), {"__module__": __name__, "Meta": own})

    Task = make({}, roles=())
    proxy = below(Task, proxy=True)
    assert proxy.xq is Task.xq
    proxy.put({})
    assert proxy.objects.get().status == "R"
    for refused, words in {
        django_db.model(meta={"abstract": True}): "is abstract",
        proxy: "is a proxy: upgrade Task",
        below(make({}, roles=(), model=django_db.model("Other"))): "in the table of another model",
        django_db.model(take=models.TextField(null=True)): "take is a field already",
        dict: "a model of Django's",
    }.items():
        with pytest.raises(xq.ConfigurationError, match=words):
            upgrade(refused, {"status": "status"})
    with pytest.raises(xq.ConfigurationError, match="stands above"):
        queue(dict)  # type: ignore[arg-type]


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


TENANT = ContextVar("tenant", default="default")


class OfTheTenant:
    """A router that takes the database from a variable of the context."""

    def db_for_write(self, model, **hints):
        return TENANT.get()

    db_for_read = db_for_write


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
@override_settings(DATABASE_ROUTERS=[f"{__name__}.OfTheTenant"])
def test_each_call_goes_to_the_database_that_a_router_chooses_by_its_context(django_db, other):
    Task = django_db.model()
    upgrade(Task, {"status": "status", "runat": "runat"}, FEATURES)

    def at(tenant: str, call: Any) -> Any:
        def run() -> Any:
            TENANT.set(tenant)
            return call()

        return copy_context().run(run)

    for tenant in ("default", other):
        with connections[tenant].schema_editor() as editor:
            editor.create_model(Task)
        at(tenant, Task.xq.install)
    for tenant in ("default", other, other):
        assert at(tenant, partial(Task.put, {"name": tenant}))._state.db == tenant
    assert [at(tenant, Task.take).name for tenant in (other, "default", other)] == [other, "default", other]

    async def put(tenant: str) -> None:
        TENANT.set(tenant)
        await Task.xq.aio.put({"name": tenant})

    async def main() -> None:
        await asyncio.gather(*(put(tenant) for tenant in ("default", other) * 5))  # in one turn of the loop
        await sync_to_async(connections.close_all)()

    asyncio.run(main())
    assert [at(tenant, Task.stats).counts["R"] for tenant in ("default", other)] == [5, 5]


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_with_the_settings_end_the_sessions_and_the_thread_of_the_database_before(django_db, make_live, tmp_path):
    Task = make_live(FEATURES)
    Task.put({"name": "a"})
    assert Task.take()
    Task.xq.parts.maintenance.attend()
    before = ref(database_of(connection))
    own, maintenance = database_of(connection).sessions.own(), database_of(connection).duties
    assert maintenance is not None
    gc.disable()  # no object of xq waits for it
    try:
        with maintenance.working:  # a cycle of the thread holds the database until its end
            connection.close()
            connection.settings_dict["NAME"] = str(tmp_path / "another.db")
            assert database_of(connection) is not None
            assert before() is None
    finally:
        gc.enable()
    assert not own.live
    maintenance.thread.join(PATIENCE)
    assert not maintenance.thread.is_alive()


@pytest.mark.parametrize("django_db", ["postgres", "mariadb", "mysql"], indirect=True)
def test_a_connection_that_was_lost_is_made_anew(make_live, django_db):
    Task = make_live(FEATURES)
    Task.put({"name": "a"})
    raw = connection.connection
    number = raw.info.backend_pid if django_db.kind == "postgres" else raw.thread_id()
    with django_db.server.administrator() as execute:
        execute(f"SELECT pg_terminate_backend({number})" if django_db.kind == "postgres" else f"KILL {number}")
    eventually(lambda: Task.xq.parts.store.driver.is_broken(raw))
    assert Task.take().name == "a"


@pytest.mark.parametrize("django_db", ["postgres", "mariadb", "mysql"], indirect=True)
def test_the_session_connection_is_made_by_the_backend_of_the_application(make, monkeypatch):
    kind = type(connections["default"])
    given = kind.get_connection_params

    def with_a_token(self: Any) -> Any:
        return {**given(self), "user": self.settings_dict["USER"].removeprefix("token ")}

    monkeypatch.setattr(kind, "get_connection_params", with_a_token)
    connections.settings["default"]["USER"] = f"token {connection.settings_dict['USER']}"
    Task = make(FEATURES)
    Task.put({"name": "a"})
    assert Task.take().name == "a"


@pytest.mark.parametrize("django_db", ["postgres"], indirect=True)
def test_arrays_go_to_other_programs_and_come_from_them(django_db, make):
    words = ArrayField(models.CharField(max_length=20, null=True))
    ats, three = ArrayField(models.DateTimeField(null=True)), ArrayField(models.SmallIntegerField(), size=3)
    deep = ArrayField(ArrayField(models.IntegerField()), null=True)
    Task = django_db.model(words=words, ats=ats, three=three, deep=deep)
    queue = make({"buried": True}, model=Task).xq
    values = ["a", None], [dt.datetime(2030, 1, 2, tzinfo=dt.UTC), None], [1, 2, 3]
    queue.pipeline.bulk().begin(["words", "ats", "three"]).put(0, [values])
    extract = queue.pipeline.extract()
    assert [*extract.read(["words", "ats", "three"])] == [values]
    with pytest.raises(xq.BadValue, match=r"'deep' is INTEGER\[\]\[\]"):
        _ = extract.column("deep").declared


def test_a_row_that_a_field_cannot_read_is_buried_and_the_others_go_on(django_db, make):
    read = {"from_db_value": lambda self, value, *_: value and int(value), "__module__": __name__}
    Task = django_db.model(count=type("Count", (models.TextField,), read)(null=True))
    make({"buried": True}, model=Task)
    bad, good = Task.xq.put_many([{"count": "1"}, {"count": "2"}])
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {Task._meta.db_table} SET count = 'no number' WHERE id = {bad.pk}")
    assert (Task.take(), Task.take()) == (good, None)
    assert [task.count for task in Task.xq.by_state("B")] == ["no number"]
    assert Task.xq.kill(bad.pk).count == "no number"
