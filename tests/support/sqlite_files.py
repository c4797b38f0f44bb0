"""What is SQLite's own: files, their journal, REPLACE, limits, attached schemas, and what stands in sqlite_master."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.conftest import Maker
from xq.testing import Clock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def make_file(path):
    db = pw.SqliteDatabase(path, timeout=20)
    yield Maker(db, Clock())
    db.close()
