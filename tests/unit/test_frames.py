"""The kinds of fields: what a frame has of a type is stored as that type."""

from __future__ import annotations

from typing import Any

import pytest

import xq
from xq.core.ports import Field
from xq.pipeline.frames import as_stored, type_of


def field(declared: str) -> Field:
    return Field("field", "field", "other", declared, True, None, str, None, None)


@pytest.mark.parametrize(
    ("declared", "spark", "value", "stored", "wrong"),
    [
        *(
            (declared, "BINARY", bytearray(b"\0"), b"\0", "text")
            for declared in ("BLOB", "BYTEA", "BINARY(16)", "VARBINARY(16)", "MEDIUMBLOB", "LONGBLOB")
        ),
        *((declared, "BIGINT", 5.0, 5, 5.5) for declared in ("INT", "INTEGER", "SMALLINT", "BIGINT")),
        ("BOOL", "BOOLEAN", 1, True, 2),
        ("JSON", "STRING", {"a": 1}, '{"a":1}', "{"),
    ],
)
def test_what_a_column_is_read_as_it_is_written_as(
    declared: str, spark: str, value: Any, stored: Any, wrong: Any
) -> None:
    assert type_of(field(declared)) == spark
    (found,) = as_stored("Page", field(declared), [value])
    assert (type(found), found) == (type(stored), stored)
    assert as_stored("Page", field(declared), [None, stored]) == [None, stored]
    with pytest.raises(xq.Error, match="'field' of Page cannot hold"):
        as_stored("Page", field(declared), [wrong])
