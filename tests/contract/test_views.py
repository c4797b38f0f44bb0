"""The views on a history for readers without xq: what they show, and how install keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import peewee as pw
import pytest

import xq
from tests.conftest import Maker

WORDS = ["put", "taken", "done", "buried", "killed", "expired"]


def rows(make, sql):
    return [tuple(row) for row in make.db.execute_sql(sql).fetchall()]


def moment(value):
    """A view's moment, as each driver returns it, in UTC."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


@pytest.fixture
def queue(make: Maker):
    """A queue with a history of two hours."""
    features = {"history": 1e6, "buried": True, "delayed": True, "ttl": True, "keep": True, "id": "auto_increment"}
    model = make(features, roles=("runat", "deadline", "priority", "tube"))
    clock, put = model.xq.clock, model.xq.put
    clock.now = 1_700_000_000.25 // 3600 * 3600 + 0.25  # a quarter of a second after an hour begins
    for name, tube in {"a": "mail", "b": "mail", "c": None}.items():
        put(model(name=name, tube=tube))
    clock.tick(5)
    model.xq.ack(model.xq.take(timeout=0))
    model.xq.bury(model.xq.take(timeout=0))
    clock.tick(3600)
    model.xq.ack(model.xq.take(timeout=0))
    model.xq.install(views=True)
    return model


def test_the_events_say_when_from_where_to_where_and_how_long(make, queue):
    found = rows(
        make, f"SELECT at, {quoted(make)}, tube, source, target, event, seconds FROM task_xq_events ORDER BY id"
    )
    start = datetime.fromtimestamp(queue.xq.clock.now - 3605, UTC)
    assert [moment(at) - start for at, *_ in found[:3]] == [start - start] * 3
    assert [row[1:] for row in found] == [
        ("1", "mail", "put", "Ready", "put", None),
        ("2", "mail", "put", "Ready", "put", None),
        ("3", None, "put", "Ready", "put", None),
        ("1", "mail", "Ready", "Taken", "take", 5),
        ("1", "mail", "Taken", "Done", "ack", 0),
        ("2", "mail", "Ready", "Taken", "take", 5),
        ("2", "mail", "Taken", "Buried", "bury", 0),
        ("3", None, "Ready", "Taken", "take", 3605),
        ("3", None, "Taken", "Done", "ack", 0),
    ]


def quoted(make):
    return "`key`" if isinstance(make.db, pw.MySQLDatabase) else '"key"'


def test_each_hour_has_the_numbers_of_its_tubes(make, queue):
    found = rows(make, f"SELECT hour, tube, {', '.join(WORDS)} FROM task_xq_hourly ORDER BY hour, tube")
    first = moment(found[0][0])
    assert (first.minute, first.second, first.microsecond) == (0, 0, 0)
    assert [((moment(hour) - first).seconds, *map(int, counts[1:])) for hour, *counts in found] == [
        (0, 1, 0, 0, 0, 0, 0),
        (0, 2, 2, 1, 1, 0, 0),
        (3600, 0, 1, 1, 0, 0, 0),
    ]
    assert [row[1] for row in found] == ["", "mail", ""]


def test_a_deleted_task_is_gone(make, queue):
    with queue.xq.acting("ann", reason="no use"):
        queue.xq.kill(2)
    ((source, target, actor, reason),) = rows(
        make, "SELECT source, target, actor, reason FROM task_xq_events WHERE event = 'kill'"
    )
    assert (source, target, actor, reason) == ("Buried", "gone", "ann", "no use")


def test_a_later_install_keeps_the_views_and_makes_changed_ones_anew(make, queue):
    queue.xq.install()
    assert queue.xq.check() == []
    make.db.execute_sql("DROP VIEW task_xq_events")
    make.db.execute_sql("CREATE VIEW task_xq_events AS SELECT 1 AS one")
    queue.xq.install()
    assert len(rows(make, "SELECT seconds FROM task_xq_events")) == 9
    queue.xq.install(views=True)
    assert queue.xq.check() == []


def test_views_are_made_only_where_they_are_asked_for(make):
    model = make({"history": 60})
    assert "xq_events" not in model.xq.ddl()
    assert "task_xq_hourly" in model.xq.ddl(views=True)
    assert "make the view task_xq_events" in model.xq.install(plan=True, views=True)
    assert not views_of(make)


def test_the_views_go_with_the_history(make, queue):
    queue.xq.uninstall(keep_columns=True)
    assert not views_of(make)
    queue.xq.install()
    assert not views_of(make)


def test_a_definition_without_a_history_drops_the_views(make, queue):
    other = make.model()
    make.upgrade(other, {"status": "status", "runat": "runat"}, {"buried": True, "delayed": True, "keep": True})
    other.xq.install(drop_history=True)
    assert not views_of(make)
    assert other.xq.check() == []


PAGE = Path(__file__).resolve().parents[2] / "docs/howto/ten-questions.md"


def test_the_page_of_ten_questions_answers_them_on_each_database(make):
    features = {"history": 1e7, "buried": True, "keep": True, "id": "auto_increment"}
    own = {"error": pw.TextField(null=True), "table_name": "orders"}
    model = make(features, roles=("tube", "attempts", "error"), attributes=own)
    clock, week = model.xq.clock, 604_800
    start = clock.now = 1_700_000_000 // 3600 * 3600
    model.xq.put_many([model(name=name, tube="mail") for name in "abc"])
    clock.tick(10)
    model.xq.ack(model.xq.take(timeout=0))
    clock.now = start + week
    model.xq.put(model(name="d", tube="mail"))
    model.xq.put(model(name="e", tube=None))
    model.xq.release(model.xq.take(timeout=0))
    failed = model.xq.take(timeout=0)
    clock.tick(4)
    model.xq.bury(failed)
    model.update(error="no such host").where(model.id == failed.id).execute()
    model.xq.ack(model.xq.take(timeout=0))
    with model.xq.acting("ann", reason="a typo"):
        model.xq.kill(5)
    model.xq.install(views=True)

    questions = PAGE.read_text().split("\n## ")[1:]
    assert len(questions) == 10
    answers = [
        [
            tuple(map(float_of, row))
            for row in rows(make, question.partition("```sql\n")[2].partition("```")[0].replace("%", "%%"))
        ]
        for question in questions
    ]
    hourly, waits, errors, attempts, slow, ready, tubes, weeks, life, who = answers
    now, before = start + week, start
    assert [(seconds(hour), *rest) for hour, *rest in hourly] == [
        (before, "mail", 3, 1, 1, 0, 0, 0),
        (now, "", 1, 0, 0, 0, 1, 0),
        (now, "mail", 1, 3, 1, 1, 0, 0),
    ]
    assert waits == [("mail", 4, 10, week + 4)]
    assert [row[:2] for row in errors] == [("no such host", 1)]
    assert attempts == [(1, 2), (2, 1)]
    assert sorted(row[:3] for row in slow) == [("1", "mail", 0), ("3", "mail", 0)]
    assert [row[:2] for row in ready] == [("4", "mail")]
    assert tubes == [("mail", 4, 2, 1, 25)]
    assert [row[1:] for row in weeks] == [("", 1, 0, None, None), ("mail", 1, 1, 3, 1)]
    assert [row[1:5] for row in life][-1] == ("Taken", "Buried", "bury", 4)
    assert [row[:4] for row in who] == [("ann", "a typo", "kill", 1)]


def float_of(value):
    return float(value) if isinstance(value, (int, Decimal)) else value


def seconds(value):
    return moment(value).timestamp()


def views_of(make):
    return [view.name for view in make.db.get_views()]


def test_views_need_a_history(make):
    with pytest.raises(xq.FeatureOff, match="turn on 'history'"):
        make({}).xq.install(views=True)
