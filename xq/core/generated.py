"""Functions generated as source text: some make rows from tasks, some make instances from rows.

Each is compiled once for its fields. Tracebacks and debuggers show its lines.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_numbers = itertools.count(1)


def function(name: str, lines: Sequence[str], **known: Any) -> Callable[..., Any]:
    """Compile `lines` and return the function `name` that they define. They refer to the values in `known` by name."""
    text, file = "\n".join([*lines, ""]), f"<xq {name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), known)
    defined: Callable[..., Any] = known[name]
    weakref.finalize(defined, linecache.cache.pop, file, None)
    return defined


class Value(NamedTuple):
    """One value in a row that is put."""

    name: str  # the field's name
    native: object  # values of this type are sent unchanged; None for no type
    sent: Callable[[Any], Any]  # converts any other value for the database; raises BadType and BadValue
    maker: Callable[[Mapping[str, Any]], Any] | None  # makes the value for a task that has none


def row(values: Sequence[Value]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that makes a row's values, in this order, from a task given as a mapping by field name."""
    lines, known = _row(values)
    return function("row", ["def row(task):", *_indented(lines), f"    return {_tuple(values)}"], **known)


def rows(
    values: Sequence[Value], names: tuple[str, ...], keys: Sequence[str], defaults: Mapping[str, Any]
) -> Callable[[Sequence[object], int], list[tuple[Any, ...]]]:
    """Return a function that makes rows from a list of tasks, from a place on up to the first unlike task.

    They are dicts with exactly `names`, and have their `keys`. A default that is callable makes the value.
    """
    lines, known = _row(values)
    missing = [f"task[{key!r}] is None" for key in keys]
    unlike = " or ".join(["type(task) is not dict", "tuple(task) != names", *missing])
    called = [name for name, default in defaults.items() if callable(default)]
    loop = [
        f"if {unlike}:",
        "    break",
        *(["task = {**defaults, **task}"] if defaults else []),
        *(f"task[{name!r}] = task[{name!r}]()" for name in called),
        *lines,
        f"append({_tuple(values)})",
    ]
    text = [
        "def rows(tasks, start):",
        "    found = []",
        "    append = found.append",
        "    for place in range(start, len(tasks)):",
        "        task = tasks[place]",
        *_indented(_indented(loop)),
        "    return found",
    ]
    return function("rows", text, **known, names=names, defaults=defaults)


def _row(values: Sequence[Value]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines that make the values v0, v1 ... in a row for `task`, and what they refer to by name."""
    lines, known = list[str](), dict[str, Any]()
    for i, value in enumerate(values):
        known[f"sent{i}"], known[f"native{i}"] = value.sent, value.native
        if value.maker is None:
            lines.append(f"v{i} = task[{value.name!r}]")
        else:
            known[f"make{i}"] = value.maker
            lines += [f"v{i} = task.get({value.name!r})", f"if v{i} is None:", f"    v{i} = make{i}(task)"]
        test = "" if value.native is None else f"if type(v{i}) is not native{i}: "
        lines.append(f"{test}v{i} = sent{i}(v{i})")
    return lines, known


def _tuple(values: Sequence[Value]) -> str:
    return f"({''.join(f'v{i}, ' for i in range(len(values)))})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def arguments(marks: Sequence[str], brought: Sequence[str], width: int) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return a function that lists the values for a statement's marks.

    It reads the tasks' values from `rows` and the others by name. `brought` names the tasks' values, row by row,
    `width` in each row.
    """
    lines, items = _listed(marks, brought, width)
    return function("arguments", ["def arguments(values):", *lines, f"    return {items}"])


def runner(sql: str, marks: Sequence[str], brought: Sequence[str], width: int) -> Callable[[Any, Any], list[Any]]:
    """Return a function that runs a statement on a connection, with the values as `arguments` lists them."""
    lines, items = _listed(marks, brought, width)
    text = ["def run(connection, values):", *lines, f"    return connection.execute(sql, {items})"]
    return function("run", text, sql=sql)


def _listed(marks: Sequence[str], brought: Sequence[str], width: int) -> tuple[list[str], str]:
    """Return the lines that read the values for a statement's marks, and the text of their tuple."""
    place = {name: (i // width, i % width) for i, name in enumerate(brought if width else ())}
    others = {name: f"o{i}" for i, name in enumerate(dict.fromkeys(name for name in marks if name not in place))}
    lines = list[str]()
    if place:
        lines.append(f"    {''.join(f'r{i}, ' for i in range(len(brought) // width))}= values['rows']")
    lines += [f"    {local} = values[{name!r}]" for name, local in others.items()]
    items = [others[name] if name in others else "r{}[{}]".format(*place[name]) for name in marks]
    return lines, f"({''.join(f'{item}, ' for item in items)})"


def hydrators(lines: Sequence[str], attribute: str, **known: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions that make an instance from a row, and a list of instances from rows.

    `lines` make the instance `made` from the list `values`, and refer to `known` by name. The functions' arguments
    are the row, or the rows, and the take's token, which becomes each instance's `attribute`.
    """
    made = [*lines, "if token is not None:", f"    made.{attribute} = token"]
    one = ["def hydrate(values, token=None):", *_indented([*made, "return made"])]
    loop = ["for values in rows:", *_indented([*made, "append(made)"])]
    start = ["found = []", "append = found.append"]
    several = ["def hydrate_all(rows, token=None):", *_indented([*start, *loop, "return found"])]
    return function("hydrate", one, **known), function("hydrate_all", several, **known)


def mapping(names: Sequence[str], places: Sequence[int]) -> str:
    """Return the text for a dict by name: each value is the item in `values` at one of these places."""
    return f"{{{', '.join(f'{name!r}: values[{place}]' for name, place in zip(names, places, strict=True))}}}"
