"""The budget of a program that ends after so many tasks."""

from __future__ import annotations

from xq.runtime.workers.threads import Budget


def test_a_process_in_the_place_of_a_killed_one_drops_its_reservations():
    budget = Budget(3, processes=2)
    assert budget.share(0).reserve(3) == 3
    assert (budget.share(1).reserve(1), budget.is_spent) == (0, False)
    budget.share(0).begin()
    assert budget.share(1).reserve(5) == 3
    budget.share(1).settle(3, 3)
    assert budget.is_spent
