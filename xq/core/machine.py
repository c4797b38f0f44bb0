"""What may happen to a task: states, transitions, and the features that compose them. Pure data.

A state is a letter. `X` is no row at all and `S` another tube: both occur in transitions and are never stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal

from annotated_types import Interval

from xq.core.errors import ConfigurationError, Conflict
from xq.core.words import NAMES as NAMES
from xq.core.words import PLAIN

ABSENT: Final = "X"
ELSEWHERE: Final = "S"
TAKEN: Final = "T"
READY: Final = "R"

# Seconds: an hour is 3600, and nobody means more than these 300 years. math.inf is never.
LONGEST: Final = 10_000_000_000.0
# math.inf among a task's own seconds, where the database has none. A power of two, which a single-precision column
# holds as well.
FOREVER: Final = 2.0**100
Seconds = Annotated[float, Interval(gt=0, le=LONGEST)]
Strategy = Literal["auto_increment", "time64", "uuid", "required"]
Retval = Literal["model", "dict", "tuple"]
On = bool  # a feature that is off is left out before its value is looked at

# Roles that hold seconds of the task's own, remembered over its life.
REMEMBERED: Final = ("ttl", "ttr")

# Roles that only xq writes; the others are plain fields of a task that xq reads.
MANAGED: Final = ("status", "runat", "deadline", "owner", "attempts")


class Marker:
    """A value that the dialect writes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # there is one of each, also where a machine was unpickled


TOKEN: Final = Marker("TOKEN")  # session and token of the take under way
PLUS_ONE: Final = Marker("PLUS_ONE")
KEEP: Final = Marker("KEEP")  # the column stays as it was


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: in `source`, `event` moves a task to `target`.

    `source` and `target` may name several states: "WZD" those of these that the queue has, "*" every state,
    "^T" every state but T. Where the target names several, the caller says which one.
    """

    source: str
    event: str
    target: str
    given: str = ""  # this row is meant when the call brings this option
    fenced: bool = False  # only whoever took the task
    picks: bool = False  # may choose the oldest rows itself
    enters: bool = True  # False: the state is prolonged, not entered (touch)
    named: bool = False  # the caller names the target (switch)
    due: str = ""  # the column whose passing brings the event
    by: str = ""  # the feature that brought the row


@dataclass(frozen=True, slots=True)
class Timer:
    """A task in `state` moves to `target` when the time in `column` passes, as the event `event`.

    `option` is the name under which a call brings the seconds, `default` what holds when it brings none;
    without either the task stays. The column `runat` times the state, `deadline` the task: it runs on from
    state to state.
    """

    state: str
    event: str
    target: str
    option: str
    default: float | None = None
    column: str = "runat"


@dataclass(frozen=True, slots=True)
class Detour:
    """Whatever enters `into` enters `via` first when the call brings `option`."""

    into: str
    via: str
    option: str


@dataclass(frozen=True, slots=True)
class Column:
    """What a role holds in each state entered: `at[state]`, else `otherwise`."""

    role: str
    at: Mapping[str, Any]
    otherwise: Any = KEEP


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that the database keeps when tasks are put or taken; the dialect knows it by `name`."""

    name: str
    role: str = ""
    states: str = ""  # the states it holds in
    value: Any = None
    in_the_way: str = ""  # the states in which a task may keep another one from being taken


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of `event` that is one of a few words; the first is the default."""

    event: str
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """What is decided beside the table. These are the core's: a feature sets another value."""

    id: Strategy | Literal["callable"] = "required"  # what makes the key of a task that brings none
    retval: Retval = "model"  # what the methods return
    fenced: bool = True  # whether only whoever took a task may do what is fenced
    reaped: bool = True  # whether the end of a session releases the tasks that it has taken
    touch_ends: bool = True  # whether touch gives an end to a state that has none
    counts_events: bool = False  # beside the transitions
    history: float | None = None  # for how many seconds each transition is kept as a row; math.inf: for good


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing a queue can do, as data. A function from the value in `features=` to this is all a feature is."""

    name: str
    needs: tuple[str, ...] = ()  # roles that fields= must map
    requires: tuple[str, ...] = ()  # other features
    transitions: tuple[Transition, ...] = ()
    timers: tuple[Timer, ...] = ()
    detours: tuple[Detour, ...] = ()
    columns: tuple[Column, ...] = ()
    guards: tuple[Guard, ...] = ()
    choices: tuple[Choice, ...] = ()
    # role, or "key" -> made by put from the task, where the task brings nothing
    fill: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    settings: Settings = Settings()
    structure: Any = True  # what must be the same in every process; durations and callables are not
    # What FeatureOff names the feature for: methods that it brings, and options -> the methods that take them.
    methods: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def seconds(on: bool | float) -> float | None:
    """The default of a feature that is on, or on with a number of seconds."""
    return None if isinstance(on, bool) else float(on)


READYING: Final = ("put", "release", "snatch", "restart", "switch", "dig")  # the methods that may move a task to R

CORE: Final = Feature(
    "core",
    transitions=(
        Transition(ABSENT, "put", "R"),
        Transition("R", "take", TAKEN, picks=True),
        Transition(TAKEN, "ack", ABSENT, fenced=True),
        Transition(TAKEN, "release", "R", fenced=True),
        Transition(TAKEN, "snatch", "R"),
        Transition(TAKEN, "touch", TAKEN, fenced=True, enters=False),
        Transition("WZD", "restart", "R"),
        Transition("^T", "switch", "^T"),
        Transition("*", "kill", ABSENT),
    ),
)

# What a mapped role holds by itself, whatever the features are.
ROLE_COLUMNS: Final = (
    Column("owner", at={TAKEN: TOKEN}, otherwise=None),
    Column("attempts", at={TAKEN: PLUS_ONE}),
)
# Names that an option would hide: of the methods' arguments, and of the values in SQL (see Dialect).
RESERVED: Final = frozenset(
    ("self", "task", "tasks", "key", "keys", "event", "n", "tube", "update", "to", "timeout", "wait", "increment")
    + ("now", "told", "session", "session_end", "mark", "owner", "unique", "many", "since", "until", "adding")
    + ("uuid", "queue", "lease", "waiter", "source", "target", "count", "name", "value", "savepoint")
    + ("listed", "rows", "chosen", "sink", "stream", "batch", "unit", "bucket")
)
NUMBERED: Final = re.compile(r"own_.*|[fkl][0-9].*")


def _never(task: Mapping[str, Any]) -> int:
    """How often a new task was taken."""
    return 0


ROLE_FILL: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {"attempts": _never}


def spread(letters: str, states: Iterable[str]) -> tuple[str, ...]:
    """The states that a source or target names: "R", "WZD", "*" (all) or "^TD" (all but these)."""
    if letters == "*":
        return tuple(states)
    if letters.startswith("^"):
        return tuple(state for state in states if state not in letters)
    return tuple(letters) if len(letters) == 1 else tuple(state for state in letters if state in states)


class _Claims:
    """Who decides what. A feature may replace what the core decides, but not what another feature does."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, ...], str] = {}

    def __call__(self, by: str, *claim: str, what: str) -> None:
        other = self._by.get(claim, CORE.name)
        if other not in (by, CORE.name):
            raise Conflict(other, by, what)
        self._by[claim] = by


class Machine:
    """The transition table of one queue, composed of its features. Holds no state.

    Raises Conflict when two features decide the same thing, and ConfigurationError when one leaves a state
    that nothing enters, or requires a feature that is off.
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
        self.guards = tuple(guard for feature in self.features for guard in feature.guards)
        self.choices = tuple(self._choices(claim))
        self.fill = self._fill(claim)
        self._by_source: dict[tuple[str, str], list[Transition]] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        called = [row for row in self.rows if not row.due]  # time's rows may bear the name of a method
        for row in called:
            self._by_source.setdefault((row.source, row.event), []).append(row)
            self._sources[row.event] = tuple(dict.fromkeys([*self._sources.get(row.event, ()), row.source]))
        self._usual: dict[tuple[str, str], str] = {}
        # Of the core's even what a feature has in its place: what was counted stays what it was under other features.
        for row in (*CORE.transitions, *self.rows):
            self._usual.setdefault((row.source, row.target), row.event)
        self._options = {
            event: frozenset(option for row in called if row.event == event for option in self.accepts(row))
            for event in self._sources
        }
        self._check_guards()
        for event, sources in self._sources.items():
            if len(sources) > 1 and any(row.picks for row in called if row.event == event):
                raise ConfigurationError(f"{event} picks tasks itself, so it leaves one state only, not {sources}")

    # composing

    def _check_names(self) -> None:
        names = [CORE.name, *(feature.name for feature in self.features)]
        for feature in self.features:
            if names.count(feature.name) > 1:
                raise ConfigurationError(f"two features are called {feature.name!r}: a feature needs a name of its own")
            for required in feature.requires:
                if required not in names:
                    raise ConfigurationError(f"feature {feature.name!r} needs the feature {required!r}, which is off")

    @staticmethod
    def _states(brought: Iterable[Feature]) -> tuple[str, ...]:
        entered: dict[str, str] = {}
        for feature in brought:
            targets = [
                *(row.target for row in feature.transitions if not row.target.startswith(("*", "^"))),
                *(timer.target for timer in feature.timers),
                *(detour.via for detour in feature.detours),
            ]
            entered |= dict.fromkeys(targets, feature.name)
        for state, name in entered.items():
            if len(state) != 1 or not (state.isascii() and state.isalpha()) or state == ELSEWHERE:
                raise ConfigurationError(f"feature {name!r} moves tasks to {state!r}: a state is one letter, and not S")
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
                        f"feature {feature.name!r} times by {timer.column!r}: runat and deadline do"
                    )
                self._check_option(feature.name, timer.option)
                for state in spread(timer.state, self.states):
                    if state not in timers:
                        raise _never_entered(feature.name, state)
                    for by in (timer.column, timer.option):
                        claim(feature.name, "timer", state, by, what=f"how long {state} lasts ({by})")
                    timers[state].append(replace(timer, state=state))
        return {state: tuple(found) for state, found in timers.items()}

    def _rows(self, brought: Iterable[Feature], claim: _Claims) -> tuple[Transition, ...]:
        rows: dict[tuple[str, str, str], Transition] = {}
        for feature in brought:
            for transition in feature.transitions:
                for row in self._spread(transition, feature.name):
                    name = (row.source, row.event, row.target if row.named else row.given)
                    claim(feature.name, "row", *name, what=f"({row.source}, {row.event})")
                    rows[name] = row
            for timer in feature.timers:
                for state in spread(timer.state, self.states):
                    row = Transition(state, timer.event, timer.target, due=timer.column, by=feature.name)
                    rows[state, timer.event, timer.column] = row
        callers = [row for row in rows.values() if row.enters and not row.due and not row.named]
        for feature in self.features:
            for detour in feature.detours:
                for row in callers:
                    if row.target == detour.into and not row.given:
                        by_detour = replace(row, target=detour.via, given=detour.option, by=feature.name)
                        rows.setdefault((row.source, row.event, detour.option), by_detour)
        return tuple(rows.values())

    def _spread(self, row: Transition, by: str) -> Iterator[Transition]:
        named = len(row.target) > 1
        for source in spread(row.source, self.states):
            if source not in (ABSENT, *self.states):
                raise _never_entered(by, source)
            if not row.enters and not self.timers.get(source):
                continue  # a state that nothing times cannot be prolonged
            for target in spread(row.target, self.states):
                given = next((d.option for d in self.detours if d.via == target), "") if named else row.given
                fenced = row.fenced and self.settings.fenced
                yield replace(row, source=source, target=target, given=given, fenced=fenced, named=named, by=by)

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
                if column.role not in self.roles - {"status", "runat", "deadline"}:
                    raise ConfigurationError(
                        f"feature {feature.name!r} writes the role {column.role!r}: map it to a field, "
                        "and leave status, runat and deadline to transitions and timers"
                    )
                claim(feature.name, "column", column.role, what=f"what the role {column.role!r} holds")
                columns[column.role] = column
        return tuple(columns.values())

    def _choices(self, claim: _Claims) -> Iterator[Choice]:
        for feature in self.features:
            for choice in feature.choices:
                claim(feature.name, "choice", choice.event, choice.name, what=f"{choice.event}({choice.name}=)")
                yield choice

    def _fill(self, claim: _Claims) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        fill = {role: maker for role, maker in ROLE_FILL.items() if role in self.roles}
        for feature in self.features:
            for role, maker in feature.fill.items():
                claim(feature.name, "fill", role, what=f"what put writes into {role!r}")
                fill[role] = maker
        return fill

    def _check_guards(self) -> None:
        for guard in self.guards:
            known = [letter for letter in guard.states if letter in self.states]
            unknown = [letter for letter in guard.states if letter not in (*NAMES, *self.states)]
            if unknown or (guard.states and not known):
                raise ConfigurationError(
                    f"feature {guard.name!r}: {guard.states!r} are letters of states, of which this queue has "
                    f"{PLAIN.states(self.states)}"
                )
            for row in self.rows if guard.role else ():
                by_itself = row.due or (row.source, row.event) == (TAKEN, "release")  # when its session ends
                if by_itself and row.target in guard.states and row.source not in guard.states:
                    raise ConfigurationError(
                        f"feature {guard.name!r} holds for {PLAIN.state(row.target)}, and not for "
                        f"{PLAIN.state(row.source)}, from where {row.event!r} moves tasks there by itself, so two "
                        f"tasks could meet: add {row.source!r} to {guard.states!r}"
                    )

    # asking

    @property
    def due(self) -> tuple[Transition, ...]:
        """The rows that time brings about; those of taken tasks first, which may then be due where they come to."""
        return tuple(sorted((row for row in self.rows if row.due), key=lambda row: row.source != TAKEN))

    @property
    def events(self) -> tuple[str, ...]:
        """Every event that a caller may run, in the order of the table."""
        return tuple(self._sources)

    @property
    def structure(self) -> list[tuple[object, ...]]:
        """The table without its durations and without the names of features."""
        moves = [(t.source, t.event, t.target, t.given, t.fenced, t.picks, t.enters, t.due) for t in self.rows]
        timers = [(t.state, t.option, t.column) for timers in self.timers.values() for t in timers]
        return sorted([*moves, *timers, *((c.role, str(c)) for c in self.columns)], key=str)

    def sources(self, event: str) -> tuple[str, ...]:
        """The states that `event` leaves."""
        return self._sources.get(event, ())

    def picked(self) -> tuple[str, ...]:
        """The states out of which an event may choose the oldest rows itself."""
        return tuple(dict.fromkeys(row.source for row in self.rows if row.picks))

    def timer(self, state: str, column: str) -> Timer | None:
        """What times `state` by `column`, if anything does."""
        return next((timer for timer in self.timers.get(state, ()) if timer.column == column), None)

    @property
    def pending(self) -> tuple[str, ...]:
        """The states out of which a task may yet be taken without anybody's doing: where it has not ended."""
        found = {"R", TAKEN, *(detour.via for detour in self.detours)}
        while more := {row.source for row in self.due if row.target in found} - found:
            found |= more
        return tuple(state for state in self.states if state in found)

    def guard(self, name: str) -> Guard | None:
        """The guard of this name, if a feature brings it."""
        return next((guard for guard in self.guards if guard.name == name), None)

    def frees(self, source: str, target: str) -> bool:
        """Whether a take may find something after such a move that it has not found before."""
        return target == READY or (target != TAKEN and any(source in guard.in_the_way for guard in self.guards))

    def usual_event(self, source: str, target: str) -> str:
        """The event that a transition is taken to be of, where nothing says another; "write" where none does it."""
        return self._usual.get((source, target), "write")

    def is_usual(self, event: str, source: str, target: str) -> bool:
        """Whether the transition, which is counted, says by itself what event it was."""
        return source != target and self.usual_event(source, target) == event

    def before_take(self, row: Transition) -> bool:
        """Whether `row` leads to where tasks wait to be taken."""
        return row.enters and (row.target == "R" or any(row.target == detour.via for detour in self.detours))

    def remembers(self, row: Transition) -> tuple[str, ...]:
        """Options that a role of the same name keeps for the life of the task when `row` brings them.

        Those of the timers, for rows after which the task will be taken again: what take brings is for that take.
        """
        if not self.before_take(row):
            return ()
        options = {timer.option for timers in self.timers.values() for timer in timers}
        return tuple(option for option in REMEMBERED if option in options & self.roles)

    def accepts(self, row: Transition) -> frozenset[str]:
        """The options, in seconds, that a call which takes this row may bring.

        Those that time the state, the one that chose the row, and those that a role remembers. What times the
        task itself, its deadline, is given where it is put or put back.
        """
        if not row.enters:
            return frozenset({"increment"})
        timers = self.timers.get(row.target, ())
        timed = (timer.option for timer in timers if timer.column == "runat" or self.before_take(row))
        return frozenset({*timed, *self.remembers(row), *filter(None, [row.given])})

    def options(self, event: str) -> frozenset[str]:
        """The options, in seconds, that `event` takes in any state."""
        return self._options.get(event, frozenset())

    def choose(self, source: str, event: str, given: Iterable[str], to: str | None = None) -> Transition | None:
        """The row that is meant in `source` when a call of `event` brings the options `given`."""
        chosen = None
        for row in self._by_source.get((source, event), ()):
            if row.named and row.target != to:
                continue
            if row.given in given:
                return row
            if not row.given:
                chosen = row
        return chosen

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("from", "event", "option", "to", "timed by", "brought by")]
        merged: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            event = f"{row.event} ({row.due})" if row.due else row.event + " (picks)" * row.picks
            timers = self.timers.get(row.target, ()) if row.enters else ()
            timed = " ".join(t.option if t.default is None else f"{t.option}={t.default:g}" for t in timers)
            timed = timed if row.enters else "+ increment"
            rest = (event, row.given, row.target, timed, row.by)
            merged.setdefault(rest, []).append(row.source + "!" * row.fenced)
        lines += [(" ".join(sources), *rest) for rest, sources in merged.items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


def _never_entered(feature: str, state: str) -> ConfigurationError:
    return ConfigurationError(f"feature {feature!r} moves tasks out of {state}, which nothing enters")
