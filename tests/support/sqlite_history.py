"""Databases for what only the history in SQLite does."""

from __future__ import annotations

import pytest

from tests.conftest import DATABASES


@pytest.fixture(params=["sqlite", "memory"])
def db(request, tmp_path):
    with DATABASES[request.param](tmp_path) as database:
        yield database


@pytest.fixture
def shared_db(tmp_path):
    with DATABASES["sqlite"](tmp_path) as database:
        yield database
