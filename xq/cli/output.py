"""What commands print: one JSON document, or tables and lines for people. Words about the work go to stderr."""

from __future__ import annotations

import json as parser
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import typer
from rich.cells import cell_len, set_cell_size

from xq.core.errors import Error
from xq.core.words import lasting

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
DIGITS = 32  # bytes up to which a bytes value is shown in hexadecimal digits, as a key is
NUMBERS = (int, float)  # the types whose columns are aligned at the right
LEAST = 20  # screen columns that a text has
GAP = 2  # screen columns between two table columns


class Text(str):
    """A text that a narrow terminal cuts. Numbers, keys, times and filters are shown whole."""


class Extra(Text):
    """A value, as text, whose column a narrow terminal leaves out, the last one first."""

    is_number = False

    @classmethod
    def of(cls, value: Any) -> Extra:
        made = cls(shown(value))
        made.is_number = isinstance(value, NUMBERS)
        return made


class Verbatim(str):
    """A text for another program, which is printed as it is."""


class Answer(NamedTuple):
    """A command's answer: a document for --json, what people see of it, words for stderr, and an exit code.

    People see lines, and tables: lists of rows, as `table` takes them. Without `lines` the document is such a list.
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
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize  # a pipe has no width
            for line in lines_of([self.content] if self.lines is None else self.lines, width):
                print(line)
        if self.words and (self.code or not json):
            say(self.words)
        if self.code:
            raise typer.Exit(self.code)


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return content as JSON: times as ISO 8601, bytes in URL-safe base64, what has no other form as text."""
    from pydantic_core import to_jsonable_python

    def other(value: Any) -> Any:
        return bytes(value) if isinstance(value, memoryview) else str(value)

    def made(value: Any) -> Any:
        return to_jsonable_python(value, bytes_mode="base64", fallback=other)

    try:
        plain = parser.dumps(content, default=made)  # also half of a surrogate pair, which pydantic refuses
    except TypeError:  # a key whose type JSON lacks
        plain = parser.dumps(made(content))
    ascii = not sys.stdout.encoding.lower().startswith("utf")
    known = parser.loads(plain, parse_constant=str)  # JSON has no infinity
    return parser.dumps(known, indent=indent, ensure_ascii=ascii).encode(errors="backslashreplace").decode()


def lines_of(lines: Iterable[Any], width: int) -> Iterator[str]:
    """Yield lines, also from tables, without control characters, which SQL may need."""
    for line in lines:
        text = line if isinstance(line, Verbatim) else printable(line) if isinstance(line, str) else None
        yield from table(line, width) if text is None else [text]


class _Column(NamedTuple):
    texts: list[str]  # the name first
    wide: int  # screen columns
    is_text: bool
    is_extra: bool
    is_number: bool


def table(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield a table's lines, which are `width` screen columns wide. Columns without a value are left out.

    Texts are cut, and extra ones left out. Where the others do not fit, each row is a block of lines.
    """
    columns = _columns(rows)
    while columns:
        widest = min(width, max(column.wide for column in columns))
        for most in range(max(LEAST, widest), LEAST - 1, -1):
            wide = [min(each.wide, most) if each.is_text else each.wide for each in columns]
            if sum(wide) + GAP * (len(wide) - 1) <= width:
                parts = zip(columns, wide, strict=True)
                cut = [[fitted(text, n, each.is_number) for text in each.texts] for each, n in parts]
                head, *others = map((" " * GAP).join, zip(*cut, strict=True))
                yield from (head.rstrip(), "─" * cell_len(head), *map(str.rstrip, others))
                return
        if not columns.pop().is_extra:
            break
    for place, row in enumerate(rows):
        yield from ([""] if place else [])
        yield from block({name: value for name, value in row.items() if value not in (None, "")})


def block(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each name and its value, which the terminal folds."""
    most = max(map(cell_len, values), default=0)
    return (f"{fitted(name, most)}  {shown(value)}".rstrip() for name, value in values.items())


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[_Column]:
    found = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if there := [value for value in values if value not in (None, "")]:
            texts = [name, *map(shown, values)]
            is_number = all(getattr(each, "is_number", isinstance(each, NUMBERS)) for each in there)
            is_text, is_extra = (any(isinstance(each, kind) for each in there) for kind in ((Text, dict, list), Extra))
            found.append(_Column(texts, max(map(cell_len, texts)), is_text, is_extra, is_number))
    return found


def fitted(text: str, width: int, right: bool = False) -> str:
    """Return a text as wide as so many screen columns: cut, or with blanks behind it, or before it."""
    if (blanks := width - cell_len(text)) < 0:
        return f"{set_cell_size(text, width - 1)}…"
    return " " * blanks + text if right else text + " " * blanks


def shown(value: Any, most: int = sys.maxsize) -> str:
    """Return a value in one line without control characters, at most so many characters long. Times are in UTC."""
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


def spent(seconds: float | None, words: str = "") -> str:
    """Return a time span, and words behind it; nothing for None."""
    return "" if seconds is None else f"{lasting(seconds)}{words}"


def moment(at: float | None) -> datetime | None:
    """Return seconds since 1970 as a time in UTC; None for None, and for what is beyond the calendar."""
    with suppress(OverflowError, ValueError, OSError):
        return None if at is None else datetime.fromtimestamp(at, UTC)
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
