"""The feature `not_check_session`: let any caller with the key finish a task."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def not_check_session(on: On = True) -> Feature:
    """Let any caller ack, release, bury and touch a taken task.

    When its session ends, the task stays taken until its ttr. Without a ttr it stays taken until release_all or snatch.
    """
    return Feature("not_check_session", requires=("ttr",), settings=Settings(fenced=False, reaped=False))
