"""A database that cannot be opened: what these tests show happens before any SQL runs, once for all databases."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.conftest import Maker
from xq.testing import Clock


class Unopened(Maker):
    """Makes queues that are not installed."""

    INSTALLS = False


@pytest.fixture
def db() -> pw.Database:
    """A database of no name: Peewee raises when a statement is to run there."""
    return pw.SqliteDatabase(None)


@pytest.fixture
def make(db: pw.Database) -> Maker:
    """Makes queues whose clock is in the test's hand, and whose database no test can use."""
    return Unopened(db, Clock())
