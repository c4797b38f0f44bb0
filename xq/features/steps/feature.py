"""The data of the feature `steps`: workers' functions go on where they were."""

from __future__ import annotations

from typing import Any

from xq.core.machine import KEEP, READY, TAKEN, Column, Feature, Lacks, On, Sql, Transition
from xq.features.steps.lines import signals_alone
from xq.features.steps.signals import Signals
from xq.features.steps.slice import StepsSlice

APPENDED = "steps", Sql(("COALESCE({steps}, '')", ":step_line", "{now_us}", ":step_rest"))
# A task that sleeps or waits has something in `awaits`, and the take that goes on is no further attempt.
GOES_ON = (
    "attempts",
    Sql(("CASE WHEN {awaits} IS NOT NULL AND {attempts} > 0 THEN {attempts} - 1 ELSE {attempts} END",)),
)
NEW = Lacks("steps", "step_mark")  # a record is made once, and a task waits for what has not come


def steps(on: On = True) -> Feature:
    """Let workers' functions go on where they were: `xq.step`, `xq.sleep`, `xq.wait_for`, and `signal` of the queue.

    A record of each step is a line in the column `xq_steps`, and `xq_awaits` has the signal that a task waits for.
    """

    def by_owner(event: str, target: str, *writes: tuple[str, object], when: tuple[Lacks | Sql, ...] = (NEW,)) -> Any:
        moves, written = target != TAKEN, (APPENDED, *writes)
        return Transition(TAKEN, event, target, fenced=True, follows=moves, counts=moves, writes=written, when=when)

    return Feature(
        "steps",
        needs=("steps", "awaits"),
        requires=("delayed", "buried"),
        fenced=True,
        transitions=(
            by_owner("step", TAKEN, ("attempts", 1), ("lost", 0)),
            by_owner("elapse", TAKEN, when=(NEW, Sql(("{now_us} >= :until",)))),  # a sleep, or a wait, is over
            by_owner("sleep", "W", ("awaits", "")),
            by_owner("wait", "W", ("awaits", Sql((":step_signal",)))),
            Transition("W", "signal", READY, when=(NEW,)),
        ),
        columns=(
            Column("steps", at={"D": None, "Z": None}),
            Column("awaits", at={"W": KEEP}, otherwise=None),
        ),
        leaving={"W": (GOES_ON,)},
        anew={"steps": signals_alone},
        methods=("signal",),
        options={"again": ("dig",)},
        slice=StepsSlice,
        part=Signals,
    )
