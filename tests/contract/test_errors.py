"""What goes wrong, in which order and in which words it is told, and that class, instance and handle tell the same."""

from __future__ import annotations

import traceback

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, row

EVERY = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}


# words


def test_an_error_names_states_in_words_and_carries_their_letters(make):
    Task = make({"delayed": True, "buried": True, "keep": True})
    waiting, buried = Task.put({}, delay=5), bring(Task, "B")
    for call, key, state, allowed, told in (
        (Task.ack, waiting.id, "W", ("T",), "it is waiting (W); ack needs a taken task (T)"),
        (Task.xq.restart, buried.id, "B", ("W", "D"), "restart needs a task that is waiting (W) or done (D)"),
    ):
        with pytest.raises(xq.WrongState) as wrong:
            call(key)
        assert told in str(wrong.value)
        assert (wrong.value.key, wrong.value.state, wrong.value.allowed) == (key, state, allowed)
    for refused, told in (
        (lambda: Task.xq.by_state("Q"), r"has the states ready \(R\), taken \(T\), waiting \(W\), buried \(B\)"),
        (lambda: Task.xq.count(Task.status == "R"), "has the states"),
        (lambda: Task.xq.switch(waiting, "Q"), r"to one of ready \(R\), waiting \(W\), buried \(B\), done \(D\)"),
        (lambda: Task.xq.switch(waiting, "W"), r"switch to waiting \(W\) needs delay=seconds"),
    ):
        with pytest.raises(xq.BadValue, match=told):
            refused()


URLS = (
    "pg://u:SECRET@h:1/db",
    "postgresql://u:SECRET@h:port/db",
    "postgresql://u:SECRET[@h/db",
    "postgresql://u:SECRET\u2100@h/db",
    "postgresql://u:SECRET@h",
    "mariadb://h:port/db?password=SECRET",
    "host=h password=SECRET",
    b"postgresql://u:SECRET@h/db",
    {"password": "SECRET"},
)


def test_tubes_show_no_part_of_a_url_that_names_no_database():
    for url in URLS:
        with pytest.raises((xq.BadValue, xq.BadType)) as refused:
            xq.Tubes(url)
        assert "SECRET" not in "".join(traceback.format_exception(refused.value)), url


# the order


def test_that_a_task_is_gone_is_told_before_a_wrong_state_and_that_before_a_wrong_owner(make):
    Task = make(EVERY)
    for before, error in ((Task.kill, xq.NotFound), (Task.release, xq.WrongState), (lambda task: task, xq.NotOwner)):
        taken = bring(Task, "T")
        before(taken)
        with Task.xq.session():
            for event in ("ack", "release", "bury"):
                with pytest.raises(error):
                    getattr(Task, event)(taken)
        Task.xq.truncate()


# keys


NO_KEYS = [None, True, 1.5, "1", b"1", [1], (1, 2), {}, {"name": "a"}, {"id": None}, {"id": "x"}, 2**70, object()]
NO_PAIRS = ["a", 1, ("a",), ("a", 1, 2), ["a", 1], (1, "a"), ("a", None), {"site": "a"}, None]


def test_what_is_no_key_is_refused(make, subtests):
    Task, Other = make(EVERY), make(EVERY, model=make.model(table_name="other"))
    taken = bring(Task, "T")
    for key in [*NO_KEYS, Task(), Other.put(task()), Task]:
        for call in (Task.ack, Task.kill, Task.xq.peek, lambda key: Task.xq.ack_many([taken, key])):
            with subtests.test(repr(key)), pytest.raises((xq.BadType, xq.BadValue)):
                call(key)
    assert row(Task, taken).status == "T"


def test_a_composite_key_is_told_whole_and_what_is_none_is_refused(make, subtests):
    key = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
    Task = make(model=make.model(**key))
    Task.xq.put_many([{"site": "a", "page": 1}, {"site": "a", "page": 2}])
    Task.take()
    for no_key in NO_PAIRS:
        with subtests.test(repr(no_key)), pytest.raises((xq.BadType, xq.BadValue)):
            Task.ack(no_key)
    assert Task.ack(("a", 1)).page == 1
    for page, error in ((1, xq.NotFound), (2, xq.WrongState)):
        with pytest.raises(error) as refused:
            Task.ack(("a", page))
        assert vars(refused.value)["key"] == ("a", page)


# class, instance, handle
