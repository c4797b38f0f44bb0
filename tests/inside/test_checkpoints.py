"""Batches of streams are written once each, with what is made of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import another_process, in_threads
from xq.pipeline.checkpoints import Counted

ONE = Counted("Task", "", "minute", 60, "R", "T", "take", 1)


def counted(db: pw.Database, table: str = "told") -> dict[tuple[Any, ...], int]:
    rows = db.execute_sql(f"SELECT queue, tube, unit, bucket, source, target, event, n FROM {table}").fetchall()
    return {tuple(row[:-1]): row[-1] for row in rows}


def test_a_stream_that_began_anew_is_refused(make):
    Task = make()
    Task.xq.pipeline.write_batch("names", "stream", 7, lambda: None)
    with pytest.raises(xq.BadValue, match="another checkpoint"):
        Task.xq.pipeline.write_batch("names", "another", 0, lambda: Task.put(task()))
    assert Task.select().count() == 0


@pytest.mark.parametrize("bad", [(1, "s", 0), ("", "s", 0), ("s", None, 0), ("s", "s", -1), ("s", "s", True)])
def test_what_names_no_batch_is_refused(make, bad):
    Task = make()
    with pytest.raises((xq.BadType, xq.BadValue)):
        Task.xq.pipeline.write_batch(*bad, lambda: Task.put(task()))
    with pytest.raises(xq.BadType):
        Task.xq.pipeline.write_batch("s", "s", 0, None)
    with pytest.raises((xq.BadType, xq.BadValue)):
        Task.xq.pipeline.rollup(bad[0] if bad[0] != "s" else b"s")
    with pytest.raises(xq.BadValue), make.db.atomic():
        Task.xq.pipeline.write_batch("names", "stream", 0, lambda: None)
    assert Task.select().count() == 0


def test_of_several_that_write_one_batch_one_does(make_live):
    Task = make_live()
    Task.xq.pipeline.write_batch("another", "stream", 0, lambda: None)
    for number in range(5):  # the first one has nothing to lock

        def write() -> bool:
            return Task.xq.pipeline.write_batch("names", "stream", number, lambda: Task.put(task())) is True  # noqa: B023

        assert sorted(in_threads(make_live.db, *[write] * 4)) == [False, False, False, True]
    assert Task.select().count() == 5


def test_a_process_that_is_killed_before_the_end_has_written_nothing(make_live):
    Task = make_live()
    Task.xq.pipeline.write_batch("names", "stream", 0, lambda: None)

    def other() -> Generator[Any, Any, None]:
        def die() -> None:
            Task.put(task())
            os.kill(os.getpid(), signal.SIGKILL)

        yield "ready"
        Task.xq.pipeline.write_batch("names", "stream", 1, die)

    with another_process(make_live.db, other) as process:
        assert next(process) == "ready"
        process.post(None)
        process.join()
    assert Task.select().count() == 0
    assert Task.xq.pipeline.write_batch("names", "stream", 1, lambda: Task.put(task()))
    assert Task.select().count() == 1


def test_transitions_are_added_up_also_when_its_rows_were_cleaned_up(make):
    name = 'a "table" of `mine`, 100 %'
    tally = make().xq.pipeline.rollup(name)
    tally.install()
    tally.install()
    tube = ONE._replace(tube="a 'tube' \u00e9\U0001f986")
    other = tube._replace(tube=tube.tube.upper())
    assert tally.add("stream", 0, [ONE, tube])
    assert tally.add("stream", 1, [ONE._replace(n=5), ONE._replace(bucket=120), other])
    for number in (1, 0):
        assert not tally.add("stream", number, [ONE])
    assert tally.add("stream", 2, [])
    mark = "`" if isinstance(make.db, pw.MySQLDatabase) else '"'
    table = f"{mark}{name.replace(mark, 2 * mark)}{mark}"
    if not isinstance(make.db, pw.SqliteDatabase):
        table = table.replace("%", "%%")
    assert counted(make.db, table) == {ONE[:-1]: 6, tube[:-1]: 1, ONE._replace(bucket=120)[:-1]: 1, other[:-1]: 1}
    make.db.execute_sql(f"DELETE FROM {table}")
    tally.install()
    assert tally.add("stream", 3, [ONE._replace(n=3)])
    assert counted(make.db, table) == {ONE[:-1]: 3}


def test_a_view_of_a_tally_tells_the_throughput(make):
    Task = make()
    Task.xq.pipeline.rollup("told").install()
    moves = {
        "put": ["XR put 3", "XW put 4", "XT write 1"],
        "taken": ["RT take 5"],
        "done": ["TD ack 1", "TX ack 2", "TZ ack 4", "BD switch 8"],
        "buried": ["TB bury 2", "RB bury 1"],
        "killed": ["RX kill 6", "WX write 1"],
        "expired": ["RX ttl 1", "BX lifetime 7"],
        "": ["TR release 5", "TT touch 5", "ZX zombie 4", "DX kill 1", "XD write 9", "WR delay 5"],
    }
    rows = [
        ONE._replace(source=ends[0], target=ends[1], event=event, n=int(n))
        for told in moves.values()
        for ends, event, n in map(str.split, told)
    ]
    Task.xq.pipeline.rollup("told").add(
        "stream", 0, [*rows, ONE._replace(bucket=120, source="T", target="R", event="release")]
    )
    found = make.db.execute_sql("SELECT * FROM told_throughput").fetchall()
    assert [tuple(row) for row in found] == [("Task", "", "minute", 60, 8, 6, 15, 3, 7, 8)]
    assert {type(value) for value in found[0][3:]} == {int}


def test_a_tally_that_was_dropped_begins_anew_with_a_new_stream_only(make):
    Task = make()
    Task.xq.pipeline.rollup("told").install()
    Task.xq.pipeline.rollup("told").add("stream", 0, [ONE])
    make.db.execute_sql(f"DROP TABLE told{' CASCADE' * isinstance(make.db, pw.PostgresqlDatabase)}")
    Task.xq.pipeline.rollup("told").install()
    with pytest.raises(xq.BadValue, match="new checkpoint"):
        Task.xq.pipeline.rollup("told").add("stream", 1, [ONE])
    assert counted(make.db) == {}
    assert Task.xq.pipeline.rollup("told").add("another", 0, [ONE])
    with pytest.raises(xq.BadValue, match="another checkpoint"):
        Task.xq.pipeline.rollup("told").add("stream", 2, [ONE])
    assert counted(make.db) == {ONE[:-1]: 1}


def test_a_table_that_is_no_tally_is_refused_and_left_alone(make):
    Task = make()
    Task.put(task())

    def there() -> tuple[Any, ...]:
        views = [view.name for view in make.db.get_views()]
        return {*make.db.get_tables()} - {"xq_sink"}, views, [row.__data__ for row in Task.select()]

    before = there()
    with pytest.raises(xq.ConfigurationError, match="task is there, and no table of stream"):
        Task.xq.pipeline.rollup("task").install()
    assert there() == before


def test_a_tally_of_other_queues_is_refused(make):
    Task = make()
    tally = Task.xq.pipeline.rollup("told")
    for batch in range(2):  # before there is a batch, and after it
        tally.install("Page, Order")
        with pytest.raises(xq.BadValue, match="counts other queues"):
            tally.install("Page, Refund")
        assert tally.add("stream", batch, [ONE], "Page, Order")
    with pytest.raises(xq.BadValue, match="another stream"):
        tally.add("stream", 2, [ONE], "Page, Refund")
    assert counted(make.db) == {ONE[:-1]: 2}
