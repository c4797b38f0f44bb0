"""What a filter means for one queue: states, and tests of its rows."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, FeatureOff, shown
from xq.core.machine import TAKEN, Machine
from xq.core.ports import NUMBERS, Field
from xq.core.values import Tasks
from xq.engine.unit import Database
from xq.operators.failures import failure_of
from xq.operators.filters import Term, number, parse, quoted, seconds
from xq.operators.since import Noted, Since

FAILED: Final = ("B", "W", "R")  # the states of tasks that have not recovered from an error, the likeliest first
IMPLIED: Final = {"failure": FAILED, "session": (TAKEN,)}  # the states of the tasks that a term can mean
COMPARE: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
OF_XQ: Final = ("status", "runat", "deadline", "owner")  # roles that no term names
WHOLE: Final = ("tube", "utube", "unique")  # roles of which a term has the whole value


class Examined(NamedTuple):
    """A row that was examined, or that passed tests."""

    position: tuple[Any, ...]
    noted: Noted
    error: str | None  # if it is wanted


Check = Callable[[Sequence[Examined]], Sequence[bool]]


@dataclass
class Meant:
    """The states that a filter means, tests as SQL with their values, and checks in this process."""

    states: tuple[str, ...]
    keys: list[str] = field(default_factory=list)  # conditions of the keys that terms name
    of_tube: bool = False  # whether the value `tube` is the only one that is meant
    tests: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    with_error: bool = False  # whether the checks want the errors
    checks: list[Check] = field(default_factory=list)

    def value(self, value: Any) -> str:
        """Return a value as a named one."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def test(self, conditions: Sequence[str], negated: bool) -> None:
        """Require that one of these conditions holds, or none."""
        self.tests.append(f"{'NOT ' * negated}({' OR '.join(conditions)})")


class Terms:
    """The terms that one queue knows."""

    def __init__(self, database: Database, tasks: Tasks[Any], machine: Machine, since: Since) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.since = since
        self.fields = {field.name: field for field in tasks.table.fields}
        self.special: dict[str, Callable[[Meant, Term], None]] = {
            "": self._word,
            "state": lambda meant, term: None,
            "key": self._key,
            "age": self._age,
            "failure": self._failure,
        }

    def meant(self, filter: object) -> Meant:
        """Return what a filter means for this queue. Raises BadType, BadValue and FeatureOff."""
        if not isinstance(filter, str):
            raise BadType(f"a filter is text, as in state:buried age>1h, not {shown(filter)}")
        terms, wanted = parse(filter), self.machine.states
        for term in terms:
            if term.name == "state":
                named = {self._state(term, value) for value in _equal(term)}
                wanted = tuple(each for each in wanted if (each in named) != term.negated)
            elif term.name in IMPLIED and not term.negated:
                wanted = tuple(each for each in wanted if each in IMPLIED[term.name])
        meant = Meant(tuple(wanted))
        for term in terms:
            self.special.get(term.name, self._field)(meant, term)
        return meant

    def _state(self, term: Term, value: str) -> str:
        states = self.machine.states
        letter = value if value in states else self.tasks.wording.letter(value, states)  # xq's own filters have letters
        if letter is None:
            known = self.tasks.wording.states(states)
            raise term.wrong(f"names no state: {self.database.store.name} has the states {known}")
        return letter

    def _word(self, meant: Meant, term: Term) -> None:
        dialect, value = self.database.dialect, meant.value(term.values[0])
        of_xq = [self.tasks.table.roles[role] for role in ("status", "owner")]
        texts = [each for each in self.tasks.table.fields if each.kind == "text" and each not in of_xq]
        meant.test([dialect.contains(each, value) for each in texts] or ["FALSE"], term.negated)

    def _key(self, meant: Meant, term: Term) -> None:
        conditions = []
        for value in _equal(term):
            try:
                parts = self.tasks.identify(self.tasks.key_in_text(value))[0]
            except (BadType, BadValue) as error:
                raise term.wrong(f"names no key: {error}") from None
            row = f"_f{len(meant.values)}"
            conditions.append(self.database.dialect.by_key(row=row))
            meant.values |= {f"k{i}{row}": part for i, part in enumerate(parts)}
        if term.negated:
            meant.test(conditions, negated=True)
        else:
            meant.keys.append(f"({' OR '.join(conditions)})")

    def _field(self, meant: Meant, term: Term) -> None:
        """Add a test of a role or a field: numbers are compared, a text contains a value, anything else equals it."""
        roles = self.tasks.table.roles
        role = roles["owner"] if term.name == "session" else None if term.name in OF_XQ else roles.get(term.name)
        named = role or self.fields.get(term.name)
        if named is None:
            raise self._unknown(term)
        if term.operator in COMPARE and named.kind not in NUMBERS:
            raise term.wrong(f"compares numbers, and {named.name!r} is {named.kind}")
        is_part = named.kind == "text" and term.operator == ":" and not (role and term.name in WHOLE)
        found = [self._test(meant, term, named, value, is_part) for value in term.values]
        if role and term.name == "tube" and not term.negated and len(found) == 1 and term.values[0]:
            meant.values["tube"], meant.of_tube = self._sent(term, named, term.values[0]), True
        meant.test(found, term.negated)

    def _test(self, meant: Meant, term: Term, named: Field, value: str, is_part: bool) -> str:
        dialect = self.database.dialect
        if value == "" and term.operator not in COMPARE:
            return dialect.is_empty(named)
        if is_part:
            return dialect.contains(named, meant.value(value))
        operator = term.operator if term.operator in COMPARE else "="
        return dialect.compares(named, operator, meant.value(self._sent(term, named, value)))

    def _unknown(self, term: Term) -> Exception:
        if term.name in (*WHOLE, "error", "priority", "attempts"):
            return _lacks(term, term.name)
        roles = [role for role in self.tasks.table.roles if role not in OF_XQ]
        known = ", ".join(dict.fromkeys(["state", "key", "age", *roles, "failure", "session", *self.fields]))
        lacks = f"names {shown(term.name)}, which {self.database.store.name} does not have: it has {known}"
        return term.wrong(f"{lacks}. To look for the text itself, put it into quotes")

    def _sent(self, term: Term, named: Field, value: str) -> Any:
        """Return a value of a term as the database holds it."""
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

    def _failure(self, meant: Meant, term: Term) -> None:
        if "error" not in self.tasks.table.roles:
            raise _lacks(term, "error")
        ids, negated, meant.with_error = {value.lower() for value in _equal(term)}, term.negated, True
        meant.checks.append(lambda rows: [(failure_of(row.error).id in ids) != negated for row in rows])

    def _age(self, meant: Meant, term: Term) -> None:
        """Add a check of the time since a task entered its state. A task of which that is unknown is older than any."""
        if term.operator not in COMPARE or len(term.values) != 1:
            raise term.wrong("needs a comparison with one span of time: age>1h or age<=5m")
        limit = seconds(term, term.values[0])
        since_us = self.database.time_us() - round(limit * 1_000_000)
        low = None if {*meant.states} <= {TAKEN} else self.since.low(term, limit, since_us)
        compare, since = COMPARE[term.operator], since_us / 1_000_000

        def check(rows: Sequence[Examined]) -> Sequence[bool]:
            times = self.since.of([row.noted for row in rows], low)
            return [compare(since, at or 0.0) != term.negated for at in times]

        meant.checks.append(check)


def _equal(term: Term) -> tuple[str, ...]:
    """Return the values of a term that names whole values. Raises BadValue if it compares."""
    if term.operator not in (":", "="):
        raise term.wrong(f"cannot compare: write {term.name}:{quoted(term.values[0])}")
    return term.values


def _lacks(term: Term, role: str) -> FeatureOff:
    return FeatureOff(str(term.wrong(f"needs the role {role!r}: map it to a field")), role=role)
