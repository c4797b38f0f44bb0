"""The feature unique: one task at a time for each value."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task
from tests.steps import (
    STUCK,
    bring,
    in_threads,
    is_exact,
    row,
    transitions,
    until_one_waits_for_a_lock,
)

FEATURES = {"unique": True, "delayed": True, "buried": True, "keep": True}
ROLES = ("runat", "priority", "unique", "attempts")


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=ROLES)


WORDS = {"R": "new", "T": "busy", "W": "later", "B": "failed", "D": "done"}
VALUES: dict[str, tuple[Callable[[], pw.Field], Any, Any]] = {
    "text": (lambda: pw.TextField(null=True), "a", "A "),
    "integer": (lambda: pw.IntegerField(null=True), 5, 6),
}


@pytest.mark.parametrize("statuses", [None, WORDS], ids=["letters", "words"])
@pytest.mark.parametrize("kind", VALUES)
def test_there_is_one_task_for_a_value_until_it_is_done_or_buried_or_gone(make, kind, statuses, subtests):
    field, job, other = VALUES[kind]
    Task = make(FEATURES, roles=ROLES, attributes={"job": field()}, statuses=statuses)
    for here in "WRTBDX":
        with subtests.test(here):
            Task.xq.truncate()
            there = bring(Task, "R" if here == "X" else here, {"job": job, "name": "first"})
            if here == "X":
                there = Task.kill(there)
            before = transitions(Task)
            if here in "WRT":
                for options in ({}, {"on_conflict": "raise"}, {"delay": 5}, {"on_conflict": None}):
                    with pytest.raises(xq.Duplicate, match=repr(job)) as refused:
                        Task.put({"job": job}, **options)
                    assert (refused.value.value, refused.value.key) == (job, there.id), (here, options)
                with pytest.raises(pw.IntegrityError):
                    Task.create(job=job, status=(statuses or {}).get("R", "R"))
                skipped = Task.put({"job": job, "name": "second"}, on_conflict="skip")
                assert skipped.__data__ == row(Task, there).__data__ == there.__data__, here
                assert transitions(Task) == before, here
            else:
                assert Task.put({"job": job}, on_conflict="skip").name is None, here
            for value in (other, None, None):
                Task.put({"job": value}, on_conflict="skip")
            assert Task.select().where(Task.job.is_null()).count() == 2, here


# replace


def test_replace_updates_the_one_that_is_there_in_place(queue):
    there = queue.put({"job": "a", "name": "first", "size": 1, "priority": 5})
    replaced = queue.put({"job": "a", "name": "second", "priority": 2}, on_conflict="replace")
    assert (replaced.id, replaced.name, replaced.size, replaced.priority) == (there.id, "second", 1, 2)
    assert row(queue, there).__data__ == replaced.__data__
    assert queue.put({"id": 99, "job": "a"}, on_conflict="replace").id == there.id
    assert queue.put(queue(job="a", name="b"), on_conflict="replace").name == "b"
    assert queue.xq.count() == 1


def test_replace_starts_the_times_anew(make):
    Task = make({"unique": True, "ttl": 10, "delayed": True}, roles=("runat", "unique"))
    Task.put({"job": "a"})
    Task.xq.clock.tick(5)
    assert Task.put({"job": "a"}, on_conflict="replace").runat == Task.xq.clock.now + 10
    assert Task.put({"job": "a"}, on_conflict="replace", ttl=3).runat == Task.xq.clock.now + 3
    waiting = Task.put({"job": "a"}, on_conflict="replace", delay=7)
    assert (waiting.status, waiting.runat) == ("W", Task.xq.clock.now + 7)
    assert Task.put({"job": "a"}, on_conflict="replace").status == "R"
    assert Task.stats().transition == {"X-R": 1, "R-W": 1, "W-R": 1}
    Task.xq.clock.tick(10)
    assert Task.put({"job": "a"}, on_conflict="replace").runat == Task.xq.clock.now + 10, "though it was overdue"
    taken = Task.take()
    with pytest.raises(xq.WrongState) as wrong:
        Task.put({"job": "a", "name": "second"}, on_conflict="replace")
    assert (wrong.value.key, wrong.value.state, row(Task, taken).name) == (taken.id, "T", None)


# the states


def test_the_letters_say_in_which_states_a_value_is_unique(make):
    Task = make(FEATURES | {"unique": "WRTBD"}, roles=ROLES)
    for here, job in zip("WTBD", "abcd"):
        bring(Task, here, {"job": job})
        with pytest.raises(xq.Duplicate):
            Task.put({"job": job})


def test_what_returns_to_a_state_where_its_value_is_taken_is_a_duplicate(queue):
    for here, move in [
        ("B", lambda there: there.dig()),
        ("B", lambda there: queue.plow()),
        ("B", lambda there: there.dig(delay=5)),
        ("D", lambda there: queue.xq.restart(there)),
        ("D", lambda there: queue.xq.switch(there, "R")),
    ]:
        there = bring(queue, here, {"job": "a"})
        queue.put({"job": "a"})
        with pytest.raises(xq.Duplicate):
            move(there)
        assert row(queue, there).status == here
        queue.xq.truncate()


def test_a_duplicate_leaves_the_transaction_usable(queue):
    buried = bring(queue, "B", {"job": "a"})
    with queue._meta.database.atomic():
        queue.put({"job": "a", "name": "first"})
        with pytest.raises(xq.Duplicate):
            buried.dig()
        queue.put({"name": "last"})
    assert [each.name for each in queue.xq.by_state("R")] == ["first", "last"]
    assert row(queue, buried).status == "B"
    assert is_exact(queue)


# many


def test_put_many_puts_all_or_none(queue):
    queue.put({"job": "b"})
    before = transitions(queue)
    for jobs in ["abc", "acc"]:
        with pytest.raises(xq.Duplicate):
            queue.xq.put_many([{"job": job} for job in jobs])
    assert transitions(queue) == before
    assert is_exact(queue)


def test_put_many_may_skip_and_replace(queue):
    first = queue.put({"job": "b", "size": 1})
    skipped = queue.xq.put_many([{"job": "a"}, {"job": "b", "size": 2}, {"job": "a"}], on_conflict="skip")
    assert [(each.job, each.size) for each in skipped] == [("a", 0), ("b", 1), ("a", 0)]
    replaced = queue.xq.put_many([{"job": "b", "size": 3}, {"job": "c"}], on_conflict="replace")
    assert (replaced[0].id, replaced[0].size, replaced[1].job) == (first.id, 3, "c")
    assert queue.xq.count("R") == 3


# what is refused


# races


def puts(Task, jobs, on_conflict):
    def work():
        made = []
        for job in jobs:
            try:
                made.append(Task.put(task(job=job), on_conflict=on_conflict).id)
            except xq.Duplicate:
                pass
        return made

    return work


@pytest.mark.parametrize("on_conflict", ["raise", "skip", "replace"])
def test_of_threads_that_put_the_same_value_one_puts_it(make_live, on_conflict):
    Task = make_live({"unique": True}, roles=("unique",))
    jobs = [f"{i}" for i in range(10)]
    made = in_threads(make_live.db, *[puts(Task, jobs, on_conflict)] * 4)
    assert transitions(Task) == {"X-R": 10}
    assert sum(map(len, made)) == (10 if on_conflict == "raise" else 40)
    assert is_exact(Task)


# what is installed


def install_and_refuse(make, model):
    """Install a queue over values that stand twice."""
    model.insert_many([{"job": "a"}] * 2).execute()
    with pytest.raises(xq.ConfigurationError, match="twice"):
        xq.upgrade(model, {"status": "status", "unique": "job"}, {"unique": True}).install()


def install_two(make, model):
    """Install a queue, and in its place, as the next release of the application does, one without the feature."""
    make({"unique": True}, roles=("unique",), model=make.model())
    xq.upgrade(model, {"status": "status", "unique": "job"}).install()


def reconfigure(make, model):
    Task = make({"unique": True, "keep": True}, roles=("unique",), model=model)
    Task.xq.reconfigure({"keep": True})


INSTALLS = {
    "installed": lambda make, model: make({"unique": True}, roles=("unique",), model=model),
    "refused": install_and_refuse,
    "replaced": install_two,
    "reconfigured": reconfigure,
}


@pytest.mark.parametrize("how", INSTALLS)
def test_uninstall_leaves_the_columns_and_indexes_of_the_application(make, how):
    model = make.model()
    make.db.create_tables([model])
    before = make.db.get_columns("task"), make.db.get_indexes("task"), make.db.get_tables()
    INSTALLS[how](make, model)
    model.xq.uninstall()
    assert (make.db.get_columns("task"), make.db.get_indexes("task"), make.db.get_tables()) == before


UNIQUES: dict[str, Callable[[], tuple[pw.Field, Any]]] = {
    "text": lambda: (pw.TextField(null=True), "a"),
    "integer": lambda: (pw.IntegerField(null=True), 1),
    "uuid": lambda: (pw.UUIDField(null=True), uuid.UUID(int=1)),
}


@pytest.mark.parametrize("kind", UNIQUES)
def test_a_queue_whose_values_stand_twice_is_not_given_the_feature_and_is_once_they_do_not(make, kind):
    field, value = UNIQUES[kind]()
    Task = make(roles=("unique",), attributes={"job": field})
    for _ in range(2):
        Task.put({"job": value})
    with pytest.raises(xq.ConfigurationError, match="two tasks hold"):
        Task.xq.reconfigure({"unique": True})
    Task.take().ack()
    Task.xq.reconfigure({"unique": True})
    with pytest.raises(xq.Duplicate):
        Task.put({"job": value})


def test_unique_in_states_that_the_queue_has_not_had_may_be_added(make):
    Task = make(roles=("unique",))
    Task.put({"job": "a"})
    Task.put({"job": "a"})
    Task.xq.reconfigure({"unique": "B", "buried": True})
    Task.take().bury()
    with pytest.raises(xq.Duplicate):
        Task.take().bury()


def test_rows_that_another_program_wrote_in_a_state_of_the_new_features_count_before_they_are_given(make):
    Task = make(roles=("unique",))
    Task.put({"job": "a"})
    Task.insert(status="B", job="a").execute()
    with pytest.raises(xq.ConfigurationError, match="two tasks hold"):
        Task.xq.reconfigure({"unique": "RTB", "buried": True})
    assert Task.take().job == "a"


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
@pytest.mark.parametrize(("options", "found"), [({}, "Duplicate"), ({"on_conflict": "skip"}, 1)])
def test_a_value_that_another_transaction_has_just_put_does_not_make_a_queue_full(make_live, options, found):
    Task, results = make_live({"limit": 5, "unique": True}, roles=("unique",)), list[Any]()

    def put() -> Any:
        try:
            return Task.put({"job": "a"}, **options).id
        except xq.Error as error:
            return type(error).__name__

    with make_live.db.atomic():
        Task.put({"job": "a"})
        thread = threading.Thread(target=lambda: results.extend(in_threads(make_live.db, put)))
        thread.start()
        until_one_waits_for_a_lock(make_live.db)
    thread.join(STUCK)
    assert results == [found]
