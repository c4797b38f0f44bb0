"""`find`: tasks by a filter, in pages; `failures` in groups; `timeline` of a task."""

from __future__ import annotations

import base64
import datetime
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
N = 90

Test = Callable[[dict[str, Any]], bool]


def attributes(**more: Any) -> dict[str, Any]:
    return {"error": pw.TextField(null=True), **more}


# shape -> how a queue is made, and the key of a task by its number
SHAPES: Mapping[str, tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "integers as keys": ({"attributes": attributes()}, lambda i: {"id": i}),
    "texts as keys": (
        {"attributes": attributes(id=pw.CharField(primary_key=True, max_length=40))},
        lambda i: {"id": f"{'aB%_'[i % 4]}{i}"},
    ),
    "uuids as keys": (
        {"attributes": attributes(id=pw.UUIDField(primary_key=True))},
        lambda i: {"id": uuid.UUID(int=i * 7**40 % 2**128)},
    ),
    "keys of two parts": (
        {
            "attributes": attributes(
                site=pw.CharField(max_length=40),
                page=pw.IntegerField(),
                meta={"primary_key": pw.CompositeKey("site", "page")},
            )
        },
        lambda i: {"site": f"s{i % 5}", "page": i},
    ),
    "own statuses": (
        {"attributes": attributes(), "statuses": {"R": "new", "B": "failed", "D": "R"}},
        lambda i: {"id": i},
    ),
    "numbers as statuses": (
        {
            "attributes": attributes(status=pw.IntegerField(default=1)),
            "statuses": {"R": 1, "T": 2, "W": 3, "B": 4, "D": 5},
        },
        lambda i: {"id": i},
    ),
    "date-times": ({"attributes": attributes(runat=pw.DateTimeField(null=True))}, lambda i: {"id": i}),
    "utubes": (
        {"attributes": attributes(), "roles": (*ROLES, "utube"), "features": {**FEATURES, "utube": 2}},
        lambda i: {"id": i},
    ),
    "few roles": (
        {
            "attributes": attributes(),
            "roles": ("error",),
            "features": {"buried": True, "keep": True, "id": "required"},
        },
        lambda i: {"id": i},
    ),
}


def filled(make: Any, shape: str, n: int = N, **more: Any) -> Any:
    """A queue with tasks in each of its states."""
    options, key = SHAPES[shape]
    options = {"features": FEATURES, "roles": ROLES, **options, **more}
    Task = make(options.pop("features"), **options)
    names = Task._meta.fields
    for i in range(1, n + 1):
        own = {
            "name": (f"task {i}", f"TASK%{i}", "it's\\a", None, "")[i % 5],
            "size": i % 11 - 3,
            "tube": ("mail", "Mail", "it's", None)[i % 4],
            "utube": ("a", "A", "b", None)[i % 4],
            "priority": (0, 1, None, -5)[i % 4],
        }
        own = {**{name: value for name, value in own.items() if name in names}, **key(i)}
        Task.xq.put(own, **({"delay": 1_000 + i} if i % 6 == 0 and "W" in Task.xq.machine.states else {}))
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
    'tube:""': lambda row: row["tube"] is None,
    "size:5": lambda row: row["size"] == 5,
    "size>=2": at_least("size", 2),
    "size<1.5": lambda row: row["size"] < 1.5,
    "size:-3,7": lambda row: row["size"] in (-3, 7),
    "priority>=0": at_least("priority", 0),
    "name:TASK": contains("name", "task"),
    "name:%": contains("name", "%"),
    "name:_": contains("name", "_"),
    "name:'\\\\'": contains("name", "\\"),
    'name="task 5"': lambda row: row["name"] == "task 5",
    'name:""': lambda row: not row["name"],
    "error:timeout": contains("error", "timeout"),
    "error:%_": contains("error", "%_"),
    "attempts>0": lambda row: row["attempts"] > 0,
    "task": lambda row: any("task" in (row[name] or "").lower() for name in ("name", "error", "tube", "utube")),
    "utube:a": lambda row: row["utube"] == "a",
}
# A tube is the whole value where it is a role, and a part of the text where it is not.
OF_ROLES = {"tube:mail", 'tube:"it\'s",Mail', "utube:a", "attempts>0"}


def pages(Task: Any, filter: str, n: int, back: bool = False) -> Iterator[Any]:
    """All pages of a search, one after the other."""
    cursor = None
    while True:
        found = Task.xq.find(filter, n=n, after=cursor, back=back)
        yield found
        cursor = found.previous if back else found.next
        assert found.ended == (cursor is None)
        if cursor is None:
            return


def keys(Task: Any, filter: str, n: int = 1_000, back: bool = False) -> list[Any]:
    """The keys of all tasks that a search finds, in its order."""
    found = [[each.get_id() for each in page.tasks] for page in pages(Task, filter, n, back)]
    return [key for page in (found[::-1] if back else found) for key in page]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_search_finds_what_plain_python_finds_in_pages_and_back(make, shape):
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
        forward = keys(Task, filter, n)
        assert Counter(forward) == Counter(wanted)
        assert keys(Task, filter, n, back=True) == forward

    test()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_is_found_by_its_key(make, shape):
    Task = filled(make, shape, 12)
    for key in [each["key"] for each in rows(Task)]:
        text = json.dumps(list(key)) if isinstance(key, tuple) else str(key)
        term = "key:'" + text + "'"
        assert keys(Task, term) == [key]
        assert keys(Task, f"{term} -{term}") == []
        assert len(keys(Task, f"-{term}")) == 11


def test_the_next_tasks_come_first(make):
    Task = make(FEATURES | {"id": "auto_increment"}, roles=ROLES, attributes=attributes())
    for priority in (3, None, 1, 2):
        Task.put({"priority": priority})
    Task.bury(Task.take())
    assert [(each.status, each.priority) for each in Task.xq.find().tasks] == [
        ("R", 1),
        ("R", 2),
        ("R", 3),
        ("B", None),
    ]


def test_a_page_leads_to_the_next_one_and_back(make):
    Task = filled(make, "integers as keys")
    first = Task.xq.find(n=20)
    second = Task.xq.find(n=20, after=first.next)
    again = Task.xq.find(n=20, after=second.previous, back=True)
    assert first.previous is None
    assert [each.id for each in again.tasks] == [each.id for each in first.tasks]
    assert (again.previous, again.ended) == (None, True)
    assert [each.id for each in Task.xq.find(n=20, after=again.next).tasks] == [each.id for each in second.tasks]
    last = Task.xq.find(n=20, back=True)
    assert [each.id for each in last.tasks] == keys(Task, "")[-20:]
    assert last.next is None


def test_a_page_and_an_operation_go_on_behind_a_date_in_the_key(make):
    fields = attributes(
        day=pw.DateField(), page=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("day", "page")}
    )
    Task = make({"buried": "any"}, attributes=fields)
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    for day in days:
        Task.put({"day": day, "page": 1})
    first = Task.xq.find(n=2)
    assert [each.day for each in first.tasks + Task.xq.find(n=2, after=first.next).tasks] == days
    assert Task.xq.act("bury", "", chunk=1).run().done == 3


def test_tasks_that_move_out_of_a_filter_do_not_shift_its_pages(make):
    Task = filled(make, "integers as keys")
    buried = keys(Task, "state:buried")
    dug: list[int] = []
    for found in pages(Task, "state:buried", 3):
        dug += [Task.dig(each).id for each in found.tasks]
    assert dug == buried
    assert keys(Task, "state:buried") == []


def test_a_search_that_no_index_serves_says_how_far_it_has_looked(make):
    Task = make({"keep": True}, attributes=attributes())
    Task.insert_many([{"name": f"done {i}", "status": "D"} for i in range(10_500)]).execute()
    found = Task.xq.find('name="done 10300"')
    assert (found.tasks, found.looked, found.ended) == ([], 10_000, False)
    rest = Task.xq.find('name="done 10300"', after=found.next)
    assert ([each.name for each in rest.tasks], rest.looked, rest.ended) == (["done 10300"], 500, True)
    assert Task.xq.find("state:R").looked == 0


def test_rows_that_are_no_tasks_are_not_found(make):
    Task = make({"keep": True})
    Task.put(task())
    Task.insert(name="draft", status="new").execute()
    assert [each.status for each in Task.xq.find().tasks] == ["R"]
    assert Task.xq.find("draft").tasks == []
    assert Task.xq.find("key:2").tasks == []


def test_tasks_have_the_form_of_the_feature_retval(make):
    Task = make({"retval": "dict"})
    Task.put(task(name="a"))
    assert [each["name"] for each in Task.xq.find("name:a").tasks] == ["a"]


# cursors

CURSORS = ["", "x", "%", "W10", "A" * 20_000, "é", "eyJhIjogMX0", "WyJrZXkiLDEsMV0", "bnVsbA", "W1tbW1tbW1tbW1tbW1tb"]


@pytest.mark.parametrize("cursor", CURSORS, ids=range(len(CURSORS)))
def test_a_cursor_that_is_none_is_refused(make, cursor):
    Task = filled(make, "keys of two parts", 6)
    with pytest.raises(xq.BadValue, match="no cursor of this filter"):
        Task.xq.find(after=cursor)


def test_a_cursor_with_anything_in_it_works_or_is_refused(make):
    Task = filled(make, "integers as keys", 12)
    values = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.dictionaries(st.text(), st.text())
    )

    @settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(name=st.sampled_from(["key", "oldest_R", "oldest_B", "runat_T", "x"]), parts=st.lists(values, max_size=4))
    def test(name: str, parts: list[Any]) -> None:
        text = base64.urlsafe_b64encode(json.dumps([name, *parts]).encode()).decode().rstrip("=")
        with suppress(xq.BadValue):
            assert Task.xq.find(after=text).looked <= 12

    test()


def test_only_text_is_a_cursor_or_a_filter(make):
    Task = make()
    with pytest.raises(xq.BadType, match="a cursor is text"):
        Task.xq.find(after=7)
    with pytest.raises(xq.BadType, match="a filter is text"):
        Task.xq.find(7)
    for n in (0, 1_001):
        with pytest.raises(xq.BadValue, match="1 to 1,000 tasks"):
            Task.xq.find(n=n)


# terms that are refused

REFUSED = {
    "state:gone": "has the states ready",
    "state>R": "cannot compare: write state:R",
    "colour:red": "names 'colour', which Task does not have",
    "http://a": "put it into quotes",
    "name>5": "compares numbers, and 'name' is text",
    "size:many": "needs a number",
    "size>1h": "needs a number",
    "age>soon": "needs a span of time",
    "age:1h": "needs a comparison",
    "age>1h,2h": "needs a comparison",
    "key:one": "is a whole number",
    f"key:{2**70}": "is a whole number of up to 64 bits",
    "session:me": "the whole uuid of a session",
    "made:2024": "cannot look into 'made'",
}


@pytest.mark.parametrize("filter", REFUSED)
def test_a_term_that_means_nothing_is_refused_by_name(make, filter):
    Task = make({}, attributes=attributes(made=pw.DateTimeField(null=True)))
    with pytest.raises(xq.BadValue, match=REFUSED[filter]):
        Task.xq.find(filter)


def test_a_term_whose_role_or_feature_is_off_names_it(make):
    Task = make({}, fields={"status": "status"}, attributes={"attempts": pw.TextField(null=True)})
    for role, filter in {"error": "error:a", "error ": "failure:a", "unique": "unique:a"}.items():
        with pytest.raises(xq.FeatureOff) as off:
            Task.xq.find(filter)
        assert off.value.role == role.strip()
    with pytest.raises(xq.FeatureOff) as off:
        Task.xq.find("age>1h")
    assert off.value.feature == "history"
    with pytest.raises(xq.FeatureOff) as off:
        Task.xq.timeline(1)
    assert off.value.feature == "history"
    with pytest.raises(xq.FeatureOff) as off:
        Task.xq.failures()
    assert off.value.role == "error"


# age


@pytest.mark.parametrize("shape", SHAPES)
def test_the_age_is_the_time_since_a_task_entered_its_state(make, shape):
    options = SHAPES[shape][0]
    features = {**options.get("features", FEATURES), "history": True}
    Task = filled(make, shape, 20, features=features)
    old = keys(Task, "")
    Task.xq.clock.tick(30)
    taken = Task.take()
    Task.xq.clock.tick(20)
    assert keys(Task, "age<1m") == keys(Task, "")
    assert keys(Task, "age<40s") == keys(Task, "age<=20s") == [taken.get_id()]
    assert keys(Task, "age<20s") == keys(Task, "age>50s") == []
    assert sorted(keys(Task, "age>40s")) == sorted(keys(Task, "-age<=40s")) == sorted({*old} - {taken.get_id()})
    assert keys(Task, "age>40s age<=50s state:buried") == keys(Task, "state:buried")


def test_the_age_of_taken_tasks_needs_no_history(make):
    Task = make({"keep": True})
    Task.xq.put_many(tasks(2))
    first = Task.take()
    Task.xq.clock.tick(60)
    second = Task.take()
    assert keys(Task, "state:taken age>=1m") == [first.id]
    assert keys(Task, "state:taken age<1m") == [second.id]


def test_the_age_is_known_as_far_as_the_history_is_kept(make):
    Task = make({"keep": True, "history": 3600})
    with pytest.raises(xq.BadValue, match="more than the 3,600 s that the history is kept"):
        Task.xq.find("state:ready age>2h")


def test_the_tasks_of_a_session_are_found(make):
    Task = make({"keep": True})
    Task.xq.put_many(tasks(3))
    with Task.xq.session() as mine:
        assert keys(Task, f"session:{mine.uuid}") == []
        first = Task.take()
        Task.ack(first)
    with Task.xq.session() as other:
        Task.take()
        assert keys(Task, f"session:{other.uuid}") == [2]
    assert keys(Task, f"session:{mine.uuid}") == []


# failures


def test_failures_are_grouped_by_class_and_message(make):
    Task = filled(make, "integers as keys")
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
        assert len(found) == group.count
        assert group.key in [each.id for each in found]
        assert group.count == counted[group.error or "%_", "B"]
        assert group.states == {"B": group.count}
        assert {each.error.partition(":")[0] for each in found} == {group.error or "%_"}


def test_failures_of_a_filter_are_its_own(make):
    Task = filled(make, "integers as keys")
    groups = Task.xq.failures("tube:mail", n=2)
    assert len(groups) <= 2
    for group in groups:
        assert group.filter == f"tube:mail failure:{group.id}"
        assert {each.tube for each in Task.xq.find(group.filter).tasks} == {"mail"}


def test_a_task_that_is_tried_again_is_a_failure_and_a_done_one_is_none(make):
    Task = make({**FEATURES, "id": "auto_increment", "history": True}, roles=ROLES, attributes=attributes())
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


# timeline


@pytest.mark.parametrize("shape", ["integers as keys", "keys of two parts", "own statuses"])
def test_a_timeline_has_each_transition_and_the_time_in_each_state(make, shape):
    options, key = SHAPES[shape]
    Task = make({**FEATURES, "history": True}, roles=ROLES, attributes=options["attributes"])
    began = Task.xq.clock.now
    put = Task.put({**key(1), "tube": "mail"}, delay=5)
    Task.xq.clock.tick(7)
    taken = Task.take()
    Task.xq.clock.tick(3)
    Task.bury(taken)
    Task.xq.clock.tick(10)
    steps = Task.xq.timeline(put.get_id())
    assert [(step.source, step.target, step.event) for step in steps] == [
        ("X", "W", "put"),
        ("W", "R", "delay"),
        ("R", "T", "take"),
        ("T", "B", "bury"),
    ]
    assert [step.at - began for step in steps] == [0, 7, 7, 10]
    assert [step.seconds for step in steps] == [7, 0, 3, 10]
    assert [step.open for step in steps] == [False, False, False, True]
    assert [step.session for step in steps[2:]] == [Task.xq.current_session().uuid] * 2
    assert [step.attempt for step in steps] == [0, 0, 1, 1]
    assert {step.tube for step in steps} == {"mail"}
    Task.kill(put.get_id())
    assert [(step.target, step.seconds, step.open) for step in Task.xq.timeline(put.get_id())[-2:]] == [
        ("B", 10, False),
        ("X", None, False),
    ]


def test_a_timeline_of_a_task_that_never_was_is_empty(make):
    assert make({"history": True}).xq.timeline(7) == []
