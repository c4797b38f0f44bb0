"""Find tasks by a filter, in pages that are as fast in a table of ten million rows; failures in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from xq.core.errors import BadValue, FeatureOff, shown
from xq.core.machine import Machine
from xq.core.ports import Row
from xq.core.values import Parts, Tasks, chunks
from xq.engine.stats import stats
from xq.engine.unit import Database
from xq.operators import cursors
from xq.operators.cursors import Place
from xq.operators.failures import Failure, FailureGroup, Failures, failure_of
from xq.operators.filters import Term, parse
from xq.operators.since import Noted, Since
from xq.operators.terms import FAILED, Examined, Meant, Terms

if TYPE_CHECKING:
    from xq.adapters.databases.searches import Walk

T = TypeVar("T")

LOOK = 10_000  # rows that one call examines
MOST = 1_000  # tasks of a page
FEW = 50_000  # tasks of a state that are sorted for each statement
FETCHED = 100  # tasks that one statement reads by their keys
STEP = 2_000  # rows of the queries after the first one of a call


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


class Page(NamedTuple):
    """Tasks without their rows: (key, state), between two cursors: `next` is None at the end. None moves in its walk.

    `here` is None if the page began at an end of the walk. `looked` counts examined rows.
    """

    tasks: list[tuple[Parts, str]]
    here: str | None
    next: str | None
    looked: int


class Search(Generic[T]):
    """Finds the tasks of one queue."""

    def __init__(self, database: Database, tasks: Tasks[T], machine: Machine) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.since = Since(database, machine)
        self.terms = Terms(database, tasks, machine, self.since)

    def states_alone(self, filter: str) -> tuple[str, ...] | None:
        """Return the states that a filter names; None if it names anything else."""
        terms = parse(filter)
        return self.terms.meant(filter).states if all(term.name == "state" for term in terms) else None

    def find(self, filter: str, n: int, after: str | None = None, back: bool = False) -> Found[T]:
        """Return the next `n` tasks that a filter means, behind a cursor or before it."""
        if not 1 <= n <= MOST:
            raise BadValue(f"find returns 1 to {MOST:,} tasks, not {shown(n)}: go on with the cursor")
        meant = self.terms.meant(filter)
        page = self._page(meant, n, after, back)
        keys = [key for key, _ in page.tasks]
        rows = self._chosen(meant, keys[::-1] if back else keys)
        tasks = [self.tasks.returned(tuple(row[:-3])) for row in rows]
        here, there = (page.next, page.here) if back else (page.here, page.next)
        since = self.since.of([Noted(*row[-3:]) for row in rows])
        return Found(tasks, since, there, here, page.looked, page.next is None)

    def movable(self, filter: str, n: int, after: str | None) -> Page:
        """Return the keys and states of the next `n` tasks that a filter means. Reads no task."""
        return self._page(self.terms.meant(filter), n, after)

    def _page(self, meant: Meant, n: int, after: str | None, back: bool = False) -> Page:
        walk = self._walk(meant)
        here = None if after is None else cursors.read(self.tasks, walk, after)
        there, looked, last = None, 0, Place(not back, ())
        chosen: list[tuple[Parts, str]] = []
        for row, passes in self._rows(meant, walk, n + 1, here, back):
            if len(chosen) == n or looked == LOOK:
                there = cursors.write(self.tasks, walk, last)
                break
            looked, last = looked + 1, last._replace(position=row.position)
            if passes:
                chosen.append((self._key_of(row), row.noted.state))
        return Page(chosen, here and cursors.write(self.tasks, walk, here), there, looked)

    def _key_of(self, row: Examined) -> Parts:
        return row.position[-len(self.tasks.table.key) :]

    def _walk(self, meant: Meant) -> Walk:
        """Return the walk on which the tasks are found: along an index of their state if one has them all, or the key.

        None has a column that a move changes, but for the state.
        """
        dialect = self.database.dialect
        if len(meant.states) == 1 and not meant.keys:
            (state,) = meant.states
            if walk := dialect.in_order(state, meant.of_tube):
                return walk
            if walk := dialect.of_few(state):
                n = stats(self.database.counters(), self.machine.states).counts[state]
                # An index of times lacks the tasks without.
                if n <= FEW and self.database.execute(dialect.number_in(walk), {"n": FEW + 1})[0][0] == n:
                    return walk
        return dialect.by_keys(meant.states, meant.keys)

    def _rows(
        self, meant: Meant, walk: Walk, size: int, place: Place | None = None, back: bool = False
    ) -> Iterator[tuple[Examined, bool]]:
        """Yield the rows of a walk from a place on, and whether they pass. `size` are read first: stop at any row."""
        forward, width = ">" if walk.newest_first == back else "<", len(walk.fields)
        while True:
            operator = "" if place is None else forward + "=" * (place.after == back)
            sql = self.database.dialect.examined(walk, meant.tests, operator, back, meant.with_error)
            at = {f"p{i}": value for i, value in enumerate(place.position if place else ())}
            rows = self.database.execute(sql, {**meant.values, **at, "look": size})
            found = [Examined(tuple(row[:width]), Noted(*row[width + 1 : -1]), row[-1]) for row in rows]
            passing = [bool(row[width]) for row in rows]
            for check in meant.checks:
                some = iter(check([row for row, passes in zip(found, passing, strict=True) if passes]))
                passing = [passes and next(some) for passes in passing]
            yield from zip(found, passing, strict=True)
            if len(rows) < size:
                return
            place, size = Place(not back, found[-1].position), STEP

    def _chosen(self, meant: Meant, keys: Sequence[Parts]) -> list[Row]:
        """Return the rows of these keys that still pass the tests, in this order, with what the history has of them."""
        found: dict[Parts, Row] = {}
        width = len(self.tasks.table.key)
        for some in chunks(list(keys), FETCHED):
            values = {f"k{part}_{i}": value for i, key in enumerate(some) for part, value in enumerate(key)}
            sql = self.database.dialect.chosen(len(some), meant.states, meant.tests)
            rows = self.database.execute(sql, {**values, **meant.values})
            found |= {tuple(row[-width:]): row[:-width] for row in rows}
        return [found[key] for key in keys if key in found]

    def failures(self, filter: str, n: int) -> Failures:
        """Return the largest groups of failures among the tasks that a filter means."""
        if "error" not in self.tasks.table.roles:
            raise FeatureOff("failures() needs the role 'error': map it to a field", role="error")
        meant = replace(self.terms.meant(filter), with_error=True)
        meant.test([self.database.dialect.is_empty(self.tasks.table.roles["error"])], negated=True)
        each = [replace(meant, states=(state,)) for state in FAILED if state in meant.states]
        rows = chain.from_iterable(self._rows(one, self._walk(one), STEP) for one in each)
        examined = list(islice(rows, LOOK))
        failed = [row for row, passes in examined if passes]
        groups: dict[Failure, list[tuple[Examined, float | None]]] = {}
        for row, at in zip(failed, self.since.of([row.noted for row in failed]), strict=True):
            groups.setdefault(failure_of(row.error), []).append((row, at))
        largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0].id))[:n]
        found = Failures(self._group(filter, *group) for group in largest)
        found.looked, found.ended = len(examined), next(rows, None) is None
        return found

    def _group(self, filter: str, failure: Failure, members: list[tuple[Examined, float | None]]) -> FailureGroup:
        times = [at for _, at in members if at is not None]
        counts = Counter(row.noted.state for row, _ in members)
        states = {state: counts[state] for state in self.machine.states if state in counts}
        # With the states, as one of them may have an index.
        terms = parse(filter)
        more = [] if any(term.name == "state" for term in terms) else [Term("state", ":", tuple(states))]
        return FailureGroup(
            **vars(failure),
            id=failure.id,
            key=self.tasks.app_key(self._key_of(members[0][0])),
            count=len(members),
            states=states,
            first=min(times) if len(times) == len(members) else None,
            last=max(times, default=None),
            filter=" ".join(map(str, [*more, *terms, Term("failure", ":", (failure.id,))])),
        )
