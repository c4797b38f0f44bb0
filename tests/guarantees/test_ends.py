"""What follows a group, or waits for others, comes once, and not too soon, though processes are killed with kill -9."""

from __future__ import annotations

from tests.support.ends import OfDependants, OfGroups

KILLS = 6


def test_what_follows_a_group_is_put_once_by_workers_that_are_killed(make_live, tmp_path):
    OfGroups(make_live, tmp_path).run(KILLS)


def test_a_task_after_two_others_is_taken_behind_both_by_workers_that_are_killed(make_live, tmp_path):
    OfDependants(make_live, tmp_path).run(KILLS)
