"""Histories of anything, also of what no queue does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.spark.reckoning import Row
from xq.adapters.spark.moves import HISTORY
from xq.adapters.spark.report import LIVE

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
EVIL = '</script><b onclick="x">&amp; :now %s \\u003c ü🦆'
GAPS = (0, 1, 999, SECOND, 77 * SECOND, 5000 * SECOND, -3)  # µs; a clock may be set back
EVENTS = ("put", "take", "ack", "ttl", "lifetime", "kill", "zombie", "write")
TUBES = ("a", "b", None, EVIL)
ATTEMPTS = (None, 1, 5)
KEYS = ("1", "2", '["a", 3]')
STATES = "XRWTBDZ"
CHOICES = (GAPS, KEYS, STATES, EVENTS, TUBES, ATTEMPTS)
WAYS = len(GAPS) * len(KEYS) * len(STATES) * len(EVENTS) * len(TUBES) * len(ATTEMPTS)
BEFORE = len(STATES) ** len(KEYS)


def decoded(number: int, *choices: Any) -> Iterable[Any]:
    for choice in choices:
        number, i = divmod(number, len(choice))
        yield choice[i]


def a_history(queue: str, present: int, steps: Sequence[int], forgotten: int) -> tuple[list[Row], list[Row]]:
    """Tasks that were there before, what then happened, without the first few rows; and the tasks that are there.

    present < BEFORE and each step < WAYS are any numbers.
    """
    states = dict(zip(KEYS, decoded(present, *[STATES] * len(KEYS)), strict=True))
    states["silent"] = STATES[present % len(STATES)]
    tubes: dict[str, str | None] = dict.fromkeys(states, "a")
    rows, at_us = [], BEGIN
    for id_, step in enumerate(steps, 1):
        gap, key, target, event, tube, attempt = decoded(step, *CHOICES)
        at_us += gap
        source, states[key], tubes[key] = states[key], target, tube
        if (source, target) != ("X", "X"):
            rows.append(dict(zip(HISTORY, (queue, id_, at_us, key, tube, source, target, event, attempt), strict=True)))
    live = [
        dict(zip(LIVE, (queue, key, tubes[key], state), strict=True)) for key, state in states.items() if state in "RTW"
    ]
    if at_us % 2:  # one is gone without a row
        live = live[1:]
    return [*rows[forgotten:]], [*live]
