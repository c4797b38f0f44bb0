"""What a queue holds, read without its model: types, conditions, ranges and checkpoints, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import peewee as pw
import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.steps import eventually
from tests.support.extract import NOW, ODD, READ, VALUES, rows, unpickled
from xq.core.errors import BadValue
from xq.pipeline.scan import Condition, Part


def test_a_value_of_each_type_is_read_as_what_the_application_wrote(make_shared):
    make_shared.db.mariadb = True  # for its JSON
    Task = make_shared(attributes=dict(ODD))
    Task.xq.put_many([{}, VALUES | {"doc": {"a": [1, None]}}])
    extract = unpickled(Task)
    assert {c.name: c.type for c in extract.columns if c.name in ODD} == READ
    empty, full = extract.read([*VALUES])
    if empty[0] is not None:
        empty, full = full, empty
    assert set(empty) == {None}
    at = Task.get(Task.big.is_null(False)).at  # MariaDB keeps whole seconds, unless it is told to keep more
    assert at.replace(microsecond=0) == NOW.replace(microsecond=0)
    expected = VALUES | {"at": at.replace(tzinfo=UTC), "who": str(VALUES["who"])}
    assert dict(zip(VALUES, full, strict=True)) == expected
    assert [type(value) for value in full] == [type(value) for value in expected.values()]
    ((doc,),) = extract.read(["doc"], Part((Condition("big", "not null"),)))
    assert doc.replace(" ", "") == '{"a":[1,null]}'


def test_a_number_of_32_bits_is_read_to_its_last_digit(make_shared):
    Task = make_shared(attributes={"real": pw.FloatField(null=True)})
    numbers = [None, 0.1, -1.5, 0.0, 16777216.0, 1e38, 1.2345678e-30]
    Task.xq.put_many([task(real=number) for number in numbers])
    read = list(unpickled(Task).read(["id", "real"]))
    assert [number for _, number in sorted(read)] == numbers


def test_the_state_is_spelled_and_rows_of_others_are_left_out(make_shared):
    Task = make_shared({"delayed": True, "buried": True}, attributes={"status": pw.CharField(default="R")})
    Task.xq.put_many(tasks(3))
    Task.put(task(), delay=60)
    Task.take()
    Task.xq.adapter.store.execute("INSERT INTO task (status, size, attempts) VALUES ('r', 0, 0)")
    found = rows(unpickled(Task), "status", "state")
    assert found == [("R", "Ready"), ("R", "Ready"), ("T", "Taken"), ("W", "Waiting")]


def test_the_history_has_its_columns_and_the_time_of_each(make_shared):
    Task = make_shared({"history": True})
    Task.put(task())
    Task.ack(Task.take())
    extract = unpickled(Task, "history")
    assert [column.name for column in extract.columns if column.asked] == ["dur_us"]
    assert rows(unpickled(Task, "stats")) == [("", "R", "T", 1), ("", "T", "X", 1), ("", "X", "R", 1)]
    names = [column.name for column in extract.chosen()]
    assert names[:9] == ["id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt"]
    assert names[-1] == "at"
    assert names[9:-1] in (["actor", "reason"], ["actor", "reason", "xid"])
    found = rows(extract, "id", "source", "target", "event", "at_us", "at")
    assert [row[1:4] for row in found] == [("X", "R", "put"), ("R", "T", "take"), ("T", "X", "ack")]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [row[5] for row in found] == [epoch + timedelta(microseconds=row[4]) for row in found]
    told = {row.id: row.dur_us for row in Task.xq.history()}
    assert dict(rows(extract, "id", "dur_us")) == told
    assert dict(rows(extract, "id", "dur_us", after=extract.checkpoint(limit=1))) == {
        row[0]: told[row[0]] for row in found[1:]
    }
    last = found[-1][0]
    assert dict(rows(extract, "id", "dur_us", conditions=[Condition("id", ">=", last)])) == {last: told[last]}


@pytest.mark.parametrize(
    "keys", [{}, {"id": pw.UUIDField(primary_key=True)}, {"a": pw.IntegerField(), "b": pw.CharField()}]
)
def test_live_tasks_are_told_by_the_keys_of_the_history(make_shared, keys):
    composite = {"meta": {"primary_key": pw.CompositeKey("a", "b")}} if "a" in keys else {}
    features = {"delayed": True, "buried": True, "history": True}
    Task = make_shared(features, roles=("runat", "tube"), attributes={**keys, **composite})
    for i, options in enumerate([{}, {}, {}, {"delay": 60}]):
        Task.put(task(tube=f"t{i}", **({"a": i, "b": f'it\'s "{i}"'} if composite else {})), **options)
    Task.take()
    Task.take().bury()
    put = {row.tube: row.key for row in Task.xq.history() if row.event == "put"}
    taken, waiting = [row.tube for row in Task.select().where(Task.status == "T")], "t3"
    (ready,) = [row.tube for row in Task.select().where(Task.status == "R")]
    expected = [(put[taken[0]], taken[0], "T"), (put[ready], ready, "R"), (put[waiting], waiting, "W")]
    assert rows(unpickled(Task, "live")) == sorted(expected)


def test_conditions_find_what_they_say_to_the_last_byte(make_shared):
    Task = make_shared(attributes={"at": pw.DateTimeField(null=True)})
    names = ["a", "A", "a ", "ä", "aa", "it's", "100%", "\\", "🦆", "", None]
    Task.xq.put_many([task(name=name, size=i) for i, name in enumerate(names)])
    extract = unpickled(Task)
    texts = [name for name in names if name is not None]
    tests = {
        "=": lambda name, value: name == value,
        "<": lambda name, value: name.encode() < value.encode(),
        "<=": lambda name, value: name.encode() <= value.encode(),
        ">": lambda name, value: name.encode() > value.encode(),
        ">=": lambda name, value: name.encode() >= value.encode(),
        "starts": lambda name, value: name.startswith(value),
    }
    for test, holds in tests.items():
        for value in texts:
            condition = Condition("name", test, value)  # type: ignore[arg-type]
            extract.ensure(condition)
            expected = sorted(repr((name,)) for name in texts if holds(name, value))
            assert sorted(map(repr, extract.read(["name"], Part((condition,))))) == expected, condition
    assert rows(extract, "name", conditions=[Condition("name", "in", ["a", "it's", "b"])]) == [("a",), ("it's",)]
    assert rows(extract, "size", conditions=[Condition("name", "null")]) == [(10,)]
    assert rows(extract, "size", conditions=[Condition("size", ">", 3), Condition("size", "<=", 5)]) == [(4,), (5,)]
    assert rows(extract, "size", conditions=[Condition("state", "=", "Ready"), Condition("size", "in", [2, 99])]) == [
        (2,)
    ]


@pytest.mark.parametrize(
    ("column", "test", "value", "words"),
    [
        ("name", "==", "a", "the tests of where are =, <, .*, starts, not '=='"),
        ("name", "is null", None, "the tests of where are .*, not 'is null'"),
        ("name", "=", 1, "name is compared with text.*, not with 1"),
        ("name", "=", "a\0b", "name is compared with text.*, not with"),
        ("name", "in", "ab", "in wants a list of 1 to 1000 values"),
        ("size", "=", None, "size is compared with a whole number of 64 bits, not with None"),
        ("size", "=", 2**63, "size is compared with a whole number of 64 bits"),
        ("size", "=", True, "size is compared with a whole number of 64 bits"),
        ("size", "in", [], "in wants a list of 1 to 1000 values"),
        ("runat", "=", float("nan"), "runat is compared with a number"),
        ("size", "starts", "1", "size is no text"),
        ("doc", "=", "{}", "the database does not compare doc .* filter the DataFrame instead"),
        ("day", "=", NOW, "day is compared with a date, not with|does not compare day"),
        ("at", ">", 1e9, "at is compared with a datetime.* or a date, not with|does not compare at"),
    ],
)
def test_what_a_database_would_compare_otherwise_than_spark_is_refused_in_words(
    make_shared, column, test, value, words
):
    make_shared.db.mariadb = True  # for its JSON
    extract = unpickled(make_shared(attributes=dict(ODD)))
    with pytest.raises(BadValue, match=words):
        extract.only([Condition(column, test, value)])


@pytest.mark.parametrize("what", ["tasks", "history"])
def test_a_time_of_no_zone_is_of_utc_and_a_date_is_its_beginning(make_shared, what):
    Task = make_shared({"history": True}, attributes={"at": pw.DateTimeField(null=True)})
    times = [datetime(2026, 3, 7, 23, 59, 59), datetime(2026, 3, 8), datetime(2026, 3, 8, 2, 30)]
    for n, at in enumerate(times, 1):
        Task.put(task(at=at))
        at_us = (at.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        Task.xq.History.update(at_us=at_us).where(Task.xq.History.id == n).execute()
    extract = unpickled(Task, what)
    if what == "tasks" and isinstance(make_shared.db, pw.SqliteDatabase):  # which has them as text
        with pytest.raises(BadValue, match="does not compare at .* filter the DataFrame instead"):
            extract.only([Condition("at", ">=", times[1])])
        return
    elsewhere = timezone(timedelta(hours=5))
    for since in (times[1], times[1].date(), times[1].replace(tzinfo=UTC).astimezone(elsewhere)):
        found = extract.only([Condition("at", ">=", since)])
        assert [at for (at,) in rows(found, "at")] == [at.replace(tzinfo=UTC) for at in times[1:]]
    for beyond in (datetime.min.replace(tzinfo=elsewhere), 5):
        with pytest.raises(BadValue, match="at is compared with a datetime"):
            extract.only([Condition("at", ">=", beyond)])


def test_a_checkpoint_of_a_history_that_began_anew_and_is_longer_by_now_is_refused(make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    extract = unpickled(Task, "history")
    assert eventually(lambda: extract.checkpoint() != ())
    checkpoint = extract.checkpoint()
    assert extract.checkpoint(checkpoint) >= checkpoint
    with pytest.raises(xq.ConfigurationError, match="begun anew"):  # further than the history has come
        extract.checkpoint(tuple(part + 2**40 for part in checkpoint))
    Task.xq.uninstall()
    Task.xq.install()
    Task.xq.put_many(tasks(9))
    if not extract.witness:  # PostgreSQL: the new rows come after the checkpoint, and none is left out
        assert len(rows(extract, "id", after=checkpoint, until=extract.checkpoint(checkpoint))) == 9
        return
    for limit in (None, 1):
        with pytest.raises(xq.ConfigurationError, match="begun anew"):
            extract.checkpoint(checkpoint, limit)
    Task.xq.History.delete().where(Task.xq.History.id == checkpoint[0]).execute()  # a number that nothing has
    with pytest.raises(xq.ConfigurationError, match="begun anew"):
        extract.checkpoint(checkpoint)


def test_a_checkpoint_whose_row_was_written_at_another_moment_is_refused_whichever_is_later(make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    extract = unpickled(Task, "history")
    if not extract.witness:
        return  # PostgreSQL needs none
    assert eventually(lambda: extract.checkpoint() != ())
    id_, at_us = extract.checkpoint()
    Task.put(task())
    assert eventually(lambda: extract.checkpoint() > (id_, at_us + 1))
    for another in (at_us - 1, at_us + 1):  # as where the clock was set back before the history began anew
        with pytest.raises(xq.ConfigurationError, match="begun anew"):
            extract.checkpoint((id_, another))


def test_a_checkpoint_whose_row_was_pruned_is_gone_on_from(make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    extract = unpickled(Task, "history")
    assert eventually(lambda: len(rows(extract, "id", until=extract.checkpoint())) == 3)
    checkpoint = extract.checkpoint()
    Task.put(task())
    History = Task.xq.History
    History.delete().where(History.id < History.select(pw.fn.MAX(History.id))).execute()
    assert eventually(lambda: len(rows(extract, "id", after=checkpoint, until=extract.checkpoint(checkpoint))) == 1)


def test_what_there_is_not_is_refused_in_words(make_shared):
    Task = make_shared()
    with pytest.raises(xq.FeatureOff):
        Task.xq.pipeline.extract("history")
    with pytest.raises(BadValue, match="only the history"):
        unpickled(Task).checkpoint()
    with pytest.raises(BadValue, match="tasks, history, stats, live, buried, not 'rows'"):
        Task.xq.pipeline.extract("rows")
    with pytest.raises(BadValue, match="no column 'none' in the tasks of Task: there are id, name"):
        list(Task.xq.pipeline.extract().read(["none"]))


def test_a_queue_in_memory_is_read_by_nobody_else():
    Task = live(pw.SqliteDatabase(":memory:"))()
    with pytest.raises(xq.ConfigurationError, match="in memory"):
        Task.xq.pipeline.extract()
    Task._meta.database.close()


def test_a_file_that_is_not_on_this_machine_is_not_made(tmp_path):
    Task = Maker(pw.SqliteDatabase(str(tmp_path / "app.db")))()
    extract = unpickled(Task)
    elsewhere = tmp_path / "elsewhere.db"
    address = replace(extract.address, parameters={**extract.address.parameters, "database": str(elsewhere)})
    with pytest.raises(xq.ConfigurationError, match="a file is read where it is"):
        rows(replace(extract, address=address))
    assert not elsewhere.exists()
    Task._meta.database.close()


def test_arrow_has_what_tuples_have(make_shared):
    Task = make_shared({"history": True})
    Task.xq.put_many(tasks(5))
    extract = unpickled(Task, "history")
    which = (Condition("event", "=", "put"), Condition("id", "<=", 4))
    found = extract.batches(["id", "tube", "event", "attempt"], Part(which))
    if found is not None:
        read = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
        assert sorted(read) == rows(extract, "id", "tube", "event", "attempt", conditions=which)
        assert len(read) == 4
        (empty,) = [batch.num_rows for batch in extract.batches(["id"], Part((Condition("id", "<", 0),))) or ()] or [0]
        assert empty == 0
