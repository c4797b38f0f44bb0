"""What goes wrong, in which order it is told, and that class, instance and handle tell the same."""

from __future__ import annotations

import uuid

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, row, transitions

EVERY = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}


def test_a_wrong_state_tells_the_key_the_state_and_the_states_allowed(make):
    Task = make(EVERY)
    there = bring(Task, "B")
    with pytest.raises(xq.WrongState) as wrong:
        Task.xq.restart(there)
    assert (wrong.value.key, wrong.value.state, set(wrong.value.allowed)) == (there.id, "B", {"W", "D"})
    for word in ("restart", str(there.id), "B", "W", "D"):
        assert word in str(wrong.value)


def test_a_composite_key_is_told_whole(make):
    model = make.model(
        site=pw.CharField(), page=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("site", "page")}
    )
    Task = make({}, model=model)
    Task.put({"site": "a", "page": 1})
    with pytest.raises(xq.NotFound) as missing:
        Task.ack(("a", 2))
    assert missing.value.key == ("a", 2)
    with pytest.raises(xq.WrongState) as wrong:
        Task.ack(("a", 1))
    assert wrong.value.key == ("a", 1)


def test_an_option_that_a_call_does_not_have_is_a_bad_type(make):
    Task = make(EVERY)
    taken = bring(Task, "T")
    for call in (Task.put, Task.take, taken.ack, taken.release, taken.dig, Task.plow):
        with pytest.raises(xq.BadType, match="nonsense"):
            call(nonsense=1)
    for call in (taken.bury, taken.kill, taken.touch):
        with pytest.raises(TypeError):
            call(nonsense=1)
    assert row(Task, taken).status == "T"


def test_a_method_of_a_feature_is_no_event_and_its_option_no_other_calls(make):
    Task = make({"limit": 5, "history": True})
    with pytest.raises(xq.BadValue, match="no event 'history'"):
        Task.xq.call("history", Task.put({}))
    with pytest.raises(xq.BadType, match="timeout"):
        Task.xq.put_many([{}], timeout=5)


@pytest.mark.parametrize("call", ["put", "take", "release", "snatch"])
def test_an_option_of_another_call_is_a_bad_type(make, call):
    Task = make(EVERY)
    taken = bring(Task, "T")
    option = {"put": "update", "take": "delay", "release": "timeout", "snatch": "increment"}[call]
    with pytest.raises((xq.BadType, xq.FeatureOff), match=option):
        getattr(Task.xq, call)(*([] if call in ("put", "take") else [taken]), **{option: 5})


# then, in this order


def test_what_is_not_there_is_not_found_whoever_asks(make):
    Task = make(EVERY)
    taken = bring(Task, "T")
    taken.kill()
    with Task.xq.session():
        for event in ("ack", "release", "bury", "kill"):
            with pytest.raises(xq.NotFound):
                getattr(Task, event)(taken)
        with pytest.raises(xq.NotFound):
            taken.touch(5)


def test_a_wrong_state_is_told_before_a_wrong_owner(make):
    Task = make(EVERY)
    taken = bring(Task, "T")
    taken.release()
    with Task.xq.session():
        for event in ("ack", "release", "bury"):
            with pytest.raises(xq.WrongState):
                getattr(Task, event)(taken)


def test_a_wrong_owner_is_told_last(make):
    Task = make(EVERY)
    taken = bring(Task, "T")
    with Task.xq.session():
        for event in ("ack", "release", "bury"):
            with pytest.raises(xq.NotOwner):
                getattr(Task, event)(taken)


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


NO_KEYS = [None, True, 1.5, "1", b"1", [1], {1}, (1, 2), {}, {"name": "a"}, {"id": None}, {"id": "x"}, 2**70, object()]


def test_what_is_no_key_is_refused(make, subtests):
    Task = make(EVERY)
    taken = bring(Task, "T")
    for key in NO_KEYS:
        for call in ("ack", "kill", "peek"):
            with subtests.test(call, key=key):
                with pytest.raises((xq.BadType, xq.BadValue)):
                    getattr(Task.xq, call)(key)
    assert row(Task, taken).status == "T"


def test_a_task_without_a_key_or_of_another_model_is_refused(make):
    Task, Other = make(EVERY), make(EVERY, model=make.model(table_name="other"))
    bring(Task, "T")
    for wrong in (Task(), Other.put(task()), Task):
        with pytest.raises(xq.BadType):
            Task.ack(wrong)


@pytest.mark.parametrize("key", ["a", 1, ("a",), ("a", 1, 2), ["a", 1], (1, "a"), ("a", None), {"site": "a"}, None])
def test_what_is_no_composite_key_is_refused(make, key):
    model = make.model(
        site=pw.CharField(), page=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("site", "page")}
    )
    Task = make({}, model=model)
    Task.put({"site": "a", "page": 1})
    Task.take()
    with pytest.raises((xq.BadType, xq.BadValue)):
        Task.ack(key)
    assert Task.ack(("a", 1)).page == 1


@pytest.mark.parametrize("key", [5, "not a uuid", b"123", ""])
def test_what_is_no_uuid_names_no_task(make, key):
    Task = make({}, key=pw.UUIDField(primary_key=True))
    Task.put(task())
    with pytest.raises((xq.BadType, xq.BadValue, xq.NotFound)):
        Task.kill(key)


def test_a_uuid_key_may_be_named_as_text(make):
    Task = make({}, key=pw.UUIDField(primary_key=True))
    put = Task.put(task())
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


@pytest.mark.parametrize("verb", ONE)
def test_a_verb_is_the_same_on_the_class_the_instance_and_the_handle(make, verb):
    here, rest = ONE[verb]
    results = []
    for call in (
        lambda Task, there: getattr(Task, verb)(there, *rest),
        lambda Task, there: getattr(Task, verb)(there.id, *rest),
        lambda Task, there: getattr(there, verb)(*rest),
        lambda Task, there: getattr(Task.xq, verb)(there, *rest),
        lambda Task, there: getattr(there.xq, verb)(there, *rest),
    ):
        Task = make(EVERY)
        there = bring(Task, here, task(name="a", size=1))
        seen = transitions(Task)
        returned = call(Task, there)
        results.append((returned.status, returned.runat, returned.name, transitions(Task) - seen))
        Task.kill(there) if verb != "kill" else None
    assert results == [results[0]] * 5


def test_verbs_of_the_whole_table_are_the_same_everywhere(make):
    Task = make(EVERY)
    Task.xq.bury_many(Task.xq.put_many(tasks(9)) and Task.xq.take_many(9))
    put = Task.put(task())
    for holder in (Task, put, Task.xq):
        assert len(holder.plow(1)) == 1
        assert holder.take().status == "T"
        assert holder.stats() == holder.queue_stats() == Task.xq.stats()


def test_an_instance_verb_takes_the_same_options(make):
    Task = make(EVERY)
    now = Task.xq.clock.now
    assert Task(name="a").put(delay=5).runat == now + 5
    waiting = Task.xq.restart(Task.get())
    assert waiting.status == "R"
    taken = Task.take(ttr=3)
    assert taken.release(delay=4, update={"name": "b"}).runat == now + 4


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


def test_what_comes_back_can_be_put_again_as_it_is_told(make):
    Task = make({"retval": "dict"})
    Task.put(task(name="a"))
    gone = Task.ack(Task.take())
    own = {name: gone[name] for name in ("name", "size", "priority")}
    assert Task.put(own)["name"] == "a"
