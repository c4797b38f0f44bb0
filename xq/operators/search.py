"""Find tasks by a filter, in pages that are as fast in a table of ten million rows; failures in groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from xq.core.errors import BadValue, FeatureOff, shown
from xq.core.machine import Machine
from xq.core.ports import Row
from xq.core.values import Parts, Tasks, chunks
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.operators import cursors
from xq.operators.cursors import Place
from xq.operators.failures import FailureGroup, Failures, failure_of
from xq.operators.filters import Filter, Term, parse
from xq.operators.since import Noted, Since
from xq.operators.terms import FAILED, Examined, Meant, Terms

if TYPE_CHECKING:
    from xq.adapters.databases.searches import Walk

T = TypeVar("T")

LOOK = 10_000  # rows that one call examines
MOST = 1_000  # tasks of a page
FEW = 50_000  # tasks of a state that are sorted for each statement
FETCHED = 100  # tasks that one statement reads by their keys
STEPS: Final = (400, 2_000)  # rows of the queries after the first one of a call


@dataclass(frozen=True)
class Found(Generic[T]):
    """A page of tasks. `next` and `previous` are cursors for `find`; None if nothing is there.

    `since` has for each task when it came into its state, in seconds since 1970; None if that is not known. The token
    of a taken task tells it; of others the feature history, if it was one of its last 200,000 transitions. `looked` is
    the number of the rows that were examined, and `ended` whether the call came to the end. If it did not, and the page
    is not full, it stopped after 10,000 rows: go on with the cursor.
    """

    tasks: list[T]
    since: list[float | None]
    next: str | None
    previous: str | None
    looked: int
    ended: bool


class Movable(NamedTuple):
    """Tasks without their rows: (key, state). `next` is a cursor, None at the end; `looked` counts examined rows."""

    tasks: list[tuple[Parts, str]]
    next: str | None
    looked: int


class Page(NamedTuple):
    """Rows that passed, and the cursors of the place where the search began, and of its end (None: all was seen)."""

    rows: list[Examined]
    here: str | None
    there: str | None
    looked: int


class Search(Generic[T]):
    """Finds the tasks of one queue."""

    def __init__(self, database: Database, tasks: Tasks[T], machine: Machine) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.since = Since(database, machine)
        self.terms = Terms(database, tasks, machine, self.since)

    def _run(self, sql: str, **values: Any) -> list[Row]:
        return self.database.execute(sql, values)

    def states_alone(self, filter: str | Filter) -> tuple[str, ...] | None:
        """Return the states that a filter names; None if it names anything else."""
        terms = parse(str(filter)).terms
        return self.terms.meant(filter).states if all(term.name == "state" for term in terms) else None

    def find(self, filter: str | Filter, n: int, after: str | None = None, back: bool = False) -> Found[T]:
        """Return the next `n` tasks that a filter means, behind a cursor or before it."""
        if not 1 <= n <= MOST:
            raise BadValue(f"find returns 1 to {MOST:,} tasks, not {shown(n)}: go on with the cursor")
        meant = self.terms.meant(filter)
        page = self._page(meant, n, after, back)
        chosen = [self._key_of(row) for row in page.rows]
        rows = self._chosen(meant, chosen[::-1] if back else chosen)
        times = self.since.of([Noted(*row[-3:]) for row in rows])
        since = [None if at is None else at / 1_000_000 for at in times]
        here, there = (page.there, page.here) if back else (page.here, page.there)
        return Found(self._tasks(rows), since, there, here, page.looked, page.there is None)

    def movable(self, filter: Filter, n: int, after: str | None) -> Movable:
        """Return the keys and states of the next `n` tasks that a filter means, in an order in which none moves.

        Reads no task.
        """
        page = self._page(self.terms.meant(filter), n, after)
        return Movable([(self._key_of(row), row.noted.state) for row in page.rows], page.there, page.looked)

    def read(self, filter: Filter, keys: Sequence[Parts]) -> list[T]:
        """Return the tasks of these keys that a filter still means."""
        return self._tasks(self._chosen(self.terms.meant(filter), keys))

    def _page(self, meant: Meant, n: int, after: str | None, back: bool = False) -> Page:
        """Return the next `n` rows that pass, behind a cursor or before it."""
        walk = self._walk(meant)
        here, there = None if after is None else cursors.read(after, walk.name, walk.fields), None
        chosen: list[Examined] = []
        looked, position = 0, ()
        for row, passes in self._rows(meant, walk, n + 1, here, back):
            if len(chosen) == n or looked == LOOK:
                there = cursors.write(walk.name, Place(not back, position))
                break
            looked, position = looked + 1, tuple(row.position)
            if passes:
                chosen.append(row)
        return Page(chosen, here and cursors.write(walk.name, here), there, looked)

    def _key_of(self, row: Examined) -> Parts:
        return tuple(row.position[-len(self.tasks.table.key) :])

    def _walk(self, meant: Meant) -> Walk:
        """Return the walk on which the tasks are found: along an index of their state if one has them all, or the key.

        None has a column that a move changes, but for the state.
        """
        dialect = self.database.dialect
        if len(meant.states) == 1 and not meant.keys:
            (state,) = meant.states
            if walk := dialect.in_order(state, meant.of_tube):
                return walk
            if (walk := dialect.of_few(state)) and self._are_few(walk, state):
                return walk
        return dialect.by_keys(meant.states, meant.keys)

    def _are_few(self, walk: Walk, state: str) -> bool:
        """Return whether a walk has all tasks in a state, and these are few. An index of times lacks those without."""
        n = stats(self.database.counters(), self.machine.states).counts[state]
        return n <= FEW and bool(self._run(self.database.dialect.number_in(walk), n=FEW + 1)[0][0] == n)

    def _rows(
        self, meant: Meant, walk: Walk, first: int, place: Place | None = None, back: bool = False
    ) -> Iterator[tuple[Examined, bool]]:
        """Yield the rows of a walk from a place on, and whether they pass. Some are read ahead: stop at any row."""
        forward, width = ">" if walk.newest_first == back else "<", len(walk.fields)
        sizes = chain([first, *STEPS], iter(lambda: STEPS[-1], None))
        for size in sizes:
            operator = "" if place is None else forward + "=" * (place.after == back)
            sql = self.database.dialect.examined(walk, meant.tests, operator, back, meant.with_error)
            at = {f"p{i}": value for i, value in enumerate(place.position if place else ())}
            rows = self._run(sql, **meant.values, **at, look=size)
            found = [Examined(row[:width], Noted(*row[width + 1 : -1]), row[-1]) for row in rows]
            passing = [bool(row[width]) for row in rows]
            for check in meant.checks:
                some = iter(check([row for row, passes in zip(found, passing, strict=True) if passes]))
                passing = [passes and next(some) for passes in passing]
            yield from zip(found, passing, strict=True)
            if len(rows) < size:
                return
            place = Place(not back, tuple(found[-1].position))

    def _chosen(self, meant: Meant, keys: Sequence[Parts]) -> list[Row]:
        """Return the rows of these keys that still pass the tests, in this order, with what the history has of them."""
        found: dict[Parts, Row] = {}
        width = len(self.tasks.table.key)
        for some in chunks(list(keys), FETCHED):
            values = {f"k{part}_{i}": value for i, key in enumerate(some) for part, value in enumerate(key)}
            sql = self.database.dialect.chosen(len(some), meant.states, meant.tests)
            found |= {tuple(row[-width:]): row[:-width] for row in self._run(sql, **values, **meant.values)}
        return [found[key] for key in keys if key in found]

    def _tasks(self, rows: Sequence[Row]) -> list[T]:
        return [self.tasks.returned(tuple(row[:-3])) for row in rows]

    # failures

    def failures(self, filter: str | Filter, n: int) -> Failures:
        """Return the largest groups of failures among the tasks that a filter means."""
        if "error" not in self.tasks.table.roles:
            raise FeatureOff("failures() needs the role 'error': map it to a field", role="error")
        meant = replace(self.terms.meant(filter), with_error=True)
        meant.test([self.database.dialect.is_empty(self.tasks.table.roles["error"])], negated=True)
        each = [replace(meant, states=(state,)) for state in FAILED if state in meant.states]
        rows = chain.from_iterable(self._rows(one, self._walk(one), STEPS[-1]) for one in each)
        found, groups = Failures(), dict[str, list[Examined]]()
        for row, passes in islice(rows, LOOK):
            found.looked += 1
            if passes:
                groups.setdefault(failure_of(row.error).id, []).append(row)
        found.ended = next(rows, None) is None
        largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:n]
        found.extend(self._group(parse(str(filter)), id, members) for id, members in largest)
        return found

    def _group(self, given: Filter, id: str, members: Sequence[Examined]) -> FailureGroup:
        noted = [member.noted for member in members]
        times = [at / 1_000_000 for at in self.since.of(noted) if at is not None]
        states = [each.state for each in noted]
        there = {state: states.count(state) for state in self.machine.states if state in states}
        failure = failure_of(members[0].error)
        # With the states, as one of them may have an index.
        more = [Term("state", ":", tuple(there))] * (not any(term.name == "state" for term in given.terms))
        return FailureGroup(
            id,
            failure.error,
            failure.message,
            failure.example,
            self.tasks.app_key(self._key_of(members[0])),
            len(members),
            there,
            min(times) if len(times) == len(members) else None,
            max(times, default=None),
            str(Filter((*more, *given.terms, Term("failure", ":", (id,))))),
        )
