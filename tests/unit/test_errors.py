"""What goes wrong, in which order it is told, and that class, instance and handle tell the same."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import xq
from tests.timing import in_sequence

ROOT = Path(__file__).resolve().parents[2]

# the errors


def test_every_error_is_an_error_of_xq():
    for error in (
        xq.ConfigurationError,
        xq.Conflict,
        xq.NotInstalled,
        xq.FeatureOff,
        xq.BadValue,
        xq.BadType,
        xq.NotFound,
        xq.WrongState,
        xq.NotOwner,
        xq.Duplicate,
        xq.Full,
        xq.UnknownSession,
    ):
        assert issubclass(error, xq.Error)
    assert issubclass(xq.BadValue, ValueError)
    assert issubclass(xq.BadType, TypeError)
    assert issubclass(xq.Conflict, xq.ConfigurationError)


@pytest.mark.parametrize(
    "error",
    [
        xq.NotFound("Task", 5),
        xq.WrongState("ack", 5, "R", ("T",)),
        xq.NotOwner("ack", 5, "me"),
        xq.FeatureOff("put needs it", feature="delayed"),
        xq.Duplicate("Task", "a", 5),
        xq.Full("Task", 2, 1),
        xq.NotInstalled("Task", ["a table"]),
        xq.UnknownSession("a"),
        xq.Conflict("keep", "zombie", "(T, ack)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_reaches_another_process_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


ERRORS = [value for name in xq.__all__ if isinstance(value := getattr(xq, name), type) and issubclass(value, xq.Error)]


@in_sequence
def test_a_traceback_names_the_section_that_explains_the_error():
    error = xq.NotOwner("ack", 5, "me")
    note = "Read docs/errors.md#notowner in the documentation of xq."
    assert traceback.format_exception(error)[-2:] == [f"xq.core.errors.NotOwner: {error}\n", f"{note}\n"]
    assert "docs/errors" not in str(error)
    program = "import xq; raise xq.UnknownSession('a')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stderr.splitlines()[-1] == "Read docs/errors.md#unknownsession in the documentation of xq."


def test_the_section_of_an_error_of_the_application_is_that_of_its_class_of_xq():
    class Crowded(xq.Full):
        pass

    assert Crowded("Task", 2, 1).__notes__ == ["Read docs/errors.md#full in the documentation of xq."]


def test_notes_are_made_when_they_are_asked_for_and_keep_those_of_the_application():
    error = xq.NotFound("Task", 5)
    assert "__notes__" not in vars(error)
    error.add_note("while the shop was closed")
    section = "Read docs/errors.md#notfound in the documentation of xq."
    assert error.__notes__ == [section, "while the shop was closed"]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), vars(again)) == (xq.NotFound, str(error), vars(error))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_the_section_that_its_note_names(error):
    (note,) = error.__new__(error).__notes__
    page, _, anchor = note.split()[1].partition("#")
    headings = re.findall("^### (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]


@pytest.mark.parametrize(
    "error",
    [
        xq.NotFound("Task", 5),
        xq.WrongState("ack", 5, "R", ("T",)),
        xq.NotOwner("ack", 5, "me"),
        xq.SessionLost("ack", 5, "me"),
        xq.FeatureOff("put needs it", feature="delayed"),
        xq.Duplicate("Task", "a", 5),
        xq.Full("Task", 2, 1),
        xq.Undone("Task", 5),
        xq.NotInstalled("Task", ["a table"]),
        xq.UnknownSession("a"),
        xq.Conflict("keep", "zombie", "(T, ack)"),
        xq.TubeExists("mails", "fifo"),
        xq.UnknownTube("mails", []),
        xq.TubeBusy("mails", 1),
        xq.TubeDropped("mails"),
        xq.NotRunning("WAITING"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_says_what_its_attributes_are(error):
    told = inspect.getdoc(type(error)) or ""
    assert [name for name in vars(error) if f"`{name}`" not in told] == []


# before any SQL

OFF = {
    "put delay": ({"delayed"}, lambda Task: Task.put({}, delay=5)),
    "put ttl": ({"ttl", "lifetime"}, lambda Task: Task.put({}, ttl=5)),
    "put ttr": ({"ttr"}, lambda Task: Task.put({}, ttr=5)),
    "put on_conflict": ({"unique"}, lambda Task: Task.put({}, on_conflict="skip")),
    "put_many delay": ({"delayed"}, lambda Task: Task.xq.put_many([{}], delay=5)),
    "take ttr": ({"ttr"}, lambda Task: Task.take(ttr=5)),
    "take_many ttr": ({"ttr"}, lambda Task: Task.xq.take_many(1, ttr=5)),
    "take_many of none": ({"ttr"}, lambda Task: Task.xq.take_many(0, ttr=5)),
    "ack delay": ({"zombie"}, lambda Task: Task.ack(1, delay=5)),
    "ack_many delay": ({"zombie"}, lambda Task: Task.xq.ack_many([1], delay=5)),
    "ack_many of none": ({"zombie"}, lambda Task: Task.xq.ack_many([], delay=5)),
    "release delay": ({"delayed"}, lambda Task: Task.release(1, delay=5)),
    "release ttl": ({"ttl", "lifetime"}, lambda Task: Task.release(1, ttl=5)),
    "release_many delay": ({"delayed"}, lambda Task: Task.xq.release_many([1], delay=5)),
    "bury": ({"buried"}, lambda Task: Task.bury(1)),
    "bury_many": ({"buried"}, lambda Task: Task.xq.bury_many([1])),
    "dig": ({"buried"}, lambda Task: Task.dig(1)),
    "dig n": ({"buried"}, lambda Task: Task.dig(n=1)),
    "kick": ({"buried"}, lambda Task: Task.kick(1)),
    "plow": ({"buried"}, lambda Task: Task.plow()),
    "touch": ({"ttl", "ttr", "lifetime"}, lambda Task: Task.touch(1, 5)),
    "snatch delay": ({"delayed"}, lambda Task: Task.xq.snatch(1, delay=5)),
    "restart": ({"delayed", "keep", "zombie"}, lambda Task: Task.xq.restart(1)),
}


@pytest.mark.parametrize("call", OFF)
def test_what_belongs_to_a_feature_that_is_off_names_the_feature(make, call):
    features, run = OFF[call]
    Task = make({})
    with pytest.raises(xq.FeatureOff) as off:
        run(Task)
    assert off.value.feature in features
    assert any(feature in str(off.value) for feature in features)


@pytest.mark.parametrize("call", OFF)
def test_a_feature_that_is_off_is_told_before_any_sql_runs(make, call):
    model = make.model()
    xq.upgrade(model, {"status": "status"})
    with pytest.raises(xq.FeatureOff):
        OFF[call][1](model)


BAD_SECONDS = {
    "ack": lambda Task: Task.ack(999, delay=-1),
    "release": lambda Task: Task.release(999, delay=-1),
    "dig": lambda Task: Task.dig(999, ttl=-1),
    "snatch": lambda Task: Task.xq.snatch(999, delay=-1),
    "restart": lambda Task: Task.xq.restart(999, delay=-1),
    "switch": lambda Task: Task.xq.switch(999, "R", delay=-1),
    "touch": lambda Task: Task.touch(999, -1),
    "update": lambda Task: Task.ack(999, update={"status": "R"}),
    "target": lambda Task: Task.xq.switch(999, "nowhere"),
}


@pytest.mark.parametrize("call", BAD_SECONDS)
def test_a_bad_value_is_told_before_the_task_is_looked_for(make, call):
    model = make.model()
    xq.upgrade(
        model,
        {"status": "status", "runat": "runat"},
        {"zombie": 5, "buried": True, "delayed": True, "ttl": 5, "ttr": 5},
    )
    with pytest.raises(xq.BadValue):
        BAD_SECONDS[call](model)


def test_xq_tells_its_version():
    assert isinstance(xq.__version__, str)
