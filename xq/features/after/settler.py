"""Tasks that wait for others, their parents, to end: put them, and settle them when these have ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from xq.core.compile import Selector
from xq.core.errors import BadType, BadValue, NotFound, shown
from xq.core.kinds import Row
from xq.core.machine import ENDED
from xq.core.options import seconds_of
from xq.core.values import Key, chunks
from xq.database.transactions import in_parts
from xq.engine.binding import Binding
from xq.engine.executor import Begun
from xq.engine.pauses import Pauses
from xq.engine.settle import Linking, Put, Settler
from xq.engine.statements import PER_MOVE, Statements
from xq.features.after.slice import AfterSlice

ON_FAILURE: Final = ("hold", "kill", "run")  # first the default
PER_LINK: Final = 200  # links per INSERT
WAITS: Final = "W"


class Dependants(Settler):
    """The dependants of one queue."""

    def __init__(self, statements: Statements, _: Pauses) -> None:
        self.tasks, self.statements, self.machine, self.executor = (
            statements.tasks,
            statements,
            statements.machine,
            statements.executor,
        )
        self.log = logging.getLogger(f"xq.{statements.store.name}")
        self._settles = threading.local()  # has `now` while this thread settles, also what it kills itself
        self._seen: Key = ()  # the last dependant of the last look
        self._refused: set[Key] = set()  # whose refused move was logged

    def _links(self, binding: Binding) -> AfterSlice:
        slice: AfterSlice = binding.dialect.slice_of[AfterSlice]
        return slice

    # put

    def linking(self, options: dict[str, Any]) -> Linking | None:
        if options.keys().isdisjoint(("after", "on_failure", "chain")):
            return None
        after, word, chain = options.pop("after", None), options.pop("on_failure", None), options.pop("chain", False)
        if not isinstance(chain, bool):
            raise BadType(f"chain is True or False, not {shown(chain)}")
        if word is not None and not (isinstance(word, str) and word in ON_FAILURE):
            raise BadValue(f"on_failure is one of {', '.join(ON_FAILURE)}, not {shown(word)}")
        if after is None and not chain:
            if word is not None:
                raise BadValue("on_failure says what a parent's failure does to a task: it needs after= or chain=True")
            return None
        if unfit := [name for name in ("on_conflict", "at") if options.get(name) is not None]:
            raise BadValue(f"a task that waits for others takes no {unfit[0]}; its delay= counts from their ends")
        delay = seconds_of("delay", options["delay"], ends=True) if options.get("delay") is not None else 0
        if unit := self.executor.store.unit:
            unit.flush()  # a parent may be pending in the session
        parents = after if isinstance(after, (list, set, frozenset)) else [after] * (after is not None)
        keys = dict.fromkeys(self.tasks.identify(parent)[0] for parent in parents)
        how = f"{word or ON_FAILURE[0]} {delay!r}" if delay else word or ON_FAILURE[0]
        return Linking("after", how, partial(self._put, [*keys], chain))

    def _put(
        self, parents: list[Key], chain: bool, tasks: Sequence[object], put_now: Put, put_waiting: Put
    ) -> list[Any]:
        """Put tasks, those that wait for others by the second function. Raises NotFound for an unknown parent."""

        def put_all() -> list[Any]:
            unfinished = self._unfinished(parents)
            ready = 0 if unfinished else 1 if chain else len(tasks)
            parts = (put_now, tasks[:ready]), (put_waiting, tasks[ready:])
            done = [task for put, some in parts if some for task in put(some)]
            keys = [self.tasks.identify(task)[0] for task in done]
            first = keys[:1] if chain else keys
            links = [(*parent, *key, state) for key in first for parent, state in unfinished.items()]
            if chain:
                links += [(*parent, *key, "") for parent, key in pairwise(keys)]
            self._link(links)
            if any(unfinished.values()):  # one has failed already
                self._settle(self._found(first, child=True))
            return done

        return self.executor.transaction(put_all)

    def _unfinished(self, parents: list[Key]) -> dict[Key, str]:
        """Lock tasks until the transaction ends. Return those that have not ended well, with their links' state."""
        _, binding = begun = self.executor.begin()
        rows = self.statements.rows_of(sorted(parents), self._links(binding).parents_locked, begun)
        found = {self.tasks.app_key_of(row): binding.dialect.state(row) for row in rows}
        states = {parts: found.get(self.tasks.app_key(parts)) for parts in parents}
        for parts, state in states.items():
            if state is None:
                gone = ": if it has ended, put the parents and this task in one transaction, or use the feature keep"
                raise NotFound(self.executor.store.name, self.tasks.app_key(parts), gone)
        return {parts: "B" if state == "B" else "" for parts, state in states.items() if state not in ENDED}

    def _link(self, links: Sequence[Sequence[Any]]) -> None:
        _, binding = begun = self.executor.begin()
        sizes = range(len(self.tasks.table.key))
        names = [*(f"p{i}_" for i in sizes), *(f"k{i}_" for i in sizes), "v"]
        for batch in chunks(links, PER_LINK):
            values = {
                f"{name}{n}": part for n, link in enumerate(batch) for name, part in zip(names, link, strict=True)
            }
            self.executor.run(self._links(binding).insert(len(batch)), values, begun)

    # settle

    def ended(self, begun: Begun, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        """Settle the dependants of tasks that have ended."""
        if not getattr(self._settles, "now", False):
            self._settle(self._found([self.tasks.key_of(row) for row in rows], begun=begun))

    def look(self, within: bool) -> int:
        """Settle what no trigger and no call has: after writes of other programs, lost races and failures."""
        settled, queries = 0, self._links(self.executor.open()).queries
        while True:
            beyond = {f"p{i}": part for i, part in enumerate(self._seen)}
            rows = self.executor.run(queries["beyond" if beyond else "first"], {"n": PER_MOVE, **beyond})
            if moved := self._settle(rows):
                settled += moved
                continue  # a trigger that kills stops at some depth: others may follow
            self._seen = tuple(rows[-1][:-3]) if len(rows) == PER_MOVE else ()
            if self.executor.clock is None or not self._seen:
                return settled

    def _found(self, keys: Sequence[Key], child: bool = False, begun: Begun | None = None) -> list[Row]:
        """Return the dependants of ended tasks, or with `child` those with these keys; see `AfterSlice.queries`."""
        _, binding = begun = begun or self.executor.begin_look()
        queries, by = self._links(binding).queries, "child" if child else "parent"
        return self.statements.rows_of(keys, lambda listed: queries[by + " listed" * listed], begun)

    def _settle(self, rows: list[Row]) -> int:
        """Release or kill those of the dependants that can be, and settle the dependants of the killed ones.

        Return how many it has moved.
        """
        settled, self._settles.now = 0, True
        try:
            while rows:
                wanted: dict[tuple[str, str], list[Key]] = {}
                for *key, how, unfinished, failed in rows:
                    on_failure, _, delay = (how or "").partition(" ")
                    if failed and on_failure == "kill":
                        wanted.setdefault(("kill", ""), []).append(tuple(key))
                    elif how and not unfinished and (not failed or on_failure == "run"):
                        wanted.setdefault(("after", delay), []).append(tuple(key))
                for (event, delay), keys in wanted.items():
                    settled += self._moved(event, delay, keys)
                killed = wanted.get(("kill", ""))
                rows = self._found(killed) if killed else []
        finally:
            self._settles.now = False
        return settled

    def _moved(self, event: str, delay: str, keys: Sequence[Key]) -> int:
        """Move dependants, each unless it waits no more, but those that the database refuses. Return their number."""
        moved, refused = in_parts(partial(self._move, event, delay), keys, self.statements.settling.may_wait)
        for key, error in refused:
            level = logging.DEBUG if key in self._refused else logging.WARNING  # each look tries again
            self.log.log(level, "%s cannot move task %r: %s", event, self.tasks.app_key(key), error)
            self._refused.add(key)
        return moved

    def _move(self, event: str, delay: str, keys: Sequence[Key]) -> int:
        transition = self.machine.choose(WAITS, event, ["delay"] * bool(delay))
        assert transition
        given, moved = (transition.given,) * bool(transition.given), 0
        values = self.executor.values({"delay": float(delay)} if delay else None)
        _, binding = begun = self.executor.begin()
        for batch in chunks(keys, PER_MOVE):
            mode, found = binding.dialect.moves.by_keys(batch)
            compiled = self.statements.move(binding, event, Selector(mode, WAITS, column="after"), transition, given)
            moved += sum(len(self.executor.run(compiled, {**values, **each}, begun, caught=True)) for each in found)
        return moved
