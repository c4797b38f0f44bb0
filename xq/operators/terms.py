"""What a filter means for one queue: states, and tests on its rows."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from xq.core.errors import BadType, FeatureOff, shown
from xq.core.kinds import NUMBERS, Field
from xq.core.machine import ABSENT, TAKEN, Machine
from xq.core.schema import ROLES
from xq.core.values import Key, Tasks
from xq.engine.executor import Executor
from xq.operators.filters import Term, number, parse, quoted, seconds
from xq.operators.keys import key_in_text
from xq.operators.since import TRANSITIONS, Seen, Since

FAILED: Final = ("B", "W", "R")  # the states of tasks that have not recovered from an error, the likeliest first
COMPARE: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
OF_XQ: Final = ("status", "runat", "deadline", "finished", "owner")  # roles that no term names
WHOLE: Final = ("tube", "utube", "unique", "group", "awaits")  # roles for which a term has the whole value

Check = Callable[[Sequence[Seen]], Sequence[bool | None]]  # None: it is not known


class Meant:
    """The states that a filter means, tests as SQL with their values, and checks in this process."""

    def __init__(self, executor: Executor, tasks: Tasks[Any], machine: Machine, since: Since, filter: object) -> None:
        if not isinstance(filter, str):
            raise BadType(f"a filter is text, as in state:buried age>1h, not {shown(filter)}")
        self.executor, self.tasks, self.since = executor, tasks, since
        self.text, self.machine, self.states = filter, machine, machine.states
        roles = {role: field for role, field in tasks.table.roles.items() if role not in OF_XQ}
        status = tasks.table.roles["status"]
        self.fields = {"status": status} | {field.name: field for field in tasks.table.fields} | roles
        self.fields["session"] = tasks.table.roles["owner"]
        self.keys: list[str] = []  # conditions on the keys that terms name
        self.of_tube = False  # whether the value `tube` is the only one that is meant
        self.tests: list[str] = []
        self.values: dict[str, Any] = {}
        self.function = self.fields.get(getattr(executor.store.model, "xq_function", ""))  # what a task runs
        self.with_error = False  # whether the checks want the errors
        self.checks: list[Check] = []
        special = {"": self._word, "state": self._state, "key": self._key, "age": self._age, "failure": self._failure}
        terms = sorted(parse(filter), key=lambda term: term.name == "age")  # which goes by the states
        if any(self.fields.get(each.name) is status and not each.negated for each in terms if each.name not in special):
            self.states = (*self.states, ABSENT)  # it may be the application's word: also rows that are no tasks
        for term in terms:
            special.get(term.name, self._field)(term)

    def test(self, conditions: Sequence[str], negated: bool) -> None:
        """Require one of these conditions or, negated, none."""
        self.tests.append(f"{'NOT ' * negated}({' OR '.join(conditions)})")

    def among(self, keys: Sequence[Key], name: str = "") -> str:
        """Return the condition that a row has one of the keys. `name` stands in the names of their values."""
        rows = [f"_{name}_{n}" for n in range(len(keys))]
        self.values |= {f"k{i}{row}": part for row, key in zip(rows, keys, strict=True) for i, part in enumerate(key)}
        return f"({' OR '.join(f'({self.executor.dialect.by_key(row=row)})' for row in rows)})"

    def _value(self, value: Any) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def _within(self, states: Collection[str | None], negated: bool = False) -> None:
        self.states = tuple(each for each in self.states if (each in states) != negated)

    def _state(self, term: Term) -> None:
        every, wording = self.machine.states, self.tasks.wording
        # xq's own filters have letters
        named = [value if value in every else wording.letter(value, every) for value in _equal(term)]
        if None in named:
            raise term.wrong(f"names no state: {self.executor.store.name} has the states {wording.states(every)}")
        self._within(named, term.negated)

    def _word(self, term: Term) -> None:
        value, of_xq = self._value(term.values[0]), [self.tasks.table.roles[role] for role in ("status", "owner")]
        texts = [each for each in self.tasks.table.fields if each.kind == "text" and each not in of_xq]
        self.test([self.since.questions.contains(each, value) for each in texts] or ["FALSE"], term.negated)

    def _key(self, term: Term) -> None:
        keys = [self.tasks.identify(key_in_text(self.tasks, value))[0] for value in _equal(term)]
        among = self.among(keys, f"f{len(self.values)}")
        if term.negated:
            self.test([among], negated=True)
        else:
            self.keys.append(among)

    def _field(self, term: Term) -> None:
        """Add a test on a role or a field: numbers are compared, a text contains a value, anything else equals it."""
        if (named := self.fields.get(term.name)) is None:
            self._need(term, term.name)
            known = ", ".join(["state", "key", "age", "failure", *self.fields])
            lacks = f"names {shown(term.name)}, which {self.executor.store.name} does not have: it has {known}"
            raise term.wrong(f"{lacks}. To look for the text itself, put it into quotes")
        whole = term.name in WHOLE and term.name in self.tasks.table.roles
        if term.name == "session" and not term.negated:
            self._within([TAKEN])
        elif term.name == "awaits" and whole and term.negated == ("" in term.values):  # it is not empty
            self._within(["W"])
        if term.operator in COMPARE and named.kind not in NUMBERS:
            raise term.wrong(f"compares numbers, and {named.name!r} is {named.kind}")
        if term.name == "tube" and whole and not term.negated and len(term.values) == 1 and term.values[0]:
            self.values["tube"], self.of_tube = _sent(term, named, term.values[0]), True
        self.test([self._test(term, named, value, whole) for value in term.values], term.negated)

    def _test(self, term: Term, named: Field, value: str, whole: bool) -> str:
        if value == "" and term.operator not in COMPARE:
            return self.since.questions.is_empty(named)
        if named.kind == "text" and term.operator == ":" and not whole:
            return self.since.questions.contains(named, self._value(value))
        operator = term.operator if term.operator in COMPARE else "="
        return self.since.questions.compares(named, operator, self._value(_sent(term, named, value)))

    def _need(self, term: Term, role: str) -> None:
        if role in ROLES.keys() - self.tasks.table.roles - {*OF_XQ}:
            raise FeatureOff(str(term.wrong(f"needs the role {role!r}: map it to a field")), role=role)

    def _failure(self, term: Term) -> None:
        self._need(term, "error")
        ids, self.with_error = {value.lower() for value in _equal(term)}, True
        if not term.negated:
            self._within(FAILED)
        self.checks.append(lambda rows: [(row.failure.id in ids) != term.negated for row in rows])

    def _age(self, term: Term) -> None:
        """Add a check on the time since a task entered its state. If that is not known, only `age:unknown` passes."""
        if term.operator not in COMPARE and term.values == ("unknown",):
            read = 0 if self.since.kept is None else self.since.newest() - TRANSITIONS
            self.checks.append(lambda rows: [(at is None) != term.negated for at in self.since.of(rows, read)])
            return
        if term.operator not in COMPARE or len(term.values) != 1:
            raise term.wrong("needs a comparison with one span of time, age>1h or age<=5m, or is age:unknown")
        limit = seconds(term, term.values[0])
        since_us = self.executor.time_us() - round(limit * 1_000_000)
        low, is_older = self.since.low(term, limit, since_us, self.states)
        compare, since = COMPARE[term.operator], since_us / 1_000_000

        def fits(at: float | None) -> bool | None:
            return None if at is None and not is_older else compare(since, at or 0.0) != term.negated

        self.checks.append(lambda rows: [*map(fits, self.since.of(rows, low))])


def _equal(term: Term) -> tuple[str, ...]:
    """Return the values in a term that names whole values. Raises BadValue if it compares."""
    if term.operator not in (":", "="):
        raise term.wrong(f"cannot compare: write {term.name}:{quoted(term.values[0])}")
    return term.values


def _sent(term: Term, named: Field, value: str) -> Any:
    if named.kind == "text":
        return value
    if named.kind in NUMBERS:
        return number(term, value)
    if named.kind == "uuid":
        try:
            return named.to_database(uuid.UUID(value))
        except ValueError:
            raise term.wrong(f"needs a UUID, not {shown(value)}") from None
    possible = 'texts, numbers and UUIDs can be searched, and for others only name:"" (it is empty)'
    raise term.wrong(f"cannot look into {named.name!r}, which is {named.type}: {possible}")
