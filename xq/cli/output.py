"""What commands print: one JSON document, or tables for people. Words about the work go to stderr."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import typer

from xq.core.words import lasting

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
CELL = 60  # characters of a value in a table of tasks
LEAST = 8  # characters of a column, below which a narrow terminal leaves it out
GAP = 3  # characters between two columns
DIGITS = 32  # bytes up to which a value of bytes is shown in hexadecimal digits, as a key is


class Failure(Exception):
    """Ends the program with 1 and this message, in one line."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: moments as ISO 8601, bytes in base64, what has no other form as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    return str(value)


def document(content: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(plain(content), ensure_ascii=False, indent=2))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], kept: Mapping[str, int] | None = None) -> list[str]:
    """Print a table. Without a terminal it is as wide as its longest line, so that a program can read it.

    On a terminal the columns named in `kept` keep up to so many characters, and the others share what is left. Returns
    the columns that found no room.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 10_000, highlight=False)
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    listed = [list(row) for row in rows]
    texts = [[shown(cell) for cell in row] for row in listed]
    widths: list[int | None] = [None] * len(columns)
    if terminal and kept:
        natural = [max([len(column), *(len(row[place]) for row in texts)]) for place, column in enumerate(columns)]
        widths = [*_widths(columns, natural, kept, console.width)]
    chosen = [place for place, width in enumerate(widths) if width != 0]
    for place in chosen:
        numbers = bool(listed) and all(isinstance(row[place], (int, float)) or row[place] is None for row in listed)
        made.add_column(
            Text(columns[place]),
            justify="right" if numbers else "left",
            overflow="ellipsis",
            no_wrap=True,
            width=widths[place],
        )
    for row in texts:
        made.add_row(*(Text(row[place]) for place in chosen))  # Text: what tasks hold is no markup
    console.print(made)
    return [column for column, width in zip(columns, widths, strict=True) if width == 0]


def _widths(columns: Sequence[str], natural: Sequence[int], kept: Mapping[str, int], room: int) -> list[int]:
    """Return the width of each column in `room` characters; 0 for one that would have less than LEAST.

    First come the kept columns, then the others from the narrowest on; what is left goes to the kept ones.
    """
    widths = [min(width, kept.get(column, width)) for column, width in zip(columns, natural, strict=True)]
    others = [place for place, column in enumerate(columns) if column not in kept]
    left = room - GAP * (len(columns) - 1) - sum(width for place, width in enumerate(widths) if place not in others)
    while others and left < sum(min(widths[place], LEAST) for place in others):
        widths[others.pop()] = 0
        left += GAP
    for n, place in enumerate(sorted(others, key=widths.__getitem__)):
        widths[place] = min(widths[place], max(left, 0) // (len(others) - n))
        left -= widths[place]
    for place in (place for place, column in enumerate(columns) if column in kept):
        more = max(min(natural[place] - widths[place], left), 0)
        widths[place] += more
        left -= more
    return widths


def shown(value: Any) -> str:
    """Return a value for a cell, in one line without control characters."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value)
        return content.hex().upper() if len(content) <= DIGITS else f"<{_size(len(content))}>"
    text = str(plain(value))
    return "".join(each if each.isprintable() else " " if each.isspace() else UNPRINTABLE for each in text)


def brief(value: Any, most: int = CELL) -> Any:
    """Return a number as it is, and the first `most` characters of any other value."""
    if value is None or isinstance(value, (int, float)):
        return value
    text = shown(value[: most + 1] if isinstance(value, str) else value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _size(n: int) -> str:
    """Return a number of bytes in words: 900 bytes, 2.0 MB."""
    unit, name = next((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")) if n >= unit)
    return f"{n / unit:.1f} {name}" if unit > 1 else f"{n} {name}"


def seconds(value: float | None) -> str:
    """Return a span of time in words; "" if there is none."""
    return "" if value is None else lasting(value)


def say(text: str) -> None:
    """Print to stderr what a command has done: stdout has the data."""
    typer.echo(text, err=True)


def ask(question: str, yes: bool) -> None:
    """Ask before what cannot be undone. Refuses without a terminal, unless `--yes` is given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question} There is no terminal to ask on: say --yes")
    if not typer.confirm(question, err=True):
        raise Failure("nothing was done")
