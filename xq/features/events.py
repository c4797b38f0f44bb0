"""The feature `events`: count how often each event happens."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def events(on: On = True) -> Feature:
    """Count events in stats(). They show more than the transitions: a kill or a touch, for example.

    on_change then also reports touches, which are not transitions.
    """
    return Feature("events", settings=Settings(counts_events=True))
