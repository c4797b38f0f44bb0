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
from tests.steps import another_process, eventually, is_exact
from tests.support.life import watch

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # the clock of a test begins here
DAY = 86_400
LONG = 60.0  # seconds


def go_to(Task: Any, year: int, *at: int) -> int:
    """Set the clock, and say how many transitions the sweep made."""
    month, day, hour, minute, second = [*at, 0, 0, 0][:5]
    Task.xq.clock.now = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
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


def test_a_number_of_seconds_puts_a_task_each_time_that_they_have_passed(make):
    Task = make()
    for spec in (90, 90.0, timedelta(seconds=90)):
        Task.xq.every(spec, task(), name=f"{spec}")
    for seconds, swept, then in (
        (0, 0, "14 22:14:50"),
        (89, 0, "14 22:14:50"),
        (1, 3, "14 22:16:20"),
        (100, 3, "14 22:17:50"),  # the firings stay on their grid, also after one that was late
    ):
        Task.xq.clock.tick(seconds)
        assert (Task.xq.sweep(), following(Task)) == (swept, [then] * 3)


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
    for at in (START, datetime(2023, 11, 14, 12)):  # which have passed: at once, and of its zone where it has none
        Task.xq.every(at, {"name": "late"}, name=f"{at}", tz=None if at.tzinfo else "Europe/Berlin")
    assert [each.next.hour for each in Task.xq.schedules()] == [11, 22]
    assert [Task.xq.sweep(), Task.xq.sweep()] == [2, 0]


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


# a cron text of Berlin, where the clocks are changed at 01:00 UTC -> the day before, and when it fires, in UTC
CHANGES = {
    "a time that is skipped fires at the change": ("30 2 * * *", (2026, 3, 28), ["29 01:00", "30 00:30"]),
    "each hour fires once when one is skipped": (
        "0 * * * *",
        (2026, 3, 28),
        [f"29 {hour:02}:00" for hour in range(6)],
    ),
    "the midnight after one is skipped is not missed": ("0 0 * * *", (2026, 3, 28), ["28 23:00", "29 22:00"]),
    "a time that comes twice fires twice": ("30 2 * * *", (2026, 10, 24), ["25 00:30", "25 01:30", "26 01:30"]),
    "each hour fires once when one comes twice": (
        "0 * * * *",
        (2026, 10, 24),
        [f"25 {hour:02}:00" for hour in range(6)],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_where_the_clocks_are_changed(make, what):
    spec, (year, month, day), fires = CHANGES[what]
    Task = make()
    go_to(Task, year, month, day, 12 if spec != "0 * * * *" else 23, 30)
    Task.xq.every(spec, task(), name="a", tz="Europe/Berlin")
    fired = []
    for half in range(48 * 2):
        now = datetime(year, month, day, 12, tzinfo=UTC) + timedelta(minutes=30 * half)
        if now.timestamp() > Task.xq.clock.now and go_to(Task, *now.timetuple()[:5]):
            fired.append(now.strftime("%d %H:%M"))
    assert fired[: len(fires)] == fires


@pytest.mark.parametrize(
    ("numbers", "by_name"), [("1-5", "mon-fri"), ("6,0", "sat,sun"), ("5-7", "fri-sun"), ("*/3", "sun,wed,sat")]
)
def test_weekdays_as_numbers_are_those_of_cron(make, numbers, by_name):
    Task = make()
    for days in (numbers, by_name):
        Task.xq.every(f"0 12 * * {days}", task(), name=days)
    for _ in range(8):
        one, two = Task.xq.schedules()
        assert one.next == two.next
        Task.xq.clock.tick(DAY)
        Task.xq.sweep()


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


# what is given besides the task {"name": "a"} and the name "a", or in their place -> the error
BAD: list[tuple[Any, dict[str, Any], type[Exception], str | None]] = [
    ("* * * *", {}, xq.BadValue, "expected 5"),
    ("61 * * * *", {}, xq.BadValue, "higher than the maximum value"),
    ("0 0 30 2 *", {}, xq.BadValue, "'0 0 30 2 [*]' never fires"),
    ("0 12 * * 8", {}, xq.BadValue, None),
    ("0 12 * * 5-1", {}, xq.BadValue, None),
    (0, {}, xq.BadValue, "at least a microsecond, not 0"),
    (timedelta(seconds=-1), {}, xq.BadValue, "at least a microsecond"),
    (float("inf"), {}, xq.BadValue, "at least a microsecond"),
    (True, {}, xq.BadType, "a schedule fires by .* not by True"),
    (date(2024, 1, 1), {}, xq.BadType, "a schedule fires by"),
    (AndTrigger([IntervalTrigger(seconds=5)]), {}, xq.BadType, "a AndTrigger cannot be stored"),
    (CronTrigger(hour=3, timezone=timezone(timedelta(hours=2))), {}, xq.BadType, "a time zone has a name"),
    (IntervalTrigger(seconds=5, timezone=UTC), {"tz": "UTC"}, xq.BadValue, "leave tz= out"),
    (60, {"tz": "../etc/passwd"}, xq.BadValue, "there is no time zone"),
    (60, {"tz": 2}, xq.BadType, "a time zone has a name"),
    (60, {"name": ""}, xq.BadValue, "a name of 1 to 255 characters, not 0"),
    (60, {"name": "a" * 256}, xq.BadValue, "a name of 1 to 255 characters, not 256"),
    (60, {"name": 7}, xq.BadType, "a schedule is named by text, not by 7"),
    (60, {"delay": 5}, xq.FeatureOff, "delay"),
    (60, {"ttr": "x"}, xq.Error, "ttr"),
    (60, {"wait": 5}, xq.BadValue, "takes no wait, since no caller waits"),
    (60, {"timeout": 5}, xq.BadValue, "takes no timeout, since no caller waits"),
    (60, {"task": {"nme": "a"}}, xq.BadValue, "has no field 'nme'"),
    (60, {"task": {"status": "T"}}, xq.BadValue, "'status' is the queue's own"),
    (60, {"task": 7}, xq.BadType, "put takes a mapping"),
    (60, {"task": {"name": b"x"}}, xq.BadType, "the field 'name' of a scheduled task is stored as JSON"),
    (60, {"task": {"name": float("nan")}}, xq.BadType, "the field 'name' of a scheduled task is stored as JSON"),
    (60, {"task": {"name": {1: 2}}}, xq.BadType, "the field 'name' of a scheduled task is stored as JSON"),
]


class Anything(pw.TextField):
    """A field that takes whatever there is."""

    def db_value(self, value: Any) -> str:
        return repr(value)


def test_what_cannot_be_a_schedule_is_refused(make, subtests):
    Task = make(attributes={"name": Anything(null=True)})
    for spec, given, error, words in BAD:
        options = {"name": "a", **given}
        with subtests.test(f"{spec} {given}"), pytest.raises(error, match=words):
            Task.xq.every(spec, options.pop("task", {"name": "a"}), **options)
    with pytest.raises(xq.BadType, match="a schedule is named by text"):
        Task.xq.unschedule(7)
    assert Task.xq.schedules() == []


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
    assert [Task.take(LONG).id for _ in range(3)] == [1, 2, 3]
    assert time.time() - before > 1.4


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
