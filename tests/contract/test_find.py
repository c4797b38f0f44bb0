"""`find`: tasks by a filter, in pages; `failures` in groups; `timeline` of a task."""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xq
from tests.factories import task, tasks

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "priority", "tube", "owner", "attempts", "error")
FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "id": "required"}
ERRORS = ["TimeoutError: no answer after {} s\nTraceback", "KeyError: '{}'", "%_: {}"]
N = 120  # more than one statement reads by their keys

Test = Callable[[dict[str, Any]], bool]

# shape of a queue -> what it has beside or instead of the fields, roles and features of the others
SHAPES: Mapping[str, dict[str, Any]] = {
    "integers as keys": {},
    "texts as keys": {"id": pw.CharField(primary_key=True, max_length=40)},
    "uuids as keys": {"id": pw.UUIDField(primary_key=True)},
    "keys of two parts": {
        "site": pw.CharField(max_length=40),
        "page": pw.IntegerField(),
        "meta": {"primary_key": pw.CompositeKey("site", "page")},
    },
    "own statuses": {"options": {"statuses": {"R": "new", "T": "busy", "W": "later", "B": "failed", "D": "R"}}},
    "numbers as statuses": {
        "status": pw.IntegerField(default=1),
        "options": {"statuses": {"R": 1, "T": 2, "W": 3, "B": 4, "D": 5}},
    },
    "priorities": {"priority": pw.IntegerField(default=0)},
    "date-times": {"runat": pw.DateTimeField(null=True)},
    "utubes": {"options": {"roles": (*ROLES, "utube"), "features": {**FEATURES, "utube": 2}}},
    "few roles": {"options": {"roles": ("error",), "features": {"buried": True, "keep": True, "id": "required"}}},
}
KEYS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "texts as keys": lambda i: {"id": f"{'aB%_'[i % 4]}{i}"},
    "uuids as keys": lambda i: {"id": uuid.UUID(int=i * 7**40 % 2**128)},
    "keys of two parts": lambda i: {"site": f"s{i % 5}", "page": i},
}


def key(shape: str, i: int) -> dict[str, Any]:
    """The key of the task of a number."""
    return KEYS[shape](i) if shape in KEYS else {"id": i}


def with_errors(make: Any, shape: str = "integers as keys", **more: Any) -> Any:
    """A queue of a shape, with the role error; `more` are features."""
    fields = {"error": pw.TextField(null=True), **SHAPES[shape]}
    options = {"roles": ROLES, "features": FEATURES, **fields.pop("options", {})}
    return make(options.pop("features") | more, attributes=fields, **options)


def filled(make: Any, shape: str = "integers as keys", n: int = N, **more: Any) -> Any:
    """A queue with tasks in each of its states."""
    Task = with_errors(make, shape, **more)
    for i in range(1, n + 1):
        own = {
            "name": (f"task {i}", f"TASK%{i}", "it's\\a", None, "")[i % 5],
            "size": i % 11 - 3,
            "tube": ("mail", "Mail", "it's", None)[i % 4],
            "utube": ("a", "A", "b", None)[i % 4],
            "priority": (0, 1, 0 if shape == "priorities" else None, -5)[i % 4],
        }
        waits = {"delay": 1_000 + i} if i % 6 == 0 and "W" in Task.xq.machine.states else {}
        Task.xq.put(own | key(shape, i), **waits)
    for i in range(n // 3):
        taken = Task.take()
        if taken is not None and i % 3:
            taken = Task.ack(taken) if i % 3 == 1 else Task.bury(taken)
        if taken is not None and i % 3 != 1:
            error = ERRORS[i % 4 % 3].format(i)
            Task.update(error=error).where(Task._meta.primary_key == taken.get_id()).execute()
    return Task


def rows(Task: Any) -> list[dict[str, Any]]:
    """All tasks as plain Python has them."""
    letters = {word: letter for letter, word in Task.xq.statuses.items()}
    return [{**each.__data__, "key": each.get_id(), "state": letters[each.status]} for each in Task.select()]


def contains(name: str, value: str) -> Test:
    return lambda row: value.lower() in (row[name] or "").lower()


def at_least(name: str, value: float) -> Test:
    return lambda row: row[name] is not None and row[name] >= value


# Terms, and what they mean in plain Python. Roles that a queue lacks are own fields there.
TERMS: Mapping[str, Test] = {
    "state:R": lambda row: row["state"] == "R",
    "state:buried,Done": lambda row: row["state"] in "BD",
    "state:t": lambda row: row["state"] == "T",
    "-state:ready": lambda row: row["state"] != "R",
    "tube:mail": lambda row: row["tube"] == "mail",
    'tube:"it\'s",Mail': lambda row: row["tube"] in ("it's", "Mail"),
    'tube:"",Mail': lambda row: row["tube"] in (None, "Mail"),
    "size:-3,7": lambda row: row["size"] in (-3, 7),
    "size>=2": at_least("size", 2),
    "size<1.5": lambda row: row["size"] < 1.5,
    "priority>=0": at_least("priority", 0),
    "name:TASK": contains("name", "task"),
    "name:%": contains("name", "%"),
    "name:'\\\\'": contains("name", "\\"),
    'name="task 5"': lambda row: row["name"] == "task 5",
    'name:"",SK%1': lambda row: not row["name"] or "SK%1" in row["name"],
    "error:%_": contains("error", "%_"),
    "attempts>0": lambda row: row["attempts"] > 0,
    "task": lambda row: any("task" in (row[name] or "").lower() for name in ("name", "error", "tube", "utube")),
    "utube:a": lambda row: row["utube"] == "a",
}
# A tube is the whole value where it is a role, and a part of the text where it is not.
OF_ROLES = {"tube:mail", 'tube:"",Mail', 'tube:"it\'s",Mail', "utube:a", "attempts>0"}


def pages(Task: Any, filter: str, n: int) -> Iterator[Any]:
    """All pages of a search, one after the other."""
    cursor = None
    while True:
        found = Task.xq.find(filter, n=n, after=cursor)
        yield found
        cursor = found.next
        assert found.ended == (cursor is None)
        if cursor is None:
            return


def keys(Task: Any, filter: str, n: int = 1_000) -> list[Any]:
    """The keys of all tasks that a search finds, in its order."""
    return [each.get_id() for page in pages(Task, filter, n) for each in page.tasks]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_search_finds_what_plain_python_finds_in_pages(make, shape):
    Task = filled(make, shape)
    there = rows(Task)
    assert len({each["state"] for each in there}) >= 4
    mapped = set(Task.xq.roles)
    terms = {text for text in TERMS if text not in OF_ROLES or text.partition(":")[0].partition(">")[0] in mapped}

    @settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        chosen=st.lists(st.tuples(st.sampled_from(sorted(terms)), st.booleans()), max_size=3),
        n=st.sampled_from([1, 7, 1_000]),
    )
    def test(chosen: list[tuple[str, bool]], n: int) -> None:
        filter = " ".join(f"{'-' * negated}{text}".replace("--", "") for text, negated in chosen)
        wanted = {each["key"] for each in there if all(bool(TERMS[text](each)) != negated for text, negated in chosen)}
        assert Counter(keys(Task, filter, n)) == Counter(wanted)

    test()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_is_found_by_its_key(make, shape):
    Task = filled(make, shape, 12)
    for key in [each["key"] for each in rows(Task)]:
        term = "key:'" + (json.dumps(list(key)) if isinstance(key, tuple) else str(key)) + "'"
        assert keys(Task, term) == [key]
        assert keys(Task, f"{term} -{term}") == []
        assert len(keys(Task, f"-{term}")) == 11


def test_the_next_tasks_of_a_state_come_first_else_the_newest_and_what_is_no_task_is_not_found(make):
    features, priority = {"buried": True, "retval": "dict"}, pw.IntegerField(default=0)
    Task = make(features, roles=("priority",), attributes={"priority": priority})
    Task.xq.put_many([task(priority=priority) for priority in (3, 0, 1, 2)])
    Task.bury(Task.take())
    Task.insert(name="draft", status="new").execute()
    assert [each["priority"] for each in Task.xq.find("state:ready").tasks] == [1, 2, 3]
    assert [each["id"] for each in Task.xq.find().tasks] == [4, 3, 2, 1]
    assert Task.xq.find("draft").tasks == Task.xq.find("key:5").tasks == []
    assert (Task.xq.find("state:R state:B").looked, Task.xq.find("state:B").looked) == (0, 1)


def test_tasks_that_move_out_of_a_filter_do_not_shift_its_pages(make):
    Task = filled(make)
    buried = keys(Task, "state:buried")
    assert [Task.dig(each).id for found in pages(Task, "state:buried", 3) for each in found.tasks] == buried
    assert keys(Task, "state:buried") == []


# what is refused

CURSORS = ["", "x", "%", "A" * 20_000, "é", "eyJhIjogMX0", "WyJrZXkiLDEsMV0", "bnVsbA"]


def test_a_cursor_that_is_none_is_refused(make):
    Task = filled(make, "keys of two parts", 6)
    for cursor in CURSORS:
        with pytest.raises(xq.BadValue, match="no cursor of this filter"):
            Task.xq.find(after=cursor)
    for words, arguments in {"a cursor is text": {"after": 7}, "a filter is text": {"filter": 7}}.items():
        with pytest.raises(xq.BadType, match=words):
            Task.xq.find(**arguments)
    for n in (0, 1_001):
        with pytest.raises(xq.BadValue, match="1 to 1,000 tasks"):
            Task.xq.find(n=n)


def test_a_cursor_with_anything_in_it_works_or_is_refused(make):
    Task = filled(make, n=12)
    values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
    parts = st.one_of(values, st.lists(values, max_size=2), st.integers(0, 20).map(str))

    @settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(name=st.sampled_from(["", "R", "x"]), parts=st.lists(parts, max_size=4))
    def test(name: str, parts: list[Any]) -> None:
        text = base64.urlsafe_b64encode(json.dumps([name, *parts]).encode()).decode().rstrip("=")
        with suppress(xq.BadValue):
            assert Task.xq.find("state:R" if name == "R" else "", after=text).looked <= 12

    test()


REFUSED = {
    "state:gone": "has the states ready",
    "state>R": "cannot compare: write state:R",
    "colour:red": "names 'colour', which Task does not have",
    "http://a": "put it into quotes",
    "name>5": "compares numbers, and 'name' is text",
    "size:many": "needs a number",
    "size>''": "needs a number",
    "age>soon": "needs a span of time",
    "age:1h": "needs a comparison",
    "age>1h,2h": "needs a comparison",
    "state:ready age>2h": "more than the 3,600 s that the history is kept",
    f"key:{2**70}": "is a whole number of up to 64 bits",
    "made:2024": "cannot look into 'made'",
}


def test_a_term_that_means_nothing_is_refused_by_name(make):
    Task = make({"history": 3600}, attributes={"made": pw.DateTimeField(null=True)})
    for filter, words in REFUSED.items():
        with pytest.raises(xq.BadValue, match=words):
            Task.xq.find(filter)


# age and session


@pytest.mark.parametrize("shape", SHAPES)
def test_the_age_is_the_time_since_a_task_entered_its_state_and_a_page_has_that_moment(make, shape):
    Task = filled(make, shape, 20, history=True)
    old, began = keys(Task, ""), Task.xq.clock.now
    Task.xq.clock.tick(30)
    taken = Task.take()
    Task.xq.clock.tick(20)
    found = Task.xq.find()
    assert found.since == [began + 30 * (each == taken) for each in found.tasks]
    assert keys(Task, "age<1m") == keys(Task, "")
    assert keys(Task, "age<40s") == keys(Task, "age<=20s") == [taken.get_id()]
    assert keys(Task, "age<20s") == keys(Task, "age>50s") == []
    assert sorted(keys(Task, "age>40s")) == sorted(keys(Task, "-age<=40s")) == sorted({*old} - {taken.get_id()})
    assert keys(Task, "age>40s age<=50s state:buried") == keys(Task, "state:buried")
    Task.bury(Task.xq.find("state:taken age<40s").tasks[0])
    assert Task.xq.clock.now in Task.xq.find("state:buried").since


def test_the_age_and_the_session_of_taken_tasks_need_no_history(make):
    Task = make({"keep": True})
    Task.xq.put_many(tasks(4))
    with Task.xq.session() as mine:
        Task.take().ack()
        first = Task.take()
        Task.xq.clock.tick(60)
        with Task.xq.session() as other:
            second = Task.take()
            assert keys(Task, "state:taken age>=1m") == keys(Task, f"session:{mine.uuid}") == [first.id]
            assert keys(Task, "state:taken age<1m") == keys(Task, f"session:{other.uuid[:20]}") == [second.id]
            since = Task.xq.clock.now
            assert (Task.xq.find("state:taken").since, Task.xq.find("state:R").since) == ([since, since - 60], [None])
    assert keys(Task, f"session:{mine.uuid}") == []
    with pytest.raises(xq.FeatureOff) as off:
        Task.xq.find("age>1h")  # which is not of taken tasks alone
    assert off.value.feature == "history"


# failures


def test_failures_are_grouped_by_class_and_message(make):
    Task = filled(make)
    counted = Counter((each["error"].partition(":")[0], each["state"]) for each in rows(Task) if each["error"])
    groups = Task.xq.failures()
    assert {(group.error, group.message) for group in groups} == {
        ("TimeoutError", "no answer after <n> s"),
        ("KeyError", "<text>"),
        ("", "%_: <n>"),
    }
    assert [group.count for group in groups] == sorted((group.count for group in groups), reverse=True)
    assert (groups.looked > 0, groups.ended) == (True, True)
    for group in groups:
        found = Task.xq.find(group.filter, n=1_000).tasks
        assert group.filter.startswith("state:B failure:")
        assert len(found) == group.count == counted[group.error or "%_", "B"]
        assert group.key in [each.id for each in found]
        assert group.states == {"B": group.count}
        assert {each.error.partition(":")[0] for each in found} == {group.error or "%_"}
    some = Task.xq.failures('tube:"it\'s"', n=2)
    assert len(some) == 2
    for group in some:
        assert {each.tube for each in Task.xq.find(group.filter).tasks} == {"it's"}


def test_a_task_that_is_tried_again_is_a_failure_and_a_done_one_is_none(make):
    Task = with_errors(make, id="auto_increment", history=True)
    Task.xq.put_many(tasks(3))
    done, ready, waiting = Task.xq.take_many(3)
    Task.update(error="E: 1").execute()
    Task.ack(done)
    began = Task.xq.clock.now
    Task.xq.clock.tick(5)
    Task.release(ready)
    Task.xq.clock.tick(5)
    Task.release(waiting, delay=60)
    (group,) = Task.xq.failures()
    assert (group.count, group.states, group.example) == (2, {"R": 1, "W": 1}, "E: 1")
    assert (group.first, group.last) == (began + 5, began + 10)
    assert sorted(keys(Task, group.filter)) == [ready.id, waiting.id]


@pytest.mark.parametrize("shape", ["integers as keys", "keys of two parts", "own statuses"])
def test_a_timeline_has_each_transition_and_the_time_in_each_state(make, shape):
    Task = with_errors(make, shape, history=True)
    began = Task.xq.clock.now
    put = Task.put({**key(shape, 1), "tube": "mail"}, delay=5)
    Task.xq.clock.tick(7)
    taken = Task.take()
    Task.xq.clock.tick(3)
    Task.bury(taken)
    Task.xq.clock.tick(10)
    mine = Task.xq.current_session().uuid
    columns = ("source", "target", "event", "seconds", "open", "session", "attempt", "tube")
    entries = Task.xq.timeline(put.get_id())
    assert [tuple(getattr(entry, name) for name in columns) for entry in entries] == [
        ("X", "W", "put", 7, False, None, 0, "mail"),
        ("W", "R", "delay", 0, False, None, 0, "mail"),
        ("R", "T", "take", 3, False, mine, 1, "mail"),
        ("T", "B", "bury", 10, True, mine, 1, "mail"),
    ]
    assert [entry.at - began for entry in entries] == [0, 7, 7, 10]
    Task.kill(put.get_id())
    assert [(entry.target, entry.seconds, entry.open) for entry in Task.xq.timeline(put.get_id())[-2:]] == [
        ("B", 10, False),
        ("X", None, False),
    ]
    assert Task.xq.timeline(("s", 7) if shape == "keys of two parts" else 7) == []
