"""Signals: a call that gives a task what it waits for, or will wait for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from xq.core.compile import Statement, change
from xq.core.errors import BadValue, NotFound, WrongState
from xq.core.kinds import Row
from xq.core.machine import READY
from xq.core.values import Key
from xq.core.values import named as by_name
from xq.engine.binding import Binding
from xq.features.steps.lines import LONGEST_SIGNAL, MOST, SIGNAL, Line, dumped, mark, named, octets, read, without
from xq.features.steps.slice import KEPT_IN, WOKE, StepsSlice
from xq.sql.dialect import Dialect
from xq.sql.named import filled

DIGITS: Final = 16  # of the time in a line, until the year 2286
TRIES: Final = 20  # while other signals come between a look and the next try
ANY: Final = 2**30  # octets: a group's signal is never too large


class Signals:
    """Gives tasks of one queue their signals."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts

    def send(self, key: object, name: object, value: object) -> bool:
        """Give a task a signal. Return whether it is the first of its name. Raises as `Queue.signal`."""
        parts, named_so = self.parts, named(SIGNAL, name)
        brings = brought(named_so, f',"value":{as_value(named_so, value)}}}')
        size = len(brings["step_line"]) + DIGITS + len(WOKE) + len(brings["step_rest"])
        if size > LONGEST_SIGNAL:
            raise BadValue(f"the signal {named_so!r} has {size:,} octets as a line, and may have {LONGEST_SIGNAL:,}")
        found, most = parts.tasks.identify(key)[0], MOST
        for _ in range(TRIES):
            _, binding = parts.executor.begin(reviews=True)
            if self._sent(binding, found, {**brings, "adding": size, "most": most}):
                return True
            row, state = parts.named.look(found, parts.named.afresh)
            if state not in KEPT_IN:
                raise WrongState(SIGNAL, parts.tasks.app_key(found), state, KEPT_IN, parts.tasks.wording)
            lines = self._lines(row)
            if any(line.kind in (SIGNAL, "timeout") and line.name == named_so for line in lines):
                return False
            held = octets(lines, signals=True)
            if held + size > MOST:
                raise BadValue(
                    f"the signal {named_so!r} has {size:,} octets as a line, task {parts.tasks.app_key(found)!r} has "
                    f"{held:,} of signals already, and may have {MOST:,}"
                )
            most = MOST + octets(lines, signals=False)
        raise NotFound(parts.store.name, parts.tasks.app_key(found), ": others change it without a pause")

    def later(self, task: object, name: str, value: str) -> str:
        """Return SQL that gives a task a signal when it runs, in whatever program. `value` is JSON, as SQL.

        It changes nothing if the task has ended by then, or has such a signal. Raises BadType and BadValue.
        """
        parts, brings = self.parts, brought(named(SIGNAL, name), "")
        _, binding = parts.executor.begin(reviews=True)
        dialect = binding.dialect.in_full(parts.store)
        key = parts.tasks.identify(task)[0]
        by_column = dict(zip((field.column for field in parts.tasks.table.key), key, strict=True))
        literals = dialect.literals(parts.store, dialect.table_in_schema, by_column).values()
        known = dict(zip(by_name(key), literals, strict=True))
        known |= {each: dialect.in_any_mode(text) for each, text in brings.items()}
        known |= {"step_rest": dialect.joined(["',\"value\":'", value, "'}'"]), "adding": "0", "most": str(ANY)}
        known |= {"now": "NULL", "context": dialect.in_any_mode(dialect.stored_context(SIGNAL))}
        return filled(written(dialect), **known)

    def again(self, key: object, name: object, update: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Any:
        """Dig a task, without a step and what is recorded after it. Raises BadValue for an unknown one."""
        forget = {"steps": partial(without, name=named("step", name))}
        return self.parts.named.rewriting("dig", key, options, update, forget)

    def _lines(self, row: Row) -> list[Line]:
        table = self.parts.tasks.table
        return list(read(row[table.fields.index(table.roles["steps"])]))

    def _sent(self, binding: Binding, key: Key, brings: Mapping[str, Any]) -> bool:
        """Add a signal, and wake who waits for ready tasks. Return whether it was added."""
        parts, executor = self.parts, self.parts.executor
        machine, observers = parts.definition.machine, parts.observers
        counts = machine.settings.counts_events
        # Else it is only the maintenance that listens, to new times of timers.
        wakes = observers.callbacks or parts.waiters.anybody or (machine.timers[READY] and observers.anybody)
        sends = binding.changes(parts.store, Statement(written(binding.dialect)), SIGNAL)

        def send() -> bool:
            ((changed,),) = executor.run(sends, {**executor.values(), **by_name(key), **brings})
            if changed and (counts or wakes):
                row, _ = parts.named.look(key, parts.named.afresh)
                mine = [line for line in self._lines(row) if (line.kind, line.name) == (SIGNAL, brings["step_signal"])]
                woke = any("woke" in line.fields for line in mine)
                parts.named.statements.count(binding, SIGNAL, "W", READY, int(woke))
                if woke:
                    observers.notify(SIGNAL, "W", READY, [row[:-1]])
            return bool(changed)

        return bool(executor.transaction(send) if counts else send())


def as_value(name: str, value: object) -> str:
    """Return the value of a signal as JSON. Raises BadValue."""
    try:
        return dumped(value)
    except BadValue as error:
        raise BadValue(f"the value of the signal {name!r}: {error}") from error


def brought(name: str, rest: str) -> dict[str, str]:
    """Return the values for the SQL of a signal, whose line ends with `rest`."""
    begins = mark(SIGNAL, name)
    marks = {"step_mark": begins, "step_late": mark("timeout", name)}
    return {"step_line": f'{begins}"at":', "step_rest": rest, "step_signal": name} | marks


def written(dialect: Dialect) -> str:
    """Return the SQL of a signal."""
    row = dialect.machine.choose("W", SIGNAL, ())
    assert row is not None
    slice: StepsSlice = dialect.slice_of[StepsSlice]
    return slice.signal(dialect.moves.of_roles(change(dialect.machine, row, frozenset()), ["W"]))
