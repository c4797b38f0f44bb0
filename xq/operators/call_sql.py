"""The SQL of a call, to be read: `print(Page.xq.sql("take"))`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xq.core.compile import Selector, Statement
from xq.core.errors import BadValue, shown
from xq.core.machine import ABSENT, TAKEN
from xq.core.values import PARAMETERS, Tasks
from xq.engine.steps import Steps
from xq.engine.unit import Database

# The parts of a statement, in the order in which they run, and the purpose of each.
PARTS = {
    "admitted": "is there room? Without a row nothing is put",
    "lock": "lock the tasks",
    "others": "lock the tasks of other groups",
    "among": "which of both are meant",
    "charge": "charge its token bucket",
    "sql": "",
    "back": "read them back",
}


def sql_of(
    database: Database,
    tasks: Tasks[Any],
    steps: Steps,
    event: str,
    options: Sequence[str],
    fields: Sequence[str],
    n: int,
) -> str:
    """Return the SQL of a call for `n` tasks with these options and fields. Raises BadValue and FeatureOff."""
    words = {*PARAMETERS.get(event, ())}
    words |= {"on_conflict"} if event == "put" and steps.machine.guard("unique") else set()
    given = tuple(tasks.options(event, {name: 1.0 for name in options if name not in words}))
    call = _put if event == "put" else _move
    return "\n".join(call(database, tasks, steps, event, given, fields, n, "tube" in options))


def _put(
    database: Database, tasks: Tasks[Any], steps: Steps, event: str, given: Any, fields: Any, n: int, tube: bool
) -> Iterator[str]:
    binding = database.open()
    names = tuple(tasks.brings(name).name for name in fields)
    row = tasks.choose(ABSENT, event, dict.fromkeys(given, 1.0))
    if unique := steps.machine.guard("unique"):
        yield f"{binding.dialect.holder(unique)};  -- the task that holds the unique value"
    yield _shown(steps.insert(binding, row, given, names, n).statement)


def _move(
    database: Database, tasks: Tasks[Any], steps: Steps, event: str, given: Any, fields: Any, n: int, tube: bool
) -> Iterator[str]:
    binding, machine = database.open(), steps.machine
    names = tuple(tasks.known(name).name for name in fields)
    found = [machine.choose(state, event, given) for state in machine.sources(event)]
    rows = [row for row in found if row is not None and not row.named]
    if not rows:
        raise BadValue(
            f"{event} has no SQL of its own: it leaves no state, or names the one that it enters: {shown(event)}"
        )
    if len(rows) > 1 and not rows[0].picks:
        yield f"{binding.dialect.look()};  -- the task, whose state selects one of these"
    for row in rows:
        limited = steps.rates is not None and row.target == TAKEN
        which = Selector("key", row.source, "take" if row.fenced else "")
        if row.picks:
            which = Selector("first" if n == 1 or limited else "oldest", row.source, tube=tube)
        yield _shown(steps.move(binding, event, which, row, given, names).statement)


def _shown(statement: Statement) -> str:
    parts = [(getattr(statement, part), why) for part, why in PARTS.items()]
    return "\n".join(f"{sql};{f'  -- {why}' if why else ''}" for sql, why in parts if sql)
