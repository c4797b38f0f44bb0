"""Check calls' options: seconds, moments, and the transition that they choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypedDict

from xq.core.clock import LAST_DAY, microseconds
from xq.core.errors import BadType, BadValue, FeatureOff, is_integer, is_number, shown
from xq.core.machine import FOREVER, LONGEST, REMEMBERED, Machine, Transition
from xq.core.words import Wording

Spans = Mapping[str, float | None]  # a call's options in seconds; None is never
Span = float | timedelta | None  # a time span; a number is seconds

NONE: Final[Mapping[str, Any]] = {}  # no options, or no fields

# Arguments of the core's methods beside the machine's options, for messages.
PARAMETERS = {
    "put": ("wait", "timeout"),
    "take": ("timeout", "tube"),
    **dict.fromkeys(("ack", "bury", "touch"), ("update",)),
    "release": ("update", "tube", "attempts"),
    "dig": ("n", "update", "fresh"),
    "restart": ("fresh",),
}
# Options of the core's methods that write roles: see `Tasks.called`.
WRITES = {"release": ("tube", "attempts"), "dig": ("fresh",), "restart": ("fresh",)}
ON_CONFLICT = ("raise", "skip", "replace")  # what put does about a task with the same unique value; first the default


class Times(TypedDict, total=False):
    """All methods' options, for type checkers. Each takes some of them, by the features."""

    delay: Span
    at: datetime | None
    ttl: Span
    ttr: Span
    on: object


class Moves(Times, total=False):
    """The options for release, dig and restart, for type checkers."""

    tube: str | None
    attempts: int | None
    fresh: bool


class PutOptions(Times, total=False):
    """The options for put, for type checkers."""

    on_conflict: Literal["raise", "skip", "replace"] | None
    after: object
    on_failure: Literal["hold", "kill", "run"] | None


class PutManyOptions(PutOptions, total=False):
    """The options for put_many, for type checkers."""

    chain: bool


@dataclass(frozen=True)
class Catalogue:
    """The features that bring an event, one of its options, or limits: for messages about missing features."""

    events: Mapping[str, tuple[str, ...]]
    options: Mapping[tuple[str, str], tuple[str, ...]]
    limited: tuple[str, ...]  # whose limits may be changed while programs run


def seconds_of(option: str, value: object, ends: bool = False) -> float | None:
    """Return a number of seconds; None for never, which raises BadValue if the option `ends`.

    Raises BadType and BadValue.
    """
    value = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_number(value):
        raise BadType(f"{option} is a number of seconds or a timedelta, not {shown(value)}")
    if value in (math.inf, FOREVER) and not ends:
        return None
    if not 0 <= value <= LONGEST:
        never = "" if ends else ", or math.inf"
        raise BadValue(f"{option} is a number of seconds from 0 to {LONGEST:.0f}{never}, not {shown(value)}")
    return float(value)


def touched_by(increment: object, update: object) -> dict[str, Any]:
    """Return the options of a touch, which has an increment or an update. Raises BadType and BadValue."""
    if increment is None:
        if update is None:
            raise BadType("touch needs increment=, a number of seconds, or update=, your fields, or both")
        return {}
    seconds_of("increment", increment, ends=True)
    return {"increment": increment}


def moment_of(at: object) -> float:
    """Return a datetime in seconds since 1970."""
    if not isinstance(at, datetime):
        raise BadType(f"at is a datetime with a time zone, not {shown(at)}")
    if at.utcoffset() is None:
        raise BadValue(f"at needs a time zone, as datetime(..., tzinfo=UTC): {shown(at)} has none")
    return min(microseconds("at", at) / 1_000_000, LAST_DAY)


def count_of(n: object) -> int:
    """Return a number of tasks. Raises BadType and BadValue."""
    if not is_integer(n):
        raise BadType(f"a number of tasks is an integer, not {shown(n)}")
    if n < 0:
        raise BadValue(f"a number of tasks is not negative: {shown(n)}")
    return min(int(n), 2**62)  # a plain int: some drivers take no subclass


def _needs_nothing(row: Transition) -> bool:
    """Return whether a call without options may mean this transition."""
    return (row.follows or row.counts) and not row.given


class CallOptions:
    """The options that the methods of one queue take: their seconds, and the transition that a call means."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        off: Callable[[], Catalogue],
        wording: Wording,
        refuse_field: Callable[[str], None],
    ) -> None:
        self._name = name  # the model's
        self._machine = machine
        self._off = off
        self._wording = wording
        self._refuse_field = refuse_field  # raises for a task's field, where put is given it as an option
        self._chosen: dict[tuple[str | None, ...], Transition] = {}  # source, event, target, options -> row

    @cached_property
    def usual(self) -> dict[str, Transition]:
        """The transitions by event, for calls without options, if the event leaves one state."""
        sources = {event: self._machine.sources(event) for event in self._machine.events}
        rows = {event: self._machine.choose(of[0], event, [], None) for event, of in sources.items() if len(of) == 1}
        return {event: row for event, row in rows.items() if row is not None and _needs_nothing(row)}

    def may_be(self, event: str, name: str) -> bool:
        """Return whether `event` takes such an option, here or in a queue with other features."""
        return name in self._machine.options(event) or (event, name) in self._off().options

    def parameters(self, event: str) -> tuple[str, ...]:
        """Return the arguments of `event` that are no seconds, for messages."""
        return (*PARAMETERS.get(event, ()), *self._machine.sets.get(event, ()))

    def writes(self, event: str) -> tuple[str, ...]:
        """Return the options of `event` that write roles."""
        return (*WRITES.get(event, ()), *self._machine.sets.get(event, ()))

    def check(self, event: str, options: Mapping[str, object]) -> dict[str, float | None]:
        """Return the seconds in a call of `event`, without options that are None; `at` is seconds since 1970.

        Raises FeatureOff for an option whose feature is off, BadType for an unknown one.
        """
        if not self._machine.sources(event):
            self.refuse_event(event)
        if not options:
            return {}
        allowed = self._machine.options(event)
        checked = {}
        for name, value in options.items():
            if ("delay" if name == "at" else name) not in allowed:
                self.refuse_option(event, name)
            if value is not None and name != "at":
                checked[name] = seconds_of(name, value)
        if (at := options.get("at")) is not None:
            if "delay" in checked:
                raise BadValue(f"{event} takes delay= (seconds) or at= (a datetime), not both")
            checked["at"] = moment_of(at)
        return checked

    def choose(self, source: str, event: str, seconds: Spans, to: str | None = None) -> Transition:
        """Return the transition that a call means.

        Raises FeatureOff and BadValue for options that it does not take.
        """
        meant = (source, event, to, *seconds) if seconds else (source, event, to)
        row = self._chosen.get(meant)
        if row is None:
            row = self._chosen[meant] = self._choose(source, event, seconds, to)
        if not seconds and _needs_nothing(row):
            return row
        if seconds.get("increment", 0) is None and row.prolongs:
            raise BadValue(f"{event} needs increment=seconds, a finite number")
        if row.given and seconds.get(row.given, seconds.get("at")) is None:
            raise BadValue(f"{row.given} must end: math.inf would never let the task become ready")
        return row

    def _choose(self, source: str, event: str, options: Collection[str], to: str | None) -> Transition:
        options = ["delay" if option == "at" else option for option in options]
        row = self._machine.choose(source, event, options, to)
        if row is None:
            rows = [row for row in self._machine.rows if (row.event, row.source) == (event, source)]
            needed = next(row.given for row in rows if to in (None, row.target))
            leads = f" to {self._wording.state(to)}" if to else ""
            raise BadValue(f"{event}{leads} needs {needed}=seconds")
        for option in options:
            if option not in self._machine.accepts(row):
                becomes = f"of a task that becomes {self._wording.state(row.target)}"
                if option in REMEMBERED and option not in self._machine.roles and self._machine.before_take(row):
                    raise FeatureOff(
                        f"{event} {becomes} cannot remember {option!r} until it counts: "
                        f"map the role {option!r} to a field that holds it",
                        role=option,
                    )
                raise BadValue(f"{event} {becomes} takes no {option!r}")
        return row

    def on_conflict(self, options: dict[str, Any]) -> str:
        """Remove on_conflict from a put's options, if it may be there, and return it. Raises BadValue."""
        word = options.pop("on_conflict", None) if self._machine.single else None
        if word is not None and not (isinstance(word, str) and word in ON_CONFLICT):
            raise BadValue(f"on_conflict is one of {', '.join(ON_CONFLICT)}, not {shown(word)}")
        return word or ON_CONFLICT[0]

    @property
    def _on(self) -> set[str]:
        return {feature.name for feature in self._machine.features}

    def refuse_event(self, event: str) -> None:
        """Raise the error for an event, or another method, that this queue does not have."""
        features = self._off().events.get(event, ())
        if not features or self._on & {*features}:
            raise BadValue(f"{self._name} has no event {event!r}: it has {', '.join(self._machine.events)}")
        raise FeatureOff(self._wording.lacks(self._name, event, "", features), feature=features[0])

    def refuse_option(self, event: str, option: str) -> None:
        """Raise the error for an option that `event` does not take here."""
        features = self._off().options.get((event, option), ())
        on = bool(self._on & {*features})
        if not features or (on and option not in REMEMBERED):
            if event == "put":
                self._refuse_field(option)
            options = self._machine.options(event)
            options |= {"at"} if "delay" in options else set()
            taken = ", ".join([*self.parameters(event), *sorted(options)]) or "no options"
            raise BadType(f"{event} of {self._name} has no option {option!r}: it takes {taken}")
        if on:
            raise FeatureOff(f"{event} keeps {option!r} in the role {option!r}: map it to a field", role=option)
        raise FeatureOff(self._wording.lacks(self._name, event, option, features), feature=features[0])
