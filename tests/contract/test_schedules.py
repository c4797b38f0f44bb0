"""every: each firing of a schedule puts one task, however many processes run, and what was missed is put once."""

from __future__ import annotations

import logging
import re
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.combining import AndTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

import xq
from tests.factories import task
from tests.steps import another_process, eventually, install_anew, is_exact
from tests.support.life import watch

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # the clock of a test begins here
DAY = 86_400
NEVER = (None, False, False, None, None, None)  # a schedule has neither fired nor been paused


def go_to(Task: Any, *at: int) -> int:
    """Set the clock, and say how many transitions the sweep made."""
    Task.xq.clock.now = datetime(*at, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    swept: int = Task.xq.sweep()
    return swept


def following(Task: Any) -> list[str]:
    """When each schedule fires next."""
    return [each.next.strftime("%d %H:%M:%S") for each in Task.xq.schedules()]


def names(Task: Any) -> list[str | None]:
    return [each.name for each in Task.select().order_by(Task.id)]


def test_a_cron_text_puts_a_task_at_each_of_its_times(make):
    Task = make()
    assert Task.xq.every("*/5 * * * *", {"name": "a"}, name="fives") == "fives"
    for minute, second, swept, then in ((14, 59, 0, "15"), (15, 0, 1, "20"), (15, 1, 0, "20"), (21, 0, 1, "25")):
        assert go_to(Task, 2023, 11, 14, 22, minute, second) == swept
        assert following(Task) == [f"14 22:{then}:00"]
    assert names(Task) == ["a", "a"]
    assert Task.take().name == "a"
    assert is_exact(Task)


def test_a_number_of_seconds_puts_a_task_each_time_that_they_have_passed(make):
    Task = make()
    for spec in (90, timedelta(seconds=90)):
        Task.xq.every(spec, task(), name=f"{spec}")
    for seconds, swept, then in (
        (0, 0, "14 22:14:50"),
        (89, 0, "14 22:14:50"),
        (1, 2, "14 22:16:20"),
        (100, 2, "14 22:17:50"),  # the firings stay on their grid, also after one that was late
        (10 * DAY, 2, "24 22:17:50"),  # what fell due while no process ran is put once
        (0, 0, "24 22:17:50"),
    ):
        Task.xq.clock.tick(seconds)
        assert (Task.xq.sweep(), following(Task)) == (swept, [then] * 2)


def test_a_datetime_puts_a_task_once(make):
    Task, at = make(), START + timedelta(seconds=10)
    Task.xq.every(at, {"name": "a"}, name="once")
    assert following(Task) == ["14 22:13:30"]
    Task.xq.clock.tick(100)
    assert [Task.xq.sweep(), Task.xq.sweep()] == [1, 0]
    Task.xq.every(at, {"name": "a"}, name="once")  # by a program that starts again, say
    assert [Task.xq.schedules(), Task.xq.sweep()] == [[], 0]
    Task.xq.every(at + timedelta(days=1), {"name": "b"}, name="once")
    Task.xq.clock.tick(DAY)
    assert Task.xq.sweep() == 1
    assert names(Task) == ["a", "b"]
    Task.xq.every(datetime(2023, 11, 14, 12), {"name": "late"}, name="past", tz="Europe/Berlin")
    assert following(Task) == ["14 11:00:00"]
    assert [Task.xq.sweep(), Task.xq.sweep()] == [1, 0]


def test_triggers_of_apscheduler_fire_by_all_of_their_fields(make):
    Task, start, until = make(), START + timedelta(hours=1), START + timedelta(seconds=15)
    cron = datetime(2023, 11, 15, 18, 0, 7, tzinfo=UTC)
    triggers = {
        CronTrigger(hour="3", minute="*/30", second=7, day_of_week="thu", timezone="Asia/Tokyo"): (cron, "Asia/Tokyo"),
        CronTrigger(second="*/10", end_date=until, timezone=UTC): (START + timedelta(seconds=10), "UTC"),
        DateTrigger(start.astimezone(ZoneInfo("Europe/Berlin"))): (start, "Europe/Berlin"),
        IntervalTrigger(minutes=7, start_date=start, timezone=UTC): (start, "UTC"),
    }
    for n, trigger in enumerate(triggers):
        Task.xq.every(trigger, task(), name=f"{n}")
    assert [(each.next, each.tz) for each in Task.xq.schedules()] == [*triggers.values()]
    for seconds, swept, left in ((20, 1, [cron, start, start]), (3600, 2, [cron, start + timedelta(minutes=7)])):
        Task.xq.clock.tick(seconds)
        assert Task.xq.sweep() == swept
        assert [each.next for each in Task.xq.schedules()] == left


# a trigger of Berlin, whose clocks are changed at 01:00 UTC -> the day before, and when it fires, in UTC
NIGHT, MIDNIGHT = ({"hour": 2, "minute": 30}, {"hour": 0, "minute": 0})
CHANGES: dict[str, tuple[dict[str, int], tuple[int, int, int], list[str]]] = {
    "a time that is skipped fires at the change": (NIGHT, (2026, 3, 28), ["29 01:00", "30 00:30"]),
    "the midnight after one is skipped is not missed": (MIDNIGHT, (2026, 3, 28), ["28 23:00", "29 22:00"]),
    "a time that comes twice fires twice": (NIGHT, (2026, 10, 24), ["25 00:30", "25 01:30", "26 01:30"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_where_the_clocks_are_changed(make, what):
    spec, (year, month, day), fires = CHANGES[what]
    Task = make()
    go_to(Task, year, month, day, 12, 30)
    Task.xq.every(CronTrigger(**spec, timezone="Europe/Berlin"), task(), name="a")
    fired = []
    for half in range(48 * 2):
        now = datetime(year, month, day, 12, tzinfo=UTC) + timedelta(minutes=30 * half)
        if now.timestamp() > Task.xq.clock.now and go_to(Task, *now.timetuple()[:5]):
            fired.append(now.strftime("%d %H:%M"))
    assert fired[: len(fires)] == fires


def test_a_repeated_call_keeps_the_next_firing_and_another_spec_replaces_it(make):
    Task = make()
    Task.xq.every(60, {"name": "a"}, name="one")
    Task.xq.clock.tick(50)
    for spec, then in ((60, 60), (70, 120)):
        Task.xq.every(spec, {"name": "b"}, name="one")
        (found,) = Task.xq.schedules()
        assert (found.next, found.task, found.spec) == (START + timedelta(seconds=then), {"name": "b"}, spec)


def test_a_schedule_without_a_name_is_named_by_its_task(make):
    Task = make({"delayed": True})
    assert Task.xq.every(60, {"name": "a", "size": 1}) == '{"name": "a", "size": 1}'
    assert Task.xq.every(70, {"size": 1, "name": "a"}) == '{"name": "a", "size": 1}'
    assert Task.xq.every(60, {"name": "a"}, delay=5) == '{"options": {"delay": 5}, "task": {"name": "a"}}'
    assert len(Task.xq.every(60, {"name": "a" * 300})) == 64
    assert sorted(each.spec for each in Task.xq.schedules()) == [60, 60, 70]


def test_schedules_are_listed_by_name(make):
    Task, Other = make({"delayed": True}), make(model=make.model(table_name="other"))
    Task.xq.every(60, task(), name="b")
    Task.xq.every("0 12 * * mon-fri", {"name": "x"}, name="a", tz="Europe/Berlin", delay=5)
    Other.xq.every(60, task(), name="a")
    first, second = Task.xq.schedules()
    then = datetime(2023, 11, 15, 11, tzinfo=UTC)
    assert first == ("a", "0 12 * * mon-fri", {"name": "x"}, {"delay": 5}, then, "Europe/Berlin", *NEVER)
    assert (second.name, second.spec, second.tz) == ("b", 60, "UTC")


def test_a_schedule_that_is_run_puts_its_task_and_keeps_its_next_firing(make):
    Task = make({"history": True})
    Task.xq.every(60, task(), name="a")
    Task.xq.clock.tick(50)
    ran = [Task.xq.run_schedule(name, actor="ann", reason="tax day") for name in "ab"]
    assert (ran, [(row.actor, row.reason) for row in Task.xq.history()]) == ([True, False], [("ann", "tax day")])
    (found,) = Task.xq.schedules()
    assert (found.last, found.next) == (START + timedelta(seconds=50), START + timedelta(seconds=60))
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    assert Task.xq.schedules()[0].last == START + timedelta(seconds=60)


def test_a_paused_schedule_does_not_fire_and_fires_at_its_next_time_after_it_is_resumed(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    Task.xq.every(START + timedelta(seconds=60), task(), name="once")
    for name in ("a", "once"):
        assert Task.xq.pause_schedule(name)
    Task.xq.clock.tick(190)
    assert Task.xq.sweep() == 0
    assert [(each.paused, each.overdue) for each in Task.xq.schedules()] == [(True, False)] * 2
    assert Task.xq.run_schedule("a")
    for name in ("a", "once", "none"):
        assert Task.xq.resume_schedule(name) is (name != "none")
    assert (Task.xq.sweep(), [(each.name, each.paused) for each in Task.xq.schedules()]) == (0, [("a", False)])
    assert following(Task) == ["14 22:17:20"], "by its grid; that of the other one is over"
    Task.xq.clock.tick(50)
    assert Task.xq.resume_schedule("a")
    assert Task.xq.sweep() == 1, "to resume one that is not paused skips no firing"


def test_a_schedule_that_has_been_due_for_a_minute_is_overdue(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    for seconds, overdue in ((120, False), (1, True)):
        Task.xq.clock.tick(seconds)
        assert [each.overdue for each in Task.xq.schedules()] == [overdue]


@pytest.mark.parametrize("spec", [60, "* * * * *", CronTrigger(second=0, timezone=UTC)])
def test_a_schedule_is_overdue_after_the_clock_was_set_back_until_it_is_paused_and_resumed(make, spec):
    Task = make()
    later = IntervalTrigger(minutes=7, start_date=START + timedelta(days=1), timezone=UTC)
    for name, each in (("a", spec), ("once", START + timedelta(days=1)), ("later", later)):
        Task.xq.every(each, task(), name=name)
    assert {each.name: each.overdue for each in Task.xq.schedules()} == {"a": False, "once": False, "later": False}
    assert Task.xq.doctor() == []
    Task.xq.clock.tick(-3600)
    assert {each.name: each.overdue for each in Task.xq.schedules()} == {"a": True, "once": False, "later": False}
    (found,) = Task.xq.doctor()
    assert found.what == "the schedule 'a' fires later than its spec says: the database's clock was set back"
    Task.xq.pause_schedule("a")
    assert not Task.xq.schedules()[0].overdue
    Task.xq.resume_schedule("a")
    assert not Task.xq.schedules()[0].overdue
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1


def test_an_unscheduled_task_is_not_put_again(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1
    assert [Task.xq.unschedule("a"), Task.xq.unschedule("a")] == [True, False]
    Task.xq.clock.tick(60)
    assert (Task.xq.sweep(), Task.xq.schedules()) == (0, [])


def test_schedules_count_when_their_transaction_is_committed(make):
    Task = make()
    with make.db.atomic() as transaction:
        Task.xq.every(60, task(), name="a")
        assert len(Task.xq.schedules()) == 1
        transaction.rollback()
    assert Task.xq.schedules() == []
    with make.db.atomic():
        Task.xq.every(60, task(), name="a")
    with make.db.atomic() as transaction:
        Task.xq.unschedule("a")
        transaction.rollback()
    Task.xq.clock.tick(60)
    with make.db.atomic() as transaction:
        assert Task.xq.sweep() == 1
        transaction.rollback()
    assert Task.xq.sweep() == 1
    assert Task.xq.count() == 1


def test_schedules_and_pauses_survive_other_features_and_not_uninstall(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    Task.xq.pause()
    install_anew(Task, {"buried": True})
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1
    assert Task.take() is None
    Task.xq.uninstall()
    Task.xq.install()
    assert Task.xq.schedules() == Task.xq.paused() == []
    assert Task.take() is not None


def test_the_task_may_be_an_instance_a_sequence_or_a_mapping_and_has_the_options_of_put(make):
    Task = make({"delayed": True, "ttr": 60}, roles=("runat", "tube", "ttr"))
    Task.xq.every(60, Task(name="a", size=1, tube="x"), name="a")
    Task.xq.every(60, {"name": "b"}, name="b", delay=5, ttr=7)
    data = Task(name="c", size=3).__data__ | {"status": None}
    Task.xq.every(60, [data.get(name) for name in Task._meta.sorted_field_names], name="c")
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 3
    rows = Task.select(Task.name, Task.size, Task.status, Task.tube, Task.ttr).order_by(Task.name).tuples()
    assert list(rows) == [("a", 1, "R", "x", None), ("b", 0, "W", None, 7.0), ("c", 3, "R", None, None)]


# what is given besides the task {"name": "a"} and the name "a", or in their place -> the error
BAD: list[tuple[Any, dict[str, Any], type[Exception], str | None]] = [
    ("* * * *", {}, xq.BadValue, "give five fields"),
    ("61 * * * *", {}, xq.BadValue, "'61' is no minute: give .* numbers from 0 to 59"),
    ("0 0 30 2 *", {}, xq.BadValue, "'0 0 30 2 [*]' never fires"),
    (0, {}, xq.BadValue, "at least a microsecond, not 0"),
    (True, {}, xq.BadType, "a schedule fires by .* not by True"),
    (AndTrigger([IntervalTrigger(seconds=5)]), {}, xq.BadType, "a AndTrigger cannot be stored"),
    (CronTrigger(hour=3, timezone=timezone(timedelta(hours=2))), {}, xq.BadType, "a time zone has a name"),
    (IntervalTrigger(seconds=5, timezone=UTC), {"tz": "UTC"}, xq.BadValue, "leave tz= out"),
    (60, {"tz": "../etc/passwd"}, xq.BadValue, "there is no time zone"),
    (datetime.max, {"tz": "America/New_York"}, xq.BadValue, "outside of the years 1 to 9999 in UTC"),
    (datetime.max.replace(tzinfo=UTC), {"tz": "Asia/Tokyo"}, xq.BadValue, "or in its time zone"),
    (60, {"name": ""}, xq.BadValue, "a name of 1 to 255 characters, not 0"),
    (60, {"name": 7}, xq.BadType, "a schedule is named by text, not by 7"),
    (60, {"delay": 5}, xq.FeatureOff, "delay"),
    (60, {"wait": 5}, xq.BadValue, "takes no wait, since no caller waits"),
    (60, {"task": {"status": "T"}}, xq.BadValue, "'status'.*the queue's own"),
    (60, {"task": {"name": b"x"}}, xq.BadType, "the field 'name' of a scheduled task is stored as JSON"),
]


def test_what_cannot_be_a_schedule_is_refused(make, subtests):
    Task = make()
    for spec, given, error, words in BAD:
        options = {"name": "a", **given}
        with subtests.test(f"{spec} {given}"), pytest.raises(error, match=words):
            Task.xq.every(spec, options.pop("task", {"name": "a"}), **options)
    with pytest.raises(xq.BadType, match="a schedule is named by text"):
        Task.xq.unschedule(7)
    assert Task.xq.schedules() == []


def test_what_workers_start_with_replaces_what_programs_have_declared_before(make_shared):
    def specs(Task: Any) -> dict[str, object]:
        return {each.name: each.spec for each in Task.xq.schedules()}

    def started(schedules: Any) -> dict[str, object]:
        Task = make_shared({"delayed": True}, schedules=schedules, worker=lambda task: None)
        Task.xq.run(until_empty=True)
        return specs(Task)

    Task = make_shared({"delayed": True})
    Task.xq.every(60, task(), name="own")
    first: dict[str, object] = {
        "nightly": ("0 3 * * *", {"name": "a"}),
        "b": (60, task(), {"delay": 5}),
        "own": ("@daily", {"name": "c"}),
    }
    assert started(first) == {"b": 60, "nightly": "0 3 * * *", "own": "@daily"}
    Task.xq.every(60, task(), name="own")
    make_shared({"delayed": True}, schedules={})  # by itself it changes nothing
    assert started(None) == {"b": 60, "nightly": "0 3 * * *", "own": 60}
    over = CronTrigger(hour=3, end_date=START - timedelta(days=1), timezone=UTC)
    second = {"nightly": ["@daily", {"name": "a"}, {"tz": "Europe/Berlin"}], "over": (over, task())}
    assert started(second) == {"nightly": "@daily", "own": 60}
    assert Task.xq.schedules()[0].tz == "Europe/Berlin"
    assert started({}) == {"own": 60}


def test_an_older_set_of_schedules_does_not_replace_a_newer_one_only_if_it_is_told_to(make_shared, caplog):
    caplog.set_level(logging.INFO, "xq.Task")

    def started(schedules: Any, **installed: Any) -> tuple[dict[str, object], list[str]]:
        Task = make_shared(schedules=schedules, worker=lambda task: None)
        if installed:
            Task.xq.install(**installed)
        caplog.clear()
        Task.xq.run(until_empty=True)
        lines = [each for each in caplog.messages if re.match("schedule '|the schedules", each)]
        return {each.name: each.spec for each in Task.xq.schedules()}, lines

    one = {"nightly": ("0 3 * * *", {"name": "a"}), "old": (60, task())}
    two = {"nightly": ("30 4 * * *", {"name": "a"}, {"tz": "Europe/Berlin"})}
    assert started({}) == ({}, [])
    added = "schedule 'nightly' of Task: added, '0 3 * * *'", "schedule 'old' of Task: added, every 60 s"
    assert started(one) == ({"nightly": "0 3 * * *", "old": 60}, [*added])
    assert started(one) == ({"nightly": "0 3 * * *", "old": 60}, [])
    changed = "schedule 'nightly' of Task: '0 3 * * *' is now '30 4 * * *' Europe/Berlin"
    assert started(two) == ({"nightly": "30 4 * * *"}, [changed, "schedule 'old' of Task: removed, every 60 s"])
    for older in (one, {}):
        found, (line,) = started(older)
        assert found == {"nightly": "30 4 * * *"}
        assert caplog.records[caplog.messages.index(line)].levelname == "WARNING"
        assert ("others have replaced them" in line, "Start the newer program" in line) == (True, True)
    assert started(one, downgrade=True)[0] == {"nightly": "0 3 * * *", "old": 60}
    assert started(two)[0] == {"nightly": "0 3 * * *", "old": 60}, "which is older from now on"
    assert started({"old": (60, {"name": "b"})}) == (
        {"old": 60},
        [
            f"schedule {each}"
            for each in (
                "'nightly' of Task: removed, '0 3 * * *'",
                "'old' of Task: every 60 s puts another task from now on",
            )
        ],
    )


def test_a_schedule_that_is_paused_says_who_has_paused_it_and_the_doctor_names_it_after_a_day(make):
    Task = make()
    Task.xq.every(60, task(), name="a b")
    for actor in ("ann", "bob"):
        Task.xq.pause_schedule("a b", actor=actor, reason="load")
        Task.xq.clock.tick(DAY / 2)
    (paused,) = Task.xq.schedules()
    assert (paused.since, paused.actor, paused.reason) == (START, "ann", "load")
    assert not [what for what, _ in Task.xq.doctor() if "a b" in what]
    Task.xq.clock.tick(1)
    (told,) = [each for each in Task.xq.doctor() if "a b" in each.what]
    assert told == ("the schedule 'a b' is paused for 24 h by ann: load", "xq schedule TARGET resume 'a b'")
    Task.xq.resume_schedule("a b")
    assert (Task.xq.schedules()[0][-3:], Task.xq.doctor()) == ((None, None, None), [])


@pytest.mark.parametrize("declared", [{}, {"b": (START, {"name": "b"})}], ids=["stored", "declared too"])
def test_what_is_due_when_a_run_until_empty_starts_is_put_and_worked_on(make_shared, declared):
    more = {"schedules": declared} if declared else {}
    Task = make_shared({"keep": True}, worker=lambda task: None, workers=2, **more)
    Task.xq.every(60, {"name": "a"})
    Task.xq.clock.tick(60)
    Task.xq.run(until_empty=True)
    assert sorted(task.name for task in Task.xq.by_state("D")) == ["a", *declared]


# what is declared as "a" -> what the error says
DECLARED: list[tuple[Any, str]] = [
    ("0 3 * * *", r"schedules= of Task has \(spec, task\) or .* for 'a': too many values"),
    ((60, task(), 5), "for 'a': 'int' object"),
    ((60, task(), {}, {}), "for 'a': too many values"),
    (("61 * * * *", task()), "'a': .*'61' is no minute"),
    (("0 0 30 2 *", task()), "'a': .*never fires"),
    ((60, {"nam": "a"}), "'a': .*nam"),
    ((60, task(), {"delay": 5}), "'a': .*delay"),
    ((60, task(), {"tz": "Nowhere"}), "'a': there is no time zone"),
]


def test_a_declaration_that_cannot_be_a_schedule_is_refused_by_upgrade(make, subtests):
    for value, words in [*DECLARED, (None, "schedules= maps names")]:
        with subtests.test(words), pytest.raises(xq.ConfigurationError, match=words):
            make(schedules={"a": value} if value else [("a", 60)])


def test_a_task_that_cannot_be_put_stays_due_and_stops_no_other(make):
    Task, Other = make({"limit": 1}), make(model=make.model(table_name="other"))
    Task.put({"name": "first"})
    Task.xq.every(60, {"name": "a"}, name="a")
    Other.xq.every(60, task(), name="b")
    Task.xq.clock.tick(60)
    assert [Task.xq.sweep(), Task.xq.sweep(), Other.xq.sweep()] == [0, 0, 1]
    assert following(Task) == ["14 22:14:20"]
    Task.take().ack()
    assert Task.xq.sweep() == 1
    assert names(Task) == ["a"]


# a stored spec -> why this process cannot fire it
UNREADABLE = {
    '{"cron": "* * * * *", "tz": "Mars/Base"}': "no time zone 'Mars/Base' on this machine",
    '{"seconds": 60.0, "tz": "UTC", "weight": 2}': "another version",
    '{"seconds": "x", "tz": "UTC"}': "unsupported type",
    "[": "is damaged",
}


def test_a_schedule_that_this_process_cannot_read_waits_alone_and_is_listed_with_the_reason(make, caplog):
    Task = make()
    for n, spec in enumerate([*UNREADABLE, ""]):
        Task.xq.every(60, {"name": f"{n}"}, name=f"{n}")
        make.db.execute_sql(f"UPDATE xq_schedule SET spec = '{spec}' WHERE name = '{n}' AND '{spec}' <> ''")
    Task.xq.clock.tick(60)
    assert [Task.xq.sweep(), Task.xq.sweep(), names(Task)] == [1, 0, [f"{len(UNREADABLE)}"]]
    for each, (spec, why) in zip(Task.xq.schedules(), UNREADABLE.items(), strict=False):
        assert (each.spec, each.task, why in each.next) == (spec, {"name": each.name}, True)
        assert [why in line for line in caplog.messages if f"the schedule {each.name!r} " in line] == [True]
    make.db.execute_sql("UPDATE xq_schedule SET spec = REPLACE(spec, 'Mars/Base', 'UTC')")
    assert Task.xq.sweep() == 1


def test_utc_needs_no_data_of_time_zones(make, monkeypatch):
    Task = make()
    for module in ("tzdata", *(each for each in sys.modules if each.startswith("tzdata."))):
        monkeypatch.setitem(sys.modules, module, None)
    zoneinfo.reset_tzpath([])
    ZoneInfo.clear_cache()
    try:
        for n, spec in enumerate((60, "* * * * *", START, CronTrigger(second=0, timezone=UTC))):
            Task.xq.every(spec, task(), name=f"{n}")
        Task.xq.clock.tick(60)
        assert Task.xq.sweep() == 4
    finally:
        zoneinfo.reset_tzpath()


def test_another_process_sees_a_schedule_and_its_end(make_live):
    Task = make_live()
    watch(Task)

    def child():
        Task.xq.every(0.2, {"name": "a"}, name="a")
        yield
        yield Task.xq.unschedule("a")

    with another_process(make_live.db, child) as other:
        next(other)
        other.stop()
        eventually(lambda: Task.xq.count() >= 3)
        other.go_on()
        assert next(other) is True
    n = Task.xq.count()
    Task.xq.every(0.2, {"name": "b"}, name="b")
    eventually(lambda: names(Task).count("b") >= 3)
    assert names(Task).count("a") == n
