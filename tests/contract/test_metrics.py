"""Metrics: what a scrape shows of a queue, what it never shows, and how durations are counted."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest
from prometheus_client.parser import text_string_to_metric_families

import xq
from tests.factories import tasks
from tests.steps import bring
from xq.metrics import Metrics

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FULL = {"buried": True, "delayed": True, "keep": True, "ttr": 60}


def shown(metrics, name):
    """The values of a metric, by the values of its labels without the queue."""
    body, _ = metrics.scrape()
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if sample.name == name:
                labels = {label: value for label, value in sorted(sample.labels.items()) if label != "queue"}
                found[tuple(labels.values())] = sample.value
    return found


def of(Task, **options):
    return Metrics([Task.xq], fresh_for=0, **options)


def value(metrics, name):
    (only,) = shown(metrics, name).values()
    return only


def test_tasks_are_shown_by_state_and_by_tube_and_transitions_grow_from_zero_on(make):
    Task = make(FULL, roles=("runat", "tube"), tube_stats=["mail", "sms"])
    metrics = of(Task)
    assert shown(metrics, "xq_transitions_total")["T", "B", ""] == 0
    bring(Task, "B")
    for tube in ("mail", "mail", "sms", "fax", None):
        Task.put({"tube": tube})
    found = shown(metrics, "xq_tasks")
    assert {tube: n for (state, tube), n in found.items() if state == "R"} == {"": 2, "mail": 2, "sms": 1}
    assert {state: n for (state, tube), n in found.items() if tube == ""} == {"R": 2, "T": 0, "W": 0, "B": 1, "D": 0}
    assert shown(metrics, "xq_transitions_total")["T", "B", ""] == 1


def test_further_tubes_are_shown_as_other(make):
    many = [f"tube{n}" for n in range(103)]
    Task = make(FULL, roles=("runat", "tube"), tube_stats=many)
    Task.xq.put_many([{"tube": tube} for tube in many])
    found = {tube: n for (state, tube), n in shown(of(Task), "xq_tasks").items() if state == "R"}
    assert len(found) == 102
    assert found["other"] == 3
    assert sum(found.values()) == 103


def test_no_key_and_no_data_of_a_task_is_shown(make):
    Task = make({**FULL, "history": True, "events": True}, roles=("runat", "tube", "attempts"))
    Task.put({"id": 424242, "name": "secret-name", "tube": "secret-tube"})
    Task.take().bury()
    body, _ = of(Task).scrape()
    assert b"secret" not in body
    assert b"424242" not in body


def test_the_oldest_ready_task_ages_while_no_task_is_taken(make):
    Task = make(FULL)
    metrics = of(Task)
    assert value(metrics, "xq_oldest_ready_seconds") == 0
    Task.put({})
    assert value(metrics, "xq_oldest_ready_seconds") == 0
    Task.xq.clock.tick(50)
    assert value(metrics, "xq_oldest_ready_seconds") == 50
    Task.take()
    assert value(metrics, "xq_oldest_ready_seconds") == 0


def test_the_age_is_that_of_the_oldest_task_while_others_come_and_go(make):
    Task = make(FULL)
    metrics = of(Task)
    for _ in range(3):
        Task.xq.put_many(tasks(2))
        value(metrics, "xq_oldest_ready_seconds")
        Task.xq.clock.tick(10)
    assert value(metrics, "xq_oldest_ready_seconds") == 30
    Task.take()
    assert value(metrics, "xq_oldest_ready_seconds") == 30
    Task.xq.take_many(2)
    assert value(metrics, "xq_oldest_ready_seconds") == 20


def test_with_the_history_the_age_does_not_depend_on_scrapes(make):
    Task = make({**FULL, "history": True})
    Task.put({})
    Task.xq.clock.tick(40)
    Task.put({})
    Task.xq.clock.tick(2)
    metrics = of(Task)
    assert value(metrics, "xq_oldest_ready_seconds") == 42
    Task.take()
    assert value(metrics, "xq_oldest_ready_seconds") == 2


def test_the_history_gives_the_time_until_a_take_and_until_an_ack(make):
    Task = make({**FULL, "history": True})
    metrics = of(Task)
    value(metrics, "xq_up")
    Task.put({})
    Task.xq.clock.tick(3)
    task = Task.take()
    Task.xq.clock.tick(0.2)
    task.ack()
    assert value(metrics, "xq_take_seconds_sum") == pytest.approx(3, abs=0.01)
    assert value(metrics, "xq_ack_seconds_sum") == pytest.approx(0.2, abs=0.01)
    buckets = {float(le): n for (le,), n in shown(metrics, "xq_take_seconds_bucket").items()}
    assert (buckets[2.5], buckets[5], buckets[float("inf")]) == (0, 1, 1)


def test_a_task_that_was_ready_before_the_start_is_timed_from_its_put(make):
    Task = make({**FULL, "history": True})
    bring(Task, "D")
    Task.put({})
    Task.xq.clock.tick(7)
    metrics = of(Task)
    assert (value(metrics, "xq_take_seconds_count"), value(metrics, "xq_ack_seconds_count")) == (0, 0)
    Task.take()
    assert value(metrics, "xq_take_seconds_sum") == pytest.approx(7, abs=0.01)
    assert value(of(Task, past=True), "xq_ack_seconds_count") == 1, "those of before the start, if asked for"


def test_a_released_task_has_no_time_until_an_ack(make):
    Task = make({**FULL, "history": True})
    metrics = of(Task)
    value(metrics, "xq_up")
    bring(Task, "T").release()
    assert value(metrics, "xq_take_seconds_count") == 1
    assert value(metrics, "xq_ack_seconds_count") == 0


def test_each_transition_is_counted_once_also_of_a_queue_that_was_installed_anew(make):
    Task = make({**FULL, "history": True})
    metrics = of(Task)
    metrics.scrape()
    for n in range(1, 4):
        bring(Task, "D")
        assert value(metrics, "xq_ack_seconds_count") == n
    Task.xq.uninstall()
    Task.xq.install()
    assert value(metrics, "xq_up") == 1
    bring(Task, "D")
    assert value(metrics, "xq_ack_seconds_count") == 4


def test_without_history_and_events_there_are_no_durations_and_no_reaped_tasks(make):
    metrics = of(make(FULL))
    for name in ("xq_take_seconds_count", "xq_ack_seconds_count", "xq_reaped_total", "xq_events_total"):
        assert shown(metrics, name) == {}


@pytest.mark.parametrize("feature", ["events", "history"])
def test_reaped_tasks_are_counted(make, feature):
    Task = make({**FULL, feature: True})
    metrics = of(Task)
    assert value(metrics, "xq_reaped_total") == 0
    with Task.xq.session() as gone:
        Task.put({})
        Task.take()
        Task.xq.adapter.maintenance.give_back(gone.uuid, "died")
        assert value(metrics, "xq_reaped_total") == 1


def test_the_feature_events_is_shown_by_event(make):
    Task = make({**FULL, "events": True})
    bring(Task, "T").touch(1)
    found = shown(of(Task), "xq_events_total")
    assert (found[("put",)], found[("take",)], found[("touch",)]) == (1, 1, 1)


def test_pauses_are_shown(make):
    Task = make(FULL, roles=("runat", "tube"))
    metrics = of(Task)
    assert shown(metrics, "xq_paused") == {("",): 0}
    Task.xq.pause("mail")
    assert shown(metrics, "xq_paused") == {("",): 0, ("mail",): 1}
    Task.xq.pause()
    assert shown(metrics, "xq_paused") == {("",): 1, ("mail",): 1}


def test_a_session_that_takes_from_the_queue_is_counted(make):
    Task, Other = make(FULL), make(FULL, model=make.model(table_name="other"))
    metrics = of(Task)
    assert value(metrics, "xq_sessions") == 0
    Task.take()
    assert value(metrics, "xq_sessions") == 1
    assert value(of(Other), "xq_sessions") == 0


def test_a_queue_that_cannot_be_read_is_down_and_its_counters_stay(make):
    Task, Other = make({**FULL, "history": True}), make(FULL, model=make.model(table_name="other"))
    metrics = Metrics({"first": Task.xq, "second": Other.xq}, fresh_for=0)
    bring(Task, "B")
    metrics.scrape()
    Task.xq.uninstall()
    body, _ = metrics.scrape()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert (samples["xq_up", "first"], samples["xq_up", "second"]) == (0, 1)
    assert samples["xq_transitions_total", "", "B", "T", "first"] == 1
    assert ("xq_tasks", "", "B", "first") not in samples
    Task.xq.install()
    body, _ = metrics.scrape()
    assert b'xq_up{queue="first"} 1.0' in body


def test_two_queues_of_one_name_have_series_of_their_own(make):
    Task, Other = make(FULL), make(FULL, model=make.model(table_name="other"))
    assert Task.xq.name == Other.xq.name
    body, _ = Metrics([Task.xq, Other.xq]).scrape()
    assert b'xq_up{queue="Task"} 1.0' in body
    assert b'xq_up{queue="Task (2)"} 1.0' in body


def test_a_function_may_return_the_queues(make):
    Task = make(FULL)
    queues: dict[str, xq.Queue[Any]] = {}
    metrics = Metrics(lambda: queues, fresh_for=0)
    assert shown(metrics, "xq_up") == {}
    queues["Task"] = Task.xq
    assert value(metrics, "xq_up") == 1


def test_a_scrape_within_a_second_does_not_read_again(make):
    Task = make(FULL)
    metrics = Metrics([Task.xq], fresh_for=3600)
    before, _ = metrics.scrape()
    Task.put({})
    assert metrics.scrape()[0] == before


def test_a_scrape_gives_the_format_that_the_request_accepts(make):
    metrics = of(make(FULL))
    assert metrics.scrape()[1].startswith("text/plain")
    body, content_type = metrics.scrape("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_hostile_names_are_escaped(make):
    Task = make(FULL, roles=("runat", "tube"), tube_stats=['a"b\\\n{}'], attributes={"tube": pw.TextField(null=True)})
    Task.put({"tube": 'a"b\\\n{}'})
    found = shown(of(Task), "xq_tasks")
    assert found["R", 'a"b\\\n{}'] == 1
