"""every: each firing of a schedule puts one task, however many processes run, and what was missed is put once."""

from __future__ import annotations

import logging
import time
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import peewee as pw
import pytest
from apscheduler.triggers.combining import AndTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

import xq
from tests.factories import task
from tests.steps import PATIENCE, another_process, eventually, is_exact, processes
from tests.support.life import watch

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # the clock of a test begins here
DAY = 86_400
LONG = 60.0  # seconds
MANY = 4  # processes


def go_to(Task: Any, year: int, *at: int, zone: str = "UTC") -> int:
    """Set the clock, and say how many transitions the sweep made."""
    month, day, hour, minute, second = [*at, 0, 0, 0][:5]
    Task.xq.clock.now = datetime(year, month, day, hour, minute, second, tzinfo=ZoneInfo(zone)).timestamp()
    swept: int = Task.xq.sweep()
    return swept


def following(Task: Any) -> list[str]:
    """When each schedule fires next."""
    return [each.next.strftime("%d %H:%M:%S") for each in Task.xq.schedules()]


def names(Task: Any) -> list[str | None]:
    return [each.name for each in Task.select().order_by(Task.id)]


# when it fires


def test_a_cron_text_puts_a_task_at_each_of_its_times(make):
    Task = make()
    assert Task.xq.every("*/5 * * * *", {"name": "a"}, name="fives") == "fives"
    assert Task.xq.sweep() == 0
    assert go_to(Task, 2023, 11, 14, 22, 14, 59) == 0
    assert go_to(Task, 2023, 11, 14, 22, 15) == 1
    assert Task.xq.sweep() == 0
    assert following(Task) == ["14 22:20:00"]
    assert go_to(Task, 2023, 11, 14, 22, 21) == 1
    assert names(Task) == ["a", "a"]
    assert Task.take().name == "a"
    assert is_exact(Task)


@pytest.mark.parametrize("spec", [90, 90.0, timedelta(seconds=90)])
def test_a_number_of_seconds_puts_a_task_each_time_that_they_have_passed(make, spec):
    Task = make()
    Task.xq.every(spec, task(), name="a")
    assert following(Task) == ["14 22:14:50"]
    Task.xq.clock.tick(89)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    assert following(Task) == ["14 22:16:20"]
    Task.xq.clock.tick(100)  # the firings stay on their grid, also after one that was late
    assert Task.xq.sweep() == 1
    assert following(Task) == ["14 22:17:50"]


def test_a_datetime_puts_a_task_once(make):
    Task = make()
    at = START + timedelta(seconds=10)
    for _ in range(2):
        Task.xq.every(at, {"name": "a"}, name="once")
    assert following(Task) == ["14 22:13:30"]
    Task.xq.clock.tick(100)
    assert [Task.xq.sweep(), Task.xq.sweep()] == [1, 0]
    assert Task.xq.schedules() == []
    Task.xq.every(at, {"name": "a"}, name="once")  # by a program that starts again, say
    assert [Task.xq.schedules(), Task.xq.sweep()] == [[], 0]
    Task.xq.every(at + timedelta(days=1), {"name": "b"}, name="once")
    Task.xq.clock.tick(DAY)
    assert Task.xq.sweep() == 1
    assert names(Task) == ["a", "b"]


def test_a_datetime_that_has_passed_puts_its_task_at_once(make):
    Task = make()
    Task.xq.every(START - timedelta(days=1), task(), name="late")
    assert [Task.xq.sweep(), Task.xq.sweep()] == [1, 0]


def test_what_fell_due_while_no_process_ran_is_put_once(make):
    Task = make()
    Task.xq.every("*/5 * * * *", task(), name="cron")
    Task.xq.every(60, task(), name="interval")
    Task.xq.clock.tick(10 * DAY)
    assert Task.xq.sweep() == 2
    assert Task.xq.sweep() == 0
    assert following(Task) == ["24 22:15:00", "24 22:14:20"]


def test_triggers_of_apscheduler_fire_by_all_of_their_fields(make):
    Task = make()
    start = START + timedelta(hours=1)
    triggers = {
        "cron": CronTrigger(hour="3", minute="*/30", second=7, day_of_week="thu", timezone="Asia/Tokyo"),
        "date": DateTrigger(start.astimezone(ZoneInfo("Europe/Berlin"))),
        "interval": IntervalTrigger(minutes=7, start_date=start, timezone=UTC),
        "until": CronTrigger(second="*/10", end_date=START + timedelta(seconds=15), timezone=UTC),
    }
    for name, trigger in triggers.items():
        Task.xq.every(trigger, task(), name=name)
    cron, once, interval, until = Task.xq.schedules()
    assert cron.next == datetime(2023, 11, 15, 18, 0, 7, tzinfo=UTC)
    assert (str(cron.spec.fields[5]), cron.spec.fields[4].name, cron.tz) == ("3", "day_of_week", "Asia/Tokyo")
    assert (once.next, once.spec, once.tz) == (start, start, "Europe/Berlin")
    assert (interval.next, interval.spec.interval, interval.spec.start_date) == (start, timedelta(minutes=7), start)
    assert until.next == START + timedelta(seconds=10)
    Task.xq.clock.tick(20)
    assert Task.xq.sweep() == 1
    assert "until" not in [each.name for each in Task.xq.schedules()]
    Task.xq.clock.tick(3600)
    assert Task.xq.sweep() == 2
    assert [each.next for each in Task.xq.schedules()] == [cron.next, start + timedelta(minutes=7)]
    Task.xq.every(triggers["cron"], task(), name="cron")
    assert Task.xq.schedules()[0].next == cron.next


# time zones


def test_a_cron_text_follows_the_clocks_of_its_zone(make):
    Task = make()
    for tz in ("Asia/Tokyo", ZoneInfo("America/New_York"), UTC, None):
        Task.xq.every("30 8 * * *", task(), name=f"{tz}", tz=tz)
    assert {each.name: (each.next.hour, each.tz) for each in Task.xq.schedules()} == {
        "Asia/Tokyo": (23, "Asia/Tokyo"),
        "America/New_York": (13, "America/New_York"),
        "UTC": (8, "UTC"),
        "None": (8, "UTC"),
    }


def test_a_datetime_without_a_zone_is_of_the_zone_of_its_schedule(make):
    Task = make()
    at = datetime(2023, 11, 20, 12)
    Task.xq.every(at, task(), name="here", tz="Europe/Berlin")
    Task.xq.every(at, task(), name="utc")
    assert [each.next.hour for each in Task.xq.schedules()] == [11, 12]
    assert Task.xq.schedules()[0].spec == at.replace(tzinfo=ZoneInfo("Europe/Berlin"))


def test_a_time_that_the_clocks_skip_fires_when_they_are_changed(make):
    Task = make()
    go_to(Task, 2026, 3, 28, 12)
    Task.xq.every("30 2 * * *", task(), name="a", tz="Europe/Berlin")
    assert following(Task) == ["29 01:00:00"]
    assert go_to(Task, 2026, 3, 29, 0, 59, 59) == 0
    assert go_to(Task, 2026, 3, 29, 1) == 1
    assert following(Task) == ["30 00:30:00"]


def test_each_hour_fires_once_when_the_clocks_are_put_forward(make):
    Task = make()
    go_to(Task, 2026, 3, 28, 23, 30)
    Task.xq.every("0 * * * *", task(), name="a", tz="Europe/Berlin")
    assert [go_to(Task, 2026, 3, 29, hour) for hour in range(6)] == [1] * 6


def test_the_midnight_after_the_clocks_are_put_forward_is_not_missed(make):
    Task = make()
    go_to(Task, 2026, 3, 28, 12)
    Task.xq.every("0 0 * * *", task(), name="a", tz="Europe/Berlin")
    swept = [go_to(Task, 2026, 3, day, zone="Europe/Berlin") for day in (29, 30, 31)]
    assert swept == [1, 1, 1]


def test_a_time_that_comes_twice_fires_twice(make):
    Task = make()
    go_to(Task, 2026, 10, 24, 12)
    Task.xq.every("30 2 * * *", task(), name="a", tz="Europe/Berlin")
    times = []
    for hour in range(12, 60):
        if go_to(Task, 2026, 10, 24 + hour // 24, hour % 24, 30):
            times.append((24 + hour // 24, hour % 24))
    assert times == [(25, 0), (25, 1), (26, 1)]


def test_each_hour_fires_once_when_the_clocks_are_put_back(make):
    Task = make()
    go_to(Task, 2026, 10, 24, 23, 30)
    Task.xq.every("0 * * * *", task(), name="a", tz="Europe/Berlin")
    assert [go_to(Task, 2026, 10, 25, hour) for hour in range(6)] == [1] * 6


# schedules by their names


def test_a_repeated_call_keeps_the_next_firing_and_another_spec_replaces_it(make):
    Task = make()
    Task.xq.every(60, {"name": "a"}, name="one")
    Task.xq.clock.tick(50)
    Task.xq.every(60, {"name": "b"}, name="one")
    (found,) = Task.xq.schedules()
    assert (found.next, found.task) == (START + timedelta(seconds=60), {"name": "b"})
    Task.xq.every(70, {"name": "b"}, name="one")
    (found,) = Task.xq.schedules()
    assert (found.next, found.spec) == (START + timedelta(seconds=120), 70)


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
    assert first == (
        "a",
        "0 12 * * mon-fri",
        {"name": "x"},
        {"delay": 5},
        datetime(2023, 11, 15, 11, tzinfo=UTC),
        "Europe/Berlin",
    )
    assert (first.name, second.name, second.spec, second.tz) == ("a", "b", 60, "UTC")
    assert first.next.tzinfo is UTC


def test_an_unscheduled_task_is_not_put_again(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1
    assert Task.xq.unschedule("a") is True
    assert Task.xq.unschedule("a") is False
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 0
    assert Task.xq.schedules() == []
    Task.xq.every(60, task(), name="a")
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1


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


def test_schedules_survive_reconfigure_and_not_uninstall(make):
    Task = make()
    Task.xq.every(60, task(), name="a")
    Task.xq.reconfigure({"buried": True})
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 1
    Task.xq.uninstall()
    Task.xq.install()
    assert Task.xq.schedules() == []


# the task


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


def test_defaults_are_made_anew_for_each_task(make):
    made = iter(range(10, 20))
    Task = make(attributes={"size": pw.IntegerField(default=lambda: next(made))})
    Task.xq.every(60, {"name": "a"}, name="a")
    for _ in range(2):
        Task.xq.clock.tick(60)
        Task.xq.sweep()
    sizes = [each.size for each in Task.select().order_by(Task.id)]
    assert sizes[1] == sizes[0] + 1


@pytest.mark.parametrize("value", [date(2024, 1, 1), b"x", object(), {1, 2}, float("nan"), (1, 2), {1: 2}])
def test_a_value_that_json_cannot_hold_is_refused_by_name(make, value):
    class Any_(pw.TextField):
        def db_value(self, value):
            return repr(value)

    Task = make(attributes={"name": Any_(null=True)})
    with pytest.raises(xq.BadType, match="the field 'name' of a scheduled task is stored as JSON"):
        Task.xq.every(60, {"name": value}, name="a")
    assert Task.xq.schedules() == []


BAD: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("* * * *",), {}, xq.BadValue, "expected 5"),
    (("61 * * * *",), {}, xq.BadValue, "higher than the maximum value"),
    (("0 0 30 2 *",), {}, xq.BadValue, "'0 0 30 2 [*]' never fires"),
    ((0,), {}, xq.BadValue, "at least a microsecond, not 0"),
    ((timedelta(seconds=-1),), {}, xq.BadValue, "at least a microsecond"),
    ((float("inf"),), {}, xq.BadValue, "at least a microsecond"),
    ((True,), {}, xq.BadType, "a schedule fires by .* not by True"),
    ((date(2024, 1, 1),), {}, xq.BadType, "a schedule fires by"),
    ((AndTrigger([IntervalTrigger(seconds=5)]),), {}, xq.BadType, "a AndTrigger cannot be stored"),
    ((CronTrigger(hour=3, timezone=timezone(timedelta(hours=2))),), {}, xq.BadType, "a time zone has a name"),
    ((IntervalTrigger(seconds=5, timezone=UTC),), {"tz": "UTC"}, xq.BadValue, "leave tz= out"),
    ((60,), {"tz": "Europe/Nowhere"}, xq.BadValue, "there is no time zone 'Europe/Nowhere'"),
    ((60,), {"tz": "../etc/passwd"}, xq.BadValue, "there is no time zone"),
    ((60,), {"tz": 2}, xq.BadType, "a time zone has a name"),
    ((60,), {"name": ""}, xq.BadValue, "a name of 1 to 255 characters, not 0"),
    ((60,), {"name": "a" * 256}, xq.BadValue, "a name of 1 to 255 characters, not 256"),
    ((60,), {"name": 7}, xq.BadType, "a schedule is named by text, not by 7"),
    ((60,), {"delay": 5}, xq.FeatureOff, "delay"),
    ((60,), {"ttr": "x"}, xq.Error, "ttr"),
]


@pytest.mark.parametrize(("spec", "options", "error", "words"), BAD)
def test_what_cannot_be_a_schedule_is_refused(make, spec, options, error, words):
    Task = make()
    with pytest.raises(error, match=words):
        Task.xq.every(*spec, task(), **{"name": "a", **options})
    assert Task.xq.schedules() == []


def test_a_task_that_put_would_refuse_is_refused_at_once(make):
    Task = make()
    with pytest.raises(xq.BadValue, match="has no field 'nme'"):
        Task.xq.every(60, {"nme": "a"}, name="a")
    with pytest.raises(xq.BadValue, match="'status' is the queue's own"):
        Task.xq.every(60, {"status": "T"}, name="a")
    with pytest.raises(xq.BadType, match="put takes a mapping"):
        Task.xq.every(60, 7, name="a")
    with pytest.raises(xq.BadType, match="a schedule is named by text"):
        Task.xq.unschedule(7)


def test_a_task_that_cannot_be_put_stays_due_and_stops_no_other(make, caplog):
    Task = make({"limit": 1})
    Task.put({"name": "first"})
    Task.xq.every(60, {"name": "a"}, name="a")
    Other = make(model=make.model(table_name="other"))
    Other.xq.every(60, task(), name="b")
    Task.xq.clock.tick(60)
    with caplog.at_level(logging.WARNING, "xq"):
        assert [Task.xq.sweep(), Task.xq.sweep(), Other.xq.sweep()] == [0, 0, 1]
    (record,) = caplog.records
    assert "the schedule 'a' cannot put its task, and retries:" in record.message
    assert following(Task) == ["14 22:14:20"]
    Task.take().ack()
    assert Task.xq.sweep() == 1
    assert names(Task) == ["a"]


def test_a_schedule_of_unique_tasks_may_skip_those_that_are_there(make):
    Task = make({"unique": True}, roles=("unique",))
    Task.xq.every(60, {"job": "nightly"}, name="a", on_conflict="skip")
    for _ in range(3):
        Task.xq.clock.tick(60)
        Task.xq.sweep()
    assert (Task.xq.count(), following(Task)) == (1, ["14 22:17:20"])


# by itself, and in several processes


def test_a_process_fires_its_schedules_by_itself_and_on_time(make_live):
    Task = make_live({"history": True})
    before = time.time()
    Task.xq.every(0.5, task(), name="a")
    taken = [Task.take(LONG) for _ in range(3)]
    assert [each.id for each in taken] == [1, 2, 3]
    assert time.time() - before > 1.4


def test_a_process_that_waits_fires_the_schedules_of_others(make_live):
    Task = make_live()

    def child():
        Task.xq.every(timedelta(seconds=1), {"name": "a"}, name="a")
        yield
        yield

    with another_process(make_live.db, child) as other:
        next(other)
        other.kill()
        watch(Task)
        assert Task.take(LONG).name == "a"


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


def test_each_second_puts_one_task_though_many_processes_run(make_live):
    Task = make_live()
    trigger = CronTrigger(second="*", timezone=UTC)

    def child():
        yield Task.xq.every(trigger, task(), name="a")
        yield

    Task.xq.every(trigger, task(), name="a")
    first = Task.xq.schedules()[0].next
    with processes(make_live.db, *[child] * MANY) as others:
        for other in others:
            next(other)
        eventually(lambda: Task.xq.count() >= 4, PATIENCE + LONG)
        with make_live.db.atomic():
            last = Task.xq.schedules()[0].next
            assert Task.xq.unschedule("a")
    n, seconds = Task.xq.count(), round((last - first).total_seconds())
    # Where all processes stood still for a second, two firings are one task.
    assert seconds - 1 <= n <= seconds


@pytest.mark.parametrize("option", ["wait", "timeout"])
def test_nobody_waits_for_the_task_of_a_schedule(make, option):
    with pytest.raises(xq.BadValue, match=f"takes no {option}, since no caller waits"):
        make().xq.every(60, task(), **{option: 5})


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ("1-5", "mon-fri"),
        ("0", "sun"),
        ("7", "sun"),
        ("6,0", "sat,sun"),
        ("5-7", "fri-sun"),
        ("1-5/2", "mon,wed,fri"),
        ("*/3", "sun,wed,sat"),
    ],
)
def test_weekdays_as_numbers_are_those_of_cron(make, numbers, names):
    Task = make()
    for name, days in (("numbers", numbers), ("names", names)):
        Task.xq.every(f"0 12 * * {days}", {"name": name}, name=name)
    for _ in range(8):
        by_name, by_number = Task.xq.schedules()
        assert by_name.next == by_number.next
        Task.xq.clock.tick(86_400)
        Task.xq.sweep()


@pytest.mark.parametrize("days", ["8", "5-1", "1-"])
def test_weekdays_that_no_cron_has_are_refused(make, days):
    Task = make()
    with pytest.raises(xq.BadValue):
        Task.xq.every(f"0 12 * * {days}", {"name": "a"}, name="a")
