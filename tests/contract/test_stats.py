"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import itertools
import json

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, SERVERS, SHARED, live
from tests.factories import task, tasks
from tests.steps import (
    another_program,
    begun_anew,
    bring,
    in_threads,
    is_exact,
    isolate,
    transitions,
)

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


def test_an_empty_queue_has_counts_of_nothing_and_no_transitions(queue):
    stats = queue.stats()
    assert stats.counts == {"R": 0, "T": 0, "W": 0, "B": 0, "D": 0}
    assert stats.transition == {}
    assert stats.tube == {}


def test_each_transition_is_counted(queue):
    queue.xq.put_many(tasks(3))
    queue.put(task(), delay=5)
    queue.take().ack()
    queue.take().bury()
    queue.take().release()
    stats = queue.stats()
    assert stats.transition == {"X-R": 3, "X-W": 1, "R-T": 3, "T-D": 1, "T-B": 1, "T-R": 1}
    assert stats.counts == {"R": 1, "T": 0, "W": 1, "B": 1, "D": 1}


def test_pretty_spells_the_states(make):
    Task = make({"zombie": 30, "buried": True, "delayed": True}, roles=("runat", "tube"), tube_stats=["a"])
    Task.put(task(tube="a"))
    Task.take().ack()
    pretty = Task.stats(pretty=True)
    assert pretty.counts == {"Ready": 0, "Taken": 0, "Waiting": 0, "Buried": 0, "Zombie": 1}
    assert {name.split("-")[1] for name in pretty.transition} == {"Ready", "Taken", "Zombie"}
    assert pretty.transition["Ready-Taken"] == pretty.tube["a"].transition["Ready-Taken"] == 1
    assert Task.xq.stats(pretty=True) == pretty


def test_queue_stats_is_stats(queue):
    queue.put(task())
    assert queue.queue_stats() == queue.xq.queue_stats() == queue.stats()
    assert queue.queue_stats(pretty=True) == queue.stats(pretty=True)


def test_stats_are_a_pydantic_model(tubes):
    tubes.put(task(tube="a"))
    stats = tubes.stats()
    assert isinstance(stats, xq.Stats)
    assert json.loads(stats.model_dump_json()) == stats.model_dump()


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


def test_an_insert_and_a_delete_by_plain_sql_are_counted(make, subtests):
    Task = make(FEATURES, attributes={"status": pw.CharField(default="R", null=True)})
    for status in STATUSES:
        with subtests.test(status=status):
            Task.xq.reset()
            Task.insert(status=status).execute()
            Task.delete().execute()
            foreign = status in ("else", None)
            assert transitions(Task) == ({} if foreign else {f"X-{status}": 1, f"{status}-X": 1})


def test_an_update_that_changes_no_status_is_no_transition(queue):
    queue.xq.put_many(tasks(3))
    before = transitions(queue)
    queue.update(name="x", status="R").execute()
    queue.update(size=5, runat=None).execute()
    assert transitions(queue) == before


def test_statements_over_many_rows_are_counted_row_by_row(queue):
    queue.insert_many([{"name": str(i)} for i in range(500)]).execute()
    queue.update(status="B").where(queue.id <= 300).execute()
    queue.delete().where(queue.id > 400).execute()
    assert transitions(queue) == {"X-R": 500, "R-B": 300, "R-X": 100}
    assert is_exact(queue)


def test_what_peewees_own_methods_write_is_counted(queue):
    queue.bulk_create([queue(name="a"), queue(name="b")])
    created = queue.create(name="c")
    created.status = "B"
    created.save()
    queue.bulk_update([created], fields=[queue.name])
    created.delete_instance()
    queue.insert(name="d").execute()
    fields = [queue.name, queue.size, queue.status, queue.attempts]
    queue.insert_from(queue.select(*fields), fields=fields).execute()
    assert transitions(queue) == {"X-R": 7, "R-B": 1, "B-X": 1}
    assert is_exact(queue)


def test_save_counts_only_what_it_changes(queue):
    put = queue.put(task())
    queue.take()
    put.name = "new"
    put.save()
    assert transitions(queue) == {"X-R": 1, "R-T": 1}
    assert is_exact(queue)


def test_a_statement_that_fails_counts_nothing(make):
    Task = make(FEATURES, attributes={"code": pw.IntegerField(unique=True, null=True)})
    Task.create(code=1)
    with pytest.raises(pw.IntegrityError), make.db.atomic():
        Task.insert_many([{"code": 2}, {"code": 1}]).execute()
    assert transitions(Task) == {"X-R": 1}
    assert is_exact(Task)


def test_what_is_rolled_back_was_never_counted(queue):
    queue.put(task())
    before = queue.stats()
    with queue._meta.database.atomic() as transaction:
        queue.put(task())
        queue.take().ack()
        queue.create(name="x")
        queue.update(status="B").execute()
        transaction.rollback()
    assert queue.stats() == before
    assert is_exact(queue)


def test_what_is_rolled_back_to_a_savepoint_was_never_counted(queue):
    db = queue._meta.database
    with db.atomic():
        queue.put(task())
        with db.atomic() as savepoint:
            queue.xq.put_many(tasks(3))
            queue.take()
            savepoint.rollback()
        queue.take()
    assert transitions(queue) == {"X-R": 1, "R-T": 1}
    assert is_exact(queue)


def test_threads_are_counted_exactly(make_live):
    Task = make_live(FEATURES)

    def queue_work():
        for _ in range(20):
            Task.put(task())
            taken = Task.take()
            taken and taken.ack()

    def plain_work():
        for i in range(20):
            begun_anew(Task, lambda: Task.create(name="plain"))
            ready = Task.update(status="BD"[i % 2]).where(Task.name == "plain", Task.status == "R")
            begun_anew(Task, ready.execute)

    in_threads(make_live.db, queue_work, plain_work, queue_work, plain_work)
    assert is_exact(Task)
    assert sum(n for name, n in transitions(Task).items() if name.startswith("X-")) == Task.select().count() == 80


# tubes


def test_counted_tubes_have_numbers_of_their_own(tubes):
    for tube in ["a", "a", "b", "c", None]:
        tubes.put(task(tube=tube))
    tubes.take(tube="a").ack()
    tubes.take(tube="c").bury()
    assert numbers(tubes, "a") == ({"X-R": 2, "R-T": 1, "T-D": 1}, {"R": 1, "D": 1})
    assert numbers(tubes, "b") == ({"X-R": 1}, {"R": 1})
    assert set(tubes.stats().tube) == {"a", "b"}
    assert transitions(tubes) == {"X-R": 5, "R-T": 2, "T-D": 1, "T-B": 1}
    assert is_exact(tubes)


def test_a_counted_tube_without_tasks_is_told_all_the_same(tubes):
    assert numbers(tubes, "b") == ({}, {})


def test_an_update_that_changes_neither_status_nor_tube_counts_in_no_tube(tubes):
    tubes.put(task(tube="a"))
    tubes.update(status="R", tube="a").execute()
    assert numbers(tubes, "a") == ({"X-R": 1}, {"R": 1})


def test_a_change_of_tube_leaves_one_and_enters_the_other(tubes):
    tubes.put(task(tube="a"))
    tubes.update(tube="b").execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-S": 1}, {})
    assert numbers(tubes, "b") == ({"S-R": 1}, {"R": 1})
    assert transitions(tubes) == {"X-R": 1}
    assert is_exact(tubes)


def test_a_change_of_tube_and_state_is_each_tubes_own_half(tubes):
    tubes.put(task(tube="a"))
    tubes.take()
    tubes.update(tube="b", status="R").execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-T": 1, "T-S": 1}, {})
    assert numbers(tubes, "b") == ({"S-R": 1}, {"R": 1})
    assert transitions(tubes) == {"X-R": 1, "R-T": 1, "T-R": 1}


@pytest.mark.parametrize("other", ["c", None, ""])
def test_a_change_to_a_tube_that_is_not_counted_and_back(tubes, other):
    tubes.put(task(tube="a"))
    tubes.update(tube=other).execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-S": 1}, {})
    tubes.update(tube="a").execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-S": 1, "S-R": 1}, {"R": 1})
    assert is_exact(tubes)


def test_a_row_that_becomes_a_task_or_ceases_to_be_one_counts_in_its_tube(tubes):
    tubes.create(tube="a", status="else")
    assert numbers(tubes, "a") == ({}, {})
    tubes.update(status="R").execute()
    tubes.update(status="else", tube="b").execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-X": 1}, {})
    assert numbers(tubes, "b") == ({}, {})
    tubes.update(status="B", tube="a").execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-X": 1, "X-B": 1}, {"B": 1})
    tubes.delete().execute()
    assert numbers(tubes, "a") == ({"X-R": 1, "R-X": 1, "X-B": 1, "B-X": 1}, {})
    assert is_exact(tubes)


def test_deadlines_and_sweeps_are_counted_in_their_tube(make):
    Task = make({"ttl": 10, "ttr": 20}, roles=("runat", "tube"), tube_stats=["a"])
    Task.put(task(tube="a"))
    Task.take()
    Task.xq.clock.tick(20)
    Task.xq.sweep()
    Task.xq.clock.tick(10)
    Task.xq.sweep()
    assert numbers(Task, "a") == ({"X-R": 1, "R-T": 1, "T-R": 1, "R-X": 1}, {})


# where counting begins


def test_rows_that_were_there_before_are_in_the_counts_and_in_no_transition(make):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"status": letter, "tube": tube} for letter in "RRTBx" for tube in "ac"]).execute()
    Task = make(FEATURES, model=model, roles=("runat", "tube"), tube_stats=["a"])
    Task.xq.install()
    assert Task.stats().counts == {"R": 4, "T": 2, "W": 0, "B": 2, "D": 0}
    assert numbers(Task, "a") == ({}, {"R": 2, "T": 1, "B": 1})
    assert transitions(Task) == {}
    Task.take(tube="a")
    assert transitions(Task) == {"R-T": 1}
    assert Task.stats().counts["R"] == 3
    assert is_exact(Task)


def test_reset_forgets_the_transitions_and_keeps_the_counts(tubes):
    for tube in "aab":
        tubes.put(task(tube=tube))
    tubes.take().bury()
    counts = tubes.stats().counts
    tubes.xq.reset()
    stats = tubes.stats()
    assert (stats.counts, stats.transition) == (counts, {})
    assert numbers(tubes, "a") == ({}, {"R": 1, "B": 1})
    tubes.plow()
    assert transitions(tubes) == {"B-R": 1}
    assert numbers(tubes, "a") == ({"B-R": 1}, {"R": 2})
    assert is_exact(tubes)


def test_reset_is_rolled_back_with_its_transaction(queue):
    queue.put(task())
    with queue._meta.database.atomic() as transaction:
        queue.xq.reset()
        transaction.rollback()
    assert transitions(queue) == {"X-R": 1}


def test_recount_changes_nothing_that_is_right(tubes):
    for tube in "aab":
        tubes.put(task(tube=tube))
    before = tubes.stats()
    tubes.xq.recount()
    assert tubes.stats() == before


LEVELS = [(name, "") for name in SHARED] + [(name, "SERIALIZABLE") for name in SERVERS]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_a_recount_beside_writers_sets_the_numbers_right(name, level, tmp_path):
    with DATABASES[name](tmp_path) as db:
        if level:
            isolate(db, level)
        Task = live(db)(FEATURES, roles=("runat", "tube"), tube_stats=["a"])
        Task.xq.put_many(tasks(5, tube="a"))
        another_program(db, "INSERT INTO task_xq_count (tube, source, target, n) VALUES ('a', 'X', 'B', 3)")
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

        in_threads(db, write, write, recount)
        assert is_exact(Task)


def test_a_restart_of_the_process_keeps_the_numbers(make):
    bring(make(FEATURES), "D")
    assert transitions(make(FEATURES)) == {"X-R": 1, "R-T": 1, "T-D": 1}


def test_each_queue_has_numbers_of_its_own(make):
    One, Two = make(FEATURES), make(FEATURES, model=make.model(table_name="other"))
    One.put(task())
    assert (One.xq.count(), Two.xq.count()) == (1, 0)
