"""What workers of the tests do."""

from __future__ import annotations

from typing import Any


def bill(order: Any) -> None:
    order.note = "billed"
    order.save()


def ship(task: Any) -> None:
    if getattr(task, "note", "") == "broken":
        raise ValueError("it is broken")
