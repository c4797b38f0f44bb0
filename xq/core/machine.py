"""A task's states, its transitions, and the features that compose them. Pure data.

A state is a letter. `X` means that there is no row and `S` another tube: both occur in transitions, but are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum, auto
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple
from uuid import UUID

from annotated_types import Interval

from xq.core.errors import ConfigurationError, Conflict, is_integer, shown
from xq.core.words import NAMES as NAMES
from xq.core.words import PLAIN

ABSENT: Final = "X"
ELSEWHERE: Final = "S"
TAKEN: Final = "T"
READY: Final = "R"
GUARDED: Final = (TAKEN, "D", "Z")  # what no other program's write should make another state: see the feature guard

# Seconds; this is about 300 years. math.inf means never.
LONGEST: Final = 10_000_000_000.0
# Stored for math.inf among a task's own seconds, since not every database has infinity. A power of two, so that a
# single-precision column holds it exactly.
FOREVER: Final = 2.0**100
EXPIRIES: Final = ("ttl", "lifetime")  # the events that end a task which nobody has taken in time
MOST_SINGLE: Final = 1_000  # values that have limits of their own
Lasts = Annotated[timedelta, Interval(gt=timedelta(0), le=timedelta(seconds=LONGEST))]
Seconds = Annotated[float, Interval(gt=0, le=LONGEST)] | Lasts
Strategy = Literal["auto_increment", "time64", "uuid", "required"]
Retval = Literal["model", "dict", "tuple"]
On = bool  # the registry leaves out a feature whose value is False or None

# Roles that hold the task's own seconds for its whole life.
REMEMBERED: Final = ("ttl", "ttr")

# Roles that only xq writes. The application may write the others; xq only reads those.
MANAGED: Final = ("status", "runat", "deadline", "finished", "owner", "attempts", "after", "lost", "steps", "awaits")

# What roles hold in a row that has left the queue. A worker reads in `owner` that SQL has ended its task.
LEFT: Final[Mapping[str, Any]] = {
    "runat": None,
    "deadline": None,
    "after": None,
    "lost": 0,
    "steps": None,
    "awaits": None,
}
# What SQL writes into `owner` of a task that is to keep these under a word of the next definition; the second one over
# the first, which stays until the next take and says nothing of another write.
ONWARD: Final = ("-", "--")

ENDED: Final = ("D", "Z")  # the states that end a task


class Marker(Enum):
    """A value that the dialect writes."""

    TOKEN = auto()  # the running take's session and token
    PLUS_ONE = auto()
    KEEP = auto()  # the column keeps its value

    def __repr__(self) -> str:
        return self.name


TOKEN, PLUS_ONE, KEEP = Marker


@dataclass(frozen=True, slots=True)
class Sql:
    """A value that the database computes: SQL, of which several parts are texts to join.

    `{now}` is the moment, `{now_us}` that in microseconds, `{attempts}` the column of that role or field as it was (on
    MariaDB, unless an earlier column writes it), and `:name` a value that the feature or the call `brings`.
    """

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lacks:
    """The condition that the text in a role has nowhere the value `:name`, byte by byte. NULL is an empty text."""

    role: str
    name: str


NOW: Final = Sql(("{now}",))


@dataclass(frozen=True, slots=True)
class Transition:
    """One row in the table: in `source`, `event` moves a task to `target`.

    `source` and `target` may name several states: "WZD" means any that the queue has, "*" every state, "^T"
    every state but T. If `target` names several, the caller chooses one; without `follows` the task stays where it is.
    """

    source: str
    event: str
    target: str
    given: str = ""  # the row applies if the call has this option
    fenced: bool = False  # only the task's owner may do it
    picks: bool = False  # the event may choose the oldest tasks itself
    follows: bool = True  # the columns follow the entered state: its timers begin; False: the task's times go on
    counts: bool = True  # it is in the history, also if the state stays; False: the state is prolonged (touch)
    named: bool = False  # the caller names the target (switch, cancel)
    stays: bool = False  # the task is in `target` already: without fields to write the event does nothing
    due: str = ""  # the column with the time at which the event happens by itself
    by: str = ""  # the feature that brought the row
    writes: tuple[tuple[str, Any], ...] = ()  # roles and values that it writes beside those of the entered state
    loses: int = 0  # it ends a task of which so many takes were lost, and no caller runs it
    sets: str = ""  # the role whose value a call gives as the option of this name
    when: tuple[Lacks | Sql, ...] = ()  # conditions on the row, beside its state; only xq's own calls run such a row

    @property
    def prolongs(self) -> bool:
        """Whether a call may prolong the state: it is neither entered, nor is there an event to note."""
        return not (self.follows or self.counts or self.writes)


# What a queue does by itself at a time, beside its timers (`duty_of`). ANY_READY: a take might find a task. SETTLE:
# something waits for ends of tasks, and must be looked at once a second (`engine/settle.py`).
UNTIMED, OLD_HISTORY, DIRTY_HEADS, ANY_READY, SETTLE = "untimed", "history", "dirty", "ready", "settle"


def duty_of(timer: Transition) -> str:
    """Return the name by which the looks and a sweep know a timer."""
    return f"{timer.source} {timer.due}"


@dataclass(frozen=True, slots=True)
class Timer:
    """A task in `state` moves to `target`, as the event `event`, when the time in `column` passes.

    `option` is the name under which a call passes the seconds ("": none does); without it `default` applies; without
    both the task stays. The column `runat` times the state. `deadline` times the task and continues from state to
    state.
    """

    state: str
    event: str
    target: str
    option: str
    default: float | None = None
    column: str = "runat"
    writes: tuple[tuple[str, Any], ...] = ()  # roles and values that it writes beside those of `target`


@dataclass(frozen=True, slots=True)
class Detour:
    """An event that enters `into`, or the `only` one, enters `via` first if the call has `option`."""

    into: str
    via: str
    option: str
    only: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """The value that a role gets in each entered state: `at[state]`, else `otherwise`."""

    role: str
    at: Mapping[str, Any]
    otherwise: Any = KEEP
    # What a release writes after a take without work on the task. Not in repr, on which the installation depends.
    undone: Any = field(default=KEEP, repr=False)


class LimitValue(NamedTuple):
    """A limit of a feature, as the table of limits has it."""

    n: int  # how many tasks, or the microseconds between two
    slack: int  # microseconds
    given: Any  # as the caller wrote it; JSON can hold it


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that the database checks when tasks are put or taken, and what of it.

    `checks` is "room" (a put: at most `value` tasks are in these states), "single" (a put: one task of them for each
    value of the role), "turns" (a take: a number of taken tasks for each value of the role), or "" for one of a slice.
    """

    name: str
    role: str = ""
    states: str = ""  # the states in which it applies
    and_before: bool = False  # also in those from which timers lead into them
    value: Any = None
    in_the_way: str = ""  # the states in which a task may prevent another one from being taken
    # the defaults: the queue's (None), and those of single values
    limits: Mapping[str | None, LimitValue] = field(default_factory=dict)
    limit: Callable[[Any], LimitValue] | None = None  # reads one; raises ConfigurationError
    checks: Literal["room", "single", "turns", ""] = field(default="", repr=False)
    unset: int = field(default=0, repr=False)  # what applies without any, in a table that was restored without them


@dataclass(frozen=True)
class Settings:
    """A queue's settings beside its table. The defaults are the core's; a feature sets other values."""

    id: Strategy | Literal["callable"] = "required"  # how put makes a key for a task without one
    retval: Retval = "model"  # the type in which methods return tasks
    fenced: bool = True  # whether only a task's owner may run fenced events
    reaped: bool = True  # whether a session's tasks are released when it ends
    touch_ends: bool = True  # whether touch gives a time limit to a state without one
    counts_events: bool = False  # whether events are counted beside the transitions
    guard: bool | Literal["log"] = False  # what happens to such a write: it is refused, logged, or only counted
    groups: bool = False  # whether tasks may be members of groups
    history: float | None = None  # for how many seconds transitions are kept as rows; math.inf: forever
    highest_first: bool = False  # whether takes begin with the highest priority


@dataclass(frozen=True, slots=True)
class Feature:
    """One capability that a queue may have, as data. A feature is a function from its value in `features=` to this."""

    name: str
    needs: tuple[str, ...] = ()  # roles that fields= must map
    requires: tuple[str, ...] = ()  # features that must be on
    fenced: bool = False  # whether only a task's owner may finish it
    # state -> roles, and what a move out of this state writes into those that are mapped
    leaving: Mapping[str, tuple[tuple[str, Any], ...]] = field(default_factory=dict)
    # What a task that goes on in another tube keeps of a role's text
    anew: Mapping[str, Callable[[str | None], str | None]] = field(default_factory=dict)
    transitions: tuple[Transition, ...] = ()
    timers: tuple[Timer, ...] = ()
    detours: tuple[Detour, ...] = ()
    columns: tuple[Column, ...] = ()
    guards: tuple[Guard, ...] = ()
    # role, or "key" -> function with which put makes a missing value from the task
    fill: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    settings: Settings = Settings()
    structure: Any = True  # what must be equal in every process; durations, limits and callables need not be
    given: Any = None  # what features= has, for programs without the definition, if the structure lacks its limits
    # name -> function of a take's token that makes the value which the SQL of `columns` has under this name
    brings: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    # What the table does not show, for FeatureOff's messages: methods that run no event of the feature; options other
    # than the seconds of its timers and detours -> the methods with this option
    methods: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slice: type[Any] | None = None  # its part of the queue's SQL, an `xq.Slice`
    settler: type[Any] | None = None  # what the ends of tasks set off: a `Settler` of the engine
    part: type[Any] | None = None  # what the methods that it brings call, made of the queue's `Parts`


def seconds(on: bool | float | timedelta) -> float | None:
    """Return a feature's default seconds: a number, or None for True."""
    return None if isinstance(on, bool) else on.total_seconds() if isinstance(on, timedelta) else float(on)


def single(of: Any, name: str) -> dict[str, Any]:
    """Return what `of` gives for single values, by each as text and sorted. Raises ConfigurationError."""
    if of is None:
        return {}
    if not isinstance(of, Mapping) or not all(isinstance(key, (str, UUID)) or is_integer(key) for key in of):
        raise ConfigurationError(f"feature {name!r}: of is a mapping of texts, integers or UUIDs, not {shown(of)}")
    if len(of) > MOST_SINGLE:
        raise ConfigurationError(f"feature {name!r}: of has at most {MOST_SINGLE:,} values, not {len(of):,}")
    return {str(key): of[key] for key in sorted(of, key=str)}


CORE: Final = Feature(
    "core",
    transitions=(
        Transition(ABSENT, "put", "R"),
        Transition("R", "take", TAKEN, picks=True),
        Transition(TAKEN, "ack", ABSENT, fenced=True),
        Transition(TAKEN, "release", "R", fenced=True),
        Transition(TAKEN, "snatch", "R"),
        Transition(TAKEN, "touch", TAKEN, fenced=True, follows=False, counts=False),
        Transition("WZD", "restart", "R"),
        Transition("^T", "switch", "^T"),
        Transition("*", "kill", ABSENT),
        Transition("RTW", "cancel", ABSENT),
    ),
)

ONE_LESS: Final = Sql(("CASE WHEN {attempts} > 0 THEN {attempts} - 1 ELSE 0 END",))

# What a mapped role has if no feature decides it.
ROLE_COLUMNS: Final = (
    Column("owner", at={TAKEN: TOKEN}, otherwise=None),
    Column("attempts", at={TAKEN: PLUS_ONE}, undone=ONE_LESS),
    Column("moved", at={}, otherwise=NOW),
)
# Names that an option may not have: methods' arguments, and named values in the SQL (see `databases.dialect`).
RESERVED: Final = frozenset(
    ("self", "task", "tasks", "key", "keys", "event", "n", "tube", "update", "to", "timeout", "wait", "increment", "at")
    + ("now", "context", "session", "token", "owner", "unique", "many", "most", "since", "until", "adding")
    + ("uuid", "queue", "lease", "host", "pid", "program", "waiter", "source", "target", "count", "name", "value")
    + ("listed", "rows", "chosen", "sink", "stream", "batch", "unit", "bucket")
    + ("whole", "spec", "tz", "next_us", "slot")
    + ("filter", "actor", "reason", "chunk", "look", "attempts", "fresh", "on_failure", "chain")
    + ("again", "left", "step_line", "step_rest", "step_mark", "step_late", "step_signal")
)
NUMBERED: Final = re.compile(r"own_.*|([fklpv]|skipg?)[0-9].*")

CHECKS: Final = {
    "room": "how many tasks there may be",
    "single": "which values one task has",
    "turns": "which tasks wait for each other",
}

ROLE_DEFAULTS: Final = {"attempts": 0, "lost": 0}  # what a new task has in a mapped role


def spread(letters: str, states: Iterable[str]) -> tuple[str, ...]:
    """Return the states that a source or target names: "R", "WZD", "*" (all) or "^TD" (all but T and D)."""
    if letters == "*":
        return tuple(states)
    if letters.startswith("^"):
        return tuple(state for state in states if state not in letters)
    return tuple(letters) if len(letters) == 1 else tuple(state for state in letters if state in states)


class _Claims:
    """Which feature decides what. A feature may override the core, but not another feature."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, ...], str] = {}

    def __call__(self, by: str, *claim: str, what: str) -> None:
        other = self._by.get(claim, CORE.name)
        if other not in (by, CORE.name):
            raise Conflict(other, by, what)
        self._by[claim] = by


class Machine:
    """One queue's transition table, composed from its features. Immutable. `print` shows it.

    `rows` are its transitions, `states` the letters of its states, and `timers` each state's timers.
    Raises Conflict if two features decide the same thing. Raises ConfigurationError if a feature leaves a state that
    nothing enters, or requires a feature that is off.
    """

    def __init__(self, features: Sequence[Feature] = (), roles: Iterable[str] = ("status",)) -> None:
        self.features = tuple(features)
        self.roles = frozenset(roles)
        brought = (CORE, *self.features)
        claim = _Claims()
        self._check_names()
        self.states = self._states(brought)
        self.detours = tuple(self._detours(claim))
        self.timers = self._timers(claim)
        self.settings = self._settings(claim)
        self.rows = self._rows(brought, claim)
        self.columns = self._columns(claim)
        self.guards = tuple(self._widened(guard) for feature in self.features for guard in feature.guards)
        self.fill = self._fill(claim)
        self.slices = [feature.slice for feature in self.features if feature.slice]
        for feature in self.features:
            for guard in feature.guards:
                if guard.checks:
                    claim(feature.name, "guard", guard.checks, what=CHECKS[guard.checks])
            if any(row.loses for row in feature.transitions):
                claim(feature.name, "loses", what="how many takes of a task may be lost")
            if feature.slice and feature.slice.charges:
                claim(feature.name, "charges", what="what a take charges")
        self.brings = [item for feature in self.features for item in feature.brings.items()]
        self.leaving = {state: each for feature in self.features for state, each in feature.leaving.items()}
        self.anew = {role: keep for feature in self.features for role, keep in feature.anew.items()}
        self._by_source: dict[tuple[str, str], list[Transition]] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        called = [row for row in self.rows if not (row.due or row.loses)]  # timers may be named like a method
        if not any(row.event == "touch" for row in called):  # without a timer it writes fields
            called.append(Transition(TAKEN, "touch", TAKEN, fenced=self.settings.fenced, follows=False, counts=False))
        self.fenced = frozenset(row.event for row in called if row.fenced)
        self.sets = {row.event: (row.sets,) for row in called if row.sets}  # event -> the role that its caller sets
        for row in called:
            self._by_source.setdefault((row.source, row.event), []).append(row)
            self._sources[row.event] = tuple(dict.fromkeys([*self._sources.get(row.event, ()), row.source]))
        self._usual: dict[tuple[str, str], str] = {}
        # The core's rows come first, also where a feature overrides them: features must not rename a counter.
        for row in (*CORE.transitions, *sorted(self.rows, key=lambda row: (row.loses, bool(row.when)))):
            self._usual.setdefault((row.source, row.target), row.event)
        self._options = {
            event: frozenset(option for row in called if row.event == event for option in self.accepts(row))
            for event in self._sources
        }
        self._check_guards()
        self._check_given()
        for event, sources in self._sources.items():
            if len(sources) > 1 and any(row.picks for row in called if row.event == event):
                raise ConfigurationError(f"{event} picks tasks itself, so it leaves one state only, not {sources}")

    def _check_names(self) -> None:
        names = [CORE.name, *(feature.name for feature in self.features)]
        for feature in self.features:
            if names.count(feature.name) > 1:
                raise ConfigurationError(f"two features are called {feature.name!r}: a feature needs a name of its own")
            for required in feature.requires:
                if required not in names:
                    raise ConfigurationError(f"feature {feature.name!r} needs the feature {required!r}, which is off")
            if feature.fenced and (free := [each.name for each in self.features if not each.settings.fenced]):
                what = f"who may finish a task ({feature.name!r} needs that its owner alone may)"
                raise Conflict(feature.name, free[0], what)

    @staticmethod
    def _states(brought: Iterable[Feature]) -> tuple[str, ...]:
        entered: dict[str, str] = {}
        for feature in brought:
            targets = [
                *(row.target for row in feature.transitions if row.follows and not row.target.startswith(("*", "^"))),
                *(timer.target for timer in feature.timers),
                *(detour.via for detour in feature.detours),
            ]
            entered |= dict.fromkeys(targets, feature.name)
        for state, name in entered.items():
            if len(state) != 1 or not (state.isascii() and state.isalpha()) or state == ELSEWHERE:
                raise ConfigurationError(
                    f"feature {name!r} moves tasks to {state!r}: a state is one letter other than S"
                )
        order = [*NAMES, *sorted(entered.keys() - NAMES.keys())]
        return tuple(state for state in order if state in entered and state != ABSENT)

    def _detours(self, claim: _Claims) -> Iterator[Detour]:
        for feature in self.features:
            for detour in feature.detours:
                self._check_option(feature.name, detour.option)
                claim(feature.name, "detour", detour.into, detour.option, what=f"{detour.into} with {detour.option!r}")
                yield detour

    @staticmethod
    def _check_option(feature: str, option: str) -> None:
        if not option.isidentifier() or option in RESERVED or NUMBERED.fullmatch(option):
            raise ConfigurationError(f"feature {feature!r}: {option!r} cannot be the name of an option")

    def _timers(self, claim: _Claims) -> dict[str, tuple[Timer, ...]]:
        timers: dict[str, list[Timer]] = {state: [] for state in self.states}
        for feature in self.features:
            for timer in feature.timers:
                if timer.column not in ("runat", "deadline"):
                    raise ConfigurationError(
                        f"feature {feature.name!r} times by {timer.column!r}: use runat or deadline"
                    )
                if timer.option:
                    self._check_option(feature.name, timer.option)
                for state in spread(timer.state, self.states):
                    if state not in timers:
                        raise _never_entered(feature.name, state)
                    for kind, by in (("column", timer.column), ("option", timer.option)):
                        claim(feature.name, kind, state, by, what=f"how long {state} lasts ({by})")
                    timers[state].append(replace(timer, state=state))
        return {state: tuple(found) for state, found in timers.items()}

    def _rows(self, brought: Iterable[Feature], claim: _Claims) -> tuple[Transition, ...]:
        rows: dict[tuple[str, str, str], Transition] = {}
        for feature in brought:
            for transition in feature.transitions:
                for row in self._expanded(transition, feature.name):
                    name = (row.source, row.event, row.target if row.named else row.given)
                    claim(feature.name, "row", *name, what=f"({row.source}, {row.event})")
                    rows[name] = row
            for timer in feature.timers:
                for state in spread(timer.state, self.states):
                    row = Transition(
                        state, timer.event, timer.target, due=timer.column, by=feature.name, writes=timer.writes
                    )
                    rows[state, timer.event, timer.column] = row
        callers = [row for row in rows.values() if row.follows and not (row.due or row.named or row.loses or row.when)]
        for feature in self.features:
            for detour in feature.detours:
                for row in callers:
                    if row.target == detour.into and not row.given and detour.only in ("", row.event):
                        by_detour = replace(row, target=detour.via, given=detour.option, by=feature.name)
                        rows.setdefault((row.source, row.event, detour.option), by_detour)
        return tuple(rows.values())

    def _expanded(self, row: Transition, by: str) -> Iterator[Transition]:
        named = row.named or (row.follows and len(row.target) > 1)
        for source in spread(row.source, self.states):
            if source not in (ABSENT, *self.states):
                raise _never_entered(by, source)
            if row.prolongs and not self.timers.get(source):
                continue  # touch cannot prolong a state without a timer
            for target in spread(row.target, self.states) if row.follows else (source,):
                ways = [detour for detour in self.detours if detour.via == target] if named else []
                given = next((way.option for way in ways if not way.only), "") if named else row.given
                if ways and not given:
                    continue  # only one event leads there
                fenced = row.fenced and self.settings.fenced
                stays = source == target and row.follows and not (named or given)
                found = replace(row, source=source, target=target, given=given, fenced=fenced)
                yield replace(found, named=named, stays=stays, by=by)

    def _settings(self, claim: _Claims) -> Settings:
        found: dict[str, Any] = {}
        for feature in self.features:
            for setting in fields(Settings):
                value = getattr(feature.settings, setting.name)
                if value != setting.default:
                    claim(feature.name, "setting", setting.name, what=f"the setting {setting.name!r}")
                    found[setting.name] = value
        return Settings(**found)

    def _columns(self, claim: _Claims) -> tuple[Column, ...]:
        columns = {column.role: column for column in ROLE_COLUMNS if column.role in self.roles}
        for feature in self.features:
            for column in feature.columns:
                if column.role not in self.roles - {"status", "runat", "deadline", "finished"}:
                    raise ConfigurationError(
                        f"feature {feature.name!r} writes the role {column.role!r}: map it to a field, "
                        "and leave status, runat and deadline to transitions and timers"
                    )
                claim(feature.name, "column", column.role, what=f"what the role {column.role!r} holds")
                columns[column.role] = column
        return tuple(columns.values())

    def _fill(self, claim: _Claims) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        fill: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        for feature in self.features:
            for role, maker in feature.fill.items():
                claim(feature.name, "fill", role, what=f"what put writes into {role!r}")
                fill[role] = maker
        return fill

    def _check_given(self) -> None:
        timed = {timer.option for timers in self.timers.values() for timer in timers}
        timed |= {detour.option for detour in self.detours}
        for row in self.rows:
            if row.given and row.given not in timed:
                raise ConfigurationError(
                    f"feature {row.by!r}: the option {row.given!r} of {row.event} must be the seconds of a timer or a "
                    f"detour of this queue: {', '.join(sorted(timed)) or 'it has none'}"
                )

    def _widened(self, guard: Guard) -> Guard:
        found = guard.states
        while guard.and_before and (more := {row.source for row in self.due if row.target in found} - {*found}):
            found += "".join(sorted(more))
        return replace(guard, states=found)

    def _check_guards(self) -> None:
        for guard in self.guards:
            known = [letter for letter in guard.states if letter in self.states]
            unknown = [letter for letter in guard.states if letter not in (*NAMES, *self.states)]
            if unknown or (guard.states and not known):
                raise ConfigurationError(
                    f"feature {guard.name!r}: {guard.states!r} must be letters of this queue's states, which are "
                    f"{PLAIN.states(self.states)}"
                )
            for row in self.rows if guard.role else ():
                # when a session ends, its tasks are released
                by_itself = row.due or row.loses or (row.source, row.event) == (TAKEN, "release")
                if by_itself and row.target in guard.states and row.source not in guard.states:
                    raise ConfigurationError(
                        f"feature {guard.name!r} holds for {PLAIN.state(row.target)}, and not for "
                        f"{PLAIN.state(row.source)}, from where {row.event!r} moves tasks there by itself, so two "
                        f"tasks could meet: add {row.source!r} to {guard.states!r}"
                    )

    def brought(self, token: str) -> dict[str, Any]:
        """Return the values that the features bring for a take."""
        return {name: make(token) for name, make in self.brings}

    @cached_property
    def due(self) -> tuple[Transition, ...]:
        """The rows that a timer runs, taken tasks' first: the task may be due in the next state, too."""
        return tuple(sorted((row for row in self.rows if row.due), key=lambda row: row.source != TAKEN))

    @property
    def events(self) -> tuple[str, ...]:
        """The events that a caller may run, in the table's order."""
        return tuple(self._sources)

    @property
    def structure(self) -> list[tuple[object, ...]]:
        """The table without durations, feature names, the core, and events by which tasks stay as they are.

        The installation does not depend on these.
        """
        rows = [row for row in self.rows if row.by != CORE.name and (row.follows or row.prolongs)]
        moves = [(t.source, t.event, t.target, t.given, t.fenced, t.picks, t.follows, t.due) for t in rows]
        each = [timer for timers in self.timers.values() for timer in timers]
        timers = [(t.state, t.option, t.column, *([t.writes] if t.writes else [])) for t in each]
        return sorted([*moves, *timers, *((c.role, str(c)) for c in self.columns)], key=str)

    def sources(self, event: str) -> tuple[str, ...]:
        """Return the states that `event` leaves."""
        return self._sources.get(event, ())

    def picked(self) -> tuple[str, ...]:
        """Return the states in which an event may choose the oldest tasks itself."""
        return tuple(dict.fromkeys(row.source for row in self.rows if row.picks))

    def timer(self, state: str, column: str) -> Timer | None:
        """Return the timer for `state` in `column`, or None."""
        return next((timer for timer in self.timers.get(state, ()) if timer.column == column), None)

    @property
    def pending(self) -> tuple[str, ...]:
        """The states from which a task may still be taken without a further call: it has not ended."""
        found = {"R", TAKEN, *(detour.via for detour in self.detours)}
        while more := {row.source for row in self.due if row.target in found} - found:
            found |= more
        return tuple(state for state in self.states if state in found)

    @cached_property
    def last_take(self) -> Transition | None:
        """The row that ends a task whose last take was lost, or None."""
        return next((row for row in self.rows if row.loses), None)

    @cached_property
    def undone(self) -> Transition:
        """The release of a task that has not been worked on: its take does not count."""
        row = next(row for row in self._by_source[TAKEN, "release"] if not row.given)
        return replace(row, writes=tuple((c.role, c.undone) for c in self.columns if c.undone is not KEEP))

    def guard(self, name: str) -> Guard | None:
        """Return the guard with this name, or None."""
        return next((guard for guard in self.guards if guard.name == name), None)

    @cached_property
    def room(self) -> Guard | None:
        """The guard that bounds how many tasks there are."""
        return self._checking("room")

    @cached_property
    def single(self) -> Guard | None:
        """The guard by which one task has a value."""
        return self._checking("single")

    @cached_property
    def turns(self) -> Guard | None:
        """The guard by which the tasks of a value wait for each other."""
        return self._checking("turns")

    def _checking(self, what: str) -> Guard | None:
        return next((guard for guard in self.guards if guard.checks == what), None)

    @property
    def limited(self) -> list[Guard]:
        """The guards with limits, which may be changed while programs run."""
        return [guard for guard in self.guards if guard.limits]

    def frees(self, source: str, target: str) -> bool:
        """Return whether a take may find a task after such a move that it did not find before."""
        return target == READY or (target != TAKEN and any(source in guard.in_the_way for guard in self.guards))

    def usual_event(self, source: str, target: str) -> str:
        """Return the event that a transition is counted as unless it names another; "write" if no event makes it."""
        return self._usual.get((source, target), "write")

    def is_usual(self, event: str, source: str, target: str) -> bool:
        """Return whether the counted transition alone shows which event it was."""
        return source != target and self.usual_event(source, target) == event

    def before_take(self, row: Transition) -> bool:
        """Return whether `row` leads to a state in which tasks wait to be taken."""
        return row.follows and (row.target == "R" or any(row.target == detour.via for detour in self.detours))

    def remembers(self, row: Transition) -> tuple[str, ...]:
        """Return the options that a role with the same name keeps while the task exists if `row` brings them.

        Only rows after which the task will be taken again remember options: a take's count for it alone.
        """
        if not self.before_take(row):
            return ()
        options = {timer.option for timers in self.timers.values() for timer in timers}
        return tuple(option for option in REMEMBERED if option in options & self.roles)

    def accepts(self, row: Transition) -> frozenset[str]:
        """Return the options, in seconds, that a call may have if it runs this row.

        They time the entered state, have chosen the row, or are remembered by a role.
        A deadline times the task, so only rows before a take accept it.
        """
        if not row.follows:
            return frozenset({"increment"} if row.prolongs and self.timers[row.source] else ())
        timers = self.timers.get(row.target, ())
        timed = (timer.option for timer in timers if timer.column == "runat" or self.before_take(row))
        return frozenset(filter(None, {*timed, *self.remembers(row), row.given}))

    def options(self, event: str) -> frozenset[str]:
        """Return the options, in seconds, that `event` takes in any state."""
        return self._options.get(event, frozenset())

    def choose(self, source: str, event: str, given: Iterable[str], to: str | None = None) -> Transition | None:
        """Return the row that a call of `event` runs in `source` with the options `given`, or None."""
        chosen = None
        for row in self._by_source.get((source, event), ()):
            if row.named and row.target != to:
                continue
            if row.given in given:
                return row
            if not row.given:
                chosen = row
        return chosen

    @property
    def ack_deletes(self) -> bool:
        """Whether an ack deletes the task."""
        acked = self.choose(TAKEN, "ack", ())
        return acked is not None and acked.target == ABSENT

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("from", "event", "option", "to", "timed by", "brought by")]
        merged: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            event = f"{row.event} ({row.due})" if row.due else row.event + " (picks)" * row.picks
            timers = self.timers.get(row.target, ()) if row.follows else ()
            named = ((timer.option or timer.event, timer.default) for timer in timers)
            timed = " ".join(name if default is None else f"{name}={default:.12g}" for name, default in named)
            timed = "+ increment" if row.prolongs else timed
            rest = (event, row.given, row.target, timed, row.by)
            merged.setdefault(rest, []).append(row.source + "!" * row.fenced)
        lines += [(" ".join(sources), *rest) for rest, sources in merged.items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


def _never_entered(feature: str, state: str) -> ConfigurationError:
    return ConfigurationError(f"feature {feature!r} moves tasks out of {state}, which nothing enters")
