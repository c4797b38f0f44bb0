"""A queue as other programs read it, in parts of which each has other rows, and as they fill it, by jobs put once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import install_anew
from tests.support.pipeline import elsewhere, extract, put, rows


def test_ranges_have_each_row_once(make_shared):
    Task = make_shared({"history": True})
    history = extract(Task, "history")
    assert len(history.ranges(4)) == 1
    Task.xq.put_many(tasks(10))
    found = history.ranges(4)
    assert len(found) == 4
    Task.xq.put_many(tasks(10))  # which are in none of them
    read = [row for part in found for row in history.read(["id"], part)]
    assert sorted(read) == rows(history, "id")[:10]
    assert len(read) == 10
    present = extract(Task)
    found = present.ranges(4)
    assert len(found) == 4
    assert sorted(row for part in found for row in present.read(["id"], part)) == rows(present, "id")


def test_checkpoints_cut_the_history_where_they_are_told_to(make_shared):
    Task = make_shared({"history": True})
    history = extract(Task, "history")
    assert history.checkpoint() == ()
    Task.xq.put_many(tasks(5))
    Task.xq.put_many(tasks(5))
    checkpoint: tuple[int, ...] = ()
    read: list[tuple[Any, ...]] = []
    while (until := history.checkpoint(checkpoint, 3)) != checkpoint:
        part = rows(history, "id", after=checkpoint, until=until)
        assert 0 < len(part) <= 3
        read += part
        checkpoint = until
    assert sorted(read) == rows(history, "id")
    assert checkpoint == history.checkpoint()
    assert rows(history, "id", after=checkpoint) == []


def test_buried_tasks_are_told_by_the_keys_of_the_history_with_their_error(make_shared):
    features, error = {"buried": True, "history": True}, "Lost: it's gone\nTraceback ü🦆"
    Task = make_shared(features, roles=("error",), attributes={"error": pw.TextField(null=True)})
    Task.xq.put_many([task(name=f"n{i}") for i in range(3)])
    first, second, _ = Task.xq.take_many(3)
    Task.xq.bury_many([first], error=error)
    Task.xq.bury_many([second])
    keys = [row.key for row in Task.xq.history() if row.event == "bury"]
    assert set(extract(Task, "tasks", "B").read(["xq_key", "error"])) == {(keys[0], error), (keys[1], None)}


def test_a_job_that_was_begun_before_another_definition_was_installed_puts_nothing(make_shared):
    Task = make_shared({"keep": True})
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name"]))
    assert job.put(0, [("a",)]) == 1
    install_anew(Task, {"keep": True, "delayed": True})
    with pytest.raises(xq.NotInstalled, match="feature 'delayed'"):
        job.put(1, [("b",)])
    assert Task.xq.count() == 1


def test_a_job_with_a_name_is_put_once_however_often_it_is_run(make_shared, caplog):
    Task = make_shared()
    assert [put(Task, ["name"], ("a",), ("b",), job="tonight") for _ in range(3)] == [2, 0, 0]
    said = r"the job tonight was completed at 20\d\d-.* UTC, with 2 rows in 1 partitions: 0 put"
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [bool(re.fullmatch(said, message)) for message in warned] == [True, True]
    assert put(Task, ["name"], ("a",), job="tomorrow") == 1
    assert Task.select().count() == 3
    with pytest.raises(xq.Error, match=r"tonight was completed at .* with 2 rows in 1 partitions: give other rows"):
        Task.xq.pipeline.bulk().begin(["name"], "tonight", 1, on_done="raise")


def test_a_job_of_a_name_is_looked_up(make_shared):
    Task = make_shared()
    assert Task.xq.pipeline.job("tonight") is None, "there is no table of jobs yet"
    begun = Task.xq.pipeline.bulk().begin(["name"], "tonight", 2)
    assert Task.xq.pipeline.job("tonight") is None
    begun.put(1, [("a",), ("b",)])
    assert Task.xq.pipeline.job("tonight") == ("tonight", 2, 1, 2, False, None, ())
    begun.put(0, [("c",)])
    begun.commit()
    now = datetime.fromtimestamp(Task.xq.clock.now, UTC)
    assert Task.xq.pipeline.job("tonight") == ("tonight", 2, 2, 3, True, now, ())


def numbers(Task: Any) -> list[str]:
    return sorted(task.name for task in Task.select())


def test_a_run_with_another_number_of_partitions_is_refused_before_it_puts_a_row(make_shared):
    Task = make_shared()
    bulk, values = elsewhere(Task.xq.pipeline.bulk()), [(f"{n:03}",) for n in range(100)]
    first = bulk.begin(["name"], "tonight", 8)
    other = bulk.begin(["name"], "tonight", 12)  # at the same time
    for part in range(5):
        first.put(part, values[part::8])
    before = numbers(Task)
    for part in (0, 5, 11):
        with pytest.raises(xq.Error, match="begun with 8 partitions, and this run has 12"):
            other.put(part, values[part::12])
    with pytest.raises(xq.Error, match="begun with 8 partitions, and this run has 12"):
        bulk.begin(["name"], "tonight", 12)
    with pytest.raises(xq.Error, match="8 partitions, and this run has one numbered 8"):
        bulk.begin(["name"], "tonight").put(8, values[8::12])
    with pytest.raises(xq.Error, match=r"in 5 of 8 partitions: of 12 partitions it lacks \[5, 6"):
        other.commit()
    assert numbers(Task) == before
    assert put(Task, ["name"], *values, job="tonight", parts=8) == len(values[5::8] + values[6::8] + values[7::8])
    assert numbers(Task) == [name for (name,) in values]


def test_a_job_is_complete_with_all_its_partitions_alone_and_none_that_was_refused(make_shared):
    Task = make_shared()
    bulk = elsewhere(Task.xq.pipeline.bulk())
    job = bulk.begin(["name"], "tonight")
    job.put(0, [("a",)])
    for parts, words in ((3, r"of 3 partitions it lacks \[1, 2\]"), (2, r"it lacks \[1\]")):
        with pytest.raises(xq.Error, match=words):
            job.commit(parts)
    job.put(1, [("b",)])
    with pytest.raises(xq.Error, match="its number of partitions is 2, not 1"):
        job.commit(1)
    with pytest.raises(xq.Error, match="other rows in its partition 0"):
        bulk.begin(["name"], "tonight").put(0, [("z",)])
    with pytest.raises(xq.Error, match=r"other rows for its partitions \[0\]: put those of the first"):
        bulk.begin(["name"], "tonight", 2).commit()
    assert put(Task, ["name"], ("a",), ("b",), job="tonight", parts=2) == 0
    assert Task.xq.pipeline.job("tonight").complete


def test_a_job_that_does_not_say_how_many_partitions_it_has_is_complete_with_those_up_to_its_last(make_shared):
    bulk = elsewhere(make_shared().xq.pipeline.bulk())
    job = bulk.begin(["name"], "tonight")
    job.put(1, [("b",)])
    with pytest.raises(xq.Error, match=r"of 2 partitions it lacks \[0\]"):
        job.commit()
    job.put(0, [("a",)])
    job.commit()
    with pytest.raises(xq.Error, match="was completed"):
        bulk.begin(["name"], "tonight", on_done="raise")


def test_a_job_that_the_version_before_has_begun_goes_on(make_shared):
    Task = make_shared()
    put(Task, ["name"], ("a",), ("b",), job="tonight", parts=2)
    execute = Task._meta.database.execute_sql
    execute("DELETE FROM task_xq_put WHERE part = -2")
    execute("UPDATE task_xq_put SET n = 0, digest = 0 WHERE part = -1")
    assert Task.xq.pipeline.job("tonight") == ("tonight", None, 2, 2, True, None, ())
    assert put(Task, ["name"], ("a",), ("b",), job="tonight", parts=2) == 0
    execute("DELETE FROM task_xq_put WHERE part IN (-1, 1)")
    assert put(Task, ["name"], ("a",), ("c",), job="tonight", parts=2) == 1
    assert Task.xq.pipeline.job("tonight")[1:5] == (2, 2, 2, True)


@pytest.mark.parametrize("rows", [["ab", "cde"], [b"ab"], "ab", [("a",), ("b", "c")], [("a",), ()], [7], 7, {"ab": 1}])
def test_what_is_no_row_is_refused_and_nothing_is_put(make_shared, rows):
    Task = make_shared()
    with pytest.raises((xq.BadType, xq.BadValue), match=r"^a (row|partition) "):
        Task.xq.pipeline.bulk().begin(["name"]).put(0, rows)
    assert numbers(Task) == []
