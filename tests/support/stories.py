"""Stories: calls as text, one line after the other, each with what it comes to: `put("a"); take() -> 1t 'a'`.

An error comes to the name of its class, or to that and a part of its words: `take(-1) -> BadValue: a number of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xq


def played(story: str, names: Mapping[str, Any]) -> tuple[str, str]:
    """The lines of a story with what its calls come to, and with what they should; other calls than the last pass."""
    wanted = [" ".join(line.split()) for line in story.strip().splitlines()]
    found = []
    for line in wanted:
        calls, _, result = line.partition(" -> ")
        *before, last = calls.split("; ")
        for call in before:
            eval(call, dict(names))
        found.append(f"{calls} -> {_result(last, names, result)}")
    return "\n".join(found), "\n".join(wanted)


def _result(call: str, names: Mapping[str, Any], wanted: str) -> str:
    try:
        return show(eval(call, dict(names)))
    except (xq.Error, TypeError, LookupError, AttributeError) as error:
        _, colon, words = wanted.partition(": ")
        told = words if words in str(error) else str(error).splitlines()[0]
        return f"{type(error).__name__}{colon}{told if colon else ''}"


def show(value: Any) -> str:
    """What a result looks like in a story: of a task its id, its state and its data."""
    if hasattr(value, "_fields"):
        return f"{value.id}{value.state} {value.data!r}"
    if isinstance(value, list):
        return f"[{', '.join(map(show, value))}]"
    return (value or "nothing") if isinstance(value, str) else repr(value)
