"""SQL over several lines, so that a person can read it: only white space changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

Item = str | list["Item"]  # a token; or all tokens of a pair of brackets, or of a CASE with its END

WIDTH = 100
LONG = 60  # a longer statement, or subquery, has a line for each of its clauses
STATEMENTS = ("SELECT", "INSERT INTO", "UPDATE", "DELETE FROM", "WITH", "CREATE", "CREATE OR REPLACE")
CLAUSES = (
    *("SELECT", "FROM", "WHERE", "SET", "VALUES", "RETURNING", "ORDER BY", "GROUP BY", "LIMIT", "FOR UPDATE", "USING"),
    *("FOR NO KEY UPDATE", "ON CONFLICT", "REFERENCING", "FOR EACH", "WHEN", "EXECUTE FUNCTION", "RETURNS"),
)
OPEN = {"(": ")", "CASE": "END"}
BLOCKS, ENDS = ("BEGIN", "THEN", "LOOP"), ("END", "END IF", "END LOOP")
PHRASES = (*CLAUSES, *STATEMENTS, *ENDS, "IS DISTINCT FROM", "DO UPDATE SET", "#variable_conflict .*")
SPACED = "|".join(rf"{phrase}(?!\S)" for phrase in sorted(PHRASES, key=len, reverse=True) if " " in phrase)
TOKEN = re.compile(rf"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|⟨[^⟩]*⟩|(?:{SPACED})|\s+|[(),;]|[^\s'"`(),;⟨]+""")


def laid_out(sql: str) -> str:
    """Return SQL with a line for each clause, indented by blocks and subqueries."""
    lines: list[str] = []
    part: list[Item] = []
    level = 0
    for item in _tree(iter(TOKEN.findall(sql))):
        if item in ENDS or item == "BEGIN" or item[0] == "#":
            lines, part, level = lines + _lines(part, level), [], level - (item in ENDS)
        part.append(item)
        if item == ";" or item in BLOCKS or item[0] == "#":
            lines, part, level = lines + _lines(part, level), [], level + (item in BLOCKS)
    return "\n".join(lines + _lines(part, level))


def _tree(tokens: Iterator[str], close: str = "") -> list[Item]:
    found: list[Item] = []
    for token in tokens:
        found.append([token, *_tree(tokens, OPEN[token])] if token in OPEN else token)
        if token == close:
            break
    return found


def _text(item: Item) -> str:
    return item if isinstance(item, str) else "".join(map(_text, item))


def _lines(items: list[Item], level: int, hang: int = 1) -> list[str]:
    """The lines of a statement, or of a part of one; those after its first are indented by `hang` more."""
    text, whole = _text(items).strip(), [item for item in items if _text(item).strip()]
    groups = [item for item in items if isinstance(item, list) and item[1:-1]]
    queries = [group for group in groups if group[1] in STATEMENTS and len(_text(group)) > LONG]
    if whole and whole[0] in STATEMENTS and len(text) > LONG and len(parts := _split(items, CLAUSES)) > 1:
        return [line for part in parts for line in _lines(part, level)]
    for breaks in ((",",), ("AND", "OR")):
        if len(text) > WIDTH and len(parts := _split(items, breaks)) > 1:
            return _lines(parts[0], level) + [line for part in parts[1:] for line in _lines(part, level + hang)]
    if queries or (groups and len(text) > WIDTH):
        group = max(queries or groups, key=lambda group: len(_text(group)))
        place = next(place for place, item in enumerate(items) if item is group)
        cases = _split(group[1:-1], ("WHEN", "ELSE")) if group[0] == "CASE" else [group[1:-1]]
        inner = [line for part in cases for line in _lines(part, level + 1, hang=group[0] == "CASE")]
        return [*_lines([*items[:place], group[0]], level), *inner, *_lines([group[-1], *items[place + 1 :]], level)]
    return ["    " * level + text] if text else []


def _split(items: list[Item], breaks: Collection[str]) -> list[list[Item]]:
    """The parts of a list: each begins with a word of `breaks`, or ends with a comma."""
    parts: list[list[Item]] = [[]]
    for item in items:
        parts += [[]] if item in breaks and item != "," else []
        parts[-1].append(item)
        parts += [[]] if item == "," and item in breaks else []
    return [part for part in parts if _text(part).strip()]
