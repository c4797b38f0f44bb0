"""Signals: a call that gives a task what it waits for, or will wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xq.core.compile import Statement, change
from xq.core.errors import BadValue, NotFound, WrongState
from xq.core.machine import READY
from xq.core.values import Key
from xq.core.values import named as by_name
from xq.engine.binding import Binding
from xq.features.steps.lines import LONGEST_SIGNAL, MOST, SIGNAL, dumped, mark, named, octets, read
from xq.features.steps.slice import KEPT_IN, StepsSlice

DIGITS: Final = 16  # of the time in a line, until the year 2286
TRIES: Final = 20  # while other signals come between a look and the next try


def signal(parts: Any, key: object, name: object, value: object) -> bool:
    """Give a task a signal. Return whether it is the first of its name. Raises as `Queue.signal`."""
    if not any(feature.name == "steps" for feature in parts.definition.machine.features):
        parts.tasks.options.refuse_event(SIGNAL)
    name = named(SIGNAL, name)
    brings = brought(name, value)
    size = len(brings["line"]) + DIGITS + len(brings["rest"]) + len(',"woke":1')
    if size > LONGEST_SIGNAL:
        raise BadValue(f"the signal {name!r} has {size:,} octets as a line, and may have {LONGEST_SIGNAL:,}")
    found, most = parts.tasks.identify(key)[0], MOST
    for _ in range(TRIES):
        _, binding = parts.executor.begin(reviews=True)
        if _sent(parts, binding, found, {**brings, "adding": size, "most": most}):
            return True
        row, state = parts.named.look(found, parts.named.afresh)
        if state not in KEPT_IN:
            raise WrongState(SIGNAL, parts.tasks.app_key(found), state, KEPT_IN, parts.tasks.wording)
        text = row[parts.tasks.table.fields.index(parts.tasks.table.roles["steps"])]
        lines = list(read(text))
        if any(line.kind in (SIGNAL, "timeout") and line.name == name for line in lines):
            return False
        held = octets(lines, signals=True)
        if held + size > MOST:
            raise BadValue(
                f"the signal {name!r} has {size:,} octets as a line, task {parts.tasks.app_key(found)!r} has "
                f"{held:,} of signals already, and may have {MOST:,}"
            )
        most = MOST + octets(lines, signals=False)
    raise NotFound(parts.store.name, parts.tasks.app_key(found), ": others change it without a pause")


def brought(name: str, value: object) -> dict[str, str]:
    """Return the values for the SQL of a signal. Raises BadValue for what JSON cannot hold."""
    begins = mark(SIGNAL, name)
    try:
        rest = f',"value":{dumped(value)}}}'
    except BadValue as error:
        raise BadValue(f"the value of the signal {name!r}: {error}") from error
    return {"line": f'{begins}"at":', "rest": rest, "mark": begins, "late": mark("timeout", name), "awaits": name}


def written(binding: Binding, by_key: str = "") -> str:
    """Return the SQL of a signal."""
    dialect = binding.dialect
    row = dialect.machine.choose("W", SIGNAL, ())
    assert row is not None
    slice: StepsSlice = dialect.slice_of[StepsSlice]
    return slice.signal(dialect.moves.of_roles(change(dialect.machine, row, frozenset()), ["W"]), by_key)


def _sent(parts: Any, binding: Binding, key: Key, brings: Mapping[str, Any]) -> bool:
    """Add a signal, and wake who waits for ready tasks. Return whether it was added."""
    executor, counts = parts.executor, parts.definition.machine.settings.counts_events
    sends = binding.changes(parts.store, Statement(written(binding)), SIGNAL)

    def send() -> bool:
        ((changed,),) = executor.run(sends, {**executor.values(), **by_name(key), **brings})
        if changed and (counts or parts.observers.anybody):
            row, _ = parts.named.look(key, parts.named.afresh)
            lines = read(row[parts.tasks.table.fields.index(parts.tasks.table.roles["steps"])])
            woke = any(
                each.kind == SIGNAL and each.name == brings["awaits"] and "woke" in each.fields for each in lines
            )
            parts.named.statements.count(binding, SIGNAL, "W", READY, int(woke))
            if woke:
                parts.observers.notify(SIGNAL, "W", READY, [row[:-1]])
        return bool(changed)

    return executor.transaction(send) if counts else send()
