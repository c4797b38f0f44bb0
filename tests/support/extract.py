"""What a queue holds, read without its model: types, conditions, ranges and checkpoints, on every database."""

from __future__ import annotations

import pickle
import uuid
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import peewee as pw

from xq.pipeline.scan import Extract, Part

NOW = datetime(2026, 2, 28, 23, 59, 59, 123456)
ODD = {
    "big": pw.BigIntegerField(null=True),
    "price": pw.DecimalField(null=True, max_digits=12, decimal_places=3),
    "at": pw.DateTimeField(null=True),
    "day": pw.DateField(null=True),
    "real": pw.DoubleField(null=True),
    "flag": pw.BooleanField(null=True),
    "who": pw.UUIDField(null=True),
    "blob": pw.BlobField(null=True),
    "doc": pw.JSONField(null=True),
    "o": pw.TextField(null=True, column_name="order"),
    "q": pw.TextField(null=True, column_name='a "quoted" `name`: :now ?'),
}
VALUES: dict[str, Any] = {
    "big": 2**63 - 1,
    "price": Decimal("123456789.125"),
    "at": NOW,
    "day": date(2026, 2, 28),
    "real": 0.1,
    "flag": True,
    "who": uuid.UUID(int=2**127 + 1),
    "blob": b"\0\xff'\"%",
    "o": 'it\'s 100% \\ "odd" :now ü🦆',
    "q": "",
}
READ = {
    "big": "BIGINT",
    "price": "DECIMAL(12,3)",
    "at": "TIMESTAMP",
    "day": "DATE",
    "real": "DOUBLE",
    "flag": "BOOLEAN",
    "who": "STRING",
    "blob": "BINARY",
    "doc": "STRING",
    "o": "STRING",
    "q": "STRING",
}


def unpickled(queue: Any, *what: Any, **options: Any) -> Extract:
    """As it is in another process."""
    found: Extract = pickle.loads(pickle.dumps(queue.xq.pipeline.extract(*what, **options)))
    return found


def rows(extract: Extract, *names: str, **which: Any) -> list[tuple[Any, ...]]:
    return sorted(extract.read(list(names) or None, Part(**which)))
