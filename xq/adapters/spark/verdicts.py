"""What a report judges about a queue, and the thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, is_number, shown


class Threshold(NamedTuple):
    """A threshold; a figure above it is red."""

    default: float
    unit: str
    meaning: str


PART: Final = "part of 1"

THRESHOLDS: Final[Mapping[str, Threshold]] = {
    "ready_growth": Threshold(
        0.1,
        PART,
        "how many more tasks are Ready at the end of the span than at its beginning, of those that came there",
    ),
    "not_done": Threshold(0.05, PART, "tasks buried, expired or killed, of those that ended in the span"),
    "ready_p90": Threshold(3600.0, "seconds", "the p90 of the time Ready, of the stays that ended in the span"),
    "stuck": Threshold(0.0, "tasks", "stuck when the report was made"),
    "tube_tasks": Threshold(20.0, "tasks", "a tube with fewer is not judged by itself, only within its queue"),
}


def checked(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return all thresholds, with the given ones in place of defaults. Raises BadType and BadValue."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise BadType(f"thresholds is a mapping of names to numbers, as {{'not_done': 0.01}}, not {shown(given)}")
    for name, value in given.items():
        if name not in THRESHOLDS:
            known = ", ".join(f"{known} ({threshold.unit})" for known, threshold in THRESHOLDS.items())
            raise BadValue(f"there is no threshold {shown(name)}: there are {known}")
        unit = THRESHOLDS[name].unit
        if not is_number(value):
            raise BadType(f"the threshold {name} is a number ({unit}), not {shown(value)}")
        if not (isfinite(value) and value >= 0) or (unit == PART and value > 1):
            wanted = "a number from 0 to 1" if unit == PART else f"a number of {unit} from 0 on"
            raise BadValue(f"the threshold {name} is {wanted}, not {shown(value)}")
    return {name: float(given.get(name, threshold.default)) for name, threshold in THRESHOLDS.items()}


def verdicts(queue: Mapping[str, Any], thresholds: Mapping[str, float]) -> dict[str, bool]:
    """Return which questions about a queue have a bad answer, from the page's figures."""
    levels, enough = queue["levels"], thresholds["tube_tasks"]
    ended = sum(n for _, n in queue["retries"])
    shares = [
        (ended, ended * (1 - queue["shares"][0])),
        *((n, missed) for _, n, missed, _ in queue["failed"] if n >= enough),
    ]
    waits = [p90 for measure, _, _, p90, *_ in queue["overall"] if measure == "Ready"]
    for _, _, p90, _, ready, _, n, oldest in queue["waits"]:
        if p90 is not None and n >= enough:
            waits.append(p90)
        elif p90 is None and ready:  # none was taken, so the waiting tasks show for how long
            waits.append(oldest or 0.0)
    return {
        "backlog": levels["ready"] - levels["ready_base"] > thresholds["ready_growth"] * levels["readied"],
        # Integers again: sums of fractions are not exact.
        "failures": any(n and round(missed) / n > thresholds["not_done"] for n, missed in shares),
        "waits": any(wait > thresholds["ready_p90"] for wait in waits),
        "stuck": queue["stuck"]["n"] > thresholds["stuck"],
    }
