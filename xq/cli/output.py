"""What commands print: one JSON document, or tables and lines for people. Words about the work go to stderr."""

from __future__ import annotations

import json as parser
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import typer

from xq.core.errors import Error

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
DIGITS = 32  # bytes up to which a value of bytes is shown in hexadecimal digits, as a key is
KEPT = 3  # columns that a narrow terminal narrows after the others, each to half of its width


class Answer(NamedTuple):
    """What a command has to say: a document for --json, what people see of it, words for stderr, and an exit code.

    People see lines, and tables: lists of rows, which are dictionaries. Without `lines` the document is such a list.
    """

    content: Any
    lines: Iterable[Any] | None = None
    words: str = ""
    code: int = 0

    def print(self, json: bool) -> None:
        """Print the answer. Ends the program if the exit code is not 0."""
        if json:
            print(json_text(self.content))
        else:
            from rich.console import Console

            # Without a terminal it is as wide as its longest line, so that a program can read it.
            console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
            for line in [self.content] if self.lines is None else self.lines:
                if isinstance(line, str):
                    print(printable(line))
                elif line:
                    console.print(table(line, console.width))
        if self.words and (self.code or not json):
            say(self.words)
        if self.code:
            raise typer.Exit(self.code)


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return content as JSON: times as ISO 8601, bytes in URL-safe base64, what has no other form as text."""
    from pydantic_core import to_jsonable_python

    def other(value: Any) -> Any:
        return bytes(value) if isinstance(value, memoryview) else str(value)

    plain = parser.dumps(to_jsonable_python(content, bytes_mode="base64", fallback=other))
    ascii = not sys.stdout.encoding.lower().startswith("utf")
    known = parser.loads(plain, parse_constant=str)  # JSON has no infinity
    return parser.dumps(known, indent=indent, ensure_ascii=ascii)


def table(rows: Sequence[Mapping[str, Any]], width: int) -> Any:
    """Return rows as a table of Rich, without the columns that have no value."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    there = dict.fromkeys(name for row in rows for name in row)
    there = {name: None for name in there if any(row.get(name) not in (None, "") for row in rows)}
    for place, name in enumerate(there):
        numbers = all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        most = width // 2 if place < KEPT else None
        found.add_column(Text(name), justify="right" if numbers else "left", no_wrap=place < KEPT, max_width=most)
    for row in rows:  # Text: what tasks hold is no markup
        found.add_row(*(Text(shown(row.get(name)), no_wrap=True, overflow="ellipsis") for name in there))
    return found


def shown(value: Any, most: int = sys.maxsize) -> str:
    """Return a value in one line without control characters, of at most so many characters. Times are in UTC."""
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value)
        return content.hex().upper() if len(content) <= DIGITS else f"<{len(content):,} bytes>"
    if isinstance(value, datetime) and value.tzinfo is UTC:
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = str(value)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(each if each.isprintable() else " " if each.isspace() else UNPRINTABLE for each in text)


def printable(text: str) -> str:
    """Return lines without control characters: what tasks and tubes are called must not reach the terminal's."""
    return "".join(each if each.isprintable() or each in "\n\t" else UNPRINTABLE for each in text)


def moment(at: float | None) -> datetime | None:
    """Return seconds since 1970 as a time in UTC; None for None, and for what is beyond the calendar."""
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def say(text: str) -> None:
    """Print to stderr what a command has done: stdout has the data."""
    typer.echo(printable(text), err=True)


def ask(question: str, yes: bool) -> None:
    """Ask before what cannot be undone. Refuses without a terminal, unless `--yes` is given."""
    if not yes and not sys.stdin.isatty():
        raise Error(f"{question} There is no terminal to ask on: say --yes")
    if not yes:
        typer.confirm(question, err=True, abort=True)
