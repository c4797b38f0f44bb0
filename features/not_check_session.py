"""Whoever knows the key may finish a task."""

from __future__ import annotations

from xq.machine import Feature, On, Settings


def not_check_session(on: On = True) -> Feature:
    """Anyone may ack, release, bury and touch a taken task. When its session ends, it stays taken until its ttr."""
    return Feature("not_check_session", requires=("ttr",), settings=Settings(fenced=False, reaped=False))
