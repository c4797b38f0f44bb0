"""A queue moves to another database: what arrives, what the source is then, and what a second call does."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, Maker
from tests.servers import MariaDB, MySQL, Postgres, shared
from tests.steps import install_anew, next_release
from xq.pipeline.copy import Copy, Side
from xq.testing import run_pending

WAYS = [("sqlite", "postgres"), ("postgres", "mariadb"), ("mariadb", "mysql"), ("mysql", "sqlite")]
FEATURES = {
    "history": 1e9,
    "buried": True,
    "delayed": True,
    "zombie": 600,
    "unique": True,
    "limit": 100,
    "id": "auto_increment",
}
ROLES = ("runat", "deadline", "priority", "tube", "unique", "attempts", "owner")

HISTORY = ["id", "at_us", "key", "tube", "source", "target", "event", "owner", "attempt", "actor", "reason"]

pytestmark = pytest.mark.of_peewee("it makes queues on two databases")


@pytest.fixture
def queues(request, tmp_path):
    """The same queue, with tasks in each state, in one database, and without tasks in another."""
    here, there, *features = request.param
    with ExitStack() as stack:
        made = []
        for place, name in enumerate((here, there)):
            folder = tmp_path / str(place)
            folder.mkdir()
            maker = stack.enter_context(closing(Maker(stack.enter_context(DATABASES[name](folder)))))
            own = {
                "paid": pw.DecimalField(max_digits=12, decimal_places=2, null=True),
                "made": pw.DateTimeField(null=True),
                "raw": pw.BlobField(null=True),
                "urgent": pw.BooleanField(null=True),
                "share": pw.DoubleField(null=True),
            }
            made.append(maker(*features or [FEATURES], roles=ROLES, attributes=own, tube_stats=["mail"]))
        yield made


both = pytest.mark.parametrize("queues", WAYS, indirect=True, ids="-".join)


def fill(queue):
    for i in range(8):
        queue.xq.put(
            queue(
                name=f"näme {i}",
                job=f"job{i}",
                tube="mail" if i % 2 else None,
                priority=i % 3,
                paid=Decimal(f"{i}.50"),
                made=datetime(2026, 1, 2, 3, 4, 5),
                raw=bytes([0, i, 255]),
                urgent=bool(i % 2),
                share=i / 3,
            )
        )
    queue.xq.put(queue(name="later"), delay=3600)
    queue.xq.clock.tick(5)
    queue.xq.ack(queue.xq.take(timeout=0))
    with queue.xq.acting("ann", reason="no such host"):
        queue.xq.bury(queue.xq.take(timeout=0))
    queue.xq.release(queue.xq.take(timeout=0), delay=60)
    queue.xq.kill(9)
    queue.xq.pause("mail", actor="bob", reason="provider down")
    queue.xq.every("0 3 * * *", queue(name="report", job="nightly"), name="nightly")
    queue.xq.every("0 * * * *", queue(name="mail", job="hourly"), name="hourly")
    queue.xq.pause_schedule("hourly", reason="not now")


def seen(queue):
    """All that a queue has, as its models and methods show it."""
    fields = [field for field in queue._meta.sorted_fields if not field.name.startswith("xq_")]
    rows = sorted(queue.select(*fields).tuples(), key=lambda row: row[0])
    history = [[getattr(each, name) for name in HISTORY] for each in queue.xq.history()]
    return [[*map(plain, row)] for row in rows], history, queue.xq.stats().model_dump()


def plain(value):
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.fixture(autouse=True)
def steps(monkeypatch):
    """Call a list's functions, one before each commit; no wait for processes to see the pause."""
    calls: list[Any] = []
    checks = Copy._has_changed

    def has_changed(copy, *seen):
        if calls:
            calls.pop(0)()
        return checks(copy, *seen)

    monkeypatch.setattr("xq.pipeline.copy.SEEN", 0)
    monkeypatch.setattr(Copy, "_has_changed", has_changed)
    return calls


def move(source, target, **options):
    return source.xq.pipeline.copy_to(target.xq.pipeline, "there", **options)


@both
def test_all_that_a_queue_has_arrives(queues):
    source, target = queues
    fill(source)
    before, pauses, schedules = seen(source), source.xq.pauses(), source.xq.schedules()
    moved = move(source, target)
    assert moved == (8, len(before[1]), 2)
    for here, there in zip(before, seen(target), strict=True):
        assert there == here
    assert [pause[0:4:2] for pause in target.xq.pauses()] == [pause[0:4:2] for pause in pauses]
    assert [(each.name, each.spec, each.next, each.paused) for each in target.xq.schedules()] == [
        (each.name, each.spec, each.next, each.paused) for each in schedules
    ]
    assert target.xq.check() == []


@both
def test_the_target_goes_on_where_the_source_stopped(queues):
    source, target = queues
    fill(source)
    move(source, target)
    target.xq.clock.now = source.xq.clock.now
    assert [target.xq.take(timeout=0).name for _ in range(2)] == ["näme 4", "näme 2"]
    with pytest.raises(xq.Duplicate):
        target.xq.put(target(job="job5"))
    key = target.xq.put(target(name="new")).id
    assert key > (8 if isinstance(target._meta.database, pw.SqliteDatabase) else 9), "also above those that are gone"
    target.xq.clock.tick(3600)
    target.xq.sweep()
    assert target.xq.check() == []


@pytest.mark.parametrize("queues", [("sqlite", "postgres")], indirect=True)
def test_keys_that_postgresql_always_generates_arrive_as_they_were(queues):
    source, target = queues
    for sql in ("DROP SEQUENCE task_id_seq CASCADE", "ALTER TABLE task ALTER id ADD GENERATED ALWAYS AS IDENTITY"):
        target._meta.database.execute_sql(sql)
    fill(source)
    assert move(source, target).tasks == 8
    assert target.xq.put(target(name="new")).id > 8


@both
def test_the_source_is_paused_and_says_where_the_queue_is(queues):
    source, target = queues
    fill(source)
    source.xq.pause(reason="night")
    move(source, target)
    assert source.xq.take(timeout=0) is None
    assert source.xq.pauses()[0].reason == "moved to there; it was paused before: night"
    assert target.xq.pauses()[0].reason == "night"
    assert [each.reason for each in source.xq.schedules()] == ["not now", "moved to there"]
    with pytest.raises(xq.ConfigurationError, match="has moved to there before"):
        move(source, target)


RATED = [(*way, {"history": True, "rate": {"limit": "9/h", "by": "tube"}}) for way in WAYS]


@pytest.mark.parametrize("queues", RATED, indirect=True, ids=map("-".join, WAYS))
def test_the_limits_that_were_set_arrive(queues):
    source, target = queues
    source.xq.set_limit("rate", {"limit": "3/h", "burst": 3}, value="mail", actor="ann")
    source.xq.put_many([source(name="one", tube="mail") for _ in range(5)])
    move(source, target)
    assert target.xq.limits() == source.xq.limits()
    assert len(target.xq.take_many(9)) == 3


PLAIN = [(*way, {"keep": True}) for way in WAYS]
plain_queues = pytest.mark.parametrize("queues", PLAIN, indirect=True, ids=map("-".join, WAYS))


@plain_queues
def test_a_queue_without_a_history_arrives(queues):
    source, target = queues
    source.xq.put_many([source(name="one"), source(name="two")])
    source.xq.ack(source.xq.take(timeout=0))
    assert move(source, target) == (2, 0, 0)
    assert target.xq.stats() == source.xq.stats()
    assert target.xq.check() == []


@plain_queues
def test_a_target_that_was_installed_without_the_history_gets_it(queues):
    source, target = queues
    features = {"keep": True, "history": True}
    install_anew(source, features)
    source.xq.put(source(name="one"))
    there = next_release(target, features=features)
    assert source.xq.pipeline.copy_to(there.pipeline, "there") == (1, 1, 0)
    assert there.stats() == source.xq.stats()
    assert there.check() == []


@pytest.mark.parametrize(
    "queues",
    [(*way, {"steps": True, "delayed": True, "buried": True, "keep": True}) for way in WAYS],
    indirect=True,
)
def test_half_done_tasks_go_on_where_they_were(queues):
    here, there = queues
    calls = list[Any]()

    def work(found: Any) -> None:
        calls.append(xq.step("a", str, found.id))
        xq.sleep("s", 50)
        found.ack(update={"name": xq.wait_for("go")})

    for queue in (here, there):
        queue.xq.worker(work)
    here.xq.put_many([{} for _ in range(100)])
    run_pending(here)
    here.xq.clock.tick(60)
    there.xq.clock.now = here.xq.clock.now
    for key in range(1, 51):
        here.xq.signal(key, "go", f"for {key}")
    move(here, there)
    assert run_pending(there) == 100
    for key in range(51, 101):
        there.xq.signal(key, "go", f"for {key}")
    run_pending(there)
    assert sorted(task.name for task in there.select()) == sorted(f"for {key}" for key in range(1, 101))
    assert (there.xq.count("D"), len(calls)) == (100, 250)


@both
def test_a_pause_without_a_reason_arrives(queues):
    source, target = queues
    source.xq.put(source(name="one"))
    source.xq.pause()
    move(source, target)
    assert target.xq.pauses()[0].reason is None
    assert target.xq.take(timeout=0) is None


@both
def test_a_call_that_failed_is_completed_by_the_next(queues, steps):
    source, target = queues
    fill(source)
    held = source.xq.take(timeout=0)
    with pytest.raises(xq.Error, match="1 tasks of Task are still taken after 0 s.* stays paused"):
        move(source, target, timeout=0)
    source.xq.ack(held)
    before = seen(source)

    def stop():
        raise OSError("no space left")

    steps.append(stop)
    with pytest.raises(xq.Error, match="no space left.* stays paused"):
        move(source, target)
    assert target.select().count() == len(target.xq.history()) == len(target.xq.schedules()) == 0
    move(source, target)
    assert [*seen(target)] == [*before]


@both
def test_what_changes_during_the_copy_arrives(queues, steps):
    """Also what a worker does that has not seen the pause, and the application in columns of its own."""
    source, target = queues
    fill(source)
    change = source.update(name="changed").where(source.id == 8).execute
    steps.extend([change, source.update(status="T").where(source.id == 7).execute])
    with pytest.raises(xq.Error, match="1 tasks of Task are still taken after 0 s.* stays paused"):
        move(source, target, timeout=0)
    source.xq.kill(7)
    move(source, target)
    for here, there in zip(seen(source), seen(target), strict=True):
        assert there == here
    assert target.xq.check() == []


@both
def test_a_worker_has_time_to_see_the_pause(queues, monkeypatch):
    source, target = queues
    fill(source)
    rest, seconds = time.sleep, 50

    def sleep(pause):
        if pause < seconds:
            rest(pause)
        elif source.update(status="T").where(source.id == 8).execute():  # as one does that has not seen it
            source.xq.kill(8)

    monkeypatch.setattr("xq.pipeline.copy.SEEN", 2 * seconds)
    monkeypatch.setattr("xq.core.time.sleep", sleep)
    move(source, target)
    assert [*seen(target)] == [*seen(source)]
    assert not target.get_or_none(id=8)


@pytest.mark.parametrize("queues", WAYS[:1], indirect=True)
def test_a_value_that_the_target_refuses_is_named(queues):
    source, target = queues
    source.xq.put_many([source(name="fine"), source(name="a\0b")])
    with pytest.raises(xq.Error, match=r"task.* at there refuses the row 2: .*NUL.*\. Task stays paused"):
        move(source, target)


@both
def test_of_two_calls_at_once_one_moves_the_queue(queues, steps):
    source, target = queues
    fill(source)
    with ThreadPoolExecutor() as threads:
        second = []
        steps.append(lambda: second.append(threads.submit(move, source, target)))
        move(source, target)
        with pytest.raises(xq.Error, match="Task has moved to there before: nothing is left to do"):
            second[0].result()
    assert [*seen(target)] == [*seen(source)]
    assert target.xq.check() == []


@both
def test_a_call_that_begins_while_another_commits_is_told_that_the_queue_has_moved(queues, monkeypatch):
    source, target = queues
    fill(source)
    count = Side.count

    def another_moves_it(side, of):
        monkeypatch.setattr(Side, "count", count)
        move(source, target)
        return count(side, of)

    monkeypatch.setattr(Side, "count", another_moves_it)
    with pytest.raises(xq.Error, match="Task has moved to there before: nothing is left to do"):
        move(source, target)


@pytest.mark.parametrize("queues", [(*WAYS[0], {"unique": True})], indirect=True)
def test_a_program_that_begins_too_early_loses_no_task(queues, steps):
    source, target = queues
    source.xq.put_many([source(name=str(i)) for i in range(8)])
    with ThreadPoolExecutor() as threads:
        steps.append(lambda: threads.submit(target.insert(id=900, name="early", status="R").execute).result())
        with pytest.raises(xq.Error, match="programs put tasks at there before the copy was complete"):
            move(source, target)
    assert [each.name for each in target.select()] == ["early"]
    with pytest.raises(xq.ConfigurationError, match="task.* at there has rows, or has counted some"):
        move(source, target)


@both
def test_what_cannot_be_copied_is_refused(queues):
    source, target = queues
    target.xq.put(target(name="mine"))
    with pytest.raises(xq.ConfigurationError, match="has rows, or has counted some"):
        move(source, target)
    with pytest.raises(xq.BadValue, match="is the queue itself"):
        move(source, source)
    assert source.xq.pauses() == []


def url_of(db):
    """The URL of a test's database."""
    if isinstance(db, pw.SqliteDatabase):
        return f"sqlite:///{db.database}"
    if isinstance(db, pw.PostgresqlDatabase):
        return shared(Postgres).url(db.database)
    return shared(MariaDB if "MariaDB" in db.connection().server_version else MySQL).url(db.database)


def command(*arguments, before=""):
    code = f"import sys, time\n{before}\nfrom xq.cli import main\nmain()"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, stderr=subprocess.PIPE)


HANG = """
from xq.pipeline.copy import Copy

def hang(copy, *seen):
    print("all is written", file=sys.stderr, flush=True)
    time.sleep(600)

Copy._has_changed = hang
"""


@pytest.mark.parametrize(("here", "there"), WAYS)
def test_xq_copy_that_is_killed_is_completed_by_the_next(here, there, tmp_path):
    """The table that is there is plain: the command makes it the queue, with the columns that xq brings."""
    for name in "ab":
        tmp_path.joinpath(name).mkdir()
    with DATABASES[here](tmp_path / "a") as first, DATABASES[there](tmp_path / "b") as second:
        Photo: Any = type("Photo", (pw.Model,), {"name": pw.TextField(), "Meta": type("Meta", (), {"database": first})})
        Plain: Any = type(
            "Photo", (pw.Model,), {"name": pw.TextField(), "Meta": type("Meta", (), {"database": second})}
        )
        features: Any = {"history": True, "keep": True, "buried": True, "id": "auto_increment"}
        xq.upgrade(Photo, features=features)
        first.create_tables([Photo])
        second.create_tables([Plain])
        for i in range(0, 6000, 500):
            Photo.xq.put_many([Photo(name=str(number)) for number in range(i, i + 500)])
        for each in Photo.xq.take_many(100):
            each.ack()
        before = Photo.xq.stats().model_dump()
        arguments = "copy", f"{url_of(first)}#photo", url_of(second), "--yes"
        killed = command(*arguments, before=HANG)
        assert killed.stderr.readline() == "all is written\n"
        killed.kill()
        killed.communicate()
        assert Plain.select().count() == 0
        done = command(*arguments)
        assert done.communicate()[1].startswith("6,000 tasks, 6,200 transitions and 0 schedules are at ")
        xq.upgrade(Plain, features=features)
        assert Plain.xq.stats().model_dump() == before
        assert Plain.xq.check() == []
        assert [each.id for each in Plain.xq.history()] == [each.id for each in Photo.xq.history()]
        assert Plain.xq.take(timeout=0).name == "100"
