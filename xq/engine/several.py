"""Move several tasks that the caller names, or all in a state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import Any, Generic

from xq.core.compile import Selector
from xq.core.errors import BadType, BadValue, FeatureOff, NotFound, WrongState, shown
from xq.core.kinds import Row, T
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.core.options import NONE
from xq.core.tokens import owner_of
from xq.core.values import Key, chunks, numbered
from xq.engine.named import MOVE_TRIES, CheckedCall, Held, NamedMoves
from xq.engine.statements import PER_MOVE

Update = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None  # one for all tasks, or a list with one per task
Seen = Iterable[tuple[Held, str]]  # tasks, each with its state
WRITTEN = 50  # tasks with different values per statement, which searches its whole list for each row
RETURNED = 50  # tasks per statement of an operation, which returns their rows: these may be large


class SeveralMoves(Generic[T]):
    """Moves tasks by few statements: those that a call names, and all in a state."""

    def __init__(self, moves: NamedMoves[T]) -> None:
        self.moves = moves
        self.executor = moves.executor
        self.tasks = moves.tasks
        self.statements = moves.statements
        rows = moves.machine.rows
        self._deletes = {row.event for row in rows} - {row.event for row in rows if row.target != ABSENT}
        self._ends = frozenset(row.event for row in moves.machine.rows if row.source == TAKEN != row.target)

    def _rows(self, taken: Sequence[Held]) -> dict[Any, Row]:
        """Return the rows of tasks by key, read by few queries; without those that are not in the table."""
        queries, afresh = self.executor.dialect.queries, self.moves.afresh
        keys = (parts for parts, _ in taken)
        rows = self.statements.rows_of(keys, partial(queries.look, afresh))
        return dict(zip(map(self.tasks.app_key_of, rows), rows, strict=True))

    def _find_all(self, asked: CheckedCall, taken: Sequence[Held]) -> Iterator[tuple[Held, str]]:
        """Yield tasks with their states. Raises as `find` for the first."""
        if asked.event in self.moves.fenced:
            sessions = {token and owner_of(token)[0]: (parts, token) for parts, token in reversed(taken)}
            for parts, token in sessions.values():
                self.moves.check_not_lost(asked, parts, token)
        rows = self._rows(taken)
        for parts, token in taken:
            row = rows.get(self.tasks.app_key(parts))
            state = None if row is None else self.executor.dialect.state(row)
            if row is None or state is None:
                state = self.moves.find(asked, parts, token)
            else:
                self.moves.check(asked, parts, token, row, state)
            yield (parts, token), state

    def many(
        self,
        event: str,
        keys: object,
        options: Mapping[str, Any],
        update: Update = None,
        error: str | Sequence[str | None] | None = None,
    ) -> list[T]:
        """Move all of the tasks or none, and return them in order. One statement moves those of one state.

        `update` holds fields to write, `error` the text for the role error. Each is one value for all tasks, or a
        list with one per task. Raises BadType, BadValue, FeatureOff and the errors of `one`.
        """
        alike = update is None or isinstance(update, Mapping)
        asked = CheckedCall(event, *self.tasks.called(event, options, update if alike else None))
        by_key = self._identified(event, keys)
        held = list(by_key.values())
        for parts, _ in held if self.moves.working else ():
            self.moves.check_apart(f"{event}_many", parts)
        written = [] if alike and error is None else self._written(held, {} if alike else update, error)

        def move() -> list[T]:
            self._write_many(written)  # without a fence: if the caller may not move a task, all is rolled back
            moved = self._all_moved(asked, held)
            if missing := [shown(key) for key in by_key if key not in moved]:
                raise BadValue(
                    f"{event}_many: the database returns the key {missing[0]} as another value: {event} it alone"
                )
            tasks = self.tasks.returned_all([moved[key] for key in by_key])
            if (unit := self.moves.store.unit) and event in self._deletes:
                for task in tasks:
                    unit.gone(task)
            return tasks

        tasks = self.executor.transaction(move)
        for parts, token in held if self.moves.working and event in self._ends else ():
            self.moves.note_finished(event, parts, token)
        return tasks

    def _identified(self, event: str, keys: object) -> dict[Any, Held]:
        """Return the tasks that a call names, by their keys. Raises BadType and BadValue."""
        if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
            raise BadType(f"{event}_many takes keys or tasks, not {type(keys).__name__}: {shown(keys)}")
        held = list(map(self.tasks.identify, keys))
        by_key = dict(zip(self.tasks.app_keys([parts for parts, _ in held]), held, strict=True))
        if len(by_key) < len(held):
            raise BadValue(f"{event}_many: a task is named twice")
        return by_key

    def _all_moved(self, asked: CheckedCall, held: list[Held]) -> dict[Any, Row]:
        """Move the tasks. Return all rows by key, also where a task stays as it is. Raises if one cannot move."""
        look = partial(self._find_all, asked)
        if only := self.moves.only_source(asked):
            self.tasks.options.choose(only, asked.event, asked.seconds, asked.to)  # raises for options that do not fit
        moved, stay, left = self._moved(asked, ((one, only) for one in held) if only else look(held), look, PER_MOVE)
        for parts, token in left:
            sources, state = self.moves.machine.sources(asked.event), self.moves.find(asked, parts, token)
            raise WrongState(asked.event, self.tasks.app_key(parts), state, sources, self.tasks.wording)
        return self._rows(stay) | moved

    def _moved(
        self, asked: CheckedCall, seen: Seen, look: Callable[[list[Held]], Seen], n: int
    ) -> tuple[dict[Any, Row], list[Held], list[Held]]:
        """Move tasks from the states in which they were seen, up to `n` by one statement.

        Between the look and the move other processes may move some of them: `look` returns their states now. Return
        the rows by key, the tasks that stay as they are, and those that had moved at each of MOVE_TRIES moves.
        """
        moved, stay, left = dict[Any, Row](), list[Held](), list[Held]()
        for _ in range(MOVE_TRIES):
            by_state, left = dict[str, list[Held]](), []
            for held, state in seen:
                by_state.setdefault(state, []).append(held)
            for state, group in by_state.items():
                transition = self.tasks.options.choose(state, asked.event, asked.seconds, asked.to)
                if transition.stays and not asked.fields:
                    stay += group
                    continue
                for batch in chunks(group, n):
                    found = self.moves.move_all(self.executor.begin(reviews=True), asked, transition, batch)
                    rows = {self.tasks.app_key_of(row): row for some in found for row in some}
                    moved |= rows
                    if len(rows) < len(batch):
                        left += [held for held in batch if self.tasks.app_key(held[0]) not in rows]
            if not left:
                break
            seen = look(left)
        return moved, stay, left

    def _written(self, held: Sequence[Held], update: object, error: object) -> list[tuple[Key, dict[str, Any]]]:
        """Return the keys and fields of the tasks with fields of their own. Raises FeatureOff, BadType and BadValue."""
        own = self._one_for_each("update", update, len(held))
        if error is not None:
            if (role := self.tasks.table.roles.get("error")) is None:
                raise FeatureOff("bury_many(error=) needs the role 'error': map it to a field of text", role="error")
            errors = self._one_for_each("error", error, len(own))
            for each in errors:
                if not isinstance(each, (str, NoneType)):
                    raise BadType(f"an error is text, not {shown(each)}")
            own = [{**(update or {}), role.name: each} for update, each in zip(own, errors, strict=True)]
        return [
            (parts, fields)
            for (parts, _), each in zip(held, own, strict=True)
            if (fields := self.tasks.updates(each, () if error is None else ("error",)))
        ]

    @staticmethod
    def _one_for_each(name: str, given: object, n: int) -> list[Any]:
        """Return a list with one item per task; a single value is repeated. Raises BadType and BadValue."""
        if given is None or isinstance(given, (str, Mapping)):
            return [given] * n
        if not isinstance(given, Sequence):
            raise BadType(f"{name} is one for all of the tasks, or a list with one for each, not {shown(given)}")
        if len(given) != n:
            raise BadValue(f"{name} has {len(given)} for {n} tasks: give one for each, in their order")
        return list(given)

    def _write_many(self, written: list[tuple[Key, dict[str, Any]]]) -> None:
        """Write to each task its own application fields, without a fence."""
        by_names: dict[tuple[str, ...], list[tuple[Key, dict[str, Any]]]] = {}
        for one in written:
            by_names.setdefault(tuple(one[1]), []).append(one)
        for names, alike in by_names.items():
            binding = self.executor.open()
            values_of_one = len(self.tasks.table.key) * (len(names) + 1) + len(names)
            for batch in chunks(alike, max(1, min(WRITTEN, binding.dialect.most_values // values_of_one))):
                values = self.executor.values()
                statement = binding.dialect.moves.write_many(names, len(batch))
                fields = (value for _, own in batch for value in own.values())
                values.update(zip(statement.names, fields, strict=True))
                values |= numbered(parts for parts, _ in batch)
                self.executor.run(binding.changes(self.executor.store, statement), values)

    def checked(self, event: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call, with times in seconds. Raises as the call would."""
        asked = CheckedCall(event, *self.tasks.called(event, options, None))
        if only := self.moves.only_source(asked):
            self.tasks.options.choose(only, event, asked.seconds)
        return {name: asked.seconds.get(name, given) for name, given in options.items() if given is not None}

    def those(
        self, event: str, found: Sequence[tuple[Key, str]], states: Collection[str], options: Mapping[str, Any]
    ) -> int:
        """Move tasks by an event without a fence in the open transaction, and return their number.

        Each comes with the state in which it was seen. It also moves if it has another one of `states` by now.
        """
        if event == "cancel":  # one by one: the owner of each learns it
            return sum(self._cancel_if_there(parts, {state, *states}) for parts, state in found)
        asked = CheckedCall(event, *self.tasks.called(event, options, None))

        def look(some: Sequence[Held]) -> Seen:
            now = [(self.tasks.key_of(row), self.executor.dialect.state(row)) for row in self._rows(some).values()]
            return [((parts, None), state) for parts, state in now if state and state in states]

        return len(self._moved(asked, [((parts, None), state) for parts, state in found], look, RETURNED)[0])

    def _cancel_if_there(self, parts: Key, states: Collection[str]) -> bool:
        with suppress(NotFound, WrongState):
            if self.moves.look(parts, self.executor.dialect.lock)[1] in states:
                return bool(self.moves.cancel(self.tasks.app_key(parts)))
        return False

    def all(self, event: str, states: Sequence[str], as_event: str = "") -> int:
        """Move every task in these states by `event`, without a fence, and return their number.

        The event is counted and recorded as `as_event` if that is given. One statement deletes the tasks of all
        states, so it finds a task that another process moves from one of them to another meanwhile.
        """
        chosen = [self.tasks.options.choose(state, event, NONE) for state in states]
        gone = [transition for transition in chosen if transition.target == ABSENT]
        together = [*([other] for other in chosen if other not in gone), *([gone] if gone else [])]
        return self.executor.transaction(lambda: sum(self._all(as_event or event, *alike) for alike in together))

    def _all(self, event: str, transition: Transition, *alike: Transition) -> int:
        """Move every task in the source states of transitions that have the same effect."""
        binding = self.executor.open()
        more = tuple(other.source for other in alike)
        if self.executor.observers.anybody:
            compiled = self.statements.move(binding, event, Selector("each", transition.source, more=more), transition)
            return len(self.executor.run(compiled))
        if more and self.statements.has_own_counter(event, transition, *alike):
            # The tasks are counted by state: lock them all, then move one state after the other.
            self.executor.run(binding.dialect.moves.lock_all((transition.source, *more)))
            return sum(self._all(event, each) for each in (transition, *alike))
        statement = binding.move(Selector("all", transition.source, more=more), transition)
        ((moved,),) = self.executor.run(binding.changes(self.executor.store, statement, event))
        self.statements.count(binding, event, transition.source, transition.target, moved)
        return int(moved)
