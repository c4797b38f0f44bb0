"""Find tasks by a filter, in pages that are as fast in a table of ten million rows; failures in groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from xq.core.errors import BadType, BadValue, FeatureOff, shown
from xq.core.machine import TAKEN, Machine
from xq.core.ports import NUMBERS, Field, Row
from xq.core.values import Parts, Tasks, chunks
from xq.engine.history import History
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.operators import cursors
from xq.operators.failures import failure_of
from xq.operators.filters import Filter, Term, number, parse, quoted, seconds
from xq.sessions.session import UUID_LENGTH, owner_of

if TYPE_CHECKING:
    from xq.adapters.databases.searches import Walk

T = TypeVar("T")

LOOK = 10_000  # rows that one call examines
MOST = 1_000  # tasks of a page
COUNTED = 100_000  # tasks of a state that an index may have to be counted there
FETCHED = 100  # tasks that one statement reads by their keys
STEPS: Final = (400, 2_000)  # rows of the queries after the first one of a call
TRANSITIONS = 1_000_000  # of the history, that a term like age>1h reads
ENTERED = 100_000  # tasks among these that it remembers
DISORDER = 1_000  # transitions by which the order of the ids may differ from that of the times
RECENT = 200_000  # transitions in which the times of tasks are looked up
ASKED = 1_000  # keys that one statement looks up there
FAILED: Final = ("B", "W", "R")  # the states of tasks that have not recovered from an error, the likeliest first
IMPLIED: Final = {"failure": FAILED, "session": (TAKEN,)}  # the states of the tasks that a term can mean
NOTHING: Final[Mapping[str, Any]] = {}

COMPARED: Final = (">", ">=", "<", "<=")


@dataclass(frozen=True)
class Found(Generic[T]):
    """A page of tasks. `next` and `previous` are cursors for `find`; None if nothing is there.

    `since` has for each task when it came into its state, in seconds since 1970; None if that is not known. The token
    of a taken task tells it; of others the feature history, if it was one of its last 200,000 transitions. `looked` is the number of the rows that were examined, and `ended` whether the call came to the end. If it did not,
    and the page is not full, it stopped after 10,000 rows: go on with the cursor.
    """

    tasks: list[T]
    since: list[float | None]
    next: str | None
    previous: str | None
    looked: int
    ended: bool


@dataclass(frozen=True)
class FailureGroup:
    """Tasks whose errors have the same class and the same message, but for numbers, identifiers and quoted texts.

    `filter` selects them again. `first` and `last` are times in seconds since 1970, where the history has them.
    """

    id: str
    error: str  # the class of the error
    message: str  # with <n>, <hex>, <uuid> and <text> in the place of what varies
    example: str  # the error of one of the tasks
    key: Any  # of that task
    count: int
    states: Mapping[str, int]
    first: float | None
    last: float | None
    filter: str

    @property
    def title(self) -> str:
        """The class and the message in one line."""
        return ": ".join(filter(None, [self.error, self.message]))


class Failures(list[FailureGroup]):
    """The largest groups of failures. `looked` and `ended` as of `Found`: if it has not ended, the numbers are less."""

    looked: int = 0
    ended: bool = True


@dataclass(frozen=True)
class Step:
    """One transition of a task, and the time that the task then spent in `target`.

    `open` says that it is still there: then `seconds` is the time up to now. Times are seconds since 1970.
    """

    at: float
    event: str
    source: str
    target: str
    seconds: float | None
    open: bool
    session: str | None
    attempt: int | None
    tube: str | None
    actor: str | None
    reason: str | None


@dataclass
class Meant:
    """What a filter means for one queue: the states, tests as SQL with their values, and tests of this process."""

    states: tuple[str, ...]
    keys: list[str] = field(default_factory=list)  # conditions of the keys that a term names
    fixed: dict[str, Any] = field(default_factory=dict)  # the one value of a role that an index begins with
    tests: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, str] = field(default_factory=dict)  # SQL by name, for the checks
    checks: list[Callable[[Mapping[str, Any]], bool]] = field(default_factory=list)

    def value(self, value: Any) -> str:
        """Return a value as a named one."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def test(self, conditions: Sequence[str], negated: bool) -> None:
        """Require that one of these conditions holds, or none."""
        self.tests.append(f"{'NOT ' * negated}({' OR '.join(conditions)})")


@dataclass(frozen=True)
class Place:
    """A place between two rows: before or after the row at a position of a walk."""

    walk: int
    position: tuple[Any, ...]
    after: bool


class Examined(NamedTuple):
    """A row that was examined."""

    walk: int
    position: Row
    extras: Mapping[str, Any]
    passes: bool  # without the extras if it does not


class Page(NamedTuple):
    """Rows that passed, and the cursors of the place where the search began, and of its end (None: all was seen)."""

    rows: list[Examined]
    here: str | None
    there: str | None
    looked: int
    ended: bool


class Movable(NamedTuple):
    """Tasks without their rows: (key, state). `next` is a cursor, None at the end; `looked` counts examined rows."""

    tasks: list[tuple[Parts, str]]
    next: str | None
    looked: int


class Search(Generic[T]):
    """Finds the tasks of one queue."""

    def __init__(self, database: Database, tasks: Tasks[T], machine: Machine, history: History) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.history = history
        self.fields = {field.name: field for field in tasks.table.fields}

    def _run(self, sql: str, **values: Any) -> list[Row]:
        return self.database.execute(sql, values)

    # pages

    def states_alone(self, filter: str | Filter) -> tuple[str, ...] | None:
        """Return the states that a filter names; None if it names anything else."""
        terms = (parse(filter) if isinstance(filter, str) else filter).terms
        return self._meant(filter).states if all(term.name == "state" for term in terms) else None

    def find(self, filter: str | Filter, n: int, after: str | None = None, back: bool = False) -> Found[T]:
        """Return the next `n` tasks that a filter means, behind a cursor or before it."""
        if not 1 <= n <= MOST:
            raise BadValue(f"find returns 1 to {MOST:,} tasks, not {shown(n)}: go on with the cursor")
        meant = self._meant(filter)
        page = self._page(meant, n, after, back, self._walks(meant))
        chosen = [self._key_of(row) for row in page.rows]
        tasks, since = self._tasks(meant, chosen[::-1] if back else chosen)
        here, there = (page.there, page.here) if back else (page.here, page.there)
        return Found(tasks, since, there, here, page.looked, page.ended)

    def movable(self, filter: Filter, n: int, after: str | None) -> Movable:
        """Return the keys and states of the next `n` tasks that a filter means, in an order in which none moves.

        The order is that of the key if an index is by times or owners. Reads no task.
        """
        meant = self._meant(filter)
        meant.extras["state"] = self.database.dialect.noted_state
        page = self._page(meant, n, after, False, self._walks(meant, stable=True))
        return Movable([(self._key_of(row), row.extras["state"]) for row in page.rows], page.there, page.looked)

    def read(self, filter: Filter, keys: Sequence[Parts]) -> list[T]:
        """Return the tasks of these keys that a filter still means."""
        return self._tasks(self._meant(filter), keys)[0]

    def _page(self, meant: Meant, n: int, after: str | None, back: bool, walks: Sequence[Walk]) -> Page:
        """Return the next `n` rows that pass, behind a cursor or before it."""
        place = None if after is None else self._place(after, walks)
        chosen: list[Examined] = []
        looked, ended = 0, True
        last: Examined | None = None
        for row in self._rows(meant, walks, place, back, n + 1):
            if len(chosen) == n or looked == LOOK:
                ended = False
                break
            looked += 1
            last = row
            if row.passes:
                chosen.append(row)
        end = None if ended or last is None else Place(last.walk, tuple(last.position), not back)
        return Page(chosen, self._cursor(walks, place), self._cursor(walks, end), looked, ended)

    def _key_of(self, row: Examined) -> Parts:
        return tuple(row.position[-len(self.tasks.table.key) :])

    def _walks(self, meant: Meant, stable: bool = False) -> list[Walk]:
        dialect = self.database.dialect
        in_states = dialect.in_states(meant.states) if meant.states else "FALSE"
        if meant.keys:
            return [dialect.by_keys(f"({' OR '.join(meant.keys)})", in_states)]
        walks = dialect.walks(meant.states, meant.fixed)
        moving = stable and not all(walk.is_stable for walk in walks)
        return [dialect.by_keys("", in_states)] if moving else walks

    def _rows(
        self, meant: Meant, walks: Sequence[Walk], place: Place | None, back: bool, first: int
    ) -> Iterator[Examined]:
        """Yield the rows of the walks from a place on. Some are read ahead, so the caller may stop at any row."""
        sizes = iter([first, *STEPS])
        size = next(sizes)
        order = range(len(walks) - 1, -1, -1) if back else range(len(walks))
        for at in order:
            walk, position, including = walks[at], None, False
            if place is not None and place.walk != at:
                if (at < place.walk) != back:
                    continue
            elif place is not None:
                position, including = place.position, place.after == back
            going = position is not None or not self._is_empty(walk)
            while going:
                going = False
                for segment in self.database.dialect.segments(walk, position, back, including):
                    rows = self._examine(meant, walk, at, segment, position, back, size)
                    yield from rows
                    full, size = len(rows) == size, next(sizes, STEPS[-1])
                    if full:  # more rows of this segment are behind the last one
                        position, including, going = tuple(rows[-1].position), False, True
                        break

    def _is_empty(self, walk: Walk) -> bool:
        """Return whether the indexes have all tasks for which this walk along the key is there, by the counters."""
        if not walk.rest:
            return False
        counts = stats(self.database.counters(), self.machine.states).counts
        if any(counts[state] and (not sql or counts[state] > COUNTED) for state, sql in walk.rest.items()):
            return False
        there = {state: self._run(sql, n=COUNTED + 1)[0][0] if counts[state] else 0 for state, sql in walk.rest.items()}
        return all(there[state] == counts[state] for state in there)

    def _examine(
        self,
        meant: Meant,
        walk: Walk,
        number: int,
        segment: str,
        position: Sequence[Any] | None,
        back: bool,
        size: int,
    ) -> list[Examined]:
        sql = self.database.dialect.examined(walk, segment, back, meant.tests, [*meant.extras.values()])
        at = {f"p{i}": value for i, value in enumerate(position or ())}
        width, found = len(walk.columns), []
        for row in self._run(sql, **meant.values, **meant.fixed, **at, look=size):
            extras, passes = NOTHING, bool(row[width])
            if passes and meant.extras:
                extras = dict(zip(meant.extras, row[width + 1 :], strict=True))
                passes = all(check(extras) for check in meant.checks)
            found.append(Examined(number, row[:width], extras, passes))
        return found

    def _tasks(self, meant: Meant, keys: Sequence[Parts]) -> tuple[list[T], list[float | None]]:
        """Return the tasks of these keys that still pass the tests, in this order, and since when each is in its state."""
        found: dict[Parts, Row] = {}
        width = len(self.tasks.table.key)
        for some in chunks(list(keys), FETCHED):
            values = {f"k{part}_{i}": value for i, key in enumerate(some) for part, value in enumerate(key)}
            sql = self.database.dialect.chosen(len(some), meant.states, meant.tests)
            for row in self._run(sql, **values, **meant.values, **meant.fixed):
                found[tuple(row[-width:])] = row[:-width]
        rows = [found[tuple(key)] for key in keys if tuple(key) in found]
        entered = self._since([row[-3:] for row in rows])
        since = [None if at is None else at / 1_000_000 for at in entered]
        return [self.tasks.returned(tuple(row[:-3])) for row in rows], since

    def _since(self, noted: Sequence[Row]) -> list[int | None]:
        """Return since when tasks, as (key as in the history, state, token), are in their states, in microseconds."""
        taken = [_taken_at(token) if state == TAKEN else None for _, state, token in noted]
        asked = [str(key) for (key, *_), at in zip(noted, taken, strict=True) if at is None]
        entered: dict[tuple[str, str], int] = {}
        if self._has_history and asked:
            dialect = self.database.dialect
            ((newest,),) = self._run(dialect.newest_transition)
            for some in chunks(asked, ASKED):
                values = {f"h{i}": key for i, key in enumerate(some)}
                rows = self._run(dialect.last_entries(len(some)), low=newest - RECENT, **values)
                entered |= {(str(key), state): int(at) for key, state, at in rows}
        found = zip(noted, taken, strict=True)
        return [entered.get((str(key), state)) if at is None else at for (key, state, _), at in found]

    # cursors

    def _cursor(self, walks: Sequence[Walk], place: Place | None) -> str | None:
        if place is None:
            return None
        return cursors.write(walks[place.walk].name, place.after, place.position)

    def _place(self, cursor: object, walks: Sequence[Walk]) -> Place:
        """Return the place that a cursor names. Raises BadType and BadValue."""
        if not isinstance(cursor, str):
            raise BadType(f"a cursor is text that find() has returned, not {shown(cursor)}")
        try:
            name, after, position = cursors.read(cursor)
            number = [walk.name for walk in walks].index(name)
            for column, value in zip(walks[number].columns, position, strict=True):
                if not (cursors.fits(column.kind, value) or (value is None and column.nullable)):
                    raise ValueError
        except ValueError:
            raise BadValue(
                f"{shown(cursor[:80])} is no cursor of this filter: find() returns them; begin without one"
            ) from None
        return Place(number, position, after)

    # filters

    def _meant(self, filter: object, states: Sequence[str] | None = None) -> Meant:
        """Return what a filter means for this queue. Raises BadValue and FeatureOff."""
        if not isinstance(filter, (str, Filter)):
            raise BadType(f"a filter is text, as in state:buried age>1h, not {shown(filter)}")
        terms = (parse(filter) if isinstance(filter, str) else parse(str(filter))).terms
        wanted = [*self.machine.states] if states is None else [each for each in self.machine.states if each in states]
        for term in terms:
            if term.name == "state":
                named = {self._state(term, value) for value in self._equal(term)}
                wanted = [each for each in wanted if (each in named) != term.negated]
            elif term.name in IMPLIED and not term.negated:
                wanted = [each for each in wanted if each in IMPLIED[term.name]]
        if states is not None or any(term.name in ("error", "failure") and not term.negated for term in terms):
            wanted.sort(key=lambda state: FAILED.index(state) if state in FAILED else len(FAILED))
        meant = Meant(tuple(wanted))
        for term in terms:
            self._add(meant, term)
        return meant

    def _add(self, meant: Meant, term: Term) -> None:
        known: dict[str, Callable[[Meant, Term], None]] = {
            "": self._word,
            "key": self._key,
            "age": self._age,
            "failure": self._failure,
            "session": self._session,
        }
        if term.name == "state":
            return
        if term.name in known:
            known[term.name](meant, term)
            return
        role = self.tasks.table.roles.get(term.name)
        named = role if role is not None and term.name not in ("status", "runat", "deadline", "owner") else None
        named = named or self.fields.get(term.name)
        if named is None:
            self._refuse(term)
            return
        if role is not None and role is named and term.name in ("tube", "utube", "unique"):
            self._exact(meant, term, named)
        else:
            self._of_field(meant, term, named)

    def _refuse(self, term: Term) -> None:
        if term.name in ("tube", "utube", "unique", "error", "priority", "attempts"):
            raise FeatureOff(
                f"the term {shown(str(term))} needs the role {term.name!r}: map it to a field", role=term.name
            )
        names = ["state", "key", "age", *(role for role in self.tasks.table.roles if role not in ("status", "runat"))]
        known = ", ".join(dict.fromkeys([*names, "failure", "session", *self.fields]))
        raise BadValue(
            f"the term {shown(str(term))} names {shown(term.name)}, which {self.database.store.name} does not have: it "
            f"has {known}. To look for the text itself, put it into quotes"
        )

    def _equal(self, term: Term) -> tuple[str, ...]:
        if term.operator not in (":", "="):
            raise BadValue(f"the term {shown(str(term))} cannot compare: write {term.name}:{quoted(term.values[0])}")
        return term.values

    def _state(self, term: Term, value: str) -> str:
        states = self.machine.states
        letter = value if value in states else self.tasks.wording.letter(value, states)  # xq's own filters have letters
        if letter is None:
            known = self.tasks.wording.states(states)
            raise BadValue(f"the term {shown(str(term))}: {self.database.store.name} has the states {known}")
        return letter

    def _word(self, meant: Meant, term: Term) -> None:
        dialect, value = self.database.dialect, meant.value(term.values[0])
        of_roles = {each.name for role, each in self.tasks.table.roles.items() if role in ("status", "owner")}
        texts = [each for each in self.tasks.table.fields if each.kind == "text" and each.name not in of_roles]
        meant.test([dialect.contains(dialect.column_of(each), value) for each in texts] or ["FALSE"], term.negated)

    def _key(self, meant: Meant, term: Term) -> None:
        conditions = []
        for value in self._equal(term):
            parts = self._parts(term, value)
            row = f"_f{len(meant.values)}"
            conditions.append(self.database.dialect.is_key(row))
            meant.values |= {f"k{i}{row}": part for i, part in enumerate(parts)}
        if term.negated or meant.keys:
            meant.test(conditions, term.negated)
        else:
            meant.keys = conditions

    def _parts(self, term: Term, value: str) -> tuple[Any, ...]:
        try:
            return self.tasks.identify(self.tasks.key_in_text(value))[0]
        except (BadType, BadValue) as error:
            raise BadValue(f"the term {shown(str(term))}: {error}") from None

    def _exact(self, meant: Meant, term: Term, named: Field) -> None:
        """Add a test of a role that names a tube, a utube or a unique value."""
        values = [self._sent(term, named, value) for value in self._equal(term)]
        if not term.negated and len(values) == 1 and values[0] != "" and term.name not in meant.fixed:
            meant.fixed[term.name] = values[0]
        meant.test([self._is(meant, named, value) for value in values], term.negated)

    def _of_field(self, meant: Meant, term: Term, named: Field) -> None:
        """Add a test of a field: a text contains the value, anything else equals it; numbers are compared."""
        dialect = self.database.dialect
        column = dialect.column_of(named)
        if term.operator in COMPARED:
            if named.kind not in NUMBERS:
                raise BadValue(f"the term {shown(str(term))} compares numbers, and {named.name!r} is {named.kind}")
            values = [number(term, value) for value in term.values]
            meant.test([dialect.compares(column, term.operator, meant.value(each)) for each in values], term.negated)
        elif named.kind == "text" and term.operator == ":":
            found = [
                dialect.contains(column, meant.value(value)) if value else dialect.is_empty(named)
                for value in term.values
            ]
            meant.test(found, term.negated)
        else:
            sent = [self._sent(term, named, value) for value in term.values]
            meant.test([self._is(meant, named, value) for value in sent], term.negated)

    def _is(self, meant: Meant, named: Field, value: Any) -> str:
        dialect = self.database.dialect
        return dialect.is_empty(named) if value == "" else dialect.equals(named, meant.value(value))

    def _sent(self, term: Term, named: Field, value: str) -> Any:
        """Return a value of a term as the database holds it; "" means that it is empty."""
        if value == "" or named.kind == "text":
            return value
        if named.kind in NUMBERS:
            return number(term, value)
        if named.kind == "uuid":
            try:
                return named.to_database(uuid.UUID(value))
            except ValueError:
                raise BadValue(f"the term {shown(str(term))} needs a UUID, not {shown(value)}") from None
        raise BadValue(
            f"the term {shown(str(term))} cannot look into {named.name!r}, which is {named.type}: texts, numbers and "
            'UUIDs can be searched, and for others only name:"" (it is empty)'
        )

    def _session(self, meant: Meant, term: Term) -> None:
        dialect = self.database.dialect
        for value in self._equal(term):
            if len(value) != UUID_LENGTH:
                raise BadValue(f"the term {shown(str(term))} needs the whole uuid of a session: sessions() lists them")
        meant.test([dialect.is_of_session(meant.value(f"{value}/")) for value in term.values], term.negated)

    def _failure(self, meant: Meant, term: Term) -> None:
        if "error" not in self.tasks.table.roles:
            raise FeatureOff(f"the term {shown(str(term))} needs the role 'error': map it to a field", role="error")
        ids = {value.lower() for value in self._equal(term)}
        meant.extras["error"] = self.database.dialect.start_of_error
        negated = term.negated
        meant.checks.append(lambda extras: (failure_of(extras["error"]).id in ids) != negated)

    # age

    def _age(self, meant: Meant, term: Term) -> None:
        """Add a test of the time since a task entered its state. Taken tasks have it in their token."""
        if term.operator not in COMPARED or len(term.values) != 1:
            raise BadValue(f"the term {shown(str(term))} needs a comparison with one span of time: age>1h or age<=5m")
        limit = seconds(term, term.values[0])
        others = [state for state in meant.states if state != TAKEN]
        ((now_us,),) = self._run(self.database.dialect.time_us)
        since_us = int(now_us) - round(limit * 1_000_000)
        entered = self._entered(term, limit, since_us, others) if others else {}
        dialect, meant.extras["token"] = self.database.dialect, self.database.dialect.roles["owner"]
        if others:
            meant.extras |= {"noted_key": dialect.noted_key, "noted_state": dialect.noted_state}
        is_less = term.operator.startswith("<")
        or_equal = term.operator.endswith("=")

        def check(extras: Mapping[str, Any]) -> bool:
            at_us = _taken_at(extras["token"])
            if at_us is None:
                # Entered before `since_us` if the history has no transition from then on.
                at_us = entered.get((str(extras.get("noted_key")), extras.get("noted_state", "")), since_us - 1)
            if at_us == since_us:
                return or_equal != term.negated
            return ((at_us > since_us) == is_less) != term.negated

        meant.checks.append(check)

    @property
    def _has_history(self) -> bool:
        return self.machine.settings.history is not None

    def _entered(self, term: Term, limit: float, since_us: int, states: Sequence[str]) -> dict[tuple[str, str], int]:
        """Return when tasks have entered these states since a time, by (key as in the history, state)."""
        if not self._has_history:
            raise FeatureOff(
                f"the term {shown(str(term))} needs the feature 'history', which {self.database.store.name} does not "
                "have; without it only the time of taken tasks is known: state:taken",
                feature="history",
            )
        kept = self.machine.settings.history
        if kept is not None and limit > kept:
            raise BadValue(f"the term {shown(str(term))} asks for more than the {kept:,.0f} s that the history is kept")
        dialect = self.database.dialect
        ((newest,),), ((oldest,),) = self._run(dialect.newest_transition), self._run(dialect.oldest_transition)
        low, high = int(oldest) - 1, int(newest)
        while low < high:  # the last id before the time
            middle = (low + high) // 2
            rows = self._run(dialect.time_after, since=middle)
            if rows and rows[0][0] < since_us:
                low = middle + 1
            else:
                high = middle
        since = max(0, low - DISORDER)
        if newest - since > TRANSITIONS:
            raise BadValue(
                f"the term {shown(str(term))}: there were {newest - since:,} transitions since then, and "
                f"{TRANSITIONS:,} are read. Ask for a shorter time"
            )
        rows = self._run(dialect.entries(states), since=since, at_us=since_us, n=ENTERED + 1)
        if len(rows) > ENTERED:
            raise BadValue(
                f"the term {shown(str(term))}: more than {ENTERED:,} tasks entered these states since then. Ask for a "
                "shorter time, or for a state that is entered less often"
            )
        return {(str(key), state): int(at_us) for key, state, at_us in rows}

    # failures

    def failures(self, filter: str | Filter, n: int) -> Failures:
        """Return the largest groups of failures among the tasks that a filter means."""
        if "error" not in self.tasks.table.roles:
            raise FeatureOff("failures() needs the role 'error': map it to a field", role="error")
        given = parse(filter) if isinstance(filter, str) else filter
        meant = self._meant(given, FAILED)
        dialect, table = self.database.dialect, self.tasks.table
        meant.test([dialect.is_empty(table.roles["error"])], negated=True)
        meant.extras |= {"error": dialect.start_of_error, "state": dialect.noted_state}
        if self._has_history:
            meant.extras["noted_key"] = dialect.noted_key
        walks, found = self._walks(meant), Failures()
        groups: dict[str, list[Examined]] = {}
        rows = self._rows(meant, walks, None, False, STEPS[-1])
        for row in islice(rows, LOOK):
            found.looked += 1
            if row.passes:
                groups.setdefault(failure_of(row.extras["error"]).id, []).append(row)
        found.ended = next(rows, None) is None
        times = self._times(meant.states) if groups else {}
        largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:n]
        found.extend(self._group(given, id, members, times) for id, members in largest)
        return found

    def _times(self, states: Sequence[str]) -> dict[tuple[str, str], int]:
        """Return when tasks have entered these states, of the last transitions, by (key as in the history, state)."""
        if not self._has_history:
            return {}
        dialect = self.database.dialect
        ((newest,),) = self._run(dialect.newest_transition)
        rows = self._run(dialect.entries(states), since=newest - RECENT, at_us=0, n=RECENT)
        return {(str(key), state): int(at_us) for key, state, at_us in rows}

    def _group(
        self, given: Filter, id: str, members: Sequence[Examined], times: Mapping[tuple[str, str], int]
    ) -> FailureGroup:
        example, states = members[0], [member.extras["state"] for member in members]
        noted = [times.get((str(each.extras.get("noted_key")), each.extras["state"])) for each in members]
        known = [at / 1_000_000 for at in noted if at is not None]
        failure = failure_of(example.extras["error"])
        return FailureGroup(
            id,
            failure.error,
            failure.message,
            failure.example,
            self.tasks.app_key(tuple(example.position[-len(self.tasks.table.key) :])),
            len(members),
            {state: states.count(state) for state in self.machine.states if state in states},
            min(known) if len(known) == len(members) else None,
            max(known) if known else None,
            str(given.with_terms(Term("failure", ":", (id,)))),
        )

    # one task

    def timeline(self, key: object) -> list[Step]:
        """Return the transitions of a task, with the time in each state. Raises FeatureOff."""
        self.history.check()
        rows = [row for row in self.history.read(key, None, None) if row.source != row.target]
        ((now_us,),) = self._run(self.database.dialect.time_us)
        found = []
        for row, following in zip(rows, [*rows[1:], None], strict=False):
            until_us = int(now_us) if following is None else following.at_us
            there = row.target in self.machine.states
            found.append(
                Step(
                    row.at_us / 1_000_000,
                    row.event,
                    row.source,
                    row.target,
                    (until_us - row.at_us) / 1_000_000 if there else None,
                    there and following is None,
                    owner_of(row.owner)[0] if row.owner else None,
                    row.attempt,
                    row.tube,
                    row.actor,
                    row.reason,
                )
            )
        return found


def _taken_at(token: str | None) -> int | None:
    """Return the time of a token, in microseconds since 1970."""
    at = owner_of(token)[1] if token else None
    return None if at is None else round(at * 1_000_000)
