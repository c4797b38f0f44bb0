"""A wait without its fallback."""

from __future__ import annotations

import pytest

from xq.runtime import maintenance


@pytest.fixture(autouse=True)
def no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the look that makes up for a lost notification: what these tests see, they were notified of."""
    monkeypatch.setattr(maintenance, "FALLBACK", 3600.0)
