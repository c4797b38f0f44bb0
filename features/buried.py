"""Tasks that failed may be put aside, looked at, and dug out again."""

from __future__ import annotations

from typing import Literal

from xq.core.machine import Feature, On, Transition


def buried(on: On | Literal["any"] = True) -> Feature:
    """Tasks may be buried: set aside until dug out. "any": from every state, and by anyone."""
    bury = Transition("*", "bury", "B") if on == "any" else Transition("T", "bury", "B", fenced=True)
    return Feature(
        "buried",
        transitions=(bury, Transition("B", "dig", "R", picks=True)),
        structure=on,
        methods=("bury", "dig"),
    )
