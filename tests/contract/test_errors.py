"""What goes wrong, in which order and in which words it is told, and that class, instance and handle tell the same."""

from __future__ import annotations

import traceback
import uuid

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, row, transitions

EVERY = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}


def of_two_columns(make):
    """A queue whose key is a text and a number, with one task, which is taken."""
    key = {"site": pw.CharField(), "page": pw.IntegerField()}
    Task = make({}, model=make.model(**key, meta={"primary_key": pw.CompositeKey("site", "page")}))
    Task.put({"site": "a", "page": 1})
    Task.take()
    return Task


# words


def test_an_error_names_states_in_words_and_carries_their_letters(make):
    Task = make({"delayed": True, "buried": True, "keep": True})
    waiting, buried = Task.put({}, delay=5), bring(Task, "B")
    for call, key, state, allowed, told in (
        (
            Task.ack,
            waiting.id,
            "W",
            "T",
            f"cannot ack task {waiting.id}: it is waiting (W); ack needs a taken task (T)",
        ),
        (Task.xq.restart, buried.id, "B", "WD", "restart needs a task that is waiting (W) or done (D)"),
    ):
        with pytest.raises(xq.WrongState) as wrong:
            call(key)
        assert told in str(wrong.value)
        assert (wrong.value.key, wrong.value.state, wrong.value.allowed) == (key, state, tuple(allowed))
    for refused, told in (
        (lambda: Task.xq.by_state("Q"), r"has the states ready \(R\), taken \(T\), waiting \(W\), buried \(B\)"),
        (lambda: Task.xq.by_state(Task.status == "R"), "has the states"),
        (lambda: Task.xq.count(Task.status == "R"), "has the states"),
        (lambda: Task.xq.switch(waiting, "Q"), r"to one of ready \(R\), waiting \(W\), buried \(B\), done \(D\)"),
        (lambda: Task.xq.switch(waiting, Task.status), "to one of"),
        (lambda: Task.xq.switch(waiting, "W"), r"switch to waiting \(W\) needs delay=seconds"),
    ):
        with pytest.raises(xq.BadValue, match=told):
            refused()
    with pytest.raises(xq.ConfigurationError, match=r"1 waiting \(W\)[^:]*: say where they go"):
        Task.xq.reconfigure({"keep": True, "buried": True})


def test_an_error_names_what_the_application_stores_beside_the_letter(make):
    words = {"W": "later", "T": "processing"}
    Task = make({"delayed": True, "buried": True}, statuses=words)
    waiting = Task.put({}, delay=5)
    with pytest.raises(xq.WrongState) as wrong:
        Task.ack(waiting.id)
    assert str(wrong.value) == (
        f"cannot ack task {waiting.id}: it is waiting (W, status 'later'); "
        "ack needs a taken task (T, status 'processing')"
    )
    with pytest.raises(xq.ConfigurationError, match=r"1 waiting \(W, status 'later'\)"):
        Task.xq.reconfigure({"buried": True})


URLS = (
    "pg://u:SECRET@h:1/db",
    "postgresql://u:SECRET@h:port/db",
    "postgresql://u:SECRET/@h/db",
    "postgresql://u:SECRET[@h/db",
    "postgresql://u:SECRET\u2100@h/db",
    "postgresql://u:SECRET@h",
    "mariadb://h:port/db?password=SECRET",
    "pg://h/db?password=SECRET",
    "sqlite://u:SECRET@h",
    "u:SECRET@h/db",
    "u:SECRET://h/db",
    "host=h password=SECRET",
    b"postgresql://u:SECRET@h/db",
    {"password": "SECRET"},
)


def test_tubes_show_no_part_of_a_url_that_names_no_database():
    for url in URLS:
        with pytest.raises((xq.BadValue, xq.BadType)) as refused:
            xq.Tubes(url)
        told = "".join(traceback.format_exception(refused.value))
        assert "SECRET" not in told, url


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


def test_an_error_leaves_the_table_and_the_statistics_as_they_were(make):
    Task = make(EVERY)
    there = bring(Task, "B")
    before, seen = row(Task, there).__data__, transitions(Task)
    for call in (
        lambda: there.ack(),
        lambda: there.release(delay=5),
        lambda: Task.kill(999),
        lambda: Task.dig(there, update={"status": "D"}),
        lambda: Task.xq.kill_many([there, 999]),
        lambda: Task.xq.switch(there, "Q"),
    ):
        with pytest.raises(xq.Error):
            call()
    assert (row(Task, there).__data__, transitions(Task)) == (before, seen)


# keys


NO_KEYS = [None, True, 1.5, "1", b"1", [1], (1, 2), {}, {"name": "a"}, {"id": None}, {"id": "x"}, 2**70, object()]
NO_PAIRS = ["a", 1, ("a",), ("a", 1, 2), ["a", 1], (1, "a"), ("a", None), {"site": "a"}, None]


def test_what_is_no_key_is_refused(make, subtests):
    Task, Other = make(EVERY), make(EVERY, model=make.model(table_name="other"))
    taken = bring(Task, "T")
    for key in [*NO_KEYS, Task(), Other.put(task()), Task]:
        for call in ("ack", "kill", "peek"):
            with subtests.test(f"{call}({key!r})"):
                with pytest.raises((xq.BadType, xq.BadValue)):
                    getattr(Task.xq, call)(key)
    assert row(Task, taken).status == "T"


def test_a_composite_key_is_told_whole_and_what_is_none_is_refused(make, subtests):
    Task = of_two_columns(make)
    for key in NO_PAIRS:
        with subtests.test(repr(key)):
            with pytest.raises((xq.BadType, xq.BadValue)):
                Task.ack(key)
    assert Task.ack(("a", 1)).page == 1
    with pytest.raises(xq.NotFound) as missing:
        Task.ack(("a", 1))
    assert missing.value.key == ("a", 1)
    Task.put({"site": "a", "page": 2})
    with pytest.raises(xq.WrongState) as wrong:
        Task.ack(("a", 2))
    assert wrong.value.key == ("a", 2)


def test_a_uuid_key_may_be_named_as_text(make):
    Task = make({}, key=pw.UUIDField(primary_key=True))
    put = Task.put(task())
    for key in (5, "not a uuid", b"123", ""):
        with pytest.raises((xq.BadType, xq.BadValue, xq.NotFound)):
            Task.kill(key)
    assert Task.kill(str(put.id)).id == put.id
    with pytest.raises(xq.NotFound):
        Task.kill(uuid.uuid4())


# class, instance, handle

ONE = {  # what is done to one task, and the state that it is in before
    "ack": ("T", ()),
    "release": ("T", ()),
    "bury": ("T", ()),
    "touch": ("T", (5,)),
    "dig": ("B", ()),
    "kick": ("B", ()),
    "kill": ("D", ()),
}


WAYS = (
    lambda Task, there, verb, *rest: getattr(Task, verb)(there, *rest),
    lambda Task, there, verb, *rest: getattr(Task, verb)(there.id, *rest),
    lambda Task, there, verb, *rest: getattr(there, verb)(*rest),
    lambda Task, there, verb, *rest: getattr(Task.xq, verb)(there, *rest),
    lambda Task, there, verb, *rest: getattr(there.xq, verb)(there, *rest),
)


def test_a_verb_is_the_same_on_the_class_the_instance_and_the_handle(make, subtests):
    Task = make(EVERY)
    for verb, (here, rest) in ONE.items():
        results = []
        for way in WAYS:
            Task.xq.truncate()
            there = bring(Task, here, task(name="a", size=1))
            seen = transitions(Task)
            returned = way(Task, there, verb, *rest)
            results.append((returned.status, returned.runat, returned.name, transitions(Task) - seen))
        with subtests.test(verb):
            assert results == [results[0]] * len(WAYS)


def test_verbs_of_the_whole_table_are_the_same_everywhere(make):
    Task = make(EVERY)
    Task.xq.bury_many(Task.xq.put_many(tasks(9)) and Task.xq.take_many(9))
    put = Task.put(task())
    for holder in (Task, put, Task.xq):
        assert len(holder.plow(1)) == 1
        assert holder.take().status == "T"
        assert holder.stats() == holder.queue_stats() == Task.xq.stats()
    now = Task.xq.clock.now
    assert Task(name="a").put(delay=5).runat == now + 5
    assert Task.take(ttr=3).release(delay=4, update={"name": "b"}).runat == now + 4


# retval


@pytest.mark.parametrize("retval", ["model", "dict", "tuple"])
def test_methods_return_what_retval_says(make, retval):
    Task = make(EVERY | {"retval": retval})
    names = [field.name for field in Task._meta.sorted_fields]

    def same(returned):
        there = Task.get()
        if retval == "model":
            return isinstance(returned, Task) and returned.__data__ == there.__data__
        if retval == "dict":
            return type(returned) is dict and returned == there.__data__ and list(returned) == names
        return type(returned) is tuple and returned == tuple(getattr(there, name) for name in names)

    put = Task.put(task(name="a"))
    assert same(put)
    assert same(Task.xq.peek(put))
    assert same(Task.xq.by_state("R")[0])
    taken = Task.take()
    assert same(taken)
    assert same(Task.touch(taken, 5))
    assert same(Task.release(taken))
    (taken,) = Task.xq.take_many(1)
    assert same(taken)
    assert same(Task.bury(taken))
    assert same(Task.dig(taken))
    taken = Task.take()
    assert same(Task.xq.ack_many([taken])[0])
    assert same(Task.xq.restart(taken))
    assert same(Task.xq.switch(taken, "B"))
    assert same(Task.plow()[0])
    before = Task.get()
    gone = Task.kill(taken)
    assert (gone if retval != "model" else gone.__data__) == (
        tuple(before.__data__.values()) if retval == "tuple" else before.__data__
    )
    assert same(Task.xq.put_many([task()])[0])
    assert Task.xq.take_many(0) == []
