"""The SQL of the feature steps: a signal, and what operators are told."""

from __future__ import annotations

from collections.abc import Iterator

from xq.core.errors import shown
from xq.core.machine import READY
from xq.features.steps.lines import NAMED, SIGNAL, Line, read
from xq.sql.rows import Rows
from xq.sql.slice import Hidden, Slice

KEPT_IN = "RWTB"  # the states in which a task keeps signals
WOKE = ',"woke":1'  # in the line of one for which the task has waited
LISTED = 10  # steps that `why` names


class StepsSlice(Slice):
    """One queue's signals."""

    terms: Rows

    def signal(self, ready: dict[str, str]) -> str:
        """Return SQL that adds a signal to a task, and readies it if it waits for this one. The history notes both.

        `ready` has what a task that becomes ready gets, as SQL by column. One statement, so that none is lost beside
        the wait, whichever comes first. Each column keeps its value in a task that does not wait for it: MariaDB
        evaluates them from left to right, so what the condition reads comes last.
        """
        terms, roles = self.terms, self.terms.roles
        status, awaits, steps = roles["status"], roles["awaits"], roles["steps"]
        comes = f"{terms.exact(awaits)} = :step_signal"
        wakes, there = f"{terms.is_state('W')} AND {comes}", f"COALESCE({steps}, '')"
        noted = f"CASE WHEN {terms.sets_context} THEN {{}} END" if terms.sets_context and terms.has_history else "{}"
        state = noted.format(f"CASE WHEN {wakes} THEN {terms.literal(terms.words[READY])} ELSE {status} END")
        last = {status: state, awaits: f"CASE WHEN {comes} THEN NULL ELSE {awaits} END"}
        woken = f"CASE WHEN {wakes} THEN '{WOKE}' ELSE '' END"
        sets = [f"{steps} = {terms.joined([there, ':step_line', terms.now_us, woken, ':step_rest'])}"]
        sets += [
            f"{column} = CASE WHEN {wakes} THEN {value} ELSE {column} END"
            for column, value in ready.items()
            if column not in (*last, steps)
        ]
        sets += [f"{column} = {value}" for column, value in last.items()]
        states = [state for state in terms.machine.states if state in KEPT_IN]
        fits = f"LENGTH({there}) + :adding <= :most"
        lacks = " AND ".join(terms.lacks(there, name) for name in (":step_mark", ":step_late"))
        where = f"{terms.by_key()} AND {terms.in_states(states)} AND {lacks} AND {fits}"
        return f"UPDATE {terms.table_in_schema} SET {', '.join(sets)} WHERE {where}"

    def waits(self, task: Hidden) -> Iterator[str] | None:
        """Say for which signal a task waits, or that it sleeps, and what it has done."""
        lines, name = [line for line in read(task.role("steps")) if line.kind != SIGNAL], task.role("awaits")
        if task.state != "W" or name is None:
            return None
        what = f"it waits for the signal {shown(name)}" if name else f"it sleeps, {shown(lines[-1].name)},"
        return iter([", ".join(filter(None, [what + _until(task), _done(lines)]))])

    def tells(self, task: Hidden) -> Iterator[str]:
        """Say which steps are done, and of a buried task how one is done again."""
        lines = list(read(task.role("steps")))
        if (done := _done(lines)) and self.waits(task) is None:
            yield done
        last = next((line for line in reversed(lines) if line.kind in NAMED), None)
        if last and task.state == "B":
            yield f"dig(again={shown(last.name)}) does this {last.kind} again, and an earlier one with all after it"


def _until(task: Hidden) -> str:
    return "" if task.at is None else f" until {task.moment(task.at)}"


def _done(lines: list[Line]) -> str:
    """Return "3 steps done: plan, sources, draft 1"; "" without any."""
    names = [line.name for line in lines if line.kind == "step"]
    if not names:
        return ""
    last = f", the last {LISTED}" if len(names) > LISTED else ""
    told = ", ".join(repr(name)[1:-1] for name in names[-LISTED:])  # in one line
    return f"{len(names):,} step{'s' * (len(names) > 1)} done{last}: {told}"
