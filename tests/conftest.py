"""Databases and models for the tests. Every test that takes `make` runs on every database."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from xq.testing import Clock

Database = Callable[[Path], pw.Database]

# name -> a fresh database. To test another one, name it here.
DATABASES: Mapping[str, Database] = {
    "sqlite": lambda folder: pw.SqliteDatabase(str(folder / "app.db"), timeout=20),
    "memory": lambda folder: pw.SqliteDatabase(":memory:"),
}
SHARED = [name for name in DATABASES if name != "memory"]  # those that another process can open

_only = os.environ.get("XQ_TEST_DB")
_chosen = [name for name in DATABASES if not _only or name.startswith(_only)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Where everything is required, a test that cannot run has failed."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("XQ_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is required: {report.longrepr}"


@pytest.fixture(params=_chosen)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pw.Database]:
    """A fresh database, of each kind in turn."""
    database = DATABASES[request.param](tmp_path)
    yield database
    database.close()


@pytest.fixture(params=[name for name in _chosen if name in SHARED])
def shared_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pw.Database]:
    """A fresh database that other processes and threads can open."""
    database = DATABASES[request.param](tmp_path)
    yield database
    database.close()


class Maker:
    """Makes queues on one database: `Task = make({"ttl": 10})`."""

    def __init__(self, db: pw.Database, clock: Clock | None) -> None:
        self.db = db
        self.clock = clock

    def model(self, key: pw.Field | None = None, **attributes: Any) -> type[pw.Model]:
        """A model with a field for every role, two fields of its own, and whatever `attributes` adds or replaces."""
        own = {"id": key} if key is not None else {}
        meta = {"database": self.db, "table_name": attributes.pop("table_name", "task")}
        meta |= attributes.pop("meta", {})
        fields = {
            "name": pw.TextField(null=True),
            "size": pw.IntegerField(default=0),
            "status": pw.CharField(default="R"),
            "runat": pw.DoubleField(null=True),
            "deadline": pw.DoubleField(null=True),
            "priority": pw.IntegerField(default=0, null=True),
            "tube": pw.TextField(null=True),
            "owner": pw.TextField(null=True),
            "attempts": pw.IntegerField(default=0),
            "ttl": pw.DoubleField(null=True),
            "ttr": pw.DoubleField(null=True),
            "job": pw.TextField(null=True),
        }
        return type("Task", (pw.Model,), {**own, **fields, **attributes, "Meta": type("Meta", (), meta)})

    def __call__(
        self,
        features: Mapping[str, Any] | None = None,
        *,
        roles: tuple[str, ...] = ("runat", "deadline", "priority"),
        fields: Mapping[str, Any] | None = None,
        model: type[pw.Model] | None = None,
        key: pw.Field | None = None,
        attributes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """An upgraded, installed model. `roles` are mapped to the fields of their names (unique to `job`)."""
        model = model or self.model(key, **(attributes or {}))
        mapped = {role: "job" if role == "unique" else role for role in ("status", *roles)}
        xq.upgrade(model, fields or mapped, features or {}, clock=self.clock, **options)
        self.db.create_tables([model])
        return model


@pytest.fixture
def make(db: pw.Database) -> Maker:
    """Makes queues whose clock is in the test's hand: `Task.xq.clock.tick(5)`."""
    return Maker(db, Clock())


@pytest.fixture
def make_shared(shared_db: pw.Database) -> Maker:
    """Makes queues by the database's own clock, which other threads and processes can open."""
    return Maker(shared_db, None)
