"""The feature unique: one task at a time for each value."""

from __future__ import annotations

from itertools import product

import peewee as pw
import pytest

import xq
from tests.steps import bring, is_exact, row, transitions

FEATURES = {"unique": True, "delayed": True, "buried": True, "keep": True}
ROLES = ("runat", "priority", "unique", "attempts")


@pytest.fixture
def queue(make):
    return make(FEATURES, roles=ROLES)


WORDS = {"R": "new", "T": "busy", "W": "later", "B": "failed", "D": "done"}


@pytest.mark.parametrize("statuses", [None, WORDS], ids=["letters", "words"])
@pytest.mark.parametrize(
    ("field", "job", "other"), [(pw.TextField, "a", "A "), (pw.IntegerField, 5, 6)], ids=["text", "integer"]
)
def test_there_is_one_task_for_a_value_until_it_is_done_or_buried_or_gone(make, field, job, other, statuses, subtests):
    Task = make(FEATURES, roles=ROLES, attributes={"job": field(null=True)}, statuses=statuses)
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


def test_replace_updates_the_one_that_is_there_in_place(queue):
    there = queue.put({"job": "a", "name": "first", "size": 1, "priority": 5})
    replaced = queue.put({"job": "a", "name": "second", "priority": 2}, on_conflict="replace")
    assert (replaced.id, replaced.name, replaced.size, replaced.priority) == (there.id, "second", 1, 2)
    assert row(queue, there).__data__ == replaced.__data__
    assert queue.put({"id": 99, "job": "a"}, on_conflict="replace").id == there.id
    assert queue.put(queue(job="a", name="b"), on_conflict="replace").name == "b"
    taken = queue.take()
    with pytest.raises(xq.WrongState) as wrong:
        queue.put({"job": "a", "name": "third"}, on_conflict="replace")
    assert (wrong.value.key, wrong.value.state, row(queue, taken).name) == (there.id, "T", "b")


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


def test_what_the_table_refuses_is_no_duplicate(make):
    jobs = pw.IntegerField(default=0)  # the name begins as that of the role
    Task = make(FEATURES, roles=ROLES, attributes={"jobs": jobs})
    buried = bring(Task, "B", {"job": "a"})
    for call in (lambda: Task.put({"job": "b", "jobs": None}), lambda: Task.dig(buried.id, update={"jobs": None})):
        with pytest.raises(pw.IntegrityError):
            call()
    assert (Task.xq.count(), row(Task, buried).status) == (1, "B")


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


def test_put_many_puts_all_or_none(queue):
    queue.put({"job": "b"})
    before = transitions(queue)
    for jobs in ["abc", "acc"]:
        with pytest.raises(xq.Duplicate):
            queue.xq.put_many([{"job": job} for job in jobs])
    assert transitions(queue) == before
    assert is_exact(queue)


@pytest.mark.parametrize("padded", [False, True])
def test_put_many_returns_each_task_in_its_place_also_of_those_that_are_there(make, padded):
    field = pw.FixedCharField if padded and isinstance(make.db, pw.PostgresqlDatabase) else pw.TextField
    Task = make(FEATURES, roles=ROLES, attributes={"job": field(null=True)})
    there = Task.xq.put_many([{"job": "b"}, {"job": "d"}])
    before = transitions(Task)
    with pytest.raises(xq.Duplicate) as refused:
        Task.xq.put_many([{"job": each} for each in "axbd"])
    assert (refused.value.value, refused.value.key, transitions(Task)) == ("b", there[0].id, before)
    jobs = ["a", "b", None, "c", "a", "d", None, "e"]
    put = Task.xq.put_many([{"job": job, "size": n} for n, job in enumerate(jobs)], on_conflict="skip")
    assert [(each.job and each.job.strip(), each.size) for each in put] == [
        *[("a", 0), ("b", 0), (None, 2), ("c", 3), ("a", 0), ("d", 0), (None, 6), ("e", 7)]
    ]
    assert [each.id for each in put if each in there] == [each.id for each in there]
    assert is_exact(Task)


def test_put_many_may_skip_and_replace(queue):
    first = queue.put({"job": "b", "size": 1})
    skipped = queue.xq.put_many([{"job": "a"}, {"job": "b", "size": 2}, {"job": "a"}], on_conflict="skip")
    assert [(each.job, each.size) for each in skipped] == [("a", 0), ("b", 1), ("a", 0)]
    replaced = queue.xq.put_many([{"job": "b", "size": 3}, {"job": "c"}], on_conflict="replace")
    assert (replaced[0].id, replaced[0].size, replaced[1].job) == (first.id, 3, "c")
    assert queue.xq.count("R") == 3
    later = queue.put({"job": "w"}, delay=5)
    twice = queue.xq.put_many([{"job": "w", "size": 4}, {"job": "w", "size": 5}], on_conflict="replace")
    assert [(each.id, each.status, each.size) for each in twice] == [(later.id, "R", 4), (later.id, "R", 5)]


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_put_many_does_not_guess_which_tasks_were_refused_if_a_trigger_changes_their_values(queue):
    queue._meta.database.execute_sql(
        "CREATE FUNCTION small() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.job = lower(NEW.job); RETURN NEW; "
        "END $$; CREATE TRIGGER small BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION small()"
    )
    queue.put({"job": "A"})
    with pytest.raises(xq.Duplicate):
        queue.xq.put_many([{"job": "A"}, {"job": "B"}], on_conflict="skip")
    assert queue.xq.count() == 1


def test_equal_values_of_one_call_need_the_room_of_one_task(make):
    Task = make(FEATURES | {"limit": 2}, roles=ROLES)
    put = Task.xq.put_many([{"job": job} for job in "aaabbbb"], on_conflict="skip")
    assert [each.id for each in put] == [put[0].id] * 3 + [put[3].id] * 4
    with pytest.raises(xq.Full):
        Task.xq.put_many([{"job": job} for job in "acc"], on_conflict="skip")


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_any_number_of_values_that_the_database_holds_equal_are_one(make):
    Task = make(FEATURES, roles=ROLES, attributes={"job": pw.TextField(collation="NOCASE")})
    jobs = ["".join(case) for case in product("aA", "bB", "cC", "dD", "eE")]
    assert len({each.id for each in Task.xq.put_many([{"job": job} for job in jobs], on_conflict="skip")}) == 1
