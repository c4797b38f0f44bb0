"""Done tasks go out of the table by way of a staging table, and come back; old history goes out."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from datetime import UTC, date, datetime

import peewee as pw
import pytest

import xq
from tests.factories import tasks
from tests.steps import another_process, eventually, in_threads, is_exact, keep_references, row, state, transitions
from xq.pipeline import archives, spans

FEATURES = {"keep": True, "history": True, "delayed": True, "buried": True}
ALL = 2**62


def done(Task, n=1, **fields):
    """So many tasks, done now, and one more, which is ready: SQLite would give the highest key to another."""
    found = Task.xq.put_many([task | fields for task in tasks(n)])
    Task.xq.ack_many(Task.xq.take_many(n))
    Task.xq.put({"name": "ready"}, delay=1_000_000)
    return [task.id for task in found]


def stage(Task, run="run", before=None):
    Task.xq.pipeline.archives.prepare()
    return Task.xq.pipeline.archives.stage(run, Task.xq.pipeline.archives.moment("before", before))


def test_done_tasks_go_out_and_come_back_as_they_were_in_many_transactions(make, monkeypatch):
    monkeypatch.setattr(archives, "BATCH", 3)
    Task, heard = make(FEATURES, roles=("runat", "priority", "attempts")), []
    Task.xq.on_change(lambda task, *change: heard.append((task.id, *change)))
    archive, keys = Task.xq.pipeline.archives, done(Task, 10, name="it's 100 %", size=7)
    before, generation = [row(Task, key).__data__ for key in keys], archive.generation
    heard.clear()
    assert stage(Task)[:2] == (10, 0)
    assert {state(Task, key) for key in keys} == {"X"}
    assert archive.runs() == {"run": 10}
    archive.next_generation()
    assert archive.generation > generation
    assert archive.put_back("run") == (10, 0, None)
    assert archive.runs() == {}
    assert [row(Task, key).__data__ for key in keys] == before
    assert transitions(Task) == Counter({"X-R": 10, "X-W": 1, "R-T": 10, "T-D": 10, "D-X": 10, "X-D": 10})
    for key in keys:
        told = [(row.source, row.target, row.event) for row in Task.xq.history(key)]
        assert told[-2:] == [("D", "X", "archive"), ("X", "D", "restore")]
        assert [each for each in heard if each[0] == key] == [(key, "archive", "D", "X"), (key, "restore", "X", "D")]
    assert is_exact(Task)


def test_only_what_came_to_d_before_goes_out_and_so_does_its_history(make):
    Task = make(FEATURES)
    (unknown,) = done(Task)
    Task.xq.History.delete().execute()  # of which nothing is told: older than any moment
    old, again = done(Task, 2)
    Task.xq.clock.tick(100)
    new = done(Task)[0]
    Task.xq.restart(again)
    Task.xq.ack(Task.xq.take())
    limit = Task.xq.clock.now - 50
    assert stage(Task, before=limit)[:2] == (2, 0)
    assert [state(Task, key) for key in (unknown, old, again, new)] == ["X", "X", "D", "D"]
    history, before = Task.xq.pipeline.archives.old, Task.xq.pipeline.archives.moment("before", limit)
    assert history.forget(history.watermark(before)) == 7
    assert history.watermark(before) is None
    moment = Task.xq.pipeline.archives.moment
    assert moment("before", date(1970, 1, 2)) == moment("before", 86_400) == 86_400_000_000
    assert moment("before", datetime(1970, 1, 2, tzinfo=UTC)) == moment("before", datetime(1970, 1, 2))
    with pytest.raises(xq.BadType, match="before is a moment"):
        moment("before", "yesterday")


def restart(Task, first, late):
    Task.xq.restart(first)


def do_again(Task, first, late):
    Task.xq.restart(first)
    Task.xq.ack(Task.xq.take())


def do_another(Task, first, late):
    Task.xq.switch(late, "D")


# What happens when it is known which tasks leave -> how many left and stayed, and what becomes of the three.
MEANWHILE = {
    "restarted": (restart, (1, 1), ["R", "X", "W"]),
    "done again": (do_again, (1, 1), ["D", "X", "W"]),
    "another is done": (do_another, (2, 0), ["X", "X", "D"]),
}


@pytest.mark.parametrize(("happens", "left", "states"), MEANWHILE.values(), ids=MEANWHILE)
def test_what_moves_while_tasks_leave_stays_and_so_does_its_history(make, monkeypatch, happens, left, states):
    Task = make(FEATURES)
    (old,) = done(Task)
    Task.xq.clock.tick(100)
    (first,) = done(Task)
    late = Task.xq.put({}, delay=1_000_000).id
    in_parts = archives.Archives._in_parts

    def meanwhile(self, work, numbers):
        monkeypatch.undo()
        happens(Task, first, late)
        return in_parts(self, work, numbers)

    monkeypatch.setattr(archives.Archives, "_in_parts", meanwhile)
    found = stage(Task)
    assert (found.moved, found.stayed) == left
    assert [state(Task, key) for key in (first, old, late)] == states
    moved = late if states[2] == "D" else first
    told = [row.target for row in Task.xq.history(moved)]
    Task.xq.pipeline.archives.old.forget(found.watermark)
    kept = [row.target for row in Task.xq.history(moved)]
    assert kept == told[-len(kept) :], "the newest"
    assert len(kept) >= (1 if states[2] == "D" else 2)
    assert is_exact(Task)


def test_what_another_is_doing_again_as_the_list_is_made_stays(make_live, monkeypatch):
    Task = make_live(FEATURES)
    db, in_parts = Task._meta.database, archives.Archives._in_parts
    if isinstance(db, pw.SqliteDatabase):
        return  # one writer at a time
    (again,) = done(Task)
    Task.xq.pipeline.archives.prepare()

    def writer():
        with db.atomic():
            for letter in "RD":
                Task.update(status=letter).where(Task.id == again).execute()
            yield "written"
        yield "committed"

    with another_process(db, writer) as process:
        next(process)
        (old,) = done(Task)

        def committed(self, *of):
            monkeypatch.undo()
            assert process.send(None) == "committed"
            return in_parts(self, *of)

        monkeypatch.setattr(archives.Archives, "_in_parts", committed)
        assert stage(Task)[:2] == (1, 1)
    assert (state(Task, again), state(Task, old)) == ("D", "X")


def test_a_run_that_is_elsewhere_is_forgotten(make, monkeypatch):
    monkeypatch.setattr(archives, "ROWS", 2)
    Task = make(FEATURES)
    done(Task, 5)
    stage(Task)
    Task.xq.pipeline.archives.forget("run")
    assert Task.xq.pipeline.archives.runs() == {}
    Task.xq.pipeline.archives.forget("run")


def test_keys_of_any_kind_go_out_and_come_back(make):
    class Pair(pw.Model):
        a = pw.CharField(max_length=20)
        b = pw.IntegerField()
        status = pw.CharField(default="R")

        class Meta:
            database = make.db
            primary_key = pw.CompositeKey("a", "b")

    queue = xq.upgrade(Pair, {"status": "status"}, {"keep": True, "history": True}, clock=make.clock)
    make.db.create_tables([Pair])
    queue.put_many([{"a": "x'y", "b": 1}, {"a": '"', "b": 2}])
    queue.ack_many(queue.take_many(2))
    assert stage(queue.model).moved == 2
    assert queue.pipeline.archives.put_back("run").moved == 2
    assert [(row.source, row.target) for row in queue.history(("x'y", 1))][-2:] == [("D", "X"), ("X", "D")]


def test_a_task_whose_key_is_there_again_stays_in_the_staging_table(make):
    Task = make(FEATURES)
    taken, free = done(Task, 2)
    stage(Task)
    Task.xq.put({"id": taken, "name": "another"})
    assert Task.xq.pipeline.archives.in_the_way("run") == [taken]
    assert Task.xq.pipeline.archives.put_back("run")[:2] == (1, 1)
    assert (row(Task, taken).name, state(Task, free)) == ("another", "D")
    assert Task.xq.pipeline.archives.runs() == {"run": 1}


def test_a_task_that_others_refer_to_stays(make, caplog):
    Task = make(FEATURES)

    class Child(pw.Model):
        task = pw.ForeignKeyField(Task)

        class Meta:
            database = make.db

    keep_references(make.db)
    make.db.create_tables([Child])
    keys = done(Task, 4)
    Child.create(task=keys[1])
    with caplog.at_level(logging.WARNING, "xq"):
        assert stage(Task)[:2] == (3, 1)
    assert [state(Task, key) for key in keys] == ["X", "D", "X", "X"]
    assert "a task stays where it is" in caplog.text
    Child.drop_table()


def test_a_column_that_the_model_does_not_name_is_not_lost(make):
    Task = make(FEATURES)
    make.db.execute_sql("ALTER TABLE task ADD COLUMN more INTEGER")
    with pytest.raises(xq.ConfigurationError, match=r"columns that Task does not name \(more\)"):
        Task.xq.pipeline.archives.prepare()


def test_two_at_once_are_told_apart(make_live):
    Task = make_live(FEATURES)

    def other():
        with Task.xq.pipeline.archives.alone():
            yield "in"
        yield "out"

    with another_process(Task._meta.database, other) as process:
        assert next(process) == "in"
        with pytest.raises(xq.ArchiveBusy, match="by another call"), Task.xq.pipeline.archives.alone():
            pass
        process.kill()
        eventually(lambda: is_alone(Task))


def is_alone(Task):
    try:
        with Task.xq.pipeline.archives.alone(), pytest.raises(xq.ArchiveBusy), Task.xq.pipeline.archives.alone():
            pass
    except xq.ArchiveBusy:
        return False
    return True


def lose(archive):
    """As where the connection is lost by which others are kept away, and another comes."""
    archive.database.execute(archive.database.dialect.set_setting, {**archive._named("alone"), "value": 1.0})


def test_whoever_is_not_alone_any_more_moves_nothing_puts_nothing_back_and_forgets_nothing(make_shared, monkeypatch):
    monkeypatch.setattr(archives, "BATCH", 3)
    Task = make_shared(FEATURES)
    done(Task, 7)
    archive, take_out = Task.xq.pipeline.archives, archives.Archives._take_out

    def late(self, *of):
        if self.runs():
            lose(self)
        return take_out(self, *of)

    monkeypatch.setattr(archives.Archives, "_take_out", late)
    with pytest.raises(xq.ArchiveBusy), archive.alone():
        stage(Task)
    assert archive.runs() == {"run": 3}
    with archive.alone():
        lose(archive)
        for move in (archive.put_back, archive.retire):
            with pytest.raises(xq.ArchiveBusy):
                move("run")
    assert archive.runs() == {"run": 3}
    assert archive.put_back("run").moved == 3
    assert is_exact(Task)


def test_nobody_else_comes_to_be_alone_before_a_transaction_has_ended_that_has_found_itself_alone(make_live):
    Task = make_live(FEATURES)
    db = Task._meta.database
    if isinstance(db, pw.SqliteDatabase):
        return  # one writer at a time

    def other():
        wait = "lock_timeout" if isinstance(db, pw.PostgresqlDatabase) else "innodb_lock_wait_timeout"
        db.execute_sql(f"SET {wait} = 1")
        yield "ready"
        with pytest.raises(pw.OperationalError):
            db.execute_sql("UPDATE xq_setting SET value = 1 WHERE name LIKE 'alone %%'")
        yield "kept away"

    with another_process(db, other) as process:
        assert next(process) == "ready"
        archive = Task.xq.pipeline.archives
        with archive.alone(), db.atomic():
            archive.check_alone()
            assert process.send(None) == "kept away"


def test_a_queue_is_told_from_any_other(make_shared):
    Task = make_shared(FEATURES)
    Other = make_shared(FEATURES, attributes={"table_name": "other"})
    for model in (Task, Other):
        with model.xq.pipeline.archives.alone():
            pass
    mine = Task.xq.pipeline.archives.identity
    assert mine["queue"] == "task"
    assert mine["number"] != Other.xq.pipeline.archives.identity["number"]
    with Task.xq.pipeline.archives.alone():
        assert Task.xq.pipeline.archives.identity == mine


@pytest.mark.parametrize("feature", ["keep", "history"])
def test_what_archives_need_is_named(make, feature):
    Task = make({"keep": feature != "keep", "history": feature != "history"})
    with pytest.raises(xq.FeatureOff, match=f"archive .*'{feature}'|archive .*feature") as error:
        Task.xq.pipeline.archives.check("archive")
    assert error.value.feature == feature
    with Task._meta.database.atomic(), pytest.raises(xq.ConfigurationError, match="outside"):
        with Task.xq.pipeline.archives.alone():
            pass


@pytest.mark.parametrize("feature", ["keep", "history"])
def test_a_queue_whose_tasks_are_on_their_way_keeps_what_an_archive_needs(make, feature):
    Task = make(FEATURES)
    done(Task)
    stage(Task)
    less = {name: True for name in FEATURES if name != feature}
    with pytest.raises(xq.ConfigurationError, match="on their way to an archive"):
        Task.xq.reconfigure(less)
    kept = "whose rows are in task_xq_history" if feature == "history" else "on their way to an archive"
    with pytest.raises(xq.ConfigurationError, match=kept):
        make(less).xq.install()
    with pytest.raises(xq.ConfigurationError, match="on their way to an archive"):
        Task.xq.uninstall()
    Task.xq.reconfigure(FEATURES | {"ttl": 10})
    assert Task.xq.pipeline.archives.put_back("run").moved == 1
    assert is_exact(Task)
    Task.xq.reconfigure(less, move={"D": "X"} if feature == "keep" else {})
    assert "task_xq_archive" not in make.db.get_tables()


def test_what_leaves_while_a_queue_is_uninstalled_is_not_dropped(make, monkeypatch):
    Task = make(FEATURES)
    (key,) = done(Task)
    Task.xq.pipeline.archives.prepare()
    dialect = type(Task.xq.pipeline.archives.database.dialect)
    installing = dialect.installing

    def late(self, store):
        monkeypatch.undo()
        stage(Task)
        return installing(self, store)

    monkeypatch.setattr(dialect, "installing", late)
    with pytest.raises(xq.ConfigurationError, match="on their way to an archive"):
        Task.xq.uninstall()
    assert Task.xq.pipeline.archives.put_back("run").moved == 1
    assert state(Task, key) == "D"


def test_old_history_goes_out_but_for_the_newest_row(make, monkeypatch):
    monkeypatch.setattr(spans, "ROWS", 2)
    Task = make(FEATURES)
    done(Task, 3)
    before = Task.xq.History.select().count()
    watermark = Task.xq.pipeline.archives.old.watermark(ALL)
    assert Task.xq.pipeline.archives.old.count(watermark) == before - 1
    done(Task)
    assert Task.xq.pipeline.archives.old.forget(watermark) == before - 1
    assert Task.xq.pipeline.archives.old.count(watermark) == Task.xq.pipeline.archives.old.forget(watermark) == 0
    assert Task.xq.History.select().count() == 5
    assert is_exact(Task)


def test_history_that_another_is_writing_is_not_lost(make_live):
    Task = make_live(FEATURES)
    db = Task._meta.database
    if isinstance(db, pw.SqliteDatabase):
        return  # one writer at a time
    done(Task)

    def writer():
        with db.atomic():
            Task.xq.put({"name": "early"})
            yield "written"
        yield "committed"

    with another_process(db, writer) as process:
        next(process)
        done(Task)
        watermark = Task.xq.pipeline.archives.old.watermark(ALL)
        counted = Task.xq.pipeline.archives.old.count(watermark)
        assert process.send(None) == "committed"
        assert (
            Task.xq.pipeline.archives.old.count(watermark) == counted == Task.xq.pipeline.archives.old.forget(watermark)
        )
        assert "early" in [Task.xq.peek(int(row.key)).name for row in Task.xq.History.select()]


def made_anew(db, column, kind):
    """Have a column be another one, of another type."""
    for change in (f"DROP COLUMN {column}", f"ADD COLUMN {column} {kind}"):
        db.execute_sql(f"ALTER TABLE task {change}")


def test_a_staging_table_of_other_types_is_made_anew_where_it_is_empty(make):
    Task = make(FEATURES)
    made_anew(make.db, "name", "INTEGER")
    Task.xq.pipeline.archives.prepare()
    generation = Task.xq.pipeline.archives.generation
    Task.xq.pipeline.archives.prepare()
    assert Task.xq.pipeline.archives.generation == generation
    made_anew(make.db, "name", "TEXT")
    (key,) = done(Task, name="007")
    assert stage(Task).moved == 1
    assert Task.xq.pipeline.archives.put_back("run").moved == 1
    assert row(Task, key).name == "007"


@pytest.mark.parametrize("columns", ["types", "names"])
def test_tasks_in_a_staging_table_of_other_columns_lose_none(make, columns):
    Task = make(FEATURES)
    done(Task)
    stage(Task)
    if columns == "types":
        made_anew(make.db, "size", "BIGINT")
    else:
        make.db.execute_sql("ALTER TABLE task ADD COLUMN more INTEGER")
        Task = make(FEATURES, attributes={"more": pw.IntegerField(null=True)})
    for call in (Task.xq.pipeline.archives.fits, Task.xq.pipeline.archives.prepare):
        with pytest.raises(xq.ConfigurationError, match="1 tasks in task_xq_archive have the columns of another day"):
            call()
    assert Task.xq.pipeline.archives.runs() == {"run": 1}


def test_a_key_of_which_the_history_holds_not_all_is_not_taken_for_another(make):
    class Named(pw.Model):
        name = pw.CharField(primary_key=True, max_length=300)
        status = pw.CharField(default="R")

        class Meta:
            database = make.db

    queue = xq.upgrade(Named, {"status": "status"}, {"keep": True}, clock=make.clock)
    make.db.create_tables([Named])
    longest, longer = "k" * 255, "k" * 256
    queue.put_many([{"name": name} for name in (longest, longer)])
    queue.ack_many(queue.take_many(2))
    queue.reconfigure({"keep": True, "history": True})
    kept = isinstance(make.db, pw.MySQLDatabase)  # whose history has keys of 255 characters, and refuses others
    assert stage(Named)[:2] == (2 - kept, kept)
    assert (state(Named, longest), state(Named, longer)) == ("X", "D" if kept else "X")
    assert queue.pipeline.archives.put_back("run").moved == 2 - kept


def test_consumers_work_on_while_tasks_go_out_and_come_back(make_live, monkeypatch):
    monkeypatch.setattr(archives, "BATCH", 3)
    Task = make_live(FEATURES)
    keys = set(done(Task, 20))
    Task.xq.pipeline.archives.prepare()

    def work():
        for key in sorted(keys)[::2] * 2:
            try:
                Task.xq.restart(key)
            except (xq.NotFound, xq.WrongState):
                continue
            if (taken := Task.xq.take()) is not None:
                Task.xq.ack(taken)

    def move():
        for turn in range(6):
            Task.xq.pipeline.archives.stage(f"run {turn}", ALL)
            if turn % 2:
                assert Task.xq.pipeline.archives.put_back(f"run {turn}").stayed == 0

    in_threads(Task._meta.database, work, work, move)
    for run in Task.xq.pipeline.archives.runs():
        Task.xq.pipeline.archives.put_back(run)
    while (taken := Task.xq.take()) is not None:
        Task.xq.ack(taken)
    assert {state(Task, key) for key in keys} == {"D"}
    counted = transitions(Task)
    assert counted["D-X"] == counted["X-D"] > 0
    assert is_exact(Task)


def test_rows_of_an_archive_are_loaded_part_by_part(make_shared, monkeypatch):
    monkeypatch.setattr(archives, "ROWS", 2)
    Task = make_shared(FEATURES)
    Task.xq.pipeline.archives.prepare()
    loading = pickle.loads(pickle.dumps(Task.xq.pipeline.archives.loading(["id", "name", "size", "status"])))
    for part, first in {3: 10, 0: 20, 7: 10}.items():
        assert loading.load([([first, first + 1, first + 2], ["a", "b", None], [1, 2, 3], ["D"] * 3)], part) == 3
    loading.keep([0, 7])
    assert Task.xq.pipeline.archives.count(loading.run) == 6
    Task.xq.pipeline.archives.loaded(loading, "run", 6)
    assert Task.xq.pipeline.archives.runs() == {"run": 6}
    assert Task.xq.pipeline.archives.put_back("run")[:2] == (6, 0)
    assert [(task.id, task.name, task.size) for task in Task.xq.by_state("D")] == [
        (id + i, name, i + 1) for id in (10, 20) for i, name in enumerate(["a", "b", None])
    ]
    with pytest.raises(xq.BadValue, match="'more'"):
        Task.xq.pipeline.archives.loading(["id", "more"])


def test_what_nobody_has_said_is_loaded_counts_for_nothing(make_shared):
    Task = make_shared(FEATURES)
    Task.xq.pipeline.archives.prepare()
    loading = Task.xq.pipeline.archives.loading(["id", "status"])
    loading.load([([7], ["D"])], 1)
    assert [*Task.xq.pipeline.archives.extract_tasks([], Task.xq.pipeline.archives.generation).read(["id"])] == []
    Task.xq.pipeline.archives.loaded(loading, "run", 1)
    assert [*Task.xq.pipeline.archives.extract_tasks([], Task.xq.pipeline.archives.generation).read(["id"])] == [(7,)]
    assert [*Task.xq.pipeline.archives.extract_tasks(["run"], Task.xq.pipeline.archives.generation).read(["id"])] == []


def test_an_attempt_that_loads_when_it_counts_no_more_doubles_nothing(make_shared):
    Task = make_shared(FEATURES)
    Task.xq.pipeline.archives.prepare()
    loading = Task.xq.pipeline.archives.loading(["id", "status"])
    loading.load([([7, 8], ["D", "D"])], 1)
    loading.keep([1])
    loading.load([([7], ["D"])], 2)
    with pytest.raises(xq.Error, match="3 tasks of run were read, and it has 2: try again"):
        Task.xq.pipeline.archives.loaded(loading, "run", 2)
    assert Task.xq.pipeline.archives.runs() == {}


def test_what_a_column_of_today_cannot_hold_is_not_cut(make_shared):
    if not isinstance(make_shared.db, pw.MySQLDatabase):
        return  # the others never cut
    make_shared.db.connect_params["sql_mode"] = ""
    make_shared.db.close()
    Task = make_shared(FEATURES)
    made_anew(make_shared.db, "name", "VARCHAR(3)")
    Task.xq.pipeline.archives.prepare()
    loading = Task.xq.pipeline.archives.loading(["id", "name", "status"])
    with pytest.raises(Exception, match="too long"):
        loading.load([([7], ["long"], ["D"])], 1)
    assert Task.xq.pipeline.archives.runs() == {}


# Who reads these runs beside the table, what happens to them, and how many rows there are before and after it.
READ = {
    "it is archived": ([], False, stage, 4, ([], 4)),
    "it is restored": (["run"], True, lambda Task: Task.xq.pipeline.archives.put_back("run"), 1, ([], 4)),
    "it is in an archive alone": ([], True, lambda Task: Task.xq.pipeline.archives.retire("run"), 4, (["run"], 1)),
}


@pytest.mark.parametrize(("runs", "staged", "happens", "n", "after"), READ.values(), ids=READ)
def test_who_reads_hears_that_what_he_reads_has_gone_elsewhere(make_shared, runs, staged, happens, n, after):
    Task = make_shared(FEATURES)
    archive = Task.xq.pipeline.archives
    done(Task, 3)
    if staged:
        stage(Task)
    extract = pickle.loads(pickle.dumps(archive.extract_tasks(runs, archive.generation)))
    assert len([*extract.read()]) == n
    happens(Task)
    assert len([*archive.extract_tasks(after[0], archive.generation).read()]) == after[1]
    with pytest.raises(xq.Error, match="create the DataFrame again"):
        [*extract.read()]
