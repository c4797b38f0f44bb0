"""What is refused before any SQL runs, verb by verb and feature by feature."""

from __future__ import annotations

import math

import peewee as pw
import pytest

import xq
from tests.support import batches, ownership
from tests.support.history import ALL
from tests.support.operators import RETRY
from tests.support.put import sequence
from xq import BadType, BadValue, FeatureOff

COUNTED = {"buried": True, "delayed": True, "keep": True}
WORDED = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}

# finish


def test_a_bad_update_is_told_before_the_task_is_looked_for(make):
    Task = make()
    with pytest.raises(xq.BadValue):
        Task.ack(1, update={"nonsense": 1})


# limit


@pytest.mark.parametrize("limit", [0, -1, "5", 1.5, True])
def test_a_limit_is_a_whole_number_of_one_or_more(make, limit):
    with pytest.raises(xq.ConfigurationError, match="limit"):
        make({"limit": limit})


# take


@pytest.mark.parametrize("tube", [5, b"a", ["a"]])
def test_a_tube_is_named_by_text(make, tube):
    Task = make(roles=("runat", "tube"))
    with pytest.raises(xq.BadType):
        Task.take(tube=tube)


def test_a_tube_needs_the_role(make):
    Task = make()
    with pytest.raises(xq.FeatureOff, match="tube") as off:
        Task.take(tube="left")
    assert off.value.role == "tube"


# options


def test_an_option_that_is_not_there_is_told_with_those_that_are(make):
    Task = make({"delayed": True, "ttr": 5}, roles=("runat", "ttr"))
    calls = {
        "take of Task has no option 'timout': it takes timeout, tube, ttr": lambda: Task.take(timout=1),
        "ack of Task has no option 'updte': it takes update": lambda: Task.ack(1, updte={}),
        "put of Task has no option 'wiat': it takes wait, timeout, delay": lambda: Task.put({}, wiat=1),
        "put takes a task of Task as a mapping: put({'name': ...})": lambda: Task.put(name="a"),
    }
    for message, call in calls.items():
        with pytest.raises(xq.BadType) as refused:
            call()
        assert str(refused.value).startswith(message)


# put


@pytest.mark.parametrize("column", ["status", "runat", "attempts"])
def test_a_sequence_must_not_bring_what_is_the_queues_own(make, column):
    Task = make({"ttl": 10}, roles=("runat", "attempts"))
    with pytest.raises(xq.BadValue, match=column):
        Task.put(sequence(Task, **{"size": 1, column: 1}))


@pytest.mark.parametrize("bad", ["abc", b"abc", {"name": "a"}, 5, None])
def test_put_many_takes_tasks_and_not_one_task(make, bad):
    Task = make()
    with pytest.raises(xq.BadType):
        Task.xq.put_many(bad)


# stats


def test_tube_stats_need_the_role(make):
    with pytest.raises(xq.ConfigurationError, match="tube"):
        make(COUNTED, tube_stats=["a"])


@pytest.mark.parametrize("wrong", ["a", [5], [None], [""], 5])
def test_tube_stats_is_a_list_of_names(make, wrong):
    with pytest.raises(xq.ConfigurationError, match="tube_stats"):
        make(COUNTED, roles=("runat", "tube"), tube_stats=wrong)


# batches


@pytest.mark.parametrize("many", batches.TARGETS)
def test_one_task_is_not_many(make, many):
    Task = make(batches.FEATURES)
    for bad in ["abc", b"abc", {"id": 1}, 5, None]:
        with pytest.raises(xq.BadType):
            getattr(Task.xq, many)(bad)


def test_roles_are_told_with_the_fields_that_hold_them(make):
    Task = make({"unique": "WRTB"}, roles=("runat", "unique"))
    assert Task.xq.roles == {"status": "status", "runat": "runat", "unique": "job"}


# operators


@pytest.mark.parametrize("event", ["nonsense", "put", "switch"])
def test_call_runs_events_that_a_key_alone_can_run(make, event):
    Task = make({"retry": RETRY})
    with pytest.raises(xq.BadValue, match=event):
        Task.xq.call(event, 1)


def test_an_event_is_named_by_text(make):
    with pytest.raises(xq.BadType):
        make({"retry": RETRY}).xq.call(5, 1)


# ownership


owner, queue = ownership.owner, ownership.queue


@pytest.mark.parametrize(("name", "error"), [("abc", xq.BadValue), ("", xq.BadValue), (5, xq.BadType)])
def test_a_session_is_named_by_its_uuid(queue, name, error):
    with pytest.raises(error):
        queue.xq.session(name)


def test_to_leave_the_check_out_needs_a_ttr(make):
    with pytest.raises(xq.ConfigurationError, match=r"not_check_session.*ttr"):
        make({"not_check_session": True})


def test_an_owner_field_must_hold_a_token(make):
    with pytest.raises(xq.ConfigurationError, match="owner"):
        make(roles=("owner",), attributes={"owner": pw.CharField(max_length=10, null=True)})


# bad values


def test_a_refused_upgrade_leaves_the_model_as_it_was(make):
    Task = make.model()
    for call in (
        lambda: xq.upgrade(Task, {}),
        lambda: xq.upgrade(Task, {"status": "status"}, {"ttl": True}),
        lambda: xq.upgrade(Task, {"status": "status"}, methods=("put", "nonsense")),
    ):
        with pytest.raises(xq.ConfigurationError):
            call()
        assert not hasattr(Task, "xq")
        assert not hasattr(Task, "put")
        assert not Task._meta.only_save_dirty  # save() writes all, as it did


# unique


def test_a_hole_that_time_would_fall_through_is_refused(make):
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": "R", "delayed": True}, roles=("runat", "unique"))
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": "WR", "delayed": True, "ttr": 60}, roles=("runat", "unique"))


@pytest.mark.parametrize("value", ["", "Q", "RX", 5])
def test_the_states_are_letters_of_the_queue(make, value):
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": value}, roles=("unique",))


def test_on_conflict_needs_the_feature(make):
    Task = make()
    with pytest.raises(xq.FeatureOff, match="unique") as off:
        Task.put({}, on_conflict="skip")
    assert off.value.feature == "unique"


def test_unique_needs_the_role(make):
    with pytest.raises(xq.ConfigurationError, match=r"unique.*role 'unique'"):
        make({"unique": True}, roles=("runat",))


# history


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(True, BadType), ("now", BadType), (b"", BadType), (math.nan, BadValue), (math.inf, BadValue), (1e300, BadValue)],
)
def test_a_moment_that_is_none_is_refused(make, name, value, error):
    Task = make(ALL)
    with pytest.raises(error, match=name):
        Task.xq.history(**{name: value})


def test_without_the_feature_there_is_no_history(make):
    Task = make({"delayed": True})
    for ask in (lambda: Task.xq.history(), lambda: Task.xq.History):
        with pytest.raises(FeatureOff) as raised:
            ask()
        assert raised.value.feature == "history"


# statuses


@pytest.mark.parametrize(
    "statuses",
    [
        {"R": "same", "T": "same"},
        {"R": "T"},
        {"R": 5},
        {"R": None},
        {"R": True},
        {"R": 1.5},
        {"X": "gone"},
        {"S": "other"},
        {"ready": "new"},
        {5: "new"},
        [("R", "new")],
        "new",
    ],
)
def test_statuses_map_letters_to_different_words(make, statuses):
    with pytest.raises(xq.ConfigurationError, match="status"):
        make(WORDED, statuses=statuses)


def test_an_integer_field_needs_a_number_for_each_state(make):
    for statuses in ({}, {"R": 0}, {"R": 0, "T": 1, "W": 2, "B": 3, "D": "done"}):
        with pytest.raises(xq.ConfigurationError, match="status"):
            make(WORDED, attributes={"status": pw.IntegerField(default=0)}, statuses=statuses)


def test_a_word_must_fit_its_field(make):
    with pytest.raises(xq.ConfigurationError, match="later"):
        make(WORDED, attributes={"status": pw.CharField(max_length=1)}, statuses={"W": "later"})


@pytest.mark.parametrize("field", [pw.BooleanField, pw.DoubleField, pw.DateTimeField])
def test_a_status_is_text_or_an_integer(make, field):
    with pytest.raises(xq.ConfigurationError, match="status"):
        make({}, attributes={"status": field(null=True)})
