"""Machine x dialect -> statements. A statement is which rows times what changes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from xq.core.machine import ABSENT, KEEP, Machine, Timer, Transition

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

Way = Literal["key", "keys", "first", "oldest", "due", "held", "all", "each"]
Fence = Literal["", "session", "take"]


class Selector(NamedTuple):
    """Which rows, all of them in `state`, or in one of `more`.

    key: one by its key, which may have to be due, too. keys: those of a list. oldest: the first `n` by priority and key
    that are not due. first: the one of them that comes first, found faster than a list of one.
    due: up to `n` whose time in `column` has passed. held: up to `n` of a session. all: whosesoever; not returned.
    each: the same, returned.
    """

    way: Way
    state: str
    fence: Fence = ""  # only rows that this session, or this very take, holds
    column: str = ""
    tube: bool = False  # only of one tube
    more: tuple[str, ...] = ()  # of all, and of each


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the call brings, under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Own:
    """The task's own seconds, where the role holds some, else the default."""

    role: str
    default: float | None


@dataclass(frozen=True, slots=True)
class After:
    """A moment: so many seconds after the first of `since` that is there (a role, or "now").

    An absent number of seconds makes the moment absent, which is never: NULL + 1 is NULL.
    """

    since: tuple[str, ...]
    seconds: tuple[Given | Own, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What is written: the queue's roles, and the application's own columns (by name, values come with the call)."""

    target: str
    roles: Mapping[str, Any] = field(hash=False)
    update: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with named values: a look, or a change with what belongs to it, which is one transaction.

    Parts that are empty do not run: few statements have any but `sql`, and no database needs all of them.
    """

    sql: str
    _: KW_ONLY
    # The values for the application's fields, in the order in which the call brings them, of one row after the other.
    names: tuple[str, ...] = ()
    # Before it, in this order:
    admitted: str = ""  # must return a row: else nothing is done, and nothing is returned
    lock: str = ""  # returns the rows that `sql` then changes by their keys, which stand last in each, and holds them
    others: str = ""  # as `lock`; where both find some, `among` returns the keys of those that are meant
    among: str = ""
    before: str = ""  # for all of those
    # After it:
    after: str = ""  # for each row that it returned, by the key
    after_all: str = ""  # in place of `after`, for all of them, if `listed` makes a list of their keys
    back: str = ""  # for those of `lock`: reads them anew. Without it, what `lock` returned is returned


def change(machine: Machine, row: Transition, given: frozenset[str], update: tuple[str, ...] = ()) -> Change:
    """What `row` writes when a call brings the options `given`. It follows from the state entered alone,
    but for a deadline, which belongs to the task: it starts when the task comes under it and runs on.
    """
    if not row.enters:
        increment = (Given("increment"),)
        since = ("runat", "now") if machine.settings.touch_ends else ("runat",)
        prolonged = {
            "runat": After(since, increment),
            "deadline": After(("deadline",), increment),
        }
        timers = machine.timers[row.source] if "increment" in given else ()
        roles: dict[str, Any] = {timer.column: prolonged[timer.column] for timer in timers}
        return Change(row.target, roles, update)

    def seconds(timer: Timer) -> Given | Own:
        if timer.option in given:
            return Given(timer.option)
        # A row that is yet to be put has nothing of its own but what is given.
        own = timer.option in machine.roles and row.source != ABSENT
        return Own(timer.option if own else "", timer.default)

    roles = {"status": row.target}
    for option in machine.remembers(row):
        if option in given:
            roles[option] = Given(f"own_{option}")
    if "runat" in machine.roles:
        timer = machine.timer(row.target, "runat")
        roles["runat"] = After(("now",), (seconds(timer),)) if timer else None
    if "deadline" in machine.roles:
        timer = machine.timer(row.target, "deadline")
        waits = (Given(row.given),) if any(row.given == detour.option for detour in machine.detours) else ()
        if timer is None:
            roles["deadline"] = None
        elif timer.option in given or machine.timer(row.source, "deadline") is None:
            roles["deadline"] = After(("now",), (*waits, seconds(timer)))
        elif waits:
            roles["deadline"] = After(("deadline",), waits)
    for column in machine.columns:
        value = column.at.get(row.target, column.otherwise)
        if value is not KEEP:
            roles[column.role] = value
    return Change(row.target, roles, update)


class Shape(NamedTuple):
    """What rows bring that are put by one statement."""

    given: frozenset[str]  # the options
    has_key: bool


class Statements:
    """Compiles the statements of one queue for one database."""

    def __init__(self, machine: Machine, dialect: Dialect) -> None:
        self._machine = machine
        self._dialect = dialect

    def move(
        self, rows: Selector, row: Transition, given: frozenset[str] = frozenset(), update: tuple[str, ...] = ()
    ) -> Statement:
        """Take `row` of the table with these rows."""
        return self._dialect.move(rows, change(self._machine, row, given, update))

    def insert(self, row: Transition, given: frozenset[str], names: tuple[str, ...], count: int = 1) -> Statement:
        """Put `count` tasks that bring values for the fields `names`."""
        return self._dialect.insert(change(self._machine, row, given), names, count)
