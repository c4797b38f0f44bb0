"""Schedules: tasks that xq puts again and again, or once, by cron texts, intervals, date-times and triggers.

The database has all queues' schedules. Each process with a maintenance thread looks for due ones. It locks a due
schedule, sets its next firing, and puts the task, in one transaction: so each firing puts one task, however
many processes look. The next firing comes after now: missed firings are put as one task.

xq computes all firings itself; `cron` reads the texts. APScheduler only describes a program's trigger, and says which
wall-clock time fits a CronTrigger's fields. Only this module imports it, once a trigger is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Generic, NamedTuple
from zoneinfo import ZoneInfo

from xq.core.acting import By
from xq.core.clock import EPOCH
from xq.core.errors import (
    BadType,
    BadValue,
    ConfigurationError,
    FeatureOff,
    NotInstalled,
    in_line,
    shown,
)
from xq.core.kinds import RETRYABLE, T
from xq.core.values import Tasks
from xq.core.words import lasting
from xq.engine.executor import Executor
from xq.engine.insert import Inserts
from xq.engine.pauses import LONGEST_NAME
from xq.runtime import cron

MICROSECOND: Final = timedelta(microseconds=1)
OVERDUE: Final = 60_000_000  # microseconds
FORMS: Final = frozenset(("cron", "fields", "seconds", "at"))  # one of these keys is in each spec that is stored
OTHERS: Final = frozenset(("tz", "start", "end", "jitter"))
DECLARED: Final = '"declared": true'  # in such a schedule's task, as JSON
UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)  # in a spec, or in its task
OLDER: Final = (
    "the schedules of this program are not stored: they were declared before, and others have replaced them "
    "({:%Y-%m-%d %H:%M} UTC). Start the newer program; or, to go back to these, {}"
)
SPECS: Final = (
    "a schedule fires by a cron text ('*/5 * * * *'), every n seconds (60, or a timedelta), once (a datetime), or "
    "by a CronTrigger, IntervalTrigger or DateTrigger of APScheduler"
)


class Schedule(NamedTuple):
    """A queue's schedule."""

    name: str
    spec: Any  # as `every` takes it: a cron text, a number of seconds, a datetime, or a trigger; or as stored
    task: dict[str, Any]
    options: dict[str, Any]  # for the put
    next: datetime | str  # the next firing, in UTC; why there is none, if this process cannot read the schedule
    tz: str  # the spec's time zone
    last: datetime | None  # the last firing, in UTC
    paused: bool
    overdue: bool  # due for a minute: no process fires it, or its task cannot be put; or `is_far`
    since: datetime | None  # when it was paused, in UTC
    actor: str | None  # who has paused it, and why
    reason: str | None


class Schedules(Generic[T]):
    """One queue's schedules."""

    def __init__(self, executor: Executor, tasks: Tasks[T], inserts: Inserts[T]) -> None:
        self.executor = executor
        self.store = executor.store
        self.tasks = tasks
        self.inserts = inserts
        self.log = logging.getLogger(f"xq.{executor.store.name}")
        given = executor.definition.schedules
        self._declared = None if callable(given) else self._declarations(given)  # what is wrong is refused at once
        self.pending = False  # whether a program's workers have still to call `begin`
        self._beginning = threading.Lock()  # held in `begin`, so that no worker finds the queue empty before its end
        self._failed: set[str] = set()  # the names of schedules whose failure was logged

    def every(
        self, spec: object, task: object, name: str | None, tz: str | tzinfo | None, options: Mapping[str, Any]
    ) -> str:
        """Store a schedule, and return its name. Raises BadType, BadValue, FeatureOff."""
        name, stored, put = self._checked(spec, task, name, tz, options)

        def store() -> None:
            first = _first(_read(stored), self.executor.time_us())
            self._store(name, stored, put, first)

        self.executor.transaction(store)
        return name

    def _checked(
        self, spec: object, task: object, name: object, tz: Any, options: Mapping[str, Any], **mark: bool
    ) -> tuple[str, str, str]:
        """Return the name, and as JSON the spec, and the task with a mark. Raises as `every`."""
        described = checked(spec, tz)
        put = self._as_json(task, options, mark)
        if name is None:  # named by its task, and by the options if there are any
            what = json.loads(put)
            name = json.dumps(what if what["options"] else what["task"], sort_keys=True)
            name = name if len(name) <= LONGEST_NAME else hashlib.sha256(name.encode()).hexdigest()
        if not isinstance(name, str):
            raise BadType(f"a schedule is named by text, not by {shown(name)}")
        if not 0 < len(name) <= LONGEST_NAME:
            raise BadValue(f"a schedule has a name of 1 to {LONGEST_NAME} characters, not {len(name)}")
        return name, json.dumps(described, sort_keys=True), put

    def _store(self, name: str, spec: str, put: str, first: int | None) -> None:
        """Store a schedule that fires `first` at this time, in microseconds; if only its task is new, as it did."""
        dialect, given = self.executor.dialect, {"name": name, "spec": spec, "task": put}
        self.executor.run(dialect.records.add_schedule, {**given, "next_us": first})
        ((was, had, next_us),) = self.executor.run(dialect.records.schedule, given)
        if (was, had) != (spec, put):
            next_us = next_us if was == spec else first
            self.executor.run(dialect.records.set_schedule, {**given, "next_us": next_us})

    @property
    def declared(self) -> list[tuple[str, str, str]] | None:
        """What the program declares, checked; None if nothing. Raises ConfigurationError; what `schedules=` raises."""
        given = self.executor.definition.schedules
        return self._declarations(given()) if callable(given) else self._declared

    def _declarations(self, given: object) -> list[tuple[str, str, str]] | None:
        """Return the `schedules` given to `upgrade`, checked; None without. Raises ConfigurationError."""
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"schedules= maps names to (spec, task), or {{}}; {shown(given)} is no mapping")
        found = []
        for name, value in sorted(given.items(), key=str):  # all processes lock in this order
            try:
                spec, task, options = value if len(value) == 3 else (*value, {})
                options = dict(options)
                found.append(self._checked(spec, task, name, options.pop("tz", None), options, declared=True))
            except (TypeError, ValueError, FeatureOff) as error:  # BadType and BadValue are among these
                what = f"of {self.store.name} has (spec, task) or (spec, task, {{options}}) for {shown(name)}"
                raise ConfigurationError(f"schedules= {what}: {error}") from error
        return found

    def forked(self) -> None:
        """Reset in a forked child: one of the parent's threads may hold the lock."""
        self._beginning = threading.Lock()

    def begin(self) -> None:
        """Store what the program declares, and fire what is due. Raises as `every`: then the next call does it."""
        with self._beginning:
            if self.pending:
                self.declare()
                self.fire_due()
                self.pending = False

    def declare(self) -> None:
        """Replace what programs declared, unless this one is older than what is there. Raises as `every`."""
        if (declared := self.declared) is None:
            return
        given = {name: (spec, put) for name, spec, put in declared}

        def replace() -> list[tuple[int, str]]:
            dialect = self.executor.dialect
            rows = self.executor.run(dialect.records.declared_schedules, {"mark": f"%{DECLARED}%"})
            stored = {name: (spec, put) for name, spec, put in rows if _mapping(put).get("declared")}
            if given and stored == given:
                return []
            noted = self.executor.run(dialect.records.generations, {"kind": "schedules"})
            mine, digests = _digest(given), [digest for digest, *_ in noted]
            if mine in digests and mine != digests[-1]:
                return [(logging.WARNING, OLDER.format(_at(noted[-1][-1]), self.store.downgrades))]
            if mine not in digests:
                before = [each] if stored and (each := _digest(stored)) not in digests else []
                for n, digest in enumerate((*before, mine), len(noted) + 1):
                    self.executor.run(dialect.records.note_schedules, {"generation": n, "definition": digest})
            new = [each for each in declared if stored.get(each[0]) != each[1:]]
            if new:
                now = self.executor.time_us()
                for name, spec, put in new:
                    self._store(name, spec, put, _next(_read(spec), now, now))
            for name in sorted(stored.keys() - {name for name, *_ in declared}):
                self.executor.run(dialect.records.drop_schedule, {"name": name})
            lines = _changes(stored, given)
            return [(logging.INFO, f"schedule {name!r} of {self.store.name}: {line}") for name, line in lines]

        for level, line in self.executor.transaction(replace):
            self.log.log(level, line)

    def _as_json(self, task: object, options: Mapping[str, Any], mark: Mapping[str, bool]) -> str:
        """Return a task, its put's options and a mark as JSON. Raises as `put`, or if JSON cannot hold them."""
        if waits := options.keys() & {"wait", "timeout"}:
            raise BadValue(f"a schedule takes no {min(waits)}, since no caller waits for its put")
        rest = dict(options)
        self.tasks.options.on_conflict(rest)
        self.tasks.options.check("put", rest)
        self.tasks.new(task)
        brought = {
            name: value
            for name, value in self.tasks.brought(task).items()
            if value is not None or self.tasks.known(name) not in self.tasks.table.key
        }
        for what, values in (("field", brought), ("option", options)):
            for name, value in values.items():
                if not _fits_json(value):
                    raise BadType(
                        f"the {what} {name!r} of a scheduled task is stored as JSON, which cannot hold {shown(value)}: "
                        "give text, a number, or lists and mappings of these; a field with a default may be left out"
                    )
        return json.dumps({"task": brought, "options": dict(options), **mark}, sort_keys=True)

    def change(self, event: str, name: str, by: By) -> bool:
        """Drop, run, pause or resume a schedule. Return whether there was one that would have fired again."""
        if not isinstance(name, str):
            raise BadType(f"a schedule is named by text, not by {shown(name)}")
        given = {"name": name}

        def change() -> bool:
            dialect = self.executor.dialect
            found = [row for row in self.executor.run(dialect.records.schedule, given) if row[2] is not None]
            if event == "drop":
                self.executor.run(dialect.records.drop_schedule, given)  # also one that has ended
            elif event == "pause" and found:
                self.executor.run(dialect.records.pause_schedule, {**given, **by._asdict()})
            for spec, put, seen in found:
                if event == "run":
                    self._put(name, put, seen)
                elif event == "resume":
                    now, how = self.executor.time_us(), _read(spec)
                    far = is_far(spec, seen, now)  # else no firing is made up for
                    following = _next(how, now, now) if far else seen if seen > now else _following(how, seen, now)
                    self.executor.run(dialect.records.resume_schedule, {**given, "next_us": following})
            return bool(found)

        return self.executor.transaction(change)

    def _put(self, name: str, put: str, next_us: int | None) -> None:
        """Put a schedule's task; the schedule fires again at a time."""
        self.executor.run(self.executor.dialect.records.fired_schedule, {"name": name, "next_us": next_us})
        what = json.loads(put)
        self.inserts.put(what["task"], what["options"])

    def listed(self) -> list[Schedule]:
        """Return the schedules that will fire, by name. One that cannot be read has the reason as its next firing."""
        found = []
        rows = self.executor.run(self.executor.dialect.records.schedules)
        for name, text, put, next_us, last_us, paused, now, *(since_us, actor, reason) in rows:
            what, last = _mapping(put), None if last_us is None else _at(last_us)
            by = (None if since_us is None else _at(since_us), actor, reason) if paused else (None, None, None)
            overdue = not paused and (now - next_us > OVERDUE or is_far(text, next_us, now))
            how = last, bool(paused), overdue, *by
            try:
                described = _read(text)
                _following(described, next_us, next_us)  # raises what a firing raises
                spec, at = _spec_of(described), _at(next_us)
                found.append(Schedule(name, spec, what["task"], what["options"], at, described["tz"], *how))
            except UNREADABLE as error:
                why = f"this process cannot read it: {error}"
                found.append(Schedule(name, text, what.get("task", {}), what.get("options", {}), why, "", *how))
        return found

    def fire_due(self) -> int:
        """Fire the due schedules, after other transactions that fire them. Return how many it has fired."""
        self.executor.begin(locks=True)
        dialect = self.executor.dialect
        rows = [row for row in self.executor.run(dialect.records.next_firings) if row[0] == dialect.source_name]
        return sum(self.fire(name, waits=True) for _, name, left in rows if left <= 0)

    def fire(self, name: str, *, waits: bool = False) -> bool:
        """Put a schedule's task, if it is due. Return False if the put failed: it is still due.

        With `waits` it waits for another transaction that has locked the schedule; else the other fires it.
        A task that the queue or the database rejects is logged: it stops no other schedule.
        """

        def put() -> bool:
            dialect = self.executor.dialect
            if waits:
                self.executor.run(dialect.records.schedule, {"name": name})  # locks it
            found = self.executor.run(dialect.records.due_schedule, {"name": name})
            for spec, task, seen, now in found:  # no row if another process has fired it, or is doing so
                self._put(name, task, _following(_read(spec), seen, now))
            return bool(found)

        try:
            fired = self.executor.transaction(put, caught=True)
        except Exception as error:
            if self.store.classify(error) in RETRYABLE or isinstance(error, NotInstalled):
                raise  # not the fault of this schedule
            level = logging.DEBUG if name in self._failed else logging.WARNING  # each look retries it
            self.log.log(level, "the schedule %r cannot put its task, and retries: %s", name, in_line(error))
            self._failed.add(name)
            return False
        self._failed.discard(name)
        return fired


def _mapping(text: str) -> dict[str, Any]:
    """Return what is stored as JSON; {} if that is no mapping."""
    with suppress(*UNREADABLE):
        return dict(json.loads(text))
    return {}


def _digest(schedules: Mapping[str, tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(schedules, sort_keys=True).encode()).hexdigest()


def _changes(before: Mapping[str, tuple[str, str]], after: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the name of each schedule that differs, and how, in words."""
    for name in sorted(before.keys() | after.keys()):
        (was, had), (now, has) = before.get(name, ("", "")), after.get(name, ("", ""))
        if was != now:
            changed = f"{_words(was)} is now {_words(now)}"
            yield name, changed if was and now else f"added, {_words(now)}" if now else f"removed, {_words(was)}"
        elif had != has:
            yield name, f"{_words(now)} puts another task from now on"


def _words(spec: str) -> str:
    described = _mapping(spec)
    zone = described.pop("tz", "UTC")
    what = shown(described.get("cron") or described.get("at") or described)
    told = f"every {lasting(described['seconds'])}" if [*described] == ["seconds"] else what
    return told if zone == "UTC" else f"{told} {zone}"


def _fits_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


# moments


def _at(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=int(us))


def _aware(text: str | None, zone: tzinfo) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(zone)


def _zone_name(tz: object) -> str:
    """Return the name by which another process can look up a time zone. Raises BadType and BadValue."""
    name = tz if isinstance(tz, str) else "UTC" if tz is UTC else getattr(tz, "key", None) or getattr(tz, "zone", None)
    if not isinstance(name, str) or not isinstance(tz, (str, tzinfo)):
        raise BadType(f"a time zone has a name, as 'Europe/Berlin' or ZoneInfo('Europe/Berlin'), not {shown(tz)}")
    _zone(name)
    return name


def _zone(name: str) -> tzinfo:
    """Return a time zone. UTC needs no zone data, which small images lack. Raises BadValue."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (*UNREADABLE, OSError) as error:
        what = f"there is no time zone {shown(name)} on this machine"
        raise BadValue(f"{what}: name one as 'Europe/Berlin', or pip install tzdata, which has all") from error


def is_far(spec: str, next_us: int, now: int) -> bool:
    """Return whether a firing is a minute later than the first one after `now`: the clock was set back since."""
    with suppress(*UNREADABLE):
        first = _next(described := _read(spec), now, now)
        return first is not None and next_us - first > OVERDUE + (described.get("jitter") or 0) * 1_000_000
    return False


# Specs as JSON: {"cron": text} or {"fields": ...}, {"seconds": n}, {"at": moment}; all with "tz", and triggers' specs
# also with their start, end and jitter.


def checked(spec: object, tz: str | tzinfo | None) -> dict[str, Any]:
    """Return a spec as JSON, if it is one. Raises BadType and BadValue."""
    try:
        described = _described(spec, tz)
        _spec_of(described)
        _first(described, 0)
    except OverflowError as error:
        raise BadValue(f"{shown(spec)} is outside of the years 1 to 9999 in UTC or in its time zone") from error
    return described


def _described(spec: object, tz: str | tzinfo | None) -> dict[str, Any]:
    """Return a spec as JSON. Raises BadType and BadValue."""
    plain = spec.total_seconds() if isinstance(spec, timedelta) else spec
    if isinstance(plain, bool) or not isinstance(plain, (str, datetime, int, float)):
        return _of_trigger(plain, tz)
    zone = "UTC" if tz is None else _zone_name(tz)
    if isinstance(plain, str):
        return {"cron": plain, "tz": zone}
    if isinstance(plain, datetime):
        at = plain if plain.tzinfo else plain.replace(tzinfo=_zone(zone))
        return {"at": at.astimezone(UTC).isoformat(), "tz": zone}
    if not 0.000_001 <= plain < 1e10:
        raise BadValue(f"the interval of a schedule is a number of seconds, at least a microsecond, not {shown(spec)}")
    return {"seconds": float(plain), "tz": zone}


def _of_trigger(trigger: Any, tz: str | tzinfo | None) -> dict[str, Any]:
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.date import DateTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    if type(trigger) not in (CronTrigger, DateTrigger, IntervalTrigger):
        raise BadType(f"{SPECS}, not by {shown(trigger)}: a {type(trigger).__name__} cannot be stored")
    if tz is not None:
        raise BadValue("a trigger has a time zone of its own: leave tz= out")
    if type(trigger) is DateTrigger:
        return {"at": trigger.run_date.astimezone(UTC).isoformat(), "tz": _zone_name(trigger.run_date.tzinfo)}
    if type(trigger) is IntervalTrigger:
        what: dict[str, Any] = {"seconds": trigger.interval_length}
    else:
        what = {"fields": {field.name: str(field) for field in trigger.fields}}
    start, end = (None if at is None else at.isoformat() for at in (trigger.start_date, trigger.end_date))
    return {**what, "start": start, "end": end, "jitter": trigger.jitter, "tz": _zone_name(trigger.timezone)}


def _read(text: str) -> dict[str, Any]:
    """Return a stored spec. Raises BadValue if this process cannot read it: it lacks the zone, or is older."""
    described = _mapping(text)
    if len(described.keys() & FORMS) != 1 or not {"tz"} <= described.keys() - FORMS <= OTHERS:
        raise BadValue(f"{shown(text)} was stored by another version of xq, or is damaged")
    _zone(described["tz"])
    return described


def _spec_of(described: Mapping[str, Any]) -> Any:
    """Return a spec as the application gave it; for a DateTrigger its datetime."""
    if "cron" in described:
        return described["cron"]
    if "at" in described:
        return _aware(described["at"], _zone(described["tz"]))
    if "start" not in described:
        return described["seconds"]
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    zone = _zone(described["tz"])
    start, end = _aware(described["start"], zone), _aware(described["end"], zone)
    more = {"start_date": start, "end_date": end, "jitter": described["jitter"], "timezone": zone}
    if "fields" in described:
        return CronTrigger(**described["fields"], **more)
    return IntervalTrigger(seconds=described["seconds"], **more)


def _first(described: Mapping[str, Any], now: int) -> int:
    """Return when a new schedule fires first, in microseconds. Raises BadValue if it never fires."""
    try:
        found = _next(described, now, now)
    except UNREADABLE as error:
        raise BadValue(f"{shown(described.get('cron', described))} is no schedule: {error}") from error
    if found is None:
        raise BadValue(f"{shown(described.get('cron', described))} never fires")
    return found


def _following(described: Mapping[str, Any], seen: int, now: int) -> int | None:
    """Return when a schedule fires next after `now` and after `seen`, which fires now; None if it does not."""
    return None if "at" in described else _next(described, seen, max(now, seen))


def _next(described: Mapping[str, Any], start: int, after: int) -> int | None:
    """Return when a schedule fires first after a time: an interval counts from `start`, and `at` fires at its date."""
    if "at" in described:
        return (datetime.fromisoformat(described["at"]) - EPOCH) // MICROSECOND
    zone, begin = _zone(described["tz"]), _at(after) + MICROSECOND
    since, end = (_aware(described.get(key), UTC) for key in ("start", "end"))
    if "cron" in described:
        found = cron.following(described["cron"], zone, _at(after))
    elif "fields" in described:
        found = _by_fields(described["fields"], zone, begin if since is None else max(begin, since))
    else:
        grid, step = since or _at(start), timedelta(seconds=described["seconds"])
        found = grid + max(0, -((grid - begin) // step)) * step
    if found is None or (end is not None and found > end):
        return None
    found += timedelta(seconds=random.uniform(0, described.get("jitter") or 0))
    return (found - EPOCH) // MICROSECOND


def _by_fields(fields: Mapping[str, str], zone: tzinfo, at: datetime) -> datetime | None:
    """Return when a CronTrigger's fields fire first from a time on, in UTC; None if they never do.

    A CronTrigger in a zone with summer time loses an hour when it counts beyond a change to the clocks, and makes up
    some times that they skip. So this one counts by the wall clock, and each skipped time fires at the change.
    """
    from apscheduler.triggers.cron import CronTrigger

    trigger = CronTrigger(**fields, timezone=UTC)  # by the wall clock, as if that were UTC
    while (wall := trigger.get_next_fire_time(None, at + (offset := _offset(zone, at)))) is not None:
        fires: datetime = wall - offset
        end = min(fires, at + cron.DAY)
        if _offset(zone, end) != offset:
            at = _change(zone, at, end)
            if wall < at + _offset(zone, at):  # skipped
                return at
        elif end == fires:
            return fires
        else:
            at = max(end, fires - cron.DAY)  # nothing fires in between
    return None


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return when a zone's clocks were changed between two times with different offsets."""
    offset = _offset(zone, before)
    while after - before > MICROSECOND:
        middle = before + (after - before) // 2
        before, after = (middle, after) if _offset(zone, middle) == offset else (before, middle)
    return after
