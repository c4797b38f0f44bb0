"""A field of each type that goes through Spark, with values that something on the way could spoil."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import peewee as pw
from playhouse import postgres_ext


class Type(NamedTuple):
    field: pw.Field[Any]
    spark: str  # its name there
    value: Any
    other: Any
    sent: Any  # the other one as Spark has it


NOT_THERE, TWICE = datetime(2026, 3, 8, 2, 30, 5), datetime(2026, 11, 1, 1, 30)  # hours of New York
DUCK, OTHER = '🦆 it\'s 100% \\ "odd" :now', uuid.UUID(int=2**64)
TYPES = {
    "big": Type(pw.BigIntegerField(null=True), "bigint", 2**63 - 1, -1, -1),
    "price": Type(
        pw.DecimalField(null=True, max_digits=12, decimal_places=3),
        "decimal(12,3)",
        Decimal("123456789.125"),
        Decimal("0.1"),
        Decimal("0.1"),
    ),
    "at": Type(pw.DateTimeField(null=True), "timestamp", NOT_THERE, TWICE, TWICE.replace(tzinfo=UTC)),
    "day": Type(pw.DateField(null=True), "date", date(2026, 11, 1), date(2020, 2, 29), date(2020, 2, 29)),
    "real": Type(pw.DoubleField(null=True), "double", 0.1, -1e300, -1e300),
    "flag": Type(pw.BooleanField(null=True), "boolean", True, False, False),
    "who": Type(pw.UUIDField(null=True), "string", uuid.UUID(int=2**127 + 1), OTHER, str(OTHER)),
    "short": Type(pw.BinaryUUIDField(null=True), "binary", uuid.UUID(int=7), OTHER, OTHER.bytes),
    "raw": Type(pw.BlobField(null=True), "binary", b"\0\xff'\"%", b"", b""),
    "data": Type(pw.JSONField(null=True), "string", {"a": [1, None, "é"]}, ["🦆"], '["🦆"]'),
    "order": Type(pw.TextField(null=True), "string", DUCK, "", ""),
    "a`b.c": Type(pw.TextField(null=True, column_name='a "quoted" `name`: :now ?'), "string", "", DUCK, DUCK),
}
NEPAL = timezone(timedelta(hours=5, minutes=45))
MOMENT = datetime(2026, 11, 1, 1, 30, 0, 5, UTC)
ARRAYS: dict[str, tuple[Any, list[Any]]] = {  # the class of the elements, and some
    "numbers": (pw.IntegerField, [1, None, -(2**31)]),
    "small": (pw.SmallIntegerField, [7]),
    "big": (pw.BigIntegerField, [2**62]),
    "singles": (pw.FloatField, [0.1, 1e-30]),
    "reals": (pw.DoubleField, [0.1, None, -1e300]),
    "flags": (pw.BooleanField, [True, False]),
    "words": (pw.CharField, ['🦆 "odd", {}', "", None]),
    "ids": (pw.UUIDField, [uuid.UUID(int=7), None]),
    "days": (pw.DateField, [date(2020, 2, 29), None]),
    "times": (pw.DateTimeField, [MOMENT.replace(tzinfo=None), None]),
    "moments": (postgres_ext.DateTimeTZField, [MOMENT.astimezone(NEPAL)]),
}
VALUES = {name: kind.value for name, kind in TYPES.items()}
OTHERS = {name: kind.other for name, kind in TYPES.items()}
SENT = {name: kind.sent for name, kind in TYPES.items()}


def fields(db: Any) -> dict[str, pw.Field[Any]]:
    """The fields, for a model of this database."""
    db.mariadb = True  # for its JSON
    return {name: kind.field for name, kind in TYPES.items()}


def arrays() -> dict[str, pw.Field[Any]]:
    return {name: postgres_ext.ArrayField(of, null=True) for name, (of, _) in ARRAYS.items()}


def quoted(name: str) -> str:
    """The name of a column as Spark takes any."""
    return f"`{name.replace('`', '``')}`"


def rows(Task: Any) -> list[tuple[Any, ...]]:
    """The values of all tasks: by their places, since Peewee does not find a name that needs quotes."""
    names = [getattr(Task, name) for name in TYPES]
    return [*Task.select(*names).order_by(*Task._meta.get_primary_keys()).tuples()]
