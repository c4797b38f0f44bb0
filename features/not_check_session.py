"""Whoever knows the key may finish a task."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def not_check_session(on: On = True) -> Feature:
    """Anyone may ack, release, bury and touch a taken task. When its session ends, it stays taken until its ttr.

    A task that was taken without a ttr stays taken until release_all or snatch.
    """
    return Feature("not_check_session", requires=("ttr",), settings=Settings(fenced=False, reaped=False))
