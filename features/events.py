"""How often each event happened."""

from __future__ import annotations

from xq.core.machine import Feature, On, Settings


def events(on: On = True) -> Feature:
    """stats() counts events, too: what a transition does not tell, such as a kill or a touch, is counted by itself.

    on_change tells of touches then, which are no transitions.
    """
    return Feature("events", settings=Settings(counts_events=True))
