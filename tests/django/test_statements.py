"""The statements of a call, as an application's assertNumQueries counts them: the same for the first and each later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from tests.django.conftest import DjangoDatabase
from tests.django.on_tasks import backend, install
from tests.django.shop import jobs
from xq.adapters.django.tasks.models import Task as DjangoTask

FEATURES = {"delayed": True, "keep": True, "ttr": 60}
ROLES = ("runat", "deadline", "priority", "owner", "attempts", "tube")
LATER = range(3)  # calls after the first


def statements(call: Callable[[], object]) -> list[str]:
    """The first words of the statements of a call."""
    with CaptureQueriesContext(connections["default"]) as seen:
        call()
    return [query["sql"].split()[0] for query in seen.captured_queries]


def in_atomic(call: Callable[[], object]) -> list[str]:
    """As `statements`, without the BEGIN and COMMIT of a transaction of the application around the call."""
    found: list[str] = []
    with transaction.atomic():
        found += statements(call)
    return found


def as_in_a_new_process(Task: Any) -> None:
    """Forget what the process knows of the database: the installation, the registered sessions, the connection."""
    Task.xq._database.close()
    connections["default"].close()


def each_time(Task: Any, call: Callable[[], object], count: Any = statements) -> list[list[str]]:
    """The statements of a call in a new process, of the first on a new connection, and of later ones."""
    as_in_a_new_process(Task)
    found = [count(call)]
    connections["default"].close()
    return found + [count(call) for _ in LATER]


def always(expected: list[str]) -> list[list[str]]:
    return [expected] * (1 + len(LATER))


@pytest.fixture
def queue(make: Any) -> Any:
    """A queue by the clock of the database."""
    return make(FEATURES, roles=ROLES)


def guarded(database: DjangoDatabase, *expected: str) -> list[str]:
    """These statements, in a savepoint where an error would end the transaction of the application."""
    return ["SAVEPOINT", *expected, "RELEASE"] if database.kind == "postgres" else list(expected)


def moved(database: DjangoDatabase, in_atomic: bool = False) -> list[str]:
    """The statements that move a task: MariaDB returns no rows of an UPDATE."""
    if database.kind != "mariadb":
        return ["UPDATE"]
    return ["SAVEPOINT", "SELECT", "UPDATE", "SELECT", "RELEASE"] if in_atomic else ["SELECT", "UPDATE", "SELECT"]


# put


PUTS: list[Callable[[Any], object]] = [
    lambda queue: queue.put({"name": "a"}),
    lambda queue: queue.put({"name": "a"}, delay=5),
    lambda queue: queue.xq.put_many([{"name": "a"}, {"name": "b"}, {"name": "c"}]),
]


@pytest.mark.parametrize("put", PUTS, ids=["a put", "with a delay", "many that bring the same fields"])
def test_a_put_is_one_statement_also_the_first_of_a_process_in_a_savepoint_on_postgresql(queue, django_db, put):
    assert each_time(queue, lambda: put(queue)) == always(["INSERT"])
    assert each_time(queue, lambda: put(queue), in_atomic) == always(guarded(django_db, "INSERT"))


def test_many_tasks_that_the_database_refuses_leave_the_transaction_of_the_application_usable(queue):
    put = queue.put({"name": "a"})
    with transaction.atomic():
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            queue.xq.put_many([{"id": put.pk}, {"id": put.pk}])
        queue.put({"name": "d"})
    assert sorted(queue.objects.values_list("name", flat=True)) == ["a", "d"]


# take and ack


def test_a_take_that_finds_a_task_is_one_statement_also_the_first_of_a_process(queue, django_db):
    queue.xq.put_many([{"name": "a"}] * 20)
    assert each_time(queue, queue.take) == always(moved(django_db))


def test_a_take_in_a_transaction_of_the_application_is_one_statement(make_live, django_db):
    queue = make_live(FEATURES, roles=ROLES)  # by the clock of a test a take also expires timers
    queue.xq.put_many([{"name": "a"}] * 20)
    assert each_time(queue, queue.take, in_atomic) == always(moved(django_db, in_atomic=True))


@pytest.mark.parametrize("update", [{}, {"update": {"name": "b"}}], ids=["", "with an update"])
def test_an_ack_is_one_statement_and_has_a_savepoint_only_for_an_update(queue, django_db, update):
    queue.xq.put_many([{"name": "a"}] * 20)
    tasks = [queue.take() for _ in range(20)]
    assert each_time(queue, lambda: tasks.pop().ack(**update)) == always(moved(django_db))
    expected = moved(django_db, in_atomic=True)
    expected = guarded(django_db, *expected) if update else expected
    assert each_time(queue, lambda: tasks.pop().ack(**update), in_atomic) == always(expected)


def test_a_take_that_looks_for_due_tasks_counts_as_one_that_does_not(queue, django_db):
    queue.put({"name": "delayed"}, delay=0.001)
    queue.xq.put_many([{"name": "a"}] * 20)

    def take_after_a_while() -> object:
        queue.xq._takes.timers.swept_at = 0.0
        return queue.take()

    assert each_time(queue, take_after_a_while) == always(moved(django_db))


def test_statements_that_check_the_installation_are_seen_by_a_wrapper(queue):
    seen: list[str] = []

    def look(execute: Any, sql: str, *others: Any) -> Any:
        seen.append(sql)
        return execute(sql, *others)

    as_in_a_new_process(queue)
    with connections["default"].execute_wrapper(look):
        assert statements(lambda: queue.put({"name": "a"})) == ["INSERT"]
    assert any("fingerprint" in sql for sql in seen)


# django.tasks


@pytest.fixture
def tasks(django_db: DjangoDatabase) -> Iterator[DjangoDatabase]:
    """A database with the table of django.tasks."""
    with backend():
        install(django_db)
        yield django_db


def test_a_task_of_django_is_enqueued_as_a_put_is(tasks):
    assert each_time(DjangoTask, lambda: jobs.add.enqueue(1, 2)) == always(["INSERT"])
    assert each_time(DjangoTask, lambda: jobs.add.enqueue(1, 2), in_atomic) == always(guarded(tasks, "INSERT"))
