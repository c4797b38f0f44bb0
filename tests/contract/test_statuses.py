"""Statuses in the application's own words, and rows that are not the queue's."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, row, transitions

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}

WORDS = {"R": "new", "T": "processing", "W": "later", "B": "it's failed", "D": "done"}
NUMBERS = {"R": 0, "T": 1, "W": 2, "B": -3, "D": 100}


STORED: dict[str, Any] = {
    "words": (lambda: pw.CharField(default="new"), WORDS),
    "numbers": (lambda: pw.IntegerField(default=0), NUMBERS),
    "one letter": (lambda: pw.CharField(max_length=1, default="T"), {"R": "T", "T": "R"}),
    "some": (lambda: pw.TextField(default="R"), {"B": "failed", "D": "R-"}),
}


@pytest.fixture(params=STORED)
def mapped(request, make):
    """A queue, and what its status field holds in each state."""
    field, statuses = STORED[request.param]
    Task = make(FEATURES, roles=("runat", "priority"), attributes={"status": field()}, statuses=statuses)
    return Task, {letter: statuses.get(letter, letter) for letter in "RTWBD"}


def test_each_state_is_stored_as_its_word(mapped):
    Task, words = mapped
    for letter in "DBWTR":
        there = bring(Task, letter)
        assert there.status == row(Task, there).status == words[letter]
        assert [each.id for each in Task.xq.by_state(letter)] == [there.id]
    assert Task.stats().counts == dict.fromkeys("RTWBD", 1)
    assert Task.xq.check() == []


def test_time_moves_tasks_under_any_words(mapped):
    Task, words = mapped
    waiting = Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    assert Task.take().id == waiting.id
    Task.xq.clock.tick(20)
    assert Task.xq.sweep() == 1
    assert row(Task, waiting).status == words["R"]
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    assert transitions(Task) == {"X-W": 1, "W-R": 1, "R-T": 1, "T-R": 1, "R-X": 1}


def test_plain_sql_is_counted_under_any_words(mapped):
    Task, words = mapped
    Task.create(status=words["R"])
    for letter in "TBWDR":
        Task.update(status=words[letter]).execute()
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-B": 1, "B-W": 1, "W-D": 1, "D-R": 1}


def test_owners_are_let_go_under_any_words(mapped):
    Task, words = mapped
    stale = bring(Task, "T")
    with pytest.raises(xq.WrongState) as wrong:
        Task.dig(stale)
    assert (wrong.value.state, wrong.value.allowed) == ("T", ("B",)), "errors speak of letters"
    Task.update(status=words["R"]).execute()
    Task.update(status=words["T"]).execute()
    with pytest.raises(xq.NotOwner):
        stale.ack()


# rows that are not the queue's


def events(Task, key):
    """Every call that is about one task."""
    return {
        "ack": lambda: Task.ack(key),
        "release": lambda: Task.release(key),
        "bury": lambda: Task.bury(key),
        "touch": lambda: Task.touch(key, 5),
        "dig": lambda: Task.dig(key),
        "kick": lambda: Task.kick(key),
        "kill": lambda: Task.kill(key),
        "snatch": lambda: Task.xq.snatch(key),
        "restart": lambda: Task.xq.restart(key),
        "switch": lambda: Task.xq.switch(key, "R"),
        "peek": lambda: Task.xq.peek(key),
        "ack_many": lambda: Task.xq.ack_many([key]),
        "kill_many": lambda: Task.xq.kill_many([key]),
    }


@pytest.mark.parametrize("status", ["archived", "r", "R ", "X", "Z", None])
def test_a_row_of_another_status_is_no_task(make, status):
    Task = make(FEATURES, attributes={"status": pw.CharField(default="R", null=True)})
    foreign = Task.create(status=status, name="mine", runat=1.0)
    before = row(Task, foreign).__data__
    for name, call in events(Task, foreign.id).items():
        with pytest.raises(xq.NotFound) as missing:
            call()
        assert missing.value.key == foreign.id, name
    assert row(Task, foreign).__data__ == before


@pytest.mark.parametrize("status", ["archived", "Z", None])
def test_nothing_that_moves_many_tasks_touches_a_row_of_another_status(make, status):
    Task = make(
        FEATURES,
        roles=("runat", "tube"),
        attributes={"status": pw.CharField(default="R", null=True)},
        tube_stats=["a"],
    )
    foreign = Task.create(status=status, name="mine", runat=1.0, tube="a")
    before = row(Task, foreign).__data__
    with Task.xq.session():
        assert Task.take() is None
        assert Task.take(tube="a") is None
        assert Task.xq.take_many(5) == []
        Task.xq.session().close()
    assert Task.plow() == []
    assert Task.xq.release_all() == Task.xq.truncate() == Task.xq.sweep() == 0
    Task.xq.recount()
    Task.xq.reset()
    Task.xq.reconfigure({"buried": True})
    Task.xq.uninstall()
    Task.xq.install()
    assert row(Task, foreign).__data__ == before
    assert Task.xq.count() == Task.stats().tube["a"].counts["R"] == 0
    assert [each for letter in Task.xq.machine.states for each in Task.xq.by_state(letter)] == []
    assert transitions(Task) == {}


@pytest.mark.parametrize("statuses", [None, {"B": "B"}, {"B": "failed"}])
def test_a_state_that_this_queue_does_not_have_is_not_the_queues(make, statuses):
    Task = make({}, statuses=statuses)
    foreign = Task.create(status=(statuses or {}).get("B", "B"))
    assert Task.xq.count() == 0
    for call in (Task.xq.peek, Task.ack, Task.kill):
        with pytest.raises(xq.NotFound):
            call(foreign.id)


def test_a_row_becomes_a_task_when_the_application_says_so(make):
    Task = make(FEATURES, attributes={"status": pw.CharField(default="draft")})
    draft = Task.create(name="a")
    assert Task.take() is None
    draft.status = "R"
    draft.save()
    assert Task.take().id == draft.id


def test_a_status_may_be_of_any_length_beside_utubes(make):
    Task = make({"utube": True}, roles=("utube", "priority"), attributes={"status": pw.TextField(default="R")})
    Task.xq.put_many([task(utube="a"), task(utube="a"), task(utube="b")])
    taken = [Task.take(), Task.take(), Task.take()]
    assert [each and each.utube for each in taken] == ["a", "b", None]
    assert Task.xq.check() == []


# statuses that a column does not tell apart

ALIKE = {"R": "new", "T": "NEW"}


def loose(db: pw.Database, **options: Any) -> pw.Field:
    """A field whose column compares without regard to case."""
    if isinstance(db, pw.PostgresqlDatabase):
        db.execute_sql("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    collation = {"SqliteDatabase": "NOCASE", "PostgresqlDatabase": "loose", "MySQLDatabase": "utf8mb4_general_ci"}
    return pw.CharField(collation=collation[type(db).__name__], **options)


def test_statuses_that_differ_by_case_alone_are_refused_or_kept_apart(make):
    Task = make.model(status=loose(make.db, default="new"))
    if isinstance(make.db, pw.MySQLDatabase):  # where the queue's own statements compare exactly
        make({"keep": True}, model=Task, statuses=ALIKE)
        Task.xq.put_many([task(), task()])
        assert [Task.take().status, Task.take().status, Task.take()] == ["NEW", "NEW", None]
        assert Task.xq.check() == []
        return
    with pytest.raises(xq.ConfigurationError, match=r"task\.status .* 'new' \(R\) and 'NEW' \(T\)"):
        make({"keep": True}, model=Task, statuses=ALIKE)
    assert "'new' (R) and 'NEW' (T)" in Task.xq.check()[-1]


@pytest.mark.parametrize("db", ["sqlite", "postgres"], indirect=True)
def test_a_reconfiguration_that_brings_such_a_status_is_refused(make):
    Task = make(model=make.model(status=loose(make.db, default="new")), statuses={"R": "new", "D": "NEW"})
    with pytest.raises(xq.ConfigurationError, match=r"'new' \(R\) and 'NEW' \(D\)"):
        Task.xq.reconfigure({"keep": True})
    Task.put(task())
    assert Task.take().status == "T"
    assert Task.xq.check() == []
