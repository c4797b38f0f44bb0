"""Statuses in the application's own words, and rows that are not the queue's."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.support.statuses import FEATURES

# what is refused


@pytest.mark.parametrize(
    "statuses",
    [
        {"R": "same", "T": "same"},
        {"R": "T"},
        {"R": 5},
        {"R": None},
        {"R": True},
        {"R": 1.5},
        {"X": "gone"},
        {"S": "other"},
        {"ready": "new"},
        {5: "new"},
        [("R", "new")],
        "new",
    ],
)
def test_statuses_map_letters_to_different_words(make, statuses):
    with pytest.raises(xq.ConfigurationError, match="status"):
        make(FEATURES, statuses=statuses)


def test_an_integer_field_needs_a_number_for_each_state(make):
    for statuses in ({}, {"R": 0}, {"R": 0, "T": 1, "W": 2, "B": 3, "D": "done"}):
        with pytest.raises(xq.ConfigurationError, match="status"):
            make(FEATURES, attributes={"status": pw.IntegerField(default=0)}, statuses=statuses)


def test_a_word_must_fit_its_field(make):
    with pytest.raises(xq.ConfigurationError, match="later"):
        make(FEATURES, attributes={"status": pw.CharField(max_length=1)}, statuses={"W": "later"})


@pytest.mark.parametrize("field", [pw.BooleanField, pw.DoubleField, pw.DateTimeField])
def test_a_status_is_text_or_an_integer(make, field):
    with pytest.raises(xq.ConfigurationError, match="status"):
        make({}, attributes={"status": field(null=True)})
