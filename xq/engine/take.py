"""Take or dig the oldest tasks: transitions that select their tasks themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic

from xq.core import time
from xq.core.compile import SKIPS, Selector
from xq.core.errors import UnknownSession
from xq.core.kinds import Row, T, UnreadRow
from xq.core.machine import READY, TAKEN, Transition
from xq.core.options import NONE, Spans
from xq.core.values import Key, Tasks, numbered
from xq.database.sessions import Session
from xq.engine.binding import Compiled
from xq.engine.executor import Begun
from xq.engine.floors import Floor
from xq.engine.in_doubt import InDoubtTakes
from xq.engine.pauses import Pauses, Skips
from xq.engine.statements import PER_MOVE
from xq.engine.timers import SWEEP_AFTER, Swept, Timers
from xq.engine.unmovable import Unmovable

Then = Callable[[str | None], None]  # gets the token of a take

TAKE_TRIES: Final = 20  # how often a take is tried again whose process's own session was lost meanwhile
# seconds to wait, one after the other, for due tasks that another connection is moving at this moment
BEING_MOVED: Final = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)


class Takes(Generic[T]):
    """The takes of one queue."""

    def __init__(self, timers: Timers, in_doubt: InDoubtTakes, pauses: Pauses, maintenance: Any) -> None:
        self.statements = timers.unattended.statements
        self.executor = timers.executor
        self.store = timers.store
        self.tasks: Tasks[T] = timers.unattended.tasks
        self.machine = timers.machine
        self.timers = timers
        self.in_doubt = in_doubt
        self.pauses = pauses
        self.unmovable = Unmovable(timers.unattended)
        turns = self.machine.turns
        self.by_turns = turns is not None and bool(turns.value)  # a statement finds one task of each group
        self.floors = timers.floors
        self._key_at = self.tasks.table.fields.index(self.tasks.table.key[0])
        self._maintenance = maintenance  # the `QueueMaintenance`: what is taken must come back

    def oldest(
        self,
        event: str,
        n: int | None,
        options: Mapping[str, Any] = NONE,
        update: Mapping[str, Any] | None = None,
        tube: str | None = None,
        then: Then | None = None,
        but: tuple[str, ...] = (),
        reaps: bool = False,
    ) -> list[T]:
        """Move the `n` oldest tasks (None: all) by `event`, and return them in order.

        Without `tube` they are of any tube that is not in `but`. If there are any, `then` is called with their token as
        the last action. With `reaps` it reaps if there is none, and looks again if it reaped a session.
        """
        seconds, fields = (NONE, NONE) if not options and update is None else self.tasks.called(event, options, update)
        transition = None if seconds else self.tasks.options.usual.get(event)
        if transition is None:
            self.tasks.options.check(event, NONE)  # raises FeatureOff for an event that this queue lacks
            (source,) = self.machine.sources(event)
            transition = self.tasks.options.choose(source, event, seconds)
        if n == 0:
            return []
        trusts = transition.target == TAKEN and transition.source == READY
        for tried in itertools.count():
            prepared = self._prepare(transition, tube, but)
            if prepared is None:
                break
            begun, skipped, swept = prepared
            passed = self.unmovable.passed if self.unmovable.until and transition.source == READY else []
            reaped = begun[1].sessions.reaped
            floor = self.floors.of(begun[1], tube) if trusts and begun[1].dialect.floors else None
            compiled, values = self._compiled(
                begun, event, n, transition, tube, skipped, passed, seconds, fields, floor
            )
            try:
                found = self._run(begun, compiled, values, swept, then)
                if not found and floor is not None and self.floors.doubted(tube):
                    trusts = False
                    continue
                if found or not reaps or self._maintenance.reap(some=True) == reaped:
                    return found
                reaps = False
            except UnknownSession as error:
                # If the session of the process was lost meanwhile, its tasks are released and a new session takes.
                if tried == TAKE_TRIES or self.executor.open().sessions.is_entered(error.uuid):
                    raise
            except Exception as error:
                is_of_a_task = transition.target == TAKEN and self.unmovable.may_explain(error)
                if not is_of_a_task or self.store.in_transaction() or tried == TAKE_TRIES:
                    raise
                n = 1  # one at a time, up to the task that is the reason
                which = self.statements.oldest(transition, n, tube is not None, tuple(map(len, skipped)), len(passed))
                if not self.unmovable.put_aside(which, values):
                    time.sleep(BEING_MOVED[0])  # another call may be at that task
        return []

    def _prepare(
        self, transition: Transition, tube: str | None, but: tuple[str, ...]
    ) -> tuple[Begun, Skips, Swept | None] | None:
        """Start the maintenance, read the pauses, and do what is left to do before the look for a task.

        Return what to take with, what to skip, and the sweep if there was one; None if a pause leaves no task.
        """
        executor, takes, skipped = self.executor, transition.target == TAKEN, Skips(but, ())
        connection, binding = begun = executor.begin()
        dialect, clock = binding.dialect, executor.clock
        if takes and clock is None and self._maintenance.maintained is not binding:
            self._maintenance.attend()  # before the take: if this fails, no task is taken
            connection, binding = begun = executor.begin()
        if takes:
            paused = self.pauses.paused
            if self.pauses.binding is not binding or self.pauses.uncommitted:
                executor.begin(locks=True)
                paused = self.pauses.look()
                connection, binding = begun = executor.begin()
            if paused is not None:
                if paused.stops(tube):
                    return None
                tubes = tuple(sorted({*paused.tubes, *but})) if but else paused.tubes
                skipped = Skips(tubes if tube is None else (), paused.groups)
        # Beside a maintenance thread, too: that may be late, and a take finds what has fallen due before it.
        time_to_sweep = clock is not None or time.monotonic() - self.timers.swept_at > SWEEP_AFTER
        if not (time_to_sweep or dialect.moves.has_dirty_heads or self.in_doubt.pending):
            return begun, skipped, None
        swept: Swept | None = None
        if clock is not None:
            executor.review()  # no maintenance thread does, under a test's clock
        if time_to_sweep:
            executor.begin(locks=True)
            swept = self.timers.sweep_if_any()
        elif dialect.moves.has_dirty_heads and transition.source == READY:
            # The application's transaction may see an old snapshot: refresh only the heads that it made dirty.
            self.timers.refresh_heads(mine=connection.in_transaction)
        if self.in_doubt.pending:
            self.in_doubt.resolve()
        return executor.begin(), skipped, swept

    def _compiled(
        self,
        begun: Begun,
        event: str,
        n: int | None,
        transition: Transition,
        tube: str | None,
        skipped: Skips,
        passed: Sequence[Key],
        seconds: Spans,
        fields: Mapping[str, Any],
        floor: Floor | None,
    ) -> tuple[Compiled, dict[str, Any]]:
        """Return the statement that moves the tasks, compiled at its first use, and its values without the token."""
        executor, (_, binding) = self.executor, begun
        clock, most = executor.clock, binding.dialect.no_limit if n is None else n
        values = {"now": None if clock is None else clock.now, "n": most, "owner": None, "tube": tube}
        if seconds:
            values |= executor.values(seconds)
        if any(skipped):
            values |= skipped.values
        if passed:
            values |= numbered(passed)
        if floor is not None:
            values |= {"floor": floor.key, "floor_xid": floor.xid}
        rows = n == 1, tube is None, tuple(map(len, skipped)), len(passed), floor is not None
        name = event, rows, transition.target, (*seconds,), (*fields,)
        compiled = binding.compiled.get(name)
        if compiled is None:
            which = self.statements.oldest(transition, n, tube is not None, *rows[2:])
            compiled = self.statements.compile(binding, name, which, transition)
        if fields:
            values.update(zip(compiled.statement.names, fields.values(), strict=True))
        return compiled, values

    def _run(
        self, begun: Begun, compiled: Compiled, values: dict[str, Any], swept: Swept | None, then: Then | None
    ) -> list[T]:
        """Move the tasks, and return them in order. Raises UnknownSession if the session has ended."""
        executor, token, (_, binding) = self.executor, None, begun
        session = binding.sessions.to_take() if compiled.target == TAKEN else None
        try:
            if session is not None:
                token = values["owner"] = binding.sessions.token(session, executor, binding.dialect.source_name)
                if self.machine.brings:
                    values |= self.machine.brought(token)
            if binding.may_fail_to_read:  # reading the rows back may raise: then undo the take
                tasks = executor.transaction(partial(self._taken, compiled, values, token, swept), locks=False)
            elif rows := self._run_once(compiled, values, begun):
                is_plain = len(rows) == 1 and type(rows[0]) is not UnreadRow and token is not None
                tasks = [self.tasks.read(rows[0], token)] if is_plain else self._in_order(rows, token)
            else:
                tasks = self._in_order(self._found_late(compiled, values, swept), token)
            if session is not None and token is not None and session.closed:
                self.timers.unattended.undo_take(token)
                check_open(session)
            if tasks and then is not None:
                then(token)
            return tasks
        except BaseException as error:
            self.in_doubt.add([token], error)
            raise

    def _taken(self, compiled: Compiled, values: dict[str, Any], token: str | None, swept: Swept | None) -> list[T]:
        rows = self._run_once(compiled, values)
        return self._in_order(rows or self._found_late(compiled, values, swept), token)

    def _run_once(self, compiled: Compiled, values: dict[str, Any], begun: Begun | None = None) -> list[Row]:
        """Run a compiled statement. By turns, repeat it for up to `n` tasks."""
        if not self.by_turns or values["n"] == 1 or compiled.source != READY:
            rows = self.executor.run(compiled, values, begun)
            if rows and self.floors.tubes and compiled.target == TAKEN:
                self.floors.took(values["tube"], max(row[self._key_at] for row in rows))
            return rows
        return self.executor.transaction(partial(self._by_turns, compiled, values), locks=False)

    def _by_turns(self, compiled: Compiled, values: dict[str, Any]) -> list[Row]:
        # In one transaction: else a task could fall due, and be taken again in the next round.
        heads, n, rows = self.executor.dialect.heads, values["n"], list[Row]()
        assert heads is not None
        last: int | None = heads.last_change(self.store)
        while last is not None and (found := self.executor.run(compiled, values)):
            self.tasks.sort(found)
            rows += found
            last = None if len(rows) == n else heads.look_again(self.store, last)
            values = values if n == self.executor.dialect.no_limit else {**values, "n": n - len(rows)}
        return rows

    def _in_order(self, rows: list[Row], token: str | None) -> list[T]:
        if not self.by_turns:  # else each round is sorted
            self.tasks.sort(rows)
        if token is None:
            return self.tasks.returned_all(rows)
        for row in rows if UnreadRow in map(type, rows) else ():
            self.store.read(row)  # raises: a worker gets no task that is not as the model says
        return self.tasks.read_all(rows, token)

    def _found_late(self, compiled: Compiled, values: dict[str, Any], swept: Swept | None) -> list[Row]:
        """Sweep a batch, if that was not done, and take again while more tasks become ready, or are passed by.

        The maintenance thread moves the other due tasks. All are moved if there is none, or if they hide a task.
        """
        queries, pauses = self.executor.dialect.queries, iter(BEING_MOVED)
        found = (self.timers.sweep_if_any(), False) if swept is None else self._sweep_on(swept, values, pauses)
        while found:
            swept, is_passed_by = found
            # A query comes first, but not in a transaction, which may see an old snapshot. Without timers, none is new.
            sure = is_passed_by or swept.readied or values["owner"] is None or self.store.in_transaction()
            if (sure or (queries.next_due() and self.any_ready())) and (rows := self._run_once(compiled, values)):
                return rows
            found = self._sweep_on(swept, values, pauses)
        return []

    def _sweep_on(self, swept: Swept, values: dict[str, Any], pauses: Iterator[float]) -> tuple[Swept, bool] | None:
        """Do what is next after a sweep. Return with its result whether a ready task was passed by; None: no more."""
        more = self._sweep_rest(swept, values)
        return (more, False) if more else self._wait_for_others(swept, values, pauses)

    def _sweep_rest(self, swept: Swept, values: dict[str, Any]) -> Swept | None:
        """Move all due tasks if nobody else does, or if they hide the one to take. Then make ready what waits."""
        alone, queries = self.executor.clock is not None or not self.store.has_threads, self.executor.dialect.queries
        if swept.moved and (alone or (swept.moved >= PER_MOVE and self._finds(queries.behind_due, values))):
            return Swept(True, self.timers.sweep())
        if swept.readied or (swept.refreshed and not self.store.in_transaction()):
            return self.timers.ready_batch(only_heads=not swept.readied)
        return None

    def _wait_for_others(
        self, swept: Swept, values: dict[str, Any], pauses: Iterator[float]
    ) -> tuple[Swept, bool] | None:
        """Wait for another connection that moves the due tasks: a take skips the rows that it has locked."""
        dialect = self.executor.dialect
        skips = swept.due and not swept.refused and not dialect.is_local
        if skips and not self.timers.any_to_ready():
            return Swept(False), False  # it has moved them by now: look once more
        is_passed_by = not skips and dialect.moves.may_pass_by and self._finds(dialect.queries.ready, values)
        if (skips or is_passed_by) and (pause := next(pauses, None)) is not None:
            time.sleep(pause)
            return self.timers.ready_batch(), is_passed_by
        return None

    def _finds(self, query: Callable[[Selector], str], values: dict[str, Any]) -> bool:
        if values["owner"] is None or self.store.in_transaction():  # which may see an old snapshot
            return False
        skips = tuple(sum(name[len(by) :].isdigit() for name in values if name.startswith(by)) for by in SKIPS.values())
        passed = sum(name.startswith("k0_") for name in values)
        sql = query(Selector("first", READY, tube=values["tube"] is not None, skips=skips, passed=passed))
        return bool(sql and self.executor.run(sql, values))

    def any_ready(self) -> bool:
        return bool(self.executor.run(self.executor.dialect.queries.any_ready(self.executor.window)))


def check_open(session: Session) -> None:
    """If another thread closed the session during a take, release its tasks and raise UnknownSession."""
    if session.closed:
        session.close()
        raise UnknownSession(session.uuid)
