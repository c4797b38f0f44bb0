"""Compile a machine for a dialect: a statement is a selector (which rows) and a change (what it writes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain, combinations
from typing import Any, Final, Literal, NamedTuple

from xq.core.kinds import Row, Table, own_name
from xq.core.machine import (
    ABSENT,
    ENDED,
    KEEP,
    MANAGED,
    REMEMBERED,
    ROLE_DEFAULTS,
    Machine,
    Timer,
    Transition,
)

Mode = Literal["key", "keys", "first", "oldest", "due", "owned", "all", "each"]
Fence = Literal["", "session", "take", "takes"]
Lost = Literal["", "last", "earlier"]
SKIPS = {"tube": "skip", "group": "skipg"}  # the names of values to skip, by their role; then a number


class Selector(NamedTuple):
    """The rows that a statement selects: all in `state`, or in one of the states `more`.

    - key: one by its key, and by `column` if it must be due as well.
    - keys: those in a list.
    - oldest: the first `n` by priority and key that are not due.
    - first: the first such row; its plan is faster than a list with one row.
    - due: up to `n` whose time in `column` has passed.
    - owned: up to `n` with tokens in some ranges: the tasks that some sessions have taken.
    - all: every session's tasks; they are not returned.
    - each: as `all`, and returned.
    """

    mode: Mode
    state: str
    # "session": only this session's tasks; "take": this take's; "takes": the listed takes'
    fence: Fence = ""
    column: str = ""
    tube: bool = False  # whether only one tube's rows are meant
    more: tuple[str, ...] = ()  # states; for the modes all and each
    skips: tuple[int, ...] = ()  # how many values' rows are not meant, for each of SKIPS; for first and oldest
    ranges: int = 1  # token ranges; for the mode owned
    passed: int = 0  # how many tasks are not meant, by their keys; for the modes first and oldest
    briefly: bool = False  # whether it waits for a locked row for a second at most; for the modes key and keys
    floor: bool = False  # whether it begins at the key `:floor`; for the modes first and oldest
    lost: Lost = ""  # whether the lost take was the last one that max_takes allows
    when: tuple[Any, ...] = ()  # conditions, as those of a Transition; for the mode key
    unread: bool = False  # whether a deletion returns the value `left` in place of the row; for the mode key


class Window(NamedTuple):
    """Where a process looks beside a snapshot that is held (xq/engine/floors.py); by default everywhere."""

    above: str = ""  # a condition on the keys of ready tasks
    due: bool = False  # whether of the timers only those with times around now


EVERYWHERE: Final = Window()


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the call brings under this name: seconds, or as `at` the moment when they end."""

    name: str


@dataclass(frozen=True, slots=True)
class Own:
    """The task's own seconds: the role's value if it has one, else the default."""

    role: str
    default: float | None


@dataclass(frozen=True, slots=True)
class After:
    """A moment: `seconds` after the first of `since` that is not NULL (a role, or "now").

    If any seconds are missing, the moment is NULL, which means never: NULL + 1 is NULL.
    """

    since: tuple[str, ...]
    seconds: tuple[Given | Own, ...]


@dataclass(frozen=True, slots=True)
class Later:
    """What the role holds, or this moment if it is later. NULL, which is never, stays."""

    at: After


@dataclass(frozen=True, slots=True)
class Change:
    """The values that a statement writes: for the queue's roles, and for the application's columns.

    `update` names these columns; the call brings the values.
    """

    target: str
    roles: Mapping[str, Any] = field(hash=False)
    update: tuple[str, ...] = ()


class Known(NamedTuple):
    """A put of one task whose row the caller has, so that nothing need be read back."""

    sql: str  # of the put, which returns nothing
    # Makes the row of the values and of the columns: of the type of each, and whether one left out is NULL. It is None
    # if the database may change a value, and has None for a key that the database makes.
    row: Callable[[Row, Mapping[str, tuple[str, bool]]], list[Any] | None]


class Charge(NamedTuple):
    """What a take charges for one task, in its transaction. It gets none if `sql` changes no row."""

    sql: str  # for the task that a condition finds
    free: str  # the condition that this task is not charged
    declares: str = ""  # the variables that both name, where `terms.takes_in_block`


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with named values: a query, or a change with the statements that share its transaction.

    Empty parts do not run. Few statements have more than `sql`, and no database needs all parts.
    """

    sql: str
    _: KW_ONLY
    # Names for the application fields' values, in the call's order, row by row.
    names: tuple[str, ...] = ()
    # Run before `sql`, in this order:
    admitted: str = ""  # must return a row; else nothing else runs, and nothing is returned
    # locks and returns the rows that `sql` then changes by their keys, the last values of each
    lock: str = ""
    others: str = ""  # as `lock`; if both find rows, `among` returns the keys to change
    among: str = ""
    charge: Charge | None = None
    # Run after `sql`:
    charge_each: str = ""  # charges each row that `sql` returned, by its key
    back: str = ""  # reads the locked rows again; without it the statement returns the rows as `lock` read them
    within: Statement | None = None  # what runs in its place in the application's transaction
    known: Known | None = None  # what may run in its place, of one task
    unread: bool = False  # it returns no row, but the value `left` if it has deleted one

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Each part's SQL in the order in which the parts run, and what it is for."""
        parts = [
            (self.admitted, "is there room? Without a row nothing is put"),
            (self.lock, "lock the tasks"),
            (self.others, "lock the tasks of other groups"),
            (self.among, "which of both are meant"),
            (self.charge.sql if self.charge else "", "charge it"),
            (self.sql, ""),
            (self.charge_each, "charge it"),
            (self.back, "read them back"),
        ]
        shown = [(sql, f"  -- {why}" if why else "") for sql, why in parts if sql]
        others = [part for part in self.within.parts if part not in shown] if self.within else []
        return shown + [(sql, f"{why}, in a transaction of the application") for sql, why in others]


def change(machine: Machine, row: Transition, given: frozenset[str], update: tuple[str, ...] = ()) -> Change:
    """Return what `row` writes if a call brings the options `given`.

    The entered state alone decides it, except for the deadline, which belongs to the task: it starts when the task
    first comes under it, and continues from state to state.
    """
    brought = {"delay" if option == "at" else option: Given(option) for option in given}

    def seconds(timer: Timer) -> Given | Own:
        if timer.option in brought:
            return brought[timer.option]
        # A row not yet in the table has only the seconds that the call brings.
        own = timer.option in REMEMBERED and timer.option in machine.roles and row.source != ABSENT
        return Own(timer.option if own else "", timer.default)

    if not row.follows and row.prolongs:
        increment = (Given("increment"),)
        since = ("runat", "now") if machine.settings.touch_ends else ("runat",)
        prolonged = {"runat": After(since, increment), "deadline": After(("deadline",), increment)}
        timers = machine.timers[row.source] if "increment" in given else ()
        roles: dict[str, Any] = {timer.column: prolonged[timer.column] for timer in timers}
        if row.event and not given and (timer := machine.timer(row.source, "runat")):  # its time begins anew
            roles["runat"] = Later(After(("now",), (seconds(timer),)))
        return Change(row.target, roles, update)

    roles = {"status": row.target} if row.follows or row.counts else {}  # if it stays the same, triggers note the event
    written = {role: value for role, value in row.writes if role in machine.roles}
    if not row.follows:
        return Change(row.target, roles | written, update)
    for option in machine.remembers(row):
        if option in given:
            roles[option] = Given(f"own_{option}")
    if "runat" in machine.roles:
        timer = machine.timer(row.target, "runat")
        roles["runat"] = After(("now",), (seconds(timer),)) if timer else None
    if "deadline" in machine.roles:
        timer = machine.timer(row.target, "deadline")
        late = {detour.option for detour in machine.detours if not detour.only}
        waits = (brought[row.given],) if row.given in late else ()
        if timer is None:
            roles["deadline"] = None
        elif timer.option in brought or machine.timer(row.source, "deadline") is None:
            roles["deadline"] = After(("now",), (*waits, seconds(timer)))
        elif waits:
            roles["deadline"] = After(("deadline",), waits)
    if "finished" in machine.roles:
        since = ("finished", "now") if row.source in ENDED else ("now",)  # an own feature may lead from Z to D
        roles["finished"] = After(since, ()) if row.target in ENDED else None
    left = machine.leaving.get(row.source, ()) if row.target not in (ABSENT, row.source) else ()
    roles |= {role: value for role, value in left if role in machine.roles}  # first: MariaDB writes from left to right
    for column in machine.columns:
        value = column.at.get(row.target, column.otherwise)
        if value is not KEEP and column.role != row.given:  # a call with a role's option brings the role's value
            roles[column.role] = value
    return Change(row.target, roles | written, update)


def puts(machine: Machine, table: Table, words: Mapping[str, Any]) -> dict[str, str]:
    """Return what a put writes and what is checked before it, by the options of the call, joined by blanks.

    By options for which two definitions have an equal text, they put the same rows. A column that xq brings is left out
    where it says nothing: it has the same meaning in a row of a definition that lacks the column.
    """
    found = {}
    checked = [
        (each.name, each.value, each.role and table.roles[each.role].column, [words.get(letter) for letter in letters])
        for each in machine.guards
        if each in (machine.room, machine.single)
        and (letters := [state for state in machine.states if state in each.states])
    ]
    made = machine.settings.id, sorted(table.roles[role].column for role in machine.fill if role != "key")
    for row in (row for row in machine.rows if (row.source, row.event) == (ABSENT, "put")):
        options = sorted(machine.accepts(row))
        for given in chain.from_iterable(combinations(options, n) for n in range(len(options) + 1)):
            if row.given not in ("", *given):
                continue
            brought = {role: Own(role, None) for role in machine.remembers(row)}
            written = {**ROLE_DEFAULTS, **brought, **change(machine, row, frozenset(given)).roles}
            columns = {
                field.column: written[role]
                for role, field in table.roles.items()
                if role in written and not (field.name in (role, own_name(role)) and _says_nothing(role, written[role]))
            }
            columns[table.roles["status"].column] = words[row.target]
            found[" ".join(given)] = repr((sorted(columns.items()), checked, made))
    return found


def _says_nothing(role: str, value: Any) -> bool:
    """Return whether a value of a column that xq brings is NULL, or means as much."""
    seconds = value.seconds if isinstance(value, After) else (value,)
    unknown = any(isinstance(each, Own) and each.default is None for each in seconds)
    return role in (*MANAGED, *REMEMBERED) and (unknown or value is None or value == ROLE_DEFAULTS.get(role, ""))
