"""The plan of a call: its steps and its SQL, to be read."""

from __future__ import annotations

import pytest

import xq


@pytest.fixture
def queue(make):
    return make({"buried": True, "delayed": True, "keep": True}, roles=("runat",)).xq


def statements(plan):
    return [sql for _, sql in plan.steps if sql]


def test_a_plan_of_a_take_names_its_token_and_shows_its_statement(queue):
    plan = queue.plan("take")
    text = str(plan)
    assert text.startswith("take()\n  1  ")
    assert "token" in text
    assert "R to T" in text
    assert any("UPDATE" in sql for sql in statements(plan))


def test_a_plan_of_an_ack_writes_the_fields_of_its_update(queue):
    name = next(iter(queue.model._meta.fields))
    others = [field for field in queue.model._meta.fields if field not in (name, "status", "runat")]
    plan = queue.plan("ack", update=others[:1])
    assert str(plan).startswith(f"ack(update={{{others[0]}}})")
    assert any(others[0] in sql for sql in statements(plan))


def test_a_plan_of_a_put_with_a_delay_leads_to_waiting(queue):
    assert "to W" in str(queue.plan("put", "delay"))
    assert "to R" in str(queue.plan("put"))


def test_a_plan_of_a_put_says_what_becomes_of_a_duplicate(make):
    plan = make({"unique": True}, roles=("unique",)).xq.plan("put", "on_conflict")
    assert str(plan).startswith("put(on_conflict=)\n")
    assert "as on_conflict= says" in str(plan)
    assert len(statements(plan)) == 2


def test_a_plan_with_an_option_whose_feature_is_off_names_the_feature(queue):
    with pytest.raises(xq.FeatureOff, match="unique"):
        queue.plan("put", "on_conflict")


def test_a_call_that_leaves_several_states_looks_the_task_up_and_has_a_transition_for_each(queue):
    text = str(queue.plan("kill"))
    assert "look up the task" in text
    assert all(f"{state} to X" in text for state in queue.machine.states)


def test_a_plan_of_a_take_from_one_tube_selects_by_it(make):
    queue = make(roles=("tube",)).xq
    assert "tube" in str(queue.plan("take", "timeout", "tube"))
    assert str(queue.plan("take", "tube")) != str(queue.plan("take"))


@pytest.mark.parametrize("bad", [("tkae",), ("take", "dealy"), ([],), ("put", [])])
def test_what_is_no_call_of_the_queue_has_no_plan(queue, bad):
    with pytest.raises((xq.BadValue, xq.BadType, xq.FeatureOff)):
        queue.plan(*bad)


@pytest.mark.parametrize("update", [None, 7, "url", [1], [[]]])
def test_the_fields_of_a_plan_are_a_list_of_names(queue, update):
    for event in ("put", "ack"):
        with pytest.raises(xq.BadType, match="names"):
            queue.plan(event, update=update)
