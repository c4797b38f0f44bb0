"""The feature `lifetime`: drop tasks at a deadline, whatever happened to them (the ttl of tarantool/queue)."""

from __future__ import annotations

from xq.core.machine import Feature, On, Seconds, Timer, seconds


def lifetime(on: On | Seconds = True) -> Feature:
    """Drop a task at its deadline: time of put + delay + ttl. A taken task first returns to R."""
    default = seconds(on)
    return Feature(
        "lifetime",
        needs=("deadline",),
        timers=(
            Timer("^TDZ", "lifetime", "X", option="ttl", default=default, column="deadline"),
            Timer("T", "lifetime", "R", option="ttl", default=default, column="deadline"),
        ),
    )
