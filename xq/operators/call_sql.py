"""The SQL of a call, to be read: `print(Page.xq.sql("take"))`."""

from __future__ import annotations

from collections.abc import Sequence
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
    machine, unique = steps.machine, event == "put" and steps.machine.guard("unique")
    words = {*PARAMETERS.get(event, ()), *(["on_conflict"] if unique else [])}
    given = tuple(tasks.options(event, {name: 1.0 for name in options if name not in words}))
    names = tuple((tasks.brings if event == "put" else tasks.known)(name).name for name in fields)
    binding, before = database.open(), ""
    if event == "put":
        row = tasks.choose(ABSENT, event, dict.fromkeys(given, 1.0))
        if unique:
            before = f"{binding.dialect.holders(unique, n)};  -- if a value is refused: the tasks that hold them\n"
        return before + _shown(steps.insert(binding, row, given, names, n).statement)
    found = [machine.choose(state, event, given) for state in machine.sources(event)]
    rows = [row for row in found if row is not None and not row.named]
    if not rows:
        raise BadValue(
            f"{event} has no SQL of its own: it leaves no state, or names the one that it enters: {shown(event)}"
        )
    if len(rows) > 1 and not rows[0].picks:
        before = f"{binding.dialect.look()};  -- the task, whose state selects one of these\n"
    statements = []
    for row in rows:
        which = Selector("key", row.source, "take" if row.fenced else "")
        if row.picks:
            limited = steps.rates is not None and row.target == TAKEN
            which = Selector("first" if n == 1 or limited else "oldest", row.source, tube="tube" in options)
        statements.append(_shown(steps.move(binding, event, which, row, given, names).statement))
    return before + "\n".join(statements)


def _shown(statement: Statement) -> str:
    parts = [(getattr(statement, part), why) for part, why in PARTS.items()]
    return "\n".join(f"{sql};{f'  -- {why}' if why else ''}" for sql, why in parts if sql)
