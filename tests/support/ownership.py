"""Who owns a taken task: sessions, and the take that an object comes from."""

from __future__ import annotations

import pytest

FEATURES = {"buried": True, "keep": True, "ttr": 60}


@pytest.fixture(params=[(), ("owner",)], ids=["side table", "role"])
def owner(request):
    """Where xq keeps who took what: in a table of its own, or in a field of the model."""
    return request.param


@pytest.fixture
def queue(make, owner):
    return make(FEATURES, roles=("runat", "attempts", *owner))
