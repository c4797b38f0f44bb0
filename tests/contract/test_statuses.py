"""Statuses in the application's own words, and rows that are not the queue's."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, install_anew, row, transitions

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}

WORDS = {"R": "new", "T": "processing", "W": "later", "B": "it's failed", "D": "done"}
NAMES = {"R": "ready", "T": "Taken", "W": "WAITING", "B": "buried", "D": "done"}
NUMBERS = {"R": 0, "T": 1, "W": 2, "B": -3, "D": 100}


class Numbers(IntEnum):
    """Statuses as applications write them: also those of Django are integers or texts."""

    R, T, W, B, D = range(5)


class Words(StrEnum):
    R, T, W, B, D = "new", "processing", "later", "it's failed", "done"


STORED: dict[str, Any] = {
    "words": (lambda: pw.CharField(default="new"), WORDS),
    "numbers": (lambda: pw.IntegerField(default=0), NUMBERS),
    "one letter": (lambda: pw.CharField(max_length=1, default="T"), {"R": "T", "T": "R", "W": "D", "B": "B", "D": "W"}),
    "by name": (
        lambda: pw.TextField(default="R"),
        {"ready": "R", "T": "r", "W": "w", "buried": "failed", "Done": "R-"},
    ),
    "an enumeration": (lambda: pw.IntegerField(default=0), {each.name: each for each in Numbers}),
    "texts of a class": (lambda: pw.CharField(default="new"), {each.name: each for each in Words}),
}


@pytest.mark.parametrize("stored", STORED)
def test_an_object_of_an_earlier_take_is_refused_among_others(make, stored):
    field, statuses = STORED[stored]
    Task = make(FEATURES, roles=("runat", "priority"), attributes={"status": field()}, statuses=statuses)
    Task.xq.put_many([task(), task()])
    stale, held = Task.take(), Task.take()
    stale.release()
    Task.take()
    with pytest.raises(xq.NotOwner):
        Task.xq.ack_many([stale, held])
    assert row(Task, held).status == [*statuses.values()][1]


@pytest.mark.parametrize("stored", STORED)
def test_each_state_is_stored_as_its_word_and_moves_and_is_counted_under_it(make, stored):
    field, statuses = STORED[stored]
    Task = make(FEATURES, roles=("runat", "priority"), attributes={"status": field()}, statuses=statuses)
    words = dict(zip("RTWBD", statuses.values(), strict=True))
    for letter in "DBWTR":
        there = bring(Task, letter)
        assert there.status == row(Task, there).status == words[letter]
        letters = [] if letter in words.values() else [letter, NAMES[letter]]  # an own word comes first
        for named in [words[letter], *letters]:
            assert [each.id for each in Task.xq.by_state(named)] == [there.id]
            assert Task.xq.count(named) == 1
    assert Task.stats().counts == dict.fromkeys("RTWBD", 1)
    assert Task.xq.check() == []
    Task.xq.truncate()
    Task.xq.reset()
    waiting = Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    stale = Task.take()
    with pytest.raises(xq.WrongState) as wrong:
        Task.dig(stale)
    assert (wrong.value.state, wrong.value.allowed) == ("T", ("B",)), "errors speak of letters"
    Task.xq.clock.tick(20)
    assert Task.xq.sweep() == 1
    assert row(Task, waiting).status == words["R"]
    for letter in "TBWDRT":
        Task.update(status=words[letter]).execute()
    moved = {"T-B": 1, "B-W": 1, "W-D": 1, "D-R": 1}
    assert transitions(Task) == {"X-W": 1, "W-R": 1, "R-T": 3, "T-R": 1, **moved}
    with pytest.raises(xq.NotOwner):
        stale.ack()


# rows that are not the queue's


FOREIGN = ["archived", "r", "R ", "Z", None]
ONE = ("ack", "release", "bury", "dig", "kick", "kill", "snatch", "restart", "peek")


@pytest.mark.parametrize("status", FOREIGN)
def test_a_row_of_another_status_is_no_task_for_calls_of_one_and_of_many(make, status):
    nullable = {"status": pw.CharField(default="R", null=True)}
    Task = make(FEATURES, roles=("runat", "tube"), attributes=nullable, tube_stats=["a"])
    foreign = Task.create(status=status, name="mine", runat=1.0, tube="a")
    before, key = row(Task, foreign).__data__, foreign.id
    calls = [(name, (key,)) for name in ONE] + [(f"{name}_many", ([key],)) for name in ("ack", "kill")]
    for name, arguments in [*calls, ("touch", (key, 5)), ("switch", (key, "R"))]:
        with pytest.raises(xq.NotFound) as missing:
            getattr(Task.xq, name)(*arguments)
        assert missing.value.key == key, name
    assert row(Task, foreign).__data__ == before
    with Task.xq.session():
        assert Task.take() is None
        assert Task.take(tube="a") is None
        assert Task.xq.take_many(5) == []
        Task.xq.session().close()
    assert Task.plow() == []
    assert Task.xq.release_all() == Task.xq.truncate() == Task.xq.sweep() == 0
    Task.xq.recount()
    Task.xq.reset()
    install_anew(Task, {"buried": True})
    Task.xq.uninstall()
    Task.xq.install()
    assert row(Task, foreign).__data__ == before
    assert Task.xq.count() == Task.stats().tube["a"].counts["R"] == 0
    assert [each for letter in Task.xq.machine.states for each in Task.xq.by_state(letter)] == []
    assert transitions(Task) == {}


def test_rows_with_a_word_of_an_earlier_definition_or_a_misspelt_one_are_counted_with_sql_that_mends_them(make):
    words = {"R": "new", "T": "busy", "B": "failed", "W": "later"}
    install_anew(make({"buried": True, "delayed": True}, statuses=words), {"buried": True})
    Next = make.model()
    xq.upgrade(Next, {"status": "status"}, {"buried": True}, statuses=words | {"R": "open"}, clock=make.clock)
    Next.xq.install()
    for status in ("draft", "done", "ready", "new", "new", "later", "Open", " open", "R", "busy ", "failed"):
        Next.create(status=status)
    found = {what: do for what, do in Next.xq.doctor() if "that no call sees" in what}
    assert sorted(found) == sorted(Next.xq.check())
    of_today = dict.fromkeys((" open", "Open", "R"), "like ready (R, status 'open')")
    of_today["busy "] = "like taken (T, status 'busy')"
    told = dict.fromkeys(("new", "later"), "a word of an earlier definition") | of_today
    counted = {
        f"rows with the status {word!r}, {why}, that no call sees: {1 + (word == 'new')}" for word, why in told.items()
    }
    assert {*found} == counted
    for sql in (do for do in found.values() if "..." not in do):
        make.db.execute_sql(sql)
    (left,) = Next.xq.check()
    assert ("'later'" in left, Next.stats().counts) == (True, {"R": 6, "T": 0, "B": 1})


def test_words_of_the_applications_own_are_no_problem_though_they_are_letters_of_states(make):
    Task = make({"buried": True}, statuses={"R": "P", "T": "K", "B": "F"})
    for status in ("R", "T", "draft"):
        Task.create(status=status)
    assert Task.xq.check() == []


@pytest.mark.parametrize("statuses", [None, {"R": "new", "T": "busy", "B": "failed"}])
def test_a_state_that_this_queue_does_not_have_is_not_the_queues(make, statuses):
    Task = make({}, statuses=statuses)
    foreign = Task.create(status=(statuses or {}).get("B", "B"))
    assert Task.xq.count() == 0
    for call in (Task.xq.peek, Task.ack, Task.kill):
        with pytest.raises(xq.NotFound):
            call(foreign.id)


def test_a_state_that_has_another_word_now_is_told_with_its_rows(make):
    words = {"R": "new", "T": "busy"}
    Task = make({}, statuses=words)
    Task.put(task())
    told = r"this definition lacks, 1 ready \(R, status 'new'\): move them .*:\nUPDATE .* SET .status. = 'open' WHERE"
    Next = make.model()
    xq.upgrade(Next, {"status": "status"}, {}, statuses=words | {"R": "open"})
    with pytest.raises(xq.ConfigurationError, match=told):
        Next.xq.install()
    Next.update(status="open").execute()
    Next.xq.install()
    assert Next.take()
