"""Writes the documents that the code itself knows: DOCUMENTS, below. Each of the larger ones has a module of its own.

`make docs` runs it; with --check it writes nothing, names the files that are stale, and exits with 1.
"""

from __future__ import annotations

import argparse
import collections.abc
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Gt, Interval, Le, Len
from api import api, reference
from errors import errors
from life import life
from sql import sql

from xq.core.machine import NAMES, Machine
from xq.features import FEATURES
from xq.upgrading.registry import catalogue, compose

DOCS = Path(__file__).resolve().parent

# The queue of docs/start/peewee.md.
FIRST: Mapping[str, Any] = {"delayed": True, "buried": True, "keep": True, "ttr": 60}

INTRODUCTION = """
# What may happen to a task

Each queue has a table of transitions, composed of the core and of its features; `print(Page.xq.machine)` shows it.

- *from*, *to*: states: {states}; X is no row.
  `!` marks what only the owner of a taken task may do.
- *event*: the method that a program calls; with a column in brackets, what time brings about when the moment in that
  column has passed. *picks*: the method may choose the oldest tasks itself.
- *option*: the row applies if the call has this option.
- *timed by*: the option, in seconds, that says how long the state lasts, and its default.

An option that counts in a later state, like put(ttr=), is remembered in the role of its name, which must be mapped.

![The life of a task](images/life.svg)

The picture shows queues with delayed, buried and ttr, and one of keep, zombie or neither.
"""


def machine() -> str:
    """docs/machine.md"""
    states = ", ".join(f"{letter} {name.lower()}" for letter, name in NAMES.items())
    sections = [
        INTRODUCTION.strip().format(states=states),
        "## The core\n\nWhat every queue can do.",
        table({}),
        *(part for name in FEATURES for part in feature(name)),
        *(part for title, features in QUEUES.items() for part in (f"## {title}", literal(features), table(features))),
    ]
    return "\n\n".join(sections) + "\n"


# Whole queues, by the title of their section.
QUEUES: Mapping[str, Mapping[str, Any]] = {"The queue of the first steps": FIRST}

# The first line of a document of Markdown. Readers of the site do not see it.
MARK = "<!-- Written by docs/generate.py (make docs) from the code and its docstrings: do not edit. -->\n\n"

# Every document: what writes it, by its name.
DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "machine.md": machine,
    "sql.md": sql,
    "api.md": api,
    "reference.md": reference,
    "errors.md": errors,
    "images/life.svg": life,
}


def table(features: Mapping[str, Any]) -> str:
    """The transition table of a queue."""
    chosen = compose(features)
    return f"```text\n{Machine(chosen, ['status', *needed(features)])}\n```"


def needed(features: Mapping[str, Any]) -> list[str]:
    """The roles that features need."""
    return list(dict.fromkeys(role for feature in compose(features) for role in feature.needs))


def literal(features: Mapping[str, Any]) -> str:
    pairs = ", ".join(f'"{name}": {_quoted(value)}' for name, value in features.items())
    return f"`features={{{pairs}}}`"


def feature(name: str) -> Iterator[str]:
    """The section of one feature."""
    function = FEATURES[name]
    parameter = next(iter(inspect.signature(function).parameters.values()))
    hint = get_type_hints(function, include_extras=True)[parameter.name]
    requires = dict.fromkeys(function().requires, True)
    alone = {name: parameter.default, **requires}
    yield f"## {name}"
    yield inspect.cleandoc(function.__doc__ or "")
    facts = {
        f"value, `{parameter.name}`": " or ".join(values(hint)),
        "roles needed": _listed(needed(alone)),
        "features needed": _listed(requires),
        "methods": _listed(event for event, names in catalogue().events.items() if name in names),
        "options": _listed(
            f"{event}({option}=)" for (event, option), names in sorted(catalogue().options.items()) if name in names
        ),
    }
    yield "\n".join(f"- {what}: {told}" for what, told in facts.items() if told)
    roles = ["status", *needed(alone)]
    if str(Machine(compose(alone), roles)) == str(Machine(compose(requires), roles)):
        yield "It adds no transition."
    else:
        yield f"{literal(alone)}:"
        yield table(alone)


def values(hint: Any) -> list[str]:
    """What an annotation accepts, in words."""
    if get_origin(hint) is Literal:
        return [f"`{_quoted(value)}`" for value in get_args(hint)]
    if hasattr(hint, "__metadata__"):
        return [" ".join([*values(hint.__origin__), *(_limits(limit) for limit in hint.__metadata__)])]
    if get_origin(hint) is Callable:
        return ["a function"]
    if get_origin(hint) is collections.abc.Mapping:
        return ["a mapping"]
    if get_args(hint):
        return [value for part in get_args(hint) for value in values(part)]
    return [{bool: "`True`", float: "a number", int: "an integer", str: "text", timedelta: "a timedelta"}[hint]]


def _limits(limit: Any) -> str:
    if isinstance(limit, Interval) and isinstance(limit.gt, timedelta):
        return "greater than 0"
    if isinstance(limit, Interval):
        return f"greater than {limit.gt} (seconds, up to {limit.le:,.0f})"
    if isinstance(limit, Gt):
        return f"greater than {limit.gt}"
    if isinstance(limit, Le):
        return f"up to {limit.le:,}"
    if isinstance(limit, Len):
        return f"of {limit.min_length} or more characters"
    raise TypeError(f"docs/generate.py has no words for {limit!r} yet")


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the documents that the code itself knows.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail when one is stale")
    check = parser.parse_args().check
    stale = []
    for name, write in DOCUMENTS.items():
        path, text = DOCS / name, (MARK if name.endswith(".md") else "") + write()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(f"docs/{name}")
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for document in stale:
        print(f"{document} is stale: make docs writes it anew" if check else f"{document} written")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
