"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import itertools

import peewee as pw
import pytest

from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import another_program, in_threads, is_exact, transitions

FEATURES = {"buried": True, "delayed": True, "keep": True}


@pytest.fixture
def queue(make):
    return make(FEATURES)


@pytest.fixture
def tubes(make):
    """A queue whose tubes a and b are counted, and no others."""
    return make(FEATURES, roles=("runat", "tube"), tube_stats=["a", "b"])


def numbers(Task, tube):
    """The transitions seen in a tube, and its tasks."""
    found = Task.stats().tube[tube]
    return found.transition, {letter: n for letter, n in found.counts.items() if n}


# other writers


STATUSES = ["R", "T", "W", "B", "D", "else", None]


def test_an_update_by_plain_sql_is_counted(make, subtests):
    Task = make(FEATURES, attributes={"status": pw.CharField(default="R", null=True)})
    for source, target in itertools.permutations(STATUSES, 2):
        with subtests.test(source=source, target=target):
            Task.delete().execute()
            Task.create(status=source)
            before, held = transitions(Task), Task.xq.count()
            Task.update(status=target).execute()
            letters = [letter if letter in ("R", "T", "W", "B", "D") else "X" for letter in (source, target)]
            assert transitions(Task) - before == ({} if letters == ["X", "X"] else {"-".join(letters): 1})
            assert Task.xq.count() - held == (letters[1] != "X") - (letters[0] != "X")
    assert Task.xq.check() == []


def test_what_peewees_own_methods_write_is_counted(queue):
    queue.insert_many([{"name": str(i)} for i in range(500)]).execute()
    queue.update(status="B").where(queue.size == 0).execute()
    queue.delete().execute()
    assert transitions(queue) == {"X-R": 500, "R-B": 500, "B-X": 500}
    queue.xq.reset()
    queue.bulk_create([queue(name="a"), queue(name="b")])
    created = queue.create(name="c")
    created.status = "B"
    created.save()
    created.delete_instance()
    fields = [queue.name, queue.size, queue.status, queue.attempts]
    queue.insert_from(queue.select(*fields), fields=fields).execute()
    assert transitions(queue) == {"X-R": 5, "R-B": 1, "B-X": 1}
    assert is_exact(queue)


# tubes


def test_counted_tubes_have_numbers_of_their_own_to_which_a_row_that_moves_adds_its_halves(tubes):
    for tube in ["a", "a", "b", "c", None]:
        tubes.put(task(tube=tube))
    tubes.take(tube="a").ack()
    tubes.take(tube="c").bury()
    assert numbers(tubes, "a") == ({"X-R": 2, "R-T": 1, "T-D": 1}, {"R": 1, "D": 1})
    assert numbers(tubes, "b") == ({"X-R": 1}, {"R": 1})
    assert set(tubes.stats().tube) == {"a", "b"}
    assert transitions(tubes) == {"X-R": 5, "R-T": 2, "T-D": 1, "T-B": 1}
    tubes.update(tube="b", status="B").where(tubes.tube == "a", tubes.status == "R").execute()
    tubes.update(tube=None).where(tubes.tube == "b", tubes.status == "R").execute()
    tubes.update(status="else").where(tubes.status == "D").execute()
    assert numbers(tubes, "a") == ({"X-R": 2, "R-T": 1, "T-D": 1, "R-S": 1, "D-X": 1}, {})
    assert numbers(tubes, "b") == ({"X-R": 1, "S-B": 1, "R-S": 1}, {"B": 1})
    assert is_exact(tubes)


# setting the numbers right


def test_a_recount_beside_writers_sets_the_numbers_right(make_live):
    Task = make_live(FEATURES, roles=("runat", "tube"), tube_stats=["a"])
    Task.xq.put_many(tasks(5, tube="a"))
    another_program(make_live.db, "INSERT INTO task_xq_count (tube, source, target, n) VALUES ('a', 'X', 'B', 3)")
    assert Task.xq.check() != []
    written = []

    def write():
        try:
            for _ in range(50):
                Task.put(task(tube="a"))
                taken = Task.take()
                if taken:
                    taken.bury()
        finally:
            written.append(True)

    def recount():
        while len(written) < 2:
            Task.xq.recount()

    in_threads(make_live.db, write, write, recount)
    assert is_exact(Task)


def test_a_take_is_counted_once_however_and_by_whom_it_ends(make):
    Task = make({"keep": True, "buried": True, "endless": True}, roles=())
    ids = [put.id for put in Task.xq.put_many(tasks(11))]
    another_program(make.db, f"UPDATE task SET status = 'T' WHERE id IN ({ids[0]}, {ids[1]})")
    Task.xq.take_many(9)
    assert transitions(Task) == {"X-R": 11, "R-T": 11}
    assert is_exact(Task)
    Task.ack(ids[2])
    Task.xq.release_many(ids[3:5])
    Task.take()
    for id_, changes in (
        (ids[0], "status = 'D'"),
        (ids[4], "status = 'B'"),
        (ids[5], "status = 'B', id = 1005"),
        (ids[6], "id = 1006"),
        (ids[7], "status = 'another'"),
        (ids[8], "name = 'another'"),
    ):
        another_program(make.db, f"UPDATE task SET {changes} WHERE id = {id_}")
    another_program(make.db, "UPDATE task SET status = 'D' WHERE id = 1006")
    another_program(make.db, f"DELETE FROM task WHERE id IN ({ids[1]}, {ids[9]})")
    assert is_exact(Task)
    left = {"T-D": 3, "T-R": 2, "R-B": 1, "T-B": 1, "T-X": 3}
    assert transitions(Task) == {"X-R": 11, "R-T": 12, **left}
    Task.xq.reset()
    Task.xq.truncate()
    assert is_exact(Task)
    assert transitions(Task) == {"T-X": 3, "B-X": 2, "D-X": 3}


def test_replace_counts_as_the_pragma_of_the_application_has_it(sqlite_db):
    db, Task = sqlite_db, Maker(sqlite_db)()
    put = Task.put(task())
    Task.replace(id=put.id, name="again", status="R").execute()
    assert [line.partition(" tasks")[0] for line in Task.xq.check()] == ["1"], "the deleted row is not counted"
    Task.xq.recount()
    assert Task.xq.check() == []
    db.execute_sql("PRAGMA recursive_triggers = 1")
    Task.replace(id=put.id, name="once more", status="R").execute()
    assert Task.xq.check() == []
    assert Task.take().name == "once more"


# how long the oldest ready task has waited


def test_without_a_history_the_age_of_a_ready_task_is_unknown_and_the_standstill_a_bound(make):
    queue = make({}).xq
    queue.put_many([{}] * 2)
    queue.take()
    assert (queue.snapshot().oldest, queue.snapshot().standstill) == (None, 0)
    queue.clock.tick(30)
    assert queue.snapshot().standstill == 30
    queue.take()
    assert (queue.snapshot().oldest, queue.snapshot().standstill) == ((0, True), 0), "no task is ready"
    queue.clock.tick(30)
    queue.put({})
    assert queue.snapshot().standstill == 0, "it has just become so"


AGED = {"buried": True, "history": True, "limit": 100}


@pytest.mark.parametrize("calls", ["take bury dig", "take release", "take ack", "pause", "pause tube"])
def test_what_was_done_to_other_tasks_does_not_make_the_oldest_ready_one_younger(make, calls):
    Task = make(AGED, roles=("priority", "tube"))
    Task.xq.put_many([{"priority": 5, "tube": "slow"}] * 5)
    Task.xq.clock.tick(30)
    for call in calls.split(" ") if "pause" not in calls else ():
        getattr(Task.xq, call)(*() if call == "take" else (1,))
    if "pause" in calls:
        Task.xq.pause("slow" if "tube" in calls else None)
    for priority in (1, 9):
        Task.put({"priority": priority})
    Task.xq.clock.tick(1)
    assert Task.xq.snapshot().oldest == (31, True)


def test_a_task_that_became_ready_before_the_transitions_that_are_read_has_a_lower_bound_of_its_age(make, monkeypatch):
    monkeypatch.setattr("xq.operators.inspection.WINDOWS", (2, 6))
    queue = make(AGED, roles=("priority",)).xq
    for priority in (9, 1):
        queue.put({"priority": priority})
        queue.clock.tick(10)
    assert queue.snapshot().oldest == (20, True)
    queue.ack(queue.take())
    assert queue.snapshot().oldest == (20, True)
    for _ in range(2):
        queue.put({"priority": 1})
        queue.clock.tick(5)
        queue.ack(queue.take())
    assert queue.snapshot().oldest == (10, False)
