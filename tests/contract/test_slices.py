"""A feature of the user's own that brings SQL, on any of the databases."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task

HOUR, DAY = 3_600_000_000, 86_400_000_000  # microseconds
NIGHT = 1_700_006_400.0  # 2023-11-15 00:00 UTC


def nights(*tubes: str, begins: int = 22, ends: int = 6) -> xq.Feature:
    """The tasks of these tubes rest at night."""

    class Nights(xq.Slice):
        reason = f"its tube rests from {begins} to {ends} o'clock, UTC"

        @property
        def night(self) -> str:
            self.now = f"{self.terms.now_us} % {DAY}"
            return f"({self.now} >= {begins * HOUR} OR {self.now} < {ends * HOUR})"

        @property
        def takeable(self) -> str:
            return f" AND NOT ({self.terms.holds('tube', *tubes)} AND {self.night})"

        @property
        def opens(self) -> str:
            return f"SELECT CASE WHEN {self.night} THEN ({ends * HOUR + DAY} - {self.now}) % {DAY} END"

    return xq.Feature("nights", needs=("tube",), structure=[*tubes, begins, ends], slice=Nights)


@pytest.mark.parametrize("features", [{}, {"utube": True}], ids=["plain", "utube"])
def test_tasks_of_tubes_that_rest_are_passed_by_until_the_morning(make, features):
    Task = make({"nights": nights("phone"), **features}, roles=("tube", "utube"))
    Task.xq.clock.now = NIGHT
    for tube in ("phone", "mail", None, "Phone"):
        Task.put(task(name=str(tube), tube=tube, utube=tube))
    assert [each.name for each in iter(Task.take, None)] == ["mail", "None", "Phone"]
    assert Task.xq.why(1)[0].endswith("its tube rests from 22 to 6 o'clock, UTC")
    assert Task.xq.parts.named.statements.opening.at < float("inf")
    Task.xq.clock.tick(7 * 3600)
    assert Task.take().name == "phone"
    assert Task.xq.check() == []


def test_two_features_that_charge_takes_are_a_conflict(make):
    class Charges(xq.Slice):
        charges = True

    with pytest.raises(xq.Conflict, match="what a take charges"):
        make({"rate": "1/s", "own": xq.Feature("own", slice=Charges)})


def test_a_guard_of_the_users_own_bounds_how_many_tasks_there_are(make):
    own = xq.Feature("capacity", guards=(xq.Guard("capacity", states="WRT", value=2, checks="room"),))
    Task = make({"capacity": own})
    Task.xq.put_many([task(), task()])
    with pytest.raises(xq.Full):
        Task.put(task())
    Task.take().ack()
    assert Task.put(task())
    with pytest.raises(xq.Conflict, match="how many tasks there may be"):
        make({"capacity": own, "limit": 5})


def test_a_guard_of_the_users_own_lets_one_task_have_a_value(make):
    own = xq.Feature("once", needs=("unique",), guards=(xq.Guard("once", "unique", states="RT", checks="single"),))
    Task = make({"once": own}, roles=("unique",))
    Task.put(task(job="a"))
    with pytest.raises(xq.Duplicate, match="on_conflict='skip'"):
        Task.put(task(job="a"))
    assert Task.put(task(job="a"), on_conflict="skip").job == "a"
    Task.take().ack()
    assert Task.put(task(job="a"))
