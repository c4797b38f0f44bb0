"""Peewee models on a database in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import peewee as pw

from xq.adapters.peewee.connections import database_of
from xq.core.errors import BadType, shown


@contextmanager
def in_memory(models: Sequence[Any]) -> Iterator[pw.Database]:
    """Bind models to a fresh database in memory for the block, with their tables and queues."""
    for model in models:
        if not (isinstance(model, type) and issubclass(model, pw.Model)):
            raise BadType(
                f"memory takes models of Peewee, not {shown(model)}: for Django use xq_clock, for SQLAlchemy xq_session"
            )
    database = pw.SqliteDatabase(":memory:", thread_safe=False)
    with database.bind_ctx(models, bind_refs=False, bind_backrefs=False):
        database.connect()
        try:
            database.create_tables(models)
            yield database
        finally:
            database_of(database).close()
            database.close()
