"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import peewee as pw
import pytest

from tests.conftest import DATABASES, SERVERS, SHARED, live
from tests.factories import task, tasks
from tests.steps import (
    another_program,
    begun_anew,
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


def test_pretty_spells_the_states(make):
    Task = make({"zombie": 30, "buried": True, "delayed": True}, roles=("runat", "tube"), tube_stats=["a"])
    Task.put(task(tube="a"))
    Task.take().ack()
    pretty = Task.stats(pretty=True)
    assert pretty.counts == {"Ready": 0, "Taken": 0, "Waiting": 0, "Buried": 0, "Zombie": 1}
    assert {name.split("-")[1] for name in pretty.transition} == {"Ready", "Taken", "Zombie"}
    assert pretty.transition["Ready-Taken"] == pretty.tube["a"].transition["Ready-Taken"] == 1
    assert Task.xq.stats(pretty=True) == Task.queue_stats(pretty=True) == pretty


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
            Task.update(size=5, status=target).execute()
            Task.delete().execute()
            entered, left = f"X-{letters[0]}", f"{letters[1]}-X"
            moves = ({} if letters == ["X", "X"] else {"-".join(letters): 1}, {entered: 1}, {left: 1})
            wanted = sum((Counter(move) for move in moves), Counter[str]())
            assert transitions(Task) == {name: n for name, n in wanted.items() if name != "X-X"}
            Task.xq.reset()
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
    queue.bulk_update([created], fields=[queue.name])
    created.delete_instance()
    queue.insert(name="d").execute()
    fields = [queue.name, queue.size, queue.status, queue.attempts]
    queue.insert_from(queue.select(*fields), fields=fields).execute()
    assert transitions(queue) == {"X-R": 7, "R-B": 1, "B-X": 1}
    assert is_exact(queue)


def test_a_statement_that_fails_counts_nothing(make):
    Task = make(FEATURES, attributes={"code": pw.IntegerField(unique=True, null=True)})
    Task.create(code=1)
    with pytest.raises(pw.IntegrityError), make.db.atomic():
        Task.insert_many([{"code": 2}, {"code": 1}]).execute()
    assert transitions(Task) == {"X-R": 1}
    assert is_exact(Task)


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


# what a row is, and becomes by plain SQL: its status and tube; then what is counted in the tubes a and b
MOVES: dict[str, tuple[list[tuple[str, str | None]], str, str]] = {
    "no change": ([("R", "a"), ("R", "a")], "X-R", ""),
    "to the other": ([("R", "a"), ("R", "b")], "X-R R-S", "S-R"),
    "to the other and another state": ([("T", "a"), ("R", "b")], "X-T T-S", "S-R"),
    "to one that is not counted and back": ([("R", "a"), ("R", "c"), ("R", "a")], "X-R R-S S-R", ""),
    "to none and back": ([("R", "a"), ("R", None), ("R", "a")], "X-R R-S S-R", ""),
    "to an empty one": ([("R", "a"), ("R", "")], "X-R R-S", ""),
    "a row becomes a task and ceases to be one": (
        [("else", "a"), ("R", "a"), ("else", "b"), ("B", "a"), ("else", "a")],
        "X-R R-X X-B B-X",
        "",
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_row_that_plain_sql_moves_is_counted_in_each_tube_as_its_own_half(tubes, move):
    rows, *counted = MOVES[move]
    tubes.create(status=rows[0][0], tube=rows[0][1])
    for status, tube in rows[1:]:
        tubes.update(status=status, tube=tube).execute()
    status, tube = rows[-1]
    for name, wanted in zip("ab", counted, strict=True):
        assert numbers(tubes, name) == (
            dict.fromkeys(wanted.split(), 1),
            {status: 1} if tube == name and status != "else" else {},
        )
    assert is_exact(tubes)


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
    before = tubes.stats()
    counts = before.counts
    tubes.xq.recount()
    assert tubes.stats() == before, "a recount changes nothing that is right"
    assert json.loads(before.model_dump_json()) == before.model_dump()
    tubes.xq.reset()
    stats = tubes.stats()
    assert (stats.counts, stats.transition) == (counts, {})
    assert numbers(tubes, "a") == ({}, {"R": 1, "B": 1})
    tubes.plow()
    assert transitions(tubes) == {"B-R": 1}
    assert numbers(tubes, "a") == ({"B-R": 1}, {"R": 2})
    assert is_exact(tubes)


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


# SQLite's REPLACE, and triggers of the application's that end in their own table


def test_a_trigger_made_beside_a_queue_in_use_updates_its_own_table(sqlite_db):
    db, Task = sqlite_db, live(sqlite_db)({"keep": True})
    Task.put(task())
    Task.take().ack()  # xq has set the connection up
    db.execute_sql("CREATE TABLE page (id INTEGER PRIMARY KEY, size INTEGER)")
    db.execute_sql("INSERT INTO page VALUES (1, 0)")
    db.execute_sql("CREATE TRIGGER grow AFTER UPDATE ON page BEGIN UPDATE page SET size = NEW.size + 1; END")
    db.execute_sql("UPDATE page SET size = 5")
    assert db.execute_sql("SELECT size FROM page").fetchone() == (6,)


def test_replace_counts_as_the_pragma_of_the_application_has_it(sqlite_db):
    db, Task = sqlite_db, live(sqlite_db)()
    put = Task.put(task())
    Task.replace(id=put.id, name="again", status="R").execute()
    assert [line.partition(" tasks")[0] for line in Task.xq.check()] == ["1"], "the deleted row is not counted"
    Task.xq.recount()
    assert Task.xq.check() == []
    db.execute_sql("PRAGMA recursive_triggers = 1")
    Task.replace(id=put.id, name="once more", status="R").execute()
    assert Task.xq.check() == []
    assert Task.take().name == "once more"


@pytest.mark.parametrize("sqlite_db", ["sqlite"], indirect=True)
def test_check_finds_the_history_well_on_a_new_connection(sqlite_db):
    Task = live(sqlite_db)({"history": True})
    sqlite_db.close()
    assert Task.xq.check() == []
