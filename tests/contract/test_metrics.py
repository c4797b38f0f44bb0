"""Metrics: what a scrape shows of a queue, what it never shows, and how durations are counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw
import pytest
from prometheus_client.parser import text_string_to_metric_families

import xq
from tests.factories import tasks
from tests.steps import bring, eventually, put_late
from xq.metrics import Metrics

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

FULL = {"buried": True, "delayed": True, "keep": True, "ttr": 60}
HISTORY = {**FULL, "history": True}


def of(Task, **options):
    return Metrics([Task.xq], fresh_for=0, **options)


def shown(metrics, name, queue="Task"):
    """The values of a metric of a queue, by the values of its other labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.scrape()[0].decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels["queue"] == queue:
                labels = {label: value for label, value in sorted(sample.labels.items()) if label != "queue"}
                found[tuple(labels.values())] = sample.value
    return found


def value(metrics, name, queue="Task"):
    (only,) = shown(metrics, name, queue).values()
    return only


@contextmanager
def holding(db: Any, lock: str) -> Iterator[None]:
    """A lock that a connection holds of which neither Peewee nor xq knows."""
    with closing(db._connect()) as connection:
        connection.cursor().execute(lock)
        yield


def durations(metrics):
    return value(metrics, "xq_take_seconds_count"), value(metrics, "xq_ack_seconds_count")


def test_tasks_and_pauses_are_shown_by_state_and_by_tube_and_transitions_grow_from_zero_on(make):
    Task = make(FULL, roles=("runat", "tube"), tube_stats=["mail", 'a"b\\\n{}'])
    metrics = of(Task)
    assert shown(metrics, "xq_transitions_total")["T", "B", ""] == 0
    bring(Task, "B")
    for tube in ("mail", "mail", 'a"b\\\n{}', "fax", None):
        Task.put({"tube": tube})
    found = shown(metrics, "xq_tasks")
    assert {tube: n for (state, tube), n in found.items() if state == "R"} == {"": 2, "mail": 2, 'a"b\\\n{}': 1}
    assert {state: n for (state, tube), n in found.items() if tube == ""} == {"R": 2, "T": 0, "W": 0, "B": 1, "D": 0}
    assert shown(metrics, "xq_transitions_total")["T", "B", ""] == 1
    Task.xq.pause("mail")
    assert shown(metrics, "xq_paused") == {("",): 0, ("mail",): 1}


def test_of_many_tubes_those_beyond_a_hundred_have_one_series(make):
    Task = make(FULL, roles=("runat", "tube"), tube_stats=[f"t{n:03}" for n in range(103)])
    Task.xq.put_many([{"tube": f"t{n:03}"} for n in (0, 99, 100, 102)])
    found = shown(of(Task), "xq_tasks")
    assert {tube: n for (state, tube), n in found.items() if state == "R" and n} == {"t000": 1, "t099": 1, "other": 2}


def test_no_key_and_no_data_of_a_task_is_shown(make):
    Task = make({**HISTORY, "events": True}, roles=("runat", "tube", "attempts"))
    Task.put({"id": 424242, "name": "secret-name", "tube": "secret-tube"})
    Task.take().bury()
    body, _ = of(Task).scrape()
    assert (b"secret" in body, b"424242" in body) == (False, False)


def test_pauses_sessions_that_take_from_the_queue_and_events_are_shown(make):
    Task, Other = make({**FULL, "events": True}), make(FULL, model=make.model(table_name="other"))
    metrics = of(Task)
    assert value(metrics, "xq_sessions") == 0
    bring(Task, "T").touch(1)
    assert (value(metrics, "xq_sessions"), value(of(Other), "xq_sessions")) == (1, 0)
    Task.xq.pause()
    assert (shown(metrics, "xq_paused"), shown(of(Other), "xq_paused")) == ({("",): 1}, {("",): 0})
    found = shown(metrics, "xq_events_total")
    assert (found[("put",)], found[("take",)], found[("touch",)]) == (1, 1, 1)
    for name in ("xq_take_seconds_count", "xq_ack_seconds_count", "xq_reaped_total", "xq_events_total"):
        assert shown(of(Other), name) == {}, "without history and events"


@pytest.mark.parametrize("feature", ["events", "history"])
def test_reaped_tasks_are_counted(make, feature):
    Task = make({**FULL, feature: True})
    metrics = of(Task)
    assert shown(metrics, "xq_reaped_total") == {("died",): 0, ("server",): 0}
    for event, n in (("died", (1, 0)), ("outage", (1, 1)), ("died", (2, 1))):
        with Task.xq.session() as gone:
            Task.put({})
            Task.take()
            Task.xq.parts.maintenance.give_back([gone.uuid], event)
            assert shown(metrics, "xq_reaped_total") == {("died",): n[0], ("server",): n[1]}
            Task.take().ack()


def test_the_history_gives_the_time_until_a_take_and_until_an_ack(make):
    Task = make(HISTORY)
    bring(Task, "D")
    Task.put({})
    metrics = of(Task)
    assert durations(metrics) == (0, 0), "from now on"
    assert durations(of(Task, past=True)) == (1, 1), "if asked for, also those of before"
    Task.xq.clock.tick(3)
    assert (value(metrics, "xq_oldest_ready_seconds"), value(metrics, "xq_oldest_ready_exact")) == (3, 1)
    assert value(metrics, "xq_standstill_seconds") == 3
    task = Task.take()
    Task.xq.clock.tick(0.2)
    task.ack()
    bring(Task, "T").release()
    assert durations(metrics) == (2, 1)
    assert value(metrics, "xq_take_seconds_sum") == pytest.approx(3, abs=0.01)
    assert value(metrics, "xq_ack_seconds_sum") == pytest.approx(0.2, abs=0.01)
    buckets = {float(le): n for (le,), n in shown(metrics, "xq_take_seconds_bucket").items()}
    assert (buckets[2.5], buckets[5], buckets[float("inf")]) == (1, 2, 2)


def test_each_transition_is_counted_once_also_of_a_queue_that_was_installed_anew(make, monkeypatch):
    monkeypatch.setattr("xq.metrics.TRANSITIONS_A_QUERY", 7)  # that one query reads
    monkeypatch.setattr("xq.metrics.LATE", 3)
    Task = make(HISTORY)
    metrics = of(Task)
    metrics.scrape()
    for n in range(1, 4):
        Task.xq.put_many(tasks(9))
        Task.xq.ack_many(Task.xq.take_many(9))
        assert durations(metrics) == durations(metrics) == (9 * n, 9 * n)
    Task.xq.uninstall()
    Task.xq.install()
    assert value(metrics, "xq_up") == 1
    bring(Task, "D")
    assert durations(metrics) == (28, 28)


@pytest.mark.parametrize("db", ["postgres", "mariadb", "mysql"], indirect=True)
def test_a_transaction_that_commits_after_others_with_greater_ids_is_counted_once(make):
    Task = make(HISTORY)
    metrics = of(Task)
    metrics.scrape()
    bring(Task, "D")
    assert durations(metrics) == (1, 1)
    with put_late(Task) as commit:
        bring(Task, "D")
        assert durations(metrics) == durations(metrics) == (2, 2)
        commit()
        Task.take().ack()
        assert durations(metrics) == durations(metrics) == (3, 3)


def test_a_queue_that_cannot_be_read_is_down_and_its_counters_stay(make):
    Task, Other = make(HISTORY), make(FULL, model=make.model(table_name="other"))
    metrics = Metrics({"first": Task.xq, "second": Other.xq}, fresh_for=0)
    bring(Task, "B")
    metrics.scrape()
    Task.xq.uninstall()
    assert (value(metrics, "xq_up", "first"), value(metrics, "xq_up", "second"), metrics.failed()) == (0, 1, ["first"])
    assert shown(metrics, "xq_transitions_total", "first")["T", "B", ""] == 1
    assert shown(metrics, "xq_tasks", "first") == {}
    Task.xq.install()
    assert value(metrics, "xq_up", "first") == 1


def test_a_server_that_is_away_is_one_line_of_the_log_for_all_its_queues_and_scrapes(caplog):
    away = pw.PostgresqlDatabase("app", host="127.0.0.1,127.0.0.1", port="1,2", user="ann")
    models = [type(name, (xq.Task,), {"Meta": type("Meta", (), {"database": away})}) for name in ("Mail", "Page")]
    metrics = Metrics([xq.upgrade(each) for each in models], fresh_for=0)
    assert [value(metrics, "xq_up", name) for name in ("Mail", "Page", "Page")] == [0, 0, 0]
    (line,) = [each for each in caplog.messages if "metrics" in each]
    assert line.startswith("the metrics of Mail, Page cannot be read: ")
    assert ("Connection refused" in line, "\n" in line) == (True, False)


@pytest.mark.of_peewee("on SQLAlchemy's models the thread has a connection, and reads by it")
@pytest.mark.parametrize("db", ["postgres", "mariadb", "mysql"], indirect=True)
def test_a_database_that_does_not_answer_is_down_and_the_others_are_read(make, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("xq.metrics.PATIENCE", 0.5)
    Task, other = make(FULL), type(make)(pw.SqliteDatabase(tmp_path / "app.db"))
    Other = other(FULL, model=other.model(table_name="other"))
    metrics = Metrics({"first": Task.xq, "second": Other.xq}, fresh_for=0)
    assert value(metrics, "xq_up", "first") == 1
    mariadb = isinstance(make.db, pw.MySQLDatabase)
    counters = "LOCK TABLES task_xq_count WRITE" if mariadb else "BEGIN; LOCK TABLE task_xq_count"
    make.db.close()  # else this thread reads by its own connection
    with holding(make.db, counters):
        assert [value(metrics, "xq_up", name) for name in ("first", "second", "first")] == [0, 1, 0]
        assert shown(metrics, "xq_transitions_total", "first")["R", "T", ""] == 0
    eventually(lambda: value(metrics, "xq_up", "first") == 1)
    assert [each for each in caplog.messages if "metrics" in each] == [
        "the metrics of first cannot be read: the database does not answer within 8 s"
    ]


def test_schedules_show_when_they_fire_next_and_have_fired_last_unless_they_are_paused(make):
    Task = make({"delayed": True})
    metrics, now = of(Task), Task.xq.clock.now
    for name in ("often", "never", "paused"):
        Task.xq.every(60 if name != "never" else 600, {"name": "a"}, name=name)
    Task.xq.clock.tick(60)
    Task.xq.sweep()
    Task.xq.pause_schedule("paused")
    assert shown(metrics, "xq_schedule_next") == {("often",): now + 120, ("never",): now + 600}
    assert shown(metrics, "xq_schedule_last") == {("often",): now + 60}


def test_two_queues_of_one_name_have_series_of_their_own(make):
    metrics = Metrics([make(FULL).xq, make(FULL, model=make.model(table_name="other")).xq])
    assert (value(metrics, "xq_up", "Task"), value(metrics, "xq_up", "Task (2)")) == (1, 1)


def test_a_scrape_has_the_format_that_the_request_accepts_and_reads_once_in_a_while(make):
    Task = make(FULL)
    metrics = Metrics([Task.xq], fresh_for=3600)
    before = metrics.scrape()
    Task.put({})
    assert metrics.scrape() == before
    assert before[1].startswith("text/plain")
    body, content_type = metrics.scrape("application/openmetrics-text; version=1.0.0")
    assert (content_type.startswith("application/openmetrics-text"), body[-6:]) == (True, b"# EOF\n")
