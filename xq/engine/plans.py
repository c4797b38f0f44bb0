"""Describe what a call does, step by step, as text: `print(Page.xq.plan("take"))`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xq.core.compile import Selector, Statement
from xq.core.errors import BadValue, shown
from xq.core.machine import ABSENT, READY, TAKEN, Transition
from xq.core.values import PARAMETERS, Tasks
from xq.engine.steps import Steps
from xq.engine.timers import SWEEP_AFTER
from xq.engine.unit import PAUSES, Binding, Database

# The parts of a statement, in the order in which they run, and the purpose of each.
PARTS = {
    "admitted": "is there room? Without a row nothing is put",
    "lock": "lock the tasks",
    "others": "lock the tasks of other groups",
    "among": "which of both are meant",
    "before": "write down the owner",
    "sql": "",
    "again": "if it found nothing: wait for those who change the task",
    "after": "write down the owner, of each task",
    "after_all": "or the owners of several tasks at once",
    "back": "read them back",
}


@dataclass(frozen=True)
class Plan:
    """The steps of one kind of call on the model's current database. Print it."""

    call: str
    steps: tuple[tuple[str, str], ...]  # a description, and its SQL or ""

    def __str__(self) -> str:
        lines = [self.call]
        for number, (what, sql) in enumerate(self.steps, 1):
            lines.append(f"{number:>3}  {what}")
            lines += [f"       {line}" for line in sql.splitlines()]
        return "\n".join(lines)


def plan(
    database: Database,
    tasks: Tasks[Any],
    steps: Steps,
    event: str,
    options: Sequence[str],
    fields: Sequence[str],
    n: int,
) -> Plan:
    """Return the plan of a call for `n` tasks with these options and fields. Raises BadValue and FeatureOff."""
    binding, machine = database.open(), steps.machine
    words = [choice.name for choice in machine.choices if choice.event == event and choice.name in options]
    words += [name for name in PARAMETERS.get(event, ()) if name in options]
    given = tasks.options(event, {name: 1.0 for name in options if name not in words})
    if event == "put":
        return Plan(
            _call(event, (*given, *words), fields, ""), tuple(_put(tasks, steps, binding, tuple(given), fields, n))
        )
    names = tuple(tasks.known(name).name for name in fields)
    chosen = [
        row
        for state in machine.sources(event)
        if (row := machine.choose(state, event, given)) is not None and not row.named
    ]
    if not chosen:
        raise BadValue(f"{event} has no plan: it leaves no state, or names the one that it enters: {shown(event)}")
    picks = any(row.picks for row in chosen)
    found: list[tuple[str, str]] = []
    if picks:
        found.append((f"sweep: at most each {SWEEP_AFTER:g} s, move the tasks that are due", ""))
        if binding.dialect.has_dirty_groups and chosen[0].source == READY:
            found.append(("refresh the dirty heads of groups", ""))
    elif len(chosen) > 1:
        found.append(("look up the task, whose state selects one of the transitions below", binding.dialect.look()))
    if any(row.target == TAKEN and row.enters for row in chosen):
        found.append(("token: make one of the current session; register the session at its first take", ""))
    for row in chosen:
        if picks:
            one_by_one = n == 1 or (row.target == TAKEN and steps.rates is not None)
            which = Selector("first" if one_by_one else "oldest", row.source, tube="tube" in options)
        else:
            which = Selector("key", row.source, "take" if row.fenced else "")
        found += _move(steps, binding, row, which, tuple(given), names)
    if picks:
        found.append(("if nothing was found: sweep, and look again once something was due", ""))
    else:
        found.append(("if nothing was moved: look up the task, and raise NotFound, WrongState or NotOwner", ""))
    return Plan(_call(event, (*given, *words), names, "" if n == 1 else str(n)), (*found, *_end(steps)))


def _call(event: str, given: Sequence[str], fields: Sequence[str], n: str) -> str:
    brings = "" if event == "put" else "update="
    described = [n, *(f"{option}=" for option in given), *([f"{brings}{{{', '.join(fields)}}}"] if fields else [])]
    return f"{event}({', '.join(filter(None, described))})"


def _put(
    tasks: Tasks[Any], steps: Steps, binding: Binding, given: tuple[str, ...], fields: Sequence[str], n: int
) -> Iterator[tuple[str, str]]:
    names = tuple(tasks.brings(name).name for name in fields)
    row = tasks.choose(ABSENT, "put", dict.fromkeys(given, 1.0))
    unique = steps.machine.guard("unique")
    if unique:
        yield "look up the task that holds the unique value", binding.dialect.holder(unique)
        yield "if there is one: raise Duplicate, return it, or update it, as on_conflict= says", ""
    yield "check and convert the values, by one function that is generated for these fields", ""
    yield f"put {n} task{'s' * (n > 1)}: to {row.target}", _sql(steps.insert(binding, row, given, names, n).statement)
    yield from _end(steps)


def _move(
    steps: Steps, binding: Binding, row: Transition, which: Selector, given: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    step = steps.move(binding, row.event, which, row, given, names)
    several = sum(bool(getattr(step.statement, part)) for part in PARTS) > 1
    described = ", of this token alone" if which.fence else ""
    together = "; one transaction, or a savepoint in the application's" if several else ""
    yield f"{row.source} to {row.target}{described}{together}", _sql(step.statement)
    if steps.rates and which.way == "first" and row.target == TAKEN:
        of = binding.dialect
        yield "charge its token bucket, in the same transaction; without a token take nothing", of.charge_bucket
    if steps.counts_apart(row.event, row):
        yield "count the event, in the same transaction", ""


def _sql(statement: Statement) -> str:
    parts = [(getattr(statement, part), why) for part, why in PARTS.items()]
    return "\n".join(f"{sql}{f'  -- {why}' if why else ''}" for sql, why in parts if sql)


def _end(steps: Steps) -> Iterator[tuple[str, str]]:
    yield f"on a conflict (a deadlock) outside of a transaction: retry, up to {len(PAUSES)} times", ""
    yield "if a callback or a waiter is registered: notify it after the commit", ""
    yield f"return the rows as {steps.machine.settings.retval}s", ""
