"""SQL that stands in files, to be read as SQL.

A file has several texts, each after a line `--: name`. In a text, the dialect fills in SQL for `{name}`, and it makes
SQL from the argument for `{name:argument}`. The lines from `--? word` to the next `--?` belong to queues
with what the word names, the lines from `--? not word` to all others, and the lines after `--? end` to all. Lines that
begin with `--` are comments. A line `--= name` stands for another text in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any

NAME = re.compile(r"^--: (\w+)\n", re.MULTILINE)
PART = re.compile(r"^--\? (?:(not) )?(\w+)\n", re.MULTILINE)
COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
VALUE = re.compile(r"\{(\w+)(?::([^}]*))?\}")
INCLUDED = re.compile(r"^--= (\w+)\n", re.MULTILINE)
END = "end"
LOADER: Any = __spec__.loader  # reads files of the package also if it is in a zip, as Spark sends xq to its workers

Holes = Mapping[str, str | Callable[[str], str]]


@cache
def texts(file: Path) -> Mapping[str, str]:
    _, *found = NAME.split(decode_source(LOADER.get_data(str(file))))
    by_name = dict(zip(found[::2], found[1::2], strict=True))
    return {name: INCLUDED.sub(lambda its: by_name[its[1]], text) for name, text in by_name.items()}


def filled_in(text: str, has: Collection[str], values: Holes) -> str:
    """Return a text's SQL, on one line, for a queue that `has` some words, with the values filled in."""
    return _with_values(_on_one_line(text, has), values)


def statements(text: str, has: Collection[str], values: Holes) -> tuple[str, ...]:
    """Return a text's statements, each of which ends with a semicolon, as `filled_in` does."""
    return tuple(_with_values(sql.strip(), values) for sql in _on_one_line(text, has).split(";")[:-1])


def _on_one_line(text: str, has: Collection[str]) -> str:
    always, *parts = PART.split(text)
    kept = [always]
    for inverted, word, lines in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if word == END or (word in has) != bool(inverted):
            kept.append(lines)
    sql = " ".join(COMMENT.sub("", "".join(kept)).split())
    return sql.replace("( ", "(").replace(" )", ")")


def _with_values(sql: str, values: Holes) -> str:
    def filled(found: re.Match[str]) -> str:
        value = values[found[1]]
        return value if isinstance(value, str) else value(found[2])

    # At the very end: a value's spaces and semicolons may belong to names. A value at the end may be empty.
    return VALUE.sub(filled, sql).rstrip()
