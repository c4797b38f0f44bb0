"""Limits: the numbers of the features utube and rate, which operators change while programs run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from xq.core.acting import By
from xq.core.errors import BadType, BadValue, ConfigurationError, FeatureOff, is_integer, shown
from xq.core.kinds import INTEGERS, fits_a_column
from xq.core.machine import Guard, LimitValue
from xq.engine.executor import Executor


class Limit(NamedTuple):
    """A limit of a queue, or of one value of the role that the feature limits by."""

    feature: str  # utube or rate
    value: str | None  # None: the queue's, which holds for each value without a limit of its own
    limit: Any  # as it was given: a number, a text such as "100/m", or a dict with limit, burst and window
    default: Any  # what features= says; None if it has no limit for this value
    since: float | None  # when it was set, in seconds since 1970; None if the default applies
    actor: str | None
    reason: str | None


def limit_in_text(text: str) -> Any:
    """Return the limit that an operator writes: a number, a rate, or JSON; None for "none" or nothing."""
    if text.strip().lower() in ("", "none"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


class Limits:
    """One queue's limits. No process remembers them: the statements that need them read them."""

    def __init__(self, executor: Executor, changed: Callable[[], None]) -> None:
        self.executor = executor
        self._changed = changed  # wakes the waiters

    def change(self, feature: str, limit: object, value: object, by: By) -> str | None:
        """Set a limit, or with None remove what was set. Return the value as text."""
        guard = self._guard(feature)
        label, given = self._value(guard, value), None if limit is None else self._limit(guard, limit)
        self.executor.begin()
        self.executor.transaction(lambda: self._write(guard, given, label, by))
        self.executor.store.after_commit(self._changed)
        return label

    def _guard(self, feature: str) -> Guard:
        guard = next((guard for guard in self.executor.definition.machine.limited if guard.name == feature), None)
        if guard is None:
            limited = self.executor.definition.catalogue().limited
            if feature not in limited:
                raise BadValue(f"the features {' and '.join(limited)} have limits, not {shown(feature)}")
            raise FeatureOff(f"a limit of {feature!r} needs the feature: add it to features=", feature=feature)
        return guard

    def _value(self, guard: Guard, value: object) -> str | None:
        if value is None:
            return None
        if not guard.role:
            raise BadValue(f'the feature {guard.name!r} has no "by", so it has one limit for all: give no value')
        if not (isinstance(value, (str, UUID)) or is_integer(value)):
            raise BadType(f"a limit's value is text, an integer or a UUID, not {shown(value)}")
        kind, text = self.executor.definition.table.roles[guard.role].kind, str(value)
        try:
            text = str(int(text)) if kind in INTEGERS else str(UUID(text)) if kind == "uuid" else text
        except ValueError:
            raise BadValue(f"no {guard.role} is {shown(value)}: its column holds another type") from None
        if not fits_a_column(text):
            raise BadValue(f"no {guard.role} is {shown(value)}")
        return text

    @staticmethod
    def _limit(guard: Guard, limit: object) -> LimitValue:
        assert guard.limit
        try:
            return guard.limit(limit)
        except ConfigurationError as error:
            raise BadValue(str(error)) from None

    def _write(self, guard: Guard, limit: LimitValue | None, label: str | None, by: By) -> None:
        executor, dialect = self.executor, self.executor.dialect
        assert dialect.limits
        key = {"feature": guard.name, "value": dialect.limits.key_of(label)}
        applies = dialect.limits.applies(guard.name)
        ((before,),) = executor.run(applies, key)
        if limit is None:
            executor.run(dialect.records.unset_limit, key)
        else:
            given = {**limit._asdict(), "given": json.dumps(limit.given)}
            executor.run(dialect.records.set_limit, {**key, **given, "label": label, **by._asdict()})
        ((now,),) = executor.run(applies, key)
        if dialect.heads and guard.checks == "turns":  # the same number, too: for heads that it has missed
            dialect.heads.relimit(executor.store, key["value"])
        for slice in dialect.slices:
            if slice.guard == guard.name and (sql := slice.relimited(before, now)):
                executor.run(sql, key)

    def all(self) -> list[Limit]:
        """Return the limits that apply; those of queues before those of values."""
        known = {guard.name for guard in self.executor.definition.machine.limited}
        if not known:
            return []
        with self.executor.store.bookkeeping():
            rows = self.executor.run(self.executor.dialect.records.limits)
        found: dict[tuple[str, str | None], Limit] = {}
        for feature, label, is_set, given, since, actor, reason in rows:
            before, limit = found.get((feature, label)), json.loads(given)
            if is_set:
                default, at = before.limit if before else None, since / 1_000_000
                found[feature, label] = Limit(feature, label, limit, default, at, actor, reason)
            else:
                found[feature, label] = Limit(feature, label, limit, limit, None, None, None)
        mine = [limit for limit in found.values() if limit.feature in known]
        return sorted(mine, key=lambda limit: (limit.feature, limit.value is not None, limit.value or ""))
