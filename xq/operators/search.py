"""Find tasks by a filter, in pages that are as fast in a table with ten million rows; failures in groups."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, NamedTuple

from xq.core.errors import BadType, BadValue, FeatureOff, shown
from xq.core.kinds import T, fits_a_column
from xq.core.values import Key, Tasks, chunks
from xq.engine.executor import Executor
from xq.operators.failures import FailureGroup, Failures
from xq.operators.keys import key_as_text, key_in_text
from xq.operators.questions import Walk
from xq.operators.since import Seen, Since
from xq.operators.terms import FAILED, Meant

EXAMINED = 10_000  # rows in one call
LONGEST_PAGE = 1_000  # tasks
FEW = 50_000  # tasks in a state that are sorted for each statement
FETCHED = 100  # tasks that one statement reads by their keys
STEP = 2_000  # rows in a call's queries after the first one


@dataclass(frozen=True)
class Found(Generic[T]):
    """A page of tasks. `next` is the cursor for the page behind it, for `find`; None at the end.

    `since` has for each task when it came into its state, in seconds since 1970; None if that is not known. A taken
    task's token shows it, and the role finished for a task that has ended; for others the feature history, if it was
    among its last 200,000 transitions. `looked` counts the examined rows, `unknown` the rows that `age` leaves out,
    and `ended` says whether the call came to the end. If it did not, and the page is not full, it stopped after
    10,000 rows: go on with the cursor.
    """

    tasks: list[T]
    since: list[float | None]
    next: str | None
    looked: int
    ended: bool
    unknown: int = 0


class Page(NamedTuple):
    """Tasks' keys and states; the cursor behind them, None at the end; how many rows were examined."""

    tasks: list[tuple[Key, str]]
    next: str | None
    looked: int
    unknown: int  # rows among them that were left out, since their age is not known


class Search(Generic[T]):
    """Finds one queue's tasks."""

    def __init__(self, executor: Executor, tasks: Tasks[T]) -> None:
        self.executor = executor
        self.tasks = tasks
        self.machine = tasks.machine
        self.since = Since(executor, self.machine)

    def meant(self, filter: object) -> Meant:
        """Return what a filter means. Raises BadType, BadValue and FeatureOff."""
        return Meant(self.executor, self.tasks, self.machine, self.since, filter)

    def find(self, filter: str, n: int, after: str | None = None) -> Found[T]:
        if not 1 <= n <= LONGEST_PAGE:
            raise BadValue(f"find returns 1 to {LONGEST_PAGE:,} tasks, not {shown(n)}: go on with the cursor")
        meant = self.meant(filter)
        page = self._page(meant, n, after)
        rows = self._whole(meant, [key for key, _ in page.tasks])
        tasks = [self.tasks.returned(row.columns) for row in rows]
        return Found(tasks, self.since.of(rows), page.next, page.looked, page.next is None, page.unknown)

    def movable(self, filter: str, n: int, after: str | None) -> Page:
        """Return the keys and states of the next `n` tasks that a filter selects. Reads no task."""
        return self._page(self.meant(filter), n, after)

    def _page(self, meant: Meant, n: int, after: str | None) -> Page:
        walk = self._walk(meant, meant.states)
        position = () if after is None else self._position(walk, after)
        tasks: list[tuple[Key, str]] = []
        looked = unknown = 0
        for row, passes in self._rows(meant, walk, n + 1, position):
            if len(tasks) == n or looked == EXAMINED:
                return Page(tasks, self._cursor(walk, position), looked, unknown)
            looked, position, unknown = looked + 1, row.position, unknown + (passes is None)
            if passes:
                tasks.append((self._key_of(position), row.state))
        return Page(tasks, None, looked, unknown)

    def _key_of(self, position: Key) -> Key:
        return position[-len(self.tasks.table.key) :]

    def _cursor(self, walk: Walk, position: Key) -> str:
        key = self.tasks.app_key(self._key_of(position))
        written = key_as_text(key if len(self.tasks.table.key) > 1 else [key])
        text = json.dumps([walk.name, *position[: -len(self.tasks.table.key)], written])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _position(self, walk: Walk, cursor: object) -> Key:
        """Return a cursor's position. Any user may send one, so all parts are checked."""
        if not isinstance(cursor, str):
            raise BadType(f"a cursor is text that find() has returned, not {shown(cursor)}")
        with suppress(ValueError, TypeError, RecursionError, BadType):
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
            name, *numbers, key = json.loads(text)
            whole = all(type(number) is int and fits_a_column(number) for number in numbers)
            position = (*numbers, *self.tasks.identify(key_in_text(self.tasks, key))[0])
            if name == walk.name and whole and len(position) == len(walk.columns):
                return position
        raise BadValue(f"{shown(cursor[:80])} is no cursor of this filter: find() returns them; begin without one")

    def _walk(self, meant: Meant, states: Sequence[str]) -> Walk:
        """Return the walk for tasks in some states: along an index if there is one state, else along the key."""
        questions = self.since.questions
        walk = questions.by_state_index(states[0], meant.of_tube) if len(states) == 1 and not meant.keys else None
        if walk and (walk.name or self.executor.run(questions.number_in(walk), {"n": FEW + 1})[0][0] <= FEW):
            return walk
        return questions.by_keys(states, meant.keys)

    def _rows(
        self, meant: Meant, walk: Walk, size: int, position: Key = (), whole: bool = False
    ) -> Iterator[tuple[Seen, bool | None]]:
        """Yield a walk's rows behind a position, and whether they pass; None if it is not known."""
        end = 7 + len(walk.columns)
        while True:
            wanted = (meant.with_error, meant.function, whole)
            sql = self.since.questions.examined(walk, meant.tests, bool(position), *wanted)
            at = {f"p{i}": value for i, value in enumerate(position)}
            rows = self.executor.run(sql, {**meant.values, **at, "look": size})
            found = [Seen(tuple(row[7:end]), tuple(row[end:]), *row[1:7]) for row in rows]
            passing: list[bool | None] = [bool(row[0]) for row in rows]
            for check in meant.checks:
                passing = [passes and fits for passes, fits in zip(passing, check(found), strict=True)]
            yield from zip(found, passing, strict=True)
            if len(rows) < size:
                return
            position, size = found[-1].position, STEP

    def _whole(self, meant: Meant, keys: list[Key]) -> list[Seen]:
        """Return the rows with some keys, in this order, if they still pass."""
        found: dict[Key, Seen] = {}
        for some in chunks(keys, FETCHED):
            walk = self.since.questions.by_keys(meant.states, [meant.among(some)])
            found |= {row.position: row for row, passes in self._rows(meant, walk, FETCHED + 1, whole=True) if passes}
        return [found[key] for key in keys if key in found]

    def failures(self, filter: str, n: int) -> Failures:
        if "error" not in self.tasks.table.roles:
            raise FeatureOff("failures() needs the role 'error': map it to a field", role="error")
        meant = self.meant(filter)
        meant.with_error = True
        meant.test([self.since.questions.is_empty(self.tasks.table.roles["error"])], negated=True)
        walks = (self._walk(meant, [state]) for state in FAILED if state in meant.states)
        rows = chain.from_iterable(self._rows(meant, walk, STEP) for walk in walks)
        examined = list(islice(rows, EXAMINED))
        failed = [row for row, passes in examined if passes]
        groups: dict[str, list[tuple[Seen, float | None]]] = {}
        for row, at in zip(failed, self.since.of(failed), strict=True):
            groups.setdefault(row.failure.id, []).append((row, at))
        largest = sorted(groups, key=lambda id: (-len(groups[id]), id))[:n]
        found = Failures(self._group(meant, groups[id]) for id in largest)
        found.looked, found.ended = len(examined), next(rows, None) is None
        return found

    def _group(self, meant: Meant, members: Sequence[tuple[Seen, float | None]]) -> FailureGroup:
        first, failure = members[0][0], members[0][0].failure
        times = [at for _, at in members if at is not None]
        states = Counter(row.state for row, _ in members)
        # With the states, as one may have an index.
        more = f"state:{','.join(states)} " if meant.states == self.machine.states else ""
        return FailureGroup(
            *failure,
            key=self.tasks.app_key(self._key_of(first.position)),
            count=len(members),
            states=states,
            first=min(times) if len(times) == len(members) else None,
            last=max(times, default=None),
            filter=f"{meant.text} {more}failure:{failure.id}".strip(),
        )
