"""The features events, endless and priority, which tubes are made with, on tables of an application."""

from __future__ import annotations

import pytest

FEATURES = {"events": True, "buried": "any", "delayed": True, "lifetime": True, "ttr": 60}


@pytest.fixture
def Task(make):
    return make(FEATURES)
