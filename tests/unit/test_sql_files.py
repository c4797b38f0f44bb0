"""The files of SQL: what of a text belongs to which queue."""

from __future__ import annotations

from pathlib import Path

import pytest

import xq
from xq.adapters.databases.sql_file import filled_in, texts

FILES = sorted(Path(xq.__file__).parent.glob("adapters/databases/*/*.sql"))
TEXT = """\
-- why
SELECT {column}
    FROM {table}
--? history
    WHERE noted
--? not history
    WHERE counted
--? end
    ORDER BY 1
"""


def filled(*has: str, **values: str) -> str:
    return filled_in(TEXT, has, {"column": "a", "table": "b", **values})


def test_a_text_becomes_one_line_without_its_comments():
    assert "\n" not in filled()
    assert "--" not in filled()


def test_a_part_belongs_to_the_queues_that_have_its_word():
    assert filled("history") == "SELECT a FROM b WHERE noted ORDER BY 1"
    assert filled() == "SELECT a FROM b WHERE counted ORDER BY 1"


def test_a_name_keeps_its_blanks_and_its_braces():
    assert filled(table='"my  {own} table"') == 'SELECT a FROM "my  {own} table" WHERE counted ORDER BY 1'


def test_a_missing_value_is_an_error():
    with pytest.raises(KeyError, match="column"):
        filled_in(TEXT, (), {"table": "b"})


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_file_says_what_it_is_before_its_first_text(file):
    assert not file.read_text(encoding="utf-8").startswith("--:")
    assert texts(file)
