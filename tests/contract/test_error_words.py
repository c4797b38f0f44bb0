"""What errors say in words: states by their names, with the letter and what the application stores."""

from __future__ import annotations

import pytest

import xq
from tests.steps import bring


def test_an_error_names_states_in_words_and_carries_their_letters(make):
    Task = make({"delayed": True, "buried": True, "keep": True})
    waiting = Task.put({}, delay=5)
    with pytest.raises(xq.WrongState) as wrong:
        Task.ack(waiting.id)
    assert str(wrong.value) == f"cannot ack task {waiting.id}: it is waiting (W); ack needs a taken task (T)"
    assert (wrong.value.state, wrong.value.allowed) == ("W", ("T",))
    with pytest.raises(xq.WrongState, match=r"restart needs a task that is waiting \(W\) or done \(D\)"):
        Task.xq.restart(bring(Task, "B"))
    for call, told in (
        (lambda: Task.xq.by_state("Q"), r"has the states ready \(R\), taken \(T\), waiting \(W\), buried \(B\)"),
        (lambda: Task.xq.switch(waiting, "Q"), r"to one of ready \(R\), waiting \(W\), buried \(B\), done \(D\)"),
        (lambda: Task.xq.switch(waiting, "W"), r"switch to waiting \(W\) needs delay=seconds"),
    ):
        with pytest.raises(xq.BadValue, match=told):
            call()
    with pytest.raises(xq.ConfigurationError, match=r"1 waiting \(W\)[^:]*: say where they go"):
        Task.xq.reconfigure({"keep": True})


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


def test_another_definition_is_told_by_the_names_of_its_features(make):
    make({"keep": True})
    other = make.model()
    xq.upgrade(other, {"status": "status"}, {"id": "auto_increment"})
    with pytest.raises(xq.NotInstalled, match=r"the feature 'keep' is on there and off here"):
        other.take()
