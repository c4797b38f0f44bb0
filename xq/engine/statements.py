"""Compile statements that move or put tasks, with their counting and their error handling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from xq.core.compile import Mode, Selector, Statement
from xq.core.connections import Connection, Run
from xq.core.counters import counter_of
from xq.core.kinds import Row
from xq.core.machine import ABSENT, READY, TAKEN, Transition
from xq.core.values import Key, Tasks, chunks
from xq.engine.binding import Binding, Compiled, CompiledName
from xq.engine.charged import charged
from xq.engine.executor import Begun, Executor
from xq.engine.opening import Opening
from xq.engine.settle import Settling

PER_MOVE = 1_000  # tasks that one statement moves, or rows that it reads


class Statements:
    """One queue's compiled statements, each compiled at its first use."""

    def __init__(self, executor: Executor, tasks: Tasks[Any]) -> None:
        self.executor = executor
        self.store = executor.store
        self.tasks = tasks
        self.machine = machine = tasks.machine
        self._unique = machine.single is not None
        self.opening = Opening() if any(slice.hides() for slice in machine.slices) else None
        self._charges = any(slice.charges for slice in machine.slices)
        self.settling = Settling(executor)  # what the ends of tasks set off
        self._counts = machine.settings.counts_events

    def tidy(self) -> None:
        """Delete the rows that say as much when they are gone."""
        dialect = self.executor.dialect
        for slice in dialect.slices:
            if slice.tidy:
                self.executor.run(slice.tidy)
        if dialect.heads:
            dialect.heads.forget(self.executor)

    def oldest(
        self,
        transition: Transition,
        n: int | None,
        tube: bool,
        skips: tuple[int, ...] = (),
        passed: int = 0,
        floor: bool = False,
    ) -> Selector:
        """Return the selector for a call that chooses the `n` oldest tasks itself (None: all)."""
        mode: Mode = "first" if n == 1 or (self._charges and transition.target == TAKEN) else "oldest"
        return Selector(mode, transition.source, tube=tube, skips=skips, passed=passed, floor=floor)

    def move(
        self,
        binding: Binding,
        event: str,
        which: Selector,
        transition: Transition,
        given: tuple[str, ...] = (),
        update: tuple[str, ...] = (),
    ) -> Compiled:
        """Return the statement that moves the selected tasks, compiled at its first use."""
        name = event, (which, transition.writes), transition.target, given, update
        return binding.compiled.get(name) or self.compile(binding, name, which, transition)

    def rows_of(self, keys: Iterable[Key], query: Callable[[bool], str], begun: Begun | None = None) -> list[Row]:
        """Return what a query finds for tasks by their keys. `query` is told whether it lists them."""
        begun = begun or self.executor.begin_look()
        moves, found = begun[1].dialect.moves, list[Row]()
        for batch in chunks(keys, PER_MOVE):
            mode, values = moves.by_keys(batch)
            sql = query(mode == "keys")
            found += [row for each in values for row in self.executor.run(sql, each, begun)]
        return found

    def compile(self, binding: Binding, name: CompiledName, which: Selector, transition: Transition) -> Compiled:
        """Compile the statement that moves the selected tasks. Without an event it only changes their fields.

        If a put replaces a task, the source state is the selector's.
        """
        event, _, _, given, update = name
        statement = binding.move(which, transition, frozenset(given), update)
        left = transition if transition.source != ABSENT else replace(transition, source=which.state)
        return binding.compiled.keep(name, self._move(binding, event, which, left, statement, bool(update)))

    def insert(self, binding: Binding, name: CompiledName, n: int, row: Transition) -> Compiled:
        """Compile the statement that puts `n` tasks. Its value `rows` holds a row per task."""
        _, _, _, given, names = name
        statement = binding.insert(row, frozenset(given), names, n)
        run = binding.dialect.moves.runner(statement, row.event, width=len(names))
        made = Compiled(statement, run, row.event, row.source, row.target, may_be_refused=True)
        return binding.compiled.keep(name, made, n * len(names))

    def _move(
        self, binding: Binding, event: str, which: Selector, transition: Transition, statement: Statement, brings: bool
    ) -> Compiled:
        several, target = bool(which.more), transition.target
        source = "" if several else transition.source
        run, notified = binding.dialect.moves.runner(statement, event if transition.counts else ""), event
        if self.opening and which.mode in ("first", "oldest") and (which.state, target) == (READY, TAKEN):
            run = charged(self.tasks, run) if self._charges else run
            run = self.opening.looking_again(binding.dialect, run)
        if self._counts and event and (several or self.has_own_counter(event, transition)):
            run = self._counting(binding, event, transition, run)
        elif not transition.counts:
            notified = ""
        if self.settling.settlers:
            run = self.settling.settled(binding, event, which, transition, run)
        return Compiled(statement, run, notified, source, target, brings or self._unique)

    def _counting(self, binding: Binding, event: str, transition: Transition, run: Run) -> Run:
        """Return `run`, which then also counts the event for the rows returned."""

        def counted(connection: Connection, values: dict[str, Any]) -> list[Row]:
            rows, target = run(connection, values), transition.target
            sources = Counter(binding.dialect.state(row) or "" for row in rows) if target == ABSENT else Counter()
            for source, n in (sources or {transition.source: len(rows)}).items():
                self.count(binding, event, source, target, n)
            return rows

        return lambda connection, values: connection.atomically(values, counted)

    def has_own_counter(self, event: str, *transitions: Transition) -> bool:
        """Return whether the event needs its own counter: it is not the usual one for all these transitions."""
        return self._counts and not all(self.machine.is_usual(event, t.source, t.target) for t in transitions)

    def count(self, binding: Binding, event: str, source: str, target: str, n: int) -> None:
        """Count the event for `n` transitions, if events are counted and it is not the usual one."""
        if n and self._counts and not self.machine.is_usual(event, source, target):
            binding.installation.add_counter(*counter_of(event, source, target), n)
