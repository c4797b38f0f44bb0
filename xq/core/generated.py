"""The only text that becomes code: the values of a row, and instances from rows.

Each function is compiled once for the fields that it is about. Tracebacks and debuggers show its lines.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_numbers = itertools.count(1)


def function(name: str, lines: Sequence[str], **known: Any) -> Callable[..., Any]:
    """Return the function `name` that the lines define, which know these values by name."""
    text, file = "\n".join([*lines, ""]), f"<xq {name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), known)
    made: Callable[..., Any] = known[name]
    return made


class Value(NamedTuple):
    """One value of a row to be put."""

    name: str  # of the field
    native: object  # the type of values that are sent as they are; None for none
    sent: Callable[[Any], Any]  # another value as the database takes it; raises BadType and BadValue
    maker: Callable[[Mapping[str, Any]], Any] | None  # makes it from the task, where that has none


def row(values: Sequence[Value]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return what makes the values of a row, in this order, of a task by field name."""
    lines, known = ["def row(task):"], dict[str, Any]()
    for i, value in enumerate(values):
        known[f"sent{i}"], known[f"native{i}"] = value.sent, value.native
        if value.maker is None:
            lines.append(f"    v{i} = task[{value.name!r}]")
        else:
            known[f"make{i}"] = value.maker
            lines += [f"    v{i} = task.get({value.name!r})", f"    if v{i} is None:", f"        v{i} = make{i}(task)"]
        test = "" if value.native is None else f"if type(v{i}) is not native{i}: "
        lines.append(f"    {test}v{i} = sent{i}(v{i})")
    lines.append(f"    return ({''.join(f'v{i}, ' for i in range(len(values)))})")
    return function("row", lines, **known)


def arguments(marks: Sequence[str], brought: Sequence[str], width: int) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return what gives the values of a statement's marks: of the tasks in `rows`, and others by name.

    `brought` names the values of the tasks, row by row, `width` of each.
    """
    place = {name: (i // width, i % width) for i, name in enumerate(brought)}
    others = {name: f"o{i}" for i, name in enumerate(dict.fromkeys(name for name in marks if name not in place))}
    lines = ["def arguments(values):"]
    if place:
        lines.append(f"    {''.join(f'r{i}, ' for i in range(len(brought) // width))}= values['rows']")
    lines += [f"    {local} = values[{name!r}]" for name, local in others.items()]
    items = [others[name] if name in others else "r{}[{}]".format(*place[name]) for name in marks]
    lines.append(f"    return ({''.join(f'{item}, ' for item in items)})")
    return function("arguments", lines)


def hydrator(model: type, names: Sequence[str], mark: str) -> Callable[..., Any]:
    """Return what makes a clean instance of a Peewee model of the values of its fields, and the token of its take."""
    data = ", ".join(f"{name!r}: values[{i}]" for i, name in enumerate(names))
    lines = [
        "def hydrate(values, token=None):",
        "    made = new(model)",
        f"    made.__dict__ = {{'__data__': {{{data}}}, '__rel__': {{}}, '_dirty': set()}}",
        "    if token is not None:",
        f"        made.{mark} = token",
        "    return made",
    ]
    return function("hydrate", lines, new=model.__new__, model=model)
