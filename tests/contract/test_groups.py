"""Groups: the last end of a group's members puts its `then`, once, whoever ends them."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from contextlib import suppress
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import fresh, live
from tests.factories import task, tasks
from tests.steps import (
    Work,
    another_process,
    another_program,
    install_anew,
    names,
    next_release,
    processes,
    until_one_waits_for_a_lock,
    waiter,
)

server_db = fresh(["postgres", "mariadb", "mysql"])
mariadb_db = fresh(["mariadb", "mysql"])
GROUPS = {"groups": True, "buried": True}
REPORT = {"name": "report"}


def ready(queue):
    """The names of the tasks that are ready, once the maintenance has looked."""
    queue.sweep()
    return names(queue.by_state("R"))


def begun(queue, n=2, name="import", **options):
    """A group with a `then`, and its members."""
    with queue.group(name, then=REPORT, **options) as group:
        return group, group.put_many(tasks(n, name="member"))


@pytest.fixture
def queue(make):
    return make(GROUPS).xq


@pytest.mark.parametrize("features", [{}, {"keep": True}, {"history": True}, {"zombie": 60}, {"utube": True}], ids=str)
def test_the_last_ack_puts_then(make, features):
    queue = make(GROUPS | features, roles=("runat", "priority") + ("utube",) * ("utube" in features)).xq
    with queue.group("import 7", then=REPORT) as group:
        group.put_many(tasks(2, name="member"))
        group.put(task(name="member"))
    counts = {"R": 3, "T": 0, "B": 0, "done": 0, "failed": 0, "total": 3}
    assert group.stats() == counts
    for _ in range(3):
        assert not group.done
        queue.ack(queue.take())
    assert group.done
    assert group.wait(timeout=0)
    assert group.stats() == counts | {"R": 0, "done": 3}
    assert ready(queue) == ["report"]
    queue.ack(report := queue.take())
    assert ready(queue) == []
    if "history" in features:
        assert [(move.source, move.event) for move in queue.history(report)[-3:]] == [
            ("X", "put"),
            ("R", "take"),
            ("T", "ack"),
        ]


def test_an_empty_group_is_done_when_its_block_ends(queue):
    with queue.group("empty", then=REPORT) as group:
        assert queue.count() == 0
    assert (group.done, group.stats()["total"], ready(queue)) == (True, 0, ["report"])


def written(queue, sql):
    another_program(queue.parts.store.model._meta.database, sql)


ENDS = {
    "a kill": lambda queue, key: queue.kill(key),
    "several killed": lambda queue, key: queue.kill_many([key]),
    "a cancel": lambda queue, key: queue.cancel(key),
    "an operation": lambda queue, key: queue.act("kill", "group:import").run(),
    "a ttl": lambda queue, key: queue.clock.tick(20),
    "plain SQL": lambda queue, key: written(queue, "DELETE FROM task"),
    "plain SQL for another key": lambda queue, key: written(queue, "UPDATE task SET id = id + 100, status = 'x'"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.of_peewee("another program needs Peewee's database")
def test_what_ends_otherwise_than_by_an_ack_is_an_end_too(make_shared, end):
    queue = make_shared(GROUPS | {"ttl": 10}).xq
    group, (member,) = begun(queue, 1)
    ENDS[end](queue, member)
    assert ready(queue) == ["report"]
    assert group.stats() == {"R": 0, "T": 0, "B": 0, "done": 0, "failed": 1, "total": 1}


def test_a_buried_member_keeps_the_group_open_until_it_is_dug_or_killed(queue):
    group, _ = begun(queue)
    for _ in range(2):
        queue.bury(queue.take())
    assert (ready(queue), group.failed, group.done, queue.groups()) == ([], 2, False, ["import"])
    held = "the group 'import' is open: buried members alone are left of it"
    assert (held, "xq act TARGET dig 'group:import state:buried'; or kill") in queue.doctor()
    assert group.dig() == 2
    assert group.stats()["R"] == 2
    queue.ack(queue.take())
    assert group.kill() == 1
    assert (ready(queue), group.stats()["done"], group.failed, queue.groups()) == (["report"], 1, 1, [])
    queue.bury(queue.take())
    begun(queue, 1)
    assert held not in [found.what for found in queue.doctor()]


def test_with_failed_run_a_buried_member_has_ended(queue):
    group, _ = begun(queue, failed="run")
    queue.ack(queue.take())
    queue.bury(queue.take())
    assert (ready(queue), group.done, group.failed, group.stats()["done"]) == (["report"], True, 1, 1)
    group.kill()
    assert (ready(queue), group.failed, group.stats()["done"]) == (["report"], 1, 1)  # then is put once


def test_a_name_is_used_again_when_its_group_is_done(queue):
    begun(queue, 1)
    with pytest.raises(xq.Duplicate, match="the group 'import' of Task is open"):
        begun(queue)
    queue.ack(queue.take())
    group, _ = begun(queue, 2)
    assert (group.stats()["R"], group.stats()["total"], group.done) == (2, 2, False)
    group.kill()
    assert ready(queue) == ["report"] * 2


def test_buried_members_leave_their_group_when_its_name_is_used_again(queue):
    for night in range(2):
        group, _ = begun(queue, failed="run")
        one, other = queue.take_many(2)
        queue.ack(one)
        queue.bury(other)
        assert (ready(queue), group.failed, group.stats()["total"]) == (["report"], 1, 2)
        queue.ack(queue.take())
        assert len(queue.by_state("B")) == night + 1
    assert (group.kill(), group.failed) == (1, 1)


def test_an_error_in_the_block_undoes_it(queue):
    with suppress(ZeroDivisionError), queue.group("import", then=REPORT) as group:
        group.put_many(tasks(2))
        raise ZeroDivisionError
    assert queue.count() == 0
    with pytest.raises(xq.NotFound, match="no group 'import'"):
        queue.group("import").stats()
    begun(queue)


def test_members_are_added_while_a_group_is_open(queue):
    begun(queue, 1)
    handle = queue.group("import")
    handle.put_many(tasks(2))
    handle.put(task())
    assert handle.stats()["total"] == 4
    assert (handle.kill(), ready(queue)) == (4, ["report"])
    with pytest.raises(xq.BadValue, match="is done"):
        handle.put(task())
    calls = [lambda group: group.put(task()), lambda group: group.done, lambda group: group.kill()]
    for call in (*calls, lambda group: group.pause(), lambda group: group.resume()):
        with pytest.raises(xq.NotFound):
            call(queue.group("none"))
    assert queue.count("R") == 1


def test_a_task_that_is_found_is_no_new_member(make):
    queue = make(GROUPS | {"unique": "RTB"}, roles=("runat", "unique")).xq
    queue.put(task(job="other"))
    queue.put(task(job="old"))
    some = [task(job=job) for job in ("new", "new", "old")]
    with queue.group("import", then=REPORT) as group:
        group.put_many(some, on_conflict="skip")
    assert group.stats()["total"] == 1
    group.put_many([*some, task(job="newer")], on_conflict="skip")
    group.put_many([*some, task(job="newer")], on_conflict="replace")
    assert (group.stats()["total"], group.kill(), group.stats()["done"]) == (3, 3, 0)
    assert ready(queue)[-1:] == ["report"]


def test_a_member_that_is_put_otherwise_counts_until_it_ends(queue):
    group, _ = begun(queue, 1)
    queue.put_many(tasks(2, xq_group="import"))
    assert (group.stats()["total"], group.kill(), group.failed, group.stats()["total"]) == (3, 3, 3, 3)
    assert ready(queue) == ["report"]


def test_then_may_go_to_another_queue_with_its_values_as_they_are(make):
    fields = {"at": pw.DateTimeField(null=True), "part": pw.DecimalField(null=True), "raw": pw.BlobField(null=True)}
    fields |= {"real": pw.DoubleField(null=True), "given": pw.CharField(default="a default")}
    Mail = make(
        {"unique": True, "id": "uuid"},
        key=pw.UUIDField(primary_key=True),
        roles=("unique", "priority"),
        model=None,
        attributes=fields | {"table_name": "mail"},
    )
    queue = make(GROUPS, model=make.model(table_name="other")).xq
    text = 'it\'s \\ 100% :now %s {x} "q" ü 🙂\n'
    mail = {
        "name": text,
        "at": dt.datetime(2026, 1, 2, 3, 4, 5),
        "part": Decimal("1.50"),
        "raw": b"\0\xff'",
        "real": 0.1,
    }
    for _ in range(2):
        with queue.group("import", then=(Mail, mail | {"job": text})):
            pass
    (found,) = Mail.xq.by_state("R")  # the second was skipped: the first has its unique value
    assert {
        name: bytes(value) if name == "raw" else value for name, value in found.__data__.items() if name in mail
    } == mail
    assert (found.job, found.size, found.given) == (text, 0, "a default")
    with pytest.raises(xq.BadValue, match="no field"), queue.group("bad", then=(Mail, {"nothing": 1})):
        pass
    for bad in (Mail, Mail(), (queue, Mail())):
        with (
            pytest.raises(xq.BadType, match=r"or \(Report, \{...\}\) with another model"),
            queue.group("bad", then=bad),
        ):
            pass


@pytest.mark.parametrize(
    "bad", [{"name": None}, {"checked": -1}, {"short": "x" * 11}, {"name": "a\0b"}, {"real": float("inf")}], ids=str
)
def test_a_then_that_cannot_be_put_is_refused_as_a_put(make_shared, bad):
    more: dict[str, Any] = {"checked": pw.IntegerField(default=7, unique=True, constraints=[pw.Check("checked > 0")])}
    more |= {"short": pw.CharField(max_length=10, default=""), "real": pw.DoubleField(default=0)}
    queue, put, opened = make_shared(GROUPS, attributes=more).xq, None, None
    try:
        queue.put(REPORT | bad)
    except Exception as error:
        put = type(error)
    try:
        with queue.group("import", then=REPORT | bad) as group:
            pass
    except Exception as error:
        opened = type(error)
    assert opened is put
    assert len(ready(queue)) == (0 if put else 1)
    if put is None:
        assert not group.done  # `checked` of the first is held
        queue.kill(*queue.by_state("R"))
        queue.sweep()
        (then,) = queue.by_state("R")
        assert {name: getattr(then, name) for name in bad} == bad
    else:
        with pytest.raises(xq.NotFound):
            queue.group("import").stats()


def test_the_end_of_a_member_stands_if_then_cannot_be_put(make_shared, caplog):
    queue = make_shared(GROUPS, attributes={"checked": pw.IntegerField(null=True, unique=True)}).xq
    with queue.group("import", then={"name": "report", "checked": 7}) as group:
        group.put(task())
    other = queue.put(task(checked=7))
    queue.ack(queue.take())
    with caplog.at_level(logging.WARNING):
        assert (ready(queue), group.done) == ([other.name], False)
        queue.sweep()
    assert sum("the then of the group 'import'" in record.message for record in caplog.records) == 1
    queue.kill(other)
    assert (ready(queue), group.done) == (["report"], True)


def test_then_waits_for_a_taken_task_with_its_unique_value(make):
    Report = make({"unique": True}, roles=("unique", "priority"), model=None, attributes={"table_name": "report"})
    queue, report = make(GROUPS, model=make.model(table_name="other")).xq, {"name": "report", "job": "7"}
    Report.xq.put(report)
    running = Report.xq.take()
    with queue.group("import", then=(Report, report)) as group:
        group.put(task())
    queue.ack(queue.take())
    queue.sweep()
    assert (group.done, Report.xq.count("R")) == (False, 0)
    Report.xq.ack(running)
    queue.sweep()
    assert (group.done, Report.xq.count("R")) == (True, 1)


@pytest.mark.of_peewee("the threads' connections are Peewee's")
def test_a_put_into_the_open_block_of_another_thread_is_refused(server_db):
    queue = live(server_db)(GROUPS).xq
    with queue.group("import", then=REPORT) as group:
        group.put(task(name="member"))
        with pytest.raises(xq.BadValue, match="another thread's"):
            Work(server_db, lambda: group.put(task(name="stray"))).result()
    assert (names(queue.by_state("R")), group.stats()["total"]) == (["member"], 1)


def test_a_then_whose_unique_value_a_done_task_holds_is_skipped_and_the_group_says_so(make, caplog):
    queue = make(GROUPS | {"unique": "RTD", "keep": True}, roles=("runat", "unique", "priority")).xq
    queue.put({"name": "report", "job": "7"})
    queue.ack(queue.take())
    with queue.group("import", then={"name": "report", "job": "7"}) as group:
        group.put(task(name="member"))
    with caplog.at_level(logging.WARNING):
        queue.ack(queue.take())
        assert ready(queue) == []
        queue.sweep()
    assert (group.done, group.wait(0), group.then) == (True, True, "")
    assert group.stats() == {"R": 0, "T": 0, "B": 0, "done": 1, "failed": 0, "total": 1, "skipped": 1}
    (told,) = [record.message for record in caplog.records if "the then of" in record.message]
    assert told.startswith("the then of the group 'import' was left out: another task has its unique value, or ")


def test_a_then_that_cannot_be_put_any_more_is_replaced(make):
    attributes = {"table_name": "report", "made": pw.CharField(default="by a default")}
    Report = make({}, roles=("priority",), model=None, attributes=attributes)
    queue = make(GROUPS, model=make.model(table_name="other")).xq
    with queue.group("import", then=(Report, {"name": "report"})) as group:
        group.put(task())
    make.db.execute_sql("ALTER TABLE report RENAME TO renamed")
    queue.ack(queue.take())
    queue.sweep()
    assert (group.done, "report" in group.then) == (False, True)
    queue.group("import").then = {"name": "another"}
    assert (ready(queue), group.done) == (["another"], True)
    with pytest.raises(xq.BadValue, match="is done"):
        group.then = None
    with pytest.raises(xq.BadType, match="then is a task"):
        begun(queue, name="other")[0].then = 7
    with pytest.raises(xq.NotFound):
        queue.group("none").then = None
    queue.group("other").then = None
    assert (queue.group("other").kill(), queue.group("other").done, ready(queue)) == (2, True, ["another"])


@pytest.mark.of_peewee("another program needs Peewee's database")
def test_a_member_that_leaves_its_group_has_not_ended(make_shared):
    queue = make_shared(GROUPS).xq
    group, (_, other, last) = begun(queue, 3)
    model = queue.parts.store.model
    queue.ack(queue.take())
    leave = "UPDATE task SET xq_group = NULL WHERE id = {}"
    another_program(model._meta.database, leave.format(other.id))
    counts = {"R": 1, "T": 0, "B": 0, "done": 1, "failed": 0, "total": 2}
    assert (group.stats(), group.done) == (counts, False)
    another_program(model._meta.database, leave.format(last.id))
    assert ready(queue)[-1:] == ["report"]
    assert (group.done, group.stats()) == (True, counts | {"R": 0, "total": 1})


def test_open_groups_refuse_a_release_by_which_they_would_end_otherwise(make):
    Task = make(GROUPS, roles=("runat", "priority"))
    Report = make({}, roles=("priority",), model=None, attributes={"table_name": "report"})
    group, _ = begun(Task.xq, 1)
    with Task.xq.group("other", then=(Report, {"name": "report"})) as other:
        other.put(task())
    words = {"T": "T", "B": "B", "R": "ready"}
    lost = "task has open groups, {}: 2, 'import', 'other'; let them end"
    with pytest.raises(xq.ConfigurationError, match=lost.format("which need the feature 'groups'")):
        next_release(Task, features={"buried": True}).install()
    with pytest.raises(xq.ConfigurationError, match=lost.format("made with other words of statuses")):
        next_release(Task, statuses=words).install()
    del words["B"]
    with pytest.raises(xq.ConfigurationError, match=r"1, 'other'; .*; or set group\(name\).then = None there"):
        next_release(Report, statuses=words).install()
    other.then = None
    next_release(Report, statuses=words).install()
    group.kill()
    other.kill()
    Task.xq.kill_many(Task.xq.by_state("R"))
    next_release(Task, features={"buried": True}).install()


def test_truncate_drops_open_groups_without_then(queue):
    begun(queue, 3)
    queue.truncate()
    assert ready(queue) == []
    begun(queue, 3)


@pytest.mark.parametrize("features", [{}, {"utube": True}, {"utube": {"n": 1, "fair": True}}], ids=str)
def test_takes_skip_the_ready_members_of_a_paused_group(make, features):
    queue = make(GROUPS | features, roles=("runat", "priority", "tube") + ("utube",) * bool(features)).xq
    paused, others = (queue.group(name) for name in ("it's", "IT'S"))
    for group in (paused, others):
        with group:
            group.put_many([task(name=group.name, tube=tube, utube=f"{group.name}{tube}") for tube in ("x", "y", None)])
    queue.put(task(name="none", utube="none"))
    paused.pause(actor="ann", reason="full")
    paused.pause()
    assert [(each.tube, each.group, *each[2:4]) for each in queue.pauses()] == [(None, "it's", "ann", "full")]
    assert (paused.paused, others.paused, queue.paused(), paused.stats()["R"]) == (True, False, [], 3)
    assert queue.take(tube="x").name == "IT'S"
    assert queue.take(tube="x") is None
    queue.pause("y")
    assert sorted(names(queue.take_many(9))) == ["IT'S", "none"]
    queue.resume("y")
    assert names(queue.take_many(9)) == ["IT'S"]
    assert queue.take(0.01) is None
    paused.resume()
    assert (paused.paused, names(queue.take_many(9))) == (False, ["it's"] * 3)


def test_a_member_of_a_paused_group_says_why_it_does_not_run(queue):
    group, (member,) = begun(queue, 1)
    group.pause(reason="full")
    what, do = "the group 'import' is paused", "xq resume TARGET --group import"
    assert f"{what}: {do} ends that" in queue.why(member)
    assert (f"{what}: full", do) in queue.doctor()
    assert what in queue.health().sentence
    assert not any("is paused" in line for line in queue.why(queue.put(task())))


def test_the_pause_of_a_group_that_another_process_has_paused_ends_with_the_group(make_shared):
    queue = make_shared(GROUPS).xq
    group, _ = begun(queue)

    def pauses():
        group.pause()
        yield

    assert queue.take()  # it has read the pauses
    with another_process(make_shared.db, pauses) as other:
        next(other)
        queue.truncate()
        assert queue.pauses() == []


def test_a_pause_begins_with_its_commit_and_stays_until_its_group_is_resumed_or_forgotten(make):
    queue = make(GROUPS).xq
    group, _ = begun(queue, 1)
    with make.db.atomic() as transaction:
        group.pause()
        assert queue.take() is None
        transaction.rollback()
    assert (group.paused, queue.take().name) == (False, "member")
    group.pause()
    group.kill()
    assert (group.done, group.paused, queue.take().name) == (True, True, "report")
    begun(queue, 1)
    assert queue.take() is None
    queue.truncate()
    begun(queue, 1)
    assert (group.paused, queue.take().name) == (False, "member")


def test_takes_of_other_processes_wait_until_a_group_is_resumed(make_live):
    Task = make_live(GROUPS)
    group, (member,) = begun(Task.xq, 1)
    group.pause()

    def taker():
        waits = waiter(Task, lambda: Task.take(60))
        yield waits.goes_on
        yield waits.result().id

    with processes(make_live.db, taker) as (other,):
        assert next(other)
        group.resume()
        assert next(other) == member.id


def test_what_is_no_group_is_refused(make, queue):
    for bad, error in [((7,), xq.BadType), (("",), xq.BadValue), (("x" * 256,), xq.BadValue)]:
        with pytest.raises(error):
            queue.group(*bad)
    with pytest.raises(xq.BadValue, match="failed is 'run'"):
        queue.group("x", failed="hold")
    with pytest.raises(xq.FeatureOff, match="groups"):
        make(model=make.model(table_name="plain")).xq.group("x")


def test_the_last_end_is_seen_though_the_queue_is_not_maintained_by_who_ends_it(make_shared):
    queue = make_shared(GROUPS).xq
    group, members = begun(queue, 2)
    queue.transaction(lambda: [queue.ack(queue.take()) for _ in members])
    assert (ready(queue), group.done) == (["report"], True)


@pytest.mark.parametrize("by_workers", [False, True])
def test_groups_and_dependants_end_in_the_transaction_of_a_test(make, run_pending, by_workers):
    queue = make(GROUPS | {"after": True, "delayed": True}).xq
    seen = []
    queue.worker(lambda found: seen.append(found.name))
    with make.db.atomic() as test:
        group, members = begun(queue)
        queue.put(task(name="dependant"), after=members)
        if by_workers:
            run_pending(queue)
            assert seen == ["member", "member", "dependant", "report"]
        else:
            for _ in members:
                queue.ack(queue.take())
            assert ready(queue) == ["dependant", "report"]
        assert group.done
        test.rollback()


@pytest.mark.of_peewee("the threads' connections are Peewee's")
def test_a_transaction_whose_snapshot_lacks_a_member_does_not_end_its_group(server_db):
    queue = live(server_db)(GROUPS).xq
    queue.parts.maintenance.stop_maintenance()
    group, _ = begun(queue, 1)
    with server_db.atomic():
        assert group.stats()["R"] == 1
        Work(server_db, lambda: group.put(task(name="added"))).result()
        queue.ack(queue.take())
        queue.sweep()
        assert not group.done
    assert names(queue.by_state("R")) == ["added"]


@pytest.mark.of_peewee("the connections are Peewee's")
def test_a_stored_then_does_not_name_the_database_in_which_it_was_made(mariadb_db):
    begun(live(mariadb_db)(GROUPS).xq)
    ((stored,),) = mariadb_db.execute_sql("SELECT then_sql FROM task_xq_group").fetchall()
    assert mariadb_db.database not in stored


def test_a_table_may_have_any_name(make):
    queue = make(GROUPS, attributes={"table_name": "g", "name": pw.CharField(column_name="title")}).xq
    group, _ = begun(queue, 1)
    assert ready(queue) == ["member"]
    assert (group.kill(), ready(queue)) == (1, ["report"])


def test_coroutines_have_groups(make_shared):
    queue = make_shared(GROUPS).xq

    async def run():
        async with queue.aio.group("import", then=REPORT) as group:
            await group.put(task())
            await group.put_many(tasks(2))
        with suppress(ZeroDivisionError):
            async with queue.aio.group("other") as other:
                await other.put(task())
                raise ZeroDivisionError
        assert ((await group.stats())["R"], await queue.aio.groups()) == (3, ["import"])
        await group.pause()
        assert (await group.paused(), await queue.aio.take()) == (True, None)
        await group.resume()
        await queue.aio.ack(await queue.aio.take())
        with pytest.raises(xq.BadType, match="then is a task"):
            await group.set_then(7)
        await group.set_then({"name": "another"})
        assert (await group.kill(), await group.wait(5), await group.done(), await group.failed()) == (2, True, True, 2)

    asyncio.run(run())
    assert ready(queue) == ["another"]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.of_peewee("the threads' connections are Peewee's")
def test_of_two_last_members_that_end_at_once_one_puts_then(server_db, keep):
    queue = live(server_db)(GROUPS | {"keep": keep}).xq
    queue.parts.maintenance.stop_maintenance()
    group, _ = begun(queue)
    one, other = queue.take(), queue.take()
    with server_db.atomic():
        queue.ack(one)
        second = Work(server_db, lambda: queue.ack(other))
        if queue.parts.store.engine == "postgres":
            until_one_waits_for_a_lock(server_db)
        else:
            second.result()
    second.result()
    assert group.done
    assert names(queue.by_state("R")) == ["report"]


@pytest.mark.of_peewee("the threads' connections are Peewee's")
def test_a_group_to_which_a_member_is_added_as_its_last_one_ends_stays_open(server_db):
    queue = live(server_db)(GROUPS).xq
    queue.parts.maintenance.stop_maintenance()
    group, _ = begun(queue, 1)
    member = queue.take()
    with server_db.atomic():
        group.put(task(name="added"))
        last = Work(server_db, lambda: queue.ack(member))
        until_one_waits_for_a_lock(server_db)
    last.result()
    assert (group.done, names(queue.by_state("R"))) == (False, ["added"])
    queue.ack(queue.take())
    assert (group.done, names(queue.by_state("R"))) == (True, ["report"])


def test_groups_come_and_go_with_their_feature(make):
    Task = make(GROUPS)
    begun(Task.xq, 1)
    Task.xq.kill_many(Task.xq.by_state("R"))
    install_anew(Task, {"buried": True})
    assert not [name for name in Task.xq.parts.executor.installation.existing() if "group" in name]
    install_anew(Task, GROUPS, downgrade=True)
    with pytest.raises(xq.NotFound):
        Task.xq.group("import").stats()
    group, _ = begun(Task.xq, 1)
    assert (group.kill(), group.done) == (1, True)
    Task.xq.uninstall()
