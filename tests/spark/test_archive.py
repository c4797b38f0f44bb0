"""Done tasks and old history go to Parquet and come back, and are read as one with what is in the database."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import peewee as pw
import pytest
from pyspark.errors import PySparkException

import xq
from tests.spark.archives import FEATURES, done, ids, told
from tests.steps import is_exact, row, state
from xq.adapters.spark.archives import Archived, archive, history, restore
from xq.adapters.spark.archives import tasks as all_tasks
from xq.adapters.spark.files import Folder
from xq.pipeline.archives import Archives

DAY = 86_400_000_000  # microseconds


def test_an_archive_and_the_table_are_one(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task, 3)
    before, past = told(all_tasks(spark, Task, out)), Task.xq.history()
    assert archive(spark, Task, out) == Archived(3, len(past) - 1, 0)
    assert [state(Task, key) for key in keys] == ["X", "X", "X"]
    assert told(all_tasks(spark, Task, out)) == before
    again = sorted(history(spark, Task, out).collect(), key=lambda found: found.id)
    assert [(r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in again[: len(past)]] == [
        (r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in past
    ]
    assert archive(spark, Task, out) == Archived(0, 3, 0)
    assert archive(spark, Task, out) == Archived(0, 0, 0)
    assert restore(spark, Task, out) == 3
    assert restore(spark, Task, out) == 0
    assert told(all_tasks(spark, Task, out)) == before
    assert [state(Task, key) for key in keys] == ["D", "D", "D"]
    assert is_exact(Task)


ROWS = [
    {
        "id": UUID(int=1),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 23, 59, 59, 123000),
        "amount": Decimal("123456789.125"),
        "flag": True,
        "bytes": b"\x00\xff'",
        "order": 'it\'s 100 % "so" \\ \u20ac \U0001f600\n',
        "number": 2**63 - 1,
        "ratio": 0.1,
    },
    {"id": UUID(int=2**128 - 1), "flag": False, "number": -(2**63), "order": ""},
]


def test_a_row_of_any_kind_comes_back_as_it_was(spark, make_live, tmp_path):
    class Everything(pw.Model):
        """A field of each kind, and names that need quotes."""

        id = pw.UUIDField(primary_key=True)
        day = pw.DateField(null=True)  # as the archive would call its own
        at = pw.DateTimeField(null=True)
        amount = pw.DecimalField(12, 3, null=True)
        flag = pw.BooleanField(null=True)
        bytes = pw.BlobField(null=True)
        order = pw.TextField(null=True, column_name="order by")
        number = pw.BigIntegerField(null=True)
        ratio = pw.DoubleField(null=True)
        status = pw.CharField(default="R")

        class Meta:
            database = make_live.db

    fields = {"status": "status"}
    Task, out = make_live({"keep": True, "history": True}, fields=fields, model=Everything), str(tmp_path)
    Task.xq.put_many(ROWS)
    Task.xq.ack_many(Task.xq.take_many(2))
    quote = "`" if isinstance(make_live.db, pw.MySQLDatabase) else '"'
    columns = ", ".join(f"{quote}{field.column_name}{quote}" for field in Task._meta.sorted_fields)
    stored = f"SELECT {columns} FROM everything"
    before = sorted(Task._meta.database.execute_sql(stored).fetchall(), key=repr)
    assert archive(spark, Task, out).tasks == 2
    assert Task.select().count() == 0
    found = all_tasks(spark, Task, out)
    today = {found.xq_day for found in found.select("xq_day").collect()}
    assert [type(one) for one in today] == [date]
    assert restore(spark, Task, out) == 2
    assert sorted(Task._meta.database.execute_sql(stored).fetchall(), key=repr) == before


def test_fields_of_any_name_come_back(spark, make_live, tmp_path):
    fields = {"a`b": pw.TextField(null=True), "a.b": pw.IntegerField(null=True)}
    Task, out = make_live(FEATURES, attributes=fields), str(tmp_path)
    Task.xq.put_many([{"a`b": "one", "a.b": 1}, {"a`b": "two", "a.b": 2}, {}])
    Task.xq.ack_many(Task.xq.take_many(2))
    before = list(Task.select().order_by(Task.id).tuples())
    assert archive(spark, Task, out).tasks == restore(spark, Task, out) == 2
    assert list(Task.select().order_by(Task.id).tuples()) == before


def moved_back(Task, days):
    """Have all that has happened so far have been so many days before."""
    History = Task.xq.History
    History.update(at_us=History.at_us - days * DAY).execute()


def days(out, what):
    return sorted(path.name for path in Path(out).glob(f"{what}/*/day=*"))


def test_a_day_is_that_of_the_last_transition_into_d(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    (unknown,) = done(Task)
    Task.xq.History.delete().execute()
    again, old = done(Task, 2)
    moved_back(Task, 10)
    Task.xq.restart(again)
    Task.xq.ack(Task.xq.take())
    moved_back(Task, 10)
    new = done(Task)[0]
    last = {key: max(row.at_us for row in Task.xq.history(key)) for key in (again, old)}
    last_days = {key: str(date.fromtimestamp(0) + timedelta(days=at_us // DAY)) for key, at_us in last.items()}
    a_week_ago = datetime.now(UTC) - timedelta(days=5)
    assert archive(spark, Task, out, before=a_week_ago).tasks == 3
    assert state(Task, new) == "D"
    nobody_knows = "day=__HIVE_DEFAULT_PARTITION__"
    assert days(out, "tasks") == sorted([nobody_knows, *(f"day={day}" for day in last_days.values())])
    told = {found.id: found.day and str(found.day) for found in all_tasks(spark, Task, out).collect()}
    assert {key: told[key] for key in (unknown, again, old, new)} == {unknown: None, **last_days, new: None}
    assert days(out, "history") == [f"day={day}" for day in sorted(last_days.values())]


def test_the_day_of_who_is_done_while_an_archive_runs_is_known(spark, make_live, tmp_path, monkeypatch):
    Task, out = make_live(FEATURES), str(tmp_path)
    done(Task, 2)
    late, stage = Task.xq.put({}).id, Archives.stage

    def acked(self, *of):
        left = stage(self, *of)
        monkeypatch.undo()
        Task.xq.ack(Task.xq.take())
        Task.xq.put({}, delay=1_000_000)
        return left

    monkeypatch.setattr(Archives, "stage", acked)
    assert archive(spark, Task, out).tasks == 2
    assert archive(spark, Task, out, before=datetime(2001, 1, 1)).tasks == 0
    assert archive(spark, Task, out).tasks == 1
    (day,) = all_tasks(spark, Task, out).where(f"id = {late}").select("day").collect()[0]
    assert type(day) is date


def test_what_was_read_before_an_archive_came_by_is_not_told_by_halves(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    done(Task, 2)
    all_of_it, past = all_tasks(spark, Task, out), history(spark, Task, out)
    archive(spark, Task, out)
    for frame in (all_of_it, past):
        with pytest.raises(PySparkException, match="create the DataFrame again"):
            frame.collect()


def test_keys_that_are_there_again_are_refused_in_words(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    one, two = done(Task, 2)
    archive(spark, Task, out)
    (later,) = done(Task, 1)
    archive(spark, Task, out)
    Task.xq.put({"id": one, "name": "another"}, delay=1_000_000)
    with pytest.raises(xq.Error, match=f"keys of the archive, {one}: kill them first"):
        restore(spark, Task, out)
    assert (row(Task, one).name, state(Task, two), state(Task, later)) == ("another", "X", "D")
    Task.xq.kill(one)
    assert restore(spark, Task, out) == 2
    assert is_exact(Task)


def test_two_queues_do_not_share_a_folder(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    Other = make_live(FEATURES, attributes={"table_name": "other"})
    keys = done(Task, 2)
    others, past = done(Other, 3), len(Other.xq.history())
    archive(spark, Task, out)
    for call in (archive, restore, all_tasks, history):
        with pytest.raises(
            xq.ConfigurationError, match="has the archive of task .* give each queue a folder of its own"
        ):
            call(spark, Other, out)
    assert {state(Other, key) for key in others} == {"D"}
    assert len(Other.xq.history()) == past
    assert restore(spark, Task, out) == 2
    assert {state(Task, key) for key in keys} == {"D"}


def test_what_the_model_has_no_field_for_any_more_is_not_lost(spark, make_live, tmp_path):
    more, out = {"more": pw.IntegerField(null=True)}, str(tmp_path)
    Task = make_live(FEATURES, attributes=more)
    (key,) = done(Task, 1)
    Task.update(more=7).where(Task.id == key).execute()
    archive(spark, Task, out)
    make_live.db.execute_sql("ALTER TABLE task DROP COLUMN more")
    Later = make_live(FEATURES)
    with pytest.raises(xq.ConfigurationError, match=r"has no fields for any more \(more\)"):
        restore(spark, Later, out)
    make_live.db.execute_sql("ALTER TABLE task ADD COLUMN more INTEGER")
    assert restore(spark, make_live(FEATURES, attributes={"more": pw.IntegerField(null=True)}), out) == 1
    assert make_live.db.execute_sql(f"SELECT more FROM task WHERE id = {key}").fetchall() in ([(7,)], ((7,),))


@pytest.mark.parametrize("call", [restore, all_tasks, history])
def test_where_there_is_no_archive_is_said(spark, make_live, tmp_path, call):
    Task = make_live(FEATURES)
    with pytest.raises(xq.ConfigurationError, match="there is no archive at .*/mistyped"):
        call(spark, Task, str(tmp_path / "mistyped"))
    assert not (tmp_path / "mistyped").exists()


def test_a_run_that_lost_its_files_is_not_taken_for_one_that_has_them(spark, make_live, tmp_path, monkeypatch):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys, write = done(Task, 2), Folder.write

    def late(self, name, text):
        if name.endswith("_manifest.json"):  # as where the connection is lost that keeps others away, and another comes
            monkeypatch.undo()
            Task.xq.pipeline.archives.database.execute(
                "UPDATE xq_setting SET value = 1 WHERE substr(name, 1, 6) = 'alone '"
            )
            self.delete("_xq")
        write(self, name, text)

    monkeypatch.setattr(Folder, "write", late)
    with pytest.raises(xq.ArchiveBusy):
        archive(spark, Task, out)
    assert ids(all_tasks(spark, Task, out).where("state = 'Done'")) == keys
    archive(spark, Task, out)
    assert ids(all_tasks(spark, Task, out).where("state = 'Done'")) == keys
    assert not Task.xq.pipeline.archives.runs()


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # where a number may be a text
def test_what_cannot_be_read_comes_back_into_the_table_with_all_else(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task, 2)
    make_live.db.execute_sql(f"UPDATE task SET size = 'many' WHERE id = {keys[0]}")
    with pytest.raises(xq.Error, match="in the table again.* size of Task holds 'many'"):
        archive(spark, Task, out)
    assert {state(Task, key) for key in keys} == {"D"}
    assert is_exact(Task)
    make_live.db.execute_sql("UPDATE task SET size = 7 WHERE size = 'many'")
    assert archive(spark, Task, out).tasks == 2
    assert restore(spark, Task, out) == 2
    assert row(Task, keys[0]).size == 7


def test_a_history_whose_ids_began_anew_goes_on_in_time(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    make_live(FEATURES, attributes={"table_name": "other"})  # whose records stay when the one is uninstalled
    done(Task, 2)
    key = Task.xq.put({}).id
    Task.xq.put({}, delay=1_000_000)
    archive(spark, Task, out)
    Task.xq.uninstall()
    Task.xq.install()
    with pytest.raises(xq.ConfigurationError, match="reinstalled, delete _queue.json there"):
        history(spark, Task, out)
    (tmp_path / "_queue.json").unlink()
    assert Task.xq.ack(Task.xq.take()).id == key
    found = history(spark, Task, out).where(f"key = '{key}'").orderBy("at_us").collect()
    assert [row.target for row in found] == ["R", "T", "D"]
    assert [row.dur_us for row in found] == [None, *(b.at_us - a.at_us for a, b in pairwise(found))]
    assert "xq_run" not in found[0].asDict()


def test_any_way_through_archives_is_that_of_a_dictionary(spark, make_live, tmp_path):
    Task, out, chance = make_live(FEATURES), str(tmp_path), random.Random(7)
    known: dict[int, str] = {}
    archived: set[int] = set()
    for turn in range(5):
        for _ in range(20):
            in_table = {key for key in known if key not in archived}
            ready, over = ([key for key in in_table if known[key] == letter] for letter in "RD")
            what = chance.choice(["put", "put", "ack", "ack", "restart", "kill"])
            if what == "put":
                known[Task.xq.put({}).id] = "R"
            elif what == "ack" and ready:
                known[Task.xq.ack(Task.xq.take()).id] = "D"
            elif what == "restart" and over:
                known[Task.xq.restart(chance.choice(sorted(over))).id] = "R"
            elif what == "kill" and (free := sorted(set(ready) - {max(in_table)})):  # SQLite would give that one again
                known.pop(Task.xq.kill(chance.choice(free)).id)
        known[Task.xq.put({}).id] = "R"
        if turn == 3:
            assert restore(spark, Task, out) == len(archived)
            archived.clear()
        else:
            now = {key for key, letter in known.items() if letter == "D"} - archived
            assert archive(spark, Task, out).tasks == len(now)
            archived |= now
        names = {"R": "Ready", "D": "Done"}
        found = all_tasks(spark, Task, out).select("id", "state").collect()
        assert sorted(map(tuple, found)) == sorted((key, names[letter]) for key, letter in known.items())
    assert is_exact(Task)


@pytest.mark.parametrize("call", [archive, restore, all_tasks, history])
def test_what_an_archive_needs_is_named(spark, make_live, tmp_path, call):
    Task = make_live({"keep": True})
    with pytest.raises(xq.FeatureOff, match="turn on the feature 'history'"):
        call(spark, Task, str(tmp_path))
