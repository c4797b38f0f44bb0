"""Processes side by side do each thing once: no limit, value or order is broken, and no task is owned twice."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import begun_anew, is_exact, processes, transitions

MANY = 3  # processes


def yields(db, script) -> list[Any]:
    """What each of the processes yields first."""
    with processes(db, *[script] * MANY) as others:
        return [next(other) for other in others]


def test_no_task_is_taken_twice(make_live):
    Task = make_live({"keep": True})
    put = [each.id for each in Task.xq.put_many(tasks(200))]

    def script():
        done = []
        while taken := Task.xq.take_many(3):
            done += [each.id for each in Task.xq.ack_many(taken)]
        yield done

    assert sorted(chain(*yields(make_live.db, script))) == put
    assert transitions(Task) == {"X-R": 200, "R-T": 200, "T-D": 200}
    assert is_exact(Task)


def test_what_falls_due_is_moved_once(make_live):
    Task = make_live({"delayed": True})
    Task.xq.put_many(tasks(300), delay=1000)
    Task.update(runat=1).execute()

    def script():
        yield Task.xq.sweep()

    assert sum(yields(make_live.db, script)) == 300
    assert transitions(Task) == {"X-W": 300, "W-R": 300}


@pytest.mark.parametrize(
    ("features", "roles", "refusal", "calls", "put"),
    [
        pytest.param({"unique": True}, ("unique",), xq.Duplicate, 10, 10, id="one of each unique value"),
        pytest.param({"limit": 25}, (), xq.Full, 10, 25, id="no more than the limit"),
    ],
)
def test_of_tasks_that_all_put_there_are(make_live, features, roles, refusal, calls, put):
    Task = make_live(features, roles=roles)

    def script():
        done = 0
        for i in range(calls):
            with suppress(refusal):
                Task.put(task(job=f"{i}") if roles else task())
                done += 1
        yield done

    assert sum(yields(make_live.db, script)) == put
    assert is_exact(Task)


def test_no_second_has_more_takes_than_a_rate_allows(make_live):
    Task = make_live({"history": True, "rate": "40/s"})
    Task.xq.put_many(tasks(60))

    def script():
        while Task.xq.count():
            Task.xq.ack_many(Task.xq.take_many(3, timeout=1))
        yield

    yields(make_live.db, script)
    taken = sorted(each.at_us for each in Task.xq.history() if each.event == "take")
    assert len(taken) == 60
    assert all(after - before >= 1_000_000 for before, after in zip(taken, taken[40:], strict=False))


def test_the_tasks_of_a_utube_are_taken_in_order_and_one_at_a_time(make_live):
    Task = make_live({"utube": True, "keep": True, "history": True}, roles=("utube",))
    for i in range(10):
        Task.xq.put_many([task(utube=utube, name=f"{utube}{i}") for utube in "abcd"])

    def script():
        beside = []
        while Task.xq.count("D") < 40:
            if taken := Task.take(timeout=0.05):
                same = Task.select().where((Task.utube == taken.utube) & (Task.status == "T"))
                beside.append(begun_anew(Task, same.count))
                taken.ack()
        yield beside

    assert [*chain(*yields(make_live.db, script))] == [1] * 40
    names = {f"{row.id}": row.name for row in Task.select()}
    order = [names[row.key] for row in Task.xq.history() if row.event == "take"]
    for utube in "abcd":
        assert [name for name in order if name[0] == utube] == [f"{utube}{i}" for i in range(10)]
    assert is_exact(Task)


def test_each_transition_is_counted(make_live):
    Task = make_live({"buried": True})

    def script():
        for _ in range(10):
            Task.put(task())
            Task.take().ack()
        row = Task.create(name="plain")
        Task.update(status="B").where(Task.id == row.id, Task.status == "R").execute()
        yield "done"

    assert yields(make_live.db, script) == ["done"] * MANY
    assert is_exact(Task)
    assert transitions(Task)["X-R"] == 11 * MANY


def test_a_queue_is_installed_once(make_live):
    model = make_live.model()
    make_live.db.create_tables([model])
    Task = xq.upgrade(model, {"status": "status"})

    def script():
        Task.install()
        yield Task.put(task()).id

    assert len({*yields(make_live.db, script)}) == MANY
    assert Task.check() == []
    assert Task.count("R") == MANY


def test_each_firing_of_a_schedule_puts_one_task(shared_db):
    Task = Maker(shared_db)()
    Task.xq.every(10, task(), name="a")
    Task.xq.every("* * * * *", task(), name="b")

    def script():
        swept = 0
        while True:
            yield swept
            Task.xq.clock.tick(60)  # each process has a copy of the clock
            swept = Task.xq.sweep()

    with processes(shared_db, *[script] * MANY) as others:
        for other in others:
            next(other)
        for _ in range(10):
            for other in others:
                other.post(None)
            assert sum(other.hear() for other in others) == 2
    assert Task.xq.count() == 20
    assert is_exact(Task)


def test_who_begins_to_take_knows_what_is_paused(make_live):
    Task = make_live()
    Task.put(task())
    assert Task.take().release().status == "R"

    def script():
        yield Task.xq.count()  # what its parent knew was read before the pause
        yield Task.take()

    with processes(make_live.db, *[script] * MANY) as others:
        assert [next(other) for other in others] == [1] * MANY
        Task.xq.pause()
        assert [next(other) for other in others] == [None] * MANY
