"""The functions that are generated as source text: one returns the values of a row, one makes an instance of a row.

Each is compiled once for its fields. Tracebacks and debuggers show its lines.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_numbers = itertools.count(1)


def function(name: str, lines: Sequence[str], **known: Any) -> Callable[..., Any]:
    """Compile `lines` and return the function `name` that they define. They refer to the values of `known` by name."""
    text, file = "\n".join([*lines, ""]), f"<xq {name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), known)
    defined: Callable[..., Any] = known[name]
    return defined


class Value(NamedTuple):
    """One value of a row that is put."""

    name: str  # the name of the field
    native: object  # values of this type are sent unchanged; None for no type
    sent: Callable[[Any], Any]  # converts any other value for the database; raises BadType and BadValue
    maker: Callable[[Mapping[str, Any]], Any] | None  # makes the value of a task that has none


def row(values: Sequence[Value]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that makes the values of a row, in this order, of a task given as a mapping by field name."""
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
    """Return a function that lists the values for the marks of a statement.

    It reads the values of the tasks from `rows` and the others by name.

    `brought` names the values of the tasks, row by row, `width` in each row.
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
    """Return a function that makes a clean instance of a Peewee model.

    Its arguments are the values of the fields and the token of the take.
    """
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
