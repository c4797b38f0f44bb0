"""What several tests of SQLAlchemy begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sqlalchemy.shop import Shop


@pytest.fixture
def shop(shared_db: Any) -> Iterator[Shop]:
    made = Shop(shared_db)
    yield made
    made.engine.dispose()
