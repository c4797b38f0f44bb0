"""Time passes by itself: what falls due is moved by any process that has taken or waits, once, and on time."""

from __future__ import annotations

from tests.support.life import watch
from tests.support.timers import LATE, seen
from xq.runtime import maintenance
from xq.sessions import liveness


def test_what_is_due_before_anybody_could_look_is_not_left_for_later(make_live, monkeypatch):
    for module, seconds in ((maintenance, "FALLBACK"), (maintenance, "LOOK"), (liveness, "ORPHANS")):
        monkeypatch.setattr(module, seconds, float(LATE))  # else each was left for a second, and then moved
    Task = make_live({"delayed": True})
    watch(Task)
    for n in range(1, 41):
        Task.put({}, delay=0.001)
        seen(Task, "W-R", n)
