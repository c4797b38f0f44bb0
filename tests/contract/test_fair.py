"""Takes that go to the utube served longest ago."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any
from uuid import UUID

import peewee as pw
import pytest

FAIR = {"n": 1, "fair": True}


def queue(make: Any, utube: Any = FAIR, **features: Any) -> Any:
    return make({"utube": utube, "keep": True, **features}, roles=("utube", "priority"))


def put(Task: Any, *names: str, **row: Any) -> None:
    """Tasks called by their utube and their number in it, "a0"; one that begins with "-" has no utube."""
    Task.xq.put_many([{"name": name, "utube": None if name[0] == "-" else name[0], **row} for name in names])


def done(Task: Any, n: int) -> str:
    """The names of the next tasks, each taken when the one before it has ended."""
    found = []
    for _ in range(n):
        task = Task.take()
        found.append(task.name)
        task.ack()
    return " ".join(found)


def test_takes_go_round_the_utubes(make):
    Task = queue(make)
    put(Task, "a0", "a1", "a2", "b0", "b1", "c0")
    assert done(Task, 3) == "a0 b0 c0"
    assert done(Task, 3) == "a1 b1 a2"
    assert Task.take() is None
    assert Task.xq.check() == []


def test_a_new_utube_comes_before_all_others_within_ten_takes(make):
    Task = queue(make, {"n": 4, "fair": True})
    Task.xq.put_many([{"name": f"a{i}", "utube": "a"} for i in range(200)])
    Task.xq.put_many([{"name": f"-{i}", "utube": None} for i in range(200)])
    assert done(Task, 5) == "a0 -0 a1 -1 a2"
    put(Task, "b0")
    assert done(Task, 2) == "b0 -2"


def test_tasks_without_a_utube_are_one_that_has_no_limit(make):
    Task = queue(make)
    put(Task, "-0", "-1", "a0", "-2", "b0", "a1")
    assert [Task.take().name for _ in range(5)] == ["-0", "a0", "b0", "-1", "-2"]
    assert Task.take() is None
    assert Task.xq.check() == []


def test_a_batch_has_one_task_of_each_utube_then_the_second_ones(make):
    Task = queue(make, {"n": 2, "fair": True})
    put(Task, "a0", "a1", "a2", "-0", "-1", "-2", "b0")
    assert [task.name for task in Task.xq.take_many(6)] == ["a0", "-0", "b0", "a1", "-1", "-2"]
    assert Task.xq.take_many(5) == []
    Task.xq.release_all()
    with Task._meta.database.atomic():
        assert [task.name for task in Task.xq.take_many(2)] == ["a0", "b0"]
        assert len(Task.xq.take_many(2)) == 2
    assert Task.xq.check() == []


def test_priorities_count_within_a_utube_and_not_between_two(make):
    Task = queue(make, priority=True)
    put(Task, "a0", "b0", priority=5)
    put(Task, "a1", "a2", priority=1)
    assert done(Task, 4) == "a1 b0 a2 a0"


@pytest.mark.parametrize("keep", [False, True], ids=["deleted", "kept"])
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("later", [0, 1], ids=["put at once", "put one take later"])
def test_customers_who_put_one_task_at_a_time_get_their_share_and_no_more(make, keep, n, later):
    """`n` tasks are in hand at a time. A customer's next task follows the end of the last one."""
    Task = queue(make, {"n": n, "fair": True}, keep=keep)
    put(Task, *(f"a{i}" for i in range(1_000)))
    put(Task, *(f"{utube}0" for utube in "bcdefghi"))
    in_hand, to_put, served = deque[Any](), deque[str](), Counter[str]()
    for _ in range(180):
        in_hand.append(Task.take())
        served[in_hand[-1].utube] += 1
        if len(in_hand) == n:
            task = in_hand.popleft()
            task.ack()
            to_put.append(task.utube)
        while len(to_put) > later:
            if (utube := to_put.popleft()) != "a":
                put(Task, f"{utube}1")
    assert [served[utube] for utube in "abcdefghi"] == pytest.approx([20] * 9, abs=4)
    Task.xq.sweep()
    assert Task.xq.check() == []


def is_next_beside(make: Any, customers: int) -> None:
    """A new customer's task is taken next beside so many, with ten tasks each, who have been served."""
    Task = queue(make, {"n": 10, "fair": True})
    Task.xq.put_many([{"name": "old", "utube": f"c{i % customers}"} for i in range(10 * customers)])
    taken = 0
    while taken < customers:
        taken += len(tasks := Task.xq.take_many(100))
        Task.xq.ack_many(tasks)
    put(Task, "n0")
    assert "n0" in done(Task, 10).split()
    assert Task.xq.check() == []


def test_a_new_customer_is_next_beside_many_who_have_been_served(make):
    is_next_beside(make, 100)


def test_a_new_customer_is_next_beside_ten_thousand_who_have_been_served(make, takes_its_time):
    is_next_beside(make, 10_000)


def test_a_utube_whose_tasks_have_ended_keeps_its_turn(make):
    Task = queue(make)
    put(Task, "a0", "b0", "b1", "b2")
    assert done(Task, 1) == "a0"
    for turn in (1, 2):
        Task.xq.sweep()
        put(Task, f"a{turn}")
        assert done(Task, 2) == f"b{turn - 1} a{turn}"
    assert done(Task, 1) == "b2"
    assert Task.xq.check() == []


def test_single_utubes_have_limits_of_their_own(make):
    for features in ({}, {"fair": True}):
        Task = queue(make, {"n": 1, "of": {"a": 2, "b": 3}, **features})
        put(Task, *(f"{utube}{i}" for utube in "abc" for i in range(4)))
        taken = [Task.take() for _ in range(6)]
        assert sorted(task.name for task in taken) == ["a0", "a1", "b0", "b1", "b2", "c0"]
        assert Task.take() is None
        assert "is busy" in Task.xq.why(Task.get(Task.name == "c1").id)[0]
        assert Task.xq.check() == []
        Task.xq.uninstall()
        Task.drop_table()


def test_install_makes_a_queue_fair_and_back(make):
    Task = queue(make, 1)
    put(Task, "a0", "a1", "b0", "-0", "-1")
    Task.take()
    for utube, wanted in ((FAIR, "b0 -0 -1"), (1, "b0 -0 -1"), ({"n": 1, "of": {"a": 2}}, "a1 b0 -0 -1")):
        make.INSTALLS = False
        Task = queue(make, utube)
        Task.xq.install(downgrade=True)
        assert Task.xq.check() == []
        taken = Task.xq.take_many(4)
        assert " ".join(task.name for task in taken) == wanted
        Task.xq.release_many(taken)


@pytest.mark.of_peewee("a value is an instance of another model")
@pytest.mark.parametrize(
    ("key", "ids"),
    [
        (pw.AutoField(), [None, None]),
        (pw.CharField(max_length=40, primary_key=True), ["big", "small"]),
        (pw.UUIDField(primary_key=True), [UUID(int=1), UUID(int=2)]),
    ],
    ids=["integer", "text", "uuid"],
)
def test_a_foreign_key_is_the_utube(make, key, ids):
    meta = type("Meta", (), {"database": make.db, "table_name": "customer"})
    Customer: Any = type("Customer", (pw.Model,), {"id": key, "Meta": meta})
    make.db.create_tables([Customer])
    big, small = (Customer.create(**({"id": id} if id else {})) for id in ids)
    fields = {"status": "status", "utube": "customer"}
    of = {"n": 1, "fair": True, "of": {big.id: 2}}
    attributes = {"customer": pw.ForeignKeyField(Customer, null=True)}
    Task = make({"utube": of, "keep": True}, fields=fields, attributes=attributes)
    Task.xq.put_many([{"customer": big, "name": f"{n}"} for n in range(4)])
    Task.put({"customer": small, "name": "4"})
    assert [task.name for task in Task.xq.take_many(4)] == ["0", "4", "1"]
    assert Task.xq.check() == []


def test_why_names_the_first_task_of_the_utube_and_its_tube(make):
    Task = make({"utube": FAIR}, roles=("utube", "tube"))
    rows = [("a", "slow"), ("a", "mail"), ("a", "slow"), ("b", "mail"), (None, "slow"), (None, "mail")]
    Task.xq.put_many([{"utube": utube, "tube": tube} for utube, tube in rows])
    first = [[line for line in Task.xq.why(key) if "first" in line] for key in range(1, 7)]
    slow, none = ["task 1 of its utube comes first, in the tube 'slow'"], "task 5 of its utube comes first"
    assert first == [[], slow, ["task 1 of its utube comes first"], [], [], [f"{none}, in the tube 'slow'"]]
    assert [task.id for task in Task.xq.take_many(3, tube="mail")] == [4]
