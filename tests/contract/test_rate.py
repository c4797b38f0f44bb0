"""The feature rate: no more tasks are taken in a span of time than it allows, however many processes take."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import another_process, is_exact, isolate, names, processes

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

DAY = 86_400
LONG = 60.0  # seconds


def by(role, limit="2/m", burst=2):
    return {"rate": {"limit": limit, "by": role, "burst": burst}}


@pytest.mark.parametrize(
    ("limit", "interval"), [("3/m", 20), ("4/2s", 0.5), ("2/h", 1800), ("1/d", DAY), ("10/90m", 540)]
)
def test_the_tasks_of_a_limit_are_taken_evenly_spaced_and_no_pause_saves_more_than_one(make, limit, interval):
    Task = make({"rate": limit})
    Task.xq.put_many(tasks(5))
    assert [each.id for each in Task.xq.take_many(3)] == [1]
    Task.xq.clock.tick(interval - 0.01)
    assert Task.take() is None
    Task.xq.clock.tick(0.01)
    assert Task.take().id == 2
    Task.xq.clock.tick(10 * DAY)
    assert [each.id for each in Task.xq.take_many(3)] == [3]
    assert is_exact(Task)


@pytest.mark.parametrize(("limit", "span", "burst"), [(7, 3, 1), (7, 3, 2), (7, 3, 7), (100, 60, 20)])
def test_a_burst_is_taken_at_once_after_a_pause_and_no_span_has_more_than_the_limit(make, limit, span, burst):
    Task = make({"rate": {"limit": f"{limit}/{span}s", "burst": burst}})
    chance, taken = random.Random(limit), list[float]()
    Task.xq.put_many(tasks(3 * limit))
    while len(taken) < 2 * limit:
        taken += [Task.xq.clock.now] * len(Task.xq.take_many(3 * limit if not taken else chance.choice([1, 5, 50])))
        assert len(taken) >= burst
        Task.xq.clock.tick(span * chance.choice([0, 0.001, 0.01, 0.03, 0.1, 1]))
    assert all(after - before > span - 1e-6 for before, after in zip(taken, taken[limit:], strict=False))


def test_without_a_window_the_limit_is_taken_all_the_time_and_a_burst_comes_on_top(make):
    Task = make({"rate": {"limit": "10/m", "burst": 5, "window": False}})
    Task.xq.put_many(tasks(60))
    taken = []
    for pause in (0, 5.9, 0.1, *[6] * 20, DAY):
        Task.xq.clock.tick(pause)
        taken.append(len(Task.xq.take_many(60)))
    assert taken == [5, 0, *[1] * 21, 5]


@pytest.mark.parametrize("window", [True, False])
def test_a_limit_that_is_finer_than_the_clock_hides_no_task_unless_it_is_reached(make, window):
    Task = make({"rate": {"limit": "2000/s", "window": window}})
    Task.xq.put_many(tasks(1_100))
    for _ in range(50):
        assert len(Task.xq.take_many(19)) == 19
        Task.xq.clock.tick(0.01)
    assert [Task.take() is None for _ in range(20)] == [False] * 20
    assert len(Task.xq.take_many(100)) < 50
    assert is_exact(Task)


def test_a_take_that_is_rolled_back_returns_its_token(make):
    Task = make({"rate": "1/m"})
    Task.xq.put_many(tasks(2))
    with make.db.atomic() as transaction:
        assert Task.take().id == 1
        assert Task.take() is None
        transaction.rollback()
    with make.db.atomic():
        with make.db.atomic() as savepoint:
            assert Task.take().id == 1
            savepoint.rollback()
        assert Task.take().id == 1
    assert Task.take(0.01) is None


@pytest.mark.parametrize("role", ["utube", "tube"])
def test_each_utube_or_tube_has_a_limit_of_its_own_and_no_value_has_none(make, role):
    Task = make(by(role), roles=(role,))
    rows = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("a4", "a"), ("b2", "b"), ("b3", "b")]
    for name, value in rows + [(f"n{n}", None) for n in range(3)]:
        Task.put(task(name=name, **{role: value}))
    assert names(Task.xq.take_many(9)) == ["a1", "a2", "b1", "b2", "n0", "n1", "n2"]
    Task.xq.clock.tick(60)
    if role == "tube":
        assert names([Task.take(tube="b"), Task.take()]) == ["b3", "a3"]
    else:
        assert names([Task.take(), Task.take()]) == ["a3", "b3"]
    assert Task.take() is None
    assert is_exact(Task)


@pytest.mark.parametrize("role", ["utube", "tube"])
def test_single_values_have_limits_of_their_own(make, role):
    of = {"acme": "6/m", "free": {"limit": "1/m"}, "some": {"limit": "3/m", "burst": 1, "window": False}}
    Task = make({"rate": {"limit": "2/m", "by": role, "burst": 2, "of": of}}, roles=(role,))
    for _ in range(9):
        for value in (*of, "other", "any"):
            Task.put(task(name=value, **{role: value}))

    def taken():
        return Counter(names(Task.xq.take_many(50)))

    assert taken() == {"acme": 2, "free": 1, "some": 1, "other": 2, "any": 2}
    assert Task.take(0) is None
    Task.xq.clock.tick(20)
    assert taken() == {"acme": 1, "some": 1}
    Task.xq.clock.tick(40)
    assert taken() == {"acme": 2, "free": 1, "some": 1, "other": 1, "any": 1}
    assert is_exact(Task)


@pytest.mark.parametrize("role", ["utube", "tube"])
@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a", "a "), ("acme", "acmé"), ("ü", "u")])
def test_values_have_one_bucket_if_they_are_the_same_text(make, role, one, other):
    Task = make(by(role, "1/m", 1), roles=(role,))
    for value in [one, one, other, other]:
        Task.put(task(name=value, **{role: value}))
    assert names(Task.xq.take_many(4)) == [one, other]


def test_a_rate_goes_with_the_feature_utube(make):
    Task = make({"utube": 3} | by("utube"), roles=("utube", "priority"))
    for i in range(4):
        for utube in ("a", "b", None):
            Task.put(task(name=f"{utube}{i}", utube=utube))
    taken: Counter[str | None] = Counter()
    while found := Task.xq.take_many(2):
        taken.update(each.utube for each in found)
        for each in found:
            each.ack()
    assert taken == {"a": 2, "b": 2, None: 4}
    Task.xq.clock.tick(60)
    assert sorted(names(Task.xq.take_many(9))) == ["a2", "b2"]
    assert is_exact(Task)


def test_queues_do_not_share_their_limits_and_uninstall_forgets_what_was_taken(make):
    for Task in (make({"rate": "1/m"}), make({"rate": "1/m"}, model=make.model(table_name="other"))):
        Task.xq.put_many(tasks(2))
        assert [each.ack().id for each in Task.xq.take_many(2)] == [1]
        Task.xq.uninstall()
        Task.xq.install()
        assert Task.take().id == 2


def test_a_waiting_take_gets_the_task_when_there_is_a_token(make_live):
    Task = make_live({"rate": "2/s"})
    Task.xq.put_many(tasks(3))
    assert [Task.take(LONG).id for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("features", [{"utube": 9}, {}])
def test_processes_together_take_no_more_of_a_utube_than_its_limit(make_live, features):
    Task = make_live(features | by("utube", "5/d", 5), roles=("utube",))
    Task.xq.put_many([task(utube="abc"[i % 3]) for i in range(60)])

    def child():
        yield [each.utube for _ in range(6) for each in Task.xq.take_many(2)]
        yield

    with processes(make_live.db, *[child] * 4) as others:
        taken = Counter(utube for other in others for utube in next(other))
    assert taken == {"a": 5, "b": 5, "c": 5}
    assert is_exact(Task)


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_an_old_snapshot_takes_no_more_than_the_limit(make_live):
    isolate(make_live.db, "REPEATABLE READ")
    Task = make_live({"rate": "1/d"})
    Task.xq.put_many(tasks(3))

    def child():
        yield
        yield Task.take().id

    with another_process(make_live.db, child) as other:
        next(other)
        with make_live.db.atomic():
            assert Task.select().count() == 3
            taken = [next(other)]
            with suppress(pw.OperationalError):  # PostgreSQL cannot serialize the access
                taken += [each.id for each in Task.xq.take_many(3)]
    assert taken == [1]


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_run_until_empty_works_on_what_waits_for_a_token_only(make_live, kind):
    Task = make_live({"keep": True, "rate": "50/s"})
    Task.xq.put_many(tasks(4))

    async def later(task: Any) -> None: ...

    Task.xq.worker(later if kind == "asyncio" else lambda task: None)
    Task.xq.run(until_empty=True)
    assert Task.xq.count("D") == 4
