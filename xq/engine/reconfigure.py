"""Change the features of an installed queue, and move the tasks of states that it loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xq.core.compile import Selector, change
from xq.core.errors import ConfigurationError, shown
from xq.core.machine import ABSENT, TAKEN, Machine, Transition
from xq.engine.stats import apart, by_event
from xq.engine.unit import Binding, Database, Definition


def reconfigure(database: Database, features: Mapping[str, Any], move: Mapping[str, str]) -> Definition:
    """Give the queue in `database` other features, in one transaction, and return its new definition.

    `move` maps each lost state that has tasks to the state they move to. Raises ConfigurationError
    - within the application's transaction,
    - if a lost state has tasks and `move` does not name it; the message counts them,
    - if more tasks hold a value than a new feature allows.
    """
    store, old = database.store, database.definition
    if store.in_transaction():
        raise ConfigurationError("call reconfigure outside of a transaction: this process would not notice a rollback")
    new = old.redefine(features)
    new = replace(new, words={**old.words, **new.words})  # of the lost states as well
    lost = [state for state in old.machine.states if state not in new.machine.states]
    _check(new, lost, move)
    before, after = database.open(), Database(store, new, database.clock, database.observers).bind()
    after.installation.check_statuses()
    with before.dialect.installing(store):
        counts = [row for row in database.execute(before.dialect.actual_counts) if row[1] in lost]
        stranded = {state: n for tube, state, n in counts if tube == "" and state not in move}
        if stranded:
            raise ConfigurationError(
                f"{store.name} holds tasks in states that the new features do not have, "
                f"{old.wording.counts(stranded)}: say where they go, as in move={{{next(iter(stranded))!r}: 'R'}}"
            )
        states = (*old.machine.states, *new.machine.states)  # another program may have written the status of a new one
        _check_guards(database, after, {state: move.get(state, state) for state in states})
        before.installation.take_down()  # old triggers and indexes do not fit the new states
        for state, target in move.items():
            written = change(new.machine, Transition(state, "reconfigure", target), frozenset())
            if old.machine.timer(state, "deadline") and new.machine.timer(target, "deadline"):
                written = replace(written, roles={k: v for k, v in written.roles.items() if k != "deadline"})  # goes on
            if before.dialect.has_history and after.dialect.has_history:
                database.execute(after.dialect.note_move(state, target), {"event": "reconfigure"})
            after.dialect.change(store, after.dialect.move(Selector("all", state), written), database.values())
        if old.machine.settings.counts_events:
            _keep_events(database, old.machine, new.machine)
        for tube, state, n in counts:
            before.installation.add_counter(tube, state, move[state], n)
            if tube == "" and new.machine.settings.counts_events:
                before.installation.add_counter(*apart("reconfigure", state, move[state]), n)
        after.installation.create()
    return new


def _keep_events(database: Database, old: Machine, new: Machine) -> None:
    """Count past transitions under their event by name, if their transition has another usual event from now on."""
    for event, transitions in by_event(database.counters(), old.usual_event).items():
        for transition, n in transitions.items():
            source, target = transition.split("-")
            if old.is_usual(event, source, target) and not new.is_usual(event, source, target):
                database.open().installation.add_counter(*apart(event, source, target), n)


def _check_guards(database: Database, after: Binding, becomes: Mapping[str, str]) -> None:
    """Raise ConfigurationError if more tasks hold a value than a guard allows.

    Called before any change: MariaDB commits each change of a table, so it could not be rolled back.
    """
    for guard in (guard for guard in after.dialect.machine.guards if guard.role):
        counted = [state for state, target in becomes.items() if target in guard.states]
        found = database.execute(after.dialect.exceeded_value(guard, counted)) if counted else []
        for (value,) in found:
            many = "two" if guard.value in (None, 1) else f"more than {guard.value}"
            raise ConfigurationError(
                f"{database.store.name} cannot be given the feature {guard.name!r}: {many} tasks hold {shown(value)} "
                "in states that count. Change or finish one of them first"
            )


def _check(new: Definition, lost: Sequence[str], move: Mapping[str, str]) -> None:
    if not isinstance(move, Mapping):
        raise ConfigurationError(f"move is a mapping of states, as {{'Z': 'D'}}, not a {type(move).__name__}")
    targets = [ABSENT, *(state for state in new.machine.states if state not in (TAKEN, "W"))]
    for state, target in move.items():
        if state not in lost:
            raise ConfigurationError(
                f"move: the new features keep {shown(state)}; they lose {new.wording.states(lost) or 'no state'}"
            )
        if target not in targets:
            raise ConfigurationError(f"move: tasks cannot go to {shown(target)}, but to {new.wording.states(targets)}")
