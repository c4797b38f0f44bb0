"""docs/errors.md: what each error of xq means and what to do, from the docstrings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import griffe
from api import wrapped
from names import errors as all_errors
from names import find, first, markdown, signature

INTRODUCTION = """
# Errors

Every error of xq is one of these classes of `xq`: `except xq.NotOwner`, or `except xq.Error` for all. A traceback ends
with a note that names the section here; `str(error)` is the message alone. An error has its parts as attributes, and
keeps them when it is pickled. An error that the database itself raises is that of the ORM, as
`peewee.IntegrityError` or `sqlalchemy.exc.IntegrityError`.
"""

OUTCOMES = """
A worker's function raises one of these to decide what becomes of its task. They are no failures, and no errors of xq.
"""

TITLES: Mapping[str, tuple[str, ...]] = {
    "All errors": ("Error",),
    "The arguments of a call": ("BadValue", "BadType", "FeatureOff"),
    "The task": ("NotFound", "WrongState", "NotOwner", "SessionLost", "Duplicate"),
    "The queue": ("Full", "InTransaction", "UnknownSession"),
    "The definition of a queue": ("ConfigurationError", "Conflict", "NotInstalled"),
    "Workers": ("LeftOpen",),
    "Tubes": ("TubeExists", "UnknownTube", "TubeBusy", "TubeDropped", "NotRunning"),
}


def errors() -> str:
    """docs/errors.md"""
    return "\n\n".join([INTRODUCTION.strip(), *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    found = {error.name: error for error in all_errors()}
    listed = [name for names in TITLES.values() for name in names]
    if missing := found.keys() - set(listed):
        raise SystemExit(f"docs/errors.py: no section has {', '.join(sorted(missing))}")
    yield "\n".join(wrapped(f"[{name}](#{name.lower()}): {first(found[name])}", "- ") for name in listed)
    for title, names in TITLES.items():
        yield f"## {title}"
        for name in names:
            yield from _section(found[name], found)
    yield "## What a function raises on purpose"
    yield OUTCOMES.strip()
    for name in ("Retry", "Next", "Bury", "Discard"):
        outcome = find(name)
        yield f"### {name}"
        if (told := signature(outcome)) != name:
            yield f"`{told}`"
        yield markdown(outcome)


def _section(error: griffe.Class, known: Mapping[str, griffe.Class]) -> Iterator[str]:
    yield f"### {error.name}"
    bases = [f"[{base}](#{base.lower()})" if base in known else f"`{base}`" for base in map(str, error.bases)]
    below = [f"[{each.name}](#{each.name.lower()})" for each in known.values() if error.name in map(str, each.bases)]
    told = f"Base class: {bases[0]}." if len(bases) == 1 else f"Base classes: {', '.join(bases)}."
    yield told + (f" Subclasses: {', '.join(below)}." if below and error.name != "Error" else "")
    yield markdown(error)
