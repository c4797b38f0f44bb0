"""Install what a queue needs in a database, change it, and remove it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from xq.adapters.databases.installer.findings import DURATIONS, Findings
from xq.adapters.databases.installer.online import MANY, Installing
from xq.adapters.databases.parts import Parts
from xq.adapters.databases.shared import GENERATIONS
from xq.core.acting import actor_of
from xq.core.compile import Selector, change
from xq.core.counters import corrections, counter_of
from xq.core.errors import ConfigurationError, InTransaction, shown
from xq.core.machine import ABSENT, TAKEN, Transition
from xq.core.ports import OUTCOME_UNKNOWN, REFUSALS, ErrorKind
from xq.core.words import Wording

log = logging.getLogger("xq")

DELETED: Final = (
    "the queue %s is installed: the table %s has rows, and %s deletes the row of its task; the feature keep leaves it "
    "in the table when it is done, and zombie for a while"
)
UNGUARDED: Final = " (the guard refuses that: install the earlier definition with 'guard': 'log' before)"
BLOCKED: Final = (
    "the queue %s: %s has about %d rows, whose writers wait until install() ends; on a server they do not with "
    "install(online=True), and install(plan=True) shows the steps"
)


@dataclass(frozen=True)
class LostStates:
    """Where tasks go from the states of the installed definition that the new one lacks."""

    dialect: Parts  # of the definition, with these states as well
    targets: Mapping[str, str]  # by state
    with_deadline: bool  # whether their tasks have deadlines, which go on


class Installation(Findings):
    """The installation of one queue in one database."""

    def ddl(self, stale: Sequence[str] = ()) -> list[str]:
        """Return the statements that install the queue on a table. They may run twice, also in a transaction.

        `stale`: what `refuse_if_reached` returns.
        """
        record = self.dialect.records.record(self.dialect.layout, self.fingerprint)
        heads = self.dialect.groups.built if self.dialect.groups else []
        filling = [self.looks.count_what_is_there, *heads, *filter(None, [self.looks.times_unowned])]
        columns = self.installer.add_own(self.store) if self.store.adds_columns else []
        statements = [*columns, *stale, *self.installer.widening(self.store), *self._statements(), *filling, *record]
        return [self.installer.in_a_script(sql) for sql in statements]

    def ddl_to_uninstall(self) -> list[str]:
        """Return the statements that uninstall the queue of this definition. The tables that all queues share stay."""
        columns = self.installer.drop_own(self.installer.own) if self.store.adds_columns else []
        statements = [*self._drops(), *self.dialect.records.forget_all.values(), *columns]
        return [self.installer.in_a_script(sql) for sql in statements]

    def _drops(self) -> list[str]:
        return [item.drop for item in reversed([self.installer.objects.jobs, *self.installer.objects.mine()])]

    def _statements(self) -> list[str]:
        return [sql for item in self.installer.objects.all() for sql in item.create]

    def install(
        self,
        move: Mapping[str, str] | None = None,
        drop_history: bool = False,
        online: bool = False,
        lock_timeout: float = 1,
        downgrade: bool = False,
    ) -> None:
        """Create what is missing; do nothing if all is there. Any number of processes may call it at once.

        `move` names, by the states that this definition lacks, where their tasks go. Raises ConfigurationError if the
        rows or the recorded definition do not fit, or if there is a history with rows that this definition lacks,
        unless `drop_history`, or if it is older, unless `downgrade`; NotInstalled without the table. With `online` it
        runs beside writers, none of which waits for longer than `lock_timeout` seconds.
        """
        if online and (move or drop_history):
            raise ConfigurationError("install(online=True) has no move= and no drop_history=: leave one of them out")
        if online and self.store.in_transaction():
            raise InTransaction("install(online=True)", ", or leave online= out")
        targets = self._targets({} if move is None else move)
        self._check_table()
        self.installer.refuse(self.store)  # first: an enum cannot even be compared with a status that it lacks
        self.check_statuses()
        self.installer.prepare(self.store)
        if not self.missing():
            if self._recorded().get(DURATIONS) == json.loads(self.fingerprint)[DURATIONS]:
                return
            with self.installer.installing(self.store):
                if not self.missing():  # else another process has uninstalled it since
                    self.record()
                    return
        self.refuse()
        is_new = not self._recorded()
        steps = Installing(self, online and not self.dialect.is_local, self._count)
        try:
            if steps.online:
                self._refuse_online()
                steps.run(lock_timeout)
                self._warn(is_new)
                return
            if is_new and (rows := steps.rows()) > MANY:
                log.warning(BLOCKED, self.store.name, self.store.table, rows)
            with self.installer.installing(self.store):
                if self.missing():  # else another process was faster
                    moves = self._admitted(targets, drop_history, downgrade)
                    is_new = not self._recorded()
                    self.create(moves)
                    self._warn(is_new)
        except Exception as error:
            if self.store.classify(error) not in REFUSALS:
                raise
            raise ConfigurationError(
                f"{self.store.name} cannot be installed: rows that are there already hold one value of the role "
                f"'unique' twice, more tasks of a utube are taken than may be, or they may not be moved ({error}). "
                "Change or finish them first"
            ) from error

    def plan(self, online: bool) -> str:
        """Return the steps that install() would run, as text. Raises as `install` does without a table."""
        self._check_table()
        self.installer.refuse(self.store)
        steps = Installing(self, online and not self.dialect.is_local, self._count)
        try:
            self.refuse_all(steps.online)
        except ConfigurationError as error:
            return f"{steps.plan()}\nIt is refused: {error}"
        return steps.plan()

    def refuse_all(self, online: bool = False) -> None:
        """Raise ConfigurationError for all that install() refuses before it changes anything."""
        self.check_statuses()
        self.refuse()
        if online:
            self._refuse_online()
        else:
            self._admitted({})

    def refuse_if_reached(self) -> list[str]:
        """Raise what install() raises, and return SQL that drops what an earlier definition had, but its history.

        Do nothing if the database does not answer.
        """
        history = self.installer.objects.drop("table", self.dialect.name("history"))
        try:
            if not self.missing_columns() and self.missing():
                self.refuse_all()
            return [sql for sql in self.installer.stale(self.store) if sql != history]
        except Exception as error:
            if isinstance(error, ConfigurationError) or self.store.classify(error) not in OUTCOME_UNKNOWN:
                raise
            return []

    def _admitted(
        self, targets: Mapping[object, str], drop_history: bool = False, downgrade: bool = False
    ) -> LostStates | None:
        """Return the moves of tasks. Raises ConfigurationError if this definition may not replace the installed one."""
        if not downgrade and (older := self.older()):
            raise ConfigurationError(
                f"{self.store.name} cannot be installed as this process defines it: {older}. Install it from the newer "
                "program; or, to go back to this one, call install(downgrade=True)"
            )
        moves = self._moves(targets)
        if not drop_history:
            self._check_history()
        return moves

    def _refuse_online(self) -> None:
        if unfit := self.installer.not_online(self.store):
            raise ConfigurationError(f"{self.store.name} cannot be installed online: {unfit}")
        self.refuse_change()

    def _warn(self, is_new: bool) -> None:
        for line in [*self._unowned(), *self.untimed()]:
            log.warning("the queue %s is installed: %s", self.store.name, line)
        machine = self.dialect.machine
        timers = {each.event for each in machine.due if each.event in ("ttl", "lifetime") and each.target == ABSENT}
        deletes = ["an ack"] * machine.ack_deletes + [f"the timer {timer!r}" for timer in sorted(timers)]
        if is_new and deletes and self.store.execute(f"SELECT 1 FROM {self.dialect.table_in_schema} LIMIT 1"):
            log.warning(DELETED, self.store.name, self.store.table, " or ".join(deletes))

    def make_jobs(self, create: str) -> None:
        """Create the table that bulk puts need, if it is missing. Raises ConfigurationError if that fails."""
        table = self.installer.objects.jobs
        if table.name in self.installer.existing(self.store):
            return
        try:
            with self.installer.installing(self.store):
                self.store.execute(create)
        except Exception as error:
            if self.store.classify(error) in (ErrorKind.CONFLICT, *OUTCOME_UNKNOWN):
                raise
            raise ConfigurationError(
                f"{self.store.name} has no table yet of the jobs that were put, and it cannot be made ({error}): have "
                "the owner of its table begin a job, and grant the rights on it"
            ) from error

    def _targets(self, move: object) -> dict[object, str]:
        """Return the letters of the states that `move` names as targets. Raises ConfigurationError."""
        if not isinstance(move, Mapping):
            raise ConfigurationError(f"move is a mapping of states, as {{'Z': 'D'}}, not a {type(move).__name__}")
        states, timed = self.dialect.machine.states, {detour.via for detour in self.dialect.machine.detours}
        allowed = [ABSENT, *(state for state in states if state not in {TAKEN, *timed})]
        found = {}
        for state, target in move.items():
            if self.wording.letter(state, states):
                raise ConfigurationError(f"move: this definition has the state {shown(state)}, so its tasks stay")
            letter = self.wording.letter(target, allowed)
            if letter is None:
                raise ConfigurationError(
                    f"move: tasks cannot go to {shown(target)}, but to {self.wording.states(allowed)}"
                )
            found[state] = letter
        return found

    def _moves(self, targets: Mapping[object, str]) -> LostStates | None:
        """Return the moves of the tasks in states that this definition lacks; None if there are no such states.

        Raises ConfigurationError if `targets` lacks one that has tasks, or if more tasks would hold a value than a
        guard allows. Called before any change: MariaDB commits each change of a table.
        """
        there = self._recorded()
        lost = {state: word for state, word in there.get("states", {}).items() if word not in self.dialect.letters}
        states = self.dialect.machine.states
        old = Wording({state: word for state, word in lost.items() if word != state})
        gone = [state for state in lost if state not in states]
        found = {old.letter(named, gone): target for named, target in targets.items()}
        known = {state: found[state] for state in gone if state in found}
        counts = dict(map(tuple, self.store.execute(self.installer.statuses_in_use))) if lost else {}
        full = {state: counts[word] for state, word in lost.items() if counts.get(word)}
        for state in (state for state in full if state in states):
            raise ConfigurationError(
                f"{self.store.name} has {full[state]} rows with the status {lost[state]!r}, and this definition calls "
                f"that {self.wording.state(state)}: change them to {self.dialect.words[state]!r}, and call again"
                f"{UNGUARDED * (there['features'].get('guard') is True)}"
            )
        stranded = {state: n for state, n in full.items() if state not in known}
        if stranded:
            raise ConfigurationError(
                f"{self.store.name} was installed with states that this definition lacks, and tasks are in them, "
                f"{old.counts(stranded)}: say where they go, as in install(move={{{next(iter(stranded))!r}: "
                "'R'}), or change their status first"
            )
        if not known:
            return None
        machine = copy(self.dialect.machine)
        machine.states = (*states, *known)
        words = {**self.dialect.words, **{state: lost[state] for state in known}}
        dialect = type(self.dialect)(self.dialect.source, machine, words, self.dialect.tube_stats)
        for guard in (guard for guard in dialect.machine.guards if guard.role):
            counted = [state for state in machine.states if known.get(state, state) in guard.states]
            for (value,) in self.store.execute(dialect.installer.exceeded_value(guard, counted)) if counted else ():
                many = "two" if guard.value in (None, 1) else f"more than {guard.value}"
                raise ConfigurationError(
                    f"{self.store.name} cannot be given the feature {guard.name!r}: {many} tasks hold {shown(value)} "
                    "in states that count. Change or finish one of them first"
                )
        return LostStates(dialect, known, "lifetime" in there["features"])

    def _check_history(self) -> None:
        any_row = f"SELECT id FROM {self.dialect.side('history')} LIMIT 1"
        if self._lacks_history(self.installer.existing(self.store)) and self.store.execute(any_row):
            raise ConfigurationError(
                f"{self.store.name} has a history, whose rows are in {self.dialect.name('history')}, and this "
                f"definition lacks the feature 'history', so that install() would drop them: {self._keeps_history()}"
            )

    def create(self, moves: LostStates | None = None) -> None:
        """Create everything anew, except the counters, which keep their values."""
        self.take_down()
        if self.store.adds_columns:
            for sql in self.installer.add_own(self.store):
                self.store.execute(sql)
        existing = self.installer.existing(self.store)
        if self.dialect.name("owner") in existing:  # of an earlier layout
            self.store.change(self.dialect.moves.adopt_owners)
        for sql in [*self.installer.stale(self.store), *self.installer.widening(self.store)]:
            self.store.execute(sql)
        if moves is not None:
            self._move(moves, self.dialect.has_history and self.dialect.name("history") in existing)
        for sql in self._statements():
            self.store.execute(sql)
        self.recount()
        if timed := self.looks.times_unowned:
            self.dialect.execute(self.store, timed, self.values())
        self.record()

    def record(self) -> None:
        """Record this definition as installed."""
        for sql in self.dialect.records.record(self.dialect.layout, self.fingerprint):
            self.dialect.execute(self.store, sql, self.values())

    def forget_generations(self) -> None:
        """Forget what was the newest definition or set of schedules in turn: none is older any more."""
        if GENERATIONS in self.installer.existing(self.store):
            self.store.execute(self.dialect.records.forget_all[GENERATIONS])

    def _count(self) -> None:
        self.recount()
        self.record()

    def _move(self, moves: LostStates, noted: bool) -> None:
        """Move the tasks of the lost states, and count that, while no trigger does. `noted`: in the history, too."""
        dialect, machine, values = moves.dialect, self.dialect.machine, self.values()
        for tube, state, n in self.store.execute(dialect.looks.actual_counts):
            if target := moves.targets.get(state):
                self.add_counter(tube, state, target, n)
                if tube == "" and machine.settings.counts_events:
                    self.add_counter(*counter_of("install", state, target), n)
        noted_as = {**values, "event": "install", **actor_of(self.store.ready())._asdict()}
        for state, target in moves.targets.items():
            written = change(machine, Transition(state, "install", target), frozenset())
            if moves.with_deadline and state not in "DZ" and machine.timer(target, "deadline"):
                written = replace(written, roles={k: v for k, v in written.roles.items() if k != "deadline"})
            if noted:
                dialect.execute(self.store, dialect.installer.objects.note_move(state, target), noted_as)
            dialect.change(self.store, dialect.moves.move(Selector("all", state), written), values)
        if noted:
            self.looks.add_up_history(self.store)  # of which the counters have these rows already

    def take_down(self) -> None:
        """Drop the triggers and indexes. The same transaction must create them anew."""
        self.looks.add_up_history(self.store)
        for item in reversed(self.installer.objects.mine()):
            if item.kind != "table":
                self.store.execute(item.drop)

    def recount(self) -> None:
        """Set the counts of tasks and the group heads to what the table holds. Leave the counts of transitions."""
        within = self.store.in_transaction()
        if hidden := self.hidden():
            raise ConfigurationError(f"{self.store.name} cannot be counted: {hidden}")
        with self.store.atomic():
            self.dialect.one_at_a_time(self.store, within)  # two at once would correct the counters twice
            for (tube, state), n in self._corrections().items():
                self.add_counter(tube, "", state, n)
            utubes = self.dialect.groups
            for sql in [*self.installer.continuing, *([utubes.alone, *utubes.built] if utubes else [])]:
                if sql:
                    self.store.execute(sql)

    def reset(self, within: bool) -> None:
        """Set the counts of transitions to zero, in a transaction; `within`: whether it is the application's.

        It subtracts what it read, so what other processes count meanwhile remains.
        """
        self.dialect.one_at_a_time(self.store, within)
        counted: list[Any] = [row[:4] for row in self.store.execute(self.looks.counters)]
        for (tube, state), n in corrections(counted, {}).items():
            self.add_counter(tube, "", state, -n)
        for tube, source, target, n in counted:
            self.add_counter(tube, source, target, -n)

    def add_counter(self, tube: str, source: str, target: str, n: int) -> None:
        values = {"tube": tube, "source": source, "target": target, "count": n}
        self.dialect.execute(self.store, self.looks.add_counter, values)

    def drop(self, drop: Callable[[], object]) -> int:
        """Call `drop`, which drops the table, unless tasks are taken. Return the number of taken tasks.

        No task can be taken between the count and the drop.
        """
        with self.installer.closing(self.store) as taken:
            if not taken:
                drop()
        return taken

    def uninstall(self, keep_columns: bool = False) -> None:
        """Remove all that was installed, and leave the plain table; with `keep_columns` also what xq added to it."""
        with self.installer.installing(self.store):
            for sql in [*self._drops(), *self.installer.stale(self.store)]:
                self.store.execute(sql)
            existing = self.installer.existing(self.store)
            if self._records_are_in(existing):
                for table, sql in self.dialect.records.forget_all.items():
                    if table in existing:  # an older version of xq had fewer
                        self.store.execute(sql)
                if not self.store.execute(self.dialect.records.queues):
                    for shared in self.installer.objects.shared():
                        self.store.execute(shared.drop)
            if self.store.adds_columns and not keep_columns:
                for sql in self.installer.drop_own(
                    self.installer.own.keys() & self.installer.table_columns(self.store)
                ):
                    self.store.execute(sql)
