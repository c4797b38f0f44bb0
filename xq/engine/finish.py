"""Move several tasks that the caller names, or all, and those of workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any, Final

from xq.core.compile import Fence, Selector
from xq.core.errors import BadType, BadValue, FeatureOff, NotFound, WrongState, shown
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.core.options import NONE
from xq.core.ports import Row, T
from xq.core.tokens import lock_of, owner_of
from xq.core.values import Parts, Taken, Tasks, chunks, named
from xq.engine.executor import Begun
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.one import NO_TAKE, Asked, Locked, One
from xq.engine.steps import PER_MOVE, Steps
from xq.engine.timers import UnattendedMoves

Held = tuple[Parts, str | None]  # the key of a task, and the token of its take

Update = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None  # one for all tasks, or a list with one per task
CANCELLED = 60.0  # seconds for which it is noted that a taken task was cancelled
WRITTEN = 50  # tasks with different values per statement, which searches its whole list for each row
RETURNED = 50  # tasks per statement of an operation, which returns their rows: these may be large
ACK: Final = Asked("ack", NONE, NONE)


def cancelled(task: Taken) -> str:
    """Return the name in the database of a cancelled task and its take."""
    parts = [bytes(part) if isinstance(part, memoryview) else part for part in task.parts]
    return f"cancelled:{task.token} {parts}"[:255]


class NamedMoves(One[T]):
    """Move named tasks of one queue."""

    def __init__(self, tasks: Tasks[T], steps: Steps, batches: UnattendedMoves, in_doubt: InDoubtTakes) -> None:
        super().__init__(tasks, steps, in_doubt)
        self.batches = batches
        self._ends = frozenset(row.event for row in self.machine.rows if row.source == TAKEN != row.target)

    # the tasks of workers

    def write(self, task: T, fields: Mapping[str, Any]) -> None:
        """Write fields of a taken task and leave it taken. Raises the errors of `one`."""
        parts, token = self.tasks.identify(task)
        stays = Transition(TAKEN, "", TAKEN, fenced=self.machine.settings.fenced, enters=False)  # no event
        if not self._move(self.executor.begin(), Asked("", NONE, fields), "key", stays, token, named(parts)):
            self._find(Asked("ack", NONE, fields), parts, token)  # raises what an ack would raise

    def ack_those(self, taken: Sequence[Taken]) -> list[list[Row]]:
        """Ack the tasks that still belong to their takes, and return their rows, by statement.

        If the database refuses one, it raises the error and acks none of that statement. The lists may be filled later:
        see `Connection.as_one`.
        """
        begun, transition = self.executor.begin(), self.tasks.options.choose(TAKEN, "ack", NONE)
        return [rows for batch in chunks(taken, PER_MOVE) for rows in self._move_all(begun, ACK, transition, batch)]

    def notify_acked(self, acked: Sequence[list[Row]]) -> None:
        """Notify the observers of the rows of `ack_those`, which a pipeline has filled and committed."""
        target = self.tasks.options.choose(TAKEN, "ack", NONE).target
        for rows in filter(None, acked):
            self.executor.observers.notify("ack", TAKEN, target, rows)

    def hold(self, task: Taken, seconds: float | None) -> None:
        """Keep the ttr of a taken task, whose row is locked, from passing for so many seconds. On a server."""
        records, token = self.executor.dialect.records, task.token or self.look(task.parts)[0][-1]
        self.executor.run(records.hold_task, {"token": token, "ttr": seconds})
        self.executor.run(records.forget_held)

    def hold_session(self, holds: bool) -> None:
        """Keep each ttr of the current session from passing, or do so no longer. On a file.

        There the heartbeat waits while another transaction writes: its function's own, for example.
        """
        liveness = self.executor.database.liveness
        if self.executor.dialect.is_local and liveness is not None:
            (liveness.acquire if holds else liveness.release)(lock_of(self.executor.session.uuid))

    def kill_if_taken_by(self, task: Taken) -> None:
        fenced = replace(self.tasks.options.choose(TAKEN, "kill", NONE), fenced=True)
        self._moved(Asked("kill", NONE, NONE), fenced, *task)

    def cancel(self, key: object, to: str | None = None) -> T:
        """End a task that is ready, waiting or taken, and note it for its owner. Raises NotFound and WrongState."""
        parts, _ = self.tasks.identify(key)
        cancel = partial(self.executor.transaction, partial(self._cancel, parts, to))
        if self.store.in_transaction():
            return cancel()
        return Locked(self, "cancel", Taken(parts, None), cancel).wait()

    def _cancel(self, parts: Parts, to: str | None) -> T:
        executor, records = self.executor, self.executor.dialect.records
        row, state = self.look(parts, executor.dialect.lock)  # no other take gets it before the move
        moved = self.one("cancel", self.tasks.app_key(parts), to=to)
        if state == TAKEN:
            executor.run(records.forget_cancelled)
            ends = executor.time_us() / 1e6 + CANCELLED
            executor.run(records.set_setting, {"name": cancelled(Taken(parts, row[-1])), "value": ends})
        return moved

    def _find_all(self, asked: Asked, taken: Sequence[Held]) -> tuple[dict[str, list[Held]], dict[Any, Row]]:
        """Return tasks by state, and the rows found by one query. Raises as `_find` for the first."""
        if asked.event in self._fenced:
            sessions = {token and owner_of(token)[0]: (parts, token) for parts, token in reversed(taken)}
            for parts, token in sessions.values():
                self._check_not_lost(asked, parts, token)
        dialect, listed_rows, by_state = self.executor.dialect, list[Row](), dict[str, list[Held]]()
        for batch in chunks((parts for parts, _ in taken), PER_MOVE):
            if listed := dialect.moves.listed(batch):  # else `_find` looks at each
                listed_rows += self.executor.run(dialect.looks.look_at_all(self._afresh), {"keys": listed})
        rows = dict(zip(map(self.tasks.app_key_of, listed_rows), listed_rows, strict=True))
        for parts, token in taken:
            row = rows.get(self.tasks.app_key(parts))
            state = None if row is None else dialect.state(row)
            if row is None or state is None:
                state = self._find(asked, parts, token)
            else:
                self._check(asked, parts, token, row, state)
            by_state.setdefault(state, []).append((parts, token))
        return by_state, rows

    # several

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
        if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
            raise BadType(f"{event}_many takes keys or tasks, not {type(keys).__name__}: {shown(keys)}")
        alike = update is None or isinstance(update, Mapping)
        asked = Asked(event, *self.tasks.called(event, options, update if alike else None))
        identified = list(map(self.tasks.identify, keys))
        app_keys = self.tasks.app_keys([parts for parts, _ in identified])
        if len({*app_keys}) < len(app_keys):
            raise BadValue(f"{event}_many: a task is named twice")
        written = [] if alike and error is None else self._written(identified, {} if alike else update, error)

        def move() -> list[T]:
            moved: dict[Any, Row] = {}
            self._write_many(written)  # without a fence: if the caller may not move a task, all is rolled back
            if only := self._only.get(event) or self._only_source(asked):
                self.tasks.options.choose(only, asked.event, asked.seconds, asked.to)
                groups, seen = {only: identified}, dict[Any, Row]()
            else:
                groups, seen = self._find_all(asked, identified)
            for state, group in groups.items():
                if not asked.fields and self.tasks.options.choose(state, event, asked.seconds).stays:
                    keyed = [(self.tasks.app_key(parts), parts) for parts, _ in group]
                    moved |= {key: seen[key] if key in seen else self.look(parts)[0] for key, parts in keyed}
                    continue
                for batch in chunks(group, PER_MOVE):
                    moved |= self._batch(asked, state, batch)
            try:
                rows = [moved[key] for key in app_keys]
            except KeyError as error:
                key = shown(error.args[0])
                raise BadValue(
                    f"{event}_many: the database returns the key {key} as another value: {event} it alone"
                ) from error
            return self.tasks.returned_all(rows)

        moved = self.executor.transaction(move)
        for parts, token in identified if self.working and event in self._ends else ():
            self._note_finished(event, parts, token)
        return moved

    def _written(
        self, identified: Sequence[tuple[Parts, str | None]], update: object, error: object
    ) -> list[tuple[Parts, dict[str, Any]]]:
        """Return the keys and fields of the tasks with fields of their own. Raises FeatureOff, BadType and BadValue."""
        own = self._one_for_each("update", update, len(identified))
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
            for (parts, _), each in zip(identified, own, strict=True)
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

    def _write_many(self, written: list[tuple[Parts, dict[str, Any]]]) -> None:
        """Write to each task its own application fields, without a fence."""
        by_names: dict[tuple[str, ...], list[tuple[Parts, dict[str, Any]]]] = {}
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
                for place, (parts, _) in enumerate(batch):
                    values.update({f"{name}_{place}": part for name, part in named(parts).items()})
                self.executor.run(binding.changes(self.store, statement), values)

    def _batch(self, asked: Asked, state: str, taken: Sequence[Held]) -> dict[Any, Row]:
        """Move all of these tasks and return their rows by key. Raises the error of the first that cannot move."""
        transition = self.tasks.options.choose(state, asked.event, asked.seconds, asked.to)
        moves = self._move_all(self.executor.begin(looks=True), asked, transition, taken)
        rows = [row for found in moves for row in found]
        moved = dict(zip(map(self.tasks.app_key_of, rows), rows, strict=True))
        for parts, token in taken if len(moved) < len(taken) else ():
            if self.tasks.app_key(parts) not in moved:
                found = self._find(asked, parts, token)
                raise WrongState(asked.event, self.tasks.app_key(parts), found, [state], self.tasks.wording)
        return moved

    def _move_all(
        self, begun: Begun, asked: Asked, transition: Transition, taken: Sequence[Held]
    ) -> Iterator[list[Row]]:
        """Move tasks by one statement (with a fence two) if the database can list them. Yield the rows of each."""
        fenced, by_fence, (_, binding) = transition.fenced, [taken], begun
        if fenced:
            by_fence = [[held for held in taken if held[1]], [held for held in taken if not held[1]]]
        for some in by_fence:
            keys, tokens = [parts for parts, _ in some], [token or "" for _, token in some]
            fence: Fence = "takes" if fenced and len({*tokens}) > 1 else ""
            if fence:  # a token of another session must match no row, as in `_move`
                prefix = binding.sessions.current().prefix
                tokens = [token if token.startswith(prefix) else NO_TAKE for token in tokens]
            listed = binding.dialect.moves.listed(keys, tokens if fence else ()) if len(some) > 1 else None
            if listed:
                yield self._move(begun, asked, "keys", transition, some[0][1], {"keys": listed}, fence)
            else:
                for parts, token in some:
                    yield self._move(begun, asked, "key", transition, token, named(parts))

    def checked(self, event: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call, with times in seconds. Raises as the call would."""
        asked = Asked(event, *self.tasks.called(event, options, None))
        if only := self._only.get(event) or self._only_source(asked):
            self.tasks.options.choose(only, event, asked.seconds)
        return {name: asked.seconds.get(name, given) for name, given in options.items() if given is not None}

    def those(self, event: str, state: str, keys: list[Parts], options: Mapping[str, Any]) -> int:
        """Move the tasks in this state by an event without a fence, and return their number."""
        if event == "cancel":  # one by one: the owner of each learns it
            return sum(map(self._cancel_if_there, keys))
        asked = Asked(event, *self.tasks.called(event, options, None))
        transition = self.tasks.options.choose(state, event, asked.seconds)
        if transition.stays:
            return 0
        begun, batches = self.executor.begin(looks=True), chunks(((parts, None) for parts in keys), RETURNED)
        moves = (self._move_all(begun, asked, transition, batch) for batch in batches)
        return sum(len(rows) for found in moves for rows in found)

    def _cancel_if_there(self, parts: Parts) -> bool:
        with suppress(NotFound, WrongState):
            return bool(self.cancel(self.tasks.app_key(parts)))
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
            step = self.steps.move(binding, event, Selector("each", transition.source, more=more), transition)
            return len(self.executor.run(step))
        if more and self.steps.has_own_counter(event, transition, *alike):
            # The tasks are counted by state: lock them all, then move one state after the other.
            self.executor.run(binding.dialect.moves.lock_all((transition.source, *more)))
            return sum(self._all(event, each) for each in (transition, *alike))
        statement = binding.move(Selector("all", transition.source, more=more), transition)
        ((moved,),) = self.executor.run(binding.changes(self.store, statement, event))
        self.steps.count(binding, event, transition.source, transition.target, moved)
        return int(moved)
