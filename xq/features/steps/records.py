"""What operators see of a task: its records and its signals."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from xq.core.errors import FeatureOff
from xq.features.steps.lines import SIGNAL, read

VALUED: Final = ("step", SIGNAL)  # the kinds that have a value


class Record(NamedTuple):
    """A record, or a signal. Times are seconds since 1970."""

    kind: str  # step, sleep, wait, timeout or signal
    name: str
    at: float
    until: float | None  # of a sleep that had not passed at once, or a wait with a timeout
    value: Any  # of a step, or a signal

    @property
    def text(self) -> str:
        """The value as JSON; "" for a kind without one."""
        return json.dumps(self.value, ensure_ascii=False) if self.kind in VALUED else ""


def records(parts: Any, task: Any) -> list[Record]:
    """Return what a task that a method has returned had recorded, and its signals, in order. Raises FeatureOff."""
    if "steps" not in parts.tasks.table.roles:
        raise FeatureOff(parts.tasks.wording.lacks(parts.store.name, "steps", "", ("steps",)), feature="steps")
    lines = read(parts.tasks.in_role(task, "steps"))
    return [
        Record(each.kind, each.name, each.at, each.until and each.until / 1e6, each.fields.get("value"))
        for each in lines
    ]
