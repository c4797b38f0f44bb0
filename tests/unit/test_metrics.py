"""Metrics without a database: buckets, the age of the oldest ready task, and the records of workers."""

from __future__ import annotations

import pytest

import xq
from xq.metrics.histogram import BOUNDS, Histogram
from xq.metrics.reading import MARKS, Entries
from xq.runtime.workers.outcomes import outcome_of


def test_buckets_reach_from_five_milliseconds_to_an_hour():
    assert (BOUNDS[0], BOUNDS[-1]) == (0.005, 3600)
    assert list(BOUNDS) == sorted(BOUNDS)


def test_a_bucket_counts_all_durations_up_to_its_bound():
    histogram = Histogram()
    for seconds in (0, 0.005, 0.006, 3600, 7200):
        histogram.observe(seconds)
    counts = dict(histogram.buckets)
    assert (counts["0.005"], counts["0.01"], counts["1800.0"], counts["3600.0"], counts["+Inf"]) == (2, 3, 3, 4, 5)
    assert histogram.count == 5
    assert histogram.sum == pytest.approx(10_800.011)


def test_a_clock_that_was_set_back_makes_no_negative_duration():
    histogram = Histogram()
    histogram.observe(-3)
    assert (histogram.sum, histogram.count) == (0, 1)


def test_an_age_is_that_of_the_first_entry_that_may_still_be_there():
    entries = Entries()
    assert entries.age(0, entered=0, ready=0) == 0
    assert entries.age(10, entered=5, ready=5) == 0
    assert entries.age(20, entered=8, ready=8) == 10
    assert entries.age(30, entered=8, ready=4) == 20  # four have left: a fifth of those of 10 may be there
    assert entries.age(40, entered=8, ready=3) == 20  # five have left: the next one came by 20
    assert entries.age(50, entered=8, ready=0) == 0


def test_tasks_that_were_ready_at_the_start_age_from_then_on():
    entries = Entries()
    assert entries.age(100, entered=50, ready=50) == 0
    assert entries.age(160, entered=50, ready=50) == 60


def test_an_age_begins_anew_when_the_counters_are_reset():
    entries = Entries()
    entries.age(0, entered=50, ready=5)
    assert entries.age(10, entered=5, ready=5) == 0
    assert entries.age(15, entered=5, ready=5) == 5


def test_an_age_needs_little_memory():
    entries = Entries()
    for now in range(3 * MARKS):
        age = entries.age(now, entered=now + 1, ready=now + 1)
    assert age == 3 * MARKS - 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError(), "failed"), (xq.Retry(), "retry"), (xq.Bury("no"), "bury"), (xq.Discard(), "discard")],
)
def test_an_attempt_has_an_outcome(error, outcome):
    assert outcome_of(error) == outcome
